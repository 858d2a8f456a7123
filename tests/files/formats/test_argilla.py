"""Argilla: records with responses are examples, the others get suggestions. The example was made by argilla 2.8."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyway import InputError
from manyway.files.formats.argilla import Argilla
from manyway.files.opening import read_table

EXAMPLE = Argilla().example_path
COLUMNS = ("--feature-column", "words", "--ignore-column", "text")


def test_records_are_a_table():
    table = read_table(EXAMPLE)
    assert list(table.names) == ["item", "text", "words", "label"]
    assert table.values([3])[0] == ["card_arrival", "card_arrival", "refund", "refund", None, None]
    assert table.features([2]).shape == (6, 4)


def test_suggestions_come_back_and_nothing_else_changes(label):
    label(EXAMPLE, "-o", "answers.json", *COLUMNS)
    before, after = (json.loads(Path(path).read_text()) for path in (EXAMPLE, "answers.json"))
    assert [bool(record["suggestions"]) for record in after] == [False] * 4 + [True] * 2
    (suggestion,) = after[5]["suggestions"].items()
    assert suggestion[0] == "intent"
    assert suggestion[1]["value"] == "refund"
    assert suggestion[1]["agent"].startswith("manyway ")
    assert 0 < suggestion[1]["score"] <= 1
    for record in (*before, *after):
        del record["suggestions"]
    assert after == before


@pytest.mark.slow
def test_argilla_reads_the_suggestions(label):
    argilla = pytest.importorskip("argilla")
    label(EXAMPLE, "-o", "answers.json", *COLUMNS)
    found = [argilla.Record.from_dict(record) for record in json.loads(Path("answers.json").read_text())]
    assert found[5].suggestions["intent"].value == "refund"
    assert found[0].responses["intent"][0].value == "card_arrival"


def changed(**parts: object) -> list:
    records = json.loads(EXAMPLE.read_text())
    records[0] |= parts
    return records


BAD = {
    "an id twice": (changed(id="ticket-1"), "two records with the id 'ticket-1'"),
    "fields that are none": (changed(fields=[1]), "instead of an object in 'fields' of a record"),
    "two questions": (changed(responses={"intent": [], "other": []}), "answers to several questions"),
    "a ranking": (changed(responses={"intent": [{"value": ["a", "b"]}]}), "it must be one label"),
    "responses that are no list": (changed(responses={"intent": "refund"}), "no list 'intent'"),
}


@pytest.mark.parametrize(("records", "said"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused(records, said, tmp_path):
    path = tmp_path / "records.json"
    path.write_text(json.dumps(records))
    with pytest.raises(InputError, match=said):
        read_table(path)
