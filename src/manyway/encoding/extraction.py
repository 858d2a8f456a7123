"""Pictures or texts to features, and to a FeatureSet that says where they come from.

The cache keeps the features.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.encoding.cache import FeatureCache
from manyway.encoding.datasets.preprocess import Remarks
from manyway.encoding.datasets.sources import ImageSource, Source, decode_rows, open_source
from manyway.encoding.datasets.texts import TextSource, open_texts
from manyway.encoding.encoders import PICTURES_AND_TEXTS, TORCH, ImageEncoder, TextEncoder
from manyway.encoding.kinds import PICTURES, TEXTS, likely_kind
from manyway.errors import InputError, few
from manyway.files import AUTO, AnyPath, Items, Options, check_output
from manyway.sampling import FeatureSet

_DECODING = 3  # changes when the same file gives other pixels than before
_TOGETHER = 16  # items that are encoded together: few, so that the progress is seen
Encoder = ImageEncoder | TextEncoder
EncodingProgress = Callable[[int, int], None]


class Encoded(NamedTuple):
    """Features of the items that could be read."""

    features: Tensor  # [n, d] float32
    rows: tuple[int, ...]  # [n] their rows in the source
    skipped: Remarks  # name and reason of the items that could not be read
    notes: Remarks  # name, and what the user should know about how it was read
    data_hash: str  # SHA-256 of the names and contents that were read


def remarks(skipped: Remarks, notes: Remarks) -> Iterator[str]:
    """Sentences for the screen: one per reason for which items were left out, one per kind of note.

    >>> list(remarks((("a.png", "it is damaged"),), (("b.gif", "only its first frame is used"),)))
    ['left out a.png: it is damaged', 'b.gif: only its first frame is used']
    """
    for given, start in ((skipped, "left out "), (notes, "")):
        for note in sorted({note for _, note in given}):
            names = [name for name, other in given if other == note]
            yield f"{start}{few(names, 3)}: {note}"


def open_for(
    encoder: Encoder,
    path: AnyPath,
    root: AnyPath | None = None,
    options: Options = AUTO,
    *,
    need_labels: bool = True,
    skip_empty: bool = False,
) -> Source:
    """Open what an encoder can read at a path.

    Texts for a text encoder, pictures for an image encoder.

    A model that reads both gets texts where the path holds texts. ``root`` is the folder of the
    pictures of a table; ``options`` name the columns of a table of texts. For ``need_labels`` see
    ``open_source``; ``skip_empty`` leaves out rows without a text.
    """
    path = Path(path)
    kind = likely_kind(path, options)
    if isinstance(encoder, TextEncoder) and kind == PICTURES:
        hint = "choose an `encoder` of pictures, or of pictures and texts if there are class names"
        raise InputError(f"{path} holds pictures, which {encoder.name} cannot read; {hint}.")
    if isinstance(encoder, TextEncoder) or (kind == TEXTS and encoder.texts is not None):
        return open_texts(path, options, need_labels=need_labels, skip_empty=skip_empty)
    if kind == TEXTS and path.is_file():
        hint = (
            "choose an `encoder` of texts or, for names of pictures, one of both, "
            f"such as {PICTURES_AND_TEXTS}"
        )
        raise InputError(f"{path} holds texts, which {encoder.name} cannot read; {hint}.")
    return open_source(path, root, options, need_labels=need_labels)


def part_for(encoder: Encoder, source: Source) -> Encoder:
    """The encoder of the kind that a source holds.

    The given one or, for texts, that of texts in the same space.
    """
    if isinstance(source, TextSource) == isinstance(encoder, TextEncoder):
        return encoder
    if isinstance(encoder, ImageEncoder) and encoder.texts is not None:
        return encoder.texts
    what = "texts" if isinstance(source, TextSource) else "pictures"
    raise InputError(f"{source.title} holds {what}, which {encoder.name} cannot read.")


def cache_for(encoder: Encoder, say: Callable[[str], None] = lambda sentence: None) -> FeatureCache:
    """The features that an encoder of one kind has computed before.

    See `part_for` and `FeatureCache`.
    """
    if isinstance(encoder, TextEncoder):
        return FeatureCache([_DECODING, "texts", encoder.name, encoder.weights, None], say=say)
    space = [_DECODING, "pictures", encoder.name, encoder.weights, encoder.preprocess.to_meta()]
    # What was kept before there were other engines is of torch, and need not be made again.
    return FeatureCache(space if encoder.engine == TORCH else [*space, encoder.engine], say=say)


def first_items(source: Source, count: int) -> Source:
    """The first few items of a source."""
    count = min(count, len(source))
    some: dict[str, Any] = {
        "names": source.names[:count],
        "labels": source.labels[:count],
        "left_out": (),
    }
    if isinstance(source, TextSource):
        some |= {"texts": source.texts[:count], "items": source.items and source.items[:count]}
    return replace(source, **some)


def encode(
    source: Source,
    encoder: Encoder,
    *,
    skip_bad: bool = False,
    cache: FeatureCache | None = None,
    progress: EncodingProgress = lambda n, encoded: None,
) -> Encoded:
    """Encode all items of a source with an encoder that can read them.

    ``skip_bad`` leaves out pictures that cannot be used; otherwise the first one is an error.
    Features in ``cache`` are not computed again, and new ones are added to it. ``progress`` is
    called with the number of items done since the last call, and of those that were encoded for it.
    """
    encoding = _Encoding(source, part_for(encoder, source), cache, skip_bad)
    together = _TOGETHER * (16 if torch.cuda.is_available() else 1)
    for start in range(0, len(source), together):
        rows = range(start, min(start + together, len(source)))
        progress(len(rows), encoding.add(rows))
    return encoding.result()


class _Encoding:
    """The items of a source that are encoded so far."""

    def __init__(
        self, source: Source, encoder: Encoder, cache: FeatureCache | None, skip_bad: bool
    ) -> None:
        self.source = source
        self.encoder = encoder
        self.cache = cache
        self.skip_bad = skip_bad
        self.digests: dict[int, str] = {}  # of the content, by row
        self.features: dict[int, Tensor] = {}  # [d] by row
        self.notes: dict[int, str] = {}  # by row
        self.skipped: Remarks = ()

    def add(self, rows: range) -> int:
        """Encode some rows; how many of them were not in the cache."""
        new: Mapping[int, Any]
        if isinstance(self.source, TextSource):
            new = self._new_texts(rows)
        else:
            new = self._new_pictures(rows)
        if new:
            made = _encode_batch(self.encoder, list(new.values()))
            for row, values in zip(new, made, strict=True):
                self.features[row] = values
                if self.cache is not None:
                    self.cache.add(self.digests[row], values, self.notes.get(row, ""))
        return len(new)

    def _new_texts(self, rows: range) -> dict[int, str]:
        """The texts of the rows that are not in the cache."""
        assert isinstance(self.source, TextSource)
        texts = self.source.texts
        return {row: texts[row] for row in rows if self._is_new(row, _bytes(texts[row]))}

    def _new_pictures(self, rows: range) -> dict[int, Tensor]:
        """The pictures of the rows that are not in the cache and can be used."""
        assert isinstance(self.source, ImageSource)
        assert isinstance(self.encoder, ImageEncoder)
        decoded = decode_rows(
            self.source,
            rows,
            self.encoder.preprocess,
            skip_bad=self.skip_bad,
            wanted=self._is_new,
        )
        self.skipped = self.skipped + decoded.skipped
        pictures = {
            row: picture
            for row, picture in zip(rows, decoded.pictures, strict=True)
            if picture is not None
        }
        remarked = dict(decoded.notes)
        self.notes |= {row: remarked.get(self.source.names[row], "") for row in pictures}
        return pictures

    def _is_new(self, row: int, data: bytes) -> bool:
        """Whether the content of a row is not in the cache; what is there is taken."""
        digest = hashlib.sha256(data).hexdigest()
        self.digests[row] = digest
        found = None if self.cache is None else self.cache.get(digest)
        if found is None:
            return True
        self.features[row], self.notes[row] = found
        return False

    def result(self) -> Encoded:
        """All of it, in the order of the source."""
        if not self.features:
            raise InputError(f"Nothing in {self.source.title} could be read.")
        names = self.source.names
        rows = sorted(self.features)
        contents = "".join(f"{names[row]}\0{self.digests[row]}\n" for row in rows)
        return Encoded(
            features=torch.stack([self.features[row] for row in rows]),
            rows=tuple(rows),
            skipped=(*self.skipped, *self.source.left_out),
            notes=tuple((names[row], self.notes[row]) for row in rows if self.notes.get(row)),
            data_hash=hashlib.sha256(_bytes(contents)).hexdigest(),
        )


def extract(
    source: Source,
    encoder: Encoder,
    output: Path,
    *,
    base_mean: Tensor | None = None,
    skip_bad: bool = False,
    half: bool = False,
    progress: EncodingProgress = lambda n, encoded: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> FeatureSet:
    """Encode a source and write a feature file, which appears complete or not at all.

    Features are kept in the cache as they are made, so that an interrupted extraction continues
    where it stopped. ``base_mean`` [d] is by default that of the encoder. ``half`` stores the
    features as float16. ``say`` is called with a sentence if the cache cannot be written. For the
    other parameters see ``encode``.

    ``meta`` of the result says where the features come from; ``meta["skipped"]`` lists
    [name, reason] of the items that were left out, and ``meta["notes"]`` [name, note] of those that
    were read in an unusual way.
    """
    output = check_output(output)
    encoder = part_for(encoder, source)
    with cache_for(encoder, say) as cache:
        encoded = encode(source, encoder, skip_bad=skip_bad, cache=cache, progress=progress)
    features = as_feature_set(source, encoder, encoded, base_mean)
    features.save(output, half=half)
    return features


def as_feature_set(
    source: Source, encoder: Encoder, encoded: Encoded, base_mean: Tensor | None = None
) -> FeatureSet:
    """Features with labels and metadata; a class without a readable picture is an error."""
    at = torch.tensor(encoded.rows)
    refuse_lost_class(source, encoded)
    is_support = source.is_support if isinstance(source, ImageSource) else None
    meta: dict[str, Any] = {
        "source": source.title,
        "data sha256": encoded.data_hash,
        "torch": torch.__version__,
        "encoder": encoder.name,
        "weights sha256": encoder.weights,
        "skipped": [list(remark) for remark in encoded.skipped],
    }
    if encoded.notes:
        meta["notes"] = [list(remark) for remark in encoded.notes]
    if isinstance(encoder, ImageEncoder):
        meta["preprocess"] = encoder.preprocess.to_meta()
        meta["engine"] = encoder.engine
    if base_mean is None:
        base_mean = encoder.base_mean
    given = None if is_support is None else is_support[at]
    return FeatureSet(
        encoded.features, source.labels[at], source.class_names, base_mean, meta, is_support=given
    )


def refuse_lost_class(source: Source, encoded: Encoded) -> None:
    """Refuse a class without a readable picture: it would be gone without a word."""
    lost = set(range(len(source.class_names))) - set(
        source.labels[torch.tensor(encoded.rows)].tolist()
    )
    if lost:
        which = f"the class '{source.class_names[min(lost)]}' in {source.title}"
        raise InputError(
            f"No picture of {which} could be read; repair its files or remove the class."
        )


def encode_items(
    source: str | Path | Source,
    encoder: Encoder,
    *,
    skip_bad: bool = False,
    cache: FeatureCache | None = None,
    progress: EncodingProgress = lambda n, encoded: None,
) -> Items:
    """Encode a folder of pictures or a file of texts for ``manyway label``.

    ``source`` is a path or what `open_for` returns. The items have names, labels if there are any,
    ``skipped`` (name and reason of the items left out) and ``notes`` (sentences about items that
    were read in an unusual way).
    """
    if isinstance(source, str | Path):
        source = open_for(encoder, source)
    encoded = encode(source, encoder, skip_bad=skip_bad, cache=cache, progress=progress)
    labels = source.labels.tolist()
    refuse_lost_class(source, encoded)
    classes = None
    if source.is_labelled:
        classes = tuple(source.class_names[labels[row]] for row in encoded.rows)
    called = [source.names[row] for row in encoded.rows]
    notes = (*source.notes, *remarks((), encoded.notes))
    read = set(encoded.rows)
    damaged = [row for row in range(len(source)) if row not in read]
    left_out = range(len(source), len(source) + len(source.left_out))
    rows = [*encoded.rows, *damaged, *left_out]
    carried = {
        name: [cells[row] for row in rows if row < len(cells)]
        for name, cells in source.carried.items()
    }
    items = Items(
        encoded.features,
        classes,
        called,
        encoder.base_mean,
        skipped=encoded.skipped,
        notes=notes,
        carried=carried,
        origin=None if source.origin is None else source.origin.take(rows),
    )
    if not isinstance(source, TextSource):
        return items
    # Texts are all encoded. Without a name, a text is called by itself.
    return replace(items, names=list(source.items or source.texts), texts=source.texts)


def base_mean_from(path: str | Path, encoder: Encoder) -> Tensor:
    """The mean feature [d] of base data.

    They are a feature file, or pictures or texts that are encoded now.
    """
    path = Path(path)
    if path.suffix in {".safetensors", ".npz"}:
        return FeatureSet.load(path).features.mean(0)
    return encode(open_for(encoder, path), encoder).features.mean(0)


def _encode_batch(encoder: Encoder, items: Sequence[Any]) -> Tensor:
    if isinstance(encoder, ImageEncoder):
        features = encoder.encode(torch.stack(list(items)))
    else:
        features = encoder.encode(items)
    if not bool(torch.isfinite(features).all()):
        raise InputError(
            f"{encoder.name} gave features that are not finite; its weights or input are wrong."
        )
    return features


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # file names may hold bytes that are not UTF-8
