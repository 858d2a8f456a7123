"""PADDLE for one task that is too large to hold: the queries are read in blocks.

The state between iterations is the prototypes w [k, d] and the duals v [k]. An iteration reads the queries once: a
block's assignments are worked out, added up class by class, and forgotten. Memory is block·k + k·d whatever |Q| is.

Most classes soon have almost no query. As in ``paddle.live``, iterations in which they rest come between
full ones: each query keeps one number, the logarithm of what its dead classes weigh together, and the work of an
iteration is that of the live classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core.ops import dot_scores
from manyway.streaming.blocks import Blocks, Scaling, Spread, in_turn, scaling_of

_SETTLED = 3  # iterations after which dead classes may rest
_PERIOD = 6  # one full iteration, then five in which they do
_WORTH = 32  # dead classes below which it is not worth while


@dataclass(frozen=True, eq=False)
class LargeSolution:
    """Prototypes and duals after the last full iteration; ``assign`` is the assignment step that follows it."""

    prototypes: Tensor  # [k, d], in the scaled features
    bias: Tensor  # [k] = (λ/|Q|) v
    scaling: Scaling
    n_iter: int
    converged: bool
    live: tuple[int, ...] = ()  # how many classes each iteration updated

    def assign(self, block: Tensor, note: None = None) -> Tensor:
        """[b, k] the class probabilities of some queries; nothing needs to be noted of them."""
        return self.logits(self.scaling(block.to(self.prototypes))).softmax(-1)

    def logits(self, rows: Tensor) -> Tensor:
        """[b, k] of rows that are scaled."""
        return dot_scores(rows[None], self.prototypes[None])[0] + self.bias


class Sums(NamedTuple):
    """Class sums over queries, in float64 so that they do not depend on how the queries are cut."""

    masses: Tensor  # [k]
    moments: Tensor  # [k, d]

    def plus(self, other: Sums) -> Sums:
        return Sums(self.masses + other.masses, self.moments + other.moments)


@dataclass(frozen=True, eq=False)
class Iterate:
    """The work of an iteration. With ``dead`` [k] it leaves a note on each block: what the dead weigh together [b]."""

    state: LargeSolution
    dead: Tensor | None = None

    def __call__(self, block: Tensor, note: Tensor | None) -> tuple[Sums, Tensor | None]:
        rows = self.state.scaling(block.to(self.state.prototypes))
        logits = self.state.logits(rows)
        if note is None:
            u = logits.softmax(1)
        else:
            u = torch.cat([logits, note.to(logits).unsqueeze(1)], 1).softmax(1)[:, :-1]
        sums = Sums(u.sum(0, dtype=torch.float64), (u.mT @ rows).double())
        return sums, note if self.dead is None else logits[:, self.dead].logsumexp(1)


def paddle_in_blocks(
    support: Tensor,  # [s, d]
    labels: Tensor,  # [s], 0..k-1
    blocks: Blocks,
    *,
    lam: float | None = None,
    eps: float = 1e-6,
    max_iter: int = 100,
    tol: float | None = 1e-6,
    scale: str | None = "range",
    base_mean: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
    spread: Spread | None = None,
) -> LargeSolution:
    """PADDLE with the updates, parameters and defaults of ``manyway.methods.paddle.solver``, over blocks of queries.

    ``progress`` is told the number of each finished iteration. ``spread`` takes the work to the blocks (None: in turn,
    here). Dead classes rest in float32 only, and never for longer than five iterations; ``tol`` is met only where all
    classes have been updated.
    """
    spread = in_turn(blocks, support.device) if spread is None else spread
    scaling, n_query = scaling_of(support, spread, scale, base_mean)
    support = scaling(support)
    n_classes = int(labels.max()) + 1
    sums = torch.zeros(n_classes, support.shape[1], dtype=torch.float64, device=support.device)
    sums.index_add_(0, labels, support.double())
    counts = torch.bincount(labels, minlength=n_classes).double()
    weight = 1.0 if lam is None else lam / n_query
    prototypes = (sums / counts.unsqueeze(-1)).to(support.dtype)
    state = LargeSolution(prototypes, torch.zeros_like(prototypes[:, 0]), scaling, n_iter=1, converged=False)
    masses = counts  # Σ_q u_qk; nobody is dead before the first iteration
    everyone = live = torch.arange(n_classes, device=support.device)
    notes: list[Any] = []
    resting = 0  # how many more iterations the dead classes may rest
    for iteration in range(1, max_iter):
        full = resting == 0 or iteration == max_iter - 1
        if full:
            which, dead, resting = everyone, None, 0
            if support.dtype == torch.float32 and iteration >= _SETTLED:
                dead = _dead(masses, n_query)
            part, notes = spread(Iterate(state, dead), None)
            if dead is not None:
                live, resting = everyone[~dead], _PERIOD - 1
        else:
            which, resting = live, resting - 1
            part, _ = spread(Iterate(_of_classes(state, live)), notes)
        new = ((sums[which] + part.moments) / (counts[which] + part.masses).unsqueeze(-1)).to(support.dtype)
        shares = (part.masses / n_query + eps).log() + 1
        bias = (weight * shares if weight else torch.zeros_like(shares)).to(support.dtype)
        moved = float((new - state.prototypes[which]).norm(dim=1).sum() / n_classes)
        masses = masses.index_copy(0, which, part.masses)
        state = replace(
            state,
            prototypes=state.prototypes.index_copy(0, which, new),
            bias=state.bias.index_copy(0, which, bias),
            n_iter=iteration + 1,
            live=(*state.live, len(which)),
        )
        if progress is not None:
            progress(iteration)
        if tol is not None and moved < tol:
            if full:
                return replace(state, converged=True)
            resting = 0  # only live classes have been looked at: the next iteration is for all
    return state


def _dead(masses: Tensor, n_query: int) -> Tensor | None:
    """Which classes [k] have almost no query; None where too few are dead to gain.

    What such a class's mass still decides is its dual, by the share mass/|Q| against ε: more queries allow more mass.
    """
    dead = masses <= min(max(1e-7 * n_query, 1e-5), 0.1)
    n_dead = int(dead.sum())
    return dead if n_dead >= max(_WORTH, len(masses) // 2) and n_dead < len(masses) else None


def _of_classes(state: LargeSolution, which: Tensor) -> LargeSolution:
    return replace(state, prototypes=state.prototypes[which], bias=state.bias[which])
