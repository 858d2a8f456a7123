"""What tests share: the real features, when somebody has them, and a small cluster."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import processes
import pytest
from browser import open_browser

# One thread for each process of the tests and for those that they start: the problems are small, and machines that test
# are shared. Dask's workers are forks of one process that has loaded torch, which takes longer than most tests; the
# process that only hands out tests does not load it.
gc.disable()  # until the tests are collected: nothing of them is garbage
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "spawn" if os.name == "nt" else "forkserver")
# A cluster that stands by for the tests of a session looks at itself fifty times a second, which takes an eighth of a
# core: here it looks seldom.
for _name in ("ADMIN__TICK__INTERVAL", "ADMIN__SYSTEM_MONITOR__INTERVAL", "WORKER__MEMORY__MONITOR_INTERVAL"):
    os.environ.setdefault(f"DASK_DISTRIBUTED__{_name}", "10s")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__TICK__CYCLE", "10s")
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")
os.environ.setdefault("DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START", "False")
if os.name == "nt":
    for _missing in ("mkfifo", "mknod"):
        setattr(os, _missing, lambda *_: pytest.skip("Windows has no pipes and devices among its files"))
    setattr(os, "geteuid", lambda: 0)  # noqa: B010 -- what only others than root can see is not seen on Windows


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes seconds comes first, so that at the end no process waits for another one's long test."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _draw_the_same_everywhere() -> None:
    """Let Hypothesis not draw numbers that it finds in loaded modules: these differ between the processes of a run."""
    if "hypothesis" in sys.modules:
        providers = importlib.import_module("hypothesis.internal.conjecture.providers")
        if hasattr(providers, "_get_local_constants"):
            none = providers.Constants()
            setattr(providers, "_get_local_constants", lambda: none)  # noqa: B010 -- it is not public


def pytest_collection_finish() -> None:
    """What is loaded by now stays until the end: the collector of garbage need not look at it, and looks seldom."""
    _draw_the_same_everywhere()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real features; tests that need it are skipped for people who do not have it."""
    folder = os.environ.get("MANYWAY_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real features: set MANYWAY_DATA to the folder that holds features/")
    return Path(folder)


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a small cluster of threads."""
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as made:
        yield made.scheduler_address


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two worker processes on this machine. One that is killed is replaced."""
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed: pip install manyway[dask]")
    processes.context()  # so that they are forks of a process that has loaded torch
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path_factory.mktemp("workers")),
        silence_logs=50,
    ) as made:
        yield made


@pytest.fixture
def quick_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are labelled with the parameters that take little time."""
    from problems import QUICK_EVIDENCE

    monkeypatch.setattr("manyway.labelling.label._FOR_ONE_SUPPORT", QUICK_EVIDENCE)


@pytest.fixture(scope="session")
def _learned_before() -> dict[Any, Any]:
    """What evidence has learned in the tests of a session, by what it was learned from."""
    return {}


@pytest.fixture
def learned_once(monkeypatch: pytest.MonkeyPatch, _learned_before: dict[Any, Any]) -> None:
    """What is learned from the same examples is kept: for what is asked of files, pages and words.

    It takes most of the time of an answer. What evidence learns, and that it learns the same again, is asked in
    ``tests/methods``.
    """
    from problems import content_of

    from manyway.methods.evidence import solver

    prepare = solver._prepare

    def learn(tasks: Any, parameters: Any) -> Any:
        examples = tasks.support, tasks.support_labels, tasks.base_mean, tasks.factor, tasks.centre
        names = tasks.class_features
        content = (*map(content_of, (*examples, names)), tasks.n_classes, tasks.gaps, tasks.scores, repr(parameters))
        if content not in _learned_before:
            _learned_before[content] = prepare(tasks, parameters)
        return _learned_before[content]

    monkeypatch.setattr(solver, "_prepare", learn)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One for all pages: it takes longer to start than a page to be tested."""
    with open_browser() as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def _own_cache_and_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Features are kept in a folder of the tests, and torch computes them, whatever else is installed."""
    import torch

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("MANYWAY_ENGINE", "torch")
        yield
