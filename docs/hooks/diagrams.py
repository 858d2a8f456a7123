"""Diagrams in the language of mermaid as drawings: ``graph TD`` with one arrow ``a --> b`` per line.

mermaid itself is three megabytes of JavaScript that would have to be loaded from elsewhere or kept here.
"""

from __future__ import annotations

import re
from itertools import pairwise

WIDE, HIGH, GAP_X, GAP_Y = 118, 34, 22, 46


def draw(source: str) -> str:
    """An SVG drawing of a diagram: each name one row below the lowest name that has an arrow to it."""
    first, *lines = source.strip().splitlines()
    arrows = [re.fullmatch(r"\s*(\w+) --> (\w+)\s*", line) for line in lines]
    if first.strip() != "graph TD" or not all(arrows):
        raise ValueError(f"A diagram is 'graph TD' and lines 'a --> b'; this is not: {source}")
    edges = [(arrow[1], arrow[2]) for arrow in arrows if arrow]
    depth = _depths(edges)
    paths = [_path(edge, depth) for edge in edges]
    rows = _rows(paths, depth)
    width = max(len(row) for row in rows) * (WIDE + GAP_X) - GAP_X
    place = {}
    for i, row in enumerate(rows):
        left = (width - len(row) * (WIDE + GAP_X) + GAP_X) / 2
        for j, name in enumerate(row):
            place[name] = (left + j * (WIDE + GAP_X) + WIDE / 2, i * (HIGH + GAP_Y) + HIGH / 2)
    height = len(rows) * (HIGH + GAP_Y) - GAP_Y
    parts = [_arrow([place[name] for name in path]) for path in paths] + [_box(name, *place[name]) for name in depth]
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    )
    marker += '<path d="M0 0L8 4L0 8z"/></marker></defs>'
    label = "Diagram: " + ", ".join(f"{a} to {b}" for a, b in edges)
    box = f'viewBox="-2 -2 {width + 4:.0f} {height + 4:.0f}" style="max-width: {width + 4:.0f}px"'
    return f'<svg class="diagram" role="img" aria-label="{label}" {box}>{marker}{"".join(parts)}</svg>'


def _depths(edges: list[tuple[str, str]]) -> dict[str, int]:
    """The row of each name; a name without an arrow to it stands just above its first target."""
    depth = dict.fromkeys((name for edge in edges for name in edge), 0)
    for _ in depth:
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    if max(depth.values()) >= len(depth):
        raise ValueError("A diagram has a circle.")
    for name in depth.keys() - {b for _, b in edges}:
        depth[name] = min(depth[b] for a, b in edges if a == name) - 1
    return depth


def _path(edge: tuple[str, str], depth: dict[str, int]) -> list[str]:
    """The names on the way of an arrow: its ends, and an empty place in every row that it crosses."""
    a, b = edge
    return [a, *(f"{a} {i} {b}" for i in range(depth[a] + 1, depth[b])), b]


def _rows(paths: list[list[str]], depth: dict[str, int]) -> list[list[str]]:
    """Names and empty places by row; within a row in the order of the mean place of those with an arrow to them."""
    row_of = {name: depth[path[0]] + i for path in paths for i, name in enumerate(path)}
    rows = [[name for name in row_of if row_of[name] == i] for i in range(max(row_of.values()) + 1)]
    for above, row in pairwise(rows):
        place = {name: (j + 0.5) / len(above) for j, name in enumerate(above)}
        mean = {}
        for name in row:
            found = [place[a] for path in paths for a, b in pairwise(path) if b == name]
            mean[name] = sum(found) / len(found) if found else 1.0
        row.sort(key=mean.__getitem__)
    return rows


def _arrow(points: list[tuple[float, float]]) -> str:
    """A curve from the lower edge of the first box through empty places to the upper edge of the last."""
    (x, y), line = points[0], ""
    y += HIGH / 2
    line = f"M{x:.0f} {y:.0f}"
    for i, (to_x, middle) in enumerate(points[1:], 1):
        to_y = middle - HIGH / 2 - (i == len(points) - 1)
        line += f"C{x:.0f} {y + GAP_Y / 2:.0f} {to_x:.0f} {to_y - GAP_Y / 2:.0f} {to_x:.0f} {to_y:.0f}"
        if i < len(points) - 1:
            line += f"V{middle + HIGH / 2:.0f}"
        x, y = to_x, middle + HIGH / 2
    return f'<path d="{line}"/>'


def _box(name: str, x: float, y: float) -> str:
    corner = f'x="{x - WIDE / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{WIDE}" height="{HIGH}" rx="7"'
    return f'<rect {corner}/><text x="{x:.0f}" y="{y + 4.5:.0f}" text-anchor="middle">{name}</text>'
