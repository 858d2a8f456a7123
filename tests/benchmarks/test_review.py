"""The benchmark of reviewing prints its tables and draws its plot."""

from __future__ import annotations

import sys

from benchmarks import review


def test_tables_and_plot(monkeypatch, capsys, tmp_path):
    arguments = ["--tasks", "2", "--actions", "1", "--items", "10", "--k-eff", "3", "--ways", "known", "fixed"]
    monkeypatch.setattr(sys, "argv", ["review", *arguments, "--plot", str(tmp_path / "plot.png")])
    review.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| features | K_eff | way | 0 | actions to 95 % |" in lines
    assert any(line.startswith("| glyphs | 3 | known |") for line in lines)
    assert (tmp_path / "plot.png").stat().st_size > 0
