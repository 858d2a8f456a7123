"""A headless Chromium for tests of HTML pages, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
_ARGUMENTS += ["--disable-sync", "--no-first-run"]


@contextmanager
def open_browser() -> Iterator[Any]:
    """A browser (``playwright.sync_api.Browser``); the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium on the path (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()
