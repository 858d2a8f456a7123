"""The queries around a query: those that lie together are alike, and copies count as one."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway import Tasks
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.evidence import neighbourhood
from manyway.methods.evidence.judged import Judged
from manyway.methods.evidence.neighbourhood import Neighbourhoods, clumping, effective_size
from manyway.methods.evidence.schedule import Schedule

N_FEATURES = 24


def groups(n_each: int = 6, apart: float = 4.0, seed: int = 0) -> tuple[Calibration, Tensor]:
    """A calibration of one task in a plain metric, and placed queries of two groups, one after the other."""
    tasks = make_tasks(1, n_classes=6, n_features=N_FEATURES, shots=4, seed=seed)
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    generator = torch.Generator().manual_seed(seed)
    means = apart * torch.randn(2, 1, N_FEATURES, generator=generator, dtype=torch.float64)
    rows = means + torch.randn(2, n_each, N_FEATURES, generator=generator, dtype=torch.float64)
    return calibration, rows.view(1, -1, N_FEATURES)


def test_queries_of_a_group_are_alike_and_those_of_two_groups_are_not():
    calibration, placed = groups()
    found = Neighbourhoods.of(Judged.whole(placed), calibration, Schedule())
    within = found.similarity[0, :6, :6]
    assert within.min() > 0.8
    assert found.similarity[0, :6, 6:].max() < 0.1
    torch.testing.assert_close(found.similarity, found.similarity.mT)
    torch.testing.assert_close(found.sizes, torch.full((1, 12), 6.0).double(), rtol=0, atol=0.5)


def test_the_order_of_queries_does_not_matter():
    calibration, placed = groups(apart=0.7)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    plain = Neighbourhoods.of(Judged.whole(placed), calibration, Schedule())
    shuffled = Neighbourhoods.of(Judged.whole(placed[:, order]), calibration, Schedule())
    torch.testing.assert_close(shuffled.similarity, plain.similarity[:, order][:, :, order])


def test_copies_share_what_one_query_counts():
    calibration, placed = groups()
    copied = torch.cat([placed, placed[:, :1], placed[:, :1]], 1)
    found = Neighbourhoods.of(Judged.whole(copied), calibration, Schedule())
    share = found.share[0]
    assert share[[0, 12, 13]].tolist() == pytest.approx([1 / 3] * 3)
    assert (share[1:12] == 1).all()
    once = Neighbourhoods.of(Judged.whole(placed), calibration, Schedule())
    torch.testing.assert_close(found.sizes[:, :12], once.sizes, rtol=0.05, atol=0)
    torch.testing.assert_close(found.mean(copied)[:, :12], once.mean(placed), rtol=0, atol=0.2)


def test_a_query_that_is_alone_is_its_own_neighbourhood_however_many_copies_it_has():
    calibration, placed = groups(n_each=1, apart=9.0)
    lonely = placed.repeat_interleave(2, 1)
    found = Neighbourhoods.of(Judged.whole(lonely), calibration, Schedule())
    assert found.similarity[0, 0, 1] > 0.99  # its copy
    assert found.similarity[0, 0, 2:].max() < 0.01
    torch.testing.assert_close(found.mean(lonely), lonely, rtol=0, atol=0.1)
    torch.testing.assert_close(found.sizes, torch.ones(1, 4).double(), rtol=0, atol=0.05)


def test_a_mean_is_weighted_by_similarity_and_share():
    similarity = torch.tensor([[[1.0, 0.5], [0.0, 1.0]]])
    around = Neighbourhoods(similarity=similarity, share=torch.tensor([[1.0, 0.5]]))
    rows = torch.tensor([[[4.0], [8.0]]])
    expected = [(1 * 4 + 0.5 * 0.5 * 8) / (1 + 0.25), 8.0]
    assert around.mean(rows).flatten().tolist() == pytest.approx(expected)


def test_the_effective_size_is_the_number_of_equal_weights_and_less_of_unequal_ones():
    weights = torch.tensor([[[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.5, 0.0]]])
    assert effective_size(weights, torch.ones(1, 3)).tolist() == [pytest.approx([3, 1, 1.5**2 / 1.25])]
    half = effective_size(weights, torch.tensor([[0.5, 0.5, 0.5]]))
    assert half.tolist() == [pytest.approx([1.5, 0.5, 0.5 * 1.5**2 / 1.25])]


def test_clumping_is_the_excess_in_parts_of_that_of_clumps_alone():
    calibration, _ = groups()
    around = Neighbourhoods(similarity=torch.eye(12).double()[None], share=torch.ones(1, 12).double())
    scatter = calibration.within.scatter
    all_clumps = scatter * torch.ones(1, 12).double()
    found = around.clumped(0.5 * all_clumps, all_clumps, calibration)
    assert float(found) == pytest.approx(0.5 * 12 / 13)  # and one large neighbourhood that has none
    assert float(around.clumped(-all_clumps, all_clumps, calibration)) == 0
    assert float(around.clumped(9 * all_clumps, all_clumps, calibration)) == 1


def in_clumps(parts: int, n_tasks: int = 1) -> Tasks:
    """Four classes of 20 examples, each in so many clumps."""
    generator = torch.Generator().manual_seed(0)
    spread = 0.35 if parts > 1 else 1.0
    middles = torch.randn(n_tasks, 4, 1, 12, generator=generator).expand(-1, -1, 20, -1).clone()
    if parts > 1:
        clumps = torch.randn(n_tasks, 4, parts, 12, generator=generator)
        middles = middles + clumps[:, :, torch.arange(20) % parts]
    rows = (middles + spread * torch.randn(middles.shape, generator=generator)).flatten(1, 2)
    labels = torch.arange(4).repeat_interleave(20).expand(n_tasks, -1)
    return Tasks.from_arrays(rows, labels, rows[:, :1])


def test_examples_show_whether_classes_come_in_clumps():
    found = []
    for parts in (1, 6):
        tasks = in_clumps(parts, n_tasks=6)
        found.append(clumping(calibrate_distances(tasks, Schedule()), tasks, Schedule()))
    assert found[0].mean() < 0.1
    assert found[1].min() > 0.2


def test_many_tasks_are_looked_at_a_few_at_a_time_with_the_same_answer(monkeypatch):
    tasks = in_clumps(6, n_tasks=3)
    calibration = calibrate_distances(tasks, Schedule())
    together = clumping(calibration, tasks, Schedule())
    monkeypatch.setattr(neighbourhood, "MOST_NUMBERS", 1)
    torch.testing.assert_close(clumping(calibration, tasks, Schedule()), together)


def test_clumping_of_examples_is_the_excess_of_their_neighbourhoods():
    """The mean of m examples is S/m from its prototype; one that has a part in the prototype is 2S/n nearer."""
    tasks = in_clumps(6)
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    placed = calibration.coordinates.place(tasks.support)
    around = Neighbourhoods.of(Judged.whole(placed), calibration, Schedule())
    scatter = float(calibration.within.scatter)
    member = torch.nn.functional.one_hot(tasks.support_labels).to(placed)
    means = around.mean(placed)[0]
    parts = around.mean(member)[0]
    total = all_clumps = 0.0
    for i, size in enumerate(around.sizes[0].tolist()):
        apart = (means[i] - calibration.prototypes.offsets[0]).square().sum(-1)
        distances = apart - scatter / 20 + 2 * scatter * parts[i] / 20
        total += float(around.share[0, i]) * (float(distances.min()) - scatter / size)
        all_clumps += float(around.share[0, i]) * scatter * (1 - 1 / size)
    expected = total / (all_clumps + scatter)
    assert float(clumping(calibration, tasks, Schedule())) == pytest.approx(expected, rel=1e-3)
    assert 0 < expected < 1
