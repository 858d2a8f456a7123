"""The prototypes of classes, and e_k: what their random errors add to squared distances.

A placed row z is as far from the prototype w_k of a class as

    ‖z − w_k‖² − e_k,

where e_k is what the random error of w_k adds to a squared distance on average, up to what is the
same for all classes. What e_k is, follows from how a prototype was made:

- The **mean** of n_k samples has e_k = S/n_k, for the within-class scatter S (``error_of_means``).
  An added class has n_k = 1. Names count as some samples, and queries as parts of one; without the
  part p of a row itself, a mean of mass m has S/(m − p) (``leave_one_out``).
- A **shortened mean** w_k = β a_k s_k w̄_k has (``Prototypes.shrunk``)

      ‖w_k‖² − e_k = β (a_k s_k² E‖w̄_k‖² + S v_0 ln(v_k/v_0) − S (v_0 − 1) − (1 − a_k) E‖z‖²)
                     + a_k (β s_k)² (‖w̄_k‖² − E‖w̄_k‖²),

  because the samples of its class have a variance S v_k of their own. S (v_0 − 1) is the same for
  all classes: without it, distances of members would be longer than those from a mean, S. Where all
  classes have as many samples, a_k = 1, and e_k is β S s_k/n_k up to what is the same for all.

``Prototypes.of_members`` says what is left of squared distances for the members of a class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.distances import Offsets, distances_to
from manyway.methods.calibration.moments import WithinClasses

_MOMENT_STEPS = 3  # to estimate how much class means differ
_LEAST_FACTOR = 0.005  # r_k could be 0; half and twice of it change no label
_FARTHEST = 1e12  # squared lengths of prototypes, in units of S: examples may all be copies


def error_of_means(scatter: Tensor, counts: Tensor) -> Tensor:
    """e_k = S/n_k of means of so many samples."""
    return scatter / counts


def leave_one_out(distances: Tensor, parts: Tensor, masses: Tensor, scatter: Tensor) -> Tensor:
    """[…, q, k] squared distances less e_k, to means that have taken in queries.

    Each query is left out of those that it is compared with.

    ``parts`` […, q, k] is what it contributes to a mean and ``masses`` [k] the total, support
    included. Without z, of which it contains p, a mean of mass m is m/(m − p) times as far from z.
    """
    others = masses - parts
    return distances * (masses / others).square() - error_of_means(scatter, others)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prototypes:
    """The placed prototypes of classes, and what they are worth."""

    offsets: Tensor  # [t, k, d] w_k
    squares: Tensor  # [t, k] ‖w_k‖² − e_k, which is added to ‖z‖² − 2 z·w_k
    examples: Tensor  # [t, k] n_k, the samples that a prototype was made of
    counts: Tensor  # [t, k] how many samples it is worth: n_k, and after ``shrunk`` n_k/(β s_k)

    # --- How ``shrunk`` has changed them; all are 1 before it ---
    # [t, k] β a_k s_k, by which prototypes are shorter than the means of their samples
    trust: Tensor
    slopes: Tensor  # [t, k] a_k, how much ‖z‖² counts in the distance to a prototype
    # [t] √max(r)/β: how far from the middle class means are expected, in lengths of prototypes
    reach: Tensor
    steepness: Tensor  # [t] what τ is divided by, because prototypes are shorter

    @staticmethod
    def of_means(means: Offsets, counts: Tensor, scatter: Tensor) -> Prototypes:
        """The means of ``counts`` [t, k] samples, with the scatter S [t]."""
        one_per_task = torch.ones_like(scatter)
        one_per_class = torch.ones_like(counts)
        return Prototypes(
            offsets=means.rows,
            squares=means.squares - error_of_means(scatter.unsqueeze(-1), counts),
            examples=counts,
            counts=counts,
            trust=one_per_class,
            slopes=one_per_class,
            reach=one_per_task,
            steepness=one_per_task,
        )

    def with_means(self, offsets: Tensor, counts: Tensor, scatter: Tensor) -> Prototypes:
        """With other means [t, k, d], worth ``counts`` [t, k] samples, in the place of these."""
        errors = error_of_means(scatter.unsqueeze(-1), counts)
        return replace(
            self, offsets=offsets, squares=offsets.square().sum(-1) - errors, counts=counts
        )

    def with_classes(self, placed: Tensor, scatter: Tensor) -> Prototypes:
        """With further classes, each with one sample [t, n, d] that is placed already.

        The prototype is the sample itself. Shrunk towards the middle it would be near every query:
        of 112 birds of eight species, one of them new, a new class then took 54 and 12 of these were
        right, and takes 10 with 8 right.
        """
        ones = self.counts.new_ones(placed.shape[:2])
        squares = placed.square().sum(-1) - error_of_means(scatter.unsqueeze(-1), ones)
        return replace(
            self,
            offsets=torch.cat([self.offsets, placed], 1),
            squares=torch.cat([self.squares, squares], 1),
            counts=torch.cat([self.counts, ones], 1),
            examples=torch.cat([self.examples, ones], 1),
            trust=torch.cat([self.trust, ones], 1),
            slopes=torch.cat([self.slopes, ones], 1),
        )

    @property
    def n_classes(self) -> int:
        """K."""
        return self.offsets.shape[1]

    @property
    def errors(self) -> Tensor:
        """[t, k] e_k."""
        return self.offsets.square().sum(-1) - self.squares

    def squared_distances(self, placed: Tensor) -> Tensor:
        """[t, q, k] ‖z_q − w_k‖² − e_k for placed rows."""
        return distances_to(placed, self.offsets, self.squares)

    def of_members(self, scatter: Tensor) -> MemberDistances:
        """The distances of ``squared_distances`` that members of a class have.

        For the mean of n samples they are S on average, and where members vary so much more that
        their distance doubles, they grow by S (1 + 1/n). For shortened means these are
        S (1 + v_0 ln(v_k/v_0)) and S v_0, where v_k = 1 + 1/``counts`` and a_k = v_0/v_k.
        """
        scatter = scatter.clamp_min(torch.finfo(scatter.dtype).tiny).unsqueeze(-1)
        units = self.slopes * (1 + 1 / self.counts)
        return MemberDistances(mean=scatter * (1 - units * self.slopes.log()), unit=scatter * units)

    def unshrunk(self, scatter: Tensor) -> Prototypes:
        """The means of the samples again.

        They say how far a query is from a class; shrunk ones say which class is nearest.
        """
        plain = replace(
            self,
            trust=torch.ones_like(self.trust),
            reach=torch.ones_like(self.reach),
            slopes=torch.ones_like(self.slopes),
            steepness=torch.ones_like(self.steepness),
        )
        counts = torch.minimum(self.counts, self.examples)
        return plain.with_means(self.offsets / self.trust.unsqueeze(-1), counts, scatter)

    def shrunk(self, within: WithinClasses, n_varying: Tensor, constants: Constants) -> Prototypes:
        """As far as they can be trusted: means w̄_k, shrunk towards their middle.

        Let w̄_k be the mean of the n_k samples of a class, relative to the middle, and the class
        means normal around it with the variance ρS. The best guess of one is then r_k w̄_k with
        r_k = ρ/(ρ + 1/n_k), as if there were 1/ρ further samples in the middle.

        Real class means are not normal, and r_k shortens them too much: left-out samples of
        embeddings, tables and simulated features have the smallest cross-entropy half-way between
        r_k and 1. So what all classes have in common counts half, s_k = r_k / √max(r), and what
        they differ in counts whole. Two of 100 photographs with five examples were 76 % right with
        s_k = r_k and 80 with this; where classes are normal and features say little, s_k =
        r_k / max(r) costs up to 5 points.

        The samples of a class have the variance S v_k around its prototype, v_k = 1 + s_k/n_k:
        S s_k/n_k is what remains unknown of the class mean. With few features an error is as likely
        to make a prototype attractive: of the differences between the s_k/n_k only the part
        d/(d + N₀²) counts, with N₀ = ``few_columns``; for the rest all have the smallest.

        Where S is hardly known, prototypes stay longer: β s_k w̄_k with β = 1 for a known S and
        1/√max(r) for an unknown one, as for one sample of each class (``WithinClasses.known``). With
        many features a prototype counts as n_k / (β s_k) samples, by what remains unknown of it.
        """
        expected = _ExpectedLengths.of(self, within.scatter)
        root = expected.factors.amax(-1, keepdim=True).sqrt()
        halfway = expected.factors / root
        known = within.known(self.n_classes)
        lengthening = 1 / torch.lerp(root, torch.ones_like(root), known.unsqueeze(-1))
        share = (n_varying / (n_varying + constants.few_columns**2)).unsqueeze(-1)
        errors = _lerp_from_least(lengthening * halfway / self.counts, share)
        shortening = _Shortening(
            halfway=halfway,
            lengthening=lengthening,
            variances=1 + _lerp_from_least(halfway / self.counts, share),
            expected=expected,
        )
        trust = shortening.trust
        return replace(
            self,
            offsets=self.offsets * trust.unsqueeze(-1),
            squares=shortening.squares(self.offsets, within.scatter),
            counts=1 / errors,
            trust=trust,
            slopes=shortening.slopes,
            reach=(root / lengthening).squeeze(-1),
            steepness=torch.lerp(trust.amax(-1), trust.mean(-1), known),
        )


class MemberDistances(NamedTuple):
    """The squared distances that members of a class have from its prototype."""

    mean: Tensor  # [t, k]
    unit: Tensor  # [t, k] by how much they grow where members vary twice as much

    def relative(self, distances: Tensor) -> Tensor:
        """Distances [t, n, k] in those of members: 1 on average for these."""
        return 1 + (distances - self.mean.unsqueeze(1)) / self.unit.unsqueeze(1)

    def relative_to_one(self, distances: Tensor, classes: Tensor) -> Tensor:
        """The same for distances [t, n] of rows from one class each, [t, n]."""
        mean, unit = (of.expand(len(classes), -1).gather(1, classes) for of in self)
        return 1 + (distances - mean) / unit


@dataclass(frozen=True, eq=False, kw_only=True)
class _ExpectedLengths:
    """How long class means are expected to be; see ``Prototypes.shrunk``."""

    factors: Tensor  # [t, k] r_k, how long class means are in lengths of the means of their samples
    of_means: Tensor  # [t, k] E‖w̄_k‖², of the means of n_k samples
    of_rows: Tensor  # [t, 1] E‖z‖² / S of other rows

    @staticmethod
    def of(means: Prototypes, scatter: Tensor) -> _ExpectedLengths:
        """What the moments of the means say.

        ρ is estimated by moments, E‖w̄_k‖² = (1 − 1/K) ρS + ((1 − 2/K)/n_k + Σ_j 1/(n_j K²)) S, in
        which classes have the weights (ρ + 1/n_k)⁻² / (1 + ‖w̄_k‖²/(S (ρ + 1/n_k))): a far class
        counts less.
        """
        n_classes = means.n_classes
        scatter = scatter.clamp_min(torch.finfo(scatter.dtype).tiny).unsqueeze(-1)
        errors = 1 / means.counts
        error_of_middle = errors.mean(-1, keepdim=True) / n_classes
        by_error = (1 - 2 / n_classes) * errors + error_of_middle
        around_middle = 1 - 1 / n_classes  # the middle is that of these classes
        squares = means.offsets.square().sum(-1)
        lengths = (squares / scatter).clamp_max(_FARTHEST)
        excess = (lengths - by_error) / around_middle
        ratio = torch.zeros_like(scatter)
        for _ in range(_MOMENT_STEPS):
            # Of a far class the length hardly counts.
            bounded = 1 / (1 + lengths / (ratio + errors))
            weights = bounded * (ratio + errors) ** -2
            mean_excess = (excess * weights).sum(-1, keepdim=True) / weights.sum(-1, keepdim=True)
            ratio = mean_excess.clamp_min(0)
        return _ExpectedLengths(
            factors=(ratio / (ratio + errors)).clamp_min(_LEAST_FACTOR),
            of_means=scatter * (around_middle * ratio + by_error),
            of_rows=1 + around_middle * ratio + error_of_middle,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Shortening:
    """What makes the prototypes β a_k s_k w̄_k of means w̄_k; see ``Prototypes.shrunk``."""

    halfway: Tensor  # [t, k] s_k
    lengthening: Tensor  # [t, 1] β
    variances: Tensor  # [t, k] v_k
    expected: _ExpectedLengths

    @cached_property
    def least(self) -> Tensor:
        """[t, 1] v_0."""
        return self.variances.amin(-1, keepdim=True)

    @cached_property
    def slopes(self) -> Tensor:
        """[t, k] a_k = v_0/v_k."""
        return self.least / self.variances

    @cached_property
    def trust(self) -> Tensor:
        """[t, k] β a_k s_k."""
        return self.lengthening * self.slopes * self.halfway

    def squares(self, means: Tensor, scatter: Tensor) -> Tensor:
        """[t, k] ‖w_k‖² − e_k, for the means w̄_k [t, k, d].

        As normal features of the variances S v_k around s_k w̄_k, the samples of a class have the
        log-likelihood −½ τ (a_k ‖z − s_k w̄_k‖² + S v_0 ln(v_k/v_0)), where v_0 is the least v_k and
        a_k = v_0/v_k. All rows z are about as long, so that a_k ‖z‖² is replaced by a_k times the
        expected squared length: the rest is linear in z. Where S s_k/n_k was subtracted and τ was
        the same for all, classes of one example took the queries of others: with 1 to 20 examples,
        46 % of birds were right where SimpleShot has 43 and this has 68.

        All of this is multiplied by β. But what ‖w̄_k‖² has beyond its expectation counts
        a_k (β s_k)², as for prototypes that are β times as long: where β s_k = 1 for all classes,
        ℓ is the distance to their means.

        The distances to two classes differ by as much as before on average: τ is divided by the
        mean of β a_k s_k, and by a value near the largest where S is hardly known
        (``Prototypes.steepness``).
        """
        halfway = self.halfway
        lengthening = self.lengthening
        least = self.least
        slopes = self.slopes
        expected = self.expected
        logarithms = least * (self.variances / least).log()
        per_scatter = logarithms - (least - 1) - (1 - slopes) * expected.of_rows
        usual = slopes * halfway.square() * expected.of_means
        usual = lengthening * (usual + scatter.unsqueeze(-1) * per_scatter)
        unusual = means.square().sum(-1) - expected.of_means
        return usual + slopes * (lengthening * halfway).square() * unusual


def _lerp_from_least(values: Tensor, share: Tensor) -> Tensor:
    """Values [t, k] with a share [t, 1] of what they have beyond the least of them."""
    return torch.lerp(values.amin(-1, keepdim=True), values, share)
