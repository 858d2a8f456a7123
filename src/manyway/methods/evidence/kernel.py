# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""The search of evidence as a GPU kernel: a compiled copy of ``manyway.methods.evidence.loop``.

There is one program per task.

An update reads the likelihoods and assignments of a task once. It writes the new assignments,

    u_qk = softmax_k(ψ ℓ_qk + slope_k + entry_cost_k / (1 − u_qk)),

and accumulates m_k = Σ_q u_qk, the expected count of each class, and ln p⁰_k = Σ_q ln(1 − u_qk),
the logarithm of the probability that the class is absent. The concentration is then chosen among
the grid, and the slopes follow. Gamma functions are evaluated by series for arguments of at least
1, which suffices because a count is at least 1.

The order of sums differs from the plain loop, so that assignments agree to rounding; a test
compares the two.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, reads, writes
from manyway.methods.evidence.schedule import Parameters

MAX_CLASSES = 2048  # the assignments of one query must fit into registers
# Queries × classes per task: beyond this one program per task leaves most of the GPU idle
MAX_PAIRS = 1 << 20
_TILE = 2048  # assignments per tile
_LEAST_WIDTH = 16  # of a tile
_BLOCK = 64  # classes whose prior is computed at once
_MOST_WARPS = 8
_WARP = 32  # threads


class KernelSearch(NamedTuple):
    """What the kernel finds."""

    assignments: Tensor  # [t, q, k]
    n_iter: Tensor  # [t] iterations after annealing
    converged: Tensor  # [t] whether no assignment moved by ``tol`` in the last one


