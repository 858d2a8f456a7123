"""``python -m benchmarks.halves KEY… --data DATA --out FOLDER``: half of the classes to report on, half to tune on.

For feature sets that come without validation classes: KEY-half.safetensors has every other class and
KEY-half-val.safetensors the rest: ``manyway tune --features …-half-val.safetensors`` sees no class of the first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from manyway import FeatureSet
from manyway.bench.data import find_features


def half(features: FeatureSet, parity: int) -> FeatureSet:
    """Every other class."""
    which = features.labels % 2 == parity
    labels = torch.div(features.labels[which], 2, rounding_mode="floor")
    return FeatureSet(features.features[which], labels, features.class_names[parity::2], meta=features.meta)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", help="feature sets: keys in DATA")
    parser.add_argument("--data", type=Path, help="folder with the features")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for key in options.keys:
        features = find_features(key, options.data)
        half(features, 0).save(options.out / f"{key}-half.safetensors")
        half(features, 1).save(options.out / f"{key}-half-val.safetensors")


if __name__ == "__main__":
    main()
