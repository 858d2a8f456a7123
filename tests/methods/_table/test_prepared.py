"""A classifier that was trained once gives, for every batch of queries, what training it again gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks

from manyway import Tasks
from manyway.methods.gradient import baseline
from manyway.methods.simpleshot import prepare_simpleshot, simpleshot

PAIRS = {
    "baseline": (baseline.baseline, baseline.prepare_baseline),
    "baseline++": (baseline.baseline_pp, baseline.prepare_baseline_pp),
    "simpleshot": (simpleshot, prepare_simpleshot),
}
EVERY_PAIR = pytest.mark.parametrize(("solver", "prepare"), PAIRS.values(), ids=list(PAIRS))


@EVERY_PAIR
@pytest.mark.parametrize("scale", [None, "l2", "cl2", "rcl2", "power"])
def test_a_prepared_answer_is_the_unprepared_one(solver, prepare, scale):
    tasks = make_tasks(3, shots=None)
    elsewhere = replace(tasks, query_table=tasks.query[:, :1] * -5)  # other queries, the same support
    prepared = prepare(elsewhere, scale=scale, logit_scale=3.0)
    ours = solver(tasks, scale=scale, logit_scale=3.0, prepared=prepared)
    theirs = solver(tasks, scale=scale, logit_scale=3.0)
    assert torch.equal(ours.probabilities, theirs.probabilities)
    assert torch.equal(ours.prototypes, theirs.prototypes)
    assert torch.equal(ours.n_iter, theirs.n_iter)


@EVERY_PAIR
def test_nothing_can_be_prepared_when_the_transform_depends_on_the_queries(solver, prepare):
    tasks = make_tasks(1)
    assert prepare(tasks, scale="range") is None
    assert torch.isfinite(solver(tasks, scale="range", prepared=None).probabilities).all()


@pytest.mark.parametrize("name", ["baseline", "baseline++"])
def test_the_classifier_is_not_trained_again(name, monkeypatch):
    solver, prepare = PAIRS[name]
    tasks = make_tasks(2)
    prepared = prepare(tasks, with_objective=True)
    expected = solver(tasks, with_objective=True).objective
    monkeypatch.setattr(baseline, "descend", lambda *args, **keywords: pytest.fail("trained again"))
    assert torch.equal(solver(tasks, with_objective=True, prepared=prepared).objective, expected)


@EVERY_PAIR
def test_one_shared_support_serves_any_number_of_tasks(solver, prepare):
    table = make_tasks(1, n_query=30).query[0]
    labels = torch.arange(8).remainder(4)

    def tasks(n: int) -> Tasks:
        index = torch.arange(8).expand(n, -1)
        return Tasks(table, index, labels.expand(n, -1), table, torch.arange(5 * n).view(n, 5) + 8, 4)

    prepared = prepare(tasks(1))
    torch.testing.assert_close(solver(tasks(3), prepared=prepared).probabilities, solver(tasks(3)).probabilities)
