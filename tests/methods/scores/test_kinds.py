"""What scores are, and how they become log-posteriors or log-odds."""

from __future__ import annotations

import math

import pytest
import torch

from manyway import InputError
from manyway.methods.scores.kinds import (
    IMPOSSIBLE,
    find_kind,
    log_odds,
    log_posteriors,
    possible_classes,
    without_prior,
)

NAN = math.nan
EVERY = torch.ones(4, dtype=torch.bool)


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


@pytest.mark.parametrize("listed", [3, 2])
@pytest.mark.parametrize("slip", [-0.1, -math.inf])
def test_a_slip_of_the_pen_makes_no_logits_of_probabilities(slip, listed):
    p = torch.tensor([[0.7, 0.2, 0.1]]).repeat(60, 1)[:, :listed]
    p[17, 1] = slip
    with pytest.raises(InputError, match=f"row 17 go down to {slip}, but nearly all other rows are probabilities"):
        find_kind(p)
    p[40, 0] = 1.5
    with pytest.raises(InputError, match="row 17 go down"):
        find_kind(p)


def test_some_logits_could_be_probabilities():
    logits = torch.tensor([[0.3, 0.2], [1.3, -0.4], [-2.0, 0.1], [0.5, 0.4]])
    assert find_kind(logits) == find_kind(logits[:2]) == "logit"
    sure = torch.tensor([[0.0, NAN]]).repeat(60, 1)  # one class each, of which the classifier is certain
    sure[17, 0] = -0.1
    assert find_kind(sure) == "log-probability"


@pytest.mark.parametrize("kind", ["probability", "log-probability", "logit"])
def test_complete_scores_of_every_kind_are_the_same_posteriors(kind):
    p = torch.tensor([[0.7, 0.2, 0.1]])
    given = {"probability": p, "log-probability": p.log(), "logit": p.log() + 1}[kind]
    for named in (kind, "auto"):
        torch.testing.assert_close(log_posteriors(given, named), p.log())


def test_the_probability_that_a_list_leaves_is_spread_over_the_other_classes():
    p = log_posteriors(torch.tensor([[0.6, 0.2, NAN, NAN], [0.6, 0.2, 0.0, 0.0]]), possible=EVERY).exp()
    torch.testing.assert_close(p, torch.tensor([[0.6, 0.2, 0.1, 0.1]] * 2))
    # no class gets more than half of the lowest that is listed: a class that is listed stays ahead
    torch.testing.assert_close(
        log_posteriors(torch.tensor([[0.3, 0.1, NAN]]), possible=EVERY[:3]).exp() * 9, torch.tensor([[6.0, 2.0, 1.0]])
    )
    # rounded lists that sum to 1 leave the others 0.1 %
    p = log_posteriors(torch.tensor([[0.75, 0.25, NAN, NAN]]), possible=EVERY).exp()
    torch.testing.assert_close(p[0, 2:], torch.full((2,), 0.0005), rtol=2e-3, atol=0)


def test_an_item_without_any_score_is_of_any_class():
    p = log_posteriors(torch.tensor([[0.7, 0.3], [0.0, 0.0]]), "probability").exp()
    torch.testing.assert_close(p[1], torch.tensor([0.5, 0.5]))


def test_independent_confidences_become_odds():
    p = log_posteriors(torch.tensor([[0.8, NAN, NAN]]), "sigmoid", possible=EVERY[:3]).exp()
    torch.testing.assert_close(p, torch.tensor([[0.8, 0.1, 0.1]]))
    p = log_posteriors(torch.tensor([[0.5, 0.9, NAN]]), "sigmoid", possible=EVERY[:3]).exp()
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
        ([[-3.0, 1.9, NAN], [1.0, 2.0, 0.0]], "logit", "row 0 do not list every class"),
        ([[math.inf, 0.0]], "auto", "row 0 are infinite"),
        ([[2.0, 1.0], [-math.inf, -math.inf]], "auto", "row 1 are all −inf: the item has no class"),
        ([[-math.inf, -math.inf]], "log-probability", "row 0 are all 0, like those of all items"),
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


def test_log_odds_of_lists_and_of_what_is_no_probability():
    odds = log_odds(torch.tensor([[1.0, NAN, 0.5], [0.2, 0.0, 0.9]]))
    assert torch.isfinite(odds).all()
    assert odds[0, 1] <= odds[1, 0]
    with pytest.raises(InputError, match="row 0 are above 1"):
        log_odds(torch.tensor([[1.2, 0.1]]))


@pytest.mark.parametrize("kind", ["probability", "log-probability", "logit"])
def test_a_class_that_no_item_lists_gets_nothing_and_changes_no_other(kind):
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    given = {"probability": p, "log-probability": p.log(), "logit": p.log() + 1}[kind]
    nothing = {"probability": [0.0, NAN], "log-probability": [-math.inf, NAN], "logit": [-math.inf] * 2}[kind]
    more = torch.cat([given, torch.tensor(nothing).unsqueeze(1)], 1)
    assert possible_classes(more, kind).tolist() == [True, True, True, False]
    found = log_posteriors(more, kind)
    torch.testing.assert_close(found[:, :3], log_posteriors(given, kind))
    assert (found[:, 3] == IMPOSSIBLE).all()


@pytest.mark.parametrize(
    "row",
    [
        [0.7, 0.3, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
        [0.5, 0.25, 0.0, 0.0],  # a list that was cut
        [1e-6, 0.999999, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
        [0.6, NAN, 0.0, 0.2],
        [0.0, NAN, NAN, 0.0],
    ],
)
def test_a_probability_of_0_and_its_logarithm_are_the_same(row):
    p = torch.tensor([row, [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    for kind, named in (("probability", "log-probability"), ("auto", "auto")):
        torch.testing.assert_close(log_posteriors(p.log(), named), log_posteriors(p, kind))


def test_a_logit_of_minus_infinity_is_a_probability_of_0():
    logits = torch.tensor([[2.0, 1.0, -math.inf], [-math.inf, -3.0, -math.inf], [0.0, 1.0, 2.0]])
    torch.testing.assert_close(log_posteriors(logits), log_posteriors(logits.softmax(-1)))
    only_one = log_posteriors(logits).exp()[1]
    torch.testing.assert_close(only_one, torch.tensor([0.0005, 0.999, 0.0005]), rtol=2e-3, atol=0)


def test_a_class_of_minus_infinity_is_behind_every_class_of_a_tiny_probability():
    found = log_posteriors(torch.tensor([[0.0, -700.0, -math.inf], [-1.0, -2.0, -0.7]]), "log-probability")
    assert found[0, 1] == -700
    assert found[0, 2] < found[0, 1]
