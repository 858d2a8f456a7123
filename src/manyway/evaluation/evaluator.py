"""``evaluate``: how good a method is on many tasks that are drawn from a feature set."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar
from warnings import warn

import numpy as np
import torch

from manyway.core import Solution, Tasks, side_by_side
from manyway.core.arguments import checks_arguments, shown
from manyway.errors import InputError, named
from manyway.evaluation.metrics import METRICS, Count, Metric, Values, find_summary
from manyway.evaluation.review import review
from manyway.evaluation.scorers import get_scorer
from manyway.evaluation.statistics import Interval
from manyway.methods import check_solution, get_method
from manyway.sampling import FeatureSet, TaskSpec, sample_groups, sample_tasks

# Working memory of a chunk of tasks. It follows from the shapes alone, never from the machine, so that the same
# experiment is cut into the same chunks everywhere and gives the same bits.
_CHUNK_BYTES = {"cpu": 64 * 2**20, "cuda": 40 * 2**30}
# of indices; drawing tasks for many chunks at a time costs less than chunk by chunk
_DRAWN_BYTES = 2**25

_Chunk = TypeVar("_Chunk", Tasks, range)  # tasks, or their numbers


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What ``evaluate`` returns: the outcome of one method on a stream of tasks.

    Parameters
    ----------
    correct : ndarray of shape [n_tasks]
        The number of correct answers in each task; unknown queries do not count.
    n_query : int
        The number of known queries per task, or per stream: the most, where tasks differ.
    seconds : float
        The time spent in the solver, summed over chunks.
    metrics : mapping of str to ndarray of shape [n_tasks, ...]
        What was measured besides accuracy, one value per task.

    Attributes
    ----------
    accuracy : float
        The mean over tasks, as a fraction.
    ci95 : float
        Half the width of its 95 % interval.

    Examples
    --------
    >>> import numpy as np
    >>> Evaluation(np.array([8, 9, 10]), n_query=10, seconds=0.1).accuracy
    0.9
    """

    correct: np.ndarray[Any, np.dtype[np.int64]]
    n_query: int
    seconds: float
    metrics: Mapping[str, Values] = field(default_factory=dict)

    @property
    def sizes(self) -> Count:
        """The number of known queries: one number, or [n_tasks] where tasks differ."""
        return self.metrics.get("n_query", self.n_query)

    @property
    def accuracies(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """[n_tasks] as fractions."""
        return self.correct / self.sizes

    @property
    def accuracy(self) -> float:
        """Mean over tasks, as a fraction."""
        return self.value("accuracy").mean

    @property
    def ci95(self) -> float:
        """Half the width of the 95 % interval of the mean accuracy (Student's t over tasks)."""
        return self.value("accuracy").half

    def value(self, name: str = "accuracy") -> Interval:
        """A metric over all tasks with its 95 % interval.

        Parameters
        ----------
        name : str, default="accuracy"
            ``accuracy``, ``calibration``, ``n_present.within``, …;
            see ``manyway.evaluation.metrics``.

        Returns
        -------
        Interval
        """
        metric, summary = find_summary(name)
        values = {"accuracy": self.correct, **self.metrics}
        if metric.name not in values:
            raise InputError(
                f"'{metric.name}' was not measured; call evaluate with metrics=('{metric.name}',)."
            )
        return summary.of(values[metric.name], self.sizes)


@checks_arguments
def evaluate(
    method: str | Callable[..., Solution] | Any,
    features: FeatureSet,
    spec: TaskSpec,
    n_tasks: int = 10_000,
    seed: int = 0,
    device: torch.device | str | None = None,
    *,
    metrics: Iterable[str] = (),
    scorer: str | None = None,
    start: int = 0,
    progress: Callable[[int], None] | None = None,
    **params: Any,
) -> Evaluation:
    """Measure a method on many tasks.

    On a CPU, chunks of tasks run at the same time with one thread each, because a single task is
    too small to be divided among cores. On a GPU, a chunk that does not fit into memory is halved,
    and those after it too.

    Parameters
    ----------
    method : str, function or estimator
        A name in ``METHODS``; a function ``(tasks, **params) -> Solution``; or an object with
        ``fit`` and ``predict``, such as a scikit-learn classifier, which is fitted to the support
        of each task and predicts its queries.
    features : FeatureSet
        What tasks are drawn from.
    spec : TaskSpec
        What a task looks like.
    n_tasks, seed, start : int
        Tasks ``start`` to ``start + n_tasks - 1`` of the sequence that ``seed`` defines. With
        ``spec.n_batches``, the number of streams; a value is then that of a whole stream.
    device : str or torch.device, optional
        Where to run. Default: where the features are.
    metrics : iterable of str
        What to measure besides accuracy: names in ``manyway.evaluation.metrics.METRICS``.
    scorer : str, optional
        A name in ``manyway.evaluation.scorers.SCORERS``: metrics of unknown queries then use its
        score instead of the method's own.
    progress : function, optional
        Called with the number of tasks of each finished chunk.
    **params
        Parameters of the method. An estimator has its own and takes none.

    Returns
    -------
    Evaluation
        ``accuracy``, ``ci95``, ``correct`` per task, ``seconds`` and the ``metrics``.

    Warns
    -----
    UserWarning
        If tasks differ from those that the method's parameters were learned on.

    Examples
    --------
    >>> from manyway import FeatureSet, TaskSpec, evaluate
    >>> features = FeatureSet([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], [0, 0, 0, 1, 1, 1])
    >>> spec = TaskSpec(shots=1, k_eff=2, n_query=4)
    >>> evaluate("simpleshot", features, spec, n_tasks=10, scale=None).accuracy
    1.0
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> result = evaluate(KNeighborsClassifier(1), features, spec, n_tasks=10, metrics=["confidence"])
    >>> result.accuracy, result.value("confidence").mean
    (1.0, 1.0)
    """
    if n_tasks < 1:
        raise InputError(f"n_tasks is {n_tasks}; it must be at least 1.")
    if spec.reviewer is not None and not isinstance(method, str):
        raise InputError("A reviewer needs a method by its name, such as 'evidence'.")
    measured = _measured(metrics, spec, scorer)
    solver, name = _solver(method, params, len(measured) > 1)
    if spec.reviewer is not None:
        solver = partial(review, name, n_answers=spec.n_answers, reviewer=spec.reviewer)
    features = features.to(device=device)
    if isinstance(spec.unknown_from, FeatureSet):
        spec = replace(spec, unknown_from=spec.unknown_from.to(features.features.device))
    size = chunk_size(method, features, spec)
    limit = size
    if features.features.device.type == "cuda":
        limit = _fitting(size, method, features, spec)
    unlike = _unlike_training(method, params, features, spec)
    if unlike is not None:
        warn(unlike, UserWarning, stacklevel=2)
    measurement = _Measurement(
        solver=partial(solver, **params),
        name=name,
        features=features,
        spec=spec,
        metrics=measured,
        scorer=scorer,
        progress=progress,
        limit=limit,
    )
    parts = measurement.of_all(seed, range(start, start + n_tasks), size)
    correct, *others = parts.values
    more = {metric.name: values for metric, values in zip(measured[1:], others, strict=True)}
    return Evaluation(correct, spec.n_known, parts.seconds, more)


class _Measured(NamedTuple):
    """What was measured on some tasks, or on some streams of batches."""

    values: list[Values]  # of each metric
    seconds: float  # in the solver

    @staticmethod
    def joined(parts: Sequence["_Measured"]) -> "_Measured":
        """Those of several stretches of tasks as one."""
        by_metric = zip(*(part.values for part in parts), strict=True)
        values = [np.concatenate(stretches) for stretches in by_metric]
        return _Measured(values, sum(part.seconds for part in parts))


@dataclass
class _Measurement:
    """A method whose answers are measured, chunk by chunk of tasks."""

    solver: Callable[[Tasks], Solution]
    name: str
    features: FeatureSet
    spec: TaskSpec
    metrics: Sequence[Metric]
    scorer: str | None
    progress: Callable[[int], None] | None
    limit: int  # tasks, or streams, that have fitted into memory so far

    def of_all(self, seed: int, numbers: range, size: int) -> _Measured:
        """The tasks with some numbers, in chunks of that size."""
        if self.spec.is_ragged:
            chunks = [numbers[place : place + size] for place in range(0, len(numbers), size)]
            return _Measured.joined(self._each(partial(self._of_ragged, seed), chunks))
        spec = self.spec
        n_samples = spec.n_queries * spec.n_batches + _n_support(self.features, spec)
        drawn = size * max(1, _DRAWN_BYTES // (8 * size * n_samples))  # whole chunks
        rows = size * spec.n_batches
        parts: list[_Measured] = []
        for first in numbers[::drawn]:
            count = min(drawn, numbers.stop - first)
            tasks = sample_tasks(self.features, spec, seed, first, count)
            chunks_of_tasks = [tasks[place : place + rows] for place in range(0, len(tasks), rows)]
            parts += self._each(self._of, chunks_of_tasks)
        return _Measured.joined(parts)

    def _each(
        self, measure: Callable[[_Chunk], _Measured], chunks: Sequence[_Chunk]
    ) -> list[_Measured]:
        """Measure every chunk: on a CPU several at a time."""
        if self.features.features.device.type == "cpu":
            return side_by_side(measure, chunks)
        return [measure(chunk) for chunk in chunks]

    def _of_ragged(self, seed: int, numbers: range) -> _Measured:
        """A chunk of tasks that differ in their number of queries.

        Tasks with as many queries are solved together.
        """
        groups = sample_groups(self.features, self.spec, seed, numbers.start, len(numbers))
        found = _Measured.joined([self._of(tasks) for _, tasks in groups])
        order = torch.cat([places for places, _ in groups]).argsort().numpy()
        return found._replace(values=[values[order] for values in found.values])

    def _of(self, tasks: Tasks) -> _Measured:
        """Some tasks, or whole streams, whose batches are rows of the tasks.

        Where they do not fit into the memory of a GPU, one half after the other.
        """
        n_units = len(tasks) // self.spec.n_batches
        if n_units <= self.limit:
            try:
                return self._attempt(tasks)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                if n_units == 1:
                    raise InputError(
                        f"{self.name} needs more GPU memory than there is for a single task."
                    ) from error
            # Here and not inside `except`: the exception keeps the failed attempt's tensors alive.
            torch.cuda.empty_cache()
            self.limit = (n_units + 1) // 2
        half = (n_units + 1) // 2 * self.spec.n_batches
        return _Measured.joined([self._of(tasks[:half]), self._of(tasks[half:])])

    def _attempt(self, tasks: Tasks) -> _Measured:
        begin = clock(self.features)
        solution = self.solver(tasks)
        seconds = clock(self.features) - begin
        if self.scorer is not None:
            solution = solution.changed(unknown=get_scorer(self.scorer).score(tasks))
        values = [self._measure(metric, solution, tasks) for metric in self.metrics]
        if self.progress is not None:
            self.progress(len(tasks) // self.spec.n_batches)
        return _Measured(values, seconds)

    def _measure(self, metric: Metric, solution: Solution, tasks: Tasks) -> Values:
        values = metric.measure(solution, tasks).detach().cpu().numpy()
        undefined = np.isnan(values) & metric.may_be_undefined
        if not (np.isfinite(values) | undefined).all():
            raise InputError(
                f"{self.name} gives values of the metric {metric.name} that are not finite."
            )
        if self.spec.n_batches > 1:
            return metric.in_streams(values, self.spec.n_batches)
        return values


def _measured(names: Iterable[str], spec: TaskSpec, scorer: str | None) -> list[Metric]:
    """The metrics of those names, accuracy first.

    With the number of queries, where tasks differ in it.
    """
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        metric = named(METRICS, name, "metric")
        if spec.n_batches > 1 and metric.over_batches is None:
            raise InputError(
                f"The metric {name} is not defined for a stream of batches; leave it out."
            )
        if scorer is not None and metric.of_probability:
            raise InputError(
                f"The metric {name} needs a probability, and the scorer {scorer} has none; "
                "leave it out."
            )
    if scorer is not None:
        get_scorer(scorer)
    sizes = ["n_query"] if spec.is_ragged else []
    return [METRICS[name] for name in dict.fromkeys(["accuracy", *names, *sizes])]


def _solver(
    method: Any, params: Mapping[str, Any], with_probabilities: bool
) -> tuple[Callable[..., Solution], str]:
    """The function that solves tasks, and what to call it."""
    if isinstance(method, str):
        return get_method(method), method
    if hasattr(method, "fit") and hasattr(method, "predict") and not isinstance(method, type):
        name = type(method).__name__
        if params:
            raise InputError(
                f"{name} has its own parameters; set '{next(iter(params))}' when you make it."
            )
        return lambda tasks: fit_and_predict(method, tasks, with_probabilities), name
    if callable(method) and not isinstance(method, type):
        name = getattr(method, "__name__", "the function")
        return partial(_checked, method, name), name
    raise InputError(
        f"The method is {shown(method)}; give a name, "
        "a function or an estimator object with fit and predict."
    )


def _checked(
    function: Callable[..., Solution], name: str, tasks: Tasks, /, **params: Any
) -> Solution:
    """What a function of a user returns for tasks, as ``solve`` checks what methods return."""
    solution = function(tasks, **params)
    check_solution(name, tasks, solution)
    return solution


def _unlike_training(
    method: Any, params: Mapping[str, Any], features: FeatureSet, spec: TaskSpec
) -> str | None:
    """A sentence where the tasks differ from those that the parameters of a method were learned on."""
    if not isinstance(method, str):
        return None
    n_classes = spec.ways(features.n_classes)
    k_eff = spec.k_eff if isinstance(spec.k_eff, int) else None
    sizes = {"n_classes": n_classes, "n_query": spec.n_queries}
    shots = _n_support(features, spec) / n_classes
    return get_method(method).unlike_training(params, shots=shots, k_eff=k_eff, **sizes)


def fit_and_predict(estimator: Any, tasks: Tasks, with_probabilities: bool) -> Solution:
    """An estimator fitted to the support of each task, and its answers for the queries."""
    from sklearn.base import clone

    support = tasks.support.cpu().numpy()
    query = tasks.query.cpu().numpy()
    labels = tasks.support_labels.cpu().numpy()
    predicted = []
    probabilities = np.zeros((len(tasks), tasks.n_query, tasks.n_classes))
    for t in range(len(tasks)):
        fitted = clone(estimator, safe=False).fit(support[t], labels[t])
        predicted.append(_answers(type(fitted).__name__, fitted.predict(query[t]), tasks))
        if with_probabilities and hasattr(fitted, "predict_proba"):
            columns = np.asarray(fitted.classes_).astype(np.int64)
            probabilities[t][:, columns] = fitted.predict_proba(query[t])
        else:
            known = (predicted[t] >= 0).nonzero()[0]
            probabilities[t, known, predicted[t][known]] = 1.0
    answers = torch.from_numpy(probabilities).to(tasks.device, tasks.dtype)
    return Solution(answers, 1, True, labels=torch.from_numpy(np.stack(predicted)).to(tasks.device))


def _answers(name: str, given: Any, tasks: Tasks) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[q] what an estimator of that name has predicted: classes of the support, or -1 for none."""
    found = np.asarray(given)
    if found.shape != (tasks.n_query,):
        raise InputError(
            f"{name} has predicted an array of shape {found.shape} for {tasks.n_query} queries."
        )
    wrong = ~np.isin(found, np.arange(-1, tasks.n_classes))
    if wrong.any():
        raise InputError(
            f"{name} has predicted {found[wrong].tolist()[0]!r}, which is no label of the support."
        )
    return found.astype(np.int64)


def chunk_size(method: Any, features: FeatureSet, spec: TaskSpec, device: str | None = None) -> int:
    """How many tasks to solve together on that type of device.

    None is the one that the features are on.
    """
    kind = features.features.device.type if device is None else torch.device(device).type
    memory = _CHUNK_BYTES.get(kind, _CHUNK_BYTES["cpu"])
    return max(1, memory // _task_bytes(method, features, spec, kind))


def _task_bytes(method: Any, features: FeatureSet, spec: TaskSpec, kind: str) -> int:
    """The memory of one task (or stream) in a solver.

    Class sums, prototypes, samples, [n, k] arrays, one [q, q].
    """
    n_ways = spec.ways(features.n_classes)
    n_support = _n_support(features, spec)
    holds_support = get_method(method).holds_support if isinstance(method, str) else True
    samples = spec.n_queries
    if holds_support in (True, kind):
        samples += n_support
    n_features = features.features.shape[1]
    numbers = 2 * (n_ways + samples) * n_features + 4 * samples * n_ways + spec.n_queries**2
    return (numbers + 2 * n_support) * features.features.element_size() * spec.n_batches


def _n_support(features: FeatureSet, spec: TaskSpec) -> int:
    """The number of support samples of a task."""
    if spec.shots is not None:
        return spec.shots * spec.ways(features.n_classes)
    return 0 if features.is_support is None else int(features.is_support.sum())


def _fitting(size: int, method: Any, features: FeatureSet, spec: TaskSpec) -> int:
    """The chunk size, halved until a chunk fits into the free memory of the GPU."""
    device = features.features.device
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    while size > 1 and size * _task_bytes(method, features, spec, device.type) > free:
        size = (size + 1) // 2
    return size


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a GPU had too little memory.

    PyTorch says so with an exception of its own. A kernel or a library that asks for memory itself,
    while another process has the rest, fails in other words.
    """
    words = str(error)
    return (
        isinstance(error, torch.cuda.OutOfMemoryError)
        or "CUDA error: out of memory" in words
        or "CUBLAS_STATUS_ALLOC_FAILED" in words
    )


def clock(features: FeatureSet) -> float:
    """The time in seconds, when all work on the device of the features is done."""
    if features.features.device.type == "cuda":
        torch.cuda.synchronize(features.features.device)
    return time.perf_counter()
