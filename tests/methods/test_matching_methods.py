"""BD-CSPN, LaplacianShot, PT-MAP and LR+ICI against closed forms, guarantees and independent solvers."""

from __future__ import annotations

from math import e

import numpy as np
import pytest
import torch
from problems import make_tasks
from sklearn.linear_model import LogisticRegression, enet_path
from torch import Tensor

from manyway import InputError, Tasks, solve
from manyway.core.ops import nearest_others, sinkhorn
from manyway.methods.ici import logistic as _logistic
from manyway.methods.ici.lasso_path import RobustRegression, entry_penalties, lasso_path
from manyway.methods.ici.logistic import Fit, logistic_regression, with_intercept
from manyway.methods.ici.solver import _principal_components, _smallest_of_each_class


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestBDCSPN:
    """Two orthogonal classes with one example each; queries whose mean equals that of the support."""

    tasks = Tasks.from_arrays(
        torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64),
        [[0, 1]],
        torch.tensor([[[2.0, 0.0], [0.0, 2.0], [0.0, 0.0], [0.0, 0.0]]], dtype=torch.float64),
    )

    def test_prototypes_in_closed_form(self):
        """The queries at 0 are ties, and are assigned to the first class with weight ½."""
        sure = e / (e + 1)  # softmax of τ·(1, 0), τ = 1
        expected = torch.tensor([[[sure * (1 + 2) / 4, 0.0], [0.0, sure * (1 + 2) / 2]]], dtype=torch.float64)
        solution = solve("bd-cspn", self.tasks, logit_scale=1.0, scale=None)
        torch.testing.assert_close(solution.prototypes, expected)

    def test_weights_over_samples_are_a_convex_combination(self):
        share = e / (2 * e + 2)  # softmax over samples whose cosines are 1, 1, 0, 0; the last two are 0
        expected = torch.tensor([[[3 * share, 0.0], [0.0, 1.5]]], dtype=torch.float64)
        solution = solve("bd-cspn", self.tasks, logit_scale=1.0, scale=None, weighting="samples")
        torch.testing.assert_close(solution.prototypes, expected)

    def test_a_constant_added_to_the_queries_changes_no_prototype(self):
        moved = Tasks.from_arrays(self.tasks.support, self.tasks.support_labels, self.tasks.query + 7)
        torch.testing.assert_close(
            solve("bd-cspn", moved, scale=None).prototypes, solve("bd-cspn", self.tasks, scale=None).prototypes
        )

    def test_queries_are_labelled_by_the_nearest_rectified_prototype(self):
        tasks = make_tasks(n_query=40)
        solution = solve("bd-cspn", tasks, scale=None)
        assert torch.equal(solution.labels, torch.cdist(tasks.query, solution.prototypes).argmin(-1))

    def test_cosine_labels_by_the_angle_to_the_shifted_query(self):
        tasks = make_tasks(n_query=40)
        solution = solve("bd-cspn", tasks, scale=None, cosine=True)
        shifted = tasks.query + tasks.support.mean(1, keepdim=True) - tasks.query.mean(1, keepdim=True)
        angles = torch.nn.functional.cosine_similarity(shifted.unsqueeze(2), solution.prototypes.unsqueeze(1), dim=-1)
        assert torch.equal(solution.labels, angles.argmax(-1))

    @pytest.mark.parametrize("weighting", ["classes", "samples"])
    def test_a_class_that_loses_all_its_samples_keeps_its_mean(self, weighting):
        """The examples of class 0 point along the classes 1 and 2, its mean between them."""
        support = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.01], [0.01, 1.0]]], dtype=torch.float64)
        tasks = Tasks.from_arrays(support, [[0, 0, 1, 2]], support[:, 2:])
        solution = solve("bd-cspn", tasks, scale=None, weighting=weighting)
        assert solution.prototypes[0, 0].tolist() == [0.5, 0.5]
        assert torch.isfinite(solution.probabilities).all()

    def test_an_unknown_weighting_names_the_known_ones(self):
        with pytest.raises(InputError, match="weighting is 'sample'; it must be 'classes' or 'samples'"):
            solve("bd-cspn", self.tasks, weighting="sample")


