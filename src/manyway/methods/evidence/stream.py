"""Batches that arrive one after another: earlier batches help to label the next, as far as the evidence says so.

A run is a number of consecutive batches whose classes have the same proportions. If the new batch continues a run, its
queries are labelled jointly with those of the run. Which classes occur is then known better, and prototypes are updated
by more queries. If it may begin a run, or if most classes occur in the run, it is labelled alone. Labels that were
given out before do not change.

Let E(b) be the bound on ln p(labels) that the prior of the class proportions gives to some batches together (see
``prior``). Likelihoods and entropies of the queries are the same for runs of any length, so a batch is
exp(E(run and batch) − E(run) − E(batch)) times as probable in the run as alone. Every batch is first labelled alone,
and E is computed from these assignments, so that no run confirms itself. With a probability h that a run ends before a
batch, this gives the probability of every length of the present run (Bayesian change-point detection, Adams and
MacKay, 2007). h is learned from the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import accumulate
from math import log
from typing import Any

import torch
from torch import Tensor

from manyway.core.solution import Computed, Solution
from manyway.core.tasks import Tasks
from manyway.errors import InputError
from manyway.methods.evidence.prior import Concentrations, Presence, effective_number, remainders

# Items that are remembered: a limit of memory and time. A run of so many items names nearly all classes of its batches,
# and longer runs gained nothing more. A batch that is larger is enough for itself.
MOST_ITEMS = 1024
# h has a uniform prior, Beta(1, 1).
_CHANGES, _STAYS = 1.0, 1.0
# A batch is labelled alone unless it begins a run with less than this probability. Joining a run of other classes costs
# more than leaving a run of the same classes out, and where few classes occur the evidence is clear.
_DOUBT = 0.05
# Where more than half of all classes occur in a run, by their effective number in the joint answers, its groups are
# mixtures of neighbours (as in ``posterior``), and little is learned about which classes occur: the batch is labelled
# alone.
_MOST_CLASSES = 0.5

Solve = Callable[[Tensor, Tasks, Tensor | None], Solution]  # (streams, their tasks, known labels) -> answers
_KEPT = ("probabilities", "n_iter", "converged", "occupied", "independent_presence")  # of the answers for a batch
_LISTS = ("query", "known")  # fields of ``Memory`` with one tensor per batch


@dataclass(frozen=True, eq=False)
class Memory:
    """What is remembered of t streams: the last batches, the last one first, and how they belong together."""

    query: tuple[Tensor, ...]  # [t, q, d] features
    known: tuple[Tensor, ...]  # [t, q] known labels, -1 for the others
    masses: Tensor  # [t, r, k] the expected number of queries of each class in the last 1 … r batches
    absent: Tensor  # [t, r, k] the probability that there is none
    evidence: Tensor  # [t, r] E of these batches together
    lengths: Tensor  # [t, r] ln of the probability that the present run has 1 … r batches
    changes: Tensor  # [t] the number of runs that have ended
    stays: Tensor  # [t] the number of batches that continued one

    @staticmethod
    def empty(tasks: Tasks) -> Memory:
        """Nothing, for the streams that tasks [t] are the first batches of."""
        rows = torch.zeros(len(tasks), 0, tasks.n_classes, dtype=torch.float64, device=tasks.device)
        counts = rows.new_ones(len(tasks))
        return Memory((), (), rows, rows, rows.sum(-1), rows.sum(-1), counts * _CHANGES, counts * _STAYS)

    def to(self, device: torch.device) -> Memory:
        """The same on a device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            moved[field.name] = tuple(one.to(device) for one in value) if field.name in _LISTS else value.to(device)
        return Memory(**moved)

    def after(self, alone: Solution, query: Tensor, known: Tensor, concentration: float | None) -> Memory:
        """The memory with one more batch, given the answers for it alone."""
        answers = alone.probabilities.double()
        masses, absent = answers.sum(1, keepdim=True), remainders(answers).prod(1, keepdim=True)
        masses = torch.cat([masses, masses + self.masses], 1)
        absent = torch.cat([absent, absent * self.absent], 1)
        queries = (query, *self.query)
        sizes = list(accumulate(batch.shape[1] for batch in queries))
        evidence = torch.stack(
            [_log_prior(masses[:, r], absent[:, r], size, concentration) for r, size in enumerate(sizes)], 1
        )
        rate = (self.changes / (self.changes + self.stays)).unsqueeze(-1)
        longer = self.lengths + (1 - rate).log() + evidence[:, 1:] - self.evidence - evidence[:, :1]
        lengths = torch.cat([rate.log(), longer], 1).log_softmax(1)
        changed = lengths[:, 0].exp() if self.query else torch.zeros_like(self.changes)
        n_kept = sum(size <= MOST_ITEMS for size in sizes)
        if n_kept < len(sizes):  # the longest run that is kept stands for all longer ones
            longest = lengths[:, max(n_kept - 1, 0) :].logsumexp(1, keepdim=True)
            lengths = torch.cat([lengths[:, : max(n_kept - 1, 0)], longest], 1)[:, :n_kept]
        return Memory(
            queries[:n_kept],
            (known, *self.known)[:n_kept],
            masses[:, :n_kept],
            absent[:, :n_kept],
            evidence[:, :n_kept],
            lengths,
            self.changes + changed,
            self.stays + (1 - changed) * bool(self.query),
        )

    def earlier(self, before: Memory) -> Tensor:
        """[t] with how many of the batches in ``before`` the last one is labelled; 0 where it may begin a run."""
        longest = min(self.lengths.shape[1] - 1, len(before.query))
        if longest < 1:
            return torch.zeros_like(self.changes, dtype=torch.long)
        best = self.lengths[:, 1 : longest + 1].argmax(1) + 1
        return best.masked_fill(self.lengths[:, 0] > log(_DOUBT), 0)


