"""The result of a review as files.

They are a table of labels, examples with the reviewed items added to them, sorted pictures, and the
file of a classifier with the labels in it.
"""

import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from manyway.core import Solution
from manyway.errors import InputError
from manyway.files import (
    AnyPath,
    Items,
    TableOrigin,
    check_output,
    match_columns,
    read_scores,
    written_format,
    written_tables,
)
from manyway.labelling import INPUT, Batch, check_format
from manyway.labelling.batch import UNKNOWN
from manyway.labelling.outputs import Found, write_format
from manyway.labelling.rows_back import write_back
from manyway.labelling.table import write_rows
from manyway.review.data import TEXTS, ScoreFile
from manyway.review.session import Session
from manyway.review.state import NO_CLASS, OPEN

# ("examples" or "items", row) -> the file or content of a picture.
Find = Callable[[str, int], Path | bytes | None]
_LONGEST = 200  # bytes of a file name
_COLUMNS = ("item", "label", "probability", "reviewed", "label_2", "probability_2", "comment")
_OF_UNKNOWN = ("unknown", "group")  # columns where items may be unknown
_NEEDED = {".xlsx": "openpyxl", ".parquet": "pyarrow"}  # what writes tables of some endings


class Export(NamedTuple):
    """Something that the page offers to write.

    Parameters
    ----------
    name : str
        The file or the folder.
    about : str
        What is in it.
    write : callable
        Writes it; returns how many rows or pictures there are.
    is_folder : bool
        Whether it is a folder, which is made in the folder of the review; files are downloaded.
    """

    name: str
    about: str
    write: Callable[[Session, Path], int]
    is_folder: bool = False


class _Picture(NamedTuple):
    """A picture to be written, and what finds it."""

    label: str
    name: str
    which: str  # "examples" or "items"
    row: int


def offered_exports(session: Session, find: Find | None = None) -> dict[str, Export]:
    """What can be written of a review here, by its name.

    Parameters
    ----------
    session : Session
    find : callable, optional
        Finds the picture of an example or item, where there are pictures.

    Returns
    -------
    dict of str to Export
        Tables in a format whose library is not installed are not among them.
    """
    labels = "Labels, one row per item"
    examples = "Examples and reviewed items"
    tables = [
        Export("labels.csv", f"{labels} (csv)", export_labels),
        Export("labels.xlsx", f"{labels} (Excel)", export_labels),
        Export("labels.parquet", f"{labels} (parquet)", export_labels),
        Export("examples.csv", f"{examples} (csv)", export_examples),
        Export("examples.parquet", f"{examples} (parquet)", export_examples),
    ]
    found = [table for table in tables if _can_write(table.name)]
    source = session.data.score_file
    if source is not None and Path(source.path).suffix:
        path = Path(source.path)
        about = f"{path.name} with these labels ({source.format})"
        found.append(Export(f"{path.stem}-reviewed{path.suffix}", about, export_scores))
    if find is not None:
        sort = "All pictures sorted into one folder per label"
        linked = partial(export_folders, find=find)
        copied = partial(export_folders, find=find, copy=True)
        of_class = partial(export_examples, find=find)
        found += [
            Export("sorted", f"{sort}, as links", linked, is_folder=True),
            Export("sorted-copies", f"{sort}, as copies", copied, is_folder=True),
            Export(
                "examples",
                f"{examples}, one folder of pictures per class",
                of_class,
                is_folder=True,
            ),
        ]
    return {export.name: export for export in found}


def _can_write(name: str) -> bool:
    """Whether the library that writes such a table is installed."""
    needed = _NEEDED.get(Path(name).suffix)
    return needed is None or find_spec(needed) is not None


