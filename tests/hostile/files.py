"""How the hostile files are made: one small problem whose answers are known, written in every way that people write."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np

K, SHOTS, D, N = 6, 3, 8, 20
COLUMNS = [f"f{i}" for i in range(D)]


def _problem():
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(K, D)) * 5
    names = np.array([f"c{k}" for k in range(K)])
    truth = rng.choice([1, 4], size=N)
    x = np.repeat(centres, SHOTS, axis=0) + 0.3 * rng.normal(size=(K * SHOTS, D))
    query = centres[truth] + 0.3 * rng.normal(size=(N, D))
    return x.astype(np.float32), np.repeat(names, SHOTS), query.astype(np.float32), names[truth]


X, Y, QUERY, TRUTH = _problem()


def cells(values, decimal="."):
    return [
        [str(v).replace(".", decimal) if isinstance(v, float | np.floating) else str(v) for v in row] for row in values
    ]


def text(header, rows, sep=",", end="\n"):
    """A text table, quoted where needed."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=sep, lineterminator=end)
    if header is not None:
        writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def examples(order=None, decimal=".", labels=None, first=True):
    """Header and rows of the labelled examples as text."""
    order = list(range(D)) if order is None else order
    labels = Y if labels is None else labels
    rows = [[*row, label] for row, label in zip(cells(X[:, order], decimal), labels, strict=True)]
    return [*(COLUMNS[i] for i in order), "label"], rows


def items(order=None, decimal=".", names=False):
    order = list(range(D)) if order is None else order
    rows = cells(QUERY[:, order], decimal)
    header = [COLUMNS[i] for i in order]
    if names:
        return ["item", *header], [[f"photo {n}", *row] for n, row in enumerate(rows)]
    return header, rows


class Folder:
    """A folder of files: ``c`` are the labelled examples, ``p`` the pile."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, content: str | bytes, encoding: str = "utf-8") -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    def csv(self, c="c.csv", p="p.csv", sep=",", decimal=".", encoding="utf-8", end="\n", c_order=None, p_order=None):
        """Both files, right in every respect."""
        return [
            self.write(c, text(*examples(c_order, decimal), sep, end), encoding),
            self.write(p, text(*items(p_order, decimal), sep, end), encoding),
        ]

    def examples(self):
        return self.write("c.csv", text(*examples()))

    def pile(self, order=None):
        return self.write("p.csv", text(*items(order)))

    def npz_examples(self):
        return self.npz("c.npz", features=X, labels=Y)

    def npz_pile(self):
        return self.npz("p.npz", features=QUERY)

    def good_npz(self):
        return [self.npz_examples(), self.npz_pile()]

    def npz(self, name, **arrays):
        np.savez(self.path / name, **arrays)
        return self.path / name

    def npy(self, name, array):
        np.save(self.path / name, array)
        return self.path / name

    def parquet(self, name, columns, **more):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(columns)
        pq.write_table(
            table.replace_schema_metadata(more.get("metadata")),
            self.path / name,
            row_group_size=more.get("row_group_size"),
        )
        return self.path / name

    def jsonl(self, name, records):
        return self.write(name, "".join(json.dumps(record) + "\n" for record in records))


def columns(values, order=None):
    """Features as named columns."""
    return {COLUMNS[i]: values[:, i] for i in (range(D) if order is None else order)}
