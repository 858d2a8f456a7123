"""What an iteration of evidence does with a block of queries: see ``manyway.methods.evidence.streamed``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.methods.evidence.prior import log_absence, remainders
from manyway.streaming.blocks import Scaling


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
    weights: Tensor  # [d, k] and
    offsets: Tensor  # [k]: ℓ = z·weights + offsets
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
        return replace(
            self,
            weights=self.weights[:, live],
            offsets=self.offsets[live],
            slope=self.slope[live],
            price=self.price[live],
            above=self.above[live],
            rest=rest,
            live=live,
            shift=float(torch.tensor(alpha / rest.alpha).log()),
        )

    def __call__(self, block: Tensor, note: Note | None) -> tuple[Sums, Note]:
        scores = self._scores(self.rows(block))
        rest = self._weigh_resting(scores, note) if self.live is None else note and note.rest
        u, resting = self._assign(scores, note)
        masses = u.sum(0)
        places = (u > self.above).view(-1).nonzero().squeeze(1)
        values = u.view(-1)[places]
        # ln(1 − u) is −u where it is not noted.
        beyond = torch.zeros_like(masses).index_add_(0, places % len(masses), log_absence(values) + values)
        sums = Sums(masses.double(), (beyond - masses).double(), resting.double().sum(), self._moved(u, note))
        most = int(self.most_noted * len(u)) + 1
        if len(places) > most:
            values, chosen = values.topk(most)
            places = places[chosen]
        if self.rest is not None and self.live is not None and note is not None:  # what is noted of the resting stays
            dead = self.rest.dead[note.places % len(self.rest.dead)]
            places = torch.cat([_places_of(places, self.live, len(self.rest.dead)), note.places[dead]])
            values = torch.cat([values, note.values[dead]])
        return sums, Note(places, values, rest)

    def assign(self, rows: Tensor, note: Note | None) -> Tensor:
        """[b, k] the next assignments of rows that are scaled."""
        return self._assign(self._scores(rows), note)[0]

    def rows(self, block: Tensor) -> Tensor:
        """[b, d] scaled."""
        return self.scaling(block.to(self.weights))

    @property
    def _slopes(self) -> Tensor:
        return self.slope + self.price

    def _scores(self, rows: Tensor) -> Tensor:
        """[b, k] share·ℓ + slopes, as if nobody were the first of a class."""
        rows = rows if self.share == 1 else rows * self.share
        return torch.addmm(self.share * self.offsets + self._slopes, rows, self.weights)

    def _assign(self, scores: Tensor, note: Note | None) -> tuple[Tensor, Tensor]:
        """Assignments [b, k] from scores, which are used up; and what the resting classes have together [b]."""
        if note is not None:
            places, values = self._among_these(note)
            scores.view(-1).index_add_(0, places, self._being_first(places, values))
        if self.live is None or self.rest is None or note is None or note.rest is None:
            return scores.softmax(1), scores.new_zeros(1)
        resting = note.rest[:, self.rest.shares.index(self.share)] + self.shift
        total = torch.logaddexp(scores.logsumexp(1), resting)
        return scores.sub_(total.unsqueeze(1)).exp_(), (resting - total).exp()

    def _being_first(self, places: Tensor, values: Tensor) -> Tensor:
        """[n] what is missing of the noted scores."""
        return self.price[places % len(self.price)] * (remainders(values).reciprocal_() - 1)

    def _weigh_resting(self, scores: Tensor, note: Note | None) -> Tensor | None:
        """[b, r] ``Note.rest``, from scores as if nobody were the first of a class."""
        if self.rest is None:
            return None
        dead = self.rest.dead.nonzero().squeeze(1)
        slopes = self._slopes[dead].repeat(len(scores), 1)
        likelihood = scores.index_select(1, dead).sub_(slopes).div_(self.share)
        if note is not None:
            places, which = _places_in(note.places, dead, len(self.rest.dead))
            slopes.view(-1).index_add_(0, places, self._being_first(note.places[which], note.values[which]))
        return torch.stack([torch.add(slopes, likelihood, alpha=share).logsumexp(1) for share in self.rest.shares], 1)

    def _moved(self, u: Tensor, note: Note | None) -> Tensor:
        if note is None:
            return u.new_ones(())
        places, values = self._among_these(note)
        return torch.cat([(u.view(-1)[places] - values).abs(), u.new_zeros(1)]).max()

    def _among_these(self, note: Note) -> tuple[Tensor, Tensor]:
        """Places [n] in [b, k], and values, of what is noted of the classes that take part."""
        if self.live is None or self.rest is None:
            return note.places, note.values
        places, which = _places_in(note.places, self.live, len(self.rest.dead))
        return places, note.values[which]


def _places_in(places: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Places among all classes as places among some of them, and which of the places are such [n]."""
    column = torch.full((n_classes,), -1, device=classes.device)
    column[classes] = torch.arange(len(classes), device=classes.device)
    column = column[places % n_classes]
    row = places.div(n_classes, rounding_mode="floor")
    return (row * len(classes) + column)[column >= 0], column >= 0


def _places_of(places: Tensor, classes: Tensor, n_classes: int) -> Tensor:
    """Places among some classes as places among all."""
    row = places.div(len(classes), rounding_mode="floor")
    return row * n_classes + classes[places % len(classes)]
