"""Choosing hyper-parameters on validation classes, and the file that suites read them from.

A grid is a suite whose methods have something to sweep or to learn (``suites/tune.toml``). For each
of its feature sets and methods the point with the highest accuracy is chosen, or the parameters are
learned. PADDLE has no parameter to tune and is refused.

The parameters of UNEM are learned by gradients through its layers. A step of Adam uses all tasks.
They are gone through in chunks, so that memory stays bounded, and the gradients of the chunks are
added up in their order. After every step the state is written to a file: a run that was stopped and
continued gives the same parameters, bit for bit, as one that was not.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from manyway.bench.plan import Job
from manyway.bench.records import Record, Stored, digest, now, plain_values, write_text
from manyway.bench.suite import Learning, Suite, Tuned, check_experiment_params
from manyway.core import Strict, Tasks, checked, side_by_side, transform
from manyway.errors import InputError
from manyway.evaluation import Evaluation, evaluate
from manyway.files import text_of
from manyway.methods import METHODS, get_method
from manyway.methods.gradient.information import Adam
from manyway.methods.paddle.forms import prototype_form
from manyway.methods.unem.parameters import Parameters, read_parameters
from manyway.methods.unem.solver import last_logits
from manyway.sampling import sample_tasks, task_fields

FILE = "tuned.json"
# from the shapes alone, so that a run is cut the same way everywhere
_CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**31}
_FIRST = 1.0  # every parameter before softplus, as the authors start
# of the features: with unit vectors the first layers would put all queries into one class
_FIRST_NORM = 10.0


def check_grid(suite: Suite) -> None:
    """Refuse a grid that tunes PADDLE, or nothing."""
    tuned = {method for block in suite.blocks for method in (*block.sweep, *block.learn)}
    if "paddle" in tuned:
        raise InputError(
            "PADDLE is never tuned: its λ is |Q| by construction. Sweep it in a suite of its own."
        )
    idle = [
        m
        for block in suite.blocks
        for m in block.methods
        if m not in block.sweep and m not in block.learn
    ]
    if idle or not tuned:
        names = ", ".join(idle) or "any method"
        raise InputError(
            f"{suite.name} has nothing to sweep for {names}; give each method a sweep."
        )


def check_lessons(jobs: Sequence[Job]) -> None:
    """Refuse tasks that nothing can be learned on.

    Tasks of several kinds for one method and feature set are refused too.
    """
    for job in jobs:
        task = job.experiment.task
        if (
            task.shots == 0
            or task.n_unknown
            or task.n_batches > 1
            or task.reviewer
            or not isinstance(task.k_eff, int)
        ):
            possible = (
                "tasks with examples and one k_eff, without unknown queries, streams and reviewers"
            )
            raise InputError(f"{job.experiment.method} is learned on {possible}; change the task.")
    places = [(job.experiment.method, meant_for(job.experiment.features)) for job in jobs]
    for method, target in places:
        if places.count((method, target)) > 1:
            raise InputError(
                f"{method} can be learned on tasks of one kind only for {target}; "
                "choose one with `only`."
            )


def choose(records: Sequence[Record], suite: Suite) -> dict[str, dict[str, dict[str, Any]]]:
    """The best point of each method on each feature set, named as the set it is meant for."""
    swept = {method: sorted(axes) for block in suite.blocks for method, axes in block.sweep.items()}
    chosen: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        if record.old:
            continue
        result = record.value("accuracy")
        target = chosen.setdefault(meant_for(record.features.name), {})
        if record.method not in target or result.mean > target[record.method]["accuracy"]:
            params = {name: record.params[name] for name in swept[record.method]}
            origin = record.features.name, record.features.fingerprint
            target[record.method] = {
                **chosen_entry(params, result.mean, result.half, *origin),
                "record": record.key,
            }
    return chosen


def chosen_entry(
    params: Mapping[str, Any], accuracy: float, ci95: float, *origin: str
) -> dict[str, Any]:
    """What the file says about a choice: parameters, how good they are, on which features."""
    found = {"params": params, "accuracy": accuracy, "ci95": ci95}
    return found | dict(zip(("validation", "fingerprint"), origin, strict=True))


def meant_for(validation: str) -> str:
    """The feature set that a validation set serves: its name without the ending.

    >>> meant_for("mini-rn18-val"), meant_for("birds_val"), meant_for("birds")
    ('mini-rn18', 'birds', 'birds')
    """
    return re.sub(r"[-_]val(idation)?\Z", "", validation)


def write_tuned(chosen: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Add what was chosen to the file; entries of other feature sets and methods stay."""
    known = _read(path)["chosen"] if path.exists() else {}
    merged = {
        name: {**known.get(name, {}), **chosen.get(name, {})} for name in sorted({*known, *chosen})
    }
    write_text(path, json.dumps({"created": now(), "chosen": merged}, indent=1) + "\n")


