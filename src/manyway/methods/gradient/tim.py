"""TIM: transductive information maximisation by gradient steps (Boudiaf et al., NeurIPS 2020)."""

from collections.abc import Sequence

import torch

from manyway.core import Solution, Tasks, prototypes
from manyway.methods.calibration.scaling import transform
from manyway.methods.gradient.heads import Euclidean
from manyway.methods.gradient.information import TERMS, Information, descend


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
        λ₁, λ₂, λ₃: the weights of the support's cross-entropy, the marginal and the conditional entropy.
    logit_scale : float, default=15.0
        τ, which multiplies the logits before a softmax. The logits are −½ squared distances.
    lr : float, default=1e-4
        Learning rate of Adam.
    max_iter : int, default=2000
        The largest number of iterations. All are done: there is no stopping rule.
    scale : str or None, default="l2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the loss, with the terms ``cross_entropy``,
        ``marginal`` and ``conditional``, weighted and signed.

    Returns
    -------
    Solution
        ``converged`` is False, as nothing is checked.

    Notes
    -----
    The marginal term favours equal proportions of all K classes. This is right when all classes occur, and harmful when
    few of them occur.

    The defaults are those of the PADDLE paper's experiments; the authors of TIM use weights (0.1, 1, 0.1) and 1000
    steps. Differs from the authors' code: the gradient is written out (and tested against autograd) and takes support
    and queries in one product; logarithms are exact log-softmaxes, without 1e-12 inside.

    Reference: Boudiaf, Masud, Rony, Dolz, Piantanida, Ben Ayed, "Transductive information maximization for few-shot
    learning", NeurIPS 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> tim(tasks, max_iter=100).labels.tolist()
    [[0, 1]]
    """
    return maximise_information(tasks, Information(weights), logit_scale, lr, max_iter, scale, with_objective)


def maximise_information(
    tasks: Tasks,
    loss: Information,
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
    w, terms = descend(samples, tasks.support_labels, prototypes(tasks), head, loss, lr, max_iter, with_objective)
    return Solution(
        probabilities=head.logits(samples[:, tasks.n_support :], w).softmax(-1),
        n_iter=max_iter,
        converged=False,
        make_prototypes=lambda: w,
        objective_parts=None if terms is None else dict(zip(TERMS, terms, strict=True)),
    )
