"""Streams: batches that arrive one after another.

Earlier batches help to label the next, as far as the evidence says so.

A *run* is a number of consecutive batches whose classes have the same proportions. If the new batch
continues a run, its queries are labelled jointly with those of the run. Which classes occur is then
known better, and prototypes are updated by more queries. If it may begin a run, it is labelled
alone. Labels that were given out before do not change.

Let E(b) be the bound on ln p(labels) that the prior of the class proportions gives to some batches
together (see ``prior``). Likelihoods and entropies of the queries are the same for runs of any
length, so a batch is

    exp(E(run and batch) − E(run) − E(batch))

times as probable in the run as alone. Every batch is first labelled alone, and E is computed from
these assignments, so that no run confirms itself. With a probability h that a run ends before a
batch, the probability of every length r of the present run follows (Bayesian change-point
detection, Adams and MacKay, 2007):

    p(r + 1) ∝ p(r) (1 − h) exp(E_{r+1} − E_r − E_1),        p(1) ∝ h.

h is the mean of a Beta distribution that counts, in the stream so far, the runs that have ended and
the batches that continued one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Answered, Counting, Joined, Solution, Tally, Tasks, has_gaps, mapped, tally
from manyway.methods.evidence.calibrate import Learned, select_rows
from manyway.methods.evidence.prior import QueryCounts, remainders
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.shift import Moved, with_queries

# Items that are remembered: a limit of memory and time. A run of so many items names nearly all
# classes of its batches, and longer runs gained nothing more. A batch that is larger is enough for
# itself.
MOST_ITEMS = 1024
# The answers of a solution that are kept.
_OF_UNKNOWN = ("unknown", "unknown_groups", "unknown_medoids")  # with ``open_set``
_ANSWERS = ("probabilities", "n_iter", "converged")
# What a solution makes on request, and the argument of its constructor that makes it.
_ON_REQUEST = {
    "independent_presence": "make_presence",
    "review_scores": "make_review_scores",
    "copies": "make_copies",
}

# From tasks and what was learned from their support to the answers.
Solve = Callable[[Tasks, Learned | None], Solution]


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """How batches are labelled alone, and as a run."""

    alone: Solve  # a new batch, whose queries may be moved back (``adapt``)
    together: Solve  # some batches of a run, each of which was moved back by its own shift


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamMemory:
    """What is remembered of t streams: the last batches, the last one first, and their runs.

    It is handed from batch to batch (``Solution.memory`` → ``Tasks.earlier``). m and p⁰ of the last
    r batches follow from those of r − 1 and the new one: Σ u adds up and Π (1 − u) multiplies, so
    that no assignments are kept.
    """

    query: tuple[Tensor, ...]  # [t, q, d] features
    known: tuple[Tensor, ...]  # [t, q] known labels, -1 for the others
    # [t, r, k] the expected number of queries of each class in the last 1 … r batches
    masses: Tensor
    absent: Tensor  # [t, r, k] the probability that there is none
    evidence: Tensor  # [t, r] E of these batches together
    lengths: Tensor  # [t, r] ln of the probability that the present run has 1 … r batches
    changes: Tensor  # [t] the number of runs that have ended
    stays: Tensor  # [t] the number of batches that continued one

    @staticmethod
    def empty(tasks: Tasks) -> StreamMemory:
        """Nothing, for the streams that tasks [t] are the first batches of."""
        shape = (len(tasks), 0, tasks.n_classes)
        rows = torch.zeros(shape, dtype=torch.float64, device=tasks.device)
        once = rows.new_ones(len(tasks))  # the probability that a run ends has a uniform prior
        return StreamMemory(
            query=(),
            known=(),
            masses=rows,
            absent=rows,
            evidence=rows.sum(-1),
            lengths=rows.sum(-1),
            changes=once,
            stays=once,
        )

    def after(
        self,
        alone: Solution,
        query: Tensor,
        known: Tensor,
        parameters: Parameters,
    ) -> StreamMemory:
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
        StreamMemory
            Batches beyond ``MOST_ITEMS`` items are forgotten; the longest run that is kept stands
            for all longer ones.
        """
        answers = alone.probabilities.double()
        of_batch = answers.sum(1, keepdim=True)
        absent_here = remainders(answers).prod(1, keepdim=True)
        masses = torch.cat([of_batch, of_batch + self.masses], 1)
        absent = torch.cat([absent_here, absent_here * self.absent], 1)
        queries = (query, *self.query)
        sizes = list(accumulate(batch.shape[1] for batch in queries))
        priors = [
            _log_prior(masses[:, r], absent[:, r], size, parameters) for r, size in enumerate(sizes)
        ]
        evidence = torch.stack(priors, 1)
        lengths = self._lengths_after(evidence)
        changed = torch.zeros_like(self.changes)
        stayed = torch.zeros_like(self.stays)
        if self.query:
            changed = lengths[:, 0].exp()
            stayed = 1 - changed
        n_kept = sum(size <= MOST_ITEMS for size in sizes)
        return StreamMemory(
            query=queries[:n_kept],
            known=(known, *self.known)[:n_kept],
            masses=masses[:, :n_kept],
            absent=absent[:, :n_kept],
            evidence=evidence[:, :n_kept],
            lengths=_shortened(lengths, n_kept),
            changes=self.changes + changed,
            stays=self.stays + stayed,
        )

    def _lengths_after(self, evidence: Tensor) -> Tensor:
        """[t, r + 1] ln of the probability of each length of the run.

        ``evidence`` [t, r + 1] is E of the last 1 … r + 1 batches together.
        """
        rate = (self.changes / (self.changes + self.stays)).unsqueeze(-1)
        longer = self.lengths + (1 - rate).log() + evidence[:, 1:] - self.evidence - evidence[:, :1]
        return torch.cat([rate.log(), longer], 1).log_softmax(1)

    def n_earlier(self, before: StreamMemory, improbable: float) -> Tensor:
        """[t] with how many of the batches in ``before`` the last one is labelled.

        That is the most probable length of the run, less the new batch; 0 where the batch begins a
        run with a probability above ``improbable``.
        """
        longest = min(self.lengths.shape[1] - 1, len(before.query))
        if longest < 1:
            return torch.zeros_like(self.changes, dtype=torch.long)
        best = self.lengths[:, 1 : longest + 1].argmax(1) + 1
        return best.masked_fill(self.lengths[:, 0] > log(improbable), 0)


