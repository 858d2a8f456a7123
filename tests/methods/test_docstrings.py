"""Every solver is documented in numpydoc, with its parameters in the order of its signature.

Estimators and the command line take their descriptions of parameters from here.
"""

from __future__ import annotations

import inspect
import re

import pytest

from manyway import METHODS
from manyway.methods._table.parameters import doc_entries, doc_sections

SECTIONS = ["Parameters", "Returns", "Notes", "Examples"]
ALL = list(METHODS.values())


def sections(docstring: str) -> dict[str, str]:
    """The sections of a numpydoc docstring, by title."""
    parts = re.split(r"\n(\w+)\n-+\n", docstring)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("method", ALL, ids=lambda method: method.name)
def test_every_parameter_is_described_in_the_order_of_the_signature(method):
    found = sections(inspect.getdoc(method.solver))
    assert list(found) == SECTIONS
    described = re.findall(r"^(\w+) : (.+)$", found["Parameters"], re.MULTILINE)
    parameters = inspect.signature(method.solver).parameters
    assert [name for name, _ in described] == list(parameters)
    for name, kind in described:
        default = parameters[name].default
        if default is not inspect.Parameter.empty:
            expected = f'"{default}"' if isinstance(default, str) else str(default)
            assert kind.endswith(f"default={expected}") or float(kind.rpartition("=")[2]) == default, name


@pytest.mark.parametrize("method", ALL, ids=lambda method: method.name)
def test_the_summary_is_one_sentence_on_one_line(method):
    first, second = inspect.getdoc(method.solver).splitlines()[:2]
    assert first.endswith(".")
    assert second == ""
    assert method.summary == first


@pytest.mark.parametrize("method", ALL, ids=lambda method: method.name)
def test_the_description_is_read_from_the_source_as_it_is_after_import(method):
    imported = doc_entries(doc_sections(inspect.getdoc(method.solver))["Parameters"])
    assert method.argument_docs == imported
    assert list(method.parameter_docs) == list(method.parameters)


@pytest.mark.parametrize("method", ALL, ids=lambda method: method.name)
def test_the_notes_name_the_reference_and_the_examples_run_the_method(method):
    found = sections(inspect.getdoc(method.solver))
    assert "Reference: " in found["Notes"]
    assert f"{method.solver.__name__}(" in found["Examples"]
