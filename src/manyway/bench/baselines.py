"""Classifiers of scikit-learn that suites compare with.

They are no methods: nothing but a suite uses them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any, cast
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from manyway import core
from manyway.bench.own import OWN
from manyway.methods import METHODS, Method
from manyway.methods import get_method as get_real_method

FloatArray = NDArray[np.floating]
_INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # C of scikit-learn, to choose from
_MOST_FOLDS = 3
_STEPS = 300


def centroid(tasks: core.Tasks) -> Any:
    """The nearest class mean of the features as they are."""
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

    # One example per class has no variance, of which the other class makes its probabilities.
    if tasks.n_support == tasks.n_classes:
        return KNeighborsClassifier(1)
    return NearestCentroid()


def logistic(tasks: core.Tasks) -> Any:
    """Logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def lda(tasks: core.Tasks) -> Any:
    """Linear discriminant analysis with equal priors.

    The nearest class mean where no class has two examples.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    if tasks.n_support == tasks.n_classes:
        return centroid(tasks)
    return LinearDiscriminantAnalysis(priors=[1 / tasks.n_classes] * tasks.n_classes)


def logistic_cv(tasks: core.Tasks) -> Any:
    """Logistic regression on rows of unit length, its penalty chosen by cross-validation.

    Without two examples of each class there is nothing to choose by, and
    the penalty is the middle one.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    classifier = LogisticRegression(
        C=_INVERSE_PENALTIES[len(_INVERSE_PENALTIES) // 2], max_iter=_STEPS
    )
    fewest = int(core.count_labels(tasks.support_labels, tasks.n_classes).min())
    if fewest > 1:
        folds = min(_MOST_FOLDS, fewest)
        # By the log-likelihood the weakest penalty wins, which costs 2.5 points on intents with five shots.
        classifier = GridSearchCV(
            classifier, {"C": _INVERSE_PENALTIES}, cv=folds, scoring="accuracy"
        )
    return make_pipeline(Normalizer(), classifier)


class ShrunkLDA:
    """Linear discriminant analysis of rows of unit length.

    It has one covariance, shrunk by Ledoit and Wolf's rule.

    scikit-learn's own class shrinks the covariance of each class by itself, which says nothing with
    a few examples of each; here that of all examples around their class means is shrunk.
    """

    def fit(self, rows: FloatArray, labels: FloatArray) -> ShrunkLDA:
        from sklearn.covariance import ledoit_wolf
        from sklearn.preprocessing import normalize

        rows = normalize(rows.astype(np.float64))
        self.classes_, of = np.unique(labels, return_inverse=True)
        self.means_ = np.stack([rows[of == k].mean(0) for k in range(len(self.classes_))])
        covariance, _ = ledoit_wolf(rows - self.means_[of], assume_centered=True)
        covariance *= len(rows) / (len(rows) - len(self.classes_))
        self.weights_ = np.linalg.solve(covariance, self.means_.T)
        return self

    def predict_proba(self, rows: FloatArray) -> FloatArray:
        from scipy.special import softmax
        from sklearn.preprocessing import normalize

        biases = (self.means_.T * self.weights_).sum(0) / 2
        return cast(
            FloatArray, softmax(normalize(rows.astype(np.float64)) @ self.weights_ - biases, axis=1)
        )

    def predict(self, rows: FloatArray) -> FloatArray:
        return cast(FloatArray, self.classes_[self.predict_proba(rows).argmax(1)])


def lda_shrunk(tasks: core.Tasks) -> Any:
    """Linear discriminant analysis with a shrunk covariance.

    The nearest class mean where no class has two examples.
    """
    if tasks.n_support == tasks.n_classes:
        return centroid(tasks)
    return ShrunkLDA()


def _baseline(name: str, title: str, make: Callable[[core.Tasks], Any]) -> Method:
    def solver(tasks: core.Tasks) -> core.Solution:
        from manyway.evaluation import fit_and_predict

        with catch_warnings():
            # about collinear columns and limits of iterations, for every task
            simplefilter("ignore")
            return fit_and_predict(make(tasks), tasks, True)

    solver.__doc__ = make.__doc__
    return Method(name, title, solver, "scikit-learn", transductive=False, holds_support=True)


BASELINES: Mapping[str, Method] = {
    "centroid": _baseline("centroid", "Nearest centroid", centroid),
    "logistic": _baseline("logistic", "Logistic regression", logistic),
    "lda": _baseline("lda", "LDA", lda),
    "logistic-cv": _baseline("logistic-cv", "Logistic regression, chosen penalty", logistic_cv),
    "lda-shrunk": _baseline("lda-shrunk", "LDA, shrunk", lda_shrunk),
}
COMPARED: Mapping[str, Method] = ChainMap(METHODS, BASELINES, OWN)  # type: ignore[arg-type]  # all that a suite can name


def get_method(name: str) -> Method:
    """The method or the baseline of that name, or what was loaded from a file of one's own."""
    for table in (BASELINES, OWN):
        if name in table:
            return table[name]
    return get_real_method(name)