class TestLaplacianShot:
    def test_without_the_graph_it_is_a_softmax_of_distances(self):
        tasks = make_tasks(n_query=9)
        solution = solve("laplacianshot", tasks, graph_weight=0.0, scale=None)
        means = torch.stack([tasks.support[:, tasks.support_labels[0] == k].mean(1) for k in range(4)], dim=1)
        torch.testing.assert_close(solution.prototypes, means)
        torch.testing.assert_close(solution.probabilities, (-torch.cdist(tasks.query, means).square()).softmax(-1))
        assert solution.converged.all()

    def test_the_answer_is_a_fixed_point(self):
        tasks = make_tasks(n_query=30, spread=0.7)
        u = solve("laplacianshot", tasks, max_iter=500, tol=0, scale="l2").probabilities
        again = solve("laplacianshot", tasks, max_iter=501, tol=0, scale="l2").probabilities
        torch.testing.assert_close(u, again, atol=1e-12, rtol=0)

    @pytest.mark.parametrize(("n", "weight"), [(1, 0.7), (1, 1.5), (2, 0.7), (2, 1.0), (9, 0.3), (9, 0.7)])
    def test_on_a_symmetric_graph_the_energy_with_half_lambda_never_increases(self, n, weight):
        """It is proved while λ·(smallest eigenvalue) ≥ −2 (see the docstring), and tested where that holds."""
        tasks = make_tasks(200, n_classes=5, n_query=20, spread=0.7)
        graph = nearest_others(tasks.query, n)
        proved = weight * torch.linalg.eigvalsh((graph + graph.mT) / 2)[:, 0] >= -2
        parts = solve(
            "laplacianshot",
            tasks,
            graph_weight=weight,
            n_neighbors=n,
            symmetric=True,
            tol=0,
            scale=None,
            with_objective=True,
        ).objective_parts
        energy = parts["entropy"] + parts["unary"] + parts["affinity"] / 2
        assert proved.sum() > 100, "most tasks must satisfy the condition, or nothing is tested"
        assert (energy.diff(dim=1)[proved] <= 1e-10).all()

    def test_without_that_condition_the_energy_with_half_lambda_can_increase(self):
        tasks = make_tasks(200, n_classes=5, n_query=20, spread=0.7)
        parts = solve("laplacianshot", tasks, graph_weight=3.0, symmetric=True, tol=0, scale=None, with_objective=True)
        energy = sum(parts.objective_parts.values()) - parts.objective_parts["affinity"] / 2
        assert energy.diff(dim=1).max() > 0.1

    def test_the_authors_energy_on_the_directed_graph_can_rise(self):
        """As the docstring says, nothing is proved for the default. At the default λ it rises seldom, and little."""
        tasks = make_tasks(2000, n_classes=3, n_query=6, n_features=3, spread=0.5)
        rises = solve("laplacianshot", tasks, tol=0, scale="l2", with_objective=True).objective.diff(dim=1).amax(1)
        assert 0 < (rises > 1e-9).double().mean() < 0.15
        assert rises.max() < 0.05

    def test_a_task_stops_when_its_own_energy_settles(self):
        tasks = make_tasks(6, n_query=30, spread=0.7)
        solution = solve("laplacianshot", tasks, with_objective=True)
        assert solution.converged.all()
        assert (solution.n_iter >= 3).all()
        for energy, n in zip(solution.objective, solution.n_iter.tolist(), strict=True):
            assert abs(energy[n - 1] - energy[n - 2]) <= 1e-6 * abs(energy[n - 2])
            assert (energy[n:] == energy[n - 1]).all()

    def test_neighbours_are_the_nearest_others(self):
        samples = torch.tensor([[[0.0], [1.0], [3.0], [3.0]]])
        assert nearest_others(samples, 1).tolist() == [[[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]]
        assert nearest_others(samples, 9)[0].sum(1).tolist() == [3, 3, 3, 3]
        assert nearest_others(samples[:, :1], 2).tolist() == [[[0]]]


class TestPTMAP:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_every_class_receives_equally_many_queries(self, dtype):
        tasks = make_tasks(4, n_classes=12, n_query=30, dtype=dtype)
        solution = solve("pt-map", tasks)
        ones = torch.ones(4, 30, dtype=dtype)
        torch.testing.assert_close(solution.probabilities.sum(2), ones, atol=1e-5, rtol=0)
        torch.testing.assert_close(solution.probabilities.sum(1), ones[:, :12] * 30 / 12, atol=1e-4, rtol=0)
        assert solution.converged.all()

    def test_the_plan_solves_the_regularised_problem(self):
        """Optimal plans have ln P = −λM + f_q + g_k: double differences of ln P are those of −λM."""
        tasks = make_tasks(2, n_classes=5, n_query=8)
        solution = solve("pt-map", tasks, scale="l2", sinkhorn_tol=1e-13)
        query = torch.nn.functional.normalize(tasks.query, dim=-1)
        logs = solution.probabilities.log() + 10 * torch.cdist(query, solution.prototypes).square()
        double = logs - logs[:, :1] - logs[:, :, :1] + logs[:, :1, :1]
        torch.testing.assert_close(double, torch.zeros_like(double), atol=1e-8, rtol=0)

    @pytest.mark.parametrize("step", [0.02, 0.2, 1.0, 1.9])
    @pytest.mark.parametrize(("n_query", "n_features"), [(9, 6), (30, 4)], ids=["gram", "features"])
    def test_the_objective_never_increases(self, step, n_query, n_features):
        tasks = make_tasks(5, n_classes=4, n_query=n_query, n_features=n_features, shots=None, spread=0.7)
        objective = solve(
            "pt-map", tasks, step=step, entropy_weight=0.5, sinkhorn_tol=1e-12, with_objective=True
        ).objective
        assert objective.shape == (5, 20)
        assert (objective.diff(dim=1) <= 1e-9).all()

    def test_the_objective_is_what_it_says(self):
        tasks = make_tasks(3, n_query=9, shots=None)
        solution = solve("pt-map", tasks, scale=None, entropy_weight=10.0, with_objective=True)
        plan, w = solution.probabilities, solution.prototypes
        own = w.gather(1, tasks.support_labels.unsqueeze(-1).expand(-1, -1, 5))
        expected = {
            "transport": (plan * torch.cdist(tasks.query, w).square()).sum((1, 2)),
            "support": (tasks.support - own).square().sum((1, 2)),
            "entropy": (plan * plan.log()).sum((1, 2)) / 0.1,
        }
        for name, value in expected.items():
            torch.testing.assert_close(solution.objective_parts[name][:, -1], value, atol=1e-4, rtol=1e-5)

    def test_one_full_step_lands_on_the_weighted_means(self):
        tasks = make_tasks(2, n_query=12, shots=None)
        first, second = (
            solve("pt-map", tasks, scale=None, entropy_weight=10.0, step=s, max_iter=1) for s in (1e-12, 1.0)
        )
        y = torch.nn.functional.one_hot(tasks.support_labels, 4).double()
        sums = y.mT @ tasks.support + first.probabilities.mT @ tasks.query
        means = sums / (y.sum(1) + first.probabilities.sum(1)).unsqueeze(-1)
        torch.testing.assert_close(second.prototypes, means, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
    def test_sinkhorn_is_finite_for_any_scores(self, spread):
        plan, converged, _ = sinkhorn(normal(3, 6, 9) * spread, 1.0, 6 / 9, tol=1e-6, max_iter=2000)
        assert torch.isfinite(plan).all()
        torch.testing.assert_close(plan.sum(1), torch.full((3, 9), 6 / 9, dtype=torch.float64))
        error = (plan.sum(2) - 1).abs().amax(1)
        assert torch.equal(converged, error <= 1e-6)

    def test_sinkhorn_starts_where_another_ended(self):
        """From the right scalings one round is enough; they satisfy ln P = scores + ln a + ln b."""
        scores = normal(3, 6, 9)
        plan, _, logs = sinkhorn(scores, 1.0, 6 / 9, tol=1e-12, max_iter=2000)
        again, converged, _ = sinkhorn(scores, 1.0, 6 / 9, tol=1e-9, max_iter=1, start=logs)
        assert converged.all()
        torch.testing.assert_close(again, plan)
        rows = plan.log() - scores - logs.unsqueeze(1)
        torch.testing.assert_close(rows, rows[..., :1].expand_as(rows))

    def test_sinkhorn_of_equal_scores_is_the_independent_plan(self):
        plan, converged, _ = sinkhorn(torch.zeros(1, 4, 8), 1.0, 0.5, tol=1e-6, max_iter=10)
        assert converged.all()
        torch.testing.assert_close(plan, torch.full((1, 4, 8), 1 / 8))


class TestLogisticRegression:
    def problem(self, n_classes: int, n_tasks: int = 3) -> tuple[Tensor, Tensor, Tensor]:
        features = torch.nn.functional.normalize(normal(n_tasks, 60, 12) + 1, dim=-1)
        labels = torch.randint(0, n_classes, (n_tasks, 60), generator=torch.Generator().manual_seed(1))
        labels[:, :n_classes] = torch.arange(n_classes)
        weights = (normal(n_tasks, 60, seed=2) < 1).double()
        weights[:, :n_classes] = 1
        return features, labels, weights

    @pytest.mark.parametrize("n_classes", [2, 3, 15])
    def test_it_is_scikit_learns(self, n_classes):
        features, labels, weights = self.problem(n_classes)
        ours = with_intercept(features)
        fit = logistic_regression(ours, labels, weights, Fit.zero(ours, n_classes), c=10.0)
        probabilities = (ours @ fit.weights).softmax(-1)
        for x, y, m, p in zip(features.numpy(), labels.numpy(), weights.bool().numpy(), probabilities, strict=True):
            # With two classes, scikit-learn penalises one vector where the softmax has two.
            theirs = LogisticRegression(C=20 if n_classes == 2 else 10, tol=1e-10, max_iter=10_000).fit(x[m], y[m])
            np.testing.assert_allclose(p.numpy(), theirs.predict_proba(x), atol=2e-6)

    @pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-4), (torch.float64, 1e-8)])
    def test_the_gradient_vanishes(self, dtype, tol):
        features, labels, weights = self.problem(6)
        ours = with_intercept(features.to(dtype))
        fit = logistic_regression(ours, labels, weights.to(dtype), Fit.zero(ours, 6), c=10.0)

        def loss(parameters: Tensor) -> Tensor:
            errors = torch.nn.functional.cross_entropy((ours @ parameters).mT, labels, reduction="none")
            return parameters[:, :-1].square().sum() / 2 + 10 * (errors * weights.to(dtype)).sum()

        norms = []
        for value in (torch.zeros_like(fit.weights), fit.weights):
            value = value.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(value), value)
            norms.append(gradient.norm(dim=(1, 2)))
        assert (norms[1] <= tol * norms[0]).all()

    def test_the_gradient_is_autograds(self):
        features, labels, weights = self.problem(4)
        ours, parameters = with_intercept(features), normal(3, 13, 4, seed=3).requires_grad_()
        errors = torch.nn.functional.cross_entropy((ours @ parameters).mT, labels, reduction="none")
        (parameters[:, :-1].square().sum() / 2 + 10 * (errors * weights).sum()).backward()
        rows, costs = _logistic._Rows.of(ours), 10 * weights.unsqueeze(-1)
        gradient = _logistic._gradient(rows, labels.unsqueeze(-1), costs, parameters.detach())
        torch.testing.assert_close(gradient, parameters.grad.flatten(1))

    def test_a_second_fit_forgets_where_it_started(self):
        features, labels, weights = self.problem(5)
        ours = with_intercept(features)
        zero = Fit.zero(ours, 5)
        before = logistic_regression(ours, labels, weights, zero, c=10.0)
        kept = before.weights.clone()
        changed = torch.where(normal(3, 60, seed=4) > 1, (labels + 1) % 5, labels)
        warm, cold = (logistic_regression(ours, changed, weights, start, c=10.0) for start in (before, zero))
        difference = (ours @ warm.weights).softmax(-1) - (ours @ cold.weights).softmax(-1)
        assert difference.abs().max() < 1e-7
        assert torch.equal(before.weights, kept)
        assert not zero.weights.any()


