"""CellTypist: the probability of each cell type for each cell."""

from dataclasses import replace
from typing import ClassVar

from manyway.files.formats.base import TABLE_ENDINGS, Opened
from manyway.files.formats.class_columns import ClassColumns
from manyway.files.scores import Scores


class CellTypist(ClassColumns):
    """``probability_matrix.csv``, as ``predictions.to_table`` writes it."""

    key = "celltypist"
    name = "CellTypist"
    endings: ClassVar[tuple[str, ...]] = TABLE_ENDINGS
    sign = "a name that ends with probability_matrix"
    holds = "a cell. Each type has a yes-or-no probability of its own; one label, or several"
    example = "celltypist_probability_matrix.csv"
    generic = False

    def detect(self, file: Opened) -> bool:
        stem = file.path.name.partition(".")[0]
        return stem.endswith("probability_matrix") and len(file.names) > 2

    def read(self, file: Opened) -> Scores:
        return replace(super().read(file), kind="sigmoid", independent=True)
