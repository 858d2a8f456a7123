"""Wrong types, shapes and numbers for every parameter of every public function: one InputError says what is wrong."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import matplotlib
import numpy as np
import pyarrow
import pytest
import torch

import manyway
from manyway import FeatureSet, InputError, Tasks, TaskSpec

matplotlib.use("Agg")
R = np.random.default_rng(0)
X = R.normal(size=(12, 4)) + np.repeat(np.eye(4) * 4, 3, 0)
Y = np.repeat(np.arange(4), 3)
QUERY = X[::2]
SCORES = R.dirichlet(np.ones(4), 6)


class Refusing:
    """An object that nothing can be made of, and that cannot be shown."""

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("no array")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Breaking:
    """A list that cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> Any:
        raise RuntimeError("a broken file")


def in_itself() -> list[Any]:
    """A list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


BAD: dict[str, Any] = {
    "None": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "-1": -1,
    "0": 0,
    "10**30": 10**30,
    "-10**30": -(10**30),
    "1.5": 1.5,
    "text": "abc",
    "no text": "",
    "no list": [],
    "list": [1, 2],
    "array": np.zeros((2, 2)),
    "array of texts": np.array(["a", "b"]),
    "object": object(),
    "mapping": {},
    "bytes": b"x",
    "rows of two lengths": [[1, 2], [3]],
    "array without an axis": np.array(3.0),
    "fraction": Fraction(1, 3),
    "sparse tensor": torch.eye(3).to_sparse(),
    "tensor without values": torch.zeros(3, 3, device="meta"),
    "half a character": "\ud800",
    "function": lambda given: given,
    "no array": Refusing(),
    "broken list": Breaking(),
    "list in itself": in_itself(),
}
QUICK = {"max_iter": 2, "rehearse": False, "scale": "l2"}  # what an estimator knows of these, unless it is tried itself
WHOLE = ("Evidence", "PADDLE", "SimpleShot")
ESTIMATORS = [
    name
    for name in manyway.__all__
    if inspect.isclass(getattr(manyway, name)) and hasattr(getattr(manyway, name), "fit")
]


def features() -> FeatureSet:
    return FeatureSet(R.normal(size=(60, 4)), np.repeat(np.arange(6), 10))


def tasks() -> Tasks:
    return Tasks.from_arrays(X[None], Y[None], QUERY[None])


def frame(labels: bool = False) -> pyarrow.Table:
    columns: dict[str, Any] = {"vector": [row.tolist() for row in (X if labels else QUERY)]}
    return pyarrow.table({**columns, **({"label": [str(k) for k in Y]} if labels else {})})


class Samples:
    """A view of FiftyOne, as far as it is read."""

    def values(self, field: str) -> list[Any]:
        return [row.tolist() for row in QUERY]


def answer_of_antenna() -> dict[str, Any]:
    """The response of a pipeline with three detections."""
    labels = ["ant", "bee"]
    algorithm = {"name": "insects", "key": "insects"}
    known = {**algorithm, "task_type": "classification", "version": 1, "category_map": {"labels": labels}}
    detections = [
        {
            "source_image_id": str(at),
            "bbox": {"x1": 0, "y1": 0, "x2": 1, "y2": 1},
            "algorithm": algorithm,
            "timestamp": "2024-07-02T23:14:05",
            "classifications": [{"classification": "ant", "scores": [0.9, 0.1], "algorithm": algorithm}],
        }
        for at in range(3)
    ]
    return {"algorithms": {"insects": known}, "detections": detections}


def foreign(call: Callable[..., Any], good: dict[str, Any], names: list[str]) -> list[str]:
    """The bad values that end in anything but an answer or an InputError."""
    found = []
    for name in names:
        for title, value in BAD.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(**{**good, name: value})
            except InputError as error:
                if "\n" in str(error):
                    found.append(f"{name} = {title}: several lines")
            except Exception as error:
                found.append(f"{name} = {title}: {type(error).__name__}: {error}")
    return found


def parameters(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, one in inspect.signature(function).parameters.items() if one.kind not in kinds]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_of_estimators(name):
    kind = getattr(manyway, name)
    known = parameters(kind)
    few = {name: value for name, value in QUICK.items() if name in known}
    if name not in WHOLE:  # the same code takes the mean from every estimator
        known = [each for each in known if each != "base_mean"]

    def run(**params: Any) -> Any:
        if name == "EvidenceFromScores":
            return kind(**{"classes": list("abcd"), **params}).fit().infer(SCORES)
        return kind(**params).fit(X, Y).infer(QUERY)

    assert foreign(run, few, known) == []


def _evidence() -> Any:
    return manyway.Evidence(**QUICK).fit(X, Y)


def _from_scores() -> Any:
    return manyway.EvidenceFromScores(classes=list("abcd"), max_iter=2).fit()


METHODS = {
    "fit": (lambda: manyway.SimpleShot().fit, {"X": X, "y": Y}),
    "predict": (lambda: manyway.SimpleShot().fit(X, Y).predict, {"X": QUERY}),
    "predict_proba": (lambda: manyway.SimpleShot().fit(X, Y).predict_proba, {"X": QUERY}),
    "score": (lambda: manyway.SimpleShot().fit(X, Y).score, {"X": QUERY, "y": Y[::2]}),
    "infer": (lambda: _evidence().infer, {"X": QUERY}),
    "partial_infer": (lambda: _evidence().partial_infer, {"X": QUERY}),
    "fit of scores": (lambda: _from_scores().fit, {"X": SCORES, "y": list("aabbcc")}),
    "infer of scores": (lambda: _from_scores().infer, {"X": SCORES}),
    "score of scores": (lambda: _from_scores().score, {"X": SCORES, "y": list("aabbcc")}),
    "present": (lambda: _evidence().infer(QUERY).present, {}),
    "possible": (lambda: _evidence().infer(QUERY).possible, {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_arguments_of_methods(name):
    make, good = METHODS[name]
    method = make()
    assert foreign(method, good, parameters(method)) == []


SPEC = TaskSpec(shots=2, k_eff=2, n_query=4)
LIKELIHOODS = torch.log_softmax(torch.tensor(R.normal(size=(1, 6, 4))), -1)
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "solve": (manyway.solve, lambda: {"method": "simpleshot", "tasks": tasks()}),
    "evidence_from_likelihood": (
        manyway.evidence_from_likelihood,
        lambda: {"likelihood": LIKELIHOODS, "counts": torch.ones(1, 4), "max_iter": 2},
    ),
    "sample_tasks": (manyway.sample_tasks, lambda: {"features": features(), "spec": SPEC, "count": 2}),
    "evaluate": (
        manyway.evaluate,
        lambda: {"method": "simpleshot", "features": features(), "spec": SPEC, "n_tasks": 2},
    ),
    "TaskSpec": (TaskSpec, dict),
    "Tasks.from_arrays": (
        Tasks.from_arrays,
        lambda: {"support": X[None], "support_labels": Y[None], "query": QUERY[None]},
    ),
    "FeatureSet": (FeatureSet, lambda: {"features": X, "labels": Y}),
    "FeatureSet.load": (FeatureSet.load, lambda: {"path": "nothing.npz"}),
    "label_frame": (manyway.label_frame, lambda: {"examples": frame(labels=True), "items": frame()}),
    "from_frame": (manyway.from_frame, lambda: {"frame": frame()}),
    "to_frame": (
        manyway.to_frame,
        lambda: {"frame": frame(), "result": manyway.SimpleShot().fit(X, Y).infer(QUERY)},
    ),
    "examine": (manyway.examine, lambda: {"X": X[::3], "y": Y[::3], "n_items": 4}),  # one each: nothing is rehearsed
    "label_antenna": (manyway.label_antenna, lambda: {"response": answer_of_antenna()}),
    "from_fiftyone": (manyway.from_fiftyone, lambda: {"samples": Samples()}),
    "plot_presence": (manyway.plot_presence, lambda: {"result": _evidence().infer(QUERY)}),
    "plot_reliability": (manyway.plot_reliability, lambda: {"probabilities": [[0.9, 0.1]], "labels": [0]}),
    "plot_k_eff": (manyway.plot_k_eff, lambda: {"evaluations": {}}),
}


def test_every_public_function_is_walked():
    functions = {name for name in manyway.__all__ if inspect.isfunction(getattr(manyway, name))}
    assert functions - {"to_fiftyone"} <= {*FUNCTIONS}  # that one needs FiftyOne itself, which is not installed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_of_functions(name):
    import matplotlib.pyplot as plt

    function, good = FUNCTIONS[name]
    assert foreign(function, good(), parameters(function)) == []
    plt.close("all")


def test_items_and_seed_of_an_examination():
    good = {"X": X, "y": Y, "n_present": (), "n_items": 4}
    assert foreign(manyway.examine, good, ["items", "seed"]) == []


def test_a_misspelt_parameter_is_said_with_the_right_one():
    with pytest.raises(InputError, match="Evidence has no parameter 'openset'; did you mean 'open_set'"):
        manyway.Evidence(openset=True)
    with pytest.raises(InputError, match="did you mean 'max_iter'"):
        manyway.Evidence().set_params(maxiter=3)
    with pytest.raises(TypeError):  # as Python and scikit-learn call it
        manyway.Evidence(openset=True)
    with pytest.raises(InputError, match="sample_tasks has no parameter 'sed'; did you mean 'seed'"):
        manyway.sample_tasks(features(), SPEC, sed=1)


@pytest.mark.parametrize(
    ("made", "named", "message"),
    [
        (manyway.EvidenceFromScores, {"clases": ["a", "b"]}, "no parameter 'clases'; did you mean 'classes'"),
        (TaskSpec, {"shot": 5}, "no parameter 'shot'; did you mean 'shots'"),
        (FeatureSet, {"featurs": X, "labels": Y}, "no parameter 'featurs'; did you mean 'features'"),
    ],
)
def test_a_misspelt_parameter_of_a_class_is_said_with_the_right_one(made, named, message):
    with pytest.raises(InputError, match=f"{made.__name__} has {message}"):
        made(**named)
