"""The worked example on the page about scores gives what the page shows."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from manyway.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"


def test_the_camera_has_seen_the_species_that_the_page_shows(tmp_path, monkeypatch, capsys):
    page = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made: dict = {}
    exec(compile(re.search(r"```python\n(.*?)```", page, flags=re.S)[1], "scores.md", "exec"), made)
    assert f"right in {(made['p'].argmax(1) == made['truth']).sum()} of 80" in page
    assert len(np.unique(made["p"].argmax(1))) == 10
    monkeypatch.setattr("sys.argv", re.search(r"\$ (manyway label .*)", page)[1].split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    shown = re.findall(r"^ ([a-z ]+?)  +(\d+) .*%$", page, flags=re.M)
    assert len(shown) == 5
    for name, items in shown:
        assert re.search(rf"{name} +{items} ", out), name
    for sentence in ("The classifier was", "Answers with probability"):
        line = re.search(rf"^{sentence}.*$", page, flags=re.M)[0]
        assert line in out
    with Path("labels.csv").open(encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    right = sum(label == truth for label, truth in zip(labels, made["common"][made["truth"]], strict=True))
    assert f"{right} of the 80 labels are right" in page
