"""Blocks of tasks in several processes on one machine, or on a Dask cluster.

Joblib's Dask backend would not do: it stops everything when one call fails, and knows nothing of lost workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import manyway
from manyway.bench.plan import Job
from manyway.bench.runner import Failure, Pool, Watcher, run_jobs
from manyway.bench.store import Store
from manyway.core.dask import connect
from manyway.errors import InputError
from manyway.sampling.features import FeatureSet

_BLOCK = 100  # tasks per block, about: many compared with the cost of a message, few to lose with a worker


def run_side_by_side(
    jobs: Sequence[Job], store: Store, device: str | None, n_jobs: int, watcher: Watcher
) -> list[Failure]:
    """Run blocks in ``n_jobs`` processes, which share the features through a memory-mapped file."""
    from joblib.externals.loky import ProcessPoolExecutor

    processes = ProcessPoolExecutor(n_jobs)
    with TemporaryDirectory(prefix="manyway-") as folder:

        def hand_over(features: FeatureSet, again: bool) -> Path:
            path = Path(folder) / f"{features.fingerprint}.safetensors"
            if not path.exists():
                features.save(path)
            return path

        threads = max(1, torch.get_num_threads() // n_jobs)
        pool = Pool(processes.submit, threads, hand_over, _BLOCK, in_flight=2 * n_jobs)
        try:
            return run_jobs(jobs, store, device, watcher, pool)
        finally:
            processes.shutdown(kill_workers=True)


def run_on_dask(jobs: Sequence[Job], store: Store, address: str, device: str | None, watcher: Watcher) -> list[Failure]:
    """Run blocks on the workers of a Dask cluster. A block whose worker dies is run again on another."""
    with connect(address) as client:
        for worker, theirs in client.run(lambda: manyway.__version__).items():
            if theirs != (ours := manyway.__version__):
                raise InputError(f"The Dask worker {worker} has manyway {theirs}, here is {ours}; install the same.")
        sent: dict[str, Any] = {}

        def hand_over(features: FeatureSet, again: bool) -> Any:
            if again or features.fingerprint not in sent:  # the copies may have been lost with the worker, too
                sent[features.fingerprint] = client.scatter(features, broadcast=True, hash=False)
            return sent[features.fingerprint]

        # Each thread of a worker solves one block at a time.
        pool = Pool(client.get_executor(pure=False).submit, 1, hand_over, _BLOCK, in_flight=1000)
        return run_jobs(jobs, store, device, watcher, pool)
