"""Fused GPU code equals its plain version. Without a GPU, Triton's interpreter runs it."""

from __future__ import annotations

import pytest
import torch
from kernel_problems import DEVICE, there
from problems import make_tasks as make_tasks_of

from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.core import random as draws
from manyway.core.kernels import fused, halves, rows, subset, tensor_cores, two_blocks, without_tensor_cores
from manyway.core.ops import class_moments, class_sums, prototypes, unit
from manyway.core.tasks import mapped
from manyway.core.transforms import transform
from manyway.methods.calibration.left_out import LeftOut
from manyway.methods.calibration.metric import Inner
from manyway.methods.calibration.root_kernel import inverse_root
from manyway.methods.evidence.dense import Dense, fused_search
from manyway.methods.evidence.loop import anneal_and_iterate
from manyway.methods.evidence.prior import Concentrations, grid_of_alphas
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.gradient import kernel as steps_of_tim
from manyway.methods.gradient.information import Euclidean, Information, descend
from manyway.methods.ici import logistic
from manyway.methods.paddle import kernel as loop
from manyway.methods.paddle.forms import GramForm, prototype_form
from manyway.methods.paddle.solver import _fused


@pytest.mark.parametrize(
    ("size", "least", "ordered"),
    [(1, 1, False), (5, 1000, False), (20, 20, False), (33, 40, False), (1, 1, True), (7, 8, True)],
)
def test_subsets_are_the_same_integers(size, least, ordered):
    key = draws.mix(torch.arange(6).view(3, 2))
    total = torch.randint(least, 3 * least, (3, 2), generator=torch.Generator().manual_seed(0))
    assert torch.equal(
        there(subset.subset)(key, size, total, ordered=ordered), draws.subset(key, size, total, ordered=ordered)
    )


def test_subsets_of_different_sizes_are_the_same_integers_where_they_count():
    key, total = draws.mix(torch.arange(12)), torch.full((12,), 30)
    wanted = torch.arange(12)
    counts = torch.arange(11) < wanted.unsqueeze(1)
    fast, plain = there(subset.subset)(key, 11, total, wanted), draws.subset(key, 11, total, wanted)
    assert torch.equal(fast[counts], plain[counts])


def test_subset_draws_one_row_for_a_shared_total():
    key = draws.mix(torch.arange(5))
    assert torch.equal(there(subset.subset)(key, 3, torch.tensor(10)), draws.subset(key, 3, torch.tensor(10)))


@pytest.mark.parametrize("n_features", [5, 40])
@pytest.mark.parametrize("shots", [1, 7])
def test_class_sums_are_gathered_scaled_and_centred(n_features, shots):
    table = torch.randn(60, n_features, generator=torch.Generator().manual_seed(0))
    features = FeatureSet(table, torch.arange(60) % 6)
    tasks = transform(sample_tasks(features, TaskSpec(shots=shots, k_eff=2, n_query=4), count=5), "range")
    centre = tasks.query.mean(1, keepdim=True)
    expected, _ = class_sums(tasks, centre)
    starts = torch.arange(7) * shots
    got = there(rows.class_sums)(features.features, tasks.support_index, starts, tasks.factor, centre)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    plain = there(rows.class_sums)(features.features, tasks.support_index, starts, None, None)
    torch.testing.assert_close(plain, tasks.support_table[tasks.support_index].view(5, 6, shots, -1).sum(2))


def test_class_sums_of_classes_of_different_sizes():
    table, index = torch.arange(27.0).view(9, 3).sin(), torch.tensor([[4, 0, 1, 8, 2, 2]])
    got = there(rows.class_sums)(table, index, torch.tensor([0, 1, 5, 6]), None, None)
    torch.testing.assert_close(got[0], torch.stack([table[4], table[[0, 1, 8, 2]].sum(0), table[2]]))


