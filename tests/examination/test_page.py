"""The page of an examination: self-contained, complete, and safe with hostile names."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from manyway import examine
from manyway.examination import make_page

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(0)
    labels = np.repeat(["ant", EVIL, "bee"], 5)
    features = np.repeat(4 * np.eye(3), 5, 0) + 0.7 * rng.normal(size=(15, 3))
    features[14] = features[13]
    labels[0] = "bee"
    return examine(features, labels, names=[f"{EVIL}{row}" for row in range(15)])


def test_nothing_is_loaded_and_names_are_text(found):
    page = make_page(found, EVIL, text=lambda row: f"{EVIL} {row}")
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert page.count("&lt;script&gt;") > 3


def test_it_shows_what_was_found(found):
    page = make_page(found, "insects")
    for heading in ("Right labels in a batch", "look mislabelled", "Near-copies", "Classes"):
        assert heading in page
    assert page.count("<svg") == 2
    assert found.suspects
    for sentence in found.sentences()[:1]:
        assert sentence in page


def test_pictures_are_in_the_page(found):
    page = make_page(found, "insects", picture=lambda row: None if row else b"jpeg")
    assert 'src="data:image/jpeg;base64,anBlZw=="' in page


def test_examples_without_forecasts_have_a_page_too():
    found = examine(np.eye(3), ["a", "b", "c"])
    page = make_page(found, "three")
    assert "<svg" not in page
    assert "two would" in page


def test_long_texts_are_cut(found):
    page = make_page(replace(found, copies=()), "insects", text=lambda row: "word " * 1000)
    assert len(page) < 60_000


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_its_window_and_says_no_error(found, browser, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(make_page(found, "insects", text=lambda row: f"text {row}"), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800})
    errors = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", lambda request: errors.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg").count() == 2
    assert errors == []
    page.close()
