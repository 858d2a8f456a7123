"""The benchmark of the list of classes: its settings, what it counts, and that it goes on where it stopped."""

from __future__ import annotations

import json

import pytest

from benchmarks import presence
from manyway import TaskSpec, sample_tasks
from manyway.sampling.embedded import load_glyphs


def test_every_setting_is_there_once():
    found = [json.dumps(one, sort_keys=True) for one in presence.settings(150, 96)]
    assert len(found) == len(set(found))
    assert sum('"n_unknown"' in one for one in found) == 24


def test_a_clear_task_is_found_whole_and_its_number_is_inside():
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(shots=20, k_eff=2, n_query=20), seed=1, count=2)
    absent, found, f1, *_, inside, width, occur = presence.by_features(tasks, open_set=False)[0]
    assert (absent, found, f1, inside, occur) == pytest.approx((0, 1, 1, 1, 2))
    assert width < 10


def test_what_is_in_the_store_is_not_measured_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(presence, "settings", lambda *_: iter([({"shots": 1, "k_eff": 2, "n_query": 15}, False)]))
    store = tmp_path / "presence.jsonl"
    rows = presence.run(tmp_path, store, ["glyphs"], 2, validation=True)
    monkeypatch.setattr(presence, "measure", None)
    assert presence.run(tmp_path, store, ["glyphs"], 2, validation=True) == json.loads(json.dumps(rows))
    presence.show_tables(rows)
    assert "equal, one shot" in capsys.readouterr().out


def test_the_scores_of_a_classifier_are_measured_on_every_second_class(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        presence, "score_settings", lambda n: iter([({"k_eff": 2, "n_query": 15, "alpha": 0.3}, False)])
    )
    rows = presence.run(tmp_path, tmp_path / "presence.jsonl", ["glyphs/naive Bayes"], 2, validation=True)
    assert len(rows[0]["tasks"]) == 2
    assert {row[-1] for row in rows[0]["tasks"]} <= {1.0, 2.0}  # so many classes occur
    presence.show_tables(rows)
    assert "by scores" in capsys.readouterr().out
