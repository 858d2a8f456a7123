"""Evidence from the scores of a classifier: what scores are, how sharp they should be, and what follows from them."""

from __future__ import annotations

import math

import pytest
import torch

from manyway import InputError, Tasks, evidence_from_likelihood, solve
from manyway.core.solution import Solution
from manyway.labelling.taxonomy import answer_at_least
from manyway.methods.scores.calibrate import fit_labelled
from manyway.methods.scores.kinds import find_kind, log_odds, log_posteriors, without_prior
from manyway.methods.evidence.schedule import Parameters, Schedule

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
    return float(found.learned["temperature"])


def test_kinds_are_found():
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    assert find_kind(p) == "probability"
    assert find_kind(p[:, :2]) == "probability"  # a list that was cut
    assert find_kind(p.log()) == "log-probability"
    assert find_kind(p.log() + 1) == find_kind(p.log() * 3 + 5) == "logit"
    with pytest.raises(InputError, match=r"row 0 sum to 1\.5.*sigmoid"):
        find_kind(torch.tensor([[0.9, 0.6]]))
    with pytest.raises(InputError, match=r"row 1 go up to 80.*percentages"):
        find_kind(torch.tensor([[0.0, 1.0], [20.0, 80.0]]))


@pytest.mark.parametrize("kind", ["probability", "log-probability", "logit"])
def test_complete_scores_of_every_kind_are_the_same_posteriors(kind):
    p = torch.tensor([[0.7, 0.2, 0.1]])
    given = {"probability": p, "log-probability": p.log(), "logit": p.log() + 1}[kind]
    for named in (kind, "auto"):
        torch.testing.assert_close(log_posteriors(given, named), p.log())


def test_the_probability_that_a_list_leaves_is_spread_over_the_other_classes():
    p = log_posteriors(torch.tensor([[0.6, 0.2, NAN, NAN], [0.6, 0.2, 0.0, 0.0]])).exp()
    torch.testing.assert_close(p, torch.tensor([[0.6, 0.2, 0.1, 0.1]] * 2))
    # no class gets more than half of the lowest that is listed: a class that is listed stays ahead
    torch.testing.assert_close(
        log_posteriors(torch.tensor([[0.3, 0.1, NAN]])).exp() * 9, torch.tensor([[6.0, 2.0, 1.0]])
    )
    # rounded lists that sum to 1 leave the others 0.1 %
    p = log_posteriors(torch.tensor([[0.75, 0.25, NAN, NAN]])).exp()
    torch.testing.assert_close(p[0, 2:], torch.full((2,), 0.0005), rtol=2e-3, atol=0)


def test_an_item_without_any_score_is_of_any_class():
    p = log_posteriors(torch.tensor([[0.7, 0.3], [0.0, 0.0]]), "probability").exp()
    torch.testing.assert_close(p[1], torch.tensor([0.5, 0.5]))


def test_independent_confidences_become_odds():
    p = log_posteriors(torch.tensor([[0.8, NAN, NAN]]), "sigmoid").exp()
    torch.testing.assert_close(p, torch.tensor([[0.8, 0.1, 0.1]]))
    p = log_posteriors(torch.tensor([[0.5, 0.9, NAN]]), "sigmoid").exp()
    torch.testing.assert_close(p, torch.tensor([[1.0, 9.0, 0.5]]) / 10.5)


@pytest.mark.parametrize(
    ("scores", "kind", "message"),
    [
        ([[0.5, -0.1]], "probability", "row 0 are negative"),
        ([[0.0, 0.0], [0.0, 0.0]], "auto", "row 0 are all 0, like those of all items"),
        ([[0.5, 0.5], [NAN, NAN]], "auto", "row 1 are missing: the item lists no class"),
        ([[0.9, 0.9]], "probability", "row 0 sum to more than 1"),
        ([[0.9, 1.9]], "sigmoid", "row 0 are above 1"),
        ([[-0.9, 1.9]], "log-probability", "row 0 are positive"),
        ([[-3.0, 1.9, NAN]], "logit", "do not list every class"),
        ([[math.inf, 0.0]], "auto", "row 0 are infinite"),
        ([[0.5, 0.5]], "percent", "choose one of auto, probability"),
        ([[0.5]], "auto", "1 items for 1 classes"),
    ],
)
def test_what_makes_no_sense_is_refused(scores, kind, message):
    with pytest.raises(InputError, match=message):
        log_posteriors(torch.tensor(scores), kind)