def export_labels(session: Session, path: AnyPath) -> int:
    """Write one row per item: its label and whether a person has seen it.

    Parameters
    ----------
    session : Session
    path : path-like
        A .csv, .tsv, .xlsx, .parquet or .jsonl file. The label of unknown items is ``unknown``.
        Where items may be unknown, the columns ``unknown`` and ``group`` are those of ``manyway
        label``. Items that come from a table, which nobody has changed since, are given back in
        that table. Otherwise the items' own columns come last.

    Returns
    -------
    int
        The number of rows.
    """
    path = _table(session, path)
    inputs = inputs_of(session)
    carried = session.data.items.carried
    header = [*_COLUMNS, *(_OF_UNKNOWN if session.data.open_set else ())]
    rows = []
    with session.lock:
        found = [_label_row(session, row) for row in range(len(session.answers))]
    origin = session.data.items.origin
    if origin is not None and origin.is_unchanged:
        answers = _beside(
            origin, session, [[cells[name] for name in header[1:]] for cells in found]
        )
        write_back(path, origin, [*header[1:], "note"], answers, inputs)
        return len(found)
    for row, cells_of_row in enumerate(found):
        own = [cells[row] if row < len(cells) else None for cells in carried.values()]
        rows.append([cells_of_row[name] for name in header] + own)
    own_header = [f"given_{name}" if name in header else name for name in carried]
    write_rows(path, header + own_header, rows, inputs, for_excel=True)
    return len(rows)


def _beside(
    origin: TableOrigin, session: Session, found: Sequence[Sequence[Any]]
) -> dict[int, list[Any]]:
    """What is added to each row of the table that the items come from.

    It is made from the answers of the items.
    """
    items = session.data.items
    reasons = [items.note(row) for row in range(len(items))]
    reasons += [f"skipped: {reason}" for _, reason in items.skipped]
    answers = {
        place: [*cells, reason]
        for place, cells, reason in zip(origin.rows, found, reasons, strict=True)
    }
    for place, known in origin.known.items():
        nothing = [None] * (len(found[0]) - 1)
        answers[place] = [known.label, *nothing, known.note]
    return answers


def _label_row(session: Session, row: int) -> dict[str, Any]:
    """The cells of an item, by their columns."""
    chosen = session.chosen(row)
    reviewed = session.answers[row] != OPEN
    group = session.groups[row]
    label = ""  # nothing is suggested for what could not be read
    if chosen.number != NO_CLASS:
        label = session.classes[chosen.number]
    elif reviewed or group >= 0:
        label = UNKNOWN
    second = ""
    second_probability: float | None = None
    for number, probability in zip(session.best[row], session.probabilities[row], strict=True):
        if number != chosen.number:
            second = session.classes[number]
            second_probability = round(probability, 4)
            break
    unknown = float(chosen.number == NO_CLASS) if reviewed else session.unknown[row]
    return {
        "item": session.data.names[row],
        "label": label,
        "probability": round(chosen.probability, 4),
        "reviewed": "yes" if reviewed else "no",
        "label_2": second,
        "probability_2": second_probability,
        "comment": session.comments[row],
        "unknown": round(unknown, 4),
        "group": None if reviewed or group < 0 else group,
    }


