"""`manyway label` on files that are not what they should be: the right answer, or one sentence and no harm.

The cases of ``LABELLED`` must give the right labels. Those of ``REFUSED`` must end with exit code 2, one sentence with
the given words, no output, and inputs as they were.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import itertools
import json
import lzma
import os
import pickle
import re
import struct
import zipfile
from datetime import date

import numpy as np
import pyarrow
import pytest
import torch
from hostile.files import (
    COLUMNS,
    QUERY,
    SHOTS,
    TRUTH,
    X,
    Y,
    both,
    case,
    changed,
    columns,
    device,
    fifo,
    folder,
    known,
    link,
    make,
    pile,
    records,
    saved,
    sheet,
    text,
    vectors,
    write,
    write_parquet,
)

from manyway.cli import main
from manyway.files.opening import read_table

SHUFFLED = [3, 1, 7, 0, 2, 6, 5, 4]
WHOLE_X, WHOLE = (np.rint(values * 100).astype(np.int64) + 10**12 for values in (X, QUERY))
FAR_X, FAR = (values.astype(float) + 1e8 for values in (X, QUERY))
NUMBERS = np.repeat(np.arange(6), 3)
NAMES = [f"c{k}" for k in range(6)]
FEATURES = {"c": ("c.npy", X), "p": ("p.npy", QUERY)}  # without labels
LINES = "\n".join(Y)
WAVES = [f"{400.5 + 2 * i}" for i in range(8)]
POINTS = [*map(str, range(8))]


def count(i):
    return i


def npz(**arrays):
    return ("c.npz", {"features": X, "labels": Y, **arrays})


def npz_items(**arrays):
    return ("p.npz", {"features": QUERY, **arrays})


def parquet(**more):
    return ("c.parquet", columns(X, label=Y, **more))


def lists(**more):
    return ("c.jsonl", vectors(X, **{"label": Y.tolist(), **more}))


def without(found, row, name):
    """Records of which one lacks a value."""
    return [{key: value for key, value in each.items() if i != row or key != name} for i, each in enumerate(found)]


def in_front(name, values=count):
    """One more column in front of both tables."""
    return {"c": known(first={name: values}), "p": pile(first={name: values})}


def quoted(table, sep=","):
    return "".join(sep.join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in table.splitlines())


def parquet_folder(*names, more=None):
    """A folder of parquet files, as Spark and Dask write it, with their own notes beside."""

    def create(path):
        path.mkdir()
        for part, name in enumerate(names):
            write_parquet(path / name, columns(QUERY[10 * part : 10 * part + 10]))
        (path / "_SUCCESS").touch()
        (path / ".part.crc").write_bytes(b"x")
        if more is not None:
            more(path / "b.parquet")

    return ("q.parquet", create)


def partitioned(path):
    """Examples in one folder per class."""
    for name in dict.fromkeys(Y):
        (path / f"label={name}").mkdir(parents=True)
        write_parquet(path / f"label={name}" / "part.parquet", columns(X[name == Y]))


def npy_of_version(version):
    def create(path):
        with path.open("wb") as file:
            np.lib.format.write_array(file, QUERY, version=version)

    return ("p.npy", create)


SMALL = 2**22  # small files may unpack to so many bytes in these tests: to fill 2**28 takes a second


def bomb(path):
    path.write_bytes(gzip.compress(bytes(SMALL + 1), 1))


def constant_parquet(path):
    """A few kilobytes that unpack to 5 million bytes."""
    write_parquet(path, {"x": pyarrow.array(np.zeros(5_000_000 // 8))})


def repeating_parquet(path):
    write_parquet(path, {"x": pyarrow.DictionaryArray.from_arrays(np.zeros(3000, np.int32), ["x" * 2000])})


def zip_bomb(name):
    def create(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(name, bytes(SMALL + 1))

    return create


def merged_labels(path):
    """Each label stands in one cell beside all its rows."""
    import openpyxl

    book = openpyxl.Workbook()
    rows = sheet(X, label=[str(name) if at % SHOTS == 0 else None for at, name in enumerate(Y)])
    for row in rows:
        book.active.append(row)
    at = rows[0].index("label") + 1
    for first in range(2, 2 + len(Y), SHOTS):
        book.active.merge_cells(start_row=first, end_row=first + SHOTS - 1, start_column=at, end_column=at)
    book.save(path)


def hidden_sheet(path):
    import openpyxl

    write(path, {"notes": [["a"]], "items": sheet(QUERY)})
    book = openpyxl.load_workbook(path)
    book["notes"].sheet_state = "hidden"
    book.active = 1
    book.save(path)


def savetxt(**options):
    return lambda path: np.savetxt(path, QUERY, **options)


# fmt: off
LABELLED = {
    # Text tables, written in the many ways that programs write them.
    "plain csv": case(),
    "columns in another order": case(p=pile(order=SHUFFLED)),
    "examples in another order": case(c=known(order=SHUFFLED)),
    "byte order mark": case(**both(encoding="utf-8-sig")),
    "byte order mark in the pile alone": case(p=pile(first={"item": count}).encode("utf-8-sig")),
    "utf16": case(**both(encoding="utf-16")),
    "utf32": case(**both(encoding="utf-32")),
    "utf16 without mark": case("p.csv is read as UTF-16", p=pile().encode("utf-16-le")),
    "utf16 of another byte order without mark": case("is read as UTF-16", **both(encoding="utf-16-be")),
    "windows 1252": case("c.csv is read as Windows-1252", c=known(changed("é “x”", [0])).encode("cp1252")),
    "windows 1252 with semicolons": case(
        "Windows-1252", c=known(changed("é", [0]), sep=";", decimal=",").encode("cp1252")),
    "gzip": case(c=("c.csv.gz", gzip.compress(known().encode())), p=("p.csv.GZ", gzip.compress(pile().encode()))),
    "gzip of gzips": case(p=("p.csv.gz", gzip.compress(pile()[:99].encode()) + gzip.compress(pile()[99:].encode()))),
    "gzip renamed": case(p=gzip.compress(pile().encode())),
    "bzip2": case(p=("p.tsv.bz2", bz2.compress(pile(sep="\t").encode()))),
    "xz of utf16": case("UTF-16", p=("p.csv.xz", lzma.compress(pile().encode("utf-16")))),
    "zstandard": case(p=("p.csv.zst", pyarrow.Codec("zstd").compress(pile().encode(), asbytes=True))),
    "packed jsonl": case(p=("p.jsonl.gz", gzip.compress("\n".join(map(json.dumps, records(QUERY))).encode()))),
    "packed labels": case(c=pile(values=X), l=("l.txt.gz", gzip.compress(LINES.encode()))),
    "semicolons": case(**both(sep=";")),
    "tabs in a csv": case(**both(sep="\t")),
    "tsv": case(**both("c.tsv", "p.tsv", sep="\t")),
    "bars": case(**both(sep="|")),
    "spaces between cells": case(**both(sep=" ")),
    "colons between cells": case(**both(sep=":")),
    "carets between cells": case(**both(sep="^")),
    "aligned with blanks": case(c=known(sep=" "), p=pile(sep=" ").replace(" ", "    ")),
    "decimal commas": case("decimal comma", **both(sep=";", decimal=",")),
    "decimal commas with tabs": case("decimal comma", **both(sep="\t", decimal=",")),
    "decimal commas with a byte order mark": case(**both(sep=";", decimal=",", encoding="utf-8-sig")),
    "decimal commas in utf16": case("decimal comma", **both(sep=";", decimal=",", encoding="utf-16")),
    "different delimiters": case(c=known(sep=";", decimal=",")),
    "windows line ends": case(**both(end="\r\n")),
    "old mac line ends": case(**both(end="\r")),
    "no line end at the end": case(p=pile().rstrip("\n")),
    "blank lines at the end": case(p=pile() + "\n\n"),
    "blank lines between": case(p=pile().replace("\n", "\n\n")),
    "blank lines in front": case(p="\n\n" + pile()),
    "blank windows lines in front": case(p="\r\n\r\n" + pile(end="\r\n")),
    "lines of blanks in front": case(p="  \n \n" + pile()),
    "excel names its delimiter": case(c=known(sep=";"), p="sep=;\n" + pile(sep=";")),
    "excel delimiter after a byte order mark": case(p=("sep=;\r\n" + pile(sep=";", end="\r\n")).encode("utf-8-sig")),
    "capital ending": case(**both("c.CSV", "p.Csv")),
    "blanks around cells": case(c=known().replace(",", " , ")),
    "numbers with a plus sign": case(p=re.sub(r"(?m)(^|,)(?=\d)", r"\1+", pile())),
    "quoted cells": case(p=quoted(pile())),
    "blanks in front of quotation marks": case(c=quoted(known(), ", ")),
    "quoted labels after a blank": case(c=re.sub(r",(c\d)\b", r', "\1"', known())),
    "newline in a column name": case(**both(names=["f\n0", *COLUMNS[1:]])),
    "newlines in item names": case(p=pile(first={"item": lambda i: f"a\nb {i}"})),
    "u2028 in item names": case(p=pile(first={"item": lambda i: f"a\u2028b\x85{i}"})),
    "item names of 140000 letters": case(p=pile(first={"item": lambda i: "x" * 140_000})),  # more than `csv` takes
    "trailing delimiters": case(p=pile(last={"": lambda i: ""})),
    "written by numpy savetxt": case("holds numbers", p=savetxt()),
    "written by numpy savetxt with a header": case(p=savetxt(delimiter=",", header=",".join(COLUMNS))),
    "path that looks like markup": case(**both("[red]c[/b].csv", "[/]p.csv")),
    "path that looks like an emoji": case(**both(":smile:.csv", "ß é.csv")),
    # The first line, which is easily lost.
    "pile without header": case("holds numbers", "keep their order", p=pile(header=False)),
    "headerless with a byte order mark": case(p=pile(header=False).encode("utf-8-sig")),
    "headerless with decimal commas": case(p=pile(header=False, decimal=",", sep=";")),
    "headerless after blank lines": case(p="\n\n" + pile(header=False)),
    "headerless in both": case(c=pile(values=X, header=False), p=pile(header=False), l=LINES),
    "columns numbered by pandas": case(**both(names=POINTS)),
    "columns named by wavelengths": case(**both(names=WAVES)),
    "three columns named by years": case(
        c=known(names=["", "2019", "2020", "2021"], order=[1, 2, 3]),
        p=pile(names=["", "2019", "2020", "2021"], order=[3, 1, 2])),
    # Names of items, and columns that count them.
    "index of pandas in the pile": case(
        "columns of p.csv: item name the one without a name", p=pile(first={"": count})),
    "index of pandas in both": case(**in_front("")),
    "index named idx": case("; item name '", **in_front("idx")),
    "row names of R": case("; item name '", **in_front("row.names", lambda i: i + 1)),
    "unnamed column": case("Unnamed: 0", p=pile(first={"Unnamed: 0": count})),
    "id column": case("item name 'photo_id'", p=pile(first={"photo_id": lambda i: i * 7})),
    "index and id column": case("item name 'id'", p=pile(first={"": count, "id": lambda i: 7 * i})),
    "two ids": case(
        "item name 'photo_id' (not 'user_id')", "--item-column",
        p=pile(first={"user_id": lambda i: i % 3, "photo_id": count})),
    "item and id": case(p=pile(first={"photo_id": count, "item": lambda i: f"x{i}"})),
    "capital Item": case("item name 'Item'", p=pile(first={"Item": lambda i: f"x{i}"})),
    "codes in a column of any name": case(
        "item name 'Vorgang'", p=pile(first={"Vorgang": lambda i: f"T-{4000 + i}"})),
    "numbers of tickets": case(
        "item name 'Ticket-Nr'", p=pile(first={"Ticket-Nr": lambda i: 4000 + i})),
    "numbers of tickets in one word": case(
        "item name 'Vorgangsnummer'", p=pile(first={"Vorgangsnummer": lambda i: 7 * i})),
    "columns that only the pile has": case(
        p=pile(first={"site": lambda i: "creek"}, last={"extra": lambda i: 1.5, "date": lambda i: "2024-05-01"})),
    "fractions in a column named like an id": case(
        p=pile(first={"item": lambda i: f"x{i}", "NO": lambda i: i + 0.5})),
    "row numbers in the pile alone": case(p=pile(first={"nr": count})),
    "texts and dates among the examples": case(
        "not used: 'site', 'date'", "--feature-column",
        c=known(first={"site": lambda i: "creek"}, last={"date": lambda i: f"2024-05-{i + 1:02}"})),
    "column of files": case("; item name '", **in_front("file", lambda i: f"{i}.jpg")),
    "column of numbered paths": case("; item name '", **in_front("image_path", lambda i: i * 37 % 19)),
    "names that several items have": case(
        "20 items of p.csv share their name with another, such as 'x0'", p=pile(first={"item": lambda i: f"x{i % 9}"})),
    "names that are missing": case(p=pile(first={"item": lambda i: ["", "0", "nan"][i % 3]})),
    # Columns that are more likely ids or dates than features.
    "row numbers": case("'plant' of c.csv numbers the rows (0, 1, 2, …)", "--ignore-column", **in_front("plant")),
    "row numbers from one in parquet": case(
        "'nr' of c.parquet numbers the rows", c=parquet(nr=np.arange(1, 19)),
        p=("p.parquet", columns(QUERY, nr=np.arange(1, 21)))),
    "shuffled row numbers": case("'nr' of c.csv numbers the rows", c=known(first={"nr": lambda i: i * 5 % 18})),
    "rising numbers": case("'plant' of c.csv numbers the rows", c=known(first={"plant": lambda i: 1000 + 3 * i * i})),
    "accession numbers": case(
        "'accession' of c.csv looks like an id", "--feature-column", **in_front("accession", lambda i: i * 791 % 401)),
    "days": case("'taken' of c.csv looks like a date", **in_front("taken", lambda i: 20240500 + i * 7 % 31 + 1)),
    "seconds": case("'taken' of c.csv looks like a date", **in_front("taken", lambda i: 1.7e9 + i * 7919 % 4001)),
    "milliseconds": case("looks like a date", **in_front("taken", lambda i: int(1.7e12) + i * 7919 % 4001)),
    "spreadsheet dates": case("'Date' of c.csv looks like a date", **in_front("Date", lambda i: 45000 + i * 7 % 31)),
    "texts as dates": case("'taken'", **in_front("taken", lambda i: f"2024-05-{i + 1:02}")),
    "dates in parquet": case(
        "not used: 'day'", c=parquet(day=np.arange(18).astype("M8[D]")),
        p=("p.parquet", columns(QUERY, day=np.arange(20).astype("M8[D]")))),
    "a whole number that differs in every row": case(
        "'area' of c.csv has another whole number in every row (0, 7, 14, …)", "--ignore-column",
        **in_front("area", lambda i: i * 7 % 31)),
    "row numbers ignored": case(**in_front("nr"), options="--ignore-column nr"),
    "id column kept as a feature": case(**both(names=["id", *COLUMNS[1:]]), options="--feature-column id"),
    # Labels.
    "capital Label": case("label 'Label'", c=known(label="Label")),
    "label named class": case("label 'class'", c=known(label="class")),
    "label with blanks": case(c=known([f" {y} " for y in Y], label=" label ")),
    "label column in another case": case(c=known(label="Species"), options="--label-column species"),
    "pile with empty labels": case(p=pile(last={"label": lambda i: ""})),
    "pile with some labels": case(p=pile(last={"label": lambda i: "c1" if i else ""})),
    "labels beside a csv": case(c=pile(values=X), l=LINES),
    "labels in two files": case("labels in", "are used, not those in", c=known(Y[::-1]), l=LINES),
    "labels in npy": case(**FEATURES, l=("l.npy", Y)),
    "bytes labels in npy": case(**FEATURES, l=("l.npy", Y.astype("S"))),
    "labels in a csv column": case(**FEATURES, l=("l.csv", text(["nr", "label"], enumerate(Y)))),
    "labels in a column that is named": case(
        **FEATURES, l=("l.csv", text(["nr", "species"], enumerate(Y))), options="--label-column species"),
    "labels in jsonl": case(**FEATURES, l=("l.jsonl", [{"label": y} for y in Y.tolist()])),
    "labels with a byte order mark": case(**FEATURES, l=(LINES + "\n").encode("utf-8-sig")),
    "labels that differ in case": case("'C0' and 'c0' of c.csv differ only in case", c=known(changed("C0", [0]))),
    "labels that differ in unicode form": case(
        "differ only in case, blanks or Unicode form",
        c=known([{"c0": "\u00e9", "c2": "e\u0301"}.get(y, y) for y in Y])),
    "labels that look alike": case(
        "look alike, in letters of two scripts", c=known([{"c0": "c\u0430", "c2": "ca"}.get(y, y) for y in Y])),
    "labels with invisible characters": case(
        r"the label 'c0\u200d' of c.csv has invisible characters", c=known(changed("c0\u200d", [0, 1, 2]))),
    "labels with line breaks": case(
        r"the label 'c0\nWritten to x.csv.' of c.csv has invisible", c=known(changed("c0\nWritten to x.csv.", [0]))),
    "labels as numbers and as texts": case(
        "1 and '1' are one class", c=("c.jsonl", records(X, label=[1, "1", 1.0, *Y[3:].tolist()])),
        p=("p.jsonl", records(QUERY))),
    "label of R for nothing": case("'NA' of c.csv is taken as the name of a class", c=known(changed("NA"))),
    # Arrays.
    "capital npz": case(c=("c.NPZ", npz()[1]), p=npz_items()),
    "compressed npz": case(c=("c.npz", lambda path: np.savez_compressed(path, features=X, labels=Y)), p=npz_items()),
    "big endian": case(c=npz(features=X.astype(">f4")), p=("p.npy", QUERY.astype(">f8"))),
    "long double": case(c=npz(features=X.astype(np.longdouble)), p=("p.npy", QUERY.astype(np.longdouble))),
    "half precision": case(c=npz(features=X.astype(np.float16)), p=("p.npy", QUERY.astype(np.float16))),
    "fortran order": case(c=npz(features=np.asfortranarray(X)), p=("p.npy", np.asfortranarray(QUERY))),
    "integer features": case(
        c=npz(features=np.rint(X * 100).astype(np.int64)), p=("p.npy", np.rint(QUERY * 100).astype(np.int16))),
    "bytes labels": case(c=npz(labels=Y.astype("S")), p=npz_items()),
    "bytes items": case(c=npz(), p=npz_items(items=np.array([f"p{i}" for i in range(20)]).astype("S"))),
    "bytes class names": case(c=npz(labels=NUMBERS, class_names=np.array(NAMES).astype("S")), p=npz_items()),
    "bfloat16": case(
        c=("c.safetensors", {"features": X, "labels": NUMBERS, "header": json.dumps({"class_names": NAMES})}),
        p=("p.safetensors", {"features": torch.from_numpy(QUERY).bfloat16()})),
    "npy of version 2": case(c=npz(), p=npy_of_version((2, 0))),
    "npy of version 3": case(c=npz(), p=npy_of_version((3, 0))),
    # Numbers far from 0, of which float32 would leave nothing.
    "coordinates in csv": case(c=known(values=X.astype(float) + 5.4e6), p=pile(values=QUERY.astype(float) + 5.4e6)),
    "numbers at 1e8 in csv with decimal commas": case(
        c=known(values=FAR_X, sep=";", decimal=","), p=pile(values=FAR, sep=";", decimal=",")),
    "numbers at 1e8 in parquet": case(
        c=("c.parquet", columns(FAR_X, label=Y)), p=("p.parquet", columns(FAR))),
    "numbers at 1e8 in jsonl": case(
        c=("c.jsonl", records(FAR_X, label=Y.tolist())), p=("p.jsonl", records(FAR))),
    "numbers at 1e8 in excel": case(
        c=("c.xlsx", {"a": sheet(FAR_X, label=Y)}), p=("p.xlsx", {"a": sheet(FAR)})),
    "lists at 1e8": case(
        c=("c.parquet", {"v": list(FAR_X), "label": Y}), p=("p.parquet", {"v": list(FAR)})),
    "integers at 1e12 in csv": case(c=known(values=WHOLE_X), p=pile(values=WHOLE)),
    "integers at 1e12 in parquet": case(
        c=("c.parquet", columns(WHOLE_X, label=Y)), p=("p.parquet", columns(WHOLE))),
    "integers at 1e12 in npz": case(c=npz(features=WHOLE_X), p=npz_items(features=WHOLE)),
    "integers at 1e12 in safetensors": case(
        c=npz(features=WHOLE_X), p=("p.safetensors", {"features": WHOLE})),
    "doubles at 1e8 and a table": case(c=npz(features=FAR_X), p=pile(values=FAR)),
    # Excel.
    "rows of delimiters at the end": case(p=pile(first={"id": count}) + ",,,,,,,,\n" * 3 + "\n"),
    "rows of tabs at the end": case(p=("p.tsv", pile(sep="\t", end="\r\n", last={"note": count}) + "\t" * 8 + "\r\n")),
    "a line of blanks at the end": case(p=pile() + "   \n"),
    "two byte order marks": case(p="\ufeff\ufeff" + pile()),
    "columns in another case": case(c=known(names=[name.upper() for name in COLUMNS])),
    "columns in another unicode form": case(
        c=known(names=["Blu\u0308te", *COLUMNS[1:]]), p=pile(names=["Bl\u00fcte", *COLUMNS[1:]])),
    "excel with numbers as texts": case(p=("p.xlsx", {"a": [[*map(str, row)] for row in sheet(QUERY)]})),
    "excel with numbers as texts with decimal commas": case(
        "decimal comma", p=("p.xlsx", {"a": [[str(cell).replace(".", ",") for cell in row] for row in sheet(QUERY)]})),
    "excel with blank rows at the end": case(p=("p.xlsx", {"a": [*sheet(QUERY), [""] * 8, [" "] * 3]})),
    "excel": case(c=("c.xlsx", {"a": sheet(X, label=Y)}), p=("p.xlsx", {"a": sheet(QUERY, id=range(20))})),
    "excel and csv": case(p=("p.XLSX", {"a": sheet(QUERY)})),
    "excel with a title above": case(p=("p.xlsx", {"a": [["Summer 2024"], [], *sheet(QUERY)]})),
    "excel with empty rows and columns": case(
        p=("p.xlsx", {"a": [[], *([None, *row, None] for row in sheet(QUERY)), [], [None]]})),
    "excel with several sheets": case(
        "the sheet 'items' of p.xlsx is read, not 'notes'",
        p=("p.xlsx", {"items": sheet(QUERY), "notes": [["a"], [1]]})),
    "excel with notes in the first sheet": case(
        "the sheet 'items' of p.xlsx is read, not 'About'",
        p=("p.xlsx", {"About": [["Survey"], ["Author", "Smith"], ["Year", 2024], []], "items": sheet(QUERY)})),
    "excel with a sheet by name": case(
        c=("c.xlsx", {"items": sheet(X, label=Y)}), p=("p.xlsx", {"notes": [["a"]], "items": sheet(QUERY)}),
        options="--sheet items"),
    "excel with a sheet by number": case(p=("p.xlsx", {"notes": [["a"]], "items": sheet(QUERY)}), options="--sheet 2"),
    "excel with formulas that were never computed": case(
        "p.xlsx has formulas that were never computed: their cells are empty",
        p=("p.xlsx", {"a": sheet(QUERY, total=["total", *["=1+1"] * 19])})),
    "excel with a hidden first sheet": case(
        "the sheet 'items' of p.xlsx is read", p=("p.xlsx", hidden_sheet)),
    "excel with merged labels": case(
        "cells of c.xlsx that are merged over several rows count for each of these rows", c=("c.xlsx", merged_labels)),
    "excel with dates": case(
        c=("c.xlsx", {"a": sheet(X, label=Y, day=[date(2024, 5, 1)] * 18)}),
        p=("p.xlsx", {"a": sheet(QUERY, day=[date(2024, 5, 1)] * 20)})),
    # Parquet and jsonl.
    "parquet in another order": case(c=parquet(), p=("p.parquet", columns(QUERY, SHUFFLED))),
    "parquet and csv": case(c=parquet(), p=pile(order=SHUFFLED)),
    "capital parquet": case(c=("c.PARQUET", parquet()[1]), p=("p.Parquet", columns(QUERY))),
    "parquet of doubles": case(
        c=("c.parquet", columns(X.astype(float), label=Y)), p=("p.parquet", columns(QUERY.astype(float)))),
    "parquet with an index": case(
        "__index_level_0__", c=parquet(), p=("p.parquet", columns(QUERY, __index_level_0__=np.arange(20)[::-1]))),
    "parquet with an index of no sense": case(
        c=parquet(),
        p=("p.parquet", lambda path: write_parquet(path, columns(QUERY), {"pandas": '{"index_columns": 5}'}))),
    "parquet with a named index": case(
        "columns of p.parquet: item name 'sheet'", c=parquet(),
        p=("p.parquet", lambda path: write_parquet(
            path, columns(QUERY, sheet=np.arange(20) * 3), {"pandas": '{"index_columns": ["sheet"]}'}))),
    "parquet in a folder named like a partition": case(
        c=("run=3/c.parquet", parquet()[1]), p=("run=3/p.parquet", columns(QUERY))),
    "parquet with lists": case(c=("c.parquet", {"v": list(X), "label": Y}), p=("p.parquet", {"v": list(QUERY)})),
    "parquet with bytes labels": case(
        c=("c.parquet", {**columns(X), "label": [y.encode() for y in Y]}), p=("p.parquet", columns(QUERY))),
    "folder of parquet files": case(c=parquet(), p=parquet_folder("a.parquet", "b.parquet")),
    "folder of parquet files per class": case(c=("c.parquet", partitioned), p=("p.parquet", columns(QUERY))),
    "jsonl": case(c=("c.jsonl", records(X, label=Y.tolist())), p=("p.jsonl", records(QUERY))),
    "jsonl with lists": case(c=lists(), p=("p.JSONL", vectors(QUERY, id=range(20)))),
}

REFUSED = {
    # Columns.
    "other columns": case("lacks the columns 'f0'", "it has 'g0'", p=pile(names=[f"g{i}" for i in range(8)])),
    "one column renamed": case("lacks the columns 'f7'", "'g7'", p=pile(names=[*COLUMNS[:-1], "g7"])),
    "one column less": case("lacks the columns 'f7'", p=pile(order=range(7))),
    "other parquet columns": case(
        "lacks the columns", c=parquet(), p=("p.parquet", {f"x{i}": QUERY[:, i] for i in range(8)})),
    "duplicate columns": case("two columns named 'f1'", p=pile(names=["f0", "f1", "f1", *COLUMNS[3:]])),
    "duplicate columns in the examples": case("two columns named 'f0'", c=known(names=["f0", "f0", *COLUMNS[2:]])),
    "duplicate columns by blanks": case("two columns named 'f0'", c=known(names=["f0", " f0", *COLUMNS[2:]])),
    "two columns without a name": case(
        "two columns without a name", p="," + pile(first={"": count}).replace("\n", "\n1,")[:-2]),
    "no features at all": case("has no column of numbers", c="label\na\nb\n"),
    "two label columns": case(
        "'class', 'category'", "--label-column", c=known(label="class", last={"category": lambda i: "x"})),
    "class beside label": case(
        "'class', 'label'", "--label-column", **in_front("class", lambda i: 1.5)),
    "target beside a named label": case(
        "'target'", "looks like a label", c=known(label="species", first={"target": lambda i: 1.5}),
        p=pile(first={"target": lambda i: 1.5}), options="--label-column species"),
    "label in two cases": case("'label', 'Label'", c=known(last={"Label": lambda i: 1})),
    "unknown label column": case(
        "no column 'speces'", "did you mean 'species'", c=known([1] * 18, label="species"),
        p=pile(last={"species": lambda i: 2}), options="--label-column speces"),
    "unknown item column": case("no column 'photo'", options="--item-column photo"),
    "unknown ignored column": case("no column 'idd'", options="--ignore-column idd"),
    "texts and numbers": case(
        "'text'", "'width'", "--text-column", "--ignore-column",
        c="text,width,label\nhello,1.5,a\nbye,2,b\n", p="text\nhi\n"),
    "texts, and a sheet that is not there": case(
        "no sheet 'new'", "did you mean 'news'", c="text,label\nhello there,a\nbye now,b\n",
        p=("p.xlsx", {"news": [["text"], ["hi you"]]}), options="--sheet new"),
    "texts, and a file that cannot be read": case(
        "two columns named 'text'", c="text,text,label\nhello there,x,a\n", p="text\nhi you\n"),
    "items in the place of examples": case(
        "they come first, the items second", c=("c.csv", pile()), p=("p.csv", known())),
    "texts and features": case("c.csv holds features", "p.csv holds texts", "manyway extract", p="text\nhi\n"),
    # Cells.
    "surplus cell": case(
        "another number of cells (9) in line 4", p=re.sub(r"((.*\n){3}.*)\n", r"\1,1\n", pile(), count=1)),
    "missing cell": case("another number of cells (7) in line 2", p=re.sub(r"\n[^,]*,", "\n", pile(), count=1)),
    "empty cell": case("Column 'f0'", "is empty in line 21", p=pile(change={(19, 0): ""})),
    "empty cell after blank lines": case("is empty in line 6", p="\n\n" + pile(change={(2, 0): ""})),
    "empty cell with semicolons": case("is empty in line 3", p=pile(change={(1, 0): ""}, sep=";")),
    "blank cell": case("is empty in line 2", p=pile(change={(0, 0): "  "})),
    "underscore in a number": case("Column 'f3'", "line 2 has '1_5'", p=pile(change={(0, 3): "1_5"})),
    "word in a cell": case("Column 'f3'", "line 2 has 'n/a'", p=pile(change={(0, 3): "n/a"})),
    "nan in a cell": case("Column 'f0'", "'NaN' in line 2", p=pile(change={(0, 0): "NaN"})),
    "infinity in a cell": case("'inf' in line 2", p=pile(change={(0, 0): "inf"})),
    "number too large for 32 bits": case("1e39", "line 2", p=pile(change={(0, 0): "1e39"})),
    "both decimal signs": case(
        "is not all numbers", c=known(sep=";"), p=pile(change={(i, 0): "1,5" for i in range(10)}, sep=";")),
    "thousands": case("is not all numbers", p=pile(change={(i, 0): "1,234,5" for i in range(20)})),
    "open quotation mark": case(
        "quotation mark is not closed", p=pile(first={"item": lambda i: "x"}).replace("x", '"x', 1)),
    "table of R with row names": case("text follows a closing quotation mark", p='"a" "b"\n"1" 2.5 3\n"2" 2.5 4\n'),
    # First lines, and what is inside.
    "headerless examples": case("looks like data", c=known(header=False)),
    "headerless examples in front of labels": case(
        "looks like data", c=pile(values=X, first={"label": Y}, header=False)),
    "headerless examples without labels": case("have no labels", c=pile(values=X, header=False)),
    "rising numbers without a header": case(
        "could be names of columns or an item", c=FEATURES["c"], l=LINES,
        p=pile(values=np.sort(QUERY.astype(float), 1), header=False)),
    "header alone": case("has no data row", p=",".join(COLUMNS) + "\n"),
    "empty csv": case("is empty", p=b""),
    "blank csv": case("is empty", p=b"\n \n\n"),
    "byte order mark alone": case("is empty", p=b"\xef\xbb\xbf"),
    "cut utf16": case("not readable as UTF-16", p=pile().encode("utf-16")[:-1]),
    "excel renamed": case("zip archive or an Excel file", p=b"PK\x03\x04" + b"\0" * 100),
    "no letters of windows 1252": case("line 2 has the byte 0x81", "save it as UTF-8", c=b"a,label\n1,\x81\n"),
    "cut gzip": case("cannot be unpacked", p=("p.csv.gz", gzip.compress(pile().encode())[:-20])),
    "cut xz": case("cannot be unpacked", p=("p.csv.xz", lzma.compress(pile().encode())[:-20])),
    "gzip bomb": case("far more than its size", p=("p.csv.gz", bomb)),
    "excel with a password": case("password", "as .xlsx", p=("p.xlsx", b"\xd0\xcf\x11\xe0" + bytes(600))),
    "excel with merged cells above the names": case(
        "two columns without a name", p=("p.xlsx", {"a": [["Leaf", None, None, "Flower"], *sheet(QUERY)]})),
    "excel with two rows of names": case(
        "row 2 has 'mm'", p=("p.xlsx", {"a": [*sheet(QUERY)[:1], ["mm"] * 8, *sheet(QUERY)[1:]]})),
    "excel with thousands as texts": case(
        "has '1,234.5'", p=("p.xlsx", {"a": [*sheet(QUERY)[:1], ["1,234.5"] * 8, ["1.234,5"] * 8, *sheet(QUERY)[3:]]})),
    "excel with an error": case(
        "row 2 has '#DIV/0!'", p=("p.xlsx", {"a": [sheet(QUERY)[0], ["#DIV/0!"] * 8, *sheet(QUERY)[2:]]})),
    "web page": case("is a web page inside", p="<!DOCTYPE html><html><body>Sign in</body></html>"),
    "pdf file": case("is a PDF file inside", p="%PDF-1.7\n1 0 obj"),
    "row of delimiters between others": case("is empty in line 2", p=pile().replace("\n", "\n,,,,,,,\n", 1)),
    "percent signs": case("line 2 has '5%'", p=pile(change={(0, 3): "5%"})),
    "old excel": case("unknown ending", ".xlsx", p=("p.xls", b"\xd0\xcf\x11\xe0" + bytes(600))),
    "open document": case("unknown ending", p=("p.ods", b"PK\x03\x04" + bytes(99))),
    "name that is too long": case("name of a file is too long: 'xxx", p=("x" * 300 + ".csv", lambda path: None)),
    "output whose name is too long": case("name of a file is too long: 'xxx", options=f"-o {'x' * 300}.csv"),
    "no excel": case("cannot be read as an Excel file", p=("p.xlsx", b"x")),
    "cut excel": case("cannot be read as an Excel file", p=("p.xlsx", saved({"a": sheet(QUERY)}, ".xlsx")[:-50])),
    "empty excel": case("is empty", p=("p.xlsx", {"a": []})),
    "excel without that sheet": case(
        "no sheet 'x'", "one of: a", p=("p.xlsx", {"a": sheet(QUERY)}), options="--sheet x"),
    "empty cell in excel": case(
        "Column 'f0'", "is empty in row 3",
        p=("p.xlsx", {"a": [[None, *row[1:]] if i == 2 else row for i, row in enumerate(sheet(QUERY))]})),
    "parquet renamed": case("parquet file", p=saved(columns(QUERY), ".parquet")),
    "csv renamed to parquet": case("cannot be read as parquet", p=("p.parquet", pile())),
    # Labels that are missing or no labels.
    "empty labels": case("no label in line 3, line 5", c=known(changed(""))),
    "blank labels": case("no label in line 3, line 5", c=known(changed("   "))),
    "nan labels": case("no label in line 3, line 5", "'nan' stands for a missing label", c=known(changed("nan"))),
    "NaN labels": case("no label in line 3, line 5", c=known(changed("NaN"))),
    "NA labels of pandas": case("no label in line 3", c=known(changed("<NA>"))),
    "five empty labels": case("no label in line 2, line 3, line 4 and 2 more; every", c=known(changed("", range(5)))),
    "three empty labels": case("no label in line 2, line 3, line 4; every", c=known(changed("", range(3)))),
    "all labels empty": case("no label in line 2", c=known([""] * 18)),
    "empty labels in npz": case("no label in row 1, row 3", c=npz(labels=np.array(changed("")))),
    "empty bytes labels in npz": case("no label in row 1", c=npz(labels=np.array(changed("")).astype("S"))),
    "null labels in parquet": case("no label in row 1, row 3", c=("c.parquet", {**columns(X), "label": changed(None)})),
    "null integers in parquet": case(
        "no label in row 1", c=("c.parquet", {**columns(X), "label": [0, None, *NUMBERS[2:].tolist()]})),
    "nan integers in parquet": case(
        "no label in row 1", c=("c.parquet", {**columns(X), "label": [0.0, np.nan, *NUMBERS[2:].tolist()]})),
    "null labels in jsonl": case("no label in line 2", c=lists(label=changed(None)), p=("p.jsonl", vectors(QUERY))),
    "absent labels in jsonl": case(
        "no label in line 2", c=("c.jsonl", without(lists()[1], 1, "label")), p=("p.jsonl", vectors(QUERY))),
    "lists as labels": case(
        "labels are names or whole numbers", c=lists(label=[[y] for y in Y.tolist()]), p=("p.jsonl", vectors(QUERY))),
    "fractions as labels": case("row 0", "0.5", "whole numbers", c=npz(labels=NUMBERS + 0.5)),
    "nan as labels": case("no label in row 0", c=npz(labels=np.where(NUMBERS, 1.0, np.nan))),
    "labels of two axes": case("one integer or string per row", c=npz(labels=NUMBERS[:, None])),
    "complex labels": case("one integer or string per row", c=npz(labels=NUMBERS + 1j)),
    "dates as labels": case("one integer or string per row", c=npz(labels=NUMBERS.astype("M8[D]"))),
    "labels as pickled strings": case("pickled Python objects", "astype(str)", c=npz(labels=Y.astype(object))),
    "labels with NUL": case(
        r"'c0\x00x' in line 1 of c.jsonl has a NUL", c=("c.jsonl", records(X, label=changed("c0\0x", [0]))),
        p=("p.jsonl", records(QUERY))),
    "labels that are not utf8": case("not UTF-8", c=npz(labels=np.array([b"\xff\xfe"] * 9 + [b"a"] * 9))),
    "fractions in a file of labels": case("whole numbers", **FEATURES, l=("l.npy", NUMBERS + 0.5)),
    "nan in a file of labels": case(
        "no label in row 3", **FEATURES, l=("l.npy", np.where(NUMBERS == 1, np.nan, NUMBERS))),
    "two axes in a file of labels": case("one integer or string per row", **FEATURES, l=("l.npy", np.eye(18))),
    "one number as a file of labels": case("one integer or string per row", **FEATURES, l=("l.npy", np.array(3))),
    "blank line among labels": case("no label in line 2", **FEATURES, l="c0\n\n" + "\n".join(Y[1:])),
    "too few labels": case("17 labels for 18 examples", **FEATURES, l="\n".join(Y[1:])),
    "no labels in the file": case("0 labels", **FEATURES, l=""),
    "binary labels": case("not readable", **FEATURES, l=b"\xff\x81\x82"),
    "duplicate class names": case("'a' twice", c=npz(labels=NUMBERS, class_names=["a", "a", "b", "c", "d", "e"])),
    "too few class names": case("there are 2 class names", c=npz(labels=NUMBERS, class_names=["a", "b"])),
    "class names of two axes": case("one integer or string per row", c=npz(labels=NUMBERS, class_names=[["a", "b"]])),
    "empty class name": case("has an empty name", c=npz(labels=NUMBERS, class_names=["a", " ", *"bcde"])),
}
# fmt: on


def npy_with_header(shape, dtype="<f4", payload=b"\0" * 64):
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, data in members.items():
            archive.writestr(f"{member}.npy", data)
    return ("p.npz", out.getvalue())


def safetensors(header, payload=b""):
    return ("p.safetensors", struct.pack("<Q", len(header)) + header.encode() + payload)


def unknown_compression(data):
    at = data.find(b"PK\x01\x02") + 10
    return data[:at] + b"\x61\0" + data[at + 2 :]


def ours(header):
    return ("c.safetensors", {"features": X, "labels": NUMBERS, "header": header})


NPZ, NPY, TENSORS, PARQUET = (
    saved(content, suffix)
    for content, suffix in (
        ({"features": QUERY}, ".npz"),
        (QUERY, ".npy"),
        ({"features": QUERY}, ".safetensors"),
        (columns(QUERY), ".parquet"),
    )
)
# fmt: off
REFUSED |= {
    # Arrays that are damaged or of the wrong kind.
    "npz cut in half": case("cannot be read as an .npz", p=("p.npz", NPZ[: len(NPZ) // 2])),
    "npz without its end": case("cannot be read as an .npz", p=("p.npz", NPZ[:-30])),
    "npz with wrong data": case(
        "cannot be read as an .npz", p=("p.npz", NPZ[:300] + bytes([NPZ[300] ^ 255]) + NPZ[301:])),
    "npz with unknown compression": case("cannot be read as an .npz", p=("p.npz", unknown_compression(NPZ))),
    "npz of rubbish": case("cannot be read as an .npz", p=("p.npz", b"rubbish" * 99)),
    "empty npz": case("cannot be read as an .npz", p=("p.npz", b"")),
    "npz of nothing": case("it holds: nothing", p=zipped()),
    "npz of other arrays": case("it holds: embeddings", p=("p.npz", {"embeddings": QUERY})),
    "npz with a lying shape": case("cut off", p=zipped(features=npy_with_header((10**9, 10**3)))),
    "npz with a negative shape": case("cannot be read", p=zipped(features=npy_with_header((-4, 8)))),
    "npz with objects": case("pickled Python objects", p=npz_items(features=np.array([[{}]], dtype=object))),
    "pickle as npz": case("cannot be read", p=("p.npz", pickle.dumps(QUERY))),
    "npy with objects": case("pickled Python objects", p=("p.npy", np.array([[{}]], dtype=object))),
    "npy cut": case("cut off", p=("p.npy", NPY[:-5])),
    "npy header cut": case("cannot be read as a plain .npy", p=("p.npy", NPY[:40])),
    "npy with a lying shape": case("cut off", p=("p.npy", npy_with_header((10**12, 8)))),
    "npy of rubbish": case("cannot be read as a plain .npy", p=("p.npy", b"rubbish" * 9)),
    "empty npy": case("cannot be read as a plain .npy", p=("p.npy", b"")),
    "one number": case("two axes", p=("p.npy", np.float32(3))),
    "three axes": case("two axes", p=("p.npy", QUERY[None])),
    "text as features": case("must be real numbers", p=("p.npy", QUERY.astype(str))),
    "complex features": case("must be real numbers", p=("p.npy", QUERY.astype(complex))),
    "true and false as features": case("must be real numbers", p=("p.npy", QUERY > 0)),
    "structured features": case("cannot be read|must|two axes", p=("p.npy", np.zeros(3, dtype=[("a", "f4")]))),
    "dates as features": case("must be real numbers", p=("p.npy", QUERY.astype(int).astype("M8[s]"))),
    "no rows": case("p.npy has no rows", p=("p.npy", QUERY[:0])),
    "no features": case("has no features", p=("p.npy", QUERY[:, :0])),
    "no features in both": case("has no features", c=npz(features=X[:, :0]), p=("p.npy", QUERY[:, :0])),
    "no examples": case("c.npz has no rows", c=npz(features=X[:0], labels=Y[:0])),
    "base mean of another size": case("base_mean in", c=npz(base_mean=np.zeros(3))),
    "base mean of words": case("base_mean in", c=npz(base_mean=["a"] * 8)),
    "base mean that is not finite": case("base_mean in", c=npz(base_mean=[np.nan] * 8)),
    "too many items": case("20 rows of features and 3 item names", p=npz_items(items=["a", "b", "c"])),
    "safetensors of rubbish": case("cannot be read as safetensors", p=("p.safetensors", b"rubbish" * 99)),
    "empty safetensors": case("cannot be read as safetensors", p=("p.safetensors", b"")),
    "safetensors header of a wrong type": case("cannot be read as safetensors", p=safetensors("[1, 2]")),
    "safetensors tensor of a wrong type": case("cannot be read as safetensors", p=safetensors('{"features": 3}')),
    "safetensors beyond its end": case("cannot be read as safetensors", p=safetensors(
        '{"features": {"dtype": "F32", "shape": [20, 8], "data_offsets": [0, 640]}}', b"\0" * 8)),
    "safetensors cut": case("cannot be read as safetensors", p=("p.safetensors", TENSORS[:-9])),
    "safetensors of other tensors": case("it holds: weights", p=("p.safetensors", {"weights": QUERY})),
    "our header is no json": case("header of", "damaged", c=ours("{broken")),
    "our header is a list": case("header of", "damaged", c=ours("[]")),
    "class names in the header are a number": case("one string per class", c=ours('{"class_names": 3}')),
    "class names in the header are lists": case("one string per class", c=ours('{"class_names": [[], {}]}')),
    # Parquet and jsonl.
    "parquet of rubbish": case("cannot be read as parquet", p=("p.parquet", b"PAR1" + b"x" * 99 + b"PAR1")),
    "empty parquet": case("cannot be read as parquet", p=("p.parquet", b"")),
    "parquet cut": case("cannot be read as parquet", p=("p.parquet", PARQUET[:-20])),
    "parquet with damaged names": case("cannot be read as parquet", p=("p.parquet", PARQUET.replace(b"f0", b"\xff0"))),
    "parquet without rows": case("no data row", p=("p.parquet", columns(QUERY[:0]))),
    "parquet with nulls": case(
        "Column 'f0'", "empty in row 1", p=("p.parquet", {**columns(QUERY), "f0": [1.0, None] * 10})),
    "parquet with nan": case(
        "Column 'f0'", "'nan' in row 1", p=("p.parquet", {**columns(QUERY), "f0": [1.0, np.nan] * 10})),
    "parquet with dates": case(
        "is not all numbers", "1970-01-01", p=("p.parquet", {**columns(QUERY), "f0": np.arange(20).astype("M8[s]")})),
    "parquet with texts": case("is not all numbers", p=("p.parquet", {**columns(QUERY), "f0": ["x"] * 20})),
    "parquet bomb of numbers": case("far more than its size", p=("p.parquet", constant_parquet)),
    "parquet bomb of texts": case("its texts unpack to", p=("p.parquet", repeating_parquet)),
    "npz bomb": case("far more than its size", p=("p.npz", zip_bomb("features.npy"))),
    "excel bomb": case("far more than its size", p=("p.xlsx", zip_bomb("xl/workbook.xml"))),
    "parquet with uneven lists": case(
        "has 7 numbers in row 2", c=("c.parquet", {"v": list(X), "label": Y}),
        p=("p.parquet", {"v": [q[1:] if i == 2 else q for i, q in enumerate(QUERY)]})),
    "pipe in a folder of parquet files": case("is a pipe", p=parquet_folder("a.parquet", more=fifo)),
    "rubbish in a folder of parquet files": case(
        "cannot be read as parquet", p=parquet_folder(more=lambda path: path.write_bytes(b"x"))),
    "empty folder of parquet files": case("q.parquet", p=parquet_folder()),
    "jsonl that is broken": case("Line 2", "is not JSON", p=("p.jsonl", '{"f0": 1}\n{"f0": \n')),
    "jsonl of lists": case("Line 1", "not a JSON object", p=("p.jsonl", "[1, 2]\n")),
    "jsonl with a name twice": case("two values named 'f0'", p=("p.jsonl", '{"f0": 1, "f0": 2}\n')),
    "jsonl nested deeply": case("is not JSON", p=("p.jsonl", "[" * 100_000 + "\n")),
    "jsonl with a value missing": case(
        "Column 'f7'", "is empty in line 2", p=("p.jsonl", without(records(QUERY), 1, "f7"))),
    "jsonl with nan": case("'nan' in line 1", p=("p.jsonl", [{**r, "f3": float("nan")} for r in records(QUERY)])),
    "jsonl with huge integers": case(
        "is not a finite number", p=("p.jsonl", [{**r, "f3": 10**400} for r in records(QUERY)])),
    "empty jsonl": case("no data row", p=("p.jsonl", "\n\n")),
    # Paths that are no files.
    "no such file": case("There is no file", p=("nothing.npz", lambda path: None)),
    "missing file that looks like markup": case("There is no file [/b]x.csv", p=("[/b]x.csv", lambda path: None)),
    "pipe as pile": case("is a pipe", p=("p.npz", fifo)),
    "pipe as examples": case("is a pipe", c=fifo),
    "pipe as labels": case("is a pipe", **FEATURES, l=fifo),
    "device as pile": case("is a device", p=("/dev/zero", lambda path: None)),
    "link to a device": case("is a device", p=link("/dev/zero")),
    "circle of links": case("cannot be read", p=link("p.csv")),
    "empty folders": case("c is empty", "needs pictures", c=("c", folder), p=("p", folder)),
    "folder with a file ending": case("p.npz.d is empty", p=("p.npz.d", folder)),
    "a single picture": case("p.jpg is a single picture", p=("p.jpg", b"\xff\xd8")),
    "features and a txt": case("c.csv holds features", "p.txt holds texts", p=("p.txt", "hello\n")),
    "no ending": case("unknown ending", p=("p", b"x")),
    # Outputs that would do harm.
    "output is the pile": case("is one of the inputs", options="-o p.csv"),
    "output is the examples": case("is one of the inputs", options="-o c.csv"),
    "output is the labels": case("is one of the inputs", **FEATURES, l=("l.csv", LINES), options="-o l.csv"),
    "output is a file of another program": case(
        "thesis.csv exists", "--overwrite", more={"thesis.csv": "mine"}, options="-o thesis.csv"),
    "output is a link to a file of another program": case(
        "--overwrite", more={"mine.csv": "mine", "o.csv": link("mine.csv")}, options="-o o.csv"),
    "output is the labels, to be replaced": case(
        "is one of the inputs", **FEATURES, l=("labels.csv", LINES), options="--overwrite --default"),
    "output is a link to the pile": case("is one of the inputs", more={"o.csv": link("p.csv")}, options="-o o.csv"),
    "output is a hard link to the pile": case(
        "is one of the inputs", more={"o.csv": lambda path: os.link(path.parent / "p.csv", path)}, options="-o o.csv"),
    "output is the pile by another way": case("is one of the inputs", more={"sub": folder}, options="-o sub/../p.csv"),
    "output is a folder": case("is a folder", options="-o ."),
    "output is a pipe": case("is a pipe", more={"o.csv": fifo}, options="-o o.csv"),
    "output is a device": case("is a device", more={"o.csv": device}, options="-o o.csv"),
    "output is a link to a device": case("is a device", more={"d": device, "o.csv": link("d")}, options="-o o.csv"),
    "output below a file": case("Cannot write", more={"x": ""}, options="-o x/o.csv"),
    "output in a file of no table": case("tables of labels are written as", options="-o o.pdf"),
    "output of another kind": case("tables of labels are written as", options="-o o.npz"),
    "output in a compressed file": case("tables of labels are written as", options="-o o.csv.gz"),
    "output named by a hyphen": case("name one", options="-o -"),
    "output in an input folder": case(
        "lies in the input folder", p=("p", folder), options="-o p/o.csv --encoder timm:x"),
    "output in a folder of parquet files": case(
        "lies in the input folder", p=parquet_folder("a.parquet"), options="-o q.parquet/o.csv"),
    # Options.
    "device meta": case("Device 'meta'", options="--device meta"),
    "device that looks like markup": case("Device '[/red]'", options="--device [/red]"),
    "method that looks like markup": case("There is no method '[/b]'", options="--method [/b]"),
}
# fmt: on


QUICK = ["--method", "simpleshot"]  # a quarter of the time
UNUSUAL = "1e8|1e12|float|precision|integers|plain"  # what these files hold is given to the default method,
UNREHEARSED = {"likelihood": "auto"}  # which would rehearse in a third of the time


def snapshot(folder):
    """Every entry of the folder with its kind and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = os.lstat(path).st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (kind, content)
    return found


