"""The dense reference of the benchmarks is the published algorithm, and our solver gives the same numbers."""

from __future__ import annotations

import sys

import pytest
import torch
from problems import make_tasks

from benchmarks.dense import paddle_dense, published, rows_by_class, sample_looped
from benchmarks.features import make_features
from benchmarks.measure import exponent
from manyway import FeatureSet, TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features
from manyway.core.transforms import transform
from manyway.methods.paddle.forms import GramForm, prototype_form
from manyway.methods.paddle.solver import live_iterations, paddle
from manyway.sampling.embedded import load_glyphs


@pytest.mark.parametrize("form", ["gram", "feature"])
def test_ours_equals_the_dense_reference(form):
    tasks = make_tasks(n_tasks=4, n_classes=6, n_query=12)
    dense = paddle_dense(tasks.support, tasks.support_labels, tasks.query, tasks.n_classes)
    torch.testing.assert_close(solve("paddle", tasks, form=form).probabilities, dense, rtol=0, atol=1e-9)


def test_ours_equals_the_dense_reference_in_float32_at_the_papers_size():
    tasks = sample_tasks(make_features(40, 60, 64), TaskSpec(shots=5), count=4)
    dense = paddle_dense(tasks.support, tasks.support_labels, tasks.query, tasks.n_classes)
    ours = solve("paddle", tasks)
    assert torch.equal(ours.labels, dense.argmax(-1))
    torch.testing.assert_close(ours.probabilities, dense, rtol=0, atol=1e-4)


def test_the_looped_sampler_draws_tasks_of_the_same_kind():
    features = make_features(10, 30, 4)
    spec = TaskSpec(shots=3, k_eff=2, n_query=20)
    support, labels, query = sample_looped(rows_by_class(features), spec, torch.Generator().manual_seed(0), 5)
    ours = sample_tasks(features, spec, count=5)
    assert support.shape == ours.support_index.shape
    assert query.shape == ours.query_index.shape
    assert torch.equal(features.labels[support], labels)
    for task in range(5):
        rows = torch.cat([support[task], query[task]]).tolist()
        assert len(set(rows)) == len(rows)
        assert len(features.labels[query[task]].unique()) <= 2


def update_all_classes_until(monkeypatch, iterations):
    monkeypatch.setattr(sys.modules[paddle.__module__], "_ALL_CLASSES_UNTIL", iterations)


def test_skipping_iterations_that_repeat_changes_no_bit(monkeypatch):
    tasks = sample_tasks(make_features(20, 60, 512), TaskSpec(shots=5), count=8)
    iterations = []  # of one task each
    scores = GramForm.scores

    def counted(self, u, bias=None):
        iterations.append(len(u))
        return scores(self, u, bias)

    monkeypatch.setattr(GramForm, "scores", counted)
    update_all_classes_until(monkeypatch, 10**9)
    skipping = paddle(tasks, form="gram").probabilities
    assert sum(iterations) < 8 * 50, "otherwise nothing was skipped, and nothing is tested"
    monkeypatch.setattr(sys.modules[paddle.__module__], "_PERIOD", 10**9)
    assert torch.equal(skipping, paddle(tasks, form="gram").probabilities)


@pytest.mark.parametrize("form", ["gram", "feature"])
def test_skipping_dead_classes_changes_no_label_and_no_probability_beyond_rounding(form, monkeypatch):
    tasks = sample_tasks(make_features(80, 40, 512), TaskSpec(shots=5), count=6)
    some = paddle(tasks, form=form)
    update_all_classes_until(monkeypatch, 10**9)
    all_of_them = paddle(tasks, form=form)
    assert torch.equal(some.labels, all_of_them.labels)
    torch.testing.assert_close(some.probabilities, all_of_them.probabilities, rtol=0, atol=1e-5)


def test_iterations_without_the_dead_classes_equal_full_ones_to_nine_digits():
    tasks = sample_tasks(make_features(80, 40, 512), TaskSpec(shots=5), count=3).to(dtype=torch.float64)
    form = prototype_form(transform(tasks, "range"), "gram")
    u = solve("paddle", tasks, max_iter=20).probabilities

    def logits(u):
        return form.scores(u) + (u.mean(1, keepdim=True) + 1e-6).log() + 1

    live = live_iterations(form, logits(u), logits(u).softmax(-1), count=5, weight=1.0, eps=1e-6)
    for _ in range(6):
        u = logits(u).softmax(-1)
    assert live is not None
    torch.testing.assert_close(live, u, rtol=0, atol=1e-9)


def test_few_classes_are_never_skipped():
    tasks = make_tasks(n_classes=8, n_query=5)
    u = solve("paddle", tasks).probabilities
    assert live_iterations(prototype_form(tasks, None), u.log(), u, count=5, weight=1.0, eps=1e-6) is None


def test_the_exponent_of_a_power_law_is_found():
    assert exponent([1, 2, 4, 8], [5, 10, 20, 40]) == pytest.approx(1)
    assert exponent([10, 100], [7, 7]) == pytest.approx(0)


def labels_and_difference(features: FeatureSet, spec: TaskSpec, count: int) -> tuple[int, float]:
    """How many labels differ from the published ones, and the largest difference of a probability."""
    tasks = sample_tasks(features, spec, count=count)
    ours, exact = solve("paddle", tasks).probabilities.double(), published(tasks)
    return int((ours.argmax(-1) != exact.argmax(-1)).sum()), float((ours - exact).abs().max())


@pytest.mark.slow
def test_labels_on_the_embedded_features_are_the_published_ones():
    differ, largest = labels_and_difference(load_glyphs(), TaskSpec(shots=5), 3)
    assert differ == 0
    assert largest < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shots"), [("clinc150", 5), ("clinc150", 20), ("cub200", 5)])
def test_labels_on_real_features_are_the_published_ones(name, shots, data_folder):
    differ, largest = labels_and_difference(find_features(name, data_folder), TaskSpec(shots=shots), 4)
    assert differ == 0
    assert largest < 1e-4


def test_a_chunk_of_tasks_does_not_change_what_one_task_gets():
    """Tasks of a batch skip dead classes together and leave the iteration together. This must not change an answer."""
    tasks = sample_tasks(load_glyphs(), TaskSpec(shots=5), seed=3, count=2)
    together = solve("paddle", tasks)
    alone = torch.cat([solve("paddle", tasks[i : i + 1]).probabilities for i in range(2)])
    assert torch.equal(together.labels, alone.argmax(-1))
    torch.testing.assert_close(together.probabilities, published(tasks).float(), rtol=0, atol=1e-3)
