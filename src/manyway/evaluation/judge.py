"""Whether a change of labels is an improvement: what it corrects and what it makes worse, on verified items."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from manyway.evaluation.statistics import LEVEL

Labels = Mapping[str, str]  # by item


@dataclass(frozen=True)
class Change:
    """What a change of labels does to some verified items.

    Parameters
    ----------
    name : str
        A rank of the taxonomy, or a class.
    n_items : int
    right_before, right_after : int
        The numbers of right labels.
    corrected, worse : int
        The numbers of labels that became right, and that became wrong.
    moved : int
        The number of wrong labels that became other wrong labels.
    """

    name: str
    n_items: int
    right_before: int
    right_after: int
    corrected: int
    worse: int
    moved: int

    @property
    def unchanged(self) -> int:
        """The number of labels that are as right, or as wrong, as before."""
        return self.n_items - self.corrected - self.worse

    @property
    def difference(self) -> tuple[float, float, float]:
        """The difference of the accuracies, and its 95 % interval.

        The items are pairs. With b of n corrected and c made worse, the interval of (b − c)/n is that of Wald after
        half an item is added to each of the four cells (Agresti and Min, Statistics in Medicine 24, 2005), so that it
        holds for a few items too.
        """
        n, b, c = self.n_items + 2, self.corrected + 0.5, self.worse + 0.5
        half = NormalDist().inv_cdf(0.5 + LEVEL / 2) * sqrt(b + c - (b - c) ** 2 / n) / n
        return (self.corrected - self.worse) / self.n_items, max((b - c) / n - half, -1.0), min((b - c) / n + half, 1.0)


def judge(before: Labels, after: Labels, truth: Labels, groups: Labels | None = None) -> list[Change]:
    """Compare two labels of each item with the true one.

    Parameters
    ----------
    before, after : mapping of str to str
        item -> label; an item without an answer is missing, or has the label ''.
    truth : mapping of str to str
        item -> true label, for the items that are judged.
    groups : mapping of str to str, optional
        class -> group. Labels are then right if their group is; items whose true class has no group are left out.

    Returns
    -------
    list of Change
        All items (named ''), and each true class, those with most items first.

    Examples
    --------
    >>> all_items, *of_classes = judge({"a": "fox", "b": "dog"}, {"a": "dog", "b": "dog"}, {"a": "dog", "b": "dog"})
    >>> all_items.corrected, all_items.worse, all_items.unchanged
    (1, 0, 1)
    """

    def shown(label: str) -> str:
        name = label.strip().casefold()
        return name if groups is None else known.get(name, name if name in known.values() else "")

    known = {name.casefold(): group.casefold() for name, group in (groups or {}).items()}
    counts: dict[str, list[int]] = {"": [0] * 6}
    for item, label in truth.items():
        true, old, new = shown(label), shown(before.get(item, "")), shown(after.get(item, ""))
        if not true:
            continue
        was, now = old == true, new == true
        row = (1, was, now, now and not was, was and not now, not was and not now and old != new)
        for name in ("", label.strip()):
            counts[name] = [a + b for a, b in zip(counts.get(name, [0] * 6), row, strict=True)]
    everything = Change("", *counts.pop(""))
    found = [Change(name, *count) for name, count in counts.items()]
    return [everything, *sorted(found, key=lambda one: (-one.n_items, one.name))]
