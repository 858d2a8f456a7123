"""Counter-based random numbers: draw i depends on the seed and on i alone.

They are the same on every device, on every machine and in every chunking of the work. A 64-bit key
is mixed with SplitMix64's finaliser (Steele et al., 2014). Integer arithmetic wraps in the same way
on a CPU and on a GPU, so there is no generator state, and nothing depends on the order of the work.
"""

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
    """Derive one independent key per index.

    Different values of ``stream`` give independent sets of keys.
    """
    start = mix(mix(torch.tensor([seed])) + stream).item()  # a single number, computed on the CPU
    return mix(mix(index) ^ start)


def uniform(key: Tensor, step: int) -> Tensor:
    """Draw number ``step`` of each key: float64, uniform in (0, 1)."""
    # Keys are already mixed, so adding multiples of an odd constant gives SplitMix64's own sequence.
    offset = (step * _GOLDEN) % 2**64
    drawn = mix(key + (offset - 2**64 if offset >= 2**63 else offset))
    return (_shift(drawn, 11).double() + 0.5) / 2**53


def subset(
    key: Tensor, size: int, total: Tensor, wanted: Tensor | None = None, *, ordered: bool = False
) -> Tensor:
    """Draw random subsets [..., size] of the integers 0..total-1, one per key [...].

    They are drawn by Floyd's algorithm.

    Every subset is equally likely, up to a bias below total/2³²; ``total`` [...] is below 2³¹.
    With ``wanted`` [...], only the first ``wanted`` entries of a row are meaningful.
    ``ordered`` sorts each subset.

    Step j draws from 0..total-size+j and takes the last value of that range when the draw
    is already taken. There is no rejection and no permutation, so the cost does not depend
    on ``total``. All steps are drawn at once; only rows in which two draws are equal are
    repeated step by step.
    """
    nothing = torch.zeros_like(key) + torch.zeros_like(total)  # of the shape that both get
    key = key + nothing
    total = total + nothing
    steps = torch.arange(size, device=key.device)
    sizes = size if wanted is None else wanted.expand_as(key).unsqueeze(-1)
    last = (total.unsqueeze(-1) - sizes + steps).clamp_min_(0).flatten(0, -2)  # [r, size]
    draws = _shift(mix((key.unsqueeze(-1) + steps * _GOLDEN).flatten(0, -2)), 32)
    chosen = draws.mul_(last + 1).bitwise_right_shift_(32)
    ascending = _sorted(chosen)
    clash = (ascending[:, 1:] == ascending[:, :-1]).any(1).nonzero().squeeze(1)
    if len(clash):
        chosen[clash] = repaired = _without_repeats(chosen[clash], last[clash])
        ascending[clash] = _sorted(repaired)
    return (ascending.long() if ordered else chosen).view(*key.shape, size)


def _without_repeats(draws: Tensor, last: Tensor) -> Tensor:
    """Apply Floyd's rule step by step.

    A draw [r, size] that an earlier step took becomes the last of its range.
    """
    places = draws.mT.contiguous()  # [size, r]
    for step, last_of_step in enumerate(last.mT):
        taken = (places[:step] == places[step]).any(0)
        places[step] = torch.where(taken, last_of_step, places[step])
    return places.mT


def _sorted(values: Tensor) -> Tensor:
    """Each row in ascending order, as int32.

    NumPy sorts many short rows several times faster than torch does.
    """
    values = values.int()
    if values.is_cuda:
        return values.sort(1).values
    return torch.from_numpy(np.sort(values.numpy(), axis=1))


def _shift(key: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's operator keeps the sign."""
    return (key >> bits).bitwise_and_((1 << (64 - bits)) - 1)
