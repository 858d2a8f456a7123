"""The constants of the calibration, with the reason for each value. ``schedule=`` of evidence reaches them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What a distance means where the support cannot say it, and how its metric is chosen."""

    # With one example per class nothing can be left out. The precision is then this value divided by the variance of
    # the features: the median of the best values on one-shot tasks.
    one_shot_precision: float = 16.0
    # The usual part of the features' variance that lies within classes; used for one example per class only.
    one_shot_scatter: float = 0.7
    # The standard deviation of the excess of a sample over its class (see `noise` in `calibration`), in units of the
    # scatter, where no class has two examples to learn it from.
    one_shot_noise: float = 0.2
    # Standard deviation of the log-normal prior of the precision. A few dozen left-out samples outweigh it.
    precision_prior_sd: float = 0.5
    # The values of γ that are tried besides 1 (see `metric`), about equally spaced in ln(γ/(1 − γ)).
    shrinkages: tuple[float, ...] = (0.95, 0.85, 0.6, 0.3)
    # A metric is used where its gain in cross-entropy is larger than this many standard errors.
    metric_gain: float = 1.0
