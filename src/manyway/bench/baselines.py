"""Classifiers of scikit-learn that suites compare with. They are no methods: nothing but a suite uses them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any
from warnings import catch_warnings, simplefilter

from manyway import core
from manyway.methods import METHODS, Method
from manyway.methods import get_method as get_real_method


def centroid(tasks: core.Tasks) -> Any:
    """The nearest class mean of the features as they are."""
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

    # One example per class has no variance, of which the other class makes its probabilities.
    return KNeighborsClassifier(1) if tasks.n_support == tasks.n_classes else NearestCentroid()


def logistic(tasks: core.Tasks) -> Any:
    """Logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def lda(tasks: core.Tasks) -> Any:
    """Linear discriminant analysis with equal priors; the nearest class mean where no class has two examples."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    if tasks.n_support == tasks.n_classes:
        return centroid(tasks)
    return LinearDiscriminantAnalysis(priors=[1 / tasks.n_classes] * tasks.n_classes)


def _baseline(name: str, title: str, make: Callable[[core.Tasks], Any]) -> Method:
    def solver(tasks: core.Tasks) -> core.Solution:
        from manyway.evaluation import fit_and_predict

        with catch_warnings():
            simplefilter("ignore")  # about collinear columns and limits of iterations, for every task
            return fit_and_predict(make(tasks), tasks, True)

    solver.__doc__ = make.__doc__
    return Method(name, title, solver, "scikit-learn", transductive=False, holds_support=True)


BASELINES: Mapping[str, Method] = {
    "centroid": _baseline("centroid", "Nearest centroid", centroid),
    "logistic": _baseline("logistic", "Logistic regression", logistic),
    "lda": _baseline("lda", "LDA", lda),
}
COMPARED: Mapping[str, Method] = ChainMap(METHODS, BASELINES)  # type: ignore[arg-type]  # all that a suite can name


def get_method(name: str) -> Method:
    """The method or the baseline of that name."""
    return BASELINES[name] if name in BASELINES else get_real_method(name)
