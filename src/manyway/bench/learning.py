"""Learning the parameters of UNEM on validation classes, by gradients through its layers.

A step of Adam uses all tasks. They are gone through in chunks, so that memory stays bounded, and the gradients of the
chunks are added up in their order. After every step the state is written to a file: a run that was stopped and
continued gives the same parameters, bit for bit, as one that was not.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from manyway.bench.plan import Job
from manyway.bench.records import Stored, plain
from manyway.bench.store import write_text
from manyway.bench.suite import Learning
from manyway.bench.tuning import meant_for
from manyway.core import Tasks, side_by_side, transform
from manyway.errors import InputError
from manyway.evaluation.evaluator import Evaluation, evaluate
from manyway.methods import get_method
from manyway.methods.gradient.adam import adam_step
from manyway.methods.paddle.forms import prototype_form
from manyway.methods.unem.parameters import Parameters, read_parameters
from manyway.methods.unem.solver import last_logits
from manyway.sampling.sampling import sample_tasks
from manyway.sampling.spec import task_fields

_CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**31}  # from the shapes alone, so that a run is cut the same way everywhere
_FIRST = 1.0  # every parameter before softplus, as the authors start
_FIRST_NORM = 10.0  # of the features: with unit vectors the first layers would put all queries into one class


def training_of(job: Job) -> dict[str, Any]:
    """What the file of parameters says about how they were learned; all that decides what is learned."""
    asked = job.experiment
    assert asked.learn is not None
    task = {name: value for name, value in task_fields(asked.task).items() if name != "n_ways"}
    made: dict[str, Any] = plain(
        {
            "features": asked.features,
            "fingerprint": job.features.fingerprint,
            **task,
            "n_classes": asked.task.ways(job.features.n_classes),
            "n_tasks": asked.n_tasks,
            "seed": asked.seed,
            "version": get_method("unem").version,
            **asked.learn.model_dump(),
        }
    )
    return made


def validate(job: Job, parameters: Parameters, device: str | None) -> Evaluation:
    """Accuracy on as many other tasks of the same classes."""
    asked, given = job.experiment, parameters.to_json()
    sizes = asked.n_tasks, asked.seed, device
    return evaluate("unem", job.features, asked.task, *sizes, start=asked.n_tasks, parameters=given)


class _State(Stored):
    """Parameters before softplus, and what Adam remembers of their gradients, after some steps."""

    what: ClassVar[str] = "the state of a training"

    training: dict[str, Any]
    step: int
    values: list[float]
    mean: list[float]
    square: list[float]


def learn_job(
    job: Job, results: Path, device: str | None, rerun: bool, progress: Callable[[int], None]
) -> tuple[str, dict[str, Any]]:
    """Learn what a job says, unless its file is there; the feature set it is for, and the entry of what was chosen."""
    target = meant_for(job.experiment.features)
    digest = hashlib.sha256(json.dumps(training_of(job), sort_keys=True).encode()).hexdigest()[:16]
    # Every lesson has a checkpoint of its own.
    path, checkpoint = results / f"unem-{target}.json", results / "learning" / f"unem-{digest}.json"
    if rerun:
        checkpoint.unlink(missing_ok=True)
    parameters = None if rerun else already_learned(job, path)
    if parameters is None:
        parameters = learn(job, checkpoint, device, progress)
        write_text(path, json.dumps(parameters.to_json(), indent=1) + "\n")
    found = validate(job, parameters, device)
    return target, {
        "params": {"parameters": parameters.to_json()},
        "accuracy": found.accuracy,
        "ci95": found.ci95,
        "validation": job.experiment.features,
        "fingerprint": job.features.fingerprint,
        "file": str(path),
    }


def learn(
    job: Job, checkpoint: Path, device: str | None = None, progress: Callable[[int], None] = lambda n_tasks: None
) -> Parameters:
    """Learn by the steps that the job says, from where the checkpoint is, if there is one.

    ``progress`` is called with the number of tasks of every chunk and, at the start, of all steps already done. The
    checkpoint is removed at the end.
    """
    asked, training = job.experiment, training_of(job)
    learning, n_tasks = asked.learn, asked.n_tasks
    assert learning is not None
    if asked.task.n_unknown:
        raise InputError("unem learns from queries of known classes; leave n_unknown out.")
    tasks = sample_tasks(job.features.to(device=device), asked.task, asked.seed, 0, n_tasks)
    size = max(1, _CHUNK_BYTES["cuda" if tasks.device.type == "cuda" else "cpu"] // _task_bytes(tasks, learning))
    chunks = [tasks[first : first + size] for first in range(0, n_tasks, size)]
    step, values, mean, square = _resume(checkpoint, training, 1 + 2 * learning.layers)
    progress(step * n_tasks)

    def work(chunk: Tasks) -> tuple[Tensor, float]:
        found = loss_gradient(chunk, values, learning)
        progress(len(chunk))
        return found

    loss = float("nan")
    while step < learning.steps:
        parts = side_by_side(work, chunks) if tasks.device.type == "cpu" else list(map(work, chunks))
        gradient = torch.stack([part for part, _ in parts]).sum(0) / (n_tasks * tasks.n_query)
        loss = sum(part for _, part in parts) / (n_tasks * tasks.n_query)
        rate = learning.lr * 0.5 ** (step // learning.halve_every)
        step += 1
        values, mean, square = adam_step(values, mean, square, gradient, step, rate)
        if not bool(torch.isfinite(values).all()):
            raise InputError(f"unem on {asked.features}: step {step} has a loss of {loss}; lower lr.")
        kept = {"values": values.tolist(), "mean": mean.tolist(), "square": square.tolist()}
        write_text(checkpoint, _State(training=training, step=step, **kept).to_json())
    feature_scale, lam, temperature = effective(values)
    checkpoint.unlink(missing_ok=True)
    return Parameters(
        layers=learning.layers,
        feature_scale=float(feature_scale),
        lam=tuple(lam.tolist()),
        temperature=tuple(temperature.tolist()),
        scale=learning.scale,
        training=training,
    )


def loss_gradient(tasks: Tasks, values: Tensor, learning: Learning) -> tuple[Tensor, float]:
    """The loss summed over all queries, and its gradient with respect to the parameters before softplus."""
    assert tasks.query_labels is not None
    problem = prototype_form(transform(tasks, learning.scale), "gram")
    with torch.enable_grad():
        values = values.detach().to(tasks.device).requires_grad_()
        feature_scale, lam, temperature = effective(values)
        logits = last_logits(problem, torch.cat([feature_scale.view(1), lam, temperature])).flatten(0, 1)
        if learning.loss == "double-softmax":
            logits = logits.softmax(-1)
        loss = cross_entropy(logits, tasks.query_labels.flatten(), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, values)
    return gradient.cpu(), float(loss.detach())


def effective(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The feature scale, λ [l] and the temperature [l] of parameters before softplus [1 + 2 l]."""
    positive, n_layers = softplus(values), len(values) // 2
    return _FIRST_NORM * positive[0], positive[1 : 1 + n_layers], 1 + positive[1 + n_layers :]


