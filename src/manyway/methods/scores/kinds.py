"""Scores of any kind as normalised log-probabilities of the classes, or as log-odds.

Scores are probabilities, their logarithms, logits, or yes-or-no probabilities of each class. An item may list some of
the classes only. A class that no item lists cannot occur. −inf is the logarithm of 0, and means the same as a
probability of 0.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from manyway.errors import InputError

KINDS = ("auto", "probability", "log-probability", "logit", "sigmoid")
SEVERAL = (
    "independent"  # each class has a yes-or-no probability of its own, and several may be right
)
IMPOSSIBLE = -1e4  # the log-probability of a class that no item can have
_SLACK = 0.02  # by which rounded probabilities may sum to more than 1
_LEAST_MISSING = 1e-3  # the probability of the classes that an item does not list is at least this
_LARGEST_SIGMOID = 0.9999  # tables are rounded to four digits

Place = Callable[[int], str]  # what an error message calls an item


_row: Place = "row {}".format


def find_kind(scores: Tensor, place: Place = _row) -> str:
    """What the scores [n, k] are: probabilities, their logarithms, or logits. NaN: the class is not listed.

    >>> [find_kind(torch.tensor([scores])) for scores in ([0.7, 0.2], [-0.1, -3.0], [2.0, -3.0])]
    ['probability', 'log-probability', 'logit']
    """
    values = scores.nan_to_num(0.0, neginf=-torch.inf)
    lowest = float(values.amin())
    highest = float(values.amax())
    if lowest >= 0:
        total = values.sum(-1).max(-1)
        if highest > 1:
            row = int(values.amax(-1).argmax())
            raise InputError(
                f"The scores of {place(row)} go up to {float(values[row].amax()):.6g} and none is negative: they "
                "could be percentages or logits; divide percentages by 100, or say `kind='logit'`."
            )
        if float(total.values) > 1 + _SLACK:
            raise InputError(
                f"The scores of {place(int(total.indices))} sum to {float(total.values):.4g}, more than a "
                "probability; if classes have yes-or-no scores, say `kind='sigmoid'`, or 'independent' where several "
                "may be right."
            )
        return "probability"
    _refuse_slips(values, place)
    total_probability = scores.nan_to_num(-torch.inf).logsumexp(-1).amax()
    if highest <= 0 and float(total_probability) <= log(1 + _SLACK):
        return "log-probability"
    return "logit"


def _refuse_slips(values: Tensor, place: Place) -> None:
    """Refuse scores [n, k] of which a few rows are no probabilities and all others are: one minus makes no logits.

    Few means fewer than the square root of the others.
    """
    total = values.sum(-1)
    negative = (values < 0).any(-1)
    odd = negative | (total > 1 + _SLACK)
    others = ~odd & (total > 0)  # a row of zeros may be one of logarithms
    if int(odd.sum()) ** 2 < int(others.sum()):
        row = int(negative.nonzero()[0])
        raise InputError(
            f"The scores of {place(row)} go down to {float(values[row].amin()):.6g}, but nearly all other rows are "
            "probabilities; correct that row, or say `kind='logit'`."
        )


def possible_classes(scores: Tensor, kind: str) -> Tensor:
    """[k] whether any item can have the class: one lists it, with a probability above 0."""
    listed = ~scores.isnan()
    if kind in ("logit", "log-probability"):
        return (listed & (scores > -torch.inf)).any(0)
    return (listed & (scores != 0)).any(0)


def only_names(scores: Tensor) -> bool:
    """Whether all scores are 0 or 1, or their logarithms: they name classes and do not say how sure the classifier is.

    >>> one_hot = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> only_names(one_hot), only_names(one_hot.log()), only_names(one_hot / 2)
    (True, True, False)
    """
    neither = scores.isnan() | (scores == 0)
    return any(bool((neither | (scores == other)).all()) for other in (1, -torch.inf))


def log_posteriors(
    scores: Tensor, kind: str = "auto", place: Place = _row, *, possible: Tensor | None = None
) -> Tensor:
    """Scores as normalised log-probabilities of the classes.

    A class that an item does not list (NaN, or a probability of 0: −inf as a logarithm or logit) gets an equal part of
    the probability that the listed classes leave, at least 0.1 % together, but none gets more than half of the lowest
    listed class. A class that no item lists gets nothing.

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
    possible : Tensor of shape (k,), optional
        Which classes some item can have, where these rows are not all: see ``possible_classes``.

    Returns
    -------
    Tensor of shape (n, k)

    Examples
    --------
    >>> both = torch.tensor([[0.7, 0.2, torch.nan, torch.nan], [torch.nan, torch.nan, 0.5, 0.5]])
    >>> log_posteriors(both).exp().round(decimals=3)[0]
    tensor([0.7000, 0.2000, 0.0500, 0.0500])
    """
    if kind not in KINDS:
        raise InputError(f"The kind of scores is '{kind}'; choose one of {', '.join(KINDS)}.")
    if scores.shape[0] == 0 or scores.shape[1] < 2:
        raise InputError(
            f"There are scores of {scores.shape[0]} items for {scores.shape[1]} classes; give several."
        )
    _refuse(scores.isposinf().any(-1), "are infinite", place)
    _refuse(scores.isnan().all(-1), "are missing: the item lists no class", place)
    if kind == "auto":
        kind = find_kind(scores, place)
    if possible is None:
        possible = possible_classes(scores, kind)
    if not bool(possible.any()):
        _refuse(
            torch.ones_like(scores[:, 0], dtype=torch.bool),
            "are all 0, like those of all items",
            place,
        )
    found = scores.new_full(scores.shape, IMPOSSIBLE)
    found[:, possible] = _of_possible(scores[:, possible], kind, place)
    return found


def _of_possible(scores: Tensor, kind: str, place: Place) -> Tensor:
    """[n, k] the log-probabilities of the classes that some item can have."""
    listed = ~scores.isnan()
    if kind == "logit":
        _refuse(
            ~listed.all(-1), "do not list every class, which logits must; give probabilities", place
        )
        _refuse(scores.isneginf().all(-1), "are all −inf: the item has no class", place)
        return _completed(scores.log_softmax(-1))
    if kind == "log-probability":
        _refuse(
            (scores > _SLACK).any(-1),
            "are positive, which logarithms of probabilities are not",
            place,
        )
        if not bool(listed.all()):
            _refuse_sums(scores.exp(), place)
        return _completed(scores.masked_fill(~listed, -torch.inf))
    _refuse((scores < 0).any(-1), "are negative, which probabilities are not", place)
    if kind == "sigmoid":
        _refuse((scores > 1).any(-1), "are above 1, which probabilities are not", place)
        scores = scores.clamp_max(_LARGEST_SIGMOID)
        scores = scores / (1 - scores)
        scores = scores / (1 + scores.nansum(-1, keepdim=True))
    _refuse_sums(scores, place)
    return _completed(scores.nan_to_num(0.0).log())


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


def without_prior(posteriors: Tensor, class_prior: Tensor) -> Tensor:
    """[n, k] log-posteriors for equally frequent classes, given the training prior [k] in any unit."""
    if class_prior.shape != posteriors.shape[-1:]:
        raise InputError(
            f"There are {len(class_prior)} class priors for {posteriors.shape[-1]} classes."
        )
    if not bool(torch.isfinite(class_prior).all()) or not bool((class_prior > 0).all()):
        raise InputError(
            "A class prior is not positive; every class that the classifier can answer needs one."
        )
    if bool((class_prior == class_prior[0]).all()):  # nothing to take out of many scores
        return posteriors
    return (posteriors - class_prior.to(posteriors).log()).log_softmax(-1)


def _completed(scores: Tensor) -> Tensor:
    """[n, k] log-probabilities with what each row leaves spread over its classes of probability 0 (−inf), normalised.

    A classifier may say nothing about an item: it is of any class then, and the others of the batch decide. All is done
    with logarithms, where tiny probabilities survive.
    """
    unlisted = scores.isneginf()
    missing = (1 - scores.exp().sum(-1, keepdim=True)).clamp_min(_LEAST_MISSING)
    each = (missing / unlisted.sum(-1, keepdim=True).clamp_min(1)).log()
    lowest = scores.masked_fill(unlisted, torch.inf).amin(-1, keepdim=True)
    return torch.where(unlisted, torch.minimum(each, lowest - log(2)), scores).log_softmax(-1)


def _refuse_sums(probabilities: Tensor, place: Place) -> None:
    sums = probabilities.nansum(-1)
    _refuse(sums > 1 + _SLACK, "sum to more than 1, which probabilities do not", place)


def _refuse(bad: Tensor, why: str, place: Place) -> None:
    if bool(bad.any()):
        raise InputError(f"The scores of {place(int(bad.nonzero()[0]))} {why}.")
