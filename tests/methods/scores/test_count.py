"""Which classes occur, by the answers for scores: evidence, neighbours that explain it, and labelled items."""

from __future__ import annotations

from math import log

import pytest
import torch

from manyway.methods.scores.calibrate import Calibration, Given
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.count import odds_of_classes
from manyway.methods.scores.items import InMemory, Part


def answers(part: Part) -> torch.Tensor:
    """Those of the classifier."""
    return part.posteriors.exp()


def odds_of(
    p: torch.Tensor, known: torch.Tensor | None = None, other: torch.Tensor | None = None, labels: tuple[int, ...] = ()
) -> torch.Tensor:
    """[k] log-odds from probabilities [n, k], known labels, and other items with labels."""
    n_classes = p.shape[-1]
    if known is None:
        known = torch.full((len(p),), -1)
    if other is None:
        other = torch.zeros(0, n_classes)
    zeros = torch.zeros(n_classes)
    calibration = Calibration(temperature=1.0, bias=zeros, listed=zeros, neighbours=None, hidden=0.0, coverage=0.0)
    given = Given(
        labelled=other.log(),
        labels=torch.tensor(labels, dtype=torch.int64),
        expected=torch.ones(n_classes),
        temperature=None,
    )
    items = InMemory(p.log(), known, torch.ones(len(p), dtype=torch.bool))
    return odds_of_classes(items, answers, calibration, given, ScoreConstants())


def named(name: int, second: int, sure: float = 0.9, n_classes: int = 6) -> torch.Tensor:
    """[1, k] an item that is given a class, with a second choice."""
    p = torch.full((1, n_classes), 0.001)
    p[0, second] = 1 - sure - 0.001 * (n_classes - 2)
    p[0, name] = sure
    return p


def test_two_items_say_much_more_than_one():
    large = named(0, 5).repeat(6, 1)
    one = odds_of(torch.cat([large, named(1, 2)]))[1]
    two = odds_of(torch.cat([large, named(1, 2).repeat(2, 1)]))[1]
    assert two > one + log(3)


def test_a_class_whose_items_may_be_of_a_large_class_is_more_probably_a_fragment():
    large = named(0, 5).repeat(20, 1)
    odds = odds_of(torch.cat([large, named(1, 0).repeat(2, 1), named(2, 3).repeat(2, 1)]))
    assert odds[1] < odds[2] - 1


def test_a_sure_name_says_more_than_a_doubtful_one():
    large = named(0, 5).repeat(6, 1)
    odds = odds_of(torch.cat([large, named(1, 4).repeat(2, 1), named(2, 3, sure=0.6).repeat(2, 1)]))
    assert odds[1] > odds[2] + 1


def test_copies_of_all_items_hardly_change_a_class_that_has_neighbours():
    """The neighbours have A items; with D copies each, ½ beside A is ½/D."""
    p = torch.cat([named(0, 1).repeat(20, 1), named(1, 0).repeat(3, 1)])
    once, often = odds_of(p), odds_of(p.repeat(5, 1))
    torch.testing.assert_close(often[:2], once[:2], rtol=0, atol=0.2)


def test_a_known_label_makes_its_class_certain():
    p = torch.cat([named(0, 5).repeat(6, 1), named(1, 2)])
    known = torch.tensor([-1] * 6 + [1])
    assert odds_of(p, known)[1] == torch.inf
    assert odds_of(p, known)[0] < torch.inf


@pytest.mark.parametrize("inside", [True, False])
def test_labelled_items_say_how_often_names_are_right(inside):
    """Of five labelled items all or none are named right; they are of the batch, or others."""
    p = torch.cat([named(0, 5).repeat(6, 1), named(1, 2).repeat(2, 1)])
    labelled = named(3, 4).repeat(5, 1)

    def with_labels(label: int) -> torch.Tensor:
        if inside:
            return odds_of(torch.cat([p, labelled]), torch.tensor([-1] * 8 + [label] * 5))
        return odds_of(p, None, labelled, (label,) * 5)

    assert with_labels(3)[1] > with_labels(4)[1] + 2


def test_a_classifier_that_doubts_itself_is_believed_less_and_one_that_is_sure_is_not_believed_more():
    """By the formula, item by item."""

    def by_hand(p: list[float], doubt: float) -> float:
        evidence = [-log(1 - value) for value in p]
        usual = sum(value * nats for value, nats in zip(p, evidence, strict=True))
        neighbours = (p[1] * p[1] + p[2] * p[2]) / (1 - p[0])
        number = torch.tensor(p).xlogy(torch.tensor(p)).sum().neg().exp()
        prior = 0.5 * float(((number + 0.5) / (3 - number + 0.5)).log())
        return ScoreConstants().scores_right + doubt + log(evidence[0] ** 2 / usual / (neighbours + 0.5)) + prior

    unsure, sure = [0.4, 0.35, 0.25], [0.8, 0.15, 0.05]
    assert float(odds_of(torch.tensor([unsure]))[0]) == pytest.approx(by_hand(unsure, 0.5 * log(0.4 / 0.6)), abs=1e-4)
    assert float(odds_of(torch.tensor([sure]))[0]) == pytest.approx(by_hand(sure, 0.0), abs=1e-4)
