"""Letters that look the same are left out: no shape of the test is seen in training, no two classes are one shape.

Two letters are look-alikes when their masters, in the same face, correlate (Pearson, on 16×16 pixels) at least
``SAME_ON_AVERAGE`` on average over the faces that both have, or at least ``SAME_IN_ONE`` in any one of them.
Masters are scaled to one ink box, so upper and lower case of one shape (o O, c C, s S) are look-alikes as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from manyway.encoding.glyphs.letters import FACES, Letter
from manyway.encoding.glyphs.render import Masters

SAME_ON_AVERAGE = 0.88
SAME_IN_ONE = 0.97


def look_alike(letters: Sequence[Letter], masters: Masters) -> Tensor:
    """[n, n] bool: which pairs of letters look the same (a letter and itself do)."""
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

    Test first gives way to base and validation (kept or not), validation to base; then, within a split, a letter that
    looks like an earlier one that was kept is left out.
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
