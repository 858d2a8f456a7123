"""The one way to start a kernel: what it assumes about memory is made so, or checked, here.

A kernel gets addresses and computes every place from sizes. Given a transposed view, another type or another shape, it
reads other numbers and says nothing. Every kernel is therefore started by ``launch`` with a ``Memory``, which knows for
each tensor its axes and its type:

    memory = Memory.of(
        scores=reads(scores, "t q k"),
        labels=reads(labels, "t q", torch.int64),
        losses=writes(torch.empty(...), "t q"),
    )
    launch(_losses, (n_tasks,), memory, n_query=n_query, n_classes=n_classes, BLOCK=64)

The kernel's parameters for these are ``scores_ptr``, ``labels_ptr`` and ``losses_ptr``. An axis has the same size
wherever its name occurs; a number is a size itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MAX_PROGRAMS = 65_535  # along the second and third axis of a grid; the first has more than 2 billion


@dataclass(frozen=True, eq=False)
class Argument:
    """A tensor that a kernel reads or writes; None where this call does without it."""

    tensor: Tensor | None
    axes: str
    dtype: torch.dtype
    written: bool
    part: bool = False  # whether it may be a part of the rows of a larger matrix


def reads(tensor: Tensor | None, axes: str, dtype: torch.dtype = torch.float32) -> Argument:
    """A tensor that a kernel reads. A view is copied into memory of its own; integers are converted.

    A kernel may use it as scratch memory afterwards, where the caller does not need it any more.
    """
    return Argument(tensor, axes, dtype, written=False)


def writes(tensor: Tensor, axes: str, dtype: torch.dtype = torch.float32) -> Argument:
    """A tensor that a kernel writes. It must be contiguous: the caller would not see what is written to a copy."""
    return Argument(tensor, axes, dtype, written=True)


def writes_part(tensor: Tensor, axes: str, dtype: torch.dtype = torch.float32) -> Argument:
    """A part of a contiguous matrix, which a kernel writes. Its rows are contiguous; the kernel gets its strides."""
    return Argument(tensor, axes, dtype, written=True, part=True)


@dataclass(frozen=True, eq=False)
class Memory:
    """Tensors as kernels assume them: contiguous, of known types and shapes, on one device."""

    pointers: Mapping[str, Tensor]  # by the names of the kernel's parameters

    @staticmethod
    def of(**arguments: Argument) -> Memory:
        """The tensors by their names in the kernel, without ``_ptr``.

        For a tensor that is None another address is passed, which the kernel does not read.
        """
        given = {name: argument for name, argument in arguments.items() if argument.tensor is not None}
        sizes: dict[str, int] = {}
        for name, argument in given.items():
            _check_shape(name, argument, sizes)
        tensors = {name: _laid_out(name, argument) for name, argument in given.items()}
        devices = {tensor.device for tensor in tensors.values()}
        if len(devices) > 1:
            raise ValueError(f"the tensors of a kernel must be on one device, not on {sorted(map(str, devices))}")
        anything = next(iter(tensors.values()))
        return Memory({f"{name}_ptr": tensors.get(name, anything) for name in arguments})

    def without(self, *names: str) -> Memory:
        """The memory of a kernel that has no such parameters."""
        dropped = {f"{name}_ptr" for name in names}
        return Memory({name: tensor for name, tensor in self.pointers.items() if name not in dropped})


def launch(kernel: Any, grid: tuple[int, ...], memory: Memory, **numbers: Any) -> None:
    """Start a Triton kernel; ``numbers`` are its other parameters and the options of Triton."""
    if any(size > MAX_PROGRAMS for size in grid[1:]):
        raise ValueError(f"a grid of {grid} programs: only the first size may be above {MAX_PROGRAMS}")
    kernel[grid](**memory.pointers, **numbers)


def _check_shape(name: str, argument: Argument, sizes: dict[str, int]) -> None:
    """Compare a shape with its axes; ``sizes`` has those of the axes that are known, and gets the new ones."""
    assert argument.tensor is not None
    axes = argument.axes.split()
    shape = list(argument.tensor.shape)
    fits = len(shape) == len(axes)
    for axis, size in zip(axes, shape, strict=False):
        expected = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
        fits = fits and size == expected
    if not fits:
        known = ", ".join(f"{axis} = {size}" for axis, size in sizes.items() if axis in axes)
        raise ValueError(f"{name} must have the shape [{', '.join(axes)}] with {known}; it has {shape}")


def _laid_out(name: str, argument: Argument) -> Tensor:
    """The tensor with the type and the order in memory that the kernel assumes."""
    tensor = argument.tensor
    assert tensor is not None
    contiguous = tensor.stride(-1) == 1 if argument.part else tensor.is_contiguous()
    if argument.written and not contiguous:
        raise ValueError(f"{name} is written by the kernel and must be contiguous; its strides are {tensor.stride()}")
    if tensor.dtype != argument.dtype:
        if argument.written or not (_is_integer(tensor.dtype) and _is_integer(argument.dtype)):
            raise ValueError(f"{name} must be {argument.dtype}; it is {tensor.dtype}")
        tensor = tensor.to(argument.dtype)
    return tensor if argument.part else tensor.contiguous()


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
