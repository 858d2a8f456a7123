"""Feature transforms of methods: those of ``core.transforms``, and ``white``, which is learned from the support."""

from __future__ import annotations

from torch import Tensor

from manyway.core.tasks import Tasks
from manyway.core.transforms import TRANSFORMS, dense, rowwise
from manyway.core.transforms import transform as plain_transform
from manyway.errors import InputError, nearest
from manyway.methods.calibration.calibration import calibrate
from manyway.methods.evidence.schedule import Schedule


def transform(tasks: Tasks, name: str | None) -> Tasks:
    """Apply a feature transform by its name; None leaves the tasks as they are.

    >>> tasks = Tasks.from_arrays([[[0.0, 2.0], [3.0, 0.0]]], [[0, 1]], [[[3.0, 4.0]]])
    >>> transform(tasks, "l2").query.flatten().tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if name == "white":
        return white(tasks)
    if name is not None and name not in TRANSFORMS:
        raise InputError(f"There is no feature transform '{name}'; {nearest(name, [*TRANSFORMS, 'white'])}")
    return plain_transform(tasks, name)


def white(tasks: Tasks) -> Tasks:
    """``rcl2``, then the metric and the precision that ``evidence`` learns from the support.

    Minus half a squared distance of the new features is a calibrated log-likelihood.
    """
    if not tasks.n_support:
        raise InputError(
            "scale='white' is learned from examples, and there are none; choose another scale, such as 'cl2'."
        )
    tasks = plain_transform(tasks, "rcl2")
    calibration = calibrate(tasks, Schedule())
    root = calibration.precision.sqrt().view(-1, 1, 1)

    def placed(features: Tensor) -> Tensor:
        return calibration.place(features).mul_(root)

    if tasks.shared_support:
        return rowwise(tasks, lambda rows: placed(rows.reshape(1, -1, rows.shape[-1])).view(rows.shape))
    return dense(tasks, placed)
