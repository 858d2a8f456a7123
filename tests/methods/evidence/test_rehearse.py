"""Examples that are held out tell whether claims are right."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from problems import make_tasks, piled

from manyway import Evidence, solve
from manyway.core import Solution, Tasks
from manyway.methods.evidence import rehearse as room
from manyway.methods.evidence.rehearse import rehearse_claims
from manyway.methods.evidence.schedule import Parameters

PARAMETERS = Parameters()


def support(n_classes=12, n_of_class=4, n_features=8, spread=1.0, seed=0):
    """Examples of normal classes: features [n, d] and labels [n]."""
    generator = torch.Generator().manual_seed(seed)
    means = 3 * torch.randn(n_classes, n_features, generator=generator)
    labels = torch.arange(n_classes).repeat_interleave(n_of_class)
    noise = spread * torch.randn(len(labels), n_features, generator=generator)
    return means[labels] + noise, labels


def task_of(features, labels):
    return Tasks.from_support(features[None], labels[None])


def rehearsed(task, label, wrong=None):
    """What is seen in a rehearsal; no label is wrong unless that is said."""
    if wrong is None:
        wrong = torch.zeros(1, task.n_support)
    return rehearse_claims(task, PARAMETERS, label, wrong)


def answers(tasks, p_of_label, is_right):
    """A solution that gives its labels a probability, whether they are right or not."""
    truth = tasks.query_labels
    labels = torch.where(is_right(truth), truth, (truth + 1) % tasks.n_classes)
    rest = (1 - p_of_label) / (tasks.n_classes - 1)
    probabilities = torch.full((*truth.shape, tasks.n_classes), rest)
    probabilities.scatter_(-1, labels.unsqueeze(-1), p_of_label)
    return Solution(probabilities, torch.ones(len(truth)), True)


def always(truth):
    return torch.ones_like(truth, dtype=torch.bool)


def every_other(truth):
    """Right for every other held-out item."""
    return (torch.arange(truth.numel()) % 2 == 0).view(truth.shape)


def test_held_out_examples_are_not_among_the_support_and_every_class_keeps_one():
    seen = []

    def label(tasks, parameters):
        seen.append(tasks)
        return answers(tasks, 0.9, always)

    features, labels = support()
    found = rehearsed(task_of(features, labels), label)
    (batches,) = seen
    assert int(found.n_items) == batches.query_labels.numel()
    for support_rows, query_rows, present in zip(batches.support, batches.query, batches.query_labels, strict=True):
        assert torch.cdist(support_rows.double(), query_rows.double()).min() > 1e-3
        assert len(present.unique()) == 4  # of 12 classes
    assert all(len(one.unique()) == 12 for one in batches.support_labels)


@pytest.mark.parametrize(
    ("n_of_class", "n_batches", "n_held"),
    [(4, 6, 1), (11, 6, 2), (15, 6, 3), (20, 4, 4)],
)
def test_a_fifth_of_the_examples_of_every_third_class_is_held_out_until_there_are_64(n_of_class, n_batches, n_held):
    batches = []

    def label(tasks, _):
        batches.append(tasks)
        return answers(tasks, 0.9, always)

    rehearsed(task_of(*support(n_classes=12, n_of_class=n_of_class)), label)
    (given,) = batches
    assert len(given) == n_batches
    for labels in given.query_labels:
        assert sorted(labels.bincount().tolist())[-4:] == [n_held] * 4
        assert len(labels) == 4 * n_held


def test_claims_that_are_right_stay_and_claims_that_are_too_high_are_lowered():
    task = task_of(*support())

    def power(claimed, is_right):
        found = rehearsed(task, lambda tasks, _: answers(tasks, claimed, is_right))
        return float(found.power)

    assert power(0.99, every_other) < 0.7
    assert power(0.5, every_other) == pytest.approx(1, abs=0.06)
    assert power(0.5, always) == 1  # too low: a rehearsal has fewer examples, and is not heard


def test_examples_that_look_mislabelled_do_not_lower_claims():
    """Every answer is wrong for half of the examples; those are known to be mislabelled."""
    features, labels = support()
    wrong = (torch.arange(len(labels)) % 2 == 0).float()

    def label(tasks, parameters):
        truth = tasks.query_labels
        rows = (tasks.query.unsqueeze(2) == features.view(1, 1, *features.shape)).all(-1).int().argmax(-1)
        return answers(tasks, 0.95, lambda _: (wrong[rows] == 0).view(truth.shape))

    given = rehearsed(task_of(features, labels), label, wrong[None])
    assert float(given.power) == 1
    assert float(given.right) == 1
    assert int(given.n_items) == pytest.approx(12, abs=6)
    assert float(rehearsed(task_of(features, labels), label).power) < 0.8


def test_what_was_seen_is_told():
    def label(tasks, parameters):
        return answers(tasks, 0.95, every_other)

    found = rehearsed(task_of(*support()), label)
    assert float(found.claimed) == pytest.approx(0.95)
    assert float(found.right) == float(found.sure_right) == pytest.approx(0.5)
    assert int(found.n_sure) == int(found.n_items)
    assert found.told.keys() == {f"rehearsed_{name}" for name in vars(found)}


def test_lists_are_compared_with_the_classes_that_occur():
    def label(tasks, parameters):
        found = answers(tasks, 0.999, every_other)
        return Solution(found.probabilities, found.n_iter, found.converged)

    found = rehearsed(task_of(*support()), label)
    assert 0 < int(found.n_absent) < int(found.n_listed)


def test_a_task_that_cannot_be_rehearsed_leaves_the_others_alone():
    """Of the first, one class alone has several examples."""
    features, labels = support(n_classes=3, n_of_class=3)
    unequal = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 2])
    twice = features.expand(2, -1, -1)
    both = Tasks.from_arrays(twice, torch.stack([unequal, labels]), twice[:, :1])
    found = rehearse_claims(both, PARAMETERS, lambda tasks, _: answers(tasks, 0.99, every_other), torch.zeros(2, 9))
    assert found.power[0] == 1
    assert found.n_items[0] == 0
    assert found.power[1] < 1


def test_the_fewer_examples_a_class_has_the_less_the_rehearsal_counts():
    powers = []
    for n_of_class in (2, 3, 5):
        task = task_of(*support(n_of_class=n_of_class))
        found = rehearsed(task, lambda tasks, _: answers(tasks, 0.99, every_other))
        powers.append(float(found.power))
    assert powers == sorted(powers, reverse=True)


@cache
def rehearsed_in_order(n_classes, n_of_class):
    features, labels = support(n_classes=n_classes, n_of_class=n_of_class, spread=2.5)
    return Evidence().fit(features, labels).infer(features[:1]).rehearsed_


@pytest.mark.parametrize("n_of_class", [2, 4])
@pytest.mark.parametrize("n_classes", [2, 12])
@pytest.mark.parametrize("change", ["rows", "classes", "units"])
def test_order_and_units_change_nothing(change, n_classes, n_of_class):
    features, labels = support(n_classes=n_classes, n_of_class=n_of_class, spread=2.5)
    expected = rehearsed_in_order(n_classes, n_of_class)
    if change == "rows":
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
        features, labels = features[order], labels[order]
    elif change == "classes":
        labels = n_classes - 1 - labels
    else:
        features = features * 1024
    found = Evidence().fit(features, labels).infer(features[:1]).rehearsed_
    assert found == pytest.approx(expected, abs=1e-3)


def test_every_example_twice_changes_nothing():
    features, labels = support(n_features=32, spread=2.5)
    once = Evidence().fit(features, labels).infer(features).rehearsed_
    twice = Evidence().fit(features.repeat(2, 1), labels.repeat(2)).infer(features).rehearsed_
    assert twice == pytest.approx(once, abs=1e-3)


def test_of_many_classes_and_examples_some_stand_for_all(monkeypatch):
    monkeypatch.setattr(room, "_MOST_CLASSES", 6)
    monkeypatch.setattr(room, "_MOST_OF_CLASS", 3)
    seen = []

    def label(tasks, parameters):
        seen.append(tasks)
        return answers(tasks, 0.9, always)

    rehearsed(task_of(*support(n_classes=20, n_of_class=9)), label)
    (batches,) = seen
    assert batches.n_classes == 6
    assert batches.n_support + batches.n_query == 18


@pytest.mark.parametrize("n_of_class", [1, 2])
def test_one_example_per_class_cannot_be_rehearsed(n_of_class):
    features, labels = support(n_of_class=n_of_class)
    found = Evidence().fit(features, labels).infer(features).rehearsed_
    assert (found is None) == (n_of_class == 1)


def test_it_can_be_turned_off_and_changes_no_label():
    features, labels = support(spread=3.0)
    queries = features[:20] + 0.5
    with_it = Evidence().fit(features, labels).infer(queries)
    without = Evidence(rehearse=False).fit(features, labels).infer(queries)
    assert without.rehearsed_ is None
    assert (with_it.labels == without.labels).all()


def overconfident(tasks):
    """Tasks and a rehearsal that halves the power, so that its way through the solver can be seen."""
    half = torch.full((1,), 0.5)
    numbers = dict.fromkeys(
        ["n_items", "right", "claimed", "n_sure", "sure_right", "n_listed", "n_absent"], half
    )
    return room.Rehearsed(power=half, **numbers)


@pytest.mark.parametrize("way", ["in memory", "in blocks", "several tasks"])
def test_the_power_reaches_the_answers_however_they_are_computed(monkeypatch, way):
    tasks = make_tasks(n_tasks=3 if way == "several tasks" else 1)
    plain = solve("evidence", tasks, adapt=False)
    monkeypatch.setattr(
        "manyway.methods.evidence.solver.rehearse_claims", lambda tasks, *_: overconfident(tasks)
    )
    if way == "in blocks":
        tasks = piled(tasks)
    found = solve("evidence", tasks, adapt=False, rehearse=True)
    logs = plain.probabilities.clamp_min(1e-30).log()
    assert torch.allclose(found.probabilities, (0.5 * logs).softmax(-1), atol=1e-3)
