# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Class sums of a gathered support, scaled and centred in the same pass: see ``manyway.core.ops.class_sums``.

Many tasks use the same rows of a class. A program therefore handles one class and a narrow band of its features for
many tasks: the band stays in the multiprocessor's cache, so each feature is read from device memory about once, and not
once per task.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BAND, _TASKS = 32, 64  # features and tasks of a program
_PROGRAMS = 4096  # as many as keep a GPU busy


def class_sums(table: Tensor, index: Tensor, starts: Tensor, factor: Tensor | None, centre: Tensor | None) -> Tensor:
    """[t, k, d] = Σ_s factor·z_s − n_k·centre, over the support rows starts[k]..starts[k+1]-1 of each class.

    Shapes: ``table`` [n, d], ``index`` [t, s] sorted by class, ``starts`` [k+1], ``factor`` and ``centre`` [t, 1, d].
    """
    sums = torch.empty(len(index), len(starts) - 1, table.shape[1], dtype=table.dtype, device=table.device)
    n_tasks, n_classes, n_features = sums.shape
    bands = triton.cdiv(n_features, _BAND)
    splits = min(triton.cdiv(n_tasks, _TASKS), triton.cdiv(_PROGRAMS, n_classes * bands))
    tasks_per_split = triton.cdiv(triton.cdiv(n_tasks, splits), _TASKS) * _TASKS
    _class_sums[(n_classes * bands * splits,)](
        table, index.contiguous(), starts, sums if factor is None else factor.contiguous(),
        sums if centre is None else centre.contiguous(), sums,
        n_tasks, n_classes, index.shape[1], n_features, bands, splits, tasks_per_split,
        FACTOR=factor is not None, CENTRE=centre is not None, BAND=_BAND, TASKS=_TASKS, ROWS=5,
        num_warps=16,
    )  # fmt: skip
    return sums


@triton.jit
def _class_sums(
    table_ptr, index_ptr, starts_ptr, factor_ptr, centre_ptr, sums_ptr,
    n_tasks, n_classes, n_support, n_features, bands, splits, tasks_per_split,
    FACTOR: tl.constexpr, CENTRE: tl.constexpr, BAND: tl.constexpr, TASKS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    split = program % splits
    band = (program // splits) % bands
    k = program // (splits * bands)
    d = band * BAND + tl.arange(0, BAND)
    d_inside = d < n_features
    begin = tl.load(starts_ptr + k)
    count = (tl.load(starts_ptr + k + 1) - begin).to(tl.int32)
    for first in range(split * tasks_per_split, min(n_tasks, (split + 1) * tasks_per_split), TASKS):
        t = first + tl.arange(0, TASKS)
        t_inside = t < n_tasks
        t_wide = t.to(tl.int64)
        total = tl.zeros((TASKS, BAND), tl.float32)
        for place in range(0, count, ROWS):
            for step in tl.static_range(ROWS):  # independent loads, issued together
                asked = t < tl.where(place + step < count, n_tasks, 0)
                row = tl.load(index_ptr + t_wide * n_support + begin + place + step, asked, other=0)
                here = asked[:, None] & d_inside[None, :]
                total += tl.load(table_ptr + row[:, None] * n_features + d[None, :], here, other=0.0)
        inside = t_inside[:, None] & d_inside[None, :]
        of_task = t_wide[:, None] * n_features + d[None, :]
        if FACTOR:
            total *= tl.load(factor_ptr + of_task, inside, other=0.0)
        if CENTRE:
            total -= count.to(tl.float32) * tl.load(centre_ptr + of_task, inside, other=0.0)
        tl.store(sums_ptr + (t_wide[:, None] * n_classes + k) * n_features + d[None, :], total, inside)
