"""Batches that arrive one after another: earlier batches help to label the next, as far as the evidence says so.

A *run* is a number of consecutive batches whose classes have the same proportions. If the new batch continues a run,
its queries are labelled jointly with those of the run. Which classes occur is then known better, and prototypes are
updated by more queries. If it may begin a run, it is labelled alone. Labels that were given out before do not change.

Let E(b) be the bound on ln p(labels) that the prior of the class proportions gives to some batches together (see
``prior``). Likelihoods and entropies of the queries are the same for runs of any length, so a batch is

    exp(E(run and batch) − E(run) − E(batch))

times as probable in the run as alone. Every batch is first labelled alone, and E is computed from these assignments, so
that no run confirms itself. With a probability h that a run ends before a batch, the probability of every length r of
the present run follows (Bayesian change-point detection, Adams and MacKay, 2007):

    p(r + 1) ∝ p(r) (1 − h) exp(E_{r+1} − E_r − E_1),        p(1) ∝ h.

h is the mean of a Beta distribution that counts, in the stream so far, the runs that have ended and the batches that
continued one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import log
from typing import Any

import torch
from torch import Tensor

from manyway.core import Answered, Joined, Pile, Solution, Tally, Tasks, mapped, tally
from manyway.methods.evidence.prior import Presence, remainders
from manyway.methods.evidence.schedule import Parameters

# Items that are remembered: a limit of memory and time. A run of so many items names nearly all classes of its batches,
# and longer runs gained nothing more. A batch that is larger is enough for itself.
MOST_ITEMS = 1024

Solve = Callable[[Tasks, Any], Solution]  # (tasks, what was learned from their support) -> answers
_OF_UNKNOWN = ("unknown", "unknown_groups", "unknown_medoids")  # with ``open_set``
_KEPT = ("probabilities", "n_iter", "converged", "independent_presence", "review_scores", "copies")


@dataclass(frozen=True, eq=False)
class Memory:
    """What is remembered of t streams: the last batches, the last one first, and how they belong together.

    It is handed from batch to batch (``Solution.memory`` → ``Tasks.earlier``). m and p⁰ of the last r batches follow
    from those of r − 1 and the new one: Σ u adds up and Π (1 − u) multiplies, so that no assignments are kept.
    """

    query: tuple[Tensor, ...]  # [t, q, d] features
    known: tuple[Tensor, ...]  # [t, q] known labels, -1 for the others
    masses: Tensor  # [t, r, k] the expected number of queries of each class in the last 1 … r batches
    absent: Tensor  # [t, r, k] the probability that there is none
    evidence: Tensor  # [t, r] E of these batches together
    lengths: Tensor  # [t, r] ln of the probability that the present run has 1 … r batches
    changes: Tensor  # [t] the number of runs that have ended
    stays: Tensor  # [t] the number of batches that continued one

    @staticmethod
    def empty(tasks: Tasks, parameters: Parameters) -> Memory:
        """Nothing, for the streams that tasks [t] are the first batches of."""
        rows = torch.zeros(len(tasks), 0, tasks.n_classes, dtype=torch.float64, device=tasks.device)
        once = rows.new_ones(len(tasks))  # the probability that a run ends has a uniform prior
        return Memory((), (), rows, rows, rows.sum(-1), rows.sum(-1), once, once)

    def after(self, alone: Solution, query: Tensor, known: Tensor, parameters: Parameters) -> Memory:
        """The memory with one more batch, given the answers for it alone.

        Parameters
        ----------
        alone : Solution
            Of the new batch.
        query : Tensor of shape [t, q, d]
        known : Tensor of shape [t, q]
        parameters : Parameters

        Returns
        -------
        Memory
            Batches beyond ``MOST_ITEMS`` items are forgotten; the longest run that is kept stands for all longer ones.
        """
        answers = alone.probabilities.double()
        masses, absent = answers.sum(1, keepdim=True), remainders(answers).prod(1, keepdim=True)
        masses = torch.cat([masses, masses + self.masses], 1)
        absent = torch.cat([absent, absent * self.absent], 1)
        queries = (query, *self.query)
        sizes = list(accumulate(batch.shape[1] for batch in queries))
        priors = [_log_prior(masses[:, r], absent[:, r], size, parameters) for r, size in enumerate(sizes)]
        evidence = torch.stack(priors, 1)
        rate = (self.changes / (self.changes + self.stays)).unsqueeze(-1)
        longer = self.lengths + (1 - rate).log() + evidence[:, 1:] - self.evidence - evidence[:, :1]
        lengths = torch.cat([rate.log(), longer], 1).log_softmax(1)
        changed = lengths[:, 0].exp() if self.query else torch.zeros_like(self.changes)
        n_kept = sum(size <= MOST_ITEMS for size in sizes)
        if n_kept < len(sizes):  # the longest run that is kept stands for all longer ones
            longest = lengths[:, max(n_kept - 1, 0) :].logsumexp(1, keepdim=True)
            lengths = torch.cat([lengths[:, : max(n_kept - 1, 0)], longest], 1)[:, :n_kept]
        kept = masses[:, :n_kept], absent[:, :n_kept], evidence[:, :n_kept]
        ended = self.changes + changed, self.stays + (1 - changed) * bool(self.query)
        return Memory(queries[:n_kept], (known, *self.known)[:n_kept], *kept, lengths, *ended)

    def earlier(self, before: Memory, doubt: float) -> Tensor:
        """[t] with how many of the batches in ``before`` the last one is labelled.

        The most probable length of the run, less the new batch; 0 where the batch begins a run with a probability above
        ``doubt``.
        """
        longest = min(self.lengths.shape[1] - 1, len(before.query))
        if longest < 1:
            return torch.zeros_like(self.changes, dtype=torch.long)
        best = self.lengths[:, 1 : longest + 1].argmax(1) + 1
        return best.masked_fill(self.lengths[:, 0] > log(doubt), 0)


def _log_prior(masses: Tensor, absent: Tensor, n_items: int, parameters: Parameters) -> Tensor:
    """[t] the bound on ln p(labels) of some batches together, for the best concentration."""
    prior = parameters.prior(n_items, masses, weighted=parameters.open_set)
    return prior.log_prior(Presence.of_products(masses, absent)).amax(-1)


def next_batch(tasks: Tasks, solve: Solve, parameters: Parameters, learned: Any) -> Solution:
    """Label the next batch of each of t streams, and remember it.

    Parameters
    ----------
    tasks : Tasks
        The next batch of each stream. ``earlier`` is what the batch before left in ``Solution.memory``, or () where
        this one is the first.
    solve : callable
        Solves tasks alone.
    parameters : Parameters
    learned : object
        What was learned from the support of these tasks, or None.

    Returns
    -------
    Solution
        The answers for the new batch, with the memory for the batch after it.
    """
    memory: Memory = tasks.earlier or Memory.empty(tasks, parameters)
    memory, tasks = mapped(memory, lambda one: one.to(tasks.device)), replace(tasks, earlier=None, stream=None)
    if isinstance(tasks.pile, Pile):
        if tasks.n_query > MOST_ITEMS:  # enough for itself, and too much to remember
            solution = solve(tasks, learned)
            solution.memory = Memory.empty(tasks, parameters)
            return solution
        whole, _ = tasks.pile.each(lambda rows, memory: (Joined((rows,)), None))
        tasks = replace(tasks, query_table=whole.values[0], pile=None)
    alone = solve(tasks, learned)
    query, labels = tasks.query, tasks.known_labels
    remembered = memory.after(alone, query, labels, parameters)
    earlier, parts = remembered.earlier(memory, parameters.constants.doubt), []
    for n_earlier in sorted(set(earlier.tolist()) - {0}):
        rows = (earlier == n_earlier).nonzero().squeeze(1)
        batches, known = [query, *memory.query[:n_earlier]], [labels, *memory.known[:n_earlier]]
        items, given = (torch.cat([one[rows] for one in values], 1) for values in (batches, known))
        run = replace(tasks[rows], query_table=items, query_index=None, query_labels=None, unknown_labels=None)
        run = replace(run, known=None).with_known(given)
        found = solve(run, select_rows(learned, rows))
        copies = torch.maximum(alone.copies[rows], found.copies)  # in the batch, or of earlier items
        parts.append((rows, _first(found, tasks.n_query) | {"copies": copies}))
    solution = _put_together(alone, parts)
    solution.memory = remembered
    return solution


def in_streams(tasks: Tasks, solve: Solve, parameters: Parameters, learned: Any) -> Solution:
    """The batches of some streams, one after another; streams are solved together. See ``next_batch``.

    The solution has no prototypes: those of all batches together would take much memory.
    """
    n_batches, memory, found = tasks.n_batches, (), []
    for place in range(n_batches):
        batch = replace(tasks[place::n_batches], earlier=memory)
        solution = next_batch(batch.with_known(batch.known), solve, parameters, learned)
        # Functions that compute further results on request would keep the queries of all batches in memory.
        found.append(_plain(solution))
        memory = solution.memory
    order = torch.arange(len(tasks), device=tasks.device).view(n_batches, -1).mT.flatten()
    kept = {name: _stacked([one[name] for one in found])[order] for name in found[0]}
    return _solution(kept, counting=parameters.constants)


def _plain(found: Solution) -> dict[str, Tensor]:
    """All answers that are kept, as tensors [t, …]."""
    kept = {name: getattr(found, name) for name in (*_KEPT, *_OF_UNKNOWN)}
    kept["tallied"] = torch.stack([one.to(found.tallied.masses) for one in found.tallied], 1)
    return {name: value for name, value in kept.items() if isinstance(value, Tensor)}


def _solution(kept: dict[str, Tensor], **more: Any) -> Solution:
    """What ``_plain`` made of a solution, as a solution."""
    later = {"make_presence": "independent_presence", "make_review_scores": "review_scores", "make_copies": "copies"}
    given: dict[str, Any] = {make: partial(kept.get, name) for make, name in later.items()}
    given |= {name: kept.get(name) for name in ("probabilities", "n_iter", "converged", *_OF_UNKNOWN)}
    return Solution(**given, tallied=Tally(*kept["tallied"].unbind(1)), **more)


def _stacked(values: list[Tensor]) -> Tensor:
    """Tensors of several batches one after another; rows that are too short end with -1."""
    width = max(one.shape[-1] for one in values) if values[0].ndim > 1 else 0
    pad = torch.nn.functional.pad
    return torch.cat([pad(one, (0, width - one.shape[-1]), value=-1) if width else one for one in values])


def select_rows(value: Any, which: Tensor) -> Any:
    """Some rows of what was learned from the support (``Learned``), however it is nested; tensors [1, …] serve all."""
    return mapped(value, lambda one: one if len(one) == 1 else one[which])


def _first(found: Solution, n_query: int) -> dict[str, Any]:
    """The answers for the first queries."""
    whole, probabilities = _plain(found), found.probabilities[:, :n_query]
    unknown: Any = whole["unknown"][:, :n_query] if "unknown" in whole else None
    counted = tally(Answered(probabilities, unknown))._replace(doubt=found.tallied.doubt)
    part = Solution(probabilities, found.n_iter, found.converged, tallied=counted)
    kept = _plain(part) | {"review_scores": found.review_scores[:, :n_query]}
    if "unknown" in whole:
        kept |= {"unknown": unknown, **_regrouped(unknown, whole["unknown_groups"][:, :n_query])}
    return kept | {"prototypes": lambda: found.prototypes, "objective": found.objective}


def _regrouped(unknown: Tensor, groups: Tensor) -> dict[str, Tensor]:
    """Groups [t, q] of which some queries were taken away, numbered again by size, and a medoid of each.

    The query that is most probably unknown stands for the one in the middle, which may be of another batch.
    """
    n_groups = int(groups.max()) + 1
    member = torch.nn.functional.one_hot(groups + 1, n_groups + 1)[..., 1:]  # [t, q, g]
    sizes = member.sum(1)
    order = sizes.argsort(dim=-1, descending=True, stable=True)
    place = order.argsort(dim=-1)
    renumbered = torch.where(groups < 0, groups, place.gather(1, groups.clamp_min(0)) if n_groups else groups)
    medoids = (member * unknown.unsqueeze(-1)).argmax(1).masked_fill(sizes == 0, -1).gather(1, order)
    return {"unknown_groups": renumbered, "unknown_medoids": medoids[:, : int((sizes > 0).sum(-1).max())]}


def _put_together(alone: Solution, parts: list[tuple[Tensor, dict[str, Any]]]) -> Solution:
    """The answers ``alone``, with those of some streams replaced.

    ``parts`` has the rows of the streams and their answers from the joint solution, for the new batch only. Where they
    are all streams, the objective of the joint solution is kept, too.
    """
    if not parts:
        return alone
    kept = _plain(alone)

    def prototypes() -> Any:
        values: Any = alone.prototypes
        for rows, part in () if values is None else parts:
            values = values.index_copy(0, rows, part["prototypes"]())
        return values

    for rows, part in parts:
        for name, values in kept.items():
            both = _stacked([values, part[name].to(values)])
            kept[name] = both[: len(values)].index_copy(0, rows, both[len(values) :])
    objective = parts[0][1]["objective"] if len(parts[0][0]) == len(alone.n_iter) else None
    return _solution(kept, make_prototypes=prototypes, objective=objective, counting=alone.counting)