def _shortened(lengths: Tensor, n_kept: int) -> Tensor:
    """[t, n_kept] lengths of a run, the longest of which stands for all longer ones."""
    if n_kept == lengths.shape[1]:
        return lengths
    last = max(n_kept - 1, 0)
    longest = lengths[:, last:].logsumexp(1, keepdim=True)
    return torch.cat([lengths[:, :last], longest], 1)[:, :n_kept]


def _log_prior(masses: Tensor, absent: Tensor, n_items: int, parameters: Parameters) -> Tensor:
    """[t] the bound on ln p(labels) of some batches together, for the best concentration."""
    prior = parameters.prior(n_items, masses, weighted=parameters.open_set)
    return prior.log_prior(QueryCounts.of_products(masses, absent)).amax(-1)


class _Joint(NamedTuple):
    """The answers of some streams for the new batch, which was labelled with earlier ones."""

    rows: Tensor  # [m] the streams
    answers: dict[str, Tensor]  # as from ``_kept_answers``
    solution: Solution  # for all batches of the run


def next_batch(
    tasks: Tasks, labelling: Labelling, parameters: Parameters, learned: Learned | None
) -> Solution:
    """Label the next batch of each of t streams, and remember it.

    Parameters
    ----------
    tasks : Tasks
        The next batch of each stream. ``earlier`` is what the batch before left in
        ``Solution.memory``, or () where this one is the first.
    labelling : Labelling
    parameters : Parameters
    learned : Learned or None
        What was learned from the support of these tasks before; None: it is learned now.

    Returns
    -------
    Solution
        The answers for the new batch, with the memory for the batch after it.
    """
    memory: StreamMemory = tasks.earlier or StreamMemory.empty(tasks)
    memory = mapped(memory, lambda tensor: tensor.to(tasks.device))
    tasks = replace(tasks, earlier=None, stream=None)
    if tasks.pile is not None:
        if tasks.n_query > MOST_ITEMS:  # enough for itself, and too much to remember
            solution = labelling.alone(tasks, learned)
            # The runs of the stream so far still say how often one ends.
            nothing = StreamMemory.empty(tasks)
            solution.memory = replace(nothing, changes=memory.changes, stays=memory.stays)
            return solution
        whole, _ = tasks.pile.each(lambda rows, memory: (Joined((rows,)), None))
        tasks = replace(tasks, query_table=whole.values[0], pile=None)
    alone = labelling.alone(tasks, learned)
    if alone.moved_by is not None:
        tasks = with_queries(tasks, Moved(alone.moved_by))
    remembered = memory.after(alone, tasks.query, tasks.known_labels, parameters)
    n_earlier = remembered.n_earlier(memory, parameters.constants.improbable)
    joint = []
    for number in sorted(set(n_earlier.tolist()) - {0}):
        rows = (n_earlier == number).nonzero().squeeze(1)
        run = _run(tasks, memory, number, rows)
        together = labelling.together(run, select_rows(learned, rows))
        answers = _of_first_queries(together, tasks.n_query)
        # Copies in the batch, or of earlier items.
        answers["copies"] = torch.maximum(alone.copies[rows], together.copies)
        joint.append(_Joint(rows=rows, answers=answers, solution=together))
    solution = _put_together(alone, joint)
    solution.memory = remembered
    return solution


