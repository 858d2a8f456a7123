"""Feature sets that need no data folder: simulated classes by name, and scikit-learn's tables.

Real embeddings are much alike. These sets are not: one feature or thousands, columns in different
units, noise that differs between columns, measurements that depend on each other, heavy tails,
bits, counts, and classes with very different numbers of examples. Each is drawn with a fixed seed.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from manyway.errors import InputError, nearest
from manyway.sampling.features import FeatureSet

_PER_CLASS = 120  # rows
_TABLES = {
    "iris": "load_iris",
    "wine": "load_wine",
    "cancer": "load_breast_cancer",
    "digits": "load_digits",
}


class Simulation(NamedTuple):
    """How a set is drawn.

    ``normal``: class means with the standard deviation ``apart``, and noise of 1. ``units``: the
    same, each column multiplied by 10^u with u in ±1.5. ``noise``: only the noise is multiplied by
    that. ``tails``: noise of Student's distribution with 2.5 degrees of freedom. ``measurements``:
    positive numbers that share a size. ``bits`` and ``counts``: class means are those of logits and
    of logarithms of rates.
    """

    kind: str
    n_features: int
    apart: float
    n_classes: int = 40
    examples: Sequence[int] = ()  # of each class, where the support is given


_DATA: dict[str, list[Any]] = json.loads(
    (resources.files("manyway.sampling") / "simulated.json").read_text("utf-8")
)
SIMULATIONS: Mapping[str, Simulation] = {
    name: Simulation(*values) for name, values in _DATA.items()
}


def simulated(name: str) -> FeatureSet:
    """The simulated set of a name in ``SIMULATIONS``; NAME/2 is another draw of it.

    >>> simulated("one-feature").features.shape
    torch.Size([1440, 1])
    """
    base, _, number = name.partition("/")
    if base not in SIMULATIONS or not (number or "0").isdecimal():
        raise InputError(f"There is no simulated set '{name}'; {nearest(base, SIMULATIONS)}")
    plan = SIMULATIONS[base]
    rng = np.random.default_rng([list(SIMULATIONS).index(base), int(number or "0")])
    classes = np.arange(plan.n_classes)
    given = classes.repeat(plan.examples or 0)
    labels = np.concatenate([given, classes.repeat(_PER_CLASS)])
    is_support = np.arange(len(labels)) < len(given) if plan.examples else None
    return FeatureSet(_rows(plan, labels, rng).astype(np.float32), labels, is_support=is_support)


def _rows(plan: Simulation, labels: NDArray[np.int64], rng: Generator) -> NDArray[np.float64]:
    """[n, d] for labels [n]."""
    n = len(labels)
    d = plan.n_features
    kind = plan.kind
    means = rng.normal(size=(plan.n_classes, d)) * plan.apart
    if kind == "bits":
        chances = 1 / (1 + np.exp(-(rng.normal(size=d) + means)))
        return (rng.random((n, d)) < chances[labels]).astype(float)
    if kind == "counts":
        rates = np.exp(1.2 * rng.normal(size=d) + means)
        return rng.poisson(rates[labels] * np.exp(0.4 * rng.normal(size=(n, 1)))).astype(float)
    scale = 10 ** rng.uniform(-1.5, 1.5, d) if kind in ("units", "noise") else np.ones(d)
    noise = rng.standard_t(2.5, size=(n, d)) if kind == "tails" else rng.normal(size=(n, d)) * scale
    if kind == "measurements":
        usual = 10 * np.exp(0.6 * rng.normal(size=d))
        slope = 3 * np.exp(0.5 * rng.normal(size=d))
        noise = usual + rng.normal(size=(n, 1)) * slope + 0.5 * noise
    return means[labels] * (scale if kind == "units" else 1) + noise


def sklearn_table(name: str) -> FeatureSet:
    """A table of scikit-learn: iris, wine, cancer or digits.

    NAME/standard has columns of variance 1.

    >>> sklearn_table("iris/standard").features.std(0, correction=0).round(decimals=3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    from sklearn import datasets

    base, _, change = name.partition("/")
    if base not in _TABLES or change not in ("", "standard"):
        raise InputError(f"There is no table '{name}' of scikit-learn; {nearest(base, _TABLES)}")
    features, labels = getattr(datasets, _TABLES[base])(return_X_y=True)
    if change:
        features = (features - features.mean(0)) / np.maximum(features.std(0), 1e-9)
    return FeatureSet(features.astype(np.float32), labels)
