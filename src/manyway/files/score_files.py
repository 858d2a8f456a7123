"""Files of scores: tables of any form, what other programs write, and what is known about items and classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from manyway.errors import InputError
from manyway.files.columns import LABEL_NAMES, Options, is_id, missing, read_columns, remarks_on_classes
from manyway.files.files import check_input
from manyway.files.rows import Rows, as_number, column, find_any, one_row_per_class, read_rows
from manyway.files.score_formats import is_birdnet, read_birdnet, read_score_json
from manyway.files.scores import Pair, Scores, check_size, from_pairs
from manyway.files.tables import TABLE_SUFFIXES
from manyway.files.text import listed, shorten, suffix_of

SCORE_SUFFIXES = (*TABLE_SUFFIXES, ".txt", ".json")
_CLASS_NAMES = ("class", "species", *LABEL_NAMES)
_SCORE_NAMES = ("score", "probability", "prob", "confidence", "log_probability", "log_prob", "logit")


def read_scores(path: str | Path, options: Options | None = None) -> Scores:
    """Read the scores of a classifier.

    Parameters
    ----------
    path : path-like
        A table (.csv, .tsv, .parquet, .jsonl) with one column per class, or with the columns ``item``, ``class`` and
        ``score``; a ``predictions.json`` of SpeciesNet; a MegaDetector file with classifications (.json); or a table of
        BirdNET (csv, Kaleidoscope csv, or a Raven selection table, .txt).
    options : Options, optional
        The columns of the item name and of known labels, and columns to leave out.

    Returns
    -------
    Scores

    Raises
    ------
    InputError
        If the file cannot be used. The sentence says what is wrong, and where.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "predictions.csv"
    >>> _ = path.write_text("item,class,score\\na.jpg,fox,0.9\\na.jpg,dog,0.1\\nb.jpg,dog,0.6\\n")
    >>> scores = read_scores(path)
    >>> scores.names, scores.classes, scores.values.tolist()
    (('a.jpg', 'b.jpg'), ('dog', 'fox'), [[0.10000000149011612, 0.8999999761581421], [0.6000000238418579, nan]])
    """
    path, options = Path(path), options or Options()
    suffix = suffix_of(path)
    if suffix not in SCORE_SUFFIXES:
        raise InputError(f"{path} has an unknown ending; scores come as {', '.join(SCORE_SUFFIXES)}.")
    if suffix == ".json":
        scores = read_score_json(check_input(path))
    else:
        names, rows = read_rows(path)
        if is_birdnet(names):
            scores = read_birdnet(path, names, rows)
        elif _is_long(names, options):
            scores = _read_long(path, names, rows, options)
        else:
            scores = _read_wide(path, options)
    if len(scores.classes) < 2:
        raise InputError(f"{path} has scores of one class only ({listed(scores.classes)}); give the other classes too.")
    return replace(scores, notes=(*scores.notes, *remarks_on_classes(path, scores.classes)))


def _is_long(names: Sequence[str], options: Options) -> bool:
    known = {name.strip().casefold() for name in names} - {name.casefold() for name in options.ignore_columns}
    return bool(known & set(_SCORE_NAMES)) and bool(known & {*_CLASS_NAMES, (options.label_column or "").casefold()})


def _read_long(path: Path, names: Sequence[str], rows: Rows, options: Options) -> Scores:
    of_class = column(path, names, *filter(None, (options.label_column, *_CLASS_NAMES)))
    of_score = column(path, names, *_SCORE_NAMES)
    of_item = find_any(names, options.item_column or "item")
    if of_item is None:
        ids = [at for at, name in enumerate(names) if is_id(name)]
        if len(ids) != 1:
            raise InputError(
                f"{path} has the columns {listed(names)}; name the column of the items with `item_column`."
            )
        of_item = ids[0]

    def pairs() -> Iterable[Pair]:
        for place, cells in rows:
            score = as_number(path, place, names[of_score], cells[of_score])
            item, name = ("" if missing(cells[at]) else str(cells[at]) for at in (of_item, of_class))
            yield place, item, name, score

    return from_pairs(path, pairs())


def _read_wide(path: Path, options: Options) -> Scores:
    table = read_columns(path, options)
    if table.columns is None:
        raise InputError(
            f"The first line of {path} holds numbers; add a first line that names the class of each column."
        )
    count = len(table.features)
    check_size(count, len(table.columns))
    names = tuple(map(str, range(count) if table.items is None else table.items))
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < count else set()
    if twice:
        raise InputError(f"{path} has the item {shorten(min(twice))} twice; give each item one row.")
    labels = None
    if table.labels is not None:
        labels = tuple(None if missing(label) else str(label).strip() for label in table.labels)
    return Scores(np.asarray(table.features, np.float32), table.columns, names, labels, notes=table.notes)


def read_item_labels(path: Path, options: Options | None = None) -> dict[str, str]:
    """Known labels of items: a table with the columns ``item`` and ``label``."""
    options = options or Options()
    names, rows = read_rows(path)
    of_label = column(path, names, *filter(None, (options.label_column, *LABEL_NAMES, "species")))
    of_item = column(path, names, *filter(None, (options.item_column, "item", *filter(is_id, names))))
    found: dict[str, str] = {}
    for place, cells in rows:
        if missing(cells[of_label]):
            continue  # not labelled yet
        item, label = str(cells[of_item]), str(cells[of_label]).strip()
        if found.setdefault(item, label) != label:
            raise InputError(f"{path} has another label for the item {shorten(item)} in {place}; remove one.")
    if not found:
        raise InputError(f"{path} has no label.")
    return found


def read_class_prior(path: Path) -> dict[str, float]:
    """The possible classes with their frequency in the classifier's training data: the columns ``class`` and ``prior``.

    The frequency may be a fraction or a count. Without a second column all classes are equally frequent.
    """
    names, rows = read_rows(path)
    of_class = column(path, names, *_CLASS_NAMES)
    of_prior = column(path, names, "prior", "count", "frequency", "n") if len(names) > 1 else None
    found: dict[str, float] = {}
    for place, name, cells in one_row_per_class(path, rows, of_class):
        value = 1.0 if of_prior is None else as_number(path, place, names[of_prior], cells[of_prior])
        if value <= 0:
            raise InputError(
                f"{path} has the prior {value:g} for the class {shorten(name)} in {place}; it must be positive, as a "
                "classifier never answers with a class of prior 0."
            )
        found[name] = value
    if len(found) < 2:
        raise InputError(f"{path} lists {len(found)} classes; list all that the classifier can answer.")
    return found
