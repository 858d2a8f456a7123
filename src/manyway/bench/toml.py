"""Reading tables of a TOML file so that every key is either used or an error that names the nearest one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyway.errors import InputError, nearest

_REQUIRED = object()


class Reader:
    """One TOML table; ``finish`` complains about keys that nobody took."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._data = data
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        self._known.append(key)
        return key in self._data

    def value(self, key: str) -> Any:
        """The value as it is; use ``has`` before."""
        return self._data[key]

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        """The value of a key, of the wanted type."""
        if not self.has(key):
            if default is _REQUIRED:
                raise InputError(f"{self.where} lacks the key '{key}'.")
            return default
        return self._checked(self._data[key], key, kind)

    def one_or_more(self, key: str, kind: type | tuple[type, ...]) -> list[Any]:
        """A value or a list of them, as a list."""
        values = self._data[key] if self.has(key) else []
        values = values if isinstance(values, list) else [values]
        if not values:
            raise InputError(f"{self.where}: '{key}' is an empty list.")
        return [self._checked(value, key, kind) for value in values]

    def names(self, key: str) -> list[str]:
        """One string or a list of strings; required."""
        self.take(key, (str, list))
        return self.one_or_more(key, str)

    def table(self, key: str) -> Reader:
        """A table; a missing one reads as an empty one."""
        return Reader(self.take(key, dict, {}), f"{self.where}, {key}")

    def tables(self, key: str) -> list[Reader]:
        """An array of tables; a missing one reads as none."""
        values = self.take(key, list, [])
        for value in values:
            self._checked(value, key, dict)
        return [Reader(value, f"{self.where}, {key} {i + 1}") for i, value in enumerate(values)]

    def named_tables(self, key: str) -> dict[str, Reader]:
        """A table of tables whose names the user chose."""
        outer = self.take(key, dict, {})
        return {name: self.named(value, f"{key}.{name}") for name, value in outer.items()}

    def named(self, value: Any, name: str) -> Reader:
        """A value that must be a table, to be read under that name."""
        return Reader(self._checked(value, name, dict), f"{self.where}, {name}")

    def strings(self, key: str) -> dict[str, str]:
        """A table of strings whose names the user chose."""
        outer = self.take(key, dict, {})
        return {name: self._checked(value, f"{key}.{name}", str) for name, value in outer.items()}

    def all(self) -> dict[str, Any]:
        """Every key as it is."""
        return dict(self._data)

    def lists(self) -> dict[str, list[Any]]:
        """Every key, each an axis: a list, or ``{ per_query = [...] }`` for a list of multiples of n_query."""
        axes: dict[str, list[Any]] = {}
        for key, value in self._data.items():
            if isinstance(value, Mapping) and set(value) == {"per_query"} and isinstance(value["per_query"], list):
                axes[key] = [{"per_query": factor} for factor in value["per_query"]]
            elif isinstance(value, list) and value:
                axes[key] = value
            else:
                raise InputError(f"{self.where}: '{key}' must be a list of values to sweep, with at least one.")
        return axes

    def finish(self) -> None:
        """Complain about the first key that nobody asked for."""
        for key in self._data:
            if key not in self._known:
                raise InputError(f"{self.where}: unknown key '{key}'; {nearest(key, dict.fromkeys(self._known))}")

    def _checked(self, value: Any, key: str, kind: type | tuple[type, ...]) -> Any:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if float in kinds:
            kinds = (*kinds, int)
        # True is an int to Python, and never what a number in a suite means.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            words = {
                str: "text",
                int: "a whole number",
                float: "a number",
                list: "a list",
                dict: "a table",
                bool: "true or false",
            }
            wanted = " or ".join(dict.fromkeys(words[k] for k in (kind if isinstance(kind, tuple) else (kind,))))
            raise InputError(f"{self.where}: '{key}' is {value!r}; it must be {wanted}.")
        return value
