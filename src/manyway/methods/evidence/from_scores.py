"""Evidence for the scores of a classifier that somebody else has trained.

The scores become log-posteriors ln p_qk of the classes, and these become likelihoods. A classifier's posterior contains
the class proportions of its training data, and it is often too certain. With the training prior r_k and a temperature
T,

    ℓ_qk = ln softmax_k((ln p_qk − ln r_k) / T + b_k)

is the log-likelihood of item q under class k, up to a constant per item. `evidence_from_likelihood` does the rest.

T and b are fitted to labelled items where these cover the classes (`fit_posteriors`). Otherwise b = 0, and the items
themselves say how sharp their posteriors should be. Let u be the assignments that the search of ``evidence`` finds at
temperature T, m_k = Σ_q u_qk and α the concentration. The other items predict class k for item q with the probability
π_qk = (m_k − u_qk + α) / (|Q| − 1 + Kα). The temperature maximises

    w Σ_q ln Σ_k K π_qk exp ℓ_qk + Σ_labelled ln p(y | T) − ½ ((ln T − μ)/σ)²,

the likelihood of each item given the others, that of labelled items, and a prior. Where all classes are equally
frequent the first term is 0 at any temperature: such items say nothing about it, and the prior decides.

Items of one class share the errors of the classifier, so m of them count as m / (1 + ρ(m − 1)) independent ones, with
the ``shared_error`` ρ of evidence; w is the fraction of all items that this leaves. Shared errors also look like
further classes, which makes the temperature too low where few classes have many items. The log-likelihoods are
therefore multiplied by 1 − 0.4 (1 − w). Up to 512 items are used for the temperature, evenly spaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core.blocks import Joined, Pile
from manyway.core.tasks import Tasks
from manyway.errors import InputError
from manyway.methods.calibration.temperature_scaling import balanced_weights, fit_scaling, rescale
from manyway.methods.evidence.groups import independent_part
from manyway.methods.evidence.likelihood import Scores
from manyway.methods.evidence.one_shot import stride
from manyway.methods.evidence.parameters import Parameters
from manyway.methods.evidence.prior import Presence
from manyway.methods.evidence.queries import excluded
from manyway.methods.evidence.search import Dense, search

KINDS = ("auto", "probability", "log-probability", "logit", "sigmoid")
_USUAL_COUNT = 100.0  # training samples per class of a classifier, where nothing is said
_LOG_TEMPERATURES = (log(0.4), log(4.0), 12)  # the values that are tried: lowest, highest, number
_SLACK = 0.02  # by which rounded probabilities may sum to more than 1
_LEAST_MISSING = 1e-3  # the probability of the classes that an item does not list is at least this
_LARGEST_SIGMOID = 0.9999  # tables are rounded to four digits
_COVERED = 0.5  # part of the classes that must have labelled items before each class gets a bias


class Tempering(NamedTuple):
    """The constants of the temperature that a batch says. `python -m benchmarks.scores DATA --choose` chose them."""

    usual: float = 1.25  # the median of the prior of T
    sd: float = 0.6  # the standard deviation of ln T
    shared: float = 0.4  # log-likelihoods are multiplied by 1 minus this where all items of a class share their errors

    def choose(self, grid: Tensor, score: Tensor, part: Tensor, labelled: Tensor | float = 0.0) -> Tensor:
        """[t] the temperature, given for each of the grid [g] the log-likelihood of the items [g, t] and so on."""
        away = grid.log() - log(self.usual)
        independent = part[away.abs().argmin()]
        prior = -0.5 * (away / self.sd).square()
        best = (score * independent + labelled + prior.unsqueeze(-1)).argmax(0)
        return grid[best] / (1 - self.shared * (1 - independent))


Place = Callable[[int], str]  # what an error message calls an item


def _row(number: int) -> str:
    return f"row {number}"


def find_kind(scores: Tensor, place: Place = _row) -> str:
    """What the scores [n, k] are: probabilities, their logarithms, or logits. NaN: the class is not listed.

    >>> [find_kind(torch.tensor([scores])) for scores in ([0.7, 0.2], [-0.1, -3.0], [2.0, -3.0])]
    ['probability', 'log-probability', 'logit']
    """
    values = scores.nan_to_num(0.0)
    if bool((values >= 0).all()):
        total = values.sum(-1)
        row = int(total.argmax())
        if float(values.amax()) > 1:
            row = int(values.amax(-1).argmax())
            raise InputError(
                f"The scores of {place(row)} go up to {float(values[row].amax()):.6g} and none is negative: they could "
                "be percentages or logits; divide percentages by 100, or say --score-kind logit (in Python: kind)."
            )
        if float(total[row]) > 1 + _SLACK:
            raise InputError(
                f"The scores of {place(row)} sum to {float(total[row]):.4g}, more than a probability; if every class "
                "has a yes-or-no score of its own, say --score-kind sigmoid (in Python: kind)."
            )
        return "probability"
    if bool((values <= 0).all()):
        listed = torch.where(scores.isnan(), -torch.inf, scores)
        if float(listed.logsumexp(-1).amax()) <= log(1 + _SLACK):
            return "log-probability"
    return "logit"


def log_posteriors(scores: Tensor, kind: str = "auto", place: Place = _row) -> Tensor:
    """Scores as normalised log-probabilities of the classes.

    A class that an item does not list (NaN, or a probability of 0) gets an equal part of the probability that the
    listed classes leave, at least 0.1 % together, but none gets more than the lowest listed class.

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
    _refuse(total <= 0, "are all 0", place)
    return _completed(scores.nan_to_num(0.0)).log()


