"""TIM-ADM: TIM by alternating closed-form updates (Boudiaf et al., NeurIPS 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, column_sums, one_hot, prototypes
from manyway.methods._table.parameters import described_as
from manyway.methods.calibration.scaling import transform
from manyway.methods.gradient.heads import Euclidean
from manyway.methods.gradient.information import TERMS, Information
from manyway.methods.gradient.tim import tim


@described_as(tim)
def tim_adm(
    tasks: Tasks,
    *,
    weights: Sequence[float] = (0.1, 1.0, 0.1),
    logit_scale: float = 15.0,
    step: float = 1.0,
    max_iter: int = 150,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Solution:
    """Minimise TIM's loss by alternating closed-form updates, without gradients.

    An auxiliary assignment v_q per query splits the loss of ``tim`` into

        λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H(mean_q v_q)  −  λ₃ · mean_q Σ_k v_qk ln P_qk  +  mean_q KL(v_q ‖ P_q).

    From w = the support's class means, repeat

        v_qk ∝ P_qk^{1+λ₃} / (Σ_q P_qk^{1+λ₃})^{λ₂/(1+λ₂)}
        w_k ← Σ_n c_n [ a_nk z_n + P_nk (w_k − z_n) ] / Σ_n c_n a_nk,

    where a is y on the support and v on the queries, and c_n is λ₁/|S| or (1+λ₃)/|Q|.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    step : float, default=1.0
        How far prototypes move towards their update.

    Returns
    -------
    Solution
        ``converged`` is False, as nothing is checked.

    Notes
    -----
    Neither update is an exact minimiser, so the loss need not decrease. When few of many classes occur, the iteration
    can be unstable: on 20-way tasks with 5 present classes, answers after 60 iterations depend on rounding. The PADDLE
    paper does not report TIM-ADM; the defaults are its authors'. They favour equal proportions of all K classes more
    strongly than those of ``tim``.

    Differs from the authors' code: v is computed from logarithms; support and queries are multiplied in one product.

    Reference: Boudiaf, Masud, Rony, Dolz, Piantanida, Ben Ayed, "Transductive information maximization for few-shot
    learning", NeurIPS 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> tim_adm(tasks).labels.tolist()
    [[0, 1]]
    """
    loss, head = Information(weights), Euclidean(logit_scale)
    tasks = transform(tasks, scale)
    n_support, n_query, labels = tasks.n_support, tasks.n_query, tasks.support_labels
    samples = torch.cat([tasks.support, tasks.query], dim=1)
    w = prototypes(tasks)
    targets = samples.new_empty(*samples.shape[:2], tasks.n_classes)  # a [t, n, k]
    targets[:, :n_support] = one_hot(labels, tasks.n_classes, tasks.dtype)
    coefficients = samples.new_empty(1, samples.shape[1], 1)  # c
    coefficients[:, :n_support], coefficients[:, n_support:] = weights[0] / n_support, (1 + weights[2]) / n_query
    terms = []
    logits = head.logits(samples, w)
    for _ in range(max_iter):
        targets[:, n_support:] = _auxiliary(logits[:, n_support:], weights[1], weights[2])
        # The update minus w is Σ c (a − P)(z − w) / Σ c a.
        pulls = (targets - logits.softmax(-1)).mul_(coefficients)
        masses, excess = (column_sums(values).unsqueeze(-1) for values in (coefficients * targets, pulls))
        w = w.addcdiv(torch.baddbmm(w * excess, pulls.mT, samples, beta=-1), masses, value=step)
        logits = head.logits(samples, w)
        if with_objective:
            terms.append(loss.terms(logits, labels))
    parts = torch.stack(terms, -1) if terms else None
    return Solution(
        probabilities=logits[:, n_support:].softmax(-1),
        n_iter=max_iter,
        converged=False,
        make_prototypes=lambda: w,
        objective_parts=None if parts is None else dict(zip(TERMS, parts, strict=True)),
    )


def _auxiliary(logits: Tensor, marginal: float, conditional: float) -> Tensor:
    """[t, q, k] the assignments v for the queries' logits."""
    powers = (1 + conditional) * logits.log_softmax(-1)
    return (powers - marginal / (1 + marginal) * powers.logsumexp(1, keepdim=True)).softmax(-1)
