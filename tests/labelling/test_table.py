"""The table of labels in every format: what the answer says, what is carried, and what was left out."""

from __future__ import annotations

import csv
import datetime
import json

import numpy as np
import pytest

from manyway import InputError
from manyway.files.items import Items
from manyway.files.opening import read_table
from manyway.labelling.table import AnswerColumns, LevelAnswer, Row, write_rows, write_table

ROWS = [
    Row("a.png", [("ant", 0.91234), ("bee", 0.08)], 0.25, 3, LevelAnswer("insects", 0.99, "class")),
    Row("b.png", [("", 0.5), ("ant", 0.4)], 0.1, None, LevelAnswer("", 0.5, ""), 1),
]
CARRIED = {"site": ["creek", None], "label": ["ant", ""], "given_label": [1, 2], "height": [48.137154, 1.5]}
HEADER = ["item", "label", "probability", "label_2", "probability_2"]


def items(carried, *skipped):
    """Two items with further columns, and those that were left out."""
    return Items(np.zeros((2, 1)), None, None, carried=carried, skipped=skipped)


def read(path):
    """The cells of a table as they are in the file."""
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return list(records[0]), [list(record.values()) for record in records]
    if path.suffix in (".csv", ".tsv"):
        with path.open(newline="") as file:
            header, *rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        return header, rows
    table = read_table(path)
    return list(table.names), [list(cells) for _, cells in table.rows()]


def test_columns_of_the_items_follow_the_answer_and_take_no_name_of_it(tmp_path):
    answers = [row._replace(answer=None) for row in ROWS]
    assert write_table(tmp_path / "o.jsonl", answers, items(CARRIED), AnswerColumns(2)) == []
    header, rows = read(tmp_path / "o.jsonl")
    assert header == [*HEADER, "site", "given_given_label", "given_label", "height"]
    assert rows[0] == ["a.png", "ant", 0.9123, "bee", 0.08, "creek", "ant", 1, 48.137154]
    write_table(tmp_path / "o.csv", answers, items(CARRIED), AnswerColumns(2))
    assert read(tmp_path / "o.csv")[1][0][2:] == ["0.9123", "bee", "0.0800", "creek", "ant", "1", "48.137154"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "xlsx"])
def test_items_that_were_left_out_come_last_with_the_reason(suffix, tmp_path):
    three = [Row(row.item, [*row.best, ("cat", 0.01)], row.unknown, row.group, row.answer, row.number) for row in ROWS]
    columns = AnswerColumns(3, open_set=True, at_levels=True)
    cut = ("c.png", "it is cut off")
    write_table(tmp_path / f"o.{suffix}", three, items({"site": ["creek", "hill"]}, cut), columns)
    header, rows = read(tmp_path / f"o.{suffix}")
    answer = ["answer", "answer_probability", "level"]
    assert header == [*HEADER, "label_3", "probability_3", "unknown", "group", *answer, "note", "site"]
    empty = None if suffix == "xlsx" else ""
    assert rows[1][7:] == [0.1, None, empty, 0.5, empty, empty, "hill"]
    left_out = ["c.png", "", None, "", None, "", None, None, None, "", None, "", "skipped: it is cut off", None]
    assert rows[2] == [cell or empty if cell == "" else cell for cell in left_out]
    known = {"site": ["creek", "hill", "lake"]}  # what is known of them comes back too
    write_table(tmp_path / f"more.{suffix}", three, items(known, cut), columns)
    assert read(tmp_path / f"more.{suffix}")[1][2][-2:] == ["skipped: it is cut off", "lake"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "xlsx"])
def test_no_cell_is_computed_by_a_spreadsheet(suffix, tmp_path):
    cells = ["=1+1", "+49 170", "-x", "@sum", " =1", "-1.5", "-1,5", "+2", "a=b", "-", "'=1"]
    notes = write_rows(tmp_path / f"o.{suffix}", ["item", "n"], [[cell, "x"] for cell in cells])
    _, rows = read(tmp_path / f"o.{suffix}")
    if suffix == "xlsx":
        import openpyxl

        kinds = {
            cell.data_type for row in openpyxl.load_workbook(tmp_path / "o.xlsx").active.iter_rows() for cell in row
        }
        assert (kinds, notes) == ({"s"}, [])
        assert [row[0] for row in rows] == cells
    else:
        assert [row[0] for row in rows[:5]] == ["'=1+1", "'+49 170", "'-x", "'@sum", "' =1"]
        assert [row[0] for row in rows[5:]] == cells[5:]
        assert notes == [f"cells of o.{suffix} that begin like a formula (5) were written with an apostrophe in front"]
        # What was written is read as it was.
        assert read_table(tmp_path / f"o.{suffix}").values([0])[0][:10] == cells[:10]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_cells_of_any_kind_can_be_carried(suffix, tmp_path):
    zone = datetime.timezone.utc
    cells = [1, "1", None, [1, 2], b"x", float("nan"), 2**70, datetime.date(2024, 5, 1), "b\udcff", "\x07", True]
    cells.append(datetime.datetime(2024, 5, 1, 12, tzinfo=zone))
    write_rows(tmp_path / f"o.{suffix}", ["item", "cell"], enumerate(cells))
    assert len(read(tmp_path / f"o.{suffix}")[1]) == len(cells)


def test_what_excel_cannot_hold_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="40,000 letters and Excel takes 32,767"):
        write_rows(tmp_path / "o.xlsx", ["item"], [["x" * 40_000]])
    monkeypatch.setattr("manyway.files.formats.excel._MOST_ROWS", 3)
    with pytest.raises(InputError, match="at most 3 rows"):
        write_rows(tmp_path / "o.xlsx", ["item"], [["x"]] * 3)
    assert not list(tmp_path.iterdir())
