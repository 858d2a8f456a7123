"""Laws that the answers for scores obey, whatever the scores are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyway import Tasks, solve
from manyway.core.solution import Solution

RARE = settings(deadline=None, max_examples=15, derandomize=True, database=None)
FEW = settings(RARE, max_examples=8)  # each draw is a batch


def draw(
    seed: int,
    n_items: int = 60,
    n_classes: int = 25,
    n_present: int = 5,
    preference: float = 0.5,
    distance: float = 2.5,
):
    """Log-posteriors of a classifier that prefers some classes and is right in half of the items; and the labels."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randperm(n_classes, generator=generator)[torch.randint(n_present, (n_items,), generator=generator)]
    logits = 1.5 * torch.randn(n_items, n_classes, generator=generator, dtype=torch.float64)
    logits = logits + preference * torch.randn(n_classes, generator=generator, dtype=torch.float64)
    logits[torch.arange(n_items), truth] += distance
    return logits.log_softmax(-1), truth


def label(posteriors: torch.Tensor, **given_) -> Solution:
    return solve("evidence", Tasks.from_scores(posteriors[None], **given_))


seeds = st.integers(0, 10_000)
n_items_ = st.sampled_from([1, 2, 7, 60])
n_classes_ = st.sampled_from([2, 3, 25, 80])


@RARE
@given(seeds, n_items_, n_classes_)
def test_the_order_of_items_and_classes_changes_nothing(seed, n_items, n_classes):
    posteriors, _ = draw(seed, n_items, n_classes, min(5, n_classes))
    generator = torch.Generator().manual_seed(seed)
    items = torch.randperm(n_items, generator=generator)
    classes = torch.randperm(n_classes, generator=generator)
    found = label(posteriors).probabilities[0]
    other = label(posteriors[items][:, classes]).probabilities[0]
    torch.testing.assert_close(other, found[items][:, classes], rtol=0, atol=1e-6)


@RARE
@given(seeds, st.sampled_from([-1e4, -1e3, -200.0]), st.integers(1, 40), n_items_, n_classes_)
def test_classes_that_no_item_can_have_change_nothing(seed, low, more, n_items, n_classes):
    posteriors, _ = draw(seed, n_items, n_classes, min(5, n_classes))
    found = label(posteriors)
    wider = label(torch.nn.functional.pad(posteriors, (0, more), value=low))
    torch.testing.assert_close(wider.probabilities[..., :n_classes], found.probabilities)
    torch.testing.assert_close(wider.presence[:, :n_classes], found.presence)
    assert wider.probabilities[..., n_classes:].sum() == 0
    assert wider.presence[:, n_classes:].sum() == 0


