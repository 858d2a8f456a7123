"""Files of scores: tables of any form, what other programs write, and what is known about items and classes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from manyway.errors import InputError
from manyway.files.answer_columns import LABEL, newest_answer
from manyway.files.columns import is_id, remarks_on_classes
from manyway.files.files import check_input
from manyway.files.formats.base import TableFormat
from manyway.files.formats.pairs import pairs_in
from manyway.files.formats.registry import (
    added_formats,
    all_formats,
    companions,
    endings_of,
    opened,
    score_format,
)
from manyway.files.opening import read_rows
from manyway.files.options import AUTO, Options
from manyway.files.scores import CLASS_NAMES, FILE, SCIENTIFIC, SOURCE, ScoreFormat, Scores, check_size
from manyway.files.tables import LABEL_NAMES, Rows, as_number, column, find_any, missing, one_row_per_class
from manyway.files.text import listed, shorten, suffix_of

_MEDIA = ("mediaID", "deploymentID", "timestamp")


def read_scores(path: str | Path, options: Options = AUTO) -> Scores:
    """Read the scores of a classifier.

    Parameters
    ----------
    path : path-like
        A file of any format of scores, see `manyway.files.formats.registry`, or a folder of such files.
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
    path = Path(path)
    several = path.is_dir() and suffix_of(path) != ".parquet"  # Spark writes a folder of that name
    scores = _read_folder(path, options) if several else _read_file(path, options)
    if not len(scores):
        name, reason = scores.skipped[0] if scores.skipped else ("", "")
        why = f" ({shorten(name)}: {reason})" if name else ""
        raise InputError(f"{path} has no score of any class{why}; run a classifier first, or name another file.")
    if len(scores.classes) < 2:
        raise InputError(f"{path} has scores of one class only ({listed(scores.classes)}); give the other classes too.")
    return replace(scores, notes=(*scores.notes, *remarks_on_classes(path, scores.classes)))


def _read_file(path: Path, options: Options) -> Scores:
    if suffix_of(path) != ".parquet":  # Spark writes a folder of that name
        check_input(path)
    file = opened(path, options)
    found = score_format(file)
    scores = found.read(file)
    if found.generic:  # a format of another package might know more
        scores = replace(scores, notes=(*scores.notes, *added_formats().problems))
    return scores


def _read_folder(folder: Path, options: Options) -> Scores:
    """The scores of all files in a folder, as one batch: one file per recording or deployment."""
    endings = endings_of(ScoreFormat)
    found = [path for path in sorted(folder.rglob("*")) if suffix_of(path) in endings and path.is_file()]
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    repeats = tuple(each.repeats for each in all_formats(ScoreFormat) if each.repeats)
    single = [path for path in found if not path.name.startswith(repeats)] or found
    beside = set(companions(single))
    single = [path for path in single if path not in beside]
    if not single:
        raise InputError(f"{folder} has no file of scores ({', '.join(endings)}).")
    parts = {path.relative_to(folder).as_posix(): _read_file(path, options) for path in single}
    scores = _joined(folder, parts)
    if len(single) + len(beside) < len(found):
        names = ", ".join(f"{start}…" for start in repeats)
        left_out = f"files of {folder.name} that are called {names} are left out: the others have the same scores"
        scores = replace(scores, notes=(*scores.notes, left_out))
    return scores


