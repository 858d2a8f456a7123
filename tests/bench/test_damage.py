"""Random damage to suites, records and tuned parameters: one sentence, or nothing that matters."""

from __future__ import annotations

import copy
import json
import random
from importlib import resources
from pathlib import Path

import pytest
from bench.show.results import make_record

from manyway import InputError
from manyway.bench import suite as suites
from manyway.bench.records import Record
from manyway.bench.tuning import FILE, read_tuned

JUNK = [None, True, -1, 0, 10**30, 1.5, float("nan"), float("inf"), "", "../x", [], {}, [[]], {"per_query": [1]}, "all"]
RECORD = json.loads(make_record().to_json())
TUNED = {"chosen": {"toy": {"tim": {"params": {"lr": 0.1, "weights": [1, 1, 1]}, "accuracy": 0.5}}}}


def places(value, path=()):
    """Every place inside a nested value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from places(item, (*path, key))


def damaged(value, chance: random.Random):
    """The value with one entry replaced by junk, or removed."""
    value = copy.deepcopy(value)
    path = chance.choice(list(places(value)))
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if chance.random() < 0.8:
        holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    else:
        del holder[path[-1]]
    return value


def toml(value) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return {"NaN": "nan", "Infinity": "inf", "null": '""'}.get(text := json.dumps(value), text)


def suite(chance: random.Random, folder: Path) -> None:
    name = chance.choice(suites.suite_names())
    text = resources.files("manyway.bench").joinpath("suites", f"{name}.toml").read_text(encoding="utf-8")
    source = damaged(suites.tomllib.loads(text), chance)
    lines = [f"{json.dumps(key)} = {toml(value)}" for key, value in source.items()]
    for block in suites.parse_suite("\n".join(lines), name, "mine.toml").blocks:
        next(block.experiments(n_classes=lambda features: 30))


def record(chance: random.Random, folder: Path) -> None:
    (folder / "x.json").write_text(json.dumps(damaged(RECORD, chance)))
    Record.read(folder / "x.json")


def tuned(chance: random.Random, folder: Path) -> None:
    (folder / FILE).write_text(json.dumps(damaged(TUNED, chance)))
    read_tuned(None, folder)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", [suite, record, tuned])
def test_random_damage_is_one_sentence(what, seed, tmp_path):
    chance, sentences = random.Random(seed), []
    for _ in range(100):
        try:
            what(chance, tmp_path)
        except InputError as error:
            sentences.append(str(error))
    assert len(sentences) > 20
    assert not [sentence for sentence in sentences if "\n" in sentence]
