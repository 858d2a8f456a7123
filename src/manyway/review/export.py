"""The result of a review as files: a table of labels, and the examples with the reviewed items added to them."""

import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from manyway.errors import InputError
from manyway.files import AnyPath, TableOrigin, check_output, match_columns, written_format, written_tables
from manyway.labelling.batch import UNKNOWN
from manyway.labelling.rows_back import write_back
from manyway.labelling.table import write_rows
from manyway.review.data import TEXTS
from manyway.review.session import NO_CLASS, OPEN, Session

Find = Callable[[str, int], Path | bytes | None]  # ("examples" or "items", row) -> the file or content of a picture
_Picture = tuple[str, str, str, int]  # its label and its name, and what finds it: "examples" or "items", and the row
_LONGEST = 200  # bytes of a file name
_HEADER = ("item", "label", "probability", "reviewed", "label_2", "probability_2", "comment", "unknown", "group")


def export_labels(session: Session, path: AnyPath) -> int:
    """Write one row per item: its label and whether a person has seen it.

    Parameters
    ----------
    session : Session
    path : path-like
        A .csv, .tsv, .xlsx, .parquet or .jsonl file. The label of unknown items is ``unknown``. Where items may be
        unknown, the columns ``unknown`` and ``group`` are those of ``manyway label``. Items that come from a table,
        which nobody has changed since, are given back in that table. Otherwise the items' own columns come last.

    Returns
    -------
    int
        The number of rows.
    """
    path = _table(path)
    own = {name: [*cells, *[None] * len(session.answers)] for name, cells in session.data.items.carried.items()}
    header = _HEADER if session.data.open_set else _HEADER[:-2]
    with session.lock:
        found = [_label_row(session, row)[: len(header)] for row in range(len(session.answers))]
        rows = [[*first, *(cells[row] for cells in own.values())] for row, first in enumerate(found)]
    origin = session.data.items.origin
    if origin is not None:
        write_back(path, origin, [*header[1:], "note"], _beside(origin, session, found))
        return len(rows)
    names = [*header, *(f"given_{name}" if name in header else name for name in own)]
    write_rows(path, names, rows, for_excel=True)
    return len(rows)


def _beside(origin: TableOrigin, session: Session, found: Sequence[Sequence[Any]]) -> dict[int, list[Any]]:
    """What is added to each row of the table that the items come from."""
    reasons = ["" for _ in range(len(session.data.items))]
    reasons += [f"skipped: {reason}" for _, reason in session.data.items.skipped]
    answers = {place: [*cells[1:], reason] for place, cells, reason in zip(origin.rows, found, reasons, strict=True)}
    for place, known in origin.known.items():
        nothing = [None] * (len(found[0]) - 2)
        answers[place] = [known.label, *nothing, known.note]
    return answers


def _label_row(session: Session, row: int) -> list[Any]:
    number, probability = session.chosen(row)
    reviewed, group = session.answers[row] != OPEN, session.groups[row]
    pairs = zip(session.best[row], session.probabilities[row], strict=True)
    name, second = next(((session.classes[k], p) for k, p in pairs if k != number), ("", 0.0))
    guessed = UNKNOWN if reviewed or group >= 0 else ""  # nothing is suggested for what could not be read
    label = guessed if number == NO_CLASS else session.classes[number]
    first = [session.data.names[row], label, round(probability, 4), "yes" if reviewed else "no", name, round(second, 4)]
    unknown = float(number == NO_CLASS) if reviewed else session.unknown[row]
    return [*first, session.comments[row], round(unknown, 4), None if reviewed or group < 0 else group]


