"""``METHODS``, the table of methods, and ``solve``, which runs one of them.

The table names where each solver lives and imports it on first use,
so that reading the table does not load torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, cast
from warnings import warn

from manyway import core  # its parts are imported at their first use, which loads torch
from manyway.core.arguments import annotations_of, checks_arguments
from manyway.errors import ConvergenceWarning, InputError, named, nearest
from manyway.methods._table.checks import check_params, check_samples, check_solution
from manyway.methods._table.parameters import (
    described_parameters,
    doc_entries,
    doc_sections,
    first_line,
)

_DATA = ("prepared",)  # arguments of solvers that are data, not parameters
_NO_CHANGE = ("with_objective", "carry")  # parameters that do not change the answers for one task


@dataclass(frozen=True)
class Method:
    """A solver, and what the library needs to know about it."""

    name: str
    title: str
    # "module:function" below manyway.methods, or the function itself
    home: str | Callable[..., core.Solution]
    reference: str
    transductive: bool = True
    # whether it keeps every support sample in memory, or on this type of device only
    holds_support: bool | str = False
    version: int = 1  # rises when the method's answers change; stored results remember it
    # whether it has a stopping rule that no parameter `tol` switches on
    stops_without_tol: bool = False
    # What depends on the support alone, "module:function" or the function: (tasks, **parameters) -> prepared, a
    # dataclass of tensors, or None where nothing can be prepared with these parameters. Solvers take it as `prepared`.
    prepare: str | Callable[..., Any] | None = None
    # The same method for one task whose queries are read in blocks (``Tasks.pile``), "module:function" or the function;
    # None where the method needs all queries at once.
    in_blocks: str | Callable[..., Any] | None = None
    # whether it uses the class features of tasks; classes then need no support sample
    class_features: bool = False
    # For methods with parameters that were learned on other tasks: (params, *, shots, n_classes, n_query, k_eff) -> a
    # sentence where tasks of these sizes differ from those, or None. "module:function" or the function.
    training: str | Callable[..., str | None] | None = None
    # whether known labels of queries, earlier batches and several classes are of use
    takes_known: bool = False
    # whether it takes the scores of a classifier as they are; others take them as features
    scores: bool = False
    # whether features may be missing (``Tasks.gaps``)
    takes_gaps: bool = False
    # parameters that say something about scores alone, which estimators of features do not have
    of_scores: tuple[str, ...] = ()
    # attributes of what is prepared that estimators show, as `precision_`
    learned: tuple[str, ...] = ()

    @cached_property
    def solver(self) -> Callable[..., core.Solution]:
        """The function itself, imported now."""
        return _imported(self.home)

    @cached_property
    def preparation(self) -> Callable[..., Any] | None:
        """The function that prepares for a support, imported now.

        None where the method has nothing to prepare.
        """
        return None if self.prepare is None else _imported(self.prepare)

    @cached_property
    def streamed(self) -> Callable[..., core.Solution] | None:
        """The function for queries in blocks, imported now.

        None where the method needs all queries at once.
        """
        return None if self.in_blocks is None else _imported(self.in_blocks)

    @property
    def summary(self) -> str:
        """What it does: the first line of its docstring.

        It is read from the source, so that torch is not loaded.
        """
        if not isinstance(self.home, str):
            return (inspect.getdoc(self.home) or "").partition("\n")[0]
        return first_line(*_place(self.home))

    @property
    def argument_docs(self) -> dict[str, str]:
        """Its arguments by name, as its docstring describes them.

        They are read from the source, so that torch is not loaded.
        """
        if not isinstance(self.home, str):
            return doc_entries(doc_sections(inspect.getdoc(self.home) or "").get("Parameters", ""))
        return described_parameters(*_place(self.home))

    @property
    def parameter_docs(self) -> dict[str, str]:
        """The same for the ``parameters`` alone."""
        left_out = ("tasks", *_DATA, *_NO_CHANGE)
        return {name: entry for name, entry in self.argument_docs.items() if name not in left_out}

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters with their default values.

        ``prepared`` and ``known`` are data, not parameters.
        """
        known = inspect.signature(self.solver).parameters.values()
        return {
            one.name: one.default
            for one in known
            if one.kind is one.KEYWORD_ONLY and one.name not in _DATA
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """The defaults of the parameters that change the answers for one task."""
        return {name: value for name, value in self.defaults.items() if name not in _NO_CHANGE}

    def check(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters that the method does not have, or with values that it cannot use."""
        unknown = sorted(set(params) - set(self.defaults))
        if unknown:
            hint = nearest(unknown[0], self.defaults)
            raise InputError(f"{self.name} has no parameter '{unknown[0]}'; {hint}")
        check_params(self.name, params, self._annotations)

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        """The types of the solver's parameters, from its signature.

        One that cannot be resolved is Any.
        """
        return annotations_of(self.solver)

    def __call__(
        self, tasks: core.Tasks, *, prepared: Any = None, known: Any = None, **params: Any
    ) -> core.Solution:
        import torch

        self.check(params)
        tasks = tasks.with_known(known)
        if tasks.scores and not self.scores:
            tasks = tasks.scores_as_features(class_features=self.class_features)
        self._refuse(tasks)
        given = {} if prepared is None else {"prepared": prepared}
        solver = self.solver
        if tasks.pile is not None:
            solver = self._row_by_row if self.streamed is None else self.streamed
        with torch.no_grad(), core.threads_for(tasks.n_query * tasks.n_classes):
            solution = solver(tasks, **params, **given)
            check_solution(self.name, tasks, solution)
        return solution

    def _refuse(self, tasks: core.Tasks) -> None:
        """What a method cannot do is said here, once."""
        if not self.class_features and not tasks.scores:
            check_samples(self.name, tasks)
        if tasks.gaps and not self.takes_gaps:
            raise InputError(f"{self.name} {needs_whole_rows()}")
        able = ", ".join(method.name for method in METHODS.values() if method.takes_known)
        if tasks.known is not None and not self.takes_known:
            raise InputError(
                f"{self.name} cannot use known labels of queries; use {able}, or leave `known` out."
            )
        if tasks.earlier is not None and not self.takes_known:
            raise InputError(f"{self.name} cannot use earlier batches; use {able}.")
        if tasks.several and not self.takes_known:
            raise InputError(f"{self.name} cannot answer several classes; use {able}.")
        if tasks.pile is not None and self.in_blocks is None and self.transductive:
            others = (
                one for one in METHODS.values() if one.class_features or tasks.class_table is None
            )
            able = " or ".join(one.name for one in others if one.in_blocks is not None)
            many = (
                f"{tasks.n_query} items and {tasks.n_classes} classes cannot be labelled by "
                f"{self.name} in blocks"
            )
            raise InputError(
                f"{many}; choose the `method` {able}, or cut the items into smaller batches."
            )

    def _row_by_row(
        self, tasks: core.Tasks, *, prepared: Any = None, **params: Any
    ) -> core.Solution:
        """The answers of a method that answers each query on its own, for a pile."""

        if prepared is None and self.preparation is not None:
            prepared = self.preparation(tasks, **{**self.parameters, **params})
        assert tasks.pile is not None
        work = partial(_row_by_row, self.name, tasks, {**params, "prepared": prepared})
        return core.Solution(core.Reading(tasks.pile, work), 1, True)

    def unfinished(self, solution: core.Solution, params: Mapping[str, Any]) -> str | None:
        """A sentence where an iteration limit was reached before the stopping rule was met.

        None where it was not.
        """
        values = {**self.defaults, **params}
        if values.get("tol") is None and not self.stops_without_tol:
            return None
        n_tasks = len(solution.converged)
        n_left = int((~solution.converged).sum())
        limits = " or ".join(name for name in values if name.endswith("_iter"))
        if n_left == 0:
            return None
        return f"{self.name} did not converge in {n_left} of {n_tasks} tasks; raise {limits}."

    def unlike_training(
        self,
        params: Mapping[str, Any],
        *,
        shots: float,
        n_classes: int,
        n_query: int,
        k_eff: int | None = None,
    ) -> str | None:
        """A sentence where tasks differ from those that learned parameters are for.

        None where they do not.
        """
        if self.training is None:
            return None
        sizes = {"shots": shots, "n_classes": n_classes, "n_query": n_query, "k_eff": k_eff}
        return cast("str | None", _imported(self.training)({**self.defaults, **params}, **sizes))

    def remarks(
        self, tasks: core.Tasks, solution: core.Solution, params: Mapping[str, Any]
    ) -> list[tuple[str, bool]]:
        """What to warn of after solving tasks, each with whether it is about convergence.

        How many classes are present is not known,
        so that learned parameters are not asked about it.
        """
        shots = tasks.n_support / tasks.n_classes
        unlike = self.unlike_training(
            params, shots=shots, n_classes=tasks.n_classes, n_query=tasks.n_query
        )
        both = ((self.unfinished(solution, params), True), (unlike, False))
        return [
            (sentence, about_convergence)
            for sentence, about_convergence in both
            if sentence is not None
        ]


def needs_whole_rows() -> str:
    """What is said of a method that cannot work with missing features."""
    able = ", ".join(method.name for method in METHODS.values() if method.takes_gaps)
    hint = f"use {able}, or leave out rows or columns with gaps"
    return f"needs a number in every cell, and some are missing (NaN); {hint}."


def _row_by_row(
    method: str, tasks: core.Tasks, params: Mapping[str, Any], rows: Any, memory: Any
) -> Any:
    """From the rows [1, b, d] of a block to answers.

    The method is one that answers each query on its own.
    """

    block = replace(tasks, query_table=rows, query_index=None, pile=None)
    return core.Answered(METHODS[method](block, **params).probabilities)


def _imported(home: str | Callable[..., Any]) -> Callable[..., Any]:
    """A function, or the one that "module:function" below manyway.methods names, imported now."""
    if not isinstance(home, str):
        return home
    module, function = _place(home)
    return cast("Callable[..., Any]", getattr(import_module(module), function))


def _place(home: str) -> tuple[str, str]:
    """The full name of a module, and the name of a function in it, of "module:function"."""
    module, _, function = home.partition(":")
    return f"manyway.methods.{module}", function


_ALL = (
    Method("paddle", "PADDLE", "paddle.solver:paddle", "Martin et al., NeurIPS 2022", version=2,
           in_blocks="paddle.streamed:paddle_in_blocks"),
    Method("soft-kmeans", "soft K-means", "paddle.solver:soft_kmeans", "ablation of Martin et al., NeurIPS 2022",
           version=2, in_blocks="paddle.streamed:soft_kmeans_in_blocks"),
    Method("paddle-pgd", "PADDLE by PGD", "paddle.gradient:paddle_pgd", "ablation of Martin et al., NeurIPS 2022"),
    Method("baseline", "Baseline", "gradient.baseline:baseline", "Chen et al., ICLR 2019",
           transductive=False, holds_support=True, prepare="gradient.baseline:prepare_baseline"),
    Method("baseline++", "Baseline++", "gradient.baseline:baseline_pp", "Chen et al., ICLR 2019",
           transductive=False, holds_support=True, prepare="gradient.baseline:prepare_baseline_pp"),
    Method("simpleshot", "SimpleShot", "simpleshot:simpleshot", "Wang et al., 2019",
           transductive=False, prepare="simpleshot:prepare_simpleshot"),
    Method("ici", "LR+ICI", "ici.solver:ici", "Wang et al., CVPR 2020", holds_support=True, stops_without_tol=True),
    Method("bd-cspn", "BD-CSPN", "bd_cspn:bd_cspn", "Liu et al., ECCV 2020", holds_support=True),
    Method("pt-map", "PT-MAP", "pt_map:pt_map", "Hu et al., ICANN 2021", holds_support=True, stops_without_tol=True),
    Method("laplacianshot", "LaplacianShot", "laplacianshot:laplacianshot", "Ziko et al., ICML 2020"),
    Method("unem", "UNEM", "unem.solver:unem", "Zhou et al., CVPR 2025", training="unem.parameters:unlike_training"),
    Method("oslo", "OSLO", "oslo:oslo", "Boudiaf et al., CVPR 2023", holds_support=True),
    Method("eol", "EOL", "eol:eol", "Ochal et al., 2024", holds_support=True),
    Method("tim", "TIM", "gradient.tim:tim", "Boudiaf et al., NeurIPS 2020", holds_support=True),
    Method("tim-adm", "TIM-ADM", "gradient.tim:tim_adm", "Boudiaf et al., NeurIPS 2020", holds_support=True),
    Method("alpha-tim", "α-TIM", "gradient.tim:alpha_tim", "Veilleux et al., NeurIPS 2021", holds_support=True),
    Method("transclip", "TransCLIP", "graph.transclip:transclip", "Zanella et al., NeurIPS 2024",
           holds_support=True, class_features=True),
    Method("stata", "StatA", "graph.anchors:stata", "Zanella et al., CVPR 2025", class_features=True),
    Method("moon", "MOON", "graph.anchors:moon", "von Mises–Fisher relative of StatA", class_features=True),
    Method("zlap", "ZLaP", "graph.zlap:zlap", "Stojnić et al., CVPR 2024", class_features=True),
    Method("alpha-am", "α-AM", "graph.alpha_am:alpha_am", "Lazarou et al., WACV 2024", holds_support=True),
    Method("bpa", "BPA", "bpa:bpa", "Shalam and Korman, ICML 2024", holds_support=True),
    Method("adapt", "ADAPT", "adapt:adapt", "Zhang et al., NeurIPS 2025", class_features=True),
    Method("evidence", "Evidence", "evidence.solver:evidence", "this project, docs/evidence.md", version=30,
           holds_support=True, class_features=True, scores=True, of_scores=("temperature",), takes_known=True,
           takes_gaps=True, learned=("precision",),
           prepare="evidence.solver:prepare_evidence", in_blocks="evidence.solver:evidence"),
    Method("em-dirichlet", "EM-Dirichlet", "dirichlet.solver:em_dirichlet", "Martin et al., CVPR 2024",
           holds_support=True, class_features=True),
    Method("hard-em-dirichlet", "Hard EM-Dirichlet", "dirichlet.solver:hard_em_dirichlet", "Martin et al., CVPR 2024",
           holds_support=True, class_features=True),
    Method("label-shift", "Label shift", "label_shift:label_shift", "Saerens et al., 2002",
           holds_support=True, class_features=True, version=3, scores=True),
    Method("mapls", "MAPLS", "mapls:mapls", "Ye et al., WACV 2024",
           holds_support=True, class_features=True, scores=True),
    Method("osls", "OSLS", "osls:osls", "Ye et al., CVPR 2025", holds_support=True),
)  # fmt: skip
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}
DEFAULT_METHOD = "evidence"  # the one to start with: it needs neither K_eff nor a temperature


def get_method(name: str) -> Method:
    """The method of that name; an unknown one is an error that names the nearest."""
    return named(METHODS, name, "method")


@checks_arguments
def solve(method: str, tasks: core.Tasks, **params: Any) -> core.Solution:
    """Run the named method on a batch of tasks.

    Parameters
    ----------
    method : str
        A name in ``METHODS``, for example ``"evidence"``.
    tasks : Tasks
        The tasks to solve, all at once.
    **params
        The method's own parameters; see ``manyway methods NAME``.

    Returns
    -------
    Solution
        Class probabilities ``[t, q, k]``, and the further results of the method.

    Warns
    -----
    ConvergenceWarning
        If tasks reached an iteration limit before the method's stopping rule was met.
    UserWarning
        If tasks differ from those that the method's parameters were learned on.

    Examples
    --------
    >>> from manyway import Tasks, solve
    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> solve("simpleshot", tasks).labels.tolist()
    [[0, 1]]
    """
    found = get_method(method)
    solution = found(tasks, **params)
    for sentence, about_convergence in found.remarks(tasks, solution, params):
        warn(sentence, ConvergenceWarning if about_convergence else UserWarning, stacklevel=2)
    return solution
