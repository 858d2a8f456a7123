"""The first step of features: what is seen in the examples."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway.core.ops import class_sums
from manyway.methods.calibration import first_step
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.first_step import _MOST_ROWS, FirstStep, _seen, _unit_step, choose


def test_evenly_spaced_examples_show_how_the_features_look():
    tasks = make_tasks(1, n_classes=5, shots=60, n_features=40)
    every = -(-tasks.n_support // _MOST_ROWS)
    assert every == 3
    counts, middle = class_sums(tasks)[1], tasks.support.mean(1, keepdim=True)
    way, usual = _seen(tasks, counts, middle, Constants())
    others = torch.arange(tasks.n_support) % every > 0
    for rows, same in ((others, True), (~others, False)):
        changed = make_tasks(1, n_classes=5, shots=60, n_features=40)
        changed.support_table[:, rows] *= 10.0 ** torch.linspace(-3, 3, 40, dtype=torch.float64)
        found = _seen(changed, counts, middle, Constants())
        assert (torch.equal(found[0], way) and torch.equal(found[1], usual)) == same


@pytest.mark.parametrize(
    ("n_features", "ways"),
    [(3, ("2020", "2122", "2002")), (8, ("0200", "2222", "0202")), (20, ("1303", "3333", "1103"))],
)
def test_ways_are_chosen_alike_all_at_once_and_one_after_another(n_features, ways, monkeypatch):
    tasks = make_tasks(4, n_classes=5, n_features=n_features, shots=4)
    units = 10 ** torch.linspace(-2, 2, n_features, dtype=tasks.support.dtype)
    rows = tasks.support, tasks.support * units, tasks.support - tasks.support.amin()
    tables = [tasks.with_rows(one, tasks.query) for one in rows]

    def found() -> list[FirstStep]:
        return [choose(table, Constants(way_gain=0.1)) for table in tables]

    together = found()
    monkeypatch.setattr(first_step, "_SMALL", 0)
    for one, other in zip(together, found(), strict=True):
        for mine, theirs in zip(vars(one).values(), vars(other).values(), strict=True):
            assert torch.equal(mine, theirs)
    assert tuple("".join(map(str, one.way.tolist())) for one in together) == ways
    last = together[-1]  # without negative values: powers are taken but for features as they are
    assert torch.equal(last.levels, last.way > 0)
    assert torch.equal(last.middle[last.way > 0], _unit_step(tables[-1])[0].middle[last.way > 0])


def test_dead_units_of_a_network_do_not_make_it_a_table():
    tasks = make_tasks(2, n_classes=5, n_features=80, shots=4)
    few = torch.ones(80, dtype=tasks.support.dtype).index_fill(0, torch.tensor([3, 40]), 1e-7)
    steps = [choose(tasks.with_rows(rows, tasks.query), Constants()) for rows in (tasks.support, tasks.support * few)]
    assert all(bool(step.usual.all()) for step in steps)