def labels_in(path):
    """The labels of the items, in the column that was added to the table of the user."""
    table = read_table(path)
    named = "new_label" if "new_label" in table.names else "label"
    return table.values([table.names.index(named)])[0]


def run(arguments, folder, monkeypatch, capsys):
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
    monkeypatch.setattr("manyway.labelling.label._FOR_ONE_SUPPORT", UNREHEARSED)
    arguments = [*([] if re.search(UNUSUAL, name) else QUICK), *make(tmp_path, LABELLED[name])]
    before = snapshot(tmp_path)
    code, out, err = run(arguments, tmp_path, monkeypatch, capsys)
    assert code == 0, err
    output = next((path for option, path in itertools.pairwise(arguments) if option == "-o"), "out.csv")
    assert labels_in(tmp_path / output) == TRUTH.tolist()
    for word in LABELLED[name].words:
        assert word in out + err
    after = snapshot(tmp_path)
    assert {**after, output: None} == {**before, output: None}


IDS = ["00123", "9007199254740993", "12345678901234567890", "1e5", "TRUE", "0x1F", "1_000", "2024-01-05", "1.50", "-"]
ODD = {"id": IDS + [f"0{i}" for i in range(10)], "Größe in m²": IDS * 2, " a b": ["+1", "1,0"] * 10}


