"""Which item a row of scores is, in a table with one column per class."""

from __future__ import annotations

import pytest

from manyway.files import read_scores

ROWS = [(0.9, 0.1), (0.2, 0.8), (0.7, 0.3), (0.4, 0.6)]


def written(path, heading, cells):
    """A table of scores with one further column."""
    lines = [f"{cell},{a},{b}" for cell, (a, b) in zip(cells, ROWS, strict=True)]
    path.write_text("\n".join([f"{heading},cat,dog", *lines]) + "\n")
    return path


@pytest.mark.parametrize("heading", ["Nr", "plant"])
def test_a_column_that_numbers_the_rows_names_the_items(tmp_path, heading):
    scores = read_scores(written(tmp_path / "a.csv", heading, [1, 2, 3, 4]))
    assert (scores.names, scores.classes) == (("1", "2", "3", "4"), ("cat", "dog"))
    assert heading not in scores.carried
    assert any(f"column '{heading}' of a.csv names the items" in note for note in scores.notes)


def test_a_column_with_a_number_twice_names_nothing(tmp_path):
    scores = read_scores(written(tmp_path / "a.csv", "site", ["A", "A", "B", "B"]))
    assert (scores.names, list(scores.carried)) == (("0", "1", "2", "3"), ["site"])
