"""Workers of a cluster that die during the work: they cost time, not the table."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from problems import make_tasks, piled

from manyway import solve
from manyway.core.blocks import Work
from manyway.core.dask import on_dask


@pytest.mark.slow
def test_a_killed_worker_costs_time_and_no_answer(workers):
    tasks = make_tasks(n_query=60)[:1]
    blocks = tasks.query[0].split(20)
    passes = 0
    with on_dask(workers.scheduler_address, lambda: iter(blocks)) as spread:

        def watched(work: Work, memories):
            nonlocal passes
            if passes == 5:
                os.kill(next(iter(workers.workers.values())).pid, signal.SIGKILL)
            passes += 1
            return spread(work, memories)

        found = solve("evidence", piled(tasks, spread=watched)).probabilities
    assert passes > 5
    torch.testing.assert_close(found, solve("evidence", tasks).probabilities, rtol=0, atol=1e-4)
