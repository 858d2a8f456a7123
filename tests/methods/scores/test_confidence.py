"""Labels are as probable as they are right."""

from __future__ import annotations

import pytest
import torch

from manyway import Tasks, solve


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_claims_are_between_those_of_the_classifier_and_of_the_model(sharpness):
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(150) % 3
    logits = sharpness * (2 * torch.eye(30)[truth] + torch.randn(150, 30, generator=generator))
    found = solve("evidence", Tasks.from_scores(logits.log_softmax(-1)[None]))
    right = float((found.labels[0] == truth).float().mean())
    claimed = float(found.probabilities.amax(-1).mean())
    own = float(logits.softmax(-1).amax(-1).mean())
    own_right = float((logits.argmax(-1) == truth).float().mean())
    assert abs(claimed - right) < abs(own - own_right) + 0.05


def test_items_that_share_errors_claim_less():
    posteriors = torch.tensor([[0.9, 0.05, 0.05]]).log().expand(30, -1)
    usual = solve("evidence", Tasks.from_scores(posteriors[None])).probabilities.amax(-1).mean()
    alone = solve("evidence", Tasks.from_scores(posteriors[None]), schedule={"scores_shared": 1e-6})
    assert float(usual) < float(alone.probabilities.amax(-1).mean())
