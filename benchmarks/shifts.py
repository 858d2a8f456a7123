"""Items unlike the examples: real changes of pictures and texts.

    python -m benchmarks.shifts DATA [--draws 8] [--store shifts] [--sets birds,intents]

DATA holds ``cub200_96px.zip`` and the texts of CLINC150 (``features/clinc150_*.npz``). 60 classes have five examples
each, as they are. 108 items of nine of them are changed: pictures are grey, dark, blurred, compressed or small, texts
are in capitals or have typing errors. Everything is encoded by the encoders of the package. Features are kept in the
store, and are not computed again.

Printed is the part of right labels, and beside it the mean probability of the labels: what the method claims.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.measure import show
from manyway import solve
from manyway.core import Tasks
from manyway.encoding.encoders import ImageEncoder, TextEncoder, open_encoder

N_CLASSES = 60
SHOTS = 5
PER_CLASS = 12  # items
N_PRESENT = 9
SEED = 2026
AS_THEY_ARE = "as they are"
TITLE = "Items unlike the examples: right / claimed in %"
Picture = Image.Image
Encoder = Callable[[Sequence[Any]], Tensor]


class Features(NamedTuple):
    """Examples, and items in several forms; classes follow each other."""

    examples: Tensor  # [N_CLASSES * SHOTS, d]
    items: Mapping[str, Tensor]  # [N_CLASSES * PER_CLASS, d] by what was done to them


def compressed(picture: Picture) -> Picture:
    """A picture that was saved with low quality."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=10)
    return Image.open(file).convert("RGB")


