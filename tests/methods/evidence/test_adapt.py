"""Queries that differ from the examples, all in the same way, are moved back; nothing else is."""

import numpy as np
import pytest
import torch
from problems import piled
from shift_problems import N_CLASSES, batch, moved, right
from torch import Tensor

from manyway import Evidence, Tasks, TaskSpec, sample_tasks, solve
from manyway.methods.evidence.shift import Assigned, Comparison, Explanation
from manyway.sampling.embedded import load_glyphs


@pytest.mark.parametrize("present", [5, 20])
@pytest.mark.parametrize("scatters", [1.0, 3.0])
def test_a_shift_of_all_queries_costs_hardly_anything(present, scatters):
    tasks, truth = batch(present)
    found = solve("evidence", moved(tasks, scatters))
    assert right(found, truth) > right(solve("evidence", tasks), truth) - 0.04
    assert float(found.told["shift"]) == pytest.approx(scatters, abs=0.25)
    assert float(found.told["shift_probability"]) > 0.95


def test_without_adapting_a_shift_spoils_labels():
    tasks, truth = batch(20)
    shifted = moved(tasks, 3.0)
    assert right(solve("evidence", shifted, adapt=False), truth) < 0.5 < right(solve("evidence", shifted), truth)


@pytest.mark.parametrize("present", [1, 2, 5, 20])
def test_without_a_shift_labels_stay(present):
    tasks, _ = batch(present)
    looked = solve("evidence", tasks, adapt=True)
    assert torch.equal(looked.labels, solve("evidence", tasks, adapt=False).labels)
    assert float(looked.told["shift_probability"]) < 0.5


def test_the_parts_of_a_class_are_no_shifted_classes():
    """Items of one letter, as several people draw it, are explained better by several letters that are moved."""
    letters = load_glyphs()
    tasks = sample_tasks(letters, TaskSpec(shots=5, k_eff=1, n_query=15), seed=2026, count=12)
    looked = solve("evidence", tasks)
    stayed = solve("evidence", tasks, adapt=False)
    assert right(looked, tasks.query_labels) > right(stayed, tasks.query_labels) - 0.01


def test_noise_is_no_shift():
    tasks, truth = batch(5)
    noise = 2 * torch.randn(tasks.query.shape, generator=torch.Generator().manual_seed(3))
    noisy = tasks.with_rows(tasks.support, tasks.query + noise)
    found = solve("evidence", noisy)
    assert right(found, truth) >= right(solve("evidence", noisy, adapt=False), truth) - 0.02


def test_one_class_and_a_shift_look_alike_and_the_answer_is_unsure():
    tasks, _ = batch(1)
    shifted = solve("evidence", moved(tasks, 3.0))
    assert float(shifted.told["shift_probability"]) > 0.5
    assert float(shifted.probabilities.max(-1).values.mean()) < 0.7


def test_blocks_streams_and_single_tasks_give_the_same_answer():
    tasks, truth = batch(5)
    shifted = moved(tasks, 2.0)
    support = tasks.support[0].numpy()
    labels = tasks.support_labels[0].numpy()
    query = shifted.query[0].numpy()
    expected = solve("evidence", shifted)
    clf = Evidence().fit(support, labels)
    assert np.array_equal(clf.infer(query).labels, expected.labels[0].numpy())
    assert np.array_equal(clf.partial_infer(query).labels, expected.labels[0].numpy())
    in_blocks = solve("evidence", piled(shifted, 25))
    assert torch.equal(in_blocks.labels, expected.labels)
    torch.testing.assert_close(in_blocks.told["shift"], expected.told["shift"], rtol=0, atol=1e-3)
    assert right(expected, truth) > 0.9


def test_of_several_tasks_only_those_with_a_shift_change():
    one, other = batch(5, seed=1)[0], batch(5, seed=2)[0]
    shifted = moved(other, 2.0)
    both = Tasks.from_arrays(
        torch.cat([one.support, other.support]),
        torch.cat([one.support_labels, other.support_labels]),
        torch.cat([one.query, shifted.query]),
    )
    found = solve("evidence", both)
    alone = solve("evidence", one), solve("evidence", shifted)
    torch.testing.assert_close(found.probabilities[:1], alone[0].probabilities, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.probabilities[1:], alone[1].probabilities, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.presence[1:], alone[1].presence, rtol=0, atol=1e-4)
    assert float(found.told["shift"][0]) == 0 < float(found.told["shift"][1])
    assert not found.moved_by[0].any()
    assert found.moved_by[1].any()


def test_where_many_classes_are_moved_the_batch_is_not_one_class():
    """Labels of few classes have a larger error by chance, which is no reason to prefer them."""
    generator = torch.Generator().manual_seed(1)
    scales = torch.linspace(2, 0.1, 48)

    def normal(*shape: int) -> Tensor:
        return scales * torch.randn(*shape, 48, generator=generator)

    means = 0.5 * normal(20)
    support = (means[:, None] + normal(20, 5)).reshape(1, -1, 48)
    truth = torch.randint(20, (1, 60), generator=generator)
    query = means[truth] + normal(1, 60)
    shift = normal(1, 1)
    tasks = Tasks.from_arrays(
        support,
        torch.arange(20).repeat_interleave(5)[None],
        query + 2 * scales.norm() * shift / shift.norm(),
    )
    assert right(solve("evidence", tasks), truth) > 0.5


