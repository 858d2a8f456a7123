"""Properties of every method. They are tested for each method in METHODS, also for new ones."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from problems import ESTIMATORS, make_features, make_tasks
from torch import Tensor

from manyway import METHODS, Solution, Tasks, TaskSpec, sample_tasks
from manyway.estimators.from_solver import OWN_DEFAULTS, OWN_PARAMETERS
from manyway.methods._table.registry import _ALL, Method

EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))


def run(method: Method, tasks: Tasks, max_iter: int = 5) -> Solution:
    """Run a method with few iterations: the properties hold after any number of them."""
    quick = {}
    if method.name == "ici":
        quick = {"c": 0.1}  # a hundredth of its default: few steps per round
        max_iter = min(max_iter, 2)  # rounds
    return method(tasks, **quick, **({"max_iter": max_iter} if "max_iter" in method.defaults else {}))


def permuted(tasks: Tasks, *, support: Tensor | None = None, query: Tensor | None = None) -> Tasks:
    if support is not None:
        tasks = replace(tasks, support_table=tasks.support[:, support], support_labels=tasks.support_labels[:, support])
    if query is not None:
        tasks = replace(tasks, query_table=tasks.query[:, query])
    return tasks


@EVERY_METHOD
@pytest.mark.parametrize(
    ("n_classes", "n_query", "shots"),
    [(2, 1, 1), (2, 300, None), (20, 1, None), (20, 75, 1), (160, 75, None), (500, 1, 1), (300, 300, 1)],
)
def test_answers_are_probabilities_at_any_size(method, n_classes, n_query, shots):
    tasks = make_tasks(1, n_classes, n_query, 6, shots, dtype=torch.float32)
    solution = run(method, tasks, max_iter=3)
    assert solution.probabilities.shape == (1, n_query, n_classes)
    assert solution.probabilities.dtype == torch.float32
    assert (solution.probabilities >= 0).all()
    torch.testing.assert_close(solution.probabilities.sum(-1), torch.ones(1, n_query), atol=1e-4, rtol=0)
    assert solution.labels.shape == (1, n_query)
    assert solution.proportions.shape == (1, n_classes)
    assert solution.n_iter.shape == solution.converged.shape == (1,)
    assert solution.converged.dtype == torch.bool
    assert solution.prototypes is None or solution.prototypes.shape[:2] == (1, n_classes)


@EVERY_METHOD
def test_a_batch_is_a_loop_over_tasks(method):
    tasks = make_tasks(3, shots=None)
    together = run(method, tasks)
    for i in range(3):
        alone = run(method, tasks[i : i + 1])
        torch.testing.assert_close(alone.probabilities[0], together.probabilities[i], atol=1e-9, rtol=1e-7)
        assert alone.n_iter[0] == together.n_iter[i]
        assert alone.converged[0] == together.converged[i]


@EVERY_METHOD
def test_permuting_queries_permutes_answers(method):
    tasks = make_tasks(2)
    order = torch.tensor([3, 1, 6, 0, 5, 2, 4])
    expected = run(method, tasks).probabilities[:, order]
    torch.testing.assert_close(run(method, permuted(tasks, query=order)).probabilities, expected, atol=1e-7, rtol=1e-5)


@EVERY_METHOD
def test_the_order_of_the_support_does_not_matter(method):
    tasks = make_tasks(2)
    order = torch.tensor([7, 2, 4, 0, 1, 6, 5, 3])
    shuffled = run(method, permuted(tasks, support=order)).probabilities
    torch.testing.assert_close(shuffled, run(method, tasks).probabilities, atol=1e-7, rtol=1e-5)


@EVERY_METHOD
def test_renaming_classes_renames_answers(method):
    tasks = make_tasks(2)
    new_name = torch.tensor([2, 0, 3, 1])
    renamed = replace(tasks, support_labels=new_name[tasks.support_labels])
    answers = run(method, renamed).probabilities[..., new_name]
    torch.testing.assert_close(answers, run(method, tasks).probabilities, atol=1e-7, rtol=1e-5)


@EVERY_METHOD
def test_inputs_stay_as_they_were(method):
    tasks = make_tasks(2)
    before = {f.name: v.clone() for f in fields(tasks) if isinstance(v := getattr(tasks, f.name), Tensor)}
    run(method, tasks)
    for name, value in before.items():
        assert torch.equal(getattr(tasks, name), value), name


@EVERY_METHOD
def test_the_same_call_gives_the_same_bits_whatever_the_random_state(method):
    tasks = make_tasks(3, dtype=torch.float32)
    torch.manual_seed(1)
    first, state = run(method, tasks).probabilities, torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(run(method, tasks).probabilities, first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state), "a solver must not draw from the global generator"


@EVERY_METHOD
def test_float32_agrees_with_float64(method):
    tasks = make_tasks(4, n_classes=6, n_query=20, n_features=16, shots=3, spread=1.0)
    single, double = run(method, tasks.to(dtype=torch.float32)), run(method, tasks)
    assert single.probabilities.dtype == torch.float32
    assert double.probabilities.dtype == torch.float64
    torch.testing.assert_close(single.probabilities.double(), double.probabilities, atol=2e-4, rtol=0)


@EVERY_METHOD
def test_true_labels_are_never_read(method):
    tasks = make_tasks(2)
    expected = run(method, tasks).probabilities
    for labels in (None, torch.full_like(tasks.query_labels, 10**9)):
        assert torch.equal(run(method, replace(tasks, query_labels=labels)).probabilities, expected)


@EVERY_METHOD
def test_indices_and_arrays_give_the_same_answers(method):
    features = make_features()
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=3, n_query=9), count=3)
    dense = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query)
    torch.testing.assert_close(run(method, tasks).probabilities, run(method, dense).probabilities, atol=1e-4, rtol=0)


@EVERY_METHOD
def test_objective_is_recorded_on_request(method):
    if "with_objective" not in method.defaults:
        pytest.skip(f"{method.name} has no objective")
    tasks = make_tasks(2)
    limit = {"max_iter": 6} if "max_iter" in method.defaults else {}
    assert method(tasks, **limit).objective is None
    solution = method(tasks, **limit, with_objective=True)
    assert solution.objective.shape[0] == 2
    assert solution.objective.shape[1] >= int(solution.n_iter.max())
    assert torch.isfinite(solution.objective).all()


@EVERY_METHOD
def test_easy_tasks_are_solved(method):
    """The classes are well separated in 200 features and equally frequent. A hundred steps are enough."""
    labels = torch.arange(4).repeat_interleave(5)
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(4, 200, generator=generator, dtype=torch.float64) * 4
    support = centres[labels] + 0.1 * torch.rand(20, 200, generator=generator, dtype=torch.float64)
    query = centres[labels] + 0.1 * torch.rand(20, 200, generator=generator, dtype=torch.float64)
    tasks = Tasks.from_arrays(support[None], labels[None], query[None])
    steps = {"max_iter": min(method.defaults["max_iter"], 100)} if "max_iter" in method.defaults else {}
    assert (method(tasks, **steps).labels[0] == labels).double().mean() >= 0.95


def test_every_method_has_an_estimator_with_the_solvers_defaults():
    assert set(ESTIMATORS) == set(METHODS)
    for name, estimator in ESTIMATORS.items():
        ours = {key: value for key, value in estimator().get_params().items() if key not in OWN_PARAMETERS}
        method = METHODS[name]
        theirs = {key: value for key, value in method.parameters.items() if key not in method.of_scores}
        own = {key: value for key, value in OWN_DEFAULTS.items() if key in theirs}
        assert ours == theirs | own, name


def test_a_name_is_given_once():
    assert len({method.name for method in _ALL}) == len(_ALL)
