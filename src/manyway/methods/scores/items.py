"""The items of one batch: their scores, known labels and assignments, in memory or in blocks.

Every step sees the items in parts: in memory all items are one part, in a pile each block is one. What a step finds in
the parts is added up, so that a step is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyway.core import Answered, Joined, Pile, Reading, one_hot
from manyway.errors import InputError
from manyway.methods.evidence.dense import Dense
from manyway.methods.evidence.loop import Update
from manyway.methods.evidence.prior import QueryCounts, Slopes, log_remainders, remainders

Likelihood = Callable[[Tensor], Tensor]  # from log-posteriors [b, k] to log-likelihoods [b, k]
_EXCLUDED = -1e30  # the log-likelihood of the classes that an item with a known label does not have
_MATTERS = 1e-6  # smaller assignments of items in blocks are not remembered: 1 − u is 1


class Part(NamedTuple):
    """Some items of the batch."""

    posteriors: Tensor  # [b, k] ln p of the classifier
    known: Tensor  # [b] known labels, -1 for the others
    sampled: Tensor  # [b] whether an item is one of those that a number is fitted to
    u: Tensor  # [b, k] their assignments by the last search

    @property
    def free(self) -> Tensor:
        """[b] 1 where the label is to be found, 0 where it is known."""
        return (self.known < 0).to(self.posteriors)


class Items(Protocol):
    """The items of one batch."""

    @property
    def n_items(self) -> int:
        """How many there are."""

    def each(self, work: Callable[[Part], Any]) -> Any:
        """What ``work`` finds in all parts, added up."""

    def begin(self, likelihood: Likelihood) -> QueryCounts:
        """Assign every item by its likelihoods alone."""

    def update(self, slopes: Slopes, ahead: Sequence[float], tol: float) -> Update:
        """Assign every item again, given the slopes of the prior."""

    def terms(self) -> Tensor:
        """[2, 1] the terms of the bound that depend on the items; see ``Dense``."""


def with_known(likelihood: Tensor, known: Tensor) -> Tensor:
    """[b, k] log-likelihoods that leave items with a known label [b] no other class."""
    own = one_hot(known.clamp_min(0), likelihood.shape[-1], likelihood.dtype)
    return torch.where((known >= 0).unsqueeze(-1), (1 - own) * _EXCLUDED, likelihood)


@dataclass(eq=False)
class InMemory:
    """All items as one part."""

    posteriors: Tensor  # [q, k]
    known: Tensor  # [q]
    sampled: Tensor  # [q]
    dense: Dense | None = None

    @property
    def n_items(self) -> int:
        return len(self.posteriors)

    @property
    def part(self) -> Part:
        u = self.posteriors if self.dense is None else self.dense.u[0]
        return Part(self.posteriors, self.known, self.sampled, u)

    def each(self, work: Callable[[Part], Any]) -> Any:
        return work(self.part)

    def begin(self, likelihood: Likelihood) -> QueryCounts:
        self.dense = Dense.of(with_known(likelihood(self.posteriors), self.known)[None])
        return self.dense.begin(1.0)

    def update(self, slopes: Slopes, ahead: Sequence[float], tol: float) -> Update:
        assert self.dense is not None
        return self.dense.update(slopes, 1.0, ahead, tol)

    def terms(self) -> Tensor:
        assert self.dense is not None
        return self.dense.terms()


class _Block(NamedTuple):
    """What is remembered of a block: labels, and the assignments that are not next to nothing."""

    known: Tensor  # [b]
    sampled: Tensor  # [b]
    places: Tensor  # [n] item·K + class
    values: Tensor  # [n]

    def part(self, posteriors: Tensor) -> Part:
        u = torch.zeros_like(posteriors)
        u.view(-1)[self.places] = self.values.to(u)
        return Part(posteriors, self.known.to(u.device), self.sampled.to(u.device), u)


class _Assigned(NamedTuple):
    """What assignments of a block add up to."""

    masses: Tensor  # [1, k]
    log_absent: Tensor  # [1, k]
    moved: Tensor  # [1] the largest change

    def plus(self, other: _Assigned) -> _Assigned:
        masses = self.masses + other.masses
        return _Assigned(
            masses, self.log_absent + other.log_absent, torch.maximum(self.moved, other.moved)
        )


@dataclass(eq=False)
class InBlocks:
    """The items of a pile, read again in every pass."""

    pile: Pile
    blocks: list[_Block]
    likelihood: Likelihood | None = None

    @staticmethod
    def of(pile: Pile, known: Tensor, sampled: Tensor) -> InBlocks:
        """Items with known labels [q], of which some are ``sampled`` [q]."""
        nothing = known.new_zeros(0)
        parts = zip(pile.split(known[None]), pile.split(sampled[None]), strict=True)
        return InBlocks(
            pile,
            [_Block(labels[0], some[0], nothing, pile.like.new_zeros(0)) for labels, some in parts],
        )

    @property
    def n_items(self) -> int:
        return self.pile.n_rows

    def each(self, work: Callable[[Part], Any]) -> Any:
        return self.pile.each(partial(_on_part, work), self.blocks)[0]

    def begin(self, likelihood: Likelihood) -> QueryCounts:
        self.likelihood = likelihood
        return self._pass(None).query_counts

    def update(self, slopes: Slopes, ahead: Sequence[float], tol: float) -> Update:
        return self._pass(slopes)

    def terms(self) -> Tensor:
        raise InputError("The objective of a pile is not recorded; leave `with_objective` out.")

    def reading(self, work: Callable[[Part], Answered]) -> Reading:
        """What ``work`` answers, computed block by block whenever it is read."""
        return Reading(self.pile, partial(_answer_part, work), self.blocks)

    def _pass(self, slopes: Slopes | None) -> Update:
        assert self.likelihood is not None
        found, self.blocks = self.pile.each(partial(_assign, self.likelihood, slopes), self.blocks)
        return Update(QueryCounts.of_products(found.masses, found.log_absent.exp()), found.moved)


def _on_part(work: Callable[[Part], Any], rows: Tensor, block: _Block) -> tuple[Any, None]:
    return work(block.part(rows[0])), None


def _answer_part(work: Callable[[Part], Answered], rows: Tensor, block: _Block) -> Answered:
    return work(block.part(rows[0]))


def _assign(
    likelihood: Likelihood, slopes: Slopes | None, rows: Tensor, block: _Block
) -> tuple[_Assigned, _Block]:
    """Assign the items of a block; without slopes, by their likelihoods alone."""
    part = block.part(rows[0])
    logits = with_known(likelihood(part.posteriors), part.known)[None]
    if slopes is not None:
        logits = slopes.to(logits).add_to(logits, remainders(part.u[None]))
    u = logits.softmax(-1)
    moved = (u[0] - part.u).abs().amax()[None]
    places = (u > _MATTERS).view(-1).nonzero().squeeze(1)
    masses = u.sum(1, dtype=torch.float64)
    log_absent = log_remainders(u).sum(1, dtype=torch.float64)
    return _Assigned(masses, log_absent, moved), block._replace(
        places=places, values=u.view(-1)[places]
    )


def sample_of(items: Items) -> Part:
    """The sampled items, as one part in memory; their assignments are left out."""
    found: Joined = items.each(_take_sample)
    posteriors, known = found.values
    everything = torch.ones_like(known[0], dtype=torch.bool)
    return Part(posteriors[0], known[0], everything, posteriors[0])


def _take_sample(part: Part) -> Joined:
    return Joined((part.posteriors[part.sampled][None], part.known[part.sampled][None]))
