"""Known labels of some queries: they are kept, they teach the others, and they say what to ask next."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway import Evidence, InputError, Tasks, TaskSpec, sample_tasks, solve
from manyway.errors import ConvergenceWarning
from manyway.methods import get_method
from manyway.sampling.embedded import load_glyphs


def some_known(tasks: Tasks, every: int = 3) -> Tensor:
    """[t, q] the true class of every third query."""
    assert tasks.query_labels is not None
    rows = torch.arange(tasks.n_query) % every == 0
    return torch.where(rows, tasks.query_labels, -1)


def renamed_group() -> tuple[Tasks, int]:
    """Queries of class 1 that lie near the prototype of class 0, because its examples are unusual."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(4, 6, dtype=torch.float64) * 6
    support = centres.repeat_interleave(3, 0)
    support = support + torch.randn(support.shape, generator=generator, dtype=torch.float64)
    middle = 0.58 * centres[0] + 0.42 * centres[1]
    query = middle + 0.2 * torch.randn(12, 6, generator=generator, dtype=torch.float64)
    return Tasks.from_arrays(support[None], torch.arange(4).repeat_interleave(3)[None], query[None]), 1


# --- what is known stays --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [1, 2])
def test_known_queries_keep_their_class_with_probability_1(shots: int):
    tasks = make_tasks(4, n_classes=6, n_query=20, shots=shots)
    known = some_known(tasks)
    wrong = torch.where(known >= 0, (known + 1) % 6, -1)  # whatever the features say
    found = solve("evidence", tasks, known=wrong)
    rows = wrong >= 0
    assert (found.labels[rows] == wrong[rows]).all()
    assert (found.probabilities[rows].amax(-1) == 1).all()
    assert (found.presence.gather(1, wrong.clamp_min(0))[rows] == 1).all()
    assert (found.n_present >= torch.tensor([row[row >= 0].unique().numel() for row in wrong]) - 1e-6).all()


def test_nothing_known_changes_nothing():
    tasks = make_tasks(3, n_query=12)
    plain, given = solve("evidence", tasks), solve("evidence", tasks, known=torch.full((3, 12), -1))
    assert torch.equal(plain.probabilities, given.probabilities)
    assert torch.equal(plain.presence, given.presence)


def test_known_labels_are_a_part_of_tasks():
    tasks = make_tasks(3, n_query=12)
    known = some_known(tasks)
    expected = solve("evidence", tasks, known=known)
    given = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query, known=known)
    for same in (given, tasks.with_known(known)):
        assert torch.equal(solve("evidence", same).probabilities, expected.probabilities)
    assert tasks.with_known(torch.full((3, 12), -1)).known is None
    torch.testing.assert_close(solve("evidence", given[1:]).probabilities, expected.probabilities[1:])


def test_a_batch_equals_its_tasks():
    tasks = make_tasks(5, n_classes=5, n_query=15)
    known = some_known(tasks)
    known[3] = -1  # a task without known queries among others
    known[4, 1:5] = tasks.query_labels[4, 1:5]
    batch = solve("evidence", tasks, known=known)
    for t in range(5):
        alone = solve("evidence", tasks[t : t + 1], known=known[t : t + 1])
        torch.testing.assert_close(batch.probabilities[t], alone.probabilities[0])
        torch.testing.assert_close(batch.presence[t], alone.presence[0])
        torch.testing.assert_close(batch.review_scores[t], alone.review_scores[0])
    torch.testing.assert_close(batch.probabilities[3], solve("evidence", tasks[3:4]).probabilities[0])


def test_the_bound_is_finite_with_known_queries_and_never_decreases():
    tasks = make_tasks(3, n_query=15)
    found = solve("evidence", tasks, known=some_known(tasks), with_objective=True)
    assert torch.isfinite(found.objective).all()
    assert (found.objective.diff(dim=1) > -1e-9).all()


# --- what is known teaches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_labels_that_the_batch_says_anyway_are_no_news_to_the_other_queries(shots: int):
    tasks = make_tasks(6, n_classes=6, n_query=20, shots=shots)
    before = solve("evidence", tasks, adapt=False)  # of a shift they are news: it is more certain
    known = torch.where(torch.arange(20) % 3 == 0, before.labels, -1)
    after = solve("evidence", tasks, known=known, adapt=False)
    assert torch.equal(after.labels, before.labels)
    if shots > 1:  # with one example per class, pairs of surer queries say how sure to be
        assert torch.equal(after.probabilities[known < 0], before.probabilities[known < 0])


def test_a_label_that_contradicts_one_task_leaves_the_others_as_they_are():
    tasks = make_tasks(3, n_classes=4, n_query=12)
    before = solve("evidence", tasks)
    known = torch.where(torch.arange(12) % 3 == 0, before.labels, -1)
    known[1, 0] = (known[1, 0] + 1) % 4
    after = solve("evidence", tasks, known=known)
    others, free = torch.tensor([0, 2]), torch.arange(12) % 3 > 0
    torch.testing.assert_close(after.probabilities[others][:, free], before.probabilities[others][:, free])


def test_naming_one_query_of_a_group_renames_the_group():
    tasks, right = renamed_group()
    before = solve("evidence", tasks, scale=None)
    assert (before.labels != right).all()
    known = torch.full((1, 12), -1)
    known[0, 0] = right
    after = solve("evidence", tasks, known=known, scale=None)
    assert (after.labels == right).all()


