"""Evidence in blocks gives what it gives in memory, whatever the blocks, the idle classes and the machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from problems import make_tasks
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.features import make_features
from manyway import InputError, Tasks, TaskSpec, sample_tasks, solve
from manyway.core.dask import on_dask
from manyway.methods.evidence.in_blocks import StreamedSolution, evidence_in_blocks
from manyway.methods.evidence.schedule import Schedule


def one_task(n_classes=80, n_query=300, k_eff=4, shots=5, dtype=torch.float32) -> Tasks:
    spec = TaskSpec(shots=shots, k_eff=k_eff, n_query=n_query)
    return sample_tasks(make_features(n_classes, 160, 64), spec, count=1).to(dtype=dtype)


def in_blocks(tasks: Tasks, size=64, **options) -> StreamedSolution:
    query, names = tasks.query[0], tasks.class_features
    return evidence_in_blocks(
        tasks.support[0],
        tasks.support_labels[0],
        lambda: iter(query.split(size)),
        base_mean=tasks.base_mean,
        class_features=None if names is None else names[0],
        **options,
    )


def probabilities(large: StreamedSolution, tasks: Tasks, size=64) -> torch.Tensor:
    blocks = tasks.query[0].split(size)
    return torch.cat([large.assign(block, note) for block, note in zip(blocks, large.memory, strict=True)])


@pytest.mark.parametrize("size", [1000, 64, 7])
@pytest.mark.parametrize("k_eff", [4, 60])
def test_blocks_of_any_size_give_what_memory_gives(size, k_eff):
    tasks = one_task(k_eff=k_eff)
    expected = solve("evidence", tasks)
    large = in_blocks(tasks, size)
    found = probabilities(large, tasks, size)
    torch.testing.assert_close(found, expected.probabilities[0], rtol=0, atol=1e-4)
    assert torch.equal(found.argmax(1), expected.labels[0])
    torch.testing.assert_close(large.presence.float(), expected.presence[0], rtol=0, atol=1e-4)
    assert large.n_present == pytest.approx(float(expected.n_present[0]), abs=1e-3)
    assert large.n_present_sd == pytest.approx(float(expected.n_present_sd[0]), abs=1e-3)
    assert (large.n_iter, large.converged) == (int(expected.n_iter[0]), bool(expected.converged[0]))


@pytest.mark.parametrize("scale", ["rcl2", "cl2", "l2", "range", None])
@pytest.mark.parametrize(
    "options", [{}, {"concentration": 0.1, "anneal_from": 1.0}, {"merge_groups": False, "precision": 3.0}]
)
def test_in_float64_no_class_is_idle_and_the_iterations_are_the_same(scale, options):
    tasks = make_tasks(1, n_classes=40, n_query=50, shots=None, spread=1.0)
    expected = solve("evidence", tasks, scale=scale, **options)
    large = in_blocks(tasks, 8, scale=scale, **options)
    torch.testing.assert_close(probabilities(large, tasks, 8), expected.probabilities[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(large.presence, expected.presence[0], rtol=0, atol=1e-6)
    assert large.n_iter == int(expected.n_iter[0])
    assert set(large.active) == {40}


def test_features_without_negative_values_are_levelled_and_get_their_own_mean():
    tasks = make_tasks(1, n_classes=6, n_query=30)
    base_mean = torch.full((5,), 0.3, dtype=torch.float64)
    positive = Tasks.from_arrays(tasks.support.abs(), tasks.support_labels, tasks.query.abs(), base_mean)
    expected = solve("evidence", positive).probabilities[0]
    torch.testing.assert_close(probabilities(in_blocks(positive), positive), expected, rtol=0, atol=1e-6)


def test_classes_without_queries_are_idle_and_the_answer_is_the_same():
    tasks = one_task(n_classes=120)
    idle, everyone = in_blocks(tasks), in_blocks(one_task(n_classes=120, dtype=torch.float64))
    assert set(everyone.active) == {120}
    assert min(idle.active) < 30
    assert sum(idle.active) < 0.6 * 120 * len(idle.active)
    assert idle.active[-1] == 120  # convergence is declared only where all took part
    assert idle.converged
    found, expected = probabilities(idle, tasks), solve("evidence", tasks).probabilities[0]
    assert torch.equal(found.argmax(1), expected.argmax(1))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_class_whose_queries_come_late_does_not_stay_idle(monkeypatch):
    """Every class is idle that may be, from the start: the answer is still the same."""
    monkeypatch.setattr("manyway.methods.evidence.streamed._ALMOST_EMPTY", 0.5)
    monkeypatch.setattr("manyway.methods.evidence.streamed._MIN_IDLE", 1)
    tasks = one_task(n_query=30, k_eff=20)
    expected = solve("evidence", tasks)
    found = probabilities(in_blocks(tasks), tasks)
    assert torch.equal(found.argmax(1), expected.labels[0])


def test_where_many_classes_are_present_the_search_is_sharper_as_in_memory():
    tasks = one_task(n_query=60, k_eff=50, dtype=torch.float64)
    large = in_blocks(tasks)
    assert large.assign.step.sharpness == Schedule.many_classes_sharpness
    assert in_blocks(one_task(dtype=torch.float64)).assign.step.sharpness == 1
    assert len(large.active) == 1 + Schedule.anneal_steps + large.n_iter
    expected = solve("evidence", tasks).probabilities[0]
    torch.testing.assert_close(probabilities(large, tasks), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("most", [8, 1])
def test_few_remembered_assignments_per_query_are_enough(monkeypatch, most):
    tasks = one_task(k_eff=30)
    monkeypatch.setattr("manyway.methods.evidence.streamed._MOST_REMEMBERED", most * tasks.n_query)
    large = in_blocks(tasks)
    assert all(len(remembered.places) <= most * 64 + 1 for remembered in large.memory)
    expected = solve("evidence", tasks)
    found = probabilities(large, tasks)
    assert torch.equal(found.argmax(1), expected.labels[0])
    torch.testing.assert_close(found, expected.probabilities[0], rtol=0, atol=5e-4)


@pytest.mark.parametrize("n_query", [1, 2, 5])
def test_a_handful_of_queries(n_query):
    tasks = one_task(n_query=n_query, k_eff=1)
    expected = solve("evidence", tasks).probabilities[0]
    torch.testing.assert_close(probabilities(in_blocks(tasks), tasks), expected, rtol=0, atol=1e-4)


def test_one_example_per_class():
    tasks = one_task(shots=1)
    expected = solve("evidence", tasks)
    found = probabilities(in_blocks(tasks), tasks)
    torch.testing.assert_close(found, expected.probabilities[0], rtol=0, atol=1e-4)


def test_classes_of_very_different_size():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30).repeat_interleave(torch.tensor([1, 2, 80] * 10))
    centres = torch.randn(30, 20, generator=generator)
    support = centres[labels] + torch.randn(len(labels), 20, generator=generator)
    truth = torch.arange(5).repeat_interleave(40)
    query = centres[truth] + torch.randn(200, 20, generator=generator)
    tasks = Tasks.from_arrays(support[None], labels[None], query[None])
    expected = solve("evidence", tasks).probabilities[0]
    torch.testing.assert_close(probabilities(in_blocks(tasks), tasks), expected, rtol=0, atol=1e-4)


# --- classes by name -------------------------------------------------------------------------------------------------


def named_task(shots: int, *, without=-1, positive=False, n_classes=30) -> Tasks:
    """Classes of ``shots`` examples each and a name that lies apart; one class may be ``without`` any example."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres = 1.5 * normal(n_classes, 16)
    labels = torch.arange(n_classes).repeat_interleave(shots)
    labels = labels[labels != without]
    truth = torch.tensor([1, 4, n_classes - 1]).repeat_interleave(20)
    support, query = (centres[which] + normal(len(which), 16) for which in (labels, truth))
    arrays = support, query, centres + normal(n_classes, 16) / 2 + 2
    support, query, names = (values.abs()[None] if positive else values[None] for values in arrays)
    return Tasks.from_arrays(support, labels[None], query, class_features=names)


