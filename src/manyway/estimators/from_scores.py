"""``EvidenceFromScores``: a scikit-learn class for the scores of another classifier.

Somebody else has trained that classifier.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyway.core import Solution, Tasks, as_array, as_features, refuse_masked, shaped
from manyway.core.arguments import fits, knows_parameters, shown
from manyway.errors import InputError
from manyway.estimators import Inference
from manyway.estimators.batch import BatchClassifier, all_or_nothing
from manyway.estimators.values import (
    in_one_sentence,
    is_given,
    known_places,
    like,
    places_of,
    read_labels,
    to_numpy,
)
from manyway.methods import METHODS
from manyway.methods.scores.kinds import KINDS, SEVERAL, log_odds, log_posteriors, without_prior


@knows_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class EvidenceFromScores(BatchClassifier):
    """Label a batch jointly from the scores of any classifier: which of its classes occur, and the label of each item.

    Parameters
    ----------
    classes : sequence, optional
        The classes, in the order of the columns of the scores. By default ``fit`` learns
        them from y: the distinct labels, sorted, where there are as many as columns, and
        otherwise numbers from 0.
    kind : {"auto", "probability", "log-probability", "logit", "sigmoid", "independent"}, default="auto"
        What the scores are. "sigmoid": each class has a yes-or-no probability of its own, and one
        class is right. "independent": the same, and several classes may be right; a row of
        probabilities then need not sum to 1, and ``predict`` returns an indicator [q, k] of the
        classes with a probability above one half. Labelled items, ``class_prior``, ``open_set``,
        ``temperature`` and ``concentration`` are then refused: they are about one right class.
    class_prior : sequence of float, optional
        How frequent each class was among the classifier's training data.
        By default all are equally frequent.
    expect : sequence of float, optional
        How likely each class is to occur, in any unit; 0: it is not on a list of expected
        classes. Other classes remain possible: see `manyway.methods.scores.calibrate.listed`.
        By default all are equally likely.
    open_set : bool, default=False
        Whether items may be unknown: of none of the classes.
        ``infer`` then returns ``unknown``, the probability of that.
    unknown_label : object, optional
        What ``predict`` answers for an unknown item, with ``open_set``. By default -1 where labels
        are numbers and ``"unknown"`` where they are strings.
    temperature : float, optional
        The temperature by which log-probabilities are divided.
        By default labelled items or the batch itself say it.
    concentration : float, optional
        α of the Dirichlet prior of the class proportions, as in ``Evidence``.
    max_iter : int, default=50
        Maximum number of iterations.
    tol : float, default=0.01
        The search has converged when no assignment changes by as much in an iteration.

    Attributes
    ----------
    classes_ : ndarray of shape [k]
        The classes, in the order of the columns.
    labelled_ : tuple of Tensor or None
        The log-posteriors and classes of the labelled items.

    Notes
    -----
    docs/scores.md has the model. NaN stands for a class that an item does not list.

    Examples
    --------
    >>> clf = EvidenceFromScores(classes=["fox", "dog", "cat"]).fit()
    >>> clf.predict(30 * [[0.8, 0.1, 0.1]] + [[0.4, 0.5, 0.1]]).tolist()[-1]
    'fox'
    """

    classes: Sequence[Any] | None = None
    kind: str = "auto"
    class_prior: Sequence[float] | None = None
    expect: Sequence[float] | None = None
    open_set: bool = False
    unknown_label: Any = None
    temperature: float | None = None
    concentration: float | None = None
    max_iter: int = 50
    tol: float = 1e-2

    @all_or_nothing
    def fit(self, X: Any = None, y: Any = None) -> "EvidenceFromScores":
        """Calibrate the scores on labelled items, where there are any.

        Parameters
        ----------
        X : array of shape [n, k], optional
            Scores of labelled items that the classifier was not trained on.
        y : array of shape [n], optional
            Their labels.

        Returns
        -------
        self
        """
        if (X is None) != (y is None):
            raise InputError("fit takes scores and labels, or neither; give both X and y.")
        if isinstance(self.kind, str) and self.kind == SEVERAL:
            self._refuse_unused(X)
        self.labelled_: tuple[Tensor, Tensor] | None = None
        if X is None:
            if self.classes is None:
                raise InputError(
                    "Without labelled items the classes must be given: "
                    "EvidenceFromScores(classes=…).fit()."
                )
            self.classes_ = _distinct(self.classes)
        else:
            values = _tensor(X)
            labels = read_labels(y)
            if labels.shape != (len(values),):
                raise InputError(
                    f"X has {len(values)} rows of scores, and y has the shape {labels.shape}."
                )
            self.classes_ = self._learned_classes(labels, values.shape[1])
            self._check_columns(X)
            hint = "correct it, or name all classes with `classes`"
            places = places_of(labels.tolist(), self.classes_, range(len(labels)), "y", hint)
            posteriors = self._posteriors(values)
            self.labelled_ = posteriors, places.to(posteriors.device)
        if not fits(self.open_set, bool):
            raise InputError(f"open_set is {shown(self.open_set)}; it is True or False.")
        if self.open_set:
            _ = self._with_unknown  # refuses a class of that name now, not after the work
        return self

    def infer(self, X: Any, *, known: Mapping[int, Any] | None = None) -> Inference:
        """Label all rows of X jointly and return all results.

        Parameters
        ----------
        X : array of shape [q, k]
            The scores of the items; NaN where an item does not list a class.
        known : mapping of int to label, optional
            Labels that are known for some rows of X.
            They are kept, and the other rows take them into account.

        Returns
        -------
        Inference
        """
        solution = self._label(X, known)
        return Inference.of(
            solution, self._names(solution, X), self.classes_, X, with_objective=False
        )

    def predict(self, X: Any) -> Any:
        """The label of each row of X, all rows taken together.

        Parameters
        ----------
        X : array of shape [q, k]
            The scores of the items.

        Returns
        -------
        array of shape [q]
            An indicator [q, k] where ``kind`` is "independent".
        """
        if self.kind == SEVERAL:
            return like(self._label(X).probabilities[0] > 0.5, X)
        return super().predict(X)

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: labelled items as arrays, so that files need no trust in further types."""
        state: dict[str, Any] = super().__getstate__()
        if state.get("labelled_") is None:
            return state
        return state | {"labelled_": tuple(map(to_numpy, state["labelled_"]))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("labelled_") is not None:
            state = state | {"labelled_": tuple(map(torch.as_tensor, state["labelled_"]))}
        super().__setstate__(state)

    def _refuse_unused(self, X: Any) -> None:
        """Refuse what is about the one right class of an item, where several may be right."""
        given = {
            "labelled items": X,
            "class_prior": self.class_prior,
            "open_set": self.open_set or None,
            "temperature": self.temperature,
            "concentration": self.concentration,
        }
        unused = [name for name, value in given.items() if value is not None]
        if unused:
            raise InputError(
                f"{unused[0]} cannot be used where items may have several classes; leave it out."
            )

    def _check_columns(self, X: Any) -> None:
        """Refuse a table whose columns are named like the classes and stand in another order."""
        names = getattr(X, "column_names", getattr(X, "columns", None))  # of Arrow, and of others
        names = [] if names is None else list(names)
        if not all(isinstance(name, str) for name in names):
            return
        classes = list(map(str, self.classes_.tolist()))
        if names != classes and sorted(names) == sorted(classes):
            raise InputError(
                "The columns of X are named like the classes and stand in another order; "
                "give them in that of `classes_`."
            )

    def _learned_classes(self, labels: Any, n_columns: int) -> Any:
        """[k] the classes as they were given, or those of the labels [n]."""
        if self.classes is not None:
            return _distinct(self.classes)
        found = np.unique(labels)
        if len(found) == n_columns:
            return found
        numbered = np.arange(n_columns)
        if not np.isin(found, numbered).all():
            raise InputError(
                f"y has {len(found)} different labels and the scores have {n_columns} columns; "
                "name the class of each "
                "column with `classes`."
            )
        return numbered

    def _per_class(self, values: Any, name: str) -> Tensor:
        """One number per class."""
        return shaped(
            as_features(values, name), (len(self.classes_),), name, "give one number per class"
        )

    def _posteriors(self, values: Tensor) -> Tensor:
        if not fits(self.kind, str) or self.kind not in (*KINDS, SEVERAL):
            raise InputError(
                f"kind is {shown(self.kind)}; choose one of {', '.join((*KINDS, SEVERAL))}."
            )
        if values.shape[1] != len(self.classes_):
            raise InputError(
                f"The scores have {values.shape[1]} columns for {len(self.classes_)} classes."
            )
        if self.kind == SEVERAL:
            return log_odds(values)
        posteriors = log_posteriors(values, self.kind)
        if self.class_prior is None:
            return posteriors
        prior = self._per_class(self.class_prior, "class_prior")
        if not bool((prior > 0).all()):
            raise InputError(
                "class_prior has a number that is not positive; "
                "a classifier never answers such a class."
            )
        return without_prior(posteriors, prior)

    def _label(self, X: Any, known: Mapping[int, Any] | None = None) -> Solution:
        check_is_fitted(self, "classes_")
        self._check_columns(X)
        values = self._posteriors(_tensor(X))
        support = values[None, :0]
        labels = None
        if self.labelled_ is not None:
            support = self.labelled_[0][None].to(values)
            labels = self.labelled_[1][None].to(values.device)
        expectation = None
        if self.expect is not None:
            expectation = self._per_class(self.expect, "expect").to(values)
        tasks = Tasks.from_scores(
            values[None],
            support=support,
            support_labels=labels,
            expectation=expectation,
            several=self.kind == SEVERAL,
        )
        if is_given(known):
            tasks = tasks.with_known(known_places(known, self.classes_, len(values))[None])
        return METHODS["evidence"](
            tasks,
            temperature=self.temperature,
            concentration=self.concentration,
            open_set=self.open_set,
            max_iter=self.max_iter,
            tol=self.tol,
        )


def _distinct(classes: Any) -> Any:
    """[k] the classes, which are several and all different."""
    refuse_masked(classes, "classes")
    found = as_array(classes, "classes")
    if found.dtype.kind == "S":  # labels are decoded, too
        with in_one_sentence():
            found = np.char.decode(found, "utf-8")
    names = found.tolist() if found.ndim == 1 else []
    if not all(isinstance(name, Hashable) for name in names) or len({*names}) < max(2, len(names)):
        raise InputError("The classes must be at least two, and all different.")
    return found


def _tensor(values: Any) -> Tensor:
    """Scores as a matrix of float32 or float64; a copy, so that the caller's array is not kept."""
    refuse_masked(values, "X")
    try:
        found = (
            values.detach().clone()
            if isinstance(values, Tensor)
            else torch.tensor(_native(as_array(values, "X")))
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            "The scores must be an array of numbers, a row per item and a column per class."
        ) from error
    if found.ndim != 2 or found.is_complex() or found.dtype == torch.bool:
        raise InputError(
            f"The scores have shape {tuple(found.shape)}; "
            "give one row per item and one column per class."
        )
    if found.dtype in (torch.float32, torch.float64):
        return found
    return found.float()


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array in a layout and of a type that torch can read, such as rows that were turned round."""
    kind = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype=kind)
