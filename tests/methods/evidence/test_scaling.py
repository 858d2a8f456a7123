"""Rows of examples, queries and names are scaled alike."""

from __future__ import annotations

import pytest
import torch

from manyway import Tasks
from manyway.methods.calibration import Representation, transform
from manyway.methods.evidence.scaling import representation_of, scale_tasks
from manyway.methods.evidence.schedule import Parameters
from problems import make_tasks, piled


def test_the_support_teaches_the_representation_of_all_rows():
    tasks = make_tasks(2, n_classes=4, n_features=6, shots=3)
    scaled = scale_tasks(tasks, Parameters())
    representation = representation_of(scaled.scaling)
    assert isinstance(representation, Representation)
    assert len(representation.power) == 2
    torch.testing.assert_close(scaled.tasks.support, representation(tasks.support))
    torch.testing.assert_close(scaled.tasks.query, representation(tasks.query))


def test_one_support_has_one_representation_and_the_same_rows():
    one = make_tasks(1, n_classes=5, n_query=9, n_features=6, shots=4)
    rows = torch.arange(one.n_support).expand(3, -1)
    labels = one.support_labels.expand(3, -1)
    shared = Tasks(one.support[0], rows, labels, one.query[0], torch.arange(9).view(3, 3), one.n_classes)
    assert shared.shared_support
    scaled = scale_tasks(shared, Parameters())
    assert len(scaled.scaling.power) == 1
    alone = scale_tasks(one, Parameters())
    torch.testing.assert_close(scaled.tasks.query.flatten(0, 1), alone.tasks.query[0])
    torch.testing.assert_close(scaled.tasks.support[2], alone.tasks.support[0])


def test_the_queries_of_a_pile_are_scaled_when_they_are_read():
    tasks = make_tasks(1, n_classes=4, n_features=6, shots=3)
    scaled = scale_tasks(piled(tasks, size=4), Parameters())
    assert scaled.tasks.pile is None
    torch.testing.assert_close(scaled.scaling(tasks.query), scale_tasks(tasks, Parameters()).tasks.query)


@pytest.mark.parametrize("scale", ["rcl2", "cl2", "l2", None])
def test_a_scale_by_name_is_the_transform_of_that_name(scale):
    tasks = make_tasks(2, n_classes=4, n_features=6, shots=3)
    scaled = scale_tasks(tasks, Parameters(scale=scale))
    assert representation_of(scaled.scaling) is None
    expected = transform(tasks, scale)
    torch.testing.assert_close(scaled.tasks.support, expected.support)
    torch.testing.assert_close(scaled.tasks.query, expected.query)


@pytest.mark.parametrize(("without", "n_added"), [(-1, 0), (2, 4)])
def test_names_are_further_examples_where_a_class_has_no_other(without, n_added):
    tasks = make_tasks(1, n_classes=4, n_features=6, shots=3)
    names = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = tasks.support_labels[0] != without
    given = Tasks.from_arrays(
        tasks.support[:, kept], tasks.support_labels[:, kept], tasks.query, class_features=names
    )
    scaled = scale_tasks(given, Parameters())
    assert scaled.tasks.n_support == given.n_support + n_added
    assert scaled.without_names == (n_added == 0)
    if n_added:
        torch.testing.assert_close(scaled.tasks.support[:, -4:], scaled.names.vectors)
        assert scaled.tasks.support_labels[0, -4:].tolist() == [0, 1, 2, 3]
