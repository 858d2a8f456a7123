"""The commands on the first pages for a user, and files with which each of them can be run."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.M | re.S)
_STARTED = "Review of "  # what a review prints when its page can be opened
_NOT_HERE = "manyway bench"  # it needs features that are not published with the package
COLOURS = {"house sparrow": (250, 10, 10), "barn swallow": (10, 250, 10), "wren": (10, 10, 250)}


def commands(page: Path) -> list[str]:
    """The commands of a page: in code blocks, in tables and in sentences."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(text, "") for line in block.splitlines() if line.startswith("manyway ")]
    prose = _BLOCK.sub("", text)
    lines += [" ".join(command.split()) for command in re.findall(r"`(manyway [^`]+)`", prose)]
    return [line for line in dict.fromkeys(lines) if not line.startswith(_NOT_HERE)]


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code of a page that are in a language; '' for those that say none."""
    return [code for name, code in _BLOCK.findall(text) if name == language]


def extras_of_readme() -> str:
    """The extras that the README installs."""
    found = re.search(r'pip install .*"\.\[(.+)\]"', PAGES[0].read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def make_material(folder: Path, page: Path) -> None:
    """The files that the commands of a page name."""
    _pictures(folder)
    _texts(folder)
    _features(folder)
    _scores(folder)
    if page.stem == "feature-tables":  # its examples are numbers
        table = pd.read_csv(folder / "table.csv")
        table[table["label"].notna()].to_csv(folder / "examples.csv", index=False)


def _pictures(folder: Path) -> None:
    for name, colour in COLOURS.items():
        (folder / "examples" / name).mkdir(parents=True)
        for n in range(3):
            shade = tuple(abs(part - 4 * n) for part in colour)
            Image.new("RGB", (32, 32), shade).save(folder / "examples" / name / f"{n}.jpg")
    for place in ("items", "photos"):
        (folder / place).mkdir()
        for n in range(5):
            Image.new("RGB", (32, 32), (240 - n, 20, 15)).save(folder / place / f"IMG_{n:04}.jpg")


def _texts(folder: Path) -> None:
    known = {"card": ["where is my card", "my card is lost"], "rain": ["will it rain today", "is it cold outside"]}
    rows = [(text, label) for label, texts in known.items() for text in texts]
    table = pd.DataFrame(rows, columns=["text", "label"])
    new = ["the card is gone again", "is it sunny this week", "I have lost the card"]
    tickets = pd.DataFrame({"text": new})
    both = pd.concat([table, tickets.assign(label=None)])
    table.to_csv(folder / "examples.csv", index=False)
    table.to_excel(folder / "examples.xlsx", index=False)
    tickets.to_csv(folder / "tickets.csv", index=False)
    both.to_excel(folder / "tickets.xlsx", index=False)
    (folder / "tickets.txt").write_text("\n".join(new) + "\n")
    (folder / "intents.txt").write_text("lost card\nweather\n")


def _features(folder: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["ant", "bee", "fly"], 5)
    rows = np.repeat(np.eye(3, 4) * 5, 5, 0) + rng.normal(size=(15, 4))
    new = np.repeat(np.eye(3, 4)[:2] * 5, 6, 0) + rng.normal(size=(12, 4))
    np.savez(folder / "examples.npz", features=rows, labels=labels)
    np.savez(folder / "items.npz", features=new)
    columns = ["a", "b", "c", "d"]
    known = pd.DataFrame(rows, columns=columns).assign(label=labels)
    table = pd.concat([known, pd.DataFrame(new, columns=columns)])
    table.to_csv(folder / "table.csv", index=False)
    table.to_excel(folder / "table.xlsx", index=False)
    pd.DataFrame(new, columns=columns).to_csv(folder / "items.csv", index=False)


def _scores(folder: Path) -> None:
    lion = "a1;mammalia;carnivora;felidae;panthera;leo;lion"
    zebra = "a2;mammalia;perissodactyla;equidae;equus;quagga;plains zebra"
    predictions = [
        {
            "filepath": f"IMG_{n:04}.jpg",
            "classifications": {"classes": [lion, zebra], "scores": [0.9 - n / 10, 0.1 + n / 10]},
            "prediction": lion,
        }
        for n in range(5)
    ]
    (folder / "predictions.json").write_text(json.dumps({"predictions": predictions}))
    verified = pd.DataFrame({"item": ["IMG_0000.jpg", "IMG_0001.jpg"], "label": ["lion", "lion"]})
    verified.to_csv(folder / "verified.csv", index=False)
    media = pd.DataFrame(
        {
            "mediaID": [f"m{n}" for n in range(5)],
            "deploymentID": ["site 1"] * 5,
            "timestamp": [f"2024-05-01T2{n}:00:00Z" for n in range(4)] + ["2024-05-02T01:00:00Z"],
            "filePath": [f"IMG_{n:04}.jpg" for n in range(5)],
        }
    )
    media.to_csv(folder / "media.csv", index=False)
    (folder / "birdnet").mkdir()
    heading = "Start (s),End (s),Scientific name,Common name,Confidence"
    lines = [f"{3 * n},{3 * n + 3},Turdus merula,Eurasian Blackbird,0.{9 - n}" for n in range(4)]
    lines += [f"{3 * n},{3 * n + 3},Turdus philomelos,Song Thrush,0.{1 + n}" for n in range(4)]
    (folder / "birdnet" / "S1.BirdNET.results.csv").write_text("\n".join([heading, *lines]) + "\n")


def try_command(program: Path, command: str, folder: Path, seconds: float = 300) -> str:
    """Run a command of a page; a review is ended when its page can be opened. Gives what went wrong, or ''."""
    words = [str(program), *re.findall(r'"[^"]*"|\S+', command)[1:]]
    words = [word.strip('"') for word in words]
    is_review = words[1] == "review" and "--sort-into" not in words
    if is_review:
        shutil.rmtree(folder / "review", ignore_errors=True)  # of the command before
        words += ["--no-browser", "--port", "8990"]
    log = folder / "said.txt"
    with log.open("w") as said:
        running = subprocess.Popen(words, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        end = time.monotonic() + seconds
        while running.poll() is None and time.monotonic() < end:
            if is_review and _STARTED in log.read_text():
                running.send_signal(signal.SIGINT)
                break
            time.sleep(0.2)
        code = running.wait(60)
    return "" if code == 0 else f"{command}: {log.read_text()[-2000:]}"
