"""What is learned from the support, and the queries of a batch as they are placed by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks, piled

from manyway import Tasks
from manyway.methods.calibration.calibration import power_of_few_examples
from manyway.methods.evidence.blocks import InBlocks
from manyway.methods.evidence.calibrate import (
    LearnedBatch,
    calibrate,
    is_one_shot,
    learn_for_batch,
    learn_support,
)
from manyway.methods.evidence.queries import InMemory
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.evidence.search import search


def tasks_of(shots: int | None = 3, n_tasks: int = 2, n_features: int = 8, **more) -> Tasks:
    return make_tasks(n_tasks, n_classes=5, n_query=9, n_features=n_features, shots=shots, **more)


def test_queries_are_placed_where_the_support_says():
    tasks = tasks_of()
    batch = calibrate(tasks, Parameters())
    assert isinstance(batch.queries, InMemory)
    placed = batch.queries.part.placed
    calibration = batch.queries.likelihood.calibration
    distances = (placed.unsqueeze(2) - calibration.prototypes.offsets.unsqueeze(1)).square().sum(-1)
    expected = -0.5 * calibration.precision.view(-1, 1, 1) * (
        distances - calibration.within.scatter.view(-1, 1, 1) / calibration.prototypes.counts.unsqueeze(1)
    )
    torch.testing.assert_close(batch.queries.part.log_likelihood, expected)
    assert set(batch.told) >= {"precision", "shrinkage", "power"}
    assert not batch.one_shot
    assert batch.shift is None


def test_what_was_learned_before_serves_other_queries():
    tasks = tasks_of(n_tasks=1)
    learned = learn_support(tasks, Parameters())
    other = tasks.with_rows(tasks.support, tasks.query[:, :4] + 1)
    again = calibrate(other, Parameters(), learned).queries.part.placed
    torch.testing.assert_close(again, calibrate(other, Parameters()).queries.part.placed)
    torch.testing.assert_close(again, learned.calibration.coordinates.place(learned.scaling(other.query)))
    assert torch.equal(learned.precision, learned.calibration.precision)


@pytest.mark.parametrize("scale", ["range", "tcl2", "power"])
def test_what_depends_on_the_queries_is_not_learned_before_them(scale):
    assert learn_support(tasks_of(), Parameters(scale=scale)) is None


def test_queries_of_a_pile_are_placed_when_they_are_read():
    tasks = tasks_of(n_tasks=1)
    batch = calibrate(piled(tasks, size=4), Parameters())
    assert isinstance(batch.queries, InBlocks)
    assert batch.make_prototypes is None
    rows = []
    batch.queries.pile.each(lambda block, memory: (rows.append(block), memory), batch.queries.memory)
    expected = calibrate(tasks, Parameters()).queries.part.placed
    torch.testing.assert_close(torch.cat(rows, 1), expected)
    assert learn_support(tasks, Parameters()).place(piled(tasks)) is None


def test_one_example_of_each_class_is_one_shot():
    assert is_one_shot(tasks_of(1))
    assert not is_one_shot(tasks_of(None))
    assert calibrate(tasks_of(1), Parameters()).one_shot


# --- how sure to be -------------------------------------------------------------------------------------------------


def test_the_power_follows_from_the_number_of_left_out_examples():
    calibration = learn_support(tasks_of(None), Parameters()).calibration
    torch.testing.assert_close(calibration.power, power_of_few_examples(calibration.prototypes.examples, Schedule()))


def test_with_one_example_per_class_few_columns_make_answers_less_sure():
    powers = []
    for n_features in (1, 8, 200):
        learned = learn_support(tasks_of(1, n_features=n_features), Parameters())
        columns = learned.scaling.effective_columns.flatten()
        expected = columns.square() / (columns.square() + Schedule().few_columns ** 2)
        torch.testing.assert_close(learned.calibration.power, expected)
        powers.append(float(learned.calibration.power.mean()))
    assert powers == sorted(powers)
    plain = learn_support(tasks_of(1), Parameters(scale=None))
    assert (plain.calibration.power == 1).all()


# --- what is done to a calibration at last --------------------------------------------------------------------------


def test_prototypes_are_shrunk_where_their_errors_can_be_known():
    several = learn_support(tasks_of(3), Parameters()).calibration
    assert (several.prototypes.trust < 1).all()
    for tasks, parameters in ((tasks_of(1), Parameters()), (tasks_of(3), Parameters(precision=2.0))):
        assert (learn_support(tasks, parameters).calibration.prototypes.trust == 1).all()


def test_a_given_precision_stays_as_it_is_also_where_one_class_has_a_second_example():
    tasks = tasks_of(1)
    labels = torch.cat([tasks.support_labels, tasks.support_labels[:, :1]], 1)
    again = tasks.support + 0.1 * tasks.support.roll(1, 1)
    support = torch.cat([tasks.support, again[:, :1]], 1)
    uneven = Tasks.from_arrays(support, labels, tasks.query)
    learned = learn_support(uneven, Parameters(precision=0.7))
    torch.testing.assert_close(learned.precision, torch.full_like(learned.precision, 0.7))


def test_clumps_are_measured_for_open_sets_alone_and_count_less_in_rows_of_equal_length():
    tasks = tasks_of(6, seed=3, spread=0.5)
    closed = learn_support(tasks, Parameters()).calibration
    assert (closed.clumped == 0).all()
    learned = learn_support(tasks, Parameters(open_set=True))
    plain = learn_support(tasks, Parameters(open_set=True, scale=None))
    assert (plain.calibration.clumped > 0).any()
    assert (learned.calibration.clumped <= 1 - learned.scaling.shortening.flatten()).all()


def test_prototypes_are_tuned_where_that_is_asked_for():
    tasks = tasks_of(6, spread=0.5)
    means = learn_support(tasks, Parameters()).calibration.prototypes.offsets
    for parameters, moved in (
        (Parameters(likelihood="logistic"), True),
        (Parameters(likelihood="auto", open_set=True), False),
    ):
        found = learn_support(tasks, parameters).calibration.prototypes.offsets
        assert (not torch.allclose(found, means)) == moved


# --- prototypes of examples and queries, and further classes --------------------------------------------------------


@pytest.mark.parametrize("update", [True, False])
def test_prototypes_are_means_of_examples_and_of_queries_as_far_as_these_count(update):
    tasks = tasks_of(None)
    batch = calibrate(tasks, Parameters(update_prototypes=update, scale=None))
    search(batch, None)
    u = batch.queries.u
    found = batch.make_prototypes()
    for t in range(2):
        masses = u[t].sum(0)
        shares = masses[masses > 0] / masses.sum()
        number = float(torch.exp(-(shares * shares.log()).sum()))
        agreed = max(0.0, 1 - number / 5)
        for k in range(5):
            members = tasks.support[t, tasks.support_labels[t] == k]
            weights = u[t, :, k] * (agreed if masses[k] > 1 and update else 0.0)
            mean = (members.sum(0) + weights @ tasks.query[t]) / (len(members) + weights.sum())
            torch.testing.assert_close(found[t, k], mean, rtol=0, atol=1e-6)


def test_a_query_can_be_the_one_sample_of_a_further_class():
    tasks = tasks_of(n_tasks=1)
    placed = learn_for_batch(tasks, Parameters())
    batch = LearnedBatch.of(placed, tasks)
    assert torch.equal(batch.placed, placed.rows)
    more = batch.with_classes([4, 2], [0, 1, 2, 3])
    assert more.movable is None
    assert more.shift is None
    assert torch.equal(more.place(tasks), placed.rows[:, :4])
    calibration = more.calibration
    assert calibration.prototypes.counts[0, 5:].tolist() == [1, 1]
    nearest = calibration.prototypes.squared_distances(placed.rows[:, [4, 2]])[0].argmin(-1)
    assert nearest.tolist() == [5, 6]
    assert torch.equal(calibration.prototypes.offsets[:, :5], batch.calibration.prototypes.offsets)


def test_near_copies_among_the_examples_teach_nothing():
    tasks = tasks_of(3, n_tasks=1, n_features=40)
    twice = replace(
        tasks,
        support_table=torch.cat([tasks.support, tasks.support], 1),
        support_index=None,
        support_labels=torch.cat([tasks.support_labels, tasks.support_labels], 1),
    )
    once = learn_support(tasks, Parameters()).calibration
    found = learn_support(twice, Parameters()).calibration
    torch.testing.assert_close(found.prototypes.offsets, once.prototypes.offsets)
    torch.testing.assert_close(found.prototypes.examples, once.prototypes.examples)
