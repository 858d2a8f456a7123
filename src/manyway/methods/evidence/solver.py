"""Evidence: calibrated likelihoods, and as few classes as the queries give evidence for. The method of this project."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform
from manyway.errors import InputError
from manyway.methods.evidence.calibration import Calibration, calibrate, distances_between, squared_distances
from manyway.methods.evidence.groups import left_out, moved
from manyway.methods.evidence.search import Options, find_classes


def evidence(
    tasks: Tasks,
    *,
    temperature: float | None = None,
    concentration: float | None = None,
    soften: float = 0.35,
    move: bool = True,
    identity: bool = True,
    merge: bool = True,
    max_iter: int = 50,
    tol: float = 1e-2,
    scale: str | None = "rcl2",
    with_objective: bool = False,
) -> Solution:
    """Calibrate distances on the support, then find which classes occur by the evidence of all queries together.

    With ℓ_qk = −½ t (‖z_q − w_k‖² − tr/n_k), the temperature t being calibrated by leaving support samples out in turn
    (``manyway.methods.evidence.calibration``), and class proportions from a Dirichlet(α, …, α) that is integrated out,
    it maximises over the assignments u and over α (a grid) a lower bound on ln p(queries | support):

        Σ u_qk ℓ_qk − Σ u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(m_k / (1 − p⁰_k)) + ln Γ(Kα)/Γ(|Q|+Kα),

    where m_k = Σ_q u_qk, p⁰_k = Π_q (1 − u_qk) and φ(n) = ln Γ(n+α)/Γ(α). An iteration takes the best α for the present
    u, then u_qk = softmax_k(ℓ_qk + slope of the prior's terms). Small α: few classes. Large α: all classes are taken
    for equally frequent, and labels are those of the nearest prototypes. Prototypes stay where they are meanwhile.

    The search begins with softened likelihoods, ``soften``·ℓ, which are sharpened in 15 steps: queries agree on
    classes before each decides for itself; where they have not agreed on few, 10 steps with 2ℓ follow. Where they are
    in many classes by then (more than a third of what is possible) the iterations have 1.5ℓ in place of ℓ. ``soften=1``
    begins at once, with ℓ. A task stops when no u_qk moves by ``tol``; a last step, with ℓ, gives the probabilities.

    Then three after-thoughts (``manyway.methods.evidence.groups``), each of which can be left out:

    * ``move``: classes of several queries take these in as further samples, each query being worth 1 − N/min(|Q|, K) of
      one where N is the effective number of classes found; the last step is made with distances to these prototypes,
      from which each query itself is left out.
    * ``identity``: which class is each group of queries as a whole? They share the error of the prototypes, so m of
      them count as m / (1 + ρ(m − 1)) independent ones, ρ = 0.3 + 1/(n_k + 1). Probabilities are u·P, P_kj being the
      probability that group k is class j. It makes them honest where few classes occur, and changes few labels.
    * ``merge``: where few groups were found, some may be pieces of larger ones; part of ``identity``.

    The solution's ``presence``, ``n_classes`` and ``n_classes_sd`` say which classes occur and how many.

    ``temperature`` and ``concentration`` (α) fix what is otherwise learned. ``with_objective`` records the bound after
    each iteration (of 1.5ℓ where that is used), and its terms ``fit``, ``entropy`` and ``prior``; the steps of the
    start are not iterations.

    Reference: docs/evidence.md. Its ancestor is the correction of label shift by maximum likelihood (Saerens et al.,
    2002). The bound's updates are made for all queries at once: with α chosen by evidence it has not been seen to fall,
    with a tiny fixed α and a handful of queries it can.

    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> evidence(tasks).labels.tolist()
    [[0, 0, 0, 2]]
    """
    if temperature is not None and not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be positive, or None to calibrate it on the support.")
    options = Options(concentration, soften, identity, merge, max_iter, tol, with_objective)
    tasks = transform(tasks, scale)
    return infer(tasks.query, calibrate(tasks, temperature), options, move)


def infer(query: Tensor, calibration: Calibration, options: Options, move: bool) -> Solution:
    """What comes after calibration: the classes of queries [t, q, d]."""
    likelihood = calibration.log_likelihood(query)
    moved_by = partial(_moved_likelihood, query, likelihood, calibration) if move else None
    solution, weights = find_classes(likelihood, calibration.counts, options, moved_by)
    return replace(solution, make_prototypes=lambda: _prototypes(query, weights * float(move), calibration))


def evidence_from_likelihood(
    likelihood: Tensor,
    counts: Tensor,
    *,
    concentration: float | None = None,
    soften: float = 0.35,
    identity: bool = True,
    merge: bool = True,
    max_iter: int = 50,
    tol: float = 1e-2,
    with_objective: bool = False,
) -> Solution:
    """Evidence for a classifier of your own: log-likelihoods ln p(query | class) [t, q, k], up to a constant a query.

    A classifier's logits serve if it was trained on equally frequent classes and is calibrated on samples that it was
    not trained on. ``counts`` [t, k] are the samples that it has seen of each class. The rest is as in ``evidence``,
    but nothing moves.

    >>> import torch
    >>> logits = torch.tensor([[[3.0, 0.0, 0.0], [4.0, 0.0, 1.0], [3.0, 1.0, 0.0], [1.0, 1.1, 0.0]]])
    >>> evidence_from_likelihood(logits, torch.ones(1, 3)).labels.tolist()
    [[0, 0, 0, 0]]
    """
    options = Options(concentration, soften, identity, merge, max_iter, tol, with_objective)
    return find_classes(likelihood, counts, options)[0]


def _moved_likelihood(query: Tensor, likelihood: Tensor, calibration: Calibration, weights: Tensor) -> Tensor:
    """[t, q, k] the log-likelihoods when each class has taken in the other queries of this weight."""
    noise, counts = calibration.noise.view(-1, 1, 1), calibration.counts
    temperature = calibration.temperature.view(-1, 1, 1)
    if query.shape[1] > 2 * query.shape[2]:  # all pairs of queries would be more work, and much more memory
        distances = squared_distances(query, _prototypes(query, weights, calibration))
    else:
        distances = likelihood * (-2 / temperature) + noise / counts.unsqueeze(1)
        distances = moved(distances, distances_between(query - calibration.middle), weights, counts)
    return left_out(distances, weights, counts, noise).mul_(-0.5 * temperature)


def _prototypes(query: Tensor, weights: Tensor, calibration: Calibration) -> Tensor:
    """[t, k, d]"""
    counts = calibration.counts.unsqueeze(-1)
    return (calibration.centres * counts + weights.mT @ query) / (counts + weights.sum(1).unsqueeze(-1))