def _joined(folder: Path, parts: Mapping[str, Scores]) -> Scores:
    """The scores of several files as one. ``parts`` go by the path in the folder."""
    kinds = {(part.kind, part.independent): folder / source for source, part in parts.items() if len(part)}
    if len(kinds) > 1:
        one, other = list(kinds.values())[:2]
        raise InputError(f"{one} and {other} have scores of different kinds; put them into folders of their own.")
    kind, independent = next(iter(kinds), ("auto", False))
    every = list(parts.values())
    classes = sorted({name for part in every for name in part.classes})
    check_size(sum(map(len, every)), len(classes))
    sources = [source for source, part in parts.items() for _ in part.names]
    names = tuple(name for part in every for name in part.names)
    if len(set(names)) < len(names):
        names = tuple(f"{source}: {name}" for source, name in zip(sources, names, strict=True))
    labels = tuple(label for part in every for label in part.labels or [None] * len(part))
    carried = {SOURCE: sources}
    for name in dict.fromkeys(name for part in every for name in part.carried):
        carried[name] = [cell for part in every for cell in part.carried.get(name, [None] * len(part))]
    return Scores(
        values=np.concatenate([part.with_classes(classes).values for part in every]),
        classes=tuple(classes),
        names=names,
        labels=labels if any(label is not None for label in labels) else None,
        kind=kind,
        levels=_merged([part.levels for part in every]),
        skipped=tuple(each for part in every for each in part.skipped),
        notes=tuple(dict.fromkeys(note for part in every for note in part.notes)),
        carried=carried,
        described=_merged([part.described for part in every]),
        independent=independent,
        origins=tuple(origin for part in every for origin in part.origins),
        others=tuple({SOURCE: source, **cells} for source, part in parts.items() for cells in part.others),
    )


