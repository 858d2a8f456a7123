"""SimpleShot: nearest class mean (Wang et al., 2019)."""

from manyway.core import JOINT, Solution, Tasks, dot_scores, prototypes
from manyway.methods.calibration.transforms import QUERY_DEPENDENT, Prepared, transform


def simpleshot(
    tasks: Tasks,
    *,
    scale: str | None = "cl2",
    logit_scale: float = 1.0,
    prepared: Prepared | None = None,
) -> Solution:
    """Nearest class mean, without transduction: the usual lower reference.

    With w_k the mean support feature of class k,
    the probability of class k is softmax_k(−½ τ ‖w_k − z_q‖²).

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are.
    logit_scale : float, default=1.0
        τ, which multiplies the logits before a softmax. The logits are −½ squared distances. τ
        changes how confident the probabilities are, and no label.
    prepared : Prepared or None, default=None
        What ``prepare_simpleshot`` returned for the same support and parameters; None computes it.

    Returns
    -------
    Solution
        ``n_iter`` is 1 and ``converged`` is True: there is nothing to iterate.

    Notes
    -----
    The original predicts labels only; with τ = 1 the probabilities are those of unit Gaussians
    around the class means.

    Reference: Wang, Chao, Weinberger, van der Maaten, "SimpleShot: revisiting nearest-neighbor
    classification for few-shot learning", 2019.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> simpleshot(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    if prepared is None:
        centres = prototypes(tasks)
    else:
        centres = prepared.prototypes.expand(tasks.n_tasks, -1, -1)
    probabilities = (dot_scores(tasks.query, centres) * logit_scale).softmax(-1)
    return Solution(probabilities, n_iter=1, converged=True, make_prototypes=lambda: centres)


def prepare_simpleshot(
    tasks: Tasks, *, scale: str | None = "cl2", logit_scale: float = 1.0
) -> Prepared | None:
    """Compute the class means of a support, to be used for several batches of queries.

    Parameters
    ----------
    tasks : Tasks
        Tasks with the support; their queries are not used.
    scale, logit_scale
        As in ``simpleshot``. Only the first is used here.

    Returns
    -------
    Prepared or None
        For the parameter ``prepared`` of ``simpleshot``;
        None when the feature transform depends on the queries.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> prepare_simpleshot(tasks, scale=None).prototypes.flatten().tolist()
    [0.0, 5.0]
    """
    if scale in QUERY_DEPENDENT | JOINT:
        return None
    return Prepared(prototypes(transform(tasks, scale)))