@pytest.mark.parametrize("centred", [False, True])
def test_differences_of_gathered_rows(centred):
    generator = torch.Generator().manual_seed(0)
    table, others = torch.randn(7, 5, generator=generator), torch.randn(3, 4, 5, generator=generator)
    index, of = (torch.randint(0, n, (3, 6), generator=generator) for n in (7, 4))
    centre = torch.randn(3, 1, 5, generator=generator) if centred else None
    got = there(rows.gathered)(table, index, centre, others, of)
    gathered = table[index] if centre is None else unit(table[index] - centre)
    torch.testing.assert_close(got, gathered - others.gather(1, of[..., None].expand(-1, -1, 5)))


@pytest.mark.parametrize("n_features", [5, 700])  # several rows at a time, and few
def test_moments_of_rows_that_are_centred_when_they_are_gathered_are_those_of_the_rows(n_features, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    features = FeatureSet(torch.randn(30, n_features, generator=generator), torch.arange(30) % 3)
    tasks = sample_tasks(features, TaskSpec(shots=3, k_eff=2, n_query=4), count=2)
    plain = transform(tasks, "cl2")
    moments = class_moments(plain)
    monkeypatch.setattr("manyway.core.transforms.fused", lambda tensor: True)
    monkeypatch.setattr("manyway.core.ops.fused", lambda tensor: True)
    found = transform(tasks.to(DEVICE), "cl2")
    assert found.centre is not None
    for got, expected in zip(class_moments(found), moments, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1:].support.cpu(), plain[1:].support, rtol=1e-5, atol=1e-6)
    which = torch.tensor([[3, 0, 8]] * 2)
    torch.testing.assert_close(found.some_support(which.to(DEVICE)).cpu(), plain.support[:, which[0]])


@pytest.mark.parametrize("size", [3, 20, 130], ids=["less than a quarter", "half a part", "parts of halves"])
def test_the_inverse_factor_is_that_of_the_matrix(size):
    rows = torch.randn(2, size + 5, size, generator=torch.Generator().manual_seed(0))
    matrices = rows.mT @ rows / size + 0.3 * torch.eye(size)
    got = there(inverse_root)(matrices.tril())  # only the lower triangle is read
    torch.testing.assert_close(got @ matrices @ got.mT, torch.eye(size).expand(2, -1, -1), rtol=0, atol=1e-4)
    assert torch.equal(got, got.tril())


def make_tasks(**sizes):
    return make_tasks_of(dtype=torch.float32, **sizes)


def gram(tasks, scale="range") -> GramForm:
    form = prototype_form(transform(tasks, scale), "gram")
    assert isinstance(form, GramForm)
    return form


def iterate(form, *, weight=1.0, eps=1e-6, max_iter=6, tol=None):
    form = mapped(form, lambda tensor: tensor.to(DEVICE))
    return there(loop.iterate)(form, weight=weight, eps=eps, max_iter=max_iter, tol=tol)


@pytest.mark.parametrize(
    ("n_query", "n_classes"),
    [(1, 2), (5, 3), (21, 37), (75, 20)],
    ids=["one query", "less than a block", "several blocks of classes", "the paper's queries"],
)
def test_the_loop_gives_the_plain_assignments(n_query, n_classes):
    tasks = make_tasks(n_tasks=2, n_classes=n_classes, n_query=n_query, n_features=6)
    got, n_iter, converged = iterate(gram(tasks))
    expected = solve("paddle", tasks, max_iter=6, form="gram")
    torch.testing.assert_close(got, expected.probabilities, rtol=0, atol=1e-5)
    assert n_iter.tolist() == [6, 6]
    assert not converged.any()


BLOCKS_FULL = [32, 48, 64, 80, 96, 128]  # so many queries fill the two blocks of the loop without padding


