"""What a score says about a class: temperature, preferences, lists and labelled items."""

from __future__ import annotations

import pytest
import torch

from manyway.methods.scores.calibrate import Given, calibrate, exponent_for, listed, preferences
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.items import Part
from manyway.methods.scores.search import Limits

USUAL = ScoreConstants()


def sample(logits: torch.Tensor, known: torch.Tensor | None = None) -> Part:
    posteriors = logits.log_softmax(-1)
    labels = torch.full((len(logits),), -1) if known is None else known
    return Part(posteriors, labels, torch.ones(len(logits), dtype=torch.bool), posteriors)


def given(n_classes: int, **more) -> Given:
    nothing = {"labelled": torch.zeros(0, n_classes), "labels": torch.zeros(0, dtype=torch.int64)}
    return Given(**{**nothing, "expected": torch.ones(n_classes), "temperature": None, **more})


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_classifier_in_doubt_is_sharpened_and_a_sure_one_is_believed():
    for scale, expected in ((0.3, USUAL.scores_sure), (20.0, None)):
        part = sample(scale * noise(80, 30))
        found = calibrate(part, given(30), Limits(), USUAL)
        claim = float(found.own(part.posteriors).exp().amax(-1).mean())
        if expected is None:
            assert found.temperature == 1
        else:
            assert claim == pytest.approx(expected, abs=1e-3)


def test_a_temperature_that_is_given_is_taken():
    assert calibrate(sample(noise(20, 5)), given(5, temperature=2.5), Limits(), USUAL).temperature == 2.5


def test_preferences_are_what_unlike_items_agree_on():
    truth = torch.arange(200) % 40
    preference = noise(40, seed=1)
    z = (noise(200, 40) + preference + 6 * torch.eye(40)[truth]).log_softmax(-1)
    found = preferences(z, torch.eye(40)[truth], 1.0, USUAL)
    assert torch.corrcoef(torch.stack([found.bias, preference]))[0, 1] > 0.9
    assert found.hidden < USUAL.scores_preference**2 / 2
    none = preferences((noise(200, 40) + 6 * torch.eye(40)[truth]).log_softmax(-1), torch.eye(40)[truth], 1.0, USUAL)
    assert float(none.bias.std()) < 0.3 * float(found.bias.std())


def test_preferences_are_no_stronger_than_those_of_classifiers_and_lists_hide_them():
    z = (noise(100, 30) + 9 * noise(30, seed=1)).log_softmax(-1)
    found = preferences(z, torch.zeros_like(z), 1.0, USUAL)
    assert float(found.bias.std(unbiased=False)) <= USUAL.scores_preference * 1.001
    cut = torch.full((50, 30), -9.0).scatter_(1, torch.arange(50).unsqueeze(1) % 30, 0.0).log_softmax(-1)
    assert preferences(cut, torch.zeros_like(cut), 1.0, USUAL).hidden == pytest.approx(USUAL.scores_preference**2 / 2)


def test_a_list_counts_as_far_as_it_explains_the_batch():
    inside = (5 * torch.eye(20)[torch.arange(60) % 4]).log_softmax(-1)
    outside = (5 * torch.eye(20)[10 + torch.arange(60) % 4]).log_softmax(-1)
    expected = torch.tensor([1.0] * 4 + [0.0] * 16)
    unseen = torch.zeros(20)
    right, wrong = listed(inside, expected, unseen), listed(outside, expected, unseen)
    assert float(right[0]) == pytest.approx(float(torch.tensor(16 / 4).log()), rel=0.05)
    assert 0 <= float(wrong[0]) < 0.1 * float(right[0])
    assert right[4:].abs().max() == 0
    assert listed(inside, torch.ones(20), unseen).abs().max() == 0
    assert float(listed(inside, torch.tensor([2.0] + [1.0] * 19), unseen)[0]) > 0


def test_a_class_that_the_batch_shows_counts_as_listed():
    inside = (5 * torch.eye(20)[torch.arange(60) % 4]).log_softmax(-1)
    expected = torch.tensor([1.0] * 2 + [0.0] * 18)
    masses = torch.zeros(20)
    masses[2] = 15.0
    masses[3] = 1.0
    added = listed(inside, expected, masses)
    assert 0.5 * float(added[0]) < float(added[2]) < float(added[0])
    assert 0 < float(added[3]) < 0.05 * float(added[0])


def test_labelled_items_count_as_far_as_they_cover_the_classes():
    truth = torch.arange(400) % 10
    logits = 3 * (2 * torch.eye(10)[truth] + noise(400, 10)) + torch.linspace(-1, 1, 10)
    labelled = given(10, labelled=logits.log_softmax(-1), labels=truth)
    found = calibrate(sample(logits[:50]), labelled, Limits(), USUAL)
    assert found.coverage == 1
    assert found.temperature > 1.3  # it was too sure
    assert torch.corrcoef(torch.stack([found.bias, torch.linspace(-1, 1, 10)]))[0, 1] > 0.8
    few = calibrate(sample(logits[:50]), given(10, labelled=logits[:2], labels=truth[:2]), Limits(), USUAL)
    assert few.coverage == pytest.approx(0.2)
    assert few.neighbours is not None


def test_the_exponent_makes_the_highest_probability_as_wanted():
    logs = noise(50, 9).log_softmax(-1)
    weights = torch.ones(50)
    for wanted in (0.3, 0.6, 0.9):
        power = exponent_for(logs, torch.tensor(wanted), weights)
        assert float((logs * power).softmax(-1).amax(-1).mean()) == pytest.approx(wanted, abs=1e-3)
