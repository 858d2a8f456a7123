"""EM-Dirichlet and its hard version (Martin et al., CVPR 2024).

They fit mixtures of Dirichlet distributions on the simplex.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyway.core import (
    Recorder,
    Solution,
    Tasks,
    class_directions,
    column_sums,
    cross_products,
    one_hot,
    unit,
)
from manyway.errors import InputError
from manyway.methods._table.parameters import described_as
from manyway.methods.calibration.transforms import transform
from manyway.methods.dirichlet.m_step import authors_steps, maximise

_EPS = 1e-15  # the authors'; it keeps logarithms finite
_ROW_SUMS = 1e-3  # how far the sum of a given point of the simplex may be from 1
# Tasks are solved in blocks of about so many numbers. On a CPU they stay in the cache; on a GPU there is memory for a
# dozen arrays of that size. The authors' steps are short, so that calls cost more than the cache saves.
_BLOCK_NUMBERS = {"cpu": 1 << 16, "cuda": 1 << 26}
_AUTHORS_BLOCK_NUMBERS = {"cpu": 1 << 21}


class _Parameters(NamedTuple):
    """The parameters of ``em_dirichlet``, and whether each query is in one class."""

    lam: float | None
    k_eff: int | None
    m_step: Literal["exact", "authors"]
    prior_weight: float
    logit_scale: float
    max_iter: int
    simplex: Literal["cosine", "given"]
    scale: str | None
    with_objective: bool
    hard: bool

    def weight(self, tasks: Tasks) -> float:
        """λ/|Q|."""
        if self.k_eff is None:
            return 1.0 if self.lam is None else self.lam / tasks.n_query
        if self.lam is not None or not 1 <= self.k_eff <= tasks.n_classes:
            most = tasks.n_classes
            raise InputError(
                f"k_eff is {self.k_eff}; it must be from 1 to K = {most}, "
                "and lam must then be None."
            )
        return float(tasks.n_classes // self.k_eff)


def em_dirichlet(
    tasks: Tasks,
    *,
    lam: float | None = None,
    k_eff: int | None = None,
    m_step: Literal["exact", "authors"] = "exact",
    prior_weight: float = 1.0,
    logit_scale: float = 30.0,
    max_iter: int = 20,
    simplex: Literal["cosine", "given"] = "cosine",
    scale: str | None = "cl2",
    with_objective: bool = False,
) -> Solution:
    """Fit Dirichlet distributions to points of the simplex, with as few classes as needed (EM-Dirichlet).

    Each sample is a point of the K-simplex: z = softmax_k(τ cos(x, w_k)), with w_k the class's
    feature or the normalised mean of its support. Class k is a Dirichlet distribution with
    parameters α_k. Minimises over α and the assignments u of the queries, with π_k = mean_q u_qk,

        −Σ_s ln p(z_s | α_{y_s}) − Σ_qk u_qk ln p(z_q | α_k) − n₀ Σ_k (y₀·Σ_j α_kj − ln B(α_k))
        − λ Σ_k π_k ln π_k  +  Σ_qk u_qk ln u_qk,

    where ln p(z | α) = Σ_j (α_j − 1) ln z_j − ln B(α) and ln B(α) = Σ_j ln Γ(α_j) − ln Γ(Σ_j α_j).
    From u = z, repeat

        α_k = argmax Σ_j α_kj ȳ_kj − ln B(α_k),    ȳ_k = mean of ln z over class k, with weights y, u and n₀
        u_qk = softmax_k(ln p(z_q | α_k) + (λ/|Q|) ln π_k),    with π of the previous u.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    lam : float or None, default=None
        λ, the weight of the partition complexity.
        None is λ = |Q|, with which this is EM for a mixture with learned proportions.
    k_eff : int or None, default=None
        The number of classes among the queries, if it is known: then λ = ⌊K / k_eff⌋·|Q|. The
        authors' code reads it from the true labels.
    m_step : {"exact", "authors"}, default="exact"
        How α is updated: by Newton steps to the maximum, or by at most 1,000 of the authors' steps
        from the previous α, without prior.
    prior_weight : float, default=1.0
        n₀, the number of samples that the prior counts for. Only the exact update has a prior.
    logit_scale : float, default=30.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    max_iter : int, default=20
        The largest number of iterations. All are done: there is no stopping rule.
    simplex : {"cosine", "given"}, default="cosine"
        Whether to make the points of the simplex from features, or to use the features as they are:
        K probabilities per sample, in the order of the classes.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. It is not used for given points.
    with_objective : bool, default=False
        Whether to record the objective after each iteration.
        Its terms are ``fit``, ``complexity`` and ``barrier``.

    Returns
    -------
    Solution
        ``converged`` is False, as nothing is checked.
        ``prototypes`` [t, k, k] are the means of the distributions.

    Notes
    -----
    Support samples lie almost in a corner of the simplex where the prototypes were made from them.
    The likelihood of some classes then has its maximum at infinity or at parameters of many
    thousands, which no query fits. The authors' 1,000 steps do not reach it: their parameters grow
    until the last iteration, and their answers depend on the number of steps. The exact update has
    a conjugate prior instead: one more sample per class with the mean logarithms of the uniform
    distribution on the simplex. The maximum is then finite and unique. Accuracy in % on the 1 to 5
    recorded tasks, in the order 5 shots with K_eff = 5, 5 shots with 30, 20 shots with 5:

    ====================  ==================  ==================
    update of α           CLINC150            CUB-200
    ====================  ==================  ==================
    authors'              70.4, 73.1, 87.3    36.0, 28.0, 56.0
    exact, n₀ = 0.01      75.2, 79.5, 88.7    36.0, 31.3, 56.0
    exact, n₀ = 0.1       81.9, 87.5, 91.3    38.7, 42.0, 57.3
    exact, n₀ = 1         84.0, 88.8, 93.3    42.7, 44.7, 58.7
    ====================  ==================  ==================

    Differs from the authors' code: λ does not depend on the true number of classes unless ``k_eff``
    is given; with ``m_step="authors"`` their stopping rule is applied per task, so that answers do
    not depend on the batch.

    Reference: Martin, Huang, Shakeri, Pesquet, Ben Ayed, "Transductive zero-shot and few-shot
    CLIP", CVPR 2024. Minka, "Estimating a Dirichlet distribution", 2000.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> em_dirichlet(tasks).labels.tolist()
    [[0, 1]]
    """
    given = lam, k_eff, m_step, prior_weight, logit_scale, max_iter, simplex, scale, with_objective
    return _solve(tasks, _Parameters(*given, hard=False))


@described_as(em_dirichlet)
def hard_em_dirichlet(
    tasks: Tasks,
    *,
    lam: float | None = None,
    k_eff: int | None = None,
    m_step: Literal["exact", "authors"] = "exact",
    prior_weight: float = 1.0,
    logit_scale: float = 30.0,
    max_iter: int = 10,
    simplex: Literal["cosine", "given"] = "cosine",
    scale: str | None = "cl2",
    with_objective: bool = False,
) -> Solution:
    """Fit Dirichlet distributions to points of the simplex, each query in one class (Hard EM-Dirichlet).

    As ``em_dirichlet``, without the term Σ u ln u (its ``barrier`` is 0): each u_q is one for the
    class of the largest logit and zero for the others.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.

    Returns
    -------
    Solution
        Probabilities are those of the last softmax, before they are replaced by zeros and
        ones. ``converged`` is False, as nothing is checked. ``prototypes`` [t, k, k] are
        the means of the distributions.

    Notes
    -----
    ``em_dirichlet`` says what the two updates of α are. Accuracy in % on the 1 to 3 recorded tasks,
    in the order 5 shots with K_eff = 5, 5 shots with 30, 20 shots with 5:

    ====================  ==================  ==================
    update of α           CLINC150            CUB-200
    ====================  ==================  ==================
    authors'              66.7, 78.0, 87.3    35.3, 28.0, 57.3
    exact, n₀ = 1         84.9, 88.0, 93.3    43.3, 40.0, 58.7
    ====================  ==================  ==================

    Differs from the authors' code: as ``em_dirichlet``;
    and probabilities are returned, not zeros and ones.

    Reference: Martin, Huang, Shakeri, Pesquet, Ben Ayed,
    "Transductive zero-shot and few-shot CLIP", CVPR 2024.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> hard_em_dirichlet(tasks).labels.tolist()
    [[0, 1]]
    """
    given = lam, k_eff, m_step, prior_weight, logit_scale, max_iter, simplex, scale, with_objective
    return _solve(tasks, _Parameters(*given, hard=True))


def _solve(tasks: Tasks, parameters: _Parameters) -> Solution:
    """Solve in blocks of tasks, which do not depend on each other."""
    weight = parameters.weight(tasks)
    if parameters.simplex == "given":
        _check_points(tasks)
    else:
        tasks = transform(tasks, parameters.scale)
    per_task = tasks.n_classes * (tasks.n_classes + tasks.n_support + tasks.n_query)
    numbers = _BLOCK_NUMBERS | (_AUTHORS_BLOCK_NUMBERS if parameters.m_step == "authors" else {})
    size = max(1, numbers.get(tasks.device.type, 1 << 16) // per_task)
    parts = [
        _solve_block(tasks[first : first + size], parameters, weight)
        for first in range(0, tasks.n_tasks, size)
    ]
    answers, alphas, terms = zip(*parts, strict=True)
    alpha = torch.cat(alphas)
    objective = {name: torch.cat([part[name] for part in terms]) for name in terms[0]}
    answer = torch.cat(answers).to(tasks.dtype)

    def means() -> Tensor:
        return (alpha / alpha.sum(-1, keepdim=True)).to(tasks.dtype)

    return Solution(answer, parameters.max_iter, False, means, objective_parts=objective)


def _solve_block(
    tasks: Tasks, parameters: _Parameters, weight: float
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Probabilities [t, q, k], α [t, k, k] and the terms of the objective."""
    support, query = _points(tasks, parameters)
    exact = parameters.m_step == "exact"
    prior = parameters.prior_weight if exact else 0.0
    n_classes = tasks.n_classes
    labels = one_hot(tasks.support_labels, tasks.n_classes, support.dtype)
    # Log-likelihoods are small differences of sums of up to 1e6, so that they are computed in float64.
    logs = (query + _EPS).log_().double()  # [t, q, j]
    uniform = float(
        torch.digamma(torch.tensor(1.0)) - torch.digamma(torch.tensor(float(n_classes)))
    )
    # [t, k, j] of the support and the prior
    sums = (labels.mT @ (support + _EPS).log_()).double() + prior * uniform
    counts = column_sums(labels).double() + prior  # [t, k]
    u = query.double()
    alpha = None if exact else torch.ones_like(sums)
    recorder = Recorder(("fit", "complexity", "barrier"))
    for _ in range(parameters.max_iter):
        masses = (counts + column_sums(u)).unsqueeze(-1)
        target = torch.baddbmm(sums, u.mT, logs) / masses
        if exact or alpha is None:
            alpha = maximise(alpha, target)
        else:  # a class that has neither support nor queries keeps its parameters
            alpha = torch.where(
                masses > 0, authors_steps(alpha, target.where(masses > 0, 0), tasks.dtype), alpha
            )
        bias = (u.mean(1, keepdim=True) + _EPS).log_().mul_(weight)
        normaliser = torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1)  # −ln B [t, k]
        # Σ_j −ln z_qj is the same for all classes.
        fit = cross_products(logs, alpha) + normaliser.unsqueeze(1)
        probabilities = (fit + bias).softmax(-1)
        if parameters.hard:
            u = one_hot(probabilities.argmax(-1), n_classes, fit.dtype)
        else:
            u = probabilities
        if parameters.with_objective:
            of_support = (counts * normaliser).sum(-1) + (sums * alpha).sum((1, 2))
            recorder.add(_terms(u, fit, of_support, weight * tasks.n_query))
    assert alpha is not None  # as max_iter is positive
    return probabilities, alpha, recorder.parts


