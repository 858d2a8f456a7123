"""What the docstrings of solvers say.

Parameters that several share are described once; reading loads no torch.
"""

import ast
import inspect
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def described_as(source: Callable[..., Any]) -> Callable[[F], F]:
    """Describe the parameters that a docstring leaves out as ``source`` does, with the function's own defaults.

    It is found by its name in the source code, as it is where no code may be loaded.

    >>> from manyway.methods.dirichlet.solver import hard_em_dirichlet
    >>> doc_entries(doc_sections(hard_em_dirichlet.__doc__)["Parameters"])["max_iter"].splitlines()[0]
    'max_iter : int, default=10'
    """

    def decorate(function: F) -> F:
        entries = described_parameters(function.__module__, function.__name__).values()
        section = "\n".join(dict.fromkeys(entries)) + "\n"
        doc = f"{inspect.getdoc(function)}\n"
        function.__doc__ = re.sub(
            r"(?<=Parameters\n----------\n)(?:.+\n)*", lambda _: section, doc, count=1
        )
        return function

    return decorate


def doc_sections(text: str) -> dict[str, str]:
    """The sections of a numpydoc docstring by title.

    What comes before the first one has the title ''.

    >>> doc_sections("Do it.\\n\\nReturns\\n-------\\nint\\n")
    {'': 'Do it.', 'Returns': 'int'}
    """
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    titled = zip(parts[1::2], parts[2::2], strict=True)
    return {"": parts[0].strip()} | {title: body.strip("\n") for title, body in titled}


def doc_entries(section: str) -> dict[str, str]:
    """The entries of a Parameters section by name, each with its description.

    >>> doc_entries("a, b : int\\n    Two numbers.\\nc : str")
    {'a': 'a, b : int\\n    Two numbers.', 'b': 'a, b : int\\n    Two numbers.', 'c': 'c : str'}
    """
    entries: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", section.strip("\n")):
        for name in entry.split("\n")[0].partition(" :")[0].split(","):
            if name.strip():
                entries[name.strip().lstrip("*")] = entry.rstrip()
    return entries


def with_default(entry: str, default: Any) -> str:
    """The description of a parameter with another default."""
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    return re.sub(r"default=.*", lambda _: f"default={shown}", entry, count=1)


def first_line(module: str, name: str) -> str:
    """The first line of the docstring of a function.

    >>> first_line("manyway.methods._table.parameters", "first_line")
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
    defaults = dict(
        zip((each.arg for each in function.args.kwonlyargs), function.args.kw_defaults, strict=True)
    )
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
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and name in (alias.name for alias in node.names)
        ):
            return _defined(node.module, name)
    raise LookupError(f"{module} defines no {name}")
