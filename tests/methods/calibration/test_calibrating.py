"""A calibration is learned from any support: ordinary values, such as copies, must not break it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems import make_tasks

from manyway import Tasks, solve
from manyway.core import mapped
from manyway.methods.calibration import calibrating as module
from manyway.methods.calibration.calibrating import Asked, calibrate_and_place, calibrate_distances
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.calibrate import learn_support


def table(n_examples: int, n_features: int = 6) -> Tasks:
    generator = torch.Generator().manual_seed(n_examples)
    labels = torch.arange(2).repeat_interleave(n_examples)
    support = torch.randn(1, len(labels), n_features, generator=generator) + labels.view(1, -1, 1)
    return Tasks.from_arrays(support, labels[None], torch.randn(1, 20, n_features, generator=generator))


def tensors_of(learned: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    mapped(learned, found.append)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_in_the_only_class_with_two_examples_are_no_error(dtype):
    bits = torch.tensor([[[0, 1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1, 0]]], dtype=dtype)
    found = solve("evidence", Tasks.from_arrays(bits, [[0, 1, 1]], bits))
    assert found.labels.tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classes_whose_examples_are_all_copies_are_labelled_by_the_nearest(dtype):
    examples = torch.randint(0, 17, (4, 30), generator=torch.Generator().manual_seed(3)).to(dtype)
    tasks = Tasks.from_arrays(
        examples.repeat_interleave(5, 0)[None], torch.arange(4).repeat_interleave(5)[None], examples[None]
    )
    assert solve("evidence", tasks).labels.tolist() == [list(range(4))]


def test_classes_of_one_example_beside_large_ones_take_no_more_queries_than_they_have():
    generator, counts = torch.Generator().manual_seed(3), torch.tensor([1, 20]).repeat(5)
    means, labels = 1.6 * torch.randn(40, 10, 4, generator=generator), torch.arange(10).repeat_interleave(counts)
    truth = torch.arange(10).repeat(8)
    rows = [means[:, of] + torch.randn(40, len(of), 4, generator=generator) for of in (labels, truth)]
    found = solve("evidence", Tasks.from_arrays(rows[0], labels.expand(40, -1), rows[1])).labels
    assert (counts[found] == 1).float().mean() < 0.47


def test_a_precision_of_the_user_is_obeyed_as_it_is():
    tasks = table(2)
    assert learn_support(tasks, Parameters(precision=3.0)).precision.tolist() == pytest.approx([3.0])
    learned = float(learn_support(tasks, Parameters()).precision[0])
    sure, unsure = (solve("evidence", tasks, precision=one).probabilities.amax(-1).mean() for one in (learned, None))
    assert sure > unsure


def test_categories_that_one_example_has_teach_nothing():
    """Without such an example nothing is known of its category: all classes are equally far in it."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(10).repeat_interleave(5)
    kinds = torch.randint(0, 25, (1, 50), generator=generator)  # in no relation to the classes
    rows = torch.cat([torch.nn.functional.one_hot(kinds, 25), torch.randn(1, 50, 3, generator=generator)], -1)
    losses = learn_support(Tasks.from_arrays(rows, labels[None], rows), Parameters()).calibration.left_out_losses
    assert losses.mean() > 0.8 * torch.tensor(10.0).log()


def test_blocks_of_tasks_are_calibrated_as_all_at_once(monkeypatch):
    tasks = make_tasks(3, n_classes=4, shots=5)
    tasks = tasks.with_rows(tasks.support * torch.tensor([10.0, 1, 1, 1, 1]), tasks.query)
    whole = calibrate_distances(tasks, Constants())
    assert (whole.coordinates.shrinkage < 1).all()
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", {"cpu": 1})
    found, placed = calibrate_distances(tasks, Constants()), calibrate_and_place(tasks, Constants())
    assert placed.calibration.coordinates.metric is None
    expected = tensors_of(whole.without_metric())
    for one in (found.without_metric(), placed.calibration):
        torch.testing.assert_close(tensors_of(one), expected)
    for rows in (found.coordinates.place(tasks.query), placed.queries):
        torch.testing.assert_close(rows, whole.coordinates.place(tasks.query))


def test_few_differences_within_classes_say_their_part_of_the_precision_and_of_the_shrinkage():
    """With f differences in K classes: f/K of the way from what holds for one example per class."""
    made = make_tasks(3, n_classes=8, n_features=20, shots=2)
    few = made.support_labels.new_tensor([0, 1, 2, 3, 4, 5, 6, 7, 0, 1]).expand(3, -1)
    order = made.support_labels.argsort(dim=1, stable=True)
    rows = torch.cat([order[:, ::2], order[:, 1:4:2]], 1).unsqueeze(-1).expand(-1, -1, 20)
    tasks = Tasks.from_arrays(made.support.gather(1, rows), few, made.query)
    found = calibrate_distances(tasks, Constants(), Asked(metric=False))
    torch.testing.assert_close(found.within.known(8), torch.full((3,), 2 / 8, dtype=torch.float64))
    whole = calibrate_distances(made, Constants(), Asked(metric=False))
    assert bool((whole.within.known(8) == 1).all())
    shrunk = found.shrunk(Constants(few_columns=0.0))
    longer = found.prototypes.counts / shrunk.prototypes.counts  # β s
    of_one, of_two = longer.amin(-1), longer.amax(-1)
    relative = of_one / of_two  # (ρ + ½)/(ρ + 1)
    ratio = (relative - 0.5) / (1 - relative)
    root = (ratio / (ratio + 0.5)).sqrt()
    beta = 1 / (root + 2 / 8 * (1 - root))
    torch.testing.assert_close(of_two, beta * root)
    torch.testing.assert_close(shrunk.prototypes.reach, root / beta)
    variances = 1 + longer / beta.unsqueeze(-1) / found.prototypes.counts
    slopes = variances.amin(-1, keepdim=True) / variances
    torch.testing.assert_close(shrunk.prototypes.trust, slopes * longer)
    steepness = torch.lerp(shrunk.prototypes.trust.amax(-1), shrunk.prototypes.trust.mean(-1), 2 / 8)
    torch.testing.assert_close(shrunk.prototypes.steepness, steepness)
