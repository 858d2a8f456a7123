"""CellTypist's matrix of probabilities. The example was written by celltypist 1.7 for cells of scanpy's own data."""

from __future__ import annotations

from manyway.files.formats.celltypist import CellTypist
from manyway.files.score_files import read_scores


def test_each_type_has_a_probability_of_its_own():
    scores = read_scores(CellTypist().example_path)
    assert len(scores) == 12
    assert scores.names[0] == "AAAGCCTGGCTAAC-1"
    assert scores.classes[:3] == ("CD14+ Monocyte", "CD19+ B", "CD34+")
    assert (scores.kind, scores.independent) == ("sigmoid", True)


def test_cells_are_labelled(label):
    said = label("--scores", CellTypist().example_path, "-o", "labels.csv")
    assert "in 12 items" in said