def _completed(probabilities: Tensor) -> Tensor:
    """[n, k] with what each row leaves spread over its classes of probability 0."""
    unlisted = probabilities <= 0
    missing = (1 - probabilities.sum(-1, keepdim=True)).clamp_min(_LEAST_MISSING)
    lowest = probabilities.masked_fill(unlisted, torch.inf).amin(-1, keepdim=True)
    each = torch.minimum(missing / unlisted.sum(-1, keepdim=True).clamp_min(1), lowest)
    filled = torch.where(unlisted, each, probabilities).clamp_min_(torch.finfo(probabilities.dtype).tiny)
    return filled.div_(filled.sum(-1, keepdim=True))


def _refuse(bad: Tensor, why: str, place: Place) -> None:
    if bool(bad.any()):
        raise InputError(f"The scores of {place(int(bad.nonzero()[0]))} {why}.")


def without_prior(posteriors: Tensor, class_prior: Tensor | None) -> Tensor:
    """[n, k] log-posteriors for equally frequent classes, given the training prior [k] in any unit."""
    if class_prior is None:
        return posteriors
    if class_prior.shape != posteriors.shape[-1:]:
        raise InputError(f"There are {len(class_prior)} class priors for {posteriors.shape[-1]} classes.")
    if not bool(torch.isfinite(class_prior).all()) or not bool((class_prior > 0).all()):
        raise InputError("A class prior is not positive; every class that the classifier can answer needs one.")
    return (posteriors - class_prior.to(posteriors).log()).log_softmax(-1)


def fit_posteriors(posteriors: Tensor, labels: Tensor) -> Tensor | None:
    """b and 1/T [k + 1] by bias-corrected temperature scaling of log-posteriors [n, k] with labels [n].

    None where fewer than half of the classes have a labelled item: the biases would then say which classes happened to
    be labelled.
    """
    n_classes = posteriors.shape[-1]
    if int((labels.bincount(minlength=n_classes) > 0).sum()) < _COVERED * n_classes:
        return None
    logits, labels = posteriors.double()[None], labels[None]
    weights = balanced_weights(labels, torch.ones_like(logits[..., 0]), n_classes)
    return fit_scaling(logits, labels, weights)[0].to(posteriors)


@dataclass(frozen=True, eq=False)
class Tempered:
    """From rows of log-posteriors [t, b, k] to log-likelihoods: ln softmax(ln p / T + b)."""

    scaling: Tensor  # [t, k + 1] the biases b, and 1/T

    def __call__(self, rows: Tensor) -> Tensor:
        return rescale(rows, self.scaling).log_softmax(-1)


