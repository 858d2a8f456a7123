"""Near-copies: counted among queries, dropped among examples, and never where chance makes them."""

from __future__ import annotations

import pytest
import torch

from manyway import Tasks, solve
from manyway.core.blocks import Pile, in_turn
from manyway.methods.evidence import queries
from manyway.methods.evidence.copies import copy_distance, distinct
from manyway.methods.evidence.schedule import Schedule


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
    assert copy_distance(pairs, 100, schedule).flatten().tolist() == pytest.approx([0.12, 0.24])
    assert copy_distance(pairs, 100, schedule, sure=True).flatten().tolist() == pytest.approx([0.6, 1.2])
    few = [float(copy_distance(pairs, d, schedule)[0]) for d in (1, 2, 8, 16)]
    assert few == sorted(few)
    assert few[2] == pytest.approx(3 * 0.04**2)  # the chance of half as many features, squared
    assert few[3] == pytest.approx(0.12)
