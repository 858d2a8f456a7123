"""The short table of unknown queries is made of the long one."""

from __future__ import annotations

from benchmarks.unknown import HEADER, SHORT, short_table


def row(name: str, shots: str, **figures: str) -> list[str]:
    """A row of the long table; what is not given is 0.0."""
    return [name, shots, *(figures.get(column.replace(" ", "_"), "0.0") for column in HEADER[2:])]


def test_several_numbers_of_examples_stand_side_by_side():
    few = row("letters", "5", evidence="93.2", gap="1.4", open="80.0", closed="79.5")
    many = row("letters", "20", evidence="94.5", gap="1.1", open="79.0", closed="79.4")
    (found,) = short_table([few, many], ["5", "20"])
    assert dict(zip(["set", *SHORT, "gain"], found, strict=True)) == {
        **dict.fromkeys(SHORT, "0.0/0.0"),
        "set": "letters",
        "evidence": "93.2/94.5",
        "gap": "1.4/1.1",
        "gain": "+0.5/-0.4",
    }


def test_numbers_of_examples_that_are_not_asked_for_are_left_out():
    rows = [row("letters", "5"), row("letters", "1"), row("all", "5"), row("all", "1")]
    assert [found[:2] for found in short_table(rows, ["5"])] == [["letters", "0.0"], ["all", "0.0"]]
