"""Tables of few features: ordinary values that must not break the calibration, and how sure answers may be."""

import pytest
import torch

from manyway import solve
from manyway.core.tasks import Tasks
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.first_step import reciprocal_scales
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.solver import learn_before


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
    powers = [float(learn_before(table(n), Parameters()).calibration.power[0]) for n in (2, 5, 10, 50)]
    assert powers == pytest.approx([4 / 29, 1 / 2, 4 / 5, 100 / 101])


def test_many_examples_of_one_class_do_not_make_answers_about_the_other_sure():
    support, labels = torch.randn(1, 51, 6, generator=torch.Generator().manual_seed(2)), (torch.arange(51) > 0).long()
    found = learn_before(Tasks.from_arrays(support, labels[None], support), Parameters()).calibration.power
    assert found.tolist() == pytest.approx([1 / (1 + (10 / 2 * (1 + 1 / 50) / 2) ** 2)])


def test_classes_of_one_example_beside_large_ones_take_no_more_queries_than_they_have():
    generator, counts = torch.Generator().manual_seed(3), torch.tensor([1, 20]).repeat(5)
    means, labels = 1.6 * torch.randn(40, 10, 4, generator=generator), torch.arange(10).repeat_interleave(counts)
    truth = torch.arange(10).repeat(8)
    rows = [means[:, of] + torch.randn(40, len(of), 4, generator=generator) for of in (labels, truth)]
    found = solve("evidence", Tasks.from_arrays(rows[0], labels.expand(40, -1), rows[1])).labels
    assert (counts[found] == 1).float().mean() < 0.47


def test_many_features_keep_their_probabilities():
    assert learn_before(table(2, 65), Parameters()).calibration.power.tolist() == [1.0]


def test_a_precision_of_the_user_is_obeyed_as_it_is():
    tasks = table(2)
    assert learn_before(tasks, Parameters(precision=3.0)).precision.tolist() == pytest.approx([3.0])
    learned = float(learn_before(tasks, Parameters()).precision[0])
    sure, unsure = (solve("evidence", tasks, precision=one).probabilities.amax(-1).mean() for one in (learned, None))
    assert sure > unsure


@pytest.mark.parametrize("units", [[1.0, 1.0], [1.0, 30.0]])
def test_few_degrees_of_freedom_do_not_make_a_metric_that_tells_nothing_apart(units):
    examples = torch.tensor([[0, 9], [1, 9], [9, 0], [9, 1], [8, 1], [8, 0]]) * torch.tensor(units)
    tasks = Tasks.from_arrays(examples[None], [[0, 0, 1, 1, 2, 2]], torch.tensor([[[0.0, 8.0]]]) * torch.tensor(units))
    assert solve("evidence", tasks, schedule={"few_features_doubt": 0.0}).probabilities[0, 0, 0] > 0.999


def in_units(units: list[float], n_examples: list[int]) -> Tasks:
    """Two classes that differ by six deviations in all columns but the first; each column has a unit of its own."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(2).repeat_interleave(torch.tensor(n_examples))
    truth = torch.arange(2).repeat(20)
    rows = [torch.randn(1, len(one), len(units), generator=generator) for one in (labels, truth)]
    for row, one in zip(rows, (labels, truth), strict=True):
        row[0, :, 1:] += 6 * one.unsqueeze(-1)
    support, query = (row * torch.tensor(units) for row in rows)
    return Tasks.from_arrays(support, labels[None], query)


def test_units_of_columns_do_not_matter_where_one_and_two_examples_leave_nothing_to_choose_by():
    tasks = in_units([1000.0, 1.0, 0.01, 5.0, 0.3, 20.0], [1, 2])
    truth = torch.arange(2).repeat(20)
    chosen, raw = ((solve("evidence", tasks, scale=one).labels == truth).float().mean() for one in ("auto", None))
    assert learn_before(tasks, Parameters()).transform == "columns"
    assert chosen > 0.95
    assert raw < 0.6


def test_scales_that_differ_no_more_than_by_chance_are_one_scale():
    generator = torch.Generator().manual_seed(2)
    few, many = (torch.randn(1, n, 20, generator=generator) for n in (4, 400))
    unlike = many * torch.logspace(-2, 2, 20)
    few, many, unlike = (
        reciprocal_scales(rows, 0 * rows[:, :1], torch.zeros(1, n, dtype=torch.long), torch.tensor([[n]]), Constants())[
            0, 0
        ].log()
        for rows, n in ((few, 4), (many, 400), (unlike, 400))
    )
    assert few.std() < 0.2
    assert many.std() < 0.05
    assert torch.allclose((unlike + torch.logspace(-2, 2, 20).log()).std(), torch.tensor(0.0), atol=0.1)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_column_of_huge_numbers_hides_no_other(dtype):
    """As a population beside rates: it is 10⁸ times as large as the others."""
    generator, labels = torch.Generator().manual_seed(5), torch.arange(3).repeat_interleave(10)
    rows = torch.randn(60, 5, dtype=dtype, generator=generator) + 3 * labels.repeat(2).unsqueeze(-1)
    rows[:, 4], huge = torch.randn(60, generator=generator), torch.tensor([1, 1, 1, 1, 1e8], dtype=dtype)
    tasks = Tasks.from_arrays((rows * huge)[None, :30], labels[None], (rows * huge)[None, 30:])
    assert (solve("evidence", tasks).labels == labels).float().mean() > 0.9


def test_categories_that_one_example_has_teach_nothing():
    """Without such an example nothing is known of its category: all classes are equally far in it."""
    generator, labels = torch.Generator().manual_seed(2), torch.arange(10).repeat_interleave(5)
    kinds = torch.randint(0, 25, (1, 50), generator=generator)  # in no relation to the classes
    rows = torch.cat([torch.nn.functional.one_hot(kinds, 25), torch.randn(1, 50, 3, generator=generator)], -1)
    losses = learn_before(Tasks.from_arrays(rows, labels[None], rows), Parameters()).calibration.losses
    assert losses.mean() > 0.8 * torch.tensor(10.0).log()


def test_a_table_of_many_columns_is_no_surer_than_one_of_few():
    """Columns of unequal scales are no embeddings."""
    few, many = table(2, 64), table(2, 65)
    for tasks in (few, many):
        scales = torch.logspace(-6, 6, tasks.n_features)
        unlike = tasks.with_rows(tasks.support * scales, tasks.query * scales)
        assert learn_before(unlike, Parameters()).calibration.power < 0.5
        assert solve("evidence", unlike).probabilities.amax() < 1 - 1e-3
