"""The tables of docs/formats.md, from the registry of formats. Run it to write them into the page."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "formats.md"
TITLES = {
    "tables": ("TableFormat", "Tables"),
    "arrays": ("ArrayFormat", "Arrays"),
    "data": ("DataFormat", "Labelling and analysis programs"),
    "scores": ("ScoreFormat", "Scores of a classifier"),
    "answers": ("AnswerFormat", "Answers in another form"),
}


def format_table(name: str) -> str:
    """Markdown: the formats of one kind."""
    from manyway.files.formats import base
    from manyway.files.formats.registry import our_formats
    from manyway.files.scores import ScoreFormat

    kinds = {"ScoreFormat": ScoreFormat, **vars(base)}
    formats = [each for each in our_formats() if isinstance(each, kinds[TITLES[name][0]])]
    if name == "answers":
        rows = [f"| `{each.key}` | {each.name} | {each.kept or each.holds} |" for each in formats]
        return "\n".join(["| `--format` | for | what is written |", "|---|---|---|", *rows])
    rows = [f"| {each.name} | {_endings(each)} | {each.holds} | {each.kept} |" for each in formats]
    return "\n".join(["| format | ending | an item | what is written, and what stays |", "|---|---|---|---|", *rows])


def _endings(each: object) -> str:
    return ", ".join(f"`{ending}`" for ending in each.endings)


def with_tables(page: str) -> str:
    """The page with the tables of the registry below its headings."""
    for name, (_, title) in TITLES.items():
        pattern = rf"(## {re.escape(title)}\n\n(?:[^|#].*\n+)*)(?:\|.*\n)*\n*"
        page = re.sub(pattern, lambda found, name=name: f"{found[1]}{format_table(name)}\n\n", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
