"""What groups of queries say together: prototypes that move, names of groups, pieces of a group."""

from __future__ import annotations

import torch
from problems import make_tasks
from torch import Tensor

from manyway import FeatureSet, TaskSpec, evaluate, sample_tasks, solve
from manyway.core.transforms import transform
from manyway.methods.evidence.calibration import calibrate, squared_distances
from manyway.methods.evidence.groups import effective_number, identities, left_out, moved, worth
from manyway.methods.evidence.solver import evidence_from_likelihood


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- prototypes move ---------------------------------------------------------------------------------------------


def test_distances_to_moved_prototypes_follow_from_distances_alone():
    query, centres = normal(3, 7, 5), normal(3, 4, 5, seed=1)
    counts = torch.tensor([[1.0, 2, 5, 9]], dtype=torch.float64)
    weights = normal(3, 7, 4, seed=2).softmax(-1) * 0.8
    found = moved(squared_distances(query, centres), squared_distances(query, query), weights, counts)
    totals = counts.unsqueeze(-1) * centres + weights.mT @ query
    means = totals / (counts + weights.sum(1)).unsqueeze(-1)
    torch.testing.assert_close(found, torch.cdist(query, means).square())


def test_a_query_is_left_out_of_the_prototype_that_it_is_compared_with():
    query, centres = normal(1, 6, 5), normal(1, 2, 5, seed=1)
    counts = torch.tensor([[3.0, 3.0]], dtype=torch.float64)
    weights = torch.zeros(1, 6, 2, dtype=torch.float64)
    weights[0, :4, 0] = weights[0, 4:, 1] = 1.0
    noise = torch.tensor(0.7, dtype=torch.float64)
    distances = moved(squared_distances(query, centres), squared_distances(query, query), weights, counts)
    found = left_out(distances, weights, counts, noise)
    for q in range(6):
        for k in range(2):
            others = [i for i in range(6) if i != q and weights[0, i, k] == 1]
            members = torch.cat([centres[0, k].expand(3, -1), query[0, others]])
            expected = (query[0, q] - members.mean(0)).square().sum() - noise / len(members)
            torch.testing.assert_close(found[0, q, k], expected)


