"""Own pictures: from two folders to labels in one command

A folder of labelled pictures with one folder per class, and a folder of new pictures: `manyway label known/ pile/`
does the rest. The default encoder comes with the extra `pictures`; nothing is downloaded when it runs.
"""

# %%
# ## Two folders
#
# So that the example needs no download, its pictures are drawn: flags with stripes, seen at an angle, in changing
# light and with noise. There are two pictures of each of 24 flags, and 45 pictures of three flags to label.
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image

COLOURS = {"b": "#21468b", "w": "#ffffff", "r": "#c8102e", "g": "#1a8a4a", "y": "#fcd116", "k": "#111111",
           "o": "#ff8200", "l": "#3a9bd9"}  # fmt: skip
VERTICAL = {"France": "bwr", "Italy": "gwr", "Belgium": "kyr", "Ireland": "gwo", "Romania": "byr", "Mali": "gyr",
            "Guinea": "ryg", "Nigeria": "gwg", "Peru": "rwr", "Côte d'Ivoire": "owg"}  # fmt: skip
HORIZONTAL = {"Germany": "kry", "Netherlands": "rwb", "Russia": "wbr", "Hungary": "rwg", "Bulgaria": "wgr",
              "Austria": "rwr", "Estonia": "lkw", "Lithuania": "ygr", "Ukraine": "by", "Poland": "wr", "Monaco": "rw",
              "Yemen": "rwk", "Armenia": "rbo", "Sierra Leone": "gwl"}  # fmt: skip
generator = np.random.default_rng(0)


def photograph(name):
    """A flag at an angle before a background, darker or lighter, with noise."""
    flag = Image.new("RGB", (144, 96))
    stripes = VERTICAL.get(name) or HORIZONTAL[name]
    for i, colour in enumerate(stripes):
        start, end = i / len(stripes), (i + 1) / len(stripes)
        box = (0, start * 96, 144, end * 96) if name in HORIZONTAL else (start * 144, 0, end * 144, 96)
        flag.paste(COLOURS[colour], tuple(round(edge) for edge in box))
    scene = Image.new("RGB", (200, 160), tuple(generator.integers(90, 200, 3).tolist()))
    turned = flag.convert("RGBA").rotate(generator.uniform(-15, 15), Image.Resampling.BICUBIC, expand=True)
    scene.paste(turned, tuple(generator.integers(5, 30, 2).tolist()), turned)
    pixels = np.asarray(scene) * generator.uniform(0.65, 1.15) + generator.normal(0, 18, (160, 200, 1))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def save(picture, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


for name in [*VERTICAL, *HORIZONTAL]:
    for i in range(2):
        save(photograph(name), Path("known") / name / f"{i}.png")
truth = np.array(["Romania", "Hungary", "Poland"]).repeat(15)
for i, name in enumerate(truth):
    save(photograph(name), Path("pile") / f"picture-{i:02}.png")
print(len(list(Path("known").glob("*/*.png"))), "labelled pictures,", len(truth), "pictures to label")

# %%
figure, axes = plt.subplots(3, 6, figsize=(7, 2.9))
for ax, i in zip(axes.flat, [*range(6), *range(15, 21), *range(30, 36)], strict=True):
    ax.imshow(Image.open(f"pile/picture-{i:02}.png"))
    ax.axis("off")

# %%
# ## One command
subprocess.run(["manyway", "label", "known", "pile", "-o", "labels.csv"], check=True)

# %%
# The table has one row per picture. Here the truth is known, so the labels can be checked.
together = pd.read_csv("labels.csv").sort_values("item")
print(f"{(together.label.to_numpy() == truth).mean():.0%} correct")
print(together[["item", "label", "probability", "label_2"]].head(4).to_string(index=False))

# %%
# ## Each picture on its own
#
# For comparison. Features are kept by the content of the pictures, so this second run encodes nothing.
subprocess.run(["manyway", "label", "known", "pile", "-o", "each.csv", "--method", "simpleshot"],
               check=True, capture_output=True)  # fmt: skip
each = pd.read_csv("each.csv").sort_values("item")
print(f"{(each.label.to_numpy() == truth).mean():.0%} correct, {each.label.nunique()} different flags")

# %%
# [Encode images and texts](../images.md) lists the encoders that `--encoder` takes.
