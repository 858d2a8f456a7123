"""The report in a real browser: it opens from disk, sorts, shows values, and requests nothing."""

from __future__ import annotations

import re
import sys
from itertools import product

import pytest
from bench.show.results import ANSWERS, FEATURES, SOURCE, calibrated, make_record, make_view, old, old_note

from manyway import InputError
from manyway.bench.show.report import make_report
from manyway.bench.show.tables import make_grids
from manyway.methods import METHODS

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"&{{7*7}}</style>"
RECORDS = [make_record(*place) for place in product(ANSWERS, (1, 3), (2, 4))]


@pytest.fixture(scope="module")
def view():
    return make_view(RECORDS)


@pytest.fixture(scope="module")
def text(view):
    return make_report([view])


@pytest.fixture
def page_of(browser, tmp_path):
    """Open a report; gives the page. At the end, it must have requested and complained about nothing."""
    seen: list[str] = []
    path = tmp_path / "report.html"
    contexts = []

    def open_page(text, color_scheme="light", width=1200):
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(color_scheme=color_scheme, viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith("data:") or seen.append(request.url))
        page.goto(path.as_uri())
        page.seen = seen
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [entry.partition("#")[0] for entry in seen] == [path.as_uri()] * len(contexts)


def column(page, n):
    script = f"rows => rows.map(row => row.cells[{n}].dataset.value)"
    return page.eval_on_selector_all("section.shown tbody tr", script)