@pytest.mark.parametrize("given", ["p.csv", "p.tsv", "p.xlsx", "p.jsonl", "p.parquet"])
def test_ids_and_columns_come_back_exactly(given, tmp_path, monkeypatch, capsys, quick_evidence):
    made = {
        ".csv": pile(first=ODD), ".tsv": pile(first=ODD, sep="\t"), ".xlsx": {"a": sheet(QUERY, **ODD)},
        ".jsonl": records(QUERY, **ODD), ".parquet": columns(QUERY, **ODD),
    }  # fmt: skip
    make(tmp_path, case(p=(given, made[given[1:]])))
    for output in ("out.csv", "out.xlsx"):
        assert run(["c.csv", given, "-o", output], tmp_path, monkeypatch, capsys)[0] == 0
        table = read_table(tmp_path / output)
        found = dict(zip(table.names, table.values(range(len(table.names))), strict=True))
        assert found["id"] == ODD["id"]
        assert found["Größe in m²"] == ODD["Größe in m²"]
        assert found["a b" if "a b" in found else " a b"] == ODD[" a b"]


def test_ids_of_excel_keep_the_zeros_of_their_format_and_are_no_fractions(tmp_path, monkeypatch, capsys):
    import openpyxl

    make(tmp_path, case(p=("p.xlsx", {"a": sheet(QUERY, id=range(123, 143), nr=[4026.0] * 20, ok=[True] * 20)})))
    book = openpyxl.load_workbook(tmp_path / "p.xlsx")
    for row in range(2, 22):
        book["a"].cell(row, 1).number_format = "00000"
    book.save(tmp_path / "p.xlsx")
    assert run(["c.csv", "p.xlsx"], tmp_path, monkeypatch, capsys)[0] == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"{n:05d}" for n in range(123, 143)]
    assert {(row["nr"], row["ok"]) for row in rows} == {("4026", "TRUE")}


