"""A classifier that also labels batches which arrive one after another."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from manyway.core import Solution, mapped
from manyway.estimators.base import TransductiveClassifier
from manyway.estimators.inference import Inference
from manyway.estimators.values import to_numpy
from manyway.methods.evidence.streams import StreamMemory


class StreamClassifier(TransductiveClassifier):
    """``partial_infer``, which ``Evidence`` has besides what all methods share.

    It remembers earlier batches.
    """

    def _forget(self) -> None:
        self.memory_: StreamMemory | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: what ``partial_infer`` remembers is saved as arrays."""
        state = super().__getstate__()
        if state.get("memory_") is not None:
            state["memory_"] = {
                name: mapped(value, to_numpy) for name, value in vars(state["memory_"]).items()
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = state.get("memory_")
        if isinstance(memory, dict):
            held = {name: _tensors(value) for name, value in memory.items()}
            state = state | {"memory_": StreamMemory(**held)}
        super().__setstate__(state)

    def partial_infer(
        self, X: Any, *, known: Mapping[int, Any] | None = None, with_objective: bool | None = None
    ) -> Inference:
        """Label the next batch of a stream, with what earlier batches taught, and remember it.

        Batches arrive one after another, and each call labels one. Where the evidence says that the
        batch continues earlier ones (the same classes in similar proportions), it is labelled
        jointly with their items; where it says that classes have changed, the answer is that of
        ``infer``. Answers to earlier batches do not change. ``fit`` starts a new stream. The last
        1,024 items at most are remembered.

        Parameters
        ----------
        X : array of shape [q, d]
            The features of the new batch.
        known : mapping of int to label, optional
            Labels that are known for some rows of X, as in ``infer``. They are remembered.
        with_objective : bool, optional
            As in ``infer``. Where the batch is labelled jointly with earlier ones,
            the objective is that of all.

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


def _tensors(values: Any) -> Any:
    return (
        tuple(map(torch.as_tensor, values))
        if isinstance(values, tuple)
        else torch.as_tensor(values)
    )
