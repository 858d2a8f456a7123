"""The documentation site has every page and every public name. `make docs` builds it; this reads text only."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "hooks"))

from commands import command_reference  # noqa: E402
from diagrams import draw  # noqa: E402

SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))


def test_every_page_is_in_the_navigation_once():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", navigation, flags=re.M)
    written = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    made = ["contributing.md", "changelog.md", *(f"gallery/{script.stem}.md" for script in SCRIPTS)]
    assert sorted(listed) == sorted(written + made)


def test_every_public_name_is_on_one_page_of_the_reference():
    stub = ast.parse((ROOT / "src/manyway/__init__.pyi").read_text(encoding="utf-8"))
    names = next(ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")]
    assert sorted(re.findall(r"^::: manyway\.(\w+)$", "\n".join(pages), flags=re.M)) == sorted(names)


def test_the_reference_has_every_option_also_those_that_the_short_help_leaves_out():
    page = command_reference()
    label = page.partition("## manyway label\n")[2].partition("\n## ")[0]
    for option in ("--output", "--class-prior", "--expect", "--batch-by", "--dask", "--json", "--dry-run"):
        assert f"`{option}`" in label
    assert "cat tickets.csv | manyway label intents.csv - --json" in label


def test_the_gallery_lists_every_script():
    page = (DOCS / "gallery" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^- \[.*\]\(([\w-]+\.py)\): ", page, flags=re.M)) == [script.name for script in SCRIPTS]
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_has_a_title_an_introduction_and_sections(script):
    source = script.read_text(encoding="utf-8")
    title, empty, *introduction = ast.get_docstring(ast.parse(source)).splitlines()
    assert title
    assert not empty
    assert introduction
    assert source.count("\n# %%\n") >= 3


def test_links_of_scripts_lead_to_files():
    broken = []
    for script in SCRIPTS:
        text = re.sub(r"\n# ", " ", script.read_text(encoding="utf-8"))
        links = re.findall(r"\]\(([^)#\s]+)", text)
        broken += [f"{script.name}: {link}" for link in links if not (script.parent / link).exists()]
    assert broken == []


def test_every_figure_has_the_command_that_makes_it():
    page = (DOCS / "results" / "README.md").read_text(encoding="utf-8")
    table = page.partition("## Figures\n")[2].partition("\n## ")[0]
    made = [name for row in re.findall(r"^\| (`.*?) \|", table, flags=re.M) for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(made) == sorted(path.name for path in (DOCS / "images").iterdir())


def test_a_diagram_has_a_box_for_every_name_and_an_arrow_for_every_line():
    drawing = draw("graph TD\n    a --> b\n    b --> c\n    a --> c\n")
    assert re.findall(r"<text[^>]*>(\w+)</text>", drawing) == ["a", "b", "c"]
    assert drawing.count('<path d="M') - drawing.count("<marker") == 3


@pytest.mark.parametrize("wrong", ["graph LR\n a --> b", "graph TD\n a ==> b", "graph TD\n a --> b\n b --> a"])
def test_a_diagram_that_cannot_be_drawn_is_refused(wrong):
    with pytest.raises(ValueError, match="A diagram"):
        draw(wrong)
