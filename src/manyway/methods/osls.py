"""OSLS: class proportions of queries of which some are unknown, by EM (Ye et al., CVPR 2025)."""

from math import cos, pi
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyway.core import Recorder, Solution, Tasks, class_sums, cross_products, unit
from manyway.methods.calibration.transforms import transform

_MOST_CLASSES = 100  # up to which the gate is a step
# of the cosines that the gate reads: the logistic regression is for numbers of this size
_CONFIDENCE_SCALE = 20.0
_LEAST_SHARE = 1e-3  # of known and of unknown samples behind the gate
# The authors' logistic regression: steps per pass over the samples, passes, first step size, first slope and offset.
_BATCH = 512
_PASSES = 100
_STEP_SIZE = 0.05
_FIRST_SLOPE = 1.0
_FIRST_OFFSET = 0.01


def osls(
    tasks: Tasks,
    *,
    gate: Literal["auto", "step", "sigmoid"] = "auto",
    data_weight: float = 1.0,
    logit_scale: float = 20.0,
    max_iter: int = 100,
    scale: str | None = "cl2",
    with_objective: bool = False,
) -> Solution:
    """Correct posteriors for the proportions of the classes and of unknown queries.

    A gate h_q, from 0 to 1, says how far the largest cosine of a query speaks for a known class.
    With p_q = softmax_k(τ x_q·w_k), the posteriors for K classes and unknown are
    (h_q p_q, 1 − h_q), for a source in which the part r is known and classes are equally frequent.
    EM finds the proportions of the queries, (ρ π, 1 − ρ):

        g_q ∝ (h_q p_q π K ρ/r, (1 − h_q) (1 − ρ)/(1 − r)),
        ρ = 1 − mean_q g_q,unknown,      π_k = λ mean_q g_qk / ρ + (1 − λ)/K.

    Then ρ is corrected for the errors of the gate, and the answer is g. The gate is learned from
    the support: a sample against prototypes of which that of its class lacks it is known; the same
    sample without the prototype of its class is unknown. With σ₁ and σ₀ the mean gates of both,
    r = ½σ₀ / (1 − σ₁ + ½σ₀) and ρ ← (ρ − ½σ₀) / (σ₁ − ½σ₀), between 0 and 1.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    gate : {"auto", "step", "sigmoid"}, default="auto"
        A step at the middle of a logistic regression of known and unknown samples, or a sigmoid
        whose middle and width are half the sum and half the difference of their medians. "auto" is
        a step for up to 100 classes and a sigmoid above.
    data_weight : float, default=1.0
        λ, the weight of the queries against equal proportions, from 0 to 1. 1 is maximum
        likelihood; so is the authors' rule for a source with equal proportions.
    logit_scale : float, default=20.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    max_iter : int, default=100
        The largest number of iterations. All are done.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is minus the mean log-likelihood,
        which never increases with ``data_weight=1``.

    Returns
    -------
    Solution
        ``unknown`` is the last component of g. ``probabilities`` are those of the classes, if the
        query is of one of them; each row sums to 1. ``told`` has ``known_share``, the corrected
        ρ. ``converged`` is False: there is no stopping rule.

    Notes
    -----
    It reads nothing but support and queries. The authors learn the gate from pictures mixed
    with noise, whose share they set per data set; unknown samples made of the support need no
    pictures. A class with one example has no sample that is known. If no class has two, no
    query is called unknown.

    Where few of many classes occur, π of a present class is far above 1/K, so that known queries
    win over unknown ones: with the sigmoid ρ was 1 in 60 of 60 recorded open-set tasks of up to 150
    classes, and no query was unknown.

    Differs from the authors' code: their names of the two gates are crossed, so that it has a
    sigmoid for up to 100 classes and a step above; on recorded tasks the choice by the names is
    better or level in accuracy (it was looked at before it became the default). Give ``gate`` for
    the other. With a step and ρ = 1 their code divides 0 by 0 for queries with h = 0, and labels
    them with the first class; here they are unknown. The logistic regression takes steps with all
    samples, in place of random batches.

    Reference: Ye, Tsuchida, Petersson, Barnes,
    "Open set label shift with test time out-of-distribution reference", CVPR 2025.

    Examples
    --------
    >>> support = [[[1.0, 0.0, 0.1], [1.0, 0.1, 0.0], [0.0, 1.0, 0.1], [0.1, 1.0, 0.0]]]
    >>> query = [[[1.0, 0.1, 0.1], [0.2, 1.0, 0.1], [-0.3, -0.4, 1.0]]]
    >>> solution = osls(Tasks.from_arrays(support, [[0, 0, 1, 1]], query), scale=None)
    >>> solution.labels[0, :2].tolist(), int(solution.unknown.argmax())
    ([0, 1], 2)
    """
    tasks = transform(tasks, scale)
    tasks = tasks.with_rows(unit(tasks.support), unit(tasks.query))
    sums, counts = class_sums(tasks)
    vectors = unit(sums)
    cosines = cross_products(tasks.query, vectors)
    if gate == "auto":
        gate = "step" if tasks.n_classes <= _MOST_CLASSES else "sigmoid"
    gates = _Gates.learn(_confidences(tasks, sums, counts, vectors), gate)
    open_gates = gates.of(cosines.amax(-1) * _CONFIDENCE_SCALE)
    mixture = _Mixture((cosines * logit_scale).softmax(-1), open_gates, gates.source_share)
    recorder = Recorder(("likelihood",))
    proportions, known = mixture.proportions(
        data_weight, max_iter, recorder if with_objective else None
    )
    known = gates.corrected(known)
    return Solution(
        mixture.classes(proportions),
        n_iter=max_iter,
        converged=False,
        make_prototypes=lambda: vectors,
        objective_parts=recorder.parts,
        unknown=mixture.unknown(proportions, known),
        told={"known_share": known.squeeze(-1)},
    )


