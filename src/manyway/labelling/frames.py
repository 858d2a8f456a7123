"""Frames, data sets and sample collections of other libraries: features out of them, labels into them.

A *frame* is a pandas or polars DataFrame, a Hugging Face ``datasets.Dataset`` or an Arrow table. Nothing is imported
for them: whoever has one has its library. All are read as Arrow tables, by the reader of parquet files.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from manyway.core.arguments import checks_arguments, shown
from manyway.errors import InputError, nearest, optional
from manyway.estimators import Evidence, Inference, TransductiveClassifier
from manyway.files import Items
from manyway.files.answer_columns import TAKEN
from manyway.files.tables import Table, missing

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]  # features, and labels where they are asked for
_FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "datasets": "Dataset", "pyarrow": "Table"}


@checks_arguments
def label_frame(
    examples: Any,
    items: Any = None,
    *,
    features: str | Sequence[Any] | None = None,
    label: str = "label",
    estimator: TransductiveClassifier | None = None,
    prefix: str = "",
) -> Any:
    """Label all rows of a frame jointly and return it with the labels as further columns.

    Parameters
    ----------
    examples : frame
        The labelled examples: a pandas or polars DataFrame, a ``datasets.Dataset`` or a ``pyarrow.Table``.
    items : frame, optional
        The items to label, of the same or of another of these kinds. None: the rows of ``examples`` without a label.
    features : str or sequence of str, optional
        The column of lists that holds the features, or the columns of numbers, in which cells may be missing. None:
        the only column of lists.
    label : str, default="label"
        The column of the examples that holds their labels.
    estimator : estimator, optional
        The method with its parameters. None: ``Evidence(likelihood="auto")``.
    prefix : str, default=""
        What the names of the new columns begin with.

    Returns
    -------
    frame
        ``items``, as the kind that it was, with the new columns of `to_frame`, and ``note`` where some rows lack
        numbers, which are then labelled by their other columns. Without ``items``, all rows of
        ``examples``; those with a label keep it, and have no probability. As there is a column of labels already, the
        new columns begin with ``new_`` then, if no ``prefix`` says otherwise.

    Raises
    ------
    InputError
        If a column is missing or cannot be used, or if a new column has the name of one that is there already.

    Examples
    --------
    >>> import pyarrow
    >>> examples = pyarrow.table({"embedding": [[0.0, 1.0], [1.0, 0.0]], "label": ["ant", "bee"]})
    >>> items = pyarrow.table({"photo": ["1.png", "2.png"], "embedding": [[0.1, 1.0], [1.0, 0.2]]})
    >>> label_frame(examples, items).select(["photo", "label"]).to_pylist()
    [{'photo': '1.png', 'label': 'ant'}, {'photo': '2.png', 'label': 'bee'}]
    """
    estimator = Evidence(likelihood="auto") if estimator is None else estimator
    if items is None:
        return _label_rest(examples, features, label, estimator, prefix or TAKEN)
    known, names = _read(examples, features, label, "examples")
    query, _ = _read(items, features, None, "items")
    result = estimator.fit(known, names).infer(query)
    new = {**result.columns(), **_notes(query, features)}
    return _with_columns(items, {prefix + name: values for name, values in new.items()})


def _notes(rows: np.ndarray[Any, Any], features: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The column ``note`` about rows that lack features; none where all are whole."""
    if not np.isnan(rows).any():
        return {}
    named = not isinstance(features, str) and features is not None and len(features) == rows.shape[1]
    columns = tuple(map(str, features)) if named else None
    items = Items(rows, None, None, columns=columns, gaps=True)
    return {"note": np.array([items.note(row) for row in range(len(rows))], dtype=object)}


def _label_rest(frame: Any, features: Any, label: str, estimator: Any, prefix: str) -> Any:
    """Label the rows of a frame that have no label from those that have one."""
    rows, names = _read(frame, features, label, "examples")
    assert names is not None
    given = np.array([not missing(name) for name in names.tolist()])
    if given.all() or not given.any():
        which = "Every" if given.all() else "No"
        raise InputError(f"{which} row has a label in '{label}'; fill in some, and leave those of the items empty.")
    found = estimator.fit(rows[given], np.array(names[given].tolist())).infer(rows[~given])
    columns = {}
    for name, values in {**found.columns(), **_notes(rows[~given], features)}.items():
        start = names.tolist() if name == "label" else [None] * len(names)
        for row, value in zip(np.flatnonzero(~given).tolist(), values.tolist(), strict=True):
            start[row] = value
        columns[prefix + name] = start
    return _with_columns(frame, columns)


