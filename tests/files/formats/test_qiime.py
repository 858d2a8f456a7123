"""QIIME 2: one taxon per feature, whose ranks are a taxonomy; and the report that other programs of the field read."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from manyway import InputError
from manyway.files.formats.qiime import Qiime
from manyway.files.score_files import read_scores

EXAMPLE = Qiime().example_path


def rows(name: str | Path) -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_a_feature_lists_its_taxon():
    scores = read_scores(EXAMPLE)
    assert scores.names == ("f01a", "f02b", "f03c", "f04d")
    assert set(scores.classes) == {"Lactobacillus iners", "Lactobacillus", "Streptococcus", "Gammaproteobacteria"}
    assert scores.levels["genus"] == {
        "Lactobacillus iners": "Lactobacillus",
        "Lactobacillus": "Lactobacillus",
        "Streptococcus": "Streptococcus",
    }
    assert scores.levels["phylum"]["Gammaproteobacteria"] == "Proteobacteria"
    assert scores.levels["kingdom"]["Streptococcus"] == "Bacteria"
    assert scores.skipped == (("f05e", "it has no taxon"),)


def test_taxa_come_back_as_qiime_writes_them(label):
    label("--scores", EXAMPLE, "--format", "input", "-o", "taxonomy.tsv")
    before, after = rows(EXAMPLE), rows("taxonomy.tsv")
    assert list(after[0]) == ["Feature ID", "Taxon", "Confidence"]
    assert [row["Feature ID"] for row in after] == [row["Feature ID"] for row in before]
    assert {row["Taxon"] for row in after} <= {row["Taxon"] for row in before}
    assert after[-1] == before[-1]  # Unassigned
    assert all(0 <= float(row["Confidence"]) <= 1 for row in after)


def test_a_row_of_types_and_a_consensus_are_read(tmp_path):
    lines = EXAMPLE.read_text().replace("Confidence", "Consensus").splitlines()
    lines.insert(1, "#q2:types\tcategorical\tnumeric")
    (tmp_path / "t.tsv").write_text("\n".join(lines) + "\n")
    assert read_scores(tmp_path / "t.tsv").names == ("f01a", "f02b", "f03c", "f04d")


def test_taxa_of_one_name_stay_apart(tmp_path):
    text = "Feature ID\tTaxon\tConfidence\na\td__B; f__X; g__Incertae\t0.9\nb\td__B; f__Y; g__Incertae\t0.8\n"
    (tmp_path / "t.tsv").write_text(text)
    assert read_scores(tmp_path / "t.tsv").classes == ("Incertae", "d__B; f__Y; g__Incertae")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("f02b", "f01a", "the feature 'f01a' twice"),
        ("0.8101", "1.5", "the confidence 1.5 in line 3"),
        ("0.8101", "high", "is not all numbers"),
        ("f02b", "", "no feature in line 3"),
    ],
)
def test_what_makes_no_sense_is_refused(old, new, said, tmp_path):
    (tmp_path / "t.tsv").write_text(EXAMPLE.read_text().replace(old, new))
    with pytest.raises(InputError, match=said):
        read_scores(tmp_path / "t.tsv")


def test_a_report_counts_items_rank_by_rank(label):
    label("--scores", EXAMPLE, "--format", "kraken-report", "-o", "out.kreport")
    lines = [line.split("\t") for line in Path("out.kreport").read_text(encoding="utf-8").splitlines()]
    assert all(len(line) == 6 for line in lines)
    below = {line[5].strip(): int(line[1]) for line in lines}
    own = {line[5].strip(): int(line[2]) for line in lines}
    codes = {line[5].strip(): line[3] for line in lines}
    assert below["root"] == below["Bacteria"] == 4
    assert sum(own.values()) == 4
    assert codes["Bacteria"] == "D"
    assert codes["Firmicutes"] == "P"
    assert lines[2][5] == "  Bacteria"  # two blanks per rank
    per_cent = {line[5].strip(): float(line[0]) for line in lines}
    assert per_cent["root"] == 100