def _points(tasks: Tasks, parameters: _Parameters) -> tuple[Tensor, Tensor]:
    """The points of the simplex of the support [t, s, k] and of the queries [t, q, k]."""
    if parameters.simplex == "given":
        return tasks.support, tasks.query
    directions = class_directions(tasks).mul_(parameters.logit_scale)
    support, query = (
        cross_products(unit(rows), directions).softmax(-1) for rows in (tasks.support, tasks.query)
    )
    return support, query


def _check_points(tasks: Tasks) -> None:
    """Refuse features that are not points of the K-simplex."""
    if tasks.n_features != tasks.n_classes:
        sizes = f"{tasks.n_classes}; the features have {tasks.n_features}"
        raise InputError(f"simplex='given' needs one probability per class, {sizes}.")
    for name, points in (("support", tasks.support), ("query", tasks.query)):
        bad = ((points.sum(-1) - 1).abs() > _ROW_SUMS) | (points < 0).any(-1)
        if bool(bad.any()):
            task, row = bad.nonzero()[0].tolist()
            total = float(points[task, row].sum())
            least = float(points[task, row].min())
            found = (
                f"row {row} of the {name} of task {task} has a sum of {total:.4g} and a value of "
                f"{least:.4g}"
            )
            raise InputError(f"simplex='given' needs probabilities that sum to one; {found}.")


def _terms(u: Tensor, fit: Tensor, of_support: Tensor, lam: float) -> Tensor:
    """[3, t] the terms of the objective, up to Σ ln z, which is constant."""
    proportions = u.mean(1)
    complexity = -lam * torch.xlogy(proportions, proportions).sum(-1)
    return torch.stack(
        [-(u * fit).sum((1, 2)) - of_support, complexity, torch.xlogy(u, u).sum((1, 2))]
    )
