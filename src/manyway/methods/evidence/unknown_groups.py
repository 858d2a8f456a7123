"""Groups of unknown queries: which of them belong together, by average linkage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.methods.evidence.confidence import Probabilities
from manyway.methods.evidence.judge import UnknownPosterior
from manyway.methods.evidence.queries import BatchQueries, Part, sample


@dataclass(frozen=True, eq=False, kw_only=True)
class UnknownGroups:
    """The groups of unknown queries."""

    posterior: UnknownPosterior
    of_judged: Tensor  # [t, a] those of the judged queries; -1 for queries of a class
    medoids: Tensor  # [t, g] the query in the middle of each group; -1 where a task has fewer

    def __call__(self, part: Part, probabilities: Tensor) -> Tensor:
        """[t, b] the groups of some queries with class probabilities [t, b, k].

        -1 for those of a class.
        """
        if self.posterior.stride == 1:
            return self.of_judged[:, part.first : part.first + part.placed.shape[1]]
        weights = self.posterior.weights(part.coordinates)
        weights = weights.masked_fill((self.of_judged < 0).unsqueeze(1), -1)
        groups = self.of_judged.gather(1, weights.argmax(-1))
        answered = self.posterior.is_answered(part.unknown, probabilities)
        return groups.masked_fill(~answered, -1)


def group_unknown(
    queries: BatchQueries,
    posterior: UnknownPosterior,
    probabilities: Probabilities,
) -> UnknownGroups:
    """The groups of the queries that are answered as unknown, given the final probabilities."""
    sampled = sample(queries, posterior.stride, probabilities)
    unknown = posterior.unknown(sampled.placed, 0)
    answered = posterior.is_answered(unknown, sampled.values)
    alike = 0.5 * queries.parameters.constants.improbable
    linked = link(posterior.similarity, answered, alike)
    medoids = linked.medoids
    numbers = torch.where(medoids < 0, medoids, medoids * posterior.stride)
    return UnknownGroups(posterior=posterior, of_judged=linked.groups, medoids=numbers)


class Linked(NamedTuple):
    """Groups of some queries, and the query in the middle of each."""

    groups: Tensor  # [t, q] the group of each query; -1 for the others
    medoids: Tensor  # [t, g] -1 where a task has fewer groups


def link(similarity: Tensor, rejected: Tensor, alike: float) -> Linked:
    """Group the rejected queries [t, q] by their similarity [t, q, q].

    Groups are numbered from the largest on; -1 stands for the other queries, and where a task has
    fewer groups. The two groups with the highest mean similarity are joined, again and again, while
    it is high enough. The medoid of a group has the highest total similarity to it.
    """
    groups = torch.full(rejected.shape, -1, device=rejected.device)
    most = int(rejected.sum(-1).max())
    if most == 0:
        return Linked(groups=groups, medoids=groups[:, :0])
    first = rejected.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    which = first[:, :most]  # [t, r]
    inside = rejected.gather(1, which)
    tasks = torch.arange(len(which), device=which.device).view(-1, 1, 1)
    among = similarity[tasks, which.unsqueeze(2), which.unsqueeze(1)]
    among = among * (inside.unsqueeze(1) & inside.unsqueeze(2))
    member = _linked(among, alike) * inside.unsqueeze(-1)  # [t, r, r] whether a query is in a group
    order = member.sum(1).argsort(dim=-1, descending=True, stable=True)
    member = member.gather(2, order.unsqueeze(1).expand_as(member))
    member = member[..., : int((member.sum(1) > 0).sum(-1).max())]
    groups = groups.scatter(1, which, member.argmax(-1).masked_fill(~inside, -1))
    total = (among @ member).masked_fill(member == 0, -1)
    medoids = which.gather(1, total.argmax(1)).masked_fill(member.sum(1) == 0, -1)
    return Linked(groups=groups, medoids=medoids)


def _linked(similarity: Tensor, alike: float) -> Tensor:
    """[t, r, g] 1 where query r is in group g, else 0, by average linkage.

    It starts from similarities [t, r, r].
    """
    n_tasks, size, _ = similarity.shape
    member = torch.eye(size, dtype=similarity.dtype, device=similarity.device)
    member = member.repeat(n_tasks, 1, 1)
    total = similarity.clone()  # [t, g, g] between the queries of two groups
    upper = torch.ones(size, size, dtype=torch.bool, device=similarity.device).triu(1)
    tasks = torch.arange(n_tasks, device=similarity.device)
    for _ in range(size - 1):
        sizes = member.sum(1)
        mean = total / (sizes.unsqueeze(1) * sizes.unsqueeze(2)).clamp_min(1)
        best, pair = mean.masked_fill(~upper, -1).flatten(1).max(-1)
        joins = best >= alike
        if not bool(joins.any()):
            break
        t = tasks[joins]
        first = pair[joins] // size
        second = pair[joins] % size
        for values in (member, total, total.mT):
            values[t, :, first] += values[t, :, second]
            values[t, :, second] = 0
    return member
