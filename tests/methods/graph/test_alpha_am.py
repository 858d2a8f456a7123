"""α-AM: against a restatement over all nodes with autograd and torch's own Adam, and against recorded runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_tasks
from torch import Tensor

from benchmarks.agree import Sizes
from benchmarks.agree import make_tasks as tasks_of_sizes
from benchmarks.reference import feature_files, recorded_tasks
from manyway import FeatureSet, InputError, Tasks, solve
from manyway.core import prototypes
from manyway.core import tasks as core_tasks
from manyway.methods.graph.alpha_am import _powers, _System

ALPHA, NEIGHBORS, ORDER = 0.9, 4, 5


def preprocessed(tasks: Tasks) -> Tasks:
    """Signed roots, unit length, centred on the mean of all items, unit length."""
    both = torch.cat([tasks.support, tasks.query], 1)
    both = torch.nn.functional.normalize(both.sign() * (both.abs() + 1e-6).sqrt(), dim=-1)
    both = torch.nn.functional.normalize(both - both.mean(1, keepdim=True), dim=-1)
    support, query = both.split([tasks.n_support, tasks.n_query], 1)
    return tasks.with_rows(support, query)


def spread(centres: Tensor, samples: Tensor, stretch: Tensor, weights: Tensor) -> Tensor:
    """[n, k] F of the samples of one task, by an inverse over all nodes."""
    nodes = torch.cat([centres, samples])
    n_nodes, n_classes = len(nodes), len(centres)
    distances = torch.cdist(nodes, nodes, compute_mode="donot_use_mm_for_euclid_dist")
    affinities = torch.exp(-stretch * distances / distances.std()) * (1 - torch.eye(n_nodes))
    affinities = affinities * (torch.arange(n_nodes) >= n_classes).unsqueeze(1)
    kept = affinities.topk(NEIGHBORS, -1)
    affinities = torch.zeros_like(affinities).scatter(-1, kept.indices, kept.values)
    graph = weights * (affinities + affinities.T) / 2
    degrees = graph.sum(1) + 1e-12
    normalised = graph / (degrees.unsqueeze(0) * degrees.unsqueeze(1)).sqrt()
    inverse = torch.linalg.inv(torch.eye(n_nodes, dtype=nodes.dtype) - ALPHA * normalised)
    return 15 * inverse[n_classes:, :n_classes]


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    n_support = len(labels)
    p = logits.softmax(-1)
    cross_entropy = -(p[:n_support].gather(1, labels.unsqueeze(1)) + 1e-12).log().mean()
    query = p[n_support:]
    marginal = (1 - (query.mean(0) ** ORDER).sum()) / (ORDER - 1)
    conditional = ((1 - ((query + 1e-12) ** ORDER).sum(1)) / (ORDER - 1)).mean()
    return cross_entropy - marginal + conditional


def slow(tasks: Tasks, lr: float, max_iter: int) -> tuple[Tensor, list[float]]:
    """[q, k] probabilities of one task, and the loss of each pass."""
    tasks = preprocessed(tasks)
    samples = torch.cat([tasks.support[0], tasks.query[0]])
    centres = prototypes(tasks)[0].clone().requires_grad_()
    n_nodes = len(centres) + len(samples)
    stretch = torch.ones(n_nodes, n_nodes, dtype=samples.dtype, requires_grad=True)
    weights = torch.full((n_nodes, n_nodes), ALPHA, dtype=samples.dtype, requires_grad=True)
    adam = torch.optim.Adam([centres, stretch, weights], lr=lr)
    losses = []
    for _ in range(max_iter):
        logits = spread(centres, samples, stretch, weights)
        loss = loss_of(logits, tasks.support_labels[0])
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return logits[tasks.n_support :].detach().softmax(-1), losses


def test_training_is_that_of_autograd_over_all_nodes():
    tasks = make_tasks(2, n_query=9, n_features=6, shots=3)
    constants = {"alpha": ALPHA, "n_neighbors": NEIGHBORS, "alphas": (ORDER, ORDER), "lr": 1e-2, "max_iter": 12}
    found = solve("alpha-am", tasks, **constants, with_objective=True)
    for i in range(2):
        probabilities, losses = slow(tasks[i : i + 1], 1e-2, 12)
        torch.testing.assert_close(found.probabilities[i], probabilities, atol=1e-9, rtol=0)
        np.testing.assert_allclose(found.objective[i], losses, atol=1e-9)


def test_training_lowers_the_loss():
    found = solve("alpha-am", make_tasks(3, n_query=12, shots=3), max_iter=60, lr=1e-3, with_objective=True).objective
    assert (found[:, -1] < found[:, 0]).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("adjoint", [False, True])
def test_products_solve_the_system_as_a_factorisation_does(alpha, adjoint):
    """What a GPU does instead of a factorisation."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(2, 9, 9, generator=generator, dtype=torch.float64)
    matrix = alpha * matrix / matrix.sum(-1, keepdim=True)
    columns = torch.rand(2, 9, 3, generator=generator, dtype=torch.float64)
    factors, pivots = torch.linalg.lu_factor(torch.eye(9, dtype=torch.float64) - matrix)
    factored, doubled = _System(factors, pivots, []), _System(None, None, _powers(matrix, alpha))
    torch.testing.assert_close(doubled.solve(columns, adjoint=adjoint), factored.solve(columns, adjoint=adjoint))


