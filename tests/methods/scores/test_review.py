"""Which item a person should label next."""

from __future__ import annotations

import torch

from manyway.methods.scores.review import review_scores


def test_doubtful_items_that_speak_for_others_come_first_and_known_ones_never():
    outcomes = torch.tensor([[0.9, 0.1, 0.0]] + [[0.5, 0.5, 0.0]] * 3 + [[0.5, 0.0, 0.5]] + [[1.0, 0.0, 0.0]])
    found = review_scores(outcomes, torch.tensor([-1, -1, -1, -1, -1, 0]))
    assert found[5] == -1
    assert bool((found[1:4] > found[4]).all())
    assert bool((found[4] > found[0]).all())
