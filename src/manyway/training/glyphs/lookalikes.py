"""Letters that look the same are left out, so that no test shape is trained on and no two classes share a shape.

Two letters are look-alikes if the correlation of their masters in the same face (Pearson, on 16×16 pixels) is at least
``SAME_ON_AVERAGE`` on average over the faces that both have, or at least ``SAME_IN_ONE`` in one of them. Masters are
scaled to the same box, so that upper and lower case of the same shape (o O, c C, s S) are look-alikes too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from manyway.training.glyphs.letters import FACES, Letter
from manyway.training.glyphs.render import Masters

SAME_ON_AVERAGE = 0.88
SAME_IN_ONE = 0.97


def look_alike(letters: Sequence[Letter], masters: Masters) -> Tensor:
    """[n, n] bool: whether two letters look the same. A letter looks like itself."""
    n = len(letters)
    total, shared, highest = torch.zeros(n, n), torch.zeros(n, n), torch.full((n, n), -1.0)
    for face in FACES:
        here = [i for i, letter in enumerate(letters) if (letter.code, face) in masters.row]
        if not here:
            continue
        pixels = masters.images[[masters.row[letters[i].code, face] for i in here]].float().unsqueeze(1)
        pixels = F.avg_pool2d(pixels, 4).flatten(1)
        unit = F.normalize(pixels - pixels.mean(1, keepdim=True), dim=1)
        correlation = unit @ unit.T
        at = torch.tensor(here)
        total[at[:, None], at] += correlation
        shared[at[:, None], at] += 1
        highest[at[:, None], at] = torch.maximum(highest[at[:, None], at], correlation)
    return (total >= SAME_ON_AVERAGE * shared.clamp(min=1)) | (highest >= SAME_IN_ONE)


def choose_letters(letters: Sequence[Letter], masters: Masters) -> dict[str, tuple[Letter, ...]]:
    """The classes of each split.

    A test letter is left out if it looks like any candidate of base or validation, and a validation letter if it looks
    like any candidate of base. Within a split, a letter that looks like an earlier one that was kept is left out.
    """
    same = look_alike(letters, masters).numpy()
    kept: dict[str, tuple[Letter, ...]] = {}
    stronger: list[int] = []
    for split in ("base", "val", "test"):
        chosen: list[int] = []
        members = [i for i, letter in enumerate(letters) if letter.split == split]
        for i in members:
            if not same[i, stronger].any() and not same[i, chosen].any():
                chosen.append(i)
        kept[split] = tuple(letters[i] for i in chosen)
        stronger += members
    return kept
