"""Post-processing: what the queries of a class say together, once the search has found the groups.

A group is the set of queries assigned to one class. The bound leaves two things out. First, the queries of a group are
further samples of its class, so the prototype can be updated. Second, the queries of a group share the error of their
prototype, so they are less independent than the bound assumes: a whole group may belong to another class, and a class
with many queries may be split between its own prototype and a neighbouring one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.methods.evidence.prior import Presence, effective_number
from manyway.methods.evidence.schedule import Schedule, agreement

_GROUPS_AT_ONCE = 1024  # limits the memory of [groups, classes] arrays
_LARGEST_GROUPS = 16  # how many of the largest groups can have fragments; limits the cost


def query_weights(masses: Tensor) -> Tensor:
    """[t, k] how much of a support sample one query counts in the update of a prototype.

    It is the agreement: 1 − N/min(|Q|, K), where N is the effective number of classes. A class with at most one query
    is not updated.
    """
    return torch.where(masses > 1, agreement(masses).unsqueeze(-1), 0.0)


def updated_distances(distances: Tensor, between: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """[t, q, k] squared distances to prototypes that have taken in the queries with weights c_qk.

    Computed from the distances to the present prototypes [t, q, k] and those ``between`` queries [t, q, q] alone: the
    mean squared distance to the members of a class is the squared distance to their mean plus the members' variance.
    """
    masses = (counts + weights.sum(1)).unsqueeze(1)
    to_members = torch.baddbmm(distances * counts.unsqueeze(1), between, weights).div_(masses)
    of_support = (weights * distances).sum(1, keepdim=True) * counts.unsqueeze(1) / masses.square()
    variance = of_support + (weights * to_members).sum(1, keepdim=True) / masses
    return to_members.sub_(variance, alpha=0.5)


def leave_one_out(distances: Tensor, weights: Tensor, masses: Tensor, scatter: Tensor) -> Tensor:
    """[…, q, k] squared distances to prototypes without the query itself, less the bias of noisy means.

    ``weights`` [q, k] is what each query contributes to a prototype and ``masses`` [k] the total, support included.
    Without z, a mean of mass N is N/(N − c) times as far from z.
    """
    others = masses - weights
    return distances * (masses / others).square() - scatter / others


class GroupPosterior(NamedTuple):
    """Which class each group of queries belongs to."""

    classes: Tensor  # [g] the classes whose queries form a group
    probabilities: Tensor  # [t, g, k] that group g, taken as a whole, belongs to class k
    fragment: Tensor  # [t, g] that the group is a fragment of a larger one

    def apply(self, u: Tensor) -> Tensor:
        """[t, q, k] class probabilities from assignments to groups; other classes keep theirs."""
        whole = u.index_select(-1, self.classes) @ self.probabilities
        return whole if len(self.classes) == u.shape[-1] else u.index_fill(-1, self.classes, 0).add_(whole)

    def presence(self, occupied: Tensor) -> Tensor:
        """[t, k] the probability that a class is present, given that its group has a query [t, k]."""
        log_absent = torch.log1p(-occupied.index_fill(-1, self.classes, 0).clamp_max_(1 - 1e-6))
        for first in range(0, len(self.classes), _GROUPS_AT_ONCE):
            part = slice(first, first + _GROUPS_AT_ONCE)
            joint = occupied[:, self.classes[part]].unsqueeze(-1) * self.probabilities[:, part].to(occupied)
            log_absent += torch.log1p(-joint.clamp_max_(1 - 1e-6)).sum(1)
        return -torch.expm1(log_absent)

    def occupied(self, occupied: Tensor) -> Tensor:
        """[t, k] the probability that a group has a query and is not a fragment of another."""
        remaining = occupied[:, self.classes] * (1 - self.fragment)
        return occupied.index_copy(-1, self.classes, remaining.to(occupied))


def group_posterior(
    totals: Callable[[slice], Tensor],
    classes: Tensor,
    presence: Presence,
    counts: Tensor,
    alpha: Tensor,
    schedule: Schedule,
    *,
    merge: bool,
    names: Tensor | None = None,
    present: Tensor | None = None,
) -> GroupPosterior:
    """The posterior of the groups' classes.

    ``totals`` returns, for a slice of the groups, the log-likelihoods [t, g, k] of all their queries as members of
    class k, Σ_q u_qg ℓ_qk. ``classes`` [g] are the groups, ``counts`` [t, k] the support samples per class.

    m queries count as m / (1 + ρ(m − 1)) independent ones. With ``merge`` a group may also be a fragment of a larger
    one; see ``_joining``. A query's own evidence is contained in its assignment already, so a group of one keeps
    its class. Where half of all classes or more seem to be present, groups are mixtures of neighbours, and keep their
    classes as well.

    Where labels of queries are known, ``names`` [t, g, k] is what they say about the class of each group, and
    ``present`` [t, k] are the classes that have a known query: their groups keep their class.
    """
    masses = presence.masses.to(counts)
    few = (1 - (effective_number(masses) - 1) / (schedule.most_groups_with_fragments - 1)).clamp(0, 1) * float(merge)
    which = few.nonzero().squeeze(1)  # tasks in which fragments are looked for
    agreed = (2 * agreement(masses)).clamp_max(1).unsqueeze(-1)
    rows, fragments = [counts.new_zeros(len(counts), 0, counts.shape[1])], [counts.new_zeros(len(counts), 0)]
    for first in range(0, len(classes), _GROUPS_AT_ONCE):
        part = slice(first, first + _GROUPS_AT_ONCE)
        columns, likelihood = classes[part], totals(part)
        theirs, samples = masses[:, columns], counts[:, columns]
        correlation = schedule.shared_error + 1 / (samples + 1)
        scores = likelihood * independent_part(theirs, correlation).unsqueeze(-1)
        if names is not None:
            scores, likelihood = scores + names[:, part], likelihood + names[:, part]
        found = scores.softmax(-1)
        fragment = torch.zeros_like(theirs)
        if len(which):
            own = likelihood.gather(-1, columns.view(1, -1, 1).expand(len(likelihood), -1, 1))
            larger, joining = _joining(*(value[which] for value in (likelihood, own, theirs, alpha, masses)))
            fading = few[which, None]
            if names is not None:  # a group with a known query is not a fragment that lacks a name
                fading = fading * names[which, part].amax(-1).neg().exp()
            joining = joining * fading.unsqueeze(-1)
            fragment[which] = joining.sum(-1)
            apart = found[which] * (1 - fragment[which]).unsqueeze(-1)
            found[which] = apart.scatter_add_(-1, larger.unsqueeze(1).expand_as(joining), joining)
        others = (1 - 1 / theirs.clamp_min(1)) * agreed
        if present is not None:
            others = others.masked_fill(present[:, columns], 0)
            # A group that takes the class of known queries is a part of their group.
            fragment = torch.maximum(fragment, (found * present.unsqueeze(1)).sum(-1))
        keep = (1 - others).unsqueeze(-1)
        found.mul_(others.unsqueeze(-1))
        rows.append(found.scatter_add_(-1, columns.view(1, -1, 1).expand(len(found), -1, 1), keep))
        fragments.append(fragment.mul_(others))
    return GroupPosterior(classes, torch.cat(rows[1:] or rows, 1), torch.cat(fragments[1:] or fragments, 1))


def _joining(totals: Tensor, own: Tensor, masses: Tensor, alpha: Tensor, all_masses: Tensor) -> tuple[Tensor, Tensor]:
    """The classes [t, l] of the largest groups, and the probability [t, g, l] that a group is a fragment of each.

    A fragment needs no class of its own: joining a larger group is as probable as the prior of the labels says. Its
    queries lie on another side of the prototype than those of the larger group, so they count as independent.
    """
    largest, which = all_masses.topk(min(_LARGEST_GROUPS, all_masses.shape[-1]))
    columns = which.unsqueeze(1).expand(-1, masses.shape[1], -1)
    theirs, mine, alpha = largest.unsqueeze(1), masses.unsqueeze(-1), alpha.to(masses).view(-1, 1, 1)
    joining = torch.lgamma(mine + theirs + alpha) - torch.lgamma(theirs + alpha)
    founding = torch.lgamma(mine + alpha) - torch.lgamma(alpha)
    gain = totals.gather(-1, columns) - own + joining - founding
    gain = gain.masked_fill(theirs <= mine, -torch.inf)  # only smaller groups join
    return which, torch.cat([torch.zeros_like(mine), gain], -1).softmax(-1)[..., 1:]


def independent_part(masses: Tensor, correlation: Tensor) -> Tensor:
    """The part of a group's m queries that counts as independent: 1 / (1 + ρ(m − 1)).

    A query has variance s around its mean, and the mean of n samples has variance s/n. The mean of m queries then has
    s/m + s/n, so they count as (s + s/n) / (s/m + s/n) = m / (1 + (m − 1)/(n + 1)) queries.
    """
    return 1 / (1 + correlation * (masses - 1).clamp_min(0))
