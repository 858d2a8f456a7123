"""METHODS: the one table of methods, and ``solve``, the one way to run them.

The table names where each solver lives and imports it on first use, so that reading the table does not load torch.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyway.errors import InputError, nearest

if TYPE_CHECKING:
    from manyway.core.solution import Solution
    from manyway.core.tasks import Tasks


@dataclass(frozen=True)
class Method:
    """A solver with what tables and messages say about it."""

    name: str
    title: str
    home: str | Callable[..., Solution]  # "module:function" below manyway.methods, or the function itself
    reference: str
    transductive: bool = True
    holds_support: bool = False  # whether it keeps every support sample in memory, not only class sums
    version: int = 1  # rises when the method's answers change; stored results remember it

    @cached_property
    def solver(self) -> Callable[..., Solution]:
        """The function itself, imported now."""
        if not isinstance(self.home, str):
            return self.home
        module, _, function = self.home.partition(":")
        solver: Callable[..., Solution] = getattr(import_module(f"manyway.methods.{module}"), function)
        return solver

    @property
    def summary(self) -> str:
        """What it does: the first line of its docstring, read from the source so that torch is not loaded."""
        if not isinstance(self.home, str):
            return (inspect.getdoc(self.home) or "").partition("\n")[0]
        module, _, function = self.home.partition(":")
        spec = find_spec(f"manyway.methods.{module}")
        assert spec is not None
        assert spec.origin is not None
        body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        found = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == function)
        return (ast.get_docstring(found) or "").partition("\n")[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters with their default values."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.solver).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def __call__(self, tasks: Tasks, **params: Any) -> Solution:
        import torch

        unknown = sorted(set(params) - set(self.defaults))
        if unknown:
            hint = nearest(unknown[0], self.defaults)
            raise InputError(f"{self.name} has no parameter '{unknown[0]}'; {hint}")
        with torch.no_grad():
            return self.solver(tasks, **params)


def _table(*methods: Method) -> Mapping[str, Method]:
    table = {method.name: method for method in methods}
    if len(table) != len(methods):
        raise ValueError("two methods have the same name")
    return table


METHODS: Mapping[str, Method] = _table(
    Method("paddle", "PADDLE", "paddle.solver:paddle", "Martin et al., NeurIPS 2022"),
    Method("soft-kmeans", "soft K-means", "paddle.soft_kmeans:soft_kmeans", "ablation of Martin et al., NeurIPS 2022"),
    Method("paddle-pgd", "PADDLE by PGD", "paddle.gradient:paddle_pgd", "ablation of Martin et al., NeurIPS 2022"),
    Method(
        "baseline",
        "Baseline",
        "gradient.baseline:baseline",
        "Chen et al., ICLR 2019",
        transductive=False,
        holds_support=True,
    ),
    Method(
        "baseline++",
        "Baseline++",
        "gradient.baseline:baseline_pp",
        "Chen et al., ICLR 2019",
        transductive=False,
        holds_support=True,
    ),
    Method("simpleshot", "SimpleShot", "simpleshot:simpleshot", "Wang et al., 2019", transductive=False),
    Method("ici", "LR+ICI", "ici.solver:ici", "Wang et al., CVPR 2020", holds_support=True),
    Method("bd-cspn", "BD-CSPN", "bd_cspn:bd_cspn", "Liu et al., ECCV 2020", holds_support=True),
    Method("pt-map", "PT-MAP", "pt_map:pt_map", "Hu et al., ICANN 2021", holds_support=True),
    Method("laplacianshot", "LaplacianShot", "laplacianshot:laplacianshot", "Ziko et al., ICML 2020"),
    Method("tim", "TIM", "gradient.tim:tim", "Boudiaf et al., NeurIPS 2020", holds_support=True),
    Method("tim-adm", "TIM-ADM", "gradient.tim_adm:tim_adm", "Boudiaf et al., NeurIPS 2020", holds_support=True),
    Method("alpha-tim", "α-TIM", "gradient.alpha_tim:alpha_tim", "Veilleux et al., NeurIPS 2021", holds_support=True),
    Method(
        "evidence",
        "Evidence",
        "evidence.solver:evidence",
        "this project, docs/evidence.md",
        holds_support=True,
        version=2,
    ),
)
DEFAULT_METHOD = "evidence"  # the one to start with: it needs neither K_eff nor a temperature


def get_method(name: str) -> Method:
    """The method of that name; an unknown one is an error that names the nearest."""
    if name not in METHODS:
        raise InputError(f"There is no method '{name}'; {nearest(name, METHODS)}")
    return METHODS[name]


def solve(method: str, tasks: Tasks, **params: Any) -> Solution:
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
        Class probabilities ``[t, q, k]`` and what else the method knows.

    Examples
    --------
    >>> from manyway import Tasks, solve
    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> solve("simpleshot", tasks).labels.tolist()
    [[0, 1]]
    """
    return get_method(method)(tasks, **params)
