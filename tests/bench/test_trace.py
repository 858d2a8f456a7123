"""Following a solver on one task: steps, seconds and how far the prototypes still move."""

from __future__ import annotations

import pytest
from bench_problems import Watching, data_folder_with_toy, jobs_of, run_suite
from problems import make_features

from manyway import sample_tasks, solve
from manyway.bench.records import Store
from manyway.bench.runner import run_jobs
from manyway.bench.show.tables import make_grids
from manyway.bench.trace import follow

TRACE = """
title = "Trace"
[[experiments]]
features = "toy"
methods = ["paddle", "paddle-pgd"]
task = { shots = 3, k_eff = 4, n_query = 12 }
n_tasks = 1
trace = { max_steps = 60, tol = 1e-4, repeats = 1 }

[[plots]]
x = "seconds"
y = "criterion"
"""


def test_the_criterion_is_the_movement_between_two_neighbouring_budgets(tmp_path):
    data_folder_with_toy(tmp_path)
    (job,) = jobs_of(TRACE, tmp_path, only={"method": ["paddle"]})
    outcome = follow(job.features, job.experiment)
    tasks = sample_tasks(make_features(), job.experiment.task, 0, 0, 1)
    for steps, criterion, correct in zip(outcome.steps, outcome.criterion, outcome.correct, strict=True):
        now, before = solve("paddle", tasks, max_iter=steps), solve("paddle", tasks, max_iter=steps - 1)
        assert criterion == pytest.approx(float((now.prototypes - before.prototypes).norm(dim=-1).mean()))
        assert correct == int((now.labels == tasks.query_labels).sum())


def test_it_stops_at_the_first_step_below_the_threshold_which_is_paddles_own_stop(tmp_path):
    data_folder_with_toy(tmp_path)
    (job,) = jobs_of(TRACE, tmp_path, only={"method": ["paddle"]})
    outcome = follow(job.features, job.experiment)
    tasks = sample_tasks(make_features(), job.experiment.task, 0, 0, 1)
    assert outcome.reached == int(solve("paddle", tasks, tol=1e-4).n_iter)
    assert outcome.seconds == sorted(outcome.seconds)


def test_the_table_says_who_got_there_and_when(tmp_path):
    data_folder_with_toy(tmp_path)
    (grid,) = make_grids(run_suite(TRACE, tmp_path, tmp_path / "results"))
    assert [label for label, _ in grid.rows] == ["PADDLE", "PADDLE by PGD"]
    assert grid.columns[0] == ("iterations to 0.0001",)
    assert grid.rows[1][1][0].text == "not in 60"


def test_a_method_without_iterations_is_a_failure_that_says_so(tmp_path):
    data_folder_with_toy(tmp_path)
    jobs = jobs_of(TRACE.replace('"paddle-pgd"', '"simpleshot"'), tmp_path, only={"method": ["simpleshot"]})
    (failure,) = run_jobs(jobs, Store(tmp_path / "results"), None, Watching())
    assert "simpleshot has no parameter 'max_iter' that counts its iterations" in failure.error
