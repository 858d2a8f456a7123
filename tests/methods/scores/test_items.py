"""Items in memory and in blocks are the same items."""

from __future__ import annotations

import pytest
import torch

from manyway import InputError, Tasks, solve
from manyway.core.blocks import Pile, in_turn
from manyway.methods.scores.items import InBlocks, InMemory, sample_of, with_known
from manyway.methods.scores.search import Limits, search


def items(n_items: int = 50, n_classes: int = 12):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n_items, n_classes, generator=generator, dtype=torch.float64)
    logits[:, :3] += 1.5
    posteriors = logits.log_softmax(-1)
    known = torch.full((n_items,), -1)
    known[::9] = 2
    sampled = torch.arange(n_items) % 2 == 0
    pile = Pile.of(in_turn(lambda: iter(posteriors.split(7)), torch.device("cpu")), posteriors)
    return InMemory(posteriors, known, sampled), InBlocks.of(pile, known, sampled)


def test_a_search_finds_the_same_in_memory_and_in_blocks():
    memory, blocks = items()
    one, other = (search(each, lambda rows: rows, Limits()) for each in (memory, blocks))
    torch.testing.assert_close(other.masses, one.masses, rtol=0, atol=1e-3)
    assert other.n_iter == one.n_iter
    assert float(other.alpha) == pytest.approx(float(one.alpha))


def test_the_sample_is_the_same_in_memory_and_in_blocks():
    memory, blocks = items()
    torch.testing.assert_close(sample_of(memory).posteriors, sample_of(blocks).posteriors)
    assert torch.equal(sample_of(memory).known, sample_of(blocks).known)


def test_an_item_with_a_known_label_has_no_other_class():
    found = with_known(torch.zeros(2, 3), torch.tensor([1, -1])).softmax(-1)
    assert found[0].tolist() == [0, 1, 0]
    torch.testing.assert_close(found[1], torch.full((3,), 1 / 3))


def test_the_objective_of_a_pile_is_not_recorded():
    _, blocks = items()
    with pytest.raises(InputError, match="with_objective"):
        search(blocks, lambda rows: rows, Limits(), with_terms=True)


def test_several_batches_give_the_same_answers_as_one_by_one():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 20, 9, generator=generator).log_softmax(-1)
    together = solve("evidence", Tasks.from_scores(rows), with_objective=True)
    for number, one in enumerate(rows):
        alone = solve("evidence", Tasks.from_scores(one[None]))
        torch.testing.assert_close(together.probabilities[number], alone.probabilities[0])
        torch.testing.assert_close(together.presence[number], alone.presence[0])
    assert together.objective.shape[0] == 3
    assert bool((together.objective.diff(dim=1) >= -1e-3).all())
