"""Tasks whose queries all differ from the examples in the same way."""

import pytest
import torch

from manyway import FeatureSet, TaskSpec, sample_tasks
from manyway.errors import InputError
from manyway.sampling import DEFAULTS, identity, task_fields

N_CLASSES, N_SAMPLES, N_FEATURES = 6, 30, 10
ALONG = ["random", "components", "class"]


@pytest.fixture(scope="module")
def features():
    generator = torch.Generator().manual_seed(0)
    means = 3 * torch.randn(N_CLASSES, 1, N_FEATURES, generator=generator)
    rows = means + torch.randn(N_CLASSES, N_SAMPLES, N_FEATURES, generator=generator)
    rows[..., :3] *= 20  # the first components
    return FeatureSet(rows.flatten(0, 1), torch.arange(N_CLASSES).repeat_interleave(N_SAMPLES))


def move_of(features, **fields):
    """[t, d] by what the queries of four tasks are moved."""
    spec = TaskSpec(shots=5, k_eff=3, n_query=12, shift=1.5, **fields)
    plain = sample_tasks(features, TaskSpec(shots=5, k_eff=3, n_query=12), count=4)
    shifted = sample_tasks(features, spec, count=4)
    assert torch.equal(shifted.support, plain.support)
    moves = shifted.query - plain.query
    torch.testing.assert_close(moves, moves[:, :1].expand_as(moves), atol=1e-4, rtol=0)
    return moves[:, 0], plain


@pytest.mark.parametrize("along", ALONG)
def test_all_queries_move_by_so_many_scatters(features, along):
    moves, tasks = move_of(features, shift_along=along)
    groups = tasks.support.view(4, N_CLASSES, 5, N_FEATURES)
    scatter = (groups - groups.mean(2, keepdim=True)).square().sum((1, 2, 3)) / (4 * N_CLASSES)
    torch.testing.assert_close(moves.norm(dim=-1), 1.5 * scatter.sqrt(), rtol=1e-3, atol=0)


def test_directions_are_those_that_are_asked_for(features):
    anywhere, _ = move_of(features)
    components, _ = move_of(features, shift_along="components")
    assert components[:, :3].norm(dim=-1).div(components.norm(dim=-1)).min() > 0.95
    assert anywhere[:, :3].norm(dim=-1).div(anywhere.norm(dim=-1)).min() < 0.9
    towards, tasks = move_of(features, shift_along="class")
    means = tasks.support.view(4, N_CLASSES, 5, N_FEATURES).mean(2)
    between = means.unsqueeze(1) - means.unsqueeze(2)
    likeness = torch.cosine_similarity(between, towards.view(4, 1, 1, -1), dim=-1)
    assert likeness.amax((1, 2)).min() > 0.999


def test_a_task_does_not_depend_on_its_chunk(features):
    spec = TaskSpec(shots=5, k_eff=3, n_query=12, shift=1.0)
    both = sample_tasks(features, spec, count=2).query
    assert torch.equal(sample_tasks(features, spec, start=1, count=1).query, both[1:])


@pytest.mark.parametrize(
    "fields", [{"shift": -1.0}, {"shift": "far"}, {"shift": 1.0, "shots": 1}, {"shift_along": "up"}]
)
def test_what_cannot_be_a_shift_is_refused(fields):
    with pytest.raises(InputError, match="shift"):
        TaskSpec(**fields)


def test_a_task_without_a_shift_is_the_same_as_before_there_were_any():
    fields = task_fields(TaskSpec())
    assert fields == DEFAULTS
    assert identity(fields).keys() == DEFAULTS.keys() - {"shift", "shift_along"}
    assert identity(task_fields(TaskSpec(shift=1.0)))["shift_along"] == "random"
