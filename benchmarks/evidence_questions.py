"""``python -m benchmarks.evidence_questions KEY… --data DATA``: what else evidence could do, on the same tasks.

Prints Markdown: by how much each change of the method moves accuracy, and its calibration error. The changes are those
that a user cannot ask for; what a user can is in the suite ``evidence-ablation``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.evidence_study import calibration_error, reliability
from benchmarks.evidence_tasks import add_seed, arguments, in_chunks
from manyway import FeatureSet, Solution, Tasks, TaskSpec
from manyway.bench.data import find_features
from manyway.core.ops import class_sums
from manyway.core.transforms import transform
from manyway.evaluation.statistics import paired
from manyway.methods.evidence.calibration import calibrate
from manyway.methods.evidence.solver import evidence, evidence_from_likelihood
from manyway.methods.ici.logistic import Fit, logistic_regression, with_intercept

Likelihood = Callable[[Tasks], Tensor]  # of tasks whose features are scaled, [t, q, k]
C = 10.0  # of the logistic regression, on unit features
SPREAD_PRIOR = 10.0  # a class's own scatter counts as much as the pooled one when it has so many degrees of freedom


def prototypes(tasks: Tasks, hotter: float = 1.0) -> Tensor:
    """What evidence uses, at a multiple of the calibrated temperature."""
    return calibrate(tasks).log_likelihood(tasks.query) * hotter


def at_temperature(temperature: float, tasks: Tasks) -> Tensor:
    return calibrate(tasks, temperature).log_likelihood(tasks.query)


def diagonal(tasks: Tasks, own: float = 0.5) -> Tensor:
    """A scatter for each feature, shrunk towards the mean of all."""
    sums, counts = class_sums(tasks)
    squares = tasks.support.square().sum(1) - (sums.square() / counts.unsqueeze(-1)).sum(1)  # [t, d]
    mean = squares.mean(-1, keepdim=True)
    factor = (mean / (own * squares + (1 - own) * mean)).sqrt().unsqueeze(1)
    scaled = Tasks.from_arrays(tasks.support * factor, tasks.support_labels, tasks.query * factor)
    return prototypes(scaled)


def by_class(tasks: Tasks) -> Tensor:
    """A scatter for each class, shrunk towards that of all. The effective dimension is what makes both fit alike."""
    calibration = calibrate(tasks)
    sums, counts = class_sums(tasks)
    squares = torch.zeros_like(counts).scatter_add_(1, tasks.support_labels, tasks.support.square().sum(-1))
    within = squares - sums.square().sum(-1) / counts
    noise, freedom = calibration.noise.unsqueeze(-1), counts - 1
    ratio = (SPREAD_PRIOR + within / noise) / (SPREAD_PRIOR + freedom)
    dimension = (calibration.temperature.unsqueeze(-1) * noise).unsqueeze(1)
    ratio = ratio.unsqueeze(1)
    return calibration.log_likelihood(tasks.query) / ratio - 0.5 * dimension * ratio.log()


def logistic(tasks: Tasks) -> Tensor:
    return _logistic(tasks)[0]


def by_cross_entropy(tasks: Tasks) -> Tensor:
    """Prototypes or logistic regression, whichever names left-out samples better."""
    logits, loss = _logistic(tasks)
    labels, n = tasks.support_labels, tasks.support_labels.shape[1] // tasks.n_classes
    held_out = []
    for fold in range(n):
        out = _fold(tasks, fold)
        rest = Tasks.from_arrays(
            *(_rows(values, ~out) for values in (tasks.support, labels)), _rows(tasks.support, out)
        )
        held_out.append(_loss(prototypes(rest), _rows(labels, out)))
    better = (torch.stack(held_out).mean(0) <= loss).view(-1, 1, 1)
    return torch.where(better, prototypes(tasks), logits)


def _logistic(tasks: Tasks) -> tuple[Tensor, Tensor]:
    """Logits [t, q, k] at the temperature that is best for left-out samples, and their cross-entropy there [t]."""
    support, labels = tasks.support, tasks.support_labels
    samples = with_intercept(torch.cat([support, tasks.query], 1))
    support, query = samples[:, : support.shape[1]], samples[:, support.shape[1] :]
    weights = torch.ones_like(support[..., 0])
    fit = logistic_regression(
        support, labels, weights, Fit.zero(support, tasks.n_classes), c=C, tol=3e-3, max_passes=40
    )
    n = labels.shape[1] // tasks.n_classes
    held_out, truth = [], []
    for fold in range(n):
        out = _fold(tasks, fold)
        kept = weights.masked_fill(out, 0.0)
        part = logistic_regression(support, labels, kept, fit, c=C, tol=3e-3, max_passes=20)
        held_out.append(_rows(support, out) @ part.weights)
        truth.append(_rows(labels, out))
    logits, answers = torch.cat(held_out, 1), torch.cat(truth, 1)
    scales = torch.logspace(-0.5, 1.0, 16, device=logits.device).tolist()
    losses = torch.stack([_loss(logits * scale, answers) for scale in scales])  # [s, t]
    best = torch.tensor(scales, device=logits.device)[losses.argmin(0)].view(-1, 1, 1)
    return query @ fit.weights * best, losses.amin(0)


def _fold(tasks: Tasks, fold: int) -> Tensor:
    """[t, s] the fold-th sample of each class; tasks have the same number of each, class by class."""
    n = tasks.support_labels.shape[1] // tasks.n_classes
    assert bool((tasks.support_labels.diff(dim=1) >= 0).all())
    places = torch.arange(tasks.support_labels.shape[1], device=tasks.device)
    return (places % n == fold).expand(tasks.n_tasks, -1)


def _rows(values: Tensor, which: Tensor) -> Tensor:
    return values[:, which[0]]


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).mean((1, 2))


REGRESSIONS: dict[str, Likelihood] = {
    "logistic regression": logistic,
    "prototypes or logistic regression, by cross-entropy": by_cross_entropy,
}
CHANGES: dict[str, Likelihood] = {
    "temperature × 0.7": lambda tasks: prototypes(tasks, 0.7),
    "temperature × 1.4": lambda tasks: prototypes(tasks, 1.4),
    "a scatter for each feature": diagonal,
    "a scatter for each class": by_class,
}
ONE_SHOT: dict[str, Likelihood] = {f"temperature {t:g}": partial(at_temperature, t) for t in (8.0, 12.0, 20.0, 28.0)}


def run(
    features: FeatureSet, spec: TaskSpec, n_tasks: int, seed: int, changes: dict[str, Likelihood]
) -> dict[str, tuple[list[int], Tensor]]:
    """Right answers of every task, and how true the probabilities are, of evidence and of each change."""
    found: dict[str, tuple[list[int], Tensor]] = {}
    for tasks, truth in in_chunks("ici", features, spec, n_tasks, seed):
        scaled = transform(tasks, "rcl2")
        counts = torch.full((1, tasks.n_classes), float(spec.shots or 0), device=tasks.device)
        answers: dict[str, Solution] = {"evidence": evidence(tasks), "prototypes stay": evidence(tasks, move=False)}
        for name, likelihood in changes.items():
            answers[name] = evidence_from_likelihood(likelihood(scaled), counts)
        for name, solution in answers.items():
            right, bins = found.setdefault(name, ([], torch.zeros(3, 15, dtype=torch.float64)))
            right += (solution.labels == truth).sum(1).tolist()
            bins += reliability(solution.probabilities, truth).cpu()
    return found


def main() -> None:
    parser = arguments(__doc__)
    add_seed(parser)
    parser.add_argument("--without-regression", action="store_true", help="it takes most of the time")
    options = parser.parse_args()
    several = CHANGES if options.without_regression else CHANGES | REGRESSIONS
    for shots, changes in ((5, several), (1, ONE_SHOT)):
        for key in options.keys:
            features = find_features(key, options.data).to(options.device)
            show(key, features, shots, options.tasks, options.seed, changes)


def show(key: str, features: FeatureSet, shots: int, n_tasks: int, seed: int, changes: dict[str, Likelihood]) -> None:
    """A table: evidence with prototypes that stay, and the difference that each change makes."""
    base, cells = "prototypes stay", []
    for k_eff in (2, 5, 20):
        n_query = min(75, int((features.counts.sort().values[:k_eff] - shots).sum()))
        spec = TaskSpec(shots=shots, k_eff=k_eff, n_query=n_query)
        cells.append((spec, run(features, spec, n_tasks, seed, changes)))
    print(f"\n| {key}, {shots}-shot | " + " | ".join(f"K_eff = {spec.k_eff}" for spec, _ in cells) + " |")
    print("|:---|" + "---:|" * len(cells))
    for name in cells[0][1]:
        words = []
        for spec, cell in cells:
            right, bins = cell[name]
            if name == base:
                text = f"{100 * sum(right) / (spec.n_query * len(right)):.1f}"
            else:
                difference = paired(right, cell[base][0], spec.n_query).difference
                text = f"{100 * difference.mean:+.1f} ± {100 * difference.half:.1f}"
            words.append(f"{text} ({calibration_error(bins):.1f})")
        print(f"| {name} | " + " | ".join(words) + " |", flush=True)


if __name__ == "__main__":
    main()
