"""Fused GPU code, each piece beside the plain version that it must equal.

============  ==============================================================  ====================================
``subset``    distinct random integers, in registers                          ``manyway.draws.subset``
``sums``      gather, sum, scale and centre a support in one pass             ``manyway.ops.class_sums``
``loop``      all of PADDLE's iterations of a task without leaving the chip   ``manyway.methods.paddle``
============  ==============================================================  ====================================

They are written in Triton, which comes with the CUDA builds of torch. Where it is missing, on a CPU, or with
MANYWAY_PLAIN=1 in the environment, the plain versions run; nothing else changes. This room imports no other room.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def fused(tensor: Tensor) -> bool:
    """Whether fused code can work on this tensor: on an NVIDIA GPU since Ampere, with Triton."""
    return tensor.is_cuda and os.environ.get("MANYWAY_PLAIN") != "1" and _capable(tensor.device.index)


@cache
def _capable(device: int | None) -> bool:
    return (
        torch.version.hip is None
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device)[0] >= 8
    )
