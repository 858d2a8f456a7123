"""The commands on the page about labelling give what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyway.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "labelling.md"


@pytest.mark.parametrize(("section", "n_classes", "n_items"), [("## Try it", 5, 175), ("## Unknown items", 5, 170)])
def test_the_command_finds_the_classes_that_the_page_shows(section, n_classes, n_items, tmp_path, monkeypatch, capsys):
    page = PAGE.read_text(encoding="utf-8")
    before, _, after = page.partition(f"{section}\n")
    text = after.partition("\n## ")[0]
    make_files = re.findall(r"```python\n(.*?)```", before[before.find("## Try it") :] + text, flags=re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile("".join(make_files), "labelling.md", "exec"), {})
    monkeypatch.setattr("sys.argv", re.search(r"\$ (manyway label .*)", text)[1].split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    out = capsys.readouterr().out
    shown = re.findall(r"^ (\w+) [A-Z ]+?  +(\d+) .*%$", text, flags=re.M)  # class and number of items
    assert len(shown) == n_classes
    for letter, items in shown:
        assert re.search(rf"{letter} [A-Z ]+ {items} ", out), letter
    unknown = re.search(r"\d+ are labelled so, in \d+ groups", text, flags=re.M)
    assert unknown is None or unknown[0] in " ".join(out.split())
    assert len((tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()) == 1 + n_items
