"""Data that people or earlier runs wrote, as models of pydantic.

What is wrong is one sentence that says where.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from manyway.errors import InputError, nearest

T = TypeVar("T", bound=BaseModel)
Item = TypeVar("Item")
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
_WANTED |= {
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "finite",
}
_WANTED |= {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
}
_WANTED |= {"literal_error": "{expected}"}


class Strict(BaseModel):
    """A table whose keys and types are all known: nothing is converted, unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


# One value or a list of values.
OneOrMore = Annotated[tuple[Item, ...], BeforeValidator(_listed), Field(min_length=1)]


def checked(model: type[T], data: Any, where: str) -> T:
    """The data as a model; what is wrong is one sentence that begins with ``where``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(_sentence(error, model, data, where)) from None


def _sentence(error: ValidationError, model: type[BaseModel], data: Any, where: str) -> str:
    # An unknown key is named first: a misspelt key is missing under its right name, too.
    first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    place, value = _place(first["loc"], data)
    kind = first["type"]
    if kind in ("extra_forbidden", "missing"):
        outer, _, key = place.rpartition(".")
        begin = f"{where}: {outer}" if outer else where
        if kind == "missing":
            return f"{begin} lacks the key '{key}'."
        inner = _model_at(model, first["loc"][:-1])
        return f"{begin}: unknown key '{key}'; {nearest(key, inner.model_fields if inner else [])}"
    if kind == "too_short":
        return f"{where}: {place} is an empty list; give at least one value."
    if kind == "value_error":
        said = str(first["ctx"]["error"])  # it may begin with the rest of the place
        between = " " if place and not said.startswith(".") else ""
        return f"{where}: {place}{between}{said}{'' if said.endswith(('.', '?')) else '.'}"
    if kind == "literal_error" and isinstance(value, str):
        choices = re.findall("'(.*?)'", first["ctx"]["expected"])
        return f"{where}: {place} is '{value}'; {nearest(value, choices)}"
    words = _WANTED.get(kind, "").format(**first.get("ctx", {}))
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    return f"{where}: {place} is {shown}; {f'it must be {words}' if words else first['msg']}."


def _place(location: Sequence[int | str], data: Any) -> tuple[str, Any]:
    """A place in the data as text, ``experiments[2].task.shots`` (counted from 1), and its value."""
    text = ""
    for step in location:
        if isinstance(step, int):
            if not isinstance(data, list):
                continue  # a single value that was read as a list
            text = f"{text}[{step + 1}]"
            data = data[step]
        elif step != "[key]":  # pydantic's word for the name of an entry, as opposed to its value
            text = f"{text}.{step}" if text else step
            if isinstance(data, Mapping):
                data = data.get(step)
    return text, data


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that describes a place."""
    for step in location:
        if isinstance(step, str) and model is not None and step in model.model_fields:
            model = _inner(model.model_fields[step].annotation)
    return model


def _inner(annotation: Any) -> Any:
    """The model inside an annotation such as ``list[Model]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_inner, getattr(annotation, "__args__", ()))), None)
