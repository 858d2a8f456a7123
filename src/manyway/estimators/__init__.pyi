"""The estimators for editors and type checkers; made from the solvers by tests/estimator_stub.py."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from numpy.typing import ArrayLike

from manyway.estimators.base import TransductiveClassifier as TransductiveClassifier
from manyway.estimators.inference import Inference as Inference
from manyway.estimators.stream import StreamClassifier

METHOD_OF: dict[str, str]

class PADDLE(TransductiveClassifier):
    """Fit the queries with as few classes as needed, by penalised primal-dual updates (PADDLE)."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        lam: float | None = None,
        eps: float = 1e-06,
        max_iter: int = 100,
        tol: float | None = None,
        scale: str | None = "range",
        form: Literal["gram", "feature"] | None = None,
    ) -> None: ...

class SoftKMeans(TransductiveClassifier):
    """PADDLE without its partition-complexity term (λ = 0): soft K-means."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        max_iter: int = 100,
        tol: float | None = None,
        scale: str | None = "range",
        form: Literal["gram", "feature"] | None = None,
    ) -> None: ...

class PaddlePGD(TransductiveClassifier):
    """Minimise PADDLE's objective by projected gradient descent, without its dual and its barrier."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        optimizer: Literal["adam", "gradient"] = "adam",
        lr: float = 0.001,
        lam: float | None = None,
        eps: float = 1e-12,
        max_iter: int = 1000,
        tol: float | None = None,
        scale: str | None = "range",
    ) -> None: ...

class Baseline(TransductiveClassifier):
    """Fine-tune a Euclidean classifier on the support; each query is labelled on its own."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        logit_scale: float = 15.0,
        lr: float = 0.001,
        max_iter: int = 100,
        scale: str | None = "l2",
    ) -> None: ...

class BaselinePlusPlus(TransductiveClassifier):
    """Fine-tune a cosine classifier on the support; each query is labelled on its own."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        logit_scale: float = 15.0,
        lr: float = 0.001,
        max_iter: int = 100,
        scale: str | None = "l2",
    ) -> None: ...

class SimpleShot(TransductiveClassifier):
    """Nearest class mean, without transduction: the usual lower reference."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        scale: str | None = "cl2",
        logit_scale: float = 1.0,
    ) -> None: ...

class ICI(TransductiveClassifier):
    """Self-training of a logistic regression that adds the most credible queries first (LR+ICI)."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        c: float = 10.0,
        n_per_round: int = 5,
        n_components: int = 5,
        max_iter: int = 100,
        scale: str | None = "l2",
    ) -> None: ...

class BDCSPN(TransductiveClassifier):
    """Rectify prototypes with shifted, pseudo-labelled queries, and label by the nearest one."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        logit_scale: float = 50.0,
        weighting: Literal["classes", "samples"] = "classes",
        cosine: bool = False,
        scale: str | None = "cl2",
    ) -> None: ...

class PTMAP(TransductiveClassifier):
    """Assign equally many queries to every class by optimal transport, and move the class centres."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        step: float = 0.02,
        entropy_weight: float = 0.1,
        max_iter: int = 20,
        sinkhorn_tol: float = 1e-06,
        sinkhorn_iter: int = 1000,
        scale: str | None = "power",
    ) -> None: ...

class LaplacianShot(TransductiveClassifier):
    """Label by the nearest class mean, smoothed over the graph of nearest queries."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        graph_weight: float = 0.7,
        n_neighbors: int = 2,
        symmetric: bool = False,
        max_iter: int = 20,
        tol: float = 1e-06,
        scale: str | None = "cl2",
    ) -> None: ...

class UNEM(TransductiveClassifier):
    """Fit the queries by a few EM iterations, each with its own learned class-balance weight and temperature."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        parameters: str | PathLike[str] | Mapping[str, Any] = "letters",
        scale: str | None = "learned",
    ) -> None: ...

class OSLO(TransductiveClassifier):
    """Label queries, and score which of them are unknown, by prototypes that outliers hardly move."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        inlier_temperature: float = 0.05,
        temperature: float = 0.1,
        max_iter: int = 2,
        scale: str | None = "tcl2",
    ) -> None: ...

class EOL(TransductiveClassifier):
    """Label queries, and score which of them are unknown, by a classifier that may call them outliers."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        proportion: float = 0.5,
        logit_scale: float = 10.0,
        lr: float = 0.01,
        max_iter: int = 50,
        scale: str | None = "tcl2",
    ) -> None: ...

class TIM(TransductiveClassifier):
    """Maximise the mutual information between queries and classes by gradient steps."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        weights: Sequence[float] = (1.0, 0.3, 1.0),
        logit_scale: float = 15.0,
        lr: float = 0.0001,
        max_iter: int = 2000,
        scale: str | None = "l2",
    ) -> None: ...

class TIMADM(TransductiveClassifier):
    """Minimise TIM's loss by alternating closed-form updates, without gradients."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        weights: Sequence[float] = (0.1, 1.0, 0.1),
        logit_scale: float = 15.0,
        step: float = 1.0,
        max_iter: int = 150,
        scale: str | None = "l2",
    ) -> None: ...

class AlphaTIM(TransductiveClassifier):
    """TIM with α-entropies, which tolerate unequal class proportions."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        weights: Sequence[float] = (1.0, 1.0, 1.0),
        alphas: Sequence[float] = (7.0, 5.0),
        logit_scale: float = 15.0,
        lr: float = 0.0001,
        max_iter: int = 1000,
        scale: str | None = "l2",
    ) -> None: ...

class TransCLIP(TransductiveClassifier):
    """Gaussian classes with one diagonal variance, near a first guess, smoothed over nearest queries."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        gammas: Sequence[float] = (0.002, 0.01, 0.02, 0.2),
        choose: Literal["support", "last"] = "support",
        restart: bool = True,
        validation_shots: int | None = None,
        graph: Literal["sound", "ordered", "authors"] = "sound",
        logit_scale: float = 100.0,
        guess_weight: float = 0.5,
        n_neighbors: int = 3,
        tempering: float = 50.0,
        max_iter: int = 10,
        inner_iter: int = 5,
        scale: str | None = "cl2",
    ) -> None: ...

