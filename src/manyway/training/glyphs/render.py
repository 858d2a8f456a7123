"""Drawing letters: an undistorted master per letter and face, and distorted samples of it.

Sample i of a letter depends only on the seed, the code point and i:
not on the other letters, the batch or the order.

Letters that look the same are left out, so that no test shape is trained on and no two classes
share a shape. Two letters are look-alikes if the correlation of their masters in the same face
(Pearson, on 16×16 pixels) is at least ``SAME_ON_AVERAGE`` on average over the faces that both have,
or at least ``SAME_IN_ONE`` in one of them. Masters are scaled to the same box, so that upper and
lower case of the same shape (o O, c C, s S) are look-alikes too.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyway.training.glyphs.letters import FACES, Letter, font_folder
from manyway.training.recipe import affine

SIZE = 28  # pixels of a sample
MASTER = 64  # pixels of a master
INK = 44  # longer side of the ink in a master; the rest is room for the distortion
FONT_SIZE = 72
SAME_ON_AVERAGE = 0.88
SAME_IN_ONE = 0.97


class Masters(NamedTuple):
    """Undistorted letters, scaled so that the ink of each fills the same box.

    They differ in shape, not in size.
    """

    images: Tensor  # [m, 64, 64] uint8
    row: dict[tuple[int, str], int]  # (code point, face) -> row of images


class Distortion(NamedTuple):
    """The largest changes from the master to a sample."""

    rotation: float = 0.25  # radians, either way
    shear: float = 0.3
    log_stretch: float = 0.2  # log of the factor on each axis
    shift: float = 0.12  # of half the image
    thinner: float = 1.0  # pixels of the master (64) removed from each side of a stroke
    thicker: float = 2.0  # pixels added
    noise: tuple[float, float] = (0.05, 0.25)  # standard deviation, ink = 1
    contrast: tuple[float, float] = (0.5, 1.0)


def draw_masters(letters: Iterable[Letter]) -> Masters:
    """Render every letter in every face that has it."""
    from PIL import ImageFont

    letters = tuple(letters)
    images: list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]] = []
    row: dict[tuple[int, str], int] = {}
    for face in sorted({face for letter in letters for face in letter.faces}):
        # The basic layout engine is always available and never joins or reorders letters.
        font = ImageFont.truetype(
            str(font_folder() / f"{face}.ttf"), FONT_SIZE, layout_engine=ImageFont.Layout.BASIC
        )
        for letter in letters:
            image = _master(font, letter.code) if face in letter.faces else None
            if image is not None:
                row[letter.code, face] = len(images)
                images.append(image)
    return Masters(torch.from_numpy(np.stack(images)), row)


def _master(font: object, code: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None:
    """[64, 64] the letter with its ink in a centred box.

    None if the face has an empty shape for it.
    """
    from PIL import Image, ImageDraw

    page = Image.new("L", (4 * FONT_SIZE, 4 * FONT_SIZE))
    ImageDraw.Draw(page).text((FONT_SIZE, FONT_SIZE), chr(code), fill=255, font=font)  # type: ignore[arg-type]
    box = page.getbbox()
    if box is None:
        return None
    ink = page.crop(box)
    scale = INK / max(ink.size)
    ink = ink.resize(
        (max(1, round(ink.width * scale)), max(1, round(ink.height * scale))),
        Image.Resampling.LANCZOS,
    )
    master = Image.new("L", (MASTER, MASTER))
    master.paste(ink, ((MASTER - ink.width) // 2, (MASTER - ink.height) // 2))
    return np.asarray(master)


def draw_samples(
    letters: Sequence[Letter], masters: Masters, indices: range, *, seed: int, chunk: int = 1024
) -> tuple[Tensor, Tensor]:
    """Images [n, 1, 28, 28] uint8 and labels [n].

    Samples ``indices`` of each letter, letter after letter.
    """
    wanted = [(label, letter, i) for label, letter in enumerate(letters) for i in indices]
    images = torch.empty(len(wanted), 1, SIZE, SIZE, dtype=torch.uint8)
    for start in range(0, len(wanted), chunk):
        part = wanted[start : start + chunk]
        rows = []
        uniforms = []
        noise = []
        for _, letter, i in part:
            generator = np.random.Generator(
                np.random.PCG64(np.random.SeedSequence([seed, letter.code, i]))
            )
            faces = [face for face in letter.faces if (letter.code, face) in masters.row]
            rows.append(masters.row[letter.code, faces[generator.integers(len(faces))]])
            uniforms.append(generator.random(10))
            noise.append(generator.standard_normal(SIZE * SIZE, dtype=np.float32))
        drawn = torch.from_numpy(np.stack(uniforms)).float()
        grain = torch.from_numpy(np.stack(noise)).view(-1, 1, SIZE, SIZE)
        plain = masters.images[rows].float().div(255).unsqueeze(1)
        images[start : start + len(part)] = _distort(plain, drawn, grain, Distortion())
    return images, torch.tensor([label for label, _, _ in wanted])


def _distort(masters: Tensor, uniforms: Tensor, noise: Tensor, how: Distortion) -> Tensor:
    """[b, 1, 28, 28] uint8 from masters [b, 1, 64, 64].

    It takes uniforms [b, 10] in [0, 1) and noise [b, 1, 28, 28].
    """
    signed = 2 * uniforms - 1
    inked = _stroke(masters, uniforms[:, 0] * (how.thinner + how.thicker) - how.thinner)
    # The grid maps positions of the sample to positions of the master: the inverse of the distortion.
    theta = affine(signed[:, 1:7], how.rotation, how.shear, how.log_stretch, how.shift)
    # Sampled at twice the resolution and averaged, because the master is finer than the sample and would alias.
    grid = F.affine_grid(theta, [len(masters), 1, 2 * SIZE, 2 * SIZE], align_corners=False)
    small = F.avg_pool2d(F.grid_sample(inked, grid, mode="bilinear", align_corners=False), 2)
    contrast = how.contrast[0] + (how.contrast[1] - how.contrast[0]) * uniforms[:, 7]
    deviation = how.noise[0] + (how.noise[1] - how.noise[0]) * uniforms[:, 8]
    noisy = small * contrast.view(-1, 1, 1, 1) + noise * deviation.view(-1, 1, 1, 1)
    return noisy.clamp(0, 1).mul(255).round().to(torch.uint8)


def _stroke(masters: Tensor, pixels: Tensor) -> Tensor:
    """Strokes thicker (pixels > 0) or thinner (< 0).

    This is done by whole-pixel dilations, blended for fractions.
    """
    levels = {0: masters}
    for level in (1, 2):
        levels[level] = F.max_pool2d(levels[level - 1], 3, stride=1, padding=1)
        levels[-level] = -F.max_pool2d(-levels[1 - level], 3, stride=1, padding=1)
    stack = torch.stack([levels[level] for level in sorted(levels)])  # [5, b, 1, 64, 64]
    low = pixels.floor().long().clamp(-2, 1)
    blend = (pixels - low).view(-1, 1, 1, 1)
    which = torch.arange(len(masters))
    return (1 - blend) * stack[low + 2, which] + blend * stack[low + 3, which]


def look_alike(letters: Sequence[Letter], masters: Masters) -> Tensor:
    """[n, n] bool: whether two letters look the same. A letter looks like itself."""
    n = len(letters)
    total = torch.zeros(n, n)
    shared = torch.zeros(n, n)
    highest = torch.full((n, n), -1.0)
    for face in FACES:
        rows = torch.tensor([masters.row.get((letter.code, face), -1) for letter in letters])
        pixels = F.avg_pool2d(masters.images[rows].float().unsqueeze(1), 4).flatten(1)
        has = (rows >= 0).float()
        unit = F.normalize(pixels - pixels.mean(1, keepdim=True), dim=1) * has[:, None]
        correlation = unit @ unit.T
        total += correlation
        shared.addr_(has, has)
        torch.maximum(highest, correlation, out=highest)
    return (total >= SAME_ON_AVERAGE * shared.clamp(min=1)) | (highest >= SAME_IN_ONE)


def choose_letters(letters: Sequence[Letter], masters: Masters) -> dict[str, tuple[Letter, ...]]:
    """The classes of each split.

    A test letter is left out if it looks like any candidate of base or validation, and a validation
    letter if it looks like any candidate of base. Within a split, a letter that looks like an
    earlier one that was kept is left out.
    """
    same = look_alike(letters, masters).numpy()
    kept: dict[str, tuple[Letter, ...]] = {}
    stronger: list[int] = []
    for split in ("base", "val", "test"):
        chosen: list[int] = []
        members = [i for i, letter in enumerate(letters) if letter.split == split]
        for i in members:
            if not same[i, stronger].any() and not same[i, chosen].any():
                chosen.append(i)
        kept[split] = tuple(letters[i] for i in chosen)
        stronger += members
    return kept
