"""Fused GPU code. Every kernel has a plain version, and tests compare the two.

===============================  =========================================  ===========================
kernel                           what it fuses                              plain version
===============================  =========================================  ===========================
``core.kernels.subset``          drawing distinct random integers           ``core.random.subset``
``core.kernels.rows``            gathering, summing, scaling and centring   ``core.ops.class_sums``
``core.kernels.rows``            gathering, centring, dividing by the norm  ``core.ops.unit``
``core.kernels.rows``            gathering two rows and subtracting them    ``calibration.metric``
``core.kernels.halves``          the errors of a softmax as two halves      ``ici.logistic``
``gradient.kernel``              a step of Adam, with products of float16   ``gradient.information``
``paddle.kernel``                all iterations of PADDLE for a task        ``paddle.solver``
``evidence.kernel``              all steps of evidence's search for a task  ``evidence.search``
``calibration.left_out_kernel``  the classification of left-out samples     ``calibration.left_out``
``calibration.root_kernel``      the inverse factors of metrics             ``torch.linalg.cholesky``
===============================  =========================================  ===========================

``calibration.representation_kernel`` does to rows what ``calibration.representation`` says, and
``calibration.log_sums_kernel`` sums likelihoods. ``core.kernels.launch`` starts all of them, and
makes sure of what they assume about memory.

Kernels are written in Triton, which comes with the CUDA builds of torch. The plain versions run on a CPU, where Triton
is missing, and when the environment has MANYWAY_PLAIN=1.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def fused(tensor: Tensor) -> bool:
    """Whether fused code can run on this tensor: on an NVIDIA GPU of compute capability 8.0 or higher, with Triton."""
    return tensor.is_cuda and not _asked_for_plain() and _capable(tensor.device.index)


def halves_fused(tensor: Tensor) -> bool:
    """Whether products of float16 with float32 sums, which torch has from 2.8 on, can replace those of a tensor."""
    return fused(tensor) and tensor.dtype == torch.float32 and hasattr(torch.ops.aten.bmm, "dtype")


def two_blocks(n: int) -> tuple[int, int]:
    """Two powers of two, at least 16, that hold n rows. Triton needs such, and one block would be up to half padding.

    >>> two_blocks(160), two_blocks(75), two_blocks(5)
    ((128, 32), (64, 16), (16, 16))
    """
    first = max(16, 1 << (n - 1).bit_length() >> 1)
    return first, max(16, 1 << (max(n - first, 1) - 1).bit_length())


@contextmanager
def tensor_cores(tensor: Tensor) -> Iterator[None]:
    """Multiply float32 matrices in TF32 on a GPU: factors are rounded to 10 bits after the point, sums are float32.

    It is used by methods whose accuracy on real features it does not change (docs/performance.md). The setting is
    torch's and global; it is restored at the end. On a CPU, and with MANYWAY_PLAIN=1, nothing changes.
    """
    with _multiplying(tensor, tf32=True):
        yield


@contextmanager
def without_tensor_cores(tensor: Tensor) -> Iterator[None]:
    """Multiply in float32 within ``tensor_cores``: where nearly equal products are subtracted."""
    with _multiplying(tensor, tf32=False):
        yield


@contextmanager
def _multiplying(tensor: Tensor, *, tf32: bool) -> Iterator[None]:
    if not tensor.is_cuda or _asked_for_plain():
        yield
        return
    products = torch.backends.cuda.matmul
    name = "allow_tf32"
    value: bool | str = tf32
    if hasattr(products, "fp32_precision"):
        name = "fp32_precision"
        value = "tf32" if tf32 else "ieee"
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
    has_triton = torch.version.hip is None and find_spec("triton") is not None
    return has_triton and torch.cuda.get_device_capability(device)[0] >= 8
