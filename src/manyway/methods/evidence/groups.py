"""Post-processing: what the queries of a class say together, once the search has found the groups.

A group is the set of queries assigned to one class, with the mass m_k = Σ_q u_qk. The bound leaves two things out.
First, the queries of a group are further samples of its class, so the prototype can be updated (``query_weights``).
Second, the queries of a group share the error of their prototype, so they are less independent than the bound assumes:
a whole group may belong to another class (``Groups.posterior``), and a class with many queries may be split between its
own prototype and a neighbouring one (``_joining``). The final probabilities are

    p_qj = Σ_k u'_qk P_kj,

where u' are the assignments with updated prototypes and P_kj the probability that group k is of class j.

How sure to be with one example per class, where no support sample can be left out: pairs of queries decide.

Two queries of one group serve as a class with one example: the first is classified, with the second in the place of
the group's prototype. The cross-entropy of these answers says to which power the probabilities are to be raised. Groups
are not always classes, so a prior holds the power near its usual value, and pairs count less where few queries have a
partner. The usual value is for queries that have partners, which make each other too sure. Without any, single queries
are too sure where features are weak, and not sure enough where they are strong: the usual value then follows from how
sure they are on average. Labels do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Sums, Tasks, effective_number
from manyway.methods.calibration.calibration import Calibration, distances_between, squared_distances
from manyway.methods.evidence.likelihood import Distances, Likelihood, Updated, columns_of, known_classes
from manyway.methods.evidence.prior import Concentrations, Presence, Slopes, log_remainders, remainders
from manyway.methods.evidence.queries import Held, Part, sample
from manyway.methods.evidence.schedule import Parameters, Schedule, agreement

_MOST_COMPARED = 2048  # queries, or classes, that are compared at once
_MOST_PAIRS = 1 << 25  # of queries that are compared for a review: limits memory and time
_MOST_QUERIES = 512  # evenly spaced: enough to fit one number
_LOG_POWERS = (-1.5, 0.75, 46)  # the values that are tried: lowest, highest, number
_GROUPS_AT_ONCE = 1024  # limits the memory of [groups, classes] arrays


def query_weights(masses: Tensor) -> Tensor:
    """[t, k] how much of a support sample one query counts in the update of a prototype.

    It is the agreement: 1 − N/min(|Q|, K), where N is the effective number of classes. A class with at most one query
    is not updated. With the weight a, the prototype of n_k examples becomes

        (n_k w_k + a Σ_q u_qk z_q) / (n_k + a m_k),

    and every query is classified without its own part in it.
    """
    return torch.where(masses > 1, agreement(masses).unsqueeze(-1), 0.0)


class GroupPosterior(NamedTuple):
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
        rows = self.classes.unsqueeze(1).expand(-1, u.shape[1], -1)
        # Products of two smaller ones would be subnormal numbers, with which x86 is ten times slower.
        few, found = (torch.threshold(one, 1e-18, 0.0) for one in (u.gather(-1, rows), self.probabilities))
        return u.scatter(-1, rows, 0).add_(few @ found)

    def presence(self, occupied: Tensor) -> Tensor:
        """[t, k] the probability that a class is present, given that its group has a query [t, k].

            1 − (1 − o_j [no group]) Π_g (1 − o_g P_gj),        o the probability that a group is not empty,

        if groups are of their classes independently of each other.
        """
        log_absent = torch.log1p(-occupied.scatter(1, self.classes, 0).clamp_max_(1 - 1e-6))
        for first in range(0, self.classes.shape[1], _GROUPS_AT_ONCE):
            part = slice(first, first + _GROUPS_AT_ONCE)
            joint = occupied.gather(1, self.classes[:, part]).unsqueeze(-1) * self.probabilities[:, part].to(occupied)
            log_absent += torch.log1p(-joint.clamp_max_(1 - 1e-6)).sum(1)
        return -torch.expm1(log_absent)


def _joining(
    totals: Tensor, own: Tensor, masses: Tensor, alpha: Tensor, all_masses: Tensor, *, most: int
) -> tuple[Tensor, Tensor]:
    """The classes [t, l] of the largest groups, and the probability [t, g, l] that a group is a fragment of each.

    A fragment needs no class of its own: joining a larger group is as probable as the prior of the labels says. Its
    queries lie on another side of the prototype than those of the larger group, so they count as independent. The
    log-odds that group k is a fragment of the larger group j are

        Σ_q u_qk (ℓ_qj − ℓ_qk) + ln Γ(m_j+m_k+α)/Γ(m_j+α) − ln Γ(m_k+α)/Γ(α),

    the integrated completed likelihood (Biernacki, Celeux, Govaert, 2000). ``Groups.posterior`` multiplies the
    probability by a factor that falls from 1, where one group was found, to 0 at ``most_groups_with_fragments``.
    """
    largest, which = all_masses.topk(min(most, all_masses.shape[-1]))
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


def copies(queries: Held, schedule: Schedule, one_shot: bool) -> Tensor:
    """[t] how many near-copies queries have on average, themselves included.

    Of many queries some are compared with all: copies may follow each other, or lie far apart.
    """
    placed = sample(queries, stride(queries.n_query))[0]
    sure = not one_shot and isinstance(queries.of, Distances)
    limit = copy_distance(queries.of.usual_distance(placed), placed.shape[-1], schedule, sure)
    return (queries.each(partial(_count_near, placed, limit)).values[0] / placed.shape[1]).clamp_min(1)


def _count_near(rows: Tensor, limit: Tensor, part: Part) -> Sums:
    """The work that counts the pairs [t] of a row and a query that are near, for some queries at a time."""
    counts = [(squared_distances(x, rows) <= limit).sum((1, 2)) for x in torch.split(part.placed, _MOST_COMPARED, 1)]
    return Sums((torch.stack(counts).sum(0),))


def distinct(tasks: Tasks, schedule: Schedule) -> Tasks:
    """The task with one example of each group of near-copies in a class.

    A left-out example whose copy stays says that samples of a class hardly differ: answers would be too sure, and most
    queries would seem unknown. Columns are divided by their scale, the half with small ones by the middle scale.
    Different items may be equal, too, where columns have few values: the part c of the examples is dropped only where
    chance gives copies to less than c³ of them, for chance is a guess, and few copies do little harm. The examples of
    several tasks stay, because they must be as many, and those of more classes or pairs than are soon compared.
    """
    if len(tasks) > 1:  # known without waiting for a GPU
        return tasks
    rows, labels = tasks.support[0].double(), tasks.support_labels[0]
    order, counts = labels.argsort(stable=True), labels.bincount()
    if len(counts) > _MOST_COMPARED or not len(labels) < int(counts.square().sum()) <= _MOST_PAIRS:
        return tasks
    scale = rows.std(0)
    rows = (rows - rows.mean(0)) / scale.clamp_min(scale.median()).clamp_min(torch.finfo(scale.dtype).tiny)
    parts = [distances_between(x[None])[0] for x in torch.split(rows[order], counts[counts > 0].tolist())]
    pairs = torch.cat([x[torch.ones_like(x).tril(-1) > 0] for x in parts])
    near = copy_distance(pairs.mean(), len(scale), schedule).squeeze()
    kept = order[~torch.cat([(x <= near).tril(-1).any(1) for x in parts])].sort().values
    dropped = 1 - len(kept) / len(labels)
    if not dropped or _chance(rows, pairs, near) * len(pairs) >= dropped**3 * len(labels):
        return tasks
    return tasks.with_rows(tasks.support[:, kept], tasks.query, support_labels=labels[None, kept])


def _chance(rows: Tensor, pairs: Tensor, near: Tensor) -> Tensor:
    """The probability that different samples of a class are near-copies, from the squared distances of all pairs.

    They are like those of normal features in n directions, 1/n = ln mean d² − mean ln d² + 1/pairs: few pairs say
    less. Samples that are as near as rounding moves them seem equal, at Σ_j h_j²/6 for the least step h_j of a column.
    """
    far, steps = pairs[pairs > near], rows.sort(0).values.diff(dim=0)
    half = 0.5 / (far.mean().log() - far.log().mean() + 1 / max(len(far), 1)).clamp_min(1 / rows.shape[1])
    rounding = torch.where(steps > 0, steps, torch.inf).amin(0).nan_to_num(posinf=0).square().sum() / 6
    return torch.special.gammainc(half, half * torch.maximum(near, rounding) / far.mean())


def copy_distance(usual: Tensor, n_features: int, schedule: Schedule, sure: bool = False) -> Tensor:
    """[t, 1, 1] the squared distance below which two queries are near-copies, a part of that of two samples of a class.

    With few features samples are as near by chance, so that the part is smaller: its chance is that of 16 features.
    Where the distance of two samples is ``sure`` (no guess from one example per class, and not made by the outliers of
    a table) the part is its square root, so that the frames of a burst are copies.
    """
    exponent = max(0.5 if sure else 1.0, 16 / n_features)
    return (schedule.near_copy**exponent * usual).view(-1, 1, 1)


def _count_members(slopes: Slopes, part: Part) -> Sums:
    """The work that counts the members of each class, as if no label were known: Σ u and Σ ln(1 − u) [t, k]."""
    members = part.members(slopes)
    return Sums((members.sum(1), log_remainders(members).sum(1)))


def _sum_groups(classes: Tensor, slopes: Slopes, every: int, part: Part) -> Sums:
    """The work that sums the queries of some groups [t, g].

    The sums are Σ u z of the members [t, g, d], as if no label were known; Σ u z [t, g, d] and Σ u [t, g] of the
    queries whose label is not known; ``Groups.lengths``, of every so many queries; and ``Groups.names``.
    """
    u, some = columns_of(part.u, classes), part.every(every)
    far = part.of.lengths(some.placed)
    lengths = (torch.stack([torch.ones_like(far), far, far.square()], -1) * (1 - some.unknown).unsqueeze(-1)).sum(1)
    if not part.any_known:
        sums = u.mT @ part.placed
        nothing = sums.new_zeros(len(u), 0, part.u.shape[-1])
        return Sums((sums, sums, u.sum(1), lengths, nothing))
    members, free = columns_of(part.members(slopes), classes), u * part.free
    # A group of class k contains no query of another class, so each known query of another class multiplies its
    # likelihood by 1 − u. Up to a number per group, this is to divide the likelihood of the query's class by it.
    known = known_classes(part.known, part.u)
    names = -(log_remainders(members).mT @ known)
    return Sums((members.mT @ part.placed, free.mT @ part.placed, free.sum(1), lengths, names))


class Groups(NamedTuple):
    """The groups that a search has found, and the prototypes that have taken them in."""

    presence: Presence
    slopes: Slopes
    classes: Tensor  # [t, g] the classes with a group of more than one query, and others where a task has fewer
    members: Presence  # as if no label were known
    sums: Tensor  # [t, g, d] of the members
    lengths: Tensor  # [t, 3] the number of queries, and the sums of distances to their prototypes and of their squares
    names: Tensor  # [t, g, k] what known labels say about the class of a group; [t, 0, k] where none is known
    updated: Updated

    @staticmethod
    def of(queries: Held, prior: Concentrations, *, fixed: bool = False) -> Groups:
        """The groups of the last search, and what their queries say, in one or two passes over the queries.

        Parameters
        ----------
        queries : Held
        prior : Concentrations
        fixed : bool, default=False
            Whether assignments of queries with known labels are fixed.

        Returns
        -------
        Groups
        """
        presence, like = queries.presence, queries.of.counts
        slopes = prior.slopes(presence).to(like)
        members = presence
        if fixed:
            masses, log_absent = queries.each(partial(_count_members, slopes)).values
            members = Presence.of_products(masses, log_absent.exp())
        largest = torch.maximum(presence.masses, members.masses)
        classes = largest.topk(int((largest > 1).sum(1).max()), dim=1).indices
        work = partial(_sum_groups, classes, slopes, stride(queries.n_query))
        sums, free, masses, lengths, names = (one.to(like) for one in queries.each(work).values)
        weights = query_weights(presence.masses).gather(1, classes).to(like)
        weights = weights * float(queries.parameters.update_prototypes)
        updated = queries.of.updated(classes, free, masses, weights)
        return Groups(presence, slopes, classes, members, sums, lengths, names, updated)

    def posterior(self, likelihood: Likelihood, known: Tensor, parameters: Parameters) -> GroupPosterior:
        """The posterior of the groups' classes; ``known`` [t, k] are the classes with a known query.

        With n_k examples and m_k queries in group k, and ρ = shared_error + 1/(n_k + 1), group k is of class j with

            P_kj ∝ exp(Σ_q u_qk ℓ_qj / (1 + ρ (m_k − 1))):

        m queries count as m / (1 + ρ(m − 1)) independent ones. With ``merge_groups`` a group may also be a fragment of
        a larger one; see ``_joining``. A query's own evidence is contained in its assignment already, so a group of one
        keeps its class: P is mixed with the identity in the parts 1 − 1/m and 1/m. Where half of all classes or more
        seem to be present, groups are mixtures of neighbours, and keep their classes as well. So do groups of classes
        with a known query.
        """
        schedule, named = parameters.constants, bool(self.names.shape[1])
        classes = self.classes if parameters.group_posterior else self.classes[:, :0]
        counts = likelihood.examples.expand(len(classes), -1)
        masses, alpha = self.members.masses.to(counts), self.slopes.alpha.to(counts)
        few = (1 - (effective_number(masses) - 1) / (schedule.most_groups_with_fragments - 1)).clamp(0, 1)
        few = few * float(parameters.merge_groups)
        which = few.nonzero().squeeze(1)  # tasks in which fragments are looked for
        agreed = (2 * agreement(masses)).clamp_max(1).unsqueeze(-1)
        rows = [counts.new_zeros(len(counts), 0, counts.shape[1])]
        for first in range(0, classes.shape[1], _GROUPS_AT_ONCE):
            part = slice(first, first + _GROUPS_AT_ONCE)
            columns = classes[:, part]
            theirs, samples = masses.gather(1, columns), counts.gather(1, columns)
            totals = likelihood.totals(self.sums[:, part], theirs)  # [t, g, k] Σ_q u_qg ℓ_qk
            correlation = schedule.shared_error + 1 / (samples + 1)
            scores = totals * independent_part(theirs, correlation).unsqueeze(-1)
            if named:
                scores, totals = scores + self.names[:, part], totals + self.names[:, part]
            found = scores.softmax(-1)
            if len(which):
                own = totals.gather(-1, columns.unsqueeze(-1))
                tensors = (one[which] for one in (totals, own, theirs, alpha, masses))
                larger, joining = _joining(*tensors, most=ceil(schedule.most_groups_with_fragments))
                fading = few[which, None]
                if named:  # a group with a known query is not a fragment that lacks a name
                    fading = fading * self.names[which, part].amax(-1).neg().exp()
                joining = joining * fading.unsqueeze(-1)
                apart = found[which] * (1 - joining.sum(-1, keepdim=True))
                found[which] = apart.scatter_add_(-1, larger.unsqueeze(1).expand_as(joining), joining)
            others = (1 - 1 / theirs.clamp_min(1)) * agreed
            if named:
                others = others.masked_fill(known.gather(1, columns), 0)
            keep = (1 - others).unsqueeze(-1)
            found.mul_(others.unsqueeze(-1))
            rows.append(found.scatter_add_(-1, columns.unsqueeze(-1), keep))
        return GroupPosterior(classes, torch.cat(rows[1:] or rows, 1))


@dataclass(frozen=True, eq=False)
class Probabilities:
    """From the assignments of queries to their class probabilities.

    The steps are: likelihoods with updated prototypes, the slopes of the prior, the classes of the groups, the part of
    a classifier and the power (both neutral for most tasks), and known labels. What is unknown is taken from all
    classes in proportion.
    """

    slopes: Slopes
    updated: Updated
    posterior: GroupPosterior
    power: Tensor  # [t, 1, 1] what the probabilities are raised to; see ``powers``

    @staticmethod
    def plain(groups: Groups, posterior: GroupPosterior) -> Probabilities:
        """With the power 1."""
        one = posterior.probabilities.new_ones(1, 1, 1)
        return Probabilities(groups.slopes, groups.updated, posterior, one)

    def __call__(self, part: Part) -> Tensor:
        """[t, b, k]; a row sums to 1 minus the probability that the query is unknown."""
        return self.finished(self.searched(part), part)

    def searched(self, part: Part) -> Tensor:
        """[t, b, k] what the search and the classes of its groups say."""
        scores = self.updated(part.placed, part.u, part.free, part.likelihood)
        return self.posterior.apply(self.slopes.add_to(scores, remainders(part.u)).softmax(-1))

    def finished(self, found: Tensor, part: Part) -> Tensor:
        """[t, b, k] the same after the other steps."""
        if not bool((self.power == 1).all()):
            found = tempered(found, self.power)
        if part.any_given:
            found = torch.where((part.given < 0).unsqueeze(-1), found, known_classes(part.given, found))
        return found * (1 - part.unknown).unsqueeze(-1) if part.any_unknown else found


def review_scores(part: Part, outcomes: Tensor, schedule: Schedule) -> Tensor:
    """Which query a person should label next: the expected number of labels that an answer to each query repairs.

    An answer repairs the label of its own query with the probability that this is wrong, its doubt d_q = 1 − max_k
    p_qk. It also says something about queries that are near and have the same classes in question, but less if others
    like them are known already:

        score_q = d_q + c Σ_o a_qo d_o / (1 + Σ_p a_po),        a_qo = cos(p_q, p_o) · nearness(z_q, z_o),

    where p runs over the queries whose label is known, and nearness falls from 1 to 0 around the distance of two
    samples of one class.

    Parameters
    ----------
    part : Part
        All queries.
    outcomes : Tensor of shape [t, q, k]
        The probabilities of the classes; with a last column for unknown, where queries may be.
    schedule : Schedule

    Returns
    -------
    Tensor of shape [t, q]
        -1 where the label is known. In large tasks only the most doubtful queries count as those that are repaired.
    """
    placed, n_query = part.placed, part.placed.shape[1]
    doubt, rows = 1 - outcomes.amax(-1), (part.given >= 0).unsqueeze(-1)
    others = doubt.topk(min(n_query, max(_MOST_PAIRS // n_query, 1))).indices  # [t, o]
    theirs = placed.gather(1, others.unsqueeze(-1).expand(-1, -1, placed.shape[-1]))
    directions = outcomes / outcomes.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    alike: Tensor = directions @ directions.gather(1, others.unsqueeze(-1).expand(-1, -1, directions.shape[-1])).mT
    alike *= part.of.nearness(placed, theirs, schedule.steepness)  # [t, q, o]
    alike.scatter_(1, others.unsqueeze(1), 0)  # nothing else is learned about the query itself
    remaining = doubt.gather(1, others) / (1 + (alike * rows).sum(1))
    scores: Tensor = doubt + schedule.repaired * (alike @ remaining.unsqueeze(-1)).squeeze(-1)
    return scores.masked_fill(rows.squeeze(-1), -1)


def is_one_shot(tasks: Tasks) -> bool:
    """Whether no class has two samples, given that each has one. Known from the shape, without waiting for a GPU."""
    return tasks.n_support == tasks.n_classes


def stride(n_query: int) -> int:
    """The distance between the queries that are used."""
    return ceil(n_query / _MOST_QUERIES)


def powers(placed: Tensor, probabilities: Tensor, calibration: Calibration, schedule: Schedule) -> Tensor:
    """[t] the power of each task, from placed queries [t, q, d] and their probabilities [t, q, k]."""
    likelihood = calibration.log_likelihood(placed)
    # Two samples are S farther apart than a sample and the mean of its class, and all distances are less that bias.
    between = distances_between(placed) - calibration.scatter.view(-1, 1, 1)
    pairs = between.mul_(-0.5 * calibration.precision.view(-1, 1, 1))
    confidence, group = probabilities.max(-1)
    weights = confidence.unsqueeze(1) * confidence.unsqueeze(2) * (group.unsqueeze(1) == group.unsqueeze(2))
    weights.diagonal(dim1=1, dim2=2).zero_()
    partners = weights.sum(-1)
    weights = weights * (partners.clamp_max(1) / partners.clamp_min(torch.finfo(weights.dtype).tiny)).unsqueeze(-1)
    found = partners.clamp_max(1).mean(-1)  # how many queries have a partner
    own = torch.zeros_like(probabilities, dtype=torch.bool).scatter_(-1, group.unsqueeze(-1), True)
    slope, least, most = schedule.one_shot_alone[1:]
    alone = (schedule.one_shot_alone[0] + slope * confidence.mean(-1).log()).clamp(least, most)
    centre = found * log(schedule.one_shot_power) + (1 - found) * alone
    log_powers = torch.linspace(*_LOG_POWERS, dtype=placed.dtype, device=placed.device)
    losses = []
    for log_power in log_powers:
        power = log_power.exp()
        others = (likelihood * power).masked_fill_(own, -torch.inf).logsumexp(-1, keepdim=True)
        entropy = (torch.nn.functional.softplus(others - pairs * power) * weights).sum((1, 2))
        prior = (log_power - centre) / schedule.one_shot_power_sd
        losses.append(entropy * found + 0.5 * prior.square())
    return log_powers[torch.stack(losses).argmin(0)].exp()


def farther(lengths: Tensor, calibration: Calibration) -> Tensor:
    """[t] r ≥ 1: how much farther queries are from their prototypes than members that are left out, squared.

    Queries of another camera, font or year lie farther: their classes are as much wider, so that ℓ is to be divided by
    r. It is the square of the mean distance less two standard errors: single outliers hardly change it, and it is 1
    where that may be chance. The prototype is the nearest one, so that it errs below. ``lengths`` as in ``Groups``.
    """
    total, mean, square = lengths.unbind(-1)
    mean, square = mean / total.clamp_min(1e-9), square / total.clamp_min(1e-9)
    usual = calibration.noise / (2 * calibration.scatter.clamp_min(torch.finfo(mean.dtype).tiny))
    spread = torch.maximum((square - mean.square()).clamp_min(0).sqrt(), usual)
    return (mean - 2 * spread / total.clamp_min(1e-9).sqrt()).clamp_min(1).square()


def tempered(probabilities: Tensor, power: Tensor) -> Tensor:
    """[…, k] probabilities to the power, so that each row sums to one again."""
    tiny = torch.finfo(probabilities.dtype).tiny
    return probabilities.clamp_min(tiny).log_().mul_(power).softmax(-1)