@pytest.mark.parametrize(
    "n_query", sorted({1, 2, 3, 75} | {16 * k + by for k in range(1, 9) for by in (0, 1)} - {129})
)
def test_the_loop_gives_the_plain_assignments_at_every_size_of_its_blocks(n_query):
    tasks = make_tasks(n_tasks=1, n_classes=3, n_query=n_query, n_features=4)
    got, _, _ = iterate(gram(tasks), max_iter=2)
    expected = solve("paddle", tasks, max_iter=2, form="gram").probabilities
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_the_sizes_that_fill_two_blocks_are_those_without_padding():
    assert [n for n in range(1, loop.MAX_QUERY + 1) if sum(two_blocks(n)) == n] == BLOCKS_FULL


@pytest.mark.parametrize("number", [1, 32, 33, 75, 96, 128, 160, 257])
def test_two_blocks_hold_a_number_of_rows(number):
    blocks = two_blocks(number)
    assert number <= sum(blocks) < max(33, 1.5 * number)
    assert all(size.bit_count() == 1 for size in blocks)


def test_more_queries_than_fit_on_chip_are_refused_by_the_loop():
    with pytest.raises(ValueError, match="at most 128"):
        loop.iterate(GramForm(*torch.zeros(4, 1, 129, 129), features=None), weight=1.0, eps=0.0, max_iter=1)


