"""Plots of single results: present classes, calibration, accuracy against K_eff.

Each function draws into the given axes, or into new ones, and returns them. They need matplotlib.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.calibration import calibration_curve

from manyway.core import as_array
from manyway.core.arguments import checks_arguments, shown
from manyway.errors import InputError, optional
from manyway.plots.style import styles_of

_MOST_BINS = 10_000


@checks_arguments
def plot_presence(
    result: Any,
    class_names: Sequence[Any] | None = None,
    top: int = 20,
    ax: Any = None,
    *,
    error_rate: float = 0.05,
    truth: Collection[Any] = (),
) -> Any:
    """Bars of the probability that each class occurs in the batch, the most probable first; listed classes are dark.

    The title is the interval of the number of classes that occur,
    as in the summary of ``manyway label``.

    Parameters
    ----------
    result : Inference, or Solution of one task
        What ``infer`` or ``solve`` returned.
    class_names : sequence, optional
        The names of the classes. None: the labels that were given to ``fit``, or numbers.
    top : int, default=20
        How many classes to show.
    ax : matplotlib Axes, optional
        Where to draw.
    error_rate : float, default=0.05
        That of the list, see ``present``.
    truth : collection, optional
        The names of the classes that do occur, where they are known; they are marked.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from manyway import SimpleShot, plot_presence
    >>> clf = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"])
    >>> ax = plot_presence(clf.infer([[0.1, 1.0], [0.0, 0.9]]))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ant', 'bee']
    """
    if not hasattr(result, "presence") or not hasattr(result, "n_present_interval"):
        raise InputError(f"The result is {shown(result)}; give what infer or solve returned.")
    presence = as_array(result.presence, "result")
    if presence.ndim == 2 and len(presence) > 1:
        raise InputError(
            f"The solution has {len(presence)} tasks; plot one of them: "
            "solve(method, tasks[i : i + 1])."
        )
    presence = presence.ravel()
    names = getattr(result, "classes", None) if class_names is None else class_names
    names = np.arange(len(presence)) if names is None else as_array(names, "class_names")
    if names.ndim != 1:
        raise InputError(f"class_names is {shown(class_names)}; give one name per class.")
    if len(names) != len(presence):
        raise InputError(
            f"class_names has {len(names)} entries for {len(presence)} classes; give one per class."
        )
    if top < 1:
        raise InputError(f"top is {top}; show at least one class.")
    order = np.argsort(-presence, kind="stable")[:top]
    ax = _axes(ax)
    places = np.arange(len(order))
    solution = getattr(result, "solution", result)
    listed = np.isin(order, as_array(solution.present(error_rate)[0], "result"))
    ax.barh(places[listed], presence[order][listed], color="C0", label="present")
    ax.barh(places[~listed], presence[order][~listed], color="C0", alpha=0.35, label="possible")
    if hasattr(truth, "shape"):
        truth = as_array(truth, "truth").tolist()
    occurs = places[[name in truth for name in names[order].tolist()]]
    if len(occurs):
        ax.plot(np.full(len(occurs), 0.01), occurs, "k>", label="occurs", clip_on=False)
        ax.legend(frameon=False, loc="lower right")
    ax.set_yticks(places, [str(name) for name in names[order]])
    ax.invert_yaxis()
    low, high = as_array(solution.n_present_interval, "result").ravel().tolist()
    title = (
        f"{low if low == high else f'{low} to {high}'} classes occur"
        + f" (truth: {len(truth)})" * (len(truth) > 0)
    )
    ax.set(xlim=(0, 1), xlabel="probability that the class is present", title=title)
    return ax


@checks_arguments
def plot_reliability(probabilities: Any, labels: Any, n_bins: int = 10, ax: Any = None) -> Any:
    """Accuracy against confidence: calibrated probabilities lie on the diagonal.

    Parameters
    ----------
    probabilities : Solution, Inference or array of shape [..., k]
        The class probabilities.
    labels : array of shape [...]
        The true classes: as they were given to ``fit`` for an Inference,
        otherwise integers from 0 to k-1.
    n_bins : int, default=10
        The number of bins of equal width.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from manyway import plot_reliability
    >>> ax = plot_reliability([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('confidence', 'accuracy')
    """
    values = as_array(getattr(probabilities, "probabilities", probabilities), "probabilities")
    truth = as_array(labels, "labels")
    if values.dtype.kind not in "fiu" or not values.ndim or not values.size:
        raise InputError(
            f"The probabilities are {shown(probabilities)}; give an array [..., class] of numbers."
        )
    if not np.isfinite(values).all():
        raise InputError("A probability is NaN or infinite; give numbers from 0 to 1.")
    if not 1 <= n_bins <= _MOST_BINS:
        raise InputError(f"n_bins is {n_bins}; it must be from 1 to {_MOST_BINS}.")
    if truth.shape != values.shape[:-1]:
        raise InputError(
            f"There are labels of shape {truth.shape} for probabilities of shape {values.shape}."
        )
    chosen = values.argmax(-1)
    classes = getattr(probabilities, "classes", None)
    right = (chosen if classes is None else np.asarray(classes)[chosen]) == truth
    confidence = values.max(-1).clip(0, 1)
    accuracy, mean_confidence = calibration_curve(
        right.ravel().astype(int), confidence.ravel(), n_bins=n_bins
    )
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], linestyle=":", color="grey", label="calibrated")
    ax.plot(mean_confidence, accuracy, marker="o", label="observed")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    ax.legend()
    return ax


@checks_arguments
def plot_k_eff(evaluations: Mapping[str, Mapping[int, Any]], ax: Any = None) -> Any:
    """Accuracy of methods against the number of classes that occur, with 95 % intervals.

    Parameters
    ----------
    evaluations : mapping of str to mapping of int to Evaluation
        For each method, what ``evaluate`` returned for each K_eff.
    ax : matplotlib Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import torch
    >>> from manyway import FeatureSet, TaskSpec, evaluate, plot_k_eff
    >>> features = FeatureSet(torch.eye(4).repeat(30, 1), torch.arange(120) % 4)
    >>> specs = {k: TaskSpec(shots=2, k_eff=k, n_query=10) for k in (1, 2, 4)}
    >>> found = {k: evaluate("simpleshot", features, spec, n_tasks=5) for k, spec in specs.items()}
    >>> plot_k_eff({"simpleshot": found}).get_xlabel()
    'number of classes that occur (K_eff)'
    """
    for method, found in evaluations.items():
        if not isinstance(method, str) or not all(
            hasattr(one, "accuracy") for one in found.values()
        ):
            raise InputError(
                f"evaluations has {shown(found)} for {shown(method)}; give what evaluate returned."
            )
    ax = _axes(ax)
    styles = styles_of({method: method for method in evaluations})
    for method, found in evaluations.items():
        k_eff = sorted(found)
        accuracy = [100 * found[k].accuracy for k in k_eff]
        interval = [np.nan_to_num(100 * found[k].ci95) for k in k_eff]
        ax.errorbar(k_eff, accuracy, yerr=interval, capsize=2, label=method, **styles[method].look)
    ax.set(xlabel="number of classes that occur (K_eff)", ylabel="accuracy (%)")
    if evaluations:
        ax.legend()
    return ax


def _axes(ax: Any) -> Any:
    """The given axes, or new ones."""
    if ax is None:
        return optional("matplotlib.pyplot", "plot", "Plotting").subplots()[1]
    if not hasattr(ax, "barh"):
        raise InputError(f"ax is {shown(ax)}; give axes of matplotlib, or none.")
    return ax
