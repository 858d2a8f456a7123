"""The kernels of the representation, beside what they replace in float64: at every edge of their tiles."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from kernel_problems import DEVICE, fuse_everything, there, views
from torch import Tensor

from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks
from manyway.methods.calibration import representation_kernel as kernels
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.representation import Representation, learn_representation


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(limit: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor, tolerance: float = 2e-6) -> None:
    """Within a part of the largest value."""
    apart = (found.cpu().double() - expected.cpu().double()).abs().max()
    assert apart <= tolerance * expected.abs().max().clamp_min(1)


def curve_of(rows: Tensor) -> kernels.Curve:
    lowest = rows.amin(1, keepdim=True) - 0.1
    return kernels.Curve(lowest, torch.linspace(0.5, 1, len(rows)).view(-1, 1, 1))


def place_of(rows: Tensor) -> kernels.Place:
    weights = normal(len(rows), 1, rows.shape[-1], seed=3).abs()
    weights[..., :1] = 0  # a constant column
    columns = torch.linspace(1, 9, len(rows)).view(-1, 1, 1)
    return kernels.Place(rows.mean(1, keepdim=True) + 0.5, weights, columns, columns / (columns + 8))


def curved(rows: Tensor, curve: kernels.Curve) -> Tensor:
    rows = rows.double() - curve.lowest.double()
    return rows.abs().pow(curve.power.double()).copysign(rows)


def scaled(rows: Tensor, place: kernels.Place) -> Tensor:
    return (rows.double() - place.middle.double()) * place.weights.double()


def shortened(rows: Tensor, place: kernels.Place) -> Tensor:
    tiny = torch.finfo(torch.float32).tiny
    squares = rows.square().sum(-1, keepdim=True) / place.columns.double()
    return rows * squares.clamp_min(tiny).pow(-0.5 * place.shortening.double())


EDGES = [
    *((2, n, 64) for n in (1, 2, 31, 32, 33)),
    *((2, 3, d) for d in (1, 2, 5, 15, 16, 17, 127, 128, 129, 130)),
    *((1, 2, d) for d in (1, 2047, 2048, 2049, 8192)),
    (1, 1, 1),
    (5, 1, 3),
]


@pytest.mark.parametrize(("n_tasks", "n_rows", "n_features"), EDGES)
def test_represented_rows_at_the_edges_of_their_tiles(n_tasks, n_rows, n_features):
    table = 3 * normal(7, n_features)
    index = integers(7, n_tasks, n_rows)
    rows = table[index]
    curve, place = curve_of(rows), place_of(rows)
    close(there(kernels.represented)(table, index), rows, 0)
    found = represented(table, index, curve, None)
    close(found, curved(rows, curve))
    close(represented(rows, None, None, place), shortened(scaled(rows, place), place), 4e-6)
    of_both = place_of(found)
    expected = shortened(scaled(curved(rows, curve), of_both), of_both)
    close(represented(table, index, curve, of_both), expected, 1e-5)
    lengths = kernels.squared_lengths(rows.to(DEVICE), moved(place))
    close(lengths, scaled(rows, place).square().sum(-1, keepdim=True))


def moved(one):
    return None if one is None else type(one)(*(tensor.to(DEVICE) for tensor in one))


def represented(rows, index, curve, place):
    index = None if index is None else index.to(DEVICE)
    return kernels.represented(rows.to(DEVICE), index, moved(curve), moved(place)).cpu()


def test_one_row_of_parameters_serves_all_tasks():
    rows = normal(3, 4, 5)
    curve = kernels.Curve(*(one[:1] for one in curve_of(rows)))
    place = kernels.Place(*(one[:1] for one in place_of(rows)))
    each = [type(one)(*(tensor.expand(3, -1, -1) for tensor in one)) for one in (curve, place)]
    assert torch.equal(represented(rows, None, curve, place), represented(rows, None, *each))


def test_the_power_one_changes_no_digit_and_zeros_stay():
    rows = torch.cat([normal(1, 9, 6) * 10.0 ** torch.arange(-20, 25, 5).view(1, -1, 1), torch.zeros(1, 1, 6)], 1)
    curve = kernels.Curve(torch.zeros(1, 1, 6), torch.ones(1, 1, 1))
    assert torch.equal(represented(rows, None, curve, None), rows)
    half = represented(rows, None, curve._replace(power=torch.full((1, 1, 1), 0.5)), None)
    truth = rows.double().abs().sqrt().copysign(rows.double())
    assert ((half.double() - truth).abs() <= 1e-5 * truth.abs()).all()


def test_rows_of_all_kinds_of_memory_are_represented_alike():
    rows = normal(2, 5, 6).to(DEVICE)
    curve, place = moved(curve_of(rows.cpu())), moved(place_of(rows.cpu()))
    expected = kernels.represented(rows, None, curve, place)
    for _, view in views(rows):
        assert torch.equal(kernels.represented(view, None, curve, place), expected)
    same = rows[:1].expand(2, -1, -1)
    assert torch.equal(kernels.represented(same, None, curve, place)[0], expected[0])
    index = torch.arange(5, device=DEVICE).expand(2, -1)
    assert torch.equal(kernels.represented(rows[0], index, curve, place)[0], expected[0])


@pytest.mark.parametrize(
    ("n_tasks", "n_rows", "n_features", "every"),
    [
        *((2, n, 128, 1) for n in (1, 2, 15, 16, 17, 33)),
        *((2, 9, d, 2) for d in (1, 2, 15, 16, 17, 127, 129, 257)),
        (1, 1, 1, 1),
        (3, 10, 3, 4),
    ],
)
def test_columns_at_the_edges_of_their_tiles(n_tasks, n_rows, n_features, every):
    table = normal(30, n_features).exp() + 5
    table[:, -1] = 2.5  # a constant column
    index = integers(30, n_tasks, n_rows)
    rows = table[index].double()
    found = kernels.columns_of(table.to(DEVICE), index.to(DEVICE), every)
    low = rows.amin(1, keepdim=True)
    shown = rows[:, ::every] - low
    centred = shown - shown.mean(1, keepdim=True)
    variance = centred.square().mean(1, keepdim=True)
    close(found.lowest, low, 0)
    close(found.largest, shown.amax(1, keepdim=True))
    close(found.variance, variance)
    spread = variance > 1e-9
    scale = variance.sqrt().where(spread, 1.0)
    skewness = (centred / scale).pow(3).mean(1, keepdim=True) * spread
    close(found.skewness.cpu() * spread, skewness, 1e-4)
    assert found.skewness.isfinite().all()


@pytest.mark.parametrize(
    ("n_tasks", "n_rows", "n_features"),
    [
        *((2, n, 128) for n in (1, 2, 15, 16, 17, 33)),
        *((2, 9, d) for d in (1, 2, 15, 16, 17, 127, 129, 257)),
        (1, 1, 1),
        (5, 3, 2),
    ],
)
def test_moments_at_the_edges_of_their_tiles(n_tasks, n_rows, n_features):
    rows, middles = normal(n_tasks, n_rows, n_features) + 1, normal(n_tasks, 4, n_features, seed=1)
    weights, of = normal(n_tasks, n_rows, seed=2).square(), integers(4, n_tasks, n_rows)
    weights[:, 0] = 0
    each = weights.unsqueeze(-1).double()
    apart = (rows - middles[:, :1]).double()
    squares, fourths = there(kernels.moments)(rows, middles[:, :1], weights)
    close(squares, (each * apart.square()).sum(1, keepdim=True))
    close(fourths, (each * apart.pow(4)).sum(1, keepdim=True))
    factors = normal(n_tasks, 1, n_features, seed=3)
    squares, fourths = there(kernels.moments)(rows, middles[:, :1], weights, factors)
    close(squares, (each * (apart * factors).square()).sum(1, keepdim=True))
    close(fourths, (each * (apart * factors).pow(4)).sum(1, keepdim=True))
    own = middles.gather(1, of.unsqueeze(-1).expand(-1, -1, n_features))
    found = there(kernels.moments)(rows, middles, weights, None, of)[0]
    close(found, (each * (rows - own).double().square()).sum(1, keepdim=True))


@pytest.mark.parametrize(
    ("n_tasks", "n_rows", "n_classes", "n_features"),
    [
        *((2, n, 3, 64) for n in (1, 2, 31, 32, 33, 97)),
        *((2, 6, 3, d) for d in (1, 2, 15, 16, 17, 127, 129)),
        *((1, 3, 2, d) for d in (2047, 2048, 2049, 8192)),
        *((3, 5, k, 4) for k in (1, 5, 40)),
        (1, 1, 1, 1),
    ],
)
def test_class_sums_at_the_edges_of_their_tiles(n_tasks, n_rows, n_classes, n_features):
    table = normal(n_rows + 3, n_features)
    index, labels = integers(n_rows + 3, n_tasks, n_rows), integers(n_classes, n_tasks, n_rows)
    weights = normal(n_tasks, n_rows, seed=2)
    order = labels.argsort(dim=1, stable=True)
    members = torch.nn.functional.one_hot(labels, n_classes)
    starts = torch.nn.functional.pad(members.sum(1).cumsum(1), (1, 0))
    given = moved(kernels.Order(index.gather(1, order), starts))
    rows = table[index]
    sums = kernels.class_sums(table.to(DEVICE), given)
    close(sums, members.mT.double() @ rows.double())
    in_order = weights.gather(1, order).to(DEVICE)
    sums = kernels.class_sums(table.to(DEVICE), given, in_order)
    close(sums, (members * weights.unsqueeze(-1)).mT.double() @ rows.double(), 4e-6)
    curve = curve_of(rows)
    sums = kernels.class_sums(table.to(DEVICE), given, None, moved(curve))
    close(sums, members.mT.double() @ curved(rows, curve), 4e-6)


def learned(tasks: Tasks) -> Representation:
    return learn_representation(tasks, Constants())


def skewed_tasks(shots: int, n_features: int, n_tasks: int, n_classes: int = 4) -> Tasks:
    labels = torch.arange(80) % n_classes
    rows = (0.5 * normal(n_classes, n_features)[labels] + normal(80, n_features, seed=1)).exp()
    rows[:, 0] = 1.5  # a constant column
    spec = TaskSpec(shots=shots, k_eff=2, n_query=6)
    return sample_tasks(FeatureSet(rows, labels), spec, count=n_tasks)


# Every number of shots with every number of features, and both with one task and with several.
CASES = [
    (shots, n_features, (1, 3)[(row + column) % 2])
    for row, shots in enumerate((1, 2, 5))
    for column, n_features in enumerate((2, 5, 17, 130))
]


@pytest.mark.parametrize(("shots", "n_features", "n_tasks"), CASES)
def test_a_representation_learned_by_kernels_is_the_plain_one(shots, n_features, n_tasks, monkeypatch):
    tasks = skewed_tasks(shots, n_features, n_tasks)
    exact = learned(tasks.to(dtype=torch.float64))
    truth = exact.of_tasks(tasks.to(dtype=torch.float64))
    fuse_everything(monkeypatch)
    found = learned(tasks.to(DEVICE))
    for one in fields(Representation):
        close(getattr(found, one.name), getattr(exact, one.name), 1e-3)
    of_rows = found.of_tasks(tasks.to(DEVICE))
    close(of_rows.support, truth.support, 1e-3)
    close(of_rows.query, truth.query, 1e-3)
    close(found(tasks.query.to(DEVICE)), of_rows.query, 0)


def test_tasks_with_one_support_and_tasks_without_an_index(monkeypatch):
    tasks = skewed_tasks(3, 5, 3)
    whole = tasks.with_rows(tasks.support, tasks.query)
    fuse_everything(monkeypatch)
    expected = learned(tasks.to(DEVICE))
    found = learned(whole.to(DEVICE))
    for one in fields(Representation):
        assert torch.equal(getattr(found, one.name), getattr(expected, one.name))
    assert torch.equal(found.of_tasks(whole.to(DEVICE)).support, expected.of_tasks(tasks.to(DEVICE)).support)
    own = found[:1]  # serves all tasks
    assert torch.equal(own(whole.query.to(DEVICE))[:1], found(whole.query.to(DEVICE))[:1])


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2], [2, 1, 0, 0, 1, 2]], ids=["sorted", "in any order"])
def test_the_order_of_examples_decides_nothing(labels, monkeypatch):
    support = normal(2, 6, 5)
    tasks = Tasks.from_arrays(support, [labels, labels], support[:, :1])
    shared = torch.tensor([labels]).expand(2, -1)
    exact = learned(tasks.to(dtype=torch.float64))
    fuse_everything(monkeypatch)
    for given in (tasks.support_labels, shared):
        found = learned(replace(tasks, support_labels=given).to(DEVICE))
        close(found.weights, exact.weights, 1e-3)
        close(found.middle, exact.middle, 1e-4)


def test_rows_that_kernels_cannot_hold_are_left_to_the_plain_code(monkeypatch):
    tasks = skewed_tasks(2, 5, 2)
    expected = learned(tasks)
    doubles = learned(tasks.to(dtype=torch.float64))
    fuse_everything(monkeypatch)
    assert torch.equal(learned(tasks.to(dtype=torch.float64)).weights, doubles.weights)
    monkeypatch.setattr(kernels, "MAX_FEATURES", 4)
    found = learned(tasks)
    assert torch.equal(found.weights, expected.weights)
    assert torch.equal(found.of_tasks(tasks).support, expected.of_tasks(tasks).support)
