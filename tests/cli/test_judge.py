"""`manyway judge`: does a change of labels improve them, or merely change them?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyway.files import formats

EXAMPLES = Path(formats.__file__).parent / "examples"
LABEL = {name: f"{n};mammalia;carnivora;canidae;{genus};x;{name}" for n, (name, genus) in enumerate(
    {"fox": "vulpes", "dog": "canis", "wolf": "canis"}.items())}  # fmt: skip


def write_scores(name: str, labels: str) -> None:
    """A SpeciesNet file in which each picture has a label and the next class as its second."""
    classes = list(LABEL)
    entries = []
    for number, short in enumerate(labels.split()):
        second = classes[(classes.index(short) + 1) % 3]
        found = {"classes": [LABEL[short], LABEL[second]], "scores": [0.7, 0.2]}
        entries.append({"filepath": f"{number}.jpg", "classifications": found})
    Path(name).write_text(json.dumps({"predictions": entries}))


@pytest.fixture
def judge(run_in_folder):
    write_scores("before.json", " ".join(["dog"] * 20 + ["fox"] * 20))
    Path("after.csv").write_text(
        "item,label,probability\n" + "".join(f"{n}.jpg,{'wolf' if n < 15 else 'fox'},0.9\n" for n in range(40))
    )
    Path("verified.csv").write_text(
        "item,label\n" + "".join(f"{n}.jpg,{'wolf' if n < 16 else 'fox'}\n" for n in range(39)) + "zz.jpg,fox\n"
    )
    return lambda *words: run_in_folder("judge", *map(str, words))


def test_each_rank_and_class_is_counted_with_an_interval(judge):
    code, out, err = judge("before.json", "after.csv", "--labels", "verified.csv")
    assert code == 0, err
    assert "39 verified items: 19 corrected, 0 made worse, 20 unchanged (1 of them from one error to another)." in out
    assert "+48.7 points (+30.3 to +62.3): after.csv is better." in out
    assert "1 item of verified.csv is in neither file and is left out" in err
    found = {line.split()[0]: line.split()[1:] for line in out.splitlines()[2:]}
    # dogs and wolves are of one genus, so that there was less to correct, and one item got worse
    assert found["genus"][:6] == ["39", "89.7", "97.4", "4", "1", "+7.7"]
    assert found["family"][:3] == ["39", "100.0", "100.0"]
    assert found["wolf"][:5] == ["16", "0.0", "93.8", "15", "0"]
    ranks = [line.split()[0] for line in out.splitlines()[1:7]]
    assert ranks == ["rank", "class", "genus", "family", "order", "taxonomic"]


def test_accents_count_whichever_codes_they_are_written_with(judge):
    Path("before.csv").write_text("item,label\na,z\u00e8bre\nb,lion\n", encoding="utf-8")
    Path("after.csv").write_text("item,label\na,z\u00e8bre\nb,z\u00e8bre\n", encoding="utf-8")
    Path("verified.csv").write_text("item,label\na,Ze\u0300bre\nb,ze\u0300bre\n", encoding="utf-8")  # as a Mac does
    _, out, err = judge("before.csv", "after.csv", "--labels", "verified.csv")
    assert "2 verified items: 1 corrected, 0 made worse, 1 unchanged (0 of them" in out
    assert "neither file has" not in err


def test_one_verified_item_is_one(judge):
    Path("verified.csv").write_text("item,label\n38.jpg,fox\n")
    Path("after.csv").write_text("item,label,probability\n0.jpg,fox,0.9\n")
    code, out, err = judge("before.json", "after.csv", "--labels", "verified.csv")
    assert (code, out.startswith("1 verified item: ")) == (0, True), err
    assert "1 verified item has no label in after.csv; it counts as wrong there" in err


def test_what_is_the_same_is_not_better(judge):
    code, out, _ = judge("before.json", "before.json", "--labels", "verified.csv")
    assert code == 0
    assert "these items do not show which is better; verify some whose label has changed." in out
    assert "0 corrected, 0 made worse" in out
    assert "is worse" in judge("after.csv", "before.json", "--labels", "verified.csv")[1]


def test_the_answers_of_label_are_judged_in_their_own_format(judge, run_in_folder):
    assert run_in_folder("label", "--scores", "before.json", "-o", "new.json")[0] == 0
    code, out, err = judge("before.json", "new.json", "--labels", "verified.csv")
    assert code == 0, err
    assert "39 verified items" in out


def test_tables_of_scores_are_judged_by_their_best_class(judge):
    lines = [f"{n}.jpg,{name},{p}" for n in range(40) for name, p in (("wolf", 0.6), ("fox", 0.4))]
    Path("long.csv").write_text("item,label,score\n" + "\n".join(lines))
    code, out, err = judge("before.json", "long.csv", "--labels", "verified.csv")
    assert code == 0, err
    assert "39 verified items: 16 corrected, 19 made worse" in out


def test_an_item_without_a_label_is_wrong(judge):
    Path("after.csv").write_text("item,label\n0.jpg,\n1.jpg,wolf\n")
    code, out, err = judge("before.json", "after.csv", "--labels", "verified.csv")
    assert code == 0
    assert "38 verified items have no label in after.csv" in err
    assert "19 made worse" in out


def test_a_partly_labelled_table_that_came_back_is_judged_by_its_new_labels(judge):
    header = "item,label,new_label,new_probability,new_label_2,new_probability_2,new_note\n"
    rows = [f"{n}.jpg,,{'wolf' if n < 16 else 'fox'},0.9,dog,0.1,\n" for n in range(39)]
    Path("back.csv").write_text(f"{header}known.jpg,dog,dog,,,,given\n" + "".join(rows))
    code, out, err = judge("before.json", "back.csv", "--labels", "verified.csv")
    assert code == 0, err
    assert "39 verified items: 20 corrected, 0 made worse, 19 unchanged" in out


def test_answers_that_were_too_uncertain_or_skipped_are_wrong(judge):
    header = "item,width,label,probability,label_2,probability_2,note\n"
    rows = [f"{n}.jpg,3,{'fox' if n > 25 else ''},0.8,dog,0.2,\n" for n in range(1, 39)]
    Path("some.csv").write_text(header + "0.jpg,,,,,,skipped: it is no picture\n" + "".join(rows))
    code, out, err = judge("before.json", "some.csv", "--labels", "verified.csv")
    assert code == 0, err
    assert "26 verified items have no label in some.csv; they count as wrong there" in err
    assert "0 corrected, 6 made worse" in out


@pytest.mark.parametrize("place", [0, 1])
def test_a_table_of_features_is_not_taken_for_scores(place, judge):
    Path("features.csv").write_text("item,f0,f1\n" + "".join(f"{n}.jpg,{n}.5,{-n}.25\n" for n in range(40)))
    files = ["after.csv"]
    files.insert(place, "features.csv")
    code, _, err = judge(*files, "--labels", "verified.csv")
    assert code == 2
    assert "No class of features.csv ('f0', 'f1') is in verified.csv or after.csv; give a file of labels" in err


def test_labels_of_another_rank_are_judged_where_there_is_a_taxonomy(judge):
    Path("families.csv").write_text("item,label\n" + "".join(f"{n}.jpg,Canidae\n" for n in range(40)))
    code, out, err = judge("families.csv", "before.json", "--labels", "verified.csv")
    assert code == 0, err
    assert "family" in out


def test_verified_labels_that_neither_file_knows_are_named(judge):
    rows = [f"{n}.jpg,{'unicorn' if n else 'wolf'}\n" for n in range(9)]
    Path("strange.csv").write_text("item,label\n" + "".join(rows))
    code, _, err = judge("before.json", "after.csv", "--labels", "strange.csv")
    assert code == 0
    assert "8 verified items are of a class that neither file has ('unicorn'); they count as wrong in both" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["before.json", "after.csv", "--labels", "strange.csv"],
            "no item of before.json or after.csv: it has 'q'",
        ),
        (["before.json", "twice.csv", "--labels", "verified.csv"], "another label for the item '0.jpg' in line 3"),
        (["none.json", "after.csv", "--labels", "verified.csv"], "There is no file none.json"),
        (["before.json", "after.csv"], "Missing option '--labels'"),
    ],
)
def test_what_cannot_be_judged_is_one_sentence(words, message, judge):
    Path("strange.csv").write_text("item,label\nq,fox\n")
    Path("twice.csv").write_text("item,label\n0.jpg,fox\n0.jpg,dog\n")
    code, _, err = judge(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_of_a_review_only_what_a_person_has_seen_is_verified(judge):
    rows = [f"{n}.jpg,{'unknown' if n == 3 else 'wolf'},{'yes' if n < 4 else 'no'}\n" for n in range(40)]
    Path("reviewed.csv").write_text("item,label,reviewed\n" + "".join(rows))
    code, out, err = judge("before.json", "after.csv", "--labels", "reviewed.csv")
    assert code == 0, err
    assert "4 verified items: 3 corrected, 0 made worse, 1 unchanged" in out


def test_as_many_corrected_as_made_worse_ask_for_more(judge):
    write_scores("mixed.json", " ".join(["wolf"] + ["dog"] * 20 + ["fox"] * 19))  # item 0 is right now, item 20 wrong
    code, out, _ = judge("before.json", "mixed.json", "--labels", "verified.csv")
    assert (code, "1 corrected, 1 made worse" in out) == (0, True)
    assert "these items do not show which is better; verify more." in out


def test_the_column_of_the_verified_labels_is_no_answer_where_it_was_carried_along(judge):
    rows = [f"{n}.jpg,{'ab'[n % 2]},{(n % 3) / 2},{1 - (n % 3) / 2}" for n in range(12)]
    Path("scores.csv").write_text("item,truth,a,b\n" + "\n".join(rows) + "\n")
    answers = [f"{n}.jpg,{'ab'[(n + (n % 4 == 0)) % 2]},0.9,,{'ab'[n % 2]}" for n in range(12)]
    Path("answers.csv").write_text("item,label,probability,note,truth\n" + "\n".join(answers) + "\n")
    words = ("--labels", "scores.csv", "--label-column", "truth")
    code, out, err = judge("scores.csv", "answers.csv", *words)
    assert code == 0, err
    found = next(line.split() for line in out.splitlines() if line.startswith(" class"))
    assert found[1:4] == ["12", "50.0", "75.0"]


def test_a_table_without_names_of_items_is_told_of_the_option(judge):
    Path("verified.csv").write_text("Ticket,label\n1.jpg,fox\n")
    code, _, err = judge("before.json", "after.csv", "--labels", "verified.csv")
    assert code == 2
    assert "it needs one named 'item', or name yours with --item-column." in " ".join(err.split())


def test_names_of_items_count_whichever_codes_their_accents_are_written_with(judge):
    Path("before.csv").write_text("item,label\ns\u00fcd.jpg,fox\nb,lion\n", encoding="utf-8")
    Path("verified.csv").write_text("item,label\nsu\u0308d.jpg,fox\nb,fox\n", encoding="utf-8")  # as a Mac does
    _, out, err = judge("before.csv", "before.csv", "--labels", "verified.csv")
    assert "2 verified items: " in out
    assert "in neither file" not in err
