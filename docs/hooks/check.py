"""Check the built site: nothing is loaded from elsewhere, and the pages work in a browser.

    python docs/hooks/check.py site

The browser opens the pages from the disk. Where there is no Chromium or no playwright, this part is skipped with a
message.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PAGES = ("index.html", "gallery/index.html", "gallery/letters.html", "architecture.html", "reference/estimators.html")
WIDTHS = (390, 1360)  # a phone and a screen, in pixels
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc="?(https?:[^"\s>]+)"""
    r"""|<link[^>]*rel="?stylesheet"?[^>]*href="?(https?:[^"\s>]+)"""
)


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Scripts, styles and images that pages would load over the network."""
    found = []
    for page in sorted(site.rglob("*.html")):
        for match in LOADED.finditer(page.read_text(encoding="utf-8")):
            found.append(f"{page.relative_to(site)} loads {match[1] or match[2]}")
    return found


def problems_in_browser(site: Path, program: str) -> list[str]:
    """Messages on the console, requests to elsewhere, pages wider than the window, and a search that finds nothing."""
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda message: problems.append(f"{message.location['url']}: {message.text}"))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda request: _note_request(request, problems))
            for name in PAGES:
                page.goto((site / name).as_uri())
                page.wait_for_load_state("load")
                wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if wider > 0:
                    problems.append(f"{name} is {wider} pixels wider than a window of {width}")
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("evidence")
        result = page.locator(".md-search-result__article h1", has_text="Evidence").first
        try:
            result.wait_for(state="attached", timeout=30_000)
        except Exception:
            problems.append("the search does not find 'evidence'")
        browser.close()
    return problems


def _note_request(request: Any, problems: list[str]) -> None:
    if not request.url.startswith(("file:", "data:", "blob:", "about:")):
        problems.append(f"a page requests {request.url}")


def main(site: Path) -> None:
    problems = loaded_from_elsewhere(site)
    program = shutil.which("chromium")
    if program is None or find_spec("playwright") is None:
        print("The site was not opened in a browser: this needs chromium and playwright.")
    else:
        problems += problems_in_browser(site, program)
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"{len(list(site.rglob('*.html')))} pages in {site}: open {site / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
