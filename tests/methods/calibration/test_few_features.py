"""Tables of few features: ordinary values that must not break the calibration, and how sure answers may be."""

import pytest
import torch

from manyway import solve
from manyway.core.tasks import Tasks
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.solver import learn


def table(n_examples: int, n_features: int = 6) -> Tasks:
    generator = torch.Generator().manual_seed(n_examples)
    labels = torch.arange(2).repeat_interleave(n_examples)
    support = torch.randn(1, len(labels), n_features, generator=generator) + labels.view(1, -1, 1)
    return Tasks.from_arrays(support, labels[None], torch.randn(1, 20, n_features, generator=generator))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_in_the_only_class_with_two_examples_are_no_error(dtype):
    bits = torch.tensor([[[0, 1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1, 0]]], dtype=dtype)
    found = solve("evidence", Tasks.from_arrays(bits, [[0, 1, 1]], bits))
    assert found.labels.tolist() == [[0, 1, 1]]


def test_few_left_out_examples_make_answers_less_sure_and_many_do_not():
    powers = [float(learn(table(n), Parameters()).calibration.power[0]) for n in (2, 5, 10, 50)]
    assert powers == pytest.approx([1 / 2, 2 / 3, 4 / 5, 20 / 21])


def test_many_features_keep_their_probabilities():
    assert learn(table(2, 65), Parameters()).calibration.power.tolist() == [1.0]


def test_a_precision_of_the_user_is_obeyed_as_it_is():
    tasks = table(2)
    assert learn(tasks, Parameters(precision=3.0)).precision.tolist() == pytest.approx([3.0])
    learned = float(learn(tasks, Parameters()).precision[0])
    sure, unsure = (solve("evidence", tasks, precision=one).probabilities.amax(-1).mean() for one in (learned, None))
    assert sure > unsure