def export_examples(session: Session, path: AnyPath, find: Find | None = None) -> int:
    """Write the labelled examples together with the reviewed items.

    ``manyway label`` can read them as examples.

    Parameters
    ----------
    session : Session
    path : path-like
        A table (.csv, .tsv, .xlsx, .parquet or .jsonl): texts with labels where texts are reviewed,
        otherwise features with labels. Any other path is a new folder of pictures with one folder
        per class; its files are relative links to the originals where these are files, and copies
        otherwise.
    find : callable, optional
        Finds the picture of an example or item; needed for a folder.

    Returns
    -------
    int
        The number of examples that were written.

    Raises
    ------
    InputError
        If something else is in the way, or pictures are missing.
    """
    data = session.data
    with session.lock:
        reviewed = [(row, session.classes[k]) for row, k in enumerate(session.answers) if k >= 0]
    if Path(path).suffix.lower() not in written_tables():
        if find is None:
            hint = "only pictures are written to folders: give a .csv or .parquet"
            raise InputError(f"{path} names a folder; {hint}.")
        labels = enumerate(data.examples.labels or ())
        pictures = [
            _Picture(label, data.examples.name(row), "examples", row) for row, label in labels
        ]
        pictures += [_Picture(label, data.names[row], "items", row) for row, label in reviewed]
        _write_folders(Path(path), pictures, find)
        return len(pictures)
    path = _table(session, path)
    with_features = [(row, label) for row, label in reviewed if row < len(data.items)]
    columns = data.examples.columns or tuple(f"f{d}" for d in range(data.examples.n_features))
    header = ["text", "label"] if data.kind == TEXTS else ["item", "label", *columns]
    # The shortest decimal that gives the same number again, where the table is text.
    exact = float if written_format(path).is_exact else str

    def cells(items: Items, row: int, label: str) -> list[Any]:
        if data.kind == TEXTS:
            return [items.text(row), label]
        return [items.text(row), label, *map(exact, items.rows(row, row + 1).numpy()[0])]

    def rows() -> Iterator[list[Any]]:
        for row, label in enumerate(data.examples.labels or ()):
            yield cells(data.examples, row, label)
        items = match_columns(data.examples, data.items)
        for row, label in with_features:
            yield cells(items, row, label)

    write_rows(path, header, rows(), inputs_of(session))
    return len(data.examples) + len(with_features)


def export_scores(session: Session, path: AnyPath) -> int:
    """Write the labels into the file of another program that the scores came from.

    Parameters
    ----------
    session : Session
        A review of scores.
    path : path-like
        The new file, or the new folder where the scores were a folder. A reviewed item has its
        class with probability 1, and an unknown one has no class.

    Returns
    -------
    int
        The number of items.

    Raises
    ------
    InputError
        If the scores came from a table, their file has changed, or it has no place for a new class.
    """
    source = session.data.score_file
    if source is None:
        hint = "the format of the input is for files of SpeciesNet, MegaDetector and BirdNET"
        raise InputError(f"{path} cannot be written: {hint}; write a table: labels.csv.")
    scores = read_scores(Path(source.path))
    if ScoreFile.of(scores) != source:
        changed = "has changed since the review began"
        raise InputError(f"{source.path} {changed}; restore it, or write a table: labels.csv.")
    check_format(INPUT, scores, Path(path))
    batch = Batch(session.relabel.tasks, tuple(session.classes), scores)
    # This format is written from the solution, so that no rows are needed.
    reviewed = frozenset(
        row for row, answer in enumerate(session.answers_of_items) if answer != OPEN
    )
    found = Found(batch, _final_solution(session), [], 0.0, reviewed)
    write_format(INPUT, Path(path), found, inputs_of(session))
    return len(scores)


def _final_solution(session: Session) -> Solution:
    """The suggestions of the review, with the answers in their places."""
    with session.lock, torch.no_grad():
        answers = session.answers_of_items
        _, found = session.relabel(session.known)
        probabilities = torch.zeros(1, len(answers), len(session.classes))
        probabilities[..., : found.probabilities.shape[-1]] = found.probabilities
        groups = torch.full((1, len(answers)), -1)
        if found.unknown_groups is not None:
            groups = found.unknown_groups.clone()
        for row, answer in enumerate(answers):
            if answer == OPEN:
                continue
            probabilities[0, row] = 0
            groups[0, row] = -1
            if answer == NO_CLASS:
                groups[0, row] = 0
            else:
                probabilities[0, row, answer] = 1
        unknown = 1 - probabilities.sum(-1)
        return Solution(
            probabilities, found.n_iter, found.converged, unknown=unknown, unknown_groups=groups
        )


def inputs_of(session: Session) -> tuple[Path, ...]:
    """The files and folders that no export is written over.

    They are what was read for the review, and the answers.

    Parameters
    ----------
    session : Session

    Returns
    -------
    tuple of Path
    """
    return *session.data.protected, session.journal.path


