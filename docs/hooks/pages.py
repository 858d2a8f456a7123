"""What mkdocs does not do by itself: executed pages, diagrams, the command line, links that also work on GitHub.

- Scripts in docs/gallery and pages in docs/tutorials are executed; what they print and draw is shown below the code.
- A link to a script of the gallery leads to its page, a link to CONTRIBUTING.md or CHANGELOG.md to a copy of it.
- Diagrams in the language of mermaid become drawings, so that no script is loaded from elsewhere.

Anything that fails stops the build. Results of scripts and tutorials are kept in .cache/docs; they are run again when
their source or the package has changed.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

HOOKS = Path(__file__).parent
ROOT = HOOKS.parents[1]
CACHE = ROOT / ".cache" / "docs"  # what scripts and tutorials printed and drew
sys.path.insert(0, str(HOOKS))

from commands import command_reference  # noqa: E402
from diagrams import draw  # noqa: E402

COPIES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
FIRST_IN_SEARCH = ("evidence.md", "labelling.md", "which-method.md", "tutorials/label-a-pile.md")
HIDDEN = {"index.md": ["navigation", "toc"], "gallery/README.md": ["toc"]}  # what pages do not show at their sides
AT_ONCE = 2  # scripts that run at the same time
_executed: dict[str, dict[str, Any]] = {}  # by source file: the title, the summary, the text and the figures of a page


def on_files(files: Files, config: Any) -> Files:
    """Execute scripts and tutorials, and add the pages that have no file of their own below docs/."""
    scripts = sorted(f.src_uri for f in files if re.fullmatch(r"gallery/[\w-]+\.py", f.src_uri))
    tutorials = sorted(f.src_uri for f in files if re.fullmatch(r"tutorials/(?!README)[\w-]+\.md", f.src_uri))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for source, page in zip(scripts + tutorials, pool.map(_execute, scripts + tutorials), strict=True):
            _executed[source] = page
            for name, content in page["figures"].items():
                files.append(File.generated(config, f"{posixpath.dirname(source)}/{name}", content=content))
    for source in scripts:
        note = f'<p class="download"><a href="{posixpath.basename(source)}" download>Download this script</a></p>\n'
        page = _executed[source]
        content = f"# {page['title']}\n\n{page['text']}\n{note}"
        files.append(File.generated(config, source.removesuffix(".py") + ".md", content=content))
    for name, place in COPIES.items():
        if name != "README.md":
            files.append(File.generated(config, place, content=_copied((ROOT / name).read_text(encoding="utf-8"))))
    icon = ROOT / "src/manyway/review/static/icon.svg"
    files.append(File.generated(config, "assets/icon.svg", abs_src_path=str(icon)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in what was executed, the gallery, the command line and the diagrams, and adjust links."""
    uri = page.file.src_uri
    page.meta["hide"] = HIDDEN.get(uri, [])
    if uri in FIRST_IN_SEARCH:
        page.meta["search"] = {"boost": 2}
    if uri.startswith("tutorials/") and uri in _executed:
        markdown = _executed[uri]["text"]
    if uri == "gallery/README.md":
        markdown = re.sub(r"^- \[[^\]]*\]\(([\w-]+\.py)\):.*(?:\n  .*)*\n", _card, markdown, flags=re.M)
        markdown = re.sub(r"((?:<a class=\"card\".*</a>\n)+)", r'<div class="cards">\n\1</div>\n', markdown)
    markdown = markdown.replace("<!-- commands -->", command_reference() if "<!-- commands -->" in markdown else "")
    markdown = re.sub(r"^```mermaid\n(.*?)^```$", lambda found: draw(found[1]), markdown, flags=re.M | re.S)
    return re.sub(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)", lambda found: _link(found, posixpath.dirname(uri)), markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Refuse a page on which a table or a block of code was not recognised."""
    text = re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.S)
    for mark in ("|---", "|:--", "```"):
        if mark in text:
            place = text.index(mark)
            raise PluginError(
                f"{page.file.src_uri}: '{mark}' was not understood: {text[max(0, place - 80) : place + 80]}"
            )
    return html


def _execute(source: str) -> dict[str, Any]:
    """Run a script or a tutorial in a process of its own, unless it was run before with the same code."""
    folder = CACHE / f"{Path(source).stem}-{_fingerprint(source)}"
    if not (folder / "page.json").exists():
        for older in CACHE.glob(f"{Path(source).stem}-{'?' * 16}"):
            shutil.rmtree(older)
        folder.mkdir(parents=True)
        command = [sys.executable, str(HOOKS / "execute.py"), str(ROOT / "docs" / source), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
        if done.returncode != 0:
            raise PluginError(f"docs/{source} failed:\n{done.stdout}{done.stderr}")
    found = json.loads((folder / "page.json").read_text(encoding="utf-8"))
    return {**found, "figures": {name: (folder / name).read_bytes() for name in found["figures"]}}


def _fingerprint(source: str) -> str:
    """A hash of what the output of a page depends on: its source, the code that runs it, and the package."""
    files = [ROOT / "docs" / source, HOOKS / "execute.py", *sorted((ROOT / "src").rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _copied(text: str) -> str:
    """A page from the root of the repository, with links to pages of the site only."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if target.startswith("docs/"):
            return f"[{words}]({target.removeprefix('docs/')})"
        on_site = target.startswith(("https:", "#")) or target.partition("#")[0] in COPIES
        return found[0] if on_site else words

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def _card(found: re.Match[str]) -> str:
    """A script as a card with its first figure."""
    page = _executed[f"gallery/{found[1]}"]
    picture = next(iter(page["figures"]), None)
    image = f'<img src="{picture}" alt="" loading="lazy">' if picture else ""
    target = found[1].replace(".py", ".html")
    summary = re.sub(r"`([^`]*)`", r"<code>\1</code>", page["summary"])
    return f'<a class="card" href="{target}">{image}<b>{page["title"]}</b><span>{summary}</span></a>\n'


def _link(found: re.Match[str], folder: str) -> str:
    """Where a relative link leads on the site; on GitHub it leads to the file."""
    target = posixpath.normpath(posixpath.join(folder, found[1]))
    if target.startswith("gallery/") and target.endswith(".py"):
        target = target.replace(".py", ".md")
    elif target.startswith("../") and target[3:] in COPIES:
        target = COPIES[target[3:]]
    elif not folder and target in COPIES and not (ROOT / "docs" / target).exists():  # in a copied page
        target = COPIES[target]
    else:
        return found[0]
    return f"]({posixpath.relpath(target, folder or '.')}{found[2] or ''})"
