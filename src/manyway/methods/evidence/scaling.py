"""Scaling: rows of examples, queries and names become rows that can be compared.

With the scale "auto" the support teaches the representation of each task
(``manyway.methods.calibration.representation``); other scales are transforms by their name. Names
of classes have a middle of their own (``names``). This is the first step of every calibration:
whatever follows sees scaled rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from manyway.core import Scaling, Scalings, Tasks, apply, rowwise
from manyway.methods.calibration import Representation, learn_representation, learn_scaling
from manyway.methods.evidence.copies import KeptExamples
from manyway.methods.evidence.names import (
    Names,
    learn_names,
    represented_names,
    scaled_names,
    scaling_without_examples,
)
from manyway.methods.evidence.schedule import Parameters


@dataclass(frozen=True, eq=False, kw_only=True)
class ScaledTasks:
    """Tasks with scaled rows, what scales the queries, and the names of classes, if any."""

    tasks: Tasks  # where a class lacks examples, all names are further examples
    scaling: Scaling | Representation  # of the queries
    names: Names | None = None
    # Which examples are left without near-copies
    kept: KeptExamples = field(default_factory=lambda: KeptExamples(number=0))

    @property
    def without_names(self) -> bool:
        """Whether no example is a name, which would look mislabelled among items."""
        return self.names is None or not self.names.included


def representation_of(scaling: Scaling | Representation) -> Representation | None:
    """The scaling, where the support has taught it."""
    return scaling if isinstance(scaling, Representation) else None


def scale_tasks(
    tasks: Tasks,
    parameters: Parameters,
    proportions: Tensor | None = None,
) -> ScaledTasks:
    """Scale tasks, and learn how many examples a name is worth where classes have names.

    Parameters
    ----------
    tasks : Tasks
    parameters : Parameters
        ``scale`` says how rows are transformed; with "auto" the examples choose, and names count as
        embeddings.
    proportions : Tensor of shape [t, k] or None, default=None
        Of the classes among the queries; they serve where there is no example. None: items lie
        where names do.

    Returns
    -------
    ScaledTasks
    """
    items = replace(tasks, class_table=None)
    vectors = tasks.class_features
    if parameters.scale == "auto" and (vectors is None or tasks.n_support):
        representation = learn_representation(items, parameters.constants)
        scaled = ScaledTasks(tasks=represented(items, representation), scaling=representation)
        if vectors is None:
            return scaled
        return _with_names(scaled, represented_names(representation, items, vectors))
    if vectors is None or tasks.n_support:
        scalings = learn_scaling(items, parameters.scale)
    else:
        centred = scaling_without_examples(tasks, vectors, parameters.scale, proportions)
        scalings = Scalings.same(centred)
    scaled = ScaledTasks(tasks=apply(items, scalings), scaling=scalings.query)
    if vectors is None:
        return scaled
    return _with_names(scaled, scaled_names(scalings.query, items, vectors))


def represented(tasks: Tasks, representation: Representation) -> Tasks:
    """The tasks with all rows represented.

    The queries of a pile are represented when they are read.
    """
    tasks = replace(tasks, pile=None)
    if len(representation.power) < tasks.n_tasks or tasks.n_tasks == 1:  # one for all tasks
        return rowwise(tasks, representation)
    return representation.of_tasks(tasks)


def _with_names(scaled: ScaledTasks, vectors: Tensor) -> ScaledTasks:
    """The scaled tasks with scaled names [t, k, d]."""
    names = learn_names(scaled.tasks, vectors)
    return replace(scaled, tasks=names.beside_examples(scaled.tasks), names=names)
