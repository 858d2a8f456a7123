"""How much the batch and the classifier have to say."""

from __future__ import annotations

import pytest
import torch

from manyway.methods.scores.calibrate import Calibration
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.gate import gate
from manyway.methods.scores.items import InMemory
from manyway.methods.scores.search import Limits, search

USUAL = ScoreConstants()


def gated(n_present: int, coverage: float = 0.0, hidden: float = 0.0):
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(120) % n_present
    logits = 3 * torch.eye(40)[truth] + torch.randn(120, 40, generator=generator)
    items = InMemory(logits.log_softmax(-1), torch.full((120,), -1), torch.ones(120, dtype=torch.bool))
    none = torch.zeros(40)
    calibration = Calibration(
        temperature=1.0, bias=none, listed=none, neighbours=None, hidden=hidden, coverage=coverage
    )
    found = search(items, calibration.likelihood, Limits())
    return items, gate(items, calibration, found, USUAL), truth


def test_the_batch_is_believed_where_few_classes_occur_and_the_classifier_where_all_do():
    items, few, truth = gated(2)
    assert few.weight > 0.8
    assert (few.logits(items.part).argmax(-1) == truth).float().mean() > 0.97
    items, many, _ = gated(40)
    assert many.weight < 0.1
    assert torch.equal(many.logits(items.part).argmax(-1), items.posteriors.argmax(-1))


def test_hidden_preferences_close_the_gate_and_labelled_items_open_it():
    assert gated(10, hidden=5.0)[1].weight == 0
    found = gated(40, coverage=1.0)[1]
    assert found.weight == pytest.approx(1)
    assert found.own_share == 0


def test_with_no_weight_the_answer_is_the_classifiers_own():
    items, found, _ = gated(10, hidden=9.0)
    torch.testing.assert_close(found.logits(items.part), items.posteriors)
