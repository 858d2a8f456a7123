"""Which classes occur: the list with an error rate, the number of classes, and what size and repetition say."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from manyway import Evidence, InputError, Solution, Tasks, TaskSpec, sample_tasks, solve
from manyway.core.blocks import Pile, in_turn
from manyway.core.presence import Counting, Tally, by_presence, whole_interval, ends_of_number, presence_of, unseen
from manyway.sampling.embedded import load_glyphs
from tests.problems import make_tasks

ONCE = torch.ones(1)  # no item has a copy
SURE = torch.full((1, 1), torch.inf)  # nothing is in doubt
NONE = torch.zeros(1, 1)  # no item is unknown


def solution_of(presence: list[list[float]]) -> Solution:
    """A solution whose classes occur with these probabilities: one query per class speaks for it."""
    return Solution(torch.diag_embed(torch.tensor(presence)), 1, True)


def occurs(tasks: Tasks) -> torch.Tensor:
    return torch.zeros(len(tasks), tasks.n_classes).scatter_(1, tasks.query_labels, 1.0)


def test_a_list_may_have_more_absent_classes_where_it_finds_much_for_that():
    """The same four classes, of nearly all that occur and of many more; both lists of the first expect above 5 %."""
    few, many = [0.99, 0.95, 0.9, 0.9], [0.99, 0.95, 0.9, 0.9] + [0.3] * 60
    cost, tensor = torch.tensor([Counting().list_cost]), torch.tensor
    lengths = [by_presence(tensor([p]), cost, 0.05)[0][1] for p in (few, many)]
    assert lengths == [4, 2]
    assert 1 - sum(few) / 4 > 0.05
    assert [by_presence(tensor([[p]]), cost, 0.05)[0][1] for p in (0.9, 0.83)] == [1, 0]  # at most 0.05/√0.1
    rates = (1e-6, 0.02, 0.05, 0.2, 0.6)
    assert [by_presence(tensor([[1.0, *many]]), cost, rate)[0][1] for rate in rates] == [1, 2, 3, 5, 65]


def test_possible_classes_are_the_others_that_cannot_be_ruled_out():
    solution = solution_of([[0.99, 0.3, 0.0, 0.97]])
    listed, possible = solution.present(0.05)[0].tolist(), solution.possible(0.05)[0].tolist()
    assert listed == [0, 3]
    assert possible == [1]


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_an_impossible_error_rate_is_refused(rate):
    with pytest.raises(InputError, match="error_rate is"):
        solution_of([[0.9, 0.1]]).present(rate)


def test_an_inference_lists_the_labels_of_the_user_most_certain_first():
    X = torch.eye(4).repeat_interleave(3, 0) * 10 + torch.arange(12).view(12, 1) % 3 * 0.1
    result = Evidence().fit(X, [name for name in "abcd" for _ in range(3)]).infer(X[[0, 1, 2, 0, 1, 9, 10, 11, 9]])
    assert set(result.present()) == {"a", "d"}
    assert result.present() == sorted(result.present(), key=lambda name: -result.presence["abcd".index(name)])
    assert not set(result.present()) & set(result.possible())


def test_presence_lies_between_shared_and_independent_errors_and_nearer_to_shared_where_few_classes_occur():
    independent, surest = torch.tensor([[0.9, 0.9, 0.0, 0.0]]), torch.tensor([[0.6, 0.6, 0.0, 0.0]])
    few = presence_of(independent, Tally(surest, torch.tensor([[2.0, 2.0, 0.0, 0.0]]), SURE, NONE), ONCE, Counting())
    assert few[0, 0] == pytest.approx(believed(0.75), abs=1e-4)  # two of four classes: the middle
    many = presence_of(
        independent[:, :2], Tally(surest[:, :2], torch.tensor([[2.0, 2.0]]), SURE, NONE), ONCE, Counting()
    )
    assert many[0, 0] == pytest.approx(believed(0.9), abs=1e-4)


def believed(p: float) -> float:
    """What is left of the presence of one of the largest classes: log-odds are believed in part."""
    odds = Counting().presence_believed * math.log(p / (1 - p))
    return 1 / (1 + math.exp(-odds))


def test_a_small_group_is_more_probably_a_fragment_the_larger_the_others_are():
    p = torch.tensor([[0.9, 0.99, 0.99]])

    def small_beside(largest: float) -> float:
        masses = torch.tensor([[2.0, largest, largest]])
        return float(presence_of(p, Tally(p, masses, SURE, NONE), ONCE, Counting())[0, 0])

    assert small_beside(2.0) == pytest.approx(believed(0.9), abs=1e-4)
    assert small_beside(2.0) > small_beside(10.0) > small_beside(40.0) > small_beside(400.0)


def test_what_is_certain_stays_certain_whatever_its_size():
    p = torch.tensor([[1.0, 0.99, 0.99]])
    assert presence_of(p, Tally(p, torch.tensor([[1.0, 500.0, 500.0]]), SURE, NONE), ONCE, Counting())[0, 0] == 1


def test_the_odds_of_a_classifier_say_which_classes_occur_and_some_class_does():
    certain, even = torch.ones(1, 3), torch.full((1, 3), 10.0)

    def presence(odds: list[float]) -> torch.Tensor:
        return presence_of(certain, Tally(certain, even, torch.tensor([odds]), torch.zeros(1, 3)), ONCE, Counting())

    p = presence([-1.0, 1.0, 3.0])[0]
    assert p[0] < p[1] < p[2] < 1
    odds = [9.0, 1.0, -2.0]
    torch.testing.assert_close(presence(odds), torch.tensor([odds]).sigmoid(), rtol=1e-3, atol=0)
    assert presence([-3.0, -3.0, -3.0]).sum() >= 1
    assert presence([0.0, 0.0, -torch.inf])[0, 2] == 0
    assert presence([torch.inf] * 3).tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.usefixtures("learned_once")
def test_copies_of_items_are_no_new_evidence():
    """A burst of near-copies of each item makes hardly a further class certain."""
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(shots=5, k_eff=10, n_query=40), seed=4, count=6)
    noise = 0.01 * torch.randn(6, 200, tasks.query.shape[-1], generator=torch.Generator().manual_seed(0))
    copied = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query.repeat(1, 5, 1) + noise)
    found, truth = solve("evidence", copied), occurs(tasks)
    torch.testing.assert_close(found.copies, torch.full((6,), 5.0), rtol=0, atol=0.5)
    torch.testing.assert_close(solve("evidence", tasks).copies, torch.ones(6), rtol=0, atol=0.3)
    lists = found.present()
    n_listed = sum(len(classes) for classes in lists)
    absent = sum(float((1 - truth[task, classes]).sum()) for task, classes in enumerate(lists))
    assert n_listed > 0.7 * float(truth.sum())
    assert absent <= 0.05 * n_listed


def in_memory(tasks: Tasks, query: torch.Tensor) -> list[Solution]:
    return [solve("evidence", Tasks.from_arrays(tasks.support, tasks.support_labels, query))]


def in_blocks(tasks: Tasks, query: torch.Tensor) -> list[Solution]:
    piles = [Pile.of(in_turn(partial(iter, rows.split(50)), torch.device("cpu")), rows) for rows in query]
    given = zip(tasks.support, tasks.support_labels, piles, strict=True)
    return [solve("evidence", Tasks.from_pile(*one)) for one in given]


def in_a_stream(tasks: Tasks, query: torch.Tensor) -> list[Solution]:
    """The last of three batches of the same classes."""
    earlier: Any = ()
    for batch in (query[:, 0::3], query[:, 1::3], query[:, 2::3]):
        given = Tasks.from_arrays(tasks.support, tasks.support_labels, batch)
        found = solve("evidence", replace(given, earlier=earlier))
        earlier = found.memory
    return [found]


@pytest.mark.usefixtures("learned_once")
@pytest.mark.parametrize("solved", [in_memory, in_blocks, in_a_stream])
def test_each_item_several_times_makes_hardly_a_list_longer_and_no_number_surer(solved):
    """Copies count nothing in the search, but are counted among the queries that its prior and its annealing know."""
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(shots=5, k_eff=10, n_query=45), seed=6, count=4)
    assert torch.equal(tasks.support_labels[0], torch.arange(tasks.n_classes).repeat_interleave(5))
    listed, widths = [], []
    for repeats in (1, 4):
        query = tasks.query.view(4, 15, 3, -1).repeat(1, repeats, 1, 1).flatten(1, 2)
        found = solved(tasks, query)
        assert all((one.copies >= 0.95 * repeats).all() for one in found)
        listed.append(sum(len(classes) for one in found for classes in one.present()))
        widths.append(sum(float(one.n_present_interval.diff().sum()) for one in found))
    assert 0 < listed[1] <= 1.06 * listed[0]
    assert widths[1] >= 0.9 * widths[0]


@pytest.mark.usefixtures("learned_once")
def test_frames_of_a_burst_that_differ_a_little_are_copies():
    """The frames of an item differ by a seventh of what two items of a class differ by."""
    tasks = make_tasks(4, shots=5, n_query=30, n_features=96)
    frames = tasks.query.repeat(1, 3, 1)
    frames = frames + 0.38 * torch.randn(frames.shape, generator=torch.Generator().manual_seed(0))
    found = solve("evidence", Tasks.from_arrays(tasks.support, tasks.support_labels, frames))
    torch.testing.assert_close(found.copies, torch.full((4,), 3.0), rtol=0, atol=0.3)
    torch.testing.assert_close(solve("evidence", tasks).copies, torch.ones(4), rtol=0, atol=0.1)


def test_at_most_the_error_rate_of_the_listed_letters_is_absent():
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(shots=5, k_eff=5, n_query=75), seed=3, count=20)
    truth, lists = occurs(tasks), solve("evidence", tasks).present()
    absent = [float((1 - truth[task, classes]).mean()) if len(classes) else 0.0 for task, classes in enumerate(lists)]
    found = [float(truth[task, classes].sum() / truth[task].sum()) for task, classes in enumerate(lists)]
    assert sum(absent) / len(lists) <= 0.05
    assert sum(found) / len(lists) > 0.75


def test_the_more_items_may_be_unknown_the_less_a_class_is_believed_and_small_classes_least():
    surest, masses = torch.tensor([[0.9, 0.9, 0.0]]), torch.tensor([[20.0, 0.9, 0.0]])
    independent = torch.tensor([[1 - 1e-6, 0.9, 0.0]])
    none, some, many = (
        torch.logit(presence_of(independent, Tally(surest, masses, SURE, torch.full((1, 3), n)), ONCE, Counting())[0])
        for n in (0.0, 10.0, 40.0)
    )
    assert none[0] > some[0] > many[0]
    assert none[1] - some[1] > 2 * (none[0] - some[0])


def test_answers_with_unknown_items_are_counted_with_their_number():
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(shots=5, k_eff=3, n_query=20, n_ways=30), seed=4, count=2)
    found = solve("evidence", tasks, open_set=True)
    torch.testing.assert_close(found.tallied.unknown[:, 0], found.unknown.double().sum(1))
    assert not bool(solve("evidence", tasks).tallied.unknown.any())


def ends_of(
    p: torch.Tensor, alone: torch.Tensor, n: float, unknown: float = 0.0, doubt: float = torch.inf
) -> list[float]:
    """Those of the number of classes, where items are as many as their probabilities of presence say."""
    found = Tally(p, p / p.sum() * n, torch.full_like(p, doubt), torch.full_like(p, unknown))
    return ends_of_number(p, alone, found, ONCE)[0].tolist()


def test_the_ends_of_number_classes_is_between_what_doubt_takes_and_what_independent_errors_add():
    p, alone = torch.full((1, 40), 0.3), torch.full((1, 40), 0.6)
    low, high = ends_of(p, alone, 80)
    shared = 1 + math.log(2) / 2  # two items per class
    assert low == pytest.approx(12 * 0.3**shared, rel=1e-5)
    assert high == pytest.approx(12 * math.exp(0.7 * shared) * 2**0.5, rel=1e-5)
    by_scores = ends_of(p, alone, 80, doubt=0.0)  # of a classifier
    assert by_scores[0] == pytest.approx(12 * 0.3 ** (2 * shared), rel=1e-5)
    assert by_scores[1] == pytest.approx((high * float(p.sqrt().sum())) ** 0.5, rel=1e-5)
    assert whole_interval(torch.tensor([by_scores]), torch.tensor([15]))[0, 1] == 15  # of fifteen items


def test_the_ends_of_number_classes_is_less_certain_where_many_items_share_their_errors_or_some_are_unknown():
    p = torch.tensor([[0.9, 0.5, 0.5, 0.1]])

    def spread(p: torch.Tensor, n: float, unknown: float = 0.0) -> float:
        low, high = ends_of(p, p, n, unknown)
        return high - low

    assert spread(p, 1500) > 1.1 * spread(p, 15)
    assert spread(p, 45, 30) > 1.05 * spread(p, 45)
    assert spread(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), 75) < 0.1  # nothing is uncertain
    assert ends_of(torch.tensor([[0.995, 0.995, 0.4, 0.0]]), torch.tensor([[1.0, 1.0, 0.9, 0.1]]), 44)[0] > 1.9


def test_the_ends_of_number_letters_is_within_two_deviations_in_at_least_nine_of_ten_tasks():
    for n_query in (15, 300):
        tasks = sample_tasks(load_glyphs("val"), TaskSpec(shots=5, k_eff=10, n_query=n_query), seed=5, count=20)
        found = solve("evidence", tasks)
        off = (found.n_present - occurs(tasks).sum(1)).abs()
        assert (off <= 2 * found.n_present_sd + 0.5).float().mean() >= 0.9


def test_further_classes_are_expected_where_many_occurred_once():
    presence = torch.ones(2, 10)
    sizes = torch.tensor([[1.0] * 6 + [9.0] * 4, [9.0] * 10])
    some = unseen(presence * 0.8, presence * 0.8, sizes)
    assert some[0] > 1
    assert some[1] < 0.01
    assert unseen(presence, presence, sizes).tolist() == [0.0, 0.0]  # all classes have been seen
    assert unseen(presence * 0.8, presence * 0.001, sizes)[0] < 0.2  # single items of others


def test_further_classes_are_as_many_as_simulated_communities_have():
    """Of 100 equally frequent classes in samples of 100 items; half a label in doubt counts half."""
    draw = torch.randint(100, (300, 100), generator=torch.Generator().manual_seed(0))
    counts = torch.zeros(300, 300).scatter_add_(1, draw, torch.ones(300, 100))
    left = 100 - (counts > 0).sum(1)
    seen = (counts > 0).float()
    found = unseen(seen, seen, counts.clamp_min(1))
    assert abs(float(found.mean() / left.float().mean()) - 1) < 0.05
    f1, f2 = (counts == 1).sum(1), (counts == 2).sum(1)
    torch.testing.assert_close(found, f1 * (f1 - 1) / (2.0 * (f2 + 1)))
    seen = torch.tensor([[1.0] * 4 + [0.0] * 9])
    assert float(unseen(seen, seen, torch.tensor([[1.0, 1.0, 1.5, 1.5] + [1.0] * 9]))) == 1.5


@pytest.mark.parametrize("method", ["evidence", "simpleshot", "paddle"])
def test_every_method_lists_classes_and_a_task_is_the_same_alone(method):
    tasks = make_tasks(3)
    together = solve(method, tasks).presence
    alone = torch.cat([solve(method, tasks[task : task + 1]).presence for task in range(3)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-4)


def test_proportions_are_those_of_the_likely_classes_and_count_unknown_items_as_such():
    doubtful = torch.tensor([[[0.6, 0.2, 0.2], [0.3, 0.1, 0.1]]])
    mean, sharp = (Solution(doubtful, 1, True, counting=Counting(shares_power=a)).proportions[0] for a in (1.0, 3.0))
    torch.testing.assert_close(mean, doubtful[0].mean(0))
    torch.testing.assert_close(sharp, 0.75 * torch.tensor([27.0, 1.0, 1.0]) / 29)


def test_no_class_occurs_with_a_higher_probability_than_it_has_items_on_average():
    found = Tally(
        surest=torch.tensor([[0.4, 0.3, 0.2]]),
        masses=torch.tensor([[0.5, 0.3, 0.2]]),
        doubt=torch.tensor([[3.0, 2.0, -1.0]]),
        unknown=NONE,
    )
    of_scores = presence_of(torch.tensor([[0.5, 0.4, 0.2]]), found, ONCE, Counting())
    assert of_scores.tolist() == [pytest.approx([0.5, 0.3, 0.2])]
    by_batch = presence_of(torch.tensor([[0.9, 0.9, 0.9]]), found._replace(doubt=SURE.expand(1, 3)), ONCE, Counting())
    assert (by_batch <= found.masses + 1e-6).all()


def test_a_class_with_a_known_label_occurs_beside_bursts_of_others():
    """One item of its own, and twenty copies of each item of the others."""
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(12, 40, generator=generator)
    labels = torch.arange(12).repeat_interleave(5)
    support = means[labels] + 0.7 * torch.randn(60, 40, generator=generator)
    items = means[[0, 1, 2]] + 0.7 * torch.randn(3, 40, generator=generator)
    burst = items.repeat_interleave(20, 0) + 0.01 * torch.randn(60, 40, generator=generator)
    known = torch.full((1, 61), -1)
    known[0, -1] = 7
    tasks = Tasks.from_arrays(support[None], labels[None], torch.cat([burst, means[[7]]])[None], known=known)
    found = solve("evidence", tasks, adapt=False)
    assert found.copies > 15
    assert found.presence[0, 7] == 1
    assert sorted(found.present()[0].tolist()) == [0, 1, 2, 7]
