"""``examine``: what it says of examples whose faults are known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from manyway import Evidence, InputError, examine
from manyway.examination.report import NearCopies

N_CLASSES = 8
SHOTS = 6


@pytest.fixture(scope="module")
def drawn():
    """Eight classes of which 0 and 1 are alike, one wrong label (row 20) and one copy (row 47 of row 46)."""
    rng = np.random.default_rng(1)
    middles = 3 * rng.normal(size=(N_CLASSES, 10))
    middles[1] = middles[0] + 0.3 * rng.normal(size=10)
    truth = np.repeat(np.arange(N_CLASSES), SHOTS)
    features = middles[truth] + rng.normal(size=(len(truth), 10))
    features[47] = features[46]
    labels = np.array([f"class {k}" for k in truth])
    labels[20] = "class 6"
    items = middles[rng.integers(2, 5, 40)] + rng.normal(size=(40, 10))
    return features, labels, items


@pytest.fixture(scope="module")
def found(drawn):
    features, labels, _ = drawn
    return examine(features, labels, names=[f"{row}.jpg" for row in range(len(labels))])


def test_a_wrong_label_is_named_with_what_it_looks_like(found):
    first = found.suspects[0]
    assert (first.row, first.item, first.label, first.looks_like) == (20, "20.jpg", "class 6", "class 3")
    assert first.probability > 0.99


def test_twins_are_confused_with_each_other(found):
    first, second, share = found.twins[0]
    assert (first, second) == ("class 0", "class 1")
    assert 0.2 < share < 0.7
    assert {found.classes[0].name, found.classes[1].name} == {"class 0", "class 1"}
    assert found.next_classes[:2] == (found.classes[0].name, found.classes[1].name)


def test_near_copies_are_listed_once(found):
    assert [pair.rows for pair in found.copies] == [(46, 47)]
    assert not found.copies[0].contradict
    assert "1 pair of examples are near-copies of each other." in found.sentences()


def test_near_copies_are_counted_with_those_that_contradict(found):
    contradicting = NearCopies(rows=(0, 1), items=("a", "b"), labels=("ant", "bee"))
    one = replace(found, copies=(contradicting,))
    assert "1 pair of examples are near-copies of each other, with different labels." in one.sentences()
    both = replace(found, copies=(contradicting, *found.copies))
    assert "2 pairs of examples are near-copies of each other; 1 of them with different labels." in both.sentences()


def test_more_classes_are_harder_and_intervals_hold_the_forecast(found):
    assert [batch.n_present for batch in found.batches] == [2, 5]
    accuracies = [batch.accuracy for batch in found.batches]
    assert accuracies == sorted(accuracies, reverse=True)
    for batch in found.batches:
        assert 0 <= batch.low <= batch.accuracy <= batch.high <= 1
        assert batch.gain >= 0
        assert [n for n, _ in batch.further] == [6, 7, 8, 9, 11, 16]


def test_a_forecast_is_what_evidence_gets_right():
    rng = np.random.default_rng(5)
    middles = 0.9 * rng.normal(size=(12, 10))
    truth = np.repeat(np.arange(12), 5)
    examples = middles[truth] + rng.normal(size=(60, 10))
    forecast = examine(examples, truth, n_present=(5,), n_items=60).batches[0]
    clf = Evidence().fit(examples, truth)
    right = []
    for _ in range(5):
        present = rng.choice(rng.permutation(12)[:5], 60)
        right.append(np.mean(clf.predict(middles[present] + rng.normal(size=(60, 10))) == present))
    assert np.mean(right) == pytest.approx(forecast.accuracy, abs=0.1)


def test_rehearsals_are_counted(found):
    assert found.rehearsal.n_batches > 20
    assert 0.7 * found.rehearsal.n_items < found.rehearsal.n_right <= found.rehearsal.n_items


def test_the_same_seed_says_the_same(drawn, found):
    features, labels, _ = drawn
    again = examine(features, labels, names=found.names)
    assert again.to_dict() == found.to_dict()


def test_items_like_the_examples_have_no_shift_and_others_have(drawn):
    features, labels, items = drawn
    alike = examine(features, labels, items, n_present=()).shift
    moved = examine(features, labels, items + 4, n_present=()).shift
    assert 0.6 < alike.ratio < 1.1 < 1.5 < moved.ratio
    assert "look like" in alike.sentence
    assert "differ much" in moved.sentence


def test_one_example_per_class_is_said():
    found = examine(np.eye(4), ["a", "b", "c", "d"])
    assert found.batches == ()
    assert "two would" in str(found)
    assert [one.found for one in found.classes] == [None] * 4


def test_a_class_with_one_example_is_not_judged_and_asked_for():
    rng = np.random.default_rng(0)
    features = np.repeat(6 * np.eye(4), 5, 0) + rng.normal(size=(20, 4))
    labels = ["a"] * 5 + ["b"] * 5 + ["c"] * 5 + ["d"]
    found = examine(features[:16], labels, n_present=(2,))
    assert found.single_classes == ("d",)
    assert found.probabilities[15] is None
    assert "d" in found.next_classes


def with_few_classes_known(n_known):
    """Examples of eight classes, of which some have six and the others one; and 40 items like them."""
    rng = np.random.default_rng(3)
    middles = 1.2 * rng.normal(size=(8, 6))
    labels = np.repeat(np.arange(8), [SHOTS] * n_known + [1] * (8 - n_known))
    features = middles[labels] + rng.normal(size=(len(labels), 6))
    return features, labels, middles[np.arange(40) % 8] + rng.normal(size=(40, 6))


def test_one_class_that_can_be_left_out_tells_nothing_of_batches_or_distances():
    found = examine(*with_few_classes_known(1))
    assert (found.batches, found.too_many, found.shift) == ((), (2, 5), None)
    said = str(found)
    assert "Only 1 class has a second example; give more classes two to get a forecast." in said
    assert "One example only, so nothing is known about it" in said
    assert "right (" not in said
    assert "of that among examples" not in said


def test_batches_are_forecast_of_as_many_classes_as_can_be_left_out():
    found = examine(*with_few_classes_known(3))
    assert [batch.n_present for batch in found.batches] == [2]
    said = str(found)
    assert "40 items of 2 classes with two examples or more: " in said
    assert "Only 3 classes have a second example; give more classes two to get a forecast for batches of 5" in said


@pytest.mark.parametrize(("n_known", "is_said"), [(3, False), (4, True), (8, True)])
def test_the_distance_of_items_is_said_where_half_of_the_classes_can_be_left_out(n_known, is_said):
    found = examine(*with_few_classes_known(n_known), n_present=())
    assert (found.shift is not None) == is_said


def test_the_table_has_a_row_per_example_and_json_has_everything(found):
    rows = found.rows()
    assert len(rows) == N_CLASSES * SHOTS
    assert rows[20] == {
        "item": "20.jpg",
        "label": "class 6",
        "looks_like": "class 3",
        "probability_wrong": 1.0,
        "suspect": "yes",
        "copy_of": "",
    }
    assert rows[47]["copy_of"] == "46.jpg"
    assert list(found.to_frame().columns) == list(rows[0])
    read = json.loads(json.dumps(found.to_dict()))
    assert read["suspects"][0]["looks_like"] == "class 3"


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        (["a"] * 4, {}, "one class"),
        (["a", "b"], {}, "4 examples and 2 labels"),
        (list("aabb"), {"names": ["x"]}, "4 examples and 1 names"),
        (list("aabb"), {"items": np.zeros((2, 3))}, "give 4 features per item"),
        (list("aabb"), {"items": np.zeros((0, 4))}, "at least one"),
        (list("aabb"), {"n_items": 0}, "at least one item"),
    ],
)
def test_what_cannot_be_examined_is_said(labels, more, message):
    with pytest.raises(InputError, match=message):
        examine(np.eye(4), labels, **more)


def with_gaps(rows: np.ndarray, part: float, seed: int = 0) -> np.ndarray:
    """The rows without some of their cells."""
    missing = np.random.default_rng(seed).random(rows.shape) < part
    return np.where(missing, np.nan, rows)


def test_examples_that_lack_cells_are_examined_and_are_worth_less(drawn, found):
    features, labels, _ = drawn
    lacking = examine(with_gaps(features, 0.5), labels)
    assert lacking.n_examples == len(labels)
    assert lacking.rehearsal.n_items == found.rehearsal.n_items
    assert lacking.rehearsal.n_right < found.rehearsal.n_right
    assert lacking.batches[0].accuracy < found.batches[0].accuracy


def test_a_cell_that_is_missing_does_not_tell_the_class_of_its_example():
    rng = np.random.default_rng(0)
    labels = np.repeat(["ant", "bee"], 20)
    noise = with_gaps(rng.normal(size=(40, 6)), 0.8)
    assert examine(noise, labels).batches[0].accuracy < 0.7


def test_examples_that_lack_the_same_cells_are_no_copies(drawn):
    features, labels, _ = drawn
    lacking = features.copy()
    lacking[[0, 1], 1:] = np.nan
    assert [pair.rows for pair in examine(lacking, labels, n_present=()).copies] == [(46, 47)]


def test_items_that_lack_cells_do_not_count_for_the_distance_of_the_items(drawn):
    features, labels, items = drawn
    lacking = items.copy()
    lacking[:10, 0] = np.nan
    assert examine(features, labels, lacking, n_present=()).shift.n_items == len(items) - 10
    assert examine(features, labels, with_gaps(items, 1.0), n_present=()).shift is None


def test_a_column_without_a_number_is_left_out_and_examples_without_any_are_refused(drawn):
    features, labels, items = drawn
    empty = np.full((len(features), 1), np.nan)
    further = np.ones((len(items), 1))
    left_out = examine(np.hstack([features, empty]), labels, np.hstack([items, further]), n_present=(2,))
    without = examine(features, labels, items, n_present=(2,))
    assert left_out.log_odds == pytest.approx(without.log_odds)
    assert left_out.shift.ratio == pytest.approx(without.shift.ratio)
    assert left_out.rehearsal == without.rehearsal
    with pytest.raises(InputError, match="No column has a number in any example"):
        examine(np.full_like(features, np.nan), labels)
