"""The page of a review in a real browser, by keyboard, mouse and screen reader."""

from __future__ import annotations

import csv
import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import processes
import pytest
from review_problems import HOSTILE, make_review, truth, with_pictures, with_unknown_items

from manyway.cli.review import demo_data, picture_access
from manyway.core.solution import Solution
from manyway.errors import InputError
from manyway.files.items import Items
from manyway.review.actions import ACTIONS, Label
from manyway.review.app import make_app
from manyway.review.data import TEXTS, ReviewData
from manyway.review.export import export_labels
from manyway.review.guard import Guard
from manyway.review.relabel import Relabel
from manyway.review.serve import open_review, serve, take_port
from manyway.review.state import NO_CLASS, OPEN
from manyway.sampling.embedded import load_glyphs
from manyway.training.glyphs import SAMPLES

uvicorn = pytest.importorskip("uvicorn", reason="needs the extra 'review'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")


WINDOW = {"width": 1280, "height": 1400}
PORT = 20_000 + 17 * (os.getpid() % 1500)  # one of its own for each process, so that a server comes back where it was


@pytest.fixture(scope="session")
def window(browser):
    """A page that the tests share, because a new one takes longer than most tests, and its complaints."""
    complaints: list[str] = []
    context = browser.new_context(viewport=WINDOW, reduced_motion="reduce")
    yield listening(context.new_page(), complaints), complaints
    context.close()


def listening(page, complaints):
    """The page, whose errors, messages and dialogs are kept in a list."""
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"{dialog.type} {dialog.message}"), dialog.accept()))
    page.set_default_timeout(60_000)
    return page


