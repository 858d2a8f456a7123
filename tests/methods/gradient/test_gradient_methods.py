"""Baseline, TIM and PADDLE-PGD: gradients equal autograd's, and the steps reach known answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks

from manyway import InputError, Tasks, solve
from manyway.core.ops import prototypes, simplex_projection
from manyway.core.transforms import transform
from manyway.methods.gradient.information import Adam, Cosine, Euclidean, Information
from manyway.methods.paddle.forms import half_norms, prototype_form
from manyway.methods.paddle.gradient import AdamSteps


def shannon(p):
    return -torch.xlogy(p, p).sum(-1)


def tsallis(p, alpha):
    return (1 - p.pow(alpha).sum(-1)) / (alpha - 1)


def information_by_the_formula(tasks, w, head, weights, alphas):
    """The sum over tasks of the loss as the papers write it; w [t, k, d]."""
    if isinstance(head, Euclidean):
        logits = [-head.logit_scale / 2 * torch.cdist(z, w).square() for z in (tasks.support, tasks.query)]
    else:
        logits = [
            head.logit_scale * torch.nn.functional.cosine_similarity(z.unsqueeze(2), w.unsqueeze(1), dim=-1)
            for z in (tasks.support, tasks.query)
        ]
    p_support, p_query = (values.softmax(-1) for values in logits)
    cross_entropy = -p_support.gather(-1, tasks.support_labels.unsqueeze(-1)).log().mean((1, 2))
    marginal, conditional = (shannon if a == 1 else lambda p, a=a: tsallis(p, a) for a in alphas)
    terms = cross_entropy, -marginal(p_query.mean(1)), conditional(p_query).mean(1)
    return sum(weight * term for weight, term in zip(weights, terms, strict=True)).sum()


@pytest.mark.parametrize("head", [Euclidean(15.0), Euclidean(0.7), Cosine(15.0)], ids=str)
@pytest.mark.parametrize(
    ("weights", "alphas"),
    [((1.0, 0.3, 1.0), (1, 1)), ((0.1, 1.0, 0.1), (1, 1)), ((1.0, 1.0, 1.0), (7, 5)), ((0.5, 2.0, 1.0), (2, 1.2))],
    ids=["TIM", "TIM as its authors weigh it", "α-TIM", "unequal orders"],
)
def test_the_gradient_is_that_of_autograd(head, weights, alphas):
    tasks = transform(make_tasks(3, shots=None), "l2")
    w = prototypes(tasks) + 0.1 * torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss = information_by_the_formula(tasks, w.requires_grad_(), head, weights, alphas)
    (expected,) = torch.autograd.grad(loss, w)
    with torch.no_grad():
        samples = torch.cat([tasks.support, tasks.query], 1)
        slopes = Information(weights, alphas).slopes(head.logits(samples, w), tasks.support_labels)
        actual = head.pull_back(slopes, samples, w)
        terms = Information(weights, alphas).terms(head.logits(samples, w), tasks.support_labels)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(terms.sum(), loss, rtol=1e-12, atol=0)


def test_adam_is_torchs():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.01)
    ours = Adam.start(start)
    for step in range(1, 30):
        slope = torch.randn(2, 3, dtype=torch.float64, generator=generator)
        theirs.grad = slope
        optimizer.step()
        ours = ours.step(slope, step, 0.01)
    torch.testing.assert_close(ours.parameters, theirs.detach(), rtol=1e-12, atol=1e-14)


def test_tim_is_the_same_path_as_autograd_and_torchs_adam():
    tasks = transform(make_tasks(2, shots=None), "l2")
    w = prototypes(tasks).requires_grad_()
    optimizer = torch.optim.Adam([w], lr=1e-3)
    for _ in range(50):
        optimizer.zero_grad()
        information_by_the_formula(tasks, w, Euclidean(15.0), (1.0, 0.3, 1.0), (1, 1)).backward()
        optimizer.step()
    solution = solve("tim", tasks, scale=None, lr=1e-3, max_iter=50)
    torch.testing.assert_close(solution.prototypes, w.detach(), rtol=0, atol=1e-9)
    expected = (-7.5 * torch.cdist(tasks.query, w.detach()).square()).softmax(-1)
    torch.testing.assert_close(solution.probabilities, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-9, 1 - 1e-6, 1 + 1e-4])
def test_alpha_tim_becomes_tim_as_alpha_goes_to_one(alpha):
    tasks, shared = make_tasks(2), {"weights": (1.0, 0.3, 1.0), "max_iter": 60, "lr": 1e-3}
    tim = solve("tim", tasks, **shared, with_objective=True)
    alpha_tim = solve("alpha-tim", tasks, **shared, alphas=(alpha, alpha), with_objective=True)
    tolerance = 1e-9 + 10 * abs(alpha - 1)
    torch.testing.assert_close(alpha_tim.probabilities, tim.probabilities, rtol=0, atol=tolerance)
    torch.testing.assert_close(alpha_tim.objective, tim.objective, rtol=0, atol=tolerance)


@pytest.mark.parametrize("method", ["baseline", "baseline++"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_baselines_loss_decreases(method, dtype):
    tasks = make_tasks(3, n_classes=20, n_features=16, shots=4, dtype=dtype)
    objective = solve(method, tasks, with_objective=True).objective
    assert objective.shape == (3, 100)
    assert (objective.diff(dim=1) < 0).all()


@pytest.mark.parametrize("method", ["tim", "alpha-tim"])
def test_tims_loss_ends_below_its_start_and_its_parts_add_up(method):
    tasks = make_tasks(3, n_classes=20, n_features=16, shots=4)
    solution = solve(method, tasks, with_objective=True, max_iter=300)
    assert (solution.objective[:, -1] < solution.objective[:, 0]).all()
    assert list(solution.objective_parts) == ["cross_entropy", "marginal", "conditional"]
    torch.testing.assert_close(sum(solution.objective_parts.values()), solution.objective)
    # The last recorded loss is that of the returned answer.
    torch.testing.assert_close(solution.objective_parts["conditional"][:, -1].sign(), torch.ones(3).double())
    p = solution.probabilities
    conditional = shannon(p) if method == "tim" else tsallis(p, 5)
    torch.testing.assert_close(solution.objective_parts["conditional"][:, -1], conditional.mean(1))


def test_baselines_label_each_query_on_its_own():
    tasks = make_tasks(2)
    for method in ("baseline", "baseline++"):
        alone = solve(method, replace(tasks, query_table=tasks.query[:, 2:3])).probabilities
        torch.testing.assert_close(alone, solve(method, tasks).probabilities[:, 2:3])


def test_baselines_train_once_for_a_shared_support():
    table = make_tasks(1, n_query=30).query[0]
    index, labels = torch.arange(8).expand(4, -1), torch.arange(8).remainder(4).expand(4, -1)
    queries = torch.arange(20).view(4, 5) + 8
    shared = Tasks(table, index, labels, table, queries, 4)
    apart = Tasks.from_arrays(shared.support, labels, shared.query)
    assert shared.shared_support
    for method in ("baseline", "baseline++"):
        ours, theirs = (solve(method, tasks, with_objective=True) for tasks in (shared, apart))
        torch.testing.assert_close(ours.probabilities, theirs.probabilities)
        torch.testing.assert_close(ours.objective, theirs.objective)
        torch.testing.assert_close(ours.prototypes, theirs.prototypes)


def test_baseline_plus_plus_does_not_depend_on_the_length_of_a_feature():
    tasks = make_tasks(2)
    longer = replace(tasks, query_table=3 * tasks.query, support_table=tasks.support * 0.2)
    ours, theirs = (solve("baseline++", t, scale=None).probabilities for t in (tasks, longer))
    torch.testing.assert_close(ours, theirs)


def test_tim_labels_queries_as_every_class_and_alpha_tim_does_not():
    """Two of ten classes occur. The marginal term makes TIM use all ten, and α-TIM few."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 40, generator=generator)
    support = centres.repeat_interleave(5, 0) + torch.randn(50, 40, generator=generator)
    query = centres[torch.arange(60) % 2] + torch.randn(60, 40, generator=generator)
    tasks = Tasks.from_arrays(support[None], torch.arange(50)[None] // 5, query[None])
    balanced, fast = {"weights": (0.1, 1.0, 0.1)}, {"lr": 1e-3, "max_iter": 500}
    assert solve("tim", tasks, **balanced, **fast).labels.unique().numel() == 10
    assert solve("tim-adm", tasks, **balanced).labels.unique().numel() == 10
    assert solve("alpha-tim", tasks, **fast).labels.unique().numel() <= 4


def test_tim_adm_follows_its_two_updates():
    tasks = transform(make_tasks(2, shots=None), "l2")
    support, query, labels = tasks.support, tasks.query, tasks.support_labels
    y = torch.nn.functional.one_hot(labels, 4).double()
    w = prototypes(tasks)
    l1, l2, l3 = weights = (0.2, 0.8, 0.4)
    for _ in range(7):
        p_s, p_q = ((-7.5 * torch.cdist(z, w).square()).softmax(-1) for z in (support, query))
        v = p_q ** (1 + l3) / (p_q ** (1 + l3)).sum(1, keepdim=True) ** (l2 / (1 + l2))
        v = v / v.sum(-1, keepdim=True)
        c_s, c_q = l1 / support.shape[1], (1 + l3) / query.shape[1]
        top = c_s * (y.mT @ support + p_s.sum(1).unsqueeze(-1) * w - p_s.mT @ support)
        top = top + c_q * (v.mT @ query + p_q.sum(1).unsqueeze(-1) * w - p_q.mT @ query)
        w = top / (c_s * y.sum(1) + c_q * v.sum(1)).unsqueeze(-1)
    solution = solve("tim-adm", tasks, scale=None, weights=weights, max_iter=7)
    torch.testing.assert_close(solution.prototypes, w)
    torch.testing.assert_close(solution.probabilities, (-7.5 * torch.cdist(query, w).square()).softmax(-1))


def test_weights_and_orders_are_checked():
    tasks = make_tasks(1)
    with pytest.raises(InputError, match="three numbers"):
        solve("tim", tasks, weights=(1.0, 1.0))
    with pytest.raises(InputError, match="must be positive"):
        solve("alpha-tim", tasks, alphas=(7.0, 0.0))
    with pytest.raises(InputError, match=r"alphas .* two"):
        solve("alpha-tim", tasks, alphas=(7.0,))
    with pytest.raises(InputError, match="optimizer is 'adamw'; it must be 'adam' or 'gradient'"):
        solve("paddle-pgd", tasks, optimizer="adamw")


# PADDLE-PGD


def paddles_objective(tasks, u, lam, eps):
    """½ Σ u‖w − z‖² − λ Σ (π + ε) ln(π + ε), with the w that is optimal for u."""
    form = prototype_form(tasks, "feature")
    shares = u.mean(1) + eps
    return half_norms(tasks, form) - form.explained(u) / 2 - lam * torch.xlogy(shares, shares).sum(-1)


def test_the_gradient_of_pgd_is_that_of_autograd():
    tasks = make_tasks(3, shots=None)
    form, lam, eps = prototype_form(tasks, "feature"), 5.0, 1e-3
    u = torch.rand(3, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = prototypes(tasks) - form.centre + 0.3
    u, w = u.requires_grad_(), w.requires_grad_()
    support, query = tasks.support - form.centre, form.query
    y = torch.nn.functional.one_hot(tasks.support_labels, 4).double()
    fit = sum((a * torch.cdist(z, w).square()).sum() / 2 for a, z in ((y, support), (u, query)))
    shares = u.mean(1) + eps
    expected = torch.autograd.grad(fit - lam * (shares * shares.log()).sum(), (u, w))
    with torch.no_grad():
        actual = AdamSteps(form, 1e-3, lam, eps).gradient(u, w)
    torch.testing.assert_close(actual, expected)


def easy(n_tasks=4):
    """Six classes of which two occur, far apart in eight features."""
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(n_tasks, 6, 8, dtype=torch.float64, generator=generator) * 4
    support = centres.repeat_interleave(3, 1) + torch.randn(n_tasks, 18, 8, dtype=torch.float64, generator=generator)
    query = centres[:, torch.arange(20) % 2] + torch.randn(n_tasks, 20, 8, dtype=torch.float64, generator=generator)
    return Tasks.from_arrays(support, (torch.arange(18) // 3).expand(n_tasks, -1), query)


def test_plain_steps_reach_paddles_objective_from_above():
    tasks, lam, eps = easy(), 20.0, 1e-6
    paddle = solve("paddle", tasks, scale=None, eps=eps)
    pgd = solve("paddle-pgd", tasks, scale=None, eps=eps, optimizer="gradient", with_objective=True)
    best = paddles_objective(tasks, paddle.probabilities, lam, eps)
    torch.testing.assert_close(pgd.objective[:, -1], best, rtol=1e-6, atol=0)
    assert (pgd.objective >= (best - 1e-9).unsqueeze(1)).all()
    assert torch.equal(pgd.labels, paddle.labels)
    assert ((pgd.probabilities < 1e-9) | (pgd.probabilities > 1 - 1e-9)).all(), "it ends in a corner"
    torch.testing.assert_close(pgd.objective[:, -1], paddles_objective(tasks, pgd.probabilities, lam, eps))
    torch.testing.assert_close(pgd.prototypes, paddle.prototypes, rtol=0, atol=1e-4)


def test_adam_comes_down_towards_paddles_objective_and_climbs_again():
    """The size of Adam's steps does not depend on the size of the gradient. All derivatives of an assigned query are
    positive, so all entries of u decrease equally and the projection reverts it: the steps need not descend."""
    tasks, lam, eps = easy(), 20.0, 1e-6
    best = paddles_objective(tasks, solve("paddle", tasks, scale=None, eps=eps).probabilities, lam, eps).unsqueeze(1)
    objective = solve("paddle-pgd", tasks, scale=None, eps=eps, max_iter=1500, with_objective=True).objective
    assert (objective >= best).all()
    start, lowest, end = objective[:, :1], objective.amin(1, keepdim=True), objective[:, -1:]
    assert (lowest - best < 0.6 * (start - best)).all()
    assert (end > lowest + 0.1 * best).all()


@pytest.mark.parametrize("lr", [1e-4, 1e-2, 1.0, 100.0])
def test_plain_projected_steps_never_increase_the_objective(lr):
    tasks = make_tasks(4, n_classes=8, n_query=30, shots=None)
    objective = solve("paddle-pgd", tasks, optimizer="gradient", lr=lr, max_iter=100, with_objective=True).objective
    assert (objective.diff(dim=1) <= 1e-9 * objective.abs().amax()).all()


@pytest.mark.parametrize("optimizer", ["adam", "gradient"])
def test_a_tolerance_stops_each_task_by_itself(optimizer):
    tasks = easy()
    shared = {"scale": None, "optimizer": optimizer, "lr": 0.02, "max_iter": 500, "with_objective": True}
    stopped = solve("paddle-pgd", tasks, **shared, tol=1e-3)
    assert stopped.converged.any()
    for i in range(4):
        n = int(stopped.n_iter[i])
        exact = solve("paddle-pgd", tasks[i : i + 1], **(shared | {"max_iter": n}))
        torch.testing.assert_close(stopped.probabilities[i], exact.probabilities[0])
        torch.testing.assert_close(stopped.prototypes[i], exact.prototypes[0])
        torch.testing.assert_close(stopped.objective[i, :n], exact.objective[0])
        assert (stopped.objective[i, n - 1 :] == stopped.objective[i, n - 1]).all()


def test_the_projection_is_the_nearest_point_of_the_simplex():
    """The optimality condition: x − p is largest where p is positive."""
    points = 3 * torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nearest = simplex_projection(points)
    assert (nearest >= 0).all()
    torch.testing.assert_close(nearest.sum(-1), torch.ones(50, dtype=torch.float64))
    slack = points - nearest
    theta = slack.amax(-1, keepdim=True)
    assert ((slack - theta).abs()[nearest > 0] < 1e-12).all()
    torch.testing.assert_close(simplex_projection(nearest), nearest)
    torch.testing.assert_close(simplex_projection(points + 1e6), nearest, rtol=0, atol=1e-8)
