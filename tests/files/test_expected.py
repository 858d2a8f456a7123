"""Lists of expected classes: which class a name means, and what is said about the others."""

from __future__ import annotations

import pytest

from manyway import InputError
from manyway.files.expected import read_expected
from manyway.files.score_files import read_scores
from tests.files.test_scores import EXAMPLES, write

BIRDS = ["yellow-throated vireo", "purple finch", "Grünfink", "boat-tailed grackle"]


@pytest.fixture
def birds(tmp_path):
    """Scores of four birds for eight items, of which six are vireos and two are finches."""
    header = ",".join(["item", *BIRDS])
    rows = [f"{n},{'0.9,0.1' if n < 6 else '0.1,0.9'},0,0" for n in range(8)]
    return read_scores(write(tmp_path, "scores.csv", "\n".join([header, *rows]) + "\n"))


def test_a_class_goes_by_any_of_its_names(tmp_path):
    scores = read_scores(EXAMPLES / "birdnet.csv")
    table = "species,probability\nturdus merula,0.9\nSong thrush,0.1\nCorvus corax,0.5\n"
    found = read_expected(write(tmp_path, "l.csv", table), scores)
    assert found.likely == {"Eurasian Blackbird": 0.9, "Song Thrush": 0.1}
    assert found.unknown == {"Corvus corax": None}
    birdnet = "Turdus merula_Eurasian Blackbird\n\nCorvus corax_Common Raven\n"
    assert read_expected(write(tmp_path, "l.txt", birdnet), scores).likely == {"Eurasian Blackbird": 1}
    speciesnet = read_scores(EXAMPLES / "speciesnet.json")
    label = "class\na1;mammalia;carnivora;felidae;panthera;leo;lion\n"
    assert read_expected(write(tmp_path, "l.csv", label), speciesnet).likely == {"lion": 1}


@pytest.mark.parametrize("name", ["Yellow Throated Vireo", "YELLOW-THROATED VIREO", "yellow_throated_vireo"])
def test_case_and_hyphens_do_not_matter(name, birds, tmp_path):
    assert read_expected(write(tmp_path, "l.txt", f"{name}\n"), birds).likely == {"yellow-throated vireo": 1}


def test_accents_do_not_matter(birds, tmp_path):
    found = read_expected(write(tmp_path, "l.txt", "grunfink\nBoat tailed Grackle\n"), birds)
    assert found.likely == {"Grünfink": 1, "boat-tailed grackle": 1}


def test_a_name_that_is_no_class_is_said_with_the_nearest_one(birds, tmp_path):
    found = read_expected(write(tmp_path, "l.txt", "yelow throated vireo\npurple finch\nAuk\n"), birds)
    assert found.likely == {"purple finch": 1}
    assert found.unknown == {"yelow throated vireo": "yellow-throated vireo", "Auk": None}
    meant = "'yelow throated vireo' (did you mean 'yellow-throated vireo'?)"
    assert found.notes[:2] == (
        f"l.txt has names that are no class of the scores: {meant}",
        "l.txt has a name that is like no class of the scores: 'Auk'",
    )


def test_a_list_that_lacks_most_answers_is_called_out(birds, tmp_path):
    short = read_expected(write(tmp_path, "l.txt", "purple finch\n"), birds)
    lacks = "lacks what the classifier answers for 75% of the items, such as 'yellow-throated vireo'"
    assert short.notes == (f"l.txt {lacks}; is it the right list?",)
    assert read_expected(write(tmp_path, "l.txt", "yellow-throated vireo\n"), birds).notes == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class,probability\npurple finch,-1\n", "-1 for the class 'purple finch' in line 2; it must not be negative"),
        ("class\nCorvus corax\n", "lists no class of the scores, such as 'yellow-throated vireo'"),
        ("class\npurpel finch\n", r"lists no class of the scores, 'purpel finch' \(did you mean 'purple finch'\?\)"),
        ("name\nCorvus corax\n", "needs one named 'class'"),
    ],
)
def test_a_list_that_says_nothing_is_refused(text, message, birds, tmp_path):
    with pytest.raises(InputError, match=message):
        read_expected(write(tmp_path, "l.csv", text), birds)


def test_a_list_that_does_not_exist_is_said_to_be_missing_whatever_its_ending(birds, tmp_path):
    with pytest.raises(InputError, match=r"There is no file .*nothing"):
        read_expected(tmp_path / "nothing", birds)
