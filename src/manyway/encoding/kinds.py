"""What an input holds: features, pictures or texts.

It decides which encoder is needed where none is named.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path

from manyway import files
from manyway.encoding.datasets.archives import open_zip
from manyway.encoding.datasets.sources import FILMS, IMAGE_SUFFIXES, PATH_COLUMNS, walk
from manyway.encoding.datasets.texts import is_tabbed, may_hold_texts
from manyway.errors import InputError

FEATURES = "features"
PICTURES = "pictures"
TEXTS = "texts"
_LOOKED_AT = 1000  # files of a folder
_SOUNDS = frozenset(
    {".aif", ".aiff", ".flac", ".m4a", ".mp3", ".ogg", ".opus", ".wac", ".wav", ".wma"}
)
_NEARLY_ALL = 0.9  # of the rows have a text, where texts are meant,
_SENTENCE = 3  # with so many words on average
_REMARKS = re.compile(
    r"(.*[_\-. ])?(notes?|remarks?|comments?|bemerkung(en)?|anmerkung(en)?|kommentare?|remarques?)"
)
_MANY = 16  # so many columns of measurements are features, whatever texts stand beside them


def kind_of(path: Path, options: files.Options = files.AUTO, expected: str | None = None) -> str:
    """Whether a path holds ``features``, ``pictures`` or ``texts``; an InputError where it cannot be told.

    Parameters
    ----------
    path : Path
        A folder, an archive or a file. One that does not exist, or has an unknown ending, counts as
        features: their reader says what is wrong.
    options : Options, optional
        What the user says about the columns of a table.
    expected : str, optional
        What is wanted where the path holds several kinds, such as a table with texts and numbers.

    Returns
    -------
    str

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tickets.csv"
    >>> _ = path.write_text("text,intent\\nwhere is my card,card_arrival\\n")
    >>> kind_of(path), kind_of(Path("photos.npz"))
    ('texts', 'features')
    """
    suffix = files.suffix_of(path)
    if path.is_dir() and suffix != ".parquet":
        return _kind_of_files(
            path, list(islice((name for name in walk(path) if name[-1] != "/"), _LOOKED_AT))
        )
    if not path.is_file():
        return FEATURES
    if suffix == ".zip":
        return _kind_of_files(path, open_zip(path)[0])
    if suffix == ".txt" and not is_tabbed(files.read_text(path)):
        return TEXTS
    if suffix in IMAGE_SUFFIXES:
        raise InputError(
            f"{path} is a single picture; put the pictures into a folder and name the folder."
        )
    _refuse_films(path, {suffix})
    if may_hold_texts(path):
        return _kind_of_table(path, options, expected)
    return FEATURES


def likely_kind(path: Path, options: files.Options = files.AUTO) -> str | None:
    """As ``kind_of``; None where it cannot be told."""
    try:
        return kind_of(path, options)
    except InputError:
        return None


def _kind_of_files(path: Path, names: Sequence[str]) -> str:
    suffixes = Counter(Path(name).suffix.lower() for name in names)
    loose = sum("/" not in name and name.lower().endswith(".txt") for name in names)
    pictures = sum(suffixes[suffix] for suffix in IMAGE_SUFFIXES)
    if pictures:
        if loose > pictures and path.is_dir():
            hint = "keep them in separate folders, or say with `encoder` which of them to read"
            raise InputError(f"{path} holds pictures and texts (.txt); {hint}.")
        return PICTURES
    if loose and path.is_dir():
        return TEXTS
    if not names:
        raise InputError(
            f"{path} is empty; it needs pictures (in one folder per class) or CLASS.txt "
            "files of texts."
        )
    if ".txt" in suffixes:
        hint = (
            "give one file per class (CLASS.txt, one text per line), "
            "or a table with the columns text and label"
        )
        raise InputError(f"{path} holds text files in folders; {hint}.")
    _refuse_films(path, suffixes)
    hint = (
        "name a feature file, the tables of a classifier with `scores`, "
        "or an `encoder` to read them all the same"
    )
    raise InputError(
        f"{path} holds no pictures that are known by their ending ({names[0]} is none); {hint}."
    )


def _refuse_films(path: Path, suffixes: Collection[str]) -> None:
    """Films and sounds need a step before."""
    if FILMS & set(suffixes):
        frames = (
            "save frames as pictures first, such as one per second: "
            "ffmpeg -i FILM -vf fps=1 FOLDER/%05d.jpg"
        )
        raise InputError(f"{path} holds films; {frames}.")
    if _SOUNDS & set(suffixes):
        raise InputError(
            f"{path} holds sound; let BirdNET or another listen, and name its tables with `scores`."
        )


def _kind_of_table(path: Path, options: files.Options, expected: str | None) -> str:
    try:
        table = options.opened or files.read_table(path, rows=files.SAMPLE, sheet=options.sheet)
    except InputError:
        return FEATURES  # their reader says more about it
    names = table.names
    column = options.text_column
    if column is not None and files.find_column(names, column) is not None:
        return TEXTS
    chosen = [options.label_column, options.item_column, *options.ignore_columns]
    left_out = {files.find_column(names, name) for name in chosen if name}
    free = [at for at, name in enumerate(names) if at not in left_out and not files.is_label(name)]
    numbers = [at for at in free if _are_numbers(table, at)]
    text = files.find_text(table, options, left_out.union(numbers)).at
    if text is not None and not files.words_in(table, text):
        text = None
    paths = [at for at in free if _are_paths(table, at)]
    possible = {
        TEXTS: text is not None or not (numbers or paths),
        FEATURES: bool(numbers),
        PICTURES: bool(paths),
    }
    if expected is not None and possible[expected]:
        return expected
    if options.feature_columns or text is None:
        return PICTURES if paths and not numbers else FEATURES
    if paths:
        both = f"texts (column '{names[text]}') and pictures (column '{names[paths[0]]}')"
        raise InputError(f"{path} has {both}; leave one of them out with `ignore_columns`.")
    # Whole numbers beside a text are its number, date or priority; others may be what is measured.
    measured = [names[at] for at in numbers if not all(map(files.is_whole, table.sample(at)))]
    if _are_remarks(table, text):
        return FEATURES if numbers else TEXTS
    if _are_sentences(table, text) and len(measured) < _MANY:
        return TEXTS
    if 0 < len(measured) < _MANY:
        both = (
            f"texts (column '{names[text]}') and columns of numbers ({files.listed(measured, 3)})"
        )
        hint = (
            "choose the texts with `text_column`, "
            f"or leave '{names[text]}' out with `ignore_columns`"
        )
        raise InputError(f"{path} has {both}; {hint}.")
    return FEATURES if measured else TEXTS


def _are_paths(table: files.Table, at: int) -> bool:
    """Whether a column holds the paths of pictures, by its name and by what is in it."""
    if table.names[at].strip().lower() not in PATH_COLUMNS:
        return False
    return all(Path(str(cell)).suffix.lower() in IMAGE_SUFFIXES for cell in table.sample(at))


def _are_remarks(table: files.Table, at: int) -> bool:
    """Whether texts are remarks, by their column's name or because only some rows have one."""
    if _REMARKS.fullmatch(table.names[at].strip().casefold()):
        return True
    cells = table.sample(at)
    filled = [cell for cell in cells if not files.missing(cell)]
    return 2 * len(filled) < len(cells)


def _are_sentences(table: files.Table, at: int) -> bool:
    """Whether nearly every row has a text of some words.

    Tickets do, whatever numbers stand beside them.
    """
    cells = table.sample(at)
    filled = [cell for cell in cells if not files.missing(cell)]
    return len(filled) >= _NEARLY_ALL * len(cells) and files.words_in(table, at) >= _SENTENCE


def _are_numbers(table: files.Table, at: int) -> bool:
    """Whether there are numbers, or lists of them, and nothing else.

    Those that identify or count rows are none.
    """
    named = files.is_id(table.names[at]) or files.is_row_number(table.names[at])
    given = [cell for cell in table.sample(at) if cell is not None and cell != ""]
    return (
        bool(given)
        and not named
        and (all(map(files.is_number_like, given)) or table.holds_lists(at))
    )