@pytest.mark.parametrize(
    ("given", "scale"),
    [
        ({"shots": 0}, "rcl2"),
        ({"shots": 0, "positive": True}, "rcl2"),
        ({"shots": 0}, None),
        ({"shots": 1}, "rcl2"),
        ({"shots": 3, "without": 4}, "l2"),
        ({"shots": 3, "positive": True}, "rcl2"),
    ],
)
def test_classes_by_name_get_in_blocks_what_they_get_in_memory(given, scale):
    tasks = named_task(**given)
    expected = solve("evidence", tasks, scale=scale)
    large = in_blocks(tasks, 20, scale=scale)
    torch.testing.assert_close(probabilities(large, tasks, 20), expected.probabilities[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(large.presence, expected.presence[0], rtol=0, atol=1e-6)
    assert large.n_iter == int(expected.n_iter[0])


def test_items_of_no_class_are_found_in_blocks_where_classes_have_names():
    tasks = named_task(3)
    which = tasks.support_labels[0] < 29  # the last class is not known
    tasks = Tasks.from_arrays(
        tasks.support[:, which],
        tasks.support_labels[:, which],
        tasks.query,
        class_features=tasks.class_features[:, :29],
    )
    found = probabilities(in_blocks(tasks, 20, open_set=True), tasks, 20)
    expected = solve("evidence", tasks, open_set=True)
    torch.testing.assert_close(found, expected.probabilities[0], rtol=0, atol=0.02)
    assert ((1 - found.sum(1) > 0.5) == (torch.arange(60) >= 40)).double().mean() > 0.9


def test_a_dask_cluster_takes_names_alone(cluster):
    tasks, options = named_task(0), {"anneal_from": 1.0}
    blocks = tasks.query[0].split(30)
    with on_dask(cluster, lambda: iter(blocks)) as spread:
        there = in_blocks(tasks, spread=spread, **options)
        found = [there.assign(block, note.result()) for block, note in zip(blocks, there.memory, strict=True)]
    expected = solve("evidence", tasks, **options).probabilities[0]
    torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=1e-6)


def test_passes_are_counted_on_where_names_alone_need_two_searches():
    told = []
    in_blocks(named_task(0), progress=told.append)
    assert told == list(range(len(told)))


def test_a_scale_that_names_do_not_have_is_refused():
    with pytest.raises(InputError, match="scale is 'range'; with class features choose"):
        in_blocks(named_task(0), scale="range")


# --- what it costs, and where ----------------------------------------------------------------------------------------


def test_an_iteration_reads_the_queries_once():
    tasks = one_task()
    readings = []

    def blocks() -> Iterator[torch.Tensor]:
        readings.append(None)
        yield from tasks.query[0].split(64)

    large = evidence_in_blocks(tasks.support[0], tasks.support_labels[0], blocks)
    # Their extent, the iterations, the means of the groups, and the surest query of each class.
    assert len(readings) == 1 + len(large.active) + 2


def test_memory_is_that_of_a_block_and_of_what_it_remembers_whatever_the_number_of_queries(monkeypatch):
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for made in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in inputs:
                    largest = max(largest, made.numel())
            return result

    monkeypatch.setattr("manyway.methods.evidence.streamed._MOST_REMEMBERED", 2000)
    for n_query in (100, 600):
        tasks = one_task(n_query=n_query)
        support, labels, query = tasks.support[0], tasks.support_labels[0], tasks.query[0]
        inputs = {given.untyped_storage().data_ptr() for given in (support, labels, query)}
        with Watch():
            large = evidence_in_blocks(support, labels, lambda query=query: iter(query.split(20)))
        assert sum(len(remembered.values) for remembered in large.memory) <= 2000 + len(large.memory)
    assert largest <= 400 * 80 < 600 * 80  # the examples that calibration leaves out; the queries would be more


def test_a_dask_cluster_gives_the_same(cluster):
    tasks = one_task(n_classes=120)
    here = in_blocks(tasks)
    query = tasks.query[0]
    with on_dask(cluster, lambda: iter(query.split(64))) as spread:
        there = in_blocks(tasks, spread=spread)
        there_notes = [note.result() for note in there.memory]
    assert there.active == here.active
    found = [there.assign(block, note) for block, note in zip(query.split(64), there_notes, strict=True)]
    torch.testing.assert_close(torch.cat(found), probabilities(here, tasks), rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{"max_iter": 0}, {"anneal_from": 0.0}, {"scale": "power"}])
def test_impossible_parameters_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        in_blocks(one_task(), **options)


def test_no_query_is_one_sentence():
    tasks = one_task()
    with pytest.raises(InputError, match="no query"):
        evidence_in_blocks(tasks.support[0], tasks.support_labels[0], lambda: iter(()))
