"""How the hostile files are made: one small problem whose answers are known, written in every way that people write.

A case has files: ``c``, the labelled examples; ``p``, the pile; and ``l``, their labels. Each is a content, or a name
with a content; what is not given is as it should be.
"""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

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


class Case(NamedTuple):
    """Files, options of the command, and the words that must be shown."""

    words: tuple[str, ...]
    files: Mapping[str, Any]
    options: tuple[str, ...]


def case(*words: str, c: Any = None, p: Any = None, l: Any = None, more: Any = None, options: str = "") -> Case:  # noqa: E741
    """``more`` are files beside, by name; ``options`` are those of the command line."""
    files = {"c": ("c.csv", known()) if c is None else c, "p": ("p.csv", pile()) if p is None else p}
    if l is not None:
        files["l"] = l if isinstance(l, tuple) else ("l.txt", l)
        options += f" --labels {files['l'][0]}"
    named = {which: given if isinstance(given, tuple) else (f"{which}.csv", given) for which, given in files.items()}
    beside = {name: (name, content) for name, content in (more or {}).items()}
    return Case(words, named | beside, tuple(options.split()))


def make(folder: Path, found: Case) -> list[str]:
    """Write the files of a case; the arguments of ``manyway label``."""
    for name, content in found.files.values():
        write(folder / name, content)
    return [found.files["c"][0], found.files["p"][0], *found.options]


def write(path: Path, content: Any) -> Path:
    """Write a file in the format of its ending, or as the content says; a function makes it by itself."""
    if os.name == "nt" and ("/dev/" in path.as_posix() or set(path.name) & set('<>:"|?*\n\t')):
        pytest.skip("Windows has no such names")
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower()
    if callable(content):
        content(path)
    elif isinstance(content, bytes | str):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    elif suffix == ".npy":
        np.save(path, content)
    elif suffix == ".npz":
        np.savez(path.with_suffix(".npz"), **content)
        path.with_suffix(".npz").rename(path)
    elif suffix == ".parquet":
        write_parquet(path, content)
    elif suffix == ".safetensors":
        import torch
        from safetensors.torch import save_file

        header = {"manyway-features-1": content["header"]} if "header" in content else None
        save_file({k: torch.as_tensor(v) for k, v in content.items() if k != "header"}, path, header)
    elif suffix == ".xlsx":
        import openpyxl

        book = openpyxl.Workbook()
        for name, rows in content.items():
            page = book.create_sheet(name)
            for row in rows:
                page.append(row)
        book.remove(book.active)
        book.save(path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in content))
    return path


def write_parquet(path: Path, columns: Mapping[str, Any], metadata: Any = None, **how: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(metadata), path, **how)


def text(header: Sequence[Any] | None, rows: Iterable[Iterable[Any]], sep: str = ",", end: str = "\n") -> str:
    """A text table, quoted where needed."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=sep, lineterminator=end)
    writer.writerows([*([] if header is None else [header]), *rows])
    return out.getvalue()


Cells = Callable[[int], Any] | Sequence[Any]


def _written(
    values: Any,
    first: Mapping[str, Cells],
    last: Mapping[str, Cells],
    names: Sequence[str] | None = None,
    order: Sequence[int] | None = None,
    change: Mapping[tuple[int, int], Any] | None = None,
    decimal: str = ".",
    sep: str = ",",
    end: str = "\n",
    header: bool = True,
) -> str:
    """A table of features: ``first`` and ``last`` are columns around them, ``change`` replaces cells of the whole."""
    order = range(values.shape[1]) if order is None else order
    rows = []
    for i, row in enumerate(values):
        around = [[cells(i) if callable(cells) else cells[i] for cells in side.values()] for side in (first, last)]
        rows.append([*around[0], *(str(row[at]).replace(".", decimal) for at in order), *around[1]])
    for (row, at), cell in (change or {}).items():
        rows[row][at] = cell
    columns = [*first, *((names or COLUMNS)[at] for at in order), *last]
    return text(columns if header else None, rows, sep, end)


def known(labels: Any = Y, *, label: str = "label", first: Any = None, last: Any = None, **how: Any) -> str:
    """The labelled examples as text."""
    return _written(how.pop("values", X), first or {}, {label: labels, **(last or {})}, **how)


def pile(*, first: Any = None, last: Any = None, **how: Any) -> str:
    """The items as text."""
    return _written(how.pop("values", QUERY), first or {}, last or {}, **how)


def both(c: str = "c.csv", p: str = "p.csv", encoding: str = "utf-8", **how: Any) -> dict[str, Any]:
    """Examples and items, written in the same way."""
    return {"c": (c, known(**how).encode(encoding)), "p": (p, pile(**how).encode(encoding))}


def columns(values: Any, order: Sequence[int] | None = None, **more: Any) -> dict[str, Any]:
    """Features as named columns, with others."""
    return {**{COLUMNS[i]: values[:, i] for i in (range(D) if order is None else order)}, **more}


def records(values: Any, **more: Any) -> list[dict[str, Any]]:
    """The same as JSON objects."""
    rows = [dict(zip(COLUMNS, map(float, row), strict=True)) for row in values]
    return [{**row, **{name: cells[i] for name, cells in more.items()}} for i, row in enumerate(rows)]


def vectors(values: Any, **more: Any) -> list[dict[str, Any]]:
    """The same with one list per object."""
    return [{"v": row.tolist(), **{name: cells[i] for name, cells in more.items()}} for i, row in enumerate(values)]


def sheet(values: Any, **around: Any) -> list[list[Any]]:
    """The rows of an Excel sheet."""
    rows = [[*(cells[i] for cells in around.values()), *map(float, row)] for i, row in enumerate(values)]
    return [[*around, *COLUMNS], *rows]


def changed(value: Any, rows: Sequence[int] = (1, 3)) -> list[Any]:
    """Labels of which some are replaced."""
    return [value if row in rows else label for row, label in enumerate(Y.tolist())]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    """A device of our own: a test that fails as root would replace /dev/null for the whole machine."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices can only be made by root")


def folder(path: Path) -> None:
    path.mkdir()


def link(target: str) -> Callable[[Path], None]:
    def create(path: Path) -> None:
        if os.name == "nt" and target.startswith("/dev/"):
            pytest.skip("Windows has no such files")
        path.symlink_to(target)

    return create


def saved(content: Any, suffix: str) -> bytes:
    """The bytes of a file, for somebody who damages them."""
    import tempfile

    with tempfile.TemporaryDirectory() as where:
        return write(Path(where) / f"a{suffix}", content).read_bytes()
