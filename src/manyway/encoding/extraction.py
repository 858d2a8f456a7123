"""Pictures or texts through an encoder to a FeatureSet: in batches, resumable, with provenance.

Finished chunks wait in a folder beside the output (``.NAME.partial``); a later call with the same encoder and the same
data goes on from them. The output itself appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from manyway.data.features import FeatureSet
from manyway.data.files import atomic_write
from manyway.data.items import Items
from manyway.encoding.datasets.sources import UNLABELLED, ImageSource, bad_picture, decode_rows, open_source
from manyway.encoding.datasets.texts import TextSource, open_texts
from manyway.encoding.encoders import ImageEncoder, TextEncoder
from manyway.errors import InputError

Source = ImageSource | TextSource
Encoder = ImageEncoder | TextEncoder


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of what could be read."""

    features: Tensor  # [n, d] float32
    rows: tuple[int, ...]  # which rows of the source they are
    bad: Mapping[str, str]  # name -> why it is not among them
    data_hash: str


@dataclass(frozen=True, eq=False)
class _Chunk:
    features: Tensor
    rows: Tensor
    bad: dict[str, str]
    digest: str


def open_for(encoder: Encoder, path: str | Path, root: str | Path | None = None) -> Source:
    """What an encoder can read at a path: texts for a text encoder, pictures for an image encoder."""
    return open_texts(path) if isinstance(encoder, TextEncoder) else open_source(path, root)


def encode(
    source: Source,
    encoder: Encoder,
    *,
    skip_bad: bool = False,
    chunk: int = 1024,
    partial: Path | None = None,
    progress: Callable[[int], None] = lambda n: None,
) -> Encoded:
    """Encode chunk by chunk; with a folder ``partial`` finished chunks are kept there and found again."""
    _same_kind(source, encoder)
    if partial is not None:
        _start_or_resume(partial, _fingerprint(source, encoder, chunk, skip_bad))
    chunks = []
    for start in range(0, len(source), chunk):
        rows = range(start, min(start + chunk, len(source)))
        path = None if partial is None else partial / f"{start:09d}.safetensors"
        done = None if path is None else _read_chunk(path)
        if done is None:
            done = _encode_chunk(source, encoder, rows, skip_bad)
            if path is not None:
                _write_chunk(path, done)
        chunks.append(done)
        progress(len(rows))
    if not any(len(part.rows) for part in chunks):
        raise InputError(f"Nothing in {source.title} could be read.")
    return Encoded(
        torch.cat([part.features for part in chunks if len(part.rows)]),
        tuple(row for part in chunks for row in part.rows.tolist()),
        {name: why for part in chunks for name, why in part.bad.items()},
        hashlib.sha256("".join(part.digest for part in chunks).encode()).hexdigest(),
    )


def extract(
    source: Source,
    encoder: Encoder,
    output: Path,
    *,
    base_mean: Tensor | None = None,
    skip_bad: bool = False,
    chunk: int = 1024,
    half: bool = False,
    progress: Callable[[int], None] = lambda n: None,
) -> tuple[FeatureSet, Mapping[str, str]]:
    """Encode and write ``output``; the feature set, and what was left out and why."""
    partial = output.parent / f".{output.name}.partial"
    encoded = encode(source, encoder, skip_bad=skip_bad, chunk=chunk, partial=partial, progress=progress)
    features = as_feature_set(source, encoder, encoded, base_mean)
    features.save(output, half=half)
    shutil.rmtree(partial, ignore_errors=True)
    return features, encoded.bad


def as_feature_set(source: Source, encoder: Encoder, encoded: Encoded, base_mean: Tensor | None = None) -> FeatureSet:
    """Features with labels and where they came from; a class that lost all its pictures is an error."""
    at = torch.tensor(encoded.rows)
    labels = source.labels[at]
    lost = set(range(len(source.class_names))) - set(labels.tolist())
    if lost:
        name = source.class_names[min(lost)]
        raise InputError(f"No picture of the class '{name}' in {source.title} could be read; mend or remove the class.")
    is_support = source.is_support if isinstance(source, ImageSource) else None
    meta: dict[str, Any] = {
        "source": source.title,
        "data sha256": encoded.data_hash,
        "encoder": encoder.name,
        "weights sha256": encoder.weights,
        "skipped": len(encoded.bad),
        "torch": torch.__version__,
    }
    if isinstance(encoder, ImageEncoder):
        meta["preprocess"] = encoder.preprocess.to_meta()
    return FeatureSet(
        encoded.features,
        labels,
        source.class_names,
        base_mean if base_mean is not None else encoder.base_mean,
        meta,
        is_support=None if is_support is None else is_support[at],
    )


