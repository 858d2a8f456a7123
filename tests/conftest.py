"""What tests share: the real features, when somebody has them, and a small cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the problems are small, and machines that test are shared
if os.name == "nt":
    for _missing in ("mkfifo", "mknod"):
        setattr(os, _missing, lambda *_: pytest.skip("Windows has no pipes and devices among its files"))
    setattr(os, "geteuid", lambda: 0)  # noqa: B010 -- what only others than root can see is not seen on Windows


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real features; tests that need it are skipped for people who do not have it."""
    folder = os.environ.get("MANYWAY_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real features: set MANYWAY_DATA to the folder that holds features/")
    return Path(folder)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a small cluster of threads."""
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as made:
        yield made.scheduler_address


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Features are kept in a folder of the tests, not in that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
