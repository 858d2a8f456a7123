"""Queries that differ from the examples, all in the same way, are moved back; nothing else is."""

import numpy as np
import pytest
import torch
from problems import piled
from torch import Tensor

from manyway import Evidence, Tasks, solve
from manyway.core import Solution
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.representation import learn_representation
from manyway.methods.evidence.adapt import Assigned, Comparison, Shift, contrast

N_CLASSES, N_FEATURES, N_QUERY = 20, 48, 60


def batch(present: int, *, seed: int = 0, shots: int = 5) -> tuple[Tasks, Tensor]:
    """A batch of so many classes, and its labels. Within-class scatter is N_FEATURES."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(N_CLASSES, N_FEATURES, generator=generator)
    noise = torch.randn(N_CLASSES, shots, N_FEATURES, generator=generator)
    support = (means[:, None] + noise).reshape(1, -1, N_FEATURES)
    truth = torch.randint(present, (1, N_QUERY), generator=generator)
    query = means[truth] + torch.randn(1, N_QUERY, N_FEATURES, generator=generator)
    labels = torch.arange(N_CLASSES).repeat_interleave(shots)[None]
    return Tasks.from_arrays(support, labels, query), truth


def moved(tasks: Tasks, scatters: float, seed: int = 7) -> Tasks:
    """All queries moved in a random direction, by so many within-class scatters."""
    direction = torch.randn(1, 1, N_FEATURES, generator=torch.Generator().manual_seed(seed))
    shift = scatters * N_FEATURES**0.5 * direction / direction.norm()
    return tasks.with_rows(tasks.support, tasks.query + shift)


def right(solution: Solution, truth: Tensor) -> float:
    return float((solution.labels == truth).float().mean())


@pytest.mark.parametrize("present", [5, 20])
@pytest.mark.parametrize("scatters", [1.0, 3.0])
def test_a_shift_of_all_queries_costs_hardly_anything(present, scatters):
    tasks, truth = batch(present)
    found = solve("evidence", moved(tasks, scatters))
    assert right(found, truth) > right(solve("evidence", tasks), truth) - 0.04
    assert float(found.learned["shift"]) == pytest.approx(scatters, abs=0.25)
    assert float(found.learned["shift_probability"]) > 0.95


def test_without_adapting_a_shift_spoils_labels():
    tasks, truth = batch(20)
    shifted = moved(tasks, 3.0)
    assert right(solve("evidence", shifted, adapt=False), truth) < 0.5 < right(solve("evidence", shifted), truth)


@pytest.mark.parametrize("present", [1, 2, 5, 20])
def test_without_a_shift_labels_stay(present):
    tasks, _ = batch(present)
    looked = solve("evidence", tasks, adapt=True)
    assert torch.equal(looked.labels, solve("evidence", tasks, adapt=False).labels)
    assert float(looked.learned["shift_probability"]) < 0.5


def test_noise_is_no_shift():
    tasks, truth = batch(5)
    noise = 2 * torch.randn(tasks.query.shape, generator=torch.Generator().manual_seed(3))
    noisy = tasks.with_rows(tasks.support, tasks.query + noise)
    found = solve("evidence", noisy)
    assert right(found, truth) >= right(solve("evidence", noisy, adapt=False), truth) - 0.02


def test_one_class_and_a_shift_look_alike_and_the_answer_is_unsure():
    tasks, _ = batch(1)
    shifted = solve("evidence", moved(tasks, 3.0))
    assert float(shifted.learned["shift_probability"]) > 0.5
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
    torch.testing.assert_close(in_blocks.learned["shift"], expected.learned["shift"], rtol=0, atol=1e-3)
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
    assert float(found.learned["shift"][0]) == 0 < float(found.learned["shift"][1])
    assert not found.moved_by[0].any()
    assert found.moved_by[1].any()


def test_an_estimator_says_what_was_done():
    tasks, _ = batch(5)
    clf = Evidence().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    assert not clf.infer(tasks.query[0].numpy()).shift_.moved
    found = clf.infer(moved(tasks, 2.0).query[0].numpy()).shift_
    assert found.moved
    assert found.size == pytest.approx(2, abs=0.2)
    assert Evidence(adapt=False).fit(clf.support_, clf.support_labels_).infer(tasks.query[0].numpy()).shift_.size == 0


def test_the_fewer_classes_a_shift_can_be_told_from_the_less_sure_answers_are():
    """One class that is moved looks like another class."""
    certain = torch.ones(3)
    shift = Shift(vector=torch.zeros(3, 1, 2), size=certain, probability=certain)
    masses = torch.zeros(3, 30)
    masses[0, 0] = 30
    masses[1, :2] = 15
    masses[2] = 1
    none_known = torch.zeros(3)
    found = shift.power(masses, none_known)
    assert found[0] < 0.5
    assert found[0] < found[1] < found[2] < 1
    assert (Shift.none(certain).power(masses, none_known) == 1).all()
    few = shift.power(masses, none_known + 3)
    assert (found < few).all()
    assert (few < shift.power(masses, none_known + 10)).all()


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
    assert float(found.learned["contrast"]) == pytest.approx(0.4, abs=0.15)


def test_the_odds_of_a_shift_are_those_of_its_best_variance():
    """The formula of the module, for F above 1; the rest says what is known before."""
    tasks, _ = batch(3)
    comparison = compared(tasks)
    n = comparison.columns.double()
    for ratio in (1.2, 1.6, 2.5):
        log_odds = np.log(0.1 / 0.9) + (1 - 1 / n).log() + 0.5 * n * (ratio - 1 - np.log(ratio))
        found = comparison._probability(torch.full_like(comparison.columns, ratio), 0.1)
        torch.testing.assert_close(found.double(), log_odds.sigmoid(), rtol=1e-4, atol=1e-6)
    assert (comparison._probability(torch.full_like(comparison.columns, 0.9), 0.1) == 0).all()


def test_contrast_is_the_slope_of_group_means_over_prototypes():
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(1, 4, 8, generator=generator)
    masses = torch.tensor([[5.0, 1.0, 20.0, 3.0]])
    shift = torch.randn(1, 1, 8, generator=generator)
    groups = masses.unsqueeze(-1) * (0.5 * prototypes + shift)
    precise = torch.full((1,), 1e6)
    assert float(contrast(groups, masses, prototypes, precise)) == pytest.approx(0.5, abs=1e-3)
    assert (
        float(contrast(groups * 4, masses, prototypes, precise)) == 1
    )  # never above that of examples
    one_group = contrast(groups[:, :1], masses[:, :1], prototypes[:, :1], precise)
    assert float(one_group) == pytest.approx(1)


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


def compared(tasks: Tasks) -> Comparison:
    return Comparison.of(tasks, learn_representation(tasks, Constants()))


def assigned(labels: Tensor) -> Assigned:
    proportions = torch.nn.functional.one_hot(labels, N_CLASSES).float().mean(1)
    return Assigned(labels=labels, proportions=proportions, distinct=torch.ones(labels.shape))


def test_right_labels_explain_shifted_queries_but_for_their_scatter():
    tasks, truth = batch(5)
    shifted = moved(tasks, 1.0)
    nothing = torch.zeros(1, 1, N_FEATURES)
    found = compared(shifted).explanation(assigned(truth), nothing)
    assert float(found.distance) == pytest.approx(1, abs=0.1)
    assert float(found.size.sqrt()) == pytest.approx(1, abs=0.15)
    wrong = compared(shifted).explanation(assigned((truth + 1) % N_CLASSES), nothing)
    assert float(wrong.distance) > float(found.distance) + 0.2
    assert torch.equal(wrong.or_better(found).distance, found.distance)
    assert torch.equal(found.or_better(wrong).distance, found.distance)


def test_of_labels_that_explain_as_much_those_of_fewer_classes_are_better():
    truth = torch.zeros(1, N_QUERY, dtype=torch.long)
    tasks, _ = batch(1)
    same = tasks.with_rows(tasks.support, tasks.support[:, :1].expand(-1, N_QUERY, -1))
    comparison = compared(same)
    nothing = torch.zeros(1, 1, N_FEATURES)
    one_class = comparison.explanation(assigned(truth), nothing)
    half = truth.clone()
    half[0, ::2] = 1
    assert float(comparison.explanation(assigned(half), nothing).log_evidence) < float(one_class.log_evidence)
