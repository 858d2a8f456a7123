"""The metric of evidence: leaving a sample out is exact, both forms agree, and noisy directions count less."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from problems import make_tasks
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.agree import Sizes
from benchmarks.agree import make_tasks as tasks_of_sizes
from manyway import Tasks, solve
from manyway.core.transforms import transform
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.left_out import LeftOut
from manyway.methods.calibration.metric import (
    Contrasts,
    Gram,
    Inner,
    LeftOutRows,
    Scatter,
    _among,
    _shrunk,
    _shrunk_below,
    metrics_of,
    products_among,
    solve_lower,
    times_lower,
)
from manyway.methods.evidence.schedule import Schedule

N_CLASSES, SHOTS = 4, 5


def stretched_task(n_features, *, n_query=40, noise=3.0, seed=0):
    """Classes differ in the first half of the features; in one of the others samples of a class differ much."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(1, N_CLASSES, n_features, generator=generator, dtype=torch.float64)
    means[..., n_features // 2 :] = 0

    def samples(labels):
        spread = 0.5 * torch.randn(1, labels.shape[1], n_features, generator=generator, dtype=torch.float64)
        spread[..., -1] *= 2 * noise
        return means.gather(1, labels.unsqueeze(-1).expand(-1, -1, n_features)) + spread

    labels = torch.arange(N_CLASSES).repeat_interleave(SHOTS)[None]
    queries = torch.arange(n_query)[None] % N_CLASSES
    tasks = Tasks.from_arrays(samples(labels), labels, samples(queries))
    return tasks, queries


def residuals_of(tasks):
    means = torch.stack([tasks.support[0, tasks.support_labels[0] == k].mean(0) for k in range(tasks.n_classes)])
    return means, tasks.support[0] - means[tasks.support_labels[0]]


def contrasts_of(tasks):
    means, _ = residuals_of(tasks)
    counts = torch.full((1, tasks.n_classes), float(SHOTS), dtype=torch.float64)
    return Contrasts.of(tasks, means[None], counts)


def inner_products(metrics, tasks, gamma):
    means, residuals = residuals_of(tasks)
    samples = torch.arange(tasks.n_support)[None]
    prototypes = (means - means.mean(0))[None]
    crossed = metrics.crossed(prototypes)
    plain = Inner.of(residuals[None], prototypes, tasks.support_labels)
    rows = LeftOutRows(samples=samples, labels=tasks.support_labels, residuals=residuals[None])
    inner = metrics.inner(rows, prototypes, crossed, plain)
    return inner(metrics.root(gamma), gamma)


def test_contrasts_span_the_residuals():
    labels = torch.tensor([[2, 0, 1, 0, 2, 0], [1, 1, 1, 0, 2, 2]])  # classes of one, two and three samples
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    member = torch.nn.functional.one_hot(labels).double()
    counts = member.sum(1)
    means = member.mT @ support / counts.unsqueeze(-1)
    residuals = support - member @ means
    contrasts = Contrasts.of(Tasks.from_arrays(support, labels, support), means, counts)
    assert contrasts.rows.shape == (2, 3, 4)
    torch.testing.assert_close(contrasts.rows.mT @ contrasts.rows, residuals.mT @ residuals)
    coefficients = contrasts.coefficients(torch.arange(6), labels)
    torch.testing.assert_close(coefficients @ contrasts.rows, residuals)
    torch.testing.assert_close(coefficients.mT @ coefficients, torch.eye(3, dtype=torch.float64).expand(2, 3, 3))


def test_contrasts_of_weighted_samples_span_the_weighted_residuals():
    labels = torch.tensor([[2, 0, 1, 0, 2, 0], [1, 1, 1, 0, 2, 2]])
    weights = torch.tensor([[0.9, 0.2, 0.5, 1.0, 0.01, 0.7], [1.0, 1.0, 0.3, 1.0, 0.6, 0.6]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    member = torch.nn.functional.one_hot(labels).double() * weights.unsqueeze(-1)
    counts = member.sum(1)
    means = member.mT @ support / counts.unsqueeze(-1)
    residuals = support - means.gather(1, labels.unsqueeze(-1).expand(-1, -1, 4))
    contrasts = Contrasts.of(Tasks.from_arrays(support, labels, support), means, counts, weights)
    scatter = residuals.mT @ (residuals * weights.unsqueeze(-1))
    torch.testing.assert_close(contrasts.rows.mT @ contrasts.rows, scatter)
    coefficients = contrasts.coefficients(torch.arange(6), labels)
    torch.testing.assert_close(coefficients @ contrasts.rows, residuals)


@pytest.mark.parametrize("n_features", [6, 40])  # fewer and more features than samples
@pytest.mark.parametrize("gamma", [0.95, 0.3])
def test_left_out_samples_are_missing_from_their_prototype_and_from_the_metric(n_features, gamma):
    tasks, _ = stretched_task(n_features)
    _, residuals = residuals_of(tasks)
    labels, n_samples = tasks.support_labels[0], tasks.n_support
    freedom = n_samples - N_CLASSES
    scatter = float(residuals.square().sum()) / freedom
    weight = n_features / (freedom * scatter)
    metrics = metrics_of(contrasts_of(tasks), torch.tensor([weight], dtype=torch.float64))
    inner = inner_products(metrics, tasks, gamma)
    plain = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    usual = torch.ones(1, dtype=torch.float64)
    left_out = LeftOut.of(tasks.support_labels, plain.prototypes.counts, plain.within.scatter, usual)
    taken_out = torch.tensor([(1 - gamma) * weight], dtype=torch.float64)
    found = replace(left_out, given=left_out._gain).classified(inner, taken_out)
    for i in range(n_samples):
        others = torch.arange(n_samples) != i
        without = torch.stack([tasks.support[0, others & (labels == k)].mean(0) for k in range(N_CLASSES)])
        rest = tasks.support[0, others] - without[labels[others]]
        metric = (1 - gamma) * weight * rest.T @ rest + gamma * torch.eye(n_features, dtype=torch.float64)
        offsets = tasks.support[0, i] - without
        distances = (offsets @ torch.linalg.inv(metric) * offsets).sum(-1)
        distances = distances - scatter / (torch.bincount(labels[others], minlength=N_CLASSES))
        expected = -(-0.5 * distances).log_softmax(-1)[labels[i]]
        torch.testing.assert_close(found.losses[0, i], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_features", [6, 40])
def test_both_forms_give_the_metric(n_features):
    tasks, _ = stretched_task(n_features)
    _, residuals = residuals_of(tasks)
    weight = torch.tensor([0.3], dtype=torch.float64)
    gamma = torch.tensor([0.4], dtype=torch.float64)
    identity = torch.eye(n_features, dtype=torch.float64)
    metric = 0.6 * 0.3 * residuals.T @ residuals + 0.4 * identity
    found = []
    for form in (Scatter, Gram):
        metrics = form.of(contrasts_of(tasks), weight)
        rows = metrics.whitening(metrics.root(0.4), gamma)(identity[None])[0]
        torch.testing.assert_close(rows @ rows.T, torch.linalg.inv(metric))
        found.append(inner_products(metrics, tasks, 0.4))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    n_contrasts = tasks.n_support - N_CLASSES
    assert isinstance(metrics_of(contrasts_of(tasks), weight), Gram if n_features > n_contrasts else Scatter)


@pytest.mark.parametrize("form", [Scatter, Gram])
def test_without_shrinkage_distances_are_plain(form):
    tasks, _ = stretched_task(6)
    metrics = form.of(contrasts_of(tasks), torch.ones(1, dtype=torch.float64))
    whitening = metrics.whitening(metrics.root(0.5), torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(whitening(tasks.support), tasks.support)


def test_directions_in_which_samples_of_a_class_differ_count_less():
    right = {True: 0, False: 0}
    for seed in range(5):
        tasks, labels = stretched_task(8, seed=seed)
        for metric in right:
            right[metric] += int((solve("evidence", tasks, scale=None, metric=metric).labels == labels).sum())
        assert calibrate_distances(tasks, Schedule()).coordinates.shrinkage < 1
    assert right[True] > right[False]


def test_the_within_class_scatter_of_placed_features_is_that_of_the_features():
    tasks, _ = stretched_task(8)
    calibration = calibrate_distances(tasks, Schedule())
    assert calibration.within.scatter == calibrate_distances(tasks, Schedule(), Asked(metric=False)).within.scatter
    placed = calibration.coordinates.place(tasks.support)
    means = torch.stack([placed[0, tasks.support_labels[0] == k].mean(0) for k in range(N_CLASSES)])
    torch.testing.assert_close(means[None], calibration.prototypes.offsets)


def test_a_metric_is_used_where_left_out_examples_gain_by_it():
    tasks = transform(make_tasks(20, n_classes=6, n_query=5, n_features=65, shots=4, spread=0.5), "rcl2")
    found, plain = (calibrate_distances(tasks, Schedule(), Asked(metric=metric)) for metric in (True, False))
    losses, plain_losses = (one.left_out_losses.sum(-1) for one in (found, plain))
    used = found.coordinates.shrinkage < 1
    assert 0 < used.sum() < 20
    assert (losses[used] < plain_losses[used]).all()
    # Their precision was fitted in fewer steps.
    torch.testing.assert_close(losses[~used], plain_losses[~used], rtol=1e-3, atol=0)


class RoundedProducts(TorchDispatchMode):
    """The factors of products have 10 bits after the point, as tensor cores round them; ``on`` says when."""

    on = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.on and function in (torch.ops.aten.bmm.default, torch.ops.aten.mm.default):
            args = [self._rounded(factor) for factor in args]
        return function(*args, **(kwargs or {}))

    @staticmethod
    def _rounded(factor: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(factor)
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)

    @contextmanager
    def switched(self, on: bool):
        before = self.on
        self.on = on
        yield
        self.on = before


def test_products_of_tensor_cores_choose_the_metric_that_exact_ones_do(monkeypatch):
    """Two values of γ differ by less in their cross-entropies than TF32 throughout would change them: 0.9 %."""
    tasks = transform(tasks_of_sizes(Sizes(n_query=125, n_classes=33, shots=5, n_features=512)), "rcl2")
    exact = calibrate_distances(tasks, Schedule())
    room = "manyway.methods.calibration"
    monkeypatch.setattr(f"{room}.metric.solve_lower", partial(solve_lower, panels=True))
    with RoundedProducts() as products:
        monkeypatch.setattr(f"{room}.metric_choice.tensor_cores", lambda _: products.switched(True))
        monkeypatch.setattr(f"{room}.metric.without_tensor_cores", lambda _: products.switched(False))
        rounded = calibrate_distances(tasks, Schedule())
    assert not torch.equal(rounded.left_out_losses, exact.left_out_losses)
    assert torch.equal(rounded.coordinates.shrinkage, exact.coordinates.shrinkage)
    torch.testing.assert_close(rounded.left_out_losses.sum(-1), exact.left_out_losses.sum(-1), rtol=1e-3, atol=0)


def test_products_of_tensor_cores_doubt_the_labels_that_exact_ones_do(monkeypatch):
    tasks = make_tasks(4, n_classes=5, n_query=5, n_features=130, shots=8, spread=1.0).to(dtype=torch.float32)
    labels = tasks.support_labels.clone()
    labels[:2, ::13] = (labels[:2, ::13] + 1) % 5
    tasks = replace(tasks, support_labels=labels)
    exact = calibrate_distances(tasks, Schedule(), Asked(doubt_labels=True))
    with RoundedProducts() as products:
        room = "manyway.methods.calibration.metric_choice"
        monkeypatch.setattr(f"{room}.tensor_cores", lambda _: products.switched(True))
        rounded = calibrate_distances(tasks, Schedule(), Asked(doubt_labels=True))
    assert (exact.judged.weights < 1).any()
    torch.testing.assert_close(rounded.judged.wrong, exact.judged.wrong, rtol=0, atol=1e-3)


def test_the_metric_is_the_same_in_both_precisions_where_no_left_out_example_is_in_doubt():
    """The cross-entropies add up to 10⁻⁵ nats: as differences of larger numbers, float32 would round them away."""
    tasks = make_tasks(6, n_classes=8, n_query=5, n_features=65, shots=10, spread=2.0)
    single = calibrate_distances(tasks.to(dtype=torch.float32), Schedule())
    double = calibrate_distances(tasks.to(dtype=torch.float64), Schedule())
    assert double.left_out_losses.sum(-1).max() < 1e-3
    assert len(double.coordinates.shrinkage.unique()) > 1
    torch.testing.assert_close(single.coordinates.shrinkage.double(), double.coordinates.shrinkage)
    torch.testing.assert_close(single.left_out_losses.double(), double.left_out_losses, rtol=1e-3, atol=0)


def test_some_of_many_examples_choose_the_metric(monkeypatch):
    tasks, _ = stretched_task(8)
    all_of_them = calibrate_distances(tasks, Schedule())
    monkeypatch.setattr("manyway.methods.calibration.calibrating._MOST_FOR_METRIC", 10)
    some = calibrate_distances(tasks, Schedule())
    assert abs(some.coordinates.shrinkage.log() - all_of_them.coordinates.shrinkage.log()) < 1.5  # one step
    torch.testing.assert_close(some.precision, all_of_them.precision, rtol=0.4, atol=0)
    assert some.precision != all_of_them.precision


@pytest.mark.parametrize("n_features", [6, 30])
def test_of_very_many_classes_no_number_is_kept_for_each_pair(n_features, monkeypatch):
    home, (tasks, _) = "manyway.methods.calibration", stretched_task(n_features)
    monkeypatch.setattr(f"{home}.left_out.MOST_SAMPLES", 3)
    expected, sizes = calibrate_distances(tasks, Schedule()), set()
    monkeypatch.setattr(f"{home}.metric._MANY_CLASSES", 1)
    monkeypatch.setattr(f"{home}.metric._among", lambda *given: sizes.add((found := _among(*given))[0].shape) or found)
    found = calibrate_distances(tasks, Schedule())
    assert sizes == {(1, 3, N_CLASSES)}
    torch.testing.assert_close(found.precision, expected.precision)
    torch.testing.assert_close(found.prototypes.offsets, expected.prototypes.offsets)


@pytest.mark.parametrize("metric", [False, True])
def test_a_given_precision_is_used_as_it_is(metric):
    tasks, _ = stretched_task(6)
    found = calibrate_distances(tasks, Schedule(), Asked(precision=7.0, metric=metric)).precision
    torch.testing.assert_close(found, torch.tensor([7.0]).double())


def test_one_example_per_class_gives_no_metric():
    tasks = make_tasks(2, n_classes=6, n_query=5, shots=1)
    assert calibrate_distances(tasks, Schedule()).coordinates.metric is None


def test_products_are_computed_in_panels(monkeypatch):
    monkeypatch.setattr("manyway.methods.calibration.metric._PANEL", 3)
    rows = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for panels in (True, False):
        torch.testing.assert_close(products_among(rows, panels).tril(), (rows @ rows.mT).tril())


def test_a_triangular_system_is_solved_in_panels(monkeypatch):
    monkeypatch.setattr("manyway.methods.calibration.metric._PANEL", 3)
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, 8, 8, generator=generator, dtype=torch.float64).tril() + 4 * torch.eye(8)
    right = torch.randn(2, 8, 5, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(root @ solve_lower(root, right, panels=True), right)
    torch.testing.assert_close(solve_lower(root[:1], right, panels=True)[0], solve_lower(root, right)[0])


@pytest.mark.parametrize("size", [1, 3, 4, 6, 8])
def test_products_with_a_triangle_leave_out_its_zeros(size, monkeypatch):
    monkeypatch.setattr("manyway.methods.calibration.metric._WIDE_PANEL", 3)
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, size, size, generator=generator, dtype=torch.float64).tril()
    rows = torch.randn(2, 5, size, generator=generator, dtype=torch.float64)
    expected = rows @ root.mT
    torch.testing.assert_close(times_lower(rows, root), expected)
    torch.testing.assert_close(times_lower(rows[:, ::2], root), expected[:, ::2])
    torch.testing.assert_close(times_lower(rows, root[:1])[0], expected[0])
    root[:, :3, 3:] = torch.nan  # is not read
    torch.testing.assert_close(times_lower(rows, root), expected)
    factor = torch.tensor([0.5, 2.0], dtype=torch.float64)
    shrunk = _shrunk_below(root, factor, 2 * factor).tril()
    torch.testing.assert_close(shrunk, _shrunk(root.tril(), factor, 2 * factor).tril().nan_to_num())
