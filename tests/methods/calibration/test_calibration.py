"""The calibration: the samples that are left out in turn, and how sure answers may be.

Ordinary values, such as copies, must not break it.
"""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway import Tasks, solve
from manyway.methods.calibration.calibration import calibrate_distances, gaussian_precision
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.calibrate import learn


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classes_whose_examples_are_all_copies_are_labelled_by_the_nearest(dtype):
    examples = torch.randint(0, 17, (4, 30), generator=torch.Generator().manual_seed(3)).to(dtype)
    tasks = Tasks.from_arrays(
        examples.repeat_interleave(5, 0)[None], torch.arange(4).repeat_interleave(5)[None], examples[None]
    )
    assert solve("evidence", tasks).labels.tolist() == [list(range(4))]


def test_few_left_out_examples_make_answers_less_sure_and_many_do_not():
    powers = [float(learn(table(n), Parameters()).calibration.power[0]) for n in (2, 5, 10, 50)]
    # An example that looks mislabelled counts a little less.
    assert powers == pytest.approx([4 / 29, 1 / 2, 4 / 5, 100 / 101], rel=0.01)


def test_many_examples_of_one_class_do_not_make_answers_about_the_other_sure():
    support, labels = torch.randn(1, 51, 6, generator=torch.Generator().manual_seed(2)), (torch.arange(51) > 0).long()
    found = learn(Tasks.from_arrays(support, labels[None], support), Parameters()).calibration.power
    assert found.tolist() == pytest.approx([1 / (1 + (10 / 2 * (1 + 1 / 50) / 2) ** 2)])


def test_classes_of_one_example_beside_large_ones_take_no_more_queries_than_they_have():
    generator, counts = torch.Generator().manual_seed(3), torch.tensor([1, 20]).repeat(5)
    means, labels = 1.6 * torch.randn(40, 10, 4, generator=generator), torch.arange(10).repeat_interleave(counts)
    truth = torch.arange(10).repeat(8)
    rows = [means[:, of] + torch.randn(40, len(of), 4, generator=generator) for of in (labels, truth)]
    found = solve("evidence", Tasks.from_arrays(rows[0], labels.expand(40, -1), rows[1])).labels
    assert (counts[found] == 1).float().mean() < 0.47


def test_a_precision_of_the_user_is_obeyed_as_it_is():
    tasks = table(2)
    assert learn(tasks, Parameters(precision=3.0)).precision.tolist() == pytest.approx([3.0])
    learned = float(learn(tasks, Parameters()).precision[0])
    sure, unsure = (solve("evidence", tasks, precision=one).probabilities.amax(-1).mean() for one in (learned, None))
    assert sure > unsure


@pytest.mark.parametrize("units", [[1.0, 1.0], [1.0, 30.0]])
def test_few_degrees_of_freedom_do_not_make_a_metric_that_tells_nothing_apart(units):
    examples = torch.tensor([[0, 9], [1, 9], [9, 0], [9, 1], [8, 1], [8, 0]]) * torch.tensor(units)
    tasks = Tasks.from_arrays(examples[None], [[0, 0, 1, 1, 2, 2]], torch.tensor([[[0.0, 8.0]]]) * torch.tensor(units))
    assert solve("evidence", tasks, schedule={"doubtful_examples": 0.0}).probabilities[0, 0, 0] > 0.999


def test_classes_that_a_common_size_hides_are_told_apart_with_two_examples_each():
    """As in crabs, whose measurements all grow with age: little of the metric is worse than none, and much is good."""
    generator = torch.Generator().manual_seed(5)
    shape = torch.randn(4, 5, generator=generator)

    def items(each: int) -> torch.Tensor:
        size = 20 + 5 * torch.randn(16, 4 * each, 1, generator=generator)
        noise = 0.2 * torch.randn(16, 4 * each, 5, generator=generator)
        return size * torch.tensor([1.0, 0.8, 2.0, 2.2, 0.9]) + shape.repeat_interleave(each, 0) + noise

    labels = torch.arange(4).expand(16, -1)
    tasks = Tasks.from_arrays(items(2), labels.repeat_interleave(2, 1), items(10))
    right = solve("evidence", tasks).labels == labels.repeat_interleave(10, 1)
    assert right.double().mean() > 0.85


