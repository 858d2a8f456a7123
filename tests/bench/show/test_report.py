"""The report in a real browser: it opens from disk, sorts, shows values, and asks nobody for anything."""

from __future__ import annotations

import pytest
from bench_problems import SMALL, data_folder_with_toy, run_suite
from browser import Browser, find_browser

from manyway.bench.show.report import make_report
from manyway.bench.show.tables import make_grids

PROGRAM = find_browser()
COLUMN = "[...document.querySelectorAll('section.shown tbody tr')].map((row) => row.cells[{}].dataset.value)"


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data_folder_with_toy(folder)
    return run_suite(SMALL.replace('"Small"', '"A <b>small</b> suite"'), folder, folder / "results")


@pytest.fixture(scope="module")
def report(view, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(make_report([view]), encoding="utf-8")
    return path


def test_the_report_is_one_file_that_names_no_address(report):
    text = report.read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    assert "src=" not in text
    assert "A &lt;b&gt;small&lt;/b&gt; suite" in text


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    if PROGRAM is None:
        pytest.skip("needs a Chromium on the path (Debian: apt-get install chromium)")
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as browser:
        browser.open(report.as_uri())
        yield browser


def test_a_click_on_a_header_sorts_and_another_turns_the_order(page, view):
    (grid,) = make_grids(view)
    means = [cells[1].mean for _, cells in grid.rows]
    page.click("section.shown thead th:nth-child(3) button")
    assert [float(value) for value in page.evaluate(COLUMN.format(2))] == sorted(means, reverse=True)
    assert page.evaluate("document.querySelector('section.shown th:nth-child(3)').ariaSort") == "descending"
    page.click("section.shown thead th:nth-child(3) button")
    assert [float(value) for value in page.evaluate(COLUMN.format(2))] == sorted(means)
    page.click("section.shown thead th:nth-child(1) button")
    assert page.evaluate(COLUMN.format(0)) == ["PADDLE", "SimpleShot", "soft K-means"]


def test_curves_show_their_values_under_the_mouse_and_lines_can_be_hidden(page):
    page.evaluate("location.hash = ''")
    assert page.becomes("document.querySelectorAll('section.shown g[data-line]').length > 0", True)
    page.move("section.shown g[data-line='PADDLE'] .point")
    assert page.becomes("document.getElementById('tip').hidden", False)
    assert page.evaluate("document.getElementById('tip').textContent").startswith("PADDLE: ")
    page.click(".legend button[data-line='PADDLE']")
    hidden = "[...document.querySelectorAll(\"g[data-line='PADDLE']\")].map((g) => getComputedStyle(g).display)"
    assert page.becomes(hidden, ["none", "none"])
    page.click(".legend button[data-line='PADDLE']")
    assert page.becomes(hidden, ["inline", "inline"])


def test_each_method_and_the_provenance_have_a_page(page, view):
    shown = "[...document.querySelectorAll('section')].filter((s) => s.offsetParent).map((s) => s.id)"
    page.click("nav a[href='#method-paddle']")
    assert page.becomes(shown, ["method-paddle"])
    assert page.evaluate("document.querySelectorAll('section.shown tbody tr').length") == 4
    page.click("nav a[href='#provenance']")
    assert page.becomes(shown, ["provenance"])
    assert page.evaluate("document.querySelectorAll('section.shown tbody tr').length") == len(view.records)
    assert view.records[0].features["fingerprint"] in page.evaluate("document.querySelector('section.shown').innerText")


def test_nothing_was_requested_and_nothing_complained(page, report):
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 200))")
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url.split("#")[0] for url in requests if not url.startswith("data:")] == [report.as_uri()]
    noise = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
    assert [event for event in page.events if event["method"] in noise] == []


def test_the_page_would_notice_a_request(page):
    # The policy of the page refuses it, and the browser says so: the test above can fail.
    before = len(page.events)
    page.evaluate("fetch('https://example.org/').catch(() => 'refused')")

    def complained() -> bool:
        page.evaluate("new Promise((resolve) => setTimeout(resolve, 50))")
        return any(event["method"] == "Log.entryAdded" for event in page.events[before:])

    assert any(complained() for _ in range(100))
