"""Run the commands that stand on the results pages, so that ``benchmarks.results`` can fill their tables.

    python -m benchmarks.pages DATA RESULTS [PAGE ...] [--at-once 1] [--list]

PAGE is the name of a page, such as ``shift``; without one, the commands of all pages are run. DATA is the folder with
``features/``, and RESULTS the folder that keeps what the commands find: a suite that was stopped goes on where it was.
Commands of one page run one after another. With ``--at-once`` those of several pages run side by side, which lengthens
the times on the pages about speed: run these alone. What a command prints is in RESULTS/logs. ``--list`` runs nothing.

A command is a line of a code block that makes results: ``manyway bench``, ``tune``, ``train`` and ``extract``,
``make run``, and the benchmarks of this folder. It is run as it stands, with DATA and RESULTS in their places.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MAKE_RESULTS = ("bench", "tune", "train", "extract")
KEEP_RESULTS = ("bench", "tune")  # these are told where
FROM_RESULTS = ("results", "figures", "readme_figure")  # benchmarks that only show what others found
SHORT_FORMS = {"make run": "manyway bench quickstart"}


@dataclass(frozen=True)
class Command:
    """A line of a page."""

    page: str
    line: str

    def words(self, data: Path, results: Path) -> list[str]:
        """What is run."""
        filled = [word.replace("DATA", str(data)) for word in shlex.split(self.line)]
        words = [word.replace("RESULTS", str(results)) for word in filled if not _is_setting(word)]
        if words[0] == "python":
            return [sys.executable, *words[1:]]
        kept = ["--results", str(results)] if words[1] in KEEP_RESULTS else []
        return [sys.executable, "-m", *words, *kept]

    def settings(self) -> dict[str, str]:
        """The variables before it, such as OMP_NUM_THREADS=1."""
        return dict(word.split("=", 1) for word in shlex.split(self.line) if _is_setting(word))


def _is_setting(word: str) -> bool:
    return re.fullmatch(r"[A-Z_]+=.*", word) is not None


def commands_of(page: Path) -> list[Command]:
    """The commands of a page that make results, in their order."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    lines = [SHORT_FORMS.get(line, line) for line in lines]
    return [Command(page.stem, line) for line in lines if _makes_results(line)]


def _makes_results(line: str) -> bool:
    """Whether running a line of a code block finds something that a page shows.

    >>> _makes_results("OMP_NUM_THREADS=1 python -m benchmarks.gpu compare")
    True
    >>> _makes_results("manyway table evidence-study")
    False
    """
    words = [word for word in line.split() if not _is_setting(word)]
    if words[:2] == ["python", "-m"] and words[2].startswith("benchmarks."):
        return words[2].removeprefix("benchmarks.") not in FROM_RESULTS
    return len(words) > 1 and words[0] == "manyway" and words[1] in MAKE_RESULTS


def each_once(commands: Sequence[Command]) -> Iterator[Command]:
    """Every line once, where it stands first: some pages show different tables of one run."""
    seen: set[str] = set()
    for command in commands:
        if command.line not in seen:
            seen.add(command.line)
            yield command


def run_page(commands: Sequence[Command], data: Path, results: Path) -> list[str]:
    """Run the commands of one page; gives a sentence for each that failed."""
    failures = []
    for command in commands:
        log = results / "logs" / f"{command.page}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **command.settings(), "MANYWAY_RESULTS": str(results)}
        begin = time.monotonic()
        with log.open("a", encoding="utf-8") as out:
            print(f"$ {command.line}", file=out, flush=True)
            ended = subprocess.run(command.words(data, results), stdout=out, stderr=out, env=environment)
        minutes = (time.monotonic() - begin) / 60
        words = "done" if ended.returncode == 0 else f"FAILED with exit code {ended.returncode}"
        print(f"{command.page}: {words} after {minutes:.1f} min: {command.line}", flush=True)
        if ended.returncode != 0:
            failures.append(f"{command.line} failed; {log} says why.")
    return failures


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with features/")
    parser.add_argument("results", type=Path, help="the folder that keeps what the commands find")
    parser.add_argument("names", nargs="*", metavar="PAGE", help="pages; default: all")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="default: %(default)s")
    parser.add_argument("--at-once", type=int, default=1, help="how many pages run side by side; default: 1")
    parser.add_argument("--list", action="store_true", help="only list the commands")
    options = parser.parse_args(words)
    known = {page.stem: page for page in sorted(options.pages.glob("*.md"))}
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"there is no page {', '.join(unknown)}; choose from {', '.join(known)}")
    wanted = [known[name] for name in options.names or known]
    commands = list(each_once([command for page in wanted for command in commands_of(page)]))
    if options.list:
        print("\n".join(f"{command.page}: {command.line}" for command in commands))
        return 0
    by_page = [[command for command in commands if command.page == page.stem] for page in wanted]
    with ThreadPoolExecutor(options.at_once) as pool:
        runs = [pool.submit(run_page, some, options.data.resolve(), options.results.resolve()) for some in by_page]
    failures = [failure for run in runs for failure in run.result()]
    print("\n".join([*failures, f"{len(commands) - len(failures)} of {len(commands)} commands ran to their end."]))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
