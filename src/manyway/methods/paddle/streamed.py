"""PADDLE for one task whose queries do not fit into memory: they are read in blocks.

The state between iterations is the prototypes w [k, d] and the duals v [k]. An iteration reads the
queries once: the assignments of a block are computed, summed per class, and discarded. Memory is
block·k + k·d whatever |Q| is.

Most classes soon have almost no query; they are called dead. As in ``live_iterations``, full
iterations alternate with iterations that update the live classes only. For these, one number is
stored per query: the log-sum-exp of the logits of its dead classes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyway.core import Answered, Reading, Scaling, Solution, Sums, Tasks, dot_scores, threads_for
from manyway.methods.calibration.transforms import transform

_ALL_CLASSES_UNTIL = 3  # iterations after which dead classes may be skipped
_PERIOD = 6  # one full iteration, then five that update the live classes only
_FEWEST_DEAD = 32  # with fewer dead classes, nothing is gained


@dataclass(frozen=True, eq=False)
class PrototypeState:
    """Prototypes and duals after an iteration; a call makes the assignment step that follows it."""

    prototypes: Tensor  # [k, d], in the scaled features
    bias: Tensor  # [k] = (λ/|Q|) v

    def __call__(self, rows: Tensor, memory: None = None) -> Answered:
        return Answered(self.logits(rows).softmax(-1))

    def logits(self, rows: Tensor) -> Tensor:
        """[1, b, k] the logits of rows [1, b, d]."""
        return dot_scores(rows, self.prototypes[None]) + self.bias

    def movement(self, before: "PrototypeState", which: Tensor) -> float:
        """The mean over all classes of ‖w − w_before‖, if the classes ``which`` have moved."""
        change = self.prototypes[which] - before.prototypes[which]
        return float(change.norm(dim=1).sum() / len(self.prototypes))

    def of_classes(self, which: Tensor) -> "PrototypeState":
        """The same for some classes."""
        return PrototypeState(self.prototypes[which], self.bias[which])


@dataclass(frozen=True, eq=False)
class Iterate:
    """The work of an iteration on one block.

    With ``dead`` [k] it also returns the memory of the block, [b]:
    the log-sum-exp of the logits of the dead classes.
    """

    state: PrototypeState
    dead: Tensor | None = None

    def __call__(self, rows: Tensor, memory: Tensor | None) -> tuple[Sums, Tensor | None]:
        with threads_for(rows.shape[1] * len(self.state.prototypes)):
            logits = self.state.logits(rows)[0]
            if memory is None:
                u = logits.softmax(1)
            else:
                u = torch.cat([logits, memory.to(logits).unsqueeze(1)], 1).softmax(1)[:, :-1]
            # [k] and [k, d]
            sums = Sums((u.sum(0, dtype=torch.float64), (u.mT @ rows[0]).double()))
            return sums, memory if self.dead is None else logits[:, self.dead].logsumexp(1)


def paddle_in_blocks(
    tasks: Tasks,
    *,
    lam: float | None = None,
    eps: float = 1e-6,
    max_iter: int = 100,
    tol: float | None = None,
    scale: str | None = "range",
    with_objective: bool = False,
) -> Solution:
    """Run PADDLE on one task over blocks of queries (``Tasks.pile``).

    The parameters are those of ``paddle``. Without ``tol``, iterations that move the prototypes by
    no more than rounding are skipped. No objective is recorded.

    Dead classes are skipped in float32 only, and for at most five iterations; ``tol`` can be met
    only in an iteration that updates all classes.
    """
    tasks = transform(tasks, scale)
    assert tasks.pile is not None
    mean = tasks.pile.extent().mean  # float32 is accurate for distances relative to it
    pile = tasks.pile.then(Scaling(middle=mean))
    update = _Update.of(tasks, mean, lam, eps)
    state = update.start(tasks.dtype)
    rounding = torch.finfo(tasks.dtype).eps * float(state.prototypes.norm(dim=1).mean())
    limit = rounding if tol is None else tol
    masses = update.counts  # Σ_q u_qk; before the first iteration no class is dead
    every_class = live = torch.arange(tasks.n_classes, device=tasks.device)
    memories: list[Any] = []
    skipping = 0  # how many more iterations may skip the dead classes
    n_iter = 1
    converged = False
    for iteration in range(1, max_iter):
        full = skipping == 0 or iteration == max_iter - 1
        if full:
            which = every_class
            dead = None
            skipping = 0
            if tasks.dtype == torch.float32 and iteration >= _ALL_CLASSES_UNTIL:
                dead = _dead(masses, tasks.n_query)
            part, memories = pile.each(Iterate(state, dead))
            if dead is not None:
                live = every_class[~dead]
                skipping = _PERIOD - 1
        else:
            which = live
            skipping -= 1
            part, _ = pile.each(Iterate(state.of_classes(live)), memories)
        of_classes, moments = part.values
        masses = masses.index_copy(0, which, of_classes)
        before = state
        state = update(before, which, of_classes, moments)
        n_iter = iteration + 1
        if state.movement(before, which) < limit:
            converged = full and tol is not None
            if full:
                break
            skipping = 0  # only live classes were updated, so the next iteration updates all
    return Solution(Reading(pile, state), n_iter, converged, lambda: state.prototypes[None] + mean)


@dataclass(frozen=True, eq=False)
class _Update:
    """The prototypes and duals that are optimal for some assignments."""

    sums: Tensor  # [k, d] Σ_s y_sk z_s, relative to the mean of the queries
    counts: Tensor  # [k] Σ_s y_sk
    n_query: int
    weight: float  # λ/|Q|
    eps: float

    @staticmethod
    def of(tasks: Tasks, mean: Tensor, lam: float | None, eps: float) -> "_Update":
        labels = tasks.support_labels[0]
        support = (tasks.support - mean)[0].double()
        sums = support.new_zeros(tasks.n_classes, support.shape[1]).index_add_(0, labels, support)
        counts = torch.bincount(labels, minlength=tasks.n_classes).double()
        weight = 1.0 if lam is None else lam / tasks.n_query
        return _Update(sums, counts, tasks.n_query, weight, eps)

    def start(self, dtype: torch.dtype) -> PrototypeState:
        """The class means of the support, and v = 0."""
        prototypes = (self.sums / self.counts.unsqueeze(-1)).to(dtype)
        return PrototypeState(prototypes, torch.zeros_like(prototypes[:, 0]))

    def __call__(
        self, state: PrototypeState, which: Tensor, masses: Tensor, moments: Tensor
    ) -> PrototypeState:
        """The state with new prototypes and duals of the classes ``which`` [c].

        Their queries have the ``masses`` [c] = Σ_q u_qk and the ``moments`` [c, d] = Σ_q u_qk z_q.
        """
        sums = self.sums[which] + moments
        prototypes = sums / (self.counts[which] + masses).unsqueeze(-1)
        bias = torch.zeros_like(masses)
        if self.weight:
            bias = self.weight * ((masses / self.n_query + self.eps).log() + 1)
        return PrototypeState(
            state.prototypes.index_copy(0, which, prototypes.to(state.prototypes.dtype)),
            state.bias.index_copy(0, which, bias.to(state.bias.dtype)),
        )


def soft_kmeans_in_blocks(tasks: Tasks, **options: Any) -> Solution:
    """Soft K-means over blocks of queries: ``paddle_in_blocks`` without the complexity term."""
    return paddle_in_blocks(tasks, lam=0.0, eps=0.0, **options)


def _dead(masses: Tensor, n_query: int) -> Tensor | None:
    """[k] which classes have almost no query; None when they are too few for a gain.

    The mass of a dead class matters only through its dual, where mass/|Q| is compared with ε,
    so the limit grows with |Q|.
    """
    dead = masses <= min(max(1e-7 * n_query, 1e-5), 0.1)
    n_dead = int(dead.sum())
    if max(_FEWEST_DEAD, len(masses) // 2) <= n_dead < len(masses):
        return dead
    return None
