"""EM-Dirichlet and its hard version."""

from __future__ import annotations

from math import lgamma
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import feature_files, recorded_tasks
from manyway import EMDirichlet, FeatureSet, InputError, Tasks, solve
from manyway.methods.dirichlet.m_step import maximise

METHODS = pytest.mark.parametrize("method", ["em-dirichlet", "hard-em-dirichlet"])


def points(n_tasks: int = 2, n_classes: int = 4, shots: int = 3, n_query: int = 12) -> Tasks:
    """Tasks whose features are points of the simplex, in the corners of their classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n_classes).repeat_interleave(shots).expand(n_tasks, -1)
    truth = torch.randint(0, 2, (n_tasks, n_query), generator=generator)

    def draw(classes: torch.Tensor) -> torch.Tensor:
        logits = 5 * torch.eye(n_classes, dtype=torch.float64)[classes]
        return (logits + torch.randn(logits.shape, generator=generator, dtype=torch.float64)).softmax(-1)

    return Tasks.from_arrays(draw(labels), labels, draw(truth), query_labels=truth)


@METHODS
def test_the_objective_never_increases(method):
    tasks = make_tasks(3, n_classes=6, n_query=30, n_features=8, shots=2, spread=1.0)
    solution = solve(method, tasks, logit_scale=8.0, with_objective=True)
    assert (solution.objective.diff(dim=1) <= 1e-9).all()
    assert solution.objective[:, 0].max() - solution.objective[:, -1].min() > 1
    assert set(solution.objective_parts) == {"fit", "complexity", "barrier"}


def test_the_objective_is_that_of_the_docstring():
    tasks = points(1)
    solution = solve("em-dirichlet", tasks, simplex="given", max_iter=1, with_objective=True)
    u, n_classes = solution.probabilities[0], 4
    # One iteration from u = z: each α is the maximum for its support, the queries weighted by z, and one prior sample.
    logs, flat = (tasks.query[0] + 1e-15).log(), float(torch.digamma(torch.ones(())) - torch.digamma(torch.tensor(4.0)))
    z, support = tasks.query[0], (tasks.support[0] + 1e-15).log()
    fit = 0.0
    for k in range(n_classes):
        own = support[tasks.support_labels[0] == k]
        target = (own.sum(0) + z[:, k] @ logs + flat) / (len(own) + z[:, k].sum() + 1)
        alpha = maximise(None, target[None])[0]
        log_beta = sum(lgamma(a) for a in alpha) - lgamma(float(alpha.sum()))
        fit -= float((own @ alpha - log_beta).sum() + u[:, k] @ (logs @ alpha - log_beta))
        fit -= float(flat * alpha.sum() - log_beta)
    pi = u.mean(0)
    assert float(solution.objective_parts["fit"][0, 0]) == pytest.approx(fit, rel=1e-6)
    assert float(solution.objective_parts["complexity"][0, 0]) == pytest.approx(float(-12 * (pi * pi.log()).sum()))
    assert float(solution.objective_parts["barrier"][0, 0]) == pytest.approx(float((u * u.log()).sum()))


@METHODS
def test_given_points_of_the_simplex_are_used_as_they_are(method):
    tasks = points()
    found = solve(method, tasks, simplex="given")
    assert (found.labels == tasks.query_labels).double().mean() > 0.9
    torch.testing.assert_close(found.prototypes.sum(-1), torch.ones(2, 4, dtype=torch.float64))


@METHODS
def test_k_eff_is_a_larger_weight_of_the_complexity(method):
    tasks = make_tasks(2, n_classes=7, n_query=20)
    leak = solve(method, tasks, k_eff=2)
    torch.testing.assert_close(leak.probabilities, solve(method, tasks, lam=3.0 * 20).probabilities)


@pytest.mark.parametrize(
    ("method", "m_step"), [("em-dirichlet", "exact"), ("hard-em-dirichlet", "exact"), ("hard-em-dirichlet", "authors")]
)
def test_class_features_are_prototypes_and_classes_need_no_support(method, m_step):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 6, 9, generator=generator)
    query = vectors[:, :2].repeat_interleave(5, 1) + 0.3 * torch.randn(2, 10, 9, generator=generator)
    empty, none = torch.zeros(2, 0, 9), torch.zeros(2, 0, dtype=torch.int64)
    tasks = Tasks.from_arrays(empty, none, query, class_features=vectors)
    found = solve(method, tasks, scale="l2", m_step=m_step, max_iter=2)
    assert found.labels.tolist() == [[0] * 5 + [1] * 5] * 2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"simplex": "given"}, "needs one probability per class, 4; the features have 5"),
        ({"k_eff": 5}, "k_eff is 5; it must be from 1 to K = 4"),
        ({"k_eff": 2, "lam": 1.0}, "lam must then be None"),
        ({"prior_weight": 0.0}, "prior_weight is 0.0; it must be positive"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(params, message):
    with pytest.raises(InputError, match=message):
        solve("em-dirichlet", make_tasks(), **params)


@pytest.mark.parametrize(
    ("row", "message"), [([0.5, 0.1, 0.1, 0.1], "sum of 0.8"), ([1.5, -0.5, 0, 0], "value of -0.5")]
)
def test_given_points_off_the_simplex_are_refused(row, message):
    tasks = points()
    query = tasks.query.clone()
    query[1, 3] = torch.tensor(row)
    bad = Tasks.from_arrays(tasks.support, tasks.support_labels, query)
    with pytest.raises(InputError, match=f"row 3 of the query of task 1 has a .*{message}"):
        solve("em-dirichlet", bad, simplex="given")


def test_the_estimator_takes_class_features():
    names = {"ant": [1.0, 0.0, 0.0], "bee": [0.0, 1.0, 0.0], "cat": [0.0, 0.0, 1.0]}
    found = EMDirichlet(scale="l2").fit(None, None, class_features=names).predict([[0.9, 0.1, 0.0], [0.0, 0.2, 1.0]])
    assert found.tolist() == ["ant", "cat"]


@pytest.mark.slow
def test_answers_are_those_of_the_recorded_run(data_folder: Path):
    """All of the authors' 1,000 steps, on the first recorded task of CLINC150, 5 shots, K_eff = 30."""
    path = data_folder.parent / "reference" / "clinc150_5shot_keff30_later.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)["clinc150"]).features
    tasks = recorded_tasks(data_folder, features, "clinc150", "5shot_keff30", 1)
    found = solve("em-dirichlet", tasks, m_step="authors")
    with np.load(path, allow_pickle=False) as file:
        assert np.array_equal(found.labels.numpy(), file["em-dirichlet"][:1])
        np.testing.assert_allclose(found.probabilities[0].numpy(), file["probs64_task0_em-dirichlet"], atol=1e-4)