def read_tuned(path: Path | None, results: Path) -> Tuned:
    """The chosen parameters; empty when nothing was tuned and no file is named."""
    if path is None and not (results / FILE).exists():
        return {}
    if path is None:
        path = results / FILE
    chosen = _read(path)["chosen"]
    for name, of in chosen.items():
        for method, entry in of.items():
            if method in METHODS:
                check_experiment_params(method, entry["params"], f"{path}: {name}.{method}")
    return {
        name: {method: entry["params"] for method, entry in of.items()}
        for name, of in chosen.items()
    }


class _TunedEntry(Strict):
    model_config = ConfigDict(extra="allow")
    params: dict[str, Any]


class _TunedFile(Strict):
    model_config = ConfigDict(extra="allow")
    chosen: dict[str, dict[str, _TunedEntry]]


def _read(path: Path) -> dict[str, Any]:
    wrong = f"{path} is not a file of tuned parameters (make one with `manyway tune`)"
    try:
        data: dict[str, Any] = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{wrong}: {error}.") from error
    checked(_TunedFile, data, wrong)
    return data


def training_of(job: Job) -> dict[str, Any]:
    """What the file of parameters says about how they were learned.

    It is all that decides what is learned.
    """
    asked = job.experiment
    assert asked.learn is not None
    features = {"features": asked.features, "fingerprint": job.features.fingerprint}
    task = {name: value for name, value in task_fields(asked.task).items() if name != "n_ways"}
    sizes = {
        "n_classes": asked.task.ways(job.features.n_classes),
        "n_tasks": asked.n_tasks,
        "seed": asked.seed,
    }
    made = {
        **features,
        **task,
        **sizes,
        "version": get_method("unem").version,
        **asked.learn.model_dump(),
    }
    return dict(plain_values(made))


def validate(job: Job, parameters: Parameters, device: str | None) -> Evaluation:
    """Accuracy on as many other tasks of the same classes."""
    asked = job.experiment
    given = parameters.to_json()
    sizes = asked.n_tasks, asked.seed, device
    return evaluate("unem", job.features, asked.task, *sizes, start=asked.n_tasks, parameters=given)


class _LearningState(Stored):
    """Parameters before softplus, and what Adam remembers of their gradients, after some steps."""

    what: ClassVar[str] = "the state of a training"

    training: dict[str, Any]
    step: int
    values: list[float]
    mean: list[float]
    square: list[float]

    @classmethod
    def of(cls, training: dict[str, Any], step: int, adam: Adam) -> "_LearningState":
        return cls(
            training=training,
            step=step,
            values=adam.parameters.tolist(),
            mean=adam.mean.tolist(),
            square=adam.square.tolist(),
        )

    @property
    def adam(self) -> Adam:
        vectors = (self.values, self.mean, self.square)
        return Adam(*(torch.tensor(vector, dtype=torch.float64) for vector in vectors))


def learn_job(
    job: Job, results: Path, device: str | None, rerun: bool, progress: Callable[[int], None]
) -> tuple[str, dict[str, Any]]:
    """Learn what a job says, unless its file is there.

    Returns the feature set it is for, and the entry of what was chosen.
    """
    target = meant_for(job.experiment.features)
    # Every lesson has a checkpoint of its own.
    checkpoint = results / "learning" / f"unem-{digest(training_of(job))[:16]}.json"
    path = results / f"unem-{target}.json"
    if rerun:
        checkpoint.unlink(missing_ok=True)
    parameters = None if rerun else already_learned(job, path)
    if parameters is None:
        parameters = learn(job, checkpoint, device, progress)
        write_text(path, json.dumps(parameters.to_json(), indent=1) + "\n")
    found = validate(job, parameters, device)
    origin = (job.experiment.features, job.features.fingerprint)
    params = {"parameters": parameters.to_json()}
    return target, {**chosen_entry(params, found.accuracy, found.ci95, *origin), "file": str(path)}


