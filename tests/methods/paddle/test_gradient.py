"""PADDLE by projected gradient steps: when a task stops, what it then answers, and that its objective falls."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway.methods.paddle.gradient import paddle_pgd

OPTIONS = {"optimizer": "gradient", "lr": 0.005, "scale": None}


def movement(tasks, n_iter: int) -> torch.Tensor:
    """[t] the mean over classes of how far the last of so many iterations moves the prototypes."""
    now, before = (paddle_pgd(tasks, max_iter=n, **OPTIONS).prototypes for n in (n_iter, n_iter - 1))
    return (now - before).norm(dim=-1).mean(-1)


def test_a_task_stops_at_the_first_iteration_that_moves_less_than_tol():
    tasks = make_tasks()[1:]  # the first task stops at once
    still = torch.stack([movement(tasks, n) < 1e-4 for n in range(2, 30)], 1)  # [t, i]
    found = paddle_pgd(tasks, max_iter=60, tol=1e-4, **OPTIONS)
    assert bool(found.converged.all())
    assert found.n_iter.tolist() == (2 + still.long().argmax(1)).tolist()


def test_a_task_that_has_stopped_keeps_its_answer_while_others_go_on():
    tasks = make_tasks()
    found = paddle_pgd(tasks, max_iter=60, tol=1e-4, **OPTIONS)
    assert len(set(found.n_iter.tolist())) > 1
    for task, n_iter in enumerate(found.n_iter.tolist()):
        alone = paddle_pgd(tasks[task : task + 1], max_iter=n_iter, **OPTIONS)
        torch.testing.assert_close(found.probabilities[task], alone.probabilities[0])


@pytest.mark.parametrize("optimizer", ["gradient", "adam"])
def test_without_tol_all_iterations_are_done_and_nothing_has_converged(optimizer):
    found = paddle_pgd(make_tasks(), optimizer=optimizer, max_iter=7)
    assert found.n_iter.tolist() == [7] * len(found.n_iter)
    assert not bool(found.converged.any())


def test_plain_steps_never_raise_the_objective_and_a_smaller_step_moves_less():
    tasks = make_tasks()
    found = paddle_pgd(tasks, max_iter=40, with_objective=True, **OPTIONS)
    assert found.objective.shape[1] == 40
    assert bool((found.objective.diff(dim=1) <= 1e-4 * found.objective[:, :1].abs()).all())
    start = paddle_pgd(tasks, max_iter=1, **{**OPTIONS, "lr": 1e-9}).probabilities
    near, far = (paddle_pgd(tasks, max_iter=1, **{**OPTIONS, "lr": lr}).probabilities for lr in (1e-4, 1e-2))
    assert float((near - start).norm()) < float((far - start).norm())
