"""``EvidenceFromScores``: a scikit-learn class for the scores of a classifier that somebody else has trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyway.core import Solution, Tasks, as_features, shaped
from manyway.core.arguments import fits, shown
from manyway.errors import InputError
from manyway.estimators import Inference
from manyway.estimators.values import in_one_sentence, is_given, known_places, like, named, to_numpy
from manyway.methods import METHODS
from manyway.methods.evidence.from_scores import KINDS, SEVERAL, log_odds, log_posteriors, without_prior


@dataclass(kw_only=True, eq=False, repr=False)
class EvidenceFromScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label a batch jointly from the scores of any classifier: which of its classes occur, and the label of each item.

    Parameters
    ----------
    classes : sequence, optional
        The classes, in the order of the columns of the scores. By default they are numbered.
    kind : {"auto", "probability", "log-probability", "logit", "sigmoid", "independent"}, default="auto"
        What the scores are. "sigmoid": each class has a yes-or-no probability of its own, and one class is right.
        "independent": the same, and several classes may be right; a row of probabilities then need not sum to 1, and
        ``predict`` returns an indicator [q, k] of the classes with a probability above one half.
    class_prior : sequence of float, optional
        How frequent each class was among the classifier's training data. By default all are equally frequent.
    expect : sequence of float, optional
        How likely each class is to occur, in any unit; 0: it is not on a list of expected classes. Other classes remain
        possible: see `manyway.methods.evidence.from_scores.expectation`. By default all are equally likely.
    temperature : float, optional
        The temperature by which log-probabilities are divided. By default labelled items or the batch itself say it.
    concentration : float, optional
        α of the Dirichlet prior of the class proportions, as in ``Evidence``.
    max_iter : int, default=50
        Maximum number of iterations after annealing.
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
    `manyway.methods.evidence.from_scores` has the method. NaN stands for a class that an item does not list.

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
    temperature: float | None = None
    concentration: float | None = None
    max_iter: int = 50
    tol: float = 1e-2

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
        values, classes = None if X is None else _tensor(X), self.classes
        if classes is None and values is None:
            raise InputError("Without labelled items the classes must be given: EvidenceFromScores(classes=…).fit().")
        self.classes_ = np.asarray(range(values.shape[1]) if values is not None and classes is None else classes)
        if self.classes_.ndim != 1 or len(set(self.classes_.tolist())) < max(2, len(self.classes_)):
            raise InputError("The classes must be at least two, and all different.")
        self.labelled_ = None
        if values is not None:
            labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
            if labels.shape != (len(values),):
                raise InputError(f"There are {len(values)} rows of scores and labels of shape {labels.shape}.")
            known = known_places(dict(enumerate(labels)), self.classes_, len(labels))
            posteriors = self._posteriors(values)
            self.labelled_ = posteriors, known.to(posteriors.device)
        return self

    def infer(self, X: Any, *, known: Mapping[int, Any] | None = None) -> Inference:
        """Label all rows of X jointly and return all results.

        Parameters
        ----------
        X : array of shape [q, k]
            The scores of the items; NaN where an item does not list a class.
        known : mapping of int to label, optional
            Labels that are known for some rows of X. They are kept, and the other rows take them into account.

        Returns
        -------
        Inference
        """
        solution = self._solve(X, known)
        return Inference.of(solution, named(solution, self.classes_, X), self.classes_, X, with_objective=False)

    def predict(self, X: Any) -> Any:
        """The label of each row of X, all rows taken together.

        Parameters
        ----------
        X : array of shape [q, k]
            The scores of the items.

        Returns
        -------
        array of shape [q]
        """
        found = self._solve(X)
        return like(found.probabilities[0] > 0.5, X) if self.kind == SEVERAL else named(found, self.classes_, X)

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, all rows of X taken together.

        Parameters
        ----------
        X : array of shape [q, k]
            The scores of the items.

        Returns
        -------
        array of shape [q, k]
        """
        return like(self._solve(X).probabilities[0], X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the rows of X that get the right label, all rows taken together.

        Parameters
        ----------
        X : array of shape [q, k]
            The scores of the items.
        y : array of shape [q]
            Their true labels.
        sample_weight : array of shape [q], optional
            How much each row counts.

        Returns
        -------
        float
        """
        predicted = to_numpy(self.predict(X))
        with in_one_sentence():
            return float(accuracy_score(to_numpy(y), predicted, sample_weight=to_numpy(sample_weight)))

    def _per_class(self, values: Any, name: str) -> Tensor:
        """One number per class."""
        return shaped(as_features(values, name), (len(self.classes_),), name, "give one number per class")

    def _posteriors(self, values: Tensor) -> Tensor:
        if not fits(self.kind, str) or self.kind not in (*KINDS, SEVERAL):
            raise InputError(f"kind is {shown(self.kind)}; choose one of {', '.join((*KINDS, SEVERAL))}.")
        if values.shape[1] != len(self.classes_):
            raise InputError(f"The scores have {values.shape[1]} columns for {len(self.classes_)} classes.")
        if self.kind == SEVERAL:
            return log_odds(values)
        prior = torch.ones(len(self.classes_))
        if self.class_prior is not None:
            prior = self._per_class(self.class_prior, "class_prior")
            if not bool((prior > 0).all()):
                raise InputError(
                    "class_prior has a number that is not positive; a classifier never answers such a class."
                )
        return without_prior(log_posteriors(values, self.kind), prior)

    def _solve(self, X: Any, known: Mapping[int, Any] | None = None) -> Solution:
        check_is_fitted(self, "classes_")
        values = self._posteriors(_tensor(X))
        given = known_places(known, self.classes_, len(values))[None] if is_given(known) else None
        support, labels = (values[:0], None) if self.labelled_ is None else self.labelled_
        rows, labels = support[None].to(values), None if labels is None else labels[None].to(values.device)
        expected = None if self.expect is None else self._per_class(self.expect, "expect").to(values)
        scores, several = values[None], self.kind == SEVERAL
        tasks = Tasks.from_scores(scores, support=rows, support_labels=labels, expectation=expected, several=several)
        limits = {"concentration": self.concentration, "max_iter": self.max_iter, "tol": self.tol}
        return METHODS["evidence"](tasks.with_known(given), temperature=self.temperature, **limits)


def _tensor(values: Any) -> Tensor:
    """Scores as a matrix of float32 or float64; a copy, so that the caller's array is not kept."""
    try:
        found = values.detach().clone() if isinstance(values, Tensor) else torch.tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise InputError("The scores must be an array of numbers, a row per item and a column per class.") from error
    if found.ndim != 2 or found.is_complex() or found.dtype == torch.bool:
        raise InputError(f"The scores have shape {tuple(found.shape)}; give one row per item and one column per class.")
    return found if found.dtype in (torch.float32, torch.float64) else found.float()
