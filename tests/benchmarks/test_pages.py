"""The commands on the results pages are found, and run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pages import Command, commands_of, main
from manyway.bench.records import Store

PAGES = Path(__file__).parents[2] / "docs" / "results"
PAGE = """# Letters

```
manyway bench quickstart --tasks 2 --only k_eff=3 --only method=simpleshot  # a second
manyway table quickstart
python -m benchmarks.figures
```

`manyway bench table1` in a sentence is no command.
"""
BROKEN = "```\npython -m benchmarks.nothing DATA\n```\n"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "letters.md").write_text(PAGE, encoding="utf-8")
    (folder / "again.md").write_text(PAGE, encoding="utf-8")
    (folder / "broken.md").write_text(BROKEN, encoding="utf-8")
    return folder


def run(pages: Path, *words: str) -> int:
    return main(["data", str(pages.parent / "found"), *words, "--pages", str(pages)])


def test_only_lines_that_make_results_are_commands(pages):
    lines = [command.line for command in commands_of(pages / "letters.md")]
    assert lines == ["manyway bench quickstart --tasks 2 --only k_eff=3 --only method=simpleshot"]


def test_a_command_gets_its_folders():
    bench = Command("letters", "manyway bench shift --data DATA").words(Path("/d"), Path("/r"))
    assert bench[1:] == ["-m", "manyway", "bench", "shift", "--data", "/d", "--results", "/r"]
    printed = Command("speed", "OMP_NUM_THREADS=1 python -m benchmarks.cpu DATA/features")
    assert printed.words(Path("/d"), Path("/r"))[1:] == ["-m", "benchmarks.cpu", "/d/features"]
    assert printed.settings() == {"OMP_NUM_THREADS": "1"}


def test_a_command_of_two_pages_runs_once_and_its_results_are_kept(pages, capsys):
    assert run(pages, "letters", "again") == 0
    assert "1 of 1 commands ran to their end" in capsys.readouterr().out
    assert [plan.name for plan in Store(pages.parent / "found").plans()] == ["quickstart"]


def test_a_command_that_fails_is_named_with_its_log(pages, capsys):
    assert run(pages, "broken") == 1
    out = capsys.readouterr().out
    assert "python -m benchmarks.nothing DATA failed" in out
    assert "0 of 1 commands" in out
    assert "nothing" in (pages.parent / "found" / "logs" / "broken.log").read_text(encoding="utf-8")


def test_nothing_runs_where_commands_are_only_listed(pages, capsys):
    assert run(pages, "letters", "--list") == 0
    assert capsys.readouterr().out.startswith("letters: manyway bench quickstart")
    assert not (pages.parent / "found").exists()


def test_an_unknown_page_is_refused(pages, capsys):
    with pytest.raises(SystemExit):
        run(pages, "nowhere")
    assert "there is no page nowhere; choose from again, broken, letters" in capsys.readouterr().err


def test_every_command_on_the_real_pages_can_be_read():
    found = [command for page in sorted(PAGES.glob("*.md")) for command in commands_of(page)]
    assert {"letters", "shift", "speed-gpu"} <= {command.page for command in found}
    for command in found:
        assert not [word for word in command.words(Path("/d"), Path("/r")) if "DATA" in word]
