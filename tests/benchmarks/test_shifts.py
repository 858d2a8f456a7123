"""The benchmark of real changes of pictures and texts."""

import numpy as np
import torch
from PIL import Image

from benchmarks.shifts import (
    N_CLASSES,
    N_PRESENT,
    OF_PICTURES,
    PER_CLASS,
    SHOTS,
    Features,
    answers,
    chosen,
    drawn,
    mistyped,
)


def test_every_change_gives_a_picture_in_colours():
    pixels = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    for title, change in OF_PICTURES.items():
        changed = change(picture)
        assert changed.mode == "RGB"
        assert changed.size == ((32, 32) if title == "a third of the size" else (96, 96))


def test_as_many_letters_are_mistyped_as_are_asked_for():
    text = "what is the balance of my savings account " * 50
    assert mistyped(text, 0.0) == text
    assert mistyped(text, 0.2) == mistyped(text, 0.2) != text
    letters = [a.isalpha() for a in text]
    kept = len(mistyped(text, 1.0).replace(" ", ""))
    assert 0.8 * sum(letters) < kept < 1.2 * sum(letters)


def test_items_of_a_draw_are_of_few_classes_and_none_is_an_example():
    generator = torch.Generator().manual_seed(0)
    means = 5 * torch.randn(N_CLASSES, 1, 16, generator=generator)
    examples = means + torch.randn(N_CLASSES, SHOTS, 16, generator=generator)
    items = means + torch.randn(N_CLASSES, PER_CLASS, 16, generator=generator)
    features = Features(examples.flatten(0, 1), {"as they are": items.flatten(0, 1)})
    tasks = drawn(features, "as they are", 2)
    assert tasks.query.shape == (2, N_PRESENT * PER_CLASS, 16)
    assert all(len(labels.unique()) == N_PRESENT for labels in tasks.query_labels)
    assert answers(tasks, "simpleshot").split(" / ")[0] == "100"
    assert len(set(chosen(40, 0))) == SHOTS + PER_CLASS