def test_the_training_prior_is_taken_out():
    likelihood = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    prior = torch.tensor([70.0, 20.0, 10.0])
    posteriors = (likelihood.log() + prior.log()).log_softmax(-1)
    torch.testing.assert_close(without_prior(posteriors, prior), likelihood.log())
    with pytest.raises(InputError, match="not positive"):
        without_prior(posteriors, torch.tensor([1.0, 0.0, 1.0]))
    with pytest.raises(InputError, match="2 class priors for 3 classes"):
        without_prior(posteriors, torch.ones(2))


def test_items_help_each_other():
    posteriors, truth = batch()
    found = from_scores(posteriors)
    alone = (posteriors.argmax(-1) == truth).float().mean()
    together = (found.labels[0] == truth).float().mean()
    assert together > alone + 0.1
    assert abs(float(found.n_present[0]) - len(truth.unique())) < 1


@pytest.mark.parametrize(("n_items", "n_present", "preference"), [(75, 20, 1.0), (300, 20, 2.0), (75, 5, 1.0)])
def test_a_class_that_is_only_preferred_takes_no_items_from_others(n_items, n_present, preference):
    generator = torch.Generator().manual_seed(0)
    before, after = [], []
    for _ in range(4):
        truth = torch.randperm(20, generator=generator)[torch.randint(n_present, (n_items,), generator=generator)]
        logits = torch.randn(n_items, 20, generator=generator) + preference * torch.randn(20, generator=generator)
        logits[torch.arange(n_items), truth] += 3
        before.append(float((logits.argmax(-1) == truth).float().mean()))
        after.append(float((from_scores(logits.log_softmax(-1)).labels[0] == truth).float().mean()))
    assert sum(after) > sum(before) - 0.01


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
    assert torch.equal(from_scores(logits.log_softmax(-1)).labels[0], logits.argmax(-1))


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
    other = from_scores(renamed[8:], (renamed[:8], truth[:8]))  # the same items as labelled scores of other items
    assert (other.labels[0] == truth[8:]).float().mean() > 0.8


def test_the_number_of_classes_is_that_of_the_classes_and_not_of_the_labels():
    posteriors, truth = batch(n_present=6, noise=1.2)
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


def test_a_name_that_the_classifier_gives_in_doubt_is_not_listed():
    """It calls the first class by another name, less surely than the others: the list has no absent class."""
    posteriors, truth = batch(n_present=4, n_query=120, noise=0.5)
    renamed = posteriors.index_select(1, torch.tensor([20, 1, 2, 3, *range(4, 20), 0, *range(21, 30)]))
    renamed[truth == 0] = (renamed[truth == 0] / 6).log_softmax(-1)
    found = from_scores(renamed)
    assert set(found.present(0.1)[0].tolist()) <= {1, 2, 3}
    assert 20 in found.possible()[0]


def expecting(posteriors: torch.Tensor, classes) -> Solution:
    listed = torch.zeros(posteriors.shape[-1])
    listed[torch.as_tensor(classes)] = 1.0
    return solve("evidence", Tasks.from_scores(posteriors[None], expectation=listed))


def test_a_short_list_of_expected_classes_is_as_good_as_a_mask_and_a_long_one_no_mask():
    posteriors, truth = batch(n_classes=60, n_present=4, noise=1.1)
    plain = (from_scores(posteriors).labels[0] == truth).float().mean()
    short = (expecting(posteriors, range(4)).labels[0] == truth).float().mean()
    masked = (posteriors[:, :4].argmax(-1) == truth).float().mean()
    assert short >= masked - 0.02
    assert short > plain
    lacking = expecting(posteriors, range(1, 42)).labels[0]  # class 0 is not on the list, and 38 others are
    assert (lacking == truth).float().mean() >= plain - 0.05
    assert (lacking == 0).any()


def test_a_list_of_all_classes_changes_nothing():
    posteriors, _ = batch()
    torch.testing.assert_close(expecting(posteriors, range(30)).probabilities, from_scores(posteriors).probabilities)
    with pytest.raises(InputError, match="expectations of 30 classes"):
        Tasks.from_scores(posteriors[None], expectation=torch.zeros(30))