@RARE
@given(seeds, st.floats(-50, 50))
def test_a_constant_added_to_the_logits_of_an_item_changes_nothing(seed, constant):
    posteriors, _ = draw(seed)
    moved = posteriors + constant * torch.arange(60).unsqueeze(1)
    torch.testing.assert_close(label(moved).probabilities, label(posteriors).probabilities, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_present", [2, 5, 20])
def test_one_item_less_changes_one_percent_of_the_other_labels_and_no_sure_one(n_present):
    """Where single scores say little, a whole group of items may be as probable as another."""
    changed = []
    for seed in range(10):
        posteriors, _ = draw(seed, 100, 40, n_present)
        found = label(posteriors)
        without = label(posteriors[1:])
        differs = found.labels[0, 1:] != without.labels[0]
        claimed = found.probabilities[0, 1:].amax(-1)
        assert not bool((differs & (claimed > 0.5)).any())
        changed.append(float(differs.double().mean()))
    assert sum(changed) / len(changed) <= 0.01


@RARE
@given(seeds, n_items_, n_classes_)
def test_some_class_occurs(seed, n_items, n_classes):
    posteriors, _ = draw(seed, n_items, n_classes, 1)
    found = label(posteriors)
    assert float(found.n_present) >= 1 - 1e-6
    assert bool((found.presence <= 1).all())


def test_fifty_equal_items_are_of_one_class_at_least():
    posteriors = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log().expand(50, -1)
    assert float(label(posteriors).n_present) >= 1 - 1e-6


def draws(first: int, number: int, *sizes: int, **options: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Several draws as a batch: posteriors [t, q, k] and labels [t, q]."""
    drawn = [draw(first + seed, *sizes, **options) for seed in range(number)]
    posteriors, truth = (torch.stack(each) for each in zip(*drawn, strict=True))
    return posteriors, truth


def labels(posteriors: torch.Tensor, **given_) -> torch.Tensor:
    """[t, q] of a batch."""
    return solve("evidence", Tasks.from_scores(posteriors, **given_)).labels


@FEW
@given(seeds, st.sampled_from([1, 5, 20]))
def test_right_labels_that_are_confirmed_cost_at_most_three_points(seed, n_known):
    posteriors, truth = draws(4 * seed, 4, 100, 30, 6)
    known = torch.full((4, 100), -1)
    known[:, :n_known] = truth[:, :n_known]
    rest = slice(n_known, None)
    before = (labels(posteriors) == truth)[:, rest].double().mean()
    after = (labels(posteriors, known=known) == truth)[:, rest].double().mean()
    assert after - before >= -0.03


def test_confirming_what_is_right_costs_no_batch_more_than_three_points():
    posteriors, truth = draws(0, 20, 100, 30, 6)
    before = labels(posteriors)
    for n_known in (1, 20):
        known = torch.where(before == truth, truth, -1)
        known[:, n_known:] = -1
        after = labels(posteriors, known=known)
        rest = slice(n_known, None)
        gains = (after == truth)[:, rest].double().mean(1) - (before == truth)[:, rest].double().mean(1)
        assert gains.min() >= -0.03


@RARE
@given(seeds)
def test_a_score_that_moves_a_little_moves_answers_a_little(seed):
    posteriors, _ = draw(seed)
    generator = torch.Generator().manual_seed(seed)
    moved = posteriors + 1e-9 * torch.randn(posteriors.shape, generator=generator, dtype=torch.float64)
    found, other = label(posteriors), label(moved)
    torch.testing.assert_close(other.probabilities, found.probabilities, rtol=0, atol=1e-4)
    torch.testing.assert_close(other.presence, found.presence, rtol=0, atol=1e-4)


def with_first_classes_present(posteriors: torch.Tensor, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A draw with its classes in another order: those that occur come first, so that one list is right for any draw."""
    occurs = torch.zeros(posteriors.shape[-1]).scatter(0, truth, 1.0)
    order = occurs.argsort(descending=True, stable=True)
    return posteriors[:, order], order.argsort()[truth]


@FEW
@given(
    seeds,
    st.sampled_from(["one name is missing", "one name is wrong", "half of the names are missing"]),
    st.sampled_from([2.5, 4.5]),
    st.sampled_from([1.0, 0.3]),
)
def test_a_list_with_an_error_costs_at_most_three_points(seed, error, distance, sharpness):
    batch = zip(*draws(4 * seed, 4, 100, 40, 6, distance=distance), strict=True)
    drawn = [with_first_classes_present(*one) for one in batch]
    posteriors, truth = (torch.stack(each) for each in zip(*drawn, strict=True))
    posteriors = (sharpness * posteriors).log_softmax(-1)
    assert (truth.amax(1) == 5).all()  # six classes occur
    lists = {
        "one name is missing": slice(1, 6),
        "one name is wrong": slice(0, 7),
        "half of the names are missing": slice(0, 3),
    }
    expectation = torch.zeros(40)
    expectation[lists[error]] = 1.0
    before = (labels(posteriors) == truth).double().mean()
    after = (labels(posteriors, expectation=expectation) == truth).double().mean()
    assert after >= before - 0.03
