"""Reports of Kraken: a read lists the species of its taxon, and the numbers of reads come back rank by rank.

The example was written by kraken2 2.1.2 for 38 simulated reads, with the codes R, R1 and D that it writes on x86.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from manyway import InputError
from manyway.files.formats import kraken_report
from manyway.files.formats.base import Answers, Label
from manyway.files.formats.kraken_report import KrakenReport
from manyway.files.formats.registry import opened
from manyway.files.score_files import read_scores

EXAMPLE = KrakenReport().example_path
TEXT = EXAMPLE.read_text(encoding="utf-8")


def report(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.kreport"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_read_lists_the_species_of_its_taxon():
    scores = read_scores(EXAMPLE)
    assert scores.classes == ("Escherichia coli", "Salmonella enterica", "Streptococcus pneumoniae")
    taxa = Counter(name.partition("#")[0] for name in scores.names)
    assert taxa == {
        "Enterobacteriaceae": 1,
        "Escherichia": 2,
        "Escherichia coli K-12": 13,
        "Salmonella enterica": 6,
        "Streptococcus": 1,
        "Streptococcus pneumoniae": 11,
    }
    rows = dict(zip(scores.names, scores.values, strict=True))
    nan = np.nan
    assert np.array_equal(rows["Enterobacteriaceae#1"], np.float32([0.5, 0.5, nan]), equal_nan=True)
    assert np.array_equal(rows["Escherichia coli K-12#1"], np.float32([1, nan, nan]), equal_nan=True)


def test_ranks_are_a_taxonomy_and_taxids_describe_classes():
    scores = read_scores(EXAMPLE)
    assert list(scores.levels) == ["genus", "family", "order", "taxonomic class", "phylum", "kingdom"]
    assert scores.levels["genus"]["Escherichia coli"] == "Escherichia"
    assert scores.levels["family"]["Salmonella enterica"] == "Enterobacteriaceae"
    assert set(scores.levels["kingdom"].values()) == {"Bacteria"}
    assert scores.described["taxid"]["Streptococcus pneumoniae"] == "1313"


def test_a_domain_is_not_a_kingdom_where_the_report_has_both(tmp_path):
    text = TEXT.replace("\tP\t1224", "\tK\t1224")
    levels = read_scores(report(tmp_path, text)).levels
    assert levels["domain"]["Escherichia coli"] == "Bacteria"
    assert levels["kingdom"]["Escherichia coli"] == "Pseudomonadota"


def test_eight_columns_and_missing_codes_are_read(tmp_path):
    """The second is what kraken2 writes on arm64 for root and superkingdoms."""
    lines = [line.split("\t") for line in TEXT.splitlines()]
    more = "".join("\t".join([*cells[:3], "900", "450", *cells[3:]]) + "\n" for cells in lines)
    bare = TEXT.replace("\tR\t", "\t\t").replace("\tR1\t", "\t1\t").replace("\tD\t", "\t\t")
    names = read_scores(EXAMPLE).names
    assert read_scores(report(tmp_path, more)).names == names
    assert read_scores(report(tmp_path, bare)).names == names


def test_the_same_labels_give_the_same_report(tmp_path):
    """Each read is labelled with the taxon that it had."""
    scores = KrakenReport().read(opened(EXAMPLE))
    labels = [Label(row, name, name.partition("#")[0], 1.0) for row, name in enumerate(scores.names)]
    answers = Answers(scores, labels, scores.classes, lambda count: [])
    KrakenReport().write(tmp_path / "again.kreport", answers)
    assert (tmp_path / "again.kreport").read_text(encoding="utf-8") == TEXT


def test_answers_come_back_as_a_report_at_the_ranks_that_are_sure(label):
    label("--scores", EXAMPLE, "-o", "species.kreport")
    label("--scores", EXAMPLE, "-o", "ranks.kreport", "--at-least", "0.9")
    species = {taxon.lineage[-1]: taxon for taxon in kraken_report.read_report(Path("species.kreport")).taxa}
    ranks = {taxon.lineage[-1]: taxon for taxon in kraken_report.read_report(Path("ranks.kreport")).taxa}
    assert species["Escherichia coli"].own + species["Salmonella enterica"].own == 22
    assert species["Enterobacteriaceae"].own == 0
    assert ranks["Enterobacteriaceae"].own == 1  # whose species is anybody's guess
    assert ranks["Escherichia"].taxid == "561"


def test_of_many_reads_some_are_labelled_in_the_same_proportions(monkeypatch):
    monkeypatch.setattr(kraken_report, "_MOST_READS", 12)
    scores = read_scores(EXAMPLE)
    taxa = Counter(name.partition("#")[0] for name in scores.names)
    assert taxa == {"Escherichia coli K-12": 4, "Salmonella enterica": 2, "Streptococcus pneumoniae": 3}
    assert ("Streptococcus", "it has 1 of 34 reads") in scores.skipped
    assert "counts 34 reads; 9 in the same proportions are labelled" in scores.notes[0]


def test_taxa_of_one_name_stay_apart(tmp_path):
    text = TEXT.replace("Salmonella enterica", "Streptococcus")
    classes = read_scores(report(tmp_path, text)).classes
    assert "Streptococcus (taxid 28901)" in classes


BAD = {
    "a cell too few": ("\t28901\t", "\t", "which is no line of a report"),
    "no number": ("\t6\t6\tS\t", "\t6\tsix\tS\t", "which is no line of a report"),
    "no name": ("                Salmonella enterica", "  ", "which is no line of a report"),
    "a child without a parent": ("    Bacteria", "            Bacteria", "too far to the right in line 4"),
    "a taxid twice": ("\t28901\t", "\t561\t", "the taxid 561 twice"),
    "a sibling twice": ("Salmonella\n", "Escherichia\n", "Escherichia' twice|'root › cellular organisms"),
}


@pytest.mark.parametrize(("old", "new", "said"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused(old, new, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read_scores(report(tmp_path, TEXT.replace(old, new)))
