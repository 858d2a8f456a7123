"""What an iteration of evidence does with a block of queries: see ``manyway.large_evidence``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.large import Scaling
from manyway.methods._calibration import Calibration
from manyway.methods._presence import being_first, log_absence


class Note(NamedTuple):
    """What a block remembers until the next iteration."""

    places: Tensor  # [n] row · K + class of the assignments that are noted
    values: Tensor  # [n] these u_qk
    rest: Tensor | None  # [b, r] ln of what the resting classes weigh together, for each ``Rest.shares``


class Sums(NamedTuple):
    """Class sums over queries, in float64 so that they do not depend on how the queries are cut."""

    masses: Tensor  # [k] Σ u
    log_absent: Tensor  # [k] Σ ln(1 − u)
    resting: Tensor  # [] Σ u of the resting classes
    moved: Tensor  # [] the largest change of a noted assignment

    def plus(self, other: Sums) -> Sums:
        return Sums(
            self.masses + other.masses,
            self.log_absent + other.log_absent,
            self.resting + other.resting,
            torch.maximum(self.moved, other.moved),
        )


class Moments(NamedTuple):
    """Sums of features over the queries of some classes, in float64."""

    values: Tensor  # [g, d]

    def plus(self, other: Moments) -> Moments:
        return Moments(self.values + other.values)


@dataclass(frozen=True, eq=False)
class Rest:
    """Classes that rest after a full iteration, and for which of the next iterations."""

    dead: Tensor  # [k] bool
    shares: tuple[float, ...]  # what ℓ may be multiplied by in these iterations
    alpha: float  # of the full iteration

    @property
    def live(self) -> Tensor:
        """[l] the other classes."""
        return (~self.dead).nonzero().squeeze(1)


@dataclass(frozen=True, eq=False)
class Step:
    """The work of an iteration: the next assignments of a block's queries, their sums, and a note of some."""

    scaling: Scaling
    calibration: Calibration  # of one task
    share: float  # what ℓ is multiplied by
    slope: Tensor  # [k]
    price: Tensor  # [k] of being the first of a class
    above: Tensor  # [k] assignments above this are noted
    most_noted: float  # a query, on average
    rest: Rest | None = None  # full iteration: who rests after it; otherwise: who rests in it
    live: Tensor | None = None  # [k] the classes that take part; None: all, in a full iteration
    shift: float = 0.0  # by which the resting classes' slope has changed meanwhile

    def of_live(self, rest: Rest, alpha: float) -> Step:
        """The same step without the resting classes. Their slope is ln α and a constant."""
        live = rest.live
        calibration = replace(
            self.calibration, centres=self.calibration.centres[:, live], counts=self.calibration.counts[:, live]
        )
        return replace(
            self,
            calibration=calibration,
            slope=self.slope[live],
            price=self.price[live],
            above=self.above[live],
            rest=rest,
            live=live,
            shift=float(torch.tensor(alpha / rest.alpha).log()),
        )

    def __call__(self, block: Tensor, note: Note | None) -> tuple[Sums, Note]:
        scores = self._likelihood(self.rows(block))
        rest = self._weigh_resting(scores) if self.live is None else note and note.rest
        u, resting = self._assign(scores, note)
        sums = Sums(
            u.sum(0, dtype=torch.float64),
            log_absence(u).sum(0, dtype=torch.float64),
            resting.sum(dtype=torch.float64),
            self._moved(u, note),
        )
        places = (u > self.above).view(-1).nonzero().squeeze(1)
        values = u.view(-1)[places]
        most = int(self.most_noted * len(u)) + 1
        if len(places) > most:
            values, chosen = values.topk(most)
            places = places[chosen]
        return sums, Note(self._among_all(places), values, rest)

    def assign(self, rows: Tensor, note: Note | None) -> Tensor:
        """[b, k] the next assignments of rows that are scaled."""
        return self._assign(self._likelihood(rows), note)[0]

    def rows(self, block: Tensor) -> Tensor:
        """[b, d] scaled."""
        return self.scaling(block.to(self.calibration.centres))

    def _likelihood(self, rows: Tensor) -> Tensor:
        return self.calibration.log_likelihood(rows.unsqueeze(0)).squeeze(0)

    def _assign(self, scores: Tensor, note: Note | None) -> tuple[Tensor, Tensor]:
        """Assignments [b, k] from likelihoods, which are used up; and what the resting classes have together [b]."""
        if self.share != 1:
            scores.mul_(self.share)
        scores.add_(self.slope + self.price)
        if note is not None:
            places, values = self._among_these(note)
            more = self.price[places % len(self.price)] * (being_first(values) - 1)
            scores.view(-1).index_add_(0, places, more)
        if self.live is None or self.rest is None or note is None or note.rest is None:
            return scores.softmax(1), scores.new_zeros(1)
        resting = note.rest[:, self.rest.shares.index(self.share)] + self.shift
        total = torch.logaddexp(scores.logsumexp(1), resting)
        return scores.sub_(total.unsqueeze(1)).exp_(), (resting - total).exp()

    def _weigh_resting(self, likelihood: Tensor) -> Tensor | None:
        if self.rest is None:
            return None
        resting, slope = likelihood[:, self.rest.dead], (self.slope + self.price)[self.rest.dead]
        return torch.stack([(resting * share + slope).logsumexp(1) for share in self.rest.shares], 1)

    def _moved(self, u: Tensor, note: Note | None) -> Tensor:
        if note is None:
            return u.new_ones(())
        places, values = self._among_these(note)
        return torch.cat([(u.view(-1)[places] - values).abs(), u.new_zeros(1)]).max()

    def _among_these(self, note: Note) -> tuple[Tensor, Tensor]:
        """Places [n] in [b, k], and values, of what is noted of the classes that take part."""
        if self.live is None or self.rest is None:
            return note.places, note.values
        n_classes = len(self.rest.dead)
        column = torch.full((n_classes,), -1, device=self.live.device)
        column[self.live] = torch.arange(len(self.live), device=self.live.device)
        column = column[note.places % n_classes]
        row = note.places.div(n_classes, rounding_mode="floor")
        return (row * len(self.live) + column)[column >= 0], note.values[column >= 0]

    def _among_all(self, places: Tensor) -> Tensor:
        if self.live is None or self.rest is None:
            return places
        row = places.div(len(self.live), rounding_mode="floor")
        return row * len(self.rest.dead) + self.live[places % len(self.live)]


@dataclass(frozen=True, eq=False)
class AddUp:
    """The work that finds the means of groups of queries."""

    step: Step
    groups: Tensor  # [g]

    def __call__(self, block: Tensor, note: Note | None) -> tuple[Moments, None]:
        rows = self.step.rows(block)
        u = self.step.assign(rows, note)[:, self.groups]
        return Moments((u.mT @ rows).double()), None
