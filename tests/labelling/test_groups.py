"""Groups of items that are labelled by themselves: what they say together about the classes."""

from __future__ import annotations

import torch

from manyway import Tasks
from manyway.files.items import Items
from manyway.labelling.batch import Batch
from manyway.labelling.label import solve_batch, solve_groups


def test_a_classifier_is_doubted_in_groups_as_it_is_in_one_batch():
    generator = torch.Generator().manual_seed(3)
    scores = (torch.randn(40, 12, generator=generator) + 3 * torch.eye(12)[torch.arange(40) % 3]).log_softmax(-1)
    items = Items(None, None, [f"i{row}" for row in range(40)])
    batch = Batch(Tasks.from_scores(scores[None]), tuple("abcdefghijkl"), items)
    whole, one = solve_batch(batch), solve_groups(batch, [[*range(40)]], "evidence")
    torch.testing.assert_close(one.presence, whole.presence)
    torch.testing.assert_close(one.copies, whole.copies)
    two = solve_groups(batch, [[*range(0, 40, 2)], [*range(1, 40, 2)]], "evidence")
    assert bool(torch.isfinite(two.tallied.doubt).all())  # nothing was labelled by a person
    assert float(two.presence[0, 3:].amax()) < 0.9  # what few items of an unsure classifier say
