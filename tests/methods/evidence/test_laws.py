"""What must not matter does not: units, offsets, orders, copies, rounding, and labels that are known anyway."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import piled

from manyway import Evidence, Tasks, solve

N_PRESENT = 4
N_ITEMS = 60
cases = given(
    n_features=st.sampled_from([1, 2, 5, 31, 64, 65, 200]),
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
    def of(n_features: int, shots: int, seed: int, *, n_classes: int = 20, apart: float | None = None) -> Table:
        if apart is None:
            apart = 2.0 if n_features < 10 else 0.7
        draw = np.random.default_rng(seed)
        means = apart * draw.normal(size=(n_classes, n_features))
        examples = means[:, None] + draw.normal(size=(n_classes, shots, n_features))
        present = draw.choice(n_classes, N_PRESENT, replace=False)
        truth = present[draw.integers(0, N_PRESENT, N_ITEMS)]
        items = means[truth] + draw.normal(size=(N_ITEMS, n_features))
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


@fewer
@cases
def test_the_same_holds_where_items_are_read_in_blocks(n_features, shots, seed):
    table = Table.of(n_features, shots, seed)
    expected = table.labels()
    offsets = 10 * np.random.default_rng(seed).normal(size=n_features)
    order = np.random.default_rng(seed).permutation(n_features)
    assert (table.labels_in_blocks() == expected).all()
    assert (table.changed(lambda rows: 1e6 * rows).labels_in_blocks() == expected).all()
    assert (table.changed(lambda rows: rows + offsets).labels_in_blocks() == expected).all()
    assert (table.changed(lambda rows: rows[:, order]).labels_in_blocks() == expected).all()


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


def test_equal_items_are_of_one_class_at_least():
    table = Table.of(32, 5, 0, apart=0.5)
    fitted = Evidence().fit(table.examples, table.classes)
    for item in table.items[:10]:
        found = fitted.infer(np.repeat(item[None], 50, 0))
        assert found.n_present >= 1
        assert found.n_present < 1.5
