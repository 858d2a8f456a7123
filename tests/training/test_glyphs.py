"""The letters: real glyphs, no shape on both sides of a split, samples that depend on (seed, letter, i) alone."""

from __future__ import annotations

import processes
import pytest
import torch

from manyway.errors import InputError
from manyway.sampling import embedded
from manyway.sampling.embedded import load_glyphs
from manyway.training.glyphs import draw
from manyway.training.glyphs.letters import FACES, Letter, candidate_letters, script_of
from manyway.training.glyphs.render import (
    INK,
    MASTER,
    _stroke,
    choose_letters,
    draw_masters,
    draw_samples,
    look_alike,
)


def letters(text: str, split: str = "base") -> tuple[Letter, ...]:
    return tuple(Letter(ord(c), split, FACES[:4]) for c in text)


def test_candidates_are_real_letters_that_the_faces_have():
    candidates = candidate_letters()
    assert len(candidates) > 1500
    assert {letter.split for letter in candidates} == {"base", "val", "test"}
    in_many_faces = [letter for letter in candidates if len(letter.faces) >= 12]
    assert len(in_many_faces) > 1300
    # A face that lacks a letter draws its "missing glyph" box: no face may be listed for a letter it lacks.
    assert "STIXGeneral" not in next(c for c in candidates if c.code == ord("ა")).faces


@pytest.mark.parametrize("pair", ["AА", "oо", "oO", "cC", "sS", "AΑ", "ҪÇ"])
def test_the_same_shape_is_a_look_alike_across_scripts_and_cases(pair):
    both = letters(pair)
    assert bool(look_alike(both, draw_masters(both)).all())


@pytest.mark.parametrize("pair", ["Жж", "AB", "ЖX", "აბ", "ЉН", "bd", "qp"])
def test_another_shape_is_not(pair):
    both = letters(pair)
    if pair == "Жж":  # one shape in two sizes, and therefore one class
        assert bool(look_alike(both, draw_masters(both)).all())
    else:
        assert not bool(look_alike(both, draw_masters(both))[0, 1])


def test_test_letters_give_way_to_base_letters_and_to_earlier_ones():
    candidates = (*letters("AxБ", "base"), *letters("АБЖжЯ", "test"))
    chosen = choose_letters(candidates, draw_masters(candidates))
    assert "".join(chr(letter.code) for letter in chosen["test"]) == "ЖЯ"
    assert "".join(chr(letter.code) for letter in chosen["base"]) == "AxБ"


def test_a_sample_depends_on_seed_letter_and_index_alone():
    three = letters("ЖЯQ")
    masters = draw_masters(three)
    images, labels = draw_samples(three, masters, range(6), seed=3)
    assert images.shape == (18, 1, 28, 28)
    assert labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    alone, _ = draw_samples(three[1:2], draw_masters(three[1:2]), range(4, 6), seed=3, chunk=1)
    assert torch.equal(alone, images[10:12])
    other, _ = draw_samples(three, masters, range(6), seed=4)
    assert not torch.equal(other, images)


@pytest.mark.parametrize(("side", "pixels", "ink"), [
    (1, 0.0, 1.0), (1, 1.0, 9.0), (1, 2.0, 25.0), (1, 0.5, 5.0), (3, -1.0, 1.0), (5, -2.0, 1.0), (3, -0.5, 5.0),
])  # fmt: skip
def test_strokes_become_thicker_and_thinner_on_each_side_and_stay_where_they_are(side, pixels, ink):
    picture = torch.zeros(1, 1, 64, 64)
    corner = 30 - side // 2
    picture[..., corner : corner + side, corner : corner + side] = 1
    found = _stroke(picture, torch.tensor([pixels]))
    assert found.shape == picture.shape
    assert float(found.sum()) == ink
    assert torch.equal(found, found.transpose(2, 3))
    assert float(found[0, 0, 30, 30]) == 1


def test_a_master_has_its_ink_in_the_middle_and_its_longer_side_is_the_same():
    for letter in letters("lIWЖ."):
        image = draw_masters([letter]).images[0]
        rows, columns = (image.amax(axis).nonzero().flatten() for axis in (1, 0))
        sides = [int(of[-1] - of[0]) + 1 for of in (rows, columns)]
        assert max(sides) == INK
        assert all(abs(int(of[0]) + int(of[-1]) - (MASTER - 1)) <= 1 for of in (rows, columns))


def test_a_letter_of_the_embedded_features_is_drawn_by_its_name():
    name = load_glyphs().class_names[3]
    letter = next(each for each in candidate_letters() if each.name == name)
    images, _ = draw_samples([letter], draw_masters([letter]), range(40), seed=0)
    assert torch.equal(draw(name, range(5, 7)), images[5:7, 0])


@pytest.mark.parametrize(("split", "n_classes", "scripts"), [
    ("test", 200, {"CYRILLIC", "ARMENIAN", "GEORGIAN"}),
    ("val", 90, {"GREEK", "COPTIC"}),
])  # fmt: skip
def test_embedded_features(split, n_classes, scripts):
    features = load_glyphs(split)
    assert features.n_classes >= n_classes
    assert features.counts.min() >= 40
    assert features.features.dtype == torch.float32
    assert features.base_mean is not None
    assert features.meta["command"] == "python -m benchmarks.glyphs"
    assert {script_of(ord(name[0])) for name in features.class_names} == scripts


def test_embedded_files_are_small():
    assert sum((embedded.FOLDER / name).stat().st_size for name in embedded.FILES.values()) <= 4_000_000


@pytest.mark.slow
def test_embedded_features_belong_to_the_letters_that_the_code_chooses():
    """The expensive part (training) is not repeated here; the classes, their order and their number are."""
    candidates = candidate_letters()
    chosen = choose_letters(candidates, draw_masters(candidates))
    for split in ("test", "val"):
        assert load_glyphs(split).class_names == tuple(letter.name for letter in chosen[split])


def test_nearest_prototype_is_neither_hopeless_nor_perfect():
    """Methods can be told apart on the embedded set: all classes, 5 shots, nearest prototype after centring."""
    fs = load_glyphs("test")
    z = torch.nn.functional.normalize(fs.features - fs.base_mean, dim=1).view(fs.n_classes, -1, fs.features.shape[1])
    prototypes, queries = z[:, :5].mean(1), z[:, 5:].flatten(0, 1)
    predicted = torch.cdist(queries, prototypes).argmin(1).view(fs.n_classes, -1)
    accuracy = (predicted == torch.arange(fs.n_classes)[:, None]).float().mean().item()
    assert 0.45 < accuracy < 0.85


def test_unknown_splits_get_a_sentence():
    with pytest.raises(InputError, match="did you mean 'test'"):
        load_glyphs("tests")


def test_loading_needs_neither_pillow_nor_matplotlib():
    code = (
        "import sys; sys.modules['PIL'] = None; sys.modules['matplotlib'] = None\n"
        "from manyway.sampling.embedded import load_glyphs; print(load_glyphs().n_classes)\n"
        "from manyway.training import glyphs\n"
        "try: glyphs.image_set('test', 1)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    out = processes.run(code).stdout.splitlines()
    assert int(out[0]) >= 200
    assert out[1].startswith("InputError Drawing letters needs")
