"""Choosing hyper-parameters on validation classes, and the file that suites read them from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyway.errors import InputError

FILE = "tuned.json"
Tuned = Mapping[str, Mapping[str, Mapping[str, Any]]]  # feature set -> method -> parameters


def read_tuned(path: Path | None, results: Path) -> Tuned:
    """The chosen parameters; empty when nothing was tuned and no file is named."""
    source = results / FILE if path is None else path
    if path is None and not source.exists():
        return {}
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
        return {
            features: {m: chosen["params"] for m, chosen in methods.items()}
            for features, methods in data["chosen"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{source} is not a file of tuned parameters ({error}); make one with `manyway tune`."
        ) from error
