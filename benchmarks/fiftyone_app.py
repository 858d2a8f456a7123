"""The picture of FiftyOne's App with labels of manyway: a data set of drawn letters, its server, and a browser.

    python -m benchmarks.fiftyone_app docs/images

Needs FiftyOne with a MongoDB that runs here, playwright and Chromium. `FIFTYONE_DATABASE_URI` may name a MongoDB.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import fiftyone
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import sync_playwright

from manyway import Evidence, from_fiftyone, to_fiftyone

NAME = "letters"
VIEW = "answers"
POSSIBLE = "ABDEGHKMNPQRSTXZ"
PRESENT = "ERST"
N_EXAMPLES = 4
N_ITEMS = 60
SIZE = 96
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
WAIT_S = 120  # for the server to answer


def draw(path: Path, letter: str, rng: np.random.Generator) -> np.ndarray:
    """A letter in some font, turned and with noise; return its features."""
    fonts = [path for path in FONTS.glob("DejaVuS*.ttf") if "Display" not in path.name]  # which lack letters
    picture = Image.new("L", (SIZE, SIZE), 255)
    font = ImageFont.truetype(str(sorted(fonts)[rng.integers(len(fonts))]), int(rng.integers(48, 66)))
    ImageDraw.Draw(picture).text((SIZE / 2, SIZE / 2), letter, font=font, fill=20, anchor="mm")
    turned = np.asarray(picture.rotate(float(rng.normal(0, 7)), fillcolor=255), dtype=float)
    noisy = (turned + rng.normal(0, 12, turned.shape)).clip(0, 255)
    found = Image.fromarray(noisy.astype(np.uint8))
    found.save(path)
    return 1 - np.asarray(found.resize((16, 16)), dtype=float).ravel() / 255


def make_dataset(folder: Path) -> float:
    """A data set with labels of manyway for the samples without one; return the part that is right."""
    rng = np.random.default_rng(3)
    samples = []
    for letter in POSSIBLE:
        for number in range(N_EXAMPLES):
            path = folder / f"{letter}{number}.png"
            sample = fiftyone.Sample(filepath=str(path), embeddings=draw(path, letter, rng))
            sample["ground_truth"] = fiftyone.Classification(label=letter)
            samples.append(sample)
    truth = [PRESENT[k] for k in rng.integers(len(PRESENT), size=N_ITEMS)]
    for number, letter in enumerate(truth):
        path = folder / f"item{number}.png"
        samples.append(fiftyone.Sample(filepath=str(path), embeddings=draw(path, letter, rng)))
    dataset = fiftyone.Dataset(NAME, overwrite=True, persistent=True)
    dataset.add_samples(samples)
    known = dataset.exists("ground_truth")
    pile = dataset.exists("ground_truth", False)
    result = Evidence(likelihood="auto").fit(*from_fiftyone(known, label="ground_truth")).infer(from_fiftyone(pile)[0])
    to_fiftyone(pile, result, field="manyway")
    dataset.save_view(VIEW, dataset.exists("manyway").sort_by("manyway.confidence"))
    return float(np.mean(np.asarray(result.labels) == np.asarray(truth)))


def photograph(address: str, target: Path) -> None:
    """Wait for the App to show the samples, and take its picture."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 640})
        page.goto(address, wait_until="domcontentloaded", timeout=1000 * WAIT_S)
        page.get_by_text(f"{N_ITEMS} samples").wait_for(timeout=1000 * WAIT_S)
        page.get_by_text("Dismiss").click(timeout=1000 * WAIT_S)
        page.mouse.move(5, 5)
        page.wait_for_timeout(5000)  # the pictures are drawn on a canvas, which nothing announces
        page.screenshot(path=target)
        browser.close()


def main(target: Path) -> None:
    """Draw, label, serve, and take the picture."""
    port = _free_port()
    spec = find_spec("fiftyone.server.main")
    assert spec is not None
    with tempfile.TemporaryDirectory() as folder:
        print(f"{100 * make_dataset(Path(folder)):.0f} % of {N_ITEMS} labels are right")
        server = subprocess.Popen([sys.executable, str(spec.origin), "--port", str(port)])
        try:
            _wait_for(port)
            photograph(f"http://localhost:{port}/datasets/{NAME}?view={VIEW}", target)
        finally:
            server.terminate()
            server.wait()
            fiftyone.delete_dataset(NAME)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(WAIT_S):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(1)
    raise SystemExit("The server of FiftyOne does not answer.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "fiftyone.png")
