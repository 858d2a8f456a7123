"""The suite any-features: sets that need no data folder, and classifiers of scikit-learn beside the methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from bench_problems import jobs_of, run_suite
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize

from manyway.bench.baselines import BASELINES
from manyway.bench.data import find_features
from manyway.bench.suite import load_suite
from manyway.errors import InputError
from manyway.evaluation.metrics import find_summary
from manyway.methods import METHODS
from manyway.sampling.sampling import sample_tasks
from manyway.sampling.simulated import SIMULATIONS
from manyway.sampling.spec import TaskSpec

SUITE = """
title = "Tables"
n_tasks = 3
metrics = ["confidence"]

[[experiments]]
features = ["sklearn:wine", "simulated:one-feature"]
methods = ["evidence", "centroid", "logistic", "lda"]
task = { shots = [1, 5], k_eff = 3, n_ways = 3, n_query = 20 }
"""


@pytest.mark.parametrize("name", [f"simulated:{name}" for name in SIMULATIONS if SIMULATIONS[name].n_features < 200])
def test_a_simulated_set_is_the_same_every_time_and_another_draw_is_not(name):
    one, again, other = (find_features(key, None) for key in (name, name, f"{name}/1"))
    assert torch.equal(one.features, again.features)
    assert not torch.equal(one.features, other.features)
    assert bool(one.features.isfinite().all())


def test_given_examples_are_as_many_as_the_set_says():
    found = find_features("simulated:unequal", None)
    assert torch.bincount(found.labels[found.is_support]).tolist() == [500, 1, *[5] * 8]
    assert torch.bincount(found.labels[~found.is_support]).tolist() == [120] * 10


def test_a_table_of_scikit_learn_is_as_it_is_or_standardised():
    assert find_features("sklearn:wine", None).features.max() > 1000
    assert torch.allclose(find_features("sklearn:wine/standard", None).features.mean(0), torch.zeros(13), atol=1e-5)


@pytest.mark.parametrize("key", ["simulated:nothing", "simulated:plane/x", "sklearn:plane", "sklearn:iris/odd"])
def test_an_unknown_set_is_one_sentence(key):
    with pytest.raises(InputError, match="There is no"):
        find_features(key, None)


def test_baselines_run_in_a_suite_beside_methods_and_are_no_methods(tmp_path):
    view = run_suite(SUITE, tmp_path, tmp_path / "results")
    assert len(view.records) == len(jobs_of(SUITE, tmp_path)) == 16
    assert not set(BASELINES) & set(METHODS)


def test_a_baseline_gives_the_labels_of_scikit_learn():
    tasks = sample_tasks(find_features("sklearn:iris", None), TaskSpec(shots=5, k_eff=3, n_query=25), 0, 0, 2)
    found = BASELINES["lda"](tasks).labels
    for t in range(2):
        fitted = LinearDiscriminantAnalysis(priors=np.ones(3) / 3).fit(tasks.support[t], tasks.support_labels[t])
        assert found[t].tolist() == fitted.predict(tasks.query[t]).tolist()


def test_the_penalty_is_chosen_by_the_examples_on_rows_of_unit_length():
    tasks = sample_tasks(find_features("sklearn:iris", None), TaskSpec(shots=6, k_eff=3, n_query=25), 0, 0, 1)
    rows = {name: normalize(getattr(tasks, name)[0].numpy()) for name in ("support", "query")}
    choices = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0]}
    chosen = GridSearchCV(LogisticRegression(max_iter=300), choices, cv=3, scoring="accuracy")
    chosen.fit(rows["support"], tasks.support_labels[0])
    found = BASELINES["logistic-cv"](tasks)
    np.testing.assert_allclose(found.probabilities[0], chosen.predict_proba(rows["query"]), atol=1e-6)
    shorter = BASELINES["logistic-cv"](replace(tasks, support_table=tasks.support_table / 8))
    np.testing.assert_allclose(shorter.probabilities, found.probabilities, atol=1e-6)


@pytest.mark.parametrize("name", ["logistic-cv", "lda-shrunk"])
@pytest.mark.parametrize("shots", [1, 2])
def test_few_examples_are_enough_for_the_strong_classifiers(name, shots):
    tasks = sample_tasks(
        find_features("sklearn:wine/standard", None), TaskSpec(shots=shots, k_eff=3, n_query=25), 0, 0, 2
    )
    found = BASELINES[name](tasks)
    torch.testing.assert_close(found.probabilities.sum(-1), torch.ones(2, 25), atol=1e-5, rtol=0)
    assert (found.labels == tasks.query_labels).float().mean() > 0.6


def test_without_shrinkage_it_would_be_the_lda_of_scikit_learn(monkeypatch):
    monkeypatch.setattr("sklearn.covariance.ledoit_wolf", lambda rows, assume_centered: (rows.T @ rows / len(rows), 0))
    tasks = sample_tasks(find_features("sklearn:iris", None), TaskSpec(shots=9, k_eff=3, n_query=25), 0, 0, 1)
    model = LinearDiscriminantAnalysis(solver="lsqr", priors=np.ones(3) / 3)
    model.fit(normalize(tasks.support[0].double().numpy()), tasks.support_labels[0])
    found = BASELINES["lda-shrunk"](tasks)
    assert found.labels[0].tolist() == model.predict(normalize(tasks.query[0].double().numpy())).tolist()


def test_the_suite_needs_no_data_folder():
    keys = {key for block in load_suite("any-features").blocks for key in block.features}
    assert all(key.partition(":")[0] in ("simulated", "sklearn") for key in keys)


def test_the_suite_tells_what_was_learned_and_baselines_tell_nothing(tmp_path):
    suite = SUITE.replace('["confidence"]', '["choice"]')
    records = run_suite(suite, tmp_path, tmp_path / "results").records
    for record in records:
        chosen = np.array(record.outcome.metrics["choice"], dtype=float)
        assert chosen.shape == (3, 3)
        if record.method == "evidence":
            power, shortening, metric = chosen.T
            assert ((power >= 5 / 8) & (power <= 1)).all()
            assert ((shortening > 0) & (shortening < 1)).all()
            assert np.isin(metric, [0, 1]).all()
        else:
            assert np.isnan(chosen).all()


def test_what_tasks_with_one_support_learned_is_counted_for_each():
    tasks = sample_tasks(find_features("simulated:unequal", None), TaskSpec(shots=None, k_eff=2, n_query=20), 1, 0, 3)
    chosen = find_summary("choice.power")[0].measure(METHODS["evidence"](tasks), tasks)
    assert chosen.shape == (3, 3)
    assert (chosen == chosen[0]).all()