def _table(session: Session, path: AnyPath) -> Path:
    path = Path(path)
    if path.suffix.lower() not in written_tables():
        raise InputError(
            f"{path} cannot be written; tables end with {', '.join(written_tables())}."
        )
    check_output(path, inputs_of(session))
    return path


def export_folders(session: Session, path: AnyPath, find: Find, *, copy: bool = False) -> int:
    """Sort the pictures of all items into one folder per label.

    Unknown items get the folder ``unknown``.

    Parameters
    ----------
    session : Session
    path : path-like
        The folder to make; it must not exist.
    find : callable
        Finds the picture of an item. Items without one are left out.
    copy : bool, default=False
        Copy the pictures instead of linking to them.

    Returns
    -------
    int
        The number of pictures.
    """
    with session.lock:
        chosen = [session.chosen(row).number for row in range(len(session.answers))]
        labels = [UNKNOWN if number == NO_CLASS else session.classes[number] for number in chosen]
    names = session.data.names
    pictures = [_Picture(label, names[row], "items", row) for row, label in enumerate(labels)]
    there = [picture for picture in pictures if find("items", picture.row) is not None]
    if not there:
        folder = (session.data.origins or {}).get("items", "their folder")
        raise InputError(f"None of the pictures is in {folder}; bring them back to sort them.")
    _write_folders(Path(path), there, find, copy=copy)
    return len(there)


def _write_folders(
    target: Path, pictures: Sequence[_Picture], find: Find, *, copy: bool = False
) -> None:
    """Write one folder per class.

    ``target`` is a new folder, which appears when it is complete: people sort by hand too.
    """
    if target.is_symlink() or target.exists():
        raise InputError(f"{target} exists already; choose another name.")
    made = target.parent / f".{target.name[:40]}-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        top = _Folder(made)
        folders: dict[str, _Folder] = {}
        for picture in pictures:
            if picture.label not in folders:
                folders[picture.label] = _Folder(top.unused(picture.label))
            found = find(picture.which, picture.row)
            if found is None:
                hint = "restore it, or mark it as unknown, and export again"
                raise InputError(f"The picture {picture.name} is missing; {hint}.")
            place = folders[picture.label].unused(picture.name)
            if isinstance(found, bytes):
                place.write_bytes(found)
            elif copy:
                shutil.copyfile(found, place)
            else:
                _link(found, place)
        os.rename(made, target)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"Cannot write {target}: {reason}. Nothing was changed.") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _link(original: Path, place: Path) -> None:
    try:  # a relative link outlives a move of both folders
        place.symlink_to(os.path.relpath(original, os.path.realpath(place.parent)))
    except (OSError, NotImplementedError, ValueError):  # file systems without links
        shutil.copyfile(original, place)


def _file_name(name: str) -> str:
    """A name that every file system takes: no separators, no control characters, not hidden.

    >>> _file_name("../birds/barn swallow.jpg"), _file_name("a/b"), _file_name("..."), _file_name("Con")
    ('birds_barn swallow.jpg', 'a_b', '_', '_Con')
    """
    printable = "".join(c for c in name if unicodedata.category(c) != "Cc")
    plain = re.sub(r'[/\\:*?"<>|]+', "_", printable)
    plain = plain.lstrip("._ ").rstrip(". ") or "_"
    # Devices of Windows.
    plain = re.sub(r"(?i)^(?=(con|prn|aux|nul|com\d|lpt\d)(\.|$))", "_", plain)
    if len(os.fsencode(plain)) <= _LONGEST:
        return plain
    part = _LONGEST // 8
    return plain[:part] + plain[-part:]


class _Folder:
    """A folder in which every name is used once, also where upper and lower case are the same."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self._taken: set[str] = set()

    def unused(self, name: str) -> Path:
        name = _file_name(name)
        stem, ending = os.path.splitext(name)
        chosen = name
        n = 1
        while chosen.casefold() in self._taken:
            n += 1
            chosen = f"{stem} ({n}){ending}"
        self._taken.add(chosen.casefold())
        return self.path / chosen
