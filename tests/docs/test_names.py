"""What the documentation names exists: modules and functions, commands with their options, suites, benchmarks."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from manyway.bench.suite import parse_suite, suite_names
from manyway.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def code(page: Path) -> list[str]:
    """Lines of code blocks, and code inside sentences."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?!python|toml|bibtex|mermaid)\w*\n(.*?)```", text, flags=re.S)
    outside = re.sub(r"```.*?```", "", text, flags=re.S)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", outside)


def commands(page: Path) -> list[list[str]]:
    """Every use of the command line, as words; what follows '#' in a code block is a comment."""
    lines = (line.removeprefix("$ ").split("  #")[0].split() for line in code(page))
    found = []
    for words in lines:
        if "manyway" in words and words[0] in ("manyway", "torchrun"):
            found.append(words[words.index("manyway") + 1 :])
    return found


@cache
def command_line() -> Any:
    """All commands with their options; to make it takes longer than to read a page."""
    return typer.main.get_command(app)


def wrong(words: list[str]) -> str | None:
    """What is wrong with a use of the command line; None if nothing is."""
    group = command_line()
    if not words or words[0].startswith("-"):
        return None
    command = group.commands.get(words[0])
    if command is None:
        return f"no command '{words[0]}'"
    options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    unknown = [word for word in words[1:] if word.startswith("-") and word not in options]
    if unknown:
        return f"{words[0]} has no option {unknown[0]}"
    if words[0] == "bench" and len(words) > 1 and re.fullmatch(r"[a-z][a-z0-9-]*", words[1]):
        return None if words[1] in suite_names() else f"no suite '{words[1]}'"
    return None


@each_page
def test_dotted_names_exist(page):
    names = {name for text in code(page) for name in re.findall(r"\bmanyway(?:\.[A-Za-z_]\w*)+", text)}
    assert [name for name in sorted(names) if not exists(name)] == []


@each_page
def test_commands_and_their_options_exist(page):
    assert [problem for words in commands(page) if (problem := wrong(words))] == []


@each_page
def test_benchmarks_exist(page):
    names = {name for text in code(page) for name in re.findall(r"\bbenchmarks\.[a-z_]+", text)}
    assert [name for name in sorted(names) if find_spec(name) is None] == []


@each_page
def test_test_files_and_source_files_exist(page):
    paths = {path for text in code(page) for path in re.findall(r"\b(?:tests|src|benchmarks)/[\w/.*-]+", text)}
    assert [path for path in sorted(paths) if "*" not in path and not (ROOT / path).exists()] == []


def test_the_suite_on_the_page_about_experiments_is_one():
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    suite = parse_suite(re.search(r"```toml\n(.*?)```", text, flags=re.S)[1], "mine", "mine.toml")
    assert len(suite.blocks) == 1


def test_unknown_names_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`manyway bench nothing` and `manyway.core.nothing`\n```\nmanyway label a b --nothing  # x\n```\n")
    assert [wrong(words) for words in commands(page)] == ["label has no option --nothing", "no suite 'nothing'"]
    assert not exists("manyway.core.nothing")
    assert exists("manyway.core.tasks.Tasks.from_arrays")
