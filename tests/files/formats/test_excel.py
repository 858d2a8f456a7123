"""Which sheet of an Excel file is read."""

from __future__ import annotations

import pytest

from manyway.files.tables import Table
from manyway.files.opening import read_table

openpyxl = pytest.importorskip("openpyxl")
TICKETS = [
    ["nr.", "subject", "topic"],
    [1, "printer offline", "printer"],
    [2, "vpn is slow", "vpn"],
]


def book(path, **sheets) -> Table:
    """The table that is read of an Excel file with these sheets."""
    written = openpyxl.Workbook()
    written.remove(written.active)
    for name, rows in sheets.items():
        sheet = written.create_sheet(name)
        for row in rows:
            sheet.append(row)
    written.save(path)
    return read_table(path)


@pytest.mark.parametrize(
    "title", [[["Export of Monday"]], [["Export"], ["of Monday"]], [["Version", 3]]]
)
def test_a_sheet_with_a_title_alone_is_no_table(tmp_path, title):
    assert book(tmp_path / "a.xlsx", title=title, tickets=TICKETS).names == TICKETS[0]


@pytest.mark.parametrize(
    "rows", [[["width"], [1.5], [2.5]], [["label"], ["ant"]], [["text"], ["vpn is slow"]]]
)
def test_a_first_sheet_of_one_column_is_a_table(tmp_path, rows):
    assert book(tmp_path / "a.xlsx", one=rows, tickets=TICKETS).names == rows[0]
