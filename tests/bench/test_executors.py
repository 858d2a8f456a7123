"""A Dask cluster gives the same result as one machine, also when a worker dies on the way."""

from __future__ import annotations

import os
import signal
from uuid import uuid4

import pytest
from bench_problems import SMALL, Watching, contents, data_folder_with_toy, jobs_of, run_suite

from manyway import InputError
from manyway.bench.records import Store
from manyway.bench.runner import _on_dask, run_jobs

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own


class Killing(Watching):
    """Kills a worker's process when the first block comes back."""

    def __init__(self, workers) -> None:
        super().__init__()
        self._workers = workers
        self.killed = None

    def advance(self, job, tasks) -> None:
        super().advance(job, tasks)
        if self.killed is None:
            self.killed = next(iter(self._workers.workers.values())).pid
            os.kill(self.killed, signal.SIGKILL)


def test_a_cluster_gives_the_same_result_also_when_a_worker_is_killed(tmp_path, workers):
    data_folder_with_toy(tmp_path, n_classes=40, n_features=256)
    wishes = {"n_tasks": 300, "only": {"k_eff": ["2"], "shots": ["3"]}}
    suite = SMALL.replace("n_tasks = 40", 'metrics = ["calibration"]')
    run_suite(suite, tmp_path, tmp_path / "local", **wishes)
    jobs = jobs_of(suite, tmp_path, **wishes)
    assert run_jobs(jobs, Store(tmp_path / "dask"), None, Watching(), dask=workers.scheduler_address) == []
    assert contents(tmp_path / "dask") == contents(tmp_path / "local")
    killing = Killing(workers)
    assert run_jobs(jobs, Store(tmp_path / "killed"), None, killing, dask=workers.scheduler_address) == []
    assert killing.killed is not None
    assert killing.tasks == 300 * len(jobs)
    assert contents(tmp_path / "killed") == contents(tmp_path / "local")


def test_a_block_that_is_handed_in_again_is_computed_again(cluster):
    import distributed

    with distributed.Client(cluster) as client:
        pool = _on_dask(client)
        one, other = [pool.submit(uuid4) for _ in range(2)]
        assert one.result() != other.result()


def test_a_failure_on_a_worker_is_reported_and_the_others_finish(tmp_path, workers):
    data_folder_with_toy(tmp_path)
    jobs = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = [2, 13]"), tmp_path, only={"method": ["paddle"]})
    store = Store(tmp_path / "results")
    failures = run_jobs(jobs, store, None, Watching(), dask=workers.scheduler_address)
    assert [failure.error for failure in failures] == ["k_eff is 13 but a task has only 12 classes; lower k_eff."] * 2
    assert len(store.keys()) == 2


def test_an_address_without_a_scheduler_is_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="needs dask.distributed: pip install manyway[dask]")
    data_folder_with_toy(tmp_path)
    monkeypatch.setattr("manyway.core.dask._PATIENCE", 0.5)
    with pytest.raises(InputError, match=r"No Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        run_jobs(jobs_of(SMALL, tmp_path), Store(tmp_path), None, Watching(), dask="tcp://127.0.0.1:9")