def test_categories_that_one_example_has_teach_nothing():
    """Without such an example nothing is known of its category: all classes are equally far in it."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(10).repeat_interleave(5)
    kinds = torch.randint(0, 25, (1, 50), generator=generator)  # in no relation to the classes
    rows = torch.cat([torch.nn.functional.one_hot(kinds, 25), torch.randn(1, 50, 3, generator=generator)], -1)
    losses = learn(Tasks.from_arrays(rows, labels[None], rows), Parameters()).calibration.left_out_losses
    assert losses.mean() > 0.8 * torch.tensor(10.0).log()


@pytest.mark.parametrize("n_features", [1, 6, 64, 65, 600])
def test_the_number_of_features_does_not_make_answers_surer(n_features):
    assert learn(table(2, n_features), Parameters()).calibration.power.tolist() == pytest.approx([4 / 29])


@pytest.mark.parametrize("shots", [2, 8])
def test_prototypes_are_shrunk_where_class_means_differ_no_more_than_by_chance(shots):
    for spread, low, high in ((3.0, 0.9, 1.0), (0.0, 0.0, 0.6)):
        tasks = make_tasks(6, n_classes=20, n_features=12, shots=shots, spread=spread)
        plain = calibrate_distances(tasks, Constants())
        factors = plain.shrunk(Constants()).offsets.norm(dim=-1) / plain.offsets.norm(dim=-1)
        torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
        assert (low <= factors).all()
        assert (factors <= high).all()


def test_a_prototype_of_fewer_examples_is_shrunk_more():
    """What is expected of a class is r = ρ/(ρ + 1/n), for one ρ of all classes: r/(1 − r) = ρ n."""
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    factors = shrunk.offsets.norm(dim=-1) / plain.offsets.norm(dim=-1)
    expected = factors * shrunk.reach.unsqueeze(-1)
    ratios = expected / (1 - expected) / plain.counts
    torch.testing.assert_close(ratios, ratios[:, :1].expand_as(ratios))
    torch.testing.assert_close(shrunk.precision, plain.precision / factors.amax(-1))


def test_what_all_prototypes_are_shortened_by_counts_half():
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=3)
    shrunk = calibrate_distances(tasks, Constants()).shrunk(Constants())
    torch.testing.assert_close(shrunk.trust.amax(-1), shrunk.reach)
    assert (shrunk.reach < 1).all()
    assert (shrunk.unshrunk().reach == 1).all()


def test_an_added_class_leaves_the_precision_that_prototypes_have_without_shrinking():
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=3)
    plain = calibrate_distances(tasks, Constants())
    more = plain.shrunk(Constants()).with_classes(plain.place(tasks.query[:, :1]))
    torch.testing.assert_close(more.unshrunk().precision, plain.precision)


def test_one_example_per_class_gives_the_precision_by_the_distances_between_classes():
    tasks = make_tasks(3, n_classes=7, shots=1)
    constants = Constants()
    middle = tasks.support.mean(1, keepdim=True)
    variance = (tasks.support - middle).square().sum(-1).quantile(0.5, dim=-1)
    torch.testing.assert_close(calibrate_distances(tasks, constants).precision, constants.one_shot_precision / variance)


def test_the_usual_precision_is_at_most_that_of_as_many_normal_columns():
    """Where classes of one column hardly differ within, distances between classes would say too much."""
    tasks = make_tasks(2, n_classes=6, n_features=1, shots=5, spread=0.3)
    centred = tasks.support - tasks.support.mean(1, keepdim=True)
    constants = Constants(one_shot_precision=1e9)
    plain = calibrate_distances(tasks, constants, metric=False)
    limit = gaussian_precision(centred.square().mean(1), centred.shape[1], plain.scatter, plain.counts)
    assert (plain.precision < 20 * limit).all()
