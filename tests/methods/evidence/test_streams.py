"""Batches that arrive one after another: what is carried over, when it is not, and what is remembered."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import make_features, make_tasks, piled
from sklearn.base import clone

from manyway import Evidence, FeatureSet, InputError, TaskSpec, evaluate, sample_tasks, solve
from manyway.methods.evidence import streams
from manyway.methods.evidence.schedule import Schedule

FEATURES = make_features(n_classes=20, per_class=40)
ALIKE = TaskSpec(shots=2, k_eff=3, n_query=8, n_batches=6)  # three of twenty classes, in every batch
SEPARATE = TaskSpec(shots=2, k_eff=20, n_query=24, n_batches=6, gamma=0)  # one class after another


def batches(spec: TaskSpec, start: int = 0) -> tuple[Evidence, list[np.ndarray]]:
    """A fitted estimator and the batches of one stream."""
    tasks = sample_tasks(FEATURES, spec, start=start, count=1)
    # ``solve`` does not rehearse, and is compared with it
    fitted = Evidence(adapt=False, rehearse=False)
    fitted.fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    return fitted, list(tasks.query.numpy())


# --- what is carried over -------------------------------------------------------------------------------------------


def test_a_batch_that_continues_a_run_is_labelled_jointly_with_it():
    clf, arriving = batches(ALIKE)
    first = clf.partial_infer(arriving[0])
    assert np.array_equal(first.probabilities, clf.infer(arriving[0]).probabilities)
    for batch in arriving[1:]:
        found = clf.partial_infer(batch)
    assert clf.memory_.lengths[0].argmax() == 5
    together = clf.infer(np.concatenate(arriving[::-1]))
    assert np.array_equal(found.probabilities, together.probabilities[:8])
    assert np.array_equal(found.prototypes, together.prototypes)
    assert not np.allclose(found.probabilities, clf.infer(arriving[-1]).probabilities, atol=1e-3)
    assert found.labels.shape == (8,)
    assert len(found.review_order) == 8
    assert found.n_present <= 8


def test_a_batch_that_continues_a_run_tells_what_was_found_when_it_was_alone():
    spec = TaskSpec(shots=5, k_eff=6, n_query=24, n_batches=3)
    tasks = sample_tasks(FEATURES, spec, count=1)
    arriving = tasks.query.numpy() + 2  # all items are moved alike
    clf = Evidence().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    for number, batch in enumerate(arriving):
        alone, found = clf.infer(batch), clf.partial_infer(batch)
        assert np.array_equal(found.probabilities, alone.probabilities) == (number == 0)
        assert found.solution.told == alone.solution.told
        assert found.shift_ == alone.shift_
        assert found.shift_.moved
        assert found.rehearsed_ == alone.rehearsed_ is not None
        assert torch.equal(found.solution.moved_by, alone.solution.moved_by)
        assert torch.equal(found.solution.doubts.wrong, alone.solution.doubts.wrong)


def test_a_batch_of_other_classes_is_labelled_alone():
    clf, arriving = batches(SEPARATE)
    for batch in arriving:
        found, alone = clf.partial_infer(batch), clf.infer(batch)
        assert np.array_equal(found.probabilities, alone.probabilities)
        assert np.array_equal(found.presence, alone.presence)
    assert clf.memory_.changes[0] > 4  # it has learned that classes change


def test_a_run_ends_where_classes_change_and_another_begins():
    clf, arriving = batches(ALIKE)
    one, other = np.concatenate(arriving[:3]), clf.support_[clf.support_labels_ >= 17].repeat(8, 0)
    other = other + np.random.default_rng(0).normal(size=other.shape).astype(np.float32) / 2
    n_earlier = []
    for batch in (one, one, other, other, other):
        before = clf.memory_
        clf.partial_infer(batch)
        if before is not None:
            n_earlier.append(int(clf.memory_.n_earlier(before, Schedule().improbable)))
    assert n_earlier == [1, 0, 1, 2]


def test_memory_helps_where_batches_are_alike_and_does_no_harm_where_they_are_not():
    alone, carried = (evaluate("evidence", FEATURES, ALIKE, 10, carry=carry) for carry in (False, True))
    assert carried.accuracy > alone.accuracy + 0.01
    alone, carried = (evaluate("evidence", FEATURES, SEPARATE, 4, carry=carry) for carry in (False, True))
    assert carried.correct.tolist() == alone.correct.tolist()


# --- streams as tasks -----------------------------------------------------------------------------------------------


def test_streams_together_give_the_answers_of_one_estimator_each():
    spec = replace(ALIKE, k_eff=6, gamma=0.1, n_batches=4)
    tasks = sample_tasks(FEATURES, spec, count=2)
    together = solve("evidence", tasks, carry=True, adapt=False)
    for start in range(2):
        clf, arriving = batches(spec, start)
        for place, batch in enumerate(arriving):
            found = clf.partial_infer(batch)
            row = start * 4 + place
            np.testing.assert_allclose(together.probabilities[row].numpy(), found.probabilities, atol=2e-3)
            np.testing.assert_allclose(together.presence[row].numpy(), found.presence, atol=2e-3)
            assert float(together.n_present[row]) == pytest.approx(found.n_present, abs=2e-2)


def test_tasks_without_a_stream_are_labelled_alone():
    tasks = sample_tasks(FEATURES, TaskSpec(shots=2, k_eff=3, n_query=8), count=3)
    assert torch.equal(solve("evidence", tasks, carry=True).probabilities, solve("evidence", tasks).probabilities)


def test_classes_by_name_alone_are_carried_over():
    many = make_features(n_classes=20, per_class=40, n_features=80)
    named = FeatureSet(many.features / 3, many.labels, class_features=many.features[many.labels.argsort()[::40]] / 3)
    tasks = sample_tasks(named, replace(ALIKE, shots=0, n_query=24, n_batches=3), count=2)
    carried, alone = solve("evidence", tasks, carry=True), solve("evidence", tasks)
    first = alone.probabilities[::3]  # of each stream; more tasks at once have other roundings
    torch.testing.assert_close(carried.probabilities[::3], first, rtol=0, atol=1e-5)
    assert not torch.allclose(carried.probabilities, alone.probabilities, atol=1e-3)


def test_streams_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="different numbers of batches"):
        solve("evidence", sample_tasks(FEATURES, ALIKE, count=2)[:9], carry=True)


# --- the state of an estimator --------------------------------------------------------------------------------------


def test_fit_forgets_and_a_pickle_remembers():
    clf, arriving = batches(ALIKE)
    first = clf.partial_infer(arriving[0]).probabilities
    second = pickle.loads(pickle.dumps(clf)).partial_infer(arriving[1]).probabilities
    assert np.array_equal(second, clf.partial_infer(arriving[1]).probabilities)
    assert not hasattr(clone(clf), "memory_")
    again = clf.fit(clf.support_, clf.support_labels_).partial_infer(arriving[0])
    assert np.array_equal(again.probabilities, first)


def test_infer_and_predict_leave_the_memory_alone():
    clf, arriving = batches(ALIKE)
    clf.partial_infer(arriving[0])
    before = clf.memory_
    clf.infer(arriving[1])
    clf.predict(arriving[1])
    assert clf.memory_ is before


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(streams, "MOST_ITEMS", 20)
    clf, arriving = batches(ALIKE)
    for batch in arriving:
        clf.partial_infer(batch)
    assert [len(batch[0]) for batch in clf.memory_.query] == [8, 8]
    assert clf.memory_.lengths.exp().sum() == pytest.approx(1)  # longer runs count as the longest that is kept
    assert clf.memory_.lengths[0].argmax() == 1
    large = np.concatenate(arriving)
    assert np.array_equal(clf.partial_infer(large).probabilities, clf.infer(large).probabilities)
    assert clf.memory_.query == ()
    assert np.array_equal(clf.partial_infer(arriving[0]).labels, clf.infer(arriving[0]).labels)


def test_a_large_pile_is_labelled_alone_and_forgotten(monkeypatch):
    monkeypatch.setattr(streams, "MOST_ITEMS", 20)
    tasks = make_tasks(1, n_classes=6, n_query=30, shots=3, dtype=torch.float32)
    found = solve("evidence", replace(piled(tasks, 15), earlier=()))
    assert torch.equal(found.labels, solve("evidence", piled(tasks, 15)).labels)
    assert found.memory.query == ()
    few = replace(piled(tasks.with_rows(tasks.support, tasks.query[:, :10]), 8), earlier=())
    memory = solve("evidence", few).memory
    assert len(memory.query) == 1
    memory = replace(memory, changes=memory.changes + 2, stays=memory.stays + 3)
    after = solve("evidence", replace(piled(tasks, 15), earlier=memory)).memory
    # The runs before still say how often one ends.
    assert (after.changes, after.stays) == (memory.changes, memory.stays)


def test_known_labels_of_earlier_batches_are_remembered():
    clf, arriving = batches(replace(ALIKE, n_query=24, n_batches=2))
    label = (clf.partial_infer(arriving[0]).labels[0] + 1) % 20  # whatever the features say
    clf.fit(clf.support_, clf.support_labels_)
    clf.partial_infer(arriving[0], known={0: label})
    found = clf.partial_infer(arriving[1])
    known = {24: label}
    assert np.array_equal(
        found.probabilities, clf.infer(np.concatenate(arriving[1::-1]), known=known).probabilities[:24]
    )


def test_unknown_items_are_found_in_a_stream_and_earlier_batches_help():
    features = make_features(n_classes=20, per_class=40, n_features=24)
    some = features.labels < 19
    tasks = sample_tasks(
        FeatureSet(features.features[some], features.labels[some]), replace(ALIKE, shots=4, n_batches=3), count=1
    )
    strangers = features.features[~some][:18].split(6)
    pairs = zip(tasks.query, strangers, strict=True)
    arriving = [torch.cat([batch, more]).numpy() for batch, more in pairs]
    clf = Evidence(open_set=True).fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    for number, batch in enumerate(arriving):
        found = clf.partial_infer(batch)
        assert found.unknown.shape == (14,)
        np.testing.assert_allclose(found.probabilities.sum(1) + found.unknown, 1, atol=1e-5)
        strangers_here = np.arange(14) >= 8
        assert ((found.unknown > 0.4) == strangers_here).all()
        assert number == 0 or ((found.labels == -1) == strangers_here).all()
        assert set(found.unknown_groups[found.labels == -1]) == set(range(len(found.unknown_medoids)))
        assert (found.unknown_groups[found.labels != -1] == -1).all()
        assert all(found.unknown_groups[row] == group for group, row in enumerate(found.unknown_medoids))
        if number == 0:
            assert np.array_equal(found.unknown, clf.infer(batch).unknown)
    together = clf.infer(np.concatenate(arriving[::-1]))
    assert int(clf.memory_.lengths[0].argmax()) == 2  # one run
    assert np.array_equal(found.unknown, together.unknown[:14])


def test_streams_with_unknown_items_together_give_the_answers_of_one_estimator_each():
    spec = replace(ALIKE, k_eff=6, gamma=0.1, n_batches=4)
    tasks = sample_tasks(FEATURES, spec, count=2)
    together = solve("evidence", tasks, carry=True, open_set=True)
    for start in range(2):
        clf, arriving = batches(spec, start)
        clf.set_params(open_set=True).fit(clf.support_, clf.support_labels_)
        for place, batch in enumerate(arriving):
            found = clf.partial_infer(batch)
            row = start * 4 + place
            np.testing.assert_allclose(together.probabilities[row].numpy(), found.probabilities, atol=2e-3)
            np.testing.assert_allclose(together.unknown[row].numpy(), found.unknown, atol=2e-3)
