"""evaluate: the accuracy of the tasks that sample_tasks gives, however they are cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_features

from manyway import FeatureSet, InputError, TaskSpec, evaluate, sample_tasks, solve
from manyway.evaluation import evaluator

SPEC = TaskSpec(shots=3, k_eff=3, n_query=10)


def test_counts_what_solve_gets_right():
    features = make_features()
    result = evaluate("paddle", features, SPEC, n_tasks=50, seed=4, lam=2.0)
    tasks = sample_tasks(features, SPEC, seed=4, count=50)
    right = (solve("paddle", tasks, lam=2.0).labels == tasks.query_labels).sum(1)
    assert result.correct.dtype == np.int64
    np.testing.assert_array_equal(result.correct, right)
    assert result.accuracy == pytest.approx(float(right.sum()) / 500)
    assert result.ci95 == pytest.approx(1.96 * np.std(right.numpy() / 10, ddof=1) / 50**0.5)
    assert result.seconds > 0


def test_chunks_threads_and_starts_do_not_show(monkeypatch):
    features = make_features()
    whole = evaluate("paddle", features, SPEC, n_tasks=40, seed=1)
    parts = [evaluate("paddle", features, SPEC, n_tasks=20, seed=1, start=start).correct for start in (0, 20)]
    np.testing.assert_array_equal(np.concatenate(parts), whole.correct)
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 20_000)
    seen = []
    torch.set_num_threads(2)
    try:
        cut = evaluate("paddle", features, SPEC, n_tasks=40, seed=1, progress=seen.append)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    np.testing.assert_array_equal(cut.correct, whole.correct)
    assert len(seen) > 1
    assert sum(seen) == 40


def test_unknown_names_are_one_sentence():
    with pytest.raises(InputError, match="did you mean 'paddle'"):
        evaluate("padle", make_features(), SPEC, n_tasks=2)
    with pytest.raises(InputError, match="no parameter 'alpha'"):
        evaluate("paddle", make_features(), SPEC, n_tasks=2, alpha=2)
    with pytest.raises(InputError, match="at least one task"):
        evaluate("paddle", make_features(), SPEC, n_tasks=0)


@pytest.mark.parametrize("shots", [5, 20])
def test_paddle_leads_and_soft_kmeans_trails_on_real_text_features(shots, data_folder):
    """150 intents of which 5 occur: PADDLE well above nearest prototypes, soft K-means below them (paired tasks)."""
    features = FeatureSet.load(data_folder / "features" / "clinc150_minilm_l6.npz")
    spec = TaskSpec(shots=shots)
    scores = {m: evaluate(m, features, spec, n_tasks=60) for m in ("paddle", "simpleshot", "soft-kmeans")}
    lead = scores["paddle"].accuracies - scores["simpleshot"].accuracies
    assert lead.mean() - 3 * lead.std() / 60**0.5 > 0.02
    assert scores["soft-kmeans"].accuracy < scores["simpleshot"].accuracy
