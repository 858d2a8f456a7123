# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""All steps of evidence's search, one program a task: ``manyway.methods.evidence.search`` without its traffic.

A pass over a task's queries makes the next assignments and adds up what the next pass needs to know of them: for each
class its mass, and the probability that it has no query. The concentration is then chosen anew, and the slopes follow.
Gamma functions are series, for arguments of at least 1: a count and a concentration are never less together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_CLASSES = 2048  # a query's assignments have to fit on chip
MAX_PAIRS = 1 << 20  # of queries and classes in a task: more are too much for one program
_TILE = 2048  # assignments at once


@dataclass(frozen=True)
class Schedule:
    """What the likelihoods are multiplied by, pass after pass."""

    soften: float  # in the first; it rises to 1 in
    start_steps: int  # passes (0: none, and none of what follows)
    hot: float  # after that, for tasks with more classes a query than
    scattered: float
    hot_steps: int  # so many passes
    sharper: float  # in the iterations, where queries
    agreed: float  # agree less than that


def search(
    likelihood: Tensor, alphas: Tensor, normaliser: Tensor, schedule: Schedule, *, max_iter: int, tol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Assignments [t, q, k], iterations done [t], and whether no assignment moved by ``tol`` in the last one [t].

    ``likelihood`` is [t, q, k]; ``alphas`` [g] are the concentrations to choose from, with the prior's ``normaliser``
    [g] for each.
    """
    n_tasks, n_query, n_classes = likelihood.shape
    assignments = torch.empty_like(likelihood, memory_format=torch.contiguous_format)
    n_iter = torch.empty(n_tasks, dtype=torch.int64, device=likelihood.device)
    converged = torch.empty(n_tasks, dtype=torch.bool, device=likelihood.device)
    width = max(16, triton.next_power_of_2(n_classes))
    rows = max(1, min(_TILE // width, triton.next_power_of_2(n_query)))
    _search[(n_tasks,)](
        likelihood.contiguous(),
        assignments,
        torch.empty(n_tasks, 2, n_classes, dtype=likelihood.dtype, device=likelihood.device),
        alphas,
        normaliser,
        torch.lgamma(alphas),
        n_iter,
        converged,
        n_query,
        n_classes,
        len(alphas),
        max_iter,
        float(tol),
        float(schedule.soften),
        schedule.start_steps,
        schedule.hot,
        schedule.scattered,
        schedule.hot_steps,
        schedule.sharper,
        schedule.agreed,
        WIDTH=width,
        ROWS=rows,
        ALPHAS=triton.next_power_of_2(len(alphas)),
        BLOCK=min(width, 64),
        # Of a small tile every warp beyond these would hold a copy, and read what another has written already.
        num_warps=min(8, rows * width // 32) or 1,
        num_stages=1,
    )
    return assignments, n_iter, converged


@triton.jit
def _log_gamma_and_slope(x):
    """Stirling's series at z = x + 4, and Γ(x) = Γ(x+4) / x(x+1)(x+2)(x+3). Of what nobody reads no code is made."""
    z = x + 4
    y = x * (x + 3)
    w = 1 / z
    s = w * w
    log_z = tl.log(z)
    series = w * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s / 1680)))
    log_gamma = series + (z - 0.5) * log_z - z + 0.9189385332046727 - tl.log(y * (y + 2))
    series = log_z - 0.5 * w - s * (1 / 12 - s * (1 / 120 - s / 252))
    return log_gamma, series - (2 * x + 3) * (2 * y + 2) / (y * (y + 2))


@triton.jit
def _presence(mass, log_absent):
    """p⁰, 1 − p⁰ and c: see ``manyway.methods.evidence.prior``."""
    absent = tl.exp(log_absent)
    small = mass * (1 - mass * (0.5 - mass * (1 / 6 - mass / 24)))
    least = tl.where(mass < 0.05, small, 1 - tl.exp(-mass))  # of independent queries, none surer than another
    present = tl.minimum(tl.maximum(1 - absent, least), mass)
    return absent, present, tl.maximum(mass / tl.maximum(present, 1e-37), 1.0)


