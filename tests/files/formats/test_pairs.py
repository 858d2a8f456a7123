"""Tables with a class and its score: which columns are meant."""

from __future__ import annotations

import pytest

from manyway import InputError
from manyway.files import read_scores
from manyway.files.options import Options


def test_scores_of_all_classes_beside_a_class_with_a_score_are_not_overlooked(tmp_path):
    table = tmp_path / "a.csv"
    rows = ["1.jpg,0.9,0.1,dog,0.9", "2.jpg,0.2,0.8,cat,0.8", "3.jpg,0.7,0.3,cat,0.7"]
    table.write_text("\n".join(["item,cat,dog,label,confidence", *rows]) + "\n")
    with pytest.raises(InputError, match=r"named like classes \('cat', 'dog'\), and 'confidence' beside one class"):
        read_scores(table)
    by_class = read_scores(table, Options(ignore_columns=("confidence",)))
    assert (by_class.classes, by_class.labels) == (("cat", "dog"), ("dog", "cat", "cat"))
    by_row = read_scores(table, Options(ignore_columns=("cat", "dog")))
    assert by_row.values.shape == (3, 2)
    assert by_row.labels is None


def test_a_table_of_scores_with_some_labels_is_told_what_to_leave_out(tmp_path):
    (tmp_path / "a.csv").write_text("item,cat,dog,label,confidence\n1.jpg,0.9,0.1,cat,0.9\n2.jpg,0.2,0.8,,0.8\n")
    with pytest.raises(InputError, match="leave 'confidence' or the others out with `ignore_columns`"):
        read_scores(tmp_path / "a.csv")
