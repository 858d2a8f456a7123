"""What the estimators of features and of scores share: they label all rows of a batch jointly."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score

from manyway.core import Solution, refuse_masked
from manyway.core.arguments import shown
from manyway.errors import InputError, nearest
from manyway.estimators.values import (
    in_one_sentence,
    label_names,
    like,
    read_labels,
    to_numpy,
)

Classifier = TypeVar("Classifier", bound="BatchClassifier")
Given = ParamSpec("Given")
Fit = Callable[Concatenate[Classifier, Given], Classifier]


def all_or_nothing(fit: Fit[Classifier, Given]) -> Fit[Classifier, Given]:
    """A ``fit`` that leaves the estimator as it was where it fails: an earlier one still holds."""

    @wraps(fit)
    def fit_or_restore(
        self: Classifier, /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Classifier:
        before = dict(self.__dict__)
        try:
            return fit(self, *args, **kwargs)
        except BaseException:  # an interruption also stops it halfway
            self.__dict__ = before
            raise

    return fit_or_restore


class BatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose answers for a row depend on the other rows of the batch.

    A subclass has ``classes_`` and ``unknown_label``, and says in ``_label`` how a batch is solved.
    """

    classes_: Any
    unknown_label: Any

    def predict(self, X: Any) -> Any:
        """The label of each row of X, all rows taken together.

        Parameters
        ----------
        X : array of shape [q, d]
            The queries.

        Returns
        -------
        array of shape [q]
        """
        return self._names(self._label(X), X)

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, all rows of X taken together.

        Parameters
        ----------
        X : array of shape [q, d]
            The queries.

        Returns
        -------
        array of shape [q, k]
            Columns are in the order of ``classes_``. With ``open_set``, rows sum to less than 1:
            the rest is the probability of being unknown.
        """
        return like(self._label(X).probabilities[0], X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the rows of X that get the right label, all rows taken together.

        Parameters
        ----------
        X : array of shape [q, d]
            The queries.
        y : array of shape [q]
            Their true labels.
        sample_weight : array of shape [q], optional
            How much each row counts.

        Returns
        -------
        float
        """
        refuse_masked(sample_weight, "sample_weight")
        truth = read_labels(y)
        predicted = to_numpy(self.predict(X))
        with in_one_sentence():
            return float(
                accuracy_score(
                    truth,
                    predicted,
                    sample_weight=to_numpy(sample_weight, "sample_weight"),
                )
            )

    def set_params(self: Classifier, **params: Any) -> Classifier:
        """Change parameters; one that there is not is an error that names the nearest.

        Parameters
        ----------
        **params
            Parameters by name.

        Returns
        -------
        self
        """
        known = self.get_params(deep=True)
        unknown = next((name for name in params if name not in known), None)
        if unknown is not None:
            raise InputError(
                f"Invalid parameter: {type(self).__name__} has no '{unknown}'; "
                f"{nearest(unknown, known)}"
            )
        super().set_params(**params)
        return self

    @abstractmethod
    def _label(self, X: Any, known: Mapping[int, Any] | None = None) -> Solution:
        """The solution for the rows of X as one task."""

    @property
    def _with_unknown(self) -> Any:
        """[k + 1] the classes, and last what stands for unknown."""
        given = self.unknown_label
        if given is None:
            given = "unknown"
            if np.issubdtype(self.classes_.dtype, np.number):
                given = -1
        if np.asarray(given, dtype=object).ndim:
            raise InputError(f"unknown_label is {shown(given)}; give one string or number.")
        if given in self.classes_.tolist():
            raise InputError(
                f"A class is called {given!r}; choose another unknown_label for unknown queries."
            )
        kinds = "U" if self.classes_.dtype.kind == "U" else "iuf"
        if np.asarray(given).dtype.kind in kinds:
            names = np.append(self.classes_, np.array([given]))
            # Of uint64 and -1 NumPy makes float64, in which large numbers are no longer what they were.
            if names[:-1].tolist() == self.classes_.tolist():
                return names
        return np.append(self.classes_.astype(object), np.array([given], dtype=object))

    def _names(self, solution: Solution, X: Any) -> Any:
        """[q] the labels by the names of the classes."""
        if solution.unknown_groups is None:
            return label_names(solution, self.classes_, X)
        return label_names(solution, self._with_unknown, X)
