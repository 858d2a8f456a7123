"""What a method learns from the support alone, so that it need not be learned again for every batch of queries."""

from dataclasses import dataclass

from torch import Tensor

# These feature transforms depend on the queries, so that nothing can be learned before the queries are known.
QUERY_DEPENDENT = frozenset({"range", "tcl2"})


@dataclass(frozen=True, eq=False)
class Prepared:
    """A classifier that was trained on a support."""

    prototypes: Tensor  # [t, k, d] in the transformed features; t is 1 when all tasks have the same support
    objective: Tensor | None = None  # [t, i] the training loss after each step, if it was recorded