# Cells that are missing: their rows are labelled by the columns that they have.
WITH_GAPS = {
    name: REFUSED.pop(name)
    for name in (
        "empty cell",
        "empty cell after blank lines",
        "empty cell with semicolons",
        "blank cell",
        "nan in a cell",
        "row of delimiters between others",
        "empty cell in excel",
        "parquet with nulls",
        "parquet with nan",
        "jsonl with a value missing",
        "jsonl with nan",
    )
}


@pytest.mark.parametrize("name", WITH_GAPS)
def test_rows_that_lack_a_number_are_labelled_and_said(name, tmp_path, monkeypatch, capsys, quick_evidence):
    arguments = make(tmp_path, WITH_GAPS[name])
    code, _, err = run(arguments, tmp_path, monkeypatch, capsys)
    assert code == 0, err
    assert re.search("lacks? numbers", err)


@pytest.mark.parametrize("name", WITH_GAPS)
def test_other_methods_refuse_rows_that_lack_a_number_in_one_sentence(name, tmp_path, monkeypatch, capsys):
    arguments = [*make(tmp_path, WITH_GAPS[name]), *QUICK]
    before = snapshot(tmp_path)
    code, _, err = run(arguments, tmp_path, monkeypatch, capsys)
    assert code == 2, err
    assert len([line for line in err.splitlines() if not line.startswith("note: ")]) == 1, err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", REFUSED)
def test_one_sentence_and_no_harm(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("manyway.files.files._SMALL", SMALL)
    arguments = make(tmp_path, REFUSED[name])
    before = snapshot(tmp_path)
    code, _, err = run(arguments, tmp_path, monkeypatch, capsys)
    assert code == 2, err
    assert "unexpected" not in err
    for word in REFUSED[name].words:
        assert any(part in err for part in word.split("|")), err
    assert len([line for line in err.splitlines() if not line.startswith("note: ")]) == 1, err
    assert snapshot(tmp_path) == before