@checks_arguments
def from_frame(frame: Any, features: str | Sequence[Any] | None = None, label: str | None = None) -> Arrays:
    """The features and labels in a frame, as arrays.

    Parameters
    ----------
    frame : frame
        A pandas or polars DataFrame, a ``datasets.Dataset`` or a ``pyarrow.Table``.
    features : str or sequence of str, optional
        The column of lists that holds the features, or the columns of numbers. None: the only column of lists.
    label : str, optional
        The column of labels. Class names are returned for a column of the type ``datasets.ClassLabel``.

    Returns
    -------
    features : ndarray of shape [n, d]
        In float32, or float64 where that keeps digits that matter; as from files. NaN where a cell is missing.
    labels : ndarray of shape [n] or None
        None where no column of labels is named.

    Examples
    --------
    >>> import pyarrow
    >>> from_frame(pyarrow.table({"width": [1.5, 2.0], "height": [0.5, 1.0], "kind": ["ant", "bee"]}),
    ...            ["width", "height"], "kind")
    (array([[1.5, 0.5],
           [2. , 1. ]], dtype=float32), array(['ant', 'bee'], dtype=object))
    """
    return _read(frame, features, label, "rows")


@checks_arguments
def to_frame(frame: Any, result: Inference, prefix: str = "") -> Any:
    """A frame with the result of ``infer`` for its rows as further columns.

    Parameters
    ----------
    frame : frame
        A pandas or polars DataFrame, a ``datasets.Dataset`` or a ``pyarrow.Table``; it is not changed.
    result : Inference
        What ``infer`` returned for the rows of the frame, in their order.
    prefix : str, default=""
        What the names of the new columns begin with.

    Returns
    -------
    frame
        The same kind of frame with the columns ``label``, ``probability``, ``label_2`` and
        ``probability_2``; with ``open_set`` also ``unknown``, the probability of being unknown, and ``group``,
        the number of the group of unknown items or -1.

    Examples
    --------
    >>> import pyarrow
    >>> from manyway import SimpleShot
    >>> items = pyarrow.table({"embedding": [[0.1, 1.0], [1.0, 0.2]]})
    >>> clf = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"])
    >>> to_frame(items, clf.infer(from_frame(items)[0]), prefix="predicted_").column_names[:2]
    ['embedding', 'predicted_label']
    """
    _kind(frame)  # refuses what is no frame
    _check_length(len(frame), result)
    return _with_columns(frame, {prefix + name: values for name, values in result.columns().items()})


