"""The cost per task of later methods, beside plain loops over tasks.

    python -m benchmarks.later [METHOD ...] [--device cuda] [--tasks 16]

K = 150 classes, 5 shots, 75 queries of 5 classes, 384 features, float32. On a CPU, times are CPU time of one thread,
which other programs change little. Per method: milliseconds per task of the batch solved at once, of one task at a
time, and of a plain loop; and the plain loop relative to the batch.

The plain loops do for one task what the authors' code does, in their order, with their numbers of steps and with
intermediate arrays of the same size; they prepare the features too. They are restatements of the algorithms, written
for this file: the authors' code is not part of this repository. EM-Dirichlet's loop takes minutes, so that one of its
iterations is timed and multiplied.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.features import make_features
from benchmarks.measure import count_cpu_time, seconds, show
from manyway import METHODS, Tasks, TaskSpec, sample_tasks
from manyway.core.ops import one_hot
from manyway.core.transforms import class_directions, transform


@dataclass(frozen=True)
class Task:
    """One task after ``cl2``."""

    support: Tensor  # [s, d]
    labels: Tensor  # [s, k] one-hot
    query: Tensor  # [q, d]
    centres: Tensor  # [k, d] normalised class means


def em_dirichlet(task: Task, hard: bool = False) -> Tensor:
    """One outer iteration with all 1,000 steps."""
    z, x = ((30 * part @ task.centres.T).softmax(-1) for part in (task.support, task.query))
    u, logs, known = x, (x + 1e-15).log(), (z + 1e-15).log()
    target = (task.labels.T @ known + u.T @ logs) / (task.labels.sum(0) + u.sum(0)).unsqueeze(-1)
    alpha = torch.ones_like(target)
    for _ in range(1000):
        digamma = torch.digamma(alpha + 1)
        c = (2 * (digamma * alpha - torch.lgamma(alpha + 1)) / alpha**2).abs()
        b = digamma - torch.digamma(alpha.sum(-1, keepdim=True)) - c * alpha - target
        alpha = (-b + (b**2 + 4 * c).sqrt()) / (2 * c)
    normaliser = torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1)
    logits = normaliser + (logs.unsqueeze(1) * (alpha - 1)).sum(-1) + (u.mean(0) + 1e-15).log()
    return one_hot(logits.argmax(-1), len(alpha), u.dtype) if hard else logits.softmax(-1)


def hard_em_dirichlet(task: Task) -> Tensor:
    return em_dirichlet(task, hard=True)


def label_shift(task: Task) -> Tensor:
    """Bias-corrected temperature scaling of left-out samples by L-BFGS, then EM."""
    counts = task.labels.sum(0)
    sums = task.labels.T @ task.support
    logits = 20 * task.support @ (sums / counts.unsqueeze(-1)).T
    others = (task.labels @ sums - task.support) / (task.labels @ counts - 1).unsqueeze(-1)
    logits = torch.where(task.labels > 0, 20 * (task.support * others).sum(-1, keepdim=True), logits)
    scale, bias = torch.ones(1, device=logits.device), torch.zeros(len(counts), device=logits.device)
    found = [scale.requires_grad_(), bias.requires_grad_()]
    search = torch.optim.LBFGS(found, max_iter=100, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        value = -((logits * scale + bias).log_softmax(-1) * task.labels).sum(-1).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return _em((20 * task.query @ task.centres.T * scale + bias).softmax(-1).detach())


def saerens(task: Task) -> Tensor:
    """EM on posteriors that are not calibrated."""
    return _em((20 * task.query @ task.centres.T).softmax(-1))


def _em(p: Tensor) -> Tensor:
    """100 iterations."""
    pi = p.new_full((p.shape[1],), 1 / p.shape[1])
    for _ in range(100):
        u = p * pi
        u = u / u.sum(-1, keepdim=True)
        pi = u.mean(0)
    return u


def unem(task: Task) -> Tensor:
    """10 layers; their parameters do not change the cost."""
    w = task.labels.T @ task.support / task.labels.sum(0).unsqueeze(-1)
    v = torch.ones(len(w), device=w.device)
    for _ in range(10):
        distances = (task.query.unsqueeze(1) - w).square().sum(-1)
        u = (-0.5 * distances + v).softmax(-1)
        v = (u.mean(0) + 1e-6).log() + 1
        w = (u.T @ task.query + task.labels.T @ task.support) / (u.sum(0) + task.labels.sum(0)).unsqueeze(-1)
    return u


def oslo(task: Task) -> Tensor:
    """2 steps."""
    w = task.labels.T @ task.support / task.labels.sum(0).unsqueeze(-1)
    z = task.query.new_full((len(task.query), len(w)), 1 / len(w))
    for _ in range(2):
        cosines = torch.cosine_similarity(task.query.unsqueeze(1), w, dim=-1)
        inlier = ((z * cosines).sum(-1, keepdim=True) / 0.05).sigmoid()
        z = (inlier * cosines / 0.1).softmax(-1)
        weights = inlier * z
        w = (weights.T @ task.query + task.labels.T @ task.support) / (weights.sum(0) + task.labels.sum(0)).unsqueeze(
            -1
        )
    return z


def _graph(rows: Tensor, query: Tensor) -> Tensor:
    """[n, q] the 3 nearest queries of each row, but for the nearest."""
    products = rows @ query.T
    near = products.topk(4).indices[:, 1:]
    return torch.zeros_like(products).scatter_(1, near, products.gather(1, near))


def _z_update(prior: Tensor, fit: Tensor, graph: Tensor, z: Tensor) -> Tensor:
    for _ in range(5):
        scores = fit + 50 / 6 * (graph.T @ z + graph @ z)
        z = prior * ((scores - scores.amax(-1, keepdim=True)) / 50).exp()
        z = z / z.sum(-1, keepdim=True)
    return z


def stata(task: Task) -> Tensor:
    """11 updates of z and 10 of the distributions."""
    x, w = task.query, task.centres
    prior = z = (100 * x @ w.T).softmax(-1)
    graph, mu = _graph(x, x), w
    start = variance = (z.unsqueeze(-1) * (x.unsqueeze(1) - w).square()).sum((0, 1)).expand(len(w), -1) / len(x)
    for step in range(11):
        fit = -0.5 * ((x.unsqueeze(1) - mu).square() / variance).sum(-1) - 0.5 * variance.log().sum(-1)
        z = _z_update(prior, fit, graph, z)
        if step < 10:
            counts = one_hot(z.argmax(-1), len(w), z.dtype).sum(0)
            beta, masses = (counts / (1 + counts)).unsqueeze(-1), z.sum(0).unsqueeze(-1).clamp_min(1e-30)
            mean = torch.nn.functional.normalize(z.T @ x / masses, dim=-1)
            mu = torch.nn.functional.normalize(beta * mean + (1 - beta) * w, dim=-1)
            spread = (z.unsqueeze(-1) * (x.unsqueeze(1) - mu).square()).sum(0) / masses
            variance = beta * spread + (1 - beta) * (start + (w - mu).square())
    return z


def transclip(task: Task) -> Tensor:
    """4 values of gamma, each with 11 updates of z and 10 of the distributions."""
    x, s, w = task.query, task.support, task.centres
    prior = z = (100 * x @ w.T).softmax(-1)
    graph, mu, variance = _graph(x, x), w, x.new_full((x.shape[1],), 1 / x.shape[1])
    for gamma in (0.002, 0.01, 0.02, 0.2):
        weight = 50 * gamma / len(s)
        for step in range(11):
            fit = -0.5 * ((x.unsqueeze(1) - mu).square() / variance).sum(-1)
            z = _z_update(prior.sqrt(), fit, graph, z)
            if step < 10:
                mu = torch.nn.functional.normalize(z.T @ x / len(x) + weight * task.labels.T @ s, dim=-1)
                spread = (z.unsqueeze(-1) * (x.unsqueeze(1) - mu).square()).sum((0, 1)) / len(x)
                own = (s - task.labels @ mu).square().sum(0)
                variance = (spread + weight * own) / (1 + 50 * gamma)
    return z


def zlap(task: Task) -> Tensor:
    """One conjugate-gradient solution per class, of at most 50 steps, to 1e-6."""
    x, w, n_classes = task.query, task.centres, len(task.centres)
    n = n_classes + len(x)
    products = (torch.cat([w, x]) @ x.T).clamp_min(0)
    products[:n_classes] **= 5
    near = products.topk(5).indices
    graph = x.new_zeros(n, n)
    graph[:, n_classes:] = torch.zeros_like(products).scatter_(1, near, products.gather(1, near))
    graph = (graph + graph.T).fill_diagonal_(0)
    degrees = graph.sum(0).clamp_min(1e-12).rsqrt()
    system = torch.eye(n, device=x.device) - 0.3 * degrees.unsqueeze(-1) * graph * degrees
    answer = torch.empty(len(x), n_classes, device=x.device)
    for k in range(n_classes):
        found, residual = torch.zeros(n, device=x.device), torch.eye(n, device=x.device)[k]
        direction, square = residual, residual @ residual
        for _ in range(50):
            image = system @ direction
            length = square / (direction @ image)
            found, residual = found + length * direction, residual - length * image
            before, square = square, residual @ residual
            if float(square) < 1e-12:
                break
            direction = residual + square / before * direction
        answer[:, k] = found[n_classes:]
    return answer


@dataclass(frozen=True)
class Row:
    """What is compared."""

    method: str
    plain: Callable[[Task], Tensor] | None
    times: int = 1  # how many times the timed part of the plain loop has to be done
    params: dict[str, Any] = field(default_factory=dict)
    slow: bool = False  # it takes seconds per task, so that it is timed without a first run

    @property
    def name(self) -> str:
        return " ".join([self.method, *(f"{key}={value}" for key, value in self.params.items())])


ROWS = (
    Row("em-dirichlet", em_dirichlet, 20),
    Row("em-dirichlet", em_dirichlet, 20, {"m_step": "authors"}, slow=True),
    Row("hard-em-dirichlet", hard_em_dirichlet, 10),
    Row("label-shift", label_shift),
    Row("label-shift", saerens, 1, {"calibrate": False, "max_iter": 100}),
    Row("unem", unem),
    Row("oslo", oslo),
    Row("transclip", transclip),
    Row("stata", stata),
    Row("moon", None),
    Row("zlap", zlap),
)


def _plain(loop: Callable[[Task], Tensor], tasks: Tasks) -> Tensor:
    """The plain loop for the first task, with the preparation of its features."""
    tasks = transform(tasks, "cl2")
    labels = one_hot(tasks.support_labels[0], tasks.n_classes, tasks.dtype)
    return loop(Task(tasks.support[0], labels, tasks.query[0], class_directions(tasks)[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="*", help="default: all")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--tasks", type=int, default=16, help="tasks that are solved at once; default: %(default)s")
    options = parser.parse_args()
    if options.device == "cpu":
        count_cpu_time()
    features = make_features(150, 40, 384, options.device)
    tasks = sample_tasks(features, TaskSpec(shots=5, k_eff=5, n_query=75), count=options.tasks)

    def rows() -> Iterator[list[object]]:
        for row in ROWS:
            if row.method not in METHODS or (options.method and row.method not in options.method):
                continue
            solver = partial(METHODS[row.method], **row.params)
            alone = seconds(partial(solver, tasks[:1]), repeats=1, warm=0 if row.slow else 1)
            batch = seconds(partial(solver, tasks), repeats=1, warm=0) / options.tasks
            loop = (
                math.nan if row.plain is None else row.times * seconds(partial(_plain, row.plain, tasks[:1]), repeats=1)
            )
            yield [row.name, batch * 1e3, alone * 1e3, loop * 1e3, loop / batch, loop / alone]

    header = ["method", "batch, ms per task", "alone, ms", "plain loop, ms", "plain / batch", "plain / alone"]
    show(f"Later methods, K = 150, 5 shots, {options.device}, {options.tasks} tasks", header, rows())


if __name__ == "__main__":
    main()
