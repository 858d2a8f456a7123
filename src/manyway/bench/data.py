"""Where the feature sets of a suite come from: the package itself or the data folder."""

import re
from pathlib import Path

from manyway.errors import InputError
from manyway.files import data_root
from manyway.sampling import FeatureSet, load_glyphs
from manyway.sampling.simulated import simulated, sklearn_table

_NETWORKS = {"rn18": "resnet18", "wrn": "wrn28-10"}
_EMBEDDED = {"glyphs": "test", "glyphs-val": "val"}
_MADE = {"simulated": simulated, "sklearn": sklearn_table}


def find_features(key: str, data: Path | None) -> FeatureSet:
    """The feature set of a key.

    It is KEY.safetensors or KEY.npz in the data folder or in its folder features/, or the only file
    KEY_ENCODER there. For sets without validation classes, KEY-half has every other class of KEY,
    and KEY-half-val the other classes, to tune on. KEY+NAMES is KEY with class features, one vector
    per class, from the file of the key KEY_NAMES. simulated:NAME and sklearn:NAME need no file; see
    ``manyway.sampling.simulated``.
    """
    kind, colon, name = key.partition(":")
    if colon and kind in _MADE:
        return _MADE[kind](name)
    if key in _EMBEDDED:
        return load_glyphs(_EMBEDDED[key])
    if not re.fullmatch(r"\w[\w.+-]*(/\w[\w.+-]*)*", key):
        raise InputError(
            f"'{key}' is not the key of a feature set; to run on a file, give it as `features`."
        )
    folder = data_folder(data)
    found = _found(folder, key)
    if found is not None:
        return FeatureSet.load(found)
    key, plus, names = key.partition("+")
    whole, half, rest = key.partition("-half")
    if half and rest in ("", "-val"):
        return _half(find_features(whole + plus + names, data), 1 if rest else 0)
    if plus:
        vectors = _found(folder, f"{key}_{names}")
        if vectors is None:
            raise InputError(_how_to_get(f"{key}_{names}", folder))
        return find_features(key, data).with_class_features(vectors)
    raise InputError(_how_to_get(key, folder))


def find_strangers(key: str, data: Path | None) -> FeatureSet:
    """The feature set of a key, for unknown queries.

    Rows of a file without labels are of one class each.
    """
    found = None if key in _EMBEDDED or ":" in key else _found(data_folder(data), key)
    if found is None:
        return find_features(key, data)
    return FeatureSet.load(found, unlabelled=True)


def _half(features: FeatureSet, parity: int) -> FeatureSet:
    """Every other class."""
    which = features.labels % 2 == parity
    labels = features.labels[which] // 2
    vectors = None if features.class_features is None else features.class_features[parity::2]
    names = features.class_names[parity::2]
    return FeatureSet(
        features.features[which], labels, names, meta=features.meta, class_features=vectors
    )


def data_folder(data: Path | None) -> Path | None:
    """The given folder, else the folder that MANYWAY_DATA names, else ./data.

    None if that does not exist.
    """
    folder = data_root(data)
    if data is not None and not folder.is_dir():
        raise InputError(f"The data folder {data} does not exist.")
    return folder if folder.is_dir() else None


def _found(folder: Path | None, key: str) -> Path | None:
    """The file of a key in the data folder; None where there is none."""
    if folder is None:
        return None
    suffixes = (".safetensors", ".npz")
    places = [folder, folder / "features"]
    exact = [place / f"{key}{suffix}" for place in places for suffix in suffixes]
    longer = sorted(
        path for place in places for path in place.glob(f"{key}_*") if path.suffix in suffixes
    )
    if longer:
        # Beside KEY_ENCODER there may be KEY_SOMETHING_ENCODER: other features of the same data, with other keys.
        shortest = min(longer, key=lambda path: len(path.stem))
        ending = shortest.stem.removeprefix(key)
        if all(path.stem.endswith(ending) for path in longer):
            longer = [shortest]
    if not any(path.exists() for path in exact) and len(longer) > 1:
        names = ", ".join(path.name for path in longer)
        raise InputError(
            f"Several files could be '{key}': {names}; name one of them with `features`."
        )
    return next((path for path in (*exact, *longer) if path.exists()), None)


def _how_to_get(key: str, folder: Path | None) -> str:
    if folder is None:
        place = "the data folder (name one with `data` or MANYWAY_DATA)"
    else:
        place = str(folder)
    made = f"{folder or 'DATA'}/{key}.safetensors"
    another = "or run on another set with `features`."
    parts = re.fullmatch(r"(\w+)-(rn18|wrn)(-val)?", key)
    if parts is None:
        return f"There are no features '{key}' in {place}; put them there as {made}, {another}"
    dataset = parts[1]
    network = parts[2]
    split = "val" if parts[3] else "test"
    # iNat's few-shot set has no base classes to train on.
    trained = "tiered" if dataset == "inat" else dataset
    return (
        f"There are no features '{key}' in {place}: "
        "get the pictures (`manyway datasets` says where), train "
        f"{_NETWORKS[network]} on {trained} with `manyway train` (or take a published "
        "checkpoint), and turn "
        f"{dataset}:{split} into {made} with `manyway extract`; {another}"
    )
