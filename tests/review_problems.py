"""A small review for the tests: eight classes, three examples each, and 40 items of three of them.

Item 1 is a fir that is taken for another tree, and so are other firs: its correction repairs them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from problems import make_features

from manyway.files.items import Items
from manyway.review.data import NAMES, PICTURES, ReviewData

CLASSES = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak")
PRESENT = (1, 4, 6)
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"&{{7*7}}"


def make_review(kind: str = NAMES, n_items: int = 40, **changes: object) -> ReviewData:
    """Examples and items in turn of the classes in PRESENT; ``changes`` are fields of ReviewData."""
    per_class = 3 + -(-n_items // len(PRESENT))
    features = make_features(n_classes=len(CLASSES), per_class=per_class, n_features=5, seed=7)
    rows = features.labels.argsort(stable=True).view(len(CLASSES), per_class)
    known = rows[:, :3].flatten()
    pile = rows[list(PRESENT), 3:].T.flatten()[:n_items]
    labels = tuple(label for label in CLASSES for _ in range(3))
    examples = Items(features.features[known], labels, [f"{label}-{n}.png" for n, label in enumerate(labels)])
    items = Items(features.features[pile], None, [f"photo-{n}.png" for n in range(n_items)])
    fields = {"kind": kind, "title": "Trees", **changes}
    return ReviewData(examples, items, **fields)  # type: ignore[arg-type]


def with_unknown_items() -> ReviewData:
    """The same without examples of firs and larches; items may be unknown."""
    data = make_review(open_set=True)
    kept = [row for row, label in enumerate(data.examples.labels or ()) if label not in ("fir", "larch")]
    labels, names = ([of[row] for row in kept] for of in (data.examples.labels or (), data.examples.names or ()))
    return replace(data, examples=Items(data.examples.features[kept], tuple(labels), names))


def truth(row: int) -> str:
    """The class of an item."""
    return CLASSES[PRESENT[row % len(PRESENT)]]


def with_pictures(folder: Path, n_items: int = 40) -> ReviewData:
    """The same with a picture file per example and item; the one of item 3 is missing."""
    data = make_review(PICTURES, n_items, origins={"examples": str(folder), "items": str(folder)})
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    for name in {*data.names, *(data.examples.names or ())} - {"photo-3.png"}:
        colour = torch.randint(60, 230, (3,), generator=generator).tolist()
        Image.new("RGB", (48, 32), tuple(colour)).save(folder / name)
    return data
