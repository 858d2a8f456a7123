"""Run `manyway label` on files of other programs."""

from __future__ import annotations

import pytest

from manyway.cli import main


@pytest.fixture
def label(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder; gives what it printed, or the one sentence with which it stopped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> str:
        monkeypatch.setattr("sys.argv", ["manyway", "label", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        if code:
            assert code == 2, err
            return err.splitlines()[-1]
        return out + err

    return run
