"""The simulated reviewer: what it counts, and that known labels teach more than the same labels as examples."""

from __future__ import annotations

import numpy as np
import pytest

from manyway import InputError, TaskSpec, sample_tasks, solve
from manyway.data.embedded import load_glyphs
from manyway.evaluation.review import WAYS, Reviewed, review

SPEC = TaskSpec(shots=1, k_eff=4, n_query=16, n_ways=40)


def test_every_way_begins_with_the_labels_of_evidence_and_ends_with_the_true_ones():
    features = load_glyphs("val")
    tasks = sample_tasks(features, SPEC, seed=3, count=2)
    start = (solve("evidence", tasks).labels == tasks.query_labels).sum(1)
    for way in WAYS:
        correct = review(way, features, SPEC, n_tasks=2, n_actions=16, seed=3).correct
        assert correct.shape == (2, 17)
        assert correct[:, 0].tolist() == start.tolist()
        assert (correct[:, -1] == 16).all()


def test_without_labelling_again_an_action_corrects_at_most_one_label():
    correct = review("fixed", load_glyphs("val"), SPEC, n_tasks=3, n_actions=6).correct
    assert set(np.diff(correct, axis=1).flatten().tolist()) <= {0, 1}


def test_known_labels_improve_more_labels_than_their_own():
    features = load_glyphs("val")
    known, fixed = (review(way, features, SPEC, n_tasks=30, n_actions=3) for way in ("known", "fixed"))
    assert known.gain(fixed, 3).low > 0


def test_the_answer_counts_accuracy_gain_and_actions():
    one = Reviewed(np.array([[5, 7, 9], [5, 9, 9]]), 10)
    other = Reviewed(np.array([[5, 6, 7], [5, 8, 8]]), 10)
    assert one.accuracy(1).mean == pytest.approx(0.8)
    assert one.gain(other, 2).mean == pytest.approx(0.15)
    assert one.actions_to(0.9) == 2
    assert one.actions_to(0.5) == 0
    assert one.actions_to(0.95) is None


def test_bad_input_is_refused_with_a_sentence():
    features = load_glyphs("val")
    with pytest.raises(InputError, match="There is no way of reviewing 'knwon'; did you mean 'known'"):
        review("knwon", features, SPEC)
    with pytest.raises(InputError, match="n_actions is 17; it must be from 0 to 16, the number of queries"):
        review("known", features, SPEC, n_actions=17)
