"""Feature transforms of methods.

Those of ``core.transforms``, and ``white``, which is learned from the support.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from manyway.core import TRANSFORMS, Scalings, Tasks, apply
from manyway.core import learn_scaling as learn_plain
from manyway.core import transform as plain_transform
from manyway.errors import InputError, nearest
from manyway.methods.calibration.calibrating import calibrate_distances
from manyway.methods.calibration.constants import Constants

# These feature transforms depend on the queries, so that nothing can be learned before the queries
# are known.
QUERY_DEPENDENT = frozenset({"range", "tcl2"})


@dataclass(frozen=True, eq=False)
class Prepared:
    """A classifier that was trained on a support."""

    # [t, k, d] in the transformed features; t is 1 when all tasks have the same support
    prototypes: Tensor
    objective: Tensor | None = None  # [t, i] the training loss after each step, if it was recorded


def transform(tasks: Tasks, name: str | None) -> Tasks:
    """Apply a feature transform by its name; None leaves the tasks as they are.

    >>> tasks = Tasks.from_arrays([[[0.0, 2.0], [3.0, 0.0]]], [[0, 1]], [[[3.0, 4.0]]])
    >>> transform(tasks, "l2").query.flatten().tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if name == "white":
        return apply(tasks, _white(tasks))
    return plain_transform(_checked(tasks, name), name)


def learn_scaling(tasks: Tasks, name: str | None) -> Scalings:
    """What the transform of that name does to rows of these tasks."""
    if name == "white":
        return _white(tasks)
    return learn_plain(_checked(tasks, name), name)


def _checked(tasks: Tasks, name: str | None) -> Tasks:
    if name is not None and name not in TRANSFORMS:
        hint = nearest(name, [*TRANSFORMS, "white"])
        raise InputError(f"There is no feature transform '{name}'; {hint}")
    return tasks


def _white(tasks: Tasks) -> Scalings:
    """``rcl2``, then the metric and the precision that ``evidence`` learns from the support.

    Minus half a squared distance of the new features is a calibrated log-likelihood.
    """
    if not tasks.n_support:
        problem = "scale='white' is learned from examples, and there are none"
        raise InputError(f"{problem}; choose another, such as 'cl2'.")
    known = replace(tasks, pile=None)
    calibration = calibrate_distances(plain_transform(known, "rcl2"), Constants())
    placing = calibration.coordinates.placing(calibration.precision.sqrt())
    return Scalings.same(replace(learn_plain(known, "rcl2").query, then=placing))
