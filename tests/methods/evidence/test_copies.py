"""Near-copies: counted among queries, dropped among examples, and never where chance makes them."""

from __future__ import annotations

import pytest
import torch

from manyway import Tasks, solve
from manyway.core.blocks import Pile, in_turn
from manyway.methods.evidence import queries
from manyway.methods.evidence.calibrate import calibrate
from manyway.methods.evidence.copies import compare_queries, copy_distance, distinct
from manyway.methods.evidence.schedule import Parameters, Schedule


@pytest.mark.parametrize("repeats", [1, 3], ids=["without copies", "with copies"])
@pytest.mark.parametrize("beside", [True, False], ids=["one after another", "far apart"])
def test_near_copies_are_counted_wherever_they_lie_where_some_queries_stand_for_all(repeats, beside, monkeypatch):
    """Every third query is compared with all: in a sample alone, copies that follow each other would be missed."""
    generator = torch.Generator().manual_seed(0)
    means, labels = torch.randn(6, 64, generator=generator), torch.arange(6).repeat_interleave(4)
    support = means[labels] + torch.randn(24, 64, generator=generator)
    query = means[torch.arange(20) % 3] + torch.randn(20, 64, generator=generator)
    query = query.repeat_interleave(repeats, 0) if beside else query.repeat(repeats, 1)
    read = in_turn(lambda: iter(query.split(7)), torch.device("cpu"))
    monkeypatch.setattr(queries, "_MOST_QUERIES", len(query) // 3)
    tasks = Tasks.from_arrays(support[None], labels[None], query[None])
    found = solve("evidence", tasks), solve("evidence", Tasks.from_pile(support, labels, Pile.of(read, query)))
    assert [float(one.copies) for one in found] == [repeats, repeats]


@pytest.mark.parametrize(("d", "noise"), [(80, 0.0), (80, 0.05), (16, 0.0), (16, 0.05), (4, 0.0)])
def test_near_copies_of_examples_teach_nothing(d, noise):
    """Left-out examples whose copies stay would say that samples of a class are alike, and all queries unknown."""
    generator = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(12, d, generator=generator)
    support = (means[:, None] + torch.randn(12, 3, d, generator=generator)).view(-1, d)
    query = means[:3].repeat(10, 1) + torch.randn(30, d, generator=generator)
    labels = torch.arange(12).repeat_interleave(3)
    frames = support + noise * torch.randn(support.shape, generator=generator)
    doubled = Tasks.from_arrays(torch.cat([support, frames])[None], labels.repeat(2)[None], query[None])
    single = Tasks.from_arrays(support[None], labels[None], query[None])
    for open_set in (False, True):
        once, twice = (solve("evidence", tasks, open_set=open_set) for tasks in (single, doubled))
        torch.testing.assert_close(twice.probabilities, once.probabilities)
        assert (once.labels >= 0).float().mean() > 0.9


@pytest.mark.parametrize("shots", [(5,) * 12, (1, 20, 3, 10, 2, 5, 1, 20, 3, 10, 2, 5)], ids=["equal", "unequal"])
@pytest.mark.parametrize("n_more", [3, 60], ids=["few twice", "all twice"])
def test_equal_examples_are_dropped_where_long_tails_bring_different_ones_near(shots, n_more):
    """Most distances are small beside the mean, so that near-copies may be chance; equal examples are not."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(torch.tensor(shots))
    rows = (1.5 * torch.randn(12, 20, generator=generator)[labels]).exp()
    rows = rows * (1.5 * torch.randn(len(labels), 20, generator=generator)).exp()
    rows = rows * (2 * torch.randn(20, generator=generator)).exp()
    more = torch.randperm(len(labels), generator=generator)[:n_more]
    twice = Tasks.from_arrays(torch.cat([rows, rows[more]])[None], torch.cat([labels, labels[more]])[None], rows[None])
    once = Tasks.from_arrays(rows[None], labels[None], rows[None])
    schedule = Schedule()
    assert torch.equal(distinct(twice, schedule).tasks.support, distinct(once, schedule).tasks.support)


@pytest.mark.parametrize(("d", "levels"), [(7, 2), (4, 3), (100, 2)])
def test_equal_examples_of_few_values_may_be_different_items(d, levels):
    """Where columns have few values, items of a class are equal by chance: none is a copy."""
    generator = torch.Generator().manual_seed(0)
    usual = torch.randint(0, levels, (5, d), generator=generator)
    other = torch.randint(0, levels, (5, 12, d), generator=generator)
    mostly = torch.rand(5, 12, d, generator=generator) < 1 - 1 / d
    rows = torch.where(mostly, usual[:, None], other).view(1, 60, d).float()
    labels = torch.arange(5).repeat_interleave(12)[None]
    assert len(rows[0].unique(dim=0)) < 55
    assert distinct(Tasks.from_arrays(rows, labels, rows), Schedule()).tasks.n_support == 60


def test_one_item_per_class_is_one_item_however_often_it_is_given():
    rows = torch.randn(1, 6, 9, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6)[None]
    given = Tasks.from_arrays(rows.repeat(1, 3, 1), labels.repeat(1, 3), rows)
    assert distinct(given, Schedule()).tasks.n_support == 6


def burst(n_classes: int = 4, n_frames: int = 5, n_features: int = 40) -> Tasks:
    """One picture per class, several times, and one more item of each."""
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randn(n_classes, n_features, generator=generator)
    frames = pictures.repeat_interleave(n_frames, 0)
    frames = frames + 0.02 * torch.randn(frames.shape, generator=generator)
    others = torch.randn(n_classes, n_features, generator=generator)
    classes = torch.arange(n_classes)
    labels = torch.cat([classes.repeat_interleave(n_frames), classes])
    rows = torch.cat([frames, others])
    return Tasks.from_arrays(rows[None], labels[None], others[None])


def test_the_first_frame_of_each_burst_stays_and_so_does_what_is_no_copy():
    tasks = burst()
    kept = distinct(tasks, Schedule()).tasks
    expected = [0, 5, 10, 15, 20, 21, 22, 23]
    assert torch.equal(kept.support, tasks.support[:, expected])
    assert torch.equal(kept.support_labels, tasks.support_labels[:, expected])
    assert torch.equal(kept.query, tasks.query)


def test_what_is_known_of_the_examples_that_stay_is_found_in_its_place_among_all():
    kept = distinct(burst(), Schedule()).kept
    places = kept.of_all(torch.arange(1.0, 9.0)[None])
    assert places.nonzero()[:, 1].tolist() == [0, 5, 10, 15, 20, 21, 22, 23]
    assert places[places > 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_copies_of_another_class_stay():
    rows = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    tasks = Tasks.from_arrays(torch.cat([rows, rows])[None], torch.arange(12)[None] % 4, rows[None])
    labels = torch.arange(12).remainder(4)
    assert labels[0] != labels[6]
    assert distinct(tasks, Schedule()).tasks.n_support == 12


def test_several_tasks_keep_their_examples():
    one = burst()
    two = Tasks.from_arrays(one.support.repeat(2, 1, 1), one.support_labels.repeat(2, 1), one.query.repeat(2, 1, 1))
    assert distinct(two, Schedule()).tasks is two


def test_classes_of_one_example_have_no_copies():
    rows = torch.eye(5)[:, :2].repeat(1, 10)[None]  # three of them are equal
    tasks = Tasks.from_arrays(rows, torch.arange(5)[None], rows)
    assert distinct(tasks, Schedule()).tasks is tasks


def test_the_units_of_columns_decide_nothing():
    tasks = burst()
    units = torch.ones(40)
    units[::3] = 2.0**12
    changed = Tasks.from_arrays(tasks.support * units, tasks.support_labels, tasks.query * units)
    assert torch.equal(distinct(changed, Schedule()).tasks.support, distinct(tasks, Schedule()).tasks.support * units)


def test_the_distance_of_copies_is_a_part_of_that_of_two_samples_and_smaller_with_few_features():
    schedule = Schedule(near_copy=0.04, few_columns=8.0)
    pairs = torch.tensor([3.0, 6.0])
    assert copy_distance(pairs, torch.tensor(100), schedule).flatten().tolist() == pytest.approx([0.12, 0.24])
    assert copy_distance(pairs, torch.tensor(100), schedule, sure=True).flatten().tolist() == pytest.approx([0.6, 1.2])
    few = [float(copy_distance(pairs, torch.tensor(d), schedule)[0]) for d in (1, 2, 8, 16)]
    assert few == sorted(few)
    assert few[2] == pytest.approx(3 * 0.04**2)  # the chance of half as many features, squared
    assert few[3] == pytest.approx(0.12)


def batch_with_a_burst(n_frames: int, noise: float = 0.05) -> tuple[Tasks, torch.Tensor]:
    """Queries of two classes, the first of them so many times, and their labels."""
    generator = torch.Generator().manual_seed(4)
    means = 0.6 * torch.randn(20, 48, generator=generator)
    labels = torch.arange(20).repeat_interleave(4)
    support = means[labels] + torch.randn(80, 48, generator=generator)
    truth = torch.arange(30) % 2
    query = means[truth] + torch.randn(30, 48, generator=generator)
    frames = query[:1] + noise * torch.randn(n_frames - 1, 48, generator=generator)
    rows = torch.cat([query, frames])
    truth = torch.cat([truth, truth[:1].expand(n_frames - 1)])
    return Tasks.from_arrays(support[None], labels[None], rows[None]), truth


def found_distinct(tasks: Tasks) -> torch.Tensor | None:
    return compare_queries(calibrate(tasks, Parameters()).queries, one_shot=False).distinct


def test_of_near_copies_among_the_queries_one_counts():
    tasks, _ = batch_with_a_burst(31)
    found = found_distinct(tasks)[0]
    burst_rows = [0, *range(30, 60)]
    assert float(found[burst_rows].sum()) == 1
    assert float(found[1:30].sum()) == 29
    assert found_distinct(batch_with_a_burst(1)[0]) is None


def test_the_order_of_queries_does_not_decide_which_copy_counts():
    tasks, _ = batch_with_a_burst(31)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    mixed = tasks.with_rows(tasks.support, tasks.query[:, order])
    assert torch.equal(found_distinct(mixed)[0], found_distinct(tasks)[0][order])


def test_of_equal_queries_the_first_counts():
    tasks, _ = batch_with_a_burst(31, noise=0.0)
    assert found_distinct(tasks)[0].tolist() == [1.0] * 30 + [0.0] * 30


def test_a_burst_is_no_evidence_for_its_class_and_no_shift():
    """Thirty frames of one item say what one of them says, about the others and about themselves."""
    once, truth = batch_with_a_burst(1)
    often, _ = batch_with_a_burst(31)
    expected = solve("evidence", once)
    found = solve("evidence", often)
    assert torch.equal(expected.labels[0], truth)
    torch.testing.assert_close(found.probabilities[:, 1:30], expected.probabilities[:, 1:30], rtol=0, atol=0.02)
    assert (found.labels[0, 30:] == truth[0]).all()
    assert float(found.told["shift_probability"]) == pytest.approx(
        float(expected.told["shift_probability"]), abs=0.05
    )


def test_a_burst_gives_the_same_answers_in_blocks():
    tasks, _ = batch_with_a_burst(31)
    read = in_turn(lambda: iter(tasks.query[0].split(7)), torch.device("cpu"))
    pile = Pile.of(read, tasks.query[0])
    in_blocks = solve("evidence", Tasks.from_pile(tasks.support[0], tasks.support_labels[0], pile))
    in_memory = solve("evidence", tasks)
    torch.testing.assert_close(in_blocks.probabilities, in_memory.probabilities, rtol=0, atol=1e-4)
    torch.testing.assert_close(in_blocks.told["shift"], in_memory.told["shift"], rtol=0, atol=1e-3)


def test_rows_whose_missing_cells_are_filled_are_no_copies():
    """Missing cells at their mean bring rows nearer to each other than whole rows of a class are."""
    generator = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(4, 30, generator=generator)
    labels = torch.arange(4).repeat_interleave(6)
    support = means[labels] + torch.randn(24, 30, generator=generator)
    query = means[torch.arange(40) % 4] + torch.randn(40, 30, generator=generator)
    holed = query.masked_fill(torch.rand(40, 30, generator=generator) < 0.6, torch.nan)
    assert float(solve("evidence", Tasks.from_arrays(support[None], labels[None], holed[None])).copies) == 1
    few_holes = query.index_fill(1, torch.tensor([3]), torch.nan)
    twice = torch.cat([few_holes, few_holes, query[:, :]])[None]
    found = solve("evidence", Tasks.from_arrays(support[None], labels[None], twice))
    assert 2 <= float(found.copies) <= 3
