"""The scores of a classifier, labelled jointly: what a batch gains, and what it must not lose."""

from __future__ import annotations

import math

import pytest
import torch

from manyway import InputError, Tasks, evidence_from_likelihood, solve
from manyway.core.solution import Solution
from manyway.labelling.taxonomy import answer_at_least
from manyway.methods.scores.calibrate import fit_labelled
from manyway.methods.scores.kinds import log_posteriors

NAN = math.nan


def batch(n_classes: int = 30, n_present: int = 3, n_query: int = 60, noise: float = 1.0, seed: int = 0):
    """Calibrated log-posteriors of equally frequent classes, of which few are present, and the labels."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(n_present, (n_query,), generator=generator)
    x = torch.nn.functional.one_hot(truth, n_classes) + noise / 2 * torch.randn(n_query, n_classes, generator=generator)
    return (x * (2 / noise) ** 2).log_softmax(-1), truth


def from_scores(posteriors: torch.Tensor, labelled=None, known=None, **params) -> Solution:
    """The answers of evidence for log-posteriors [q, k], with labelled ones of other items."""
    support, labels = (None, None) if labelled is None else (one[None] for one in labelled)
    given = None if known is None else known[None]
    tasks = Tasks.from_scores(posteriors[None], support=support, support_labels=labels, known=given)
    return solve("evidence", tasks, **params)


def temperature(found: Solution) -> float:
    return float(found.told["temperature"])


def test_items_help_each_other():
    posteriors, truth = batch()
    found = from_scores(posteriors)
    alone = (posteriors.argmax(-1) == truth).float().mean()
    together = (found.labels[0] == truth).float().mean()
    assert together > alone + 0.1
    low, high = found.n_present_interval[0].tolist()
    assert low <= len(truth.unique()) <= high


@pytest.mark.parametrize(("n_items", "n_present", "preference"), [(75, 20, 1.0), (300, 20, 1.0), (75, 5, 1.0)])
def test_a_class_that_is_only_preferred_takes_no_items_from_others(n_items, n_present, preference):
    generator = torch.Generator().manual_seed(0)
    before, after = [], []
    for _ in range(8):
        truth = torch.randperm(20, generator=generator)[torch.randint(n_present, (n_items,), generator=generator)]
        logits = torch.randn(n_items, 20, generator=generator) + preference * torch.randn(20, generator=generator)
        logits[torch.arange(n_items), truth] += 3
        before.append(float((logits.argmax(-1) == truth).float().mean()))
        after.append(float((from_scores(logits.log_softmax(-1)).labels[0] == truth).float().mean()))
    assert sum(after) / 8 > sum(before) / 8 - 0.03


def test_the_only_class_of_a_batch_is_not_taken_for_a_preference():
    votes = torch.full((60, 60), 0.8 / 59)  # of ten trees; in a tie the last class loses
    votes[:, -1] = 0.2
    votes = torch.multinomial(votes, 10, replacement=True, generator=torch.Generator().manual_seed(0))
    scores = torch.zeros(60, 60).scatter_add_(1, votes, torch.full((60, 10), 0.1))
    assert (scores.argmax(-1) == 59).float().mean() < 0.5
    assert (from_scores(log_posteriors(scores)).labels[0] == 59).float().mean() > 0.7


@pytest.mark.parametrize("n_classes", [20, 100])
def test_a_classifier_that_prefers_some_classes_is_not_believed_to_see_only_these(n_classes):
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(n_classes, (300,), generator=generator)
    logits = torch.randn(300, n_classes, generator=generator) + torch.randn(n_classes, generator=generator)
    logits[torch.arange(300), truth] += 3
    before = (logits.argmax(-1) == truth).float().mean()
    after = (from_scores(logits.log_softmax(-1)).labels[0] == truth).float().mean()
    assert after > before - 0.01


@pytest.mark.parametrize(
    ("n_classes", "n_items", "rare", "sure"), [(3, 7, 1, 0.98), (3, 300, 10, 0.999), (10, 100, 5, 0.9)]
)
def test_a_few_items_of_another_class_are_not_swallowed_where_the_classifier_is_sure(n_classes, n_items, rare, sure):
    truth = (torch.arange(n_items) < rare).long()
    posteriors = torch.full((n_items, n_classes), (1 - sure) / (n_classes - 1)).log()
    posteriors[torch.arange(n_items), truth] = torch.tensor(sure).log()
    assert torch.equal(from_scores(posteriors).labels[0], truth)


def test_one_labelled_item_of_a_class_does_not_pull_the_others_into_it():
    posteriors = torch.tensor([[0.98, 0.01, 0.01]] * 6 + [[0.01, 0.98, 0.01]]).log()
    known = torch.tensor([[-1] * 6 + [1]])
    found = solve("evidence", Tasks.from_scores(posteriors[None], known=known))
    assert found.labels[0].tolist() == [0] * 6 + [1]


def test_posteriors_that_are_too_sharp_are_tempered_more():
    posteriors, _ = batch(n_query=100)
    found = [temperature(from_scores((posteriors * factor).log_softmax(-1))) for factor in (0.5, 1, 3)]
    assert found[0] < found[1] < found[2]
    assert temperature(from_scores(posteriors, temperature=2.5)) == pytest.approx(2.5)


def test_items_of_all_classes_keep_the_labels_of_the_classifier():
    posteriors = torch.eye(24).mul(3.0).log_softmax(-1)
    assert from_scores(posteriors).labels[0].tolist() == list(range(24))


def test_a_batch_of_most_classes_is_not_below_an_overconfident_classifier_that_confuses_classes():
    """At a high temperature one class would explain everything; a real classifier once fell from 54 to 4 %."""
    generator = torch.Generator().manual_seed(0)
    n_classes, popular = 120, 1.5 * torch.randn(120, generator=generator)
    gains = []
    for n_present in (2, 40, 80):
        truth = torch.randint(0, n_present, (75,), generator=generator)
        scores = 3.0 * torch.randn(75, n_classes, generator=generator) + popular
        scores[torch.arange(75), truth] += 9.0
        posteriors = (2.0 * scores).log_softmax(-1)
        right = posteriors.argmax(-1) == truth
        gains.append(float((from_scores(posteriors).labels[0] == truth).float().mean() - right.float().mean()))
    assert gains[0] > 0.1
    assert min(gains) > -0.03


def test_few_labelled_items_teach_that_a_class_is_called_by_another_name():
    posteriors, truth = batch(n_present=4, n_query=120, noise=0.8)
    renamed = posteriors.index_select(1, torch.tensor([20, 1, 2, 3, *range(4, 20), 0, *range(21, 30)]))
    known = torch.full((120,), -1)
    known[:8] = truth[:8]
    without, given = (from_scores(renamed, known=each) for each in (None, known))
    first = truth[8:] == 0
    assert (without.labels[0, 8:][first] == 20).float().mean() > 0.7
    assert (given.labels[0, 8:][first] == 0).float().mean() > 0.7
    assert (given.labels[0, 8:] == truth[8:]).float().mean() > 0.7
    # Labelled items that are not of the batch may be of other classes, and more of them are needed.
    other = from_scores(renamed[32:], (renamed[:32], truth[:32]))
    assert (other.labels[0] == truth[32:]).float().mean() > 0.8


@pytest.mark.parametrize(("preference", "number"), [(0.0, 100), (0.0, 400), (1.2, 100)])
def test_labelled_items_of_other_classes_cost_nothing(preference, number):
    """They say nothing about the classes that occur, and something about what the classifier likes."""
    generator = torch.Generator().manual_seed(0)
    before, after = [], []
    for _ in range(8):
        truth, other = (torch.randint(*ends, generator=generator) for ends in ((0, 4, (60,)), (4, 20, (number,))))
        liked = preference * torch.randn(20, generator=generator)
        scores = [
            (2.5 * torch.eye(20)[y] + 1.1 * torch.randn(len(y), 20, generator=generator) + liked).log_softmax(-1)
            for y in (truth, other)
        ]
        for right, labelled in ((before, None), (after, (scores[1], other))):
            right.append(float((from_scores(scores[0], labelled).labels[0] == truth).float().mean()))
    assert sum(after) / 8 > sum(before) / 8 - 0.02


def test_the_number_of_classes_is_that_of_the_classes_and_not_of_the_labels():
    posteriors, truth = batch(n_present=6, noise=0.7)
    found = from_scores(posteriors)
    assert abs(float(found.n_present[0]) - len(truth.unique())) < 2 * float(found.n_present_sd[0])
    assert float(found.n_present[0]) < len(found.labels[0].unique())


def test_a_classifier_in_doubt_gets_a_shorter_list_and_what_is_known_stays_certain():
    posteriors, truth = batch(n_present=4, noise=0.7)
    doubtful = (posteriors / 3).log_softmax(-1)
    sure, unsure = (from_scores(one).presence[0, :4] for one in (posteriors, doubtful))
    assert (unsure < sure).all()
    known = torch.full((60,), -1)
    known[0] = truth[0]
    found = from_scores(doubtful, known=known)
    assert found.presence[0, truth[0]] == 1
    assert truth[0] in found.present()[0]


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("temperature", [1, 3])
def test_where_all_possible_classes_occur_all_are_listed(n_classes, temperature):
    posteriors, _ = batch(n_classes=n_classes, n_present=n_classes, noise=0.7)
    found = from_scores((posteriors / temperature).log_softmax(-1))
    assert set(found.present()[0].tolist()) == {*range(n_classes)}
    assert found.n_present_interval[0, 1] == n_classes


@pytest.mark.parametrize("temperature", [0.3, 3, 10])
def test_the_list_does_not_depend_on_how_sure_the_classifier_claims_to_be(temperature):
    posteriors, _ = batch(n_present=6, n_query=300, noise=0.7)
    usual, other = (from_scores(one) for one in (posteriors, (posteriors / temperature).log_softmax(-1)))
    assert set(usual.present()[0].tolist()) == {*range(6)}
    assert set(other.present()[0].tolist()) == {*range(6)}


def test_each_item_several_times_lists_the_same_classes():
    posteriors, _ = batch(n_present=6, n_query=300, noise=0.9)
    once, often = (from_scores(posteriors.repeat(number, 1)) for number in (1, 5))
    assert set(often.present()[0].tolist()) <= {*range(6)}
    assert set(once.present()[0].tolist()) <= {*range(6)}
    assert len(often.present()[0]) >= len(once.present()[0]) - 1 >= 3


def test_a_name_that_the_classifier_gives_in_doubt_is_not_listed():
    """It calls the first class by another name, less surely than the others: the list has no absent class."""
    posteriors, truth = batch(n_present=4, n_query=120, noise=0.5)
    renamed = posteriors.index_select(1, torch.tensor([20, 1, 2, 3, *range(4, 20), 0, *range(21, 30)]))
    renamed[truth == 0] = (renamed[truth == 0] / 6).log_softmax(-1)
    found = from_scores(renamed)
    assert set(found.present()[0].tolist()) == {1, 2, 3}
    assert 20 in found.possible()[0]


def expecting(posteriors: torch.Tensor, classes) -> Solution:
    listed = torch.zeros(posteriors.shape[-1])
    listed[torch.as_tensor(classes)] = 1.0
    return solve("evidence", Tasks.from_scores(posteriors[None], expectation=listed))


def test_a_short_list_of_expected_classes_helps_and_one_that_lacks_a_class_is_no_mask():
    posteriors, truth = batch(n_classes=60, n_present=4, noise=1.1)
    plain = (from_scores(posteriors).labels[0] == truth).float().mean()
    short = (expecting(posteriors, range(4)).labels[0] == truth).float().mean()
    assert short > plain + 0.05
    lacking = expecting(posteriors, range(1, 42)).labels[0]  # class 0 is not on the list, and 38 others are
    assert (lacking == truth).float().mean() >= plain - 0.05
    assert (lacking == 0).any()


def test_a_list_of_all_classes_changes_nothing():
    posteriors, _ = batch()
    torch.testing.assert_close(expecting(posteriors, range(30)).probabilities, from_scores(posteriors).probabilities)
    with pytest.raises(InputError, match="expectations of 30 classes"):
        Tasks.from_scores(posteriors[None], expectation=torch.zeros(30))


def test_labelled_items_of_all_classes_calibrate_each_class():
    posteriors, truth = batch(12, 12, 600)
    bias = torch.linspace(-1, 1, 12)
    biased = (posteriors * 2 + bias).log_softmax(-1)
    scaling = fit_labelled(biased, truth)
    assert 1 / float(scaling[-1]) == pytest.approx(2, rel=0.3)
    assert torch.corrcoef(torch.stack([scaling[:-1], bias]))[0, 1] < -0.8
    found = from_scores(posteriors[:50], (biased, truth))
    assert temperature(found) == pytest.approx(1 / float(scaling[-1]), rel=1e-5)
    known = torch.cat([truth, torch.full((50,), -1)])  # labels of the batch itself calibrate as well
    found = from_scores(torch.cat([biased, posteriors[:50]]), known=known)
    assert temperature(found) == pytest.approx(1 / float(scaling[-1]), rel=1e-5)


def test_known_items_keep_their_label_and_help_the_others():
    posteriors = torch.tensor([[0.55, 0.45, 1e-3]] * 6).log()
    known = torch.tensor([1, 1, -1, -1, -1, -1])
    found = from_scores(posteriors.log_softmax(-1), known=known)
    assert from_scores(posteriors.log_softmax(-1)).labels.tolist() == [[0] * 6]
    assert found.labels.tolist() == [[1] * 6]
    assert found.probabilities[0, 0].tolist() == [0, 1, 0]


def test_items_whose_scores_point_to_classes_of_their_own_are_most_probably_unknown():
    posteriors, truth = batch(noise=0.5)
    strangers = (8.0 * torch.eye(30)[10:22]).log_softmax(-1)  # each is sure of a class that no other item has
    found = from_scores(torch.cat([posteriors, strangers]), open_set=True)
    assert found.unknown[0, 60:].min() > found.unknown[0, :60].max()
    torch.testing.assert_close(found.probabilities.sum(-1) + found.unknown, torch.ones(1, 72))
    closed = from_scores(posteriors, open_set=True)
    assert torch.equal(closed.labels, from_scores(posteriors).labels)
    assert (closed.labels[0] == truth).float().mean() > 0.95
    assert (closed.unknown_medoids >= 0).sum(-1).tolist() == [0]


@pytest.mark.parametrize("method", ["label-shift", "simpleshot", "em-dirichlet", "evidence"])
def test_other_methods_take_scores(method):
    posteriors, truth = batch(noise=0.7)
    other, labels = batch(n_present=30, n_query=120, noise=0.7, seed=1)
    every_class = torch.cat([labels, torch.arange(30)])
    support = torch.cat([other, (4.0 * torch.eye(30)).log_softmax(-1)])
    tasks = Tasks.from_scores(posteriors[None], support=support[None], support_labels=every_class[None])
    found = solve(method, tasks)
    assert found.probabilities.shape == (1, 60, 30)
    assert (found.labels[0] == truth).float().mean() > 0.6


def test_one_item_and_half_precision_free_types_work():
    p = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64).log()
    found = from_scores(p)
    assert found.labels.tolist() == [[0]]
    assert found.probabilities.dtype == torch.float64


def test_likelihoods_of_the_wrong_shape_or_nan_are_refused():
    with pytest.raises(InputError, match=r"shape \(2, 3\)"):
        evidence_from_likelihood(torch.zeros(2, 3), torch.ones(1, 3))
    with pytest.raises(InputError, match="NaN or infinite"):
        evidence_from_likelihood(torch.full((1, 2, 3), NAN), torch.ones(1, 3))


def test_answers_are_as_fine_as_the_wanted_probability_allows():
    p = torch.tensor([[0.95, 0.05, 0.0, 0.0], [0.5, 0.45, 0.05, 0.0], [0.4, 0.2, 0.35, 0.05], [0.3, 0.1, 0.1, 0.5]])
    genus, family = torch.tensor([0, 0, 1, -1]), torch.tensor([0, 0, 0, -1])
    found = answer_at_least(p, [genus, family], 0.9)
    assert found.level.tolist() == [0, 1, 2, -1]
    assert found.group[:3].tolist() == [0, 0, 0]
    torch.testing.assert_close(found.probability[:3], torch.tensor([0.95, 0.95, 0.95]))


@pytest.mark.parametrize("n_items", [5, 12])
def test_a_few_items_of_a_classifier_in_doubt_keep_its_labels(n_items):
    """Five items of ten classes may be alike by chance, and then one class would take all."""
    generator, changed = torch.Generator().manual_seed(2), 0
    for _ in range(10):
        scores = 1.5 * torch.randn(n_items, 10, generator=generator)
        scores[torch.arange(n_items), torch.randperm(20, generator=generator)[:n_items] % 10] += 2.0
        posteriors = scores.log_softmax(-1)
        changed += int((from_scores(posteriors).labels[0] != posteriors.argmax(-1)).sum())
    assert changed <= 2


def test_five_items_that_are_clearly_alike_are_labelled_together():
    scores = torch.full((5, 300), -4.0)
    scores[:, 7] = 3.0
    scores[torch.arange(5), torch.arange(5) + 20] = torch.tensor([0.0, 0.0, 0.0, 0.0, 3.05])
    assert from_scores(scores.log_softmax(-1)).labels[0].tolist() == [7] * 5


def test_lists_that_were_cut_do_not_show_what_a_classifier_prefers_and_stay_as_they_are_where_all_classes_occur():
    generator, truth = torch.Generator().manual_seed(1), torch.arange(150) % 50
    p = 3 * torch.eye(50)[truth] + torch.randn(150, 50, generator=generator) + torch.randn(50, generator=generator)
    best = p.softmax(-1).topk(5, -1)
    lists = log_posteriors(torch.full_like(p, NAN).scatter_(1, best.indices, best.values), "probability")
    assert bool((from_scores(lists).labels[0] == p.argmax(-1)).all())  # 31 of 78 right labels would be lost
