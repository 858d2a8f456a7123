"""Files of scores: tables of any form, what other programs write, and what is known about items and classes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyway.errors import InputError
from manyway.files import tables
from manyway.files.birdnet import is_birdnet, read_birdnet
from manyway.files.columns import AUTO, Options, is_id, read_columns, remarks_on_classes
from manyway.files.files import check_input
from manyway.files.score_json import read_score_json
from manyway.files.scores import FILE, SCIENTIFIC, SOURCE, Pair, Scores, check_size, from_pairs
from manyway.files.tables import LABEL_NAMES, TABLE_SUFFIXES, Rows, as_number, column, find_any, missing, read_rows
from manyway.files.text import first_twice, listed, shorten, suffix_of

SCORE_SUFFIXES = (*TABLE_SUFFIXES, ".txt", ".json")
_CLASS_NAMES = ("class", "species", *LABEL_NAMES)
_ANSWER_NAMES = ("top", "pred", "predicted", "prediction", "name")  # of what a classifier says
_RANK = re.compile(r"[\W_]*\d+[\W_]*|top(?=.*\d)")
_OF_CLASS = re.compile(r"scientific|latin|taxon|species|genus|family|order|common", re.IGNORECASE)  # columns of classes
_MEDIA = ("mediaID", "deploymentID", "timestamp")
_ROUNDING = 0.02  # of the sum of probabilities
_SCORE_NAMES = ("score", "probability", "prob", "confidence", "conf", "log_probability", "log_prob", "logit")


def read_scores(path: str | Path, options: Options = AUTO) -> Scores:
    """Read the scores of a classifier.

    Parameters
    ----------
    path : path-like
        A table (.csv, .tsv, .parquet, .jsonl) with one column per class, or with the columns ``item``, ``class`` and
        ``score``, or with the best classes side by side (``top1``, ``score1``, ``top2``, ``score2``); a
        ``predictions.json`` of SpeciesNet; a MegaDetector file with classifications (.json); a table of BirdNET (csv,
        Kaleidoscope csv, or a Raven selection table, .txt); or a folder of such files.
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
        raise InputError(f"{path} has no score of any class.")
    if len(scores.classes) < 2:
        raise InputError(f"{path} has scores of one class only ({listed(scores.classes)}); give the other classes too.")
    return replace(scores, notes=(*scores.notes, *remarks_on_classes(path, scores.classes)))


def _read_file(path: Path, options: Options) -> Scores:
    suffix = suffix_of(path)
    if suffix not in SCORE_SUFFIXES:
        raise InputError(f"{path} has an unknown ending; scores come as {', '.join(SCORE_SUFFIXES)}.")
    if suffix == ".json":
        return read_score_json(check_input(path))
    named = tables.read_table(path, rows=0).names if suffix == ".parquet" else ()
    if named and not is_birdnet(named) and not _pairs_in(named, options):  # it is read once
        return _read_wide(path, options)
    names, rows = read_rows(path, options.sheet)
    long = _pairs_in(names, options)
    if is_birdnet(names if long else [*names, "Confidence"]):  # a table that lacks it is told so
        return read_birdnet(path, names, rows)
    return _read_long(path, names, rows, long, options) if long else _read_wide(path, options)


