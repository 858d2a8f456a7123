"""What the classifier's own claims say about which classes occur."""

from __future__ import annotations

import torch

from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.count import claims
from manyway.methods.scores.items import InMemory


def odds_of(p: torch.Tensor, known: torch.Tensor | None = None) -> torch.Tensor:
    labels = torch.full((len(p),), -1) if known is None else known
    return claims(InMemory(p.log(), labels, torch.ones(len(p), dtype=torch.bool)), ScoreConstants())


def test_a_class_that_the_classifier_is_sure_of_probably_occurs():
    p = torch.tensor([[0.96, 0.02, 0.02]] * 5 + [[0.3, 0.3, 0.4]] * 5)
    sure, _, unsure = odds_of(p).tolist()
    assert sure > unsure + 1


def test_one_item_says_less_than_several_and_a_known_label_everything():
    one = torch.tensor([[0.9, 0.1]] + [[0.001, 0.999]] * 9)
    several = torch.tensor([[0.9, 0.1]] * 5 + [[0.001, 0.999]] * 5)
    assert float(odds_of(one)[0]) < float(odds_of(several)[0])
    assert odds_of(one, torch.tensor([0] + [-1] * 9))[0] == torch.inf