def _merged(parts: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Groups, or descriptions, of the classes of several files."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: {k: text for part in parts for k, text in part.get(name, {}).items()} for name in names}


def read_item_labels(path: Path, options: Options = AUTO) -> dict[str, str]:
    """Known labels of items: a table with the columns ``item`` and ``label``.

    Where it has a column ``reviewed``, as that of a review, labels without a ``yes`` in it are not known.
    """
    names, rows = read_rows(path)
    label = newest_answer(names)
    reviewed = newest_answer(names, "reviewed")
    if reviewed not in names:  # nobody has seen the newest answers
        label, reviewed = None, "reviewed"
    seen = names.index(reviewed) if reviewed in names else len(names)
    rows = ((place, cells) for place, cells in rows if [*cells, "yes"][seen] == "yes")
    of_label = column(path, names, *filter(None, (options.label_column, label, *LABEL_NAMES, "species")))
    of_item = column(path, names, *filter(None, (options.item_column, "item", *filter(is_id, names))))
    found = _labels(path, _with_items(path, rows, of_item, of_label), of_item, of_label)
    found = {item: label for item, label in found.items() if label}
    if not found:
        raise InputError(f"{path} has no label.")
    return found


def _with_items(path: Path, rows: Rows, of_item: int, of_label: int) -> Rows:
    """The same rows; a label without an item is an error."""
    for place, cells in rows:
        if missing(cells[of_item]) and not missing(cells[of_label]):
            raise InputError(f"{path} has a label and no item in {place}; fill the cell or remove the row.")
        yield place, cells


def _labels(path: Path, rows: Rows, of_item: int, of_label: int) -> dict[str, str]:
    """The label of each item; '' where the cell is empty."""
    found: dict[str, str] = {}
    for place, cells in rows:
        item, label = str(cells[of_item]), "" if missing(cells[of_label]) else str(cells[of_label]).strip()
        if label and (found.get(item) or label) != label:
            raise InputError(f"{path} has another label for the item {shorten(item)} in {place}; remove one.")
        found[item] = label or found.get(item, "")
    return found


class ItemAnswers(NamedTuple):
    """What a file answers for each item."""

    labels: dict[str, str]  # item -> label; '' where it has none
    classes: frozenset[str]  # all that may be answered
    levels: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # the taxonomy: level -> class -> group


def read_answers(path: Path, options: Options = AUTO) -> ItemAnswers:
    """The label of each item in a table of labels or, in a file of scores, its most probable class.

    Of a table with labels that were written here, the newest are read, and no score.
    """
    if path.is_file() and suffix_of(path) in endings_of(TableFormat):
        names, rows = read_rows(path)
        newest = newest_answer(names)
        item_names = (options.item_column or "item", *filter(is_id, names))
        label_names = [name for name in (options.label_column, newest) if name] or [LABEL]
        of_item = column(path, names, *item_names) if newest else find_any(names, *item_names)
        of_label = find_any(names, *label_names)
        if of_item is not None and of_label is not None and (newest or not pairs_in(names, options)):
            labels = _labels(path, rows, of_item, of_label)
            return ItemAnswers(labels, frozenset(filter(None, labels.values())))
    scores = read_scores(path, options)
    best = np.nan_to_num(scores.values, nan=-np.inf).argmax(1)
    decided = scores.carried.get("prediction", [None] * len(scores))
    classes = frozenset({*scores.classes, *filter(None, decided)})
    found = {item: "" for item, _ in scores.skipped}
    found |= {scores.name(row): decided[row] or scores.classes[k] for row, k in enumerate(best.tolist())}
    return ItemAnswers(found, classes, scores.levels)


def values_of_classes(path: Path, *wanted: str, needed: bool = False) -> Iterator[tuple[str, str, float]]:
    """Place, class and number of each row of a table with one row per class; 1 where it has no such column."""
    names, rows = read_rows(path)
    at = column(path, names, *wanted) if needed and len(names) > 1 else find_any(names, *wanted)
    for place, name, cells in one_row_per_class(path, rows, column(path, names, *CLASS_NAMES, SCIENTIFIC)):
        yield place, name, 1.0 if at is None else as_number(path, place, names[at], cells[at])


def read_class_prior(path: Path) -> dict[str, float]:
    """The possible classes with their frequency in the classifier's training data: the columns ``class`` and ``prior``.

    The frequency may be a fraction or a count. Without a second column all classes are equally frequent.
    """
    found: dict[str, float] = {}
    for place, name, value in values_of_classes(path, "prior", "count", "frequency", "n", needed=True):
        if value <= 0:
            never = "it must be positive, as a classifier never answers with a class of prior 0"
            raise InputError(f"{path} has the prior {value:g} for the class {shorten(name)} in {place}; {never}.")
        found[name] = value
    if len(found) < 2:
        raise InputError(f"{path} lists {len(found)} classes; list all that the classifier can answer.")
    return found


def with_media(scores: Scores, path: str | Path) -> Scores:
    """The same scores with what the media.csv of a Camtrap DP says about their files.

    Parameters
    ----------
    scores : Scores
    path : path-like
        A table with the columns ``mediaID``, ``deploymentID``, ``timestamp`` and ``filePath``. A path may be the end of
        another.

    Returns
    -------
    Scores
    """
    path = Path(path)
    names, rows = read_rows(path)
    of_file, *of_media = (column(path, names, name) for name in ("filePath", *_MEDIA))
    found: dict[str, list[tuple[str, dict[str, str]]]] = {}  # by the last part of the path
    for _, cells in rows:
        file = "/" + str(cells[of_file]).replace("\\", "/").lstrip("/")
        media = {name: str(cells[at]) for name, at in zip(_MEDIA, of_media, strict=True)}
        found.setdefault(file.rpartition("/")[2], []).append((file, media))

    def media_of(file: str) -> dict[str, str]:
        wanted = "/" + file.replace("\\", "/").lstrip("/")
        there = found.get(wanted.rpartition("/")[2], [])
        known = [media for other, media in there if wanted.endswith(other) or other.endswith(wanted)]
        if len(known) != 1:
            raise InputError(f"{path} has {len(known) or 'no'} rows for the file {shorten(file)} of the scores.")
        return known[0]

    items = [media_of(scores.file(row)) for row in range(len(scores))]
    carried = {**scores.carried, **{name: [media[name] for media in items] for name in _MEDIA}}
    return replace(scores, carried=carried, others=tuple({**o, **media_of(str(o[FILE]))} for o in scores.others))
