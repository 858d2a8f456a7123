"""Names: classes that are known by a vector, such as an embedding of their name.

Vectors of names and items lie apart, even if one encoder made both. So each kind is centred on its
own: names on their mean over the classes that have examples, items on the mean of the examples.

The vector of the name of class k is ŵ_k, and the mean of these is w̃.

**With examples.** A name counts as a number of examples of its class: the mean of n examples has
the squared error S/n, a name the error E, so it would be worth S/E of them. It counts half of that
(``_worth``), which is learned from the classes that have both. Names are shortened as much as they
point past the examples on average. A prototype is then

    w_k = (n_k x̄_k + worth · ŵ_k) / (n_k + worth).

**Without any example** there are two guesses: items lie where names do, or their mean is that of
the queries. The guess that explains the queries better says which classes occur, in proportions π.
Then items are centred on the mean of the queries, less what is particular to these classes
(``_middle``):

    middle = mean_q z_q − (Σ_k π_k ŵ_k − w̃) / K̂,        K̂ = exp(−Σ_k π_k ln π_k).

``scaling`` scales items, and calls what is here where classes have names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.core import (
    Scaling,
    Tasks,
    class_sums,
    count_labels,
    effective_number,
    extent_of,
    level,
)
from manyway.methods.calibration import Calibration, Representation, learn_scaling

# Scales that have no curve of their own where there is no example.
_CENTRED = (None, "auto", "l2", "cl2", "tcl2", "rcl2")


@dataclass(frozen=True, eq=False, kw_only=True)
class Names:
    """The names of the classes, among the scaled items."""

    vectors: Tensor  # [t, k, d]
    worth: Tensor  # [t] how many examples a name counts
    # Whether the names are further examples, because a class lacks others. Tasks must have as many
    # examples, so that it is so in all of them where a class of one task lacks examples.
    included: bool
    alone: Tensor  # [t, k] whether a class has a name only, and others have examples

    def beside_examples(self, items: Tasks) -> Tasks:
        """Scaled items with all names as further examples, where a class lacks others.

        So the calibration has a sample of every class.
        """
        if not self.included:
            return items
        classes = torch.arange(items.n_classes, device=self.vectors.device)
        labels = torch.cat([items.support_labels, classes.expand(items.n_tasks, -1)], 1)
        support = torch.cat([items.support, self.vectors], 1)
        return items.with_rows(support, items.query, support_labels=labels)

    def added_to(self, calibration: Calibration, placed: Tensor) -> Calibration:
        """The calibration with prototypes that have taken in the names.

        Parameters
        ----------
        calibration : Calibration
            Learned on the examples; on the names, too, where a class has no other.
        placed : Tensor of shape [t, k, d]
            The names, placed as queries are.

        Returns
        -------
        Calibration
            A class with a name alone, among others with examples, counts twice as many samples:
            squared distances to it are shortened by E, without the discount of ``_worth``. With
            the discount, such a class would take the queries of the others.
        """
        more = self.worth.view(-1, 1) - float(self.included)
        prototypes = calibration.prototypes
        counts = prototypes.counts + more
        offsets = prototypes.offsets * prototypes.counts.unsqueeze(-1)
        offsets = (offsets + placed * more.unsqueeze(-1)) / counts.unsqueeze(-1)
        counts = torch.where(self.alone, 2 * counts, counts)
        examples = prototypes.examples + (counts - prototypes.counts)
        with_names = prototypes.with_means(offsets, counts, calibration.within.scatter)
        return replace(calibration, prototypes=replace(with_names, examples=examples))


def scaling_without_examples(
    tasks: Tasks,
    vectors: Tensor,
    scale: str | None,
    proportions: Tensor | None,
) -> Scaling:
    """The scaling of queries where there is no example: their own curve, around the guessed middle.

    The curve of ``rcl2`` is used where no query has a negative feature, as it is for examples.
    """
    if scale in _CENTRED:
        not_negative = extent_of(tasks).low.amin(-1, keepdim=True) >= 0
        levelled = not_negative & (scale in ("auto", "rcl2"))
        scaling = Scaling(level, which=levelled, unit=bool(scale))
    else:
        scaling = replace(learn_scaling(tasks, scale).query, middle=None)
    mean = extent_of(tasks, Scaling(scaling.curve, which=scaling.which)).mean
    return replace(scaling, middle=_middle(mean, scaling.curved(vectors), proportions))


def equal_proportions(tasks: Tasks) -> Tensor:
    """[t, k] the guess, without examples, that items lie around their own mean."""
    shape = (len(tasks), tasks.n_classes)
    return torch.full(shape, 1 / tasks.n_classes, dtype=tasks.dtype, device=tasks.device)


def log_probability(log_likelihood: Tensor, proportions: Tensor) -> Tensor:
    """[t] ln p(queries) for log-likelihoods [t, q, k] and proportions [t, k].

    Σ_q ln Σ_k π_k exp(ℓ_qk)
    """
    rare = torch.finfo(log_likelihood.dtype).tiny
    log_proportions = proportions.to(log_likelihood).clamp_min(rare).log()
    return (log_likelihood + log_proportions.unsqueeze(1)).logsumexp(-1).sum(-1)


def _middle(mean: Tensor, vectors: Tensor, proportions: Tensor | None) -> Tensor:
    """[t, 1, d] the middle of items without examples, from the mean [t, 1, d] of the queries.

    Without ``proportions`` it is that of the names. With them, [t, k], it is the mean of the
    queries, less a part of the distance between the names of the classes that occur and all names.
    The part is one over the number of these classes: one class is all that the mean tells of, while
    the mean of many classes differs little from that of all, and errors about which of them occur
    would confirm themselves. Equal proportions give the mean of the queries.
    """
    names = vectors.mean(1, keepdim=True)
    if proportions is None:
        return names
    part = 1 / effective_number(proportions).view(-1, 1, 1)
    return mean - part * (proportions.unsqueeze(1) @ vectors - names)


def represented_names(representation: Representation, items: Tasks, vectors: Tensor) -> Tensor:
    """[t, k, d] names with the representation of the items, and a middle of their own."""
    weights = _name_weights(items, vectors)
    of_names = _representation_of_names(representation, _weighted_mean(vectors, weights))
    middle = _weighted_mean(of_names.curved(vectors), weights)
    return replace(of_names, middle=middle)(vectors)


def scaled_names(scaling: Scaling, items: Tasks, vectors: Tensor) -> Tensor:
    """[t, k, d] names with the scaling of the items, and a middle of their own."""
    middle = _weighted_mean(scaling.curved(vectors), _name_weights(items, vectors))
    return replace(scaling, middle=middle)(vectors)


def _name_weights(items: Tasks, vectors: Tensor) -> Tensor:
    """[t, k] the weights of names in their middle: the number of examples of each class.

    Without any example all count the same.
    """
    counts = count_labels(items.support_labels, items.n_classes).to(vectors)
    return counts if items.n_support else counts + 1


def learn_names(items: Tasks, vectors: Tensor) -> Names:
    """What names say about scaled items, from scaled names [t, k, d].

    Names are multiplied by

        Σ_k n_k x̄_k·ŵ_k / Σ_k n_k ‖ŵ_k‖²,        kept between 0 and 1,

    the factor that brings them nearest to the class means; 1 where one class alone has examples, by
    which it cannot be known.
    """
    counts = count_labels(items.support_labels, items.n_classes).to(vectors)
    worth = torch.ones(len(vectors), dtype=vectors.dtype, device=vectors.device)
    if items.n_support:
        # [t, k, d]; 0 where a class has no example
        sums = class_sums(items)[0].expand(items.n_tasks, -1, -1)
        squares = vectors.square().sum(-1)
        lengths = (counts * squares).sum(-1)
        factor = (sums * vectors).sum((1, 2)) / lengths
        # The name of the only class with examples is the middle of the names: 0, but for rounding.
        rounding = torch.finfo(squares.dtype).eps * counts.sum(-1) * squares.mean(-1)
        factor = factor.where(lengths > rounding, 1.0)
        vectors = vectors * factor.clamp(0, 1).view(-1, 1, 1)
        worth = _worth(items, sums, counts, vectors)
    return Names(
        vectors=vectors,
        worth=worth,
        included=bool((counts == 0).any()),
        alone=(counts == 0) & (items.n_support > 0),
    )


def _weighted_mean(vectors: Tensor, weights: Tensor) -> Tensor:
    """[t, 1, d] of vectors [t, k, d] with weights [t, k]."""
    total = weights.sum(-1).view(-1, 1, 1)
    return (weights.unsqueeze(-1) * vectors).sum(1, keepdim=True) / total


def _representation_of_names(representation: Representation, mean: Tensor) -> Representation:
    """The representation of names whose mean is given, [t, 1, d].

    Its power counts from as far below as that of items. Names lie apart from items, so that a power
    that counted from the lowest item would depend on how far.
    """
    middle = representation.middle
    above_lowest = middle.abs().pow(1 / representation.power).copysign(middle)
    return replace(representation, lowest=mean - above_lowest)


def _worth(
    items: Tasks,
    sums: Tensor,
    counts: Tensor,
    vectors: Tensor,
) -> Tensor:
    """[t] how many examples a name is worth.

    It is half of S/E, where E is its mean squared error as a prototype. Half, because the errors of
    names lie between similar classes more often than those of examples.

    With S the pooled scatter Σ ‖x − x̄_k‖² / (n − K') over the K' classes that have examples,

        E = mean_k (‖x̄_k − ŵ_k‖² − S/n_k),

    because ‖x̄_k − ŵ_k‖² contains the error of x̄_k, too. E is no smaller than the error of the
    mean of all n examples, S/n. The result is 1 where no class has two examples, so that S is not
    known.
    """
    occupied = counts > 0
    means = sums / counts.clamp_min(1).unsqueeze(-1)
    freedom = items.n_support - occupied.sum(-1)
    between = (counts * means.square().sum(-1)).sum(-1)
    within = items.support.square().sum((1, 2)) - between
    scatter = within.clamp_min(0) / freedom.clamp_min(1)
    apart = (means - vectors).square().sum(-1) - scatter.unsqueeze(-1) / counts.clamp_min(1)
    error = (apart * occupied).sum(-1) / occupied.sum(-1)
    error = torch.maximum(error, scatter / items.n_support)
    worth = 0.5 * scatter / error.clamp_min(torch.finfo(error.dtype).tiny)
    return torch.where((freedom > 0) & (scatter > 0), worth, torch.ones_like(worth))
