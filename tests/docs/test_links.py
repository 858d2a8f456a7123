"""Relative links between the pages of the documentation lead to a file, and to a heading where they name one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)


def links(page: Path) -> list[str]:
    """Targets of links and images that are not addresses on the web."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8")))
    return [target for target in targets if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings; a repeated one gets a number."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    made: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.M):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        made.append(anchor if anchor not in made else f"{anchor}-{made.count(anchor)}")
    return set(made)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_readme():
    reached, todo = set(), [README]
    while todo:
        page = todo.pop()
        reached.add(page)
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                todo.append(target)
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def test_every_table_beside_a_page_is_linked_from_it():
    tables = sorted(ROOT.glob("docs/results/*.csv"))
    linked = {link for page in ROOT.glob("docs/results/*.md") for link in links(page)}
    assert [table.name for table in tables if table.name not in linked] == []
    assert len(tables) > 10


def prose(page: Path) -> str:
    """A page without the tables that commands write into it."""
    return re.sub(r"<!--table:.*?<!--end-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_documentation_stays_short_enough_to_be_read():
    words = {page: len(prose(page).split()) for page in [README, *ROOT.glob("docs/**/*.md")]}
    # The list of formats is looked up, and of the pages per tool everybody reads one.
    looked_up = {page for page in words if page.name == "formats.md" or page.parent.name == "tools"}
    assert words[README] <= 1_000
    assert all(words[page] <= (2_000 if page.name == "formats.md" else 500) for page in looked_up)
    assert sum(count for page, count in words.items() if page not in looked_up) <= 46_000


def test_a_missing_file_and_a_missing_heading_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing\n## One thing!\n[a](other.md) [b](#one-thing) [c](#two) [d](https://example.org) `[e](code.md)`\n"
    )
    assert links(page) == ["other.md", "#one-thing", "#two"]
    assert anchors(page) == {"one-thing", "one-thing-1"}