def _read_folder(folder: Path, options: Options) -> Scores:
    """The scores of all files in a folder, as one batch: one file per recording or deployment."""
    found = [path for path in sorted(folder.rglob("*")) if suffix_of(path) in SCORE_SUFFIXES and path.is_file()]
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    # BirdNET writes tables of all recordings, and its settings, beside those of each recording.
    single = [path for path in found if not path.name.startswith("BirdNET_")] or found
    if not single:
        raise InputError(f"{folder} has no file of scores ({', '.join(SCORE_SUFFIXES)}).")
    read = [_read_file(path, options) for path in single]
    kinds = {(part.kind, part.independent): path for part, path in zip(read, single, strict=True) if len(part)}
    if len(kinds) > 1:
        one, other = list(kinds.values())[:2]
        raise InputError(f"{one} and {other} have scores of different kinds; put them into folders of their own.")
    classes = sorted({name for part in read for name in part.classes})
    check_size(sum(map(len, read)), len(classes))
    relative = [path.relative_to(folder).as_posix() for path in single]
    sources = [path for path, part in zip(relative, read, strict=True) for _ in part.names]
    names = tuple(name for part in read for name in part.names)
    if len(set(names)) < len(names):
        names = tuple(f"{source}: {name}" for source, name in zip(sources, names, strict=True))
    labels = tuple(label for part in read for label in part.labels or [None] * len(part))
    columns = dict.fromkeys(name for part in read for name in part.carried)
    carried = {name: [c for part in read for c in part.carried.get(name, [None] * len(part))] for name in columns}
    notes = [note for part in read for note in part.notes]
    if len(single) < len(found):
        notes.append(f"files of {folder.name} that are called BirdNET_… are left out: the others have the same scores")
    kind, independent = next(iter(kinds), ("auto", False))
    values = np.concatenate([part.with_classes(classes).values for part in read])
    given = labels if any(label is not None for label in labels) else None
    levels, described = (_merged([getattr(part, name) for part in read]) for name in ("levels", "described"))
    skipped, origins = (tuple(one for part in read for one in getattr(part, name)) for name in ("skipped", "origins"))
    others = [{SOURCE: path, **cells} for path, part in zip(relative, read, strict=True) for cells in part.others]
    about = levels, skipped, tuple(dict.fromkeys(notes)), {SOURCE: sources, **carried}, described
    return Scores(values, tuple(classes), names, given, kind, *about, independent, origins, tuple(others))


def _merged(parts: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Groups, or descriptions, of the classes of several files."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: {k: text for part in parts for k, text in part.get(name, {}).items()} for name in names}


def _pairs_in(names: Sequence[str], options: Options) -> list[tuple[int, int]]:
    """The columns of a class and its score: one pair, or one per rank side by side (top1, score1, top2, score2)."""
    found, left_out = defaultdict[str, list[int]](list), {name.casefold() for name in options.ignore_columns}
    for at, name in enumerate(name.strip().casefold() for name in names):
        found["" if name in left_out else _RANK.sub("", name) or "top"].append(at)
    wanted = _RANK.sub("", (options.label_column or "class").casefold()), *_CLASS_NAMES, *_ANSWER_NAMES
    pair = [next((found[n] for n in some if n in found), []) for some in (wanted, _SCORE_NAMES)]
    if len(pair[0]) != len(pair[1]):  # other columns have numbers, too
        pair = [[at for at in some if not _RANK.search(names[at])] for some in pair]
    return list(zip(*pair, strict=False))


def _read_long(path: Path, names: Sequence[str], rows: Rows, both: list[tuple[int, int]], options: Options) -> Scores:
    of_class, of_score = zip(*both, strict=True)
    ids = [name for name in names if is_id(name)]
    of_item = find_any(names, options.item_column or "item", *(ids if len(ids) == 1 else ()))
    if of_item is None:
        raise InputError(f"{path} has the columns {listed(names)}; name that of the items with `item_column`.")
    others = [names[at] for at in range(len(names)) if at not in (of_item, *of_class, *of_score)]
    about: dict[str, dict[str, Any]] = {}
    described: dict[str, dict[str, str]] = {}
    differs: set[str] = set()  # columns with two cells for one item or class

    def pairs() -> Iterable[Pair]:
        for place, cells in rows:
            item, *classes = ("" if missing(cells[at]) else str(cells[at]) for at in (of_item, *of_class))
            for other in others:
                cell = cells[names.index(other)]
                of_this: dict[str, Any]
                if _OF_CLASS.search(other) and len(classes) == 1:
                    of_this, key, cell = described.setdefault(other, {}), classes[0].strip(), str(cell or "")
                else:
                    of_this, key = about.setdefault(item, {}), other
                if of_this.setdefault(key, cell) != cell:
                    differs.add(other)
            # There may be fewer answers than in other rows.
            answers = [(name, at) for name, at in zip(classes, of_score, strict=True) if name or at == of_score[0]]
            yield from ((place, item, name, as_number(path, place, names[at], cells[at])) for name, at in answers)

    found = from_pairs(path, pairs(), about=about)
    carried = {name: cells for name, cells in found.carried.items() if name not in differs}
    return replace(found, carried=carried, described={n: cells for n, cells in described.items() if n not in differs})


def _read_wide(path: Path, options: Options) -> Scores:
    table = read_columns(path, options)
    if table.columns is None:
        raise InputError(f"The first line of {path} holds numbers; add one that names the class of each column.")
    count = len(table.features)
    check_size(count, len(table.columns))
    names = tuple(map(str, range(count) if table.items is None else table.items))
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path} has the item {shorten(twice)} twice; give each item one row.")
    labels = None if table.labels is None else tuple(None if missing(x) else str(x).strip() for x in table.labels)
    values = np.asarray(table.features, np.float32)
    total, odd = values.sum(1, keepdims=True), np.arange(values.shape[1])
    for some in (slice(100), slice(None)):  # few columns are left after the first rows
        rest = total[some] - values[some, odd]  # the sum of the other columns
        odd = odd[(np.abs(rest - 1) < _ROUNDING).all(0)]
    odd = odd[(values[:, odd] > _ROUNDING).any(0)]
    if len(odd) == 1 and values.shape[1] > 2:
        hint = "the others sum to 1 in every row; leave it out with `ignore_columns`"
        raise InputError(f"Column '{table.columns[odd[0]]}' of {path} is no score of a class, it seems: {hint}.")
    told = {name: getattr(table, name) for name in ("skipped", "notes", "carried")}
    return Scores(values, table.columns, names, labels, **told)


