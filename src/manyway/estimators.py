"""scikit-learn classes, one per method: they validate, call the solver, and return what it found.

``fit`` keeps a copy of the labelled examples and prepares what depends on them alone; the queries are labelled in
``predict``, jointly over the whole batch. Nothing on the estimator changes there, so two batches never influence each
other. Parameters, their defaults and their descriptions are taken from the solvers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar
from warnings import warn

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from manyway.core.solution import Computed, Solution, best_two, shapes
from manyway.core.tasks import Tasks
from manyway.core.validation import describe_rows
from manyway.errors import InputError, optional
from manyway.methods import Method, get_method
from manyway.methods.evidence.stream import Memory, next_batch
from manyway.methods.parameters import doc_entries, doc_sections


@dataclass(frozen=True, eq=False, repr=False)
class Inference:
    """What ``infer`` returns for one batch of queries.

    NumPy in gives NumPy here, torch in gives torch. Inferences can be pickled; ``repr`` shows shapes only.

    Parameters
    ----------
    labels : array of shape [q]
        The labels, as they were given to ``fit``; strings are always NumPy.
    probabilities : array of shape [q, k]
        The class probabilities, columns in the order of ``classes``.
    proportions : array of shape [k]
        The estimated proportion of each class among the queries.
    prototypes : array of shape [k, d] or None
        The class prototypes in the feature scale of the method; None where it has none.
    objective : array of shape [i] or None
        The objective after each iteration; None where it was not recorded.
    n_iter : int
        The number of iterations.
    converged : bool
        Whether the method's own stopping rule was met.
    presence : array of shape [k]
        The probability that each class occurs among the queries.
    n_present : float
        The expected number of classes that occur among the queries.
    n_present_sd : float
        Its standard deviation.
    classes : ndarray of shape [k]
        The classes, in the order of the columns.
    make_review_scores : callable
        Returns the review scores of the queries; see ``review_order``.
    unknown : array of shape [q] or None
        How likely each query is of no class; None where the method assumes that all are of one.
    unknown_groups : array of shape [q] or None
        The number of the group of unknown queries that a query belongs to, the largest first; -1 for the others.
    unknown_medoids : array of shape [g] or None
        The query in the middle of each of these groups.

    Attributes
    ----------
    review_order : array of shape [n]
        The rows whose label is not known, in the order in which a person should look at them.

    Examples
    --------
    >>> from manyway import SimpleShot
    >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [1.0, 0.2]])
    >>> result
    Inference(labels=[2], probabilities=[2, 2], prototypes=[2, 2], n_iter=1, converged=True, n_present=1.8 ± 0.5)
    >>> result.labels.tolist()
    ['ant', 'bee']
    """

    labels: Any
    probabilities: Any
    proportions: Any
    prototypes: Any
    objective: Any
    n_iter: int
    converged: bool
    presence: Any
    n_present: float
    n_present_sd: float
    classes: Any
    make_review_scores: Callable[[], Any]
    unknown: Any = None
    unknown_groups: Any = None
    unknown_medoids: Any = None

    @staticmethod
    def of(solution: Solution, labels: Any, classes: Any, X: Any, *, with_objective: bool) -> Inference:
        """The solution of one task, in the array type of its queries X.

        Parameters
        ----------
        solution : Solution
        labels : array of shape [q]
            The user's labels.
        classes : ndarray of shape [k]
        X : array
        with_objective : bool
            Whether the objective was asked for.

        Returns
        -------
        Inference
        """

        def hand_back(value: Tensor | None) -> Any:
            return None if value is None else like(value[0], X)

        return Inference(
            labels=labels,
            probabilities=hand_back(solution.probabilities),
            proportions=hand_back(solution.proportions),
            prototypes=hand_back(solution.prototypes),
            objective=hand_back(solution.objective) if with_objective else None,
            n_iter=int(solution.n_iter[0]),
            converged=bool(solution.converged[0]),
            presence=hand_back(solution.presence),
            n_present=float(solution.n_present[0]),
            n_present_sd=float(solution.n_present_sd[0]),
            classes=classes,
            make_review_scores=lambda: hand_back(solution.review_scores),
            unknown=hand_back(solution.unknown),
            unknown_groups=hand_back(solution.unknown_groups),
            unknown_medoids=hand_back(solution.unknown_medoids),
        )

    @cached_property
    def review_order(self) -> Any:
        """The rows whose label is not known, those first whose answer is expected to repair most labels.

        It is computed on first use. After an answer, call ``infer`` with the longer ``known``: the order changes.
        """
        scores = torch.as_tensor(self.make_review_scores())
        order = scores.argsort(descending=True, stable=True)[: int((scores >= 0).sum())]
        return order if isinstance(self.probabilities, Tensor) else order.numpy()

    def to_frame(self) -> Any:
        """A pandas table with one row per query.

        Returns
        -------
        pandas.DataFrame
            Columns ``label``, ``probability``, ``second_label``, ``second_probability``, and ``unknown`` and ``group``
            where the method has them. Where the answer is that a query is of no class, ``probability`` is that of the
            most probable class.

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [1.0, 0.2]])
        >>> result.to_frame()[["label", "second_label"]].values.tolist()
        [['ant', 'bee'], ['bee', 'ant']]
        """
        return optional("pandas", "tables", "to_frame").DataFrame(self.columns())

    def columns(self) -> dict[str, Any]:
        """The columns of `to_frame` as NumPy arrays, by their names.

        Returns
        -------
        dict of str to ndarray

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [1.0, 0.2]])
        >>> list(result.columns())
        ['label', 'probability', 'second_label', 'second_probability']
        """
        unknown = None if self.unknown is None else torch.as_tensor(self.unknown)
        columns = best_two(torch.as_tensor(self.probabilities), unknown)
        for name in ("label", "second_label"):
            columns[name] = self.classes[columns[name]]
        if self.unknown_groups is not None:
            columns |= {"label": _numpy(self.labels), "group": _numpy(self.unknown_groups)}
        return columns

    def classes_frame(self) -> Any:
        """A pandas table with one row per class, the most probably present first.

        Returns
        -------
        pandas.DataFrame
            Columns ``class``, ``presence``, ``proportion`` and ``items``, the number of queries with that label.

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [0.0, 1.0]])
        >>> result.classes_frame()[["class", "items"]].values.tolist()
        [['ant', 2], ['bee', 0]]
        """
        pandas = optional("pandas", "tables", "classes_frame")
        chosen = best_two(torch.as_tensor(self.probabilities))["label"]
        if self.unknown_groups is not None:
            chosen = chosen[_numpy(self.unknown_groups) < 0]
        table = pandas.DataFrame(
            {
                "class": self.classes,
                "presence": _numpy(self.presence),
                "proportion": _numpy(self.proportions),
                "items": np.bincount(chosen, minlength=len(self.classes)),
            }
        )
        return table.sort_values("presence", ascending=False, kind="stable", ignore_index=True)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the review scores are computed now, so that no function is pickled."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"make_review_scores": Computed(self.make_review_scores())}

    def __repr__(self) -> str:
        found = shapes(self, ("labels", "probabilities", "prototypes", "objective"))
        return (
            f"Inference({found}, n_iter={self.n_iter}, converged={self.converged}, "
            f"n_present={self.n_present:.1f} ± {self.n_present_sd:.1f})"
        )


class TransductiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What all methods share; a subclass names its method: ``class PADDLE(TransductiveClassifier, method="paddle")``.

    Parameters
    ----------
    **params
        ``base_mean`` and the keyword-only parameters of the method's solver; each subclass has them in its signature.

    Examples
    --------
    >>> from manyway.estimators import ESTIMATORS
    >>> ESTIMATORS["simpleshot"]().get_params()
    {'base_mean': None, 'scale': 'cl2', 'temperature': 1.0}
    """

    method: ClassVar[str]
    _method: ClassVar[Method]

    def __init_subclass__(cls, method: str | Method | None = None, **kwargs: Any) -> None:
        """Give the class its constructor and its documentation, both from the solver."""
        super().__init_subclass__(**kwargs)
        if method is None:  # it inherits them
            return
        found = get_method(method) if isinstance(method, str) else method
        cls.method, cls._method = found.name, found
        cls.__init__, cls.__doc__ = _constructor(cls, found), _documentation(cls, found)  # type: ignore[method-assign]

    def __init__(self, **params: Any) -> None:
        raise TypeError("TransductiveClassifier is a base class; use one of its subclasses, such as Evidence.")

    def fit(self, X: Any, y: Any, class_features: Any = None) -> TransductiveClassifier:
        """Keep a copy of the labelled examples, and prepare what depends on them alone.

        Parameters
        ----------
        X : array of shape [s, d]
            The features of the labelled examples.
        y : array of shape [s]
            Their labels, integers or strings. K is the number of distinct labels.
        class_features : mapping of label to array of shape [d], or array of shape [k, d], optional
            One vector per class in the space of X, such as the text embedding of its name, for the methods that use
            them. The keys of a mapping are the classes, and those without examples are allowed; X and y may then be
            None. The rows of an array are those of the distinct labels in y, sorted.

        Returns
        -------
        self

        Notes
        -----
        Call ``fit`` again after ``set_params``: what was prepared belongs to the parameters at that time.
        """
        self._forget()
        if class_features is not None and not self._method.class_features:
            raise InputError(f"{type(self).__name__} does not use class_features; fit it without them.")
        vectors, labels = _class_features(class_features)
        if X is None and y is None and vectors is not None and labels is not None:
            X, y = vectors[:0], labels[:0]
            self.n_features_in_ = vectors.shape[-1]
        else:
            X, y = validate_data(self, _features(X), _labels(y), dtype=[np.float64, np.float32], copy=True)
            check_classification_targets(y)
        self._method.check(self._params())
        self.classes_, self.support_labels_ = np.unique(y, return_inverse=True)
        if vectors is not None and labels is not None:
            vectors = self._name_classes(vectors, labels, y)
        elif vectors is not None and vectors.shape[:-1] != self.classes_.shape:
            raise InputError(
                f"class_features has shape {vectors.shape} for {len(self.classes_)} distinct labels; give one row for "
                "each, or a mapping of labels to vectors."
            )
        if len(self.classes_) < 2:
            raise InputError("The labelled examples are of one class only; there is nothing to choose between.")
        if self._params().get("open_set"):
            _ = self._with_unknown  # refuses a class of that name now, not after the work
        self.support_ = X
        self.class_features_ = vectors
        self.base_mean_ = None if self.base_mean is None else np.array(_features(self.base_mean))
        self.prepared_ = self._prepare()
        for name in self._method.learned if self.prepared_ is not None else ():
            value = _numpy(getattr(self.prepared_, name))
            setattr(self, f"{name}_", value.item() if np.size(value) == 1 else value)
        return self

    def infer(self, X: Any, *, known: Mapping[int, Any] | None = None, with_objective: bool | None = None) -> Inference:
        """Label all rows of X jointly and return all results of the method.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the queries.
        known : mapping of int to label, optional
            Labels that are known for some rows of X, for example because a person has confirmed or corrected them.
            They are kept, and the labels of the other rows take them into account. Only ``Evidence`` can use them. A
            label that is not among ``classes_`` is refused: for a new class, give its first example to ``fit``.
        with_objective : bool, optional
            Whether to record the objective after each iteration. None: yes on a CPU, no on a GPU, where it would
            prevent the use of fused code. Methods without an objective ignore it.

        Returns
        -------
        Inference
        """
        tasks = self._tasks(X)
        given = self._known(known, tasks.n_query)
        return self._inference(X, with_objective, lambda **recorded: self._answer(tasks, given, **recorded))

    def _inference(self, X: Any, with_objective: bool | None, solve: Callable[..., Solution]) -> Inference:
        """What a solver finds for X, in the user's labels and array type."""
        if with_objective is None:
            with_objective = not (isinstance(X, Tensor) and X.is_cuda)
        solution = solve(**({"with_objective": with_objective} if "with_objective" in self._method.defaults else {}))

        return Inference.of(solution, self._names(solution, X), self.classes_, X, with_objective=with_objective)

    def predict(self, X: Any) -> Any:
        """The label of each row of X, all rows taken together.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the queries.

        Returns
        -------
        array of shape [q]
        """
        return self._names(self._answer(self._tasks(X)), X)

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, all rows of X taken together.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the queries.

        Returns
        -------
        array of shape [q, k]
            Columns are in the order of ``classes_``. With ``open_set``, rows sum to less than 1: the rest
            is the probability of no class.
        """
        return like(self._answer(self._tasks(X)).probabilities[0], X)

    def _forget(self) -> None:
        """Forget earlier batches of a stream; only ``Evidence`` remembers any."""

    def _name_classes(self, vectors: Any, labels: Any, y: Any) -> Any:
        """Take the classes of a mapping, all of them; its vectors in their order."""
        self.classes_, order = np.unique(labels, return_index=True)
        unnamed = sorted(set(y.tolist()) - set(self.classes_.tolist()))
        if unnamed:
            raise InputError(f"class_features has no vector for the label {unnamed[0]!r} of y; give one per class.")
        self.support_labels_ = np.searchsorted(self.classes_, y)
        return vectors[order]

    @property
    def _vectors(self) -> Any:
        vectors = getattr(self, "class_features_", None)  # estimators pickled by earlier versions have none
        return None if vectors is None else vectors[None]

    def _prepare(self) -> Any:
        """What the method prepares from the labelled examples alone; None where it prepares nothing."""
        support = Tasks.from_support(
            self.support_[None], self.support_labels_[None], self.base_mean_, class_features=self._vectors
        )
        prepare = self._method.preparation
        if prepare is None:
            return None
        # A preparation that iterates has its own objective. It runs once, so it is always recorded.
        recorded = {"with_objective": True} if "with_objective" in inspect.signature(prepare).parameters else {}
        with torch.no_grad():
            return prepare(support, **self._params(), **recorded)

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: parameters, numbers and arrays. What was prepared is left out and computed again on loading.

        Files then need no trust in further types, as pickled tensors would, and do not depend on how a version of the
        method keeps what it has prepared.
        """
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "prepared_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "support_" in state and "prepared_" not in state:  # earlier versions saved it
            self.prepared_ = self._prepare()

    def _params(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name not in OWN_PARAMETERS}

    def _tasks(self, X: Any) -> Tasks:
        """One task, with the rows of X as queries."""
        check_is_fitted(self)
        query = validate_data(self, _features(X), reset=False, dtype=[np.float64, np.float32])
        tasks = Tasks.from_arrays(
            self.support_[None],
            self.support_labels_[None],
            query[None],
            self.base_mean_,
            n_classes=len(self.classes_),
            class_features=self._vectors,
        )
        return tasks.to(X.device) if isinstance(X, Tensor) else tasks

    def _answer(self, tasks: Tasks, known: Tensor | None = None, **recorded: bool) -> Solution:
        prepared = None if self.prepared_ is None else _moved(self.prepared_, tasks.device)
        params = self._params()
        solution = self._method(tasks, prepared=prepared, known=known, **params, **recorded)
        unfinished = self._method.unfinished(solution, params)
        if unfinished is not None:
            warn(unfinished, ConvergenceWarning, stacklevel=3)
        unlike = self._method.unlike(tasks, params)
        if unlike is not None:
            warn(unlike, UserWarning, stacklevel=3)
        return solution

    def _known(self, known: Mapping[int, Any] | None, n_query: int) -> Tensor | None:
        """[1, q] the places of known labels in ``classes_``, -1 where none is known; None where there is no label."""
        return None if known is None or not len(known) else known_places(known, self.classes_, n_query)[None]

    @property
    def _with_unknown(self) -> Any:
        """[k + 1] the classes, and last what stands for no class."""
        given = self.unknown_label
        if given is None:
            given = -1 if np.issubdtype(self.classes_.dtype, np.number) else "unknown"
        if given in self.classes_.tolist():
            raise InputError(f"A class is called {given!r}; choose another unknown_label for queries of no class.")
        alike = np.asarray(given).dtype.kind in ("U" if self.classes_.dtype.kind == "U" else "iuf")
        classes = self.classes_ if alike else self.classes_.astype(object)
        return np.append(classes, np.array([given], dtype=None if alike else object))

    def _names(self, solution: Solution, X: Any) -> Any:
        return named(solution, self.classes_ if solution.unknown_groups is None else self._with_unknown, X)


