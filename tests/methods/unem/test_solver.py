"""UNEM: EM iterations with learned parameters; equal to the authors' code on recorded tasks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from problems import make_features, make_tasks

from benchmarks.reference import Configuration, authors_cub, cl2_times_10, feature_files, recorded_tasks
from manyway import UNEM, FeatureSet, TaskSpec, evaluate, solve
from manyway.methods.unem.parameters import read_parameters

LEARNED = {"feature_scale": 0.5, "lam": [1.0, 3.0, 2.0], "temperature": [2.0, 1.5, 1.0], "scale": "l2"}


def test_layers_with_weight_and_temperature_1_are_iterations_of_paddle():
    tasks = make_tasks(3)
    ones = {"feature_scale": 1.0, "lam": [1.0] * 6, "temperature": [1.0] * 6}
    ours = solve("unem", tasks, parameters=ones, scale=None)
    theirs = solve("paddle", tasks, max_iter=6, scale=None)
    torch.testing.assert_close(ours.probabilities, theirs.probabilities)
    torch.testing.assert_close(ours.prototypes, theirs.prototypes)
    assert ours.n_iter.tolist() == [6, 6, 6]


def test_the_feature_scale_multiplies_the_features():
    tasks = make_tasks(2)
    scaled = {**LEARNED, "feature_scale": 1.0}
    doubled = solve("unem", tasks, parameters={**scaled, "feature_scale": 2.0}, scale=None)
    tasks = type(tasks).from_arrays(2 * tasks.support, tasks.support_labels, 2 * tasks.query)
    torch.testing.assert_close(doubled.probabilities, solve("unem", tasks, parameters=scaled, scale=None).probabilities)


def test_the_temperature_divides_and_the_weight_of_the_first_layer_cancels():
    tasks = make_tasks(2)
    one = {"feature_scale": 1.0, "lam": [1.0], "temperature": [3.0]}
    expected = (-0.5 * torch.cdist(tasks.query, solve("simpleshot", tasks, scale=None).prototypes) ** 2 / 3).softmax(-1)
    for lam in (0.0, 7.0):
        found = solve("unem", tasks, parameters={**one, "lam": [lam]}, scale=None).probabilities
        torch.testing.assert_close(found, expected)


def test_the_transform_is_that_of_the_parameters_unless_another_is_asked_for():
    tasks = make_tasks(2)
    learned = solve("unem", tasks, parameters=LEARNED).probabilities
    assert torch.equal(learned, solve("unem", tasks, parameters=LEARNED, scale="l2").probabilities)
    assert not torch.equal(learned, solve("unem", tasks, parameters=LEARNED, scale="cl2").probabilities)


def test_a_file_and_a_mapping_give_the_same_answers(tmp_path):
    (tmp_path / "unem.json").write_text(json.dumps(LEARNED))
    tasks = make_tasks(2)
    expected = solve("unem", tasks, parameters=LEARNED).probabilities
    for given in (tmp_path / "unem.json", str(tmp_path / "unem.json")):
        assert torch.equal(solve("unem", tasks, parameters=given).probabilities, expected)
    clf = UNEM(parameters=str(tmp_path / "unem.json")).fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    np.testing.assert_allclose(clf.predict_proba(tasks.query[0].numpy()), expected[0])


def test_tasks_unlike_those_of_the_training_are_a_warning():
    tasks = make_tasks(1)  # 2 shots, 4 classes, 7 queries
    same = {"shots": 2, "n_classes": 4, "n_query": 7, "k_eff": 2}
    with pytest.warns(UserWarning, match="learned on tasks with 5 shots, and these have 2 shots; learn others"):
        solve("unem", tasks, parameters={**LEARNED, "training": {**same, "shots": 5}})
    clf = UNEM(parameters={**LEARNED, "training": {**same, "n_query": 75, "n_classes": 9}})
    clf.fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    with pytest.warns(UserWarning, match="9 classes, 75 queries, and these have 4 classes, 7 queries"):
        clf.predict(tasks.query[0].numpy())
    features, spec = make_features(4), TaskSpec(shots=2, k_eff=3, n_query=7)
    with pytest.warns(UserWarning, match="2 present classes, and these have 3 present classes"):
        evaluate("unem", features, spec, n_tasks=2, parameters={**LEARNED, "training": same})


def test_tasks_like_those_of_the_training_are_no_warning(recwarn):
    same = {"shots": 2, "n_classes": 4, "n_query": 7, "k_eff": 2}
    solve("unem", make_tasks(1), parameters={**LEARNED, "training": same})
    solve("unem", make_tasks(1), parameters=LEARNED)  # nothing is known about the training
    spec = TaskSpec(shots=2, k_eff=2, n_query=7)
    evaluate("unem", make_features(4), spec, n_tasks=2, parameters={**LEARNED, "training": same})
    assert len(recwarn) == 0


@pytest.mark.parametrize(("dataset", "config"), [("clinc150", "5shot_keff30"), ("cub200", "20shot_keff5")])
def test_probabilities_are_the_recorded_ones(data_folder, dataset, config):
    if not (data_folder.parent / "reference").is_dir():
        pytest.skip("needs the recorded runs beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)[dataset]).features.double()
    tasks = recorded_tasks(data_folder, features, dataset, config, 3)
    authors = f"authors-cub-{config.partition('_')[0]}"
    ten_times = read_parameters(authors).to_json()
    ten_times["feature_scale"] *= 10
    with np.load(data_folder.parent / "reference" / f"{dataset}_{config}_later.npz") as recorded:
        for name, given, scale in (
            ("unem-raw", authors, "learned"),
            ("unem-l2", authors, "l2"),
            ("unem-cl2", authors, "cl2"),
            ("unem-cl2x10", ten_times, "cl2"),
        ):
            solution = solve("unem", tasks, parameters=given, scale=scale)
            np.testing.assert_array_equal(solution.labels, recorded[name][:3])
            np.testing.assert_allclose(solution.probabilities, recorded[f"probs64_{name}"], atol=5e-6)


def test_the_comparison_with_recorded_runs_multiplies_features_in_place_of_the_parameter():
    tasks = make_tasks(2, n_features=12, shots=20)
    ten_times = read_parameters("authors-cub-20shot").to_json()
    ten_times["feature_scale"] *= 10
    compared = solve("unem", cl2_times_10(tasks), scale=None, **authors_cub(Configuration(20, 5, 4)))
    torch.testing.assert_close(
        compared.probabilities, solve("unem", tasks, parameters=ten_times, scale="cl2").probabilities
    )