def until(page, condition, seconds=60.0):
    """Wait for a condition in JavaScript. Playwright's own way needs eval, which the policy of the page forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.01)


@contextmanager
def serving(session, folder):
    """The address of a server in a thread."""
    make, find = picture_access(session.data)
    with take_port(PORT) as taken:
        guard = Guard(taken.getsockname()[1])
        app = make_app(session, guard, folder, make, find if make else None, stopping=lambda: server.should_exit)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield guard.address
        finally:
            server.should_exit = True
            thread.join()
            session.close()


class Review:
    """A served review, and a browser that looks at it."""

    def __init__(self, page, session, address, complaints):
        self.page, self.session, self.address, self.complaints = page, session, address, complaints
        self.show(page)

    def show(self, page):
        page.goto(self.address)
        page.wait_for_selector("body.ready")
        page.evaluate("document.body.dataset.just = 0")  # keys are pressed as soon as a suggestion has changed

    def second_window(self):
        page = listening(self.page.context.new_page(), self.complaints)
        self.show(page)
        return page

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self):
        """Wait until everything is saved, labelled and shown."""
        self.until("!document.body.classList.contains('saving')")
        assert self.session.settled.wait(30)
        self.until(f"Number(document.body.dataset.version) >= {self.session.version}")

    def current(self, page=None):
        return int((page or self.page).locator(".item.current").get_attribute("data-row"))

    def answer(self, row):
        number = self.session.answers[row]
        return {OPEN: "open", NO_CLASS: "none"}.get(number) or self.session.classes[number]

    def titles(self):
        return self.page.locator("section h2").all_inner_texts()

    def group_of(self, row):
        return self.page.locator(f"section:has(#item-{row}) h2").inner_text()

    def until(self, condition):
        until(self.page, condition)


@pytest.fixture
def open_page(window, tmp_path):
    """Serve data and open the page. At the end the browser must have complained about nothing."""
    shared, complaints = window
    closing = ExitStack()
    complaints.clear()

    def start(data=None, *, scheme="light", touch=False, **size):
        session = open_review(tmp_path / "review", data or make_review())
        address = closing.enter_context(serving(session, tmp_path / "review"))
        page, viewport = shared, {**WINDOW, **size}
        if touch:
            context = shared.context.browser.new_context(viewport=viewport, has_touch=True, reduced_motion="reduce")
            page = listening(context.new_page(), complaints)
            closing.callback(context.close)
        else:
            page.set_viewport_size(viewport)
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            closing.callback(leave, page)
        return Review(page, session, address, complaints)

    with closing:
        yield start
    assert complaints == []


def leave(page):
    """Leave nothing of a review in the window: no other page, no connection to the server, no cookie."""
    for other in page.context.pages:
        if other is not page:
            other.close()
    page.route("**/left", lambda route: route.fulfill(content_type="text/html", body="<link rel='icon' href='data:,'>"))
    page.goto(urljoin(page.url, "/left"))  # of the same site: for any other one the browser starts a process
    page.unroute("**/left")
    page.context.clear_cookies()


def test_groups_come_by_doubt_and_the_items_of_a_group_too(open_page):
    review = open_page()
    session = review.session
    groups: dict[str, list[int]] = {}
    for cell in review.page.locator(".item").all():
        row = int(cell.get_attribute("data-row"))
        groups.setdefault(session.classes[session.chosen(row)[0]], []).append(row)
    assert review.titles() == list(groups)
    assert sum(map(len, groups.values())) == 40
    doubts = [np.mean([1 - session.chosen(row)[1] for row in rows]) for rows in groups.values()]
    assert doubts == sorted(doubts, reverse=True)
    for rows in groups.values():
        assert rows == sorted(rows, key=lambda row: (round(session.chosen(row)[1], 3), row))
    assert review.page.title() == "Trees · review"
    assert "?token" not in review.page.url
    assert review.page.locator("section").first.locator(".example").count() == 3
    assert "0 of 40 reviewed" in review.page.locator("#counts").inner_text()


def test_hands_stay_on_the_keyboard(open_page):
    review = open_page()
    first = review.current()
    suggested = review.session.classes[review.session.best[first][0]]
    review.press("Enter")
    second = review.current()
    assert second != first
    review.settle()
    assert review.answer(first) == suggested

    wanted = [review.session.classes[k] for k in review.session.best[review.current()]]
    here = review.current()
    review.press("3")
    review.settle()
    assert review.answer(here) == wanted[2]

    here = review.current()
    review.press("/", *"haz", "Enter")
    review.settle()
    assert review.answer(here) == "hazel"

    here = review.current()
    review.press("n", *"Scots pine", "Enter")
    review.settle()
    assert review.answer(here) == "Scots pine"
    review.press("s")
    assert "Scots pine" in review.titles()

    here = review.current()
    review.press("x")
    review.settle()
    assert review.answer(here) == "none"
    review.press("s", "End")
    assert review.group_of(review.current()) == review.titles()[-1] == "Unknown"

    for _ in range(5):
        review.press("u")
    review.until("document.getElementById('undo').disabled")
    assert review.session.answers == [OPEN] * 40
    review.press("U")
    review.settle()
    assert review.answer(first) == suggested
    review.page.locator(f"#item-{first}").click()
    review.press("Backspace")
    review.settle()
    assert review.answer(first) == "open"


def test_undo_goes_to_the_item_so_that_the_next_key_answers_it(open_page):
    review = open_page()
    first = review.current()
    suggested = review.session.classes[review.session.best[first][0]]
    review.press("3", "u", "Enter")  # a wrong key, its undo and the right key, faster than the server answers
    review.settle()
    assert review.answer(first) == suggested
    assert review.session.answers.count(OPEN) == 39
    review.press("End", "u")
    review.settle()
    assert review.current() == first
    review.press("End", "U")
    review.settle()
    assert (review.current(), review.answer(first)) == (first, suggested)


def test_undo_selects_again_what_was_answered_together_and_shows_what_the_filter_hides(open_page):
    review = open_page()
    review.press("Shift+ArrowRight", "Shift+ArrowRight")
    rows = [int(cell.get_attribute("data-row")) for cell in review.page.locator(".item[aria-selected=true]").all()]
    review.press("x")
    review.settle()
    review.page.get_by_role("radio", name="Open").check()
    assert review.page.locator(f"#item-{rows[0]}").count() == 0
    review.page.locator(".item").last.click()
    review.press("u")
    review.settle()
    assert review.page.locator(".item[aria-selected=true]").count() == 3
    assert review.current() == rows[0]
    review.press("2")
    review.settle()
    assert len({review.answer(row) for row in rows} - {"open"}) == 1


def test_the_history_leads_to_the_items_and_takes_back(open_page):
    review = open_page()
    first = review.current()
    review.press("x", "Enter")
    review.settle()
    review.press("h")
    entries = review.page.locator("#history-list button")
    review.until("document.getElementById('history').open")
    assert entries.last.inner_text() == f"photo-{first}.png: unknown."
    entries.last.click()
    assert review.current() == first
    review.press("h")
    review.until("document.getElementById('history').open")
    review.page.locator("#history-undo").click()
    review.settle()
    assert review.session.answers.count(OPEN) == 39


def test_every_action_of_the_server_has_a_key_and_a_line_in_the_help(open_page):
    review = open_page()
    review.press("?")
    lines = review.page.locator("#keys div").all_inner_texts()
    gestures = [gesture for action in ACTIONS.values() for gesture in action.gestures]
    for gesture in gestures:
        assert any(gesture.about in line for line in lines), gesture
    assert len({gesture.key for gesture in gestures}) == len(gestures)
    review.press("Escape")
    buttons = review.page.locator("#panel .does button").all_inner_texts()
    expected = [gesture.button for gesture in gestures if gesture.button and gesture.only != "reviewed"]
    assert len(buttons) == len(expected)
    assert all(text.startswith(name) for text, name in zip(buttons, expected, strict=True))


def test_arrows_move_through_groups_and_select_with_shift(open_page):
    review = open_page()
    order = [int(cell.get_attribute("data-row")) for cell in review.page.locator(".item").all()]
    review.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert review.current() == order[1]
    assert review.page.evaluate("document.activeElement.id") == f"item-{order[1]}"
    review.press("End")
    assert review.current() == order[-1]
    review.press("Home", "]")
    assert review.group_of(review.current()) == review.titles()[1]
    review.press("[", "ArrowDown", "ArrowUp")
    assert review.current() == order[0]
    review.press("Shift+ArrowRight", "Shift+ArrowRight")
    assert "3 items selected" in review.page.locator("#panel").inner_text()
    review.press("2")
    review.settle()
    assert len({review.answer(row) for row in order[:3]} - {"open"}) == 1
    assert len(list(review.session.journal)) == 1


def test_one_correction_changes_other_items_and_shows_which(open_page):
    review = open_page()
    review.page.locator("#item-1").click()
    wrong = review.group_of(1)
    assert wrong != truth(1) == "fir"
    firs = [row for row in range(2, 40) if truth(row) == "fir" and review.group_of(row) == wrong]
    assert firs
    review.press("/", *"fir", "Enter")
    review.until("document.querySelectorAll('.item.changed').length >= 4")
    review.settle()
    assert {review.group_of(row) for row in (1, *firs)} == {wrong}
    assert {review.page.locator(f"#item-{row} .says").inner_text() for row in (1, *firs)} == {"→ fir"}
    shown = {int(cell.get_attribute("data-row")) for cell in review.page.locator(".item.changed").all()}
    assert set(firs) <= shown == {row for row in range(40) if review.session.was[row] >= 0}
    assert f"{len(shown)} other items changed" in review.page.locator("#status").inner_text()
    review.press("s")
    assert {review.group_of(row) for row in (1, *firs)} == {"fir"}
    assert f"was {wrong}" in review.page.locator(f"#item-{firs[0]}").inner_text()
    review.page.get_by_role("radio", name="Changed").check()
    review.until(f"document.querySelectorAll('.item').length === {len(shown)}")


def test_a_reload_and_a_second_window_show_the_same(open_page):
    review = open_page()
    review.press("Enter", "Enter", "x")
    review.settle()
    other = review.second_window()
    state = "() => [...document.querySelectorAll('.item')].map(cell => cell.getAttribute('aria-label')).sort()"
    assert other.evaluate(state) == review.page.evaluate(state)
    other.locator(".item:not(.reviewed)").last.click()
    other.keyboard.press("Enter")
    review.until("document.getElementById('counts').textContent.startsWith('4 of 40')")
    review.settle()
    until(other, f"Number(document.body.dataset.version) >= {review.session.version}")
    assert other.evaluate(state) == review.page.evaluate(state)
    review.page.reload()
    review.page.wait_for_selector("body.ready")
    assert other.evaluate(state) == review.page.evaluate(state)


def test_a_filter_that_hides_the_current_item_goes_to_the_first_one_shown(open_page):
    review = open_page()
    review.press("Control+a")
    first = review.titles()[0]
    group = [row for row in range(40) if review.group_of(row) == first]
    assert review.page.locator(".item[aria-selected=true]").count() == len(group)
    review.press("Enter")
    review.settle()
    assert {review.answer(row) for row in group} == {first}
    review.page.locator(f"#item-{group[0]}").click()
    review.page.get_by_role("radio", name="Open").check()
    assert review.current() not in group
    review.page.get_by_role("radio", name="All").check()


def test_all_above_a_probability_are_confirmed_at_once(open_page):
    review = open_page()
    review.press("a")
    dialog = review.page.locator("#above")
    group = review.titles()[0]
    rows = [row for row in range(40) if review.group_of(row) == group]
    review.page.locator("#above-value").fill("0.5")
    above = [row for row in rows if round(review.session.chosen(row)[1], 3) >= 0.5]
    assert f"{len(above)} open item" in dialog.inner_text()
    review.press("Enter")
    review.until("!document.getElementById('counts').textContent.startsWith('0 of')")  # a dialog closes a little later
    review.settle()
    assert [row for row in range(40) if review.session.answers[row] != OPEN] == above
    assert {review.answer(row) for row in above} == {group}


def test_the_mouse_selects_ranges_single_items_and_boxes(open_page, tmp_path):
    review = open_page(with_pictures(tmp_path / "pictures"))
    cells = review.page.locator(".item")
    cells.nth(0).click()
    cells.nth(3).click(modifiers=["Shift"])
    selected = review.page.locator(".item[aria-selected=true]")
    assert selected.count() == 4
    cells.nth(1).click(modifiers=["Control"])
    assert selected.count() == 3
    first, last = cells.nth(0).bounding_box(), cells.nth(2).bounding_box()
    review.page.mouse.move(first["x"] - 4, first["y"] - 4)
    review.page.mouse.down()
    review.page.mouse.move(last["x"] + 20, last["y"] + 20, steps=4)
    review.page.mouse.up()
    assert selected.count() == 3
    review.press("x")
    review.settle()
    assert review.session.answers.count(NO_CLASS) == 3
    cells.nth(0).dblclick()
    review.until("document.getElementById('large').open")


def test_a_missing_picture_shows_as_missing_and_can_be_labelled(open_page, tmp_path):
    review = open_page(with_pictures(tmp_path / "pictures"))
    face = review.page.locator("#item-3 .face")
    face.scroll_into_view_if_needed()
    review.until("document.querySelector('#item-3 .face').classList.contains('missing')")
    assert review.page.locator("#item-0 .face").get_attribute("class") == "face"
    review.page.locator("#item-3").click()
    review.press("/", *"oak", "Enter")
    review.settle()
    assert review.answer(3) == "oak"


def test_items_that_were_called_unknown_are_named_at_once(open_page):
    review = open_page()
    review.press("Shift+ArrowRight", "x")
    review.settle()
    review.press("s", "End", "g")
    review.until("document.getElementById('search').open")
    review.page.locator("#search-threshold").fill("0")
    review.page.locator("#search-text").focus()
    review.press(*"Ginkgo", "Enter")
    review.settle()
    review.press("s")
    assert [review.answer(row) for row in range(40)].count("Ginkgo") == 2
    assert "Ginkgo" in review.titles()
    assert "Unknown" not in review.titles()
    review.press("/")
    review.page.keyboard.insert_text("GI\u0301N")  # accents are ignored
    assert review.page.locator("#search-found li").first.inner_text() == "Ginkgo"
    review.press("Escape")


def test_a_group_is_named_above_a_likeness_and_its_strays_stay_open(open_page):
    review = open_page(with_unknown_items())
    page, found = review.page, review.session
    page.locator("#sort").select_option("unknown")
    members = [row for row in range(40) if found.groups[row] == 0]
    likeness = found.likeness(members)
    page.get_by_role("button", name="Name this group").first.click()
    review.until("document.getElementById('search-preview').ariaBusy === 'false'")
    shown = page.locator("#search-preview button")
    assert shown.count() == len(members)
    assert "medoid" in shown.first.get_attribute("class")
    assert shown.first.get_attribute("title").startswith(found.data.shown[likeness.medoid])
    middle = int(100 * sorted(likeness.values)[len(members) // 2]) / 100
    page.locator("#search-threshold").fill(str(middle))
    typical = [row for row, value in zip(members, likeness.values, strict=True) if value >= middle]
    assert 0 < len(typical) < len(members)
    assert page.locator("#search-preview [aria-pressed=true]").count() == len(typical)
    shown.last.click()  # a stray that belongs to the group after all
    stray = min(zip(likeness.values, members, strict=True))[1]
    assert f"{len(typical) + 1} items will get the name" in page.locator("#search-group-count").inner_text()
    page.locator("#search-text").focus()
    review.press(*"Ginkgo", "Enter")
    review.settle()
    assert {row for row in range(40) if review.answer(row) == "Ginkgo"} == {*typical, stray}
    assert len(list(found.journal)) == 1
    review.press("s")
    picture = page.locator("section", has=page.locator("h2", has_text="Ginkgo")).locator(".example").first
    assert picture.inner_text() == found.data.shown[found.relabel.central([*typical, stray])[0]]
    review.press("u")
    review.settle()
    assert found.answers == [OPEN] * 40
    assert page.locator(".item[aria-selected=true]").count() == 1  # nobody has selected them


def test_whoever_types_a_name_before_the_likeness_has_come_names_the_group(open_page):
    review = open_page(with_unknown_items())
    found = review.session
    review.page.locator("#sort").select_option("unknown")
    members = [row for row in range(40) if found.groups[row] == 0]
    likeness = found.likeness(members)
    typical = {row for row, value in zip(members, likeness.values, strict=True) if value >= likeness.threshold}
    review.page.evaluate(
        """() => {
            const fetchOfTheBrowser = window.fetch;
            const released = new Promise((release) => { window.releaseLikeness = release; });
            window.fetch = async (path, options) => {
                if (path === "/api/likeness") await released;
                return fetchOfTheBrowser(path, options);
            };
        }"""
    )
    review.page.get_by_role("button", name="Name this group").first.click()
    review.press(*"Ginkgo", "Enter")
    assert found.answers == [OPEN] * 40
    review.page.evaluate("window.releaseLikeness()")
    review.settle()
    assert {row for row in range(40) if review.answer(row) == "Ginkgo"} == typical


def test_the_filter_finds_classes_and_says_what_it_looked_for(open_page):
    review = open_page()
    review.press("f", *"LARCH")
    rows = {int(cell.get_attribute("data-row")) for cell in review.page.locator(".item").all()}
    found = review.session
    assert rows == {row for row in range(40) if found.classes[found.chosen(row).number] == "larch"}
    review.page.locator("#filter").fill("no such thing")
    assert review.page.locator("#nothing").inner_text().startswith("No item has “no such thing” in its name, class,")


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_review_goes_on_where_it_was(window, tmp_path):
    context = window[0].context
    page = context.new_page()
    data = make_review()
    np.savez(tmp_path / "examples.npz", features=data.examples.features, labels=np.array(data.examples.labels))
    np.savez(tmp_path / "items.npz", features=data.items.features, items=np.array(data.names))
    words = ["review", "examples.npz", "items.npz", "-o", "review", "--no-browser", "--port", "8860"]
    code = f"import sys; sys.argv[1:] = {words}; from manyway.cli import main; main()"
    with processes.Started(code, cwd=tmp_path) as server:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        try:
            page.goto(address, wait_until="commit")
            page.wait_for_selector("body.ready")
            page.evaluate("document.body.dataset.just = 0")
            for _ in range(5):
                page.keyboard.press("Enter")
            until(page, "document.getElementById('counts').textContent.startsWith('5 of 40')")
        finally:
            os.kill(server.pid, signal.SIGKILL)
    page.keyboard.press("x")
    said = "Not saved yet: keep this page open. The server is stopped. Start it again with: manyway review review"
    page.wait_for_selector(f"#problem:text-is('{said}')")
    page.close()
    session = open_review(tmp_path / "review")
    with serving(session, tmp_path / "review") as address:
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("body.ready")
        assert page.locator("#counts").inner_text().startswith("5 of 40 reviewed")
        assert page.locator(".item.reviewed").count() == 5
        page.keyboard.press("u")
        until(page, "document.getElementById('counts').textContent.startsWith('4 of 40')")
        page.close()


def test_a_page_that_stays_open_follows_a_server_that_is_started_again(window, tmp_path):
    page, other = (window[0].context.new_page() for _ in range(2))
    with serving(open_review(tmp_path / "review", make_review()), tmp_path / "review") as address:
        page.goto(address)
        page.wait_for_selector("body.ready")
        page.keyboard.press("Enter")
        page.wait_for_selector("#counts:has-text('1 of 40')")
    with serving(open_review(tmp_path / "review"), tmp_path / "review") as address:
        other.goto(address)  # its token lets in the first page as well
        other.wait_for_selector("body.ready")
        other.keyboard.press("Enter")
        page.wait_for_selector("#counts:has-text('2 of 40')")
        assert page.locator(".item.reviewed").count() == 2
    page.close()
    other.close()


def test_a_page_of_another_review_at_the_same_address_says_so_and_changes_nothing(window, tmp_path):
    page, other = (window[0].context.new_page() for _ in range(2))
    with serving(open_review(tmp_path / "one", make_review()), tmp_path / "one") as address:
        page.goto(address)
        page.wait_for_selector("body.ready")
        port = address.partition("/?")[0]
    page.keyboard.press("Enter")  # it cannot be saved, and is sent again and again
    page.wait_for_selector("#problem:has-text('Not saved yet')")
    second = open_review(tmp_path / "two", make_review(n_items=30))
    with serving(second, tmp_path / "two") as address:
        assert address.startswith(port)
        other.goto(address)  # its token lets in the first page as well
        other.wait_for_selector("body.ready")
        page.wait_for_selector("#problem:has-text('Another review is served at this address now')")
        page.wait_for_selector("#status:has-text('nothing was saved')")
        assert list(second.journal) == []
    page.close()
    other.close()


def test_the_file_that_leads_to_the_review_opens_it_once(window, tmp_path):
    """The browser's command line names a file that only its owner can read, and no token."""
    session, opened = open_review(tmp_path / "review", make_review()), []
    stopped = threading.Event()

    def ready(address, file):
        opened.extend([address, file])
        stopped.set()

    thread = threading.Thread(target=serve, args=(session, tmp_path / "review"), kwargs={"port": 8870, "ready": ready})
    server = {}
    config = uvicorn.Server.run

    def run(self, sockets=None):
        server["it"] = self
        self.install_signal_handlers = lambda: None
        config(self, sockets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.Server, "run", run)
        thread.start()
        assert stopped.wait(20)
        file = opened[1]
        assert file.stat().st_mode & 0o077 == 0
        contexts = [window[0].context.browser.new_context() for _ in range(2)]
        first, second = (context.new_page() for context in contexts)
        first.goto(file.as_uri())
        first.wait_for_selector("body.ready")
        assert "token" not in first.url
        second.goto(file.as_uri())
        second.wait_for_selector("h1:has-text('This review is private')")
        for context in contexts:
            context.close()
        server["it"].should_exit = True
        thread.join()
    assert not file.exists()


