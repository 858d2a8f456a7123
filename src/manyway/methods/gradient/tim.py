"""TIM, TIM-ADM and α-TIM: transductive information maximisation.

They are of Boudiaf et al., 2020, and Veilleux et al., 2021.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from manyway.core import Recorder, Solution, Tasks, column_sums, one_hot, prototypes
from manyway.methods._table.parameters import described_as
from manyway.methods.calibration.transforms import transform
from manyway.methods.gradient.information import TERMS, Euclidean, Information, descend


def tim(
    tasks: Tasks,
    *,
    weights: Sequence[float] = (1.0, 0.3, 1.0),
    logit_scale: float = 15.0,
    lr: float = 1e-4,
    max_iter: int = 2000,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Solution:
    """Maximise the mutual information between queries and classes by gradient steps.

    With P_n = softmax_k(−½ τ ‖w_k − z_n‖²) and π = mean_q P_q, minimises over the prototypes w

        λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H(π)  +  λ₃ · mean_q H(P_q)

    by Adam, starting from the support's class means. H is Shannon's entropy.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    weights : sequence of three floats, default=(1.0, 0.3, 1.0)
        λ₁, λ₂, λ₃: the weights of the support's cross-entropy,
        the marginal and the conditional entropy.
    logit_scale : float, default=15.0
        τ, which multiplies the logits before a softmax. The logits are −½ squared distances.
    lr : float, default=1e-4
        Learning rate of Adam.
    max_iter : int, default=2000
        The largest number of iterations. All are done: there is no stopping rule.
    scale : str or None, default="l2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the loss, with the terms
        ``cross_entropy``, ``marginal`` and ``conditional``, weighted and signed.

    Returns
    -------
    Solution
        ``converged`` is False, as nothing is checked.

    Notes
    -----
    The marginal term favours equal proportions of all K classes. This is right when all classes
    occur, and harmful when few of them occur.

    The defaults are those of the PADDLE paper's experiments; the authors of TIM use weights (0.1,
    1, 0.1) and 1000 steps. Differs from the authors' code: the gradient is written out (and tested
    against autograd) and takes support and queries in one product; logarithms are exact
    log-softmaxes, without 1e-12 inside.

    Reference: Boudiaf, Masud, Rony, Dolz, Piantanida, Ben Ayed, "Transductive information
    maximization for few-shot learning", NeurIPS 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> tim(tasks, max_iter=100).labels.tolist()
    [[0, 1]]
    """
    return maximise_information(
        tasks,
        Information(weights),
        logit_scale=logit_scale,
        lr=lr,
        max_iter=max_iter,
        scale=scale,
        with_objective=with_objective,
    )


def maximise_information(
    tasks: Tasks,
    loss: Information,
    *,
    logit_scale: float,
    lr: float,
    max_iter: int,
    scale: str | None,
    with_objective: bool,
) -> Solution:
    """Run TIM with the entropies of ``loss``; the parameters are those of ``tim``."""
    tasks = transform(tasks, scale)
    head = Euclidean(logit_scale)
    samples = torch.cat([tasks.support, tasks.query], dim=1)
    w, terms = descend(
        samples,
        tasks.support_labels,
        prototypes(tasks),
        head,
        loss,
        lr=lr,
        max_iter=max_iter,
        trace=with_objective,
    )
    probabilities = head.logits(samples[:, tasks.n_support :], w).softmax(-1)
    return Solution(probabilities, max_iter, False, lambda: w, objective_parts=terms.parts)


@described_as(tim)
def alpha_tim(
    tasks: Tasks,
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0),
    alphas: Sequence[float] = (7.0, 5.0),
    logit_scale: float = 15.0,
    lr: float = 1e-4,
    max_iter: int = 1000,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Solution:
    """TIM with α-entropies, which tolerate unequal class proportions.

    With P_n = softmax_k(−½ τ ‖w_k − z_n‖²), π = mean_q P_q and H_α(p) = (1 − Σ p^α)/(α − 1),
    minimises over the prototypes w

        λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H_a(π)  +  λ₃ · mean_q H_b(P_q)

    by Adam, starting from the support's class means.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    alphas : sequence of two floats, default=(7.0, 5.0)
        a and b, the orders of the marginal and of the conditional entropy; 1 is Shannon's entropy.

    Returns
    -------
    Solution
        ``converged`` is False, as nothing is checked.

    Notes
    -----
    The slope of H_a vanishes at a proportion of 0 (as π^(a−1)), where that of Shannon's entropy is
    infinite: an absent class need not receive queries. With ``alphas=(1, 1)`` this is TIM.

    The defaults are those of the PADDLE paper's experiments; the authors of α-TIM use alphas (2, 2)
    with 1 shot and (7, 7) above. The support's term is Shannon's cross-entropy in both. Differs
    from the authors' code: the gradient is written out (and tested against autograd) and takes
    support and queries in one product; logarithms are exact log-softmaxes, without 1e-12 inside;
    the α-cross-entropy, which no reported experiment uses, is left out.

    Reference: Veilleux, Boudiaf, Piantanida, Ben Ayed,
    "Realistic evaluation of transductive few-shot learning", NeurIPS 2021.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [0.2, 1.0]]])
    >>> alpha_tim(tasks, max_iter=100).labels.tolist()
    [[0, 0]]
    """
    return maximise_information(
        tasks,
        Information(weights, alphas),
        logit_scale=logit_scale,
        lr=lr,
        max_iter=max_iter,
        scale=scale,
        with_objective=with_objective,
    )


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
    Neither update is an exact minimiser, so the loss need not decrease. When few of many classes
    occur, the iteration can be unstable: on 20-way tasks with 5 present classes, answers after 60
    iterations depend on rounding. The PADDLE paper does not report TIM-ADM; the defaults are its
    authors'. They favour equal proportions of all K classes more strongly than those of ``tim``.

    Differs from the authors' code: v is computed from logarithms;
    support and queries are multiplied in one product.

    Reference: Boudiaf, Masud, Rony, Dolz, Piantanida, Ben Ayed, "Transductive information
    maximization for few-shot learning", NeurIPS 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> tim_adm(tasks).labels.tolist()
    [[0, 1]]
    """
    loss = Information(weights)
    head = Euclidean(logit_scale)
    tasks = transform(tasks, scale)
    n_support = tasks.n_support
    n_query = tasks.n_query
    labels = tasks.support_labels
    samples = torch.cat([tasks.support, tasks.query], dim=1)
    w = prototypes(tasks)
    targets = samples.new_empty(*samples.shape[:2], tasks.n_classes)  # a [t, n, k]
    targets[:, :n_support] = one_hot(labels, tasks.n_classes, tasks.dtype)
    coefficients = samples.new_empty(1, samples.shape[1], 1)  # c
    coefficients[:, :n_support] = weights[0] / n_support
    coefficients[:, n_support:] = (1 + weights[2]) / n_query
    recorder = Recorder(TERMS)
    logits = head.logits(samples, w)
    for _ in range(max_iter):
        targets[:, n_support:] = _auxiliary(logits[:, n_support:], weights[1], weights[2])
        # The update minus w is Σ c (a − P)(z − w) / Σ c a.
        pulls = (targets - logits.softmax(-1)).mul_(coefficients)
        masses, excess = (
            column_sums(values).unsqueeze(-1) for values in (coefficients * targets, pulls)
        )
        w = w.addcdiv(torch.baddbmm(w * excess, pulls.mT, samples, beta=-1), masses, value=step)
        logits = head.logits(samples, w)
        if with_objective:
            recorder.add(loss.terms(logits, labels))
    probabilities = logits[:, n_support:].softmax(-1)
    return Solution(probabilities, max_iter, False, lambda: w, objective_parts=recorder.parts)


def _auxiliary(logits: Tensor, marginal: float, conditional: float) -> Tensor:
    """[t, q, k] the assignments v for the queries' logits."""
    powers = (1 + conditional) * logits.log_softmax(-1)
    return (powers - marginal / (1 + marginal) * powers.logsumexp(1, keepdim=True)).softmax(-1)
