"""The commands on the page about labelling give what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyway.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "labelling.md"


def test_the_command_finds_the_classes_that_the_page_shows(tmp_path, monkeypatch, capsys):
    text = PAGE.read_text(encoding="utf-8").partition("## Try it\n")[2].partition("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(re.search(r"```python\n(.*?)```", text, flags=re.S)[1], "labelling.md", "exec"), {})
    monkeypatch.setattr("sys.argv", re.search(r"\$ (manyway label .*)", text)[1].split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    shown = re.findall(r"^ (\w+) [A-Z ]+?  +(\d+) .*%$", text, flags=re.M)  # class and number of items
    assert len(shown) == 6
    for letter, items in shown:
        assert re.search(rf"{letter} [A-Z ]+ {items} ", out), letter
    assert len((tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()) == 1 + 175
