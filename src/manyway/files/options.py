"""What the user says about the columns of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from manyway.files.tables import Table


@dataclass(frozen=True)
class Options:
    """What the user says about the columns of a table; the rest is found by name, or by what is in them.

    Parameters
    ----------
    label_column, item_column, text_column : str or None
        The columns of labels, of item names and of texts. None: they are found.
    ignore_columns : sequence of str
        Columns that are no features.
    feature_columns : sequence of str
        Columns that are features although they do not look so.
    like : sequence of str or None
        The feature columns of the labelled examples, or their column of texts: these and no others are the features.
    sheet : str or None
        The name or number of the sheet of an Excel file. None: the first.
    skip_bad : bool
        Leave out rows of a table that lack a feature, and list them.
    gaps : bool
        Whether rows of a table may lack features, which are NaN then; ``skip_bad`` leaves them out all the same.
    logarithms : bool
        Whether numbers may be logarithms of 0, which are −inf, as among scores.
    beside : Table or None
        The table of the items, as `open_beside` opens it. Its rows help to tell ids and dates among the columns of the
        examples, and how numbers are written in both.
    labelled : bool or None
        Which rows of a partly labelled table are read: those with a label, or those without. None: all.
    opened : Table or None
        The whole partly labelled table, which is opened once for both kinds of rows, see `open_partly_labelled`.
    all_labelled : bool
        Whether every row of such a table may have a label: all rows are then read.
    find_label : bool
        Whether there must be labels: their column is then found by what is in it, if its name does not say it.
    columns_of_items : sequence of str or None
        The columns of the table of items, which help to find that of labels.
    """

    label_column: str | None = None
    item_column: str | None = None
    ignore_columns: Sequence[str] = ()
    feature_columns: Sequence[str] = ()
    like: Sequence[str] | None = None
    text_column: str | None = None
    sheet: str | None = None
    skip_bad: bool = False
    gaps: bool = False
    logarithms: bool = False
    beside: Table | None = None
    labelled: bool | None = None
    opened: Table | None = None
    all_labelled: bool = False
    find_label: bool = False
    columns_of_items: Sequence[str] | None = None


AUTO = Options()  # everything is found
