"""Processes for tests: forks of one that has loaded torch, which takes longer than most tests.

They have not loaded anything of manyway. A test that needs an interpreter as it starts uses ``subprocess``.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import SimpleNamespace

LOADED = ["distributed", "sklearn.base", "torch", "typer"]


def context() -> BaseContext:
    """What starts them. Dask's workers are made by it too."""
    if os.name == "nt":
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(LOADED)
    return found


class Started:
    """A process that runs Python code, as of ``python -c CODE WORDS``; both its streams are read as one."""

    def __init__(self, code: str, *words: object, cwd: object = ".", **environment: str) -> None:
        given = code, [str(word) for word in words], os.path.abspath(cwd), {**os.environ, **environment}
        if os.name == "nt":  # which has no forks
            self.process = _on_windows(*given)
            self.stdout = self.process.stdout
            return
        read, write = context().Pipe(duplex=False)
        self.process = context().Process(target=_run, args=(*given, write))
        self.process.start()
        write.close()
        self.stdout = os.fdopen(os.dup(read.fileno()), encoding="utf-8")
        read.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it has not ended."""
        self.stdout.close()
        self.process.kill()
        self._join()

    def wait(self, timeout: float | None = None) -> int | None:
        self._join(timeout)
        return self.process.returncode if os.name == "nt" else self.process.exitcode

    def _join(self, timeout: float | None = None) -> None:
        (self.process.wait if os.name == "nt" else self.process.join)(timeout)


def run(code: str, *words: object, cwd: object = ".", **environment: str) -> SimpleNamespace:
    """Run code to its end: its ``returncode`` and what it printed."""
    with Started(code, *words, cwd=cwd, **environment) as started:
        printed = started.stdout.read()
        return SimpleNamespace(stdout=printed, returncode=started.wait())


def _on_windows(code: str, words: list[str], folder: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8"}
    environment = {**environment, "PYTHONIOENCODING": "utf-8"}
    return subprocess.Popen([sys.executable, "-c", code, *words], cwd=folder, env=environment, **streams)


def _run(code: str, words: list[str], folder: str, environment: dict[str, str], out: Connection) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream in (1, 2):
        os.dup2(out.fileno(), stream)
    out.close()
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))
    sys.argv = ["-c", *words]
    exec(code, {"__name__": "__main__"})
