"""Items that may have several classes."""

from __future__ import annotations

import math

import pytest
import torch
from evidence_limits import DOUBLED

from manyway import Tasks, solve
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.kinds import log_odds
from manyway.methods.scores.several import several

NAN = math.nan


def test_items_may_have_several_classes_and_the_batch_says_which_classes_occur():
    generator = torch.Generator().manual_seed(0)
    truth = torch.zeros(60, 80, dtype=torch.bool)
    for row in truth:
        row[torch.randperm(6, generator=generator)[:2]] = True
    odds = torch.where(truth, -1.0, -6.0) + 1.6 * torch.randn(60, 80, generator=generator)
    known = torch.full((1, 60), -1)
    known[0, 0] = 70
    found = solve("evidence", Tasks.from_scores(odds[None], known=known, several=True)).probabilities[0]
    assert found[0, 70] == 1

    def f1(answer: torch.Tensor) -> float:
        both = 2 * (answer & truth).sum(-1)
        return float((both / (answer.sum(-1) + truth.sum(-1)))[1:].mean())

    best = max(f1(odds > threshold) for threshold in torch.linspace(-6, 2, 33))
    assert f1(found > 0.5) > best + 0.03


def test_twice_the_least_part_and_twice_the_steps_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    odds = (-5 + 3 * torch.randn(40, 30, generator=generator))[None]
    known = torch.full((1, 40), -1)
    before = several(odds, known, torch.ones(30), ScoreConstants())
    for name, value in DOUBLED["manyway.methods.scores.several"].items():
        monkeypatch.setattr(f"manyway.methods.scores.several.{name}", value)
    torch.testing.assert_close(several(odds, known, torch.ones(30), ScoreConstants()), before, rtol=0, atol=1e-3)


def test_several_finds_one_class_where_items_have_one():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (75,), generator=generator)
    odds = -7 + 1.4 * torch.randn(75, 60, generator=generator)
    odds[torch.arange(75), truth] = 0.5 * torch.randn(75, generator=generator)
    odds[torch.arange(75), (truth + 1) % 5] += 2.0  # classes that occur are confused with each other
    found = solve("evidence", Tasks.from_scores(odds[None], several=True)).probabilities[0] > 0.5
    assert (found.sum(-1) == 1).float().mean() > 0.87
    assert (found.float().argmax(-1) == truth).float().mean() > 0.95


@pytest.mark.parametrize("least", [0.1, 0.0])
def test_the_batch_adds_to_a_weak_score_within_limits(least):
    """Scores of 0.1 to 0.25 are those of a class that occurs, but 0.99 would say more than anybody knows."""
    generator, rows = torch.Generator().manual_seed(0), torch.arange(60)
    odds = -7 + torch.randn(60, 40, generator=generator)
    odds[rows, rows % 4] = torch.linspace(0.1, 0.25, 60).logit()
    scores = odds.sigmoid()
    tasks = Tasks.from_scores(log_odds(scores.where(scores >= least, NAN))[None], several=True)
    limited = solve("evidence", tasks).probabilities[0, rows, rows % 4]
    free = solve("evidence", tasks, schedule={"several_most": 99.0}).probabilities[0, rows, rows % 4]
    assert float(free.amax()) > 0.99
    assert float(limited.median()) > 0.5
    assert bool((limited.logit() <= odds[rows, rows % 4] + ScoreConstants().several_most + 1e-4).all())


def test_lists_of_three_say_what_absent_classes_score():
    rows, truth = torch.arange(60), torch.zeros(60, 40, dtype=torch.bool)
    truth[rows, rows % 4] = truth[rows, rows // 4 % 5 + 4] = True
    scores = (3.0 * truth - 4 + 0.7 * torch.randn(60, 40, generator=torch.Generator().manual_seed(0))).sigmoid()
    listed = log_odds(scores.where(scores >= scores.topk(3).values[:, -1:], NAN))
    found = solve("evidence", Tasks.from_scores(listed[None], several=True)).probabilities[0] > 0.5
    assert int((found & truth).sum()) > 110
    assert int((found & ~truth).sum()) < 10  # the third class of each list is none of the two that the item has


def test_up_to_three_classes_keep_the_answers_of_the_classifier():
    odds = torch.randn(1, 9, 3, generator=torch.Generator().manual_seed(0))
    known = torch.full((1, 9), -1)
    torch.testing.assert_close(several(odds, known, torch.ones(3), ScoreConstants()), odds.sigmoid())


def test_a_listed_class_has_up_to_twice_the_odds_and_one_that_a_list_lacks_half():
    generator = torch.Generator().manual_seed(0)
    odds = torch.randn(1, 40, 12, generator=generator) - 4
    known = torch.full((1, 40), -1)
    expected = torch.tensor([1.0] * 6 + [0.0] * 6)
    plain = several(odds, known, torch.ones(12), ScoreConstants())
    found = several(odds, known, expected, ScoreConstants())
    assert bool((found[..., 6:] <= plain[..., 6:]).all())
    torch.testing.assert_close(found[..., :6], plain[..., :6])