@pytest.mark.parametrize("shots", [2, 3, 4])
def test_two_to_four_examples_have_the_constants_of_five(shots):
    """There the authors' code has NaN."""
    tasks = make_tasks(2, n_query=20, shots=shots)
    five = {"alpha": 0.9, "n_neighbors": 10, "alphas": (5.0, 5.0)}
    expected = solve("alpha-am", tasks, max_iter=5, **five).probabilities
    assert torch.equal(solve("alpha-am", tasks, max_iter=5).probabilities, expected)


def test_one_example_has_constants_of_its_own():
    tasks = make_tasks(2, n_query=40, shots=1)
    one = {"alpha": 0.8, "n_neighbors": 20, "alphas": (2.0, 2.0)}
    expected = solve("alpha-am", tasks, max_iter=5, **one).probabilities
    assert torch.equal(solve("alpha-am", tasks, max_iter=5).probabilities, expected)


@pytest.mark.parametrize(("n_query", "n_features"), [(73, 64), (57, 5), (41, 1)])
def test_both_precisions_agree_where_a_centroid_begins_as_the_copy_of_an_example(n_query, n_features):
    """It moves by so little that a difference of squares would be rounding alone: they differed by 0.07 to 0.4."""
    tasks = tasks_of_sizes(Sizes(n_query=n_query, n_classes=2, shots=1, n_features=n_features))
    single, double = (
        solve("alpha-am", tasks.to(dtype=dtype), max_iter=5).probabilities for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(single.double(), double, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shots", [1, 5])
def test_equal_affinities_are_kept_in_their_order_whatever_topk_does(shots, monkeypatch):
    """With one feature all rows are 1 or −1."""
    tasks = tasks_of_sizes(Sizes(n_query=66, n_classes=3, shots=shots, n_features=1))
    expected = solve("alpha-am", tasks, max_iter=5).probabilities
    topk = torch.Tensor.topk

    def from_the_end(values: Tensor, number: int, dim: int) -> object:
        return topk(values.flip(dim), number, dim)

    monkeypatch.setattr(torch.Tensor, "topk", from_the_end)
    assert torch.equal(solve("alpha-am", tasks, max_iter=5).probabilities, expected)


def test_the_last_step_of_adam_changes_nothing():
    tasks = make_tasks(2)
    assert torch.equal(
        solve("alpha-am", tasks, max_iter=1, lr=1.0).probabilities,
        solve("alpha-am", tasks, max_iter=1, lr=1e-4).probabilities,
    )


def test_many_tasks_are_trained_in_parts(monkeypatch):
    tasks = make_tasks(5)
    together = solve("alpha-am", tasks, max_iter=4, with_objective=True)
    monkeypatch.setattr(core_tasks, "_NUMBERS_AT_ONCE", 2 * (tasks.n_classes + tasks.n_support + tasks.n_query) ** 2)
    apart = solve("alpha-am", tasks, max_iter=4, with_objective=True)
    torch.testing.assert_close(apart.probabilities, together.probabilities)
    torch.testing.assert_close(apart.objective, together.objective)
    torch.testing.assert_close(apart.prototypes, together.prototypes)


def test_labels_that_spread_without_end_are_refused():
    with pytest.raises(InputError, match=r"alpha-am: alpha is 1\.0; it must be at least 0 and below 1"):
        solve("alpha-am", make_tasks(1), alpha=1.0)


def test_early_scores_lead_to_the_recorded_labels(data_folder):
    """After 40 of 1,000 iterations the labels of an easy task are those of the recorded end."""
    path = data_folder.parent / "reference" / "clinc150_5shot_keff5_sub20_new.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)["clinc150"]).features
    tasks = recorded_tasks(data_folder, features, "clinc150", "5shot_keff5_sub20", 1)
    found = solve("alpha-am", tasks, max_iter=40)
    with np.load(path) as file:
        assert (found.labels[0].numpy() == file["alpha-am"][0]).mean() >= 0.9
