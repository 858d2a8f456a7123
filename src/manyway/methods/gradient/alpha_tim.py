"""α-TIM: TIM with α-entropies, which tolerate unequal class proportions (Veilleux et al., NeurIPS 2021)."""

from collections.abc import Sequence

from manyway.core import Solution, Tasks
from manyway.methods._table.parameters import described_as
from manyway.methods.gradient.information import Information
from manyway.methods.gradient.tim import maximise_information, tim


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

    With P_n = softmax_k(−½ τ ‖w_k − z_n‖²), π = mean_q P_q and H_α(p) = (1 − Σ p^α)/(α − 1), minimises over the
    prototypes w

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
    The slope of H_a vanishes at a proportion of 0 (as π^(a−1)), where that of Shannon's entropy is infinite: an absent
    class need not receive queries. With ``alphas=(1, 1)`` this is TIM.

    The defaults are those of the PADDLE paper's experiments; the authors of α-TIM use alphas (2, 2) with 1 shot and
    (7, 7) above. The support's term is Shannon's cross-entropy in both. Differs from the authors' code: the gradient is
    written out (and tested against autograd) and takes support and queries in one product; logarithms are exact
    log-softmaxes, without 1e-12 inside; the α-cross-entropy, which no reported experiment uses, is left out.

    Reference: Veilleux, Boudiaf, Piantanida, Ben Ayed, "Realistic evaluation of transductive few-shot learning",
    NeurIPS 2021.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [0.2, 1.0]]])
    >>> alpha_tim(tasks, max_iter=100).labels.tolist()
    [[0, 0]]
    """
    return maximise_information(tasks, Information(weights, alphas), logit_scale, lr, max_iter, scale, with_objective)