def test_metrics_of_few_tasks_at_a_time_give_the_same_answers(monkeypatch):
    """What memory has room for changes no answer, and no vector by which a task was moved back."""
    batches = [batch(5, seed=seed)[0] for seed in (1, 2, 3)]
    tasks = Tasks.from_arrays(
        torch.cat([one.support for one in batches]),
        torch.cat([one.support_labels for one in batches]),
        torch.cat([moved(one, 2.0).query for one in batches]),
    )
    together = solve("evidence", tasks)
    assert together.moved_by.flatten(1).any(1).all()
    monkeypatch.setattr("manyway.methods.evidence.adapt._MOST_KEPT", 1)
    apart = solve("evidence", tasks)
    torch.testing.assert_close(apart.moved_by, together.moved_by, rtol=0, atol=1e-4)
    torch.testing.assert_close(apart.probabilities, together.probabilities, rtol=0, atol=1e-4)


def test_labels_that_are_known_to_be_wrong_explain_no_shift(monkeypatch):
    """Every guess of a shift is judged by labels that agree with those that are known."""
    tasks, truth = batch(5)
    known = torch.full_like(truth, -1)
    known[0, :6] = (truth[0, :6] + 10) % N_CLASSES  # what nobody would guess
    seen = []
    original = Comparison.explanation

    def explanation(self: Comparison, found: Assigned, guess: Tensor) -> Explanation:
        seen.append(found.labels[0, :6])
        return original(self, found, guess)

    monkeypatch.setattr(Comparison, "explanation", explanation)
    solve("evidence", moved(tasks, 2.0).with_known(known))
    assert len(seen) == 5
    assert all(torch.equal(labels, known[0, :6]) for labels in seen)


def test_an_estimator_says_what_was_done():
    tasks, _ = batch(5)
    clf = Evidence().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    assert not clf.infer(tasks.query[0].numpy()).shift_.moved
    found = clf.infer(moved(tasks, 2.0).query[0].numpy()).shift_
    assert found.moved
    assert found.size == pytest.approx(2, abs=0.2)
    assert Evidence(adapt=False).fit(clf.support_, clf.support_labels_).infer(tasks.query[0].numpy()).shift_.size == 0


def right_if_known(tasks: Tasks, truth: Tensor, n_known: int) -> Tensor:
    """[q] the mean probability of the right class, where some labels are known."""
    known = torch.full_like(truth, -1)
    known[0, :n_known] = truth[0, :n_known]
    found = solve("evidence", tasks.with_known(known))
    return found.probabilities.gather(-1, truth.unsqueeze(-1))[0, n_known:].mean()


def test_known_labels_say_whether_a_shift_is_real():
    tasks, truth = batch(1)
    shifted = moved(tasks, 2.0)
    sure = [float(right_if_known(shifted, truth, n_known)) for n_known in (0, 3, 10)]
    assert sure == sorted(sure)
    assert sure[2] > sure[0] + 0.2


def test_a_class_without_a_shift_is_listed():
    tasks, _ = batch(1)
    assert solve("evidence", tasks).present()[0].tolist() == [0]


def faded(tasks: Tasks, part: float) -> Tasks:
    """Queries whose differences are so many times as large, with new noise: pictures that lost their colours."""
    generator = torch.Generator().manual_seed(11)
    middle = tasks.query.mean(1, keepdim=True)
    noise = torch.randn(tasks.query.shape, generator=generator)
    query = middle + part * (tasks.query - middle) + (1 - part**2) ** 0.5 * noise
    return moved(tasks.with_rows(tasks.support, query), 1.0)


def test_queries_that_tell_classes_apart_less_lower_the_claims():
    tasks, truth = batch(5)
    found = solve("evidence", faded(tasks, 0.4))
    alone = solve("evidence", faded(tasks, 0.4), adapt=False)
    assert right(found, truth) >= right(alone, truth) - 0.01
    claimed = float(found.probabilities.amax(-1).mean())
    assert claimed < float(alone.probabilities.amax(-1).mean())
    assert abs(claimed - right(found, truth)) < 0.2
    assert float(found.told["contrast"]) == pytest.approx(0.4, abs=0.15)


def test_far_queries_are_no_copies_of_each_other():
    """Far from the middle all placed rows are near to each other."""
    tasks, truth = batch(5)
    assert right(solve("evidence", moved(tasks, 8.0)), truth) > 0.9


def test_queries_that_are_also_less_far_apart_are_labelled_better_moved_than_not():
    tasks, truth = batch(10, seed=4)
    middle = tasks.support.mean(1, keepdim=True)
    closer = tasks.with_rows(tasks.support, middle + 0.6 * (tasks.query - middle))
    shifted = moved(closer, 1.0)
    unmoved = solve("evidence", shifted, adapt=False)
    assert right(solve("evidence", shifted), truth) > right(unmoved, truth) + 0.1
