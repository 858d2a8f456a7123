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


def test_two_items_say_twice_as_much_as_one():
    large = named(0, 5).repeat(6, 1)
    one = odds_of(torch.cat([large, named(1, 2)]))[1]
    two = odds_of(torch.cat([large, named(1, 2).repeat(2, 1)]))[1]
    assert float(two - one) == pytest.approx(log(2), abs=0.1)


def test_a_class_whose_items_may_be_of_a_large_class_is_more_probably_a_fragment():
    large = named(0, 5).repeat(20, 1)
    odds = odds_of(torch.cat([large, named(1, 0).repeat(2, 1), named(2, 3).repeat(2, 1)]))
    assert odds[1] < odds[2] - 0.8


def test_a_sure_name_says_more_than_a_doubtful_one():
    large = named(0, 5).repeat(6, 1)
    odds = odds_of(torch.cat([large, named(1, 4).repeat(2, 1), named(2, 3, sure=0.6).repeat(2, 1)]))
    assert odds[1] > odds[2] + 1


def test_copies_of_all_items_change_nothing():
    p = torch.cat([named(0, 1).repeat(20, 1), named(1, 0).repeat(3, 1)])
    torch.testing.assert_close(odds_of(p.repeat(5, 1)), odds_of(p))


def test_how_sure_a_classifier_claims_to_be_changes_no_class_without_neighbours():
    """Each pair of classes has its own items, so that the answers alone matter, at any temperature."""
    sure = [named(0, 4, 0.9), named(1, 5, 0.8), named(1, 5, 0.7), named(2, 3, 0.95)]
    p = torch.cat([one.repeat(number, 1) for one, number in zip(sure, (9, 3, 2, 1), strict=True)])
    odds = odds_of(p)
    flat = odds_of((p.log() / 3).softmax(-1))
    assert (odds[:3] - odds[3:].amax() > 5).all()
    torch.testing.assert_close(flat[:3], odds[:3], rtol=0, atol=1.0)
    assert torch.equal(flat[:3].argsort(), odds[:3].argsort())


def test_where_no_item_says_anything_all_classes_count_alike():
    odds = odds_of(torch.full((7, 4), 0.25))
    torch.testing.assert_close(odds, odds[:1].expand(4))


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

    by_names = (log(6) + log(11)) / 2  # √((R + 1) / (2W + 1)) of five
    assert float(with_labels(3)[1] - with_labels(4)[1]) > by_names - 0.5


def test_the_odds_are_those_of_the_formula():
    """Class by class, of three items."""
    p = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])
    margins = [log(0.7 / 0.2) + log(0.6 / 0.3), 0.0, log(0.5 / 0.3)]
    named_ = [3 * margin / sum(margins) for margin in margins]
    usual = sum(value**2 for value in named_) / 3
    masses = p.sum(0)
    for k in (0, 2):
        others = [j for j in range(3) if j != k]
        lost = float((p[:, k] * (p[:, others] * masses[others]).sum(1)).sum())
        neighbours = lost / float((p[:, k] * (1 - p[:, k])).sum())
        expected = ScoreConstants().scores_right + log(named_[k] / (neighbours + usual / 2))
        assert float(odds_of(p)[k]) == pytest.approx(expected, abs=1e-5)
    assert float(odds_of(p)[1]) < -10  # the answer of no item
