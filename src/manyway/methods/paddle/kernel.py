# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""All iterations of PADDLE in its Gram form, one program per task: the kernel of ``manyway.methods.paddle.solver``.

The inner products among queries, G, stay on chip. One pass over blocks of classes is an iteration: a block's new
assignments are computed from the previous ones through C + G u without leaving the registers. What a pass reads from
memory, the state and C of one task, stays in the caches.

G u runs on tensor cores. Both factors are split into two parts of 16 bits, and three of the four products are computed;
the fourth is below the rounding of float32.

A stable softmax subtracts the largest logit, or any number near it. Here it is a fixed reference per query, which is
measured once, and again when the logits have moved so far that float32 would overflow or underflow.

Iterations that cannot change the answer are skipped: when the state equals, bit for bit, that of two iterations ago,
and an even number of iterations remains, the last of them would give the same state.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from manyway.core.kernels import two_blocks
from manyway.core.kernels.launch import Memory, launch, reads, writes
from manyway.methods.paddle.forms import GramForm

MAX_QUERY = 128  # more do not fit on chip


def iterate(
    form: GramForm, *, weight: float, eps: float, max_iter: int, tol: float | None = None, skip: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Run PADDLE's iterations, from the support's class means; weight is λ/|Q|.

    Returns the assignments [t, q, k], the iterations done [t], and whether ``tol`` was met [t]. ``skip``: whether the
    iterations that repeat assignments bit for bit are left out.
    """
    cross = form.cross
    n_tasks, n_query, n_classes = cross.shape
    if n_query > MAX_QUERY:
        raise ValueError(f"at most {MAX_QUERY} queries fit on chip; got {n_query}")
    assignments = cross.new_empty(n_tasks, n_query, n_classes)
    n_iter = torch.empty(n_tasks, dtype=torch.int64, device=cross.device)
    converged = torch.empty(n_tasks, dtype=torch.bool, device=cross.device)
    first, second = two_blocks(n_query)
    # Scaled by a power of two, which is exact, so that no product of two queries is above 1. The limit 2⁻⁴⁰ is for a
    # single query, which equals the mean of the queries: its products are 0 and change no logit.
    units = form.gram.diagonal(dim1=1, dim2=2).amax(1).clamp_min(2.0**-40).log2().ceil().exp2()
    scale = units.reciprocal()
    columns = pad(cross.mT * scale.view(-1, 1, 1), (0, first + second - n_query))  # a row per class
    memory = Memory.of(
        gram=reads(form.gram * scale.view(-1, 1, 1), "t q q"),
        cross=reads(columns, "t k padded"),
        norms=reads(form.sum_norms * scale.view(-1, 1), "t k"),
        counts=reads(form.counts, "t k"),
        units=reads(units, "t"),
        state=writes(cross.new_empty(2, n_tasks, n_classes, first + second), "2 t k padded"),
        out=writes(assignments, "t q k"),
        n_iter=writes(n_iter, "t", torch.int64),
        converged=writes(converged, "t", torch.bool),
    )
    launch(
        _iterate,
        (n_tasks,),
        memory,
        n_tasks=n_tasks,
        n_query=n_query,
        n_classes=n_classes,
        max_iter=max_iter,
        weight=weight,
        eps=eps,
        tol=0.0 if tol is None else tol,
        Q1=first,
        Q2=second,
        BLOCK=32,
        TOL=tol is not None,
        DUAL=weight != 0,
        SKIP=skip and tol is None,
        num_warps=2,
        num_stages=1,
    )
    return assignments, n_iter, converged


@triton.jit
def _halves(x):
    """x = high + rest / 2048 with 16 bits each: exact to float32 for x between 2⁻¹⁴ and 1, less so for smaller x."""
    high = x.to(tl.float16)
    return high, ((x - high.to(tl.float32)) * 2048).to(tl.float16)


@triton.jit
def _load_gram(gram_ptr, row, column, n_query):
    inside = (row < n_query)[:, None] & (column < n_query)[None, :]
    return _halves(tl.load(gram_ptr + row[:, None] * n_query + column[None, :], inside, other=0.0))


@triton.jit
def _add_product(c, u_a, u_b, a_high, a_rest, b_high, b_rest):
    """c + u_a @ G_a + u_b @ G_b; the error is below 2⁻²² of the largest term."""
    high_a, rest_a = _halves(u_a)
    high_b, rest_b = _halves(u_b)
    rest = tl.dot(high_a, a_rest)
    rest = tl.dot(rest_a, a_high, rest)
    rest = tl.dot(high_b, b_rest, rest)
    rest = tl.dot(rest_b, b_high, rest)
    c = tl.dot(high_a, a_high, c)
    c = tl.dot(high_b, b_high, c)
    return c + rest * (1 / 2048)


@triton.jit(do_not_specialize=["n_tasks"])  # a value of 1 would become a constant, which has no method .to
def _iterate(
    gram_ptr, cross_ptr, norms_ptr, counts_ptr, units_ptr, state_ptr, out_ptr, n_iter_ptr, converged_ptr,
    n_tasks, n_query, n_classes, max_iter, weight, eps, tol,
    Q1: tl.constexpr, Q2: tl.constexpr, BLOCK: tl.constexpr, TOL: tl.constexpr, DUAL: tl.constexpr,
    SKIP: tl.constexpr,
):  # fmt: skip
    LOG2E: tl.constexpr = 1.4426950408889634
    t = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, Q1)
    b = Q1 + tl.arange(0, Q2)
    size = n_classes * (Q1 + Q2)
    gram_ptr += t * n_query * n_query
    cross_ptr += t * size
    norms_ptr += t * n_classes
    counts_ptr += t * n_classes
    state_ptr += t * size
    out_ptr += t * n_query * n_classes
    unit = tl.load(units_ptr + t)
    aa_high, aa_rest = _load_gram(gram_ptr, a, a, n_query)
    ab_high, ab_rest = _load_gram(gram_ptr, a, b, n_query)
    ba_high, ba_rest = _load_gram(gram_ptr, b, a, n_query)
    bb_high, bb_rest = _load_gram(gram_ptr, b, b, n_query)

    # The state is e = 2^(logit − reference) of every class and query, and u = e · scale. Two arrays alternate: one has
    # the current state, the other the previous one until it is overwritten. A scale of 0 means u = 0: before the first
    # iteration, and always in the padding.
    other = n_tasks.to(tl.int64) * size
    source = other * 0
    scale_a = tl.zeros((Q1,), tl.float32)
    scale_b = tl.zeros((Q2,), tl.float32)
    reference_a = tl.zeros((Q1,), tl.float32)
    reference_b = tl.zeros((Q2,), tl.float32)
    before_a = tl.zeros((Q1,), tl.float32)  # not `= scale_a`: Triton would treat both names as one variable
    before_b = tl.zeros((Q2,), tl.float32)
    iteration = 0  # iterations done
    measuring = 1  # this pass finds the reference, the largest logit of each query
    measured = 0  # iterations done when the reference was found
    met = 0
    running = 1
    while running == 1:
        target = other - source
        # The reduction over the classes: the largest logit when measuring, otherwise the sum of e.
        total_a = tl.where(a >= 0, tl.where(measuring == 1, float("-inf"), 0.0), 0.0)
        total_b = tl.where(b >= 0, tl.where(measuring == 1, float("-inf"), 0.0), 0.0)
        changes = 0
        movement = 0.0
        # Comparing with the state of two iterations ago is useful when an even number of iterations remains afterwards.
        compare = ((max_iter - iteration) % 2 == 1) & (iteration >= measured + 2) & SKIP
        for first in range(0, n_classes, BLOCK):
            k = first + tl.arange(0, BLOCK)
            inside = k < n_classes
            here = inside[:, None]
            at_a = k[:, None] * (Q1 + Q2) + a[None, :]
            at_b = k[:, None] * (Q1 + Q2) + b[None, :]
            started = (k < tl.where(iteration > 0, n_classes, 0))[:, None]
            u_a = tl.load(state_ptr + source + at_a, started, other=0.0) * scale_a[None, :]
            u_b = tl.load(state_ptr + source + at_b, started, other=0.0) * scale_b[None, :]
            mass = tl.sum(u_a, axis=1) + tl.sum(u_b, axis=1)
            count = tl.load(counts_ptr + k, inside, other=1.0)
            norm = tl.load(norms_ptr + k, inside, other=0.0)
            c_a = tl.load(cross_ptr + at_a, here, other=0.0)
            c_b = tl.load(cross_ptr + at_b, here, other=0.0)
            inverse = 1 / (count + mass)
            if TOL:
                earlier = (k < tl.where(iteration > 1, n_classes, 0))[:, None]
                v_a = tl.load(state_ptr + target + at_a, earlier, other=0.0) * before_a[None, :]
                v_b = tl.load(state_ptr + target + at_b, earlier, other=0.0) * before_b[None, :]
                old = 1 / (count + tl.sum(v_a, axis=1) + tl.sum(v_b, axis=1))
                step = inverse - old
                v_a = u_a * inverse[:, None] - v_a * old[:, None]
                v_b = u_b * inverse[:, None] - v_b * old[:, None]
                square = step * step * norm
                v_c = 2 * step[:, None] * c_a
                square += tl.sum(v_a * _add_product(v_c, v_a, v_b, aa_high, aa_rest, ba_high, ba_rest), axis=1)
                v_c = 2 * step[:, None] * c_b
                square += tl.sum(v_b * _add_product(v_c, v_a, v_b, ab_high, ab_rest, bb_high, bb_rest), axis=1)
                movement += tl.sum(tl.where(inside, tl.sqrt(tl.maximum(square * unit, 0.0)), 0.0))
            p_a = _add_product(c_a, u_a, u_b, aa_high, aa_rest, ba_high, ba_rest)
            p_b = _add_product(c_b, u_a, u_b, ab_high, ab_rest, bb_high, bb_rest)
            norm += tl.sum(u_a * (c_a + p_a), axis=1) + tl.sum(u_b * (c_b + p_b), axis=1)
            slope = inverse * unit * LOG2E
            offset = -0.5 * norm * inverse * slope
            if DUAL:
                offset += tl.where(iteration > 0, weight * (LOG2E + tl.log2(mass / n_query + eps)), 0.0)
            offset = tl.where(inside, offset, float("-inf"))
            x_a = p_a * slope[:, None] + offset[:, None]
            x_b = p_b * slope[:, None] + offset[:, None]
            if measuring == 1:
                total_a = tl.maximum(total_a, tl.max(x_a, axis=0))
                total_b = tl.maximum(total_b, tl.max(x_b, axis=0))
            else:
                e_a = tl.exp2(x_a - reference_a[None, :])
                e_b = tl.exp2(x_b - reference_b[None, :])
                total_a += tl.sum(e_a, axis=0)
                total_b += tl.sum(e_b, axis=0)
                if compare:
                    old_a = tl.load(state_ptr + target + at_a, here, other=0.0)
                    old_b = tl.load(state_ptr + target + at_b, here, other=0.0)
                    changes += tl.sum((old_a != e_a).to(tl.int32)) + tl.sum((old_b != e_b).to(tl.int32))
                tl.store(state_ptr + target + at_a, e_a, here)
                tl.store(state_ptr + target + at_b, e_b, here)
        tl.debug_barrier()  # the next pass reads what other threads wrote

        if TOL:
            met = ((iteration > 0) & (movement < tol * n_classes)).to(tl.int32)
            running = ((met == 0) & (iteration < max_iter)).to(tl.int32)
        if running == 1:
            if measuring == 1:
                reference_a, reference_b = total_a, total_b
                measuring = 0
                measured = iteration
            else:
                total_a = tl.where(a < n_query, total_a, 1.0)
                total_b = tl.where(b < n_query, total_b, 1.0)
                lowest = tl.minimum(tl.min(total_a), tl.min(total_b))
                highest = tl.maximum(tl.max(total_a), tl.max(total_b))
                if ((lowest < 1e-18) | (highest > 1e30)) & (measured < iteration):
                    measuring = 1  # out of range: repeat the iteration with a new reference
                else:
                    before_a = scale_a
                    before_b = scale_b
                    scale_a = tl.where(a < n_query, 1 / total_a, 0.0)
                    scale_b = tl.where(b < n_query, 1 / total_b, 0.0)
                    source = target
                    iteration += 1
                    if not TOL:
                        repeated = compare & (changes == 0)
                        running = ((iteration < max_iter) & (repeated == 0)).to(tl.int32)

    tl.store(n_iter_ptr + t, tl.where(TOL, iteration, max_iter).to(tl.int64))
    tl.store(converged_ptr + t, met == 1)
    for first in range(0, n_classes, BLOCK):
        k = first + tl.arange(0, BLOCK)
        inside = (k < n_classes)[:, None]
        u_a = tl.load(state_ptr + source + k[:, None] * (Q1 + Q2) + a[None, :], inside, other=0.0) * scale_a[None, :]
        u_b = tl.load(state_ptr + source + k[:, None] * (Q1 + Q2) + b[None, :], inside, other=0.0) * scale_b[None, :]
        row = (k < n_classes)[None, :]
        tl.store(out_ptr + a[:, None] * n_classes + k[None, :], tl.trans(u_a), row & (a < n_query)[:, None])
        tl.store(out_ptr + b[:, None] * n_classes + k[None, :], tl.trans(u_b), row & (b < n_query)[:, None])
