"""Small problems that several tests use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from manyway import FeatureSet, Tasks, estimators
from manyway.core.blocks import Pile, Spread, Work, in_turn
from manyway.files.items import Items
from manyway.labelling import label
from manyway.labelling.batch import Place, features_batch
from manyway.labelling.label import Summary
from manyway.methods import get_method

# The estimator of every method.
ESTIMATORS = {method: getattr(estimators, name) for name, method in estimators.METHOD_OF.items()}

# Parameters with which evidence takes a sixth of the time: for what is asked of files and words, not of its answers.
QUICK_EVIDENCE: dict[str, Any] = {"scale": None, "metric": False, "adapt": False}


def make_tasks(
    n_tasks: int = 3,
    n_classes: int = 4,
    n_query: int = 7,
    n_features: int = 5,
    shots: int | None = 2,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    spread: float = 2.0,
) -> Tasks:
    """Tasks of Gaussian classes. ``shots=None`` gives classes of 1, 2, 3, 1, 2, 3, … samples, in a shuffled order."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    counts = torch.full((n_classes,), shots) if shots is not None else torch.arange(n_classes) % 3 + 1
    labels = torch.arange(n_classes).repeat_interleave(counts)
    if shots is None:
        labels = labels[torch.randperm(len(labels), generator=generator)]
    centres = normal(n_tasks, n_classes, n_features) * spread
    truth = torch.randint(0, max(1, n_classes // 2), (n_tasks, n_query), generator=generator)
    support = centres[:, labels] + normal(n_tasks, len(labels), n_features)
    query = centres.gather(1, truth.unsqueeze(-1).expand(-1, -1, n_features)) + normal(n_tasks, n_query, n_features)
    return Tasks.from_arrays(support.to(dtype), labels.expand(n_tasks, -1).clone(), query.to(dtype), query_labels=truth)


def make_features(n_classes: int = 12, per_class: int = 30, n_features: int = 8, seed: int = 0) -> FeatureSet:
    """A feature set of Gaussian classes, rows in a shuffled order."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_classes).repeat_interleave(per_class)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    centres = torch.randn(n_classes, n_features, generator=generator) * 2
    return FeatureSet(centres[labels] + torch.randn(len(labels), n_features, generator=generator), labels)


def piled(tasks: Tasks, size: int = 64, spread: Spread | None = None) -> Tasks:
    """The one task with its queries in blocks of that size, or in those of a ``spread``."""
    rows, names = tasks.query[0], tasks.class_features
    pile = Pile.of(spread or in_turn(lambda: iter(rows.split(size)), rows.device), rows)
    given = tasks.support[0], tasks.support_labels[0], pile, tasks.base_mean
    made = Tasks.from_pile(*given, class_features=None if names is None else names[0], gaps=tasks.gaps)
    return made.with_known(tasks.known)


def content_of(value: object) -> object:
    """The same for tensors of the same type, shape and numbers; what is no tensor stands for itself."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.dtype, value.shape, value.contiguous().numpy().tobytes()


def exact_prior(labels: torch.Tensor, alpha: float, n_classes: int) -> torch.Tensor:
    """ln p(labels) under a Dirichlet(α, …, α), for labels [n, q]."""
    counts = torch.nn.functional.one_hot(labels, n_classes).sum(1).double()
    a, k = torch.tensor(alpha, dtype=torch.float64), n_classes
    total = torch.lgamma(k * a) - torch.lgamma(k * a + labels.shape[1])
    return total + (torch.lgamma(counts + a) - torch.lgamma(a)).sum(-1)


class Watched:
    """A spread that keeps every work, with what it made the blocks remember."""

    def __init__(self, rows: torch.Tensor, size: int = 64) -> None:
        self.spread = in_turn(lambda: iter(rows.split(size)), rows.device)
        self.passes: list[tuple[Any, list[Any]]] = []

    def __call__(self, work: Work, memories: Sequence[Any] | None) -> tuple[Any, list[Any]]:
        total, remembered = self.spread(work, memories)
        changed = getattr(work, "args", ())  # a pile changes rows first: changes, precision, work
        self.passes.append((changed[-1] if changed else work, remembered))
        return total, remembered

    def of(self, kind: type) -> list[Any]:
        """The works of one kind."""
        return [work for work, _ in self.passes if isinstance(work, kind)]


def label_items(support: Items, query: Items, output: Path, *, method: str = "evidence", **options: Any) -> Summary:
    """Label items and write a table, as ``manyway label`` does. ``options``: device, dask, and those of the table."""
    place = Place(options.pop("device", None), options.pop("dask", None), get_method(method).in_blocks is not None)
    with features_batch(support, query, place) as batch:
        return label.write_labels(batch, label.solve_batch(batch, method), output, **options)
