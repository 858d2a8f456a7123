"""`manyway label --scores`: from other programs' files to a table."""

from __future__ import annotations

import csv
from math import log
from pathlib import Path

import pytest

from manyway.files import formats

EXAMPLES = Path(formats.__file__).parent / "examples"
SCORES = "item,fox,wolf,dog\na,0.5,0.4,0.1\nb,0.6,0.3,0.1\nc,0.48,0.5,0.02\nd,0.8,0.15,0.05\ne,0.9,0.05,0.05\n"
TAXONOMY = "class,genus,family\nfox,Vulpes,Canidae\nwolf,Canis,Canidae\ndog,Canis,Canidae\n"


def rows(name: str) -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def label(run_in_folder):
    Path("scores.csv").write_text(SCORES)
    Path("taxonomy.csv").write_text(TAXONOMY)
    return lambda *words: run_in_folder("label", "--scores", *map(str, words))


def test_items_are_labelled_together(label):
    more = "".join(f"f{n},0.85,0.1,0.05\n" for n in range(25))
    Path("scores.csv").write_text(SCORES + more)
    code, out, _ = label("scores.csv")
    assert code == 0
    assert [row["label"] for row in rows("labels.csv")] == ["fox"] * 30
    assert list(rows("labels.csv")[0]) == ["item", "label", "probability", "label_2", "probability_2"]
    assert "The classifier was" in out


@pytest.mark.parametrize("kind", [(), ("--score-kind", "log-probability")])
def test_a_table_of_logarithms_with_those_of_0_gives_the_answers_of_its_probabilities(kind, label):
    p = 4 * [[0.8, 0.2, 0.0], [1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.0, 0.3, 0.7]]
    for name, number in (("scores.csv", float), ("logarithms.csv", lambda x: log(x) if x else "-inf")):
        lines = (f"i{n},{','.join(str(number(x)) for x in row)}\n" for n, row in enumerate(p))
        Path(name).write_text("item,fox,wolf,dog\n" + "".join(lines))
    assert label("scores.csv", "-o", "of_scores.csv")[0] == 0
    code, _, err = label("logarithms.csv", *kind, "-o", "of_logarithms.csv")
    assert code == 0, err
    assert rows("of_logarithms.csv") == rows("of_scores.csv")


def test_scores_of_0_and_1_do_not_say_how_sure_a_classifier_is(label):
    Path("scores.csv").write_text("item,fox,wolf,dog\n" + "".join(f"i{n},1,0,0\nj{n},0,0,1\n" for n in range(9)))
    _, out, _ = label("scores.csv")
    assert "The classifier gives only 0 and 1, which does not say how sure it is; labelled items would help." in out


def test_one_probability_below_0_is_named(label):
    Path("scores.csv").write_text(SCORES.replace("c,0.48", "c,-0.48"))
    code, _, err = label("scores.csv")
    assert code == 2
    assert "The scores of the item 'c' go down to -0.48, but nearly all other rows are probabilities" in err
    assert label("scores.csv", "--score-kind", "logit")[0] == 0


def test_answers_are_of_a_higher_level_where_the_class_is_uncertain(label):
    code, out, _ = label("scores.csv", "--taxonomy", "taxonomy.csv", "--at-least", "0.95", "-o", "o.csv")
    assert code == 0
    found = rows("o.csv")
    assert {row["level"] for row in found} <= {"class", "genus", "family"}
    assert any(row["level"] != "class" for row in found)
    assert all(float(row["answer_probability"]) >= 0.95 for row in found)
    assert "Answers with probability 0.95 or more:" in out


@pytest.mark.parametrize("name", ["speciesnet.json", "megadetector.json", "birdnet.csv", "birdnet.selection.table.txt"])
def test_files_of_other_programs_are_labelled(name, label):
    code, _, err = label(EXAMPLES / name, "-o", "o.csv")
    assert code == 0, err
    assert rows("o.csv")[0]["label"] in ("lion", "bear", "Eurasian Blackbird")


def test_the_taxonomy_of_speciesnet_needs_no_file(label):
    assert label(EXAMPLES / "speciesnet.json", "--at-least", "0.85", "-o", "o.csv")[0] == 0
    found = {row["item"]: row for row in rows("o.csv")}
    assert (found["cam1/0002.jpg"]["answer"], found["cam1/0002.jpg"]["level"]) in (
        ("panthera", "genus"),
        ("felidae", "family"),
    )
    assert found["cam1/0003.jpg"]["note"] == "skipped: no classifications (CLASSIFIER)"