def learn_scores(tasks: Tasks, parameters: Parameters) -> tuple[Scores, Tensor | Pile]:
    """The likelihood of scores, and the placed queries.

    T and b are fitted to labelled scores, those of the support and of queries with a known label, where these cover the
    classes. Otherwise b = 0, and T is ``parameters.temperature``, or what the batch and the labelled scores say.
    """
    step = stride(tasks.n_query)
    rows, known = (tasks.query[:, ::step], tasks.known_labels[:, ::step]) if tasks.pile is None else _read(tasks, step)
    labelled = tasks.query if tasks.pile is None else rows
    truth = tasks.known_labels if tasks.pile is None else known
    scalings = []
    for task in range(len(tasks)):
        some = truth[task] >= 0
        theirs = torch.cat([labelled[task, some], tasks.support[task]])
        labels = torch.cat([truth[task, some], tasks.support_labels[task]])
        fitted = fit_posteriors(theirs, labels) if parameters.temperature is None and len(labels) else None
        if fitted is None:
            temperature = parameters.temperature or _temperature(rows[task], known[task], (theirs, labels), parameters)
            fitted = torch.nn.functional.pad(rows.new_zeros(rows.shape[-1]), (0, 1), value=1 / temperature)
        scalings.append(fitted)
    place = Tempered(torch.stack(scalings))
    counts = rows.new_full((1, rows.shape[-1]), _USUAL_COUNT)
    likelihood = Scores(counts, {"temperature": 1 / place.scaling[:, -1]})
    return likelihood, place(tasks.query) if tasks.pile is None else tasks.pile.then(place)


def _read(tasks: Tasks, step: int) -> tuple[Tensor, Tensor]:
    """Every so many rows of a pile, and their known labels; all rows with a known label are among them."""
    assert tasks.pile is not None
    known = tasks.known_labels
    wanted = known >= 0
    wanted[:, ::step] = True
    rows = tasks.pile.each(_take, tasks.pile.split(wanted))[0].values[0]
    return rows, known[wanted][None]


def _take(rows: Tensor, wanted: Tensor) -> tuple[Joined, None]:
    return Joined((rows[:, wanted[0]],)), None


def _temperature(posteriors: Tensor, known: Tensor, labelled: tuple[Tensor, Tensor], parameters: Parameters) -> float:
    """The temperature that the items of a batch and labelled items say, with a prior."""
    grid = temperatures().to(posteriors)
    likelihood = tempered(posteriors, grid)
    score, part = held_out(excluded(likelihood, known.expand(len(grid), -1)), parameters)
    theirs, truth = labelled
    own = tempered(theirs, grid).gather(-1, truth.view(1, -1, 1).expand(len(grid), -1, 1)).sum(1)
    return float(Tempering().choose(grid, score.unsqueeze(-1), part.unsqueeze(-1), own))


def temperatures() -> Tensor:
    """[g] the temperatures that are tried."""
    return torch.linspace(*_LOG_TEMPERATURES).exp()


def tempered(posteriors: Tensor, temperatures: Tensor) -> Tensor:
    """[g, n, k] log-posteriors [n, k] at each temperature [g]."""
    return (posteriors / temperatures.view(-1, 1, 1)).log_softmax(-1)


def held_out(likelihood: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """[t] the log-likelihood of each item given the others, summed, and the part of the items that is independent."""
    _, n_query, n_classes = likelihood.shape
    schedule = parameters.constants
    prior = parameters.prior(n_query, likelihood[:1, 0])
    found = search(Dense.of(likelihood), prior, schedule, max_iter=parameters.max_iter, tol=parameters.tol).queries
    presence = Presence.of(found.u, found.remainder)
    alpha = prior.best(presence).view(-1, 1, 1)
    others = ((presence.masses.unsqueeze(1) - found.u).clamp_min(0) + alpha) / (n_query - 1 + n_classes * alpha)
    predicted = (likelihood + others.log()).logsumexp(-1) + log(n_classes)
    masses = presence.masses
    part = (masses * independent_part(masses, torch.full_like(masses, schedule.shared_error))).sum(-1) / n_query
    return predicted.sum(-1), part