def encode_items(
    path: str | Path, encoder: Encoder, *, skip_bad: bool = False, progress: Callable[[int], None] = lambda n: None
) -> Items:
    """What ``manyway label`` reads: a folder of pictures or a file of texts, as features with names and any labels."""
    source = open_for(encoder, path)
    encoded = encode(source, encoder, skip_bad=skip_bad, progress=progress)
    labelled = source.class_names != (UNLABELLED,)
    labels = source.labels.tolist()
    # A text is its own best name in a table of labels; a picture's is its path.
    names = source.texts if isinstance(source, TextSource) else source.names
    return Items(
        encoded.features,
        tuple(source.class_names[labels[row]] for row in encoded.rows) if labelled else None,
        [names[row] for row in encoded.rows],
        encoder.base_mean,
    )


def base_mean_from(path: str | Path, encoder: Encoder) -> Tensor:
    """[d] the mean feature of base data: of a feature file, or of pictures or texts encoded now."""
    path = Path(path)
    if path.suffix in {".safetensors", ".npz"}:
        return FeatureSet.load(path).features.mean(0)
    return encode(open_for(encoder, path), encoder).features.mean(0)


def _same_kind(source: Source, encoder: Encoder) -> None:
    if isinstance(source, TextSource) != isinstance(encoder, TextEncoder):
        what = "texts" if isinstance(source, TextSource) else "pictures"
        raise InputError(f"{source.title} holds {what}, which {encoder.name} cannot read.")


def _encode_chunk(source: Source, encoder: Encoder, rows: Sequence[int], skip_bad: bool) -> _Chunk:
    digest = hashlib.sha256()
    if isinstance(source, TextSource) and isinstance(encoder, TextEncoder):
        texts = [source.texts[row] for row in rows]
        digest.update("\0".join(texts).encode())
        return _Chunk(_finite(encoder.encode(texts), encoder), torch.tensor(rows), {}, digest.hexdigest())
    assert isinstance(source, ImageSource)
    assert isinstance(encoder, ImageEncoder)
    digests: dict[int, str] = {}
    read = source.read

    def read_and_hash(row: int) -> bytes:
        data = read(row)
        digests[row] = hashlib.sha256(data).hexdigest()
        return data

    pictures, bad = decode_rows(replace(source, read=read_and_hash), rows, encoder.preprocess)
    if bad and not skip_bad:
        raise bad_picture(bad, source.title)
    kept = [row for row, picture in zip(rows, pictures, strict=True) if picture is not None]
    for row in kept:
        digest.update(f"{source.names[row]}\0{digests[row]}\n".encode())
    batches = torch.split(torch.stack([p for p in pictures if p is not None]), 256) if kept else ()
    features = [_finite(encoder.encode(batch), encoder) for batch in batches]
    return _Chunk(torch.cat(features) if features else torch.empty(0, 0), torch.tensor(kept), bad, digest.hexdigest())


def _finite(features: Tensor, encoder: Encoder) -> Tensor:
    if not bool(torch.isfinite(features).all()):
        raise InputError(
            f"{encoder.name} gave features that are not finite; its weights or the input's scale are wrong."
        )
    return features


def _fingerprint(source: Source, encoder: Encoder, chunk: int, skip_bad: bool) -> str:
    """What must be the same for finished chunks to be of use."""
    listing = hashlib.sha256("\0".join(source.names).encode())
    if isinstance(source, TextSource):
        listing.update("\0".join(source.texts).encode())
    preprocess = encoder.preprocess.to_meta() if isinstance(encoder, ImageEncoder) else None
    parts = [source.title, listing.hexdigest(), encoder.weights, preprocess, chunk, skip_bad]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _start_or_resume(partial: Path, fingerprint: str) -> None:
    """Keep the finished chunks of the same job; throw those of another away."""
    job = partial / "job"
    if not job.is_file() or job.read_text() != fingerprint:
        shutil.rmtree(partial, ignore_errors=True)
        with atomic_write(job) as temporary:
            temporary.write_text(fingerprint)


def _write_chunk(path: Path, chunk: _Chunk) -> None:
    header = {"bad": json.dumps(chunk.bad), "digest": chunk.digest}
    with atomic_write(path) as temporary:
        save_file({"features": chunk.features.contiguous(), "rows": chunk.rows}, temporary, metadata=header)


def _read_chunk(path: Path) -> _Chunk | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata()
            features, rows = file.get_tensor("features").clone(), file.get_tensor("rows").clone()
    except (SafetensorError, OSError):
        return None
    return _Chunk(features, rows, json.loads(header["bad"]), header["digest"])