def _run(tasks: Tasks, memory: StreamMemory, n_earlier: int, rows: Tensor) -> Tasks:
    """The new batches of the streams ``rows``, joined with so many batches before."""
    batches = [tasks.query, *memory.query[:n_earlier]]
    labels = [tasks.known_labels, *memory.known[:n_earlier]]
    queries = torch.cat([one[rows] for one in batches], 1)
    run = replace(
        tasks[rows],
        query_table=queries,
        gaps=has_gaps(queries),
        query_index=None,
        query_labels=None,
        unknown_labels=None,
    )
    return replace(run, known=None).with_known(torch.cat([one[rows] for one in labels], 1))


def in_streams(
    tasks: Tasks, labelling: Labelling, parameters: Parameters, learned: Learned | None
) -> Solution:
    """The batches of some streams, one after another (``next_batch``); streams are solved together.

    The solution has no prototypes: those of all batches together would take much memory. It tells
    nothing beside its answers either.
    """
    n_batches = tasks.n_batches
    memory: Any = ()
    found = []
    for place in range(n_batches):
        batch = replace(tasks[place::n_batches], earlier=memory)
        solution = next_batch(batch.with_known(batch.known), labelling, parameters, learned)
        # Functions that compute further results on request would keep the queries of all batches in
        # memory.
        found.append(_kept_answers(solution))
        memory = solution.memory
    order = torch.arange(len(tasks), device=tasks.device).view(n_batches, -1).mT.flatten()
    answers = {name: _stacked([one[name] for one in found])[order] for name in found[0]}
    return _solution(answers, counting=parameters.constants)


def _kept_answers(found: Solution) -> dict[str, Tensor]:
    """What is kept of the answers, by name, as tensors [t, …]."""
    names = (*_ANSWERS, *_ON_REQUEST, *_OF_UNKNOWN)
    answers = {name: getattr(found, name) for name in names}
    answers = {name: value for name, value in answers.items() if value is not None}
    masses = found.tallied.masses
    answers["tallied"] = torch.stack([one.to(masses) for one in found.tallied], 1)
    return answers


