"""PADDLE over blocks of queries gives the answers of PADDLE in memory, for any blocks, here and on a cluster."""

from __future__ import annotations

import pytest
import torch
from problems import Watched, label_items, piled

from benchmarks.features import make_features
from manyway import InputError, TaskSpec, sample_tasks, solve
from manyway.core.dask import on_dask
from manyway.methods import get_method
from manyway.methods.paddle.streamed import Iterate


def one_task(n_classes=80, n_query=300, dtype=torch.float32):
    features = make_features(n_classes, 160, 512)
    spec = TaskSpec(shots=5, k_eff=4, n_query=n_query)
    return sample_tasks(features, spec, count=1).to(dtype=dtype)


def in_blocks(tasks, size=64, method="paddle", **options):
    return solve(method, piled(tasks, size), **options)


def watched(tasks, **options):
    """The same, and how many classes each iteration had."""
    spread = Watched(tasks.query[0])
    found = get_method("paddle")(piled(tasks, spread=spread), **options)
    return found, [len(step.state.prototypes) for step in spread.of(Iterate)]


@pytest.mark.parametrize("size", [1000, 64, 7])
def test_blocks_of_any_size_give_the_answers_in_memory(size):
    tasks = one_task()
    expected = solve("paddle", tasks, max_iter=30)
    found = in_blocks(tasks, size, max_iter=30)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-4)
    assert torch.equal(found.labels, expected.labels)
    assert found.prototypes.shape == expected.prototypes.shape


def test_skipping_dead_classes_does_not_change_the_result():
    resting, active = watched(one_task(), max_iter=40, tol=0.0)
    everyone, all_active = watched(one_task(dtype=torch.float64), max_iter=40, tol=0.0)
    assert set(all_active) == {80}
    assert len(active) == 39
    assert min(active) < 20
    assert active[-1] == 80  # the last iteration updates all classes
    assert torch.equal(resting.labels, everyone.labels)
    torch.testing.assert_close(resting.probabilities.double(), everyone.probabilities, rtol=0, atol=1e-4)


def test_convergence_is_declared_only_after_an_iteration_of_all_classes():
    found, active = watched(one_task(), tol=1e-4)
    assert found.converged.all()
    assert active[-1] == 80
    assert int(found.n_iter) == len(active) + 1 < 100


def test_without_a_tolerance_iterations_that_move_nothing_but_roundings_are_skipped():
    tasks = one_task(12, 60)
    large, every = (watched(tasks, **options)[0] for options in ({}, {"tol": 0.0}))
    assert int(large.n_iter) < int(every.n_iter) == 100
    assert not large.converged.any()  # as in memory: nothing was asked
    torch.testing.assert_close(large.probabilities, every.probabilities, rtol=0, atol=1e-4)


def test_soft_kmeans_in_blocks():
    tasks = one_task()
    expected = solve("soft-kmeans", tasks, max_iter=20).probabilities
    found = in_blocks(tasks, method="soft-kmeans", max_iter=20).probabilities
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_dask_cluster_gives_the_same(cluster):
    tasks = one_task()
    here = in_blocks(tasks, max_iter=8)
    query = tasks.query[0]
    with on_dask(cluster, lambda: iter(query.split(64))) as spread:
        there = solve("paddle", piled(tasks, spread=spread), max_iter=8).probabilities
    torch.testing.assert_close(there, here.probabilities, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("quick_evidence")
@pytest.mark.parametrize("method", ["evidence", "paddle", "simpleshot"])
def test_the_command_spreads_items_over_a_cluster(cluster, tmp_path, method):
    from manyway.files.items import Items

    tasks = one_task(n_classes=12, n_query=60)
    examples = Items(tasks.support[0], tuple(f"class {k}" for k in tasks.support_labels[0].tolist()), None)
    items = Items(tasks.query[0], None, None)
    here, there = (
        label_items(examples, items, tmp_path / f"{name}.csv", method=method, dask=address)
        for name, address in [("here", None), ("there", cluster)]
    )
    assert there.present[0].name == here.present[0].name
    columns = [[line.split(",")[1] for line in (tmp_path / f"{name}.csv").open()] for name in ("here", "there")]
    assert columns[0] == columns[1]


def test_a_scheduler_that_cannot_be_reached_is_one_sentence(monkeypatch):
    pytest.importorskip("distributed", reason="needs Dask")
    monkeypatch.setattr("manyway.core.dask._PATIENCE", 0.1)
    with pytest.raises(InputError, match="No Dask scheduler answers"), on_dask("tcp://127.0.0.1:1", lambda: iter(())):
        pass