class _Confidences(NamedTuple):
    """The largest scores of support samples, NaN for those of classes with one sample."""

    known: Tensor  # [t, s] the prototype of the sample's class lacks the sample
    unknown: Tensor  # [t, s] the prototype of the sample's class is left out


def _confidences(tasks: Tasks, sums: Tensor, counts: Tensor, vectors: Tensor) -> _Confidences:
    labels = tasks.support_labels.unsqueeze(-1)
    rest = sums.gather(1, labels.expand(-1, -1, tasks.n_features)) - tasks.support
    own = (tasks.support * unit(rest)).sum(-1)
    others = cross_products(tasks.support, vectors).scatter(2, labels, -torch.inf).amax(-1)
    alone = counts.gather(1, tasks.support_labels) < 2
    both = (torch.maximum(own, others), others)
    return _Confidences(*(one.masked_fill(alone, torch.nan) * _CONFIDENCE_SCALE for one in both))


class _Gates(NamedTuple):
    """The gates of tasks: sigmoids or steps, and what is known about their errors."""

    middle: Tensor  # [t, 1]
    width: Tensor  # [t, 1] 0 of a step
    learned: Tensor  # [t, 1] whether there were samples to learn from; if not, every gate is open
    of_known: Tensor  # [t, 1] σ₁, the mean gate of known samples
    of_unknown: Tensor  # [t, 1] ½σ₀, half the mean gate of unknown samples

    @staticmethod
    def learn(samples: _Confidences, kind: str) -> "_Gates":
        learned = ~samples.known.isnan().all(1, keepdim=True)
        medians = [one.nanmedian(1, keepdim=True).values for one in samples]
        middle = (medians[0] + medians[1]) / 2
        if kind == "step":
            width = torch.zeros_like(middle)
            middle = _logistic_middle(samples, middle)
        else:
            width = ((medians[0] - medians[1]) / 2).clamp_min(torch.finfo(middle.dtype).eps)
        gates = _Gates(middle, width, learned, torch.ones_like(middle), torch.zeros_like(middle))
        means = [
            torch.where(one.isnan(), torch.nan, gates.of(one)).nanmean(1, keepdim=True)
            for one in samples
        ]
        return gates._replace(of_known=means[0], of_unknown=means[1] / 2)

    def of(self, confidences: Tensor) -> Tensor:
        """[t, n] h of confidences [t, n]."""
        above = confidences - self.middle
        step = (above > 0).to(above.dtype)
        smooth = (above / self.width.clamp_min(torch.finfo(above.dtype).tiny)).sigmoid()
        return torch.where(self.learned, torch.where(self.width > 0, smooth, step), 1)

    @property
    def source_share(self) -> Tensor:
        """[t, 1] r, the part of known samples in a source of which h is the posterior."""
        total = 1 - self.of_known + self.of_unknown
        # a gate without errors fits any source
        share = torch.where(total > 0, self.of_unknown / total, 0.5)
        return torch.where(self.learned, share, 0.5).clamp(_LEAST_SHARE, 1 - _LEAST_SHARE)

    def corrected(self, known: Tensor) -> Tensor:
        """[t, 1] the part of known queries, corrected for errors of the gate."""
        gap = self.of_known - self.of_unknown
        usable = self.learned & (gap > 0)
        return torch.where(
            usable, ((known - self.of_unknown) / gap.where(usable, 1)).clamp(0, 1), known
        )


