"""Label shift: posteriors corrected for class proportions (Saerens et al., 2002).

The posteriors are calibrated, and the proportions are those of the queries.
"""

from typing import Any

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, class_directions, dot_scores
from manyway.methods.calibration import (
    Asked,
    Constants,
    LeftOut,
    calibrate_distances,
    scaled,
    transform,
)

# each check is a synchronisation on a GPU, and several short operations elsewhere
_ITERATIONS_BETWEEN_CHECKS = 10


def label_shift(
    tasks: Tasks,
    *,
    calibrate: bool = True,
    logit_scale: float = 20.0,
    max_iter: int = 1000,
    tol: float = 1e-6,
    scale: str | None = "cl2",
) -> Solution:
    """Correct calibrated posteriors for the class proportions of the queries, by EM (label shift).

    The posteriors p_qk are those of a classifier for equally frequent classes. If only the
    proportions of the classes differ among the queries, the maximum-likelihood proportions π follow
    from EM: from π_k = 1/K, repeat

        u_qk = p_qk π_k / Σ_j p_qj π_j
        π_k  = mean_q u_qk.

    With ``calibrate``, p = softmax_k(ℓ_qk / T + b_k) is bias-corrected temperature scaling of the
    log-likelihoods of ``evidence`` without its metric, ℓ_qk = −½ τ (‖z_q − w_k‖² − S/n_k): w_k is
    the mean of the n_k support samples, S the within-class scatter and τ the precision. T and b
    minimise the cross-entropy of the support samples, each of which is left out of its own class
    mean, with normal priors: 1/T is 1 ± 0.5 and b_k is 0 ± 1. Where no class has two samples, T = 1
    and b = 0. With class features, w_k is the normalised class feature, ℓ_qk = −½ τ ‖z_q − w_k‖²
    with τ = ``logit_scale``, and no sample need be left out. Each class has the same weight in the
    cross-entropy.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    calibrate : bool, default=True
        Whether to calibrate posteriors. If not, they are softmax_k(−½ τ ‖z_q − w_k‖²) with
        τ = ``logit_scale`` and w_k the normalised mean of the support samples or class feature.
    logit_scale : float, default=20.0
        τ, which multiplies the logits before a softmax. The logits are −½ squared distances. It is
        used where τ is not calibrated on left-out samples.
    max_iter : int, default=1000
        The largest number of iterations.
    tol : float, default=1e-06
        A task stops when an iteration changes less than this.
        The change is the largest one of a class proportion.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are.

    Returns
    -------
    Solution
        Probabilities are u with the last π. ``converged`` says whether ``tol`` was met.

    Notes
    -----
    ``calibrate=False, max_iter=100`` is the recorded run of a public implementation, abstention.
    Accuracy in % on the first 10 recorded tasks, in the order 5 shots with K_eff = 5, 5 shots with
    30, 20 shots with 5:

    ====================  ==================  ==================
    posteriors            CLINC150            CUB-200
    ====================  ==================  ==================
    not calibrated        93.5, 90.0, 97.6    60.7, 46.0, 82.8
    T only                95.1, 90.0, 96.9    69.2, 46.0, 80.9
    T and b               95.9, 91.6, 98.0    72.1, 50.4, 81.2
    ====================  ==================  ==================

    Differs from public code: it calibrates with separate labelled samples and without priors,
    which needs many samples per class.

    Reference: Saerens, Latinne, Decaestecker, "Adjusting the outputs of a classifier to new
    a priori probabilities", Neural Computation, 2002. Alexandari, Kundaje, Shrikumar,
    "Maximum likelihood with bias-corrected calibration is hard-to-beat at label shift
    adaptation", ICML 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> label_shift(tasks).labels.tolist()
    [[0, 1]]
    """
    if tasks.scores:
        known = calibrate and tasks.n_support
        logits = scaled(tasks.query, tasks.support, tasks.support_labels) if known else tasks.query
        return _corrected(logits.softmax(-1), max_iter, tol)
    tasks = transform(tasks, scale)
    if calibrate and tasks.class_table is None:
        centres, logits = _calibrated_on_left_out(tasks)
    else:
        centres = class_directions(tasks)
        logits = dot_scores(tasks.query, centres) * logit_scale
        if calibrate and tasks.n_support:
            logits = scaled(
                logits, dot_scores(tasks.support, centres) * logit_scale, tasks.support_labels
            )
    posteriors = (logits - logits.amax(-1, keepdim=True)).exp_()
    return _corrected(posteriors, max_iter, tol, make_prototypes=lambda: centres)


def _corrected(posteriors: Tensor, max_iter: int, tol: float, **more: Any) -> Solution:
    """The answers for posteriors [t, q, k], which need not be normalised."""
    proportions, n_iter, converged = class_proportions(posteriors, max_iter, tol)
    joint = posteriors * proportions.unsqueeze(1)
    return Solution(joint / joint.sum(-1, keepdim=True), n_iter, converged, **more)


def _calibrated_on_left_out(tasks: Tasks) -> tuple[Tensor, Tensor]:
    """Class means [t, k, d], and logits [t, q, k] that were calibrated on the support."""
    found = calibrate_distances(tasks, Constants(), Asked(metric=False))
    coordinates = found.coordinates
    prototypes = found.prototypes
    logits = found.log_likelihood(coordinates.place(tasks.query))
    if bool((prototypes.counts > 1).any()):
        known = tasks[: len(prototypes.counts)]  # one task where all have the same support
        scatter = found.within.scatter
        left_out = LeftOut.of(known.support_labels, prototypes.counts, scatter, found.precision)
        distances = left_out.distances(coordinates.place(known.support), prototypes.offsets)
        likelihood = distances.mul_(found.precision.mul(-0.5).view(-1, 1, 1))
        logits = scaled(logits, likelihood, known.support_labels, left_out.usable)
    means = coordinates.middle + prototypes.offsets
    return means.expand(tasks.n_tasks, -1, -1), logits


def class_proportions(
    posteriors: Tensor, max_iter: int, tol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """EM for the proportions.

    Returns these [t, k], the number of iterations [t] and whether the tolerance was met [t].

    ``posteriors`` [t, q, k] of equally frequent classes need not be normalised.
    """
    n_tasks, n_query, n_classes = posteriors.shape
    answer = posteriors.new_full((n_tasks, n_classes), 1 / n_classes)
    n_iter = torch.zeros(n_tasks, dtype=torch.int64, device=answer.device)
    converged = torch.zeros(n_tasks, dtype=torch.bool, device=answer.device)
    # of the tasks that have not converged
    pi = answer
    left = torch.arange(n_tasks, device=answer.device)
    for first in range(0, max_iter, _ITERATIONS_BETWEEN_CHECKS):
        path = [pi]
        for _ in range(min(_ITERATIONS_BETWEEN_CHECKS, max_iter - first)):
            mixture = posteriors @ pi.unsqueeze(-1)  # [t, q, 1]
            pi = pi * (mixture.reciprocal_().mT @ posteriors).squeeze(1) / n_query
            path.append(pi)
        steps = torch.stack(path)  # [i, t, k]
        small = steps.diff(dim=0).abs_().amax(-1) <= tol
        done = small.any(0)
        # A task stops at its first small change, wherever that was since the last check.
        last = torch.where(done, small.int().argmax(0), len(small) - 1)
        answer[left] = steps[last + 1, torch.arange(len(left), device=answer.device)]
        n_iter[left] += last + 1
        converged[left] = done
        if bool(done.any()):
            left = left[~done]
            pi = pi[~done]
            posteriors = posteriors[~done]
        if len(left) == 0:
            break
    return answer, n_iter, converged