def _solution(
    answers: dict[str, Tensor],
    counting: Counting,
    make_prototypes: Callable[[], Tensor] | None = None,
    objective: Tensor | None = None,
    **of_batch: Any,
) -> Solution:
    """A solution from its ``_kept_answers``, with further arguments ``of_batch``."""
    given: dict[str, Any] = {name: answers.get(name) for name in (*_ANSWERS, *_OF_UNKNOWN)}
    for name, make in _ON_REQUEST.items():
        given[make] = partial(answers.get, name)
    return Solution(
        **given,
        tallied=Tally(*answers["tallied"].unbind(1)),
        counting=counting,
        make_prototypes=make_prototypes,
        objective=objective,
        **of_batch,
    )


def _stacked(values: list[Tensor]) -> Tensor:
    """Tensors of several batches one after another; rows that are too short end with -1."""
    if values[0].ndim == 1:
        return torch.cat(values)
    width = max(one.shape[-1] for one in values)
    pad = torch.nn.functional.pad
    return torch.cat([pad(one, (0, width - one.shape[-1]), value=-1) for one in values])


def _of_first_queries(found: Solution, n_query: int) -> dict[str, Tensor]:
    """The answers for the first queries of a run, which are those of the new batch."""
    probabilities = found.probabilities[:, :n_query]
    unknown = None
    if found.unknown is not None:
        unknown = found.unknown[:, :n_query]
    counted = tally(Answered(probabilities, unknown))._replace(doubt=found.tallied.doubt)
    of_queries = Solution(probabilities, found.n_iter, found.converged, tallied=counted)
    answers = _kept_answers(of_queries)
    answers["review_scores"] = found.review_scores[:, :n_query]
    if unknown is not None and found.unknown_groups is not None:
        answers["unknown"] = unknown
        answers |= _regrouped(unknown, found.unknown_groups[:, :n_query])
    return answers


def _regrouped(unknown: Tensor, groups: Tensor) -> dict[str, Tensor]:
    """Groups [t, q] that have lost queries, numbered again by size, and a medoid of each.

    The query that is most probably unknown stands for the one in the middle, which may be of
    another batch.
    """
    n_groups = int(groups.max()) + 1
    member = torch.nn.functional.one_hot(groups + 1, n_groups + 1)[..., 1:]  # [t, q, g]
    sizes = member.sum(1)
    order = sizes.argsort(dim=-1, descending=True, stable=True)
    renumbered = groups
    if n_groups:
        place = order.argsort(dim=-1)
        renumbered = torch.where(groups < 0, groups, place.gather(1, groups.clamp_min(0)))
    medoids = (member * unknown.unsqueeze(-1)).argmax(1)
    medoids = medoids.masked_fill(sizes == 0, -1).gather(1, order)
    most = int((sizes > 0).sum(-1).max())
    return {"unknown_groups": renumbered, "unknown_medoids": medoids[:, :most]}


def _put_together(alone: Solution, joint: list[_Joint]) -> Solution:
    """The answers ``alone``, with those of some streams replaced by ``joint`` ones.

    Where a joint solution is for all streams, its objective is kept, too. What is told of the batch
    is what was found when it was labelled alone: its shift, and what the support says.
    """
    if not joint:
        return alone

    def prototypes() -> Any:
        values: Any = alone.prototypes
        if values is None:
            return None
        for some_streams in joint:
            values = values.index_copy(0, some_streams.rows, some_streams.solution.prototypes)
        return values

    answers = _kept_answers(alone)
    for some_streams in joint:
        for name, values in answers.items():
            both = _stacked([values, some_streams.answers[name].to(values)])
            others = both[len(values) :]
            answers[name] = both[: len(values)].index_copy(0, some_streams.rows, others)
    objective = None
    if len(joint[0].rows) == len(alone.n_iter):
        objective = joint[0].solution.objective
    return _solution(
        answers,
        make_prototypes=prototypes,
        objective=objective,
        counting=alone.counting,
        told=alone.told,
        moved_by=alone.moved_by,
        doubts=alone.doubts,
    )
