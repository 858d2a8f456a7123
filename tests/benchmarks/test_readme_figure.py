"""The figure of the README says what docs/results/rivals.md says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.readme_figure import OUTPUT, PAGE, SHOWN, draw, read_figures
from manyway import InputError

ROOT = Path(__file__).parents[2]


def drawn(path: Path) -> dict[str, dict[str, list[float]]]:
    """The figures that a picture shows."""
    with Image.open(path) as picture:
        return json.loads(picture.info["Description"])


def test_the_figure_of_the_readme_has_the_recorded_figures():
    recorded = json.loads(json.dumps(read_figures((ROOT / PAGE).read_text("utf-8"))))
    assert drawn(ROOT / OUTPUT) == recorded, "draw it again: python -m benchmarks.readme_figure"
    assert OUTPUT.as_posix() in (ROOT / "README.md").read_text("utf-8")


def test_a_figure_that_is_drawn_says_what_it_shows(tmp_path):
    figures = read_figures((ROOT / PAGE).read_text("utf-8"))
    draw(figures, tmp_path / "rivals.png")
    assert drawn(tmp_path / "rivals.png")["letters"].keys() == SHOWN.keys()


def test_a_page_without_the_table_is_refused():
    with pytest.raises(InputError, match="no table"):
        read_figures("# Nothing here")
