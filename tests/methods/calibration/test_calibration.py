"""The calibration as a whole: how sure answers may be, and its log-likelihood."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway import Tasks
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.calibrate import learn_support


def table(n_examples: int, n_features: int = 6) -> Tasks:
    generator = torch.Generator().manual_seed(n_examples)
    labels = torch.arange(2).repeat_interleave(n_examples)
    support = torch.randn(1, len(labels), n_features, generator=generator) + labels.view(1, -1, 1)
    return Tasks.from_arrays(support, labels[None], torch.randn(1, 20, n_features, generator=generator))


def test_few_left_out_examples_make_answers_less_sure_and_many_do_not():
    powers = [float(learn_support(table(n), Parameters()).calibration.power[0]) for n in (2, 5, 10, 50)]
    # An example that looks mislabelled counts a little less.
    assert powers == pytest.approx([4 / 29, 1 / 2, 4 / 5, 100 / 101], rel=0.01)


def test_many_examples_of_one_class_do_not_make_answers_about_the_other_sure():
    support, labels = torch.randn(1, 51, 6, generator=torch.Generator().manual_seed(2)), (torch.arange(51) > 0).long()
    found = learn_support(Tasks.from_arrays(support, labels[None], support), Parameters()).calibration.power
    assert found.tolist() == pytest.approx([1 / (1 + (10 / 2 * (1 + 1 / 50) / 2) ** 2)])


@pytest.mark.parametrize("n_features", [1, 6, 64, 65, 600])
def test_the_number_of_features_does_not_make_answers_surer(n_features):
    assert learn_support(table(2, n_features), Parameters()).calibration.power.tolist() == pytest.approx([4 / 29])


def test_an_added_class_leaves_the_precision_that_prototypes_have_without_shrinking():
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=3)
    plain = calibrate_distances(tasks, Constants())
    more = plain.shrunk(Constants()).with_classes(plain.coordinates.place(tasks.query[:, :1]))
    torch.testing.assert_close(more.unshrunk().precision, plain.precision)


@pytest.mark.parametrize("metric", [True, False])
def test_a_linear_map_gives_the_log_likelihood_but_for_a_number_per_item(metric):
    tasks = make_tasks(2, n_classes=6, shots=3)
    calibration = calibrate_distances(tasks, Constants(), Asked(metric=metric))
    placed = calibration.coordinates.place(tasks.query)
    weights, biases = calibration.linear()
    rest = calibration.log_likelihood(placed) - (placed @ weights + biases.unsqueeze(1))
    torch.testing.assert_close(rest, rest[..., :1].expand_as(rest))
    prototypes, tau = calibration.prototypes.offsets[1], float(calibration.precision[1])
    biased = calibration.within.scatter[1] / calibration.prototypes.counts[1]
    for z, found in zip(placed[1], calibration.log_likelihood(placed)[1], strict=True):
        torch.testing.assert_close(found, -0.5 * tau * ((z - prototypes).square().sum(-1) - biased))


def test_one_class_is_not_shrunk():
    plain = calibrate_distances(make_tasks(1, n_classes=1, shots=4), Constants())
    assert plain.shrunk(Constants()) is plain
