"""The examples in the README and on the page about labelling run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from problems import make_features

from manyway.cli import main

README = Path(__file__).parents[2] / "README.md"


def test_python_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert len(blocks) == 2
    whole = make_features(n_classes=20, per_class=40)
    names = {
        "X_support": whole.features[:400],
        "y_support": whole.labels[:400],
        "X_query": whole.features[400:],
        "features": whole.features,
        "labels": whole.labels,
    }
    for block in blocks:
        code = block.replace("n_tasks=10_000", "n_tasks=10").replace("count=1000", "count=10")
        exec(compile(code, "README.md", "exec"), names)


def test_the_page_about_labelling_can_be_followed(tmp_path, monkeypatch, capsys):
    page = (README.parent / "docs" / "labelling.md").read_text(encoding="utf-8")
    letters, in_python = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(letters, "labelling.md", "exec"), {})
    monkeypatch.setattr("sys.argv", re.search(r"\$ (manyway label .*)", page)[1].split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for letter in "ԒեЋЯД":  # the five that are there
        assert letter in out
    assert len((tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()) == 1 + 175
    whole = make_features(n_classes=20, per_class=40)
    names = {
        "X_catalogue": whole.features[:400].numpy(),
        "y_catalogue": [f"class {label}" for label in whole.labels[:400]],
        "X_pile": whole.features[400:].numpy(),
    }
    exec(compile(in_python, "labelling.md", "exec"), names)
    assert len(names["labels"]) == 400


def test_every_page_it_names_exists():
    for page in re.findall(r"\]\((docs/[^)]+|[A-Z]+\.[a-z]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / page).exists(), page
