"""The diagram and the paragraphs of docs/architecture.md equal the rooms that tests/test_architecture.py enforces."""

from __future__ import annotations

import re
from pathlib import Path

from test_architecture import ROOMS

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")


def top_rooms(rooms: dict[str, set[str]]) -> dict[str, set[str]]:
    """The rooms without their inner rooms; imports of an inner room count for the outer one."""
    outer: dict[str, set[str]] = {}
    for room, imports in rooms.items():
        name = room.split(".")[0]
        outer.setdefault(name, set()).update(other.split(".")[0] for other in imports)
    return {name: imports - {name} for name, imports in outer.items()}


def direct(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows of a graph without circles that do not follow from other arrows."""

    def reached(name: str) -> set[str]:
        return set().union(*({other} | reached(other) for other in graph[name]))

    return {
        (name, other)
        for name, others in graph.items()
        for other in others
        if not any(other in reached(between) for between in others - {other})
    }


def test_the_diagram_shows_the_arrows_that_do_not_follow_from_others():
    block = re.search(r"```mermaid\n(.*?)```", PAGE, flags=re.S)[1]
    arrows = re.findall(r"^\s*(\w+) --> (\w+)$", block, flags=re.M)
    assert len(arrows) == len(block.strip().splitlines()) - 1  # every line after the first is an arrow
    assert sorted(arrows) == sorted(direct(top_rooms(ROOMS)))


def test_every_room_has_a_paragraph_with_all_its_imports():
    sections = re.findall(r"^### (\w+)\n\n.*?\*Imports: ([^*]*)\.\*$", PAGE, flags=re.M | re.S)
    described = {name: set() if imports == "nothing" else set(imports.split(", ")) for name, imports in sections}
    assert described == top_rooms(ROOMS)


def test_arrows_that_follow_from_others_are_left_out():
    assert direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {("a", "b"), ("b", "c")}