def already_learned(job: Job, path: Path) -> Parameters | None:
    """The parameters in a file, if this job made it; None if there is no file, or one of another job."""
    found = read_parameters(path) if path.exists() else None
    return found if found is not None and plain(found.training) == training_of(job) else None


def _task_bytes(tasks: Tasks, learning: Learning) -> int:
    """The memory of one task, roughly: what autograd keeps of every layer, and the features."""
    per_layer = 6 * tasks.n_query * tasks.n_classes
    features = (tasks.n_support + tasks.n_query + tasks.n_classes) * tasks.n_features
    return (learning.layers * per_layer + tasks.n_query**2 + 2 * features) * tasks.query_table.element_size()


def _resume(path: Path, training: Mapping[str, Any], n_values: int) -> tuple[int, Tensor, Tensor, Tensor]:
    """The number of steps done, the parameters, and the running means of the gradient and its square."""
    if not path.exists():
        values = torch.full((n_values,), _FIRST, dtype=torch.float64)
        return 0, values, torch.zeros_like(values), torch.zeros_like(values)
    state = _State.read(path)
    if state.training != training or state.step < 1:
        raise InputError(f"{path} is the state of another training; remove it.")
    if {len(state.values), len(state.mean), len(state.square)} != {n_values}:
        raise InputError(f"{path} does not have {n_values} values of each kind; remove it.")
    values, mean, square = (torch.tensor(of, dtype=torch.float64) for of in (state.values, state.mean, state.square))
    return state.step, values, mean, square
