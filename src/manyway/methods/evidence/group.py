"""Group: what the queries of a class say together, once the search has found them.

A group is the set of queries assigned to one class, with the mass m_k = Σ_q u_qk. The bound leaves
two things out. First, the queries of a group are further samples of its class, so the prototype can
be updated (``likelihood.query_weights``). Second, the queries of a group share the error of their
prototype, so they are less independent than the bound assumes: a whole group may belong to another
class (``Groups.posterior``), and a class with many queries may be split between its own prototype
and a neighbouring one (``Fragments``). The probabilities are

    p_qj = Σ_k u'_qk P_kj,

where u' are the assignments with updated prototypes and P_kj the probability that group k is of
class j.

Known labels are compared with these answers. Where one contradicts them, the assignments of all
known queries of the task are fixed, and the search goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Sums, effective_number
from manyway.methods.evidence.calibrate import CalibratedBatch
from manyway.methods.evidence.likelihood import (
    Likelihood,
    Updated,
    columns_of,
    independent_part,
    own_classes,
    query_weights,
)
from manyway.methods.evidence.prior import (
    SURE,
    Concentrations,
    QueryCounts,
    Slopes,
    log_remainders,
    remainders,
)
from manyway.methods.evidence.queries import BatchQueries, Part, sampling_stride
from manyway.methods.evidence.schedule import Parameters, Schedule, agreement
from manyway.methods.evidence.search import Searched

_GROUPS_AT_ONCE = 1024  # limits the memory of [groups, classes] arrays
# Products of two smaller numbers would be subnormal, with which x86 is ten times slower.
_NEGLIGIBLE = 1e-18


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouped:
    """What search and groups say about the queries, and the search's account of itself."""

    groups: Groups
    answers: GroupAnswers
    n_iter: Tensor  # [t] iterations of all searches, without the annealing
    converged: Tensor  # [t] of the last one


def group(batch: CalibratedBatch, searched: Searched) -> Grouped:
    """Group the queries by the classes that the search gave them, and heed known labels.

    Parameters
    ----------
    batch : CalibratedBatch
        Its queries have the assignments of the search. Where known labels contradict these, the
        queries are searched again.
    searched : Searched

    Returns
    -------
    Grouped
    """
    queries = batch.queries
    grouped = _grouped(queries, searched, None)
    if not queries.any_known:
        return grouped
    contradicted = queries.each(partial(_contradictions, grouped.answers)).values[0] > 0
    if not bool(contradicted.any()):
        return grouped
    searched = searched.then(queries.fix(contradicted, searched.prior))
    if batch.parameters.update_prototypes and not batch.one_shot:
        # Known queries tell which groups are right, so that the search can go on with updated
        # prototypes. With one sample per class it must not: a prototype is then mostly queries, and
        # those of a wrong group stay.
        groups = Groups.of(queries, searched.prior, fixed=True)
        if groups.updated.classes.shape[1]:
            resumed = queries.resume(groups.updated, groups.query_counts, searched.prior)
            searched = searched.then(resumed)
    fixed_classes = queries.known_classes & contradicted.unsqueeze(-1)
    return _grouped(queries, searched, fixed_classes)


