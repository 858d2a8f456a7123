"""The Python examples of the README give the output that is shown, and its table is that of a page of results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

README = Path(__file__).parents[2] / "README.md"
# A Python block and the text block that follows it: the code and what it prints.
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)


def test_every_python_block_shows_its_output():
    assert len(EXAMPLES) == README.read_text(encoding="utf-8").count("```python") == 3


@pytest.mark.parametrize(("code", "shown"), EXAMPLES, ids=["first screen", "one task", "many tasks"])
def test_an_example_prints_what_the_readme_shows(code, shown, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_first_screen_shows_a_moving_picture_that_loads_quickly():
    first = re.search(r"!\[.+\]\((.+)\)", README.read_text(encoding="utf-8"))
    path = README.parent / first[1]
    with Image.open(path) as picture:
        assert picture.n_frames > 5
    assert path.stat().st_size < 1_500_000


def test_its_table_of_birds_is_that_of_the_results():
    page = README.parent / "docs" / "results" / "birds.md"
    shown, measured = (rows_of_methods(text.read_text(encoding="utf-8")) for text in (README, page))
    assert len(shown) == 9
    for method, values in shown.items():
        assert values == measured[method.removesuffix(" (nearest class mean)")], method


def rows_of_methods(text):
    """{method: values} of the first table with this head, without the marks of what is best."""
    table = text.partition("| Method | 5-shot | 10-shot | 20-shot |\n")[2].partition("\n\n")[0]
    rows = [row.replace("*", "").replace("\\", "").strip("| ").split(" | ") for row in table.splitlines()[1:]]
    return {method: values for method, *values in rows}
