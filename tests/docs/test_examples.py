"""The Python examples of the documentation pages run, in the order in which a page has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "evidence.md",
    "examine.md",
    "formats.md",
    "glyphs.md",
    "interchange.md",
    "labelling.md",
    "presence.md",
    "scores.md",
    "start/feature-tables.md",
    "streams.md",
    "tools/setfit.md",
]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


@pytest.mark.parametrize("name", PAGES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    names: dict[str, object] = {}
    for block in blocks(DOCS / name):
        exec(compile(block, name, "exec"), names)


def test_no_page_with_examples_is_forgotten():
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "tutorials"}  # `make docs` executes those
    with_examples = {
        page.relative_to(DOCS).as_posix() for page in pages if any(">>>" not in block for block in blocks(page))
    }
    assert with_examples - {"api.md", "index.md"} == set(PAGES)
