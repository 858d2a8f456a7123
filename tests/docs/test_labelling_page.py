"""The command on the page about labelling gives what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyway.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "labelling.md"


def test_the_command_finds_the_classes_that_the_page_shows(tmp_path, monkeypatch, capsys):
    page = PAGE.read_text(encoding="utf-8")
    make_files = re.search(r"```python\n(.*?)```", page, flags=re.S)[1]
    monkeypatch.chdir(tmp_path)
    exec(compile(make_files, "labelling.md", "exec"), {})
    monkeypatch.setattr("sys.argv", re.search(r"\$ (manyway label .*)", page)[1].split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    shown = re.findall(r"^ (\w+) [A-Z ]+?  +(\d+) .*%$", page, flags=re.M)  # class and number of items
    assert len(shown) == 6
    for letter, items in shown:
        assert re.search(rf"{letter} [A-Z ]+ {items} ", out), letter
    assert len((tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()) == 1 + 175
