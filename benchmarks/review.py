"""A simulated reviewer: the accuracy of the labels against the number of items that a person has looked at.

    python -m benchmarks.review [KEY…] [--data DATA] [--tasks 100] [--actions 30] [--device cuda] [--plot FILE]

Four ways of working are compared on the same tasks (100 items, 5 examples per class). ``fixed``: nothing is labelled
again, the most doubtful item is next. ``appended``: items with a known label become further examples.
``appended-near``: the same, and the item whose near items are most in doubt is next. ``known``: ``infer(…, known=…)``,
and the first item of ``review_order`` is next.

Without keys the embedded letters are used. Prints Markdown: accuracies in per cent, the number of actions after which
the mean accuracy is 95 %, and the paired differences of ``known`` to the other ways with their 95 % intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import show
from manyway import TaskSpec
from manyway.bench.data import find_features
from manyway.data.files import atomic_write
from manyway.errors import optional
from manyway.evaluation.review import WAYS, Reviewed, review

_SHOWN = (0, 5, 10, 20, 30)  # actions, in the tables
_TARGET = 0.95
Curves = Mapping[tuple[str, int], Mapping[str, Reviewed]]  # (key, K_eff) -> way -> outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="*", default=["glyphs"], help="feature sets: keys in DATA, or glyphs")
    parser.add_argument("--data", type=Path, help="folder with the features")
    parser.add_argument("--k-eff", type=int, nargs="+", default=[5, 10], help="numbers of classes that occur")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--actions", type=int, default=30)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plot", type=Path, help="draw accuracy against actions into this file")
    options = parser.parse_args()
    curves: dict[tuple[str, int], dict[str, Reviewed]] = {}
    for key in options.keys:
        features = find_features(key, options.data).to(options.device)
        for k_eff in options.k_eff:
            spec = TaskSpec(shots=5, k_eff=k_eff, n_query=options.items)
            curves[key, k_eff] = {
                way: review(way, features, spec, options.tasks, options.actions) for way in options.ways
            }
    shown = [actions for actions in _SHOWN if actions <= options.actions]
    show(
        "Accuracy after a number of actions",
        ["features", "K_eff", "way", *map(str, shown), "actions to 95 %"],
        [
            [key, k_eff, way, *(f"{100 * one.accuracy(a).mean:.1f}" for a in shown), _reached(one)]
            for (key, k_eff), of in curves.items()
            for way, one in of.items()
        ],
    )
    show(
        "`known` minus the other ways, in points",
        ["features", "K_eff", "way", *map(str, shown[1:])],
        _gains(curves, shown[1:]),
    )
    if options.plot is not None:
        draw(curves, options.plot)


def _reached(one: Reviewed) -> str:
    actions = one.actions_to(_TARGET)
    return f"more than {one.correct.shape[1] - 1}" if actions is None else str(actions)


def _gains(curves: Curves, shown: Sequence[int]) -> list[list[object]]:
    rows: list[list[object]] = []
    for (key, k_eff), of in curves.items():
        for way, other in of.items():
            if way != "known" and "known" in of:
                gains = [of["known"].gain(other, actions) for actions in shown]
                rows.append([key, k_eff, way, *(f"{100 * gain.mean:+.1f} ± {100 * gain.half:.1f}" for gain in gains)])
    return rows


def draw(curves: Curves, path: Path) -> None:
    """Accuracy against actions, one panel per set and K_eff."""
    optional("matplotlib", "plot", "--plot")
    from matplotlib.figure import Figure

    keys, numbers = (list(dict.fromkeys(values)) for values in zip(*curves, strict=True))
    figure = Figure(figsize=(3.2 * len(keys), 2.6 * len(numbers)), layout="constrained")
    panels = figure.subplots(len(numbers), len(keys), squeeze=False, sharex=True)
    for (key, k_eff), of in curves.items():
        panel = panels[numbers.index(k_eff), keys.index(key)]
        for way, one in of.items():
            panel.plot(100 * one.correct.mean(0) / one.n_query, label=way, linewidth=2 if way == "known" else 1.2)
        panel.axhline(100 * _TARGET, color="0.7", linewidth=0.8)
        panel.set_title(f"{key}, K_eff = {k_eff}", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    for row in panels:
        row[0].set_ylabel("accuracy in %")
    for panel in panels[-1]:
        panel.set_xlabel("actions")
    panels[0, 0].legend(frameon=False, fontsize=8)
    with atomic_write(path) as part:
        figure.savefig(part, format=path.suffix.removeprefix(".") or "png", dpi=120)


if __name__ == "__main__":
    main()
