"""Evidence in blocks gives what it gives in memory, whatever the blocks, the idle classes and the machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import Watched, make_tasks, piled
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.features import make_features
from manyway import InputError, Tasks, TaskSpec, sample_tasks, solve
from manyway.core.dask import on_dask
from manyway.core.solution import Solution
from manyway.methods.evidence.block_update import BlockUpdate
from manyway.methods.evidence.schedule import Schedule


def one_task(n_classes=80, n_query=300, k_eff=4, shots=5, dtype=torch.float32, n_features=72) -> Tasks:
    spec = TaskSpec(shots=shots, k_eff=k_eff, n_query=n_query)
    return sample_tasks(make_features(n_classes, 160, n_features), spec, count=1).to(dtype=dtype)


def in_blocks(tasks: Tasks, size=64, **options) -> Solution:
    return solve("evidence", piled(tasks, size), **options)


def watched(tasks: Tasks, size=64, **options) -> tuple[Solution, Watched]:
    """The same, and all passes over the queries."""
    spread = Watched(tasks.query[0], size)
    return solve("evidence", piled(tasks, spread=spread), **options), spread


def active(spread: Watched) -> list[int]:
    """How many classes each update had."""
    return [len(step.slope) for step in spread.of(BlockUpdate)]


@pytest.mark.parametrize(("size", "k_eff"), [(1000, 4), (64, 4), (64, 60), (7, 60)])
def test_blocks_of_any_size_give_what_memory_gives(size, k_eff):
    tasks = one_task(k_eff=k_eff, n_features=64 if size == 64 else 72)  # the first step is chosen for 64
    expected = solve("evidence", tasks)
    found = in_blocks(tasks, size)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-4)
    assert torch.equal(found.labels, expected.labels)
    torch.testing.assert_close(found.presence.float(), expected.presence, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.proportions.float(), expected.proportions, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.n_present.float(), expected.n_present, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.n_present_sd.float(), expected.n_present_sd, rtol=0, atol=1e-3)
    assert torch.equal(found.n_iter, expected.n_iter)
    assert torch.equal(found.converged, expected.converged)


@pytest.mark.parametrize(
    ("scale", "options"),
    [
        *((scale, {}) for scale in ("rcl2", "cl2", "tcl2", "l2", "range", "power", "white", None)),
        *((scale, {"concentration": 0.1, "schedule": {"anneal_from": 1.0}}) for scale in ("rcl2", "white")),
        *((scale, {"merge_groups": False, "precision": 3.0}) for scale in ("cl2", "range")),
    ],
)
def test_in_float64_no_class_is_idle_and_the_iterations_are_the_same(scale, options):
    tasks = make_tasks(1, n_classes=40, n_query=50, shots=None, spread=1.0)
    options = {"scale": scale, "adapt": False, **options}  # to adapt repeats the search: test_adapt.py
    expected = solve("evidence", tasks, **options)
    found, spread = watched(tasks, 20, **options)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.presence, expected.presence, rtol=0, atol=1e-6)
    assert torch.equal(found.n_iter, expected.n_iter)
    assert set(active(spread)) == {40}


def test_features_without_negative_values_are_levelled_and_get_their_own_mean():
    tasks = make_tasks(1, n_classes=6, n_query=30)
    base_mean = torch.full((5,), 0.3, dtype=torch.float64)
    positive = Tasks.from_arrays(tasks.support.abs(), tasks.support_labels, tasks.query.abs(), base_mean)
    expected = solve("evidence", positive).probabilities
    torch.testing.assert_close(in_blocks(positive).probabilities, expected, rtol=0, atol=1e-6)


def test_classes_without_queries_are_idle_and_the_answer_is_the_same():
    tasks = one_task(n_classes=120)
    found, spread = watched(tasks)
    some = active(spread)
    assert set(active(watched(one_task(n_classes=120, dtype=torch.float64))[1])) == {120}
    assert min(some) < 30
    assert sum(some) < 0.6 * 120 * len(some)
    assert some[-1] == 120  # convergence is declared only where all took part
    assert found.converged.all()
    expected = solve("evidence", tasks)
    assert torch.equal(found.labels, expected.labels)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-4)


def test_a_class_whose_queries_come_late_does_not_stay_idle(monkeypatch):
    """Every class is idle that may be, from the start: the answer is still the same."""
    monkeypatch.setattr("manyway.methods.evidence.blocks._ALMOST_EMPTY", 0.5)
    monkeypatch.setattr("manyway.methods.evidence.blocks._MIN_IDLE", 1)
    tasks = one_task(n_query=30, k_eff=20)
    assert torch.equal(in_blocks(tasks).labels, solve("evidence", tasks).labels)


def test_where_many_classes_are_present_the_search_is_sharper_as_in_memory():
    tasks = one_task(n_query=60, k_eff=50, dtype=torch.float64)
    found, spread = watched(tasks)
    steps = spread.of(BlockUpdate)
    of_few = watched(one_task(dtype=torch.float64))[1].of(BlockUpdate)[-1].sharpness
    assert 1 < of_few < 1.2 < steps[-1].sharpness < 1.5
    assert len(steps) == 1 + Schedule.anneal_steps + int(found.n_iter)
    expected = solve("evidence", tasks).probabilities
    torch.testing.assert_close(found.probabilities, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("most", [8, 1])
def test_few_remembered_assignments_per_query_are_enough(monkeypatch, most):
    tasks = one_task(k_eff=30)
    monkeypatch.setattr("manyway.methods.evidence.blocks._MOST_REMEMBERED", most * tasks.n_query)
    found, spread = watched(tasks)
    memories = [memory for work, memory in spread.passes if isinstance(work, BlockUpdate)]
    assert all(len(block.places) <= most * 64 + 1 for block in memories[-1])
    expected = solve("evidence", tasks)
    assert torch.equal(found.labels, expected.labels)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=5e-4)


@pytest.mark.parametrize("n_query", [1, 2, 5])
def test_a_handful_of_queries(n_query):
    tasks = one_task(n_query=n_query, k_eff=1)
    expected = solve("evidence", tasks).probabilities
    # Where one query decides about a shift, the rounding of sums in blocks shows.
    torch.testing.assert_close(in_blocks(tasks).probabilities, expected, rtol=0, atol=5e-3)


def test_one_example_per_class():
    tasks = one_task(shots=1)
    expected = solve("evidence", tasks).probabilities
    torch.testing.assert_close(in_blocks(tasks).probabilities, expected, rtol=0, atol=1e-4)


def test_classes_of_very_different_size():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30).repeat_interleave(torch.tensor([1, 2, 80] * 10))
    centres = torch.randn(30, 20, generator=generator)
    support = centres[labels] + torch.randn(len(labels), 20, generator=generator)
    truth = torch.arange(5).repeat_interleave(40)
    query = centres[truth] + torch.randn(200, 20, generator=generator)
    tasks = Tasks.from_arrays(support[None], labels[None], query[None])
    expected = solve("evidence", tasks).probabilities
    torch.testing.assert_close(in_blocks(tasks).probabilities, expected, rtol=0, atol=1e-4)


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
        ({"shots": 0}, "range"),
        ({"shots": 0}, "power"),
        ({"shots": 3}, "power"),
        ({"shots": 3}, "white"),
    ],
)
def test_classes_by_name_get_in_blocks_what_they_get_in_memory(given, scale):
    tasks = named_task(**given)
    expected = solve("evidence", tasks, scale=scale, adapt=False)
    found = in_blocks(tasks, 20, scale=scale, adapt=False)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-6)
    # The odds of presence follow from sizes and from sums over all queries, which magnify the rounding of blocks.
    torch.testing.assert_close(found.presence, expected.presence, rtol=0, atol=1e-4)
    assert torch.equal(found.n_iter, expected.n_iter)


def test_items_of_no_class_are_found_in_blocks_where_classes_have_names():
    tasks = named_task(3)
    which = tasks.support_labels[0] < 29  # the last class is not known
    tasks = Tasks.from_arrays(
        tasks.support[:, which],
        tasks.support_labels[:, which],
        tasks.query,
        class_features=tasks.class_features[:, :29],
    )
    found = in_blocks(tasks, 20, open_set=True)
    expected = solve("evidence", tasks, open_set=True)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=0.02)
    assert ((found.labels[0] < 0) == (torch.arange(60) >= 40)).double().mean() > 0.9


def test_a_dask_cluster_takes_names_alone(cluster):
    tasks, options = named_task(0), {"max_iter": 10, "schedule": {"anneal_from": 1.0}}  # each iteration is a pass
    blocks = tasks.query[0].split(30)
    with on_dask(cluster, lambda: iter(blocks)) as spread:
        found = solve("evidence", piled(tasks, spread=spread), **options).probabilities
    torch.testing.assert_close(found, solve("evidence", tasks, **options).probabilities, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shots", [0, 3])
def test_a_dask_cluster_takes_known_labels_names_and_unknown_items_together(cluster, shots):
    tasks = named_task(shots)
    which = tasks.support_labels[0] < 29  # the last class is not known
    known = torch.full((1, 60), -1)
    known[0, ::7] = torch.tensor([1, 4, -1])[torch.arange(60) // 20][::7]
    tasks = Tasks.from_arrays(
        tasks.support[:, which],
        tasks.support_labels[:, which],
        tasks.query,
        class_features=tasks.class_features[:, :29],
        known=known,
    )
    options = {"open_set": True, "max_iter": 10, "schedule": {"anneal_steps": 5}}  # each iteration is a pass
    blocks = tasks.query[0].split(20)
    with on_dask(cluster, lambda: iter(blocks)) as spread:
        found = solve("evidence", piled(tasks, spread=spread), **options)
        labels, probabilities, groups = found.labels, found.probabilities, found.unknown_groups
    expected = solve("evidence", tasks, **options)
    torch.testing.assert_close(probabilities, expected.probabilities, rtol=0, atol=1e-4)
    assert torch.equal(labels, expected.labels)
    assert torch.equal(groups, expected.unknown_groups)
    assert torch.equal(labels[known >= 0], known[known >= 0])


def test_passes_are_counted_on_where_names_alone_need_two_searches():
    told: list[int] = []
    tasks = piled(named_task(0))
    solve("evidence", replace(tasks, pile=replace(tasks.pile, progress=told.append)))
    assert told == list(range(1, len(told) + 1))
    assert len(told) > 2 * Schedule.anneal_steps


# --- what it costs, and where ----------------------------------------------------------------------------------------


def test_an_iteration_reads_the_queries_once():
    found, spread = watched(one_task())
    # Their number, two for near-copies, the iterations, the means of the groups, how far queries are from them, and how
    # far from the middle.
    assert len(spread.passes) == 3 + len(active(spread)) + 3
    found.top(2)  # one more for a table
    assert len(spread.passes) == len(active(spread)) + 7


@pytest.mark.slow
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

    monkeypatch.setattr("manyway.methods.evidence.blocks._MOST_REMEMBERED", 2000)
    monkeypatch.setattr("manyway.methods.evidence.copies._MOST_COMPARED", 50)
    for n_query in (200, 600):
        tasks = one_task(n_query=n_query)
        given = tasks.support, tasks.support_labels, tasks.query
        tasks = Tasks.from_arrays(*given)
        inputs = {each.untyped_storage().data_ptr() for each in given}
        with Watch():
            found, spread = watched(tasks, 200)
            found.top(2)
        remembered = [memory for work, memory in spread.passes if isinstance(work, BlockUpdate)][-1]
        assert sum(len(block.values) for block in remembered) <= 2000 + len(remembered)
        held = [one.untyped_storage() for block in remembered for one in block if isinstance(one, torch.Tensor)]
        assert max(one.nbytes() for one in held) < 4 * 200 * 80 / 2  # no view of the assignments of a block
    assert largest <= 400 * 80 < 600 * 80  # the examples that calibration leaves out; the queries would be more


def test_a_dask_cluster_gives_the_same(cluster):
    tasks = one_task(n_classes=120)
    options = {"max_iter": 10, "schedule": {"anneal_steps": 5}, "adapt": False}  # each iteration is a pass
    here = in_blocks(tasks, **options)
    query = tasks.query[0]
    with on_dask(cluster, lambda: iter(query.split(64))) as spread:
        there = solve("evidence", piled(tasks, spread=spread), **options)
        best, probabilities, presence = there.top(2), there.probabilities, there.presence
    assert torch.equal(there.n_iter, here.n_iter)
    torch.testing.assert_close(probabilities, here.probabilities, rtol=0, atol=1e-5)
    torch.testing.assert_close(presence, here.presence, rtol=0, atol=1e-5)
    assert torch.equal(best.best.values[1], here.top(2).best.values[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [({"max_iter": 0}, "max_iter"), ({"schedule": {"anneal_from": 0.0}}, "anneal_from"), ({"scale": "cube"}, "'cube'")],
)
def test_impossible_parameters_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        in_blocks(one_task(), **options)


def test_no_query_is_one_sentence():
    with pytest.raises(InputError, match="no query"):
        piled(one_task(), spread=Watched(torch.zeros(0, 64)))


@pytest.mark.parametrize("update_prototypes", [True, False])
def test_labels_that_contradict_the_batch_are_heeded_in_blocks_as_in_memory(update_prototypes):
    """Their assignments are fixed, and the search goes on, while classes may be idle."""
    tasks = one_task()
    labels = solve("evidence", tasks).labels
    known = torch.full((1, 300), -1)
    known[0, :6] = (labels[0, :6] + 1) % 80
    given = tasks.with_known(known)
    expected = solve("evidence", given, update_prototypes=update_prototypes)
    found = in_blocks(given, update_prototypes=update_prototypes)
    assert torch.equal(found.labels, expected.labels)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", [18, 47, 58])
def test_a_label_that_is_no_news_counts_in_blocks_as_in_memory(seed):
    """Whether a label is news is judged without the own part of its query in the prototype, and the search goes on
    from the counts with all known labels; in blocks both were forgotten."""
    generator = torch.Generator().manual_seed(seed)
    means = 1.1 * torch.randn(12, 16, generator=generator)
    y = torch.arange(12).repeat_interleave(3)
    support = means[y] + 1.5 * torch.randn(36, 16, generator=generator)
    labels = torch.randint(4, (24,), generator=generator)
    query = means[labels] + 1.5 * torch.randn(24, 16, generator=generator)
    known = torch.full((1, 24), -1)
    known[0, ::6] = labels[::6]
    tasks = Tasks.from_arrays(support[None].double(), y[None], query[None].double(), known=known)
    expected = solve("evidence", tasks, adapt=False)
    found = in_blocks(tasks, 8, adapt=False)
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-6)
