"""Tasks and the arithmetic and transforms on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import make_features, make_tasks, piled

from manyway import InputError, Tasks, TaskSpec, sample_tasks
from manyway.core.ops import class_sums, dot_scores, entropy, one_hot, prototypes, squared_distances
from manyway.core.transforms import transform


def looped_sums(tasks):
    return torch.stack(
        [
            torch.stack([tasks.support[t][tasks.support_labels[t] == k].sum(0) for k in range(tasks.n_classes)])
            for t in range(len(tasks))
        ]
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(2, 9), st.sampled_from([1, 3, None]), st.integers(0, 999))
def test_class_sums_are_sums_over_each_class(n_tasks, n_classes, shots, seed):
    tasks = make_tasks(n_tasks, n_classes, shots=shots, seed=seed)
    sums, counts = class_sums(tasks)
    torch.testing.assert_close(sums, looped_sums(tasks))
    torch.testing.assert_close(counts.sum(1), torch.full((n_tasks,), float(tasks.n_support), dtype=torch.float64))


@pytest.mark.parametrize("spec", [TaskSpec(shots=3, k_eff=2, n_query=6), TaskSpec(shots=None, k_eff=2, n_query=6)])
def test_class_sums_of_indices_with_and_without_a_factor(spec):
    features = make_features()
    features = type(features)(
        features.features, features.labels, is_support=torch.arange(len(features.labels)) % 3 == 0
    )
    tasks = sample_tasks(features, spec, count=4)
    torch.testing.assert_close(class_sums(tasks)[0], looped_sums(tasks), atol=1e-4, rtol=1e-4)
    scaled = transform(tasks, "range")
    assert scaled.factor is not None
    torch.testing.assert_close(class_sums(scaled)[0], looped_sums(scaled), atol=1e-4, rtol=1e-4)
    assert scaled.shared_support == (spec.shots is None)


def test_distances_and_scores():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in (5, 4))
    direct = (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(-1)
    torch.testing.assert_close(squared_distances(a, b), direct)
    torch.testing.assert_close(dot_scores(a, b), -direct / 2 + a.square().sum(-1, keepdim=True) / 2)
    assert (squared_distances(a * 1e-9 + 7, a * 1e-9 + 7) >= 0).all()


def test_entropy_counts_zero_log_zero_as_zero():
    assert entropy(torch.tensor([1.0, 0.0])) == 0
    torch.testing.assert_close(entropy(torch.tensor([0.5, 0.5])), torch.tensor(2.0).log())


def test_one_hot():
    assert one_hot(torch.tensor([[2, 0]]), 3, torch.float64).tolist() == [[[0, 0, 1], [1, 0, 0]]]


def test_range_divides_by_the_range_of_the_queries_and_leaves_constants_alone():
    tasks = Tasks.from_arrays([[[0.0, 5.0], [8.0, 7.0]]], [[0, 1]], [[[1.0, 3.0], [5.0, 3.0]]])
    scaled = transform(tasks, "range")
    assert scaled.query.tolist() == [[[0.25, 3.0], [1.25, 3.0]]]
    assert scaled.support.tolist() == [[[0.0, 5.0], [2.0, 7.0]]]
    assert tasks.query.tolist() == [[[1.0, 3.0], [5.0, 3.0]]]


def test_l2_and_cl2_give_unit_vectors_and_a_zero_vector_stays():
    tasks = Tasks.from_arrays([[[0.0, 0.0], [8.0, 6.0]]], [[0, 1]], [[[3.0, 4.0]]], base_mean=[0.0, 1.0])
    np.testing.assert_allclose(transform(tasks, "l2").support, [[[0, 0], [0.8, 0.6]]])
    np.testing.assert_allclose(transform(tasks, "l2").query, [[[0.6, 0.8]]])
    np.testing.assert_allclose(transform(tasks, "cl2").support[0, 0], [0, -1])
    centred = transform(
        Tasks.from_arrays(tasks.support, [[0, 1]], tasks.query), "cl2"
    )  # without a base mean: the support's
    np.testing.assert_allclose(centred.support, [[[-0.8, -0.6], [0.8, 0.6]]], rtol=1e-6)


def test_power_is_the_authors_root_on_positive_features_and_its_odd_extension_otherwise():
    tasks = make_tasks()
    positive = Tasks.from_arrays(tasks.support.abs(), tasks.support_labels, tasks.query.abs())
    root = (tasks.query.abs() + 1e-6).sqrt()
    root = root / root.norm(dim=-1, keepdim=True)
    root = root - root.mean(1, keepdim=True)
    torch.testing.assert_close(transform(positive, "power").query, root / root.norm(dim=-1, keepdim=True))
    mixed = transform(tasks, "power")
    assert torch.isfinite(mixed.query).all()
    flipped = Tasks.from_arrays(-tasks.support, tasks.support_labels, -tasks.query)
    torch.testing.assert_close(transform(flipped, "power").query, -mixed.query)


@pytest.mark.parametrize("name", ["l2", "cl2", "range", "power"])
def test_a_transform_of_indices_is_the_transform_of_the_arrays(name):
    for n_features, count in ((8, 2), (8, 40)):  # fewer rows asked for than the table holds, and more
        tasks = sample_tasks(make_features(n_features=n_features), TaskSpec(shots=2, k_eff=2, n_query=5), count=count)
        dense = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query)
        torch.testing.assert_close(transform(tasks, name).support, transform(dense, name).support)
        torch.testing.assert_close(transform(tasks, name).query, transform(dense, name).query)


def test_slices_and_moves_keep_what_a_task_is():
    tasks = sample_tasks(make_features(), TaskSpec(shots=2, k_eff=2, n_query=5, n_ways=4), count=6)
    part = tasks[2:4]
    assert len(part) == 2
    torch.testing.assert_close(part.query, tasks.query[2:4])
    assert torch.equal(part.classes, tasks.classes[2:4])
    moved = tasks.to("cpu", torch.float64)
    assert moved.dtype == torch.float64
    assert moved.support_labels.stride(0) == 0, "labels that all tasks share are stored once"
    torch.testing.assert_close(prototypes(moved).float(), prototypes(tasks))


@pytest.mark.parametrize(
    ("support", "labels", "query", "message"),
    [
        ([[[0.0], [1.0]]], [[0, 1]], [[[0.0, 1.0]]], r"query has shape \(1, 1, 2\), not \(1, 1, 1\)"),
        ([[[0.0], [1.0]]], [[0]], [[[0.0]]], "give one label for each"),
        ([[[0.0], [1.0]]], [[0, 2]], [[[0.0]]], "Class 1 has no example in the support of task 0"),
        ([[[0.0], [1.0]]], [[0, -1]], [[[0.0]]], "integers from 0 to K-1"),
        ([[[0.0], [1.0]]], [[0.0, 1.0]], [[[0.0]]], "must hold integers"),
        ([[[0.0], [float("inf")]]], [[0, 1]], [[[0.0]]], "support has infinite values in row 1"),
        ([[0.0], [1.0]], [0, 1], [[0.0]], "three axes"),
        ([[[0.0], [1.0]]], [[0, 1]], np.zeros((1, 0, 1)), "no query"),
        ([[[0.0], [1.0]]], [[0, 1]], np.zeros((2, 1, 1)), r"query has shape \(2, 1, 1\), not \(1, 1, 1\)"),
        (np.zeros((1, 2, 1), complex), [[0, 1]], [[[0.0]]], "complex"),
    ],
)
def test_arrays_that_do_not_fit_are_one_sentence(support, labels, query, message):
    with pytest.raises(InputError, match=message):
        Tasks.from_arrays(support, labels, query)


def test_known_labels_follow_a_slice_and_a_move():
    tasks = make_tasks(3, n_query=4)
    known = torch.tensor([[-1, 0, 1, -1], [-1] * 4, [2, -1, -1, -1]])
    given = tasks.with_known(known)
    assert torch.equal(given[1:].known, known[1:])
    assert torch.equal(given.to(dtype=torch.float32).known, known)
    assert torch.equal(given.known_labels, known)
    assert torch.equal(tasks.known_labels, torch.full((3, 4), -1))
    assert tasks.with_known(None) is tasks


def test_scores_are_tasks_of_which_no_class_needs_an_example():
    rows = torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log()
    tasks = Tasks.from_scores(rows, known=torch.tensor([[2, -1]]))
    assert (tasks.n_classes, tasks.n_query, tasks.n_support, tasks.scores) == (3, 2, 0, True)
    features = tasks.scores_as_features(class_features=True)
    torch.testing.assert_close(features.query, rows.exp())
    assert torch.equal(features.class_features, torch.eye(3)[None])
    assert torch.equal(features.known, tasks.known)
    assert not features.scores


def test_a_pile_has_no_rows_in_memory():
    tasks = make_tasks(1, n_query=11)
    pile = piled(tasks, 4)
    assert (pile.n_query, tuple(pile.query.shape)) == (11, (1, 0, 5))
    assert pile.pile.sizes == (4, 4, 3)
    assert [part.tolist() for part in pile.pile.split(torch.arange(11)[None])][2] == [[8, 9, 10]]
    with pytest.raises(InputError, match=r"known has shape \(1, 3\), not \(1, 11\)"):
        pile.with_known(torch.zeros(1, 3, dtype=torch.int64))


def test_a_number_of_classes_may_be_an_integer_of_numpy():
    tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1]]], n_classes=np.int64(2))
    assert type(tasks.n_classes) is int
