"""What the docstring of a solver says, read from its source: importing the solver would load torch."""

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
    """The parameters of a function by name, as its docstring describes them after ``described_as``.

    >>> list(described_parameters("manyway.methods.simpleshot", "simpleshot"))
    ['tasks', 'scale', 'logit_scale', 'prepared']
    """
    module, function = _defined(module, name)
    found = doc_entries(doc_sections(ast.get_docstring(function) or "").get("Parameters", ""))
    defaults = dict(zip((each.arg for each in function.args.kwonlyargs), function.args.kw_defaults, strict=True))
    for call in function.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "described_as":
            for key, entry in described_parameters(module, ast.unparse(call.args[0])).items():
                if key not in found and (value := defaults.get(key)) is not None:
                    found[key] = with_default(entry, ast.literal_eval(value))
    order = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    return {key: found[key] for key in order if key in found}


def _defined(module: str, name: str) -> tuple[str, ast.FunctionDef]:
    """A function, and the module that defines it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module and name in (alias.name for alias in node.names):
            return _defined(node.module, name)
    raise LookupError(f"{module} defines no {name}")