class StatA(TransductiveClassifier):
    """Gaussian classes, held at their class vectors by statistical anchors, smoothed over nearest queries."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        logit_scale: float = 100.0,
        anchor_weight: float = 1.0,
        soft_counts: bool = False,
        graph_weight: float = 1.0,
        n_neighbors: int = 3,
        tempering: float = 50.0,
        max_iter: int = 10,
        inner_iter: int = 5,
        scale: str | None = "cl2",
    ) -> None: ...

class MOON(TransductiveClassifier):
    """Von Mises-Fisher classes, held at their class vectors by anchors, smoothed over nearest queries."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        logit_scale: float = 100.0,
        graph_weight: float = 1.0,
        n_neighbors: int = 3,
        tempering: float = 50.0,
        max_concentration: float = 500.0,
        max_iter: int = 10,
        scale: str | None = "cl2",
    ) -> None: ...

class ZLaP(TransductiveClassifier):
    """Propagate labels from class vectors to queries over the graph of nearest queries."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        alpha: float = 0.3,
        power: float = 5.0,
        n_neighbors: int = 5,
        logit_scale: float = 100.0,
        scale: str | None = "cl2",
    ) -> None: ...

class AlphaAM(TransductiveClassifier):
    """Train a graph of centroids and samples so that labels that spread over it are right and certain."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        alpha: float | None = None,
        n_neighbors: int | None = None,
        weights: Sequence[float] = (1.0, 1.0, 1.0),
        alphas: Sequence[float] | None = None,
        logit_scale: float = 15.0,
        lr: float = 0.0001,
        max_iter: int = 1000,
        root: bool = True,
        scale: str | None = "tcl2",
    ) -> None: ...

class BPA(TransductiveClassifier):
    """Label by the nearest class mean of features that say how well an item matches every other."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        affinity_weight: float = 0.1,
        affinity_iter: int = 20,
        logit_scale: float = 2.0,
        scale: str | None = None,
    ) -> None: ...

class ADAPT(TransductiveClassifier):
    """Weigh the logits of class vectors by Gaussian classes that the most certain queries define."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        logit_scale: float = 100.0,
        bank_size: int = 6,
        queries_weight: float = 0.9,
        tempering: float = 100.0,
        negative: Literal["divide", "multiply"] = "divide",
        answer: Literal["both", "gaussian"] = "both",
        scale: str | None = "cl2",
    ) -> None: ...

class Evidence(StreamClassifier):
    """Calibrate distances on the support, then find the present classes by all queries' evidence."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        precision: float | None = None,
        metric: bool = True,
        likelihood: Literal["auto", "metric", "logistic"] = "metric",
        concentration: float | None = None,
        update_prototypes: bool = True,
        group_posterior: bool = True,
        merge_groups: bool = True,
        open_set: bool = False,
        adapt: Literal["auto"] | bool = "auto",
        rehearse: bool = True,
        max_iter: int = 50,
        tol: float = 0.01,
        scale: str | None = "auto",
        schedule: Mapping[str, Any] | None = None,
        unknown_label: Any = None,
    ) -> None: ...

class EMDirichlet(TransductiveClassifier):
    """Fit Dirichlet distributions to points of the simplex, with as few classes as needed (EM-Dirichlet)."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        lam: float | None = None,
        k_eff: int | None = None,
        m_step: Literal["exact", "authors"] = "exact",
        prior_weight: float = 1.0,
        logit_scale: float = 30.0,
        max_iter: int = 20,
        simplex: Literal["cosine", "given"] = "cosine",
        scale: str | None = "cl2",
    ) -> None: ...

class HardEMDirichlet(TransductiveClassifier):
    """Fit Dirichlet distributions to points of the simplex, each query in one class (Hard EM-Dirichlet)."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        lam: float | None = None,
        k_eff: int | None = None,
        m_step: Literal["exact", "authors"] = "exact",
        prior_weight: float = 1.0,
        logit_scale: float = 30.0,
        max_iter: int = 10,
        simplex: Literal["cosine", "given"] = "cosine",
        scale: str | None = "cl2",
    ) -> None: ...

class LabelShift(TransductiveClassifier):
    """Correct calibrated posteriors for the class proportions of the queries, by EM (label shift)."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        calibrate: bool = True,
        logit_scale: float = 20.0,
        max_iter: int = 1000,
        tol: float = 1e-06,
        scale: str | None = "cl2",
    ) -> None: ...

class MAPLS(TransductiveClassifier):
    """Correct posteriors for the class proportions of the queries, with a prior for equal ones."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        data_weight: float | None = None,
        source: Literal["uniform", "support"] = "uniform",
        logit_scale: float = 20.0,
        max_iter: int = 100,
        scale: str | None = "cl2",
    ) -> None: ...

class OSLS(TransductiveClassifier):
    """Correct posteriors for the proportions of the classes and of unknown queries."""

    def __init__(
        self,
        *,
        base_mean: ArrayLike | None = None,
        gate: Literal["auto", "step", "sigmoid"] = "auto",
        data_weight: float = 1.0,
        logit_scale: float = 20.0,
        max_iter: int = 100,
        scale: str | None = "cl2",
    ) -> None: ...
