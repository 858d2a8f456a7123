"""What must not matter does not: units, offsets, orders, copies, rounding, and labels that are known anyway.

``tests/methods/scores/test_laws.py`` has the same for the scores of a classifier.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import piled

from manyway import Evidence, Tasks, solve

N_PRESENT = 4
N_ITEMS = 60
MOST_SHOTS = 4
cases = given(
    n_features=st.sampled_from([1, 2, 5, 31, 64, 65, 300]),
    shots=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 100),
)
few = settings(max_examples=12, derandomize=True, deadline=None, database=None)
fewer = settings(few, max_examples=4)


class Table(NamedTuple):
    """Examples of normal classes, and items of a few of them."""

    examples: np.ndarray  # [s, d]
    classes: np.ndarray  # [s]
    items: np.ndarray  # [q, d]
    truth: np.ndarray  # [q]

    @staticmethod
    def of(
        n_features: int,
        shots: int,
        seed: int,
        *,
        n_classes: int = 20,
        apart: float | None = None,
        n_items: int = N_ITEMS,
    ) -> Table:
        if apart is None:
            apart = 2.0 if n_features < 10 else 0.7
        draw = np.random.default_rng(seed)
        means = apart * draw.normal(size=(n_classes, n_features))
        examples = means[:, None] + draw.normal(size=(n_classes, shots, n_features))
        present = draw.choice(n_classes, N_PRESENT, replace=False)
        truth = present[draw.integers(0, N_PRESENT, n_items)]
        items = means[truth] + draw.normal(size=(n_items, n_features))
        return Table(examples.reshape(-1, n_features), np.repeat(np.arange(n_classes), shots), items, truth)

    def labels(self) -> np.ndarray:
        """[q]"""
        return Evidence().fit(self.examples, self.classes).predict(self.items)

    def labels_in_blocks(self) -> np.ndarray:
        """[q] the same, where the items are read in blocks."""
        tasks = Tasks.from_arrays(self.examples[None], self.classes[None], self.items[None])
        return solve("evidence", piled(tasks, size=16)).labels[0].numpy()

    def changed(self, change) -> Table:
        """The table with a change of all rows, examples and items."""
        return self._replace(examples=change(self.examples), items=change(self.items))


# --- the columns ----------------------------------------------------------------------------------------------------


@few
@cases
def test_the_unit_of_the_features_does_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    expected = table.labels()
    for factor in (1e-6, 4.0, 1e6):
        assert (table.changed(lambda rows, factor=factor: rows * factor).labels() == expected).all()


@few
@cases
def test_the_zero_of_a_column_does_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    offsets = 10 * np.random.default_rng(seed).normal(size=n_features)
    assert (table.changed(lambda rows: rows + offsets).labels() == table.labels()).all()


@few
@cases
def test_the_order_of_columns_does_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    order = np.random.default_rng(seed).permutation(n_features)
    assert (table.changed(lambda rows: rows[:, order]).labels() == table.labels()).all()


@few
@cases
def test_a_constant_column_does_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    with_constant = table.changed(lambda rows: np.c_[rows, np.full(len(rows), 7.0)])
    assert (with_constant.labels() == table.labels()).all()


@few
@cases
def test_the_last_digits_of_a_cell_do_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    moved = table.examples.copy()
    moved[0, 0] += 1e-9
    assert (table._replace(examples=moved).labels() == table.labels()).all()


# --- examples, items and classes ------------------------------------------------------------------------------------


@few
@cases
def test_the_order_of_examples_and_items_does_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    draw = np.random.default_rng(seed)
    examples = draw.permutation(len(table.examples))
    items = draw.permutation(len(table.items))
    shuffled = Table(table.examples[examples], table.classes[examples], table.items[items], table.truth[items])
    assert (shuffled.labels() == table.labels()[items]).all()


@few
@cases
def test_the_names_and_the_order_of_classes_do_not_matter(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    renamed = np.random.default_rng(seed).permutation(table.classes.max() + 1)
    assert (table._replace(classes=renamed[table.classes]).labels() == renamed[table.labels()]).all()


@few
@cases
def test_every_example_twice_teaches_nothing_more(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    examples = np.concatenate([table.examples, table.examples])
    classes = np.concatenate([table.classes, table.classes])
    assert (table._replace(examples=examples, classes=classes).labels() == table.labels()).all()


def labels_of(tables: list[Table]) -> np.ndarray:
    """[t, q] of tables of one size, as a batch of tasks."""
    examples, classes, items, _ = map(np.stack, zip(*tables, strict=True))
    return solve("evidence", Tasks.from_arrays(examples, classes, items)).labels.numpy()


groups_change_sides = pytest.mark.xfail(
    strict=True, reason="a group between two classes may change sides: up to 64 of 199 labels, accuracy 0.884 to 0.883"
)


@pytest.mark.parametrize(
    ("n_features", "shots"), [pytest.param(5, 5, marks=groups_change_sides), (64, 1), (64, 5), (300, 5)]
)
def test_one_item_less_changes_at_most_one_percent_of_the_other_labels(n_features, shots):
    tables = [Table.of(n_features, shots, seed, n_items=200) for seed in range(20)]
    without = [table._replace(items=table.items[1:], truth=table.truth[1:]) for table in tables]
    changed = labels_of(tables)[:, 1:] != labels_of(without)
    assert changed.sum(1).max() <= 2


def test_one_item_less_costs_no_accuracy_where_groups_change_sides():
    tables = [Table.of(5, 5, seed, n_items=200) for seed in range(20)]
    without = [table._replace(items=table.items[1:], truth=table.truth[1:]) for table in tables]
    truth = np.stack([table.truth[1:] for table in tables])
    before = (labels_of(tables)[:, 1:] == truth).mean()
    assert abs((labels_of(without) == truth).mean() - before) < 0.01


def changes(table: Table, seed: int) -> Iterator[Table]:
    """The table with what must not matter: the labels of its items, in their order, stay."""
    draw = np.random.default_rng(seed)
    n_features = table.examples.shape[1]
    offsets = 10 * draw.normal(size=n_features)
    columns = draw.permutation(n_features)
    examples = draw.permutation(len(table.examples))
    twice = np.tile(np.arange(len(table.examples)), 2)
    moved = table.examples.copy()
    moved[0, 0] += 1e-9
    yield table
    yield table.changed(lambda rows: 1e6 * rows)
    yield table.changed(lambda rows: rows + offsets)
    yield table.changed(lambda rows: rows[:, columns])
    yield table.changed(lambda rows: np.c_[rows, np.full(len(rows), 7.0)])
    yield table._replace(examples=table.examples[examples], classes=table.classes[examples])
    yield table._replace(examples=table.examples[twice], classes=table.classes[twice])
    yield table._replace(examples=moved)


@fewer
@cases
def test_the_same_holds_where_items_are_read_in_blocks(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    expected = table.labels()
    for changed in changes(table, seed):
        assert (changed.labels_in_blocks() == expected).all()
    items = np.random.default_rng(seed).permutation(len(table.items))
    shuffled = table._replace(items=table.items[items], truth=table.truth[items])
    assert (shuffled.labels_in_blocks() == expected[items]).all()
    renamed = np.random.default_rng(seed).permutation(table.classes.max() + 1)
    assert (table._replace(classes=renamed[table.classes]).labels_in_blocks() == renamed[expected]).all()


# --- known labels, and a class that is far away ---------------------------------------------------------------------


@few
@cases
def test_a_person_who_confirms_right_labels_changes_no_other(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    fitted = Evidence().fit(table.examples, table.classes)
    before = fitted.predict(table.items)
    right = np.flatnonzero(before == table.truth)[:5]
    after = fitted.infer(table.items, known={int(item): int(table.truth[item]) for item in right}).labels
    assert (after == before).all()


def accuracy_with_and_without_a_far_class(table: Table, shots: int) -> tuple[float, float]:
    n_features = table.examples.shape[1]
    draw = np.random.default_rng(9)
    direction = draw.normal(size=n_features)
    far = 60 * direction / np.linalg.norm(direction)
    examples = np.concatenate([table.examples, far + draw.normal(size=(shots, n_features))])
    classes = np.concatenate([table.classes, np.full(shots, table.classes.max() + 1)])
    with_far = table._replace(examples=examples, classes=classes)
    return (with_far.labels() == table.truth).mean(), (table.labels() == table.truth).mean()


@pytest.mark.parametrize("shots", [1, 3, 5])
@pytest.mark.parametrize(("n_features", "n_classes", "apart"), [(5, 8, 2.0), (64, 20, 0.5), (200, 10, 0.4)])
def test_a_class_that_is_far_away_costs_little(n_features, n_classes, apart, shots):
    found = []
    for seed in range(12):
        table = Table.of(n_features, shots, seed, n_classes=n_classes, apart=apart)
        found.append(accuracy_with_and_without_a_far_class(table, shots))
    with_far, without = np.mean(found, 0)
    assert with_far > without - 0.03


# --- no cliffs ------------------------------------------------------------------------------------------------------


def accuracies(n_features: int, shots: int, *, largest: int) -> np.ndarray:
    """[20] of draws whose first features and first examples are the same, whatever their number."""
    tables = []
    for seed in range(20):
        table = Table.of(largest, MOST_SHOTS, seed, n_classes=12, apart=3 / largest**0.5)
        taken = np.arange(len(table.examples)) % MOST_SHOTS < shots
        some = table._replace(examples=table.examples[taken], classes=table.classes[taken])
        tables.append(some.changed(lambda rows: rows[:, :n_features]))
    truth = np.stack([table.truth for table in tables])
    return (labels_of(tables) == truth).mean(1)


def falls(values: list[np.ndarray]) -> list[float]:
    """By how many standard errors the mean falls from one number to the next."""
    steps = [later - one for one, later in pairwise(values)]
    return [-step.mean() / max(step.std() / len(step) ** 0.5, 0.005) for step in steps]


@pytest.mark.parametrize("numbers", [(31, 32, 33), (63, 64, 65)], ids=str)
def test_a_feature_more_is_no_loss(numbers):
    assert max(falls([accuracies(number, 2, largest=numbers[-1]) for number in numbers])) < 2


@pytest.mark.parametrize("n_features", [5, 64])
def test_an_example_more_is_no_loss(n_features):
    assert max(falls([accuracies(n_features, shots, largest=n_features) for shots in (1, 2, 3, MOST_SHOTS)])) < 2


@few
@cases
def test_some_class_occurs(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    found = Evidence().fit(table.examples, table.classes).infer(table.items[: 1 + seed % 5])
    assert found.n_present >= 1


def test_equal_items_are_of_one_class_at_least():
    table = Table.of(32, 5, 0, apart=0.5)
    fitted = Evidence().fit(table.examples, table.classes)
    for item in table.items[:10]:
        found = fitted.infer(np.repeat(item[None], 50, 0))
        assert found.n_present >= 1
        assert found.n_present < 2