def test_items_may_have_several_classes_and_the_batch_says_which_classes_occur():
    generator = torch.Generator().manual_seed(0)
    truth = torch.zeros(60, 80, dtype=torch.bool)
    for row in truth:
        row[torch.randperm(6, generator=generator)[:2]] = True
    odds = torch.where(truth, -1.0, -6.0) + 1.6 * torch.randn(60, 80, generator=generator)
    known = torch.full((1, 60), -1)
    known[0, 0] = 70
    found = solve("evidence", Tasks.from_scores(odds[None], known=known, several=True)).probabilities[0]
    assert found[0, 70] == 1

    def f1(answer: torch.Tensor) -> float:
        both = 2 * (answer & truth).sum(-1)
        return float((both / (answer.sum(-1) + truth.sum(-1)))[1:].mean())

    best = max(f1(odds > threshold) for threshold in torch.linspace(-6, 2, 33))
    assert f1(found > 0.5) > best + 0.03


def test_log_odds_of_lists_and_of_what_is_no_probability():
    odds = log_odds(torch.tensor([[1.0, NAN, 0.5], [0.2, 0.0, 0.9]]))
    assert torch.isfinite(odds).all()
    assert odds[0, 1] <= odds[1, 0]
    with pytest.raises(InputError, match="row 0 are above 1"):
        log_odds(torch.tensor([[1.2, 0.1]]))


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


def test_a_class_that_the_classifier_expects_to_be_right_is_held():
    own = torch.tensor([[0.6, 0.35, 0.05]] * 10 + [[0.35, 0.6, 0.05]] * 9 + [[0.3, 0.3, 0.4]])
    assert held(own, Schedule()).tolist() == [1, 1, 0]
    # a group of items that goes by two names about equally often keeps both
    padded = torch.cat([own[:19], torch.full((19, 20), 1e-3)], 1)
    labels = solve("evidence", Tasks.from_scores(padded.log().log_softmax(-1)[None])).labels[0]
    assert labels.tolist() == [0] * 10 + [1] * 9


def test_items_are_not_moved_to_a_class_that_takes_a_little_of_everything():
    generator = torch.Generator().manual_seed(0)
    posteriors, truth = batch(n_classes=30, n_present=3, n_query=60, noise=0.5)
    logits = 0.3 * torch.randn(20, 30, generator=generator)
    logits[:, 29] += 3.0  # what is not known is 29 to some degree, never for certain
    logits[:6, 7] += 4.5  # six of twenty items of class 7 are recognised
    rows = torch.cat([posteriors, logits.log_softmax(-1)])
    found = from_scores(rows).labels[0, len(truth) :]
    assert (found[:6] == 7).all()


def test_several_finds_one_class_where_items_have_one():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (75,), generator=generator)
    odds = -7 + 1.4 * torch.randn(75, 60, generator=generator)
    odds[torch.arange(75), truth] = 0.5 * torch.randn(75, generator=generator)
    odds[torch.arange(75), (truth + 1) % 5] += 2.0  # classes that occur are confused with each other
    found = solve("evidence", Tasks.from_scores(odds[None], several=True)).probabilities[0] > 0.5
    assert (found.sum(-1) == 1).float().mean() > 0.87
    assert (found.float().argmax(-1) == truth).float().mean() > 0.95


def test_evidence_has_a_share_where_few_classes_seem_to_occur_and_none_where_most_do() -> None:
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(10, 4, generator=generator)
    shares = []
    for n_present in (2, 10):
        items = centres[torch.arange(400) % n_present] + 0.3 * torch.randn(400, 4, generator=generator)
        scores = (-torch.cdist(items, centres).square()).log_softmax(-1)[None]
        likelihood, _ = learn_scores(Tasks.from_scores(scores), for_scores(Parameters()))
        shares.append(float(likelihood.blend.share))
    assert shares[0] > 0.5
    assert shares[1] == 0


