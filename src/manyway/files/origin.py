"""Where the rows of items are in the table of a user, so that this table can be given back with their labels."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from manyway.files.files import Version, version_of
from manyway.files.tables import Table

EMBEDDING = 64  # so many features or more are an embedding: nobody reads them in a table


class Known(NamedTuple):
    """What is written beside a row that is no item."""

    label: str
    note: str


@dataclass(frozen=True)
class TableOrigin:
    """The table that items were read from.

    Parameters
    ----------
    path : Path
        The file.
    rows : tuple of int
        [n] the row of each item and, after them, of each that was skipped; the first row of the table has number 0.
    sheet : str or None
        The sheet of an Excel file, as the user named it.
    features : tuple of str
        The columns of an embedding, which is not given back.
    known : mapping of int to Known
        Rows that are no items, such as the examples of a partly labelled table.
    named : bool, default=True
        Whether the first line of a text names the columns.
    version : tuple of int or None
        What tells whether the file has changed since it was read; None where that does not matter.
    """

    path: Path
    rows: tuple[int, ...]
    sheet: str | None = None
    features: tuple[str, ...] = ()
    known: Mapping[int, Known] = field(default_factory=dict)
    named: bool = True
    version: Version | None = field(default=None, compare=False)

    @property
    def is_unchanged(self) -> bool:
        """Whether the table is still as it was read: else its rows may be those of other items."""
        return self.version in (None, version_of(self.path))

    @classmethod
    def of(cls, table: Table, path: Path, count: int, sheet: str | None = None) -> "TableOrigin":
        """The origin of the ``count`` rows of a table that was opened."""
        return cls(path, tuple(table.positions(count)), sheet, named=table.named, version=table.version)

    def take(self, order: Iterable[int]) -> "TableOrigin":
        """The origin of some of the items, in another order."""
        return replace(self, rows=tuple(self.rows[at] for at in order))

    def without_embedding(self, columns: Sequence[str], n_features: int) -> "TableOrigin":
        """The same, without the columns of features where they are an embedding."""
        if n_features < EMBEDDING:
            return self
        return replace(self, features=tuple(columns))

    def saved(self) -> dict[str, Any]:
        """The same as plain values, with what tells whether the table has changed since."""
        return {
            "path": os.path.abspath(self.path),
            "rows": list(self.rows),
            "sheet": self.sheet,
            "features": list(self.features),
            "known": {str(row): list(known) for row, known in self.known.items()},
            "named": self.named,
            "checksum": _checksum(self.path) if self.is_unchanged else "",
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> "TableOrigin | None":
        """What was saved; None where the table is gone, or has changed since."""
        path = Path(saved["path"])
        version = version_of(path)
        if not saved["checksum"] or _checksum(path) != saved["checksum"]:
            return None
        known = {int(row): Known(str(label), str(note)) for row, (label, note) in saved["known"].items()}
        rows = tuple(map(int, saved["rows"]))
        return cls(path, rows, saved["sheet"], tuple(saved["features"]), known, bool(saved["named"]), version)

    def labelled(self, labels: Sequence[str], skipped: Sequence[tuple[str, str]]) -> dict[int, Known]:
        """What is known of these rows, if they are the examples of a partly labelled table."""
        count = len(labels)
        known = {row: Known(label, "given") for row, label in zip(self.rows[:count], labels, strict=True)}
        for row, (_, reason) in zip(self.rows[count:], skipped, strict=True):
            known[row] = Known("", f"skipped: {reason}")
        return known


def _checksum(path: Path) -> str:
    """The SHA-256 of a file; empty where it cannot be read, or is a folder."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