def test_confirming_one_query_of_a_group_keeps_the_class_of_the_group():
    tasks, _ = renamed_group()
    known = torch.full((1, 12), -1)
    known[0, 0] = 0
    found = solve("evidence", tasks, known=known, scale=None)
    assert (found.labels == 0).all()
    assert (found.probabilities[..., 0] >= solve("evidence", tasks, scale=None).probabilities[..., 0] - 1e-3).all()


# --- the estimator, and what to ask next ----------------------------------------------------------------------------


def fitted() -> tuple[Evidence, np.ndarray, np.ndarray]:
    tasks = make_tasks(1, n_classes=4, n_query=10)
    names = np.array(["ant", "bee", "cat", "dog"])
    clf = Evidence().fit(tasks.support[0].numpy(), names[tasks.support_labels[0]])
    return clf, tasks.query[0].numpy(), names[tasks.query_labels[0]]


def test_the_estimator_takes_known_labels_by_row():
    clf, X, truth = fitted()
    plain, found = clf.infer(X), clf.infer(X, known={3: "dog", np.int64(5): truth[5]})
    assert found.labels[3] == "dog"
    assert found.probabilities[3].tolist() == [0, 0, 0, 1]
    assert found.presence[3] == 1
    assert sorted(found.review_order) == [0, 1, 2, 4, 6, 7, 8, 9]
    assert sorted(plain.review_order) == list(range(10))
    np.testing.assert_array_equal(clf.infer(X, known={}).probabilities, plain.probabilities)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.review_order, found.review_order)
    everything = clf.infer(X, known=dict(enumerate(truth)))
    assert everything.labels.tolist() == truth.tolist()
    assert len(everything.review_order) == 0


def test_a_torch_pile_has_its_order_as_a_tensor():
    clf, X, _ = fitted()
    assert isinstance(clf.infer(torch.from_numpy(X), known={0: "ant"}).review_order, Tensor)


def test_bad_known_labels_are_refused_with_a_sentence():
    clf, X, _ = fitted()
    for known, message in (
        ("gnu", "known is of the type str; give a mapping"),
        ({10: "ant"}, "known has a label for row 10; rows are integers from 0 to 9"),
        ({-1: "ant"}, "known has a label for row -1"),
        ({"3": "ant"}, "known has a label for row '3'"),
        ({True: "ant"}, "known has a label for row True"),
        ({3: "gnu"}, "known has the label 'gnu' for row 3, which is not among the classes; correct it, or give fit"),
        ({3: ["ant"]}, "which is not among the classes"),
        ({3: None}, "which is not among the classes"),
    ):
        with pytest.raises(InputError, match=message):
            clf.infer(X, known=known)
    tasks = make_tasks(2, n_query=7)
    for values, message in (
        (torch.zeros(2, 6, dtype=torch.int64), r"known has shape \(2, 6\), not \(2, 7\)"),
        (torch.full((2, 7), 4), "known has the class 4 for query 0 of task 0; give a class from 0 to 3, or -1"),
        (torch.full((2, 7), -2), "known has the class -2"),
        (torch.zeros(2, 7), "known must hold integers"),
    ):
        with pytest.raises(InputError, match=message):
            solve("evidence", tasks, known=values)
    with pytest.raises(InputError, match="paddle cannot use known labels of queries; use evidence"):
        solve("paddle", tasks, known=torch.zeros(2, 7, dtype=torch.int64))


def test_with_one_example_per_class_the_first_answer_does_no_harm():
    features, spec = load_glyphs(), TaskSpec(shots=1, k_eff=15, n_query=120)
    tasks = sample_tasks(features, spec, seed=2, count=4)
    before = solve("evidence", tasks)
    asked = before.review_scores.argmax(1, keepdim=True)
    known = torch.full_like(tasks.query_labels, -1).scatter(1, asked, tasks.query_labels.gather(1, asked))
    after = get_method("evidence")(tasks, known=known)
    n_right = [(solution.labels == tasks.query_labels).sum(1) for solution in (before, after)]
    assert (n_right[1] >= n_right[0]).all()


def test_a_right_answer_does_not_drive_a_class_into_its_neighbour():
    # Task 9 was the case: five items at the edge of a letter moved its prototype, and half of the others left it.
    tasks = sample_tasks(load_glyphs(), TaskSpec(shots=5, k_eff=5, n_query=100), start=9, count=1)
    fitted = Evidence(rehearse=False).fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    truth = tasks.query_labels[0].numpy()
    known: dict[int, int] = {}
    n_wrong = []
    for _ in range(13):
        found = fitted.infer(tasks.query[0].numpy(), known=known)
        n_wrong.append(int((found.labels != truth).sum()))
        asked = int(found.review_order[0])
        known[asked] = int(truth[asked])
    assert n_wrong[-1] == 0
    assert n_wrong == sorted(n_wrong, reverse=True)


@pytest.mark.parametrize(("update_prototypes", "n_searches"), [(False, 2), (True, 3)])
def test_the_iterations_of_every_search_are_counted_where_a_known_label_contradicts(update_prototypes, n_searches):
    """All queries, then with fixed labels, then with prototypes that have taken in their queries."""
    tasks = make_tasks(1, n_classes=6, n_query=20, shots=2)
    known = torch.full((1, 20), -1)
    known[0, 0] = (tasks.query_labels[0, 0] + 1) % 6
    with pytest.warns(ConvergenceWarning):
        found = solve("evidence", tasks, known=known, max_iter=3, tol=1e-300, update_prototypes=update_prototypes)
    assert found.n_iter.tolist() == [3 * n_searches]
