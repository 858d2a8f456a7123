"""pybioclip: lists of taxa per picture, with their ranks. The example has the columns that its own functions make."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from manyway import InputError
from manyway.files.formats.base import Answers
from manyway.files.formats.pybioclip import PyBioClip
from manyway.files.score_files import read_scores

EXAMPLE = PyBioClip().example_path


def rows(name: str | Path) -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_picture_lists_taxa_with_their_ranks():
    scores = read_scores(EXAMPLE)
    assert scores.names == ("cam/0001.jpg", "cam/0002.jpg", "cam/0003.jpg")
    assert scores.classes == ("Canis lupus", "Lynx lynx", "Vulpes lagopus", "Vulpes vulpes")
    assert scores.levels["genus"]["Vulpes lagopus"] == "Vulpes"
    assert scores.levels["taxonomic class"]["Lynx lynx"] == "Mammalia"
    assert scores.described["common_name"]["Vulpes vulpes"] == "Red Fox"
    assert (scores.kind, scores.independent) == ("probability", False)


def test_answers_come_with_a_genus_where_the_species_is_uncertain_and_back_into_the_file(label):
    label("--scores", EXAMPLE, "--at-least", "0.8", "-o", "labels.csv")
    found = rows("labels.csv")
    assert found[0]["label"] == "Vulpes vulpes"
    assert {row["level"] for row in found} <= {"class", "genus", "family", "order", "taxonomic class"}
    label("--scores", EXAMPLE, "--format", "input", "-o", "out.csv")
    assert [{**row, "score": ""} for row in rows("out.csv")] == [{**row, "score": ""} for row in rows(EXAMPLE)]
    assert [row["score"] for row in rows("out.csv")] != [row["score"] for row in rows(EXAMPLE)]


def test_a_class_that_a_person_gave_gets_a_row_where_there_is_none(tmp_path):
    scores = read_scores(EXAMPLE)
    (origin,) = scores.origins
    listed = [[row["species"] for row in rows(EXAMPLE) if row["file_name"] == name] for name in scores.names]
    (other,) = {"Lynx lynx", "Canis lupus"} - {*listed[0]} or {"Lynx lynx"}
    ranked = [[(other, 1.0)], [("a new one", 1.0)], [(listed[2][0], 0.9)]]
    given = Answers(scores, [], (), lambda count: ranked, origin=origin, by_people=frozenset({0, 1}))
    origin.format.write(tmp_path / "out.csv", given)
    found = rows(tmp_path / "out.csv")
    assert len(found) == len(rows(EXAMPLE)) + 2
    of_first, of_second = ([row for row in found if row["file_name"] == name] for name in scores.names[:2])
    like = next(row for row in rows(EXAMPLE) if row["species"] == other)
    same = ("species", "genus", "kingdom", "common_name")
    assert [of_first[-1][name] for name in same] == [like[name] for name in same]
    assert [row["score"] for row in of_first] == ["0.0000"] * len(listed[0]) + ["1.0000"]
    assert [of_second[-1][name] for name in (*same, "score")] == ["a new one", "", "", "", "1.0000"]
    # what a program finds keeps the length of its list
    found_alone = Answers(scores, [], (), lambda count: ranked, origin=origin)
    origin.format.write(tmp_path / "same.csv", found_alone)
    assert len(rows(tmp_path / "same.csv")) == len(rows(EXAMPLE))


@pytest.mark.parametrize("rank", ["genus", "family"])
def test_a_coarser_rank_is_the_class(rank, tmp_path):
    ranks = ["kingdom", "phylum", "class", "order", "family", "genus"]
    kept = [*ranks[: ranks.index(rank) + 1]]
    first = {row["genus"] if rank == "genus" else row["family"]: row for row in rows(EXAMPLE)}
    lines = [",".join(["file_name", *kept, "score"])]
    lines += [",".join(["a.jpg", *(row[name] for name in kept), "0.3"]) for row in first.values()]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    assert set(read_scores(tmp_path / "p.csv").classes) == set(first)


def test_a_list_of_classes_of_ones_own(tmp_path):
    (tmp_path / "p.csv").write_text("file_name,classification,score\na.jpg,duck,0.7\na.jpg,fish,0.3\nb.jpg,duck,0.6\n")
    scores = read_scores(tmp_path / "p.csv")
    assert (scores.classes, dict(scores.levels)) == (("duck", "fish"), {})


def test_an_empty_cell_is_refused(tmp_path):
    (tmp_path / "p.csv").write_text(EXAMPLE.read_text().replace("Canis lupus", "", 1))
    with pytest.raises(InputError, match=r"p.csv has no species in line 4; fill the cell"):
        read_scores(tmp_path / "p.csv")
