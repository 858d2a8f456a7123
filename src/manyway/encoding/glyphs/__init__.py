"""Glyphs: a real many-class image set that needs no download.

Letters drawn from the font files that matplotlib ships, distorted: Latin and other scripts to train on, Greek and
Coptic to validate, Cyrillic, Armenian and Georgian to test. ``image_set`` draws the images, and ``python -m
manyway.encoding.glyphs`` makes the embedded features (``manyway.data.embedded``) again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from manyway.errors import InputError, nearest

if TYPE_CHECKING:
    from manyway.encoding.datasets.images import ImageSet
    from manyway.encoding.glyphs.letters import Letter
    from manyway.encoding.glyphs.render import Masters

BASE_SAMPLES = 16  # drawings of each base letter to train on: letters are many, so each can be few
SAMPLES = 40  # drawings of each validation and test letter


def image_set(split: str, per_class: int, *, seed: int = 0) -> ImageSet:
    """Images [n, 1, 28, 28] of the letters of ``base``, ``val`` or ``test``.

    Sample i of a letter depends on (seed, letter, i) alone.
    """
    from manyway.encoding.datasets.images import ImageSet
    from manyway.encoding.glyphs.render import draw_samples

    classes, masters = _alphabet()
    if split not in classes:
        raise InputError(f"Glyphs have no split '{split}'; {nearest(split, classes)}")
    images, labels = draw_samples(classes[split], masters, range(per_class), seed=seed)
    return ImageSet(images, labels, tuple(letter.name for letter in classes[split]))


@lru_cache(maxsize=1)
def _alphabet() -> tuple[dict[str, tuple[Letter, ...]], Masters]:
    """The letters of each split and their masters: seconds to make, so made once."""
    try:
        from manyway.encoding.glyphs.letters import candidate_letters
        from manyway.encoding.glyphs.lookalikes import choose_letters
        from manyway.encoding.glyphs.render import draw_masters

        letters = candidate_letters()
        masters = draw_masters(letters)
    except ModuleNotFoundError as error:
        raise InputError(f"Drawing letters needs {error.name}: pip install 'manyway[images]'.") from error
    return choose_letters(letters, masters), masters
