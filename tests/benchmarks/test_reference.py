"""Every method on the tasks whose accuracies careful runs of the original methods left behind."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reference import FEATURES, accuracies, load_features, load_recorded, recorded_tasks
from manyway import METHODS

CONFIGS = ["5shot_keff5", "5shot_keff30", "20shot_keff5"]
# The slow ones are checked on the first tasks of one configuration here; docs/RESULTS.md has them all.
SLOW = {"tim", "alpha-tim", "ici", "paddle-pgd", "tim-adm"}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dataset", FEATURES)
def test_accuracy_is_that_of_the_original(data_folder, dataset, config, name):
    if not (data_folder.parent / "reference").is_dir():
        pytest.skip("needs the recorded accuracies beside the data folder")
    if name in SLOW and (dataset, config) != ("clinc150", "5shot_keff5"):
        pytest.skip("a slow method; docs/RESULTS.md has all configurations")
    recorded = load_recorded(data_folder, dataset)[config].get(name)
    if recorded is None:
        pytest.skip(f"no recorded accuracy of {name}")
    n_tasks = 2 if name in SLOW else 5
    tasks = recorded_tasks(data_folder, load_features(data_folder, dataset), dataset, config, n_tasks)
    expected = np.array(recorded["per_task"][:n_tasks])
    # Few tasks here, so a label may differ beyond the tolerance that is meant for the mean of all of them.
    one_label = 100 / tasks.n_query
    assert abs(accuracies(name, tasks).mean() - expected.mean()) <= recorded["tolerance_points"] + one_label