def test_the_report_is_one_file_that_names_no_address(text):
    assert "http:" not in text
    assert "https:" not in text
    assert " src=" not in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_a_click_on_a_header_sorts_and_a_second_one_reverses_the_order(page_of, text, view):
    page = page_of(text)
    (grid,) = make_grids(view)
    means = [cells[1].mean for _, cells in grid.rows]
    head = page.locator("section.shown thead th").nth(2)
    head.locator("button").click()
    assert [float(value) for value in column(page, 2)] == sorted(means, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Enter")
    assert [float(value) for value in column(page, 2)] == sorted(means)
    page.locator("section.shown thead th button").first.click()
    assert column(page, 0) == ["PADDLE", "SimpleShot", "soft K-means"]


def test_points_show_their_values_under_the_pointer_and_by_the_arrow_keys(page_of, text):
    page = page_of(text)
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.locator("section.shown g[data-line='0'] .hit").first.hover()
    assert tip.inner_text() == "PADDLE: 87.50 [84.48, 90.52] at K_eff = 2"
    page.mouse.move(1, 1)
    assert tip.is_hidden()
    panel = page.locator("section.shown .panels svg").first
    panel.focus()
    panel.press("ArrowRight")
    assert tip.inner_text().startswith("PADDLE: 87.50")
    panel.press("ArrowRight")
    assert tip.inner_text().endswith("K_eff = 4")
    panel.press("ArrowDown")
    assert tip.inner_text().startswith("soft K-means: 79.17")


def test_points_on_top_of_each_other_are_all_shown(page_of):
    answers = ANSWERS["paddle"]
    both = [make_record("paddle"), make_record("simpleshot", outcome={"n_query": 12, "correct": answers})]
    page = page_of(make_report([make_view(both)]))
    page.locator("section.shown .hit").last.hover()
    assert page.locator("#tip").inner_text().count("87.50 [84.48, 90.52]") == 2


def test_a_click_in_the_legend_hides_a_line_in_all_panels(page_of, text):
    page = page_of(text)
    key = page.locator(".legend button", has_text="PADDLE").first
    lines = page.locator("section.shown g[data-line='0']")
    assert lines.count() == 4  # a line and its band, in two panels
    key.click()
    assert [line.is_visible() for line in lines.all()] == [False] * 4
    assert key.get_attribute("aria-pressed") == "false"
    key.click()
    assert key.get_attribute("aria-pressed") == "true"
    assert all(line.is_visible() for line in lines.all())


def test_each_method_and_the_provenance_have_a_page(page_of, text, view):
    page = page_of(text)
    page.locator("nav a", has_text="PADDLE").click()
    assert [section.get_attribute("id") for section in page.locator("section:visible").all()] == ["method-paddle"]
    assert page.locator("section.shown tbody tr").count() == 4
    page.locator("nav a", has_text="Provenance").click()
    assert [section.get_attribute("id") for section in page.locator("section:visible").all()] == ["origin-provenance"]
    assert page.locator("section.shown tbody tr").count() == len(view.records)
    assert view.records[0].features.fingerprint in page.locator("section.shown").inner_text()


def test_names_with_markup_are_text(page_of):
    source = {**SOURCE, "title": HOSTILE, "about": HOSTILE, "labels": {"toy": HOSTILE}}
    source["plots"] = [{"name": "keff", "x": "k_eff", "lines": "features", "title": HOSTILE}]
    records = [
        make_record(features={**FEATURES, "name": HOSTILE, "fingerprint": HOSTILE}),
        make_record("simpleshot"),
    ]
    page = page_of(make_report([make_view(records, source, name=HOSTILE)]))
    assert page.locator("section.shown h2").inner_text() == HOSTILE
    assert page.locator("nav a").first.inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    labels = page.locator(".legend button").all_inner_texts()
    assert HOSTILE in [label.strip() for label in labels]
    page.locator("nav a").last.click()
    page.locator("nav a").first.click()
    assert page.locator("section.shown h2").inner_text() == HOSTILE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_the_lines_of_all_methods_stand_out_from_the_background(page_of, scheme):
    records = [make_record(method=name, key=f"{n:016}") for n, name in enumerate(METHODS)]
    page = page_of(make_report([make_view(records)]), color_scheme=scheme)
    colours = page.evaluate(
        """() => {
            const style = (element, name) => getComputedStyle(element)[name];
            const shown = document.querySelector("section.shown");
            const texts = [...shown.querySelectorAll("svg text")].map((text) => style(text, "fill"));
            const lines = [...shown.querySelectorAll(".legend svg use")].map((use) => style(use, "stroke"));
            const prose = [...shown.querySelectorAll("h2, td, .note")].map((element) => style(element, "color"));
            return { background: style(document.body, "backgroundColor"), prose: [...prose, ...texts], lines };
        }"""
    )
    assert len(colours["lines"]) == len(METHODS)
    background = luminance(colours["background"])
    assert (background > 0.5) == (scheme == "light")
    # WCAG: 4.5 for text, 3 for graphics.
    assert min(contrast(luminance(colour), background) for colour in colours["prose"]) >= 4.5
    assert min(contrast(luminance(colour), background) for colour in colours["lines"]) >= 3


def luminance(colour: str) -> float:
    values = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_a_phone_need_not_scroll_sideways(page_of, text):
    page = page_of(text, width=400)
    for link in page.locator("nav a").all():
        link.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 400


def test_the_page_notices_a_request(page_of, text):
    # The policy of the page refuses it, and the browser says so: the check at the end of every test can fail.
    page = page_of(text)
    page.evaluate("fetch('https://example.org/').catch(() => 'refused')")
    for _ in range(200):  # the browser says it soon, but not at once
        if len(page.seen) > 1:
            break
        page.wait_for_timeout(10)
    assert any("Content Security Policy" in entry for entry in page.seen)
    del page.seen[1:]


def test_without_matplotlib_the_report_has_its_tables_and_says_what_to_install(view, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = make_report([view])
    assert "[plot]&#34;" in text
    assert "<figure>" not in text
    assert "87.5 ± 3.0*" in text


def test_old_results_are_marked_on_every_page(view):
    text = make_report([make_view([old(make_record("paddle"))])])
    assert text.count(old_note("paddle")) == 4  # table, figure, method, origin
    assert "†" not in make_report([make_view([make_record("paddle")])])


def test_a_metric_that_one_run_lacks_is_a_warning_and_an_unknown_one_an_error(view):
    other = make_view([calibrated(make_record("paddle"), 3)], name="other")
    text = make_report([view, other], ["calibration"])
    assert text.count("No result of small has the metric &#39;calibration&#39;") == 1
    assert "9.5 ± 0.00" in text
    with pytest.raises(InputError, match="did you mean 'calibration'"):
        make_report([view], ["calibratio"])
