"""The comparison with recorded runs of the original methods: on a small made-up record, and on the real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import make_features

from benchmarks import golden, reference
from manyway import METHODS, TaskSpec, sample_tasks

# The slow methods run on the first tasks of one configuration here; `python -m benchmarks.reference` runs them all.
SLOW = {"tim", "alpha-tim", "ici", "paddle-pgd", "tim-adm"}


@pytest.fixture
def record(tmp_path, monkeypatch) -> Path:
    """Three tasks whose classes are far apart: every accuracy is 100 %, and so it is recorded, for two methods."""
    monkeypatch.setattr(reference, "FEATURES", {"made": "made.npz"})
    features = make_features(n_classes=6, per_class=12)
    far = features.features + 100 * torch.eye(8)[features.labels]
    (tmp_path / "data" / "features").mkdir(parents=True)
    (tmp_path / "reference").mkdir()
    np.savez(tmp_path / "data" / "features" / "made.npz", features=far.numpy(), labels=features.labels.numpy())
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=3, n_query=10), count=3)
    np.savez(
        tmp_path / "reference" / "made_2shot.npz",
        support_idx=tasks.support_index.view(3, 6, 2).numpy(),
        query_idx=tasks.query_index.numpy(),
        query_labels=tasks.query_labels.numpy(),
        train_mean=far.mean(0).numpy(),
    )
    write(tmp_path, 100.0)
    return tmp_path / "data"


def write(folder: Path, accuracy: float) -> None:
    entry = {"n_tasks": 3, "accuracy": accuracy, "per_task": [accuracy] * 3, "tolerance_points": 0.5}
    record = {"2shot": {"simpleshot": entry, "laplacianshot": entry}}
    (folder / "reference" / "made.json").write_text(json.dumps(record))


def test_equal_accuracies_are_within_the_tolerance(record):
    found = list(reference.compare(record))
    assert [(row.method, row.n_tasks, row.ours, row.within) for row in found] == [
        ("simpleshot", 3, 100.0, True),
        ("laplacianshot", 3, 100.0, True),
    ]


def test_a_difference_beyond_the_tolerance_is_seen(record):
    write(record.parent, 99.0)
    (found,) = reference.compare(record, ["laplacianshot"])
    assert (found.difference, found.within) == (1.0, False)


def test_fewer_tasks_are_allowed_one_label_more(record):
    write(record.parent, 91.0)
    (found,) = reference.compare(record, ["laplacianshot"], limit=2)
    assert (found.n_tasks, found.tolerance, found.within) == (2, 10.5, True)


def test_configurations_can_be_chosen(record):
    assert list(reference.compare(record, configs=["made_5shot"])) == []
    assert len(list(reference.compare(record, configs=["made_2shot"]))) == 2


@pytest.mark.parametrize(("accuracy", "status"), [(100.0, 0), (99.0, 1)])
def test_the_command_prints_a_table_and_fails_when_one_is_outside(record, accuracy, status, monkeypatch, capsys):
    write(record.parent, accuracy)
    monkeypatch.setattr(sys, "argv", ["reference", str(record), "--method", "simpleshot"])
    with pytest.raises(SystemExit) as error:
        reference.main()
    assert error.value.code == status
    assert "| made | 2shot | simpleshot | 3 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("accuracy", "options", "message"),
    [(99.0, [], "outside the tolerance"), (100.0, ["--config", "made_5shot"], "no recorded run")],
)
def test_golden_answers_are_not_written_by_code_that_is_not_checked(
    record, accuracy, options, message, tmp_path, monkeypatch
):
    write(record.parent, accuracy)
    path = tmp_path / "answers.npz"
    monkeypatch.setattr(sys, "argv", ["golden", str(record), "--out", str(path), *options])
    monkeypatch.setattr(golden, "answers", lambda: iter(()))
    with pytest.raises(SystemExit, match=message):
        golden.main()
    assert not path.exists()


def test_golden_answers_are_written_with_what_was_checked(record, tmp_path, monkeypatch):
    path = tmp_path / "answers.npz"
    monkeypatch.setattr(sys, "argv", ["golden", str(record), "--out", str(path)])
    monkeypatch.setattr(golden, "answers", lambda: iter([("20-way/paddle/top", np.zeros(3))]))
    golden.main()
    with np.load(path) as file:
        assert file.files == ["meta", "20-way/paddle/top"]
        assert [line.split()[0] for line in json.loads(str(file["meta"]))["checked"]] == ["simpleshot", "laplacianshot"]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("config", ["5shot_keff5", "5shot_keff30", "20shot_keff5"])
@pytest.mark.parametrize("dataset", reference.FEATURES)
def test_accuracy_is_that_of_the_original(data_folder, dataset, config, name):
    if not (data_folder.parent / "reference").is_dir():
        pytest.skip("needs the recorded accuracies beside the data folder")
    if name in SLOW and (dataset, config) != ("clinc150", "5shot_keff5"):
        pytest.skip("a slow method; `python -m benchmarks.reference` has all configurations")
    limit = 2 if name in SLOW else 5
    found = list(reference.compare(data_folder, [name], limit=limit, configs=[f"{dataset}_{config}"]))
    if not found:
        pytest.skip(f"no recorded accuracy of {name}")
    assert all(row.within for row in found)