def learn(
    job: Job,
    checkpoint: Path,
    device: str | None = None,
    progress: Callable[[int], None] = lambda n_tasks: None,
) -> Parameters:
    """Learn by the steps that the job says, from where the checkpoint is, if there is one.

    ``progress`` is called with the number of tasks of every chunk and, at the start, of all steps
    already done. The checkpoint is removed at the end.
    """
    asked = job.experiment
    training = training_of(job)
    learning = asked.learn
    n_tasks = asked.n_tasks
    assert learning is not None
    tasks = sample_tasks(job.features.to(device=device), asked.task, asked.seed, 0, n_tasks)
    memory = _CHUNK_BYTES["cuda" if tasks.device.type == "cuda" else "cpu"]
    size = max(1, memory // _task_bytes(tasks, learning))
    chunks = [tasks[first : first + size] for first in range(0, n_tasks, size)]
    step, adam = _resume(checkpoint, training, 1 + 2 * learning.layers)
    progress(step * n_tasks)

    def work(chunk: Tasks) -> tuple[Tensor, float]:
        found = loss_gradient(chunk, adam.parameters, learning)
        progress(len(chunk))
        return found

    n_queries = n_tasks * tasks.n_query
    while step < learning.steps:
        if tasks.device.type == "cpu":
            parts = side_by_side(work, chunks)
        else:
            parts = [work(chunk) for chunk in chunks]
        gradient = torch.stack([part for part, _ in parts]).sum(0) / n_queries
        loss = sum(part for _, part in parts) / n_queries
        rate = learning.lr * 0.5 ** (step // learning.halve_every)
        step += 1
        adam = adam.step(gradient, step, rate)
        if not bool(torch.isfinite(adam.parameters).all()):
            raise InputError(
                f"unem on {asked.features}: step {step} has a loss of {loss}; lower lr."
            )
        write_text(checkpoint, _LearningState.of(training, step, adam).to_json())
    checkpoint.unlink(missing_ok=True)
    feature_scale, lam, temperature = effective(adam.parameters)
    return Parameters(
        layers=learning.layers,
        scale=learning.scale,
        training=training,
        feature_scale=float(feature_scale),
        lam=tuple(lam.tolist()),
        temperature=tuple(temperature.tolist()),
    )


def loss_gradient(tasks: Tasks, values: Tensor, learning: Learning) -> tuple[Tensor, float]:
    """The loss summed over all queries, and its gradient.

    The gradient is with respect to the parameters before softplus.
    """
    assert tasks.query_labels is not None
    problem = prototype_form(transform(tasks, learning.scale), "gram")
    with torch.enable_grad():
        values = values.detach().to(tasks.device).requires_grad_()
        feature_scale, lam, temperature = effective(values)
        parameters = torch.cat([feature_scale.view(1), lam, temperature])
        logits = last_logits(problem, parameters).flatten(0, 1)
        if learning.loss == "double-softmax":
            logits = logits.softmax(-1)
        loss = cross_entropy(logits, tasks.query_labels.flatten(), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, values)
    return gradient.cpu(), float(loss.detach())


def effective(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The feature scale, λ [l] and the temperature [l] of parameters before softplus [1 + 2 l]."""
    positive = softplus(values)
    n_layers = len(values) // 2
    return _FIRST_NORM * positive[0], positive[1 : 1 + n_layers], 1 + positive[1 + n_layers :]


def already_learned(job: Job, path: Path) -> Parameters | None:
    """The parameters in a file, if this job made it.

    None if there is no file, or one of another job.
    """
    found = read_parameters(path) if path.exists() else None
    if found is not None and plain_values(found.training) == training_of(job):
        return found
    return None


def _task_bytes(tasks: Tasks, learning: Learning) -> int:
    """The memory of one task, roughly: what autograd keeps of every layer, and the features."""
    per_layer = 6 * tasks.n_query * tasks.n_classes
    features = (tasks.n_support + tasks.n_query + tasks.n_classes) * tasks.n_features
    numbers = learning.layers * per_layer + tasks.n_query**2 + 2 * features
    return numbers * tasks.query_table.element_size()


def _resume(path: Path, training: Mapping[str, Any], n_values: int) -> tuple[int, Adam]:
    """The number of steps done, and what they led to."""
    if not path.exists():
        return 0, Adam.start(torch.full((n_values,), _FIRST, dtype=torch.float64))
    state = _LearningState.read(path)
    if state.training != training or state.step < 1:
        raise InputError(f"{path} is the state of another training; remove it.")
    if {len(state.values), len(state.mean), len(state.square)} != {n_values}:
        raise InputError(f"{path} does not have {n_values} values of each kind; remove it.")
    return state.step, state.adam
