"""Checks of what callers hand in: real, finite features of a usable magnitude and integer labels."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyway.core.arguments import shown
from manyway.errors import InputError, few

# Features are squared, summed and multiplied. In float32 that is safe between these magnitudes, and features whose
# largest value lies between them are left as they are, bit for bit.
_ORDINARY = 2.0**40
_LARGEST = 2.0**50  # of queries, where the labelled examples are ordinary
# a mean this many times as large as the features leaves none of their digits in float32
_FAR_MEAN = 2.0**24


def as_features(values: Any, name: str, *, gaps: bool = False) -> Tensor:
    """A float32 or float64 tensor with finite values; ``name`` is what error messages call it.

    With ``gaps``, values may be missing: NaN.

    The values may be NumPy, torch, pandas or nested lists, of any real dtype, byte order and memory
    layout. The result is float64 where the input was at least that precise, float32 otherwise.

    >>> import numpy as np
    >>> as_features(np.array([[1, 2]], dtype=">f8")[:, ::-1], "features")
    tensor([[2., 1.]], dtype=torch.float64)
    """
    tensor = _as_tensor(values, name, "real numbers")
    if tensor.is_complex():
        raise InputError(f"{name} holds complex numbers; features must be real.")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float32)
    if tensor.ndim and tensor.shape[-1] == 0:
        raise InputError(f"{name} has no features: its shape is {tuple(tensor.shape)}.")
    bad = ~torch.isfinite(sizes_of_given(tensor) if gaps else row_sizes(tensor))
    if bool(bad.any()):
        rows = describe_rows(bad.flatten().nonzero().flatten().tolist())
        what = "infinite" if gaps else "NaN or infinite"
        raise InputError(f"{name} has {what} values in {rows}; remove or repair them.")
    return tensor


def has_gaps(features: Tensor) -> bool:
    """Whether a value is missing: NaN.

    >>> has_gaps(torch.tensor([[1.0, torch.nan]]))
    True
    """
    return bool(row_sizes(features).isnan().any())


def sizes_of_given(features: Tensor) -> Tensor:
    """The largest magnitude in each row, of the values that are not missing; 0 where all are.

    >>> sizes_of_given(torch.tensor([[1.0, -3.0], [0.5, torch.nan]])).tolist()
    [3.0, 0.5]
    """
    sizes = row_sizes(features)
    if not bool(sizes.isnan().any()):
        return sizes
    return row_sizes(features.masked_fill(features.isnan(), 0))


def as_labels(values: Any, name: str) -> Tensor:
    """An int64 tensor of labels from NumPy or torch input.

    >>> as_labels([0, 1, 1], "labels")
    tensor([0, 1, 1])
    """
    tensor = _as_tensor(values, name, "integers")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(
            f"{name} must hold integers, not {str(tensor.dtype).removeprefix('torch.')}."
        )
    return tensor.to(torch.int64)


def shaped(value: Tensor, shape: Sequence[int], name: str, hint: str) -> Tensor:
    """The value, where it has that shape; the hint says what an array of another shape should be."""
    if tuple(value.shape) != tuple(shape):
        raise InputError(f"{name} has shape {tuple(value.shape)}, not {tuple(shape)}; {hint}.")
    return value


def row_sizes(features: Tensor) -> Tensor:
    """The largest magnitude in each row; NaN where a row has one.

    >>> row_sizes(torch.tensor([[1.0, -3.0], [0.5, 0.0]])).tolist()
    [3.0, 0.5]
    """
    if features.numel() == 0:
        return features.new_zeros(features.shape[:-1])
    if features.ndim == 0:
        return features.abs()
    # faster than aminmax, smaller than a copy by abs
    return torch.maximum(features.amax(-1), -features.amin(-1))


def moderate(
    support: Tensor, query: Tensor | None = None, base_mean: Tensor | None = None, first: int = 0
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Bring features of an extreme magnitude to one in which squares neither overflow nor vanish.

    Where the largest support value of a task lies outside 2^±40, all features of the task are
    multiplied by the power of two that brings it to about 1. The factor follows from the support
    [t, s, d] alone, so that it is known before the queries [t, q, d] are. ``base_mean`` [d] has no
    axis of tasks: with it, all tasks get the same factor. Ordinary features are returned unchanged.
    ``first`` is the number of the first query, where they are a block of many.

    >>> support, query, _ = moderate(torch.tensor([[[2.0**70], [2.0**71]]]), torch.tensor([[[2.0**70]]]))
    >>> support.flatten().tolist(), query.flatten().tolist()
    ([0.25, 0.5], [0.25])
    """
    sizes = sizes_of_given(support)  # [t, s]
    largest = sizes.amax(-1)
    _refuse_constants(support)
    _refuse_outliers(sizes, largest)
    unusual = (largest > 0) & ((largest < 1 / _ORDINARY) | (largest > _ORDINARY))
    factor = None
    if bool(unusual.any()):
        # the factor itself must be a normal number
        most = 1022 if support.dtype == torch.float64 else 126
        exponents = torch.frexp(largest).exponent.clamp(-most, most)
        if base_mean is None:
            exponents = exponents.where(unusual, 0)
        else:
            exponents = exponents.amax().expand_as(exponents)
        factor = torch.ldexp(torch.ones_like(largest), -exponents).view(-1, 1, 1)
        support = support * factor
    if base_mean is not None and float(row_sizes(base_mean)) > _FAR_MEAN * float(largest.max()) > 0:
        values = (
            f"up to {float(row_sizes(base_mean)):.1e} and the labelled examples up to "
            f"{float(largest.max()):.1e}"
        )
        raise InputError(f"base_mean has values {values}; use the mean of the same encoder.")
    if query is not None:
        sizes = sizes_of_given(query) * (
            1 if factor is None else factor.squeeze(-1).to(query.dtype)
        )
        huge = (sizes > _LARGEST).any(0)
        if bool(huge.any()):
            rows = describe_rows((huge.nonzero().flatten() + first).tolist())
            others = f"those of the labelled examples (at most {float(largest.max()):.1e})"
            raise InputError(
                f"query has values in {rows} that are too large compared with {others}; "
                "repair them."
            )
    if factor is not None:
        query = None if query is None else query * factor.to(query.dtype)
        base_mean = None if base_mean is None else base_mean * factor[0, 0, 0].to(base_mean.dtype)
    return support, query, base_mean