class TestLassoPath:
    @pytest.mark.parametrize(("n", "k", "r"), [(30, 3, 2), (40, 5, 3), (25, 2, 3), (60, 20, 7)])
    def test_it_is_scikit_learns(self, n, k, r):
        """On the dense design, by coordinate descent: same penalties, same coefficients, same zeros."""
        basis = torch.linalg.qr(normal(n, r)).Q
        labels = torch.randint(0, k, (n,), generator=torch.Generator().manual_seed(1))
        labels[:k] = torch.arange(k)
        design, target = (torch.eye(n) - basis @ basis.T).numpy(), torch.eye(k, dtype=torch.float64)[labels].numpy()
        problem, _ = RobustRegression.of(basis[None], labels[None], k)
        ours = [(penalty.item(), beta[0]) for _, penalty, beta, _ in lasso_path(problem)]
        penalties = [penalty for penalty, _ in ours]
        largest = np.linalg.norm(design @ target, axis=1).max()
        np.testing.assert_allclose(penalties, largest * 0.001 ** (np.arange(len(ours)) / 99))
        further = [penalties[-1] / 2, penalties[-1] / 10]
        _, theirs, _ = enet_path(
            design,
            design @ target,
            l1_ratio=1.0,
            alphas=np.array(penalties + further) / n,  # scikit-learn's objective is a mean over samples
            tol=1e-10,
            max_iter=100_000,
        )
        for level, (penalty, beta) in enumerate(ours):
            residuals = target - (basis @ beta.T).numpy()
            norms = np.linalg.norm(residuals, axis=1, keepdims=True)
            np.testing.assert_allclose(residuals * np.maximum(0, 1 - penalty / norms), theirs[..., level].T, atol=1e-5)
            if level > 0:  # at the first, the largest is zero up to rounding
                np.testing.assert_array_equal(norms[:, 0] <= penalty, ~theirs[..., level].any(0))
        if len(ours) < 100:
            assert theirs[..., len(ours) :].any(0).all(), "ours ended where none was zero, and none is zero again"

    def test_a_wrong_label_is_the_least_credible(self):
        """Three clusters, one sample of each with the label of the next."""
        labels = torch.arange(3).repeat_interleave(10)
        features = torch.eye(3, dtype=torch.float64)[labels] + 0.05 * normal(30, 3)
        wrong = torch.tensor([4, 15, 26])
        noisy = labels.clone()
        noisy[wrong] = (noisy[wrong] + 1) % 3
        components = _principal_components((features - features.mean(0))[None], 2)
        entry = entry_penalties(components, noisy[None], 3)[0]
        assert set(entry.argsort(descending=True)[:3].tolist()) == set(wrong.tolist())

    @pytest.mark.slow
    @pytest.mark.parametrize("n_classes", [3, 40], ids=["newton", "reweighting"])
    def test_a_batch_is_a_loop_over_tasks(self, n_classes):
        features = _principal_components(normal(3, 80, 8), 5)
        labels = (torch.arange(80) % n_classes).expand(3, -1).clone()
        together = entry_penalties(features, labels, n_classes)
        for i in range(3):
            alone = entry_penalties(features[i : i + 1], labels[i : i + 1], n_classes)
            torch.testing.assert_close(alone[0], together[i], atol=1e-8, rtol=0)


