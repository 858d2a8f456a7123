"""The constants of the calibration, with the reason for each value. ``schedule=`` of evidence reaches them."""

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
    # scatter, where no class has two examples to learn it from. 0.2 to 0.4 with five; less, because the scatter is then
    # guessed high.
    one_shot_noise: float = 0.17
    # Standard deviation of the log-normal prior of the precision. A few dozen left-out samples outweigh it.
    precision_prior_sd: float = 0.5
    # The same with few features, which have no usual precision; and half of the number of left-out samples with which
    # final probabilities have the power ½ (see `calibration`): from 76 tables of KEEL and R with 1 to 50 examples.
    few_features_prior_sd: float = 1.0
    few_features_doubt: float = 5.0
    # The values of γ that are tried besides 1 (see `metric`), about equally spaced in ln(γ/(1 − γ)).
    shrinkages: tuple[float, ...] = (0.95, 0.85, 0.6, 0.3)
    # Further values, tried where there are few features: at most as many as the first value says; or many contrasts per
    # feature: as many as the second says.
    little_shrinkages: tuple[float, ...] = (0.1, 0.03, 0.01)
    few_features: int = 64
    many_contrasts: float = 4.0
    # With few features and f degrees of freedom, γ below d/(d + 4f) has a price (see `calibration`). As a strict limit
    # it costs 12 points on five correlated measurements with two examples per class.
    metric_freedom: float = 4.0
    # A metric of many features is used where its gain in cross-entropy is larger than this many standard errors. With
    # few features any gain does: columns of tables are mostly correlated. That is worth 0.2 points on 28 tables of KEEL
    # with five examples per class where all classes occur, and 0.6 where few do.
    metric_gain: float = 1.0

    # The first step (see `calibration.first_step`). What can be seen: columns are divided by their scale where the
    # variance of the logarithms of their variances exceeds chance by the first value, if there are as many degrees of
    # freedom as the second says. Rows get unit length where as many columns matter as the third says.
    unequal_columns: float = 2.0
    least_freedom: float = 2.0
    many_columns: float = 8.0
    # Features with at least so many columns that matter, and at most so unequal ones, look like embeddings.
    usual_columns: float = 32.0
    usual_unequal: float = 1.0
    # Rows whose scaled features are larger than this on average (root mean square) are longer than 1.
    far_rows: float = 3.0
    # Another way than the one that can be seen must gain so many standard errors.
    way_gain: float = 2.0
    # The n samples of a class count as n/(1 + n/8) where classes have different numbers of samples.
    class_limit: float = 8.0
    # Prototypes are shrunk (see `Calibration.shrunk`) where class means differ less than prototypes err, that is, where
    # the factor by which the best guess is shorter is below this.
    trust_above: float = 0.5
    # Tuned prototypes (see `calibration.tuning`): the numbers of steps that are tried, and how many examples of each
    # class there must be.
    tuning_steps: tuple[int, ...] = (2, 4, 8)
    tuning_examples: float = 5.0
