"""What the estimators of all methods share."""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, TypeVar
from warnings import catch_warnings, filterwarnings, warn

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from manyway.core import Solution, Tasks, as_array, mapped
from manyway.errors import ConvergenceWarning, InputError
from manyway.estimators.batch import BatchClassifier, all_or_nothing
from manyway.estimators.from_solver import OWN_PARAMETERS, constructor, documentation
from manyway.estimators.inference import Inference
from manyway.estimators.values import (
    in_one_sentence,
    is_given,
    known_places,
    read_features,
    read_labels,
    read_vector,
    read_vectors,
    to_numpy,
)
from manyway.methods import Method, get_method, needs_whole_rows

Classifier = TypeVar("Classifier", bound="TransductiveClassifier")


def _check_labels(y: np.ndarray[Any, Any]) -> None:
    """Refuse what is no label, such as fractions.

    scikit-learn takes many classes of one example for a regression, and warns of it.
    """
    with catch_warnings():
        filterwarnings("ignore", message="The number of unique classes", category=UserWarning)
        check_classification_targets(y)


class _ConvergenceWarning(ConvergenceWarning, SklearnConvergenceWarning):  # type: ignore[misc]
    """The warning of ``solve``, which is also the one that scikit-learn's users know."""


class TransductiveClassifier(BatchClassifier):
    """What all methods share; a subclass names its method: ``class PADDLE(TransductiveClassifier, method="paddle")``.

    Parameters
    ----------
    base_mean : array of shape [d], optional
        The mean feature of the classes that the encoder was trained on. The transforms ``cl2`` and
        ``rcl2`` subtract it; without one they subtract the mean of the labelled examples.
    unknown_label : object, optional
        What ``predict`` answers for an unknown query, with ``open_set``, where the method has it.
        By default -1 where labels are numbers and ``"unknown"`` where they are strings.
    **params
        The keyword-only parameters of the method's solver; each subclass has them in its signature.

    Attributes
    ----------
    classes_ : ndarray of shape [k]
        The distinct labels, sorted; columns of probabilities are in this order.
    support_ : ndarray of shape [s, d]
        A copy of the features of the labelled examples.
    support_labels_ : ndarray of shape [s]
        Their labels, as places in ``classes_``.
    base_mean_ : ndarray of shape [d] or None
        A copy of ``base_mean``.
    class_features_ : ndarray of shape [k, d] or None
        A copy of the class features, in the order of ``classes_``.
    n_features_in_ : int
        The number of features.
    prepared_ : object or None
        What the method has prepared from the labelled examples.

    Examples
    --------
    >>> from manyway import SimpleShot
    >>> SimpleShot().get_params()
    {'base_mean': None, 'logit_scale': 1.0, 'scale': 'cl2'}
    """

    method: ClassVar[str]
    _method: ClassVar[Method]

    def __init_subclass__(cls, method: str | Method | None = None, **kwargs: Any) -> None:
        """Give the class its constructor and its documentation, both from the solver."""
        super().__init_subclass__(**kwargs)
        if method is None:  # it inherits them
            return
        found = get_method(method) if isinstance(method, str) else method
        cls.method = found.name
        cls._method = found
        cls.__init__ = constructor(cls, found)  # type: ignore[method-assign]
        cls.__doc__ = documentation(cls, found, TransductiveClassifier.__doc__ or "")

    def __init__(self, *, base_mean: Any = None, unknown_label: Any = None, **params: Any) -> None:
        raise TypeError(
            "TransductiveClassifier is a base class; use one of its subclasses, such as Evidence."
        )

    @all_or_nothing
    def fit(self: Classifier, X: Any, y: Any, class_features: Any = None) -> Classifier:
        """Keep a copy of the labelled examples, and prepare what depends on them alone.

        Parameters
        ----------
        X : array of shape [s, d]
            The features of the labelled examples. For ``Evidence`` some may be missing: NaN.
        y : array of shape [s]
            Their labels, integers or strings. K is the number of distinct labels.
        class_features : mapping of label to array of shape [d], or array of shape [k, d], optional
            One vector per class in the space of X, such as the text embedding of its name, for the
            methods that use them. The keys of a mapping are the classes, and those without examples
            are allowed; X and y may then be None. The rows of an array are those of the distinct
            labels in y, sorted.

        Returns
        -------
        self

        Notes
        -----
        Call ``fit`` again after ``set_params``:
        what was prepared belongs to the parameters at that time.
        """
        self._forget()
        if class_features is not None and not self._method.class_features:
            raise InputError(
                f"{type(self).__name__} does not use class_features; fit it without them."
            )
        vectors, labels = read_vectors(class_features)
        if X is None and y is None and vectors is not None and labels is not None:
            X = vectors[:0]
            y = labels[:0]
            self.n_features_in_ = vectors.shape[-1]
        else:
            with in_one_sentence():
                X, y = validate_data(
                    self, self._whole_rows(X), read_labels(y), copy=True, **self._accepted
                )
                _check_labels(y)
        self._method.check(self._params())
        self.classes_, self.support_labels_ = np.unique(y, return_inverse=True)
        if vectors is not None and labels is not None:
            vectors = self._name_classes(vectors, labels, y)
        elif vectors is not None and vectors.shape[:-1] != self.classes_.shape:
            given = f"shape {vectors.shape} for {len(self.classes_)} distinct labels"
            raise InputError(
                f"class_features has {given}; give one row for each, "
                "or a mapping of labels to vectors."
            )
        if len(self.classes_) < 2:
            raise InputError(
                "The labelled examples are of one class only; there is nothing to choose between."
            )
        if self._params().get("open_set"):
            _ = self._with_unknown  # refuses a class of that name now, not after the work
        self.support_ = X
        self.class_features_ = vectors
        self.base_mean_ = (
            None if self.base_mean is None else read_vector(self.base_mean, "base_mean")
        )
        self.__dict__.pop("prepared_", None)  # of an earlier fit
        for name in self._method.learned if self.prepared_ is not None else ():
            value = to_numpy(getattr(self.prepared_, name))
            setattr(
                self,
                f"{name}_",
                value.item() if isinstance(value, np.ndarray) and value.size == 1 else value,
            )
        return self

    def infer(
        self, X: Any, *, known: Mapping[int, Any] | None = None, with_objective: bool | None = None
    ) -> Inference:
        """Label all rows of X jointly and return all results of the method.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the queries. For ``Evidence`` some may be missing: NaN. A row is then
            answered from those that are there.
        known : mapping of int to label, optional
            Labels that are known for some rows of X, for example because a person has confirmed or
            corrected them. They are kept, and the labels of the other rows take them into account.
            Only ``Evidence`` can use them. A label that is not among ``classes_`` is refused: for a
            new class, give its first example to ``fit``.
        with_objective : bool, optional
            Whether to record the objective after each iteration. None: yes on a CPU, no on a GPU,
            where it would prevent the use of fused code. Methods without an objective ignore it.

        Returns
        -------
        Inference
        """
        tasks = self._tasks(X, known)
        return self._inference(
            X, with_objective, lambda **recorded: self._answer(tasks, **recorded)
        )

    def _inference(
        self, X: Any, with_objective: bool | None, solve: Callable[..., Solution]
    ) -> Inference:
        """What a solver finds for X, in the user's labels and array type."""
        if with_objective is None:
            with_objective = not (isinstance(X, Tensor) and X.is_cuda)
        solution = solve(
            **(
                {"with_objective": with_objective}
                if "with_objective" in self._method.defaults
                else {}
            )
        )
        return Inference.of(
            solution, self._names(solution, X), self.classes_, X, with_objective=with_objective
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._method.takes_gaps
        return tags

    @property
    def _accepted(self) -> dict[str, Any]:
        """What scikit-learn lets pass."""
        finite = "allow-nan" if self._method.takes_gaps else True
        return {"dtype": [np.float64, np.float32], "ensure_all_finite": finite}

    def _whole_rows(self, X: Any) -> Any:
        """The features, as scikit-learn can check them.

        Missing ones (NaN) are refused where the method needs all.
        """
        values = read_features(X)
        if not self._method.takes_gaps and _any_missing(values):
            raise InputError(f"{type(self).__name__} {needs_whole_rows()}")
        return values

    def _forget(self) -> None:
        """Forget earlier batches of a stream; only ``Evidence`` remembers any."""

    def _name_classes(self, vectors: Any, labels: Any, y: Any) -> Any:
        """Take the classes of a mapping, all of them; its vectors in their order."""
        self.classes_, order = np.unique(labels, return_index=True)
        unnamed = sorted(set(y.tolist()) - set(self.classes_.tolist()))
        if unnamed:
            raise InputError(
                f"class_features has no vector for the label {unnamed[0]!r} of y; "
                "give one per class."
            )
        self.support_labels_ = np.searchsorted(self.classes_, y)
        return vectors[order]

    @property
    def _vectors(self) -> Any:
        return None if self.class_features_ is None else self.class_features_[None]

    @cached_property
    def prepared_(self) -> Any:
        """What the method prepares from the labelled examples alone.

        None where it prepares nothing.

        ``fit`` computes it, and an estimator that was loaded from a file on its first use.
        """
        prepare = self._method.preparation
        arrays = (self.support_[None], self.support_labels_[None], self.base_mean_)
        support = Tasks.from_support(*arrays, class_features=self._vectors)
        if prepare is None:
            return None
        # A preparation that iterates has its own objective. It runs once, so it is always recorded.
        recorded = (
            {"with_objective": True}
            if "with_objective" in inspect.signature(prepare).parameters
            else {}
        )
        with torch.no_grad():
            return prepare(support, **self._params(), **recorded)

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: parameters, numbers and arrays.

        What was prepared is left out, and computed again when used.

        Files then need no trust in further types, as pickled tensors would, and do not depend on
        how a version of the method keeps what it has prepared.
        """
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "prepared_"}

    def _params(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in OWN_PARAMETERS
        }

    def _tasks(self, X: Any, known: Mapping[int, Any] | None = None) -> Tasks:
        """One task, with the rows of X as queries, some of which have known labels."""
        check_is_fitted(self)
        with in_one_sentence():
            query = validate_data(self, self._whole_rows(X), reset=False, **self._accepted)
        given = known_places(known, self.classes_, len(query))[None] if is_given(known) else None
        arrays = self.support_[None], self.support_labels_[None], query[None], self.base_mean_
        tasks = Tasks.from_arrays(
            *arrays, n_classes=len(self.classes_), class_features=self._vectors, known=given
        )
        return tasks.to(X.device) if isinstance(X, Tensor) else tasks

    def _label(self, X: Any, known: Mapping[int, Any] | None = None) -> Solution:
        return self._answer(self._tasks(X, known))

    def _answer(self, tasks: Tasks, **recorded: bool) -> Solution:
        prepared = mapped(self.prepared_, lambda one: one.to(tasks.device))
        params = self._params()
        solution = self._method(tasks, prepared=prepared, **params, **recorded)
        for sentence, about_convergence in self._method.remarks(tasks, solution, params):
            warn(sentence, _ConvergenceWarning if about_convergence else UserWarning, stacklevel=3)
        return solution


def _any_missing(values: Any) -> bool:
    """Whether an array of numbers has a NaN."""
    array = as_array(values, "X")
    return array.dtype.kind == "f" and bool(np.isnan(array).any())
