"""Tables as text, with tabs between the cells."""

from typing import ClassVar

from manyway.files.formats.csv import Csv


class Tsv(Csv):
    """The same as csv, written with tabs."""

    key = "tsv"
    name = "tsv"
    endings: ClassVar[tuple[str, ...]] = (".tsv",)
    example = "table.tsv"
    delimiter: ClassVar[str] = "\t"