def _refuse_constants(support: Tensor) -> None:
    """Refuse tasks whose support [t, s, d] is one row again and again."""
    if support.shape[1] < 2 or not bool((support[:, 0] == support[:, -1]).all(-1).any()):
        return
    same = (support == support[:, :1]).flatten(1).all(-1)
    if bool(same.any()):
        where = "" if len(same) == 1 else f" of task {int(same.nonzero()[0])}"
        raise InputError(
            f"All labelled examples{where} have the same features; check the encoder or the file."
        )


def _refuse_outliers(sizes: Tensor, largest: Tensor) -> None:
    """Refuse a few rows [t, s] that are so large that float32 keeps nothing of the others."""
    if not bool((largest > _ORDINARY).any()):
        return
    typical = torch.where(sizes > 0, sizes, torch.nan).nanmedian(-1, keepdim=True).values
    outliers = (sizes > _ORDINARY) & (sizes / typical > _ORDINARY)
    if bool(outliers.any()):
        rows = describe_rows(outliers.any(0).nonzero().flatten().tolist())
        much = f"more than {_ORDINARY:.0e} times as large as those of the other rows"
        raise InputError(
            f"The labelled examples have values in {rows} that are {much}; remove or repair them."
        )


def describe_rows(rows: list[int]) -> str:
    """Name the first rows of a list in words.

    >>> describe_rows([3, 5, 8, 9, 12])
    'rows 3, 5, 8 and 2 more'
    """
    return f"row{'' if len(rows) == 1 else 's'} {few(rows, 3)}"


def refuse_masked(values: Any, name: str) -> None:
    """Refuse an array with masked values: they would be used as if they were given."""
    if not np.ma.is_masked(values):
        return
    masked = np.ma.getmaskarray(values)
    width = masked.shape[-1] if masked.ndim > 1 else 1
    rows = describe_rows(np.flatnonzero(masked.reshape(-1, width).any(1)).tolist())
    raise InputError(f"{name} has masked values in {rows}; fill them or leave these rows out.")


def as_array(values: Any, name: str) -> np.ndarray[Any, Any]:
    """A NumPy array of what a caller hands in; what is none is refused.

    >>> as_array(torch.tensor([1, 2]), "labels")
    array([1, 2])
    """
    if isinstance(values, Tensor):
        refuse_unstored(values, name)
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except Exception as error:  # objects of other libraries raise errors of many kinds
        raise InputError(f"{name} is {shown(values)}; give a regular array.") from error


def refuse_unstored(tensor: Tensor, name: str) -> None:
    """Refuse a tensor whose values are not stored one after the other, or not at all."""
    if tensor.layout != torch.strided:
        raise InputError(f"{name} is a sparse tensor; give its to_dense().")
    if tensor.is_meta:
        raise InputError(f"{name} is a tensor of the device meta, which holds no values.")


def _as_tensor(values: Any, name: str, of: str) -> Tensor:
    """A tensor on the values where torch can read them as they are.

    A copy in torch's own layout otherwise.
    """
    if isinstance(values, Tensor):
        refuse_unstored(values, name)
        return values.detach()
    refuse_masked(values, name)
    try:
        if hasattr(values, "__array__"):
            values = np.asarray(values)
            if values.dtype == np.longdouble:
                values = values.astype(np.float64)
            if not values.dtype.isnative or any(stride < 0 for stride in values.strides):
                values = np.array(values, dtype=values.dtype.newbyteorder("="), order="C")
        with warnings.catch_warnings():
            # it is only read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"{name} must hold {of} in a regular array; torch says: {error}."
        ) from error


def resolve_device(name: str | torch.device | None = None) -> torch.device:
    """The device of a name such as ``"cuda:1"``, which must be usable on this machine.

    None means CUDA where it is available, else the CPU.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        # the device "meta" stores nothing: copying from it fails
        torch.ones(1, device=device).cpu()
    except Exception as error:  # backends that are not compiled in raise errors of many kinds
        raise InputError(
            f"Device '{name}' cannot be used here; choose cpu, or cuda:N where there is a GPU."
        ) from error
    return device
