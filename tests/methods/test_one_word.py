"""One word, one meaning: a parameter that several methods have is the same thing in all of them."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict

import pytest

from manyway import METHODS

METHODS_OF = defaultdict(list)  # parameter -> the methods that have it
for _method in METHODS.values():
    for _name in _method.defaults:
        METHODS_OF[_name].append(_method)
SHARED = {name: methods for name, methods in METHODS_OF.items() if len(methods) > 1}
# A word has one spelling, the field's: these are taken by the names on the right.
SYNONYMS = {
    "n_neighbours": "n_neighbors",
    "knn": "n_neighbors",
    "k_neighbors": "n_neighbors",
    "optimiser": "optimizer",
    "learning_rate": "lr",
    "n_iter": "max_iter",
    "tolerance": "tol",
    "epsilon": "eps",
    "lambda_": "lam",
}


def first_sentence(method, parameter: str) -> str:
    text = " ".join(method.argument_docs[parameter].split("\n")[1:])
    return re.split(r"(?<=[.])\s", " ".join(text.split()))[0]


@pytest.mark.parametrize("parameter", sorted(SHARED))
def test_a_parameter_is_described_by_the_same_first_sentence_in_every_method(parameter):
    said = {method.name: first_sentence(method, parameter) for method in SHARED[parameter]}
    assert len(set(said.values())) == 1, said


@pytest.mark.parametrize("parameter", sorted(SHARED))
def test_a_parameter_has_the_same_type_in_every_method(parameter):
    types = {}
    for method in SHARED[parameter]:
        written = inspect.signature(method.solver).parameters[parameter].annotation
        written = written if isinstance(written, str) else inspect.formatannotation(written)
        types[method.name] = re.sub(r"\w+[.]", "", written).removesuffix(" | None")
    assert len(set(types.values())) == 1, types


def test_a_thing_has_one_name():
    assert not set(METHODS_OF) & set(SYNONYMS)
    assert not any(name.startswith("lambda") for name in METHODS_OF)


def test_what_multiplies_logits_is_their_scale_and_what_divides_them_a_temperature():
    said = {name: {first_sentence(method, name) for method in methods} for name, methods in METHODS_OF.items()}
    assert len(METHODS_OF["logit_scale"]) == 20
    for name, sentences in said.items():
        for sentence in sentences:
            assert ("multiplies the logits" in sentence) == (name == "logit_scale"), (name, sentence)
            assert "which divides" not in sentence or name.endswith("temperature"), (name, sentence)
