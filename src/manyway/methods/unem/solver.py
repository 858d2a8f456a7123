"""UNEM: EM iterations with learned parameters (Zhou et al., CVPR 2025).

Their number is fixed, and the parameters were learned on other classes.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from manyway.core import Solution, Tasks
from manyway.methods.calibration.transforms import transform
from manyway.methods.paddle.forms import FeatureForm, GramForm, prototype_form
from manyway.methods.unem.parameters import read_parameters

_EPS = 1e-6  # added to proportions, which keeps their logarithm finite


def unem(
    tasks: Tasks,
    *,
    parameters: str | PathLike[str] | Mapping[str, Any] = "letters",
    scale: str | None = "learned",
) -> Solution:
    """Fit the queries by a few EM iterations, each with its own learned class-balance weight and temperature.

    From w = the support's class means and v = 0,
    layer l does one iteration on features z multiplied by the feature scale a,

        u_qk = softmax_k((−½ a² ‖w_k − z_q‖² + λ_l v_k) / T_l)
        v_k  = ln(mean_q u_qk + 1e-6)
        w_k  = (Σ_s y_sk z_s + Σ_q u_qk z_q) / (Σ_s y_sk + Σ_q u_qk),

    and the answer is the u of the last layer.
    PADDLE with λ = |Q| is the case of λ_l = T_l = 1 in every layer.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    parameters : str, path or mapping, default="letters"
        The learned parameters: a file that ``manyway tune`` wrote, the name of a set that comes
        with the package (``letters``, ``authors-cub-5shot``, ``authors-cub-20shot``), or a mapping
        with ``feature_scale`` (a), ``lam`` and ``temperature`` (λ_l and T_l, one value per layer; T
        divides) and, optionally, ``scale`` (``"cl2"`` if it is left out).
    scale : str or None, default="learned"
        Feature transform; None uses the features as they are.
        ``learned`` is the one that the parameters were learned with.

    Returns
    -------
    Solution
        ``n_iter`` is the number of layers; ``converged`` is False, because there is no stopping
        rule. ``prototypes`` are those of the last assignments, without the feature scale.

    Notes
    -----
    The parameters are learned on labelled tasks of other classes, for one number of shots, of
    classes, of present classes and of queries. ``solve``, ``evaluate`` and the estimator warn where
    tasks differ from these.

    ``letters`` was learned on the validation letters of the package (5 shots, 75 queries of 5 of
    100 classes). ``authors-cub-5shot`` and ``authors-cub-20shot`` are the values that the authors
    publish for CUB with a ResNet-18.

    Differs from the authors' code: λ_l, T_l and a are given as they enter the equations (theirs are
    stored before softplus, T_l as 1 + softplus). The authors use untransformed features, which ties
    the parameters to one encoder; here they belong to ``cl2`` features, whose norm is 1. The first
    v is 0 and has no added 1: constants cancel in the softmax. Training minimises the cross-entropy
    of the last layer, theirs that of a second softmax of u.

    Reference: Zhou, Shakeri, Sadraoui, Kaaniche, Pesquet, Ben Ayed, "UNEM: unrolled generalized EM
    for transductive few-shot learning", CVPR 2025.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> learned = {"feature_scale": 2.0, "lam": [1.0, 1.0], "temperature": [1.0, 1.0]}
    >>> unem(tasks, parameters=learned, scale=None).labels.tolist()
    [[0, 0, 0, 2]]
    """
    learned = read_parameters(parameters)
    tasks = transform(tasks, learned.scale if scale == "learned" else scale)
    problem = prototype_form(tasks, None)
    values = torch.tensor(
        [learned.feature_scale, *learned.lam, *learned.temperature], dtype=torch.float64
    )
    u = last_logits(problem, values.to(tasks.device)).softmax(-1)
    return Solution(
        u, n_iter=len(learned.lam), converged=False, make_prototypes=lambda: problem.prototypes(u)
    )


def last_logits(problem: FeatureForm | GramForm, values: Tensor) -> Tensor:
    """[t, q, k] the logits of the last layer.

    ``values`` [1 + 2 l] are the feature scale, then λ and T of each layer.

    Derivatives with respect to the values are those of autograd. They need the Gram form.
    """
    query = problem.query if isinstance(problem, FeatureForm) else problem.features.query
    n_layers = len(values) // 2
    square = values[0].square()
    lam = values[1 : 1 + n_layers]
    temperature = values[1 + n_layers :]
    weights = (lam / square).to(query.dtype)
    factors = (square / temperature).to(query.dtype)
    u = query.new_zeros(len(query), query.shape[1], problem.counts.shape[1])
    logits = problem.scores(u) * factors[0]
    for weight, factor in zip(weights[1:], factors[1:], strict=True):
        u = logits.softmax(-1)
        logits = problem.scores(u, (u.mean(1, keepdim=True) + _EPS).log() * weight) * factor
    return logits