def test_a_stopped_server_is_said_once_and_no_picture_is_called_missing(window, tmp_path):
    page = window[0].context.new_page()
    folder = tmp_path / "my review"
    with serving(open_review(folder, with_pictures(tmp_path / "pictures")), folder) as address:
        page.goto(address)
        page.wait_for_selector("body.ready")
    page.wait_for_selector(f"""#problem:has-text("Start it again with: manyway review '{folder}'")""")
    page.keyboard.press("z")  # a picture that was not loaded before
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert page.locator("#large-what.missing").count() == 0
    assert page.locator("#problem").inner_text().count("The server") == 1
    page.close()


PLACES = """[...document.querySelectorAll('.item')].map((one) => {
    const { x, y } = one.getBoundingClientRect();
    return [one.id, x, y];
})"""


def test_the_page_stays_where_it_is_until_it_is_sorted_again(open_page):
    review = open_page(height=700)
    page = review.page
    page.locator("#item-1").click()
    before = page.evaluate(PLACES)
    assert not page.locator("#again").is_visible()
    review.press("/", *"fir", "Enter")
    review.settle()
    assert {name: at for name, *at in page.evaluate(PLACES)}.items() >= {name: at for name, *at in before}.items()
    moved = page.locator("#again").inner_text()
    assert int(re.search(r"\d+", moved)[0]) >= 5
    page.locator("#again").click()
    assert not page.locator("#again").is_visible()
    assert page.evaluate(PLACES) != before


