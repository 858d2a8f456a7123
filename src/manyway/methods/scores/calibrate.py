"""Calibrate: what a score says about a class.

The classifier's log-posterior ln p_qk becomes the log-likelihood

    ℓ_qk = ln softmax_k(z_qk − b_k),        z_qk = (ln p_qk + list_k) / T,

with a temperature T, and the preference b_k of the classifier for class k whatever the item is.

- **T** brings the highest probability to at least ``scores_sure`` on average; a surer classifier keeps T = 1.
- **b** is what items that are *unlike* each other agree on. Each item counts for the classes that it does not have by a
  first search (1 − u_qk), its likely classes are cut (``scores_background``), and the mean is shrunk by how reliable
  it is: with the agreement ρ of two unlike items and n items, nρ / (1 + (n − 1)ρ) (Spearman and Brown).
- **Labelled items** fit T and b by bias-corrected temperature scaling among the classes that have some: about another
  class they say nothing. Where they cover the part c of the classes, their T has the part c. Their b has the b above,
  learned from them too, as the mean of its prior: a class without labelled items keeps it. Few of them correct names:
  an item follows labelled ones that are alike (``Neighbours``), as far as 1 − c.
- **A list** of expected classes adds to ln p; see ``listed``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import count_labels, one_hot
from manyway.methods.calibration.temperature_scaling import balanced_weights, fit_scaling
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.items import Part
from manyway.methods.scores.search import Limits, search_sample

_BISECTIONS = 24
_STEEPEST = 6.0  # ln of the largest exponent that is looked for
_ITEMS_LIKE_A_LIST = 12.0  # of a class that is not listed say half as much as a list
_EM_STEPS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What is known beside the scores of the batch, for the classes that some item can have."""

    labelled: Tensor  # [n, k] log-posteriors of other items
    labels: Tensor  # [n] their classes
    expected: Tensor  # [k] how likely each class is to occur, in any unit; 0: it is not on a list
    temperature: float | None  # T, where the user says it
    every: int = 1  # every so many labelled items one is learned from where few are enough


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """Labelled items, which correct a classifier that calls a class by another name.

    Without preferences, the probabilities p_q of an item become, up to a factor,

        p_qk + γ (1 − c) s_qk (s_qk / Σ_j s_qj)²,        a_qi = (Σ_k √(p_qk p_ik))^γ,

    where a_qi says how much a labelled item i is alike, and s_qk is its sum over those of class k. Items that are alike
    to several classes say little. The sum of n items that are not of the batch is divided by (n + 1)/2, as if each two
    had the agreement ½: their classes may not occur, and a large number of them proves nothing.
    """

    roots: Tensor  # [n, k] √p of the labelled items
    counts: Tensor  # [n, k] what an item counts for its class, else 0
    bias: Tensor  # [k] the preferences that are left out of p
    power: float  # γ
    weight: float  # γ (1 − c)

    def teach(self, z: Tensor) -> Tensor:
        """[b, k] log-probabilities that have learned from the labelled items."""
        own = (z - self.bias).log_softmax(-1)
        alike = ((own / 2).exp() @ self.roots.mT).clamp(0, 1).pow(self.power)
        found = alike @ self.counts
        total = found.sum(-1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
        votes = self.weight * found * (found / total).square()
        return (torch.logaddexp(own, votes.log()) + self.bias).log_softmax(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """How log-posteriors become log-likelihoods."""

    temperature: float  # T
    bias: Tensor  # [k] b
    listed: Tensor  # [k] what a list of expected classes adds
    neighbours: Neighbours | None
    hidden: float  # the gain in nats that preferences may have which these scores do not show
    coverage: float  # c: the part of the classes that has labelled items

    def alone(self, posteriors: Tensor) -> Tensor:
        """[b, k] what z is without labelled items."""
        return ((posteriors + self.listed) / self.temperature).log_softmax(-1)

    def own(self, posteriors: Tensor) -> Tensor:
        """[b, k] z, the classifier's own log-probabilities at temperature T, from log-posteriors."""
        z = self.alone(posteriors)
        if self.neighbours is not None:
            z = self.neighbours.teach(z)
        return z

    def likelihood(self, posteriors: Tensor) -> Tensor:
        """[b, k] ℓ from log-posteriors."""
        return (self.own(posteriors) - self.bias).log_softmax(-1)


def calibrate(sample: Part, given: Given, limits: Limits, constants: ScoreConstants) -> Calibration:
    """Learn T and b from some items of the batch, and from labelled items where there are any."""
    posteriors = sample.posteriors
    some = sample.known >= 0
    labelled = torch.cat([posteriors[some], given.labelled])
    labels = torch.cat([sample.known[some], given.labels])
    coverage = len(set(labels.tolist())) / posteriors.shape[-1]
    temperature = given.temperature
    if temperature is None:
        fitted = fit_labelled(labelled, labels)
        temperature = _temperature(posteriors, fitted, coverage, constants)
    found = Calibration(
        temperature=temperature,
        bias=torch.zeros_like(posteriors[0]),
        listed=torch.zeros_like(posteriors[0]),
        neighbours=None,
        hidden=0.0,
        coverage=coverage,
    )
    first = search_sample(posteriors, sample.known, found.likelihood, limits)
    if bool((given.expected != given.expected[0]).any()):
        calibrated = (posteriors / temperature).log_softmax(-1)
        added = listed(calibrated, given.expected, first.sum(0))
        found = replace(found, listed=temperature * added)
        first = search_sample(posteriors, sample.known, found.likelihood, limits)
    all_labelled = _Labelled(
        z=(labelled / temperature).log_softmax(-1),  # a list is of the batch
        labels=labels,
        n_of_batch=int(some.sum()),
    )
    found = _with_bias(found, sample._replace(u=first), given, all_labelled, constants)
    if 0 < coverage < 1:
        found = replace(found, neighbours=_neighbours(all_labelled, found, constants))
        first = search_sample(posteriors, sample.known, found.likelihood, limits)
        found = _with_bias(found, sample._replace(u=first), given, all_labelled, constants)
    return found


class _Labelled(NamedTuple):
    """All labelled items, those of the batch first."""

    z: Tensor  # [n, k] the log-probabilities of the classifier at temperature T
    labels: Tensor  # [n]
    n_of_batch: int


def _with_bias(
    found: Calibration,
    sample: Part,
    given: Given,
    labelled: _Labelled,
    constants: ScoreConstants,
) -> Calibration:
    """With the preferences that assigned items and labelled ones show."""
    # What a classifier likes whatever the item is, items of other classes show as well.
    others = (given.labelled / found.temperature).log_softmax(-1)[:: given.every]
    own = one_hot(given.labels[:: given.every], labelled.z.shape[-1], labelled.z.dtype)
    preference = preferences(
        torch.cat([found.alone(sample.posteriors), others]),
        torch.cat([sample.u, own]),
        found.temperature,
        constants,
    )
    fitted = fit_labelled(labelled.z - preference.bias, labelled.labels)
    hidden = (1 - found.coverage) * preference.hidden
    return replace(found, bias=preference.bias - fitted[:-1], hidden=hidden)


def fit_labelled(posteriors: Tensor, labels: Tensor) -> Tensor:
    """[k + 1] what is added to the log-posteriors [n, k] of each class, and last 1/T, fitted to labels [n].

    Labels are of the classes that some item has: these are compared with each other, and nothing is added to others.
    """
    fitted = torch.nn.functional.pad(posteriors.new_zeros(posteriors.shape[-1]), (0, 1), value=1.0)
    if not len(labels):
        return fitted
    counts = count_labels(labels[None], posteriors.shape[-1])[0]
    classes = (counts > 0).nonzero().squeeze(1)
    labels = torch.searchsorted(classes, labels)
    logits = posteriors[:, classes].double()[None]
    weights = balanced_weights(labels[None], torch.ones_like(logits[..., 0]), len(classes))
    found = fit_scaling(logits, labels[None], weights)[0].to(posteriors)
    fitted[classes] = found[:-1]
    fitted[-1] = found[-1]
    return fitted


def _temperature(
    posteriors: Tensor, fitted: Tensor, coverage: float, constants: ScoreConstants
) -> float:
    """T: by labelled items as far as they cover the classes, else by how sure the classifier is."""
    claim = posteriors.exp().amax(-1).mean()
    wanted = claim.clamp_min(constants.scores_sure)
    alone = exponent_for(posteriors, wanted, torch.ones_like(posteriors[:, 0]))
    alone = torch.where(claim < wanted, alone, 1.0)
    return float((-(1 - coverage) * alone.log() - coverage * fitted[-1].log()).exp())


def exponent_for(logs: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """[] the exponent with which the highest of the probabilities is as wanted [] on average, by bisection.

    ``logs`` [n, k] are logarithms of probabilities; ``weights`` [n] say how much each item counts.
    """
    low = torch.full_like(wanted, -_STEEPEST)
    high = torch.full_like(wanted, _STEEPEST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        top = (logs * middle.exp()).softmax(-1).amax(-1)
        below = (top * weights).sum() < wanted * weights.sum()
        low = torch.where(below, middle, low)
        high = torch.where(below, high, middle)
    return ((low + high) / 2).exp()


def _neighbours(labelled: _Labelled, found: Calibration, constants: ScoreConstants) -> Neighbours:
    """Labelled items as neighbours of others."""
    z = labelled.z
    own = one_hot(labelled.labels, z.shape[-1], z.dtype)
    of_batch = own[: labelled.n_of_batch]
    of_others = own[labelled.n_of_batch :]
    counts = torch.cat([of_batch, of_others * 2 / (of_others.sum(0) + 1)])
    return Neighbours(
        roots=((z - found.bias).log_softmax(-1) / 2).exp(),
        counts=counts,
        bias=found.bias,
        power=constants.scores_alike,
        weight=(1 - found.coverage) * constants.scores_alike,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Preference:
    """What a classifier likes whatever the item is."""

    bias: Tensor  # [k] b
    hidden: float  # the gain in nats of preferences that the scores do not show


def preferences(z: Tensor, u: Tensor, temperature: float, constants: ScoreConstants) -> Preference:
    """Preferences from log-probabilities z [n, k] and first assignments u [n, k]."""
    upper = z.quantile(constants.scores_background, -1, keepdim=True)
    lower = z.quantile(1 - constants.scores_background, -1, keepdim=True)
    background = z.clamp(lower, upper)
    seen = float(background.var(-1, unbiased=False).mean())
    lacks = 1 - u  # how far an item does not have a class
    centred = background - (background * lacks).sum(-1, keepdim=True) / lacks.sum(-1, keepdim=True)
    rest = centred * lacks
    direction = rest / rest.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
    # Items are alike where their probabilities overlap, at twice the temperature: noise hides likeness.
    roots = ((z / 2).log_softmax(-1) / 2).exp()
    alike = (roots @ roots.mT).clamp(0, 1)
    unlike = (1 - alike).square().fill_diagonal_(0)
    agreement = ((direction @ direction.mT) * unlike).sum() / (unlike.sum() + len(z))
    agreement = agreement.clamp(0, 1)
    # Copies of an item count once.
    same = ((z / 2).exp() @ (z / 2).exp().mT).clamp(0, 1) * alike
    weights = (1 / same.sum(-1).clamp_min(1)).unsqueeze(-1)
    number = (weights * lacks).sum(0)
    reliable = (
        number * agreement / (1 + (number - 1) * agreement).clamp_min(torch.finfo(z.dtype).eps)
    )
    mean = (rest * weights).sum(0) / number.clamp_min(torch.finfo(z.dtype).eps)
    bias = mean * reliable
    spread = bias.std(unbiased=False).clamp_min(torch.finfo(z.dtype).tiny)
    bias = bias * (constants.scores_preference / temperature / spread).clamp_max(1)
    hidden = max(0.0, constants.scores_preference**2 - seen) / 2
    return Preference(bias=bias, hidden=hidden)


def listed(posteriors: Tensor, expected: Tensor, masses: Tensor) -> Tensor:
    """[k] what a list of expected classes adds to calibrated log-posteriors [n, k].

    ``expected`` [k] says how likely each class is, in any unit; 0: the class is not listed. Of K classes L are listed.
    An item is as likely of a listed class as of another one, which is what ln((K − L)/L) adds to each listed class; and
    classes that are expected more than others have more. This counts as far as the list explains the batch: with the
    part λ of the items that is of listed classes, by EM with a uniform prior.

    A list may lack classes. ``masses`` [k] are the numbers of items of each class that a search without the list finds.
    A class with m items that is not listed gets the part m²/(m² + 12²) of what listed ones get: twelve items of a class
    say half as much as a list.
    """
    on_list = expected > 0
    n_listed = on_list.to(posteriors).sum()
    n_others = len(expected) - n_listed
    inside = expected.to(posteriors) / expected.sum()
    relative = torch.where(
        on_list, (inside * n_listed).clamp_min(torch.finfo(posteriors.dtype).tiny).log(), 0.0
    )
    if not bool(n_others > 0):
        return relative
    outside = (~on_list).to(posteriors) / n_others
    of_listed = posteriors.exp() @ inside
    of_others = posteriors.exp() @ outside
    part = posteriors.new_tensor(0.5)
    for _ in range(_EM_STEPS):
        odds = part * of_listed
        part = ((odds / (odds + (1 - part) * of_others)).sum() + 1) / (len(posteriors) + 2)
    likelier = (n_others / n_listed).log().clamp_min(0)
    shown = masses.square() / (masses.square() + _ITEMS_LIKE_A_LIST**2)
    return part * (relative + likelier * torch.where(on_list, 1.0, shown.to(posteriors)))