def _grouped(queries: BatchQueries, searched: Searched, fixed_classes: Tensor | None) -> Grouped:
    """The groups of the last search and the posterior of their classes; see ``Groups``."""
    groups = Groups.of(queries, searched.prior, fixed=fixed_classes is not None)
    posterior = groups.posterior(queries.likelihood, fixed_classes, queries.parameters)
    answers = GroupAnswers(slopes=groups.slopes, updated=groups.updated, posterior=posterior)
    return Grouped(
        groups=groups,
        answers=answers,
        n_iter=searched.n_iter,
        converged=searched.converged,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupAnswers:
    """From some queries to their class probabilities, as search and groups have them."""

    slopes: Slopes
    updated: Updated
    posterior: GroupPosterior

    def __call__(self, part: Part) -> Tensor:
        """[t, b, k] by updated prototypes, the prior, and the classes of the groups."""
        scores = self.updated(part.placed, part.u, part.free, part.log_likelihood)
        assignments = self.slopes.add_to(scores, remainders(part.u)).softmax(-1)
        return self.posterior.apply(assignments)


def _contradictions(answers: GroupAnswers, part: Part) -> Sums:
    """The work that counts the known labels [t] which the batch without them does not say."""
    labels = answers(part).argmax(-1)
    contradicted = (part.known >= 0) & (labels != part.known)
    return Sums((contradicted.sum(1),))


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupPosterior:
    """Which class each group of queries belongs to."""

    classes: Tensor  # [t, g] the classes whose queries form a group
    probabilities: Tensor  # [t, g, k] that group g, taken as a whole, belongs to class k

    def apply(self, u: Tensor) -> Tensor:
        """Class probabilities from assignments to groups; classes without a group keep theirs.

        Parameters
        ----------
        u : Tensor of shape [t, q, k]

        Returns
        -------
        Tensor of shape [t, q, k]
            u_qj + Σ_g u_qg (P_gj − 1[g = j]) over the groups g.
        """
        if not self.classes.shape[1]:
            return u
        columns = self.classes.unsqueeze(1).expand(-1, u.shape[1], -1)
        of_groups = torch.threshold(u.gather(-1, columns), _NEGLIGIBLE, 0.0)
        classes_of_groups = torch.threshold(self.probabilities, _NEGLIGIBLE, 0.0)
        return u.scatter(-1, columns, 0).add_(of_groups @ classes_of_groups)

    def presence(self, occupied: Tensor) -> Tensor:
        """[t, k] the probability that a class is present, given that its group has a query [t, k].

            1 − (1 − o_j [no group]) Π_g (1 − o_g P_gj),        o the probability that a group is not empty,

        if groups are of their classes independently of each other.
        """
        without_group = occupied.scatter(1, self.classes, 0)
        log_absent = torch.log1p(-without_group.clamp_max_(SURE))
        for first in range(0, self.classes.shape[1], _GROUPS_AT_ONCE):
            part = slice(first, first + _GROUPS_AT_ONCE)
            not_empty = occupied.gather(1, self.classes[:, part]).unsqueeze(-1)
            joint = not_empty * self.probabilities[:, part].to(occupied)
            log_absent += torch.log1p(-joint.clamp_max_(SURE)).sum(1)
        return -torch.expm1(log_absent)


@dataclass(frozen=True, eq=False, kw_only=True)
class Groups:
    """The groups that a search has found, and the prototypes that have taken them in."""

    query_counts: QueryCounts
    slopes: Slopes
    # [t, g] those with a group of more than one query, and others where a task has fewer
    classes: Tensor
    members: QueryCounts  # as if no label were fixed
    sums: Tensor  # [t, g, d] of the members
    # [t, 3] the number of queries, the sum of distances to their prototypes, and that of squares
    lengths: Tensor
    # [t, g, k] what fixed labels say about the class of a group; [t, 0, k] where none is fixed
    fixed_evidence: Tensor
    updated: Updated

    @staticmethod
    def of(queries: BatchQueries, prior: Concentrations, *, fixed: bool = False) -> Groups:
        """The groups of the last search, and what their queries say.

        This takes one or two passes over the queries.

        Parameters
        ----------
        queries : BatchQueries
        prior : Concentrations
        fixed : bool, default=False
            Whether assignments of queries with known labels are fixed.

        Returns
        -------
        Groups
        """
        query_counts = queries.query_counts
        like = queries.likelihood.counts
        slopes = prior.slopes(query_counts).to(like)
        members = query_counts
        if fixed:
            masses, log_absent = queries.each(partial(_count_members, slopes)).values
            members = QueryCounts.of_products(masses, log_absent.exp())
        largest = _largest_masses(query_counts, members)
        classes = largest.topk(int((largest > 1).sum(1).max()), dim=1).indices
        work = partial(_sum_groups, classes, slopes, sampling_stride(queries.n_query))
        sums = _GroupSums(*(total.to(like) for total in queries.each(work).values))
        weights = query_weights(query_counts.masses).gather(1, classes).to(like)
        weights = weights * float(queries.parameters.update_prototypes)
        return Groups(
            query_counts=query_counts,
            slopes=slopes,
            classes=classes,
            members=members,
            sums=sums.members,
            lengths=sums.lengths,
            fixed_evidence=sums.fixed_evidence,
            updated=queries.likelihood.updated(classes, sums.free, sums.free_masses, weights),
        )

    def posterior(
        self,
        likelihood: Likelihood,
        fixed_classes: Tensor | None,
        parameters: Parameters,
    ) -> GroupPosterior:
        """The posterior of the groups' classes.

        ``fixed_classes`` [t, k] are the classes with a fixed query; None: no label is fixed.

        With n_k examples and m_k queries in group k, and ω = shared_error + 1/(n_k + 1), group k is
        of class j with

            P_kj ∝ exp(Σ_q u_qk ℓ_qj / (1 + ω (m_k − 1))):

        m queries count as m / (1 + ω(m − 1)) independent ones. With ``merge_groups`` a group may
        also be a fragment of a larger one; see ``Fragments``. A query's own evidence is contained
        in its assignment already, so a group of one keeps its class: P is mixed with the identity
        in the parts 1 − 1/m (``as_group``) and 1/m. Where half of all classes or more seem to be
        present, groups are mixtures of neighbours, and keep their classes as well. So do groups of
        classes with a fixed query.
        """
        classes = self.classes
        if not parameters.group_posterior:
            classes = classes[:, :0]
        examples = likelihood.examples.expand(len(classes), -1)
        masses = self.members.masses.to(examples)
        agreed = (2 * agreement(masses)).clamp_max(1).unsqueeze(-1)
        fragments = Fragments.of(self, masses, parameters)
        rows = []
        for first in range(0, classes.shape[1], _GROUPS_AT_ONCE):
            part = slice(first, first + _GROUPS_AT_ONCE)
            columns = classes[:, part]
            sizes = masses.gather(1, columns)
            totals = likelihood.totals(self.sums[:, part], sizes)  # [t, g, k] Σ_q u_qg ℓ_qk
            correlation = parameters.constants.shared_error + 1 / (examples.gather(1, columns) + 1)
            scores = totals * independent_part(sizes, correlation).unsqueeze(-1)
            if self.any_fixed:
                scores = scores + self.fixed_evidence[:, part]
                totals = totals + self.fixed_evidence[:, part]
            of_class = fragments.joined(scores.softmax(-1), totals, sizes, part)
            as_group = (1 - 1 / sizes.clamp_min(1)) * agreed
            if fixed_classes is not None:
                as_group = as_group.masked_fill(fixed_classes.gather(1, columns), 0)
            of_class.mul_(as_group.unsqueeze(-1))
            as_found = (1 - as_group).unsqueeze(-1)
            rows.append(of_class.scatter_add_(-1, columns.unsqueeze(-1), as_found))
        nothing = examples.new_zeros(len(examples), 0, examples.shape[1])
        return GroupPosterior(classes=classes, probabilities=torch.cat(rows or [nothing], 1))

    @property
    def are_several(self) -> Tensor:
        """[t, g] whether there is more than one query: not so where another task has more groups."""
        return _largest_masses(self.query_counts, self.members).gather(1, self.classes) > 1

    @property
    def any_fixed(self) -> bool:
        """Whether fixed labels say something about the classes of groups."""
        return bool(self.fixed_evidence.shape[1])


def _largest_masses(query_counts: QueryCounts, members: QueryCounts) -> Tensor:
    """[t, k] the larger of the masses with fixed labels and without."""
    return torch.maximum(query_counts.masses, members.masses)


@dataclass(frozen=True, eq=False, kw_only=True)
class Fragments:
    """Small groups that may be fragments of larger ones, in the tasks with few groups.

    A fragment needs no class of its own: joining a larger group is as probable as the prior of the
    labels says. Its queries lie on another side of the prototype than those of the larger group, so
    they count as independent. The log-odds that group k is a fragment of the larger group j are

        Σ_q u_qk (ℓ_qj − ℓ_qk) + ln Γ(m_j+m_k+α)/Γ(m_j+α) − ln Γ(m_k+α)/Γ(α),

    the integrated completed likelihood (Biernacki, Celeux, Govaert, 2000). The probability is
    multiplied by a factor that falls from 1, where one group was found, to 0 at
    ``most_groups_with_fragments``.
    """

    groups: Groups
    tasks: Tensor  # [m] in which fragments are looked for
    fading: Tensor  # [m] the factor
    alpha: Tensor  # [m] the concentration
    masses: Tensor  # [m, k]
    most: int  # how many of the largest groups can have fragments

    @staticmethod
    def of(groups: Groups, masses: Tensor, parameters: Parameters) -> Fragments:
        """Where to look for them, given the masses [t, k] of all classes."""
        schedule: Schedule = parameters.constants
        number = effective_number(masses)
        fading = (1 - (number - 1) / (schedule.most_groups_with_fragments - 1)).clamp(0, 1)
        fading = fading * float(parameters.merge_groups)
        tasks = fading.nonzero().squeeze(1)
        return Fragments(
            groups=groups,
            tasks=tasks,
            fading=fading[tasks],
            alpha=groups.slopes.alpha.to(masses)[tasks],
            masses=masses[tasks],
            most=ceil(schedule.most_groups_with_fragments),
        )

    def joined(self, alone: Tensor, totals: Tensor, sizes: Tensor, part: slice) -> Tensor:
        """[t, g, k] the class probabilities of some groups, with what they are as fragments.

        ``alone`` [t, g, k] are their probabilities if they are none, which are overwritten,
        ``totals`` [t, g, k] their Σ_q u_qg ℓ_qk and ``sizes`` [t, g] their masses.
        """
        tasks = self.tasks
        if not len(tasks):
            return alone
        largest = self.masses.topk(min(self.most, self.masses.shape[-1]))
        columns = self.groups.classes[tasks, part]
        larger = _Larger(classes=largest.indices, masses=largest.values)
        log_odds = self._log_odds(totals[tasks], columns, sizes[tasks], larger)
        no_fragment = torch.zeros_like(log_odds[..., :1])
        joining = torch.cat([no_fragment, log_odds], -1).softmax(-1)[..., 1:]
        fading = self.fading.unsqueeze(-1)
        if self.groups.any_fixed:  # a group with a fixed query is no fragment of another class
            fading = fading * self.groups.fixed_evidence[tasks, part].amax(-1).neg().exp()
        joining = joining * fading.unsqueeze(-1)
        staying = alone[tasks] * (1 - joining.sum(-1, keepdim=True))
        of_larger = larger.classes.unsqueeze(1).expand_as(joining)
        alone[tasks] = staying.scatter_add_(-1, of_larger, joining)
        return alone

    def _log_odds(self, totals: Tensor, columns: Tensor, sizes: Tensor, larger: _Larger) -> Tensor:
        """[m, g, l] log-odds that groups are fragments of larger ones.

        ``totals`` [m, g, k] are the Σ_q u_qg ℓ_qk of the groups, ``columns`` [m, g] their classes,
        and ``sizes`` [m, g] their masses.
        """
        m_j = larger.masses.unsqueeze(1)
        m_k = sizes.unsqueeze(-1)
        alpha = self.alpha.view(-1, 1, 1)
        as_own = totals.gather(-1, columns.unsqueeze(-1))
        places = larger.classes.unsqueeze(1).expand(-1, sizes.shape[1], -1)
        as_larger = totals.gather(-1, places)
        joining = torch.lgamma(m_k + m_j + alpha) - torch.lgamma(m_j + alpha)
        founding = torch.lgamma(m_k + alpha) - torch.lgamma(alpha)
        log_odds = as_larger - as_own + joining - founding
        return log_odds.masked_fill(m_j <= m_k, -torch.inf)  # only smaller groups join


class _Larger(NamedTuple):
    """The largest groups of each task."""

    classes: Tensor  # [m, l]
    masses: Tensor  # [m, l]


def _count_members(slopes: Slopes, part: Part) -> Sums:
    """The work that counts the members of each class, as if no label were fixed.

    Σ u and Σ ln(1 − u) [t, k]
    """
    members = part.members(slopes)
    return Sums((members.sum(1), log_remainders(members).sum(1)))


class _GroupSums(NamedTuple):
    """Sums over the queries of groups."""

    members: Tensor  # [t, g, d] Σ u z of the members, as if no label were fixed
    free: Tensor  # [t, g, d] Σ u z of the queries whose label is not fixed
    free_masses: Tensor  # [t, g] Σ u of these
    lengths: Tensor  # [t, 3] as in ``Groups``
    fixed_evidence: Tensor  # [t, g, k] or [t, 0, k], as in ``Groups``


def _sum_groups(classes: Tensor, slopes: Slopes, every: int, part: Part) -> Sums:
    """The work that makes the ``_GroupSums`` of groups with the classes [t, g].

    Lengths are those of every so many queries.
    """
    u = columns_of(part.u, classes)
    lengths = _sum_lengths(part.every(every))
    if not part.any_fixed:
        sums = u.mT @ part.placed
        nothing = sums.new_zeros(len(u), 0, part.u.shape[-1])
        return Sums(
            _GroupSums(
                members=sums,
                free=sums,
                free_masses=u.sum(1),
                lengths=lengths,
                fixed_evidence=nothing,
            )
        )
    members = columns_of(part.members(slopes), classes)
    free = u * part.free
    # A group of class k contains no query of another class, so each fixed query of another class
    # multiplies its likelihood by 1 − u. Up to a number per group, this is to divide the likelihood
    # of the query's own class by it.
    own = own_classes(part.fixed, part.u)
    return Sums(
        _GroupSums(
            members=members.mT @ part.placed,
            free=free.mT @ part.placed,
            free_masses=free.sum(1),
            lengths=lengths,
            fixed_evidence=-(log_remainders(members).mT @ own),
        )
    )


def _sum_lengths(part: Part) -> Tensor:
    """[t, 3] ``Groups.lengths`` of some queries."""
    far = part.likelihood.lengths(part.placed)
    powers = torch.stack([torch.ones_like(far), far, far.square()], -1)
    return (powers * ((1 - part.unknown) * part.distinct).unsqueeze(-1)).sum(1)
