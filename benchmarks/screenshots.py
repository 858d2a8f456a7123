"""The pictures of the pages for beginners: drawn files, the real command, and a browser that looks at its page.

    python -m benchmarks.screenshots docs/images
    python -m benchmarks.screenshots docs/images review-film     # only the moving picture of the README

Needs Chromium, and a font with emoji for the animals (Debian: chromium, fonts-noto-color-emoji).
"""

from __future__ import annotations

import io
import json
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont
from playwright.sync_api import Page, sync_playwright

from manyway.cli.review import demo_data
from manyway.sampling.embedded import load_glyphs
from manyway.training.glyphs import SAMPLES

GALLERY = Path(__file__).parent.parent / "docs" / "gallery"
FILM = "review-film"  # the moving picture
FILMED = 7  # answers in it
EMOJI = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"


def photographs(folder: Path, rng: np.random.Generator) -> Sequence[str]:
    """A herbarium: leaves of 24 species, five sheets of each, and 60 new sheets of six of them."""
    genera = ("Acer", "Betula", "Cornus", "Fagus", "Quercus", "Salix", "Sorbus", "Tilia")
    for number, name in enumerate(f"{genus} {kind}" for genus in genera for kind in ("alba", "montana", "rubra")):
        form = np.random.default_rng(number)
        shape = (form.integers(2, 14), form.uniform(0.02, 0.3), form.uniform(0.3, 0.9), form.integers(5, 40))
        colour = np.array([form.integers(40, 150), form.integers(80, 150), form.integers(30, 70)])
        for sheet in range(5):
            _leaf(folder / "examples" / name / f"{sheet}.jpg", shape, colour, rng)
        for sheet in range(10 if number % 4 == 0 else 0):
            _leaf(
                folder / "items" / f"drawer {1 + sheet // 5}" / f"sheet-{number * 37 % 60:02}{sheet}.jpg",
                shape,
                colour,
                rng,
            )
    return "examples/", "items/"


def _leaf(path: Path, shape: tuple[float, ...], colour: np.ndarray, rng: np.random.Generator) -> None:
    lobes, depth, width, teeth = shape
    turn, size = rng.normal(0, 0.15), rng.uniform(95, 125)
    angle = np.linspace(0, 2 * np.pi, 400)
    radius = size * (1 + depth * np.cos(lobes * angle) + 0.03 * np.cos(teeth * angle)) * (1 + 0.25 * np.cos(angle))
    along, across = radius * np.cos(angle), radius * np.sin(angle) * (width + rng.normal(0, 0.03))
    x = 160 + across * np.cos(turn) - along * np.sin(turn)
    y = 150 - across * np.sin(turn) - along * np.cos(turn)
    picture = Image.new("RGB", (320, 320), (236, 230, 214))
    draw = ImageDraw.Draw(picture)
    tint = tuple(int(v) for v in np.clip(colour + rng.normal(0, 10, 3), 0, 255))
    draw.polygon(list(zip(x, y, strict=True)), fill=tint)
    base = (160 + 150 * np.sin(turn), 150 + 150 * np.cos(turn))
    draw.line([base, (160 - 90 * np.sin(turn), 150 - 90 * np.cos(turn))], fill=(90, 80, 50), width=3)
    noise = Image.effect_noise((320, 320), 10).convert("RGB")
    picture = ImageChops.add(picture.filter(ImageFilter.GaussianBlur(0.8)), noise, scale=1, offset=-128)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=88)


def tickets(folder: Path, rng: np.random.Generator) -> Sequence[str]:
    """The tables of the gallery's page on texts, with numbers and dates of tickets."""
    source = (GALLERY / "own-texts.py").read_text(encoding="utf-8").partition("pd.DataFrame(")[0]
    (folder / "tables.py").write_text(source, encoding="utf-8")
    made = runpy.run_path(str(folder / "tables.py"))
    rows = [(label, text) for label, texts in made["examples"].items() for text in texts]
    pd.DataFrame(rows, columns=["label", "text"]).to_csv(folder / "examples.csv", index=False)
    texts = [text for group in made["tickets"].values() for text in group]
    rng.shuffle(texts)
    ids = [f"T-{4100 + 7 * i}" for i in range(len(texts))]
    from_ = rng.choice(["Berlin", "Lyon", "Oslo"], len(texts))
    pd.DataFrame({"ticket_id": ids, "site": from_, "text": texts}).to_csv(folder / "tickets.csv", index=False)
    return "examples.csv", "tickets.csv"


