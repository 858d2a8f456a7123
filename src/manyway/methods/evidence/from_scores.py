"""Evidence for the scores of a classifier that somebody else has trained.

The scores become log-posteriors ln p_qk of the classes, and these become likelihoods. A classifier's posterior contains
the class proportions of its training data, and it is often too certain. With the training prior r_k and a temperature
T,

    ℓ_qk = ln softmax_k((ln p_qk − ln r_k) / T + b_k)

is the log-likelihood of item q under class k, up to a constant per item. `evidence_from_likelihood` does the rest.

T and b are fitted to labelled items where these cover the classes (`fit_posteriors`). Otherwise the items themselves
say how sharp their posteriors should be, and a real classifier is not trusted blindly:

1. **Sharpness.** Posteriors of a classifier in doubt are sharpened: z = ln softmax(ln p / T₀) with T₀ ≤ 1 such that the
   highest probability is at least 0.7 on average. A sure classifier is believed: it keeps its probabilities.
2. **Popularity.** A classifier prefers some classes whatever the item is. What items that are unlike each other have in
   common among their unlikely classes is that preference b; it is subtracted as far as they agree on it
   (`popularity`).
3. **Temperature.** Let u be the assignments that the search of ``evidence`` finds at temperature T, m_k = Σ_q u_qk and
   α the concentration. The other items predict class k for item q with π_qk = (m_k − u_qk + α) / (|Q| − 1 + Kα). T
   maximises w Σ_q ln Σ_k K π_qk exp ℓ_qk − ½ ((ln T − μ)/σ)². Items of one class share the errors of the classifier,
   so m of them count as m / (1 + ρ(m − 1)) independent ones; w is the fraction of all items that this leaves. The grid
   ends at 2.5, so that T cannot run away: at a high temperature one class would explain everything.
4. **Blend.** The answer is the mean of evidence, with the share s h, and of the classifier's own z. s is 1 − w, from
   0.5 to 0.7 and at most 2(1 − w): with many small classes evidence is worth less. h says how far the others help to
   predict an item: the mean over q of ln Σ_k K π_qk exp ℓ_qk is what they gain over the classifier alone, in nats. h is
   0 where that is below 0.3 (all classes occur), or the sum below 2 (a few items are alike by chance), and 1 from 0.5
   and 6 on. Lists that were cut do not show what a classifier prefers. Preferences with the standard deviation s gain
   s²/2 on their own, which is subtracted, 2.5 w times. A classifier that prefers few of many classes seems to see only
   these: the others must help as much where all of it is subtracted, the median of what items with other labels say of
   a class, if it could gain 0.3 on its own. The answer is as sure on average as its labels are likely, by the
   classifier and by evidence with the trust √(1 − w) t. Where they have different labels the classifier is nearly
   always wrong, and t ≤ 1 is the number of such items as a part of the errors that it expects: the more of these are
   found, the better. Where they have the same label t is 1 − o/0.35, o what it claims for answers that it loses: who
   knows them is too modest elsewhere. Evidence that hardly doubts its labels is trusted everywhere.
5. **Hold.** A class that the classifier expects to be right for many of the items is not dissolved: they keep the
   classifier's answer (`held`). Evidence gathers the items that are scattered over many classes. It never moves an item
   to a class of which the classifier is less sure in its surest items than of the one that it comes from: some classes
   take what a classifier does not know, a little of everything, and no item for certain. Nor is a class of three
   items or more, by the sum of z, dissolved into one that is not twice as large: which of the two is right? Sizes
   are without what unlike items agree on: a class that is only preferred is not large.

Up to 512 items are used to learn this, evenly spaced; of more than 512 classes fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil, log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Joined, Pile, Tasks, effective_number, one_hot
from manyway.errors import InputError
from manyway.methods.calibration.temperature_scaling import balanced_weights, fit_scaling, rescale
from manyway.methods.evidence.groups import independent_part, power_for, stride
from manyway.methods.evidence.likelihood import Blend, Scores
from manyway.methods.evidence.prior import SURE, Presence, remainders
from manyway.methods.evidence.queries import excluded
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.evidence.search import Dense, search
from manyway.methods.label_shift import class_proportions

KINDS = ("auto", "probability", "log-probability", "logit", "sigmoid")
SEVERAL = "independent"  # each class has a yes-or-no probability of its own, and several may be right
_SLACK = 0.02  # by which rounded probabilities may sum to more than 1
_LEAST_MISSING = 1e-3  # the probability of the classes that an item does not list is at least this
_LARGEST_SIGMOID = 0.9999  # tables are rounded to four digits
_MOST_SCORES, _LEAST_ITEMS = 2**18, 128  # of very many classes fewer items are used to learn, but not fewer than these
_EM_STEPS = 50  # of the part of the items that a list covers


Place = Callable[[int], str]  # what an error message calls an item


_row: Place = "row {}".format


def find_kind(scores: Tensor, place: Place = _row) -> str:
    """What the scores [n, k] are: probabilities, their logarithms, or logits. NaN: the class is not listed.

    >>> [find_kind(torch.tensor([scores])) for scores in ([0.7, 0.2], [-0.1, -3.0], [2.0, -3.0])]
    ['probability', 'log-probability', 'logit']
    """
    values = scores.nan_to_num(0.0)
    lowest, highest = (float(one) for one in values.aminmax())
    if lowest >= 0:
        total = values.sum(-1).max(-1)
        if highest > 1:
            row = int(values.amax(-1).argmax())
            raise InputError(
                f"The scores of {place(row)} go up to {float(values[row].amax()):.6g} and none is negative: they could "
                "be percentages or logits; divide percentages by 100, or say `kind='logit'`."
            )
        if float(total.values) > 1 + _SLACK:
            raise InputError(
                f"The scores of {place(int(total.indices))} sum to {float(total.values):.4g}, more than a probability; "
                "if classes have yes-or-no scores, say `kind='sigmoid'`, or 'independent' where several may be right."
            )
        return "probability"
    if highest <= 0 and float(scores.nan_to_num(-torch.inf).logsumexp(-1).amax()) <= log(1 + _SLACK):
        return "log-probability"
    return "logit"


def log_posteriors(scores: Tensor, kind: str = "auto", place: Place = _row) -> Tensor:
    """Scores as normalised log-probabilities of the classes.

    A class that an item does not list (NaN, or a probability of 0) gets an equal part of the probability that the
    listed classes leave, at least 0.1 % together, but none gets more than half of the lowest listed class.

    Parameters
    ----------
    scores : Tensor of shape (n, k)
        One score per item and class. NaN: the item does not list the class.
    kind : {"auto", "probability", "log-probability", "logit", "sigmoid"}, default="auto"
        What the scores are. "sigmoid" means that each class has a yes-or-no probability of its own. If exactly one
        class is the right one, its probability is proportional to its odds, and 1 stands for the classes that are not
        listed.
    place : callable, optional
        Says what an error message calls a row.

    Returns
    -------
    Tensor of shape (n, k)

    Examples
    --------
    >>> log_posteriors(torch.tensor([[0.7, 0.2, torch.nan, torch.nan]])).exp().round(decimals=3)
    tensor([[0.7000, 0.2000, 0.0500, 0.0500]])
    """
    if kind not in KINDS:
        raise InputError(f"The kind of scores is '{kind}'; choose one of {', '.join(KINDS)}.")
    if scores.shape[0] == 0 or scores.shape[1] < 2:
        raise InputError(f"There are scores of {scores.shape[0]} items for {scores.shape[1]} classes; give several.")
    _refuse(scores.isinf().any(-1), "are infinite", place)
    listed = ~scores.isnan()
    _refuse(~listed.any(-1), "are missing: the item lists no class", place)
    kind = find_kind(scores, place) if kind == "auto" else kind
    if kind == "logit":
        _refuse(~listed.all(-1), "do not list every class, which logits must; give probabilities", place)
        return scores.log_softmax(-1)
    if kind == "log-probability":
        _refuse((scores > _SLACK).any(-1), "are positive, which logarithms of probabilities are not", place)
        if bool(listed.all()):
            return scores.log_softmax(-1)  # tiny probabilities survive as logarithms
        scores = scores.exp()
    _refuse((scores < 0).any(-1), "are negative, which probabilities are not", place)
    if kind == "sigmoid":
        _refuse((scores > 1).any(-1), "are above 1, which probabilities are not", place)
        scores = scores.clamp_max(_LARGEST_SIGMOID)
        scores = scores / (1 - scores)
        scores = scores / (1 + scores.nansum(-1, keepdim=True))
    total = scores.nansum(-1)
    _refuse(total > 1 + _SLACK, "sum to more than 1, which probabilities do not", place)
    # A classifier may say nothing about an item; the others of the batch then decide.
    _refuse((total <= 0).all() & (total <= 0), "are all 0, like those of all items", place)
    return _completed(scores.nan_to_num(0.0)).log()


def log_odds(scores: Tensor, place: Place = _row) -> Tensor:
    """[n, k] the log-odds of yes-or-no scores: of probabilities or, where some scores are negative, of logits.

    A class that is not listed has half the odds of any that is.

    >>> log_odds(torch.tensor([[0.5, 0.2, torch.nan]])).round(decimals=2)
    tensor([[ 0.0000, -1.3900, -2.0800]])
    """
    _refuse(scores.isinf().any(-1), "are infinite", place)
    if not bool((scores < 0).any()):
        _refuse((scores > 1).any(-1), "are above 1, which yes-or-no probabilities are not", place)
        scores = scores.clamp(1 - _LARGEST_SIGMOID, _LARGEST_SIGMOID).logit()
    return torch.where(scores.isnan(), scores.nan_to_num(torch.inf).amin() - log(2), scores)


def _completed(probabilities: Tensor) -> Tensor:
    """[n, k] with what each row leaves spread over its classes of probability 0."""
    unlisted = probabilities <= 0
    missing = (1 - probabilities.sum(-1, keepdim=True)).clamp_min(_LEAST_MISSING)
    lowest = probabilities.masked_fill(unlisted, torch.inf).amin(-1, keepdim=True)
    each = torch.minimum(missing / unlisted.sum(-1, keepdim=True).clamp_min(1), lowest / 2)
    filled = torch.where(unlisted, each, probabilities).clamp_min_(torch.finfo(probabilities.dtype).tiny)
    return filled.div_(filled.sum(-1, keepdim=True))


def _refuse(bad: Tensor, why: str, place: Place) -> None:
    if bool(bad.any()):
        raise InputError(f"The scores of {place(int(bad.nonzero()[0]))} {why}.")


def without_prior(posteriors: Tensor, class_prior: Tensor) -> Tensor:
    """[n, k] log-posteriors for equally frequent classes, given the training prior [k] in any unit."""
    if class_prior.shape != posteriors.shape[-1:]:
        raise InputError(f"There are {len(class_prior)} class priors for {posteriors.shape[-1]} classes.")
    if not bool(torch.isfinite(class_prior).all()) or not bool((class_prior > 0).all()):
        raise InputError("A class prior is not positive; every class that the classifier can answer needs one.")
    if bool((class_prior == class_prior[0]).all()):  # nothing to take out of many scores
        return posteriors
    return (posteriors - class_prior.to(posteriors).log()).log_softmax(-1)


def fit_posteriors(posteriors: Tensor, labels: Tensor) -> Tensor:
    """b and 1/T [k + 1] by bias-corrected temperature scaling of log-posteriors [n, k] with labels [n]."""
    logits, labels = posteriors.double()[None], labels[None]
    weights = balanced_weights(labels, torch.ones_like(logits[..., 0]), posteriors.shape[-1])
    return fit_scaling(logits, labels, weights)[0].to(posteriors)


class Taught(NamedTuple):
    """Labelled items as neighbours: a classifier that calls a class by another name is corrected where items are alike.

    The probabilities p_q of an item become p_qk + ν Σ_i a_qi [y_i = k], up to a factor, where i are labelled items and
    a_qi = (Σ_k √(p_qk p_ik))^γ says how much they are alike. Without labelled items nothing changes.
    """

    roots: Tensor  # [n, k] √p of the labelled items
    votes: Tensor  # [n, k] ν where it is their class, else 0
    power: float  # γ

    @staticmethod
    def by(z: Tensor, labels: Tensor, constants: Schedule) -> Taught:
        """From log-probabilities [n, k] and labels [n]."""
        votes = constants.scores_neighbour * one_hot(labels, z.shape[-1], z.dtype)
        return Taught((z / 2).exp(), votes, constants.scores_alike)

    def __call__(self, z: Tensor, others: Tensor | float = 1.0) -> Tensor:
        """[…, b, k] log-probabilities that have learned; ``others`` [b, n]: 0 where a neighbour is not asked."""
        if not len(self.roots):
            return z
        alike = ((z / 2).exp() @ self.roots.mT).clamp(0, 1).pow(self.power) * others
        return torch.logaddexp(z, (alike @ self.votes).log()).log_softmax(-1)


def _place(sharp: tuple[float, ...], taught: tuple[Taught, ...], scaling: Tensor, rows: Tensor) -> Tensor:
    """From rows of log-posteriors [t, b, k] to log-likelihoods: ln softmax(z / T + b), where z has learned.

    The log-posteriors of each task are multiplied by ``sharp`` first; ``scaling`` [t, k + 1] has b, and 1/T.
    """
    if not any(len(one.roots) for one in taught):  # what rows sum to does not matter then
        return rescale(rows * rows.new_tensor(sharp).view(-1, 1, 1), scaling).log_softmax(-1)
    each = zip(rows, sharp, taught, strict=True)
    z = torch.stack([learned((row * power).log_softmax(-1)) for row, power, learned in each])
    return rescale(z, scaling).log_softmax(-1)


# What is learned about the scores of one task, as in ``_place``, and how answers are blended.
Learned = tuple[float, Taught, Tensor, Blend]


def for_scores(parameters: Parameters) -> Parameters:
    """The parameters with the schedule of scores; what a user has said stays."""
    constants, given = parameters.constants, parameters.schedule or {}
    usual = {"anneal_from": constants.scores_anneal_from, "anneal_steps": constants.scores_anneal_steps}
    return replace(parameters, schedule={**usual, **given})


def learn_scores(tasks: Tasks, parameters: Parameters) -> tuple[Scores, Tensor | Pile]:
    """The likelihood of scores, and the placed queries.

    T and b are fitted to labelled scores, those of the support and of queries with a known label, where these cover the
    classes. Otherwise T is ``parameters.temperature``, or the batch and the labelled scores say it.
    """
    most = max(_LEAST_ITEMS, _MOST_SCORES // tasks.n_classes)
    rows, known = _read(tasks, max(stride(tasks.n_query), ceil(tasks.n_query / most)))
    found = []
    for task in range(len(tasks)):
        some = known[task] >= 0
        labelled = torch.cat([rows[task, some], tasks.support[task]])
        labels = torch.cat([known[task, some], tasks.support_labels[task]])
        found.append(_learn(rows[task], known[task], labelled, labels, tasks.expected.to(rows), parameters))
    sharp, taught, scalings, blends = zip(*found, strict=True)
    scaling = torch.stack(scalings)
    place = partial(_place, sharp, taught, scaling)
    temperature = 1 / (scaling[:, -1] * torch.tensor(sharp).to(scaling))
    counts = rows.new_full((1, rows.shape[-1]), parameters.constants.scores_count)
    likelihood = Scores(counts, {"temperature": temperature}, Blend.joined(blends))
    return likelihood, tasks.pile.then(place) if isinstance(tasks.pile, Pile) else place(tasks.query)


def _learn(
    rows: Tensor, known: Tensor, labelled: Tensor, labels: Tensor, expected: Tensor, parameters: Parameters
) -> Learned:
    """What rows [q, k], known labels [q] of some, labelled scores [n, k] with labels [n], and a list [k] say."""
    constants, given, n_classes = parameters.constants, parameters.temperature or 0.0, rows.shape[-1]
    if given or len({*labels.tolist()}) >= constants.scores_covered * n_classes:  # else biases say which were labelled
        scaling = torch.cat([0 * rows[0], 1 / rows.new_tensor([given])]) if given else fit_posteriors(labelled, labels)
        z = rescale(rows[None], scaling[None])[0].log_softmax(-1)
        scaling[:-1] += expectation(z, expected, constants)[0]
        return (1.0, Taught.by(rows[:0], labels[:0], constants), scaling, Blend.none(rows))
    sure = max(float(rows.exp().amax(-1).mean()), constants.scores_sharpness)
    sharp = float(power_for(rows[None], rows.new_tensor([sure]), rows.new_full((1, len(rows)), 1 / len(rows))))
    theirs = (labelled * sharp).log_softmax(-1)
    taught = Taught.by(theirs, labels, constants)
    z = taught((rows * sharp).log_softmax(-1))
    (popular, whole, agreed, hidden), (likely, said) = popularity(z, constants), expectation(z, expected, constants)
    low, high = map(log, constants.scores_temperatures)
    grid, matters = torch.linspace(low, high, 7).exp().to(rows), bool(whole.var() > 2 * constants.scores_gain[0])
    again = tempered(z - whole, rows.new_tensor([constants.scores_temperature] * matters))
    likelihood = (torch.cat([tempered(z - popular, grid), again]) + likely).log_softmax(-1)
    score, part = held_out(excluded(likelihood, known.expand(len(likelihood), -1)), parameters)
    alone = taught(theirs, 1 - torch.eye(len(labels)).to(rows))  # each labelled item learns from the others
    own = (tempered(alone - popular, grid) + likely).log_softmax(-1)[:, torch.arange(len(labels)), labels].sum(1)
    score = score - len(z) * hidden * (constants.scores_hidden * part[: len(grid)].median()).clamp_max(1)
    temperature, independent, helped = _choose(grid, score, part, len(z), own, sure, constants)
    one, (least, most, times) = popular.new_ones(1, 1, 1), constants.scores_share
    share = torch.minimum((1 - independent).clamp(least, most), times * (1 - independent)) * helped * (not said)
    offset = (popular + likely - temperature * likely).view(1, 1, -1)
    own = (z / sharp).softmax(-1)
    kept, peak = held(own, constants), own.topk(min(constants.scores_surest, len(own)), 0).values.mean(0)
    rules = popular.new_tensor([constants.scores_surer, *constants.scores_larger])
    wide = (each.view(1, 1, -1) for each in (kept, peak, right((z - agreed).softmax(-1)), rules))
    blend = Blend(temperature * one, offset, one / sharp, share * one, independent.view(1), *wide)
    return (sharp, taught, torch.cat([likely - popular / temperature, 1 / temperature.view(1)]), blend)


def _choose(
    grid: Tensor, score: Tensor, part: Tensor, n_items: int, labelled: Tensor, sure: float, constants: Schedule
) -> tuple[Tensor, Tensor, Tensor]:
    """[] the temperature, w and h, given for each of the grid [g] the log-likelihood of the items and w.

    Any further log-likelihoods are without preferences. ``sure`` is the mean of the highest probabilities.
    """
    score, others, away = score[: len(grid)], score[len(grid) :], grid.log() - log(constants.scores_temperature)
    usual = away.abs().argmin()
    independent = part[usual]
    prior = -0.5 * (away / constants.scores_temperature_sd).square()
    found = score * independent * min(1.0, constants.scores_most_items / n_items) + labelled + prior
    best = int(found.argmax().clamp(1, len(grid) - 2))
    low, middle, high = found[best - 1 : best + 2]  # the maximum of a parabola
    off = (0.5 * (low - high) / (low - 2 * middle + high).clamp_max(-1e-6)).clamp(-1, 1)
    found = (grid[best].log() + off * (grid[1] / grid[0]).log()).exp()
    doubt = min(1.0, (1 - sure) / (1 - constants.scores_sharpness))
    (least, most), (few, many) = constants.scores_gain, constants.scores_total_gain
    gained = torch.cat([score[usual].view(1), others]).amin()
    helped = ((gained / n_items - least) / (most - least)).clamp(0, 1) * ((gained - few) / (many - few)).clamp(0, 1)
    temperature = constants.scores_lower * found * constants.scores_shared ** (doubt * (1 - 2 * independent))
    return temperature, 1 - helped * (1 - independent), helped


def expectation(z: Tensor, expected: Tensor, constants: Schedule) -> tuple[Tensor, bool]:
    """[k] the logarithm of how likely each class is, from log-probabilities [q, k] and a list; whether it says all.

    ``expected`` [k] says how likely each class is in any unit; 0: the class is not listed. The listed classes have the
    part λ of the items, the others share the rest evenly. A list that is hardly longer than the number of classes that
    seem to occur says what occurs: λ is almost 1, and the batch need not say it. It may be longer where no class that
    it lacks seems to have many items. A longer one says what could occur: λ is the mode of its posterior with a uniform
    prior, by EM, and a list that lacks much of the batch says nothing.
    """
    n_classes = z.shape[-1]
    listed, others = expected / expected.sum(), (expected <= 0).to(z)
    n_listed, others = n_classes - others.sum(), others / others.sum().clamp_min(1)
    proportions = class_proportions(z.exp()[None], _EM_STEPS, 0.0)[0][0]
    seem = effective_number(proportions)
    seem = seem / (1 - seem / (len(z) + 1))  # few items show few of many classes
    lacks = bool((proportions * (expected <= 0)).amax() > constants.scores_missed)
    if bool(n_listed < n_classes) and bool(n_listed <= constants.scores_short[lacks] * seem):
        return (SURE * listed + (1 - SURE) * others).log(), True  # of so many items it lacks the class of one
    inside, outside, found = z.exp() @ listed, z.exp() @ others, z.new_tensor(0.5)
    for _ in range(_EM_STEPS):
        odds = found * inside
        found = ((odds / (odds + (1 - found) * outside)).sum() + 1) / (len(z) + 2)
    found = torch.maximum(found, n_listed / n_classes)
    trusted = ((found - 1 + constants.scores_lacking) / constants.scores_lacking).clamp_min(0)
    return trusted * (found * listed + (1 - found) * others).log(), False


def held(probabilities: Tensor, constants: Schedule) -> Tensor:
    """[k] how far items that a classifier gives to a class keep its answer, from its probabilities [q, k].

    The sum S_k of the probabilities of the items that are given to class k is the number that is expected to be right.
    Where S_k is large, the class occurs or a group of items goes by two names, and the batch cannot say which is right:
    these items are held. It grows from 0 at half of the limit to 1.
    """
    few, part = constants.scores_held
    return (2 * right(probabilities) / max(few, part * len(probabilities)) - 1).clamp(0, 1)


def right(probabilities: Tensor) -> Tensor:
    """[k] S_k: how many of the items that are given to a class are expected to be right."""
    best = probabilities.max(-1)
    return torch.zeros_like(probabilities[0]).index_add_(0, best.indices, best.values)


def popularity(z: Tensor, constants: Schedule) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[k] by how much a classifier prefers each class whatever the item is, from log-posteriors [q, k]; [] the rest.

    The second result is all that it could be: the median [k] over items that have another label, likely classes too,
    but for classes that are far above all others: what hardly any classifier prefers so much occurs. Of few items it is
    less, since they may be of one class. The third is the part of it that items agree on.

    The likely classes of an item are left out. Items count less where others are like them, and the agreement of items
    that are unlike each other says how much of the mean is preference and not chance. The rest is what preferences for
    classes may gain, in nats, that no item shows among its unlikely ones: lists that are cut end in equal numbers.
    """
    n_likely = min(constants.scores_likely, max(1, z.shape[1] // 4))
    keep = torch.ones_like(z).scatter_(-1, z.topk(n_likely, -1).indices, 0.0)
    last = z.topk(2, largest=False).values.mT.unsqueeze(-1)
    hidden = (keep.amax(0) - (keep * ((z != last[1]) | (last[0] != last[1]))).amax(0)).mean()
    rest = (z - (z * keep).sum(-1, keepdim=True) / keep.sum(-1, keepdim=True)) * keep
    direction = rest / rest.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    root = (z / 2).exp()
    alike = (root @ root.mT).clamp(0, 1)
    far = (alike < constants.scores_unlike).to(z)
    agreement = (((direction @ direction.mT) * far).sum() / (far.sum() + len(z))).clamp(0, 1)
    weights = (1 / alike.square().sum(-1).clamp_min(1)).unsqueeze(-1)
    number = weights.sum()
    trusted = number * agreement / (1 + (number - 1) * agreement)
    mean = (rest * weights).sum(0) / (keep * weights).sum(0).clamp_min(1e-6)
    whole = (z - z.median(-1, True).values).scatter(-1, z.argmax(-1, keepdim=True), torch.nan).nanmedian(0).values
    whole = torch.where(whole < constants.scores_outlying * whole.abs().nanmedian(), whole, 0.0)
    most, sd, many = constants.scores_most_popular, mean.std().clamp_min(1e-9), len(z) / (len(z) + constants.scores_few)
    popular = trusted * mean * (most / sd).square().clamp_max(1)
    return popular, trusted.clamp_min(many) * whole, trusted * whole, hidden * most**2 / 2


def _read(tasks: Tasks, step: int) -> tuple[Tensor, Tensor]:
    """Every so many rows [t, n, k] and their known labels [t, n]; all rows of which a label is known are among them."""
    known = tasks.known_labels
    wanted = (known >= 0).any(0)
    wanted[::step] = True
    if isinstance(tasks.pile, Pile):
        return tasks.pile.each(_take, tasks.pile.split(wanted[None]))[0].values[0], known[:, wanted]
    return tasks.query[:, wanted], known[:, wanted]


def _take(rows: Tensor, wanted: Tensor) -> tuple[Joined, None]:
    return Joined((rows[:, wanted[0]],)), None


def tempered(posteriors: Tensor, temperatures: Tensor) -> Tensor:
    """[g, n, k] log-posteriors [n, k] at each temperature [g]."""
    return (posteriors / temperatures.view(-1, 1, 1)).log_softmax(-1)


def held_out(likelihood: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """[t] the log-likelihood of each item given the others, summed, and the part of the items that is independent."""
    _, n_query, n_classes = likelihood.shape
    prior = parameters.prior(n_query, likelihood[:1, 0])
    found = search(Dense.of(likelihood), prior, parameters).queries
    presence = Presence.of(found.u, remainders(found.u))
    alpha = prior.best(presence).view(-1, 1, 1)
    others = ((presence.masses.unsqueeze(1) - found.u).clamp_min(0) + alpha) / (n_query - 1 + n_classes * alpha)
    predicted = (likelihood + others.log()).logsumexp(-1) + log(n_classes)
    masses = presence.masses
    shared = torch.full_like(masses, parameters.constants.shared_error)
    return predicted.sum(-1), (masses * independent_part(masses, shared)).sum(-1) / n_query