def _is_text(name: str) -> bool:
    """Whether a name can be written: half of a character (a lone surrogate) cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _with_columns(frame: Any, new: Mapping[str, Any]) -> Any:
    """A frame with further columns, whose names must be new."""
    present = _columns(frame, "items")
    if not all(map(_is_text, new)):
        raise InputError("The `prefix` holds half a character, which no file can; write another one.")
    taken = [column for column in new if column in present]
    if taken:
        raise InputError(f"The items have a column {taken[0]!r} already; give the new columns a `prefix`.")
    kind = _kind(frame)
    if kind == "pandas":
        return frame.assign(**new)
    lists = {column: getattr(values, "tolist", lambda values=values: values)() for column, values in new.items()}
    if kind == "polars":
        return frame.hstack(type(frame)(lists))
    for column, values in lists.items():
        frame = frame.add_column(column, values) if kind == "datasets" else frame.append_column(column, [values])
    return frame


@checks_arguments
def to_fiftyone(samples: Any, result: Inference, field: str = "manyway") -> None:
    """Write the result of ``infer`` into the samples of a FiftyOne data set or view.

    Parameters
    ----------
    samples : fiftyone.core.collections.SampleCollection
        The samples, in the order of the queries.
    result : Inference
        What ``infer`` returned for them.
    field : str, default="manyway"
        The field for the labels: a ``Classification`` with the probability as its confidence. The second class is in
        ``<field>_second``. With ``open_set``, ``<field>_unknown`` is the probability of being unknown, and
        ``<field>_group`` the number of the group of unknown samples, or -1.

    Returns
    -------
    None

    Examples
    --------
    >>> to_fiftyone(view, clf.infer(from_fiftyone(view)[0]))  # doctest: +SKIP
    """
    classification = optional("fiftyone", "fiftyone", "to_fiftyone").Classification
    _check_length(len(samples), result)
    columns = {name: values.tolist() for name, values in result.columns().items()}
    for rank, beside in (("", ""), ("_2", "_second")):
        pairs = zip(columns[f"label{rank}"], columns[f"probability{rank}"], strict=True)
        samples.set_values(field + beside, [classification(label=str(label), confidence=p) for label, p in pairs])
    for name in ("unknown", "group"):
        if name in columns:
            samples.set_values(f"{field}_{name}", columns[name])


@checks_arguments
def from_fiftyone(samples: Any, embeddings: str = "embeddings", label: str | None = None) -> Arrays:
    """The features and labels of the samples of a FiftyOne data set or view, as arrays.

    Parameters
    ----------
    samples : fiftyone.core.collections.SampleCollection
        The samples.
    embeddings : str, default="embeddings"
        The field that holds one vector per sample.
    label : str, optional
        The field that holds a ``Classification`` per sample, such as ``ground_truth``.

    Returns
    -------
    features : ndarray of shape [n, d]
    labels : ndarray of shape [n] or None
        None where no field of labels is named.

    Raises
    ------
    InputError
        If a sample has no embedding, or no label.

    Examples
    --------
    >>> labelled = dataset.exists("ground_truth")  # doctest: +SKIP
    >>> clf = Evidence().fit(*from_fiftyone(labelled, label="ground_truth"))  # doctest: +SKIP
    """
    is_other = isinstance(samples, Mapping) or hasattr(samples, "detach")  # a tensor has values, too
    if is_other or not callable(getattr(samples, "values", None)):
        raise InputError(f"samples is {shown(samples)}; give a data set or a view of FiftyOne.")
    vectors = _filled(samples.values(embeddings), f"embedding in the field '{embeddings}'")
    if len({np.shape(vector) for vector in vectors}) != 1:
        raise InputError(f"The field '{embeddings}' holds no vectors, or vectors of different lengths.")
    labels = None if label is None else np.array(_filled(samples.values(f"{label}.label"), f"label in '{label}'"))
    return np.stack([np.asarray(vector) for vector in vectors]), labels


def _filled(values: Sequence[Any], what: str) -> Sequence[Any]:
    missing = [row for row, value in enumerate(values) if value is None]
    if missing:
        few = f"{len(missing)} of {len(values)} samples have no {what}, the first is number {missing[0]}"
        raise InputError(f"{few}; compute it, or take a view of the samples that have one.")
    return values


def _check_length(n_rows: int, result: Inference) -> None:
    if n_rows != len(result.labels):
        raise InputError(f"There are {n_rows} rows and the result has {len(result.labels)} items; they must agree.")


def _kind(frame: Any) -> str:
    """The library of a frame; an error where it is none."""
    library, name = type(frame).__module__.split(".")[0], type(frame).__name__
    if any(base.__name__ == _FRAMES.get(library) for base in type(frame).__mro__):
        return library
    hint = {"LazyFrame": "; call collect() first", "DatasetDict": "; choose one of its splits"}.get(name, "")
    wanted = "give a DataFrame of pandas or polars, a datasets.Dataset or a pyarrow.Table"
    raise InputError(f"{library}.{name} is no table that can be labelled{hint}; {wanted}.")


def _read(frame: Any, features: str | Sequence[Any] | None, label: str | None, name: str) -> Arrays:
    """See `from_frame`; ``name`` is what messages call the rows of the frame."""
    columns = _columns(frame, name)
    if features is None:
        lists = [column for column in columns if _holds_lists(frame, column)]
        if len(lists) != 1:
            found = f"the columns of lists {', '.join(map(repr, lists))}" if lists else "no column of lists"
            raise InputError(f"The {name} have {found}; name the columns that hold the features with `features`.")
        features = lists
    wanted = [features] if isinstance(features, str) else list(features)
    for column in [*wanted, *([] if label is None else [label])]:
        if column not in columns:
            raise InputError(f"The {name} have no column {column!r}; {nearest(str(column), map(str, columns))}")
    if not wanted:
        raise InputError("`features` names no column; name the column of lists, or the columns of numbers.")
    found = _arrow(frame, wanted)
    table = Table(
        f"the {name}",
        list(map(str, wanted)),
        found.columns,
        hint="leave it out of `features`.",
    )
    # Of a vector that an encoder made, no part can be missing.
    table.gaps = len(wanted) > 1 or not table.holds_lists(0)
    if table.is_empty:
        raise InputError(f"There are no {name}; the frame has no rows.")
    return table.features(range(len(wanted))), None if label is None else _labels(frame, label)


def _holds_lists(frame: Any, column: Any) -> bool:
    try:
        return Table("", [column], _arrow(frame, [column], slice(1)).columns).holds_lists(0)
    except InputError:  # other objects, such as pictures
        return False


def _columns(frame: Any, name: str) -> list[Any]:
    """The names of the columns of a frame."""
    columns = list(frame.column_names if _kind(frame) in ("datasets", "pyarrow") else frame.columns)
    if len(set(columns)) < len(columns):
        raise InputError(f"The {name} have two columns of one name; rename or remove one.")
    return columns


def _arrow(frame: Any, columns: Iterable[Any], rows: slice = slice(None)) -> Any:
    """Some columns of a frame as an Arrow table."""
    import pyarrow

    columns, kind = list(columns), _kind(frame)
    if kind == "datasets":
        return frame.select_columns(columns).with_format("arrow")[rows]
    if kind == "polars":
        return frame.select(columns)[rows].to_arrow()
    if kind == "pyarrow":
        return frame.select(columns)[rows]
    part = frame[columns].iloc[rows]
    try:
        return pyarrow.Table.from_pandas(part.set_axis(list(map(str, columns)), axis=1), preserve_index=False)
    except pyarrow.ArrowException as error:
        raise InputError(f"The columns {', '.join(map(repr, columns[:3]))} cannot be read ({error}).") from error


def _labels(frame: Any, label: str) -> np.ndarray[Any, Any]:
    values = _arrow(frame, [label]).column(0).to_pylist()
    names = getattr(frame.features[label], "names", None) if _kind(frame) == "datasets" else None
    if names is not None:
        values = [None if value is None or value < 0 else names[value] for value in values]
    strings = any(isinstance(value, str) or value is None for value in values)
    return np.array(values, dtype=object if strings else None)
