"""Every constant of evidence, in one place, with the reason for its value.

docs/evidence.md has a table of the effect of each: accuracy and calibration without it, on the study's sets.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from manyway.methods.evidence.prior import effective_number


@dataclass(frozen=True)
class Schedule:
    """The constants of calibration, search and post-processing."""

    # --- Calibration on the support ---
    # With one example per class nothing can be left out. The precision is then this value divided by the variance of
    # the features: the median of the best values on one-shot tasks.
    one_shot_precision: float = 16.0
    # The usual part of the features' variance that lies within classes; used for one example per class only.
    one_shot_scatter: float = 0.7
    # Probabilities with one example per class are raised to a power near this value, which pairs of queries decide;
    # see `one_shot`. Second: the standard deviation of its logarithm.
    one_shot_power: float = 0.75
    one_shot_power_sd: float = 0.2
    # Standard deviation of the log-normal prior of the precision. A few dozen left-out samples outweigh it.
    precision_prior_sd: float = 0.5
    # The values of γ that are tried besides 1 (see `metric`), about equally spaced in ln(γ/(1 − γ)).
    shrinkages: tuple[float, ...] = (0.95, 0.85, 0.6, 0.3)
    # A metric is used where its gain in cross-entropy is larger than this many standard errors.
    metric_gain: float = 1.0

    # --- Search: the log-likelihoods ℓ are multiplied by a sharpness that changes from update to update ---
    # Annealing. The first assignments use anneal_from·ℓ, so that queries agree on classes before each one is certain.
    anneal_from: float = 0.35
    # Number of updates in which the sharpness rises to 1.
    anneal_steps: int = 15
    # Where queries agree less than this (see `agreement`), many classes are present: each class has few queries, and
    # neighbours of another class mislead more than they help. The search then uses sharper likelihoods throughout.
    agreement_below: float = 2 / 3
    many_classes_sharpness: float = 1.5

    # --- Post-processing of groups: the queries assigned to one class ---
    # The queries of a group share the error of their prototype, so they are not independent. Their correlation is
    # shared_error + 1/(n + 1) for n examples; the first part does not shrink with more examples.
    shared_error: float = 0.2
    # A small group may be a fragment of a larger one. Fragments are looked for where few groups were found: the
    # probability fades to 0 at this effective number.
    most_groups_with_fragments: float = 6.0

    # --- Queries of no class ---
    # The excess of a group over its nearest prototype (see `unknown`) has this standard deviation, in units of the
    # scatter, where no class has two examples to learn it from.
    one_shot_noise: float = 0.2
    # The probability that a query of a class looks as if it were of none. It limits what a single group can say.
    odd_members: float = 0.05
    # The probability that no query is unknown; otherwise the proportion p has the density b(1 − p)^(b − 1).
    none_unknown: float = 0.5
    unknown_rarity: float = 2.0
    # Two groups speak for a query: that around it, and that of its class. Their log-ratios share most of their
    # evidence, so that their mean is used. Where the group around a query is smaller than the group of its class by
    # more than this factor, it is a part of it, and the group of the class counts more.
    part_of_class: float = 3.0
    # Groups are mixed: queries of no class lie among those of a class, and look like them. So this part of the evidence
    # against an ideal member of a class is taken back, up to the second value.
    mixed_groups: float = 2 / 3
    mixed_groups_at_most: float = 0.6
    # The usual spread of the excess of classes that are left out, relative to its mean, and how many classes it counts.
    usual_spread: float = 0.6
    usual_spread_weight: float = 4.0

    @property
    def annealing(self) -> list[float]:
        """The sharpness of each update of the annealing; empty without annealing."""
        if self.anneal_from >= 1:
            return []
        return [self.anneal_from ** (1 - step / self.anneal_steps) for step in range(self.anneal_steps)]

    def sharpness(self, masses: Tensor) -> Tensor:
        """[t] the sharpness of the iterations, given the expected class counts [t, k] after annealing."""
        sharper = agreement(masses) < self.agreement_below
        return masses.new_ones(len(masses)).masked_fill_(sharper, self.many_classes_sharpness)


def agreement(masses: Tensor) -> Tensor:
    """[t] 1 − N / min(|Q|, K), where N is the effective number of classes.

    Near 1 where few classes have many queries each. 0 where all classes, or as many as there are queries, are equally
    frequent.
    """
    most = masses.sum(-1).clamp_max(masses.shape[-1])
    return (1 - effective_number(masses) / most).clamp_min(0)
