"""Actions: they are read from what a page sends or a journal keeps, and each says what is wrong with it."""

from __future__ import annotations

import pytest

from manyway.errors import InputError
from manyway.review.actions import ACTIONS, BeginCheck, Comment, Label, read_action


@pytest.mark.parametrize(
    "action",
    [
        Label(rows=(3, 5), labels=("ant", "bee"), key="a"),
        Comment(rows=(1,), text="at night", key="b"),
        BeginCheck(tolerance=0.05, of="rest", seed="x", key="c"),
    ],
)
def test_an_action_is_read_from_its_record(action):
    record = {name: list(value) if isinstance(value, tuple) else value for name, value in action.record().items()}
    assert read_action(record) == action


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"kind": "drop", "key": "k"}, "no action 'drop'"),
        ({"kind": ["label"], "key": "k"}, "no action"),
        ({"key": "k"}, "no action None"),
        ({"kind": "undo"}, "needs a key of 1 to 100 printable characters"),
        ({"kind": "undo", "key": "\n"}, "needs a key"),
        ({"kind": "undo", "key": "k" * 101}, "needs a key"),
        ({"kind": "unknown", "rows": [1], "labels": ["oak"], "key": "k"}, "'unknown' has no field 'labels'"),
        ({"kind": "unknown", "key": "k"}, "lacks a field"),
        ({"kind": "unknown", "rows": [True], "key": "k"}, "of the wrong type"),
        ({"kind": "unknown", "rows": 1, "key": "k"}, "of the wrong type"),
        ({"kind": "comment", "rows": [1], "text": 7, "key": "k"}, "of the wrong type"),
        ({"kind": "check", "tolerance": float("nan"), "of": "all", "key": "k"}, "of the wrong type"),
    ],
)
def test_what_is_no_action_gets_a_sentence(record, sentence):
    with pytest.raises(InputError, match=sentence):
        read_action(record)


def test_an_action_that_another_module_adds_is_read_like_any_other(monkeypatch):
    """One class is all that the journal and the server need."""
    from dataclasses import dataclass

    from manyway.review.actions import OfItems

    @dataclass(frozen=True, kw_only=True)
    class Star(OfItems):
        kind = "star"
        weight: float

    monkeypatch.setitem(ACTIONS, "star", Star)
    assert read_action({"kind": "star", "rows": [4], "weight": 2, "key": "k"}) == Star(rows=(4,), weight=2.0, key="k")