_UNKNOWN_LABEL = (inspect.Parameter("unknown_label", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any"),)
OWN_PARAMETERS = ("base_mean", "unknown_label")  # those that solvers do not have


def _constructor(cls: type, method: Method) -> Any:
    """``__init__`` of an estimator: keyword-only, with the solver's parameters and defaults in its signature."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    solver = inspect.signature(method.solver).parameters
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("base_mean", keyword, default=None, annotation="ArrayLike | None"),
            *(solver[name] for name in method.parameters),
            *(_UNKNOWN_LABEL if "open_set" in method.parameters else ()),
        ]
    )

    def __init__(self: Any, **params: Any) -> None:
        bound = signature.bind(self, **params)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name != "self":
                setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__name__}.__init__"
    __init__.__doc__ = f"See ``help({cls.__name__})``."
    return __init__


_DOCUMENTATION = """{head}

Parameters
----------
base_mean : array of shape [d], optional
    The mean feature of the classes that the encoder was trained on. The transforms ``cl2`` and ``rcl2`` subtract it;
    without one they subtract the mean of the labelled examples.
{parameters}

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
{prepared}
{rest}Examples
--------
>>> from {module} import {name}
>>> clf = {name}().fit([[0, 0, 1, 5, 5, 4], [5, 4, 5, 0, 1, 0]], ["ant", "bee"])
>>> clf.predict([[0, 1, 0, 4, 5, 5], [5, 5, 4, 1, 0, 0], [1, 0, 0, 5, 4, 5]]).tolist()
['ant', 'bee', 'ant']
"""
_DESCRIBED_UNKNOWN = """unknown_label : object, optional
    What ``predict`` answers for a query of no class, with ``open_set``. By default -1 where labels are numbers and
    ``"unknown"`` where they are strings."""
_PREPARED = """prepared_ : object or None
    What the method has prepared from the labelled examples.
"""
_OWN_SECTIONS = ("Parameters", "Attributes", "Returns", "Examples")  # the estimator has its own


def _documentation(cls: type, method: Method) -> str:
    """The docstring of an estimator, from the solver's: its text, its parameters and its notes."""
    sections = doc_sections(inspect.getdoc(method.solver) or "")
    described = doc_entries(sections.get("Parameters", ""))
    annotations = inspect.signature(method.solver).parameters
    parameters = [
        described.get(name, f"{name} : {annotations[name].annotation}, default={default!r}")
        for name, default in method.parameters.items()
    ]
    if "open_set" in method.parameters:
        parameters.append(_DESCRIBED_UNKNOWN)
    rest = "".join(
        f"{title}\n{'-' * len(title)}\n{text}\n\n"
        for title, text in sections.items()
        if title and title not in _OWN_SECTIONS
    )
    head, _, _ = sections[""].partition("\n>>> ")
    return _DOCUMENTATION.format(
        head=head.rstrip(),
        parameters="\n".join(parameters),
        prepared=(_PREPARED if method.prepare is not None else "")
        + "".join(f"{name}_ : float or ndarray\n    What was learned as ``{name}``.\n" for name in method.learned),
        rest=rest,
        module="manyway" if cls.__module__ == __name__ else cls.__module__,
        name=cls.__name__,
    )


class PADDLE(TransductiveClassifier, method="paddle"):
    pass


class SoftKMeans(TransductiveClassifier, method="soft-kmeans"):
    pass


class PaddlePGD(TransductiveClassifier, method="paddle-pgd"):
    pass


class Baseline(TransductiveClassifier, method="baseline"):
    pass


class BaselinePlusPlus(TransductiveClassifier, method="baseline++"):
    pass


class SimpleShot(TransductiveClassifier, method="simpleshot"):
    pass


class ICI(TransductiveClassifier, method="ici"):
    pass


class BDCSPN(TransductiveClassifier, method="bd-cspn"):
    pass


class PTMAP(TransductiveClassifier, method="pt-map"):
    pass


class LaplacianShot(TransductiveClassifier, method="laplacianshot"):
    pass


class UNEM(TransductiveClassifier, method="unem"):
    pass


class OSLO(TransductiveClassifier, method="oslo"):
    pass


class TIM(TransductiveClassifier, method="tim"):
    pass


class TIMADM(TransductiveClassifier, method="tim-adm"):
    pass


class AlphaTIM(TransductiveClassifier, method="alpha-tim"):
    pass


class TransCLIP(TransductiveClassifier, method="transclip"):
    pass


class StatA(TransductiveClassifier, method="stata"):
    pass


class MOON(TransductiveClassifier, method="moon"):
    pass


class ZLaP(TransductiveClassifier, method="zlap"):
    pass


class Evidence(TransductiveClassifier, method="evidence"):
    def _forget(self) -> None:
        self.memory_: Memory | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: what ``partial_infer`` remembers is saved as arrays."""
        state = super().__getstate__()
        if state.get("memory_") is not None:
            remembered = vars(state["memory_"]).items()
            state["memory_"] = {
                name: list(map(_numpy, value)) if isinstance(value, tuple) else _numpy(value)
                for name, value in remembered
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = state.get("memory_")
        if isinstance(memory, dict):
            tensors: dict[str, Any] = {
                name: tuple(map(torch.as_tensor, value)) if isinstance(value, list) else torch.as_tensor(value)
                for name, value in memory.items()
            }
            state = state | {"memory_": Memory(**tensors)}
        super().__setstate__(state)

    def partial_infer(
        self, X: Any, *, known: Mapping[int, Any] | None = None, with_objective: bool | None = None
    ) -> Inference:
        """Label the next batch of a stream, with what earlier batches taught, and remember it.

        Batches arrive one after another, and each call labels one. Where the evidence says that the batch continues
        earlier ones (the same classes in similar proportions), it is labelled jointly with their items; where it says
        that classes have changed, the answer is that of ``infer``. Answers to earlier batches do not change. ``fit``
        starts a new stream. The last 1,024 items at most are remembered.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the new batch.
        known : mapping of int to label, optional
            Labels that are known for some rows of X, as in ``infer``. They are remembered.
        with_objective : bool, optional
            As in ``infer``. Where the batch is labelled jointly with earlier ones, the objective is that of all.

        Returns
        -------
        Inference
            For the rows of X.

        Notes
        -----
        See ``manyway.methods.evidence.stream``. It cannot be used with ``open_set``.

        Examples
        --------
        >>> from manyway import Evidence
        >>> clf = Evidence().fit([[0, 0, 1, 5, 5, 4], [5, 4, 5, 0, 1, 0]], ["ant", "bee"])
        >>> clf.partial_infer([[0, 1, 0, 4, 5, 5], [1, 0, 0, 5, 4, 5]]).labels.tolist()
        ['ant', 'ant']
        >>> clf.partial_infer([[0, 0, 0, 4, 5, 4]]).labels.tolist()
        ['ant']
        """
        tasks = self._tasks(X)
        given = self._known(known, tasks.n_query)
        memory = getattr(self, "memory_", None)  # estimators pickled by earlier versions have none
        memory = Memory.empty(tasks) if memory is None else memory.to(tasks.device)

        def solve(**recorded: bool) -> Solution:
            def answer(_: Tensor, batches: Tasks, given: Tensor | None) -> Solution:
                return self._answer(batches, given, **recorded)

            solution, self.memory_ = next_batch(tasks, memory, answer, self._params()["concentration"], given)
            return solution

        return self._inference(X, with_objective, solve)


class EMDirichlet(TransductiveClassifier, method="em-dirichlet"):
    pass


class HardEMDirichlet(TransductiveClassifier, method="hard-em-dirichlet"):
    pass


class LabelShift(TransductiveClassifier, method="label-shift"):
    pass


ESTIMATORS: Mapping[str, type[TransductiveClassifier]] = {
    estimator.method: estimator for estimator in TransductiveClassifier.__subclasses__()
}


def like(value: Tensor, X: Any) -> Any:
    """The value as a tensor where X is one, otherwise as a NumPy array."""
    return value if isinstance(X, Tensor) else value.cpu().numpy()


def named(solution: Solution, classes: Any, X: Any) -> Any:
    """[q] the labels of the first task by the names of the classes; a tensor where X is one and they are numbers."""
    names = classes[solution.labels[0].cpu().numpy()]
    if isinstance(X, Tensor) and np.issubdtype(names.dtype, np.number):
        return torch.as_tensor(names, device=X.device)
    return names


def known_places(known: Mapping[int, Any], classes: Any, n_query: int) -> Tensor:
    """[q] the places of known labels in ``classes``, -1 where none is known."""
    if not isinstance(known, Mapping):
        raise InputError(f"known is of the type {type(known).__name__}; give a mapping {{row: label}}.")
    places = {name: place for place, name in enumerate(classes.tolist())}
    found = torch.full((n_query,), -1)
    for row, label in known.items():
        if isinstance(row, bool) or not isinstance(row, Integral) or not 0 <= row < n_query:
            raise InputError(f"known has a label for row {row!r}; rows are integers from 0 to {n_query - 1}.")
        name = label.item() if isinstance(label, np.generic | Tensor) else label
        if not isinstance(name, Hashable) or name not in places:
            raise InputError(
                f"known has the label {name!r} for row {row}, which is not among the classes; correct it, or give "
                "fit the first example of a new class."
            )
        found[int(row)] = places[name]
    return found


def _numpy(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def _moved(prepared: Any, device: torch.device) -> Any:
    """A dataclass with its tensors on a device."""
    values = {field.name: getattr(prepared, field.name) for field in fields(prepared)}
    return replace(prepared, **{name: v.to(device) for name, v in values.items() if isinstance(v, Tensor)})


def _features(values: Any) -> Any:
    """Features as scikit-learn can check them: NumPy has no bfloat16, and a column of lists is an array of objects."""
    half = isinstance(values, Tensor) and values.dtype == torch.bfloat16
    values = _numpy(values.float() if half else values)
    if not hasattr(values, "to_list"):
        return values
    rows = values.to_numpy()  # of a column of pandas or polars
    if rows.dtype.kind != "O" or not any(isinstance(row, list | tuple | np.ndarray) for row in rows[:1]):
        return rows
    odd = [n for n, row in enumerate(rows) if np.shape(row) != np.shape(rows[0])]
    if odd:
        raise InputError(f"X has lists of another length in {describe_rows(odd)}; every row needs the same features.")
    return np.stack([np.asarray(row) for row in rows])


def _class_features(values: Any) -> tuple[Any, Any]:
    """Class features as an array [k, d], and the labels of its rows where they are a mapping."""
    if values is None:
        return None, None
    if not isinstance(values, Mapping):
        return np.array(_features(values)), None
    rows = [np.asarray(_features(vector)) for vector in values.values()]
    if not rows or any(row.ndim != 1 or row.shape != rows[0].shape for row in rows):
        raise InputError("class_features must map every label to one vector, all of the same length.")
    return np.stack(rows), _labels(list(values))


def _labels(values: Any) -> Any:
    """Labels as scikit-learn can check them: bytes are decoded, missing and mixed ones refused."""
    if values is None:
        return None
    labels = np.asarray(_numpy(values))
    if labels.dtype.kind == "O" and labels.ndim == 1:
        missing = [row for row, label in enumerate(labels) if _is_missing(label)]
        if missing:
            raise InputError(f"y has no label in {describe_rows(missing)}; give one to each example or leave it out.")
        if all(isinstance(label, bytes) for label in labels):
            labels = labels.astype(bytes)
        elif len({isinstance(label, str) for label in labels}) > 1:
            raise InputError("y mixes strings with other labels; use strings or integers for all of them.")
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as error:
        raise InputError("y holds bytes that are not UTF-8; decode them to strings first.") from error


def _is_missing(label: Any) -> bool:
    """None, NaN or pandas' NA."""
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):  # the truth value of NA
        return True
