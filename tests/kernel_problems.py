"""Where kernels are tested: on a GPU, or in Triton's interpreter. Import it before any kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import torch

# This must be set before Triton is imported: kernels are compiled for its interpreter or for a GPU.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
pytest.importorskip("triton", reason="needs Triton, which there is for Linux")

DEVICE = "cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda"
# Every module that asks whether fused code can run, with the name of the question.
QUESTIONS = (
    "manyway.core.ops.fused",
    "manyway.core.transforms.fused",
    "manyway.methods.calibration.left_out.fused",
    "manyway.methods.calibration.log_sums.fused",
    "manyway.methods.calibration.metric.fused",
    "manyway.methods.calibration.representation.fused",
    "manyway.methods.evidence.dense.fused",
    "manyway.methods.gradient.information.halves_fused",
    "manyway.methods.ici.logistic.halves_fused",
    "manyway.methods.paddle.solver.fused",
    "manyway.sampling.sampling.fused",
)


def patch_language_once() -> None:
    """Let Triton's interpreter prepare its language at the start of a kernel, and not at each function that it calls.

    The interpreter replaces the functions of `triton.language` by its own, and looks for them again at every call of a
    function within a kernel, which takes a third of its time. Where it finds them replaced there is nothing to do.
    """
    from triton import language
    from triton.runtime import interpreter

    prepare = getattr(interpreter, "_patch_lang", None)
    nothing = getattr(interpreter, "_LangPatchScope", None)
    if prepare is None or nothing is None:  # another version of Triton: it takes its time
        return

    def prepare_once(function: Any) -> Any:
        modules = [one for one in (language, language.core) if one in _modules_of(function)]
        if any(language.core.is_builtin(one.load) for one in modules) or not modules:
            return prepare(function)
        return nothing()

    interpreter._patch_lang = prepare_once


def remember_types() -> None:
    """Let Triton's interpreter make each type and each shape once, which takes a quarter of its time.

    A type has a name that says all of it, and nothing changes a type or a shape once it is made.
    """
    from triton.language import core
    from triton.runtime import interpreter

    of_scalar = getattr(interpreter, "_get_np_dtype", None)
    if of_scalar is None:  # another version of Triton: it takes its time
        return
    in_numpy: dict[str, Any] = {}

    def np_dtype(type: Any) -> Any:
        scalar = type.scalar
        if scalar.name not in in_numpy:
            in_numpy[scalar.name] = of_scalar(scalar)
        return in_numpy[scalar.name]

    interpreter._get_np_dtype = np_dtype
    core.block_type.__init__ = _remembered(
        core.block_type.__init__, lambda element_ty, shape: (element_ty.name, *map(_number, shape))
    )
    core.tensor.__init__ = _remembered(core.tensor.__init__, lambda handle, type: type.name, ("handle", "type"))


def leave_out_what_nobody_reads() -> None:
    """Let Triton's interpreter not look for overflows of integers, which takes a tenth of its time.

    It computes for every sum, difference and product whether it overflows, and says so only where it debugs.
    """
    from triton.runtime import interpreter

    builder = getattr(interpreter, "interpreter_builder", None)
    options = getattr(builder, "options", None)
    if hasattr(options, "sanitize_overflow") and not options.debug:
        builder.options = replace(options, sanitize_overflow=False)


def _remembered(
    make: Callable[..., None], key_of: Callable[..., Any], own: tuple[str, ...] = ()
) -> Callable[..., None]:
    """An ``__init__`` that copies what it made of the same key before. The attributes ``own`` are its arguments."""
    made: dict[Any, dict[str, Any]] = {}

    def init(self: Any, *arguments: Any) -> None:
        key = key_of(*arguments)
        if key in made:
            vars(self).update(made[key])
            vars(self).update(zip(own, arguments, strict=False))
            return
        make(self, *arguments)
        made[key] = {name: value for name, value in vars(self).items() if name not in own}

    return init


def _number(size: Any) -> int:
    return getattr(size, "value", size)


@cache
def _modules_of(function: Any) -> list[ModuleType]:
    return [value for value in function.__globals__.values() if isinstance(value, ModuleType)]


def there(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function on the device of the kernels, and return its results to the CPU."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        moved = [value.to(DEVICE) if isinstance(value, torch.Tensor) else value for value in arguments]
        result = function(*moved, **keywords)
        return result.cpu() if isinstance(result, torch.Tensor) else tuple(value.cpu() for value in result)

    return call


def fuse_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every method run its fused code, also on a CPU."""
    for question in QUESTIONS:
        of_halves = question.endswith("halves_fused")
        monkeypatch.setattr(question, _is_float32 if of_halves else _always)


def _always(tensor: torch.Tensor) -> bool:
    return True


def _is_float32(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float32


def views(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The same values in other orders in memory: each with its name."""
    if tensor.ndim > 1:
        yield "transposed", tensor.mT.contiguous().mT
    wider = torch.stack([tensor, torch.full_like(tensor, 99)], -1)
    yield "strided", wider[..., 0]
    longer = torch.cat([torch.full_like(tensor[:1], 77), tensor])
    yield "behind others", longer[1:]


if DEVICE == "cpu":
    patch_language_once()
    remember_types()
    leave_out_what_nobody_reads()
