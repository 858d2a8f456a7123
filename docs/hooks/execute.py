"""Run a script of the gallery or a tutorial, and write a page with what it printed and drew.

    python docs/hooks/execute.py SOURCE FOLDER

A script is cut at lines ``# %%``; the comment after such a line is the text of the page. Its docstring is the title and
the introduction. On a tutorial (.md) every block ``python`` is executed, and every line ``$ …`` of a block ``console``.
All blocks of a page share their names and one working folder. FOLDER gets ``page.json`` and the figures.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

STYLE = {
    "axes.grid": False,
    "axes.prop_cycle": mpl.cycler(color=["#1f6f5f", "#d98a2b", "#7a4fa3", "#3f7fbf", "#8d2f1d", "#7d868f"]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "image.cmap": "gray",
    "savefig.dpi": 160,
}
LONGEST = 60  # lines of output that a page shows


def script_cells(source: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Title, introduction and cells (text, code) of a script."""
    title, _, introduction = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    body = source.split('"""', 2)[2]
    first, *others = re.split(r"^# %%\s*\n", body, flags=re.M)
    cells = [("", first)]
    for cell in others:
        text = re.match(r"(?:#.*\n)*", cell)[0]
        cells.append((re.sub(r"^# ?", "", text, flags=re.M), cell[len(text) :]))
    return title.rstrip("."), introduction.strip(), cells


def captured(work: Any) -> str:
    """What a function prints, with the processes that it starts; an exception is passed on."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as stream:
        saved = [os.dup(1), os.dup(2)]
        try:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            work()
        finally:
            sys.stdout.flush()
            for number, descriptor in zip((1, 2), saved, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
            stream.seek(0)
            printed = stream.read().decode("utf-8", errors="replace")
            if sys.exc_info()[0] is not None:
                print(printed)  # what a command said before it failed
        return printed


class Runner:
    """Executes the code of one page."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.figures: list[str] = []

    def python(self, code: str) -> str:
        """Execute Python; returns Markdown with what it printed and the figures that it drew."""
        parts = []
        printed = captured(lambda: exec(compile(code, f"{self.name}", "exec"), self.names))
        if printed.strip():
            parts.append(output(printed))
        for number in plt.get_fignums():
            figure = plt.figure(number)
            name = f"{self.name}-{len(self.figures) + 1}.png"
            figure.savefig(self.folder / name)
            alt = figure.get_label() or f"Figure {len(self.figures) + 1}"
            parts.append(f"![{alt}]({name}){{ .figure }}\n")
            self.figures.append(name)
        plt.close("all")
        return "\n".join(parts)

    def console(self, block: str) -> str:
        """Run the commands of a block; returns the block with what they printed."""
        shown = []
        for line in block.splitlines():
            if not line.startswith("$ "):
                raise ValueError(f"a block 'console' has commands only, each after '$ '; this is none: {line}")
            printed = captured(lambda command=line[2:]: subprocess.run(["bash", "-ec", command], check=True))
            shown.append(f"{line}\n{cut(printed)}")
        return "```console\n" + "".join(shown) + "```\n"


def cut(printed: str) -> str:
    """Output without progress bars and trailing blanks, of at most LONGEST lines."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines() if "━" not in line]
    if len(lines) > LONGEST:
        lines = [*lines[: LONGEST - 1], f"… {len(lines) - LONGEST + 1} more lines"]
    return "".join(f"{line}\n" for line in lines)


def output(printed: str) -> str:
    return f'<div class="output" markdown="1">\n\n```text\n{cut(printed)}```\n\n</div>\n'


def script_page(source: str, runner: Runner) -> dict[str, Any]:
    title, introduction, cells = script_cells(source)
    parts = [introduction + "\n"]
    for text, code in cells:
        parts.append(text)
        if code.strip():
            parts.append(f"```python\n{code.strip()}\n```\n")
            parts.append(runner.python(code))
    summary = " ".join(introduction.split("\n\n")[0].split())
    return {"title": title, "summary": summary, "text": "\n".join(parts)}


def tutorial_page(source: str, runner: Runner) -> dict[str, Any]:
    def block(found: re.Match[str]) -> str:
        if found[1] == "console":
            return runner.console(found[2])
        return f"{found[0]}\n{runner.python(found[2])}"

    text = re.sub(r"^```(python|console)\n(.*?)^```\n", block, source, flags=re.M | re.S)
    return {"title": "", "summary": "", "text": text}


def main(path: Path, folder: Path) -> None:
    mpl.use("Agg")
    mpl.rcParams.update(STYLE)
    warnings.simplefilter("error", SyntaxWarning)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the command manyway
    os.environ.update(COLUMNS="100", NO_COLOR="1", PYTHONIOENCODING="utf-8", MANYWAY_CACHE=".cache")
    source = path.read_text(encoding="utf-8")
    runner = Runner(path.stem, folder.resolve())
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        try:
            page = script_page(source, runner) if path.suffix == ".py" else tutorial_page(source, runner)
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None
        finally:
            os.chdir(folder)
    page["figures"] = runner.figures
    (runner.folder / "page.json").write_text(json.dumps(page), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
