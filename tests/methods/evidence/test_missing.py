"""Missing cells: a row is answered from those that are there, and as much less surely."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from problems import piled
from sklearn.datasets import load_iris, load_wine

from manyway import Evidence, InputError, Tasks, solve
from manyway.methods import METHODS
from manyway.methods.evidence.calibrate import learn_support
from manyway.methods.evidence.complete import complete_support
from manyway.methods.evidence.missing import PlacingWithGaps, WithGaps
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.evidence.solver import learn_for_review


def split(load, *, shots=5, seed=0):
    """Examples with labels, items with theirs."""
    rows, labels = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(rows))
    examples = np.concatenate([order[labels[order] == k][:shots] for k in range(labels.max() + 1)])
    items = np.setdiff1d(order, examples)
    return rows[examples], labels[examples], rows[items], labels[items]


def with_holes(rows, part, seed=0):
    holed = rows.copy()
    holed[np.random.default_rng(seed).random(rows.shape) < part] = np.nan
    return holed


def problem(examples=0.0, items=0.0) -> Tasks:
    support, labels, query, _ = split(load_wine)
    return Tasks.from_arrays(
        with_holes(support, examples)[None], labels[None], with_holes(query, items)[None]
    )


def test_nothing_missing_changes_nothing_bit_by_bit():
    tasks = problem()
    assert not tasks.gaps
    perhaps = replace(tasks, gaps=True)
    assert torch.equal(
        solve("evidence", perhaps).probabilities, solve("evidence", tasks).probabilities
    )


def test_whole_rows_are_placed_alike_beside_rows_with_gaps():
    tasks = problem()
    learned = learn_for_review(tasks)
    holed = tasks.query.clone()
    holed[0, 0, 0] = torch.nan
    with_gaps = learn_for_review(Tasks.from_arrays(tasks.support, tasks.support_labels, holed))
    of_gaps = with_gaps.likelihood.of(with_gaps.placed)
    torch.testing.assert_close(
        of_gaps[:, 1:], learned.likelihood.of(learned.placed)[:, 1:], rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("column", [0, 7])
def test_a_column_missing_everywhere_is_an_absent_column(column):
    support, labels, query, _ = split(load_wine)
    expected = (
        Evidence().fit(np.delete(support, column, 1), labels).infer(np.delete(query, column, 1))
    )
    for rows in (support, query):
        rows[:, column] = np.nan
    found = Evidence().fit(support, labels).infer(query)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)


@pytest.mark.parametrize("holes", [(0.0, 0.4), (0.3, 0.0), (0.3, 0.4)], ids=["items", "examples", "both"])
def test_constant_columns_change_nothing(holes):
    """Neither how much of a row is there nor how far classes are apart in the others."""
    whole = problem(*holes)
    unequal = slice(4, None)  # what part of a row is there counts where classes have different numbers of examples
    tasks = whole.with_rows(
        whole.support[:, unequal], whole.query, support_labels=whole.support_labels[:, unequal]
    )
    constant = torch.full((1, 1, 40), 0.1)
    lacking = torch.where(torch.arange(40) % 2 == 0, torch.nan, constant)  # in every other column of items
    wider = Tasks.from_arrays(
        torch.cat([tasks.support, constant.expand(1, tasks.n_support, -1)], -1),
        tasks.support_labels,
        torch.cat([tasks.query, lacking.expand(1, tasks.n_query, -1)], -1),
    )
    found = solve("evidence", wider).probabilities
    torch.testing.assert_close(found, solve("evidence", tasks).probabilities, atol=1e-4, rtol=0)


def test_an_item_without_any_number_has_what_the_batch_says():
    support, labels, query, truth = split(load_wine)
    query = query[truth == 0]
    query[0] = np.nan
    shares = Evidence().fit(support, labels).infer(query)
    assert shares.labels[0] == 0  # all other items are of this class
    support, labels, query, truth = split(load_wine)
    query[0] = np.nan
    found = Evidence().fit(support, labels).infer(query)
    np.testing.assert_allclose(found.probabilities[0], found.proportions, atol=0.1)


def test_fewer_cells_are_less_sure():
    support, labels, query, _ = split(load_wine)
    clf = Evidence().fit(support, labels)
    means = [
        clf.infer(with_holes(query, part)).probabilities.max(1).mean() for part in (0, 0.5, 0.9)
    ]
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.7


@cache
def fitted(load, seed):
    support, labels, _, _ = split(load, seed=seed)
    return Evidence().fit(support, labels)


@pytest.mark.parametrize("load", [load_wine, load_iris])
@pytest.mark.parametrize("part", [0.2, 0.5])
def test_labels_are_at_least_as_good_as_with_means_filled_in(load, part):
    right = []
    right_if_filled = []
    claimed = []
    for seed in range(3):
        support, _, query, truth = split(load, seed=seed)
        holed = with_holes(query, part, seed)
        clf = fitted(load, seed)
        found = clf.infer(holed)
        filled = clf.infer(np.where(np.isnan(holed), support.mean(0), holed))
        right.append((found.labels == truth).mean())
        right_if_filled.append((filled.labels == truth).mean())
        claimed.append(found.probabilities.max(1).mean())
    assert np.mean(right) >= np.mean(right_if_filled) - 0.01  # about two items of a batch
    assert abs(np.mean(right) - np.mean(claimed)) < 0.1


@pytest.mark.parametrize("open_set", [False, True])
def test_blocks_give_what_memory_gives(open_set):
    tasks = problem(examples=0.1, items=0.3)
    expected = solve("evidence", tasks, open_set=open_set)
    found = solve("evidence", piled(tasks, 32), open_set=open_set)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-3)


def test_tasks_together_are_labelled_as_each_alone():
    alone = [problem(examples=0.2, items=part) for part in (0.1, 0.4)]
    together = Tasks.from_arrays(
        torch.cat([one.support for one in alone]),
        torch.cat([one.support_labels for one in alone]),
        torch.cat([one.query for one in alone]),
    )
    found = solve("evidence", together).probabilities
    expected = torch.cat([solve("evidence", one).probabilities for one in alone])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_rows_and_columns_in_another_order_give_the_same_labels():
    tasks = problem(examples=0.2, items=0.3)
    rows = torch.randperm(tasks.n_query, generator=torch.Generator().manual_seed(0))
    columns = torch.arange(tasks.n_features).flip(0)
    turned = Tasks.from_arrays(
        tasks.support[..., columns], tasks.support_labels, tasks.query[:, rows][..., columns]
    )
    found = solve("evidence", turned).probabilities
    torch.testing.assert_close(
        found, solve("evidence", tasks).probabilities[:, rows], rtol=0, atol=1e-3
    )


def test_known_labels_and_new_classes_of_a_review_go_with_gaps():
    tasks = problem(items=0.3)
    known = torch.full((1, tasks.n_query), -1)
    known[0, :3] = 1
    assert solve("evidence", tasks.with_known(known)).labels[0, :3].tolist() == [1, 1, 1]
    rows = list(range(1, tasks.n_query))
    learned = learn_for_review(tasks).with_classes([0], rows)
    assert learned.calibration.prototypes.offsets.shape[1] == tasks.n_classes + 1
    assert bool(torch.isfinite(learned.likelihood.of(learned.placed)).all())


def test_a_stream_remembers_rows_with_gaps():
    support, labels, query, truth = split(load_wine)
    clf = Evidence().fit(support, labels)
    found = [clf.partial_infer(batch).labels for batch in np.array_split(with_holes(query, 0.2), 2)]
    found.append(clf.partial_infer(query[:5]).labels)  # a whole batch after them
    assert (np.concatenate(found[:2]) == truth).mean() > 0.8


def test_items_that_all_differ_in_one_way_are_moved_back_in_spite_of_gaps():
    support, labels, query, truth = split(load_wine, shots=15)
    shifted = with_holes(query + 1.5 * support.std(0), 0.1)
    moved = Evidence().fit(support, labels).infer(shifted)
    left = Evidence(adapt=False).fit(support, labels).infer(shifted)
    assert (moved.labels == truth).mean() > (left.labels == truth).mean() + 0.1


def test_infinite_numbers_are_no_gaps():
    support, labels, query, _ = split(load_wine)
    query[0, 0] = np.inf
    with pytest.raises(InputError, match="infinit"):
        Evidence().fit(support, labels).infer(query)


@pytest.mark.parametrize("scale", ["tcl2", "power"])
def test_scales_that_need_whole_queries_say_so(scale):
    with pytest.raises(InputError, match="every row must be whole"):
        solve("evidence", problem(items=0.2), scale=scale)


@pytest.mark.parametrize("scale", [None, "l2", "cl2", "white"])
def test_other_scales_take_gaps(scale):
    found = solve("evidence", problem(examples=0.1, items=0.2), scale=scale)
    assert bool(torch.isfinite(found.probabilities).all())


def test_items_without_examples_must_be_whole():
    names = np.eye(3)[None]
    items = np.array([[[0.9, np.nan, 0.1], [0.1, 0.9, 0.2]]])
    tasks = Tasks.from_arrays(np.empty((1, 0, 3)), np.empty((1, 0), dtype=int), items, class_features=names)
    with pytest.raises(InputError, match="without examples every row must be whole"):
        solve("evidence", tasks)


@pytest.mark.parametrize("method", [name for name, one in METHODS.items() if not one.takes_gaps])
def test_other_methods_say_that_they_need_whole_rows(method):
    with pytest.raises(InputError, match=r"needs a number in every cell.*use evidence"):
        solve(method, problem(items=0.1))


def test_examples_without_any_number_are_refused():
    support, labels, query, _ = split(load_wine)
    with pytest.raises(InputError, match="No column has a number"):
        Evidence().fit(np.full_like(support, np.nan), labels).infer(query)


def test_what_a_solution_makes_on_request_goes_with_gaps():
    found = solve("evidence", problem(examples=0.1, items=0.3))
    for value in (found.review_scores, found.prototypes, found.presence, found.copies):
        assert bool(torch.isfinite(value).all())


def test_the_likelihood_of_a_row_with_gaps_is_that_of_what_is_there():
    """The formula of the page, with classes of different numbers of examples."""
    draw = np.random.default_rng(3)
    counts = (2, 3, 5, 9)
    classes = np.repeat(np.arange(4), counts)
    rows = 2 * draw.normal(size=(4, 6))[classes] + draw.normal(size=(len(classes), 6)) @ draw.normal(size=(6, 6))
    items = draw.normal(size=(5, 6))
    items[draw.random(items.shape) < 0.4] = np.nan
    tasks = Tasks.from_arrays(rows[None], classes[None], items[None])
    learned = learn_support(replace(tasks, gaps=False), Parameters())
    calibration = learned.calibration
    placing = PlacingWithGaps(scaling=learned.scaling, calibration=calibration)
    found = WithGaps(calibration).of(placing(tasks.query))[0]
    placed = calibration.coordinates.place(placing.scaled(tasks.query))[0]
    metric = calibration.coordinates.placing().metric[0]
    given = ~tasks.query[0].isnan()
    # What is subtracted from the squared distances of whole rows; S/n where all classes have as many examples.
    errors = calibration.prototypes.offsets[0].square().sum(-1) - calibration.prototypes.squares[0]
    assert len(set(calibration.prototypes.counts[0].tolist())) == 4
    for row, here, likelihood in zip(placed, given, found, strict=True):
        missing = metric[~here]
        inside = missing.mT @ torch.linalg.pinv(missing.mT)
        outside = (row - calibration.prototypes.offsets[0]) @ (torch.eye(6) - inside)
        expected = -0.5 * calibration.precision * (outside.square().sum(-1) - here.double().mean() * errors)
        torch.testing.assert_close(likelihood, expected)


def test_a_missing_cell_of_an_example_gets_the_cautious_mean_of_its_class():
    """The formula of the module: m + b² s (x̄ − m), with the variances of all columns pooled as 20 numbers."""
    draw = np.random.default_rng(0)
    classes = np.repeat(np.arange(3), 4)
    rows = np.array([1.0, 3.0, 0.3]) * draw.normal(size=(3, 3))[classes] + draw.normal(size=(12, 3))
    holes = rows.copy()
    for cell in [(0, 0), (1, 0), (5, 1), (11, 2)]:
        holes[cell] = np.nan
    filled = complete_support(Tasks.from_arrays(holes[None], classes[None], rows[None]), Schedule()).support[0]
    middle = np.nanmean(holes, 0)
    scale = np.nanstd(holes, 0, ddof=1)
    scaled = (holes - middle) / scale
    means = np.array([np.nanmean(scaled[classes == k], 0) for k in range(3)])
    numbers = np.array([(~np.isnan(scaled[classes == k])).sum(0) for k in range(3)])
    squares = np.nansum((scaled - means[classes]) ** 2, 0)
    freedom = (numbers - 1).sum(0)
    within = (squares + 20 * squares.sum() / freedom.sum()) / (freedom + 20)
    between = 1 - within
    guesses = middle + scale * between**2 * numbers / (numbers + within / between) * means
    expected = np.where(np.isnan(holes), guesses[classes], rows)
    np.testing.assert_allclose(filled.numpy(), expected, rtol=1e-9)


def test_every_example_twice_is_every_example_once():
    """A guess was surer of a class with twice as many numbers, so that the copies were other examples."""
    once = problem(examples=0.2, items=0.2)
    order = torch.randperm(2 * once.n_support, generator=torch.Generator().manual_seed(0)) % once.n_support
    twice = once.with_rows(once.support[:, order], once.query, support_labels=once.support_labels[:, order])
    expected, found = (solve("evidence", tasks).probabilities for tasks in (once, twice))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_one_example_per_class_twice_is_one_example_per_class():
    """The copies do not differ at all: where no number was in a column of a class, its guess was 0/0."""
    once = problem(examples=0.3, items=0.2)
    first = once.with_rows(once.support[:, ::5], once.query, support_labels=once.support_labels[:, ::5])
    assert bool(first.support.isnan().any())
    twice = torch.arange(6) % 3
    other = first.with_rows(first.support[:, twice], first.query, support_labels=first.support_labels[:, twice])
    expected, found = (solve("evidence", tasks).probabilities for tasks in (first, other))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_no_column_is_left_without_a_number_where_a_guess_makes_examples_equal():
    rows = np.array([[0.0, 0.0, np.nan]] * 3 + [[0.0, 0.0, 5.0]] + [[1.0, 2.0, np.nan], [2.0, 1.0, np.nan]] * 2)
    tasks = Tasks.from_arrays(rows[None], np.repeat([0, 1], 4)[None], rows[None, :1])
    assert bool(torch.isfinite(complete_support(tasks, Schedule()).support).all())
