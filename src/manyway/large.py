"""PADDLE for one task that is too large to hold: the queries are read in blocks.

The state between iterations is the prototypes w [k, d] and the duals v [k] alone. An iteration reads the queries once:
a block's assignments are worked out, added to the class sums, and forgotten. Memory is block·k + k·d whatever |Q| is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.errors import InputError
from manyway.ops import dot_scores
from manyway.transforms import unit

Blocks = Callable[[], Iterator[Tensor]]  # reads the queries once, from the start: blocks [b, d]


@dataclass(frozen=True, eq=False)
class LargeSolution:
    """Prototypes and duals after the last full iteration; ``assign`` is the assignment step that follows it."""

    prototypes: Tensor  # [k, d], in the scaled features
    bias: Tensor  # [k] = (λ/|Q|) v
    scaling: Callable[[Tensor], Tensor]
    n_iter: int
    converged: bool

    def assign(self, block: Tensor) -> Tensor:
        """[b, k] the class probabilities of some queries."""
        block = self.scaling(block.to(self.prototypes))
        return (dot_scores(block[None], self.prototypes[None])[0] + self.bias).softmax(-1)


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
) -> LargeSolution:
    """PADDLE with the updates, parameters and defaults of ``manyway.methods.paddle``, over blocks of queries.

    Sums over queries are kept in float64, so that the result does not depend on how the queries are cut. ``progress``
    is told the number of each finished iteration.
    """
    scaling, n_query, centre = _scaling(support, blocks, scale, base_mean)
    support = scaling(support) - centre
    n_classes = int(labels.max()) + 1
    sums = torch.zeros(n_classes, support.shape[1], dtype=torch.float64, device=support.device)
    sums.index_add_(0, labels, support.double())
    counts = torch.bincount(labels, minlength=n_classes).double().unsqueeze(-1)
    weight = 1.0 if lam is None else lam / n_query
    state = LargeSolution(
        prototypes=(sums / counts).to(support.dtype),
        bias=torch.zeros(n_classes, dtype=support.dtype, device=support.device),
        scaling=lambda block: scaling(block) - centre,
        n_iter=1,
        converged=False,
    )
    for iteration in range(1, max_iter):
        masses = torch.zeros(n_classes, 1, dtype=torch.float64, device=support.device)
        moments = torch.zeros_like(sums)
        for block in blocks():
            u = state.assign(block)
            masses += u.sum(0, dtype=torch.float64).unsqueeze(-1)
            moments += u.mT @ state.scaling(block.to(u))
        prototypes = ((sums + moments) / (counts + masses)).to(support.dtype)
        shares = (masses.squeeze(-1) / n_query + eps).log() + 1
        bias = (weight * shares if weight else torch.zeros_like(shares)).to(support.dtype)
        moved = float((prototypes - state.prototypes).norm(dim=1).mean())
        state = replace(state, prototypes=prototypes, bias=bias, n_iter=iteration + 1)
        if progress is not None:
            progress(iteration)
        if tol is not None and moved < tol:
            return replace(state, converged=True)
    return state


def _scaling(
    support: Tensor, blocks: Blocks, scale: str | None, base_mean: Tensor | None
) -> tuple[Callable[[Tensor], Tensor], int, Tensor]:
    """The transform of single rows, the number of queries, and the centre to subtract after it (the mean query)."""
    transform: Callable[[Tensor], Tensor]
    if scale in (None, "range"):
        transform = lambda rows: rows  # noqa: E731
    elif scale == "l2":
        transform = unit
    elif scale == "cl2":
        middle = support.mean(0) if base_mean is None else base_mean.to(support)
        transform = lambda rows: unit(rows - middle)  # noqa: E731
    else:
        raise InputError(f"scale is '{scale}'; for large inputs choose range, l2, cl2 or None.")
    n_query, total = 0, torch.zeros(support.shape[1], dtype=torch.float64, device=support.device)
    low, high = torch.full_like(support[0], torch.inf), torch.full_like(support[0], -torch.inf)
    for block in blocks():
        rows = transform(block.to(support))
        n_query, total = n_query + len(rows), total + rows.sum(0, dtype=torch.float64)
        low, high = torch.minimum(low, rows.amin(0)), torch.maximum(high, rows.amax(0))
    if n_query == 0:
        raise InputError("There is no query to label; give at least one.")
    width = torch.where(high > low, high - low, torch.ones_like(high)) if scale == "range" else torch.ones_like(high)
    inner = transform
    return (lambda rows: inner(rows) / width), n_query, (total / n_query).to(support.dtype) / width