class TestICI:
    def test_components_are_the_singular_vectors(self):
        """Powers of the covariance of 200 features against a full decomposition."""
        spectrum = 1 / torch.arange(1, 201, dtype=torch.float64).sqrt()
        features = normal(2, 300, 200) * spectrum
        features = features - features.mean(1, keepdim=True)
        ours, theirs = _principal_components(features, 5), torch.linalg.svd(features, full_matrices=False).U[..., :5]
        torch.testing.assert_close(ours @ ours.mT, theirs @ theirs.mT, atol=1e-6, rtol=0)

    def test_components_beyond_the_rank_are_zero(self):
        features = normal(1, 10, 2) @ normal(1, 2, 6, seed=1)
        components = _principal_components(features, 5)
        torch.testing.assert_close(
            components.mT @ components, torch.diag(torch.tensor([1.0, 1, 0, 0, 0])).double()[None]
        )

    def test_the_smallest_of_each_class(self):
        values = torch.tensor([[5.0, 1.0, 4.0, 2.0, 3.0, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
        classes = torch.tensor([[0, 0, 0, 1, 1, 2], [7, 7, 7, 7, 7, 7]])
        assert _smallest_of_each_class(values, classes, 2).long().tolist() == [[0, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]]

    def test_rounds_add_at_most_step_queries_a_class(self):
        """All queries look like class 0: each round takes `n_per_round` of them."""
        tasks = Tasks.from_arrays(
            torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), [[0, 1]], torch.tensor([[[1.0, 0.1]]]).expand(1, 13, 2)
        )
        solution = solve("ici", tasks, n_per_round=5)
        assert solution.n_iter.tolist() == [3]
        assert solution.converged.tolist() == [True]
        assert solution.labels.eq(0).all()
        unfinished = solve("ici", tasks, n_per_round=5, max_iter=2)
        assert unfinished.n_iter.tolist() == [2]
        assert unfinished.converged.tolist() == [False]

    def test_when_all_queries_join_at_once_it_is_one_round_of_self_training(self):
        tasks = make_tasks(1, n_classes=4, n_query=12, shots=3)
        support, query = (torch.nn.functional.normalize(x[0], dim=-1).numpy() for x in (tasks.support, tasks.query))
        y = tasks.support_labels[0].numpy()
        first = LogisticRegression(C=10, tol=1e-10, max_iter=10_000).fit(support, y)
        both, labels = np.concatenate([support, query]), np.concatenate([y, first.predict(query)])
        second = LogisticRegression(C=10, tol=1e-10, max_iter=10_000).fit(both, labels)
        solution = solve("ici", tasks, n_per_round=12)
        assert solution.n_iter.tolist() == [1]
        np.testing.assert_allclose(solution.probabilities[0].numpy(), second.predict_proba(query), atol=1e-5)

    def test_more_dimensions_than_samples_change_nothing(self):
        """A rotation into 300 dimensions keeps all inner products, hence all answers."""
        tasks = make_tasks(2, n_classes=3, n_query=20, n_features=6, shots=2)
        rotation = torch.linalg.qr(normal(300, 6)).Q.T
        wide = Tasks.from_arrays(tasks.support @ rotation, tasks.support_labels, tasks.query @ rotation)
        torch.testing.assert_close(
            solve("ici", wide, n_components=2).probabilities,
            solve("ici", tasks, n_components=2).probabilities,
            atol=1e-6,
            rtol=0,
        )
