"""What editors and type checkers read about the estimators: ``src/manyway/estimators/__init__.pyi``.

python tests/estimator_stub.py    # writes it again, after the parameters of a solver have changed
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from manyway import estimators

PATH = Path(estimators.__file__).with_suffix(".pyi")
HEAD = '''"""The estimators for editors and type checkers; made from the solvers by tests/estimator_stub.py."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from numpy.typing import ArrayLike

from manyway.estimators.base import TransductiveClassifier as TransductiveClassifier
from manyway.estimators.inference import Inference as Inference
from manyway.estimators.stream import StreamClassifier

METHOD_OF: dict[str, str]
'''
CLASS = '''
class {name}({base}):
    """{summary}"""

    def __init__(
        self,
        *,
{parameters}
    ) -> None: ...
'''


def stub() -> str:
    """The content of the file."""
    return HEAD + "".join(class_stub(getattr(estimators, name)) for name in estimators.METHOD_OF)


def class_stub(estimator: type[estimators.TransductiveClassifier]) -> str:
    parameters = [
        f"        {name}: {quoted(written(parameter.annotation))} = {quoted(repr(parameter.default))},"
        for name, parameter in inspect.signature(estimator).parameters.items()
    ]
    return CLASS.format(
        name=estimator.__name__,
        base=estimator.__base__.__name__,
        summary=inspect.getdoc(estimator).partition("\n")[0],
        parameters="\n".join(parameters),
    )


def written(annotation: object) -> str:
    """A type as the source has it."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", re.sub(r"\b(?:collections\.abc|typing|os)\.", "", text))


def quoted(text: str) -> str:
    """A type or a default with the quotes that the source has."""
    return text.replace("'", '"')


if __name__ == "__main__":
    PATH.write_text(stub(), encoding="utf-8")
