"""Examples that are left out in turn: which, among which prototypes, and what they say about the precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway import Tasks
from manyway.methods.calibration import left_out as module
from manyway.methods.calibration.left_out import (
    MOST_SAMPLES,
    LeftOut,
    _weighted_median,
    can_leave_out,
    left_out_samples,
    ranks_of,
)
from manyway.methods.calibration.metric import Inner, rows_of

# --- which examples are left out ------------------------------------------------------------------------------------


def labels_of(*counts: int) -> tuple[Tensor, Tensor]:
    """Shuffled labels [1, s] of classes with so many examples, and the counts [1, k]."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return labels[order][None], torch.tensor([counts], dtype=torch.float64)


@pytest.mark.parametrize("shots", [1, 2, None])
def test_a_sample_can_be_left_out_unless_each_class_has_one(shots):
    assert can_leave_out(make_tasks(2, n_classes=5, shots=shots)) == (shots != 1)


def test_all_of_few_examples_are_left_out():
    labels, numbers = labels_of(3, 9, 1)
    found = left_out_samples(labels, numbers)[0]
    assert sorted(found.tolist()) == list(range(13))
    assert labels[0, found].tolist() == [0] * 3 + [1] * 9 + [2]  # class after class


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((400, 400, 400), (170, 170, 170)),  # and two more
        ((1000, 20, 300), (246, 20, 246)),
        ((600, 3), (509, 3)),
    ],
)
def test_of_many_each_class_gives_an_equal_share_as_far_as_it_has_them(counts, expected):
    labels, numbers = labels_of(*counts)
    found = left_out_samples(labels, numbers)[0]
    assert len(found) == len(found.unique()) == MOST_SAMPLES
    taken = labels[0, found].bincount(minlength=len(counts))
    assert (taken >= torch.tensor(expected)).all()
    of_class = labels[0, found]
    assert (of_class.diff() >= 0).all()
    assert all((found[of_class == k].diff() > 0).all() for k in range(len(counts)))


def test_those_of_a_class_are_evenly_spaced():
    labels = torch.arange(2).repeat_interleave(1024)[None]
    found = left_out_samples(labels, torch.full((1, 2), 1024.0))[0]
    assert (found.diff() == 4).all()


def test_of_more_classes_than_can_be_left_out_every_so_many_examples_are():
    labels = torch.arange(600).repeat(2)[None]
    class_after_class = [place for k in range(600) for place in (k, 600 + k)]
    assert left_out_samples(labels, torch.full((1, 600), 2.0))[0].tolist() == class_after_class[::3]


def test_tasks_that_share_their_labels_share_what_is_left_out():
    labels, counts = labels_of(1000, 300)
    found = left_out_samples(labels.expand(3, -1), counts.expand(3, -1))
    assert torch.equal(found, left_out_samples(labels, counts).expand(3, -1))


def test_tasks_whose_labels_lie_side_by_side_in_memory_keep_their_own():
    labels = torch.cat([labels_of(1000, 300)[0], labels_of(300, 1000)[0]])
    counts = torch.tensor([[1000.0, 300.0], [300.0, 1000.0]]).double()
    assert not torch.equal(*left_out_samples(labels, counts))
    for one in (labels, labels.T.contiguous().T):
        found = left_out_samples(one, counts)
        for t in range(2):
            assert torch.equal(found[t], left_out_samples(labels[t : t + 1], counts[t : t + 1])[0])


def test_ranks_are_the_numbers_of_earlier_examples_of_the_class():
    labels = torch.tensor([[2, 0, 2, 2, 1, 0], [1, 1, 0, 2, 1, 0]])
    counts = torch.tensor([[2.0, 1.0, 3.0], [2.0, 3.0, 1.0]])
    expected = [[int((row[:i] == row[i]).sum()) for i in range(6)] for row in labels]
    assert ranks_of(labels, counts).tolist() == expected


@pytest.mark.parametrize(("n_classes", "equal"), [(3, False), (MOST_SAMPLES + 1, True)])
def test_samples_of_large_classes_weigh_less_unless_there_are_more_classes_than_samples_left_out(n_classes, equal):
    counts = torch.full((1, n_classes), 2.0).index_fill(1, torch.tensor([0]), 40.0)
    labels = torch.arange(n_classes).repeat_interleave(counts[0].long())[None]
    one = torch.ones(1)
    weights = LeftOut.of(labels, counts, scatter=one, usual=one).usable[0]
    assert bool((weights == weights[-1]).all()) == equal
    assert equal or float(weights[0]) < float(weights[-1])


