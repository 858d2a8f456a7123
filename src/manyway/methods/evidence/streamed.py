"""Evidence for one task that is too large to hold: the queries are read in blocks.

Likelihoods do not change, so the state between iterations is two numbers a class, Σ_q u_qk and Σ_q ln(1 − u_qk), from
which the slopes of the prior follow. An iteration reads the queries once. Of a query itself one thing more counts: the
price of being the first of a class is multiplied by 1/(1 − u_qk). Where a class has many queries the price is nothing,
and where u_qk is small the factor is 1; each block keeps a note of the few assignments for which neither holds.

Classes with almost no query rest, as in PADDLE. They all have nearly the same slope, φ(1) = ln α, so what
they weigh together in each query, noted in a full iteration, serves for some more, whatever α becomes. None of them
can gain more than all do together: when that has doubled, the next iteration is a full one.

The after-thoughts need the means of the groups of queries alone, one more reading: ``streamed_end``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp
from typing import Any

import torch
from torch import Tensor

from manyway.core.tasks import Tasks
from manyway.methods.evidence.calibration import calibrate
from manyway.methods.evidence.groups import scattered
from manyway.methods.evidence.prior import Alphas, Presence
from manyway.methods.evidence.search import HOT, HOT_STEPS, check_search, sharpness, start_shares
from manyway.methods.evidence.streamed_end import AddUp, Move, Settle, identify, presence_of
from manyway.methods.evidence.streamed_step import Rest, Step, Sums
from manyway.streaming.blocks import Blocks, Spread, in_turn, scaling_of

_MOST_NOTED = 1 << 24  # assignments, of all queries together
_NOTED = 1e-4  # an assignment is noted when u·√p⁰ is above this,
_NOTED_ANYWAY = 1e-3  # or u above this: whether the queries still move is seen by these;
_NOTED_IN_START = 2e-2  # in the start nobody asks
_DEAD = 1e-3  # a class with fewer queries than this, Σ_q u_qk, may rest,
_FEW = 0.1  # and one with fewer than this
_STILL = 1e-5  # whose number changes by less than this
_WORTH = 32  # resting classes below which it is not worth while
_PERIOD = 6  # one full iteration, then at most five in which they rest


@dataclass(frozen=True, eq=False)
class LargeEvidence:
    """What is known after the last iteration; ``assign`` works probabilities out from a block and the note on it."""

    assign: Settle  # (block [b, d], note) -> [b, k]
    notes: list[Any]  # one a block
    presence: Tensor  # [k] the probability that the class occurs
    n_classes: float  # how many classes occur: the expected number
    n_classes_sd: float
    temperature: float
    alpha: float
    n_iter: int
    converged: bool
    live: tuple[int, ...]  # how many classes took part in each iteration, those of the start included


def evidence_in_blocks(
    support: Tensor,  # [s, d]
    labels: Tensor,  # [s], 0..k-1
    blocks: Blocks,
    *,
    temperature: float | None = None,
    concentration: float | None = None,
    soften: float = 0.35,
    move: bool = True,
    identity: bool = True,
    merge: bool = True,
    max_iter: int = 50,
    tol: float = 1e-2,
    scale: str | None = "rcl2",
    base_mean: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
    spread: Spread | None = None,
) -> LargeEvidence:
    """Evidence with the updates, parameters and defaults of ``methods.evidence.solver``, over blocks of queries.

    ``progress`` is told the number of each finished iteration, the steps of the start included. ``spread`` takes the
    work to the blocks (None: in turn, here). Classes rest in float32 only; ``tol`` is met only where all took part.
    """
    check_search(concentration, soften, max_iter)
    spread = in_turn(blocks, support.device) if spread is None else spread
    scaling, n_query = scaling_of(support, spread, scale, base_mean)
    support = scaling(support)
    calibration = calibrate(Tasks.from_arrays(support[None], labels[None], support[None, :1]), temperature)
    n_classes = calibration.counts.shape[1]
    alphas = Alphas.of(concentration, n_query, n_classes, torch.float64, support.device)
    none = support.new_zeros(n_classes)
    weights, offsets = (one[0] for one in calibration.linear())
    above = none + min(_NOTED * exp(min(0.5 * n_query / n_classes, 10.0)), _NOTED_IN_START)  # if all occur equally
    first = Step(scaling, weights, offsets, soften, none, none, above, most_noted=_MOST_NOTED / n_query)
    loop = _Loop(first, alphas, n_query, spread, progress)
    share = 1.0
    if soften < 1:
        loop.run(start_shares(soften))
        if bool(scattered(loop.state.masses[None])):
            loop.run([HOT] * HOT_STEPS)
        share = float(sharpness(loop.state.masses[None]))
    n_iter, converged = loop.run([share] * max_iter, tol)
    state, step, best = loop.state, replace(loop.step, rest=None), loop.state.best(alphas)
    slope, price = state.slopes(best, support.dtype)
    groups = (state.masses > 1).nonzero().squeeze(1)
    moments, _ = spread(AddUp(step, groups), loop.before)
    occupied = state.presence.present[0]
    chances, presence = none.new_zeros(0, n_classes), occupied
    if identity:
        chances, piece = identify(groups, state.masses, moments.values, calibration, best, merge)
        presence = presence_of(occupied, groups, chances)
        occupied = occupied.index_put((groups,), occupied[groups] * (1 - piece))
    moving = Move.of(groups, state.masses, moments.values, calibration) if move else None
    return LargeEvidence(
        assign=Settle(step, slope, price, moving, groups[: len(chances)], chances),
        notes=loop.before,
        presence=presence,
        n_classes=float(occupied.sum()),
        n_classes_sd=float((occupied * (1 - occupied)).sum().sqrt()),
        temperature=float(calibration.temperature[0]),
        alpha=best,
        n_iter=n_iter,
        converged=converged,
        live=tuple(loop.live),
    )


class _Loop:
    """The iterations. ``step`` is the last one, ``before`` the notes it was made with, ``state`` what came out."""

    def __init__(
        self, first: Step, alphas: Alphas, n_query: int, spread: Spread, progress: Callable[[int], None] | None
    ) -> None:
        self.step, self.alphas, self.spread, self.progress = first, alphas, spread, progress
        sums, self.notes = spread(first, None)
        self.before = self.notes
        self.state = _State(sums.masses, sums.log_absent, sums.masses, n_query)
        self.live = [len(sums.masses)]
        self.first = first

    def run(self, shares: Sequence[float], tol: float | None = None) -> tuple[int, bool]:
        """Iterations in which ℓ is multiplied by these: how many were done, and whether nobody moves by ``tol``."""
        rest: Rest | None = None  # who rests in the next iteration
        until = 0  # and up to which one
        for number, share in enumerate(shares):
            best = self.state.best(self.alphas)
            step = self.state.step(self.first, share, best, _NOTED_IN_START if tol is None else _NOTED_ANYWAY)
            old, self.before = self.state, self.notes
            if rest is not None:
                sums = self._take(step.of_live(rest, best), old)
                still = tol is not None and float(sums.moved) < tol
                if still or number == until or self.state.outgrown(sums, rest):
                    rest = None
                if not still:
                    continue  # otherwise the same again, with all classes: do they move?
            else:
                ahead = shares[number + 1 : number + _PERIOD][: len(shares) - number - 2]  # the last is a full one
                if step.weights.dtype == torch.float32:
                    rest, until = self.state.resting(ahead, best), number + len(ahead)
            sums = self._take(replace(step, rest=rest), old)
            if tol is not None and float(sums.moved) < tol:
                return number + 1, True
        return len(shares), False

    def _take(self, step: Step, old: _State) -> Sums:
        """Take a step from the old state, and the notes before it."""
        sums: Sums
        sums, self.notes = self.spread(step, self.before)
        self.step, self.state = step, old.updated(sums, step.live)
        self.live.append(len(sums.masses))
        if self.progress is not None:
            self.progress(len(self.live) - 1)
        return sums


@dataclass(frozen=True, eq=False)
class _State:
    """All that an iteration needs to know of the one before, but for the notes on the blocks."""

    masses: Tensor  # [k]
    log_absent: Tensor  # [k]
    drift: Tensor  # [k] how much the masses changed when they were last worked out
    n_query: int

    @cached_property
    def presence(self) -> Presence:
        return Presence.of_sums(self.masses[None], self.log_absent[None])

    def best(self, alphas: Alphas) -> float:
        """The best α of a grid."""
        return float(alphas.best(self.presence))

    def step(self, like: Step, share: float, alpha: float, noted: float) -> Step:
        """The next step of all classes, which notes the assignments that count and those above ``noted``."""
        slope, price = self.slopes(alpha, like.slope.dtype)
        above = (_NOTED * self.presence.absent[0].rsqrt()).clamp_max(noted).to(slope)
        return replace(like, share=share, slope=slope, price=price, above=above)

    def slopes(self, alpha: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        slope, price = self.presence.slopes(self.masses.new_tensor([alpha]))
        return slope[0].to(dtype), price[0].to(dtype)

    def resting(self, shares: Sequence[float], alpha: float) -> Rest | None:
        """The classes that may rest while ℓ has these shares; None where too few may to gain."""
        dead = (self.masses < _DEAD) | ((self.masses < _FEW) & (self.drift < _STILL))
        n_dead, n_classes = int(dead.sum()), len(dead)
        if not shares or n_dead < max(_WORTH, n_classes // 4) or n_dead == n_classes:
            return None
        return Rest(dead, tuple(dict.fromkeys(shares)), alpha)

    def updated(self, sums: Sums, which: Tensor | None) -> _State:
        """The state after an iteration of some classes; None: of all."""
        masses, log_absent, drift = self.masses.clone(), self.log_absent.clone(), self.drift.clone()
        which = torch.arange(len(masses), device=masses.device) if which is None else which
        drift[which] = (sums.masses - masses[which]).abs()
        masses[which], log_absent[which] = sums.masses, sums.log_absent
        return replace(self, masses=masses, log_absent=log_absent, drift=drift)

    def outgrown(self, sums: Sums, rest: Rest) -> bool:
        """Whether the resting classes have gained much: the masses here are those of the last full iteration."""
        return float(sums.resting) > 2 * float(self.masses[rest.dead].sum()) + _DEAD
