"""Every number of the scores of a classifier that changes an answer, with its reason."""

from dataclasses import dataclass

# No mean probability is taken for surer than this: a classifier may say 0 and 1 of everything.
SUREST = 1e-3


@dataclass(frozen=True, kw_only=True)
class ScoreConstants:
    """Chosen on one half of the classes of 15 classifiers: lid.176, and classifiers of CLINC150, CUB-200, CIFAR-100.

    The classifiers are logistic regressions, naive Bayes, a linear machine, neighbours, a forest, rounded and cut
    scores, and a simulated one that prefers some classes.
    The other half of the classes is for reports; for claims and lists it was looked at, too.
    """

    # --- calibrate ---
    # The mean highest probability that a classifier is sharpened to, at least. A classifier in doubt (a forest, or
    # thousands of classes) would let one class explain everything.
    scores_sure: float = 0.7
    # The log-probabilities of an item beyond this quantile, and below its mirror, are cut when preferences are
    # learned: the likely classes of an item say what it is, not what the classifier likes.
    scores_background: float = 0.9
    # The standard deviation of preferences, in nats. Stronger ones are shrunk to it; where scores hide them (lists of
    # the five best classes), so much is assumed.
    scores_preference: float = 1.25
    # What a labelled item that is exactly alike counts beside the classifier, and the power of their likeness. With a
    # power of 16, eight labels of 120 no longer correct a class that goes by another name.
    scores_alike: float = 8.0

    # --- gate ---
    # The gain in nats at which batch and classifier have an equal say.
    scores_gain: float = 0.6
    # The part of the classifier's own counts in the proportions of the batch: a class that the classifier expects in
    # many items is not dissolved in a larger one.
    scores_own: float = 0.3

    # --- confidence ---
    # How much the classifier's own claims count in the log-odds that labels are right; the rest is what the model
    # claims. Second: what is subtracted from them, because items share errors.
    scores_claim: float = 0.25
    scores_shared: float = 0.7

    # --- count ---
    # The log-odds that a class occurs which has half as many items as usual, and no neighbours. On the choosing half of
    # `benchmarks.score_lists` 3.4 % of the listed classes are absent, of 36 further classifiers, most of them poorer,
    # 6 %; with 0.1 less, five points fewer are found.
    scores_right: float = 2.5

    # --- several classes per item ---
    # What the batch may add to the log-odds of a class where items have two classes: more than that nobody knows.
    several_most: float = 5.0
