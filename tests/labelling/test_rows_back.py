"""The table of a user comes back with the labels in it: rows, columns, types and formats as they were."""

from __future__ import annotations

import csv
import datetime
import json

import numpy as np
import openpyxl
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from manyway.files import Known, Output, TableOrigin, read_items
from manyway.labelling.rows_back import write_back

HEADER = ["label", "probability", "note"]
ANSWERS = {0: ["ant", 0.9123, ""], 1: ["", None, "skipped: it has no text"], 2: ["bee", 0.5, "given"]}


def origin(path, **more) -> TableOrigin:
    return TableOrigin(path, (0, 1, 2), **more)


def test_a_text_keeps_its_delimiter_line_breaks_mark_and_every_cell(tmp_path):
    source = tmp_path / "in.csv"
    source.write_bytes('\ufeffNr.;Größe;Datum\n007;1,50;05.01.2024\n008;"a;b";\n009;-;x\n'.encode())
    assert write_back(tmp_path / "out.csv", origin(source), HEADER, ANSWERS) == []
    lines = (tmp_path / "out.csv").read_bytes().decode().split("\n")
    assert lines == [
        "\ufeffNr.;Größe;Datum;label;probability;note",
        "007;1,50;05.01.2024;ant;0,9123;",
        '008;"a;b";;;;skipped: it has no text',
        "009;-;x;bee;0,5000;given",
        "",
    ]


@pytest.mark.parametrize(("text", "marked"), [("name", False), ("Käfer", True)])
def test_a_mark_is_added_only_where_excel_would_show_other_letters(text, marked, tmp_path):
    (tmp_path / "in.csv").write_text(f"text,n\n{text},1\nb,2\nc,3\n", encoding="utf-8")
    write_back(tmp_path / "out.csv", origin(tmp_path / "in.csv"), HEADER, ANSWERS)
    assert (tmp_path / "out.csv").read_bytes().startswith(b"\xef\xbb\xbf") is marked


def test_a_formula_of_a_text_table_is_defused_and_read_as_it_was(tmp_path):
    (tmp_path / "in.csv").write_text("id,x\na,=1+1\nb,＝2\nc,3\n", encoding="utf-8")
    notes = write_back(tmp_path / "out.csv", origin(tmp_path / "in.csv"), HEADER, ANSWERS)
    assert notes == ["cells of out.csv that begin like a formula (2) were written with an apostrophe in front"]
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["x"] for row in csv.DictReader(file)] == ["'=1+1", "'＝2", "3"]


def workbook(path) -> None:
    """Two sheets; the second has a title, dates, ids with zeros in front, a width and a bold heading."""
    book = openpyxl.Workbook()
    book.active.title = "notes"
    book.active["A1"] = "read me"
    sheet = book.create_sheet("data")
    for row in (["Title"], ["Nr.", "when", "x"], [7, datetime.datetime(2024, 1, 5), 1.5], [8, None, 2], [9, None, 3]):
        sheet.append(row)
    for row in (3, 4, 5):
        sheet.cell(row, 1).number_format = "000"
    sheet.cell(2, 1).font = openpyxl.styles.Font(bold=True)
    sheet.column_dimensions["B"].width = 33
    book.save(path)


def test_an_excel_file_keeps_sheets_formats_dates_and_zeros(tmp_path):
    workbook(tmp_path / "in.xlsx")
    assert write_back(tmp_path / "out.xlsx", origin(tmp_path / "in.xlsx", sheet="data"), HEADER, ANSWERS) == []
    book = openpyxl.load_workbook(tmp_path / "out.xlsx")
    assert book.sheetnames == ["notes", "data"]
    sheet = book["data"]
    assert [cell.value for cell in sheet[2]] == ["Nr.", "when", "x", *HEADER]
    assert [cell.value for cell in sheet[3]] == [7, datetime.datetime(2024, 1, 5), 1.5, "ant", 0.9123, None]
    assert [cell.value for cell in sheet[4]] == [8, None, 2, None, None, "skipped: it has no text"]
    assert (sheet["A3"].number_format, sheet["A2"].font.bold, sheet.column_dimensions["B"].width) == ("000", True, 33)
    assert sheet["A1"].value == "Title"


def test_formulas_of_an_excel_file_come_back_as_values_which_is_said(tmp_path):
    workbook(tmp_path / "in.xlsx")
    book = openpyxl.load_workbook(tmp_path / "in.xlsx")
    book["data"]["C3"] = "=1+1"
    book.save(tmp_path / "in.xlsx")
    notes = write_back(tmp_path / "out.xlsx", origin(tmp_path / "in.xlsx", sheet="data"), HEADER, ANSWERS)
    assert notes == ["formulas of in.xlsx come back as their values"]


