"""What a kernel assumes about memory is made so, or refused, before it starts."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

import manyway
from manyway.core.kernels.launch import MAX_PROGRAMS, Memory, launch, reads, writes, writes_part

SOURCE = Path(manyway.__file__).parent


class Kernel:
    """Remembers what it was started with."""

    def __init__(self) -> None:
        self.grid: tuple[int, ...] = ()
        self.given: dict[str, Any] = {}

    def __getitem__(self, grid):
        self.grid = grid
        return self.start

    def start(self, **given):
        self.given = given


def test_a_kernel_gets_its_tensors_by_name_and_its_numbers():
    kernel = Kernel()
    values = torch.zeros(2, 3)
    launch(kernel, (2,), Memory.of(values=reads(values, "t n"), out=writes(values, "t n")), n=3, BLOCK=16)
    assert kernel.grid == (2,)
    assert kernel.given == {"values_ptr": values, "out_ptr": values, "n": 3, "BLOCK": 16}


@pytest.mark.parametrize(
    "view",
    [
        torch.arange(12.0).view(4, 3).mT,
        torch.arange(24.0).view(3, 8)[:, ::2],
        torch.arange(3.0).view(3, 1).expand(3, 4),
        torch.arange(24.0).view(6, 4)[::2],
    ],
    ids=["transposed", "strided", "expanded", "every other row"],
)
def test_a_view_is_copied_into_rows(view):
    found = Memory.of(values=reads(view, "n d")).pointers["values_ptr"]
    assert found.is_contiguous()
    assert torch.equal(found, view)


def test_what_is_contiguous_is_not_copied():
    values = torch.zeros(2, 3)
    assert Memory.of(values=reads(values, "n d")).pointers["values_ptr"] is values


def test_integers_are_converted():
    labels = torch.tensor([[1, 2]], dtype=torch.uint8)
    found = Memory.of(labels=reads(labels, "t n", torch.int64)).pointers["labels_ptr"]
    assert found.dtype == torch.int64
    assert found.tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_another_type_is_refused(dtype):
    with pytest.raises(ValueError, match=r"values must be torch\.float32; it is torch"):
        Memory.of(values=reads(torch.zeros(2, 3, dtype=dtype), "t n"))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 3, 4), "t n n"), ((2, 3), "t n d"), ((3, 3), "t n"), ((2, 4), "t 3")],
    ids=["not square", "too few axes", "other number of tasks", "not the given number"],
)
def test_another_shape_is_refused(shape, axes):
    with pytest.raises(ValueError, match=r"other must have the shape \[.*\] with t = 2.*; it has \["):
        Memory.of(first=reads(torch.zeros(2), "t"), other=reads(torch.zeros(shape), axes))


def test_a_view_that_would_be_written_is_refused():
    with pytest.raises(ValueError, match="out is written by the kernel and must be contiguous"):
        Memory.of(out=writes(torch.zeros(4, 3).mT, "t n"))


def test_a_part_of_rows_can_be_written_and_a_transposed_one_cannot():
    whole = torch.zeros(2, 6, 6)
    part = whole[:, 2:, 2:]
    assert Memory.of(matrix=writes_part(part, "t n n")).pointers["matrix_ptr"] is part
    with pytest.raises(ValueError, match="matrix is written by the kernel and must be contiguous"):
        Memory.of(matrix=writes_part(part.mT, "t n n"))


def test_tensors_of_two_devices_are_refused():
    with pytest.raises(ValueError, match="must be on one device"):
        Memory.of(one=reads(torch.zeros(2), "t"), other=reads(torch.zeros(2, device="meta"), "t"))


def test_a_tensor_that_is_not_given_has_another_address():
    values = torch.zeros(2, 3)
    memory = Memory.of(values=reads(values, "t n"), centre=reads(None, "t 1 n"))
    assert memory.pointers["centre_ptr"] is values
    assert memory.without("centre").pointers == {"values_ptr": values}


def test_a_grid_is_long_along_its_first_axis_only():
    memory = Memory.of(values=reads(torch.zeros(2), "t"))
    launch(Kernel(), (MAX_PROGRAMS + 1, MAX_PROGRAMS), memory)
    with pytest.raises(ValueError, match="only the first size may be above 65535"):
        launch(Kernel(), (1, MAX_PROGRAMS + 1), memory)


def kernels_of(tree: ast.AST) -> set[str]:
    """The names of the functions that Triton compiles."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {one.name for one in functions for decorator in one.decorator_list if "triton.jit" in ast.unparse(decorator)}


def test_every_kernel_is_started_by_launch_alone():
    started = 0
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if "triton" in text or "launch" in text else "")
        kernels = kernels_of(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            function = call.func
            by_hand = isinstance(function, ast.Subscript) and ast.unparse(function.value) in kernels
            assert not by_hand, f"{path.name}, line {call.lineno}: start the kernel by manyway.core.kernels.launch"
            started += ast.unparse(function) == "launch" and ast.unparse(call.args[0]) in kernels
    assert started >= 10
