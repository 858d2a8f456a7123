"""The page about labelling can be followed step by step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyway.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "labelling.md"


def test_the_page_can_be_followed(tmp_path, monkeypatch, capsys):
    page = PAGE.read_text(encoding="utf-8")
    make_files, from_python = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(make_files, "labelling.md", "exec"), names)
    monkeypatch.setattr("sys.argv", re.search(r"\$ (manyway label .*)", page)[1].split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for letter in "ԒեЋЯД":  # the five letters that are present
        assert letter in out
    assert len((tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()) == 1 + 175
    exec(compile(from_python, "labelling.md", "exec"), names)
    assert len(names["labels"]) == 175
