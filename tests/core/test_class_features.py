"""Class features of tasks: one vector per class, in the space of the items."""

from __future__ import annotations

import pytest
import torch
from problems import make_features, make_tasks

from manyway import InputError, Tasks, TaskSpec, sample_tasks, solve
from manyway.core.transforms import TRANSFORMS, transform

SUPPORT, LABELS, QUERY = [[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.5, 0.5]]]


def named_features():
    plain = make_features()
    return type(plain)(
        plain.features, plain.labels, class_features=torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    )


def test_one_row_serves_all_tasks():
    generator = torch.Generator().manual_seed(2)
    plain, vectors = make_tasks(3), torch.randn(1, 4, 5, generator=generator, dtype=torch.float64)
    tasks = Tasks.from_arrays(plain.support, plain.support_labels, plain.query, class_features=vectors)
    assert torch.equal(tasks.class_features, vectors.expand(3, -1, -1))
    assert torch.equal(tasks[1:].class_features, vectors.expand(2, -1, -1))
    assert tasks.shared_classes
    own = Tasks.from_arrays(plain.support, plain.support_labels, plain.query, class_features=plain.support[:, ::2])
    assert torch.equal(own[1:].class_features, plain.support[1:, ::2])


@pytest.mark.parametrize("n_ways", [None, 4])
def test_drawn_tasks_have_the_vectors_of_their_classes(n_ways):
    features = named_features()
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=2, n_query=5, n_ways=n_ways), count=6)
    assert torch.equal(tasks.class_features, features.class_features[tasks.classes])
    part = tasks[2:4].to(dtype=torch.float64)
    assert torch.equal(part.class_features, features.class_features[tasks.classes[2:4]].double())


# `power` centres each group apart, and `bpa` has no use for class features.
@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name not in ("power", "bpa")])
@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("n_ways", [None, 4])
def test_class_features_are_transformed_like_a_query(name, shots, n_ways):
    tasks = sample_tasks(named_features(), TaskSpec(shots=shots, k_eff=2, n_query=12, n_ways=n_ways), count=3)
    some = tasks.query[:, : tasks.n_classes]
    changed = transform(Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query, class_features=some), name)
    torch.testing.assert_close(changed.class_features, changed.query[:, : tasks.n_classes])
    again = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query, class_features=tasks.class_features)
    torch.testing.assert_close(transform(tasks, name).class_features, transform(again, name).class_features)
    torch.testing.assert_close(transform(tasks, name).query, transform(again, name).query)


def test_without_support_cl2_centres_on_the_class_features():
    vectors = torch.tensor([[[1.0, 0.0], [3.0, 0.0]]])
    tasks = Tasks.from_arrays(
        torch.zeros(1, 0, 2), torch.zeros(1, 0, dtype=int), [[[5.0, 0.0]]], class_features=vectors
    )
    assert transform(tasks, "cl2").class_features.tolist() == [[[-1.0, 0.0], [1.0, 0.0]]]
    assert transform(tasks, "cl2").query.tolist() == [[[1.0, 0.0]]]


def test_an_extreme_magnitude_is_reduced_by_one_factor_for_all():
    scale = 2.0**70
    tasks = Tasks.from_arrays(
        torch.tensor(SUPPORT) * scale, LABELS, torch.tensor(QUERY) * scale, class_features=torch.tensor(SUPPORT) * scale
    )
    assert torch.equal(tasks.class_features, tasks.support)
    assert float(tasks.support.max()) == 0.5


@pytest.mark.parametrize(
    ("vectors", "n_classes", "message"),
    [
        ([[[1.0], [2.0]]], None, r"class_features has shape \(1, 2, 1\), not \(1, 2, 2\)"),
        ([[1.0, 2.0], [2.0, 1.0]], None, "three axes"),
        ([[[1.0, 2.0]] * 2] * 2, None, "with 1 tasks"),
        ([[[1.0, 2.0]] * 3], 2, r"class_features has shape \(1, 3, 2\), not \(1, 2, 2\)"),
        ([[[1.0, 2.0]]], None, "n_classes is 1 but support_labels has a label 1"),
        ([[[1.0, float("nan")], [1.0, 1.0]]], None, "class_features has NaN or infinite values in row 0"),
    ],
)
def test_class_features_that_do_not_fit_are_one_sentence(vectors, n_classes, message):
    with pytest.raises(InputError, match=message):
        Tasks.from_arrays(SUPPORT, LABELS, QUERY, n_classes=n_classes, class_features=vectors)


def test_a_class_without_samples_needs_a_method_that_uses_class_features():
    vectors = [[[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]]
    tasks = Tasks.from_arrays(SUPPORT, LABELS, QUERY, class_features=vectors)
    assert tasks.n_classes == 3
    with pytest.raises(InputError, match="simpleshot does not use class features, and class 2 has no example"):
        solve("simpleshot", tasks)


def test_methods_that_do_not_use_class_features_ignore_them():
    plain = make_tasks(2)
    vectors = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    tasks = Tasks.from_arrays(plain.support, plain.support_labels, plain.query, class_features=vectors)
    assert torch.equal(solve("paddle", tasks).probabilities, solve("paddle", plain).probabilities)
