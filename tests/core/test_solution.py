"""What a solver returns: it can be pickled, printed and made into a table."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch
from problems import make_tasks, piled

from manyway import METHODS, InputError, Solution, solve
from manyway.core import Counting
from manyway.core.solution import Recorder

EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))


@EVERY_METHOD
def test_a_solution_survives_pickling_with_what_it_computes_on_request(method):
    solution = method(make_tasks(2), **({"max_iter": 3} if "max_iter" in method.defaults else {}))
    loaded = pickle.loads(pickle.dumps(solution))
    for name in ("probabilities", "presence", "n_present", "n_present_sd", "labels", "proportions"):
        assert torch.equal(getattr(loaded, name), getattr(solution, name)), name
    for again in (loaded, loaded.changed(), copy.deepcopy(solution)):
        if solution.prototypes is None:
            assert again.prototypes is None
        else:
            assert torch.equal(again.prototypes, solution.prototypes)


def test_repr_shows_shapes_and_not_numbers():
    solution = solve("paddle", make_tasks(3), max_iter=4, with_objective=True)
    assert repr(solution) == "Solution(probabilities=[3, 7, 4], n_iter=[3], objective=[3, 4], converged=0 of 3 tasks)"


def test_a_table_has_one_row_per_task_and_query_with_the_two_best_classes():
    probabilities = torch.tensor([[[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]]])
    table = Solution(probabilities, torch.ones(1), torch.ones(1, dtype=torch.bool)).to_frame()
    assert table.columns.tolist() == ["task", "query", "label", "probability", "label_2", "probability_2"]
    assert table[["task", "query", "label", "label_2"]].values.tolist() == [[0, 0, 1, 2], [0, 1, 0, 1]]
    assert table["probability"].tolist() == pytest.approx([0.6, 0.4])
    assert table["probability_2"].tolist() == pytest.approx([0.3, 0.4])


def test_a_table_without_pandas_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"to_frame needs pandas; install it with: pip install .*\[tables\]\""):
        solve("simpleshot", make_tasks(1)).to_frame()


def test_a_recorder_repeats_the_last_value_of_tasks_that_have_stopped():
    recorder = Recorder(("a", "b"))
    recorder.add(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]))
    recorder.add(torch.tensor([[5.0], [1.0]]), torch.tensor([2]))
    assert recorder.parts["a"].tolist() == [[1.0, 1.0], [2.0, 2.0], [3.0, 5.0]]
    assert recorder.parts["b"].tolist() == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]


def test_the_objective_is_the_sum_of_its_parts():
    parts = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[0.5, -1.0]])}
    solution = Solution(torch.ones(1, 2, 3) / 3, torch.ones(1), torch.ones(1).bool(), objective_parts=parts)
    assert solution.objective.tolist() == [[1.5, 1.0]]


@pytest.mark.parametrize("method", ["paddle", "soft-kmeans", "paddle-pgd", "laplacianshot", "evidence"])
def test_a_huge_iteration_limit_costs_no_memory(method):
    """An objective that is allocated for all iterations would need 16 GB for each term and task here."""
    solution = solve(method, make_tasks(2), max_iter=2 * 10**9, tol=1e-2, with_objective=True)
    assert solution.converged.all()
    assert solution.objective.shape == (2, int(solution.n_iter.max()))


def test_a_solution_with_other_probabilities_keeps_what_the_method_found():
    solution = solve("evidence", make_tasks(2))
    prototypes, scores = solution.prototypes, solution.review_scores
    other = solution.changed(probabilities=solution.probabilities.flip(-1), unknown=torch.full((2, 7), 0.2))
    assert torch.equal(other.labels, solution.probabilities.flip(-1).argmax(-1))
    assert torch.equal(other.prototypes, prototypes)
    assert torch.equal(other.review_scores, scores)
    assert other.outcomes.shape == (2, 7, 5)


def test_a_solution_with_other_probabilities_counts_classes_by_the_same_constants():
    given = Counting(presence_offset=-2.0)
    solution = solve("evidence", make_tasks(2)).changed(counting=given)
    other = solution.changed(probabilities=solution.probabilities.clone())
    assert other.counting is given
    assert torch.equal(other.n_present, solution.n_present)


@pytest.mark.parametrize("method", ["evidence", "paddle", "simpleshot"])
def test_answers_for_a_pile_are_computed_when_they_are_asked_for(method):
    tasks = make_tasks(1, n_query=11)
    whole, blocks = (
        solve(method, tasks),
        solve(method, piled(tasks, 4), **({"tol": None} if method == "paddle" else {})),
    )
    assert "n_query=11, in blocks" in repr(blocks)
    for n in (1, 3):
        values, places = blocks.top(n).best.values
        assert values.shape == places.shape == (1, 11, n)
        torch.testing.assert_close(values, whole.probabilities.topk(n).values, rtol=0, atol=1e-6)
    torch.testing.assert_close(blocks.top(1).total / 11, whole.proportions.double(), rtol=0, atol=1e-5)
    loaded = pickle.loads(pickle.dumps(blocks))
    assert torch.equal(loaded.labels, whole.labels)
    torch.testing.assert_close(loaded.presence, whole.presence, rtol=0, atol=1e-5)


def test_unknown_queries_are_among_the_best_of_a_pile():
    values = solve("evidence", piled(make_tasks(1, n_query=11), 4), open_set=True).top(2).best.values
    assert [tuple(value.shape) for value in values] == [(1, 11, 2), (1, 11, 2), (1, 11), (1, 11)]