def camera_traps(folder: Path, rng: np.random.Generator) -> Sequence[str]:
    """Pictures of a night camera, and what SpeciesNet could have said about them."""
    animals = {"red deer": "🦌", "wild boar": "🐗", "red fox": "🦊", "european badger": "🦡", "brown hare": "🐇"}
    others = ["roe deer", "fallow deer", "grey wolf", "raccoon", "european rabbit", "domestic cat", "otter"]
    names = [*animals, *others]
    predictions = []
    for i in range(40):
        name = list(animals)[int(rng.choice(5, p=[0.4, 0.25, 0.2, 0.1, 0.05]))]
        box = _night(folder / "photos" / f"IMG_{i:04}.jpg", animals[name], rng)
        logits = rng.normal(0, 0.9, len(names))
        logits[names.index(name)] += 2.8
        scores = np.exp(logits) / np.exp(logits).sum()
        best = np.argsort(-scores)[:5]
        classes = [f"0;mammalia;;;;;{names[k]}" for k in best]
        predictions.append(
            {
                "filepath": f"IMG_{i:04}.jpg",
                "classifications": {"classes": classes, "scores": [round(float(scores[k]), 4) for k in best]},
                "detections": [{"category": "1", "label": "animal", "conf": 0.9, "bbox": box}],
                "prediction": classes[0],
                "prediction_score": round(float(scores[best[0]]), 4),
            }
        )
    (folder / "predictions.json").write_text(json.dumps({"predictions": predictions}), encoding="utf-8")
    return "--scores", "predictions.json", "--pictures", "photos"


def _night(path: Path, animal: str, rng: np.random.Generator) -> list[float]:
    shade = np.linspace(0.15, 0.5, 240)[:, None] + 0.04 * rng.normal(size=(240, 320)).cumsum(1) / 6
    scene = Image.fromarray((255 * np.clip(shade, 0, 1)).astype("uint8")).filter(ImageFilter.GaussianBlur(2))
    glyph = Image.new("RGBA", (136, 128))
    font = ImageFont.truetype(EMOJI, 109)  # the one size of this font
    ImageDraw.Draw(glyph).text((0, 0), animal, font=font, embedded_color=True)
    side = int(rng.integers(110, 145))
    glyph = glyph.resize((side, side))
    left, top = int(rng.integers(10, 310 - side)), int(rng.integers(60, 235 - side))
    scene.paste(glyph.convert("L").point(lambda v: v * 0.9), (left, top), glyph.getchannel("A"))
    noise = Image.effect_noise((320, 240), 14)
    path.parent.mkdir(parents=True, exist_ok=True)
    ImageChops.add(scene, noise, 1, -128).save(path, quality=85)
    return [left / 320, top / 240, side / 320, side / 240]


def sound(folder: Path, rng: np.random.Generator) -> Sequence[str]:
    """The tables of BirdNET for two nights."""
    birds = {"Strix aluco": "Tawny Owl", "Turdus merula": "Eurasian Blackbird", "Erithacus rubecula": "European Robin"}
    doubtful = {"Asio otus": "Long-eared Owl", "Turdus philomelos": "Song Thrush", "Prunella modularis": "Dunnock"}
    (folder / "birdnet").mkdir()
    for night in ("0412", "0413"):
        rows = []
        for start in range(0, 90, 3):
            k = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
            sure = float(np.clip(rng.beta(3, 2), 0.15, 0.98))
            named = ((list(birds.items())[k], sure), (list(doubtful.items())[k], float(rng.uniform(0.1, 0.5))))
            rows += [
                (f"{start}.0", f"{start + 3}.0", latin, name, f"{p:.4f}", f"night_{night}.wav")
                for (latin, name), p in named
            ]
        columns = ["Start (s)", "End (s)", "Scientific name", "Common name", "Confidence", "File"]
        table = pd.DataFrame(rows, columns=columns)
        table.to_csv(folder / "birdnet" / f"night_{night}.BirdNET.results.csv", index=False)
    return "--scores", "birdnet"


