"""The learned parameters of UNEM.

Where they come from, what is refused, and which tasks they were learned for.

They are a small JSON file that ``manyway tune`` writes.
The files in this folder come with the package:

* ``letters.json``: of ``manyway tune`` on the embedded letters of the validation classes, ``glyphs-val.safetensors``;
* ``authors-cub-5shot.json``, ``authors-cub-20shot.json``: the values that the authors publish, after softplus.
"""

import json
import os
from collections.abc import Mapping
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from manyway.core import OneOrMore, Strict, checked
from manyway.errors import InputError, nearest

_FOLDER = Path(__file__).parent
_SIZES = {
    "shots": "shots",
    "n_classes": "classes",
    "n_query": "queries",
    "k_eff": "present classes",
}
_LARGEST_FILE = 2**20  # characters that are read; a file of a hundred layers has ten thousand


Positive = Annotated[float, Field(gt=0, lt=1e30)]  # its square must be finite
NotNegative = Annotated[float, Field(ge=0, lt=1e30)]


class Parameters(Strict):
    """What is learned, and on which tasks."""

    format: Literal[1] = 1
    method: Literal["unem"] = "unem"
    layers: int | None = None
    feature_scale: Positive
    lam: OneOrMore[NotNegative]  # one per layer, as is the temperature
    temperature: OneOrMore[Positive]
    scale: str | None = "cl2"  # the feature transform
    # shots, k_eff, n_classes, n_query, fingerprint of the features, …
    training: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _per_layer(self) -> "Parameters":
        n_lam = len(self.lam)
        n_temperature = len(self.temperature)
        if n_lam != n_temperature:
            raise ValueError(
                f"lam has {n_lam} values and temperature {n_temperature}; give one per layer"
            )
        if self.layers not in (None, n_lam):
            raise ValueError(f"layers is {self.layers}, but there are values for {n_lam} layers")
        for name in _SIZES:
            size = (self.training or {}).get(name)
            if size is not None and (type(size) is not int or size < 1):
                raise ValueError(
                    f"training.{name} is {size!r}; it must be a whole number of at least 1"
                )
        return self

    def to_json(self) -> dict[str, Any]:
        """The content of a file."""
        return {**self.model_dump(), "layers": len(self.lam)}


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
    manyway.errors.InputError: The table of parameters: lam has 2 values and temperature 1; give one per layer.
    """
    if isinstance(given, Mapping):
        return _checked(given, "The table of parameters")
    path = Path(given)
    presets = preset_names()
    if str(given) in presets:
        path = _FOLDER / f"{given}.json"
    elif not os.path.isfile(path):  # nor a pipe or a device, which could block for ever
        if path.suffix == ".json":
            hint = "make one with `manyway tune`."
        else:
            hint = nearest(str(path), presets)
        raise InputError(
            f"There is no file {path} with parameters of unem, nor a set of that name; {hint}"
        )
    return _checked(_read(path), str(path))


def unlike_training(
    params: Mapping[str, Any],
    *,
    shots: float,
    n_classes: int,
    n_query: int,
    k_eff: int | None = None,
) -> str | None:
    """A sentence where tasks differ from those that the parameters were learned on.

    None where they do not.

    ``params`` are those of ``unem``. ``k_eff`` is None where nobody knows it.
    """
    learned = read_parameters(params["parameters"]).training or {}
    here: dict[str, Any] = {
        "shots": shots,
        "n_classes": n_classes,
        "n_query": n_query,
        "k_eff": k_eff,
    }
    known = {
        name: value
        for name, value in here.items()
        if isinstance(value, Real) and learned.get(name) is not None
    }
    differ = [name for name, value in known.items() if learned[name] != value]
    if not differ:
        return None
    then, now = (
        ", ".join(f"{round(of[name], 1):g} {_SIZES[name]}" for name in differ)
        for of in (learned, known)
    )
    unlike = f"unem: its parameters were learned on tasks with {then}, and these have {now}"
    return f"{unlike}; learn others with `manyway tune`."


def _read(path: Path) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            return json.loads(file.read(_LARGEST_FILE))
    except (OSError, ValueError, RecursionError) as error:
        wrong = f"{path} is not a file of parameters of unem, or it is damaged ({error})"
        raise InputError(f"{wrong}; make one with `manyway tune`.") from error


def _checked(data: Any, where: str) -> Parameters:
    """The content of a file or a mapping as parameters.

    The first thing that is wrong is one sentence.
    """
    if not isinstance(data, Mapping) or not {"feature_scale", "lam", "temperature"} & data.keys():
        raise InputError(
            f"{where} has no parameters of unem; "
            "give the file unem-NAME.json that `manyway tune` writes."
        )
    return checked(Parameters, data, where)
