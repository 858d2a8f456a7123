"""PADDLE equals the paper's algorithm written plainly, and its objective never increases."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import make_tasks

from manyway import FeatureSet, InputError, Tasks, TaskSpec, sample_tasks, solve


def plain_paddle(support, labels, query, n_classes, lam=None, eps=1e-6, n_iter=100, use_range=True):
    """Algorithm 1 of the paper for one task, in NumPy float64, one line per formula, without code of the package."""
    support, query = np.asarray(support, np.float64), np.asarray(query, np.float64)
    if use_range:
        width = query.max(0) - query.min(0)
        width[width == 0] = 1
        support, query = support / width, query / width
    y = np.eye(n_classes)[labels]
    lam = len(query) if lam is None else lam
    w = (y.T @ support) / y.sum(0)[:, None]
    v = np.zeros(n_classes)
    for _ in range(n_iter):
        distances = np.stack([((query - centre) ** 2).sum(1) for centre in w], 1)
        logits = -distances / 2 + lam / len(query) * v
        u = np.exp(logits - logits.max(1, keepdims=True))
        u /= u.sum(1, keepdims=True)
        v = 1 + np.log(u.mean(0) + eps)
        w = (y.T @ support + u.T @ query) / (y.sum(0) + u.sum(0))[:, None]
    return u


def real_tasks(name: str, request: pytest.FixtureRequest) -> Tasks:
    if name == "glyphs":
        from manyway.sampling.embedded import load_glyphs

        features = load_glyphs()
    else:
        features = FeatureSet.load(request.getfixturevalue("data_folder") / "features" / "clinc150_minilm_l6.npz")
    return sample_tasks(features, TaskSpec(shots=5, k_eff=5, n_query=75, n_ways=80), seed=11, count=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["glyphs", "clinc150"])
def test_equals_the_papers_algorithm_on_real_features(name, request):
    tasks = real_tasks(name, request)
    expected = np.stack(
        [
            plain_paddle(tasks.support[i], tasks.support_labels[i], tasks.query[i], tasks.n_classes)
            for i in range(len(tasks))
        ]
    )
    limits = {torch.float32: 1e-5, torch.float64: 1e-10}
    for form, (dtype, tolerance) in product(("gram", "feature"), limits.items()):
        together = solve("paddle", tasks.to(dtype=dtype), form=form).probabilities
        alone = torch.cat(
            [solve("paddle", tasks[i : i + 1].to(dtype=dtype), form=form).probabilities for i in range(2)]
        )
        assert np.abs(together.numpy() - expected).max() < tolerance
        assert np.abs(alone.numpy() - expected).max() < tolerance


@pytest.mark.parametrize("form", ["gram", "feature"])
@pytest.mark.parametrize("lam", [None, 0.0, 3.0])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_equals_the_papers_algorithm_for_any_lambda_and_epsilon(form, lam, eps):
    tasks = make_tasks(shots=None)
    ours = solve("paddle", tasks, lam=lam, eps=eps, form=form, max_iter=30).probabilities
    for i in range(len(tasks)):
        expected = plain_paddle(
            tasks.support[i], tasks.support_labels[i], tasks.query[i], tasks.n_classes, lam, eps, 30
        )
        np.testing.assert_allclose(ours[i], expected, atol=1e-10)


def test_is_em_for_a_gaussian_mixture_when_lambda_is_the_number_of_queries():
    tasks = make_tasks(n_tasks=1)
    u = solve("paddle", tasks, scale=None, eps=0.0, max_iter=7).probabilities[0]
    support, labels, query = tasks.support[0], tasks.support_labels[0], tasks.query[0]
    y = torch.nn.functional.one_hot(labels, tasks.n_classes).double()
    means, weights = (y.T @ support) / y.sum(0)[:, None], torch.full((tasks.n_classes,), 1 / tasks.n_classes).double()
    for _ in range(7):
        joint = weights.log() - 0.5 * torch.cdist(query, means) ** 2  # E step: responsibilities
        r = joint.softmax(1)
        weights = r.mean(0)  # M step
        means = (y.T @ support + r.T @ query) / (y.sum(0) + r.sum(0))[:, None]
    torch.testing.assert_close(u, r)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    n_classes=st.integers(2, 8),
    n_query=st.integers(1, 12),
    n_features=st.integers(1, 6),
    shots=st.sampled_from([1, 2, None]),
    eps=st.sampled_from([0.0, 1e-6]),
    lam=st.sampled_from([None, 0.0, 0.5, 20.0]),
    scale=st.sampled_from(["range", None, "l2", "cl2"]),
    spread=st.floats(0, 5),
    seed=st.integers(0, 2**16),
)
def test_objective_never_increases(n_classes, n_query, n_features, shots, eps, lam, scale, spread, seed):
    """25 drawn problems × 2 tasks × 50 iterations: 2,500 iterations in each form."""
    tasks = make_tasks(2, n_classes, n_query, n_features, shots, seed=seed, spread=spread)
    for form in ("gram", "feature"):
        solution = solve("paddle", tasks, lam=lam, eps=eps, scale=scale, form=form, max_iter=50, with_objective=True)
        assert torch.isfinite(solution.objective).all()
        rise = solution.objective.diff(dim=1).max()
        assert rise <= 1e-10 * (1 + solution.objective.abs().max())


def test_objective_is_the_papers_with_its_three_parts():
    tasks = make_tasks(n_tasks=1, shots=None)
    lam, eps = 3.0, 1e-3
    solution = solve("paddle", tasks, lam=lam, eps=eps, scale=None, max_iter=5, with_objective=True)
    u, w = solution.probabilities[0], solution.prototypes[0]
    v = 1 + (u.mean(0) + eps).log()
    every_u = torch.cat([u, torch.nn.functional.one_hot(tasks.support_labels[0], tasks.n_classes).double()])
    every_z = torch.cat([tasks.query[0], tasks.support[0]])
    fit = 0.5 * (every_u * torch.cdist(every_z, w) ** 2).sum()
    complexity = lam * (v - 1).exp().sum() - lam * (v * (u.mean(0) + eps)).sum()
    barrier = (u * u.log()).sum()
    assert solution.objective.shape == (1, 5)
    for name, value in {"fit": fit, "complexity": complexity, "barrier": barrier}.items():
        torch.testing.assert_close(solution.objective_parts[name][0, -1], value)
    torch.testing.assert_close(solution.objective[0, -1], fit + complexity + barrier)


@pytest.mark.parametrize("form", ["gram", "feature"])
def test_tol_stops_each_task_on_its_own(form):
    tasks = make_tasks(n_tasks=6)
    full = solve("paddle", tasks, form=form, max_iter=500)
    early = solve("paddle", tasks, form=form, max_iter=500, tol=1e-6, with_objective=True)
    assert not full.converged.any()
    assert (full.n_iter == 500).all()
    assert early.converged.all()
    assert len(early.n_iter.unique()) > 1
    torch.testing.assert_close(early.probabilities, full.probabilities, atol=1e-4, rtol=0)
    for i in range(6):
        alone = solve("paddle", tasks[i : i + 1], form=form, max_iter=500, tol=1e-6)
        assert alone.n_iter[0] == early.n_iter[i]
        torch.testing.assert_close(alone.probabilities[0], early.probabilities[i])
        # the criterion itself: the last step moved the prototypes by less than tol on average, the one before by more
        last, before, earlier = (
            solve("paddle", tasks[i : i + 1], form=form, max_iter=int(early.n_iter[i]) - back).prototypes[0]
            for back in (0, 1, 2)
        )
        assert (last - before).norm(dim=1).mean() < 1e-6 <= (before - earlier).norm(dim=1).mean()


def test_epsilon_zero_stays_finite_when_classes_die():
    tasks = make_tasks(n_classes=30, n_query=5, spread=30.0, dtype=torch.float32)
    solution = solve("paddle", tasks, scale=None, eps=0.0, max_iter=200, with_objective=True)
    assert (solution.proportions == 0).any(), "the case is meant to kill classes"
    assert torch.isfinite(solution.probabilities).all()
    assert torch.isfinite(solution.objective).all()


def test_form_is_chosen_by_cost():
    from manyway.methods.paddle.forms import FeatureForm, GramForm, prototype_form

    assert isinstance(prototype_form(make_tasks(n_query=7, n_features=5), None), GramForm)
    assert isinstance(prototype_form(make_tasks(n_query=10, n_features=5), None), FeatureForm)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_iter": 0}, "max_iter"),
        ({"lam": -1.0}, "lam"),
        ({"eps": -1.0}, "eps"),
        ({"scale": "rnage"}, "did you mean 'range'"),
        ({"form": "grma"}, "form"),
        ({"lamda": 1.0}, "did you mean 'lam'"),
    ],
)
def test_impossible_parameters_are_one_sentence(params, message):
    with pytest.raises(InputError, match=message):
        solve("paddle", make_tasks(), **params)