def feature_tables(folder: Path, rng: np.random.Generator) -> Sequence[str]:
    """Chemical measurements of wines, from scikit-learn."""
    from sklearn.datasets import load_wine

    wines = load_wine(as_frame=True)
    table = wines.frame.assign(label=wines.target.map(lambda k: f"cultivar {k + 1}")).drop(columns="target")
    examples = table.groupby("label").sample(5, random_state=0)
    rest = table.drop(examples.index).drop(columns="label").sample(60, random_state=0)
    rest.insert(0, "bottle", [f"bottle-{i:03}" for i in range(60)])
    examples.to_csv(folder / "examples.csv", index=False)
    rest.to_csv(folder / "bottles.csv", index=False)
    return "examples.csv", "bottles.csv", "--item-column", "bottle"


PAGES: dict[str, Callable[[Path, np.random.Generator], Sequence[str]]] = {
    "photographs": photographs,
    "tickets": tickets,
    "camera-traps": camera_traps,
    "sound": sound,
    "feature-tables": feature_tables,
}


@contextmanager
def opened(arguments: Sequence[str], folder: Path, **size: int) -> Iterator[Page]:
    """The page of a review in a browser. What the command says is printed."""
    command = [sys.executable, "-u", "-m", "manyway", "review", *arguments, "--no-browser", "--port", "8911"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = ""
        while not (address := re.search(r"http://\S+", said)):
            line = server.stdout.readline()
            if not line:
                raise SystemExit(f"{' '.join(command)} ended:\n{said}")
            said += line
        print(said)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 720, **size})
            page.goto(address[0])
            page.wait_for_selector("body.ready")
            page.wait_for_timeout(1500)  # pictures come one by one
            yield page
            browser.close()
        server.terminate()


def photograph(name: str, path: Path) -> None:
    """Write the files of a page, review them, and save what the browser shows."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        arguments = PAGES[name](folder, np.random.default_rng(0))
        with opened(arguments, folder) as page:
            page.screenshot(path=path)
    print(path)


def film(path: Path) -> None:
    """Answer the first item of some groups of the demonstration truly, and save what the browser shows as a film."""
    letters = load_glyphs().class_names
    names = demo_data().names
    frames: list[Image.Image] = []
    shown: list[int] = []  # milliseconds

    def keep(page: Page, milliseconds: int) -> None:
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        shown.append(milliseconds)

    with tempfile.TemporaryDirectory() as made, opened(["--demo"], Path(made), width=1200, height=700) as page:
        keep(page, 2000)
        for _ in range(FILMED):
            current = page.locator(".item.current").first
            row = int(current.get_attribute("data-row") or 0)
            truth = letters[int(Path(names[row]).stem) // SAMPLES]
            suggested = page.locator("section:has(.item.current) h2").first.inner_text()
            if truth in suggested:
                page.keyboard.press("Enter")
            else:
                page.keyboard.press("/")
                page.keyboard.type(truth.partition(" ")[2].lower())
                page.wait_for_timeout(700)
                keep(page, 1400)
                page.keyboard.press("Enter")
            page.wait_for_timeout(2500)  # the other items are labelled again
            keep(page, 1300)
            page.keyboard.press("]")  # to the next group
            page.wait_for_timeout(700)
            keep(page, 800)
        shown[-1] = 2500
    first, *others = frames
    first.save(path, save_all=True, append_images=others, duration=shown, loop=0, quality=55, method=6)
    print(f"{path}: {len(frames)} pictures, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    output = Path(sys.argv[1])
    for chosen in sys.argv[2:] or [*PAGES, FILM]:
        if chosen == FILM:
            film(output / f"{FILM}.webp")
        else:
            photograph(chosen, output / f"start-{chosen}.png")
