"""Text files as people have them: packed, in other encodings, with other delimiters."""

from __future__ import annotations

import csv

import pytest
from hostile.files import write

from manyway import InputError
from manyway.files import text
from manyway.files.opening import read_table
from manyway.files.text import is_number, read_lines, read_records, read_text, sniff

LINES = "naïve “café”,1\nplain,2\n"


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", "UTF-16"),
        ("utf-32", "UTF-32"),
        ("cp1252", "Windows-1252"),
    ],
)
def test_the_encoding_is_found_and_named(encoding, note, tmp_path):
    (tmp_path / "a.csv").write_bytes(LINES.encode(encoding))
    found = read_text(tmp_path / "a.csv")
    assert found.notes == (() if note is None else (f"a.csv is read as {note} text",))
    assert [cells for _, cells in read_records(found)] == [["naïve “café”", "1"], ["plain", "2"]]
    assert next(read_lines(tmp_path / "a.csv")) == (1, "naïve “café”,1")


def test_a_byte_that_is_not_utf8_may_come_late(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_PIECE", 7)  # pieces that end inside a letter
    (tmp_path / "a.txt").write_bytes(("é" * 5000).encode())
    assert read_text(tmp_path / "a.txt").notes == ()
    (tmp_path / "a.txt").write_bytes(b"a" * 5000 + b"\xe9")
    assert read_text(tmp_path / "a.txt").notes == ("a.txt is read as Windows-1252 text",)


@pytest.mark.parametrize(
    "data", [b"abc\x81", b"\xe9\x00abcdefgh", b"\xe9\x01", b"a\0\0\0\0\0\0\0\0b", "abc".encode("utf-16")[:-1]]
)
def test_what_is_no_text_is_one_sentence(data, tmp_path):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(InputError, match="save it as UTF-8"):
        read_text(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("table", "delimiter", "first"),
    [
        ("a,b\n1,2\n", ",", 0),
        ("a;b\n1,5;2,5\n", ";", 0),
        ("1,5;2,5\n1,5;3,5\n", ";", 0),
        ("sep=|\na,b|c\n", "|", 1),
        ("a b\n1 2\n", " ", 0),
        ("hello you\ngood bye\n", ",", 0),
        ("a:b\n1:2\n", ":", 0),
        ("text\none; two\n", ",", 0),
    ],
)
def test_the_delimiter_is_found(table, delimiter, first, tmp_path):
    (tmp_path / "a.csv").write_text(table)
    found = sniff(read_text(tmp_path / "a.csv"))
    assert (found.delimiter, found.first) == (delimiter, first)


def test_numbers_are_what_a_person_would_write():
    cells = ["1", " -1.5 ", "+2", "1e3", ".5", "nan", "1_5", "1,5", "0x1", "", "1 5", "--1"]
    assert [cell for cell in cells if is_number(cell)] == ["1", " -1.5 ", "+2", "1e3", ".5", "nan"]
    assert [cell for cell in cells if is_number(cell, ",")] == ["1", "+2", "1e3", "nan", "1,5"]


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "cp1253"])
def test_other_scripts_are_not_read_as_windows_1252(tmp_path, encoding):
    words = "принтер сломан" if encoding != "cp1253" else "εκτυπωτής χαλασμένος"
    (tmp_path / "a.csv").write_bytes(f"label,text\na,{words}\n".encode(encoding))
    with pytest.raises(InputError, match=r"is not readable as UTF-8 text .*; save it as UTF-8"):
        read_text(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes("label,text\nÄÖÜ,œuvre été à Málaga, þjóð\n".encode("cp1252"))
    assert read_text(tmp_path / "b.csv").notes == ("b.csv is read as Windows-1252 text",)


@pytest.mark.parametrize("first", ["", "sep=;\n"])
def test_long_cells_are_read_also_where_the_delimiter_is_declared(first, tmp_path):
    before = csv.field_size_limit(131_072)
    try:
        table = read_table(write(tmp_path / "a.csv", f"{first}id;text\na;{'x' * 200_000}\n"))
        assert [len(cell) for cell in table.values([1])[0]] == [200_000]
    finally:
        csv.field_size_limit(max(before, csv.field_size_limit()))
