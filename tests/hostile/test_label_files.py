"""`manyway label` on files that are not what they should be: the right answer, or one sentence and no harm.

Every case is a function that makes files and returns the command line. ``labelled`` cases must give the right labels;
``refused`` cases must end with exit code 2, one sentence with the given words, no output, and inputs as they were.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import itertools
import os
import pickle
import re
import stat
import struct
import zipfile

import numpy as np
import pytest
import torch
from hostile.files import COLUMNS, QUERY, TRUTH, Folder, X, Y, cells, columns, examples, items, text
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file as save_torch

from manyway import FeatureSet
from manyway.cli import main

LABELLED: dict = {}
REFUSED: dict = {}


def labelled(*words):
    """Register a case whose labels must be right; the words must be shown."""

    def register(make):
        LABELLED[make.__name__] = (make, words)
        return make

    return register


def refused(*words):
    """Register a case that must be refused with these words."""

    def register(make):
        REFUSED[make.__name__] = (make, words)
        return make

    return register


def many(register, cases):
    """Register one case per entry: name -> (words, make)."""
    for name, (words, make) in cases.items():
        make.__name__ = name.replace(" ", "_")
        assert make.__name__ not in {**LABELLED, **REFUSED}, name
        register(*words)(make)


SHUFFLED = [3, 1, 7, 0, 2, 6, 5, 4]

# Text tables that are right, written in the many ways that programs write them.
many(
    labelled,
    {
        "plain csv": ((), lambda f: f.csv()),
        "columns in another order": ((), lambda f: f.csv(p_order=SHUFFLED)),
        "examples in another order": ((), lambda f: f.csv(c_order=SHUFFLED)),
        "byte order mark": ((), lambda f: f.csv(encoding="utf-8-sig")),
        "byte order mark in the pile alone": (
            (),
            lambda f: [f.examples(), f.write("p.csv", text(*items(names=True)), "utf-8-sig")],
        ),
        "utf16": ((), lambda f: f.csv(encoding="utf-16")),
        "utf32": ((), lambda f: f.csv(encoding="utf-32")),
        "semicolons": ((), lambda f: f.csv(sep=";")),
        "tabs in a csv": ((), lambda f: f.csv(sep="\t")),
        "tsv": ((), lambda f: f.csv("c.tsv", "p.tsv", sep="\t")),
        "bars": ((), lambda f: f.csv(sep="|")),
        "decimal commas": (("decimal comma",), lambda f: f.csv(sep=";", decimal=",")),
        "decimal commas with tabs": (("decimal comma",), lambda f: f.csv(sep="\t", decimal=",")),
        "decimal commas with a byte order mark": ((), lambda f: f.csv(sep=";", decimal=",", encoding="utf-8-sig")),
        "different delimiters": ((), lambda f: [f.csv(sep=";", decimal=",")[0], f.write("p.csv", text(*items()))]),
        "windows line ends": ((), lambda f: f.csv(end="\r\n")),
        "old mac line ends": ((), lambda f: f.csv(end="\r")),
        "no line end at the end": ((), lambda f: [f.examples(), f.write("p.csv", text(*items()).rstrip("\n"))]),
        "blank lines at the end": ((), lambda f: [f.examples(), f.write("p.csv", text(*items()) + "\n\n")]),
        "blank lines between": ((), lambda f: [f.examples(), f.write("p.csv", text(*items()).replace("\n", "\n\n"))]),
        "excel names its delimiter": (
            (),
            lambda f: [f.csv(sep=";")[0], f.write("p.csv", "sep=;\n" + text(*items(), sep=";"))],
        ),
        "capital ending": ((), lambda f: f.csv("c.CSV", "p.Csv")),
        "blanks around cells": ((), lambda f: [f.write("c.csv", text(*examples()).replace(",", " , ")), f.pile()]),
        "numbers with a plus sign": (
            (),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [[c if c[0] == "-" else f"+{c}" for c in r] for r in items()[1]])),
            ],
        ),
        "quoted cells": (
            (),
            lambda f: [
                f.examples(),
                f.write("p.csv", "".join(",".join(f'"{c}"' for c in r) + "\n" for r in [COLUMNS, *items()[1]])),
            ],
        ),
        "newlines in item names": (
            (),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["item", *COLUMNS], [[f"a\nb {i}", *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "u2028 in item names": (
            (),
            lambda f: [
                f.examples(),
                f.write(
                    "p.csv", text(["item", *COLUMNS], [[f"a\u2028b\x85{i}", *r] for i, r in enumerate(items()[1])])
                ),
            ],
        ),
        "item names of 200000 letters": (
            (),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["item", *COLUMNS], [["x" * 200_000, *r] for r in items()[1]])),
            ],
        ),
        "pile without header": (
            ("holds numbers", "keep their order"),
            lambda f: [f.examples(), f.write("p.csv", text(None, items()[1]))],
        ),
        "columns numbered by pandas": (
            (),
            lambda f: [
                f.write("c.csv", text([*map(str, range(8)), "label"], examples()[1])),
                f.write("p.csv", text([*map(str, range(8))], items()[1])),
            ],
        ),
        "columns named by wavelengths": (
            (),
            lambda f: [
                f.write("c.csv", text([*(f"{400.5 + 2 * i}" for i in range(8)), "label"], examples()[1])),
                f.write("p.csv", text([f"{400.5 + 2 * i}" for i in range(8)], items()[1])),
            ],
        ),
        "index of pandas in the pile": (
            ("'' of p.csv is taken as the item name",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["", *COLUMNS], [[i, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "index of pandas in both": (
            (),
            lambda f: [
                f.write("c.csv", text(["", *examples()[0]], [[i, *r] for i, r in enumerate(examples()[1])])),
                f.write("p.csv", text(["", *COLUMNS], [[i, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "unnamed column": (
            ("Unnamed: 0",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["Unnamed: 0", *COLUMNS], [[i, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "id column": (
            ("'photo_id' of p.csv is taken as the item name",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["photo_id", *COLUMNS], [[i * 7, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "index and id column": (
            ("counts rows and is left out",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["", "id", *COLUMNS], [[i, 7 * i, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "row numbers ignored": (
            (),
            lambda f: [
                f.write("c.csv", text(["nr", *examples()[0]], [[i, *r] for i, r in enumerate(examples()[1])])),
                f.write("p.csv", text(["nr", *COLUMNS], [[i, *r] for i, r in enumerate(items()[1])])),
                "--ignore-column",
                "nr",
            ],
        ),
        "capital Label": (
            ("'Label' of c.csv is taken as the label",),
            lambda f: [f.write("c.csv", text([*COLUMNS, "Label"], examples()[1])), f.pile()],
        ),
        "label named class": (
            ("'class' of c.csv is taken as the label",),
            lambda f: [f.write("c.csv", text([*COLUMNS, "class"], examples()[1])), f.pile()],
        ),
        "label with blanks": (
            (),
            lambda f: [
                f.write("c.csv", text([*COLUMNS, " label "], examples(labels=[f" {y} " for y in Y])[1])),
                f.pile(),
            ],
        ),
        "label column in another case": (
            (),
            lambda f: [
                f.write("c.csv", text([*COLUMNS, "Species"], examples()[1])),
                f.pile(),
                "--label-column",
                "species",
            ],
        ),
        "pile with empty labels": (
            (),
            lambda f: [f.examples(), f.write("p.csv", text([*COLUMNS, "label"], [[*r, ""] for r in items()[1]]))],
        ),
        "pile with some labels": (
            (),
            lambda f: [
                f.examples(),
                f.write(
                    "p.csv", text([*COLUMNS, "label"], [[*r, "c1" if i else ""] for i, r in enumerate(items()[1])])
                ),
            ],
        ),
        "labels beside a csv": (
            (),
            lambda f: [f.write("c.csv", text(COLUMNS, cells(X))), f.pile(), "--labels", f.write("l.txt", "\n".join(Y))],
        ),
        "path that looks like markup": ((), lambda f: f.csv("[red]c[/b].csv", "[/]p.csv")),
        "path that looks like an emoji": ((), lambda f: f.csv(":smile:.csv", "ß é.csv")),
    },
)

# The first lines of a table, where a row is easily lost.
many(
    labelled,
    {
        "blank lines in front": ((), lambda f: [f.examples(), f.write("p.csv", "\n\n" + text(*items()))]),
        "blank windows lines in front": (
            (),
            lambda f: [f.examples(), f.write("p.csv", "\r\n\r\n" + text(*items(), end="\r\n"))],
        ),
        "lines of blanks in front": ((), lambda f: [f.examples(), f.write("p.csv", "  \n \n" + text(*items()))]),
        "newline in a column name": (
            (),
            lambda f: [
                f.write("c.csv", text(["f\n0", *COLUMNS[1:], "label"], examples()[1])),
                f.write("p.csv", text(["f\n0", *COLUMNS[1:]], items()[1])),
            ],
        ),
        "headerless with a byte order mark": (
            (),
            lambda f: [f.examples(), f.write("p.csv", text(None, items()[1]), "utf-8-sig")],
        ),
        "headerless with decimal commas": (
            (),
            lambda f: [f.examples(), f.write("p.csv", text(None, items(decimal=",")[1], ";"))],
        ),
        "headerless after blank lines": (
            (),
            lambda f: [f.examples(), f.write("p.csv", "\n\n" + text(None, items()[1]))],
        ),
        "headerless in both": (
            (),
            lambda f: [
                f.write("c.csv", text(None, cells(X))),
                f.write("p.csv", text(None, items()[1])),
                "--labels",
                f.write("l.txt", "\n".join(Y)),
            ],
        ),
        "excel delimiter after a byte order mark": (
            (),
            lambda f: [f.examples(), f.write("p.csv", "sep=;\r\n" + text(*items(), ";", "\r\n"), "utf-8-sig")],
        ),
        "decimal commas in utf16": (
            ("decimal comma",),
            lambda f: f.csv(sep=";", decimal=",", encoding="utf-16"),
        ),
        "trailing delimiters": (
            (),
            lambda f: [f.examples(), f.write("p.csv", text([*COLUMNS, ""], [[*r, ""] for r in items()[1]]))],
        ),
        "three columns named by years": (
            (),
            lambda f: [
                f.write("c.csv", text(["2019", "2020", "2021", "label"], [[*r[1:4], r[-1]] for r in examples()[1]])),
                f.write("p.csv", text(["2021", "2019", "2020"], [[r[3], r[1], r[2]] for r in items()[1]])),
            ],
        ),
        "id column kept as a feature": (
            (),
            lambda f: [
                f.write("c.csv", text(["id", *COLUMNS[1:], "label"], examples()[1])),
                f.write("p.csv", text(["id", *COLUMNS[1:]], items()[1])),
                "--feature-column",
                "id",
            ],
        ),
    },
)

# Arrays, parquet and jsonl that are right.
many(
    labelled,
    {
        "capital npz": (
            (),
            lambda f: [f.npz("c.npz", features=X, labels=Y).rename(f / "c.NPZ"), f.npz("p.npz", features=QUERY)],
        ),
        "compressed npz": (
            (),
            lambda f: [
                np.savez_compressed(f / "c.npz", features=X, labels=Y) or f / "c.npz",
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "big endian": (
            (),
            lambda f: [f.npz("c.npz", features=X.astype(">f4"), labels=Y), f.npy("p.npy", QUERY.astype(">f8"))],
        ),
        "long double": (
            (),
            lambda f: [
                f.npz("c.npz", features=X.astype(np.longdouble), labels=Y),
                f.npy("p.npy", QUERY.astype(np.longdouble)),
            ],
        ),
        "half precision": (
            (),
            lambda f: [
                f.npz("c.npz", features=X.astype(np.float16), labels=Y),
                f.npy("p.npy", QUERY.astype(np.float16)),
            ],
        ),
        "fortran order": (
            (),
            lambda f: [
                f.npz("c.npz", features=np.asfortranarray(X), labels=Y),
                f.npy("p.npy", np.asfortranarray(QUERY)),
            ],
        ),
        "integer features": (
            (),
            lambda f: [
                f.npz("c.npz", features=np.rint(X * 100).astype(np.int64), labels=Y),
                f.npy("p.npy", np.rint(QUERY * 100).astype(np.int16)),
            ],
        ),
        "bytes labels": (
            (),
            lambda f: [f.npz("c.npz", features=X, labels=Y.astype("S")), f.npz("p.npz", features=QUERY)],
        ),
        "bytes items": (
            (),
            lambda f: [
                f.npz("c.npz", features=X, labels=Y),
                f.npz("p.npz", features=QUERY, items=np.array([f"p{i}" for i in range(20)]).astype("S")),
            ],
        ),
        "bytes class names": (
            (),
            lambda f: [
                f.npz(
                    "c.npz",
                    features=X,
                    labels=np.repeat(np.arange(6), 3),
                    class_names=np.array([f"c{k}" for k in range(6)]).astype("S"),
                ),
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "labels in npy": ((), lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.npy("l.npy", Y)]),
        "bytes labels in npy": (
            (),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.npy("l.npy", Y.astype("S"))],
        ),
        "labels in a csv column": (
            (),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.write("l.csv", text(["nr", "label"], enumerate(Y))),
            ],
        ),
        "labels with a byte order mark": (
            (),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.write("l.txt", "\n".join(Y) + "\n", "utf-8-sig"),
            ],
        ),
        "bfloat16": (
            (),
            lambda f: [
                FeatureSet(X, np.repeat(np.arange(6), 3), [f"c{k}" for k in range(6)]).save(f / "c.safetensors")
                or f / "c.safetensors",
                save_torch({"features": torch.from_numpy(QUERY).bfloat16()}, f / "p.safetensors")
                or f / "p.safetensors",
            ],
        ),
        "parquet in another order": (
            (),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": Y}),
                f.parquet("p.parquet", columns(QUERY, SHUFFLED)),
            ],
        ),
        "parquet and csv": ((), lambda f: [f.parquet("c.parquet", {**columns(X), "label": Y}), f.pile(SHUFFLED)]),
        "capital parquet": (
            (),
            lambda f: [f.parquet("c.PARQUET", {**columns(X), "label": Y}), f.parquet("p.Parquet", columns(QUERY))],
        ),
        "parquet of doubles": (
            (),
            lambda f: [
                f.parquet("c.parquet", {**columns(X.astype(float)), "label": Y}),
                f.parquet("p.parquet", columns(QUERY.astype(float))),
            ],
        ),
        "parquet with an index": (
            ("__index_level_0__",),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": Y}),
                f.parquet("p.parquet", {**columns(QUERY), "__index_level_0__": np.arange(20)[::-1]}),
            ],
        ),
        "parquet with a named index": (
            ("'sheet' of p.parquet",),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": Y}),
                f.parquet(
                    "p.parquet",
                    {**columns(QUERY), "sheet": np.arange(20) * 3},
                    metadata={"pandas": '{"index_columns": ["sheet"]}'},
                ),
            ],
        ),
        "parquet in a folder named like a partition": (
            (),
            lambda f: [
                (f / "run=3").mkdir() or f.parquet("run=3/c.parquet", {**columns(X), "label": Y}),
                f.parquet("run=3/p.parquet", columns(QUERY)),
            ],
        ),
        "parquet with lists": (
            (),
            lambda f: [
                f.parquet("c.parquet", {"embedding": list(X), "label": Y}),
                f.parquet("p.parquet", {"embedding": list(QUERY)}),
            ],
        ),
        "parquet with bytes labels": (
            (),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": [y.encode() for y in Y]}),
                f.parquet("p.parquet", columns(QUERY)),
            ],
        ),
        "jsonl": (
            (),
            lambda f: [
                f.jsonl(
                    "c.jsonl",
                    [{**dict(zip(COLUMNS, map(float, x), strict=True)), "label": y} for x, y in zip(X, Y, strict=True)],
                ),
                f.jsonl("p.jsonl", [dict(zip(COLUMNS[::-1], map(float, q[::-1]), strict=True)) for q in QUERY]),
            ],
        ),
        "jsonl with lists": (
            (),
            lambda f: [
                f.jsonl("c.jsonl", [{"vector": x.tolist(), "label": y} for x, y in zip(X, Y, strict=True)]),
                f.jsonl("p.JSONL", [{"id": i, "vector": q.tolist()} for i, q in enumerate(QUERY)]),
            ],
        ),
        "a file of another program in the way of a named output": (
            (),
            lambda f: [*f.good_npz(), "-o", f.write("old.txt", "from before")],
        ),
    },
)


def damaged_npz(f, change):
    """The pile with some bytes changed."""
    paths = f.good_npz()
    data = bytearray(paths[1].read_bytes())
    paths[1].write_bytes(bytes(change(data)))
    return paths


def header_safetensors(f, header, payload=b""):
    data = header if isinstance(header, bytes) else header.encode()
    return f.write("p.safetensors", struct.pack("<Q", len(data)) + data + payload)


def npy_with_header(shape, dtype="<f4", payload=b"\0" * 64):
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def zipped(f, name, **members):
    with zipfile.ZipFile(f / name, "w") as archive:
        for member, data in members.items():
            archive.writestr(f"{member}.npy", data)
    return f / name


# Tables that are wrong.
many(
    refused,
    {
        "other columns": (
            ("lacks the columns 'f0'", "has the columns 'g0'"),
            lambda f: [f.examples(), f.write("p.csv", text([f"g{i}" for i in range(8)], items()[1]))],
        ),
        "one column renamed": (
            ("lacks the columns 'f7'", "'F7'"),
            lambda f: [f.examples(), f.write("p.csv", text([*COLUMNS[:-1], "F7"], items()[1]))],
        ),
        "one column more": (
            ("has the columns 'extra'",),
            lambda f: [f.examples(), f.write("p.csv", text([*COLUMNS, "extra"], [[*r, 1.5] for r in items()[1]]))],
        ),
        "one column less": (
            ("lacks the columns 'f7'",),
            lambda f: [f.examples(), f.write("p.csv", text(COLUMNS[:-1], [r[:-1] for r in items()[1]]))],
        ),
        "other parquet columns": (
            ("lacks the columns",),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": Y}),
                f.parquet("p.parquet", {f"x{i}": QUERY[:, i] for i in range(8)}),
            ],
        ),
        "duplicate columns": (
            ("two columns named 'f1'",),
            lambda f: [f.examples(), f.write("p.csv", text(["f0", "f1", "f1", *COLUMNS[3:]], items()[1]))],
        ),
        "duplicate columns in the examples": (
            ("two columns named 'f0'",),
            lambda f: [f.write("c.csv", text(["f0", "f0", *COLUMNS[2:], "label"], examples()[1])), f.pile()],
        ),
        "duplicate columns by blanks": (
            ("two columns named 'f0'",),
            lambda f: [f.write("c.csv", text(["f0", " f0", *COLUMNS[2:], "label"], examples()[1])), f.pile()],
        ),
        "two columns without a name": (
            ("two columns named ''",),
            lambda f: [f.examples(), f.write("p.csv", text(["", "", *COLUMNS], [[1, 2, *r] for r in items()[1]]))],
        ),
        "surplus cell": (
            ("another number of cells (9) in line 4",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [[*r, "1"] if i == 2 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "missing cell": (
            ("another number of cells (7) in line 2",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [r[1:] if i == 0 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "empty cell": (
            ("Column 'f0'", "is empty in line 21"),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [["", *r[1:]] if i == 19 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "empty cell after blank lines": (
            ("is empty in line 6",),
            lambda f: [
                f.examples(),
                f.write(
                    "p.csv", "\n\n" + text(COLUMNS, [["", *r[1:]] if i == 2 else r for i, r in enumerate(items()[1])])
                ),
            ],
        ),
        "empty cell with semicolons": (
            ("is empty in line 3",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [["", *r[1:]] if i == 1 else r for i, r in enumerate(items()[1])], ";")),
            ],
        ),
        "blank cell": (
            ("is empty in line 2",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [["  ", *r[1:]] if i == 0 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "word in a cell": (
            ("Column 'f3'", "line 2 has 'n/a'"),
            lambda f: [
                f.examples(),
                f.write(
                    "p.csv", text(COLUMNS, [[*r[:3], "n/a", *r[4:]] if i == 0 else r for i, r in enumerate(items()[1])])
                ),
            ],
        ),
        "nan in a cell": (
            ("Column 'f0'", "'NaN' in line 2"),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [["NaN", *r[1:]] if i == 0 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "infinity in a cell": (
            ("'inf' in line 2",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [["inf", *r[1:]] if i == 0 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "number too large for 32 bits": (
            ("1e39", "line 2"),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(COLUMNS, [["1e39", *r[1:]] if i == 0 else r for i, r in enumerate(items()[1])])),
            ],
        ),
        "both decimal signs": (
            ("is not all numbers",),
            lambda f: [
                f.csv(sep=";")[0],
                f.write("p.csv", text(COLUMNS, [[r[0].replace(".", ","), *r[1:]] for r in items()[1]], ";")),
            ],
        ),
        "thousands": (
            ("is not all numbers",),
            lambda f: [f.examples(), f.write("p.csv", text(COLUMNS, [["1,234.5", *r[1:]] for r in items()[1]]))],
        ),
        "open quotation mark": (
            ("quotation mark is not closed",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["item", *COLUMNS], [["x", *r] for r in items()[1]]).replace("x", '"x', 1)),
            ],
        ),
        "headerless examples": (
            ("looks like data",),
            lambda f: [f.write("c.csv", text(None, examples()[1])), f.pile()],
        ),
        "headerless examples in front of labels": (
            ("looks like data",),
            lambda f: [f.write("c.csv", text(None, [[y, *r] for y, r in zip(Y, cells(X), strict=True)])), f.pile()],
        ),
        "headerless examples without labels": (
            ("have no labels",),
            lambda f: [f.write("c.csv", text(None, cells(X))), f.pile()],
        ),
        "header alone": (("has no data row",), lambda f: [f.examples(), f.write("p.csv", ",".join(COLUMNS) + "\n")]),
        "empty csv": (("is empty",), lambda f: [f.examples(), f.write("p.csv", b"")]),
        "blank csv": (("is empty",), lambda f: [f.examples(), f.write("p.csv", b"\n \n\n")]),
        "byte order mark alone": (("is empty",), lambda f: [f.examples(), f.write("p.csv", b"\xef\xbb\xbf")]),
        "latin1": (
            ("line 3 has the byte 0xe9", "save it as UTF-8"),
            lambda f: [f.write("c.csv", text(*examples(labels=["c0", "é", *Y[2:]])), "latin-1"), f.pile()],
        ),
        "utf16 without mark": (("NUL bytes",), lambda f: [f.examples(), f.write("p.csv", text(*items()), "utf-16-le")]),
        "cut utf16": (
            ("not readable as utf-16",),
            lambda f: [f.examples(), f.write("p.csv", text(*items()).encode("utf-16")[:-1])],
        ),
        "excel renamed": (
            ("zip archive or an Excel file",),
            lambda f: [f.examples(), f.write("p.csv", b"PK\x03\x04" + b"\0" * 100)],
        ),
        "gzip renamed": (("gzip",), lambda f: [f.examples(), f.write("p.csv", gzip.compress(text(*items()).encode()))]),
        "parquet renamed": (
            ("parquet file",),
            lambda f: [f.examples(), f.parquet("p.parquet", columns(QUERY)).rename(f / "p.csv")],
        ),
        "csv renamed to parquet": (
            ("cannot be read as parquet",),
            lambda f: [f.examples(), f.write("p.parquet", text(*items()))],
        ),
        "texts and numbers": (
            ("'text'", "'width'", "--feature-column", "--ignore-column"),
            lambda f: [f.write("c.csv", "text,width,label\nhello,1.5,a\nbye,2,b\n"), f.write("p.csv", "text\nhi\n")],
        ),
        "texts and features": (
            ("c.csv holds features", "p.csv holds texts", "manyway extract"),
            lambda f: [f.examples(), f.write("p.csv", "text\nhi\n")],
        ),
        "no features at all": (("has no feature column",), lambda f: [f.write("c.csv", "label\na\nb\n"), f.pile()]),
        "row numbers": (
            ("'nr'", "numbers the rows", "--ignore-column"),
            lambda f: [
                f.write("c.csv", text(["nr", *examples()[0]], [[i, *r] for i, r in enumerate(examples()[1])])),
                f.write("p.csv", text(["nr", *COLUMNS], [[i, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "row numbers from one in parquet": (
            ("'nr'", "numbers the rows"),
            lambda f: [
                f.parquet("c.parquet", {"nr": np.arange(1, 19), **columns(X), "label": Y}),
                f.parquet("p.parquet", {"nr": np.arange(1, 21), **columns(QUERY)}),
            ],
        ),
        "shuffled row numbers": (
            ("'nr'", "numbers the rows"),
            lambda f: [
                f.write(
                    "c.csv", text(["nr", *examples()[0]], [[(i * 5) % 18, *r] for i, r in enumerate(examples()[1])])
                ),
                f.pile(),
            ],
        ),
        "rising numbers": (
            ("'sample'", "numbers the rows"),
            lambda f: [
                f.write(
                    "c.csv",
                    text(["sample", *examples()[0]], [[1000 + 3 * i * i, *r] for i, r in enumerate(examples()[1])]),
                ),
                f.pile(),
            ],
        ),
        "row numbers in the pile alone": (
            ("has the columns 'nr'",),
            lambda f: [
                f.examples(),
                f.write("p.csv", text(["nr", *COLUMNS], [[i, *r] for i, r in enumerate(items()[1])])),
            ],
        ),
        "two ids": (
            ("'photo_id', 'user_id'", "--item-column"),
            lambda f: [
                f.examples(),
                f.write(
                    "p.csv", text(["photo_id", "user_id", *COLUMNS], [[i, i, *r] for i, r in enumerate(items()[1])])
                ),
            ],
        ),
        "item and id": (
            ("'photo_id'", "--ignore-column"),
            lambda f: [
                f.examples(),
                f.write(
                    "p.csv", text(["photo_id", "item", *COLUMNS], [[i, f"x{i}", *r] for i, r in enumerate(items()[1])])
                ),
            ],
        ),
        "two label columns": (
            ("'class', 'category'", "--label-column"),
            lambda f: [
                f.write("c.csv", text([*COLUMNS, "class", "category"], [[*r, "x"] for r in examples()[1]])),
                f.pile(),
            ],
        ),
        "class beside label": (
            ("'class', 'label'", "--label-column"),
            lambda f: [
                f.write("c.csv", text(["class", *COLUMNS, "label"], [[1.5, *r] for r in examples()[1]])),
                f.write("p.csv", text(["class", *COLUMNS], [[1.5, *r] for r in items()[1]])),
            ],
        ),
        "target beside a named label": (
            ("'target'", "looks like a label"),
            lambda f: [
                f.write("c.csv", text(["target", *COLUMNS, "species"], [[1.5, *r] for r in examples()[1]])),
                f.write("p.csv", text(["target", *COLUMNS], [[1.5, *r] for r in items()[1]])),
                "--label-column",
                "species",
            ],
        ),
        "label in two cases": (
            ("'label', 'Label'",),
            lambda f: [
                f.write("c.csv", text([*COLUMNS, "label", "Label"], [[*r, "1"] for r in examples()[1]])),
                f.pile(),
            ],
        ),
        "unknown label column": (
            ("no column 'speces'", "did you mean 'species'"),
            lambda f: [
                f.write("c.csv", text([*COLUMNS, "species"], [[*r[:-1], "1"] for r in examples()[1]])),
                f.write("p.csv", text([*COLUMNS, "species"], [[*r, "2"] for r in items()[1]])),
                "--label-column",
                "speces",
            ],
        ),
        "unknown item column": (("no column 'photo'",), lambda f: [*f.csv(), "--item-column", "photo"]),
        "unknown ignored column": (("no column 'idd'",), lambda f: [*f.csv(), "--ignore-column", "idd"]),
    },
)


def with_labels(values):
    return lambda f: [f.write("c.csv", text(*examples(labels=values))), f.pile()]


def changed(value, rows=(1, 3)):
    return [value if row in rows else label for row, label in enumerate(Y.tolist())]


INTEGERS = np.repeat(np.arange(6), 3)

# Labels that are missing or no labels.
many(
    refused,
    {
        "empty labels": (("no label in line 3, line 5",), with_labels(changed(""))),
        "blank labels": (("no label in line 3, line 5",), with_labels(changed("   "))),
        "nan labels": (("no label in line 3, line 5",), with_labels(changed("nan"))),
        "NaN labels": (("no label in line 3, line 5",), with_labels(changed("NaN"))),
        "NA labels of pandas": (("no label in line 3",), with_labels(changed("<NA>"))),
        "all labels empty": (("no label in line 2",), with_labels([""] * 18)),
        "empty labels in npz": (
            ("no label in row 1, row 3",),
            lambda f: [f.npz("c.npz", features=X, labels=np.array(changed(""))), f.npz("p.npz", features=QUERY)],
        ),
        "empty bytes labels in npz": (
            ("no label in row 1",),
            lambda f: [
                f.npz("c.npz", features=X, labels=np.array(changed("")).astype("S")),
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "null labels in parquet": (
            ("no label in row 1, row 3",),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": changed(None)}),
                f.parquet("p.parquet", columns(QUERY)),
            ],
        ),
        "null integers in parquet": (
            ("no label in row 1",),
            lambda f: [
                f.parquet(
                    "c.parquet", {**columns(X), "label": [None if i == 1 else int(k) for i, k in enumerate(INTEGERS)]}
                ),
                f.parquet("p.parquet", columns(QUERY)),
            ],
        ),
        "nan integers in parquet": (
            ("no label in row 1",),
            lambda f: [
                f.parquet(
                    "c.parquet",
                    {**columns(X), "label": [float("nan") if i == 1 else float(k) for i, k in enumerate(INTEGERS)]},
                ),
                f.parquet("p.parquet", columns(QUERY)),
            ],
        ),
        "null labels in jsonl": (
            ("no label in line 2",),
            lambda f: [
                f.jsonl("c.jsonl", [{"v": x.tolist(), "label": y} for x, y in zip(X, changed(None), strict=True)]),
                f.jsonl("p.jsonl", [{"v": q.tolist()} for q in QUERY]),
            ],
        ),
        "absent labels in jsonl": (
            ("no label in line 2",),
            lambda f: [
                f.jsonl(
                    "c.jsonl",
                    [
                        {"v": x.tolist(), "label": y} if i != 1 else {"v": x.tolist()}
                        for i, (x, y) in enumerate(zip(X, Y, strict=True))
                    ],
                ),
                f.jsonl("p.jsonl", [{"v": q.tolist()} for q in QUERY]),
            ],
        ),
        "lists as labels": (
            ("labels are names or whole numbers",),
            lambda f: [
                f.jsonl("c.jsonl", [{"v": x.tolist(), "label": [y]} for x, y in zip(X, Y, strict=True)]),
                f.jsonl("p.jsonl", [{"v": q.tolist()} for q in QUERY]),
            ],
        ),
        "fractions as labels": (
            ("row 0", "0.5", "whole numbers"),
            lambda f: [f.npz("c.npz", features=X, labels=INTEGERS + 0.5), f.npz("p.npz", features=QUERY)],
        ),
        "nan as labels": (
            ("no label in row 0",),
            lambda f: [
                f.npz("c.npz", features=X, labels=np.where(INTEGERS, 1.0, np.nan)),
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "labels of two axes": (
            ("one integer or string per row",),
            lambda f: [f.npz("c.npz", features=X, labels=INTEGERS[:, None]), f.npz("p.npz", features=QUERY)],
        ),
        "complex labels": (
            ("one integer or string per row",),
            lambda f: [f.npz("c.npz", features=X, labels=INTEGERS + 1j), f.npz("p.npz", features=QUERY)],
        ),
        "dates as labels": (
            ("one integer or string per row",),
            lambda f: [f.npz("c.npz", features=X, labels=INTEGERS.astype("M8[D]")), f.npz("p.npz", features=QUERY)],
        ),
        "fractions in a file of labels": (
            ("whole numbers",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.npy("l.npy", INTEGERS + 0.5)],
        ),
        "nan in a file of labels": (
            ("no label in row 3",),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.npy("l.npy", np.where(INTEGERS == 1, np.nan, INTEGERS)),
            ],
        ),
        "two axes in a file of labels": (
            ("one integer or string per row",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.npy("l.npy", np.eye(18))],
        ),
        "one number as a file of labels": (
            ("one integer or string per row",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.npy("l.npy", np.array(3))],
        ),
        "blank line among labels": (
            ("no label in line 2",),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.write("l.txt", "c0\n\n" + "\n".join(Y[1:])),
            ],
        ),
        "too few labels": (
            ("17 labels for 18 examples",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.write("l.txt", "\n".join(Y[1:]))],
        ),
        "no labels in the file": (
            ("0 labels",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.write("l.txt", "")],
        ),
        "binary labels": (
            ("not readable",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", f.write("l.txt", b"\xff\x81\x82")],
        ),
        "duplicate class names": (
            ("'a' twice",),
            lambda f: [
                f.npz("c.npz", features=X, labels=INTEGERS, class_names=["a", "a", "b", "c", "d", "e"]),
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "too few class names": (
            ("there are 2 class names",),
            lambda f: [
                f.npz("c.npz", features=X, labels=INTEGERS, class_names=["a", "b"]),
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "class names of two axes": (
            ("one string per class",),
            lambda f: [
                f.npz("c.npz", features=X, labels=INTEGERS, class_names=[["a", "b"]]),
                f.npz("p.npz", features=QUERY),
            ],
        ),
        "labels that are not utf8": (
            ("not UTF-8",),
            lambda f: [
                f.npz("c.npz", features=X, labels=np.array([b"\xff\xfe"] * 9 + [b"a"] * 9)),
                f.npz("p.npz", features=QUERY),
            ],
        ),
    },
)

# Arrays that are damaged or of the wrong kind.
many(
    refused,
    {
        "npz cut in half": (("cannot be read as an .npz",), lambda f: damaged_npz(f, lambda d: d[: len(d) // 2])),
        "npz without its end": (("cannot be read as an .npz",), lambda f: damaged_npz(f, lambda d: d[:-30])),
        "npz with wrong data": (
            ("cannot be read as an .npz",),
            lambda f: damaged_npz(f, lambda d: d[:300] + bytes([d[300] ^ 255]) + d[301:]),
        ),
        "npz with unknown compression": (
            ("cannot be read as an .npz",),
            lambda f: damaged_npz(
                f,
                lambda d: d.replace(
                    b"PK\x01\x02" + bytes(d[d.find(b"PK\x01\x02") + 4 : d.find(b"PK\x01\x02") + 10]) + b"\0\0",
                    b"PK\x01\x02" + bytes(d[d.find(b"PK\x01\x02") + 4 : d.find(b"PK\x01\x02") + 10]) + b"\x61\0",
                ),
            ),
        ),
        "npz of rubbish": (
            ("cannot be read as an .npz",),
            lambda f: [f.npz_examples(), f.write("p.npz", b"rubbish" * 99)],
        ),
        "empty npz": (("cannot be read as an .npz",), lambda f: [f.npz_examples(), f.write("p.npz", b"")]),
        "npz of nothing": (("it holds: nothing",), lambda f: [f.npz_examples(), zipped(f, "p.npz")]),
        "npz of other arrays": (
            ("it holds: embeddings",),
            lambda f: [f.npz_examples(), f.npz("p.npz", embeddings=QUERY)],
        ),
        "npz with a lying shape": (
            ("cut off",),
            lambda f: [f.npz_examples(), zipped(f, "p.npz", features=npy_with_header((10**9, 10**3)))],
        ),
        "npz with a negative shape": (
            ("cannot be read",),
            lambda f: [f.npz_examples(), zipped(f, "p.npz", features=npy_with_header((-4, 8)))],
        ),
        "npz with objects": (
            ("pickled Python objects",),
            lambda f: [f.npz_examples(), f.npz("p.npz", features=np.array([[{}]], dtype=object))],
        ),
        "pickle as npz": (("cannot be read",), lambda f: [f.npz_examples(), f.write("p.npz", pickle.dumps(QUERY))]),
        "npy with objects": (
            ("pickled Python objects",),
            lambda f: [f.npz_examples(), f.npy("p.npy", np.array([[{}]], dtype=object))],
        ),
        "npy cut": (
            ("cut off",),
            lambda f: [f.npz_examples(), f.write("p.npy", f.npy("q.npy", QUERY).read_bytes()[:-5])],
        ),
        "npy header cut": (
            ("cannot be read as a plain .npy",),
            lambda f: [f.npz_examples(), f.write("p.npy", f.npy("q.npy", QUERY).read_bytes()[:40])],
        ),
        "npy with a lying shape": (
            ("cut off",),
            lambda f: [f.npz_examples(), f.write("p.npy", npy_with_header((10**12, 8)))],
        ),
        "npy of rubbish": (
            ("cannot be read as a plain .npy",),
            lambda f: [f.npz_examples(), f.write("p.npy", b"rubbish" * 9)],
        ),
        "empty npy": (("cannot be read as a plain .npy",), lambda f: [f.npz_examples(), f.write("p.npy", b"")]),
        "one number": (("two axes",), lambda f: [f.npz_examples(), f.npy("p.npy", np.float32(3))]),
        "three axes": (("two axes",), lambda f: [f.npz_examples(), f.npy("p.npy", QUERY[None])]),
        "text as features": (
            ("must be real numbers",),
            lambda f: [f.npz_examples(), f.npy("p.npy", QUERY.astype(str))],
        ),
        "complex features": (
            ("must be real numbers",),
            lambda f: [f.npz_examples(), f.npy("p.npy", QUERY.astype(complex))],
        ),
        "true and false as features": (
            ("must be real numbers",),
            lambda f: [f.npz_examples(), f.npy("p.npy", QUERY > 0)],
        ),
        "structured features": (
            ("cannot be read|must|two axes",),
            lambda f: [f.npz_examples(), f.npy("p.npy", np.zeros(3, dtype=[("a", "f4")]))],
        ),
        "dates as features": (
            ("must be real numbers",),
            lambda f: [f.npz_examples(), f.npy("p.npy", QUERY.astype(int).astype("M8[s]"))],
        ),
        "no rows": (("no item to label",), lambda f: [f.npz_examples(), f.npy("p.npy", QUERY[:0])]),
        "no features": (("has no features",), lambda f: [f.npz_examples(), f.npy("p.npy", QUERY[:, :0])]),
        "no features in both": (
            ("has no features",),
            lambda f: [f.npz("c.npz", features=X[:, :0], labels=Y), f.npy("p.npy", QUERY[:, :0])],
        ),
        "no examples": (
            ("no labelled example",),
            lambda f: [f.npz("c.npz", features=X[:0], labels=Y[:0]), f.npz_pile()],
        ),
        "base mean of another size": (
            ("base_mean in",),
            lambda f: [f.npz("c.npz", features=X, labels=Y, base_mean=np.zeros(3)), f.npz_pile()],
        ),
        "base mean of words": (
            ("base_mean in",),
            lambda f: [f.npz("c.npz", features=X, labels=Y, base_mean=["a"] * 8), f.npz_pile()],
        ),
        "base mean that is not finite": (
            ("base_mean in",),
            lambda f: [f.npz("c.npz", features=X, labels=Y, base_mean=[np.nan] * 8), f.npz_pile()],
        ),
        "too many items": (
            ("20 rows of features and 3 item names",),
            lambda f: [f.npz_examples(), f.npz("p.npz", features=QUERY, items=["a", "b", "c"])],
        ),
        "safetensors of rubbish": (
            ("cannot be read as safetensors",),
            lambda f: [f.npz_examples(), f.write("p.safetensors", b"rubbish" * 99)],
        ),
        "empty safetensors": (
            ("cannot be read as safetensors",),
            lambda f: [f.npz_examples(), f.write("p.safetensors", b"")],
        ),
        "safetensors header of a wrong type": (
            ("cannot be read as safetensors",),
            lambda f: [f.npz_examples(), header_safetensors(f, "[1, 2]")],
        ),
        "safetensors tensor of a wrong type": (
            ("cannot be read as safetensors",),
            lambda f: [f.npz_examples(), header_safetensors(f, '{"features": 3}')],
        ),
        "safetensors beyond its end": (
            ("cannot be read as safetensors",),
            lambda f: [
                f.npz_examples(),
                header_safetensors(
                    f, '{"features": {"dtype": "F32", "shape": [20, 8], "data_offsets": [0, 640]}}', b"\0" * 8
                ),
            ],
        ),
        "safetensors cut": (
            ("cannot be read as safetensors",),
            lambda f: [
                f.npz_examples(),
                (
                    save_numpy({"features": QUERY}, f / "q.safetensors"),
                    f.write("p.safetensors", (f / "q.safetensors").read_bytes()[:-9]),
                )[1],
            ],
        ),
        "safetensors of other tensors": (
            ("it holds: weights",),
            lambda f: [f.npz_examples(), save_numpy({"weights": QUERY}, f / "p.safetensors") or f / "p.safetensors"],
        ),
        "our header is no json": (
            ("header of", "damaged"),
            lambda f: [
                save_numpy({"features": X}, f / "c.safetensors", {"manyway-features-1": "{broken"})
                or f / "c.safetensors",
                f.npz_pile(),
            ],
        ),
        "our header is a list": (
            ("header of", "damaged"),
            lambda f: [
                save_numpy({"features": X}, f / "c.safetensors", {"manyway-features-1": "[]"}) or f / "c.safetensors",
                f.npz_pile(),
            ],
        ),
        "class names in the header are a number": (
            ("one string per class",),
            lambda f: [
                save_numpy(
                    {"features": X, "labels": INTEGERS},
                    f / "c.safetensors",
                    {"manyway-features-1": '{"class_names": 3}'},
                )
                or f / "c.safetensors",
                f.npz_pile(),
            ],
        ),
        "class names in the header are lists": (
            ("one string per class",),
            lambda f: [
                save_numpy(
                    {"features": X, "labels": INTEGERS},
                    f / "c.safetensors",
                    {"manyway-features-1": '{"class_names": [[], {}]}'},
                )
                or f / "c.safetensors",
                f.npz_pile(),
            ],
        ),
        "parquet of rubbish": (
            ("cannot be read as parquet",),
            lambda f: [f.examples(), f.write("p.parquet", b"PAR1" + b"x" * 99 + b"PAR1")],
        ),
        "empty parquet": (("cannot be read as parquet",), lambda f: [f.examples(), f.write("p.parquet", b"")]),
        "parquet cut": (
            ("cannot be read as parquet",),
            lambda f: [f.examples(), f.write("p.parquet", f.parquet("q.parquet", columns(QUERY)).read_bytes()[:-20])],
        ),
        "parquet with damaged names": (
            ("cannot be read as parquet",),
            lambda f: [
                f.examples(),
                f.write("p.parquet", f.parquet("q.parquet", columns(QUERY)).read_bytes().replace(b"f0", b"\xff0")),
            ],
        ),
        "parquet without rows": (
            ("no data row",),
            lambda f: [f.examples(), f.parquet("p.parquet", columns(QUERY[:0]))],
        ),
        "parquet with nulls": (
            ("Column 'f0'", "empty in row 1"),
            lambda f: [
                f.examples(),
                f.parquet("p.parquet", {**columns(QUERY), "f0": [None if i == 1 else 1.0 for i in range(20)]}),
            ],
        ),
        "parquet with nan": (
            ("Column 'f0'", "'nan' in row 1"),
            lambda f: [
                f.examples(),
                f.parquet("p.parquet", {**columns(QUERY), "f0": [float("nan") if i == 1 else 1.0 for i in range(20)]}),
            ],
        ),
        "parquet with dates": (
            ("is not all numbers", "1970-01-01"),
            lambda f: [f.examples(), f.parquet("p.parquet", {**columns(QUERY), "f0": np.arange(20).astype("M8[s]")})],
        ),
        "parquet with texts": (
            ("is not all numbers",),
            lambda f: [f.examples(), f.parquet("p.parquet", {**columns(QUERY), "f0": ["x"] * 20})],
        ),
        "parquet with uneven lists": (
            ("has 7 numbers in row 2",),
            lambda f: [
                f.parquet("c.parquet", {"v": list(X), "label": Y}),
                f.parquet("p.parquet", {"v": [q[1:] if i == 2 else q for i, q in enumerate(QUERY)]}),
            ],
        ),
        "jsonl that is broken": (
            ("Line 2", "is not JSON"),
            lambda f: [f.examples(), f.write("p.jsonl", '{"f0": 1}\n{"f0": \n')],
        ),
        "jsonl of lists": (("Line 1", "not a JSON object"), lambda f: [f.examples(), f.write("p.jsonl", "[1, 2]\n")]),
        "jsonl with a name twice": (
            ("two values named 'f0'",),
            lambda f: [f.examples(), f.write("p.jsonl", '{"f0": 1, "f0": 2}\n')],
        ),
        "jsonl nested deeply": (("is not JSON",), lambda f: [f.examples(), f.write("p.jsonl", "[" * 100_000 + "\n")]),
        "jsonl with a value missing": (
            ("Column 'f7'", "is empty in line 2"),
            lambda f: [
                f.examples(),
                f.jsonl(
                    "p.jsonl",
                    [dict(zip(COLUMNS[: 8 - i % 2], map(float, q), strict=False)) for i, q in enumerate(QUERY)],
                ),
            ],
        ),
        "jsonl with nan": (
            ("'nan' in line 1",),
            lambda f: [
                f.examples(),
                f.jsonl(
                    "p.jsonl", [{**dict(zip(COLUMNS, map(float, q), strict=True)), "f3": float("nan")} for q in QUERY]
                ),
            ],
        ),
        "jsonl with huge integers": (
            ("is not a finite number",),
            lambda f: [
                f.examples(),
                f.jsonl("p.jsonl", [{**dict(zip(COLUMNS, map(float, q), strict=True)), "f3": 10**400} for q in QUERY]),
            ],
        ),
        "empty jsonl": (("no data row",), lambda f: [f.examples(), f.write("p.jsonl", "\n\n")]),
    },
)


def parquet_folder(f, *names):
    """A folder of parquet files, as Spark and Dask write it, with their own notes beside."""
    folder = f / "q.parquet"
    folder.mkdir()
    for part, name in enumerate(names):
        rows = slice(10 * part, 10 * part + 10)
        f.parquet(f"q.parquet/{name}", columns(QUERY[rows]))
    f.write("q.parquet/_SUCCESS", b"")
    f.write("q.parquet/.part.crc", b"x")
    return folder


def partitioned(f):
    """Examples in one folder per class."""
    for name in dict.fromkeys(Y):
        (f / "c.parquet" / f"label={name}").mkdir(parents=True)
        f.parquet(f"c.parquet/label={name}/part.parquet", columns(X[name == Y]))
    return f / "c.parquet"


def npy_of_version(f, version):
    with (f / "p.npy").open("wb") as file:
        np.lib.format.write_array(file, QUERY, version=version)
    return f / "p.npy"


def columns_first(name, values):
    """Examples and items with one more column in front."""
    return lambda f: [
        f.write("c.csv", text([name, *examples()[0]], [[values(i), *r] for i, r in enumerate(examples()[1])])),
        f.write("p.csv", text([name, *COLUMNS], [[values(i), *r] for i, r in enumerate(items()[1])])),
    ]


def rising(f):
    """Items without a header whose features rise throughout, as cumulative counts do."""
    rows = np.sort(QUERY.astype(float), axis=1)
    return [f.npy("c.npy", X), f.write("p.csv", text(None, cells(rows))), "--labels", f.write("l.txt", "\n".join(Y))]


def saved_text(f, **options):
    np.savetxt(f / "p.csv", QUERY, **options)
    return f / "p.csv"


# Kinds of files that another trial added.
many(
    labelled,
    {
        "spaces between cells": ((), lambda f: f.csv(sep=" ")),
        "colons between cells": ((), lambda f: f.csv(sep=":")),
        "carets between cells": ((), lambda f: f.csv(sep="^")),
        "aligned with blanks": (
            (),
            lambda f: [f.csv(sep=" ")[0], f.write("p.csv", text(*items(), sep=" ").replace(" ", "    "))],
        ),
        "written by numpy savetxt": (("holds numbers",), lambda f: [f.examples(), saved_text(f)]),
        "written by numpy savetxt with a header": (
            (),
            lambda f: [f.examples(), saved_text(f, delimiter=",", header=",".join(COLUMNS))],
        ),
        "blanks in front of quotation marks": (
            (),
            lambda f: [
                f.write(
                    "c.csv",
                    "".join(", ".join(f'"{c}"' for c in r) + "\n" for r in [examples()[0], *examples()[1]]),
                ),
                f.pile(),
            ],
        ),
        "quoted labels after a blank": (
            (),
            lambda f: [f.write("c.csv", re.sub(r",(c\d)\b", r', "\1"', text(*examples()))), f.pile()],
        ),
        "index named idx": (("taken as the item name",), columns_first("idx", lambda i: i)),
        "row names of R": (("taken as the item name",), columns_first("row.names", lambda i: i + 1)),
        "column of files": (("taken as the item name",), columns_first("file", lambda i: f"{i}.jpg")),
        "column of numbered paths": (("taken as the item name",), columns_first("image_path", lambda i: i * 37 % 19)),
        "folder of parquet files": (
            (),
            lambda f: [
                f.parquet("c.parquet", {**columns(X), "label": Y}),
                parquet_folder(f, "a.parquet", "b.parquet"),
            ],
        ),
        "folder of parquet files per class": ((), lambda f: [partitioned(f), f.parquet("p.parquet", columns(QUERY))]),
        "npy of version 2": ((), lambda f: [f.npz_examples(), npy_of_version(f, (2, 0))]),
        "npy of version 3": ((), lambda f: [f.npz_examples(), npy_of_version(f, (3, 0))]),
        "labels in a column that is named": (
            (),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.write("l.csv", text(["nr", "species"], list(enumerate(Y)))),
                "--label-column",
                "species",
            ],
        ),
        "labels in jsonl": (
            (),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.jsonl("l.jsonl", [{"label": y} for y in Y.tolist()]),
            ],
        ),
        "labels in two files": (
            ("labels in", "are used, not those in"),
            lambda f: [
                f.write("c.csv", text(*examples(labels=Y[::-1]))),
                f.pile(),
                "--labels",
                f.write("l.txt", "\n".join(Y)),
            ],
        ),
        "labels that differ in case": (
            ("'C0' and 'c0' of c.csv differ only in case",),
            with_labels(["C0" if i == 0 else y for i, y in enumerate(Y)]),
        ),
        "labels that differ in unicode form": (
            ("differ only in case, blanks or Unicode form",),
            with_labels([{"c0": "\u00e9", "c2": "e\u0301"}.get(y, y) for y in Y]),
        ),
        "label of R for nothing": (("'NA' of c.csv is taken as the name of a class",), with_labels(changed("NA"))),
    },
)
many(
    refused,
    {
        "label nan": (("'nan' stands for a missing label",), with_labels(changed("nan"))),
        "rising numbers without a header": (("could be names of columns or an item",), rising),
        "table of R with row names": (
            ("text follows a closing quotation mark",),
            lambda f: [f.examples(), f.write("p.csv", '"a" "b"\n"1" 2.5 3\n"2" 2.5 4\n')],
        ),
        "empty class name": (
            ("has an empty name",),
            lambda f: [f.npz("c.npz", features=X, labels=INTEGERS, class_names=["a", " ", *"bcde"]), f.npz_pile()],
        ),
        "pipe in a folder of parquet files": (
            ("is a pipe",),
            lambda f: [f.examples(), (parquet_folder(f, "a.parquet"), fifo(f, "q.parquet/b.parquet"))[0]],
        ),
        "rubbish in a folder of parquet files": (
            ("cannot be read as parquet",),
            lambda f: [f.examples(), (parquet_folder(f), f.write("q.parquet/a.parquet", b"x"))[0]],
        ),
        "empty folder of parquet files": (
            ("q.parquet",),
            lambda f: [f.examples(), parquet_folder(f)],
        ),
        "output in a folder of parquet files": (
            ("lies in the input folder",),
            lambda f: [f.examples(), parquet_folder(f, "a.parquet"), "-o", f / "q.parquet/o.csv"],
        ),
        "output named by a hyphen": (("name one",), lambda f: [*f.csv(), "-o", "-"]),
    },
)


def device(f, name):
    """A device of our own: a test that fails as root would replace /dev/null for the whole machine."""
    try:
        os.mknod(f / name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices can only be made by root")
    return f / name


def fifo(f, name):
    os.mkfifo(f / name)
    return f / name


# Paths that are no files, and outputs that would do harm.
many(
    refused,
    {
        "no such file": (("There is no file",), lambda f: [f.npz_examples(), f / "nothing.npz"]),
        "pipe as pile": (("is a pipe",), lambda f: [f.npz_examples(), fifo(f, "p.npz")]),
        "pipe as examples": (("is a pipe",), lambda f: [fifo(f, "c.csv"), f.npz_pile()]),
        "pipe as labels": (
            ("is a pipe",),
            lambda f: [f.npy("c.npy", X), f.npy("p.npy", QUERY), "--labels", fifo(f, "l.txt")],
        ),
        "device as pile": (("is a device",), lambda f: [f.npz_examples(), "/dev/zero"]),
        "link to a device": (
            ("is a device",),
            lambda f: [f.npz_examples(), (f / "p.csv").symlink_to("/dev/zero") or f / "p.csv"],
        ),
        "empty folders": (
            ("c is empty", "needs pictures"),
            lambda f: [(f / "c").mkdir() or f / "c", (f / "p").mkdir() or f / "p"],
        ),
        "a single picture": (
            ("p.jpg is a single picture",),
            lambda f: [f.npz_examples(), f.write("p.jpg", b"\xff\xd8")],
        ),
        "features and a txt": (
            ("c.npz holds features", "p.txt holds texts"),
            lambda f: [f.npz_examples(), f.write("p.txt", "hello\n")],
        ),
        "folder with a file ending": (
            ("p.npz.d is empty",),
            lambda f: [f.npz_examples(), (f / "p.npz.d").mkdir() or f / "p.npz.d"],
        ),
        "circle of links": (
            ("cannot be read",),
            lambda f: [f.npz_examples(), (f / "p.csv").symlink_to(f / "p.csv") or f / "p.csv"],
        ),
        "unknown ending": (("unknown ending",), lambda f: [f.npz_examples(), f.write("p.xlsx", b"x")]),
        "no ending": (("unknown ending",), lambda f: [f.npz_examples(), f.write("p", b"x")]),
        "output is the pile": (("is one of the inputs",), lambda f: [*f.csv(), "-o", f / "p.csv"]),
        "output is the examples": (("is one of the inputs",), lambda f: [*f.csv(), "-o", f / "c.csv"]),
        "output is the labels": (
            ("is one of the inputs",),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.write("l.csv", "\n".join(Y)),
                "-o",
                f / "l.csv",
            ],
        ),
        "default output is the labels": (
            ("is one of the inputs",),
            lambda f: [
                f.npy("c.npy", X),
                f.npy("p.npy", QUERY),
                "--labels",
                f.write("labels.csv", "\n".join(Y)),
                "--default",
            ],
        ),
        "default output is another file": (
            ("not a table that manyway wrote",),
            lambda f: [*f.good_npz(), (f.write("labels.csv", "mine"), "--default")[1]],
        ),
        "output is a link to the pile": (
            ("is one of the inputs",),
            lambda f: [*f.csv(), "-o", (f / "o.csv").symlink_to(f / "p.csv") or f / "o.csv"],
        ),
        "output is a hard link to the pile": (
            ("is one of the inputs",),
            lambda f: [*f.csv(), "-o", os.link(f / "p.csv", f / "o.csv") or f / "o.csv"],
        ),
        "output is the pile by another way": (
            ("is one of the inputs",),
            lambda f: [*f.csv(), "-o", (f / "sub").mkdir() or f / "sub/../p.csv"],
        ),
        "output is a folder": (("is a folder",), lambda f: [*f.csv(), "-o", f.path]),
        "output is a pipe": (("is a pipe",), lambda f: [*f.csv(), "-o", fifo(f, "o.csv")]),
        "output is a device": (("is a device",), lambda f: [*f.csv(), "-o", device(f, "o.csv")]),
        "output is a link to a device": (
            ("is a device",),
            lambda f: [*f.csv(), "-o", (f / "o.csv").symlink_to(device(f, "device")) or f / "o.csv"],
        ),
        "output below a file": (("Cannot write",), lambda f: [*f.csv(), "-o", f.write("x", "") / "o.csv"]),
        "output of another kind": (("tables of labels are written as",), lambda f: [*f.csv(), "-o", f / "o.npz"]),
        "output with the ending of a spreadsheet": (
            ("tables of labels are written as",),
            lambda f: [*f.csv(), "-o", f / "o.xlsx"],
        ),
        "output in a compressed file": (
            ("tables of labels are written as",),
            lambda f: [*f.csv(), "-o", f / "o.csv.gz"],
        ),
        "output in an input folder": (
            ("lies in the input folder",),
            lambda f: [f.npz_examples(), (f / "p").mkdir() or f / "p", "-o", f / "p/o.csv", "--encoder", "timm:x"],
        ),
        "labels as pickled strings": (
            ("pickled Python objects", "astype(str)"),
            lambda f: [f.npz("c.npz", features=X, labels=Y.astype(object)), f.npz_pile()],
        ),
        "device meta": (("Device 'meta'",), lambda f: [*f.csv(), "--device", "meta"]),
        "device that looks like markup": (("Device '[/red]'",), lambda f: [*f.csv(), "--device", "[/red]"]),
        "method that looks like markup": (("There is no method '[/b]'",), lambda f: [*f.csv(), "--method", "[/b]"]),
        "missing file that looks like markup": (("There is no file [/b]x.csv",), lambda f: [*f.csv()[:1], "[/b]x.csv"]),
    },
)


def snapshot(folder):
    """Every entry of the folder with its kind and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = os.lstat(path).st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (kind, content)
    return found


