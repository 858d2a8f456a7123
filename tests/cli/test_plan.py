"""What a dry run says, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

from manyway.cli.plan import Part, Plan

TEXTS = [Part("known.csv", "examples", 40, classes=3), Part("new.csv", "items", 7)]


def test_people_read_one_line_per_file_and_the_time():
    assert [*Plan(TEXTS, 200.0, "minilm").lines()] == [
        "known.csv: 40 examples of 3 classes",
        "new.csv: 7 items",
        "Encoding with minilm takes about 3 minutes where nothing is kept of an earlier run.",
        "Nothing was labelled or written.",
    ]
    assert [*Plan((), 0.26).lines()] == ["Reading took 0.3 s; nothing was labelled or written."]


def test_programs_read_the_same(run_in_folder):
    Path("sheet.csv").write_text("Art,Nr.,a,b\nant,1,0,0\nant,2,0.1,0\nbee,3,5,5\nbee,4,5.1,5\n,5,5,5\n")
    code, out, err = run_in_folder("label", "sheet.csv", "--dry-run", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(part["what"], part["rows"], part["classes"]) for part in found["plan"]["parts"]] == [
        ("examples", 4, 2),
        ("items", 1, None),
    ]
    assert {part["features"] for part in found["plan"]["parts"]} == {2}
    assert any("label 'Art'" in note for note in found["notes"])
    assert not Path("labels.csv").exists()