@pytest.mark.parametrize("n_items", [5, 12])
def test_a_few_items_of_a_classifier_in_doubt_keep_its_labels(n_items):
    """Five items of ten classes may be alike by chance, and then one class would take all."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(10):
        scores = 1.5 * torch.randn(n_items, 10, generator=generator)
        scores[torch.arange(n_items), torch.randperm(20, generator=generator)[:n_items] % 10] += 2.0
        posteriors = scores.log_softmax(-1)
        assert torch.equal(from_scores(posteriors).labels[0], posteriors.argmax(-1))


def test_five_items_that_are_clearly_alike_are_labelled_together():
    scores = torch.full((5, 300), -4.0)
    scores[:, 7] = 3.0
    scores[torch.arange(5), torch.arange(5) + 20] = torch.tensor([0.0, 0.0, 0.0, 0.0, 3.05])
    assert from_scores(scores.log_softmax(-1)).labels[0].tolist() == [7] * 5


@pytest.mark.parametrize(("sizes", "moved"), [((6, 8), 0), ((1, 13), 1)])
def test_a_group_of_items_is_not_dissolved_into_one_that_is_hardly_larger(sizes, moved):
    """One of two names for the items may be wrong, and which one nobody knows; a single item follows the others."""
    scores = torch.full((40, 60), -6.0)
    scores[:14, :2] = torch.tensor([0.0, 1.2])
    scores[: sizes[0], :2] = torch.tensor([0.3, 0.0])
    scores[torch.arange(14, 40), 2 + torch.arange(26) % 2] = 3.0
    found = from_scores(scores.log_softmax(-1)).labels[0, :14]
    assert int((found[: sizes[0]] == 1).sum()) == moved
    assert found[sizes[0] :].tolist() == [1] * sizes[1]


@pytest.mark.parametrize("least", [0.1, 0.0])
def test_the_batch_adds_to_a_weak_score_within_limits(least):
    """Scores of 0.1 to 0.25 are those of a class that occurs, but 0.99 would say more than anybody knows."""
    generator, rows = torch.Generator().manual_seed(0), torch.arange(60)
    odds = -7 + torch.randn(60, 40, generator=generator)
    odds[rows, rows % 4] = torch.linspace(0.1, 0.25, 60).logit()
    scores = odds.sigmoid()
    tasks = Tasks.from_scores(log_odds(scores.where(scores >= least, NAN))[None], several=True)
    limited, free = (
        solve("evidence", tasks, schedule=schedule).probabilities[0, rows, rows % 4]
        for schedule in ({}, {"several_most": (99.0, 99.0)})
    )
    assert float(free.amax()) > 0.99
    assert float(limited.amin()) > 0.5
    assert bool((limited.logit() <= odds[rows, rows % 4] + 2.5 + 1e-4).all())


def test_answers_are_sure_where_evidence_finds_as_many_errors_as_the_classifier_expects():
    generator, label = torch.Generator().manual_seed(0), torch.arange(60) % 3
    p, wrong = torch.full((60, 40), 0.001).scatter_(1, label.unsqueeze(1), 0.7), torch.arange(60) % 2 == 0
    p[wrong] = torch.full_like(p[wrong], 0.001).scatter_(1, label[wrong].unsqueeze(1), 0.2)
    p[wrong, torch.randint(3, 40, (30,), generator=generator)] = 0.5
    p = p / p.sum(-1, keepdim=True)
    found = solve("evidence", Tasks.from_scores(p.log()[None]), schedule={"scores_doubt": 1e-6})  # evidence has doubts
    assert bool((found.labels[0] == label).all())
    assert float(found.probabilities.amax(-1).mean()) > float(p.amax(-1).mean()) + 0.1


def test_lists_that_were_cut_do_not_show_what_a_classifier_prefers_and_stay_as_they_are_where_all_classes_occur():
    generator, truth = torch.Generator().manual_seed(1), torch.arange(150) % 50
    p = 3 * torch.eye(50)[truth] + torch.randn(150, 50, generator=generator) + torch.randn(50, generator=generator)
    best = p.softmax(-1).topk(5, -1)
    lists = log_posteriors(torch.full_like(p, NAN).scatter_(1, best.indices, best.values), "probability")
    assert bool((from_scores(lists).labels[0] == p.argmax(-1)).all())  # 31 of 78 right labels would be lost


def test_lists_of_three_say_what_absent_classes_score():
    rows, truth = torch.arange(60), torch.zeros(60, 40, dtype=torch.bool)
    truth[rows, rows % 4] = truth[rows, rows // 4 % 5 + 4] = True
    scores = (3.0 * truth - 4 + 0.7 * torch.randn(60, 40, generator=torch.Generator().manual_seed(0))).sigmoid()
    listed = log_odds(scores.where(scores >= scores.topk(3).values[:, -1:], NAN))
    found = solve("evidence", Tasks.from_scores(listed[None], several=True)).probabilities[0] > 0.5
    assert int((found & truth).sum()) > 110
    assert int((found & ~truth).sum()) < 10  # the third class of each list is none of the two that the item has
