"""The learned parameters of UNEM: where they come from, what is refused, and which tasks they were learned for.

They are a small JSON file that ``manyway tune`` writes. The files in this folder come with the package:

* ``letters.json``: of ``manyway tune`` on the embedded letters of the validation classes, ``glyphs-val.safetensors``;
* ``authors-cub-5shot.json``, ``authors-cub-20shot.json``: the values that the authors publish, after softplus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

from manyway.errors import InputError, nearest

FORMAT = 1
_FOLDER = Path(__file__).parent
_KEYS = ("format", "method", "layers", "feature_scale", "lam", "temperature", "scale", "training")
_SIZES = {"shots": "shots", "n_classes": "classes", "n_query": "queries", "k_eff": "present classes"}
_LARGEST = 1e30  # of a value; its square must be finite
_LARGEST_FILE = 2**20  # characters that are read; a file of a hundred layers has ten thousand


@dataclass(frozen=True)
class Parameters:
    """What is learned, and on which tasks."""

    feature_scale: float
    lam: tuple[float, ...]  # one per layer, as is the temperature
    temperature: tuple[float, ...]
    scale: str | None = "cl2"  # the feature transform
    training: Mapping[str, Any] | None = None  # shots, k_eff, n_classes, n_query, fingerprint of the features, …

    def to_json(self) -> dict[str, Any]:
        """The content of a file."""
        return {"format": FORMAT, "method": "unem", "layers": len(self.lam), **asdict(self)}


def preset_names() -> list[str]:
    """The sets of parameters that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def read_parameters(given: str | PathLike[str] | Mapping[str, Any]) -> Parameters:
    """The parameters of a mapping, of a set that comes with the package, or of a file.

    >>> read_parameters({"feature_scale": 1, "lam": [1, 2], "temperature": [1, 1]}).lam
    (1.0, 2.0)
    >>> read_parameters({"feature_scale": 1, "lam": [1, 2], "temperature": [1]})
    Traceback (most recent call last):
        ...
    manyway.errors.InputError: The parameters of unem: lam has 2 values and temperature 1; give one per layer.
    """
    if isinstance(given, Mapping):
        return _checked(given, "The parameters of unem")
    path, presets = Path(given), preset_names()
    if str(given) in presets:
        path = _FOLDER / f"{given}.json"
    elif not path.is_file():  # nor a pipe or a device, which could block for ever
        raise InputError(f"There is no file {path} with parameters of unem, nor a set of that name; {_hint(path)}")
    return _checked(_read(path), str(path))


def unlike_training(
    params: Mapping[str, Any], *, shots: float, n_classes: int, n_query: int, k_eff: int | None = None
) -> str | None:
    """A sentence where tasks differ from those that the parameters were learned on; None where they do not.

    ``params`` are those of ``unem``. ``k_eff`` is None where nobody knows it.
    """
    learned = read_parameters(params["parameters"]).training or {}
    here: dict[str, Any] = {"shots": shots, "n_classes": n_classes, "n_query": n_query, "k_eff": k_eff}
    known = {name: value for name, value in here.items() if isinstance(value, Real) and learned.get(name) is not None}
    differ = [name for name, value in known.items() if learned[name] != value]
    if not differ:
        return None
    then, now = (", ".join(f"{round(of[name], 1):g} {_SIZES[name]}" for name in differ) for of in (learned, known))
    return (
        f"unem: its parameters were learned on tasks with {then}, and these have {now}; learn others with "
        "`manyway tune`."
    )


def _hint(path: Path) -> str:
    return nearest(str(path), preset_names()) if path.suffix != ".json" else "make one with `manyway tune`."


def _read(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            return json.loads(file.read(_LARGEST_FILE))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not a file of parameters of unem, or it is damaged ({error}); make one with `manyway tune`."
        ) from error


def _checked(data: Any, where: str) -> Parameters:
    """The content of a file or a mapping as parameters; the first thing that is wrong is one sentence."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where} is not a table of parameters of unem; make one with `manyway tune`.")
    if not {"feature_scale", "lam", "temperature"} & data.keys():
        raise InputError(f"{where} has no parameters of unem; give the file unem-NAME.json that `manyway tune` writes.")
    unknown = next((key for key in data if key not in _KEYS), None)
    if unknown is not None:
        raise InputError(f"{where}: unknown key '{unknown}'; {nearest(str(unknown), _KEYS)}")
    if data.get("method", "unem") != "unem":
        raise InputError(f"{where} has parameters of {data['method']}, not of unem.")
    if data.get("format", FORMAT) != FORMAT:
        raise InputError(f"{where} has the format {data['format']}, and this version reads {FORMAT}; update manyway.")
    missing = next((key for key in ("feature_scale", "lam", "temperature") if key not in data), None)
    if missing is not None:
        raise InputError(f"{where} lacks '{missing}'.")
    if not _positive(data["feature_scale"]):
        raise InputError(f"{where}: feature_scale is {data['feature_scale']!r}; it must be a positive number.")
    for name, lowest in (("lam", "not negative"), ("temperature", "positive")):
        values = data[name]
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"{where}: {name} must be a list of numbers, one per layer.")
        wrong = next((value for value in values if not (_positive(value) or (value == 0 and name == "lam"))), None)
        if wrong is not None:
            raise InputError(f"{where}: {name} has the value {wrong!r}; all must be finite numbers and {lowest}.")
    n_lam, n_temperature = len(data["lam"]), len(data["temperature"])
    if n_lam != n_temperature:
        raise InputError(f"{where}: lam has {n_lam} values and temperature {n_temperature}; give one per layer.")
    if data.get("layers", n_lam) != n_lam:
        raise InputError(f"{where}: layers is {data['layers']!r}, but there are values for {n_lam} layers.")
    scale, training = data.get("scale", "cl2"), data.get("training")
    if not isinstance(scale, str | None):
        raise InputError(f"{where}: scale is {scale!r}; it must be the name of a feature transform, or null.")
    if not isinstance(training, Mapping | None):
        raise InputError(f"{where}: training must be a table that describes the tasks, or null.")
    for name in _SIZES:
        size = (training or {}).get(name)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"{where}: training.{name} is {size!r}; it must be a whole number of at least 1.")
    return Parameters(
        float(data["feature_scale"]),
        tuple(map(float, data["lam"])),
        tuple(map(float, data["temperature"])),
        scale,
        training,
    )


def _positive(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and bool(0 < value <= _LARGEST)  # type: ignore[operator]
