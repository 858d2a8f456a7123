"""Glyphs: images of many classes that need no download.

Distorted letters from the font files of matplotlib: Latin and other scripts for training, Greek and
Coptic for validation, Cyrillic, Armenian and Georgian for testing. The embedded features
(``manyway.sampling.embedded``) were made of them, by ``python -m benchmarks.glyphs`` in the
repository.
"""

from functools import lru_cache

from torch import Tensor

from manyway.encoding import ImageSet
from manyway.errors import named, optional
from manyway.training.glyphs.letters import Letter, candidate_letters
from manyway.training.glyphs.render import Masters, choose_letters, draw_masters, draw_samples
from manyway.training.recipe import Recipe

BASE_SAMPLES = 16  # drawings per base letter; few are enough because there are many letters
SAMPLES = 40  # drawings per validation or test letter
# Chosen among thirteen on the validation letters: benchmarks/glyph_recipes.py.
RECIPE = Recipe(
    20, 64, lr=3e-3, optimizer="adamw", schedule="cosine", weight_decay=0.05, augment="drawing"
)


def image_set(split: str, per_class: int, *, seed: int = 0) -> ImageSet:
    """Draw letters of the split base, val or test.

    Images [n, 1, 28, 28], ``per_class`` of each letter.

    Image i of a letter depends only on the seed, the letter and i.
    """
    classes, masters = _alphabet()
    letters = named(classes, split, "split of glyphs")
    images, labels = draw_samples(letters, masters, range(per_class), seed=seed)
    return ImageSet(images, labels, tuple(letter.name for letter in letters))


def draw(name: str, indices: range, *, seed: int = 0) -> Tensor:
    """Draw samples ``indices`` of one letter.

    Images [n, 28, 28] uint8, the same as in ``image_set``.

    ``name`` is that of a class, such as ``Ж CYRILLIC CAPITAL LETTER ZHE``.
    Only this letter is drawn, which is fast.
    """
    letter = _candidates()[name]
    return draw_samples([letter], draw_masters([letter]), indices, seed=seed)[0].squeeze(1)


@lru_cache(maxsize=1)
def _candidates() -> dict[str, Letter]:
    """The letters that the fonts have, by name."""
    for library in ("matplotlib", "PIL"):
        optional(library, "images", "Drawing letters")
    return {letter.name: letter for letter in candidate_letters()}


@lru_cache(maxsize=1)
def _alphabet() -> tuple[dict[str, tuple[Letter, ...]], Masters]:
    """The letters of each split and their undistorted drawings.

    Computed once, as it takes seconds.
    """
    letters = tuple(_candidates().values())
    masters = draw_masters(letters)
    return choose_letters(letters, masters), masters
