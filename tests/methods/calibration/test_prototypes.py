"""Prototypes, how far they are shrunk, and what their errors add to squared distances."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway import Tasks
from manyway.methods.calibration import prototypes as module
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.prototypes import leave_one_out


@pytest.mark.parametrize("shots", [2, 8])
def test_prototypes_are_shrunk_where_class_means_differ_no_more_than_by_chance(shots):
    for spread, low, high in ((3.0, 0.9, 1.0), (0.0, 0.0, 0.6)):
        tasks = make_tasks(6, n_classes=20, n_features=12, shots=shots, spread=spread)
        plain = calibrate_distances(tasks, Constants())
        factors = plain.shrunk(Constants()).prototypes.offsets.norm(dim=-1) / plain.prototypes.offsets.norm(dim=-1)
        torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
        assert (low <= factors).all()
        assert (factors <= high).all()


def shortening(shrunk):
    """s_k: prototypes are also shortened by a_k = v_0/v_k, for the variances v_k = 1 + s_k/n_k of their samples.

    β is 1: there are as many differences within classes as classes.
    """
    assert bool((shrunk.within.known(shrunk.prototypes.n_classes) == 1).all())
    variances = 1 + 1 / shrunk.prototypes.counts
    return shrunk.prototypes.trust * variances / variances.amin(-1, keepdim=True)


def test_a_prototype_of_fewer_examples_is_shrunk_more():
    """What is expected of a class is r = ρ/(ρ + 1/n), for one ρ of all classes: r/(1 − r) = ρ n."""
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    shorter = shrunk.prototypes.offsets.norm(dim=-1) / plain.prototypes.offsets.norm(dim=-1)
    torch.testing.assert_close(shrunk.prototypes.trust, shorter)
    expected = shortening(shrunk) * shrunk.prototypes.reach.unsqueeze(-1)
    ratios = expected / (1 - expected) / plain.prototypes.counts
    torch.testing.assert_close(ratios, ratios[:, :1].expand_as(ratios))
    torch.testing.assert_close(shrunk.precision, plain.precision / shrunk.prototypes.trust.mean(-1))


def test_what_all_prototypes_are_shortened_by_counts_half():
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=3)
    shrunk = calibrate_distances(tasks, Constants()).shrunk(Constants())
    torch.testing.assert_close(shrunk.prototypes.trust.amax(-1), shrunk.prototypes.reach)
    assert (shrunk.prototypes.reach < 1).all()
    assert (shrunk.unshrunk().prototypes.reach == 1).all()


def test_shrunk_prototypes_fit_the_moments_of_class_means(monkeypatch):
    """E‖w_k‖² = (1 − 1/K) ρS + S e_k, where ρ is what all factors r = ρ/(ρ + 1/n) have in common."""
    monkeypatch.setattr(module, "_MOMENT_STEPS", 200)  # until nothing changes
    tasks = make_tasks(1, n_classes=12, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    counts, scatter = plain.prototypes.counts[0].tolist(), float(plain.within.scatter)
    expected = (shortening(shrunk) * shrunk.prototypes.reach)[0].tolist()
    ratio = expected[0] / (1 - expected[0]) / counts[0]
    total = weights = 0.0
    for n, offset in zip(counts, plain.prototypes.offsets[0], strict=True):
        length = float(offset @ offset) / scatter
        error = (1 - 2 / 12) / n + sum(1 / other for other in counts) / 12**2
        weight = (ratio + 1 / n) ** -2 / (1 + length / (ratio + 1 / n))  # a far class says no more than others
        total += weight * (length - error)
        weights += weight
    assert ratio * (1 - 1 / 12) == pytest.approx(total / weights)


@pytest.mark.parametrize("few_columns", [0.0, 3.0, 1e6])
def test_a_shrunk_prototype_counts_as_the_samples_of_its_error_as_far_as_features_are_many(few_columns):
    tasks = make_tasks(2, n_classes=9, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants(few_columns=few_columns))
    for t in range(2):
        errors = [float(s / n) for s, n in zip(shortening(shrunk)[t], plain.prototypes.counts[t], strict=True)]
        share = 8 / (8 + few_columns**2)
        counts = [1 / (min(errors) + share * (error - min(errors))) for error in errors]
        assert shrunk.prototypes.counts[t].tolist() == pytest.approx(counts)
        offsets = shrunk.prototypes.trust[t].unsqueeze(-1) * plain.prototypes.offsets[t]
        torch.testing.assert_close(shrunk.prototypes.offsets[t], offsets)


def test_distances_to_shrunk_prototypes_are_those_of_normal_features_for_rows_of_the_usual_length():
    """a d² + S v_0 ln(v/v_0), less what the class with the least variance has beyond S."""
    tasks = make_tasks(1, n_classes=9, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants(), Asked(metric=False))
    shrunk = plain.shrunk(Constants(few_columns=0.0))
    factors = shortening(shrunk)[0]
    expected = factors * shrunk.prototypes.reach[0]
    ratio = (expected / (1 - expected) / plain.prototypes.counts[0])[0]
    scatter = plain.within.scatter[0]
    rows = torch.randn(5, 8, dtype=plain.prototypes.offsets.dtype, generator=torch.Generator().manual_seed(1))
    usual = 1 + (1 - 1 / 9) * ratio + (1 / plain.prototypes.counts[0]).sum() / 9**2
    rows = rows / rows.norm(dim=-1, keepdim=True) * (scatter * usual).sqrt()
    variances = 1 + factors / plain.prototypes.counts[0]
    least = variances.min()
    apart = (rows.unsqueeze(1) - factors.unsqueeze(-1) * plain.prototypes.offsets[0]).square().sum(-1)
    distances = least / variances * apart + scatter * least * (variances / least).log() - scatter * (least - 1)
    torch.testing.assert_close(shrunk.prototypes.squared_distances(rows[None])[0], distances)


def test_classes_of_as_many_examples_are_as_far_as_their_errors_say():
    """Nothing but S s/n is subtracted then."""
    plain = calibrate_distances(make_tasks(2, n_classes=7, n_features=8, shots=3), Constants())
    shrunk = plain.shrunk(Constants())
    torch.testing.assert_close(shrunk.prototypes.trust, shortening(shrunk))
    errors = plain.within.scatter.unsqueeze(-1) * shrunk.prototypes.trust / 3
    torch.testing.assert_close(shrunk.prototypes.errors, errors)
    torch.testing.assert_close(shrunk.prototypes.steepness, shrunk.prototypes.reach)


def test_unshrunk_prototypes_are_the_means_of_their_samples_again():
    tasks = make_tasks(3, n_classes=7, n_features=8, shots=None, spread=0.7)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    assert (shrunk.prototypes.trust < 0.9).any()
    torch.testing.assert_close(shrunk.unshrunk().precision, plain.precision)
    found = shrunk.unshrunk().prototypes
    for name in ("offsets", "trust", "reach", "steepness"):
        torch.testing.assert_close(getattr(found, name), getattr(plain.prototypes, name))
    counts = torch.minimum(shrunk.prototypes.counts, plain.prototypes.examples)
    torch.testing.assert_close(found.counts, counts)
    torch.testing.assert_close(found.errors, plain.within.scatter.unsqueeze(-1) / counts)
    assert torch.equal(plain.unshrunk().prototypes.squares, plain.prototypes.squares)


@pytest.mark.parametrize("counts", [(2, 20), (1, 2, 20), (5,)], ids=str)
def test_members_of_all_classes_are_as_far_as_members_whatever_the_number_of_examples(counts):
    draw = torch.Generator().manual_seed(3)
    centres = torch.randn(30, 200, generator=draw, dtype=torch.float64)
    labels = torch.arange(30).repeat_interleave(torch.tensor(counts)[torch.arange(30) % len(counts)])
    truth = torch.arange(30).repeat_interleave(20)
    examples, items = (centres[of] + 2 * torch.randn(len(of), 200, generator=draw).double() for of in (labels, truth))
    tasks = Tasks.from_arrays(examples[None], labels[None], items[None])
    plain = calibrate_distances(tasks, Constants())
    for calibration in (plain, plain.shrunk(Constants(few_columns=0.0))):
        placed = calibration.coordinates.place(items[None])
        distances = calibration.prototypes.squared_distances(placed)[0, torch.arange(600), truth]
        of_members = calibration.prototypes.of_members(calibration.within.scatter)
        relative = of_members.relative_to_one(distances[None], truth[None])[0]
        for size in range(len(counts)):
            assert relative[truth % len(counts) == size].mean() == pytest.approx(1, abs=0.1)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_query_is_left_out_of_the_prototype_that_it_is_compared_with():
    query, centres = normal(1, 6, 5), normal(1, 2, 5, seed=1)
    counts = torch.tensor([[3.0, 3.0]], dtype=torch.float64)
    weights = torch.zeros(1, 6, 2, dtype=torch.float64)
    weights[0, :4, 0] = weights[0, 4:, 1] = 1.0
    scatter = torch.tensor(0.7, dtype=torch.float64)
    masses = counts + weights.sum(1)
    means = (counts.unsqueeze(-1) * centres + weights.mT @ query) / masses.unsqueeze(-1)
    found = leave_one_out(torch.cdist(query, means).square(), weights, masses.unsqueeze(1), scatter)
    for q in range(6):
        for k in range(2):
            others = [i for i in range(6) if i != q and weights[0, i, k] == 1]
            members = torch.cat([centres[0, k].expand(3, -1), query[0, others]])
            expected = (query[0, q] - members.mean(0)).square().sum() - scatter / len(members)
            torch.testing.assert_close(found[0, q, k], expected)


def test_other_means_bring_their_own_errors():
    plain = calibrate_distances(make_tasks(2, n_classes=4, n_features=6, shots=None), Constants())
    offsets = normal(2, 4, 6)
    counts = plain.prototypes.counts + 2
    errors = plain.within.scatter.unsqueeze(-1) / counts
    found = plain.prototypes.with_means(offsets, counts, plain.within.scatter)
    distances = found.squared_distances(offsets)  # of each prototype to itself and to the others
    torch.testing.assert_close(distances.diagonal(dim1=1, dim2=2), -errors, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.errors, errors)
