"""The table of effects has every constant of evidence, and every one can be changed."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import torch

from benchmarks.effects import NAMES, SITUATIONS, changes, measured, n_numbers
from manyway import InputError, Tasks, solve
from manyway.methods.evidence.schedule import Parameters
from manyway.sampling.embedded import load_glyphs


@pytest.mark.parametrize("name", NAMES)
def test_the_schedule_reaches_every_constant(name):
    for value in changes(name):
        assert getattr(Parameters(schedule={name: value}).constants, name) == value


@pytest.mark.parametrize(
    "schedule",
    [{"anneal": 0.5}, {"anneal_from": "low"}, {"anneal_from": 1.5}, {"unknown_weight": "much"}, {"improbable": 0.9}],
)
def test_a_constant_that_does_not_exist_or_cannot_have_the_value_is_an_error(schedule):
    tasks = Tasks.from_arrays(torch.eye(3)[None], [[0, 1, 2]], torch.eye(3)[None])
    with pytest.raises(InputError, match=next(iter(schedule))):
        solve("evidence", tasks, schedule=schedule)


def test_the_number_of_numbers_is_known():
    """It must not grow unseen: a new number needs a reason, a row in the table, and a gain that pays for it."""
    assert n_numbers() == 29


def test_every_constant_is_tried_in_some_situation():
    assert [name for name in NAMES if not any(re.match(of, name) for of, _ in SITUATIONS.values())] == []


def test_the_page_has_a_row_for_every_constant():
    page = Path(__file__).parents[2] / "docs" / "results" / "evidence-parts.csv"
    with page.open(encoding="utf-8", newline="") as file:
        rows = {row[1] for row in csv.reader(file) if row[:1] == ["constants"]}
    assert sorted({*NAMES} - rows) == []


@pytest.mark.parametrize("title", ["1 to 10 shots", "names, half with 2 shots", "scores and a list", "a review"])
def test_a_situation_is_answered_and_measured(title):
    situation = SITUATIONS[title][1]
    tasks = situation.draw(load_glyphs("val"), 1)
    values, labels = measured(situation.answer(tasks, {}), tasks)
    assert all(-1e-9 <= value <= 100 + 1e-9 for value in values)
    assert torch.tensor(labels).shape == tasks.query_labels.shape
