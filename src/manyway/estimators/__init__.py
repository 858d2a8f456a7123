"""scikit-learn classes, one per method: they validate, call the solver, and return what it found.

``fit`` keeps a copy of the labelled examples and prepares what depends on them alone; the queries are labelled in
``predict``, jointly over the whole batch. Nothing on the estimator changes there, so two batches never influence each
other. Parameters, their defaults and their descriptions are taken from the solvers.

The classes are in this module, and not in others of the package, because files of skops and pickles name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from manyway.core.solution import Solution
from manyway.estimators.base import TransductiveClassifier as TransductiveClassifier
from manyway.estimators.inference import Inference as Inference
from manyway.estimators.values import to_numpy
from manyway.methods.evidence.streams import Memory


class PADDLE(TransductiveClassifier, method="paddle"):
    pass


class SoftKMeans(TransductiveClassifier, method="soft-kmeans"):
    pass


class PaddlePGD(TransductiveClassifier, method="paddle-pgd"):
    pass


class Baseline(TransductiveClassifier, method="baseline"):
    pass


class BaselinePlusPlus(TransductiveClassifier, method="baseline++"):
    pass


class SimpleShot(TransductiveClassifier, method="simpleshot"):
    pass


class ICI(TransductiveClassifier, method="ici"):
    pass


class BDCSPN(TransductiveClassifier, method="bd-cspn"):
    pass


class PTMAP(TransductiveClassifier, method="pt-map"):
    pass


class LaplacianShot(TransductiveClassifier, method="laplacianshot"):
    pass


class UNEM(TransductiveClassifier, method="unem"):
    pass


class OSLO(TransductiveClassifier, method="oslo"):
    pass


class TIM(TransductiveClassifier, method="tim"):
    pass


class TIMADM(TransductiveClassifier, method="tim-adm"):
    pass


class AlphaTIM(TransductiveClassifier, method="alpha-tim"):
    pass


class TransCLIP(TransductiveClassifier, method="transclip"):
    pass


class StatA(TransductiveClassifier, method="stata"):
    pass


class MOON(TransductiveClassifier, method="moon"):
    pass


class ZLaP(TransductiveClassifier, method="zlap"):
    pass


class Evidence(TransductiveClassifier, method="evidence"):
    def _forget(self) -> None:
        self.memory_: Memory | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: what ``partial_infer`` remembers is saved as arrays."""
        state = super().__getstate__()
        if state.get("memory_") is not None:
            remembered = vars(state["memory_"]).items()
            state["memory_"] = {
                name: list(map(to_numpy, value)) if isinstance(value, tuple) else to_numpy(value)
                for name, value in remembered
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = state.get("memory_")
        if isinstance(memory, dict):
            tensors: dict[str, Any] = {
                name: tuple(map(torch.as_tensor, value)) if isinstance(value, list) else torch.as_tensor(value)
                for name, value in memory.items()
            }
            state = state | {"memory_": Memory(**tensors)}
        super().__setstate__(state)

    def partial_infer(
        self, X: Any, *, known: Mapping[int, Any] | None = None, with_objective: bool | None = None
    ) -> Inference:
        """Label the next batch of a stream, with what earlier batches taught, and remember it.

        Batches arrive one after another, and each call labels one. Where the evidence says that the batch continues
        earlier ones (the same classes in similar proportions), it is labelled jointly with their items; where it says
        that classes have changed, the answer is that of ``infer``. Answers to earlier batches do not change. ``fit``
        starts a new stream. The last 1,024 items at most are remembered.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the new batch.
        known : mapping of int to label, optional
            Labels that are known for some rows of X, as in ``infer``. They are remembered.
        with_objective : bool, optional
            As in ``infer``. Where the batch is labelled jointly with earlier ones, the objective is that of all.

        Returns
        -------
        Inference
            For the rows of X.

        Notes
        -----
        See ``manyway.methods.evidence.streams``.

        Examples
        --------
        >>> from manyway import Evidence
        >>> clf = Evidence().fit([[0, 0, 1, 5, 5, 4], [5, 4, 5, 0, 1, 0]], ["ant", "bee"])
        >>> clf.partial_infer([[0, 1, 0, 4, 5, 5], [1, 0, 0, 5, 4, 5]]).labels.tolist()
        ['ant', 'ant']
        >>> clf.partial_infer([[0, 0, 0, 4, 5, 4]]).labels.tolist()
        ['ant']
        """
        tasks = replace(self._tasks(X, known), earlier=self.memory_ or ())

        def solve(**recorded: bool) -> Solution:
            solution = self._answer(tasks, **recorded)
            self.memory_ = solution.memory
            return solution

        return self._inference(X, with_objective, solve)


class EMDirichlet(TransductiveClassifier, method="em-dirichlet"):
    pass


class HardEMDirichlet(TransductiveClassifier, method="hard-em-dirichlet"):
    pass


class LabelShift(TransductiveClassifier, method="label-shift"):
    pass


ESTIMATORS: Mapping[str, type[TransductiveClassifier]] = {
    estimator.method: estimator for estimator in TransductiveClassifier.__subclasses__()
}
