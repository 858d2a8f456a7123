"""The page of formats is what the registry has."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "hooks"))

from formats import PAGE, with_tables  # noqa: E402

from manyway.files.formats.registry import our_formats  # noqa: E402


def test_the_tables_are_those_of_the_registry():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run python docs/hooks/formats.py"


def test_every_format_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    lacking = [each.key for each in our_formats() if f"| {each.name} |" not in page]
    assert lacking == []
