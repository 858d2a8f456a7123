"""What the docstring of a solver says, read from its source: importing the solver would load torch."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

from manyway.methods._table.parameters import doc_entries, doc_sections, with_default


def first_line(module: str, name: str) -> str:
    """The first line of the docstring of a function.

    >>> first_line("manyway.methods._table.source", "first_line")
    'The first line of the docstring of a function.'
    """
    return (ast.get_docstring(_defined(module, name)[1]) or "").partition("\n")[0]


def described_parameters(module: str, name: str) -> dict[str, str]:
    """The parameters of a function by name, as its docstring describes them after ``takes`` and ``described_as``.

    >>> list(described_parameters("manyway.methods.simpleshot", "simpleshot"))
    ['tasks', 'scale', 'logit_scale', 'prepared']
    """
    module, node = _defined(module, name)
    own = doc_entries(doc_sections(ast.get_docstring(node) or "").get("Parameters", ""))
    shared: dict[str, str] = {}
    order: list[str] = []  # of the last parameters
    if isinstance(node, ast.ClassDef):
        values = {ast.unparse(line.target): line.value for line in node.body if isinstance(line, ast.AnnAssign)}
        for base in node.bases:
            shared |= described_parameters(module, ast.unparse(base))
    else:
        values = {key.arg: value for key, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)}
        order = list(values)
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("takes", "described_as"):
                theirs = described_parameters(module, ast.unparse(call.args[0]))
                all_of_them = ast.unparse(call.func) == "takes"
                shared |= {key: entry for key, entry in theirs.items() if all_of_them or key in values}
    for key, value in values.items():
        if key in shared and key not in own and value is not None:
            shared[key] = with_default(shared[key], ast.literal_eval(value))
    found = shared | own
    return {key: found[key] for key in sorted(found, key=lambda key: order.index(key) if key in order else -1)}


def _defined(module: str, name: str) -> tuple[str, ast.FunctionDef | ast.ClassDef]:
    """A function or class, and the module that defines it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module and name in (alias.name for alias in node.names):
            return _defined(node.module, name)
    raise LookupError(f"{module} defines no {name}")
