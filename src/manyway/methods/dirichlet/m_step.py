"""The parameters of Dirichlet distributions, given the mean logarithms of their samples.

For a class with mean logarithms y_j, the mean log-likelihood of parameters α is
ln Γ(A) − Σ_j ln Γ(α_j) + Σ_j (α_j − 1) y_j with A = Σ_j α_j. It is concave. Classes are rows, and
no row depends on another.
"""

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
    """[t, k, j] the α that maximise the mean log-likelihood for targets y [t, k, j].

    They are found by Newton steps from ``alpha``.

    None begins with a rough solution.

    The Hessian is ψ'(A) − diag(ψ'(α)), a matrix of rank one plus a diagonal, so a step costs O(j)
    per row (Minka, 2000). Where α rises, it rises by the step. Where α falls, 1/α rises by the
    step: near 0, ψ(α) is about −1/α, so that α stays positive and reaches small values at once.
    Rows that are done are not computed again.

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
    """[n, j] roughly the best α, by Minka's fixed point α = ψ⁻¹(y + ψ(A)).

    ψ⁻¹ is his approximation.
    """
    total = torch.ones_like(targets[:, :1])
    for _ in range(_ROUGH_STEPS):
        y = targets + torch.digamma(total)
        alpha = torch.where(y > -2.22, y.exp().add_(0.5), y.add(_EULER).reciprocal_().neg_())
        total = alpha.sum(-1, keepdim=True)
    return alpha


def authors_steps(alpha: Tensor, target: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """[t, k, j] the α after the authors' minorise-maximise steps from ``alpha``: at most 1,000.

    Each step maximises a lower bound whose curvature in α is c(α) = 2 (α ψ(α+1) − ln Γ(α+1)) / α².
    Every 50 steps a task stops if ‖α_new − α‖² < 1e-11 ‖α‖² over all its classes. Usually none
    does, and the result then depends on where the steps began. ``alpha`` and ``target`` are
    float64; ``dtype`` is the type that steps are computed in.
    """
    answer = alpha.clone()
    tasks = torch.arange(len(alpha), device=alpha.device)
    steps = _Steps(alpha, target, dtype)
    for step in range(_MM_STEPS):
        checked = step > 0 and step % _MM_STEPS_BETWEEN_CHECKS == 0
        before = steps.alpha() if checked else alpha
        steps.take()
        if checked:
            alpha = steps.alpha()
            moving = (alpha - before).square_().sum((1, 2)) >= _MM_TOLERANCE * before.square_().sum(
                (1, 2)
            )
            if not bool(moving.all()):
                answer[tasks] = alpha
                tasks = tasks[moving]
                if len(tasks) == 0:
                    return answer
                steps = _Steps(alpha[moving], target[tasks], dtype)
    answer[tasks] = steps.alpha()
    return answer


class _Steps:
    """The authors' steps for α [t, k, j], as relative changes x of each α.

    Changes are since an earlier α₀.

    With f = α (y + ψ(A) − ψ(α)) and h = α² c(α),
    the step that the authors write as the root of a quadratic equation is

        α_new = α (1 + 2r),    r = f / (1 + h − f + √((1 + h + f)² − 4f)).

    f and h follow from their values at α₀ and from polynomials in x; ψ(A) is exact:

        f = (1 + x) (f₀ + α₀ (ψ(A) − ψ(A₀)) − α₀ (ψ(α+1) − ψ(α₀+1))) − x,    h' = 2α ψ'(α+1).

    The polynomials are made anew when an α has changed by 1 %. Near the end, steps are
    small differences, but nothing here cancels. Steps in float32 are therefore as exact as
    those in float64: α after 1,000 steps has a relative error below 1e-6 in either type,
    from the polynomials.
    """

    def __init__(self, alpha: Tensor, target: Tensor, dtype: torch.dtype) -> None:
        # y and α₀, float64, as are the next three
        self.target = target.contiguous()
        self.origin = alpha.clone()
        self.sum_of_origins = alpha.sum(-1, keepdim=True)  # [t, k, 1]
        self.psi_of_total = torch.digamma(self.sum_of_origins)  # ψ(A₀)
        self.slope = torch.zeros_like(alpha)  # f₀
        # In the type of the steps: f₀, α₀, the coefficients of α₀ (ψ(α+1) − ψ(α₀+1)) from x to x³, those of 1 + h,
        # and α₀/(α₀+1).
        self.series = torch.zeros(9, *alpha.shape, dtype=dtype, device=alpha.device)
        self.rows = self.series.unbind()
        self.change = torch.zeros_like(alpha, dtype=dtype)  # x
        # reused, as each step is short
        self.scratch = tuple(torch.empty_like(self.change) for _ in range(3))
        self._renew(torch.arange(alpha.numel(), device=alpha.device))

    def alpha(self) -> Tensor:
        """[t, k, j] the present α."""
        return (self.change.double() + 1).mul_(self.origin)

    def take(self) -> None:
        """Take one step."""
        if self.left == 0:
            self._check()
        self.left -= 1
        self.taken += 1
        x = self.change
        f, h, q = self.scratch
        slope, origin, psi1, psi2, psi3, h0, h1, h2, _ = self.rows
        shift = self._psi_of_total().sub_(self.psi_of_total).to(x.dtype)
        torch.addcmul(psi2, psi3, x, out=q)
        torch.addcmul(psi1, q, x, out=q)
        torch.addcmul(slope, q, x, value=-1, out=q).addcmul_(origin, shift)
        torch.addcmul(q, q, x, out=f).sub_(x)
        torch.addcmul(h1, h2, x, out=h)
        torch.addcmul(h0, h, x, out=h)
        torch.add(h, f, out=q).square_().sub_(f, alpha=4).sqrt_().add_(h).sub_(f)
        x.addcdiv_(f.addcmul_(f, x), q, value=2)

    def _psi_of_total(self) -> Tensor:
        """[t, k, 1] ψ(A)."""
        return torch.digamma(
            self.sum_of_origins + torch.linalg.vecdot(self.rows[1], self.change).unsqueeze(-1)
        )

    def _check(self) -> None:
        """Renew series that are used too far from their origin, and plan the next check.

        It comes after half the expected time.
        """
        relative = torch.mul(self.change, self.rows[-1], out=self.scratch[0]).abs_()  # of α + 1
        largest = float(relative.amax())
        if largest > _EXPANSION:
            # others soon would be
            self._renew((relative > _EXPANSION / 2).flatten().nonzero().squeeze(1))
        else:
            expected = (_EXPANSION / max(largest, 1e-9) - 1) * self.taken
            self.left = max(1, min(_MM_STEPS_BETWEEN_CHECKS, int(expected / 2)))

    def _renew(self, which: Tensor) -> None:
        """Expand around the present values of some α, given as places in the flattened array."""
        shift = self._psi_of_total() - self.psi_of_total
        if float(shift.abs().amax()) > _EXPANSION:
            self.psi_of_total += shift
            self.rows[0].copy_(self.slope.addcmul_(self.origin, shift))
        origins = self.origin.view(-1)
        changes = self.change.view(-1)
        rows = which // self.target.shape[-1]
        before = origins[which]
        alpha = before * (1 + changes[which].double())
        origins[which] = alpha
        changes[which] = 0
        self.sum_of_origins.view(-1).index_add_(0, rows, alpha - before)
        x = alpha + 1
        square = alpha.square()
        psi = torch.digamma(x)
        part = alpha / x
        # α² ψ' at three places, and the parabola through them.
        low, here, high = (
            torch.polygamma(1, x * step) * square for step in (1 - _EXPANSION, 1, 1 + _EXPANSION)
        )
        second = part * (high - low) / (4 * _EXPANSION)
        third = part.square() * (high - 2 * here + low) / (6 * _EXPANSION**2)
        h = 2 * (alpha * psi - torch.lgamma(x))
        slope = alpha * (self.target.view(-1)[which] + self.psi_of_total.view(-1)[rows] - psi) + 1
        self.slope.view(-1)[which] = slope
        series = torch.stack(
            [slope, alpha, here, second, third, 1 + h, 2 * here, here + 2 * second, part]
        )
        self.series.view(9, -1).index_copy_(1, which, series.to(self.series.dtype))
        self.taken = 0  # steps since now
        self.left = 1  # steps until the next check
