"""Evaluation on tasks of different sizes and on streams of batches."""

from __future__ import annotations

import numpy as np
import pytest
from problems import make_features

from manyway import InputError, TaskSpec, evaluate, sample_tasks, solve
from manyway.evaluation import evaluator
from manyway.evaluation.statistics import paired

RANGE = TaskSpec(shots=3, k_eff=(1, 4), n_query=60)
STREAM = TaskSpec(shots=3, k_eff=8, n_query=10, n_batches=6, gamma=0.1)


def test_tasks_of_different_sizes_are_counted_one_by_one(monkeypatch):
    features = make_features()
    whole = evaluate("simpleshot", features, RANGE, 30, metrics=["calibration"])
    tasks = [sample_tasks(features, RANGE, start=i, count=1) for i in range(30)]
    correct = [int((solve("simpleshot", task).labels == task.query_labels).sum()) for task in tasks]
    assert whole.correct.tolist() == correct
    assert whole.sizes.tolist() == [task.n_query for task in tasks]
    assert set(whole.sizes.tolist()) == {27, 54, 60}
    assert whole.accuracy == pytest.approx(np.mean(whole.correct / whole.sizes))
    assert whole.metrics["calibration"][..., 0].sum() == whole.sizes.sum()
    monkeypatch.setattr(evaluator, "_CHUNK_BYTES", {"cpu": 1})
    alone = evaluate("simpleshot", features, RANGE, 20, start=10)
    assert alone.correct.tolist() == correct[10:]


def test_a_stream_counts_as_one_and_its_batches_are_solved_alone():
    features = make_features()
    found = evaluate("paddle", features, STREAM, 7, metrics=["presence", "calibration"], start=2)
    tasks = sample_tasks(features, STREAM, start=2, count=7)
    hits = (solve("paddle", tasks).labels == tasks.query_labels).sum(1).view(7, 6).sum(1)
    assert found.correct.tolist() == hits.tolist()
    assert found.n_query == 60
    assert found.value().n == 7
    assert found.metrics["presence"].shape == (7,)
    assert found.metrics["calibration"][..., 0].sum() == 7 * 60


def test_a_solver_sees_whole_streams_in_order(monkeypatch):
    monkeypatch.setattr(evaluator, "_CHUNK_BYTES", {"cpu": 1})
    seen = []

    def watching(tasks):
        seen.append(tasks.stream.tolist())
        return solve("simpleshot", tasks)

    evaluate(watching, make_features(), STREAM, 3)
    assert sorted(seen) == [[0] * 6, [1] * 6, [2] * 6]


def test_a_metric_that_cannot_be_averaged_over_batches_is_refused():
    with pytest.raises(InputError, match="n_present is not defined for a stream"):
        evaluate("simpleshot", make_features(), STREAM, 2, metrics=["n_present"])


def test_a_paired_comparison_weighs_tasks_of_different_sizes_equally():
    found = paired([10, 30], [5, 30], np.array([10, 60]))
    assert found.difference.mean == pytest.approx(0.25)
    assert (found.wins, found.ties, found.losses) == (1, 1, 0)