def test_a_suggestion_that_nobody_can_have_seen_is_not_confirmed(open_page):
    review = open_page()
    review.page.evaluate("document.body.dataset.just = 1e9")
    review.page.locator("#item-1").click()
    review.press("/", *"fir", "Enter")
    review.settle()
    changed = int(review.page.locator(".item.changed").first.get_attribute("data-row"))
    review.page.locator(f"#item-{changed}").click()
    review.press("Enter", "1")
    assert "has just changed" in review.page.locator("#status").inner_text()
    assert review.session.answers[changed] == OPEN
    review.page.evaluate("document.body.dataset.just = 0")
    review.press("Enter")
    review.settle()
    assert review.answer(changed) == "fir"


def test_arrows_go_on_in_the_enlarged_view(open_page, tmp_path):
    review = open_page(with_pictures(tmp_path / "pictures"))
    order = [int(cell.get_attribute("data-row")) for cell in review.page.locator(".item").all()]
    review.press("z", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert f"photo-{order[1]}.png · " in review.page.locator("#large-name").inner_text()
    review.press("x")
    review.settle()
    assert review.answer(order[1]) == "none"
    assert review.page.locator("#large").is_visible()
    review.press("Escape")
    review.until("document.activeElement.id === 'item-' + document.querySelector('.item.current').dataset.row")


def test_answers_are_given_in_the_enlarged_view_beside_an_example(open_page, tmp_path):
    review = open_page(with_pictures(tmp_path / "pictures"))
    page, first = review.page, review.current()
    suggested = review.session.classes[review.session.best[first][0]]
    review.press("z")
    assert page.locator("#large-example-name").inner_text() == f"Example: 1 · {suggested}"
    review.press(".")
    assert page.locator("#large-strip [aria-pressed=true]").count() == 1
    assert page.locator("#large-strip button").nth(1).get_attribute("aria-pressed") == "true"
    review.press("Enter")  # confirms, and does not close
    review.settle()
    assert (review.answer(first), page.locator("#large").is_visible()) == (suggested, True)
    here = review.current()
    assert f"photo-{here}.png" in page.locator("#large-name").inner_text()
    review.press("n", *"Scots pine", "Enter")
    review.settle()
    assert (review.answer(here), page.locator("#large").is_visible()) == ("Scots pine", True)
    review.press("u")
    review.settle()
    assert review.current() == here
    review.press("Escape")
    page.wait_for_selector(".near .example")
    page.locator(".near .example").nth(2).click()
    label = page.locator(".near .example").nth(2).get_attribute("title").split(",")[0]
    # With a number where it is of a suggested class.
    assert re.fullmatch(rf"Example: (\d · )?{label}", page.locator("#large-example-name").inner_text())
    review.press("z")
    review.until("!document.getElementById('large').open")


def test_an_export_that_fails_looks_like_an_error(open_page, monkeypatch):
    review = open_page()
    page = review.page

    def fail(*given, **options):
        raise InputError("The disk is full.")

    monkeypatch.setattr("manyway.review.export.write_rows", fail)
    review.press("e")
    page.locator("#exports-list button", has_text="labels.csv").click()
    page.wait_for_selector("#exports-said.bad[role=alert]:text-is('The disk is full.')")
    review.press("Escape")
    review.complaints[:] = [text for text in review.complaints if "400 (Bad Request)" not in text]


def camera():
    """Items with what a camera says: two of them seconds apart, and an id for texts."""
    data = make_review()
    times = [f"2024-05-01 10:{row:02d}:00" for row in range(40)]
    times[20] = "2024-05-01 10:05:04"
    carried = {"taken": times, "site": [f"camera {row % 4}" for row in range(40)]}
    return replace(data, items=replace(data.items, carried=carried))


def test_items_are_filtered_by_what_is_known_about_them_and_bursts_stay_together(open_page):
    review = open_page(camera())
    order = [int(cell.get_attribute("data-row")) for cell in review.page.locator(".item").all()]
    assert abs(order.index(5) - order.index(20)) == 1
    assert "camera" in review.page.locator(".about").inner_text()
    review.press("f", *"CAMERA 3")
    assert {int(cell.get_attribute("data-row")) % 4 for cell in review.page.locator(".item").all()} == {3}
    review.page.locator("#filter").fill("no such")
    assert review.page.locator("#nothing").is_visible()
    review.page.locator("#filter").fill("")
    review.page.locator("#sort").select_option("time")
    first = review.page.locator("section").first.locator(".item").all()
    rows = [int(cell.get_attribute("data-row")) for cell in first]
    assert rows == sorted(rows, key=lambda row: review.session.data.columns["taken"][row])


def test_comments_and_the_list_of_classes(open_page):
    review = open_page(with_ids())
    row = review.current()
    assert review.page.locator(f"#item-{row} .id").inner_text() == f"T-{row}"
    review.press("m", *"two animals")
    review.press("Shift+Enter", *"at night", "Enter")  # Enter saves, as in other dialogs; Shift+Enter begins a line
    review.page.locator(f"#item-{row} .says", has_text="✎").wait_for()  # a dialog tells of its end a moment later
    review.settle()
    assert review.session.comments[row] == "two animals\nat night"
    review.press("Enter")
    review.settle()
    review.press("c")
    lines = review.page.locator("#classes-list tr").all()
    rows = {line.locator("th").inner_text(): line.locator("td").all_inner_texts() for line in lines}
    assert sum(int(cells[0]) for cells in rows.values()) == 40
    assert rows[review.answer(row)][1::2] == ["1", "100 %"]
    review.page.locator("#classes-list button:enabled").last.click()
    last = [name for name, cells in rows.items() if cells[0] != "0"][-1]
    assert review.group_of(review.current()) == last


def with_ids():
    data = make_review(TEXTS)
    return replace(data, items=replace(data.items, names=[f"T-{row}" for row in range(40)], texts=list(data.names)))


def test_unknown_is_a_suggestion_like_any_other(open_page):
    review = open_page(make_review(open_set=True))
    review.page.locator("#sort").select_option("unknown")
    row = review.current()
    names = review.page.locator(".suggestions .label").all_inner_texts()
    assert "Unknown" in names
    found = review.session
    share = round(100 * found.unknown[row])
    shown = review.page.locator(".suggestions li").nth(names.index("Unknown")).locator(".p").inner_text()
    assert abs(int(shown.replace("<1", "0")) - share) <= 1
    rows = [int(cell.get_attribute("data-row")) for cell in review.page.locator("section").first.locator(".item").all()]
    assert rows == sorted(rows, key=lambda one: (-round(found.unknown[one], 3), one))
    review.page.keyboard.press(str(names.index("Unknown") + 1))
    review.settle()
    assert review.answer(row) == "none"


def test_groups_of_unknown_items_come_first_where_these_are_asked_for_and_are_named_one_after_another(open_page):
    review = open_page(with_unknown_items())
    found = review.session
    sizes = Counter(group for group in found.groups if group >= 0)
    several = [f"New group {group}" for group, size in sorted(sizes.items()) if size > 1]
    assert len(several) >= 2
    assert review.titles()[: len(several)] != several
    review.page.locator("#sort").select_option("unknown")
    assert review.titles()[: len(several)] == several
    odd = max((row for row in range(40) if found.groups[row] < 0), key=lambda row: found.unknown[row])
    share = int(review.page.locator(f"#item-{odd} .says").inner_text().strip("? %<"))
    assert abs(share - 100 * found.unknown[odd]) <= 1
    alone = [row for row in range(40) if sizes[found.groups[row]] == 1]
    assert {review.group_of(row) for row in alone} <= {"Unknown, each alone"}
    review.press("c")
    expected = round(sum(found.unknown))
    assert f"About {expected} items of 40 are expected to be unknown." in review.page.locator("#classes").inner_text()
    review.press("Escape")
    review.page.locator(".item").last.click()
    review.page.get_by_role("button", name="Name this group").first.click()
    review.press(*"Ginkgo", "Enter")
    review.settle()
    assert review.group_of(review.current()) == several[1]
    moved = [int(cell.get_attribute("data-row")) for cell in review.page.locator(".item.moved").all()]
    assert all(found.chosen(row)[0] != NO_CLASS for row in moved)


def test_a_group_has_one_number_on_the_page_and_in_the_table(open_page, tmp_path):
    review = open_page(with_unknown_items())
    review.page.locator("#sort").select_option("unknown")
    export_labels(review.session, tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="", encoding="utf-8-sig") as file:
        written = [row["group"] for row in csv.DictReader(file)]
    titles = {row: review.group_of(row) for row in range(40)}
    grouped = {row: title for row, title in titles.items() if title.startswith("New group ")}
    assert len(set(grouped.values())) >= 2
    assert grouped == {row: f"New group {written[row]}" for row in grouped}


def test_an_action_that_got_no_answer_is_sent_again_and_done_once(open_page):
    review = open_page()
    # The page itself loses the answer: the server has done the action, and the page does not hear of it.
    review.page.evaluate(
        """() => {
            const fetchOfTheBrowser = window.fetch;
            window.lostAnswers = 0;
            window.fetch = async (path, options) => {
                const response = await fetchOfTheBrowser(path, options);
                if (path !== "/api/actions" || window.lostAnswers > 0) return response;
                window.lostAnswers += 1;
                throw new TypeError("Failed to fetch");
            };
        }"""
    )
    review.press("Enter")
    review.until("window.lostAnswers === 1")
    review.settle()
    assert len(list(review.session.journal)) == 1


def test_names_and_texts_with_markup_are_text(open_page):
    data = make_review()
    texts = [f"{HOSTILE} {n}" for n in range(40)]
    labels = tuple(HOSTILE if label == "fir" else label for label in data.examples.labels)
    examples = Items(data.examples.features, labels, [HOSTILE] * 24)
    review = open_page(ReviewData(examples, Items(data.items.features, None, texts), TEXTS, HOSTILE))
    page = review.page
    assert page.locator("h1").inner_text() == HOSTILE
    row = review.current()
    assert page.locator(f"#item-{row} .face").inner_text() == texts[row]
    page.wait_for_selector(".near li")
    review.press("/", *"alert", "Enter")
    review.settle()
    assert review.answer(row) == HOSTILE
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    page.click("#export")
    assert page.locator("#exports .hint").inner_text() == "Tables are downloaded."  # there are no pictures
    review.press("Escape")


def test_twenty_thousand_items_are_a_few_elements(open_page, monkeypatch):
    n = 20_000
    data = make_review()
    classes, few = Relabel(data)({})

    def repeat(self, known):
        """The suggestions of 40 items over and over: the page is tested here, not the solver."""
        return classes, Solution(few.probabilities.repeat(1, n // 40, 1), few.n_iter, few.converged)

    monkeypatch.setattr(Relabel, "__call__", repeat)
    features = data.items.features[np.arange(n) % 40]
    review = open_page(ReviewData(data.examples, Items(features, None, [f"item {row}" for row in range(n)])))
    page = review.page
    assert page.locator(".item").count() < 400
    height = page.evaluate("document.getElementById('groups').clientHeight")
    assert height > 50_000
    for part in (0.3, 0.8, 0.1):
        page.evaluate(f"document.getElementById('scroll').scrollTop = {int(part * height)}")
        until(
            page,
            """() => {
            const box = document.getElementById('scroll').getBoundingClientRect();
            const at = document.elementFromPoint(box.left + box.width * 0.6, box.top + box.height * 0.5);
            const near = document.elementFromPoint(box.left + box.width * 0.6, box.top + box.height * 0.5 + 40);
            return at?.closest('.item') || near?.closest('.item');
        }""",
        )
        assert page.locator(".item").count() < 600
    review.press("End")
    assert page.locator(".item.current").is_visible()
    assert page.evaluate("document.activeElement.classList.contains('item')")
    review.press("Home", "Enter")
    review.settle()
    assert review.session.progress()["reviewed"] == 1


def test_a_phone_shows_everything_without_scrolling_sideways(open_page, tmp_path):
    review = open_page(with_pictures(tmp_path / "pictures"), width=390, height=780, touch=True)
    page = review.page
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("section .example").first.is_visible()
    page.locator(".item").nth(1).tap()
    row = review.current()
    page.locator(".suggestions button").nth(1).tap()
    review.settle()
    assert review.answer(row) == review.session.classes[review.session.best[row][1]]
    assert page.locator("#panel .main").is_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_is_accessible(open_page, tmp_path, scheme, width):
    data = with_pictures(tmp_path / "pictures", n_items=12)
    taken = [f"2024-05-01 10:00:{row:02d}" for row in range(12)]
    data = replace(data, open_set=True, items=replace(data.items, carried={"taken": taken}))
    review = open_page(data, width=width, scheme=scheme)
    page = review.page
    review.press("Enter", "x")
    review.settle()
    found = list(problems(page))
    review.press("?")
    found += problems(page)
    if scheme == "light":
        review.press("Escape", "/", "o")
        found += problems(page)
        for key in "ecmz":
            review.press("Escape", key)
            found += problems(page)
    review.press("Escape", "d")
    page.wait_for_selector("#check-sheet[open]")
    found += problems(page)
    page.locator("#check-sheet button[value=go]").click()
    review.until("!document.getElementById('checking').hidden")
    found += problems(page)
    assert found == []
    label = page.locator(".item.reviewed").first.get_attribute("aria-label")
    assert re.match(r"photo-\d+\.png: reviewed, ", label)
    assert page.locator("#status").get_attribute("aria-live") == "polite"


def problems(page):
    """What axe finds wrong with a page, in words. Its half megabyte is loaded once."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(axe.Axe().axe_script)
    for violation in page.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)"):
        yield f"{violation['id']}: {[node['html'][:120] for node in violation['nodes'][:3]]}"


LINES = """(name) => {
    const title = [...document.querySelectorAll('section h2')].find((one) => one.textContent === name);
    const range = document.createRange();
    return [...title.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => {
        range.selectNodeContents(node);
        return range.getClientRects().length;
    });
}"""


def test_names_break_between_words_and_show_what_is_invisible(open_page):
    long = "Yellow_bellied_Flycatcher/southern.subspecies"
    names = {"larch": "a\u00a0b", "birch": long}
    data = make_review()
    labels = tuple(names.get(label, label) for label in data.examples.labels)
    review = open_page(replace(data, examples=replace(data.examples, labels=labels)))
    assert {"a[U+00A0]b", long} <= set(review.titles())
    lines = review.page.evaluate(LINES, long)
    assert len(lines) == 5
    assert set(lines) == {1}  # no word is on two lines
    review.page.locator("#item-2").click()
    review.press("Enter")
    review.settle()
    assert review.answer(2) == "a\u00a0b"  # and not what is shown


def test_a_check_is_proposed_when_99_per_cent_are_expected_to_be_right(open_page):
    review = open_page()
    assert "check it" not in review.page.locator("#counts").inner_text()
    doubtful = sorted(range(40), key=lambda row: review.session.chosen(row)[1])[:36]
    review.session.act(Label(rows=tuple(doubtful), labels=tuple(map(truth, doubtful)), key="most"))
    review.settle()
    assert review.session.progress()["right"] >= 0.99
    assert "% right expected: check it" in review.page.locator("#counts").inner_text()


@pytest.mark.skipif("MANYWAY_SCREENSHOTS" not in os.environ, reason="draws the pictures of docs/review.md")
def test_screenshots(open_page):
    folder = Path(os.environ["MANYWAY_SCREENSHOTS"]).absolute()
    review = open_page(demo_data(), width=1280, height=800)
    letters = load_glyphs().class_names
    review.press("Enter", "Enter")
    while sum(was >= 0 for was in review.session.was) < 6:  # until an answer has changed several items
        review.settle()
        row = review.session.order[0]
        letter = letters[int(Path(review.session.data.names[row]).stem) // SAMPLES]
        review.session.act(Label(rows=(row,), labels=(letter,), key=str(row)))
        assert review.session.settled.wait(60)
    review.settle()
    review.page.reload()
    review.page.wait_for_selector("body.ready")
    for _ in range(40):
        if review.page.locator("section:has(.item.current) .changed").count() > 1:
            break
        review.press("]")
    photograph(review.page, folder / "review-page.png")
    review.press("/", *"capital zh")
    photograph(review.page, folder / "review-search.png")
    for name, width, height, scheme in (("phone", 390, 780, "light"), ("dark", 1280, 800, "dark")):
        context = review.page.context.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            storage_state=review.page.context.storage_state(),
        )
        page = context.new_page()
        page.goto(review.page.url)
        page.wait_for_selector("body.ready")
        photograph(page, folder / f"review-{name}.png")
        context.close()


@pytest.mark.skipif("MANYWAY_SCREENSHOTS" not in os.environ, reason="draws a picture of docs/review.md")
def test_screenshot_of_a_group(open_page):
    """Letters of the demonstration, of which three have no examples."""
    data = demo_data()
    letters = load_glyphs().class_names
    in_pile = Counter(letters[int(Path(name).stem) // SAMPLES] for name in data.names)
    strange = {name for name, _ in in_pile.most_common(3)}
    rows = [row for row, label in enumerate(data.examples.labels) if label not in strange]
    examples = replace(
        data.examples,
        features=data.examples.features[rows],
        labels=tuple(data.examples.labels[row] for row in rows),
        names=[data.examples.names[row] for row in rows],
    )
    review = open_page(replace(data, examples=examples, open_set=True), width=1280, height=800)
    review.page.locator("#sort").select_option("unknown")
    review.page.get_by_role("button", name="Name this group").first.click()
    review.until("document.getElementById('search').open")
    review.page.locator("#search-text").focus()
    review.press(*"A letter of mine")
    photograph(review.page, Path(os.environ["MANYWAY_SCREENSHOTS"]).absolute() / "review-group.png")
    review.press("Escape")


def photograph(page, path):
    loaded = """() => [...document.images].every((image) => {
        const box = image.getBoundingClientRect();
        return image.complete || !box.width || box.top > innerHeight || box.bottom < 0 || box.left > innerWidth;
    })"""
    until(page, loaded, seconds=120)
    page.screenshot(path=path)


def test_a_random_check_says_when_one_is_done(open_page):
    review = open_page(make_review(n_items=20))
    page = review.page
    review.press("d")
    page.wait_for_selector("#check-sheet[open]")
    assert "5 %: about" in page.locator("#check-choices").inner_text()
    assert "too early" in page.locator("#check-choices").inner_text()  # labels are expected to be wrong
    assert page.evaluate("document.activeElement.value") == "0.05 all"
    page.locator("#check-choices input[value='0.1 all']").check()
    review.press("Enter")
    review.until("!document.getElementById('checking').hidden")
    page.reload()
    page.wait_for_selector("body.ready")  # the item that the check asks for is the current one again
    while not review.session.progress()["check"]["done"]:
        row = review.session.progress()["check"]["next"]
        review.until(f"document.querySelector('.item.current')?.dataset.row === '{row}'")
        review.press("Enter")
        review.until("!document.body.classList.contains('saving')")
    review.settle()
    said = page.locator("#checking-said").inner_text()
    assert said.startswith("You are done: with 95 % confidence at most")
    page.locator("#check-end").click()
    review.until("document.getElementById('check-end').hidden")
    said = page.locator("#checking-said").inner_text()  # the bound stays until the next answer
    assert re.match(r"The check is over after \d+ answers: with 95 % confidence at most \d+ of the \d+ labels", said)
    review.settle()
    review.press("Enter")
    review.until("document.getElementById('checking').hidden")


def test_a_check_that_is_ended_early_shows_its_bound(open_page):
    review = open_page(make_review(n_items=20))
    page = review.page
    review.press("d")
    page.wait_for_selector("#check-sheet[open]")
    review.press("Enter")
    review.until("!document.getElementById('checking').hidden")
    for _ in range(2):
        row = review.session.progress()["check"]["next"]
        review.until(f"document.querySelector('.item.current')?.dataset.row === '{row}'")
        review.press("Enter")
        review.until("!document.body.classList.contains('saving')")
    assert not review.session.progress()["check"]["done"]
    page.locator("#check-end").click()
    review.until("document.getElementById('check-end').hidden")
    said = page.locator("#checking-said").inner_text()
    assert re.match(r"The check is over after 2 answers: with 95 % confidence at most \d+ of the 18 labels", said)
