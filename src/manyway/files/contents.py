"""What a feature file holds, as its reader finds it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.files.origin import TableOrigin


@dataclass(frozen=True, eq=False)
class Contents:
    """What a feature file holds."""

    features: Any  # [n, d] array or Tensor, perhaps memory-mapped
    labels: Any = None  # [n] names, or numbers
    class_names: tuple[str, ...] | None = None  # what numbers stand for
    items: Any = None  # [n] names of the rows
    base_mean: "Tensor | None" = None
    is_support: "Tensor | None" = None
    class_features: "Tensor | None" = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None  # [d] names of the features; None: they are known by their position
    carried: Mapping[str, list[Any]] = field(default_factory=dict)  # columns of no other use
    header: tuple[str, ...] = ()  # all columns
    notes: tuple[str, ...] = ()
    place: Callable[[int], str] = "row {}".format  # where a row is, for a person who looks for it
    skipped: tuple[tuple[str, str], ...] = ()  # rows that were left out, and why
    origin: "TableOrigin | None" = None  # where the rows are in a table
