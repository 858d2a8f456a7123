"""Evidence: calibrated likelihoods, and as few classes as the queries give evidence for. The method of this project."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.errors import InputError
from manyway.methods._calibration import Calibration, calibrate, squared_distances
from manyway.methods._groups import identities, left_out, moved, named, worth
from manyway.methods._presence import Presence, alpha_grid
from manyway.tasks import Solution, Tasks
from manyway.transforms import transform

_START_STEPS = 15


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
    tol: float = 1e-4,
    scale: str | None = "rcl2",
    with_objective: bool = False,
) -> Solution:
    """Calibrate distances on the support, then find which classes occur by the evidence of all queries together.

    With ℓ_qk = −½ t (‖z_q − w_k‖² − tr/n_k), the temperature t being calibrated by leaving support samples out in turn
    (``manyway.methods._calibration``), and class proportions from a Dirichlet(α, …, α) that is integrated out, it
    maximises over the assignments u and over α (a grid) a lower bound on ln p(queries | support):

        Σ u_qk ℓ_qk − Σ u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(m_k / (1 − p⁰_k)) + ln Γ(Kα)/Γ(|Q|+Kα),

    where m_k = Σ_q u_qk, p⁰_k = Π_q (1 − u_qk) and φ(n) = ln Γ(n+α)/Γ(α). An iteration takes the best α for the present
    u, then u_qk = softmax_k(ℓ_qk + slope of the prior's terms). Small α: few classes. Large α: all classes are taken
    for equally frequent, and labels are those of the nearest prototypes. Prototypes stay where they are meanwhile.

    The search begins with softened likelihoods, ``soften``·ℓ, which are sharpened in 15 steps: queries agree on
    classes before each decides for itself. ``soften=1`` begins at once. A task stops when no u_qk moves by ``tol``.

    Then three after-thoughts (``manyway.methods._groups``), each of which can be left out:

    * ``move``: classes of several queries take these in as further samples, each query being worth 1 − N/|Q| of one
      where N is the effective number of classes found; one more iteration with distances to these prototypes, from
      which each query itself is left out.
    * ``identity``: which class is each group of queries as a whole? They share the error of the prototypes, so m of
      them count as m / (1 + ρ(m − 1)) independent ones, ρ = 0.2 + 1/n_k. Probabilities are u·P, P_kj being the
      probability that group k is class j. It makes them honest where few classes occur, and changes few labels.
    * ``merge``: where few groups were found, some may be pieces of larger ones; part of ``identity``.

    The solution's ``presence``, ``n_classes`` and ``n_classes_sd`` say which classes occur and how many.

    ``temperature`` and ``concentration`` (α) fix what is otherwise learned. ``with_objective`` records the bound after
    each iteration, and its terms ``fit``, ``entropy`` and ``prior``; the steps of the start are not iterations.

    Reference: docs/evidence.md. Its ancestor is the correction of label shift by maximum likelihood (Saerens et al.,
    2002). The bound's updates are made for all queries at once: with α chosen by evidence it has not been seen to fall,
    with a tiny fixed α and a handful of queries it can.

    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> evidence(tasks).labels.tolist()
    [[0, 0, 0, 2]]
    """
    if max_iter < 1 or not 0 < soften <= 1:
        raise InputError(f"max_iter is {max_iter} and soften {soften}; they must be positive, and soften at most 1.")
    if concentration is not None and not concentration > 0:
        raise InputError(f"concentration is {concentration}; it must be positive, or None to choose it by evidence.")
    if temperature is not None and not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be positive, or None to calibrate it on the support.")
    tasks = transform(tasks, scale)
    calibration = calibrate(tasks, temperature)
    likelihood = calibration.log_likelihood(tasks.query)
    grid = alpha_grid(tasks.n_classes, tasks.dtype, tasks.device)
    grid = grid if concentration is None else grid.new_tensor([concentration])
    search = everything = _Search(likelihood, grid)
    u = search.start(soften)
    answer = torch.empty_like(u)
    alive = torch.arange(tasks.n_tasks, device=tasks.device)  # the tasks that still iterate
    n_iter = torch.full((tasks.n_tasks,), max_iter, device=tasks.device)
    converged = torch.zeros(tasks.n_tasks, dtype=torch.bool, device=tasks.device)
    parts = likelihood.new_zeros(3, tasks.n_tasks, max_iter) if with_objective else None
    for iteration in range(max_iter):
        before, u = u, search.step(u)
        if parts is not None:
            parts[:, alive, iteration:] = search.terms(u).unsqueeze(-1)
        done = (u - before).abs_().amax((1, 2)) < tol
        if bool(done.any()):
            answer[alive[done]], n_iter[alive[done]], converged[alive[done]] = u[done], iteration + 1, True
            alive, u, search = alive[~done], u[~done], _Search(search.likelihood[~done], grid)
            if len(alive) == 0:
                break
    answer[alive] = u
    presence = Presence.of(answer)
    alpha = everything.best(presence, tasks.n_query)
    weights = answer * worth(presence.masses, tasks.n_query).unsqueeze(1)  # [t, q, k] of the queries as samples
    settled = answer
    if move:
        likelihood = _moved_likelihood(tasks.query, likelihood, weights, calibration)
        settled = presence.add_slopes(likelihood, answer, alpha).softmax(-1)

    def groups() -> tuple[Tensor, Tensor]:  # worked out again when somebody asks for the presence: larger than u
        return everything.identity(answer, calibration.counts, alpha, merge)

    occupancy = presence.present
    if identity:
        names, piece = groups()
        settled, occupancy = settled @ names, occupancy * (1 - piece)
    return Solution(
        probabilities=settled,
        n_iter=n_iter,
        converged=converged,
        make_prototypes=lambda: _prototypes(tasks.query, weights * float(move), calibration),
        objective=None if parts is None else parts.sum(0),
        objective_parts=None if parts is None else dict(zip(("fit", "entropy", "prior"), parts, strict=True)),
        occupancy=occupancy,
        make_presence=(lambda: named(presence.present, groups()[0])) if identity else None,
    )


@dataclass(frozen=True, eq=False)
class _Search:
    likelihood: Tensor  # [t, q, k] ℓ
    alphas: Tensor  # [g]

    def start(self, share: float) -> Tensor:
        """[t, q, k] assignments under likelihoods that sharpen from share·ℓ to ℓ."""
        u = (self.likelihood * share).softmax(-1)
        for flattened in start_shares(share):
            u = self.step(u, flattened)
        return u

    def step(self, u: Tensor, share: float = 1.0) -> Tensor:
        """[t, q, k] the next assignments."""
        presence = Presence.of(u)
        alpha = self.best(presence, u.shape[1])
        scores = self.likelihood if share == 1 else self.likelihood * share
        return presence.add_slopes(scores, u, alpha).softmax(-1)

    def best(self, presence: Presence, n_query: int) -> Tensor:
        """[t] the best α of the grid."""
        return self.alphas[presence.log_prior(self.alphas, n_query).argmax(-1)]

    def terms(self, u: Tensor) -> Tensor:
        """[3, t] the terms of the bound at u and at the α that is best for it."""
        fit = (u * self.likelihood).sum((1, 2))
        prior = Presence.of(u).log_prior(self.alphas, u.shape[1]).amax(-1)
        return torch.stack([fit, -torch.xlogy(u, u).sum((1, 2)), prior])

    def identity(self, u: Tensor, counts: Tensor, alpha: Tensor, merge: bool) -> tuple[Tensor, Tensor]:
        """[t, k, j] the probability that the queries of group k, taken as one, are of class j.

        And [t, k] the probability that the group is but a piece of another.
        """
        masses, counts = u.sum(1), counts.expand(len(u), -1)
        totals = u.mT @ self.likelihood
        found = identities(totals, masses, counts, alpha, all_masses=masses, all_counts=counts, merge=merge)
        return found.chances + torch.diag_embed(found.alone), found.piece


def start_shares(share: float) -> list[float]:
    """What ℓ is multiplied by in each step of the start."""
    return [share ** (1 - step / _START_STEPS) for step in range(_START_STEPS if share < 1 else 0)]


def _moved_likelihood(query: Tensor, likelihood: Tensor, weights: Tensor, calibration: Calibration) -> Tensor:
    """[t, q, k] the log-likelihoods when each class has taken in the other queries of this weight."""
    noise, counts = calibration.noise.view(-1, 1, 1), calibration.counts
    temperature = calibration.temperature.view(-1, 1, 1)
    if query.shape[1] > 2 * query.shape[2]:  # all pairs of queries would be more work, and much more memory
        distances = squared_distances(query, _prototypes(query, weights, calibration))
    else:
        distances = likelihood * (-2 / temperature) + noise / counts.unsqueeze(1)
        distances = moved(distances, squared_distances(query, query), weights, counts)
    return left_out(distances, weights, counts, noise).mul_(-0.5 * temperature)


def _prototypes(query: Tensor, weights: Tensor, calibration: Calibration) -> Tensor:
    """[t, k, d]"""
    counts = calibration.counts.unsqueeze(-1)
    return (calibration.centres * counts + weights.mT @ query) / (counts + weights.sum(1).unsqueeze(-1))
