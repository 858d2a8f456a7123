"""BPA with prototypes: distances of affinities, equal to recorded runs of the original."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import RECORDINGS, feature_files, recorded_tasks, repeat
from manyway import METHODS, FeatureSet, InputError, solve
from manyway.core import balanced_affinities, prototypes
from manyway.core import tasks as core_tasks


def test_a_query_is_labelled_by_the_nearest_mean_of_affinities():
    tasks = make_tasks(2, shots=None)
    matched = balanced_affinities(tasks)
    distances = torch.cdist(matched.query, prototypes(matched)).square()
    solution = solve("bpa", tasks)
    torch.testing.assert_close(solution.probabilities, (-distances).softmax(-1))
    torch.testing.assert_close(solution.prototypes, prototypes(matched))


def test_many_tasks_are_matched_in_parts(monkeypatch):
    tasks = make_tasks(5)
    together = solve("bpa", tasks)
    monkeypatch.setattr(core_tasks, "_NUMBERS_AT_ONCE", 2 * (tasks.n_support + tasks.n_query) ** 2)
    apart = solve("bpa", tasks)
    torch.testing.assert_close(apart.probabilities, together.probabilities)
    torch.testing.assert_close(apart.prototypes, together.prototypes)


def test_a_weight_of_zero_is_refused():
    with pytest.raises(InputError, match=r"bpa: affinity_weight is 0\.0; it must be positive"):
        METHODS["bpa"](make_tasks(1), affinity_weight=0.0)


@pytest.mark.parametrize("name", ["bpa-proto", "bpa-proto-10it", "bpa-proto-cl2", "bpa-ptmap"])
def test_answers_are_those_of_the_recorded_run(data_folder, name):
    dataset, config = "clinc150", "5shot_keff5"
    path = data_folder.parent / "reference" / f"{dataset}_{config}_new.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)[dataset]).features
    tasks = recorded_tasks(data_folder, features, dataset, config, 3)
    found = repeat(name, tasks, config)
    with np.load(path) as file:
        np.testing.assert_array_equal(found.labels, file[name][:3])
        if RECORDINGS[name].method == "bpa":
            expected = torch.from_numpy(-file[f"dist_{name}"]).softmax(-1)
            torch.testing.assert_close(found.probabilities, expected, atol=1e-6, rtol=0)
        else:
            logs = (found.probabilities + 1e-6).log()
            torch.testing.assert_close(logs, torch.from_numpy(file[f"logp_{name}"]), atol=1e-3, rtol=0)