def _logistic_middle(samples: _Confidences, start: Tensor) -> Tensor:
    """[t, 1] where a logistic regression gives known and unknown samples the same probability.

    It takes as many steps as the authors' code, whose result after them is not yet the exact one.
    """
    values = torch.cat(samples, 1) - start
    used = ~values.isnan()
    values = values.where(used, 0)
    targets = torch.zeros_like(values)
    targets[:, : samples.known.shape[1]] = 1
    weights = used.float() / used.sum(1, keepdim=True).clamp_min(1)
    slope = torch.full_like(start, _FIRST_SLOPE)
    offset = torch.full_like(start, _FIRST_OFFSET)
    n_steps = _PASSES * -(-values.shape[1] // _BATCH)
    for step in range(n_steps):
        size = _STEP_SIZE * (1 + cos(pi * step / n_steps)) / 2
        errors = ((slope * values + offset).sigmoid() - targets) * weights
        slope = slope - size * (errors * values).sum(1, keepdim=True)
        offset = offset - size * errors.sum(1, keepdim=True)
    rising = slope > torch.finfo(slope.dtype).eps
    return torch.where(rising, start - offset / slope.where(rising, 1), start)


class _Mixture(NamedTuple):
    """Queries of K classes and unknown ones."""

    posteriors: Tensor  # [t, q, k] p, of equally frequent classes
    gates: Tensor  # [t, q] h
    source_share: Tensor  # [t, 1] r

    def _parts(self, proportions: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """[t, q] the joint densities of a query and of being known, and of being unknown.

        In units of the source.
        """
        n_classes = self.posteriors.shape[-1]
        of_classes = (self.posteriors @ proportions.unsqueeze(-1)).squeeze(-1) * n_classes
        as_known = self.gates * of_classes * known / self.source_share
        as_unknown = (1 - self.gates) * (1 - known) / (1 - self.source_share)
        return as_known, as_unknown

    def unknown(self, proportions: Tensor, known: Tensor) -> Tensor:
        """[t, q] the probability of being unknown. Where both densities are 0, the gate decides."""
        as_known, as_unknown = self._parts(proportions, known)
        total = as_known + as_unknown
        return torch.where(total > 0, as_unknown / total.where(total > 0, 1), 1 - self.gates)

    def classes(self, proportions: Tensor) -> Tensor:
        """[t, q, k] the probabilities of the classes for a known query."""
        joint = self.posteriors * proportions.unsqueeze(1)
        return joint / joint.sum(-1, keepdim=True)

    def proportions(
        self, data_weight: float, max_iter: int, recorder: Recorder | None
    ) -> tuple[Tensor, Tensor]:
        """[t, k] π and [t, 1] ρ, by EM from the source."""
        n_classes = self.posteriors.shape[-1]
        equal = torch.full_like(self.posteriors[:, 0], 1 / n_classes)
        found = equal
        known = self.source_share
        for _ in range(max_iter):
            as_known = 1 - self.unknown(found, known)
            masses = (self.classes(found) * as_known.unsqueeze(-1)).mean(1)
            known = masses.sum(-1, keepdim=True)
            shares = torch.where(known > 0, masses / known.where(known > 0, 1), equal)
            found = data_weight * shares + (1 - data_weight) * equal
            if recorder is not None:
                as_known, as_unknown = self._parts(found, known)
                total = (as_known + as_unknown).clamp_min(torch.finfo(found.dtype).tiny)
                recorder.add(-total.log().mean(-1).unsqueeze(0))
        return found, known
