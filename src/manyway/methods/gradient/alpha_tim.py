"""α-TIM: TIM with α-entropies, which tolerate unequal shares (Veilleux et al., NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Sequence

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.methods.gradient.information import Information
from manyway.methods.gradient.tim import maximise_information


def alpha_tim(
    tasks: Tasks,
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0),
    alphas: Sequence[float] = (7.0, 5.0),
    temperature: float = 15.0,
    lr: float = 1e-4,
    max_iter: int = 1000,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Solution:
    """TIM with α-entropies in place of Shannon's: balance is preferred less the further a class is from a large share.

    With P = softmax_k(−½ τ ‖w_k − z‖²), π = mean_q P_q and H_α(p) = (1 − Σ p^α)/(α − 1), it minimises over w

        λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H_a(π)  +  λ₃ · mean_q H_b(P_q),     (a, b) = ``alphas``,

    by Adam from the support's class means. The slope of H_a is flat near a share of 0 (π^(a−1)), where Shannon's is
    infinite: an absent class is not forced to take queries. α = 1 is Shannon's entropy, and with (1, 1) this is TIM.

    The defaults are those of the PADDLE paper's experiments; α-TIM's authors used alphas (2, 2) with 1 shot and (7, 7)
    above. The support's term is Shannon's in both. Other parameters and what is recorded: as ``tim``.

    Differs from the authors' code in: the gradient is written out (checked against autograd) and takes support and
    queries in one product; logarithms are exact log-softmaxes, without 1e-12 inside; their α-cross-entropy, which no
    reported experiment uses, is left out.

    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [0.2, 1.0]]])
    >>> alpha_tim(tasks, max_iter=100).labels.tolist()
    [[0, 0]]
    """
    return maximise_information(tasks, Information(weights, alphas), temperature, lr, max_iter, scale, with_objective)
