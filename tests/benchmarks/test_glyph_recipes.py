"""How the recipe of the embedded glyph features is chosen: the criterion first, PADDLE among equals."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.glyph_recipes import RECIPES, Score, choose, table
from manyway.training.glyphs import RECIPE

FIRST = Score("first", 0, (70.0, 71.0, 72.0), 1.0, 60.0)


def test_the_best_criterion_wins_when_it_is_clearly_best():
    better = Score("better", 0, (71.0, 72.0, 73.0), 1.0, 40.0)
    assert choose([FIRST, better]) == "better"


def test_paddle_decides_among_equals():
    close = Score("close", 0, (70.2, 71.2, 72.2), 1.0, 59.0)
    assert choose([FIRST, close]) == "first"
    assert choose([FIRST, replace(close, paddle=61.0)]) == "close"


def test_seeds_are_averaged():
    lucky, unlucky = Score("noisy", 0, (74.0,) * 3, 1.0, 60.0), Score("noisy", 1, (66.0,) * 3, 1.0, 60.0)
    assert choose([FIRST, replace(FIRST, seed=1), lucky, unlucky]) == "first"
    assert table([lucky, unlucky])[0][:3] == ["noisy", "70.00", "74.0 66.0"]


def test_the_recipe_in_use_is_one_of_those_compared():
    assert RECIPE in [recipe for recipe, _ in RECIPES.values()]
