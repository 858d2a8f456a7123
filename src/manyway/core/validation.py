"""Checks of what callers hand in: real, finite features and integer labels, from NumPy or torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyway.errors import InputError


def as_features(values: Any, name: str) -> Tensor:
    """A floating tensor from NumPy or torch input; anything that is not real numbers is an InputError."""
    if isinstance(values, Tensor):
        tensor = values
    else:
        try:
            tensor = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{name} must hold real numbers in a regular array; torch says: {error}.") from error
    if tensor.is_complex():
        raise InputError(f"{name} holds complex numbers; features must be real.")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float32)
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        rows = (~finite).reshape(-1, tensor.shape[-1] if tensor.ndim else 1).any(-1).nonzero().flatten()
        raise InputError(f"{name} has NaN or infinite values in {describe_rows(rows.tolist())}; remove or repair them.")
    return tensor


def as_labels(values: Any, name: str) -> Tensor:
    """An int64 tensor of labels from NumPy or torch input."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must hold integers; torch says: {error}.") from error
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name} must hold integers, not {str(tensor.dtype).removeprefix('torch.')}.")
    return tensor.to(torch.int64)


def describe_rows(rows: list[int]) -> str:
    """Name the first rows of a list in words.

    >>> describe_rows([3, 5, 8, 9, 12])
    'rows 3, 5, 8 and 2 more'
    """
    if len(rows) == 1:
        return f"row {rows[0]}"
    shown = ", ".join(map(str, rows[:3]))
    return f"rows {shown}" + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
