"""Examples in docstrings and in the README do what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import manyway

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(manyway.__path__, "manyway.")
    if not name.startswith(("manyway.cli", "manyway.core.kernels")) and not name.endswith("__main__")
]


@pytest.mark.parametrize("name", ["manyway", *MODULES])
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
