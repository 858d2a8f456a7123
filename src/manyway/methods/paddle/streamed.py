"""PADDLE for one task whose queries do not fit into memory: they are read in blocks.

The state between iterations is the prototypes w [k, d] and the duals v [k]. An iteration reads the queries once: the
assignments of a block are computed, summed per class, and discarded. Memory is block·k + k·d whatever |Q| is.

Most classes soon have almost no query; they are called dead. As in ``paddle.live``, full iterations alternate with
iterations that update the live classes only. For these, one number is stored per query: the log-sum-exp of the logits
of its dead classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core.blocks import Blocks, Scaling, Spread, in_turn, scaling_of
from manyway.core.ops import dot_scores
from manyway.core.parallel import threads_for

_ALL_CLASSES_UNTIL = 3  # iterations after which dead classes may be skipped
_PERIOD = 6  # one full iteration, then five that update the live classes only
_FEWEST_DEAD = 32  # with fewer dead classes, nothing is gained


@dataclass(frozen=True, eq=False)
class LargeSolution:
    """Prototypes and duals after the last iteration; ``assign`` makes the assignment step that follows it."""

    prototypes: Tensor  # [k, d], in the scaled features
    bias: Tensor  # [k] = (λ/|Q|) v
    scaling: Scaling
    n_iter: int
    converged: bool
    active: tuple[int, ...] = ()  # how many classes each iteration updated
    memory: None = None  # PADDLE remembers nothing of a block, and does not estimate which classes are present
    presence: None = None
    n_present: None = None
    n_present_sd: None = None

    def assign(self, block: Tensor, memory: None = None) -> Tensor:
        """[b, k] the class probabilities of a block of queries. Nothing needs to be remembered of it."""
        return self.logits(self.scaling(block.to(self.prototypes))).softmax(-1)

    def logits(self, rows: Tensor) -> Tensor:
        """[b, k] the logits of scaled rows."""
        return dot_scores(rows[None], self.prototypes[None])[0] + self.bias


class Sums(NamedTuple):
    """Class sums over queries, in float64 so that they do not depend on the size of the blocks."""

    masses: Tensor  # [k]
    moments: Tensor  # [k, d]

    def plus(self, other: Sums) -> Sums:
        return Sums(self.masses + other.masses, self.moments + other.moments)


@dataclass(frozen=True, eq=False)
class Iterate:
    """The work of an iteration on one block.

    With ``dead`` [k] it also returns the memory of the block, [b]: the log-sum-exp of the logits of the dead classes.
    """

    state: LargeSolution
    dead: Tensor | None = None

    def __call__(self, block: Tensor, memory: Tensor | None) -> tuple[Sums, Tensor | None]:
        with threads_for(len(block) * len(self.state.prototypes)):
            rows = self.state.scaling(block.to(self.state.prototypes))
            logits = self.state.logits(rows)
            if memory is None:
                u = logits.softmax(1)
            else:
                u = torch.cat([logits, memory.to(logits).unsqueeze(1)], 1).softmax(1)[:, :-1]
            sums = Sums(u.sum(0, dtype=torch.float64), (u.mT @ rows).double())
            return sums, memory if self.dead is None else logits[:, self.dead].logsumexp(1)


def paddle_in_blocks(
    support: Tensor,
    labels: Tensor,
    blocks: Blocks,
    *,
    lam: float | None = None,
    eps: float = 1e-6,
    max_iter: int = 100,
    tol: float | None = None,
    scale: str | None = "range",
    base_mean: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
    spread: Spread | None = None,
) -> LargeSolution:
    """Run PADDLE on one task over blocks of queries.

    ``support`` [s, d], its ``labels`` [s] from 0 to k-1, ``base_mean`` [d] and the parameters are those of ``paddle``.
    Without ``tol``, iterations that move the prototypes by no more than rounding are skipped. ``blocks`` returns an
    iterator over blocks [b, d] of the queries; it is called once per iteration. ``progress`` is called with the number
    of each finished iteration. ``spread`` runs the work on the blocks; None runs it here, block after block.

    Dead classes are skipped in float32 only, and for at most five iterations; ``tol`` can be met only in an iteration
    that updates all classes.
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
    rounding = torch.finfo(support.dtype).eps * float(prototypes.norm(dim=1).mean())
    masses = counts  # Σ_q u_qk; before the first iteration no class is dead
    every_class = live = torch.arange(n_classes, device=support.device)
    memories: list[Any] = []
    skipping = 0  # how many more iterations may skip the dead classes
    for iteration in range(1, max_iter):
        full = skipping == 0 or iteration == max_iter - 1
        if full:
            which, dead, skipping = every_class, None, 0
            if support.dtype == torch.float32 and iteration >= _ALL_CLASSES_UNTIL:
                dead = _dead(masses, n_query)
            part, memories = spread(Iterate(state, dead), None)
            if dead is not None:
                live, skipping = every_class[~dead], _PERIOD - 1
        else:
            which, skipping = live, skipping - 1
            part, _ = spread(Iterate(_of_classes(state, live)), memories)
        new = ((sums[which] + part.moments) / (counts[which] + part.masses).unsqueeze(-1)).to(support.dtype)
        dual = (part.masses / n_query + eps).log() + 1
        bias = (weight * dual if weight else torch.zeros_like(dual)).to(support.dtype)
        moved = float((new - state.prototypes[which]).norm(dim=1).sum() / n_classes)
        masses = masses.index_copy(0, which, part.masses)
        state = replace(
            state,
            prototypes=state.prototypes.index_copy(0, which, new),
            bias=state.bias.index_copy(0, which, bias),
            n_iter=iteration + 1,
            active=(*state.active, len(which)),
        )
        if progress is not None:
            progress(iteration)
        if moved < (rounding if tol is None else tol):
            if full:
                return replace(state, converged=tol is not None)
            skipping = 0  # only live classes were updated, so the next iteration updates all
    return state


def soft_kmeans_in_blocks(support: Tensor, labels: Tensor, blocks: Blocks, **options: Any) -> LargeSolution:
    """Soft K-means over blocks of queries: ``paddle_in_blocks`` without the complexity term."""
    return paddle_in_blocks(support, labels, blocks, lam=0.0, eps=0.0, **options)


def _dead(masses: Tensor, n_query: int) -> Tensor | None:
    """[k] which classes have almost no query; None when they are too few for a gain.

    The mass of a dead class matters only through its dual, where mass/|Q| is compared with ε, so the limit grows with
    |Q|.
    """
    dead = masses <= min(max(1e-7 * n_query, 1e-5), 0.1)
    n_dead = int(dead.sum())
    return dead if n_dead >= max(_FEWEST_DEAD, len(masses) // 2) and n_dead < len(masses) else None


def _of_classes(state: LargeSolution, which: Tensor) -> LargeSolution:
    return replace(state, prototypes=state.prototypes[which], bias=state.bias[which])
