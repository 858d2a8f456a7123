"""Every results page has a figure near its top, and figures that are drawn from tables show what these say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.figures import IMAGES, PAGES, Spec, draw, find_table, image_of, main, read_figure, read_specs, value_of
from manyway import InputError

ROOT = Path(__file__).parents[2]
SPECS = read_specs(ROOT / PAGES)
NO_QUESTION = {"README", "tried"}  # the list of pages, and a list of ideas
TOP = 30  # lines
PAGE = """# Which?

| set | ours | theirs |
|:--|--:|--:|
| birds | **1.5 ± 0.2** | 1.0 |
| letters | 2.5 | |

<!--table:times-->

| set | shots | time |
| --- | --- | --- |
| birds | 5 | 1,200 ms |

<!--end-->
"""


def described(path: Path) -> dict[str, dict[str, list[float]]]:
    """The numbers that a picture shows."""
    with Image.open(path) as picture:
        return json.loads(picture.info["Description"])


@pytest.mark.parametrize("page", SPECS)
def test_a_figure_shows_the_numbers_of_its_table(page):
    recorded = json.loads(json.dumps(read_figure(ROOT / PAGES, page, SPECS[page])))
    picture = image_of(ROOT / IMAGES, page)
    assert described(picture) == recorded, f"draw it again: python -m benchmarks.figures {page}"
    assert f"../images/{picture.name}" in (ROOT / PAGES / f"{page}.md").read_text("utf-8")


@pytest.mark.parametrize("page", sorted(path.stem for path in (ROOT / PAGES).glob("*.md")))
def test_a_page_opens_with_its_answer_and_a_figure(page):
    if page in NO_QUESTION:
        return
    lines = (ROOT / PAGES / f"{page}.md").read_text("utf-8").splitlines()
    assert lines[2].startswith("**"), "the first sentence is the answer, in bold type"
    assert any(line.startswith("![") for line in lines[:TOP])


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "which.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "which.csv").write_text("table,set,n,made by\nlong,birds,7,us\n", encoding="utf-8")
    return tmp_path


def test_tables_are_found_on_the_page_and_beside_it(pages):
    assert find_table(pages, "which", "")[0] == ["set", "ours", "theirs"]
    assert find_table(pages, "which", "times")[1] == ["birds", "5", "1,200 ms"]
    assert find_table(pages, "which", "long") == [["set", "n"], ["birds", "7"]]
    with pytest.raises(InputError, match="no table 'none'"):
        find_table(pages, "which", "none")


def test_rows_and_columns_are_chosen(pages):
    assert read_figure(pages, "which", Spec(label="")) == {
        "birds": {"ours": value_of("1.5 ± 0.2"), "theirs": value_of("1.0")},
        "letters": {"ours": value_of("2.5")},
    }
    some = Spec(label="", rows="^let", columns={"ours": "mine"})
    assert read_figure(pages, "which", some) == {"letters": {"mine": value_of("2.5")}}
    with pytest.raises(InputError, match="no column 'yours'"):
        read_figure(pages, "which", Spec(label="", columns={"yours": "yours"}))
    with pytest.raises(InputError, match="no number"):
        read_figure(pages, "which", Spec(label="", rows="cats"))


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_picture_says_what_it_shows(pages, logarithmic):
    spec = Spec(table="times", label="time", row_cells=2, logarithmic=logarithmic)
    draw(read_figure(pages, "which", spec), spec, pages / "which.png")
    assert described(pages / "which.png") == {"birds · 5": {"time": [1200.0, None]}}


def test_the_command_draws_the_pages_that_it_names(pages, capsys):
    (pages / "figures.toml").write_text('[which]\nlabel = "points"\n', encoding="utf-8")
    assert main(["which", "--pages", str(pages), "--images", str(pages)]) == 0
    assert (pages / "results-which.png").exists()
    with pytest.raises(SystemExit):
        main(["other", "--pages", str(pages), "--images", str(pages)])
    assert "no page 'other'" in capsys.readouterr().err
