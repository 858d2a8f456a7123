"""Likelihoods of queries under classes: what each form says, and how queries update prototypes."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway.core.presence import effective_number
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.evidence.likelihood import (
    ScoreColumns,
    Distances,
    GivenLikelihood,
    columns_of,
    independent_part,
    own_classes,
    query_weights,
)
from manyway.methods.evidence.schedule import Schedule


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """Of two tasks with classes of one to three examples."""
    return calibrate_distances(make_tasks(2, n_classes=4, n_features=6, shots=None), Schedule())


# --- one row, one class ---------------------------------------------------------------------------------------------


def test_the_likelihood_of_a_class_is_a_distance_less_the_error_of_its_prototype(calibration):
    placed = normal(2, 5, 6)
    found = Distances(calibration).of(placed)
    for t in range(2):
        for q in range(5):
            for k in range(4):
                distance = (placed[t, q] - calibration.prototypes.offsets[t, k]).square().sum()
                distance = distance - calibration.within.scatter[t] / calibration.prototypes.counts[t, k]
                torch.testing.assert_close(found[t, q, k], -0.5 * calibration.precision[t] * distance)


@pytest.mark.parametrize("sharpness", [1.0, 0.4])
def test_as_a_product_it_is_the_same_up_to_a_number_per_row(calibration, sharpness):
    placed = normal(1, 5, 6)
    linear = Distances(calibration).linear()
    addend = normal(4, seed=1)
    found = linear.scores(placed[0], sharpness, addend)
    expected = sharpness * Distances(calibration).of(placed.expand(2, -1, -1))[0] + addend
    torch.testing.assert_close(found.log_softmax(-1), expected.log_softmax(-1))
    some = torch.tensor([3, 1])
    torch.testing.assert_close(linear.of_classes(some).scores(placed[0], sharpness, addend[some]), found[:, some])


def test_given_likelihoods_are_what_they_are():
    given = normal(1, 5, 4)
    likelihood = GivenLikelihood(n_samples=torch.ones(1, 4))
    assert torch.equal(likelihood.of(given), given)
    found = likelihood.linear().scores(given[0], 0.5, torch.arange(4.0).double())
    torch.testing.assert_close(found, 0.5 * given[0] + torch.arange(4.0).double())
    some = ScoreColumns(torch.tensor([1, 2, 3])).of_classes(torch.tensor([2, 0]))
    assert some.classes.tolist() == [3, 1]
    assert torch.equal(likelihood.totals(given, torch.ones(1, 5)), given)
    assert likelihood.told == {}


def test_a_group_says_what_its_queries_say_together(calibration):
    """Σ_q u_qg ℓ_qk, up to a number per group, from the sum and the mass of its queries alone."""
    placed = normal(2, 7, 6)
    u = normal(2, 7, 3, seed=1).softmax(-1)
    likelihood = Distances(calibration)
    found = likelihood.totals(u.mT @ placed, u.sum(1))
    expected = u.mT @ likelihood.of(placed)
    torch.testing.assert_close(found - found[..., :1], expected - expected[..., :1])


# --- distances that are compared with those of members --------------------------------------------------------------


def test_members_of_a_class_have_the_length_one_on_average():
    """A member is S(1 + 1/n) from the mean of n samples, squared."""
    tasks = make_tasks(1, n_classes=3, n_features=400, shots=4, n_query=200, spread=2.0)
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    lengths = Distances(calibration).lengths(calibration.coordinates.place(tasks.query))
    assert float(lengths.square().mean()) == pytest.approx(1, abs=0.03)
    doubled = Distances(calibration).lengths(calibration.prototypes.offsets[:, :1] + 100)
    assert float(doubled) > 10


def test_queries_at_the_distance_of_two_members_are_half_alike(calibration):
    scatter = float(calibration.within.scatter[0])
    steps = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64) * (2 * scatter) ** 0.5
    rows = torch.zeros(1, 3, 6, dtype=torch.float64)
    rows[0, :, 0] = steps
    found = Distances(calibration).nearness(rows, rows[:, :1])[0, :, 0]
    expected = [1 / (1 + torch.tensor(2.0 * (far - 1)).exp().item()) for far in (0, 1, 4)]
    assert found.tolist() == pytest.approx(expected)
    torch.testing.assert_close(Distances(calibration).pair_distance(rows), 2 * calibration.within.scatter)


def test_without_distances_queries_are_all_near_and_pairs_are_as_far_as_their_spread():
    given = normal(2, 50, 4)
    likelihood = GivenLikelihood(n_samples=torch.ones(1, 4))
    assert (likelihood.lengths(given) == 0).all()
    assert (likelihood.nearness(given[:1], given[:1, :3]) == 1).all()
    pairs = torch.cdist(given, given).square().mean((1, 2))  # each with itself as well
    torch.testing.assert_close(likelihood.pair_distance(given), pairs)


# --- queries as further samples -------------------------------------------------------------------------------------


def test_prototypes_take_in_their_queries_and_each_query_is_compared_without_itself():
    tasks = make_tasks(3, n_classes=4, n_query=7, shots=None)
    likelihood = Distances(calibrate_distances(tasks, Schedule()))
    calibration, classes = likelihood.calibration, torch.tensor([0, 2, 3])
    groups = classes.expand(3, -1)
    support, query = calibration.coordinates.place(tasks.support), calibration.coordinates.place(tasks.query)
    u, weights = normal(3, 7, 4, seed=2).softmax(-1), torch.tensor([[0.8, 0.5, 0.0]], dtype=torch.float64)
    free = torch.ones(3, 7, 1, dtype=torch.float64)
    free[:, 5] = 0  # a query with a known label counts in no prototype here
    taken = u[..., classes] * free
    updated = likelihood.updated(groups, taken.mT @ query, taken.sum(1), weights.expand(3, -1))
    found = updated(query, u, free, likelihood.of(query))
    assert torch.equal(found[..., 1], likelihood.of(query)[..., 1])  # a class without a group
    for t in range(3):
        scatter, precision = calibration.within.scatter[t], calibration.precision[t]
        for place, k in enumerate(classes.tolist()):
            samples = support[t, tasks.support_labels[t] == k]
            for q in range(7):
                own = weights[0, place] * taken[t, :, place]
                own[q] = 0
                mass = len(samples) + own.sum()
                mean = (samples.sum(0) + own @ query[t]) / mass
                distance = (query[t, q] - mean).square().sum() - scatter / mass
                torch.testing.assert_close(found[t, q, k], -0.5 * precision * distance)


def test_queries_count_as_samples_only_where_several_share_a_class():
    one_class = torch.tensor([[20.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(
        query_weights(one_class), torch.tensor([[0.75, 0, 0, 0]])
    )  # one of four possible classes
    everyone_alone = torch.ones(1, 20)
    torch.testing.assert_close(effective_number(everyone_alone), torch.tensor([20.0]))
    assert (query_weights(everyone_alone) == 0).all()
    all_alike = torch.full((1, 20), 15.0)
    assert (query_weights(all_alike) < 1e-6).all()
    some = query_weights(torch.cat([torch.tensor([6.0, 4.0, 0.9, 0.1]), torch.zeros(30)])[None])
    assert (some[0, :2] > 0.7).all()
    assert (some[0, 2:] == 0).all()  # less than one query


def test_given_likelihoods_have_no_prototypes_to_update():
    given = normal(1, 5, 4)
    likelihood = GivenLikelihood(n_samples=torch.ones(1, 4))
    classes = torch.arange(2)[None]
    updated = likelihood.updated(classes, given[:, :2], torch.ones(1, 2), torch.ones(1, 2))
    assert torch.equal(updated(given, given.softmax(-1), torch.ones(1, 5, 1), given), given)


def test_known_labels_have_one_column_and_others_none():
    like = torch.zeros(1, 3, 4)
    assert own_classes(torch.tensor([[2, -1, 0]]), like).tolist() == [[[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]]


def test_columns_are_those_of_the_classes_of_each_task():
    values = torch.arange(12.0).view(2, 2, 3)
    found = columns_of(values, torch.tensor([[2, 0], [1, 1]]))
    assert found.tolist() == [[[2, 0], [5, 3]], [[7, 7], [10, 10]]]


@pytest.mark.parametrize("n", [1, 4])
def test_queries_that_share_the_error_of_a_prototype_count_as_their_mean_does(n):
    """The mean of m queries has the variance s/m + s/n, and one query s + s/n."""
    for m in (1, 2, 30):
        found = float(independent_part(torch.tensor(float(m)), torch.tensor(1 / (n + 1))))
        assert m * found == pytest.approx((1 + 1 / n) / (1 / m + 1 / n))
    assert float(independent_part(torch.tensor(0.2), torch.tensor(0.5))) == 1  # less than one query
