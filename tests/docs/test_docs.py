"""Documentation of everything public is numpydoc, its parameters are those of the code, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import matplotlib as mpl
import pytest
from problems import ESTIMATORS

import manyway
from manyway.methods import METHODS
from manyway.methods._table.parameters import doc_entries, doc_sections

mpl.use("Agg")
MODULES = [name for _, name, _ in pkgutil.walk_packages(manyway.__path__, "manyway.") if not name.endswith("__main__")]
API = Path(__file__).parents[2] / "docs" / "api.md"


def with_examples(name: str) -> bool:
    """Whether a module's source has an example."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and ">>> " in Path(spec.origin).read_text(encoding="utf-8")


EXAMPLES = [name for name in ["manyway", *MODULES] if with_examples(name)]


@pytest.mark.filterwarnings("ignore::manyway.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)  # a kernel's needs Triton, which every Linux build of the tests has
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0, f"{name} has an example that doctest does not find"
    assert result.failed == 0


@pytest.mark.filterwarnings("ignore::manyway.errors.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))
def test_the_example_of_an_estimator_runs(estimator):
    (example,) = doctest.DocTestFinder(recurse=False).find(estimator, estimator.__name__)
    assert doctest.DocTestRunner().run(example) == (0, 3)


def test_a_module_that_was_once_forgotten_is_tested():
    assert "manyway.cli.summary" in EXAMPLES
    assert len(EXAMPLES) > 30


PUBLIC = {name: getattr(manyway, name) for name in manyway.__all__ if callable(getattr(manyway, name))}
ERRORS = {name for name, value in PUBLIC.items() if inspect.isclass(value) and issubclass(value, Exception)}
METHODS_OF = {
    f"{name}.{attribute}": member
    for name, value in PUBLIC.items()
    if inspect.isclass(value) and name not in ERRORS
    for attribute in vars(value)
    if not attribute.startswith("_") and inspect.isfunction(member := getattr(value, attribute))
}
BASE = {name: getattr(manyway.Evidence, name) for name in ("fit", "infer", "predict", "predict_proba")}
SOLVERS = {f"solver of {name}": method.solver for name, method in METHODS.items()}
DOCUMENTED = {
    **{name: value for name, value in PUBLIC.items() if name not in ERRORS},
    **{name: value for name, value in METHODS_OF.items() if inspect.signature(value).parameters.keys() - {"self"}},
    **BASE,
    **SOLVERS,
}


def parameter_names(value: object) -> list[str]:
    return [name for name in inspect.signature(value).parameters if name != "self"]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_parameters_of_a_docstring_are_those_of_the_signature(name):
    value = DOCUMENTED[name]
    sections = doc_sections(inspect.getdoc(value) or "")
    assert sections[""], "a summary"
    if parameter_names(value):
        assert sorted(doc_entries(sections["Parameters"])) == sorted(parameter_names(value))


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - ERRORS))
def test_everything_public_has_examples_and_says_what_it_returns(name):
    value = PUBLIC[name]
    sections = doc_sections(inspect.getdoc(value))
    assert ">>> " in sections["Examples"]
    assert inspect.isclass(value) or sections["Returns"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_of_an_estimator_is_described(name):
    for parameter, entry in doc_entries(doc_sections(inspect.getdoc(ESTIMATORS[name]))["Parameters"]).items():
        assert "\n    " in entry, parameter


def test_dir_shows_the_public_names_only():
    assert set(dir(manyway)) == set(manyway.__all__)


def test_the_api_page_lists_every_public_name_once():
    listed = re.findall(r"^\| `(\w+)", API.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(manyway.__all__)