def test_an_answer_is_no_formula_of_excel(tmp_path):
    workbook(tmp_path / "in.xlsx")
    write_back(tmp_path / "out.xlsx", origin(tmp_path / "in.xlsx", sheet="data"), ["label"], {0: ["=1+1"]})
    cell = openpyxl.load_workbook(tmp_path / "out.xlsx")["data"]["D3"]
    assert (cell.value, cell.data_type) == ("=1+1", "s")


def test_parquet_keeps_types_and_the_index_of_pandas(tmp_path):
    index = pd.Index(["a", "b", "c"], name="id")
    days = pd.to_datetime(["2024-01-05", None, "2024-01-07"])
    frame = pd.DataFrame({"day": days, "n": pd.array([1, None, 3], "Int32")}, index=index)
    frame.to_parquet(tmp_path / "in.parquet")
    write_back(tmp_path / "out.parquet", origin(tmp_path / "in.parquet"), HEADER, ANSWERS)
    before, after = (pyarrow.parquet.read_schema(tmp_path / f"{name}.parquet") for name in ("in", "out"))
    assert after.names == ["day", "n", "id", *HEADER]
    assert [after.field(name).type for name in before.names] == before.types
    assert pd.read_parquet(tmp_path / "out.parquet").loc["a", "label"] == "ant"


def test_json_lines_keep_nested_values_and_their_own_fields(tmp_path):
    records = [{"id": "007", "tags": ["a", {"b": 1}]}, {"id": 2}, {"x": 0.1, "id": None}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_back(tmp_path / "out.jsonl", origin(tmp_path / "in.jsonl"), HEADER, ANSWERS)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [{**record, **dict(zip(HEADER, ANSWERS[row], strict=True))} for row, record in enumerate(records)]


def test_a_text_becomes_another_format_with_numbers_where_they_are_plain(tmp_path):
    (tmp_path / "in.csv").write_text("zip,n,x\n01234,1,0.5\n99999,,2\n5,3,1e-3\n")
    write_back(tmp_path / "out.parquet", origin(tmp_path / "in.csv"), HEADER, ANSWERS)
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table["zip"].to_pylist() == ["01234", "99999", "5"]
    assert table["n"].to_pylist() == [1, None, 3]


def test_an_embedding_stays_away_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("manyway.files.origin.EMBEDDING", 3)
    pd.DataFrame(np.eye(3), columns=["f0", "f1", "f2"]).assign(id=["a", "b", "c"]).to_csv(
        tmp_path / "in.csv", index=False
    )
    read = read_items(tmp_path / "in.csv")
    notes = write_back(tmp_path / "out.csv", read.origin, HEADER, ANSWERS)
    assert notes == ["3 columns of features of in.csv did not come back; the rows are in the same order"]
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "id,label,probability,note"


def test_a_saved_origin_is_used_only_while_the_table_is_the_same(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id\na\nb\nc\n")
    made = origin(path, known={2: Known("bee", "given")})
    saved = json.loads(json.dumps(made.saved()))
    assert TableOrigin.load(saved) == made
    path.write_text("id\nb\na\nc\n")
    assert TableOrigin.load(saved) is None


def test_a_table_that_changes_after_it_was_read_is_said_to(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("item,a\nx,1\ny,2\nz,3\n")
    made = read_items(path).origin
    assert made.is_unchanged
    assert TableOrigin.load(made.saved()).is_unchanged
    path.write_text("item,a\nx,1\nz,3\ny,2\n")
    assert not made.is_unchanged
    assert TableOrigin.load(made.saved()) is None
    assert origin(path).is_unchanged  # nobody has read it


def test_a_file_that_appeared_or_changed_meanwhile_is_kept(tmp_path):
    (tmp_path / "in.csv").write_text("id\na\nb\nc\n")
    source = origin(tmp_path / "in.csv")
    appeared = Output(tmp_path / "out.csv")
    (tmp_path / "out.csv").write_text("precious")
    write_back(appeared, source, HEADER, ANSWERS)
    assert ((tmp_path / "out.csv").read_text(), appeared.path.name) == ("precious", "out-2.csv")
    changed = Output(tmp_path / "out.csv")
    (tmp_path / "out.csv").write_text("more precious")
    write_back(changed, source, HEADER, ANSWERS)
    assert ((tmp_path / "out.csv").read_text(), changed.path.name) == ("more precious", "out-3.csv")
    unchanged = Output(tmp_path / "out.csv")
    write_back(unchanged, source, HEADER, ANSWERS)
    assert (unchanged.is_elsewhere, (tmp_path / "out.csv").read_text()[:8]) == (False, "id,label")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out-2.csv", "out-3.csv", "out.csv"]