def small(picture: Picture) -> Picture:
    """A picture with a third of the width and height."""
    return picture.resize((picture.width // 3, picture.height // 3), Image.Resampling.BICUBIC)


OF_PICTURES: Mapping[str, Callable[[Picture], Picture]] = {
    AS_THEY_ARE: lambda picture: picture,
    "grey": lambda picture: picture.convert("L").convert("RGB"),
    "a third of the brightness": lambda picture: ImageEnhance.Brightness(picture).enhance(1 / 3),
    "blurred": lambda picture: picture.filter(ImageFilter.GaussianBlur(1)),
    "JPEG quality 10": compressed,
    "a third of the size": small,
}


def mistyped(text: str, rate: float) -> str:
    """A text in which so many letters are left out, doubled by another one, or replaced.

    >>> mistyped("where is my card", 0.0)
    'where is my card'
    """
    generator = np.random.default_rng((SEED, len(text), sum(map(ord, text))))
    typed = []
    for letter in text:
        other = chr(ord("a") + generator.integers(26))
        error = generator.choice(["", other, letter + other])
        is_wrong = letter.isalpha() and generator.random() < rate
        typed.append(error if is_wrong else letter)
    return "".join(typed)


OF_TEXTS: Mapping[str, Callable[[str], str]] = {
    AS_THEY_ARE: lambda text: text,
    "in capitals": str.upper,
    "one letter of ten wrong": lambda text: mistyped(text, 0.1),
    "one letter of five wrong": lambda text: mistyped(text, 0.2),
}


def birds(data: Path) -> list[Picture]:
    """The pictures of every other species, SHOTS + PER_CLASS of each."""
    with zipfile.ZipFile(data / "cub200_96px.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        species = sorted({name.split("/")[-2] for name in names})[1::2]
        pictures = []
        for number, one in enumerate(species[:N_CLASSES]):
            own = [name for name in names if name.split("/")[-2] == one]
            for row in chosen(len(own), number):
                pictures.append(Image.open(io.BytesIO(archive.read(own[row]))).convert("RGB"))
    return pictures


def intents(data: Path) -> list[str]:
    """The texts of every other intent, as many."""
    (path,) = (data / "features").glob("clinc150_minilm*.npz")
    with np.load(path, allow_pickle=False) as found:
        labels = found["labels"]
        texts = found["texts"]
    picked: list[str] = []
    for number, label in enumerate(np.unique(labels)[1::2][:N_CLASSES]):
        own = np.flatnonzero(labels == label)
        picked += [str(texts[own[row]]) for row in chosen(len(own), number)]
    return picked


def chosen(n_rows: int, number: int) -> list[int]:
    """The rows of a class that are used."""
    order = np.random.default_rng((SEED, number)).permutation(n_rows)
    return [int(row) for row in order[: SHOTS + PER_CLASS]]


def encode_pictures(pictures: Sequence[Picture]) -> Tensor:
    """[n, d] by the default encoder of pictures."""
    encoder = open_encoder("efficientnet-lite2")
    assert isinstance(encoder, ImageEncoder)
    rows = []
    for first in range(0, len(pictures), 32):
        fitted = [encoder.preprocess.fit(picture) for picture in pictures[first : first + 32]]
        rows.append(encoder.encode(torch.stack(fitted)))
    return torch.cat(rows)


def encode_texts(name: str, texts: Sequence[str]) -> Tensor:
    """[n, d] by an encoder of texts."""
    encoder = open_encoder(name)
    assert isinstance(encoder, TextEncoder)
    return encoder.encode(texts)


class Setting(NamedTuple):
    """A kind of items, their changes, and what encodes them."""

    title: str
    read: Callable[[Path], Sequence[Any]]
    changes: Mapping[str, Callable[[Any], Any]]
    encode: Encoder


SETTINGS = {
    "birds": Setting("birds", birds, OF_PICTURES, encode_pictures),
    "intents": Setting("intents", intents, OF_TEXTS, lambda texts: encode_texts("minilm", texts)),
    "intents-use": Setting(
        "intents, multilingual encoder",
        intents,
        OF_TEXTS,
        lambda texts: encode_texts("use-multilingual", texts),
    ),
}


def features_of(name: str, data: Path, store: Path) -> Features:
    """The features of a setting, from the store where they are there."""
    setting = SETTINGS[name]
    path = store / f"{name}.safetensors"
    if not path.exists():
        everything = setting.read(data)
        is_example = np.arange(len(everything)) % (SHOTS + PER_CLASS) < SHOTS
        examples = [one for one, example in zip(everything, is_example, strict=True) if example]
        items = [one for one, example in zip(everything, is_example, strict=True) if not example]
        found = {"examples": setting.encode(examples)}
        for title, change in setting.changes.items():
            found[f"items {title}"] = setting.encode([change(item) for item in items])
        store.mkdir(parents=True, exist_ok=True)
        save_file(found, path)
    kept = load_file(path)
    return Features(kept["examples"], {title: kept[f"items {title}"] for title in setting.changes})


def drawn(features: Features, change: str, n_draws: int) -> Tasks:
    """Tasks whose items are of N_PRESENT classes, and changed."""
    queries = []
    labels = []
    for number in range(n_draws):
        present = np.random.default_rng((SEED, number)).permutation(N_CLASSES)[:N_PRESENT]
        of_class = features.items[change].view(N_CLASSES, PER_CLASS, -1)[torch.from_numpy(present)]
        queries.append(of_class.flatten(0, 1))
        labels.append(torch.from_numpy(present).repeat_interleave(PER_CLASS))
    support_labels = torch.arange(N_CLASSES).repeat_interleave(SHOTS)
    return Tasks.from_arrays(
        features.examples.expand(n_draws, -1, -1),
        support_labels.expand(n_draws, -1),
        torch.stack(queries),
        query_labels=torch.stack(labels),
    )


def answers(tasks: Tasks, method: str, **parameters: Any) -> str:
    """The part of right labels, and the mean probability of the labels."""
    solution = solve(method, tasks, **parameters)
    assert tasks.query_labels is not None
    right = (solution.labels == tasks.query_labels).double().mean()
    claimed = solution.probabilities.amax(-1).double().mean()
    return f"{100 * right:.0f} / {100 * claimed:.0f}"


def rows(sets: Sequence[str], data: Path, store: Path, n_draws: int) -> Iterator[list[str]]:
    """A row for each change of each setting."""
    for name in sets:
        features = features_of(name, data, store)
        for change in SETTINGS[name].changes:
            tasks = drawn(features, change, n_draws)
            yield [
                SETTINGS[name].title,
                change,
                answers(tasks, "evidence"),
                answers(tasks, "evidence", adapt=False),
                answers(tasks, "simpleshot").split(" / ")[0],
            ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--store", type=Path, default=Path("shifts"))
    parser.add_argument("--sets", default=",".join(SETTINGS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    header = ["items", "changed", "evidence", "adapt=False", "SimpleShot"]
    show(TITLE, header, rows(options.sets.split(","), options.data, options.store, options.draws))


if __name__ == "__main__":
    main()
