"""Random numbers that are a function of their place: the same on every device, in every chunk, on every machine.

A 64-bit key is mixed with SplitMix64's finaliser (Steele et al., 2014). Integer arithmetic wraps in the same way on
a CPU and a GPU, so there is no generator state to carry and nothing depends on the order of the work.
"""

from __future__ import annotations

import numpy as np
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
    start = mix(mix(torch.tensor([seed])) + stream).item()  # on the CPU: there is one, whatever the device
    return mix(mix(index) ^ start)


def uniform(key: Tensor, step: int) -> Tensor:
    """float64 uniform in (0, 1): draw number ``step`` of each key."""
    return (_shift(_draw(key, step), 11).double() + 0.5) / 2**53


def subset(key: Tensor, size: int, total: Tensor, wanted: Tensor | None = None, *, ordered: bool = False) -> Tensor:
    """``size`` distinct integers out of 0..total-1, every subset equally likely [..., size]; by Floyd's algorithm.

    Step j draws from 0..total-size+j and takes the last value of that range when the draw is taken already: no
    rejection, no permutation of the total, so the cost does not depend on how many there are to choose from. With
    ``wanted`` each row has its own size, at most ``size``: its first ``wanted`` places count, the rest mean nothing.
    ``ordered`` sorts them. Totals are below 2³¹; the bias is below total/2³².

    All steps are drawn at once. Only rows in which two draws are the same have to be gone through step by step.
    """
    key, total = key + torch.zeros_like(total), total + torch.zeros_like(key)  # one shape
    steps = torch.arange(size, device=key.device)
    sizes = size if wanted is None else wanted.expand_as(key).unsqueeze(-1)
    last = (total.unsqueeze(-1) - sizes + steps).clamp_min_(0).flatten(0, -2)  # [r, size]
    chosen = (
        _shift(mix((key.unsqueeze(-1) + steps * _GOLDEN).flatten(0, -2)), 32).mul_(last + 1).bitwise_right_shift_(32)
    )
    ascending = _sorted(chosen)
    clash = (ascending[:, 1:] == ascending[:, :-1]).any(1).nonzero().squeeze(1)
    if len(clash):
        chosen[clash] = repaired = _without_repeats(chosen[clash], last[clash])
        ascending[clash] = _sorted(repaired)
    return (ascending.long() if ordered else chosen).view(*key.shape, size)


def _without_repeats(draws: Tensor, last: Tensor) -> Tensor:
    """Floyd's rule, step by step: a draw [r, size] that an earlier step has taken becomes the last of its range."""
    places = draws.mT.contiguous()  # [size, r]
    for step, last_of_step in enumerate(last.mT):
        taken = (places[:step] == places[step]).any(0)
        places[step] = torch.where(taken, last_of_step, places[step])
    return places.mT


def _sorted(values: Tensor) -> Tensor:
    """Each row in ascending order, as int32. NumPy sorts many short rows several times faster than torch does."""
    values = values.int()
    return values.sort(1).values if values.is_cuda else torch.from_numpy(np.sort(values.numpy(), axis=1))


def _draw(key: Tensor, step: int) -> Tensor:
    # Keys are mixed already, so adding the step's multiple of an odd constant is SplitMix64's own sequence.
    offset = (step * _GOLDEN) % 2**64
    return mix(key + (offset - 2**64 if offset >= 2**63 else offset))


def _shift(key: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own keeps the sign."""
    return (key >> bits).bitwise_and_((1 << (64 - bits)) - 1)
