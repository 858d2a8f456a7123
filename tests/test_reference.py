"""Every method on the tasks whose accuracies careful runs of the original methods left behind."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from manyway import METHODS, FeatureSet, Tasks, solve

FEATURES = {"clinc150": "clinc150_minilm_l6.npz", "cub200": "cub200_mobilenetv2_192px.npz"}
CONFIGS = ["5shot_keff5", "5shot_keff30", "20shot_keff5"]
# What the recorded runs used where it is not our default.
PARAMS = {"tim": {"max_iter": 1000}}
# The slow ones are checked on the first tasks of one configuration here; docs/RESULTS.md has them all.
SLOW = {"tim", "alpha-tim", "ici", "paddle-pgd", "tim-adm"}
TASKS = {"fast": 5, "slow": 2}


def load(data_folder, dataset, config, n_tasks):
    features = FeatureSet.load(data_folder / "features" / FEATURES[dataset]).features
    folder = data_folder.parent / "reference"
    if not folder.is_dir():
        pytest.skip("needs the recorded accuracies beside the data folder")
    with np.load(folder / f"{dataset}_{config}.npz") as file:
        support = torch.from_numpy(file["support_idx"][:n_tasks].astype(np.int64))
        query = torch.from_numpy(file["query_idx"][:n_tasks].astype(np.int64))
        truth = torch.from_numpy(file["query_labels"][:n_tasks].astype(np.int64))
        mean = torch.from_numpy(file["train_mean"])
    n_tasks, n_classes, shots = support.shape
    labels = torch.arange(n_classes).repeat_interleave(shots).expand(n_tasks, -1)
    tasks = Tasks(features, support.flatten(1), labels, features, query, n_classes, truth, base_mean=mean)
    return tasks, json.loads((folder / f"{dataset}.json").read_text())[config]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dataset", FEATURES)
def test_accuracy_is_that_of_the_original(data_folder, dataset, config, name):
    slow = name in SLOW
    if slow and (dataset, config) != ("clinc150", "5shot_keff5"):
        pytest.skip("a slow method; docs/RESULTS.md has all configurations")
    tasks, recorded = load(data_folder, dataset, config, TASKS["slow" if slow else "fast"])
    if name not in recorded:
        pytest.skip(f"no recorded accuracy of {name}")
    expected = np.array(recorded[name]["per_task"][: len(tasks)])
    labels = solve(name, tasks, **PARAMS.get(name, {})).labels
    ours = (labels == tasks.query_labels).double().mean(1).numpy() * 100
    # Few tasks here, so a label or two may differ beyond the tolerance that is meant for the mean of all of them.
    few = 100 / tasks.n_query
    assert abs(ours.mean() - expected[: len(ours)].mean()) <= recorded[name]["tolerance_points"] + few