def test_labels_are_kept_and_calibrate(label):
    Path("known.csv").write_text("item,label\na,wolf\nb,wolf\n")
    code, out, _ = label("scores.csv", "--labels", "known.csv", "-o", "o.csv")
    assert code == 0
    assert [row["label"] for row in rows("o.csv")[:2]] == ["wolf", "wolf"]
    assert "2 labelled items" in out
    lines = [f"{n},{0.8 - n / 100},{0.1 + n / 100},0.1,{name}" for n, name in enumerate(["fox", "wolf", "dog"] * 5)]
    Path("validation.csv").write_text("\n".join(["item,fox,wolf,dog,label", *lines]))
    code, out, _ = label("scores.csv", "validation.csv", "-o", "o.csv", "--overwrite")
    assert code == 0
    assert "15 labelled items helped" in out


def test_the_class_prior_adds_classes_and_is_taken_out(label):
    Path("prior.csv").write_text("class,count\nfox,900\nwolf,10\ndog,10\ncow,10\n")
    assert label("scores.csv", "--class-prior", "prior.csv", "-o", "o.csv")[0] == 0
    assert {row["label"] for row in rows("o.csv")} == {"wolf"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scores.csv", "--at-least", "0.9"], "There is no taxonomy to take answers of a higher level from"),
        (["scores.csv", "--labels", "stranger.csv"], "the item 'z', which the scores lack"),
        (["scores.csv", "--labels", "cow.csv"], "the class 'cow', which the scores lack"),
        (["scores.csv", "--labels", "large.csv"], "the class 'FOX', which the scores lack; did you mean 'fox'?"),
        (["mac.csv", "--labels", "fee.csv"], r"looks the same, with other codes: 'fe\u0301e', not 'f\xe9e'."),
        (["scores.csv", "scores.csv"], "scores.csv has no column of labels"),
        (["scores.csv", "a.csv", "b.csv"], "ITEMS is for features"),
        (["scores.csv", "--class-names", "cow.csv"], "--class-names is for features"),
        (["scores.csv", "--method", "paddle", "--open-set"], "paddle cannot tell that an item is unknown"),
        (["scores.csv", "--method", "paddle"], "paddle"),
        (["scores.csv", "--score-kind", "odds"], "choose one of auto, probability"),
        (["scores.csv", "--score-kind", "logit", "-o", "scores.csv"], "one of the inputs"),
        (["negative.csv", "--score-kind", "probability"], "The scores of the item 'b' are negative"),
        (["scores.csv", "--class-prior", "short.csv"], "lacks the classes 'dog'"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(words, message, label):
    for name, text in {
        "stranger.csv": "item,label\nz,fox\n",
        "cow.csv": "item,label\na,cow\n",
        "large.csv": "item,label\na,FOX\n",
        "mac.csv": SCORES.replace("fox", "fe\u0301e"),
        "fee.csv": "item,label\na,f\u00e9e\n",
        "negative.csv": SCORES.replace("b,0.6", "b,-0.6"),
        "short.csv": "class\nfox\nwolf\n",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    code, _, err = label(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not Path("labels.csv").exists()


def test_without_scores_their_options_are_refused(run_in_folder):
    assert "name their file with --scores" in run_in_folder("label", "a.csv", "b.csv", "--class-prior", "p.csv")[2]
    assert "There is nothing to label" in run_in_folder("label")[2]


SURE = SCORES + "".join(f"s{n},0.01,0.01,0.98\n" for n in range(2))


def test_items_may_be_unknown(label):
    code, out, err = label("scores.csv", "--open-set", "-o", "o.csv")
    assert code == 0, err
    assert "Scores alone find few unknown items" in " ".join((out + err).split())
    found = rows("o.csv")
    assert list(found[0])[-2:] == ["unknown", "group"]
    assert all(0 <= float(row["unknown"]) < 0.5 for row in found)
    assert [row["label"] for row in found] == ["fox", "fox", "fox", "fox", "fox"]


@pytest.mark.parametrize("method", ["label-shift", "em-dirichlet"])
def test_another_method_takes_scores(label, method):
    code, _, err = label("scores.csv", "--method", method, "-o", "o.csv")
    assert code == 0, err
    assert [row["label"] for row in rows("o.csv")][3:] == ["fox", "fox"]


def test_large_scores_are_labelled_in_blocks_with_the_same_answers(label, monkeypatch):
    Path("many.csv").write_text(SURE)
    Path("known.csv").write_text("item,label\na,wolf\nb,wolf\n")
    words = ("many.csv", "--labels", "known.csv", "--open-set")
    assert label(*words, "-o", "whole.csv")[0] == 0
    monkeypatch.setattr("manyway.labelling.batch.IN_MEMORY_BYTES", -1)
    monkeypatch.setattr("manyway.labelling.batch._BLOCK_BYTES", 4 * 3 * 2)  # blocks of two items
    assert label(*words, "-o", "blocks.csv")[0] == 0
    assert rows("blocks.csv") == rows("whole.csv")
    assert [row["label"] for row in rows("blocks.csv")[:2]] == ["wolf", "wolf"]


def test_scores_are_spread_over_a_cluster(label, cluster):
    assert label("scores.csv", "-o", "here.csv")[0] == 0
    code, _, err = label("scores.csv", "--dask", cluster, "-o", "there.csv")
    assert code == 0, err
    assert rows("there.csv") == rows("here.csv")


def test_a_review_of_scores_is_opened_with_their_classes(label, monkeypatch):
    from manyway.cli import review

    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, first: seen.append((data, first)))
    code, _, err = label("scores.csv", "--review")
    assert code == 0, err
    ((data, first),) = seen
    assert data.catalogue == ("fox", "wolf", "dog")
    assert data.names == ("a", "b", "c", "d", "e")
    assert first.labels.tolist() == [[0, 0, 0, 0, 0]]  # four foxes decide a doubtful item


def test_a_taxonomy_goes_with_features_too(run_in_folder):
    Path("examples.csv").write_text(
        "a,b,label\n0,9,fox\n1,9,fox\n1,8,fox\n9,0,wolf\n9,1,wolf\n10,1,wolf\n8,1,dog\n8,0,dog\n7,1,dog\n"
    )
    Path("items.csv").write_text("a,b,item\n0,8,x\n8.5,0.5,y\n")
    Path("taxonomy.csv").write_text(TAXONOMY)
    words = ("--taxonomy", "taxonomy.csv", "--at-least", "0.9", "-o", "o.csv")
    code, out, err = run_in_folder("label", "examples.csv", "items.csv", *words)
    assert code == 0, err
    found = {row["item"]: (row["answer"], row["level"]) for row in rows("o.csv")}
    assert found["x"] == ("fox", "class")
    assert found["y"] == ("Canis", "genus")
    assert "Answers with probability 0.9 or more: " in out


def duets() -> str:
    """Thirty recordings of two of three birds each, of ten birds that a classifier knows: one is in doubt in each."""
    birds = [f"bird {k}" for k in range(10)]
    lines = ["item," + ",".join(birds)]
    for n in range(30):
        scores = [0.02 * 1.25 ** ((7 * n + 3 * k) % 9) for k in range(10)]
        first, second = ((0, 1), (1, 2), (2, 0))[n % 3]
        scores[first], scores[second] = (0.97, 0.85, 0.6, 0.45)[n % 4], 0.3  # in doubt, and yet it is sure elsewhere
        lines.append(f"{n}," + ",".join(f"{score:.3f}" for score in scores))
    lines.append("quiet," + ",".join(["0.020"] * 10))
    return "\n".join(lines)


def test_an_item_may_have_several_classes_or_none(label):
    Path("duets.csv").write_text(duets())
    code, out, err = label("duets.csv", "--several", "-o", "o.csv")
    assert code == 0, err
    found = rows("o.csv")
    assert list(found[0]) == ["item", "label", "probability"]
    given = {item: sorted(row["label"] for row in found if row["item"] == item) for item in ("0", "1", "2", "quiet")}
    pairs = {"0": ["bird 0", "bird 1"], "1": ["bird 1", "bird 2"], "2": ["bird 0", "bird 2"]}
    assert given == {**pairs, "quiet": [""]}
    assert len(found) == 61
    assert all((float(row["probability"]) >= 0.5) == bool(row["label"]) for row in found)
    assert "3 of 10 classes found in 31 items" in out
    assert "1 item is below 0.5: without a label." in out
    assert label("duets.csv", "--score-kind", "independent", "-o", "same.csv")[0] == 0
    assert Path("same.csv").read_text() == Path("o.csv").read_text()
    assert label("duets.csv", "--several", "--min-confidence", "0.999", "-o", "few.csv")[0] == 0
    assert 31 <= len(rows("few.csv")) < 61


def test_several_classes_are_expected_and_known_as_one_is(label):
    Path("duets.csv").write_text(duets())
    Path("known.csv").write_text("item,label\nquiet,bird 7\n")
    assert label("duets.csv", "--several", "--labels", "known.csv", "-o", "o.csv")[0] == 0
    last = rows("o.csv")[-1]
    assert (last["item"], last["label"], last["probability"]) == ("quiet", "bird 7", "1.0000")
    Path("list.txt").write_text("bird 0\nbird 1\n")
    probability = []
    for more in ([], ["--expect", "list.txt"]):
        assert label("duets.csv", "--several", "--min-confidence", "0.01", *more, "-o", "o.csv", "--overwrite")[0] == 0
        probability.append(
            next(float(row["probability"]) for row in rows("o.csv") if (row["item"], row["label"]) == ("1", "bird 2"))
        )
    assert probability[1] < probability[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--open-set"], "may have none, too; leave --open-set out"),
        (["--method", "label-shift"], "label-shift cannot answer several classes; use evidence"),
        (["--review"], "A review gives each item one class"),
        (["duets.csv"], "EXAMPLES are for items with one class"),
        (["--taxonomy", "taxonomy.csv", "--at-least", "0.9"], "leave --at-least out"),
    ],
)
def test_what_is_for_one_class_is_refused_with_several(words, message, label):
    Path("duets.csv").write_text(duets())
    code, _, err = label("duets.csv", "--several", *words)
    assert code == 2
    assert message in err
    assert not Path("labels.csv").exists()


def test_columns_beside_the_scores_are_left_out_and_a_sheet_of_a_csv_is_refused(label):
    header, *lines = SCORES.split()
    Path("scores.csv").write_text("\n".join([f"{header},site", *(f"{line},north" for line in lines)]))
    code, _, said = label("scores.csv")
    assert code == 0
    assert "not used: 'site'" in said
    code, _, said = label("scores.csv", "--sheet", "other", "-o", "again.csv")
    assert code == 2
    assert "--sheet names a sheet of an Excel file (.xlsx, .xlsm), and no input is one; leave it out." in said


def test_scores_are_those_of_the_sheet_that_is_named(label):
    book = pytest.importorskip("openpyxl").Workbook()
    for text, sheet in (("note,of,us\n1,2,3\n", book.active), (SCORES, book.create_sheet("scores"))):
        for line in text.split():
            sheet.append([float(cell) if cell[0].isdigit() else cell for cell in line.split(",")])
    book.save("scores.xlsx")
    code, _, said = label("scores.xlsx", "--sheet", "scores")
    assert (code, len(rows("labels.csv"))) == (0, 5), said


def test_labels_go_to_the_numbers_that_a_table_has_and_to_its_rows_only_with_a_note(tmp_path, run_in_folder):
    rows = ["0.6,0.4", "0.6,0.4", "0.6,0.4", "0.7,0.3"]
    (tmp_path / "labels.csv").write_text("id,label\n2,dog\n")
    (tmp_path / "named.csv").write_text("Nr,cat,dog\n" + "".join(f"{n},{row}\n" for n, row in enumerate(rows, 1)))
    code, _, err = run_in_folder("label", "--scores", "named.csv", "--labels", "labels.csv", "-o", "a.csv")
    assert code == 0, err
    assert "called 0, 1, 2" not in err
    found = (tmp_path / "a.csv").read_text(encoding="utf-8-sig").splitlines()
    assert found[2].startswith("2,dog,")
    (tmp_path / "bare.csv").write_text("cat,dog\n" + "\n".join(rows) + "\n")
    _, _, err = run_in_folder("label", "--scores", "bare.csv", "--labels", "labels.csv", "-o", "b.csv")
    assert "the items of bare.csv are called 0, 1, 2, …; the labels of labels.csv go to them" in " ".join(err.split())


def test_a_name_with_other_codes_is_said_to_be_meant_among_many_too(tmp_path, run_in_folder):
    rows = "".join(f"s\u00fcd {n}.jpg,0.6,0.4\n" for n in range(60))
    (tmp_path / "scores.csv").write_text("item,cat,dog\n" + rows, encoding="utf-8")
    (tmp_path / "labels.csv").write_text("item,label\nsu\u0308d 7.jpg,dog\n", encoding="utf-8")  # as a Mac does
    code, _, err = run_in_folder("label", "--scores", "scores.csv", "--labels", "labels.csv", "-o", "a.csv")
    assert code == 2
    assert r"the one meant looks the same, with other codes: 's\xfcd 7.jpg', not 'su\u0308d 7.jpg'." in err


@pytest.mark.parametrize(("listed", "said"), [("cat\ndog\n", True), ("cat\n", False)])
def test_a_list_of_half_of_the_classes_is_said_to_change_nothing(listed, said, tmp_path, run_in_folder):
    rows = "".join(f"i{n},0.4,0.3,0.2,0.1\n" for n in range(8))
    (tmp_path / "scores.csv").write_text("item,cat,dog,owl,fox\n" + rows)
    (tmp_path / "list.txt").write_text(listed)
    run_in_folder("label", "--scores", "scores.csv", "-o", "without.csv")
    code, _, err = run_in_folder("label", "--scores", "scores.csv", "--expect", "list.txt", "-o", "with.csv")
    assert code == 0, err
    assert ("the list has 2 of 4 classes, all alike" in err) == said
    same = (tmp_path / "with.csv").read_text() == (tmp_path / "without.csv").read_text()
    assert same == said
    words = ("label", "--scores", "scores.csv", "--several", "--expect", "list.txt", "-o", "several.csv")
    assert "all alike" not in run_in_folder(*words)[2]