def test_the_loop_without_the_dual_is_soft_kmeans():
    tasks = make_tasks(n_tasks=2, n_query=9)
    got, _, _ = iterate(gram(tasks), weight=0.0, eps=0.0)
    torch.testing.assert_close(got, solve("soft-kmeans", tasks, max_iter=6).probabilities, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_the_loop_stays_finite_when_classes_die_for_good():
    tasks = make_tasks(n_tasks=2, n_query=9)
    got, _, _ = iterate(gram(tasks), eps=0.0, max_iter=10)
    expected = solve("paddle", tasks, eps=0.0, max_iter=10).probabilities
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_the_loop_stops_a_task_by_its_own_movement():
    tasks = make_tasks(n_tasks=2, n_query=9)
    got, n_iter, converged = iterate(gram(tasks), max_iter=30, tol=1e-2)
    expected = solve("paddle", tasks, max_iter=30, tol=1e-2, form="gram")
    assert expected.converged.all()
    assert n_iter.tolist() == expected.n_iter.tolist()
    assert converged.tolist() == expected.converged.tolist()
    torch.testing.assert_close(got, expected.probabilities, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_the_loop_measures_its_reference_anew_when_logits_move_far():
    """Logits reach thousands here, so that no single reference keeps float32 in range."""
    tasks = make_tasks(n_tasks=1, n_query=8, n_features=3)
    tasks = type(tasks).from_arrays(tasks.support * 300, tasks.support_labels, tasks.query * 300)
    got, _, _ = iterate(gram(tasks, scale=None))
    expected = solve("paddle", tasks, max_iter=6, scale=None).probabilities
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_skipping_iterations_that_repeat_changes_no_bit():
    form = gram(make_tasks(n_tasks=1, n_query=6, n_classes=4), scale=None)  # so far apart that they soon repeat
    results = []
    for skip in (True, False):
        given = mapped(form, lambda tensor: tensor.to(DEVICE))
        results.append(loop.iterate(given, weight=1.0, eps=1e-6, max_iter=16, skip=skip)[0])
    assert torch.equal(*results)


def likelihoods(n_tasks, n_query, n_classes, spread, n_present):
    """Of queries in the first ``n_present`` classes."""
    generator = torch.Generator().manual_seed(n_query + n_classes)
    labels = torch.randint(n_present, (n_tasks, n_query, 1), generator=generator)
    noise = torch.randn(n_tasks, n_query, n_classes, generator=generator)
    return spread * noise.scatter_add_(2, labels, torch.full(labels.shape, 2.0))


@pytest.mark.parametrize(
    ("n_tasks", "n_query", "n_classes", "spread", "n_present", "schedule", "options"),
    [
        (1, 1, 5, 1.0, 1, Schedule(), {}),
        (2, 5, 6, 2.0, 2, Schedule(anneal_from=1.0), {}),
        (1, 30, 40, 2.0, 5, Schedule(), {"concentration": 0.1, "tol": 1e-4, "max_iter": 7}),
        (1, 30, 40, 0.5, 40, Schedule(), {}),
        (1, 75, 20, 1.0, 2, Schedule(), {}),
        (1, 20, 100, 4.0, 20, Schedule(), {}),
        (1, 20, 30, 2.0, 10, Schedule(anneal_steps=4), {}),
    ],
)
def test_the_fused_search_gives_the_plain_assignments(
    monkeypatch, n_tasks, n_query, n_classes, spread, n_present, schedule, options
):
    monkeypatch.setattr("manyway.methods.evidence.dense.fused", lambda tensor: True)
    likelihood = likelihoods(n_tasks, n_query, n_classes, spread, n_present)
    limits = {"max_iter": options.get("max_iter", 50), "tol": options.get("tol", 1e-2)}
    parameters = Parameters(schedule=vars(schedule), **limits)

    def prior(like):
        grid = grid_of_alphas(n_query, n_classes, options.get("concentration"))
        return Concentrations.of(grid, n_query, n_classes, like.dtype, like.device)

    plain = anneal_and_iterate(Dense.of(likelihood.double()), prior(likelihood.double()), parameters)
    given = likelihood.to(DEVICE)
    found = fused_search(Dense.of(given), prior(given), parameters)
    torch.testing.assert_close(found.queries.u.cpu().double(), plain.queries.u, rtol=0, atol=2e-4)
    assert torch.equal(found.outcome.n_iter.cpu(), plain.outcome.n_iter)
    assert torch.equal(found.outcome.converged.cpu(), plain.outcome.converged)


# A whole answer takes several searches, which take long in Triton's interpreter: these are fewer and have fewer steps.
SHORT = {"schedule": {"anneal_steps": 4}, "adapt": False}


def test_evidence_by_fused_code_gives_the_same_labels(monkeypatch):
    tasks = make_tasks_of(2, n_classes=12, n_query=10, n_features=8, shots=3, spread=1.0, dtype=torch.float32)
    plain = solve("evidence", tasks, **SHORT)
    monkeypatch.setattr("manyway.methods.evidence.dense.fused", lambda tensor: True)
    found = solve("evidence", tasks.to(DEVICE), **SHORT)
    assert torch.equal(found.labels.cpu(), plain.labels)
    torch.testing.assert_close(found.probabilities.cpu(), plain.probabilities, rtol=0, atol=5e-3)
    assert torch.equal(solve("evidence", tasks.to(DEVICE), with_objective=True, **SHORT).labels.cpu(), plain.labels)


@pytest.mark.parametrize("metric", [False, True])
def test_evidence_of_rows_that_are_centred_when_they_are_gathered_gives_the_same_labels(metric, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(5, 70, generator=generator).repeat(12, 1) + 1.5 * torch.randn(60, 70, generator=generator)
    features = FeatureSet(table, torch.arange(60) % 5)
    tasks = sample_tasks(features, TaskSpec(shots=4, k_eff=2, n_query=12), count=3)
    plain = solve("evidence", tasks, metric=metric, adapt=False)
    for place in ("core.transforms", "core.ops", "methods.calibration.metric"):
        monkeypatch.setattr(f"manyway.{place}.fused", lambda tensor: True)
    found = solve("evidence", tasks.to(DEVICE), metric=metric, adapt=False)
    assert torch.equal(found.labels.cpu(), plain.labels)
    torch.testing.assert_close(found.probabilities.cpu(), plain.probabilities, rtol=0, atol=5e-3)


def test_evidence_by_fused_code_keeps_known_labels(monkeypatch):
    tasks = make_tasks_of(2, n_classes=6, n_query=14, n_features=8, shots=3, spread=1.0, dtype=torch.float32)
    known = torch.full((2, 14), -1)
    known[:, :10] = 4  # so many of one class that the product of their 1 − u is 0 in float32
    known[1, 10] = 5
    plain = solve("evidence", tasks, known=known, **SHORT)
    monkeypatch.setattr("manyway.methods.evidence.dense.fused", lambda tensor: True)
    found = solve("evidence", tasks.to(DEVICE), known=known, **SHORT)
    torch.testing.assert_close(found.probabilities.cpu(), plain.probabilities, rtol=0, atol=5e-3)
    assert torch.equal(found.labels.cpu()[known >= 0], known[known >= 0])


@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
def test_gathered_rows_are_centred_and_divided_by_their_norm(size):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(20, 37, generator=generator) * size
    index = torch.randint(0, 20, (3, 11), generator=generator)
    centre = torch.randn(3, 1, 37, generator=generator) * size
    centre[0, 0] = table[index[0, 0]]  # a row at the centre stays zero
    found = there(rows.gathered)(table, index, centre)
    torch.testing.assert_close(found, unit(table[index] - centre), rtol=1e-6, atol=1e-7)
    assert not found[0, 0].any()


@pytest.mark.parametrize(
    ("n_tasks", "weight", "precision", "near"),
    [(2, None, None, None), (2, 0.02, 3.0, None), (1, 0.02, None, None), (2, 0.02, None, 1.5)],
)
def test_left_out_samples_are_classified_alike(monkeypatch, n_tasks, weight, precision, near):
    generator = torch.Generator().manual_seed(1)
    n_classes, shots, n_features = 5, 4, 7
    prototypes = torch.randn(n_tasks, n_classes, n_features, generator=generator)
    names = torch.arange(n_classes).repeat_interleave(shots).expand(n_tasks, -1)
    noise = torch.randn(n_tasks, 20, n_features, generator=generator)
    residuals = 0.7 * noise
    counts = torch.full((n_tasks, n_classes), float(shots))
    counts[-1, 0] = 1  # its samples are not used
    own_counts = counts.gather(1, names)
    values = (names, counts, torch.tensor([3.0, 4.0])[:n_tasks], torch.tensor([1.0, 2.0])[:n_tasks])

    def classified(device):
        labels, number, scatter, usual, own = (value.to(device) for value in (*values, own_counts))
        inner = Inner.of(residuals.to(device), prototypes.to(device), labels)
        given, start = (
            None if value is None else torch.full((n_tasks,), value, device=device) for value in (precision, near)
        )
        left_out = LeftOut(
            labels=labels,
            counts=number,
            scatter=scatter,
            usual=usual,
            own_counts=own,
            own_weights=torch.ones_like(own),
            usable=(own > 1).float(),
            given=given,
        )
        if weight is None:
            return left_out.classified(inner)
        full = torch.full((n_tasks,), weight, device=device)
        return left_out.classified(inner, full, torch.tensor([2.0, 5.0], device=device)[:n_tasks], start)

    plain = classified("cpu")
    monkeypatch.setattr("manyway.methods.calibration.left_out.fused", lambda tensor: True)
    for expected, found in zip(plain, classified(DEVICE), strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_errors_are_those_of_the_softmax_as_two_halves():
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(2, 7, 13, generator=generator), torch.randint(0, 13, (2, 7), generator=generator)
    costs = torch.rand(2, 7, generator=generator)
    found = there(halves.softmax_errors)(logits, labels, costs).float()
    expected = (logits.softmax(-1) - torch.eye(13)[labels]) * costs.unsqueeze(-1)
    torch.testing.assert_close(found[:, :, 0] + found[:, :, 1], expected, rtol=0, atol=1e-6)
    assert torch.equal(found[:, :, 0], found[:, :, 2])


@pytest.mark.parametrize(
    ("n_query", "n_classes", "n_features", "alphas"),
    [(4, 6, 11, (1.0, 1.0)), (4, 6, 11, (7.0, 5.0)), (0, 6, 11, (1.0, 1.0)), (20, 37, 70, (1.0, 2.0))],
)
def test_the_fused_steps_of_tim_are_the_plain_ones(n_query, n_classes, n_features, alphas):
    tasks = transform(make_tasks(n_tasks=2, n_classes=n_classes, n_query=20, n_features=n_features), "l2")
    samples = torch.cat([tasks.support, tasks.query[:, :n_query]], 1)
    loss, start = Information((1.0, 0.3, 1.0) if n_query else (1.0, 0.0, 0.0), alphas), prototypes(tasks)
    steps = {"lr": 1e-3, "max_iter": 2}
    plain, _ = descend(samples, tasks.support_labels, start, Euclidean(15.0), loss, trace=False, **steps)
    fast = there(steps_of_tim.descend)(samples, tasks.support_labels, start, (loss.weights, alphas), 15.0, **steps)
    assert (fast - plain).norm() < 0.02 * (plain - start).norm()


@pytest.mark.parametrize(("n_classes", "n_query", "fit"), [(160, 75, True), (160, 300, False), (257, 1, False)])
def test_steps_of_tim_are_fused_where_logits_fit_on_chip(n_classes, n_query, fit):
    assert steps_of_tim.fits(n_classes, n_query) == fit


def test_the_gradient_of_a_logistic_regression_from_halves_is_as_good_as_in_float32(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    features = logistic.with_intercept(torch.randn(2, 9, 11, generator=generator) * 100)
    labels, costs = torch.randint(0, 5, (2, 9, 1), generator=generator), torch.rand(2, 9, 1, generator=generator)
    weights = torch.randn(2, 12, 5, generator=generator) / 100
    exact = logistic._Rows.of(features.double()).gradient(labels, costs.double(), weights.double())
    monkeypatch.setattr(logistic, "halves_fused", lambda tensor: True)
    rows = logistic._Rows.of(features.to(DEVICE))
    found = there(rows.gradient)(labels, costs, weights)
    assert rows.values.dtype == torch.float16
    assert (found - exact).norm() < 1e-5 * exact.norm()


def test_plain_code_runs_on_a_cpu():
    assert not fused(torch.zeros(1))


class OnTheGPU:
    """The part of a tensor that ``tensor_cores`` reads."""

    is_cuda = True


def test_tensor_cores_leave_torchs_setting_as_it_was():
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    with tensor_cores(OnTheGPU()):
        assert products.fp32_precision == "tf32"
    assert products.fp32_precision == before
    with pytest.raises(ZeroDivisionError), tensor_cores(OnTheGPU()):
        _ = 1 / 0
    assert products.fp32_precision == before


def test_a_part_of_what_tensor_cores_do_can_be_left_to_float32():
    products = torch.backends.cuda.matmul
    with tensor_cores(OnTheGPU()):
        with without_tensor_cores(OnTheGPU()):
            assert products.fp32_precision == "ieee"
        assert products.fp32_precision == "tf32"


def test_tensor_cores_are_not_used_on_a_cpu_nor_with_plain_code(monkeypatch):
    before = torch.backends.cuda.matmul.fp32_precision
    with tensor_cores(torch.zeros(1)):
        assert torch.backends.cuda.matmul.fp32_precision == before
    monkeypatch.setenv("MANYWAY_PLAIN", "1")
    with tensor_cores(OnTheGPU()):
        assert torch.backends.cuda.matmul.fp32_precision == before


@pytest.mark.parametrize(("n_query", "dtype"), [(20, torch.float64), (loop.MAX_QUERY + 1, torch.float32)])
def test_the_loop_leaves_other_precisions_and_large_tasks_to_the_plain_code(n_query, dtype):
    query = torch.eye(n_query, dtype=dtype)[None]
    form = prototype_form(Tasks.from_arrays(query[:, :3], [[0, 1, 2]], query), "gram")
    assert _fused(form, 1.0, 1e-6, 2, None) is None
