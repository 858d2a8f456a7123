"""What the tests of the command line share."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from manyway.cli import main


@pytest.fixture
def run_in_folder(tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Run a command in an empty folder; gives its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyway", *words])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(autouse=True)
def _quick(quick_evidence) -> None:
    """What evidence answers is asked elsewhere."""
