"""Every fused path at its edges: sizes around each block and limit, other orders in memory, other types of numbers.

The plain version is the truth. Sizes are 1, at and one above what a block holds, and what the path admits.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kernel_problems import DEVICE, QUESTIONS, fuse_everything, there, views
from problems import make_tasks

import manyway
from manyway import METHODS, FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.core import random as draws
from manyway.core.kernels import halves, launch, rows, subset
from manyway.core.ops import class_sums, prototypes
from manyway.core.tasks import mapped
from manyway.core.transforms import transform, unit
from manyway.methods.calibration import left_out_kernel, log_sums_kernel, metric
from manyway.methods.calibration.left_out import LeftOut
from manyway.methods.calibration.log_sums import log_sums
from manyway.methods.calibration.metric import Inner
from manyway.methods.calibration.root_kernel import inverse_root
from manyway.methods.evidence import kernel as search_kernel
from manyway.methods.evidence.dense import Dense, fused_search
from manyway.methods.evidence.loop import anneal_and_iterate
from manyway.methods.evidence.prior import Concentrations
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.gradient import kernel as steps_of_tim
from manyway.methods.gradient.information import Euclidean, Information, descend
from manyway.methods.ici import logistic
from manyway.methods.paddle import kernel as loop
from manyway.methods.paddle.forms import GramForm, prototype_form
from manyway.sampling import sampling


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(limit: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found.cpu().to(expected.dtype), expected, rtol=tolerance, atol=tolerance)


def refuse(*arguments, **keywords):
    raise AssertionError("the kernel was started")


# PADDLE's loop: 32 classes per block, two blocks of queries (their edges are in test_kernels), at most 128 queries.


def gram_form(**sizes: int) -> GramForm:
    form = prototype_form(transform(make_tasks(dtype=torch.float32, **sizes), "range"), "gram")
    assert isinstance(form, GramForm)
    return form


def loop_of(form: GramForm, tol: float | None = None, weight: float = 1.0) -> torch.Tensor:
    form = mapped(form, lambda tensor: tensor.to(DEVICE))
    return loop.iterate(form, weight=weight, eps=1e-6, max_iter=3, tol=tol)[0].cpu()


@pytest.mark.parametrize("n_classes", [1, 2, 31, 32, 33, 65])
@pytest.mark.parametrize(("n_query", "n_tasks"), [(1, 1), (32, 2)])
def test_the_loop_at_the_edges_of_its_blocks_of_classes(n_query, n_tasks, n_classes):
    sizes = {"n_tasks": n_tasks, "n_classes": n_classes, "n_query": n_query}
    tasks = make_tasks(dtype=torch.float32, **sizes)
    close(loop_of(gram_form(**sizes)), solve("paddle", tasks, max_iter=3, form="gram").probabilities)


@pytest.mark.filterwarnings("ignore:paddle did not converge")
@pytest.mark.parametrize("n_query", [16, 32, 128])
def test_the_loop_with_a_tolerance_and_without_duals_where_blocks_are_full(n_query):
    sizes = {"n_tasks": 2, "n_classes": 5, "n_query": n_query}
    tasks = make_tasks(dtype=torch.float32, **sizes)
    expected = solve("paddle", tasks, max_iter=3, tol=1e-9, form="gram").probabilities
    close(loop_of(gram_form(**sizes), tol=1e-9), expected)
    close(loop_of(gram_form(**sizes), weight=0.0), solve("soft-kmeans", tasks, max_iter=3, form="gram").probabilities)


def test_the_loop_reads_any_order_in_memory():
    form = mapped(gram_form(n_tasks=2, n_classes=5, n_query=32), lambda tensor: tensor.to(DEVICE))
    expected = loop_of(form)
    names = ("gram", "cross", "sum_norms", "counts")
    for kind in ("transposed", "strided", "behind others"):
        other = {name: dict(views(getattr(form, name)))[kind] for name in names}
        assert torch.equal(loop_of(replace(form, **other)), expected)
    same = {name: getattr(form, name)[:1].expand(3, *getattr(form, name).shape[1:]) for name in ("gram", "cross")}
    norms = {name: getattr(form, name)[:1].expand(3, -1) for name in ("sum_norms", "counts")}
    assert torch.equal(loop_of(replace(form, **same, **norms)), expected[:1].expand(3, -1, -1))


def test_the_loop_refuses_other_types():
    with pytest.raises(ValueError, match=r"must be torch\.float32"):
        loop_of(mapped(gram_form(n_query=5), torch.Tensor.double))


# The search of evidence: a tile of 2,048 assignments, 64 classes per block of the prior, at most 2,048 classes.


def searched(likelihood: torch.Tensor, n_alphas: int = 3, *, by_kernel: bool) -> torch.Tensor:
    schedule = Schedule(anneal_steps=2)
    parameters = Parameters(schedule=vars(schedule), max_iter=2, tol=1e-3)
    n_query, n_classes = likelihood.shape[1:]
    grid = torch.logspace(-2, 0, n_alphas, dtype=torch.float64)
    prior = Concentrations.of(grid, n_query, n_classes, likelihood.dtype, likelihood.device)
    function = fused_search if by_kernel else anneal_and_iterate
    return function(Dense.of(likelihood), prior, parameters).queries.u.cpu()


@pytest.mark.parametrize(
    ("n_query", "n_classes"),
    [
        *((n_query, 3) for n_query in (1, 2, 128, 129)),
        *((5, n_classes) for n_classes in (1, 2, 16, 17, 32, 33, 64, 65)),
        (2, 2047),
        (2, 2048),
    ],
)
def test_the_search_at_the_edges_of_its_tiles(n_query, n_classes, monkeypatch):
    likelihood = 3 * normal(1, n_query, n_classes)
    expected = searched(likelihood.double(), by_kernel=False)
    fuse_everything(monkeypatch)
    close(searched(likelihood.to(DEVICE), by_kernel=True).double(), expected, 1e-4)


@pytest.mark.parametrize("n_alphas", [1, 2, 4, 5])
def test_the_search_with_any_number_of_concentrations(n_alphas, monkeypatch):
    likelihood = 3 * normal(2, 6, 5)
    expected = searched(likelihood.double(), n_alphas, by_kernel=False)
    fuse_everything(monkeypatch)
    close(searched(likelihood.to(DEVICE), n_alphas, by_kernel=True).double(), expected, 1e-4)


def test_the_search_reads_any_order_in_memory(monkeypatch):
    fuse_everything(monkeypatch)
    likelihood = 3 * normal(2, 16, 16).to(DEVICE)
    expected = searched(likelihood, by_kernel=True)
    for _, view in views(likelihood):
        assert torch.equal(searched(view, by_kernel=True), expected)
    assert torch.equal(searched(likelihood[:1].expand(3, -1, -1), by_kernel=True), expected[:1].expand(3, -1, -1))


@pytest.mark.parametrize(
    "likelihood",
    [normal(1, 2, 2049), normal(1, 5, 2).double(), normal(1, 9, 8)],
    ids=["too many classes", "float64", "too many pairs"],
)
def test_the_search_leaves_to_the_plain_code_what_its_kernel_cannot_do(likelihood, monkeypatch):
    expected = searched(likelihood, by_kernel=False)
    fuse_everything(monkeypatch)
    monkeypatch.setattr(search_kernel, "MAX_PAIRS", 8 * 8 if likelihood.shape[1] == 9 else search_kernel.MAX_PAIRS)
    monkeypatch.setattr(search_kernel, "search", refuse)
    assert torch.equal(searched(likelihood, by_kernel=True), expected)


# The classification of left-out samples: a tile of 2,048 distances, at most 2,048 classes.


def left_out(n_tasks: int, n_samples: int, n_classes: int) -> tuple[LeftOut, Inner]:
    labels = integers(n_classes, n_tasks, n_samples)
    inner = Inner.of(0.7 * normal(n_tasks, n_samples, 4), normal(n_tasks, n_classes, 4, seed=1), labels)
    counts = torch.full((n_tasks, n_classes), 3.0)
    own_counts = torch.full((n_tasks, n_samples), 3.0)
    usual = torch.linspace(1, 2, n_tasks)
    given = LeftOut(
        labels=labels,
        counts=counts,
        scatter=2 * usual,
        usual=usual,
        own_counts=own_counts,
        own_weights=torch.ones_like(own_counts),
        usable=torch.ones(n_tasks, n_samples),
    )
    return given, inner


def classified(given: LeftOut, inner: Inner) -> list[torch.Tensor]:
    given = mapped(given, lambda tensor: tensor.to(DEVICE))
    inner = Inner(*(tensor.to(DEVICE) for tensor in inner))
    weight = torch.full_like(given.usual, 0.02)
    found = given.classified(replace_products(inner), weight, 3 * torch.ones_like(weight))
    return [tensor.cpu() for tensor in found]


def replace_products(inner: Inner) -> Inner:
    """The kernel overwrites the products: a copy with the same order in memory."""
    copy = torch.empty_strided(inner.products.shape, inner.products.stride(), device=inner.products.device)
    return inner._replace(products=copy.copy_(inner.products))


@pytest.mark.parametrize(
    ("n_samples", "n_classes"),
    [
        *((n_samples, 3) for n_samples in (1, 2, 127, 128, 129)),
        *((5, n_classes) for n_classes in (1, 2, 15, 16, 17, 2047, 2048)),
    ],
)
def test_left_out_samples_at_the_edges_of_their_tiles(n_samples, n_classes, monkeypatch):
    given, inner = left_out(1, n_samples, n_classes)
    expected = classified(given, inner)
    fuse_everything(monkeypatch)
    for found, truth in zip(classified(given, inner), expected, strict=True):
        close(found, truth, 2e-4)


@pytest.mark.parametrize(("n_samples", "n_classes"), [(1, 1), (5, 3), (129, 3), (5, 17), (3, 2048)])
@pytest.mark.parametrize("weight", [None, 0.02])
def test_distances_of_left_out_samples_at_the_edges_of_their_tiles(n_samples, n_classes, weight, monkeypatch):
    given, _ = left_out(2, n_samples, n_classes)
    samples, prototypes = normal(2, n_samples, 4, seed=2), normal(2, n_classes, 4, seed=1)
    in_metric = None if weight is None else torch.full((2,), weight)
    expected = given.distances(samples, prototypes, in_metric)
    fuse_everything(monkeypatch)
    there_given = mapped(given, lambda tensor: tensor.to(DEVICE))
    moved = None if in_metric is None else in_metric.to(DEVICE)
    found = there_given.distances(samples.to(DEVICE), prototypes.to(DEVICE), moved)
    close(found, expected, 1e-4)


def test_left_out_samples_are_read_in_any_order_in_memory(monkeypatch):
    fuse_everything(monkeypatch)
    given, inner = left_out(2, 6, 5)
    expected = classified(given, inner)
    for kind in ("transposed", "strided", "behind others"):
        labels, products, gram = (dict(views(one))[kind] for one in (given.labels, inner.products, inner.gram))
        answers = classified(replace(given, labels=labels), inner._replace(products=products, gram=gram))
        for found, truth in zip(answers, expected, strict=True):
            assert torch.equal(found, truth)


@pytest.mark.parametrize("n_classes", [3, 2049])
def test_left_out_samples_are_left_to_the_plain_code_where_the_kernel_cannot_help(n_classes, monkeypatch):
    given, inner = left_out(1, 4, n_classes)
    if n_classes == 3:
        given = mapped(given, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
        inner = Inner(*(tensor.double() for tensor in inner))
        monkeypatch.setattr(metric, "fused", lambda tensor: True)
    expected = given.classified(inner)
    fuse_everything(monkeypatch)
    monkeypatch.setattr(left_out_kernel, "fit", refuse)
    for found, truth in zip(given.classified(inner), expected, strict=True):
        assert torch.equal(found, truth)


# Logarithms of sums of likelihoods: a tile of 2,048 distances, at most 2,048 classes.


def distances_and_precisions(n_rows: int, n_classes: int, n_precisions: int = 3) -> list[torch.Tensor]:
    distances = normal(2, n_rows, n_classes).square()
    distances[0, 0] = torch.inf  # no class counts
    distances[1, 0, 0] = torch.inf
    return [distances, 30 * normal(n_precisions, 2, seed=1).square()]


@pytest.mark.parametrize(
    ("n_rows", "n_classes"),
    [
        *((n_rows, 3) for n_rows in (1, 2, 63, 64, 65, 127, 128, 129)),
        *((5, n_classes) for n_classes in (1, 2, 15, 16, 17, 2047, 2048)),
    ],
)
def test_sums_of_likelihoods_at_the_edges_of_their_tiles(n_rows, n_classes, monkeypatch):
    given = distances_and_precisions(n_rows, n_classes)
    expected = log_sums(*(one.double() for one in given))
    fuse_everything(monkeypatch)
    close(log_sums(*(one.to(DEVICE) for one in given)), expected.float())


@pytest.mark.parametrize("n_precisions", [1, 13])
def test_sums_of_likelihoods_in_any_order_in_memory(n_precisions, monkeypatch):
    fuse_everything(monkeypatch)
    distances, precisions = (one.to(DEVICE) for one in distances_and_precisions(6, 5, n_precisions))
    expected = log_sums(distances, precisions)
    for kind in ("transposed", "strided", "behind others"):
        found = log_sums(dict(views(distances))[kind], dict(views(precisions))[kind])
        assert torch.equal(found, expected)


@pytest.mark.parametrize(("n_classes", "dtype"), [(3, torch.float64), (2049, torch.float32)])
def test_sums_of_likelihoods_are_left_to_the_plain_code_where_the_kernel_cannot_help(n_classes, dtype, monkeypatch):
    given = [one.to(dtype) for one in distances_and_precisions(2, n_classes)]
    expected = log_sums(*given)
    fuse_everything(monkeypatch)
    monkeypatch.setattr(log_sums_kernel, "log_sums", refuse)
    assert torch.equal(log_sums(*given), expected)


# Inverse factors: parts of 64 rows, in halves of 32; below that, from 16 on in powers of two.


def spd(n_tasks: int, size: int) -> torch.Tensor:
    factors = normal(n_tasks, size, size + 3)
    return factors @ factors.mT / (size + 3) + 0.3 * torch.eye(size)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 32, 33, 63, 64, 65, 129])
def test_inverse_factors_at_the_edges_of_their_parts(size):
    matrices = spd(1, size)
    found = there(inverse_root)(matrices.clone())
    close(found @ matrices @ found.mT, torch.eye(size).unsqueeze(0), 1e-4)
    assert torch.equal(found, found.tril())


@pytest.mark.parametrize("size", [2, 32, 33, 64, 65, 130])
def test_inverse_factors_do_not_read_what_is_above_the_diagonal(size):
    matrices = spd(1, size)
    expected = there(inverse_root)(matrices.clone())
    above = torch.ones(size, size).triu(1) > 0
    found = there(inverse_root)(matrices.masked_fill(above, torch.nan))
    assert torch.equal(found, expected)


def test_inverse_factors_of_matrices_in_any_order_in_memory():
    matrices = spd(2, 5).to(DEVICE)
    expected = inverse_root(matrices.clone())
    lower = matrices.tril()  # the upper triangle is not read
    for _, view in views(lower):
        assert torch.equal(inverse_root(view), expected)
    shared = matrices[:1].expand(3, -1, -1)
    assert torch.equal(inverse_root(shared), expected[:1].expand(3, -1, -1))
    assert torch.equal(shared[0], matrices[0])  # three tasks share this memory: it stays as it was


# The steps of TIM: chunks of 64 features and samples, blocks of 128 or 64 examples, at most 256 classes.


def steps(samples, labels, start, n_steps: int = 2, *, by_kernel: bool) -> torch.Tensor:
    n_query = samples.shape[1] - labels.shape[1]
    loss = Information((1.0, 0.3, 1.0) if n_query else (1.0, 0.0, 0.0))
    if by_kernel:
        parameters = ((loss.weights, loss.alphas), 3.0, 1e-3, n_steps)
        return there(steps_of_tim.descend)(samples, labels, start, *parameters)
    return descend(samples, labels, start, Euclidean(3.0), loss, lr=1e-3, max_iter=n_steps, trace=False)[0]


def tim_problem(n_support: int, n_query: int, n_classes: int, n_features: int, n_tasks: int = 1):
    centres = torch.nn.functional.normalize(normal(n_tasks, n_classes, n_features), dim=-1)
    labels = torch.arange(n_support).remainder(n_classes).expand(n_tasks, -1)
    truth = torch.cat([labels, integers(n_classes, n_tasks, n_query)], 1)
    noise = 0.3 * normal(n_tasks, n_support + n_query, n_features, seed=1) / n_features**0.5
    samples = centres.gather(1, truth.unsqueeze(-1).expand(-1, -1, n_features)) + noise
    return samples, labels, centres


@pytest.mark.parametrize(
    ("n_support", "n_query", "n_classes", "n_features"),
    [
        *((5, 3, 4, n_features) for n_features in (1, 64, 65)),
        *((n_support, 3, 4, 6) for n_support in (1, 64, 65, 128, 129)),
        *((5, n_query, 4, 6) for n_query in (0, 1, 16, 17)),
        *((33, 3, n_classes, 6) for n_classes in (1, 2, 32, 33)),
        *((65, 3, n_classes, 6) for n_classes in (160, 161, 256)),
    ],
)
def test_the_steps_of_tim_at_the_edges_of_their_blocks(n_support, n_query, n_classes, n_features):
    samples, labels, start = tim_problem(n_support, n_query, n_classes, n_features)
    plain = steps(samples, labels, start, by_kernel=False)
    fast = steps(samples, labels, start, by_kernel=True)
    # Adam moves every coordinate by the sign of its gradient at first: where that is nearly 0, rounding decides.
    assert ((fast - plain).abs() > 1e-4).double().mean() < 0.1


def test_the_steps_of_tim_read_any_order_in_memory():
    samples, labels, start = tim_problem(6, 4, 5, steps_of_tim.STEP, n_tasks=2)  # where nothing is to be padded
    samples, labels, start = samples.to(DEVICE), labels.clone().to(DEVICE), start.to(DEVICE)
    expected = steps(samples, labels, start, 1, by_kernel=True)
    changed = [
        *zip(*(dict(views(values)).values() for values in (samples, labels, start)), strict=True),
        (samples, labels.short()[:1].expand(2, -1), start),
    ]
    for arguments in changed:
        assert torch.equal(steps(*arguments, 1, by_kernel=True), expected)


def test_more_tasks_than_a_grid_holds_are_taken_in_parts(monkeypatch):
    samples, labels, start = tim_problem(4, 3, 3, 5, n_tasks=5)
    expected = steps(samples, labels, start, 1, by_kernel=True)
    logits, names, costs = normal(5, 4, 3), integers(3, 5, 4), torch.ones(5, 4)
    errors = there(halves.softmax_errors)(logits, names, costs)
    for module in (steps_of_tim, halves, launch):
        monkeypatch.setattr(module, "MAX_PROGRAMS", 2)
    assert torch.equal(steps(samples, labels, start, 1, by_kernel=True), expected)
    assert torch.equal(there(halves.softmax_errors)(logits, names, costs), errors)


# Errors of a softmax, in tiles of 2,048 logits; and the gradient of a logistic regression, in eights of features.


@pytest.mark.parametrize(
    ("n_rows", "n_classes"),
    [*((n_rows, 128) for n_rows in (1, 15, 16, 17)), *((3, k) for k in (1, 2, 3, 127, 129, 2047, 2048, 2049))],
)
def test_errors_of_a_softmax_at_the_edges_of_their_tiles(n_rows, n_classes):
    logits, labels = 3 * normal(2, n_rows, n_classes), integers(n_classes, 2, n_rows)
    costs = torch.linspace(0.1, 1, 2 * n_rows).view(2, n_rows)
    found = there(halves.softmax_errors)(logits, labels, costs).float()
    ones = torch.nn.functional.one_hot(labels, n_classes)
    close(found[:, :, 0] + found[:, :, 1], (logits.softmax(-1) - ones) * costs.unsqueeze(-1), 2e-6)


def test_errors_of_a_softmax_read_any_order_in_memory():
    logits, labels, costs = normal(2, 6, 5).to(DEVICE), integers(5, 2, 6).to(DEVICE), normal(2, 6, seed=2).to(DEVICE)
    expected = halves.softmax_errors(logits, labels, costs)
    for _, view in views(logits):
        assert torch.equal(halves.softmax_errors(view, labels, costs), expected)
    for _, view in views(costs):
        assert torch.equal(halves.softmax_errors(logits, labels.int(), view), expected)
    shared = halves.softmax_errors(logits[:1].expand(3, -1, -1), labels[:1].expand(3, -1), costs[:1].expand(3, -1))
    assert torch.equal(shared, expected[:1].expand(3, -1, -1, -1))


@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_classes"),
    [*((5, n_features, 3) for n_features in (1, 6, 7, 8, 9)), (1, 4, 2), (16, 4, 128), (17, 4, 129)],
)
def test_the_gradient_of_a_logistic_regression_at_its_edges(n_rows, n_features, n_classes, monkeypatch):
    features = logistic.with_intercept(10 * normal(2, n_rows, n_features) + 1)
    labels = integers(n_classes, 2, n_rows, 1)
    costs = torch.full((2, n_rows, 1), 0.5)
    weights = normal(2, n_features + 1, n_classes, seed=1) / 10
    exact = logistic._Rows.of(features.double()).gradient(labels, costs.double(), weights.double())
    fuse_everything(monkeypatch)
    for given in (features, features.mT.contiguous().mT):
        found = there(logistic._Rows.of(given.to(DEVICE)).gradient)(labels, costs, weights)
        assert (found - exact).norm() < 1e-5 * (exact.norm() + 1)


# Gathered rows: 2,048 numbers at a time, at most 8,192 features. Class sums: 32 features, 64 tasks, 5 rows.


@pytest.mark.parametrize(
    ("n_rows", "n_features"),
    [*((n_rows, 64) for n_rows in (1, 31, 32, 33)), *((3, d) for d in (1, 2, 63, 65, 2047, 2048, 2049, 8192))],
)
def test_gathered_rows_at_the_edges_of_their_tiles(n_rows, n_features):
    table, others = normal(9, n_features), normal(2, 4, n_features, seed=1)
    index, of = integers(9, 2, n_rows), integers(4, 2, n_rows, seed=1)
    centre = normal(2, 1, n_features, seed=2)
    apart = others.gather(1, of[..., None].expand(-1, -1, n_features))
    close(there(rows.gathered)(table, index, centre), unit(table[index] - centre))
    close(there(rows.gathered)(table, index, None, others, of), table[index] - apart)


def test_rows_of_one_feature_have_exactly_the_length_one_and_opposite_ones_the_sum_zero():
    values = normal(200, 1).abs() + 0.01
    table, index = torch.cat([values, -values]), torch.arange(400).view(1, -1)
    found = there(rows.gathered)(table, index, torch.zeros(1, 1, 1))
    assert torch.equal(found.cpu()[0], table.sign())
    starts = torch.tensor([0, 400])
    assert there(rows.class_sums)(table, index, starts, None, torch.zeros(1, 1, 1), True).tolist() == [[[0.0]]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_differences_of_gathered_rows_of_other_types(dtype):
    table, others = normal(9, 5).to(dtype), normal(2, 4, 5, seed=1).to(dtype)
    index, of = integers(9, 2, 3), integers(4, 2, 3, seed=1)
    found = there(rows.gathered)(table, index, None, others, of)
    assert found.dtype == dtype
    assert torch.equal(found, table[index] - others.gather(1, of[..., None].expand(-1, -1, 5)))


def test_gathered_rows_in_any_order_in_memory():
    table, centre = normal(9, 5).to(DEVICE), normal(2, 1, 5, seed=2).to(DEVICE)
    index = integers(9, 2, 6).to(DEVICE)
    expected = rows.gathered(table, index, centre)
    for _, view in views(table):
        assert torch.equal(rows.gathered(view, index, centre), expected)
    for _, view in views(index):
        assert torch.equal(rows.gathered(table, view, centre), expected)
    assert torch.equal(rows.gathered(table, index.short(), centre), expected)
    one = rows.gathered(table, index[:1].expand(3, -1), centre[:1].expand(3, -1, -1))
    assert torch.equal(one, expected[:1].expand(3, -1, -1))


@pytest.mark.parametrize(
    ("n_tasks", "n_classes", "shots", "n_features"),
    [
        *((2, 3, 2, n_features) for n_features in (1, 31, 32, 33, 64, 65)),
        *((n_tasks, 2, 1, 3) for n_tasks in (1, 63, 64, 65, 129)),
        *((2, 3, shots, 3) for shots in (1, 4, 5, 6, 10, 11)),
        (2, 1, 2, 3),
    ],
)
def test_class_sums_at_the_edges_of_their_blocks(n_tasks, n_classes, shots, n_features):
    table = normal(20, n_features)
    index = integers(20, n_tasks, n_classes * shots)
    starts = torch.arange(n_classes + 1) * shots
    factor, centre = normal(n_tasks, 1, n_features, seed=1), normal(n_tasks, 1, n_features, seed=2)
    found = table[index].view(n_tasks, n_classes, shots, n_features)
    close(there(rows.class_sums)(table, index, starts, None, None), found.sum(2))
    scaled = there(rows.class_sums)(table, index, starts, factor, centre)
    close(scaled, found.sum(2) * factor - shots * centre, 5e-5)
    if n_tasks <= 2:  # its programs have one task each
        units = there(rows.class_sums)(table, index, starts, None, centre, True)
        close(units, unit(found - centre.unsqueeze(1)).sum(2), 5e-5)


def test_class_sums_in_any_order_in_memory():
    table, index, starts = normal(9, 6).to(DEVICE), integers(9, 2, 6).to(DEVICE), torch.tensor([0, 2, 6]).to(DEVICE)
    centre = normal(2, 1, 6, seed=1).to(DEVICE)
    for is_unit in (False, True):
        expected = rows.class_sums(table, index, starts, None, centre, is_unit)
        for _, view in views(table):
            assert torch.equal(rows.class_sums(view, index, starts, None, centre, is_unit), expected)
        for _, view in views(index):
            assert torch.equal(rows.class_sums(table, view, starts.int(), None, centre, is_unit), expected)
        for _, view in views(centre):
            assert torch.equal(rows.class_sums(table, index, starts, None, view, is_unit), expected)


@pytest.mark.parametrize("n_tasks", [0, 1])
def test_class_sums_of_few_tasks(n_tasks):
    index = torch.zeros(n_tasks, 4, dtype=torch.int64)
    assert there(rows.class_sums)(normal(3, 2), index, torch.tensor([0, 4]), None, None).shape == (n_tasks, 1, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_class_sums_of_other_types_are_left_to_the_plain_code(dtype, monkeypatch):
    features = FeatureSet(normal(12, 4), torch.arange(12) % 3)
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=2, n_query=4), count=2).to(dtype=dtype)
    expected = class_sums(tasks)[0]
    fuse_everything(monkeypatch)
    monkeypatch.setattr(rows, "class_sums", refuse)
    assert torch.equal(class_sums(tasks)[0], expected)


def test_rows_with_more_features_than_fit_are_left_to_the_plain_code(monkeypatch):
    features = FeatureSet(normal(12, 9), torch.arange(12) % 3)
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=2, n_query=4), count=2)
    scaled, means = transform(tasks, "cl2"), prototypes(tasks)
    fuse_everything(monkeypatch)
    monkeypatch.setattr(rows, "MAX_FEATURES", 8)
    monkeypatch.setattr(rows, "gathered", refuse)
    assert torch.equal(transform(tasks, "cl2").query, scaled.query)
    means = prototypes(make_tasks(dtype=torch.float32))
    which = torch.zeros(3, 1, dtype=torch.int64)
    assert metric.differences(
        make_tasks(dtype=torch.float32, n_features=9), which, means.repeat(1, 1, 2)[..., :9], which
    ).shape == (3, 1, 9)


# Random subsets: 2,048 integers at a time, at most 4,096 of them.


@pytest.mark.parametrize(
    ("n_keys", "size"),
    [(1, 1), (1023, 2), (1024, 2), (1025, 2), *((3, size) for size in (3, 4, 5, 15, 16, 17))],
)
def test_subsets_at_the_edges_of_their_tiles(n_keys, size):
    key, total = draws.mix(torch.arange(n_keys)), torch.full((n_keys,), size + 3)
    ordered = size < 8  # sorting takes long in Triton's interpreter
    found = there(subset.subset)(key, size, total, ordered=ordered)
    assert torch.equal(found, draws.subset(key, size, total, ordered=ordered))


@pytest.mark.skipif(DEVICE == "cpu", reason="too many steps for Triton's interpreter")
@pytest.mark.parametrize("size", [2047, 2048, 2049, 4095, 4096])
def test_the_largest_subsets(size):
    key, total = draws.mix(torch.arange(3)), torch.full((3,), 2 * size)
    assert torch.equal(there(subset.subset)(key, size, total), draws.subset(key, size, total))


def test_subsets_for_keys_in_any_order_in_memory():
    key, total = draws.mix(torch.arange(12).view(3, 4)).to(DEVICE), torch.arange(10, 22).view(3, 4).to(DEVICE)
    expected = subset.subset(key, 5, total)
    for _, view in views(key):
        assert torch.equal(subset.subset(view, 5, total.short()), expected)
    for _, view in views(total):
        assert torch.equal(subset.subset(key, 5, view, torch.tensor(5, device=DEVICE)), expected)


def test_subsets_that_do_not_fit_are_left_to_the_plain_code(monkeypatch):
    fuse_everything(monkeypatch)
    monkeypatch.setattr(subset, "MAX_SIZE", 4)
    monkeypatch.setattr(subset, "subset", refuse)
    key, total = draws.mix(torch.arange(3)), torch.full((3,), 9)
    assert torch.equal(sampling._subset(key, 5, total), draws.subset(key, 5, total))


# Every method with all of its fused code.


def drawn(n_features: int = 6) -> Tasks:
    """Tasks of a feature set, so that rows are gathered."""
    labels = torch.arange(100) % 4
    features = FeatureSet(2 * normal(4, n_features)[labels] + normal(100, n_features, seed=1), labels)
    return sample_tasks(features, TaskSpec(shots=3, k_eff=2, n_query=32), count=1)


FEW_STEPS = {"tim": 2, "alpha-tim": 2, "ici": 1}


@pytest.mark.filterwarnings("ignore:ici did not converge")
@pytest.mark.parametrize("method", ["evidence", "paddle", "soft-kmeans", "tim", "alpha-tim", "ici", "simpleshot"])
def test_a_method_by_fused_code_gives_the_plain_answers(method, monkeypatch):
    tasks = drawn()
    params = {"max_iter": FEW_STEPS.get(method, 10)} if "max_iter" in METHODS[method].parameters else {}
    if method == "evidence":
        params |= {"schedule": {"anneal_steps": 4}, "adapt": False}  # to adapt repeats the search
    plain = solve(method, tasks, **params)
    fuse_everything(monkeypatch)
    found = solve(method, tasks.to(DEVICE), **params)
    close(found.probabilities, plain.probabilities, 5e-3)
    assert torch.equal(found.labels.cpu(), plain.labels)


def test_every_place_that_asks_for_fused_code_is_known():
    root = Path(manyway.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        module = ".".join(("manyway", *path.relative_to(root).with_suffix("").parts))
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "fused" in text else "")):
            if isinstance(node, ast.ImportFrom) and node.module == "manyway.core.kernels":
                found |= {f"{module}.{alias.name}" for alias in node.names if alias.name.endswith("fused")}
    assert found - {"manyway.cli.doctor.fused"} == set(QUESTIONS)