def labels_in(table):
    before = csv.field_size_limit(10**9)
    with table.open(newline="") as file:
        found = [row["label"] for row in csv.DictReader(file)]
    csv.field_size_limit(before)
    return found


def run(arguments, folder, monkeypatch, capsys):
    arguments = [str(argument) for argument in arguments]
    if "--default" in arguments:
        arguments.remove("--default")
    elif "-o" not in arguments:
        arguments += ["-o", "out.csv"]
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["manyway", "label", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


@pytest.mark.parametrize("name", LABELLED)
def test_the_labels_are_right(name, tmp_path, monkeypatch, capsys):
    make, words = LABELLED[name]
    arguments = make(Folder(tmp_path))
    before = snapshot(tmp_path)
    code, out, err = run(arguments, tmp_path, monkeypatch, capsys)
    assert code == 0, err
    output = tmp_path / next((path for option, path in itertools.pairwise(arguments) if option == "-o"), "out.csv")
    assert labels_in(output) == TRUTH.tolist()
    for word in words:
        assert word in out + err
    after = snapshot(tmp_path)
    name = str(output.relative_to(tmp_path))
    assert {path: kept for path, kept in after.items() if path != name} == {
        p: k for p, k in before.items() if p != name
    }


@pytest.mark.parametrize("name", REFUSED)
def test_one_sentence_and_no_harm(name, tmp_path, monkeypatch, capsys):
    make, words = REFUSED[name]
    arguments = make(Folder(tmp_path))
    before = snapshot(tmp_path)
    code, _, err = run(arguments, tmp_path, monkeypatch, capsys)
    assert code == 2, err
    assert "unexpected" not in err
    for word in words:
        assert any(part in err for part in word.split("|")), err
    assert len([line for line in err.splitlines() if not line.startswith("note: ")]) == 1, err
    assert snapshot(tmp_path) == before
