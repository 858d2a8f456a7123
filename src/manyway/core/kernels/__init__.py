"""Fused GPU code, each piece beside the plain version that it must equal.

============  ==============================================================  ====================================
``subset``    distinct random integers, in registers                          ``manyway.core.random.subset``
``sums``      gather, sum, scale and centre a support in one pass             ``manyway.core.ops.class_sums``
``loop``      all of PADDLE's iterations of a task without leaving the chip   ``manyway.methods.paddle.solver``
``search``    all steps of evidence's search for a task in one program        ``manyway.methods.evidence.search``
============  ==============================================================  ====================================

They are written in Triton, which comes with the CUDA builds of torch. Where it is missing, on a CPU, or with
MANYWAY_PLAIN=1 in the environment, the plain versions run; nothing else changes. ``tensor_cores`` lets a GPU round the
factors of a product. This room imports no other room.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def fused(tensor: Tensor) -> bool:
    """Whether fused code can work on this tensor: on an NVIDIA GPU since Ampere, with Triton."""
    return tensor.is_cuda and not _asked_for_plain() and _capable(tensor.device.index)


@contextmanager
def tensor_cores(tensor: Tensor) -> Iterator[None]:
    """Inside, a GPU multiplies float32 matrices as TF32: factors of 10 binary digits after the point, exact sums.

    For methods whose accuracy on real features it was seen not to change (docs/performance.md). The setting is torch's
    and global; it is put back at the end. On a CPU, and with MANYWAY_PLAIN=1, nothing happens.
    """
    if not tensor.is_cuda or _asked_for_plain():
        yield
        return
    products = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "tf32") if hasattr(products, "fp32_precision") else ("allow_tf32", True)
    before = getattr(products, name)
    setattr(products, name, value)
    try:
        yield
    finally:
        setattr(products, name, before)


def _asked_for_plain() -> bool:
    return os.environ.get("MANYWAY_PLAIN") == "1"


@cache
def _capable(device: int | None) -> bool:
    return (
        torch.version.hip is None
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device)[0] >= 8
    )
