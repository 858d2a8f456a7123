"""The parameters of Dirichlet distributions, given the mean logarithms of their samples.

For a class with mean logarithms y_j, the mean log-likelihood of parameters α is ln Γ(A) − Σ_j ln Γ(α_j) + Σ_j (α_j − 1)
y_j with A = Σ_j α_j. It is concave. Classes are rows, and no row depends on another.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NEWTON_STEPS = 100  # one to five are needed
_ROUGH_STEPS = 8
_EULER = 0.5772156649015329  # −ψ(1)
_RELATIVE_STEP = 1e-5  # a row is done after a step this small: the error is then about its square
# The authors' constants.
_MM_STEPS = 1000
_MM_STEPS_BETWEEN_CHECKS = 50
_MM_TOLERANCE = 1e-11
_EXPANSION = 0.01


def maximise(alpha: Tensor | None, target: Tensor) -> Tensor:
    """[t, k, j] the α that maximise the mean log-likelihood for targets y [t, k, j], by Newton steps from ``alpha``.

    None begins with a rough solution.

    The Hessian is ψ'(A) − diag(ψ'(α)), a matrix of rank one plus a diagonal, so a step costs O(j) per row (Minka,
    2000). Where α rises, it rises by the step. Where α falls, 1/α rises by the step: near 0, ψ(α) is about −1/α, so
    that α stays positive and reaches small values at once. Rows that are done are not computed again.

    >>> alpha = torch.tensor([[[0.3, 2.0, 7.0]]], dtype=torch.float64)
    >>> target = torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))  # the mean logarithms under alpha
    >>> maximise(None, target).flatten().round(decimals=8).tolist()
    [0.3, 2.0, 7.0]
    """
    targets = target.flatten(0, -2)
    answer = _rough(targets) if alpha is None else alpha.flatten(0, -2).clone()
    rows = torch.arange(len(answer), device=target.device)
    for _ in range(_NEWTON_STEPS):
        a = answer[rows]
        total = a.sum(-1, keepdim=True)
        slope = torch.digamma(total) - torch.digamma(a) + targets[rows]
        inverse = torch.polygamma(1, a).reciprocal_()
        shared = (slope * inverse).sum(-1, keepdim=True)
        shared /= torch.polygamma(1, total).reciprocal_() - inverse.sum(-1, keepdim=True)
        step = slope.add_(shared).mul_(inverse).div_(a)  # relative to α
        answer[rows] = torch.where(step > 0, a * (1 + step), a / (1 - step))
        rows = rows[step.abs_().amax(-1) > _RELATIVE_STEP]
        if len(rows) == 0:
            break
    return answer.view_as(target)


def _rough(targets: Tensor) -> Tensor:
    """[n, j] roughly the best α, by Minka's fixed point α = ψ⁻¹(y + ψ(A)) with his approximation of ψ⁻¹."""
    total = torch.ones_like(targets[:, :1])
    for _ in range(_ROUGH_STEPS):
        y = targets + torch.digamma(total)
        alpha = torch.where(y > -2.22, y.exp().add_(0.5), y.add(_EULER).reciprocal_().neg_())
        total = alpha.sum(-1, keepdim=True)
    return alpha


def authors_steps(alpha: Tensor, target: Tensor) -> Tensor:
    """[t, k, j] the α after the authors' minorise-maximise steps from ``alpha``: at most 1,000.

    Each step maximises a lower bound whose curvature in α is c(α) = 2 (α ψ(α+1) − ln Γ(α+1)) / α². Every 50 steps a
    task stops if ‖α_new − α‖² < 1e-11 ‖α‖² over all its classes. Usually none does, and the result then depends on
    where the steps began.

    ψ(α+1) and c(α) are not computed in each step, which would take several times as long, but from their Taylor series
    to the third power around an earlier α. They are computed anew when an α + 1 has changed by 1 %. The error is below
    1e-8.
    """
    answer = alpha.clone()
    tasks = torch.arange(len(alpha), device=alpha.device)
    alpha, table = alpha.clone(), _expand(alpha)
    x, b, c, new = (torch.empty_like(alpha) for _ in range(4))  # reused, as each step is short
    for step in range(_MM_STEPS):
        torch.sub(alpha, table[0], out=x).mul_(table[1])
        if float(torch.linalg.vector_norm(x, torch.inf)) > _EXPANSION:
            far = x.abs() > _EXPANSION / 2  # others would soon be too
            table[:, far] = _expand(alpha[far])
            x.masked_fill_(far, 0)
        _polynomial(table[6:], x, out=c)
        _polynomial(table[2:6], x, out=b).sub_(torch.digamma(alpha.sum(-1, keepdim=True)))
        b.addcmul_(c, alpha, value=-1).sub_(target)
        torch.mul(c, 4, out=new).addcmul_(b, b).sqrt_().sub_(b).div_(c.mul_(2))
        if step > 0 and step % _MM_STEPS_BETWEEN_CHECKS == 0:
            moving = (new - alpha).square_().sum((1, 2)) >= _MM_TOLERANCE * alpha.square().sum((1, 2))
            if not bool(moving.all()):
                answer[tasks] = new
                tasks, target, table = tasks[moving], target[moving], table[:, moving]
                alpha, x, b, c, new = (values[moving] for values in (alpha, x, b, c, new))
                if len(tasks) == 0:
                    return answer
        alpha, new = new, alpha
    answer[tasks] = alpha
    return answer


def _expand(alpha: Tensor) -> Tensor:
    """[10, …] α, 1/(α+1), and the Taylor coefficients of ψ(α+1) and c(α) for powers of the relative change of α + 1.

    The derivatives of c follow from α c' + 2c = 2ψ'(α+1), which also has to be differentiated.
    """
    x = alpha + 1
    psi = [torch.digamma(x), *(torch.polygamma(order, x) for order in (1, 2, 3))]
    c = 2 * (alpha * psi[0] - torch.lgamma(x)) / alpha.square()
    first = 2 * (psi[1] - c) / alpha
    second = (2 * psi[2] - 3 * first) / alpha
    third = (2 * psi[3] - 4 * second) / alpha
    powers = torch.stack([torch.ones_like(x), x, x.square() / 2, x**3 / 6])
    series = [torch.stack(psi) * powers, torch.stack([c, first, second, third]) * powers]
    return torch.cat([torch.stack([alpha, 1 / x]), *series])


def _polynomial(coefficients: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """Of the third degree, with coefficients [4, …] from the constant on."""
    torch.addcmul(coefficients[2], coefficients[3], x, out=out)
    torch.addcmul(coefficients[1], out, x, out=out)
    return torch.addcmul(coefficients[0], out, x, out=out)
