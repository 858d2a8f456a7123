"""Kraken 2, read by read: the k-mers of a read are scores, and the report beside has the taxonomy.

The example was written by kraken2 2.1.2 for 38 simulated reads of three species.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyway import InputError
from manyway.files import scores as scores_module
from manyway.files.formats.base import Answers
from manyway.files.formats.kraken_output import KrakenOutput
from manyway.files.formats.kraken_report import KrakenReport, read_report
from manyway.files.formats.registry import opened
from manyway.files.score_files import read_scores

EXAMPLE = KrakenOutput().example_path
TEXT = EXAMPLE.read_text(encoding="utf-8")
SPECIES = ("Escherichia coli", "Salmonella enterica", "Streptococcus pneumoniae")


@pytest.fixture
def both(tmp_path):
    """An output and its report in a folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder / "lane1.kraken")
    shutil.copy(KrakenReport().example_path, folder / "lane1.kreport")
    return folder


def test_kmers_of_a_read_are_scores_of_the_species():
    scores = read_scores(EXAMPLE)
    assert scores.classes == SPECIES
    rows = dict(zip(scores.names, scores.values, strict=True))
    # C read01/1 83333 100 543:11 83333:14 0:41, of 25 known k-mers; 543 is the family of two species.
    expected = np.float32([(14 + 5.5) / 26, 5.5 / 26, np.nan])
    assert np.allclose(rows["read01/1"], expected, equal_nan=True)
    assert scores.skipped == tuple((f"read{n}/1", "Kraken left it unclassified") for n in range(35, 39))
    assert scores.levels["genus"]["Escherichia coli"] == "Escherichia"
    assert "names and ranks are those of kraken.kreport" in scores.notes


def test_what_kraken_answered_is_carried_by_species():
    scores = read_scores(EXAMPLE)
    answered = dict(zip(scores.names, scores.carried["prediction"], strict=True))
    assert answered["read01/1"] == "Escherichia coli"  # Kraken said its strain
    assert answered["read06/1"] == "Enterobacteriaceae"


def test_reads_get_the_finest_rank_that_is_sure(label):
    label("--scores", EXAMPLE, "--at-least", "0.9", "-o", "labels.csv")
    with Path("labels.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["item"]: row for row in csv.DictReader(file)}
    assert (rows["read03/1"]["answer"], rows["read03/1"]["level"]) == ("Escherichia coli", "class")
    assert rows["read06/1"]["level"] not in ("class", "genus")  # its only k-mer is of the family
    assert rows["read36/1"]["note"] == "skipped: Kraken left it unclassified"


def test_the_taxon_of_each_read_comes_back_and_every_other_byte_stays(label):
    label("--scores", EXAMPLE, "-o", "answers.kraken", "--at-least", "0.9")
    before = [line.split("\t") for line in TEXT.splitlines()]
    after = [line.split("\t") for line in Path("answers.kraken").read_text(encoding="utf-8").splitlines()]
    assert [[cells[1], *cells[3:]] for cells in after] == [[cells[1], *cells[3:]] for cells in before]
    taxids = {cells[1]: cells[2] for cells in after}
    assert taxids["read03/1"] == "562"  # the species of the strain
    assert taxids["read36/1"] == "0"
    known = {taxon.taxid for taxon in read_report(KrakenReport().example_path).taxa}
    assert set(taxids.values()) <= {*known, "0"}


def test_names_beside_taxids_come_back_so(label, tmp_path):
    """As with --use-names, and pairs of reads."""
    text = (
        "C\ta\tEscherichia coli (taxid 562)\t100|100\t562:60 A:6 |:| 0:30 562:36\n"
        "C\tb\x0b\u2028b\tSalmonella enterica (taxid 28901)\t100|100\t28901:50 0:16 |:| 28901:66\n"
        "U\tc\tunclassified (taxid 0)\t100|100\t0:66 |:| 0:66\n"
    )
    Path("pair.kraken").write_text(text, encoding="utf-8")
    scores = read_scores("pair.kraken")
    assert scores.classes == ("Escherichia coli", "Salmonella enterica")
    assert scores.values[0, 0] == pytest.approx(96 / 97)
    assert "no report of Kraken beside pair.kraken (pair.kreport)" in scores.notes[0]
    label("--scores", "pair.kraken", "-o", "back.kraken")
    assert Path("back.kraken").read_text(encoding="utf-8") == text


def test_a_report_of_the_answers_has_the_taxids_of_the_run(label):
    label("--scores", EXAMPLE, "--format", "kraken-report", "-o", "answers.kreport")
    tree = read_report(Path("answers.kreport"))
    assert tree.unclassified == 4
    assert {taxon.taxid: taxon.own for taxon in tree.taxa if taxon.own} == {"562": 16, "28901": 6, "1313": 12}


def test_taxa_that_are_not_in_the_report_are_classes(both):
    path = both / "lane1.kraken"
    path.write_text(TEXT.replace("83333:66", "83333:60 28037:6"), encoding="utf-8")
    assert read_scores(path).classes == (*SPECIES, "taxid 28037")


def test_in_a_folder_a_report_belongs_to_its_output(both):
    scores = read_scores(both)
    assert len(scores) == 34
    assert set(scores.carried["source"]) == {"lane1.kraken"}


def test_of_two_reports_none_belongs_to_the_other(tmp_path):
    for name in ("a.report", "a.kreport.txt"):
        shutil.copy(KrakenReport().example_path, tmp_path / name)
    assert set(read_scores(tmp_path).carried["source"]) == {"a.report", "a.kreport.txt"}


def test_more_reads_than_fit_are_refused_early(monkeypatch):
    monkeypatch.setattr(scores_module, "_MOST_SCORES", 30)
    with pytest.raises(InputError, match=r"11 items and 3 classes are too many .* sample of the reads"):
        read_scores(EXAMPLE)


def test_answers_of_a_review_come_without_labels(tmp_path):
    """A review gives the most probable classes; a class that it has added has no taxid."""
    scores = KrakenOutput().read(opened(EXAMPLE))
    ranked = [[] if row == 0 else [(SPECIES[1], 1.0)] for row in range(len(scores))]
    answers = Answers(scores, [], SPECIES, lambda count: ranked, origin=scores.origins[0])
    KrakenOutput().write(tmp_path / "out.kraken", answers)
    lines = (tmp_path / "out.kraken").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("U\tread01/1\t0\t")
    assert lines[1].startswith("C\tread02/1\t28901\t")
    ranked[1] = [("a new species", 1.0)]
    with pytest.raises(InputError, match="no taxid for the class 'a new species'"):
        KrakenOutput().write(tmp_path / "out.kraken", answers)


BAD = {
    "a read twice": ("read02/1", "read01/1", "the read 'read01/1' twice .again in line 2"),
    "another letter": ("C\tread02/1", "X\tread02/1", "in line 2, which is no line of Kraken 2"),
    "no length": ("read02/1\t83333\t100", "read02/1\t83333\t", "in line 2, which is no line of Kraken 2"),
    "k-mers that are none": ("561:1 0:32", "561:1 0;32", "the k-mers '0;32' in line 2"),
    "a taxid that is none": ("read02/1\t83333", "read02/1\tcoli", "the taxid 'coli' in line 2"),
}


@pytest.mark.parametrize(("old", "new", "said"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused(old, new, said, both):
    path = both / "lane1.kraken"
    path.write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_scores(path)


def test_a_damaged_report_beside_is_named(both):
    report = both / "lane1.kreport"
    report.write_text(report.read_text(encoding="utf-8") + "the end\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"lane1.kreport has 'the end' in line 20"):
        read_scores(both / "lane1.kraken")
