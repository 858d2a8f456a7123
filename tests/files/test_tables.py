"""One reader of tables: every format gives the same cells, and numbers as they are."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow
import pytest
from hostile.files import write

from manyway import InputError
from manyway.encoding.kinds import FEATURES, likely_kind
from manyway.files.items import read_items
from manyway.files.opening import read_table
from manyway.files.tables import Table
from manyway.sampling.embedded import load_glyphs

ROWS = [["ant", 1.5, 3], ["bee", -2.25, 4]]
NAMES = ["name", "width", "count"]
FORMATS = {
    "csv": "name,width,count\nant,1.5,3\n\nbee,-2.25,4\n",
    "tsv": "name\twidth\tcount\nant\t1.5\t3\n\nbee\t-2.25\t4\n",
    "jsonl": '{"name": "ant", "width": 1.5, "count": 3}\n\n{"name": "bee", "width": -2.25, "count": 4}\n',
    "parquet": {name: [row[at] for row in ROWS] for at, name in enumerate(NAMES)},
    "xlsx": {"sheet": [NAMES, ROWS[0], [], ROWS[1]]},
}
PLACES = {"csv": "line 4", "tsv": "line 4", "jsonl": "line 3", "parquet": "row 1", "xlsx": "row 4"}


def test_a_decimal_comma_far_below_the_first_rows_is_read(tmp_path):
    table = read_table(write(tmp_path / "a.csv", "width;count\n" + "1;2\n" * 3000 + "1,5;2\n"))
    assert table.features([0, 1])[-1].tolist() == [1.5, 2.0]
    assert table.notes == ["numbers in column 'width' of a.csv are read as people write them: '1,5' is 1.5"]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_columns(kind, tmp_path):
    table = read_table(write(tmp_path / f"a.{kind}", FORMATS[kind]))
    assert (list(table.names), table.is_empty, table.place(1)) == (NAMES, False, PLACES[kind])
    assert table.features([2, 1]).tolist() == [[3.0, 1.5], [4.0, -2.25]]
    names, nothing, counts = table.values([0, None, 2])
    assert (names, nothing, list(map(int, counts))) == (["ant", "bee"], None, [3, 4])
    assert [(place, cells[0]) for place, cells in table.rows()][1] == (PLACES[kind], "bee")
    assert table.sample(0) == ["ant", "bee"]
    with pytest.raises(InputError, match=r"Column 'name' .* not all numbers \(.* has 'ant'\)"):
        table.features([0])


def test_texts_of_a_csv_are_as_they_are_written(tmp_path):
    path = write(tmp_path / "a.csv", 'id,note\n007," a ""b"" "\n1.50,"x\ny"\n')
    assert read_table(path).values([1, 0]) == [[' a "b" ', "x\ny"], ["007", "1.50"]]


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        ([0.1, 0.2, 0.3], np.float32),
        ([5e6, 5e6 + 1, 5e6 + 2], np.float64),
        ([10**12, 10**12 + 5, 10**12 + 9], np.float64),
        ([0, 10**9, 5], np.float32),
        ([1e8, 1e8, 1e8], np.float32),  # constant: nothing to lose
        ([7.0, 7.001], np.float32),  # two numbers are near each other by chance
        ([0.0] * 50 + [1e8, 1e8 + 1], np.float32),
        ([1e8] * 50 + [1e8 + 1], np.float64),
    ],
)
@pytest.mark.parametrize("kind", ["list", "arrow", "lists"])
def test_numbers_keep_the_digits_that_matter(kind, cells, dtype):
    column = {"list": list, "arrow": lambda c: pyarrow.chunked_array([c]), "lists": lambda c: [[v] for v in c]}[kind](
        cells
    )
    features = Table("a", ["x"], [column]).features([0])
    assert features.dtype == dtype
    np.testing.assert_array_equal(features[:, 0], np.array(cells, dtype))


def test_embeddings_are_the_same_to_the_last_bit(tmp_path):
    features = load_glyphs().features[:300].numpy()
    columns = {f"f{i}": features[:, i] for i in range(features.shape[1])}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in features)]
    for name, content in (("a.csv", "\n".join(lines)), ("a.parquet", columns)):
        read = read_table(write(tmp_path / name, content)).features(range(features.shape[1]))
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, features)


@pytest.mark.parametrize("form", [lambda row: json.dumps(row.tolist()), lambda row: f" {row.astype(np.float64)}\n"])
def test_embeddings_may_be_lists_in_one_column_of_texts(form, tmp_path):
    features = load_glyphs().features[:30].double().numpy().round(4)
    lines = ["id,label,embedding", *(f'i{n},fox,"{form(row)}"' for n, row in enumerate(features))]
    path = write(tmp_path / "a.csv", "\n".join(lines))
    assert likely_kind(path) == FEATURES
    items = read_items(path)
    np.testing.assert_allclose(items.rows(0, 30).numpy(), features, rtol=1e-6)
    assert items.columns == tuple(f"embedding[{i}]" for i in range(features.shape[1]))
    assert items.names[:2] == ("i0", "i1")
    for cell in ("[1.5, 2.5]", "none"):
        last = write(tmp_path / "b.csv", "\n".join([*lines, f'i30,fox,"{cell}"']))
        with pytest.raises(InputError, match=rf"in line {1 + last.read_text().count(chr(10))}; every row needs 96"):
            read_items(last)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([1.0, None], "is empty in row 1"),
        ([1.0, " "], "is empty in row 1"),
        ([1.0, True], "row 1 has 'True'"),
        ([1.0, "1_5"], "row 1 has '1_5'"),
        ([1.0, float("nan")], "'nan' in row 1, which is not a finite number"),
        ([1.0, 10**400], "'1000000.* in row 1, which is not a finite number"),
        ([1.0, "1e39"], "'1e39' in row 1"),
        ([1.0, "-inf"], "'-inf' in row 1, which is not a finite number"),
        ([[1.0], [1.0, 2.0]], "has 2 numbers in row 1; every row needs 1"),
        ([[1.0], 3], "has no list of numbers in row 1"),
        ([[1.0], ["x"]], "row 1 has 'x'"),
        (pyarrow.chunked_array([[1.0, None]]), "is empty in row 1"),
        (pyarrow.chunked_array([[1.0, np.inf]]), "'inf' in row 1"),
        (pyarrow.chunked_array([[[1.0], [np.nan]]]), "'nan' in row 1"),
    ],
)
def test_what_is_no_number_is_named(column, words):
    with pytest.raises(InputError, match=f"Column 'x' of the items .*{words}"):
        Table("the items", ["x"], [column]).features([0])


def test_decimals_and_booleans_of_arrow_are_numbers():
    columns = [pyarrow.chunked_array([[True, False]]), pyarrow.chunked_array([[Decimal("1.5"), Decimal("2.5")]])]
    assert Table("a", ["x", "y"], columns).features([0, 1]).tolist() == [[1.0, 1.5], [0.0, 2.5]]


def test_few_rows_can_be_asked_for(tmp_path):
    path = write(tmp_path / "a.parquet", {"x": list(range(1000))})
    assert len(read_table(path, rows=7).values([0])[0]) == 7
    path = write(tmp_path / "a.jsonl", [{"x": i} for i in range(1000)])
    assert len(read_table(path, rows=7).values([0])[0]) == 7


PEOPLE = {
    "apostrophes": (",", ["1'234.5", "12"], [1234.5, 12]),
    "blanks": ("\t", ["1 234", "1\u202f234\u00a0567"], [1234, 1234567]),
    "both separators": (";", ["1.234,56", "7,5"], [1234.56, 7.5]),
    "euros": (",", ["€5", "€ 7.25"], [5, 7.25]),
    "per cent": ("\t", ["5 %", "7.5%"], [5, 7.5]),
    "a true minus": (",", ["−5", "1.5"], [-5, 1.5]),
    "thousands beside tabs": ("\t", ["1,234", "567"], [1234, 567]),
    "three digits everywhere beside tabs": ("\t", ["1,234", "5,678"], [1234, 5678]),
    "three digits everywhere beside semicolons": (";", ["1,234", "5,678"], [1.234, 5.678]),
    "no group begins with 0": ("\t", ["1,234", "0,567"], [1.234, 0.567]),
}


@pytest.mark.parametrize(("delimiter", "cells", "numbers"), PEOPLE.values(), ids=PEOPLE)
def test_numbers_as_people_write_them_are_read_and_a_note_says_how(tmp_path, delimiter, cells, numbers):
    lines = (delimiter.join(row) for row in (("a", "b"), *((cell, "3") for cell in cells)))
    table = read_table(write(tmp_path / "a.txt", "\n".join(lines) + "\n"))
    assert table.features([0, 1])[:, 0].tolist() == pytest.approx(numbers)
    assert any("as people write them" in note or "decimal comma" in note for note in table.notes)


def test_one_note_names_all_columns_of_numbers_as_people_write_them(tmp_path):
    table = read_table(write(tmp_path / "a.csv", "a;b;c\n5 %;€7;1\n6 %;€8;2\n"))
    assert table.features([0, 1, 2]).tolist() == [[5, 7, 1], [6, 8, 2]]
    assert table.notes == ["numbers in columns 'a', 'b' of a.csv are read as people write them: '5 %' is 5"]


@pytest.mark.parametrize("cells", [["5 %", "€5"], ["1,234.5", "1.234,5"], ["1'23", "4"]])
def test_numbers_of_different_forms_are_refused(tmp_path, cells):
    table = read_table(write(tmp_path / "a.tsv", "a\tb\n" + "".join(f"{cell}\t3\n" for cell in cells)))
    with pytest.raises(InputError, match="not all numbers"):
        table.features([0, 1])
