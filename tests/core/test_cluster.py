"""Workers of a cluster that die during the work: they cost time, not the table."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from problems import make_tasks, piled

from manyway import solve
from manyway.core.blocks import Work
from manyway.core.dask import on_dask


@pytest.mark.slow
def test_a_killed_worker_costs_time_and_no_answer(tmp_path: Path):
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    tasks = make_tasks(n_query=60)[:1]
    blocks = tasks.query[0].split(20)
    passes = 0
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        on_dask(cluster.scheduler_address, lambda: iter(blocks)) as spread,
    ):

        def watched(work: Work, memories):
            nonlocal passes
            if passes == 5:
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            passes += 1
            return spread(work, memories)

        found = solve("evidence", piled(tasks, spread=watched)).probabilities
    assert passes > 5
    torch.testing.assert_close(found, solve("evidence", tasks).probabilities, rtol=0, atol=1e-4)
