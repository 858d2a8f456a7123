"""The constants of the calibration, with the reason for each value.

``schedule=`` of evidence reaches them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What a distance means where the support cannot say it, and how its metric is chosen."""

    # --- The representation (see `representation`) ---
    # N₀, the effective number of columns with which rows are shortened half-way to unit length.
    # With N₀² columns, errors of single prototypes are half averaged out: half of what they say
    # counts (see `Prototypes.shrunk`, and `calibrate` of evidence for one example per class).
    # Classes of one and of twenty examples, d = 4, 32, 128, 512: 57, 46, 53, 73 % right with all
    # differences between errors of prototypes, and 62, 71, 69, 72 % with d/(d + N₀²) of them.
    few_columns: float = 8.0

    # --- The precision ---
    # With one example per class nothing can be left out. The precision is then this value divided
    # by the variance of the features: the median of the best values on one-shot tasks.
    one_shot_precision: float = 16.0
    # The usual part of the features' variance that lies within classes; used for one example per
    # class only.
    one_shot_scatter: float = 0.7
    # The standard deviation of the excess of a sample over its class (see `WithinClasses.noise`),
    # in units of the scatter, where no class has two examples to learn it from. 0.2 to 0.4 with
    # five; less, because the scatter is then guessed high.
    one_shot_noise: float = 0.17
    # The number of left-out samples with which final probabilities have the power ½ (see
    # `calibration.power_of_few_examples`): from 76 tables of KEEL and R with 1 to 50 examples. Half of it, divided
    # by the number of left-out samples, is the part by which σ of unknown queries exceeds that of
    # these samples (see `judge` of evidence).
    doubtful_examples: float = 10.0

    # --- Wrong labels (see `wrong_labels`) ---
    # The probability that some labels of the examples are wrong: usually none is. A few dozen
    # examples of many classes outweigh it; 0.05 finds fewer wrong labels among few classes, and both
    # change hardly an answer where all labels are right.
    wrong_labels: float = 0.3