def search(
    likelihood: Tensor,
    alphas: Tensor,
    normaliser: Tensor,
    parameters: Parameters,
) -> KernelSearch:
    """The search of all tasks, one program per task.

    Parameters
    ----------
    likelihood : Tensor of shape [t, q, k]
        ℓ in float32, on a GPU.
    alphas : Tensor of shape [g]
        The concentrations to choose from.
    normaliser : Tensor of shape [g]
        ln Γ(Kα)/Γ(|Q|+Kα) of each.
    parameters : Parameters

    Returns
    -------
    KernelSearch
    """
    n_tasks, n_query, n_classes = likelihood.shape
    schedule = parameters.constants
    assignments = likelihood.new_empty(n_tasks, n_query, n_classes)
    n_iter = torch.empty(n_tasks, dtype=torch.int64, device=likelihood.device)
    converged = torch.empty(n_tasks, dtype=torch.bool, device=likelihood.device)
    width = max(_LEAST_WIDTH, triton.next_power_of_2(n_classes))
    rows = max(1, min(_TILE // width, triton.next_power_of_2(n_query)))
    memory = Memory.of(
        likelihood=reads(likelihood, "t q k"),
        u=writes(assignments, "t q k"),
        sums=writes(likelihood.new_empty(n_tasks, 2, n_classes), "t 2 k"),
        alphas=reads(alphas, "g"),
        normaliser=reads(normaliser, "g"),
        log_gammas=reads(torch.lgamma(alphas), "g"),
        n_iter=writes(n_iter, "t", torch.int64),
        converged=writes(converged, "t", torch.bool),
    )
    launch(
        _search,
        (n_tasks,),
        memory,
        n_query=n_query,
        n_classes=n_classes,
        n_alphas=len(alphas),
        max_iter=parameters.max_iter,
        tol=float(parameters.tol),
        anneal_from=float(schedule.anneal_from),
        anneal_steps=len(schedule.annealing),
        WIDTH=width,
        ROWS=rows,
        ALPHAS=triton.next_power_of_2(len(alphas)),
        BLOCK=min(width, _BLOCK),
        # More warps than this would hold copies of a small tile and read elements that another has
        # overwritten.
        num_warps=max(1, min(_MOST_WARPS, rows * width // _WARP)),
        num_stages=1,
    )
    return KernelSearch(assignments, n_iter, converged)


@triton.jit
def _log_gamma_and_slope(x):
    """ln Γ(x) and its derivative by Stirling's series at x + 4.

    Unused outputs are eliminated by the compiler.
    """
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
def _query_counts(mass, log_absent):
    """p⁰, 1 − p⁰ and c: see ``manyway.methods.evidence.prior``."""
    absent = tl.exp(log_absent)
    small = mass * (1 - mass * (0.5 - mass * (1 / 6 - mass / 24)))
    # A lower bound on 1 − p⁰ given the mass
    least = tl.where(mass < 0.05, small, 1 - tl.exp(-mass))
    present = tl.minimum(tl.maximum(1 - absent, least), mass)
    return absent, present, tl.maximum(mass / tl.maximum(present, 1e-37), 1.0)


@triton.jit(do_not_specialize=["max_iter", "anneal_steps"])
def _search(
    likelihood_ptr, u_ptr, sums_ptr, alphas_ptr, normaliser_ptr, log_gammas_ptr, n_iter_ptr, converged_ptr,
    n_query, n_classes, n_alphas, max_iter, tol, anneal_from, anneal_steps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, ALPHAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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
    entry_cost = tl.zeros((WIDTH,), tl.float32)
    sharpness = anneal_from + 0.0  # computed, because the loop cannot reassign a constant
    sharp = anneal_from * 0 + 1.0
    done = 0  # updates, without the first assignment
    met = 0
    running = 1
    while running == 1:
        masses = tl.zeros((ROWS, WIDTH), tl.float32)
        remainders = tl.zeros((ROWS, WIDTH), tl.float32) + 1
        moves = tl.zeros((ROWS, WIDTH), tl.float32)
        for first in range(0, n_query, ROWS):
            q = first + tl.arange(0, ROWS)
            here = (q < n_query)[:, None] & inside[None, :]
            at = q[:, None] * n_classes + k[None, :]
            started = here & (q < tl.where(done > 0, n_query, 0))[:, None]
            before = tl.load(u_ptr + at, started, other=0.0)
            x = tl.load(likelihood_ptr + at, here, other=0.0) * sharpness
            x += slope[None, :] + entry_cost[None, :] / tl.maximum(1 - before, 1e-6)
            x = tl.where(inside[None, :], x, float("-inf"))
            e = tl.exp(x - tl.max(x, axis=1)[:, None])
            u = tl.where(here, e / tl.sum(e, axis=1)[:, None], 0.0)
            tl.store(u_ptr + at, u, here)
            masses += u
            remainders *= tl.maximum(1 - u, 1e-6)
            moves = tl.maximum(moves, tl.abs(u - before))
        mass = tl.sum(masses, axis=0)
        log_absent = tl.sum(tl.log(remainders), axis=0)
        moved = tl.max(tl.max(moves, axis=1), axis=0)
        tl.store(sums_ptr + k, mass, inside)
        tl.store(sums_ptr + n_classes + k, log_absent, inside)
        tl.debug_barrier()  # other threads read these sums and assignments next

        parts = mass / n_query
        effective = tl.exp(
            -tl.sum(
                tl.where(parts > 0, parts * tl.log(tl.maximum(parts, 1e-37)), 0.0),
                axis=0,
            )
        )
        if (done == anneal_steps) & (anneal_steps > 0):
            agreement = tl.maximum(1 - effective / tl.minimum(n_query, n_classes), 0.0)
            sharp = 1.5 - 0.5 * agreement
        met = ((done > anneal_steps) & (moved < tol)).to(tl.int32)
        running = ((met == 0) & (done < anneal_steps + max_iter)).to(tl.int32)
        if running == 1:
            sharpness = sharp
            if done < anneal_steps:
                sharpness = tl.exp2(tl.log2(anneal_from) * (1 - done / anneal_steps))
            done += 1
            prior = normaliser
            for first in range(0, n_classes, BLOCK):
                c = first + tl.arange(0, BLOCK)
                some = tl.load(sums_ptr + c, c < n_classes, other=0.0)
                log_some = tl.load(sums_ptr + n_classes + c, c < n_classes, other=0.0)
                absent, present, count = _query_counts(some, log_some)
                log_gamma, _ = _log_gamma_and_slope(count[:, None] + alphas[None, :])
                prior += tl.sum(present[:, None] * (log_gamma - log_gammas[None, :]), axis=0)
            best = tl.argmax(prior, axis=0)
            alpha = tl.load(alphas_ptr + best)
            absent, present, count = _query_counts(mass, log_absent)
            rise, slope = _log_gamma_and_slope(count + alpha)
            entry_cost = absent * (rise - tl.load(log_gammas_ptr + best) - count * slope)
            tl.debug_barrier()  # all threads have read the sums before they are overwritten

    tl.store(n_iter_ptr + t, (done - anneal_steps).to(tl.int64))
    tl.store(converged_ptr + t, met == 1)