def export_examples(session: Session, path: AnyPath, find: Find | None = None) -> int:
    """Write the labelled examples together with the reviewed items, for ``manyway label`` to read as examples.

    Parameters
    ----------
    session : Session
    path : path-like
        A table (.csv, .tsv, .xlsx, .parquet or .jsonl): texts with labels where texts are reviewed, otherwise features
        with labels. Any other path is a new folder of pictures with one folder per class; its files are relative
        links to the originals where these are files, and copies otherwise.
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
    data, n_read = session.data, len(session.data.items)
    with session.lock:
        reviewed = [(row, session.classes[k]) for row, k in enumerate(session.answers) if k >= 0]
    if Path(path).suffix.lower() not in written_tables():
        if find is None:
            raise InputError(f"{path} names a folder; only pictures are written to folders: give a .csv or .parquet.")
        labels = enumerate(data.examples.labels or ())
        pictures = [(label, data.examples.name(row), "examples", row) for row, label in labels]
        pictures += [(label, data.names[row], "items", row) for row, label in reviewed]
        _write_folders(Path(path), pictures, find)
        return len(pictures)
    path = _table(path)
    with_features = [(row, label) for row, label in reviewed if row < n_read]
    # The shortest decimal that gives the same number again, where the table is text.
    exact = float if written_format(path).is_exact else str
    columns = data.examples.columns or tuple(f"f{d}" for d in range(data.examples.n_features))
    header = ["text", "label"] if data.kind == TEXTS else ["item", "label", *columns]

    def rows() -> Iterator[list[Any]]:
        labelled = list(enumerate(data.examples.labels or ()))
        for items, found in ((data.examples, labelled), (match_columns(data.examples, data.items), with_features)):
            for row, label in found:
                features = items.rows(row, row + 1).numpy()[0] if data.kind != TEXTS else ()
                yield [items.text(row), label, *map(exact, features)]

    write_rows(path, header, rows())
    return len(data.examples) + len(with_features)


def _table(path: AnyPath) -> Path:
    path = Path(path)
    if path.suffix.lower() not in written_tables():
        raise InputError(f"{path} cannot be written; tables end with {', '.join(written_tables())}.")
    check_output(path)
    return path


def export_folders(session: Session, path: AnyPath, find: Find, *, copy: bool = False) -> int:
    """Sort the pictures of all items into one folder per label; unknown items get the folder ``unknown``.

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
        chosen = [session.chosen(row)[0] for row in range(len(session.answers))]
        labels = [UNKNOWN if number == NO_CLASS else session.classes[number] for number in chosen]
    pictures = [(label, session.data.names[row], "items", row) for row, label in enumerate(labels)]
    there = [one for one in pictures if find("items", one[3]) is not None]
    _write_folders(Path(path), there, find, copy=copy)
    return len(there)


def _write_folders(target: Path, pictures: Sequence[_Picture], find: Find, *, copy: bool = False) -> None:
    """One folder per class. ``target`` is a new folder, which appears when it is complete: people sort by hand too."""
    if target.is_symlink() or target.exists():
        raise InputError(f"{target} exists already; choose another name.")
    made = target.parent / f".{target.name[:40]}-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        top, folders = _Folder(made), dict[str, _Folder]()
        for label, name, which, row in pictures:
            if label not in folders:
                folders[label] = _Folder(top.unused(label))
            found = find(which, row)
            if found is None:
                raise InputError(f"The picture {name} is missing; restore it, or mark it as unknown, and export again.")
            place = folders[label].unused(name)
            if isinstance(found, bytes):
                place.write_bytes(found)
            elif copy:
                shutil.copyfile(found, place)
            else:
                _link(found, place)
        os.rename(made, target)
    except OSError as error:
        raise InputError(f"Cannot write {target}: {error.strerror or error}. Nothing was changed.") from error
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
    plain = re.sub(r'[/\\:*?"<>|]+', "_", "".join(c for c in name if unicodedata.category(c) != "Cc"))
    plain = plain.lstrip("._ ").rstrip(". ") or "_"
    plain = re.sub(r"(?i)^(?=(con|prn|aux|nul|com\d|lpt\d)(\.|$))", "_", plain)  # devices of Windows
    return plain if len(os.fsencode(plain)) <= _LONGEST else plain[: _LONGEST // 8] + plain[-(_LONGEST // 8) :]


class _Folder:
    """A folder in which every name is used once, also where upper and lower case are the same."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path, self._taken = path, set[str]()

    def unused(self, name: str) -> Path:
        name = _file_name(name)
        stem, ending = os.path.splitext(name)
        names = (name if n == 1 else f"{stem} ({n}){ending}" for n in range(1, len(self._taken) + 2))
        chosen = next(each for each in names if each.casefold() not in self._taken)
        self._taken.add(chosen.casefold())
        return self.path / chosen
