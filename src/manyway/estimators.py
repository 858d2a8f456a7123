"""scikit-learn classes, one a method: they validate, call the solver, and hand back what came out.

``fit`` keeps the labelled examples; the work happens in ``predict``, jointly over the whole batch of queries. Nothing
on the estimator changes there, so two batches never influence each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.errors import InputError
from manyway.methods import get_method


@dataclass(frozen=True, eq=False)
class Inference:
    """What ``infer`` returns for one batch of queries; NumPy in gives NumPy here, torch in gives torch."""

    labels: Any  # [q] in the user's own labels; strings are always NumPy
    probabilities: Any  # [q, k], columns in the order of ``classes_``
    proportions: Any  # [k] estimated share of each class
    prototypes: Any  # [k, d] in the feature scale that the method works in; None where it has none
    objective: Any  # [i] after each iteration; None where the method has none
    n_iter: int
    converged: bool
    presence: Any  # [k] the probability that each class occurs among the queries at all
    n_classes_: float  # how many classes occur: the expected number
    n_classes_sd_: float  # its standard deviation


@dataclass(eq=False, repr=False, kw_only=True)
class TransductiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What all methods share. A subclass names its ``method`` and declares the solver's parameters as fields."""

    method: ClassVar[str]
    base_mean: Any = None  # [d] the mean feature of the encoder's base classes, for the `cl2` transform

    def fit(self, X: Any, y: Any) -> TransductiveClassifier:
        """Keep the labelled examples: X [s, d], y [s] (integers or strings)."""
        X, y = validate_data(self, _numpy(X), _numpy(y), dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, self.support_labels_ = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("The labelled examples are of one class only; there is nothing to choose between.")
        self.support_ = X
        return self

    def infer(self, X: Any) -> Inference:
        """Label all rows of X [q, d] jointly and return everything the method knows about them."""
        recorded = {"with_objective": True} if "with_objective" in get_method(self.method).defaults else {}
        solution = self._solve(X, **recorded)

        def hand_back(value: Tensor | None) -> Any:
            if value is None:
                return None
            return value[0] if isinstance(X, Tensor) else value[0].cpu().numpy()

        return Inference(
            labels=self._names(solution, X),
            probabilities=hand_back(solution.probabilities),
            proportions=hand_back(solution.proportions),
            prototypes=hand_back(solution.prototypes),
            objective=hand_back(solution.objective),
            n_iter=int(solution.n_iter[0]),
            converged=bool(solution.converged[0]),
            presence=hand_back(solution.presence),
            n_classes_=float(solution.n_classes[0]),
            n_classes_sd_=float(solution.n_present_sd[0]),
        )

    def predict(self, X: Any) -> Any:
        """The label of each row of X, all rows taken together."""
        return self._names(self._solve(X), X)

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities [q, k], columns in the order of ``classes_``, all rows of X taken together."""
        probabilities = self._solve(X).probabilities[0]
        return probabilities if isinstance(X, Tensor) else probabilities.cpu().numpy()

    def _solve(self, X: Any, **recorded: bool) -> Solution:
        check_is_fitted(self)
        query = validate_data(self, _numpy(X), reset=False, dtype=[np.float64, np.float32])
        tasks = Tasks.from_arrays(
            self.support_[None], self.support_labels_[None], query[None], base_mean=_numpy(self.base_mean)
        )
        if isinstance(X, Tensor):
            tasks = tasks.to(X.device)
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "base_mean"}
        return get_method(self.method)(tasks, **params, **recorded)

    def _names(self, solution: Solution, X: Any) -> Any:
        names = self.classes_[solution.labels[0].cpu().numpy()]
        if isinstance(X, Tensor) and np.issubdtype(names.dtype, np.number):
            return torch.as_tensor(names, device=X.device)
        return names


@dataclass(eq=False, repr=False, kw_only=True)
class PADDLE(TransductiveClassifier):
    """Fits the queries with as few classes as needed; see ``manyway.methods.paddle.solver``."""

    method = "paddle"
    lam: float | None = None
    eps: float = 1e-6
    max_iter: int = 100
    tol: float | None = None
    scale: str | None = "range"
    form: str | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class SoftKMeans(TransductiveClassifier):
    """PADDLE without its complexity term; see ``manyway.methods.paddle.soft_kmeans``."""

    method = "soft-kmeans"
    max_iter: int = 100
    tol: float | None = None
    scale: str | None = "range"
    form: str | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class PaddlePGD(TransductiveClassifier):
    """PADDLE's objective by projected gradient descent; see ``manyway.methods.paddle.gradient``."""

    method = "paddle-pgd"
    optimizer: str = "adam"
    lr: float = 1e-3
    lam: float | None = None
    eps: float = 1e-12
    max_iter: int = 1000
    tol: float | None = None
    scale: str | None = "range"


@dataclass(eq=False, repr=False, kw_only=True)
class Baseline(TransductiveClassifier):
    """A Euclidean classifier trained on the support; see ``manyway.methods.gradient.baseline``."""

    method = "baseline"
    temperature: float = 15.0
    lr: float = 1e-3
    max_iter: int = 100
    scale: str | None = "l2"


@dataclass(eq=False, repr=False, kw_only=True)
class BaselinePlusPlus(TransductiveClassifier):
    """A cosine classifier trained on the support, each query on its own; see ``manyway.methods.gradient.baseline``."""

    method = "baseline++"
    temperature: float = 15.0
    lr: float = 1e-3
    max_iter: int = 100
    scale: str | None = "l2"


@dataclass(eq=False, repr=False, kw_only=True)
class SimpleShot(TransductiveClassifier):
    """The nearest class mean, each query on its own; see ``manyway.methods.simpleshot``."""

    method = "simpleshot"
    scale: str | None = "cl2"
    temperature: float = 1.0


@dataclass(eq=False, repr=False, kw_only=True)
class ICI(TransductiveClassifier):
    """Logistic regression that adds the most credible queries to its support; see ``manyway.methods.ici.solver``."""

    method = "ici"
    c: float = 10.0
    step: int = 5
    n_components: int = 5
    max_iter: int = 100
    scale: str | None = "l2"


@dataclass(eq=False, repr=False, kw_only=True)
class BDCSPN(TransductiveClassifier):
    """Prototypes rectified by shifted, pseudo-labelled queries; see ``manyway.methods.bd_cspn``."""

    method = "bd-cspn"
    temperature: float = 50.0
    weighting: str = "classes"
    cosine: bool = False
    scale: str | None = "cl2"


@dataclass(eq=False, repr=False, kw_only=True)
class PTMAP(TransductiveClassifier):
    """Optimal transport of the queries to equally large classes; see ``manyway.methods.pt_map``."""

    method = "pt-map"
    step: float = 0.02
    lam: float = 10.0
    max_iter: int = 20
    tol: float = 1e-6
    sinkhorn_iter: int = 1000
    scale: str | None = "power"


@dataclass(eq=False, repr=False, kw_only=True)
class LaplacianShot(TransductiveClassifier):
    """Distances to prototypes, smoothed over neighbouring queries; see ``manyway.methods.laplacianshot``."""

    method = "laplacianshot"
    lam: float = 0.7
    knn: int = 3
    symmetric: bool = False
    max_iter: int = 20
    tol: float = 1e-6
    scale: str | None = "cl2"


@dataclass(eq=False, repr=False, kw_only=True)
class TIM(TransductiveClassifier):
    """Mutual information between queries and classes, by gradient steps; see ``manyway.methods.gradient.tim``."""

    method = "tim"
    weights: Sequence[float] = (1.0, 0.3, 1.0)
    temperature: float = 15.0
    lr: float = 1e-4
    max_iter: int = 2000
    scale: str | None = "l2"


@dataclass(eq=False, repr=False, kw_only=True)
class TIMADM(TransductiveClassifier):
    """TIM by alternating closed-form steps; see ``manyway.methods.gradient.tim_adm``."""

    method = "tim-adm"
    weights: Sequence[float] = (0.1, 1.0, 0.1)
    temperature: float = 15.0
    step: float = 1.0
    max_iter: int = 150
    scale: str | None = "l2"


@dataclass(eq=False, repr=False, kw_only=True)
class AlphaTIM(TransductiveClassifier):
    """TIM with α-entropies; see ``manyway.methods.gradient.alpha_tim``."""

    method = "alpha-tim"
    weights: Sequence[float] = (1.0, 1.0, 1.0)
    alphas: Sequence[float] = (7.0, 5.0)
    temperature: float = 15.0
    lr: float = 1e-4
    max_iter: int = 1000
    scale: str | None = "l2"


@dataclass(eq=False, repr=False, kw_only=True)
class Evidence(TransductiveClassifier):
    """Calibrated likelihoods, and as few classes as there is evidence for; see ``manyway.methods.evidence.solver``."""

    method = "evidence"
    temperature: float | None = None
    concentration: float | None = None
    soften: float = 0.35
    move: bool = True
    identity: bool = True
    merge: bool = True
    max_iter: int = 50
    tol: float = 1e-2
    scale: str | None = "rcl2"


ESTIMATORS: dict[str, type[TransductiveClassifier]] = {
    estimator.method: estimator
    for estimator in (
        PADDLE,
        SoftKMeans,
        PaddlePGD,
        Baseline,
        BaselinePlusPlus,
        SimpleShot,
        ICI,
        BDCSPN,
        PTMAP,
        LaplacianShot,
        TIM,
        TIMADM,
        AlphaTIM,
        Evidence,
    )
}


def _numpy(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
