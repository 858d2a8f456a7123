"""What groups of queries say together: updated prototypes, the class of a group, fragments of a group."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway import FeatureSet, Tasks, TaskSpec, evaluate, sample_tasks, solve
from manyway.core.transforms import transform
from manyway.methods.calibration.calibrating import Asked, calibrate_distances, calibrate_and_place
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.confidence import distance_ratio
from manyway.methods.evidence.group import Fragments, Groups
from manyway.methods.evidence.likelihood import Distances, GivenLikelihood
from manyway.methods.evidence.prior import QueryCounts
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.evidence.solver import evidence_from_likelihood


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- updated prototypes ---------------------------------------------------------------------------------------------


def test_updating_prototypes_helps_with_few_shots_and_loses_nothing_where_all_classes_are_present():
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(40).repeat_interleave(60)
    centres = torch.randn(40, 30, generator=generator)
    features = FeatureSet(centres[labels] + 1.3 * torch.randn(2400, 30, generator=generator), labels)
    few, all_ = TaskSpec(shots=2, k_eff=4, n_query=60), TaskSpec(shots=2, k_eff=40, n_query=60)
    gain = [
        evaluate("evidence", features, spec, n_tasks=40).accuracy
        - evaluate("evidence", features, spec, n_tasks=40, update_prototypes=False).accuracy
        for spec in (few, all_)
    ]
    assert gain[0] > 0.005
    assert gain[1] > -0.005


# --- the class of a group, and fragments ----------------------------------------------------------------------------


def groups_with(totals: Tensor, masses: Tensor, alpha: float = 0.01, fixed_evidence: Tensor | None = None) -> Groups:
    """Groups of all classes, with what fixed labels say about their classes, if anything."""
    likelihood = GivenLikelihood(n_samples=torch.full_like(masses, 5.0))
    query_counts = QueryCounts.of_products(masses, torch.exp(-masses))
    classes = torch.arange(masses.shape[1]).expand(len(masses), -1)
    slopes = query_counts.slopes(masses.new_full((len(masses),), alpha))
    updated = likelihood.updated(classes, totals, masses, masses)
    return Groups(
        query_counts=query_counts,
        slopes=slopes,
        classes=classes,
        members=query_counts,
        sums=totals,
        lengths=masses,
        fixed_evidence=totals[:, :0] if fixed_evidence is None else fixed_evidence,
        updated=updated,
    )


def posterior(
    totals: Tensor, masses: Tensor, merge: bool = True, alpha: float = 0.01, fixed_evidence: Tensor | None = None
) -> Tensor:
    """The class posterior [t, g, k] of all groups."""
    groups = groups_with(totals, masses, alpha, fixed_evidence)
    likelihood = GivenLikelihood(n_samples=torch.full_like(masses, 5.0))
    found = groups.posterior(likelihood, None, Parameters(merge_groups=merge))
    return found.probabilities


def test_the_posterior_of_a_group_sums_to_one_and_a_group_of_one_keeps_its_class():
    masses = torch.tensor([[30.0, 5.0, 1.0, 0.0]])
    found = posterior(normal(1, 4, 4).float() * 10, masses)
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 4))
    assert torch.equal(found[0, 2:], torch.eye(4)[2:])


def test_the_larger_a_group_the_less_each_of_its_queries_counts():
    gap = torch.tensor([0.0, -1.0])  # each query prefers its group's own class by a factor e
    log_odds = []
    for mass in (2.0, 10.0, 40.0):
        masses = torch.tensor([[mass, 0.0, 0.0, 0.0]])
        totals = torch.cat([gap, torch.full((2,), -1e4)]).expand(1, 4, 4) * mass
        keep = 1 / mass  # the part of the posterior in which the group keeps its class
        own = (posterior(totals, masses, merge=False)[0, 0, 0] - keep) / (1 - keep)
        log_odds.append(float(own.logit()))
    assert log_odds[0] < log_odds[1] < log_odds[2] < 1 / (0.2 + 1 / 6)  # the limit for a large group
    assert log_odds[2] / 40 < log_odds[1] / 10 < log_odds[0] / 2 < 1


def test_a_small_group_that_fits_a_large_one_nearly_as_well_is_probably_its_fragment():
    masses = torch.tensor([[40.0, 8.0, 0.0]])
    totals = torch.zeros(1, 3, 3)
    totals[0, 0] = torch.tensor([0.0, -80.0, -80.0])
    totals[0, 1] = torch.tensor([-4.0, 0.0, -80.0])  # half a nat per query
    found, apart = posterior(totals, masses), posterior(totals, masses, merge=False)
    assert found[0, 1, 0] > 0.6
    assert apart[0, 1, 0] < 0.3
    torch.testing.assert_close(found[0, 0], apart[0, 0])  # a large group is never a fragment of a small one
    totals[0, 1, 0] = -60.0
    assert posterior(totals, masses)[0, 1, 0] < 0.01


def test_what_fixed_labels_say_about_a_group_is_added_to_what_its_queries_say():
    masses = torch.tensor([[9.0, 9.0, 0.0, 0.0, 0.0, 0.0]]).double()
    of_fixed = torch.zeros(1, 6, 6).double()
    of_fixed[0, 0, 3] = 4.0  # a query of the first group is known to be of the fourth class
    found = posterior(torch.zeros(1, 6, 6).double(), masses, merge=False, fixed_evidence=of_fixed)
    assert int(found[0, 0, 1:].argmax()) == 2
    ratio = found[0, 0, 3] / found[0, 0, 1]
    assert float(ratio.log()) == pytest.approx(4.0)


def test_fragments_are_looked_for_the_less_the_more_groups_there_are():
    most = 6
    masses = torch.zeros(3, 8).double()
    for row, number in enumerate((1, 2, 8)):
        masses[row, :number] = 10
    parameters = Parameters(schedule={"most_groups_with_fragments": float(most)})
    found = Fragments.of(groups_with(torch.zeros(3, 8, 8).double(), masses), masses, parameters)
    assert found.tasks.tolist() == [0, 1]
    assert found.fading.tolist() == pytest.approx([1, 1 - 1 / (most - 1)])


def test_where_many_groups_were_found_none_is_a_fragment():
    masses = torch.full((1, 12), 5.0)
    masses[0, 0] = 6.0
    totals = normal(1, 12, 12).float()
    torch.testing.assert_close(posterior(totals, masses), posterior(totals, masses, merge=False))


def test_fragments_do_not_count_as_classes():
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60).repeat_interleave(60)
    centres = torch.randn(60, 40, generator=generator)
    features = FeatureSet(centres[labels] + 2.0 * torch.randn(3600, 40, generator=generator), labels)
    tasks = sample_tasks(features, TaskSpec(shots=5, k_eff=1, n_query=50), count=20)
    merged, split = solve("evidence", tasks), solve("evidence", tasks, merge_groups=False)
    assert 1 <= float(merged.n_present.mean()) < float(split.n_present.mean())
    assert (merged.labels == tasks.query_labels).float().mean() >= (split.labels == tasks.query_labels).float().mean()


# --- queries that come from elsewhere -------------------------------------------------------------------------------


def test_queries_that_are_farther_than_left_out_examples_make_answers_less_sure():
    means, labels = 2 * normal(1, 10, 80), torch.arange(10).repeat_interleave(4)
    support, noise = means[:, labels] + normal(1, 40, 80, seed=1), normal(1, 60, 80, seed=2)
    calibration = calibrate_distances(Tasks.from_arrays(support, labels[None], support), Schedule())
    found = []
    for spread in (1, 2):
        query = means[:, torch.arange(60) % 10] + spread**0.5 * noise
        lengths = Distances(calibration).lengths(calibration.coordinates.place(query))
        sums = torch.stack([lengths**0, lengths, lengths**2], -1).sum(1)
        found.append(float(distance_ratio(sums, calibration)))
    assert found[0] == 1
    assert 1.5 < found[1] < 2  # the error of a prototype is as before
    answers = [
        solve("evidence", Tasks.from_arrays(support, labels[None], one)).probabilities[0, 0].amax()
        for one in (query, torch.cat([query[:, :1], query[:, 1:] + 20], 1))
    ]
    assert answers[1] < answers[0]


# --- other classifiers' likelihoods ---------------------------------------------------------------------------------


def shrunk(calibration: Calibration, _: Tasks) -> Calibration:
    """What evidence does last to a calibration."""
    return calibration.shrunk(Constants())


def test_evidence_needs_only_log_likelihoods():
    tasks = make_tasks(5, n_classes=8, n_query=20, shots=4, spread=1.0)
    scaled = transform(tasks, "rcl2")
    calibration, placed = calibrate_and_place(scaled, Schedule(), Asked(finish=shrunk))
    likelihood = calibration.log_likelihood(placed)
    shift = normal(5, 20, 1) * 10  # a constant per query changes nothing
    found = evidence_from_likelihood(likelihood + shift, calibration.prototypes.examples)
    expected = solve(
        "evidence",
        tasks,
        update_prototypes=False,
        scale="rcl2",
        schedule={"doubtful_examples": 0.0},
    )
    torch.testing.assert_close(found.probabilities, expected.probabilities)
    # Near-copies among queries are found by their features, or by their likelihoods where there are no features.
    torch.testing.assert_close(found.presence, expected.presence, rtol=0, atol=0.02)
