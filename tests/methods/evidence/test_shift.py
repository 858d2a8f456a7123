"""The shift of a batch: how probable it is, what labels explain of it, and what is lost."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from shift_problems import N_CLASSES, N_FEATURES, N_QUERY, batch, moved
from torch import Tensor

from manyway import Tasks
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.representation import learn_representation
from manyway.methods.evidence.calibrate import calibrate
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.search import search
from manyway.methods.evidence.shift import Assigned, Comparison, Shift, _independence, find_shift


def compared(tasks: Tasks) -> Comparison:
    representation = learn_representation(tasks, Constants())
    return Comparison.of(
        tasks, representation, torch.ones(len(tasks), tasks.n_query), shift_prior=0.1
    )


def assigned(labels: Tensor) -> Assigned:
    proportions = torch.nn.functional.one_hot(labels, N_CLASSES).float().mean(1)
    return Assigned(labels=labels, proportions=proportions, distinct=torch.ones(labels.shape))


def test_the_odds_of_a_shift_are_those_of_its_best_variance():
    """The formula of the module, for F above 1; the rest says what is known before."""
    tasks, _ = batch(3)
    comparison = compared(tasks)
    n = comparison.columns.double()
    for ratio in (1.2, 1.6, 2.5):
        log_odds = np.log(0.1 / 0.9) + (1 - 1 / n).log() + 0.5 * n * (ratio - 1 - np.log(ratio))
        found = comparison._probability(torch.full_like(comparison.columns, ratio))
        torch.testing.assert_close(found.double(), log_odds.sigmoid(), rtol=1e-4, atol=1e-6)
    assert (comparison._probability(torch.full_like(comparison.columns, 0.9)) == 0).all()


def test_the_fewer_classes_a_shift_can_be_told_from_the_less_sure_answers_are():
    """One class that is moved looks like another class."""
    certain = torch.ones(3)
    shift = Shift(vector=torch.zeros(3, 1, 2), size=certain, probability=certain)
    masses = torch.zeros(3, 30)
    masses[0, 0] = 30
    masses[1, :2] = 15
    masses[2] = 1
    none_known = torch.zeros(3)
    found = shift.power(masses, none_known)
    assert found[0] < 0.5
    assert found[0] < found[1] < found[2] < 1
    assert (Shift.none(certain).power(masses, none_known) == 1).all()
    few = shift.power(masses, none_known + 3)
    assert (found < few).all()
    assert (few < shift.power(masses, none_known + 10)).all()


def test_right_labels_explain_shifted_queries_but_for_their_scatter():
    tasks, truth = batch(5)
    shifted = moved(tasks, 1.0)
    nothing = torch.zeros(1, 1, N_FEATURES)
    found = compared(shifted).explanation(assigned(truth), nothing)
    assert float(found.squares_ratio) == pytest.approx(1, abs=0.1)
    assert float(found.squared_size.sqrt()) == pytest.approx(1, abs=0.15)
    wrong = compared(shifted).explanation(assigned((truth + 1) % N_CLASSES), nothing)
    assert float(wrong.squares_ratio) > float(found.squares_ratio) + 0.2
    assert found.log_fit > wrong.log_fit


def test_of_labels_that_explain_as_much_those_of_fewer_classes_are_better():
    truth = torch.zeros(1, N_QUERY, dtype=torch.long)
    tasks, _ = batch(1)
    same = tasks.with_rows(tasks.support, tasks.support[:, :1].expand(-1, N_QUERY, -1))
    comparison = compared(same)
    nothing = torch.zeros(1, 1, N_FEATURES)
    one_class = comparison.explanation(assigned(truth), nothing)
    half = truth.clone()
    half[0, ::2] = 1
    assert float(comparison.explanation(assigned(half), nothing).log_fit) < float(one_class.log_fit)


@pytest.mark.parametrize("chance", [0.02, 0.3])
def test_labels_that_need_a_shift_have_the_evidence_of_its_best_variance(chance):
    """The density of b̂ of N columns by chance, with the variance c, and by a shift with the variance ‖b̂‖²."""
    tasks, _ = batch(3)
    comparison = compared(tasks)
    n = float(comparison.columns)

    def log_density(squared: float, variance: float) -> float:
        return -0.5 * n * (np.log(variance) + squared / variance)

    for ratio in (0.5, 1.0, 1.3, 4.0):
        squared = ratio * chance
        none = np.log(0.9) + log_density(squared, chance)
        some = np.log(0.1) + log_density(squared, max(squared, chance))
        like = torch.ones_like(comparison.columns)
        found = float(comparison._log_prior(ratio * like, chance * like))
        assert found == pytest.approx(np.logaddexp(none, some), rel=1e-4, abs=1e-3)


def test_first_labels_stay_unless_others_explain_more_than_their_shift_costs():
    tasks, truth = batch(5)
    nothing = torch.zeros(1, 1, N_FEATURES)
    first = compared(tasks).explanation(assigned(truth), nothing)

    def chosen(gain: float, cost: float, independence: float) -> bool:
        log_fit = first.log_fit + gain
        other = replace(first, log_fit=log_fit, log_prior=first.log_prior - cost)
        return bool(first.is_surpassed(other, torch.tensor([independence])))

    assert chosen(10, 9, 1.0)
    assert not chosen(10, 11, 1.0)
    assert not chosen(10, 9, 0.5)
    assert not chosen(0, 0, 1.0)


def test_queries_stay_where_labels_after_the_move_explain_less_than_the_first_answer():
    """Their own mean residual moves no query if one class is what is then left of five."""
    tasks, truth = batch(5)
    shifted = moved(tasks, 3.0)
    one_class = assigned(torch.full_like(truth, int(truth[0, 0])))
    nothing = torch.zeros(1, 1, N_FEATURES)
    right, wrong = (
        compared(shifted).explanation(one, nothing) for one in (assigned(truth), one_class)
    )
    with_no_shift = right.log_fit - 0.5 * N_QUERY * compared(shifted).columns * right.squared_size
    assert right.log_fit > wrong.log_fit > with_no_shift
    representation = learn_representation(shifted, Constants())
    found = find_shift(shifted, representation, assigned(truth), lambda *_: one_class, 0.1)
    assert not found.vector.any()
    assert float(found.probability) > 0.95


def test_queries_count_less_where_distances_of_examples_vary_more_than_their_columns_say():
    generator = torch.Generator().manual_seed(0)
    columns = torch.full((1,), 40.0)
    two_each = torch.full((1, 4000), 2.0)
    as_columns = torch.distributions.Chi2(40.0)
    torch.manual_seed(0)
    even = as_columns.sample((1, 4000)) / 40 * 0.5
    assert float(_independence(even, two_each, columns)) == pytest.approx(1, abs=0.1)
    lengths = torch.rand(1, 4000, generator=generator) + 0.5  # a variance of 1/12
    parts = float(_independence(lengths * 0.5, two_each, columns))
    assert parts == pytest.approx((2 * 12 / 40) ** 0.5, rel=0.1)
    alone = torch.ones(1, 4000)
    alone[:, ::2] = 2
    assert float(_independence(lengths * 0.5 * (alone > 1), alone, columns)) == pytest.approx(
        parts, rel=0.1
    )
    assert float(_independence(torch.full((1, 4), 0.5), two_each[:, :4], columns)) == 1


def test_queries_far_from_all_others_hardly_count_in_mean_and_proportions():
    tasks, labels = batch(3)
    queries = tasks.query.clone()
    queries[:, 0] += 1e8
    found = assigned(labels)
    broken = compared(tasks.with_rows(tasks.support, queries)).queries
    whole = compared(tasks).queries
    assert (broken.influence[:, 0] < 1e-9).all()
    assert (broken.influence[:, 1:] > 0.5).all()
    without = compared(tasks.with_rows(tasks.support, queries[:, 1:])).queries
    torch.testing.assert_close(broken.mean, without.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(without.mean, whole.mean, rtol=0.2, atol=0.3)
    others = torch.nn.functional.one_hot(labels, N_CLASSES).float() * broken.influence.unsqueeze(-1)
    expected = others.sum(1) / others.sum((1, 2)).unsqueeze(-1)
    torch.testing.assert_close(broken.proportions(found), expected)


def test_queries_count_in_proportions_whether_they_counted_in_the_search_or_not():
    """The first search may have taken most queries for copies of each other."""
    tasks, truth = batch(3)
    comparison = compared(tasks)
    masses = torch.nn.functional.one_hot(truth, N_CLASSES).float()
    few = torch.zeros(truth.shape)
    few[0, :4] = 1
    found = Assigned(
        labels=truth, proportions=(masses * few.unsqueeze(-1)).sum(1) / 4, distinct=few
    )
    expected = comparison.queries.proportions(assigned(truth))
    torch.testing.assert_close(comparison.queries.proportions(found), expected)


def test_near_copies_have_the_most_probable_labels_too():
    """They have no assignment by the search, in which only one of them counts."""
    tasks, truth = batch(3)
    repeated = tasks.with_rows(tasks.support, tasks.query.repeat(1, 2, 1))
    calibrated = calibrate(repeated, Parameters(), None)
    search(calibrated, None)
    found = Assigned.of(calibrated.queries)
    assert float(found.distinct.sum()) == N_QUERY
    assert torch.equal(found.labels[:, :N_QUERY], found.labels[:, N_QUERY:])
    assert float((found.labels[:, N_QUERY:] == truth).float().mean()) > 0.9
