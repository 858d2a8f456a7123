"""METHODS: the one table of methods, and ``solve``, the one way to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from manyway.errors import InputError, nearest
from manyway.methods.alpha_tim import alpha_tim
from manyway.methods.baseline import baseline, baseline_pp
from manyway.methods.bd_cspn import bd_cspn
from manyway.methods.evidence import evidence
from manyway.methods.ici import ici
from manyway.methods.laplacianshot import laplacianshot
from manyway.methods.paddle import paddle
from manyway.methods.paddle_pgd import paddle_pgd
from manyway.methods.pt_map import pt_map
from manyway.methods.simpleshot import simpleshot
from manyway.methods.soft_kmeans import soft_kmeans
from manyway.methods.tim import tim
from manyway.methods.tim_adm import tim_adm
from manyway.tasks import Solution, Tasks


@dataclass(frozen=True)
class Method:
    """A solver with what tables and messages say about it."""

    name: str
    title: str
    solver: Callable[..., Solution]
    reference: str
    transductive: bool = True
    holds_support: bool = False  # whether it keeps every support sample in memory, not only class sums

    @property
    def summary(self) -> str:
        """What it does, in the first line of its docstring."""
        return (inspect.getdoc(self.solver) or "").partition("\n")[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters with their default values."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.solver).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def __call__(self, tasks: Tasks, **params: Any) -> Solution:
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
    Method("paddle", "PADDLE", paddle, "Martin et al., NeurIPS 2022"),
    Method("soft-kmeans", "soft K-means", soft_kmeans, "ablation of Martin et al., NeurIPS 2022"),
    Method("paddle-pgd", "PADDLE by PGD", paddle_pgd, "ablation of Martin et al., NeurIPS 2022"),
    Method("baseline", "Baseline", baseline, "Chen et al., ICLR 2019", transductive=False, holds_support=True),
    Method("baseline++", "Baseline++", baseline_pp, "Chen et al., ICLR 2019", transductive=False, holds_support=True),
    Method("simpleshot", "SimpleShot", simpleshot, "Wang et al., 2019", transductive=False),
    Method("ici", "LR+ICI", ici, "Wang et al., CVPR 2020", holds_support=True),
    Method("bd-cspn", "BD-CSPN", bd_cspn, "Liu et al., ECCV 2020", holds_support=True),
    Method("pt-map", "PT-MAP", pt_map, "Hu et al., ICANN 2021", holds_support=True),
    Method("laplacianshot", "LaplacianShot", laplacianshot, "Ziko et al., ICML 2020"),
    Method("tim", "TIM", tim, "Boudiaf et al., NeurIPS 2020", holds_support=True),
    Method("tim-adm", "TIM-ADM", tim_adm, "Boudiaf et al., NeurIPS 2020", holds_support=True),
    Method("alpha-tim", "α-TIM", alpha_tim, "Veilleux et al., NeurIPS 2021", holds_support=True),
    Method("evidence", "Evidence", evidence, "this project, docs/evidence.md", holds_support=True),
)
DEFAULT_METHOD = "evidence"  # the one to start with: it needs neither K_eff nor a temperature


def get_method(name: str) -> Method:
    """The method of that name; an unknown one is an error that names the nearest."""
    if name not in METHODS:
        raise InputError(f"There is no method '{name}'; {nearest(name, METHODS)}")
    return METHODS[name]


def solve(method: str, tasks: Tasks, **params: Any) -> Solution:
    """Run the named method on a batch of tasks.

    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> solve("simpleshot", tasks).labels.tolist()
    [[0, 1]]
    """
    return get_method(method)(tasks, **params)