def _log_prior(masses: Tensor, absent: Tensor, n_items: int, concentration: float | None) -> Tensor:
    """[t] the bound on ln p(labels), for the best concentration."""
    prior = Concentrations.of(concentration, n_items, masses.shape[1], masses.dtype, masses.device)
    return prior.log_prior(Presence.of_products(masses, absent)).amax(-1)


def next_batch(
    tasks: Tasks, memory: Memory, solve: Solve, concentration: float | None = None, known: Tensor | None = None
) -> tuple[Solution, Memory]:
    """Label the next batch of each of t streams, and remember it.

    Parameters
    ----------
    tasks : Tasks
        The next batch of each stream.
    memory : Memory
        What is remembered of the same streams.
    solve : callable
        Solves tasks of some of the streams, given their places [n] and the known labels [n, q] (or None).
    concentration : float or None, default=None
        As in ``evidence``.
    known : Tensor of shape (t, q) or None, default=None
        The classes of queries whose labels are known, -1 for the others.

    Returns
    -------
    Solution
        The answers for the new batch.
    Memory
        For the batch after it.
    """
    everyone = torch.arange(len(tasks), device=tasks.device)
    alone = solve(everyone, tasks, known)
    if alone.unknown is not None:
        raise InputError("The batches of a stream cannot be carried over with open_set=True; label each one alone.")
    query = tasks.query
    labels = torch.full(query.shape[:2], -1, device=tasks.device) if known is None else known.to(tasks.device)
    remembered = memory.after(alone, query, labels, concentration)
    earlier, parts = remembered.earlier(memory), []
    for n_earlier in sorted(set(earlier.tolist()) - {0}):
        rows = (earlier == n_earlier).nonzero().squeeze(1)
        batches = [query, *memory.query[:n_earlier]]
        given = torch.cat([one[rows] for one in [labels, *memory.known[:n_earlier]]], 1)
        run = replace(
            tasks[rows],
            query_table=torch.cat([one[rows] for one in batches], 1),
            query_index=None,
            query_labels=None,
            unknown_labels=None,
            stream=None,
        )
        found = solve(rows, run, given if bool((given >= 0).any()) else None)
        few = effective_number(found.probabilities.sum(1)) <= _MOST_CLASSES * tasks.n_classes
        if bool(few.any()):
            parts.append((rows[few], _first(found, tasks.n_query, few)))
    return _put_together(alone, parts), remembered


def in_streams(tasks: Tasks, solve: Solve, concentration: float | None = None, known: Tensor | None = None) -> Solution:
    """The batches of some streams, one after another; streams are solved together. See ``next_batch``.

    The solution has no prototypes: those of all batches together would take much memory.
    """
    n_batches = batches_per_stream(tasks)
    memory, found = Memory.empty(tasks[::n_batches]), []
    for place in range(n_batches):
        batch, given = tasks[place::n_batches], None if known is None else known[place::n_batches]
        solution, memory = next_batch(batch, memory, solve, concentration, given)
        # Functions that compute further results on request would keep the queries of all batches in memory.
        found.append([getattr(solution, name) for name in _KEPT])
    order = torch.arange(len(tasks), device=tasks.device).view(n_batches, -1).mT.flatten()
    kept = {name: torch.cat(values)[order] for name, values in zip(_KEPT, zip(*found, strict=True), strict=True)}
    return Solution(
        kept["probabilities"],
        kept["n_iter"],
        kept["converged"],
        occupancy=kept["occupied"],
        make_presence=Computed(kept["independent_presence"]),
    )


def batches_per_stream(tasks: Tasks) -> int:
    """The number of batches of each stream."""
    assert tasks.stream is not None
    sizes = torch.unique_consecutive(tasks.stream, return_counts=True)[1]
    if bool((sizes != sizes[0]).any()):
        raise InputError("The streams have different numbers of batches; solve streams of one length at a time.")
    return int(sizes[0])


def select_rows(value: Any, which: Tensor) -> Any:
    """Some rows of a dataclass of tensors [t, …]; tensors [1, …] serve all rows."""
    if isinstance(value, Tensor):
        return value if len(value) == 1 else value[which]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: select_rows(getattr(value, one.name), which) for one in fields(value)})
    return value


def _first(found: Solution, n_query: int, which: Tensor) -> Solution:
    """The answers for the first queries of some tasks, given as a mask [t]."""
    prototypes, terms = found.make_prototypes, found.objective_parts
    return Solution(
        found.probabilities[which, :n_query],
        found.n_iter[which],
        found.converged[which],
        make_prototypes=None if prototypes is None else lambda: prototypes()[which],
        objective=None if found.objective is None else found.objective[which],
        objective_parts=None if terms is None else {name: values[which] for name, values in terms.items()},
        make_review_scores=lambda: found.review_scores[which, :n_query],
    )


def _put_together(alone: Solution, parts: list[tuple[Tensor, Solution]]) -> Solution:
    """The answers ``alone``, with those of some streams replaced."""
    if not parts:
        return alone
    if len(parts[0][0]) == len(alone.n_iter):
        return parts[0][1]

    def replaced(name: str) -> Tensor:
        values: Tensor = getattr(alone, name)
        for rows, part in parts:
            values = values.index_copy(0, rows, getattr(part, name).to(values))
        return values

    return Solution(
        replaced("probabilities"),
        replaced("n_iter"),
        replaced("converged"),
        make_prototypes=lambda: replaced("prototypes"),
        occupancy=replaced("occupied"),
        make_presence=lambda: replaced("independent_presence"),
        make_review_scores=lambda: replaced("review_scores"),
    )
