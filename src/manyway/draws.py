"""Random numbers that are a function of their place: the same on every device, in every chunk, on every machine.

A 64-bit key is mixed with SplitMix64's finaliser (Steele et al., 2014). Integer arithmetic wraps in the same way on
a CPU and a GPU, so there is no generator state to carry and nothing depends on the order of the work.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def mix(key: Tensor) -> Tensor:
    """A pseudo-random bijection of 64-bit integers."""
    key = key + _GOLDEN
    key = (key ^ _shift(key, 30)).mul_(_MIX1)
    key = (key ^ _shift(key, 27)).mul_(_MIX2)
    return key ^ _shift(key, 31)


def keys(seed: int, stream: int, index: Tensor) -> Tensor:
    """One independent key for each index, for a purpose numbered ``stream``."""
    start = mix(mix(torch.tensor([seed], dtype=torch.int64, device=index.device)) + stream)
    return mix(start ^ mix(index))


def below(key: Tensor, step: int, bound: Tensor) -> Tensor:
    """Integers uniform in 0..bound-1, draw number ``step`` of each key. Bounds are below 2³¹; the bias, bound/2³²."""
    return _shift(_draw(key, step), 32).mul_(bound).bitwise_right_shift_(32)


def uniform(key: Tensor, step: int) -> Tensor:
    """float64 uniform in (0, 1): draw number ``step`` of each key."""
    return (_shift(_draw(key, step), 11).double() + 0.5) / 2**53


def subset(key: Tensor, size: int, total: Tensor, wanted: Tensor | None = None) -> Tensor:
    """``size`` distinct integers out of 0..total-1, every subset equally likely [..., size]; by Floyd's algorithm.

    Step j draws from 0..total-size+j and takes the last value of that range when the draw is taken already: no
    rejection, no permutation of the total, so the cost does not depend on how many there are to choose from. With
    ``wanted`` each row has its own size, at most ``size``: its first ``wanted`` places count, the rest mean nothing.
    """
    rows = (key + total).shape  # whichever of the two is the larger
    chosen = torch.empty(size, *rows, dtype=torch.int64, device=key.device)
    for step in range(size):
        last = (total - (size if wanted is None else wanted) + step).clamp_min_(0)
        draw = below(key, step, last + 1)
        taken = (chosen[:step] == draw).any(0)
        chosen[step] = torch.where(taken, last, draw)
    return chosen.movedim(0, -1)


def _draw(key: Tensor, step: int) -> Tensor:
    # Keys are mixed already, so adding the step's multiple of an odd constant is SplitMix64's own sequence.
    offset = (step * _GOLDEN) % 2**64
    return mix(key + (offset - 2**64 if offset >= 2**63 else offset))


def _shift(key: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own keeps the sign."""
    return (key >> bits).bitwise_and_((1 << (64 - bits)) - 1)