def test_weights_sum_to_the_number_of_equal_samples_that_would_say_as_much():
    labels, counts = labels_of(1, 2, 12)
    one = torch.ones(1).double()
    found = LeftOut.of(labels, counts, one, one).usable[0]
    of_class = [0.0, 2**-0.5, 12**-0.5]  # the only one of a class counts nothing
    plain = torch.tensor(of_class).double()[labels[0]]
    torch.testing.assert_close(found, plain * plain.sum() / plain.square().sum())
    equal = LeftOut.of(*labels_of(3, 3), one, one).usable
    assert (equal == 1).all()


# --- what they say --------------------------------------------------------------------------------------------------


def problem(shots: int | None = None) -> tuple[Tasks, LeftOut, Inner, Tensor]:
    """One task with classes of one to three examples, all left out in turn; inner products, and prototypes."""
    tasks = make_tasks(1, n_classes=5, n_features=6, shots=shots, spread=0.8)
    labels = tasks.support_labels
    means = torch.stack([tasks.support[0, labels[0] == k].mean(0) for k in range(5)])[None]
    counts = labels[0].bincount(minlength=5)[None].double()
    scatter = torch.tensor([2.5]).double()
    usual = torch.tensor([0.7]).double()
    left_out = LeftOut.of(labels, counts, scatter, usual)
    middle = means.mean(1, keepdim=True)
    prototypes = means - middle
    residuals = tasks.support - middle - rows_of(prototypes, labels)
    return tasks, left_out, Inner.of(residuals, prototypes, labels), prototypes + middle


def naive_distances(tasks: Tasks, scatter: float) -> Tensor:
    """[s, k] to the means of the others, less the expected error of these; NaN where there is no other."""
    support, labels = tasks.support[0], tasks.support_labels[0]
    found = torch.full((len(labels), tasks.n_classes), torch.nan).double()
    for i in range(len(labels)):
        for k in range(tasks.n_classes):
            members = (labels == k) & (torch.arange(len(labels)) != i)
            n = int(members.sum())
            if n:
                found[i, k] = (support[i] - support[members].mean(0)).square().sum() - scatter / n
    return found


def test_an_example_is_compared_with_the_means_of_the_others():
    tasks, left_out, _, prototypes = problem()
    found = left_out.distances(tasks.support, prototypes)[0]
    expected = naive_distances(tasks, 2.5)
    known = expected.isfinite()
    torch.testing.assert_close(found[known], expected[known])
    assert (left_out.usable[0] > 0).tolist() == known.all(1).tolist()


def test_losses_are_weighted_cross_entropies():
    tasks, left_out, inner, _ = problem()
    given = torch.tensor([0.9]).double()
    answers = replace(left_out, given=given).classified(inner)
    torch.testing.assert_close(answers.precision, given)  # it is not learned
    labels = tasks.support_labels[0]
    scores = -0.5 * 0.9 / float(left_out._gain) * naive_distances(tasks, 2.5)
    for i in range(len(labels)):
        if left_out.usable[0, i] > 0:
            expected = -scores[i].log_softmax(-1)[labels[i]] * left_out.usable[0, i]
            torch.testing.assert_close(answers.losses[0, i], expected)
        else:
            assert answers.losses[0, i] == 0


@pytest.mark.parametrize(("usual", "near"), [(0.7, None), (0.7, 0.4), (100.0, None)])
def test_the_precision_minimises_their_sum_and_the_prior(usual, near):
    """ln τ is Normal(ln usual, 1); what is left is what n samples are more precise than n − 1."""
    tasks, left_out, inner, _ = problem(shots=3)
    left_out = replace(left_out, usual=torch.full_like(left_out.usual, usual))
    start = None if near is None else torch.tensor([near]).double()
    answers = left_out.classified(inner, near=start)
    distances = naive_distances(tasks, 2.5)
    labels = tasks.support_labels[0]
    log_precision = (answers.precision / left_out._gain).log().requires_grad_()
    with torch.enable_grad():
        scores = -0.5 * log_precision.exp() * distances
        loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
        loss = loss + (log_precision - left_out.usual.log()).square().sum() / 2
        (slope,) = torch.autograd.grad(loss, log_precision)
    assert abs(float(slope)) < 5e-3


