"""Labelled examples and items as ``label`` and ``review`` read them, and the options that say how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.cli.console import console, say
from manyway.errors import InputError

if TYPE_CHECKING:
    import torch

    from manyway.data.items import Items

Labels = Annotated[
    Path | None,
    typer.Option(help="Labels of the examples if EXAMPLES has none: one per line, the column of a csv, or .npy."),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="Turn pictures (one folder per class) or texts (csv, jsonl, txt) into features first: a checkpoint of "
        "`manyway train`, timm:NAME, open_clip:NAME or sentence-transformers:NAME-or-folder."
    ),
]
OpenSet = Annotated[
    bool | None,
    typer.Option(
        "--open-set/--closed",
        help="Whether items may be of no class. They are then labelled `unknown`, and the table says which of them "
        "belong together. `manyway label` does so by default, if the method can and some class has two examples.",
    ),
]
SkipBadItems = Annotated[
    bool, typer.Option("--skip-bad", help="With --encoder: leave broken pictures out and list them in the table.")
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column of labels in a table. Default: found by its name.")
]
ItemColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of item names in a table. Default: `item`, or an id column."),
]
IgnoreColumn = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A column of a table to leave out; may be repeated.")
]
FeatureColumn = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A column that is a feature although it looks like an index; repeatable."),
]
_ENCODED = {".zip", ".txt", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff", ".webp", ".bmp"}


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

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """What is read, and must not be written over."""
        return self.support, self.query, self.labels, self.class_names

    def check(self) -> None:
        """Refuse pictures and texts where no encoder was named."""
        from manyway.data.items import SUFFIXES

        for path in filter(None, (self.support, self.query, self.class_names) if self.encoder is None else ()):
            suffix = path.suffix.lower()
            if (path.is_dir() and suffix != ".parquet") or (path.is_file() and suffix in _ENCODED):
                raise InputError(
                    f"{path} holds pictures or texts, not features ({', '.join(SUFFIXES)}); add --encoder to turn them "
                    "into features, for example --encoder timm:resnet50 or sentence-transformers:all-MiniLM-L6-v2."
                )

    def read(self, device: torch.device) -> tuple[Items, Items, Items | None]:
        """Read or encode examples, items and class names, and print what the reader guessed."""
        from dataclasses import replace

        from manyway.data.columns import remarks_on_classes
        from manyway.data.items import read_labels

        examples, items, named = self._features() if self.encoder is None else self._encode(self.encoder, device)
        for note in (*examples.notes, *items.notes):
            say(f"note: {note}", stderr=True)
        if self.labels is not None:
            names = read_labels(self.labels, self.label_column)
            if len(names) != len(examples):
                raise InputError(
                    f"{self.labels} has {len(names)} labels for {len(examples)} examples; give one for each."
                )
            if examples.labels is not None and examples.labels != names:
                say(f"note: the labels in {self.labels} are used, not those in {self.support}", stderr=True)
            for note in remarks_on_classes(self.labels, names):
                say(f"note: {note}", stderr=True)
            examples = replace(examples, labels=names)
        if items.all_alike():
            say(f"note: all items in {self.query} have the same features; check the encoder or the file", stderr=True)
        return examples, items, named

    def _features(self) -> tuple[Items, Items, Items | None]:
        from manyway.data.items import read_items

        ignore, keep = tuple(self.ignore_columns), tuple(self.feature_columns)

        def read(path: Path, like: Items | None = None) -> Items:
            return read_items(
                path,
                like=like,
                label_column=self.label_column,
                item_column=self.item_column,
                ignore_columns=ignore,
                feature_columns=keep,
            )

        named = None if self.class_names is None else read(self.class_names)
        examples = _no_examples(named) if self.support is None else read(self.support)
        items = read(self.query, like=examples)
        _need_columns(examples, items, None if self.labels is not None else self.label_column, self.item_column)
        _need_columns(examples, items, None, *ignore, *keep)
        return examples, items, named

    def _encode(self, encoder: str, device: torch.device) -> tuple[Items, Items, Items | None]:
        from manyway.encoding.encoders import open_encoder
        from manyway.encoding.extraction import encode_items

        with console(stderr=True).status(f"encoding {self.query} …"):
            opened = open_encoder(encoder, device=device, say=lambda sentence: say(sentence, stderr=True))
            named = None if self.class_names is None else encode_items(self.class_names, opened)
            items = encode_items(self.query, opened, skip_bad=self.skip_bad)
            if self.support is None:
                examples = _no_examples(named)
            else:
                examples = encode_items(self.support, opened, skip_bad=self.skip_bad)
        for path, read in ((self.support, examples), (self.query, items)):
            for name, reason in read.skipped:
                say(f"skipped {name} of {path}: {reason}", stderr=True)
        return examples, items, named


def _no_examples(named: Items | None) -> Items:
    """Examples of no class, in the space of the class names."""
    from dataclasses import replace

    assert named is not None
    return replace(named, features=named.features[:0], labels=(), names=None, skipped=(), notes=())


def _need_columns(examples: Items, items: Items, label_column: str | None, *others: str | None) -> None:
    """Refuse a column that was asked for and that no table has: it is a slip of the pen."""
    from manyway.data.columns import find_column
    from manyway.errors import nearest

    headers = [read.header for read in (examples, items) if read.header]
    if label_column is not None and examples.header and find_column(examples.header, label_column) is None:
        raise InputError(
            f"The labelled examples have no column '{label_column}'; {nearest(label_column, examples.header)}"
        )
    for name in filter(None, others):
        if headers and all(find_column(header, name) is None for header in headers):
            raise InputError(f"There is no column '{name}'; {nearest(name, headers[-1])}")
