"""Fast code gives the labels of the published algorithm, computed densely in float64."""

from __future__ import annotations

import pytest
import torch

from benchmarks.labels import Difference, differences, published, sets
from manyway import TaskSpec, sample_tasks, solve
from manyway.sampling.embedded import load_glyphs


@pytest.mark.slow
def test_labels_on_the_embedded_features_are_the_published_ones():
    difference = differences(load_glyphs(), TaskSpec(shots=5), 3)["ours", "published"]
    assert difference.labels == 0
    assert difference.largest < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shots"), [("clinc150", 5), ("clinc150", 20), ("cub200", 5)])
def test_labels_on_real_features_are_the_published_ones(name, shots, data_folder):
    features = dict(sets(data_folder / "features"))[name]
    difference = differences(features, TaskSpec(shots=shots), 4)["ours", "published"]
    assert difference.labels == 0
    assert difference.largest < 1e-4


def test_a_chunk_of_tasks_does_not_change_what_one_task_gets():
    """Tasks of a batch skip dead classes together and leave the iteration together. This must not change an answer."""
    tasks = sample_tasks(load_glyphs(), TaskSpec(shots=5), seed=3, count=2)
    together = solve("paddle", tasks)
    alone = torch.cat([solve("paddle", tasks[i : i + 1]).probabilities for i in range(2)])
    assert torch.equal(together.labels, alone.argmax(-1))
    torch.testing.assert_close(together.probabilities, published(tasks).float(), rtol=0, atol=1e-3)


def test_a_difference_is_seen():
    one = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.3, 0.7]]])
    other = one.clone()
    other[0, 1] = torch.tensor([0.6, 0.4])
    found = Difference()
    found.add(one, other, 8)
    found.add(one, one, 10)
    assert (found.labels, found.tasks, found.far) == (1, [8], 1)
    assert found.largest == pytest.approx(0.4)