def read_item_labels(path: Path, options: Options = AUTO) -> dict[str, str]:
    """Known labels of items: a table with the columns ``item`` and ``label``.

    Where it has a column ``reviewed``, as that of a review, labels without a ``yes`` in it are not known.
    """
    names, rows = read_rows(path)
    seen = names.index("reviewed") if "reviewed" in names else len(names)
    rows = ((place, cells) for place, cells in rows if [*cells, "yes"][seen] == "yes")
    of_label = column(path, names, *filter(None, (options.label_column, *LABEL_NAMES, "species")))
    of_item = column(path, names, *filter(None, (options.item_column, "item", *filter(is_id, names))))
    found = {item: label for item, label in _labels(path, rows, of_item, of_label).items() if label}
    if not found:
        raise InputError(f"{path} has no label.")
    return found


def _labels(path: Path, rows: Rows, of_item: int, of_label: int) -> dict[str, str]:
    """The label of each item; '' where the cell is empty."""
    found: dict[str, str] = {}
    for place, cells in rows:
        item, label = str(cells[of_item]), "" if missing(cells[of_label]) else str(cells[of_label]).strip()
        if label and (found.get(item) or label) != label:
            raise InputError(f"{path} has another label for the item {shorten(item)} in {place}; remove one.")
        found[item] = label or found.get(item, "")
    return found


def read_answers(path: Path, options: Options = AUTO) -> tuple[dict[str, str], Mapping[str, Mapping[str, str]]]:
    """The label of each item in a table of labels or a file of scores ('' where it has none), and the taxonomy."""
    if path.is_file() and suffix_of(path) in TABLE_SUFFIXES:
        names, rows = read_rows(path)
        of_item = find_any(names, options.item_column or "item", *filter(is_id, names))
        of_label = find_any(names, options.label_column or "label")
        scored = _pairs_in(names, options) and list(names[:3]) != ["item", "label", "probability"]
        if of_item is not None and of_label is not None and not scored:
            return _labels(path, rows, of_item, of_label), {}
    scores = read_scores(path, options)
    best = np.nan_to_num(scores.values, nan=-np.inf).argmax(1)
    decided = scores.carried.get("prediction", [None] * len(scores))
    found = {item: "" for item, _ in scores.skipped}
    found |= {scores.name(row): decided[row] or scores.classes[k] for row, k in enumerate(best.tolist())}
    return found, scores.levels


def values_of_classes(path: Path, *wanted: str, needed: bool = False) -> Iterator[tuple[str, str, float]]:
    """Place, class and number of each row of a table with one row per class; 1 where it has no such column."""
    names, rows = read_rows(path)
    at = column(path, names, *wanted) if needed and len(names) > 1 else find_any(names, *wanted)
    for place, name, cells in tables.one_row_per_class(path, rows, column(path, names, *_CLASS_NAMES, SCIENTIFIC)):
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