def test_prototypes_of_all_examples_are_as_much_more_precise_as_their_error_is_smaller():
    """S + S/(n − 1) against S + S/n: half of the relative difference, on the safe side."""
    for shots in (2, 3):
        _, left_out, _, _ = problem(shots=shots)
        ratio = (1 + 1 / (shots - 1)) / (1 + 1 / shots)
        assert float(left_out._gain) == pytest.approx(1 + (ratio - 1) / 2)


def test_the_spread_is_the_mean_of_unbiased_squares_and_at_most_twice_their_median():
    tasks, left_out, inner, _ = problem(shots=3)
    residuals = tasks.support[0] - torch.stack(
        [tasks.support[0, tasks.support_labels[0] == k].mean(0) for k in range(5)]
    )[tasks.support_labels[0]]
    squares = residuals.square().sum(-1) * 3 / 2
    assert squares.mean() < 2 * squares.median()
    assert float(left_out.classified(inner).spread) == pytest.approx(float(squares.mean()))
    far = squares.clone()
    far[0] = 1e6
    assert float(left_out._spread(far[None])) == pytest.approx(2 * float(far.median()))


def test_the_median_is_the_smallest_value_with_half_of_all_weights_up_to_it():
    drawn = torch.Generator().manual_seed(0)
    values, weights = (torch.rand(4, 9, generator=drawn).double() for _ in range(2))
    values[1, [2, 5]] = torch.nan  # they do not count
    expected = []
    for row, own in zip(values, weights, strict=True):
        known = ~row.isnan()
        reached = [value for value in row[known] if own[known & (row <= value)].sum() >= own[known].sum() / 2]
        expected.append(float(min(reached)))
    assert _weighted_median(values, weights).tolist() == expected


def test_the_noise_is_the_deviation_of_their_excess():
    tasks, left_out, inner, _ = problem(shots=3)
    own = naive_distances(tasks, 2.5)[torch.arange(15), tasks.support_labels[0]]
    excess = (own - 2.5) / (1 + 1 / 2)
    found = float(left_out.classified(inner).noise)
    assert found == pytest.approx(float(excess.std(unbiased=False)))


@pytest.mark.parametrize("scatter", [2.5, 1e-4, 0.0])
def test_the_noise_of_examples_that_are_equally_far_is_a_small_part_of_the_scatter(scatter):
    _, left_out, _, _ = problem(shots=3)
    alike = replace(left_out, scatter=torch.tensor([scatter]).double())
    found = float(alike._noise(torch.full((1, 15), 7.0).double()))
    assert found == pytest.approx(module._LEAST_NOISE * scatter)
    assert found > 0


def test_distances_can_be_stretched_to_a_scatter():
    tasks, left_out, inner, _ = problem(shots=3)
    plain = left_out.classified(inner)
    stretched = left_out.classified(inner, spread=4 * plain.spread)
    assert float(stretched.spread) == pytest.approx(float(plain.spread))  # what was found, before it
    doubled = Tasks.from_arrays(2 * tasks.support, tasks.support_labels, 2 * tasks.query)
    own = naive_distances(doubled, 2.5)[torch.arange(15), tasks.support_labels[0]]
    assert float(stretched.noise) == pytest.approx(float(((own - 2.5) / 1.5).std(unbiased=False)))


def test_some_of_the_examples_are_those_at_even_places():
    _, left_out, _, _ = problem()
    some = left_out.some(3)
    assert torch.equal(some.labels, left_out.labels[:, ::3])
    assert torch.equal(some.usable, left_out.usable[:, ::3])
    assert torch.equal(some.own_counts, left_out.own_counts[:, ::3])


def test_fewer_newton_steps_suffice_near_the_answer(monkeypatch):
    _, left_out, inner, _ = problem(shots=3)
    best = left_out.classified(inner).precision
    monkeypatch.setattr(module, "_REFIT_STEPS", 1)
    torch.testing.assert_close(left_out.classified(inner, near=best).precision, best)