def test_queries_are_worth_samples_only_where_several_share_a_class():
    one_class = torch.tensor([[20.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(worth(one_class), torch.tensor([[0.75, 0, 0, 0]]))  # one of four possible classes
    everyone_alone = torch.ones(1, 20)
    assert effective_number(everyone_alone) == 20
    assert (worth(everyone_alone) == 0).all()
    all_alike = torch.full((1, 20), 15.0)
    assert (worth(all_alike) < 1e-6).all()
    some = worth(torch.cat([torch.tensor([6.0, 4.0, 0.9, 0.1]), torch.zeros(30)])[None])
    assert (some[0, :2] > 0.7).all()
    assert (some[0, 2:] == 0).all()  # less than one query


def test_moving_helps_where_shots_are_few_and_is_no_loss_where_all_classes_occur():
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(40).repeat_interleave(60)
    centres = torch.randn(40, 30, generator=generator)
    features = FeatureSet(centres[labels] + 1.3 * torch.randn(2400, 30, generator=generator), labels)
    few, all_ = TaskSpec(shots=2, k_eff=4, n_query=60), TaskSpec(shots=2, k_eff=40, n_query=60)
    gain = [
        evaluate("evidence", features, spec, n_tasks=60).accuracy
        - evaluate("evidence", features, spec, n_tasks=60, move=False).accuracy
        for spec in (few, all_)
    ]
    assert gain[0] > 0.005
    assert gain[1] > -0.005


# --- names of groups, and pieces ---------------------------------------------------------------------------------


def named(totals: Tensor, masses: Tensor, merge: bool = True, alpha: float = 0.01) -> tuple[Tensor, Tensor]:
    counts = torch.full_like(masses, 5.0)
    found = identities(totals, masses, counts, masses.new_tensor([alpha]), masses, counts, merge=merge)
    return found.chances + torch.diag_embed(found.alone), found.piece


def test_names_are_probabilities_and_a_group_of_one_keeps_its_own():
    masses = torch.tensor([[30.0, 5.0, 1.0, 0.0]])
    names, piece = named(normal(1, 4, 4).float() * 10, masses)
    torch.testing.assert_close(names.sum(-1), torch.ones(1, 4))
    assert torch.equal(names[0, 2:], torch.eye(4)[2:])
    assert (piece[0, 2:] == 0).all()


def test_the_larger_a_group_the_less_a_query_of_it_counts():
    gap = torch.tensor([0.0, -1.0])  # each query prefers its group's own class by a factor e
    surety = []
    for mass in (2.0, 10.0, 40.0):
        masses, counts = torch.tensor([[mass, 0.0, 0.0, 0.0]]), torch.full((1, 4), 5.0)
        totals = torch.cat([gap, torch.full((2,), -1e4)]).expand(1, 4, 4) * mass
        found = identities(totals, masses, counts, torch.tensor([0.01]), masses, counts, merge=False)
        chance = found.chances[0, 0, 0] / (1 - found.alone[0, 0])
        surety.append(float(chance.logit()))
    assert surety[0] < surety[1] < surety[2] < 1 / (0.3 + 1 / 6)  # worth so many queries at most
    assert surety[2] / 40 < surety[1] / 10 < surety[0] / 2 < 1


def test_a_small_group_that_fits_a_large_one_nearly_as_well_is_probably_a_piece_of_it():
    masses = torch.tensor([[40.0, 8.0, 0.0]])
    totals = torch.zeros(1, 3, 3)
    totals[0, 0] = torch.tensor([0.0, -80.0, -80.0])
    totals[0, 1] = torch.tensor([-4.0, 0.0, -80.0])  # half a nat a query
    names, piece = named(totals, masses)
    assert piece[0, 1] > 0.7
    assert names[0, 1, 0] > 0.6
    assert piece[0, 0] == 0  # a large one is never a piece of a small one
    assert named(totals, masses, merge=False)[1].sum() == 0
    totals[0, 1, 0] = -60.0
    assert named(totals, masses)[1][0, 1] < 0.01


def test_where_many_groups_were_found_none_is_a_piece():
    masses = torch.full((1, 12), 5.0)
    masses[0, 0] = 6.0
    _, piece = named(torch.zeros(1, 12, 12), masses)
    assert (piece == 0).all()


def test_pieces_do_not_count_as_classes():
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60).repeat_interleave(60)
    centres = torch.randn(60, 40, generator=generator)
    features = FeatureSet(centres[labels] + 2.0 * torch.randn(3600, 40, generator=generator), labels)
    tasks = sample_tasks(features, TaskSpec(shots=5, k_eff=1, n_query=50), count=40)
    merged, split = solve("evidence", tasks), solve("evidence", tasks, merge=False)
    assert 1 <= float(merged.n_present.mean()) < float(split.n_present.mean())
    assert (merged.labels == tasks.query_labels).float().mean() >= (split.labels == tasks.query_labels).float().mean()


# --- likelihoods of one's own ------------------------------------------------------------------------------------


def test_evidence_needs_only_log_likelihoods():
    tasks = make_tasks(5, n_classes=8, n_query=20, shots=4, spread=1.0)
    scaled = transform(tasks, "rcl2")
    calibration = calibrate(scaled)
    likelihood = calibration.log_likelihood(scaled.query)
    shift = normal(5, 20, 1) * 10  # a constant a query changes nothing
    found = evidence_from_likelihood(likelihood + shift, calibration.counts)
    expected = solve("evidence", tasks, move=False)
    torch.testing.assert_close(found.probabilities, expected.probabilities)
    torch.testing.assert_close(found.presence, expected.presence)