@triton.jit(do_not_specialize=["max_iter", "start_steps", "hot_steps"])
def _search(
    likelihood_ptr,
    u_ptr,
    sums_ptr,
    alphas_ptr,
    normaliser_ptr,
    log_gammas_ptr,
    n_iter_ptr,
    converged_ptr,
    n_query,
    n_classes,
    n_alphas,
    max_iter,
    tol,
    soften,
    start_steps,
    hot,
    scattered,
    hot_steps,
    sharper,
    agreed,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    ALPHAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    t = tl.program_id(0).to(tl.int64)
    likelihood_ptr += t * n_query * n_classes
    u_ptr += t * n_query * n_classes
    sums_ptr += t * 2 * n_classes
    k = tl.arange(0, WIDTH)
    inside = k < n_classes
    g = tl.arange(0, ALPHAS)
    alphas = tl.load(alphas_ptr + g, g < n_alphas, other=1.0)
    log_gammas = tl.load(log_gammas_ptr + g, g < n_alphas, other=0.0)
    normaliser = tl.load(normaliser_ptr + g, g < n_alphas, other=float("-inf"))

    slope = tl.zeros((WIDTH,), tl.float32)
    price = tl.zeros((WIDTH,), tl.float32)
    share = soften + 0.0  # not a bare number: the loop changes both, and a constant cannot change
    sharp = soften * 0 + 1.0
    done = 0  # passes, without the first
    begin = start_steps + hot_steps  # passes done when the iterations begin
    met = 0
    running = 1
    while running == 1:
        masses = tl.zeros((ROWS, WIDTH), tl.float32)
        rests = tl.zeros((ROWS, WIDTH), tl.float32) + 1
        moves = tl.zeros((ROWS, WIDTH), tl.float32)
        for first in range(0, n_query, ROWS):
            q = first + tl.arange(0, ROWS)
            here = (q < n_query)[:, None] & inside[None, :]
            at = q[:, None] * n_classes + k[None, :]
            started = here & (q < tl.where(done > 0, n_query, 0))[:, None]
            before = tl.load(u_ptr + at, started, other=0.0)
            x = tl.load(likelihood_ptr + at, here, other=0.0) * share
            x += slope[None, :] + price[None, :] / tl.maximum(1 - before, 1e-6)
            x = tl.where(inside[None, :], x, float("-inf"))
            e = tl.exp(x - tl.max(x, axis=1)[:, None])
            u = tl.where(here, e / tl.sum(e, axis=1)[:, None], 0.0)
            tl.store(u_ptr + at, u, here)
            masses += u
            rests *= tl.maximum(1 - u, 1e-6)
            moves = tl.maximum(moves, tl.abs(u - before))
        mass = tl.sum(masses, axis=0)
        log_absent = tl.sum(tl.log(rests), axis=0)
        moved = tl.max(tl.max(moves, axis=1), axis=0)
        tl.store(sums_ptr + k, mass, inside)
        tl.store(sums_ptr + n_classes + k, log_absent, inside)
        tl.debug_barrier()  # the next pass, and the sum over classes, read what other threads have written

        parts = mass / n_query
        groups = tl.exp(-tl.sum(tl.where(parts > 0, parts * tl.log(tl.maximum(parts, 1e-37)), 0.0), axis=0))
        if (done == start_steps) & ((start_steps == 0) | (groups <= scattered * n_query)):
            begin = start_steps  # nobody has to be pressed
        if (done == begin) & (start_steps > 0):
            sharp = tl.where(1 - groups / tl.minimum(n_query, n_classes) < agreed, sharper * 1.0, 1.0)
        met = ((done > begin) & (moved < tol)).to(tl.int32)
        running = ((met == 0) & (done < begin + max_iter)).to(tl.int32)
        if running == 1:
            share = tl.where(done < begin, hot * 1.0, sharp)
            if done < start_steps:
                share = tl.exp2(tl.log2(soften) * (1 - done / start_steps))
            done += 1
            prior = normaliser
            for first in range(0, n_classes, BLOCK):
                c = first + tl.arange(0, BLOCK)
                some = tl.load(sums_ptr + c, c < n_classes, other=0.0)
                log_some = tl.load(sums_ptr + n_classes + c, c < n_classes, other=0.0)
                absent, present, count = _presence(some, log_some)
                log_gamma, _ = _log_gamma_and_slope(count[:, None] + alphas[None, :])
                prior += tl.sum(present[:, None] * (log_gamma - log_gammas[None, :]), axis=0)
            best = tl.argmax(prior, axis=0)
            alpha = tl.load(alphas_ptr + best)
            absent, present, count = _presence(mass, log_absent)
            rise, slope = _log_gamma_and_slope(count + alpha)
            price = absent * (rise - tl.load(log_gammas_ptr + best) - count * slope)
            tl.debug_barrier()  # the sums have been read

    tl.store(n_iter_ptr + t, (done - begin).to(tl.int64))
    tl.store(converged_ptr + t, met == 1)
