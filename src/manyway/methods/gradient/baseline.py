"""Baseline and Baseline++: fine-tune a classifier on the support (Chen et al., ICLR 2019).

There is no transduction.
"""

from collections.abc import Callable
from functools import partial

from manyway.core import JOINT, Solution, Tasks, prototypes
from manyway.methods._table.parameters import described_as
from manyway.methods.calibration.transforms import QUERY_DEPENDENT, Prepared, transform
from manyway.methods.gradient.information import Cosine, Euclidean, Head, Information, descend


def baseline(
    tasks: Tasks,
    *,
    logit_scale: float = 15.0,
    lr: float = 1e-3,
    max_iter: int = 100,
    scale: str | None = "l2",
    with_objective: bool = False,
    prepared: Prepared | None = None,
) -> Solution:
    """Fine-tune a Euclidean classifier on the support; each query is labelled on its own.

    Minimises over the weight vectors w_k the cross-entropy of the support,

        mean_s −ln P_{s, y_s},     P_n = softmax_k(−½ τ ‖w_k − z_n‖²),

    by Adam, starting from the class means of the support.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. Tasks that share one support share the training.
    logit_scale : float, default=15.0
        τ, which multiplies the logits before a softmax. The logits are −½ squared distances.
    lr : float, default=0.001
        Learning rate of Adam.
    max_iter : int, default=100
        The largest number of iterations. All are done: there is no stopping rule.
    scale : str or None, default="l2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the training loss.
    prepared : Prepared or None, default=None
        What ``prepare_baseline`` returned for the same support and parameters;
        None trains the classifier.

    Returns
    -------
    Solution
        ``prototypes`` are the trained weight vectors.
        ``converged`` is False, as nothing is checked.

    Notes
    -----
    Chen et al. train a new linear layer with SGD. Starting at the class means and using Adam is the
    choice of the benchmarks by Veilleux et al. and of the PADDLE paper. Differs from the code of
    the latter: the gradient is written out (and tested against autograd).

    Reference: Chen, Liu, Kira, Wang, Huang, "A closer look at few-shot classification", ICLR 2019.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline(tasks).labels.tolist()
    [[0, 1]]
    """
    return _solve(
        tasks,
        Euclidean(logit_scale),
        prepared,
        lr=lr,
        max_iter=max_iter,
        scale=scale,
        with_objective=with_objective,
    )


@described_as(baseline)
def baseline_pp(
    tasks: Tasks,
    *,
    logit_scale: float = 15.0,
    lr: float = 1e-3,
    max_iter: int = 100,
    scale: str | None = "l2",
    with_objective: bool = False,
    prepared: Prepared | None = None,
) -> Solution:
    """Fine-tune a cosine classifier on the support; each query is labelled on its own.

    The same as ``baseline`` with P_n = softmax_k(τ cos(w_k, z_n)).

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. Tasks that share one support share the training.
    logit_scale : float, default=15.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    scale : str or None, default="l2"
        Feature transform; None uses the features as they are.
        They are divided by their norms afterwards.
    prepared : Prepared or None, default=None
        What ``prepare_baseline_pp`` returned for the same support and parameters;
        None trains the classifier.

    Returns
    -------
    Solution
        ``prototypes`` are the trained weight vectors.
        ``converged`` is False, as nothing is checked.

    Notes
    -----
    Differs from Chen et al. as ``baseline`` does, and in a fixed temperature where they learn one.
    Differs from the PADDLE paper's code, which trains with Euclidean logits and uses cosines for
    prediction only: here both are cosines.

    Reference: Chen, Liu, Kira, Wang, Huang, "A closer look at few-shot classification", ICLR 2019.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline_pp(tasks).labels.tolist()
    [[0, 1]]
    """
    return _solve(
        tasks,
        Cosine(logit_scale),
        prepared,
        lr=lr,
        max_iter=max_iter,
        scale=scale,
        with_objective=with_objective,
    )


def prepare_baseline(
    tasks: Tasks,
    *,
    head: Callable[[float], Head] = Euclidean,
    logit_scale: float = 15.0,
    lr: float = 1e-3,
    max_iter: int = 100,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Prepared | None:
    """Train the classifier of ``baseline`` or ``baseline_pp`` on a support, to be used for several batches of queries.

    Parameters
    ----------
    tasks : Tasks
        Tasks with the support; their queries are not used.
    head : {Euclidean, Cosine}, default=Euclidean
        The classifier: that of ``baseline`` or that of ``baseline_pp``.
    logit_scale, lr, max_iter, scale, with_objective
        As in ``baseline``.

    Returns
    -------
    Prepared or None
        For the parameter ``prepared`` of these;
        None when the feature transform depends on the queries.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline(tasks, prepared=prepare_baseline(tasks)).labels.tolist()
    [[0, 1]]
    """
    if scale in QUERY_DEPENDENT | JOINT:
        return None
    classifier = head(logit_scale)
    return _train(
        _transformed(tasks, classifier, scale),
        classifier,
        lr=lr,
        max_iter=max_iter,
        with_objective=with_objective,
    )


prepare_baseline_pp = partial(prepare_baseline, head=Cosine)


def _transformed(tasks: Tasks, head: Head, scale: str | None) -> Tasks:
    """The transformed tasks; for cosines, with features of norm 1."""
    tasks = transform(tasks, scale)
    if isinstance(head, Cosine) and scale not in ("l2", "cl2", "power"):
        return transform(tasks, "l2")
    return tasks


def _train(tasks: Tasks, head: Head, *, lr: float, max_iter: int, with_objective: bool) -> Prepared:
    """Fit the classifier to the support of transformed tasks, once when they share it."""
    trained = tasks[:1] if tasks.shared_support and tasks.factor is None else tasks
    w, terms = descend(
        trained.support,
        trained.support_labels,
        prototypes(trained),
        head,
        Information((1.0, 0.0, 0.0)),
        lr=lr,
        max_iter=max_iter,
        trace=with_objective,
    )
    return Prepared(w, terms.parts.get("cross_entropy"))


def _solve(
    tasks: Tasks,
    head: Head,
    prepared: Prepared | None,
    *,
    lr: float,
    max_iter: int,
    scale: str | None,
    with_objective: bool,
) -> Solution:
    """Label the queries by a classifier that is trained now unless it is prepared."""
    tasks = _transformed(tasks, head, scale)
    trained = prepared
    if trained is None:
        trained = _train(tasks, head, lr=lr, max_iter=max_iter, with_objective=with_objective)
    w = trained.prototypes.expand(tasks.n_tasks, -1, -1)
    objective = None if trained.objective is None else trained.objective.expand(tasks.n_tasks, -1)
    return Solution(head.logits(tasks.query, w).softmax(-1), max_iter, False, lambda: w, objective)
