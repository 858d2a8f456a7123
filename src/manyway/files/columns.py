"""Which column of a table is what: features, label, item name or text. The others are carried along."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyway.errors import InputError, nearest
from manyway.files.answer_columns import written_beside
from manyway.files.contents import Contents
from manyway.files.formats.registry import is_table
from manyway.files.opening import read_table
from manyway.files.options import AUTO, Options
from manyway.files.origin import TableOrigin
from manyway.files.tables import (
    LABEL_NAMES,
    SAMPLE,
    TEXT_NAMES,
    IsHeader,
    Part,
    Table,
    find_column,
    missing,
    plain,
)
from manyway.files.text import is_filled, is_number, listed, numbers_of_people

_PERHAPS_LABELS = ("species", "taxon", "topic", "kategorie", "klasse", "art", "catégorie", "classe", "categoría")
_PERHAPS_MISSING = {"na", "n/a", "null", "none", "?", "-"}
_ALIKE = str.maketrans("аеорсухіјѕԁһкмтвнαβεζηικμνορτυχ", "aeopcyxijsdhkmtbhabezhikmnoptyx")  # Cyrillic and Greek
_ROW_NUMBERS = re.compile(
    r"(unnamed: \d+(_level_\d+)?|index|idx|level_\d+|__index_level_\d+__|row[_. ]?(names?|nr|no|num|number|index))?"
)
_IDS = re.compile(r"(.*[_\-. ])?(id|uuid|guid|file|file[_ ]?name|(file[_ ]?)?path|url|uri)|.*[a-z](Id|ID)")
_CODE = re.compile(r"(?=.*\d)\S{1,80}|\S{1,80}\.[A-Za-z]\w{1,4}")  # T-4026, owl.png
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d.*)?|\d{1,2}:\d\d(:\d.*)?")
_NUMBERS = re.compile(
    r"(.*[_\-. ])?(nr|no|#|num|number|numéro|número|key|code|barcode|accession|serial|voucher)\.?|.*nummer"
)
_SHORT_FOR_NUMBER = re.compile(r".*[_\-. ](nr|no|num|nº|n°|#)\.?|(nr|no)\.|nr|#")  # NO alone is a gas
_MOSTLY_NEXT = 0.5  # numbers count something if at least this share of them follows the one before
_DATES = re.compile(r"(.*[_\-. ])?(date|datum|timestamp|date[_ ]?time)")
_TIMES = re.compile(r"(.*[_\-. ])?(time|zeit|uhrzeit|year|jahr|month|monat|day|tag|hour|stunde)")
_PLACES = re.compile(r"(.*[_\-. ])?(lat|latitude|lon|lng|longitude|easting|northing)([_\-. ].*)?")
# 1989 to 2039 in days of Excel, MATLAB and Julius Scaliger; and years.
_DAYS = ((32_500, 51_000), (726_000, 745_000), (2_447_000, 2_466_000), (1850, 2040))
_FAR = 200  # numbers that lie this many standard deviations from 0 are rather coordinates, times or ids
_SURE = 12  # n whole numbers of a range r all differ by chance with a probability of e^(−n²/2r) at most: below e^−12
_CODES = [sign * (10.0**digits - 1) for digits in (2, 3, 4, 5) for sign in (-1, 1)]  # -999 for a missing value
_MANY = 20  # rows, from which on a single column that rises throughout numbers them in any table
_ENOUGH_ROWS = 3  # without gaps: they say what columns hold
_SUMS = re.compile(r"(grand[ _]?)?totals?|sums?|summe|gesamt(summe)?|means?|average|mittelwert|moyenne|somme|suma")
_WHOLE = re.compile(r"\s*[-+]?\d*\s*")
_PART = re.compile(r"\s*(-|0?[.,]|\d+(\.\d+)?e-)", re.IGNORECASE)
_WORDS = 2  # texts have at least this many words on average
_WORDS_OF_A_CLASS = 5  # and the name of a class has hardly more than so many words,
_LETTERS_OF_A_CLASS = 50  # or letters
Numbers = np.ndarray[Any, Any]


def remarks_on_classes(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Remarks on names of classes that may be slips of the pen; all are kept as they are.

    >>> remarks_on_classes(Path("a.csv"), ["cat", "Cat", "dog"])
    ("the labels 'Cat' and 'cat' of a.csv differ only in case, blanks or Unicode form; they are two classes",)
    """
    remarks, seen, numbers = [], dict[str, str](), dict[float, str]()
    for name in sorted(set(names)):
        visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
        plain = " ".join(unicodedata.normalize("NFKC", visible).casefold().split())
        other = seen.setdefault(plain, name)
        alike = seen.setdefault(plain.translate(_ALIKE), other)
        equal = numbers.setdefault(float(plain), name) if is_number(plain) else name
        if alike != name:
            same, near = "differ only in case, blanks or Unicode form", "look alike, in letters of two scripts"
            how = same if other != name else near
            remarks.append(f"the labels {quoted(alike)} and {quoted(name)} of {path.name} {how}; they are two classes")
        elif equal != name:
            both = f"{quoted(equal)} and {quoted(name)}"
            remarks.append(f"the labels {both} of {path.name} are one number and two classes")
        if not name.isprintable():
            remarks.append(f"the label {quoted(name)} of {path.name} has invisible characters; they belong to it")
        if plain in _PERHAPS_MISSING:
            remarks.append(f"the label '{name}' of {path.name} is taken as the name of a class, not as a missing label")
    return (*remarks[:5], f"and {len(remarks) - 5} more of this kind") if len(remarks) > 5 else tuple(remarks)


def remarks_on_items(path: Path, names: Sequence[str] | None) -> tuple[str, ...]:
    """Remarks on names that several items have, and on a last row that may sum up the others.

    >>> remarks_on_items(Path("a.csv"), ["1.jpg", "2.jpg", "1.jpg"])
    ("2 items of a.csv share their name with another, such as '1.jpg'",)
    >>> remarks_on_items(Path("a.csv"), ["p1", "p2", "Total"])
    ("the last row of a.csv is called 'Total'; remove it if it sums up the others",)
    """
    counts = {name: count for name, count in Counter(names or ()).items() if count > 1}
    said = f"{sum(counts.values())} items of {path.name} share their name with another, such as "
    remarks = [said + quoted(first) for first in [*counts][:1]]
    last = str(names[-1]) if names else ""
    if _SUMS.fullmatch(last.strip().casefold()):
        remarks.append(f"the last row of {path.name} is called {quoted(last)}; remove it if it sums up the others")
    return tuple(remarks)


def quoted(name: str) -> str:
    """A name in quotation marks, with codes for what cannot be seen.

    >>> quoted("cat"), quoted("cat" + chr(0x200D))
    ("'cat'", "'cat\\\\u200d'")
    """
    return f"'{name}'" if name.isprintable() else ascii(name)


def is_row_number(name: str) -> bool:
    """Whether a column of this name only counts rows, such as the index that pandas writes.

    >>> [name for name in ("", "Unnamed: 0", "index", "width") if is_row_number(name)]
    ['', 'Unnamed: 0', 'index']
    """
    return _ROW_NUMBERS.fullmatch(name.casefold()) is not None


def is_id(name: str) -> bool:
    """Whether a column of this name identifies items.

    >>> [name for name in ("id", "photo_id", "imageID", "image_path", "width", "grid") if is_id(name)]
    ['id', 'photo_id', 'imageID', 'image_path']
    """
    return _IDS.fullmatch(name.casefold()) is not None or _IDS.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Whether a column of this name usually holds labels."""
    return name.strip().casefold() in LABEL_NAMES


def named_label(path: Path, names: Sequence[str], options: Options) -> int | None:
    """The position of the label column, by its name alone."""
    if options.label_column is not None:
        return find_column(names, options.label_column)
    features = {*(options.like or ()), *options.feature_columns, *options.ignore_columns}
    alike = [at for at, name in enumerate(names) if is_label(name) and name not in features]
    exact = [at for at in alike if names[at].strip().casefold() == "label"] or alike
    if not alike and options.like is None:  # in the second place, and only where it is clear
        perhaps = [at for at, name in enumerate(names) if name.strip().casefold() in _PERHAPS_LABELS]
        exact = [at for at in perhaps if len(perhaps) == 1 and names[at] not in features]
    if len(alike) > 1 and options.like is None:
        raise _several_labels(path, [names[at] for at in alike])
    return exact[0] if exact else None


def find_label(path: Path, table: Table, options: Options) -> int | None:
    """The position of the label column: by its name or, where one must be there, by what is in it.

    A column of labels has few short texts, which repeat themselves. In a partly labelled table some of its cells are
    empty; in labelled examples it is the column that the items do not have.
    """
    if table.label is not None:
        return table.label
    found = named_label(path, table.names, options)
    wanted = options.find_label or options.labelled is not None
    if found is not None or options.label_column is not None or not wanted:
        return found
    taken = {find_column(table.names, name) for name in (*options.ignore_columns, *options.feature_columns)}
    taken |= {find_column(table.names, name) for name in (options.item_column, options.text_column) if name}
    free = [at for at, name in enumerate(table.names) if at not in taken and name.strip() and not is_id(name)]
    texts = [at for at in free if not _are_measured(table.sample(at))]
    if options.labelled is not None:
        perhaps = [at for at in texts if _are_partly_filled(cells := table.values([at])[0]) and _are_kinds(cells)]
    else:
        perhaps = [at for at in texts if _are_kinds(table.sample(at))]
        theirs = options.columns_of_items
        if theirs is not None:
            new = [at for at in texts if find_column(theirs, table.names[at]) is None]
            short = [at for at in new if words_in(table, at) <= _WORDS_OF_A_CLASS]
            perhaps = [at for at in perhaps if at in new] or (short if len(short) == 1 else perhaps)
    if len(perhaps) > 1:
        raise _several_labels(path, [table.names[at] for at in perhaps])
    return perhaps[0] if perhaps else None


def _several_labels(path: Path, names: Sequence[str]) -> InputError:
    which = f"could be the label: {listed(names)}; say which with `label_column`"
    others = "leave the others out with `ignore_columns` or keep them with `feature_columns`"
    return InputError(f"{path} has several columns that {which}, and {others}.")


def _filled(cells: Iterable[Any]) -> list[Any]:
    """The cells that hold something."""
    return [cell for cell in cells if not missing(cell) and str(cell).strip().casefold() not in _PERHAPS_MISSING]


def _are_measured(cells: Sequence[Any]) -> bool:
    """Whether most cells are numbers or dates, or lists of numbers."""
    filled = _filled(cells)
    odd = sum(not isinstance(cell, str) or is_number_like(cell) or _DATE.fullmatch(cell) is not None for cell in filled)
    return 2 * odd > len(filled)


def _are_partly_filled(cells: Sequence[Any]) -> bool:
    return 0 < len(_filled(cells)) < len(cells)


def _are_kinds(cells: Sequence[Any]) -> bool:
    """Whether cells are a few short texts that repeat themselves, as names of classes do.

    >>> _are_kinds(["ant", "bee", "ant", "", "bee"]), _are_kinds(["T-1", "T-2", "T-3", "T-4"])
    (True, False)
    """
    filled = [str(cell).strip() for cell in _filled(cells)]
    kinds = {*filled}
    letters = sum(map(len, filled)) / max(1, len(filled))
    return 2 <= len(kinds) <= len(filled) / 2 and letters <= _LETTERS_OF_A_CLASS


def open_partly_labelled(path: Path, options: Options) -> Options:
    """The same options for a table that holds the examples and the items, with the table itself, opened once."""
    table = read_table(path, _header_by(options), sheet=options.sheet)
    return replace(options, labelled=True, opened=table)


def _header_by(options: Options) -> IsHeader:
    """Whether a line names columns: it has a name that is known; else a guess is made."""
    known = {name.casefold() for name in (options.label_column, options.item_column, "item", *LABEL_NAMES) if name}
    like = set(options.like or ("",))

    def is_header(first: Sequence[str]) -> bool | None:
        return bool({*map(str.casefold, first)} & known) or like <= {*first} or None

    return is_header


def _opened_before(path: Path, options: Options, is_header: IsHeader | None) -> Table | None:
    """The table that was opened before, where it is the one at the path and its first line names columns."""
    table = options.opened
    if table is None or Path(table.where) != path:
        return None
    without_names = is_header is not None and is_header(table.names) is False
    return None if without_names else table


def open_table(path: Path, options: Options, is_header: IsHeader | None = None) -> Table:
    """Open a table or, as ``options`` say, the rows with a label or those without; see `read_table`."""
    table = _opened_before(path, options, is_header) or read_table(path, is_header, sheet=options.sheet)
    if options.labelled is None:
        return table
    label = find_label(path, table, options) if table.named else None
    if label is None:
        wanted, among = options.label_column, f"of labels among {listed(table.names)}"
        hint = nearest(wanted, table.names) if wanted else "name it with `label_column`, or give a file of items too."
        raise InputError(f"{path} has no column {quoted(wanted) if wanted else among}; {hint}")
    table.label = label
    cells = table.values([label])[0]
    name = table.names[label]
    blank = [missing(cell) for cell in cells]
    if not any(blank):  # R writes NA
        blank = [str(cell).strip().casefold() in _PERHAPS_MISSING for cell in cells]
    if options.all_labelled and not any(blank):
        return table
    if all(blank) or not any(blank):
        hint = "fill in those of some rows, and leave those of the items empty"
        raise InputError(f"{'No' if all(blank) else 'Every'} row of {path} has a label in column '{name}'; {hint}.")
    rows = [row for row, empty in enumerate(blank) if empty is not options.labelled]
    words = {str(cell).strip() for cell, empty in zip(cells, blank, strict=True) if empty and is_filled(cell)}
    rest = f"the other {sum(blank)}{f', which say {listed(sorted(words))},' if words else ''} the items"
    table.notes.append(f"rows of {path.name} with a label in '{name}' are the examples, {rest}")
    part = Part(table, rows, [at for at in range(len(table.names)) if at != label or options.labelled])
    part.label = label if options.labelled else None
    return part


class Found(NamedTuple):
    """A column that was found by what is in it, and the others that could have been meant."""

    at: int | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Roles:
    """Which columns of a table are used for what, and the others that could have been meant."""

    label: str | None = None
    item: str | None = None
    text: str | None = None
    features: Sequence[str] = ()
    unused: Sequence[str] = ()
    other_items: Sequence[str] = ()
    other_texts: Sequence[str] = ()

    @property
    def is_clear(self) -> bool:
        """Whether the names of the columns say it all, so that nothing was guessed."""
        usual = self.label in (None, "label") and self.item in (None, "item") and self.text in (None, "text")
        return usual and not self.unused

    def line(self, name: str) -> list[str]:
        """One sentence for the user about the columns of a file; none where nothing was guessed.

        >>> Roles(label="Art", features=["width"], unused=["site"]).line("a.csv")
        ["columns of a.csv: label 'Art'; feature 'width'; not used: 'site' (change it with `label_column`, \
`feature_columns`, `ignore_columns`)"]
        """
        if self.is_clear:
            return []
        parts = []
        options = []
        if self.label is not None:
            parts.append(f"label {quoted(self.label)}")
            options.append("label_column")
        if self.text is not None:
            parts.append(f"text {quoted(self.text)}{_not(self.other_texts)}")
            options.append("text_column")
        if self.features:
            parts.append(f"feature{'s' * (len(self.features) > 1)} {listed(self.features, 4)}")
            options += ["feature_columns", "ignore_columns"]
        if self.item is not None:
            shown = quoted(self.item) if self.item else "the one without a name"
            parts.append(f"item name {shown}{_not(self.other_items)}")
            options.append("item_column")
        if self.unused:
            parts.append(f"not used: {listed(self.unused)}")
        if not options:
            options = ["feature_columns"]
        how = ", ".join(f"`{option}`" for option in options)
        return [f"columns of {name}: {'; '.join(parts)} (change it with {how})"]


def _not(others: Sequence[str]) -> str:
    return f" (not {listed(others, 2)})" if others else ""


def find_item(table: Table, options: Options, taken: Collection[int | None]) -> Found:
    """The column of item names, where there is one.

    It is the column ``item``; else one whose name says that it identifies items, best one without repetitions; else one
    that is full of codes or file names; else one that counts rows. ``taken`` are columns of another use.
    """
    names = table.names
    if options.item_column is not None:
        return Found(find_column(names, options.item_column))
    forced = {*options.feature_columns, *(options.like or ())}
    free = [at for at, name in enumerate(names) if at not in taken and name not in forced]
    exact = [at for at in free if names[at].strip().casefold() == "item"]
    ids = [at for at in free if is_id(names[at]) and not _are_parts(table.sample(at))]
    found = exact or sorted(ids, key=lambda at: not _distinct(table.sample(at)))
    found += [at for at in free if _are_codes(cells := table.sample(at)) and _distinct(cells)]
    if options.like is not None:  # the features are known, and this is none
        found += [at for at in free if _are_numbered(names[at], cells := table.sample(at)) and _distinct(cells)]
    counts = [at for at in free if is_row_number(names[at]) or names[at] in table.index]
    # A comma at the end of lines is no name.
    found += [at for at in counts if any(map(is_filled, cells := table.sample(at))) and not _are_parts(cells)]
    if not found:
        return Found()
    if names[found[0]] == "item":
        return Found(found[0])
    return Found(found[0], tuple(names[at] for at in dict.fromkeys(ids) if at != found[0]))


def find_text(table: Table, options: Options, taken: Collection[int | None]) -> Found:
    """The column of texts, where there is one.

    It is the one that is named, by the user or by the labelled examples; else ``text`` or one of its usual names; else
    the column with most words.
    """
    names = table.names
    for name in (options.text_column, *(options.like or ())):
        at = None if name is None else find_column(names, name)
        if at is not None:
            return Found(at)
    written = written_beside(names)
    free = [at for at, name in enumerate(names) if at not in taken and name not in written]
    usual = [at for name in TEXT_NAMES for at in free if names[at].strip().casefold() == name]
    if usual:
        return Found(usual[0])
    words = {at: words_in(table, at) for at in free if not is_label(names[at]) and not is_id(names[at])}
    different = {at: len({*map(str, table.sample(at))}) for at in words}  # classes and places repeat themselves
    found = [at for at in words if words[at] >= _WORDS and 2 * different[at] >= len(table.sample(at))]
    found.sort(key=lambda at: (words[at], sum(map(len, map(str, table.sample(at))))), reverse=True)
    if not found:
        return Found()
    return Found(found[0], tuple(names[at] for at in found[1:]))


def words_in(table: Table, at: int) -> float:
    """The mean number of words per cell of a column; numbers and dates are none."""
    cells = table.sample(at)
    texts = [cell for cell in cells if isinstance(cell, str) and not is_number_like(cell) and not _DATE.fullmatch(cell)]
    # Chinese and Japanese have no blanks: two of their characters are about a word.
    words = sum(len(text.split()) + sum("\u3040" <= c <= "\u9fff" for c in text) / 2 for text in texts)
    return words / max(1, len(cells))


def is_number_like(cell: Any) -> bool:
    """Whether a cell is a number, or a text that is one."""
    if isinstance(cell, str):
        return is_number(cell) or is_number(cell, ",") or numbers_of_people([cell]) is not None
    return isinstance(cell, int | float)


def is_whole(cell: Any) -> bool:
    """Whether a cell is a number without a fraction, or a text of one."""
    return isinstance(cell, int) or (isinstance(cell, float) and cell.is_integer()) or bool(_WHOLE.fullmatch(str(cell)))


def _are_parts(cells: Sequence[Any]) -> bool:
    """Whether a number is a part of one, or a negative one with a fraction. No id is: `id` is also a language."""
    return any(_PART.match(str(cell)) and is_number_like(cell) and not is_whole(cell) for cell in cells)


def _distinct(cells: Sequence[Any]) -> bool:
    return len(set(map(str, cells))) == len(cells)


def _are_codes(cells: Sequence[Any]) -> bool:
    # The first number of a column ends it: there may be thousands.
    texts = (c if isinstance(c, str) and not is_number_like(c) and not _DATE.fullmatch(c) else "" for c in cells)
    return len(cells) > 1 and all(map(_CODE.fullmatch, texts))


def _are_numbered(name: str, cells: Sequence[Any]) -> bool:
    """Whether cells number items, as a column ``Ticket-Nr`` does: by its name, and no number has a fraction."""
    named = _NUMBERS.fullmatch(name.strip().casefold()) is not None
    return named and not any(is_number_like(cell) and not is_whole(cell) for cell in cells)


def read_columns(
    path: Path, options: Options, *, with_labels: bool = True, hint: str | None = None
) -> Contents:
    """Read a table of features, with item names and further columns, of which one may be the labels.

    ``hint`` says what to do about a cell that holds no number, where the columns are no usual features.
    """
    table = _table(path, options)
    table.hint = hint or table.hint
    uses = _Uses.of(path, table, options, with_labels=with_labels)
    table.gaps = options.skip_bad or options.gaps
    if options.logarithms:
        table.lowest = -np.inf
    features = table.features(uses.features)
    finite = _with_gaps(features)
    notes: list[str] = []
    if table.named and features.shape[1] == len(uses.features):
        notes += remarks_on_codes(path.name, finite, uses.names_of_features)
    if table.named and with_labels and features.shape[1] == len(uses.features) > 1:
        left_out, remarks = odd_features(path.name, finite, uses.names_of_features, options)
        features = np.delete(features, left_out, axis=1) if left_out else features
        uses = uses.without(left_out)
        notes += remarks
    if table.named and options.labelled is not False:  # the rows with a label have said it for all
        notes = uses.roles(options).line(path.name) + notes
    contents = _contents(path, features, uses, options, notes)
    if options.skip_bad:
        return _without_gaps(path, contents)
    return _told_of_gaps(path, contents) if options.gaps else contents


def _with_gaps(features: Numbers) -> Numbers:
    """Features with NaN in place of −inf, which says nothing about what a column holds."""
    infinite = np.isneginf(features)
    return np.where(infinite, np.nan, features) if infinite.any() else features


def _table(path: Path, options: Options) -> Table:
    """The table, opened, perhaps beside another one."""
    is_header = _header_by(options)
    other = options.beside
    if other is not None and options.like is not None and (not other.delimiter or is_header(other.names)):
        table = other  # opened before the examples were read
    else:
        table = open_table(path, options, is_header)
    if other is not None and options.like is None:
        table.beside = other
        other.beside = table
        other.gaps = options.skip_bad or options.gaps
    if table.is_empty:
        raise InputError(f"{path} has no data row; the first line names the columns, the others are items.")
    return table


@dataclass(frozen=True, kw_only=True)
class _Uses:
    """What the columns of a table are used for, by their numbers."""

    table: Table
    features: list[int]
    label: int | None
    item: Found

    @staticmethod
    def of(path: Path, table: Table, options: Options, *, with_labels: bool) -> _Uses:
        """As the names of the columns, their cells and the user say; without names all are features."""
        if not table.named:
            return _Uses(table=table, features=list(range(len(table.names))), label=None, item=Found())
        features, label, item = _assign(path, table, _with_lists(options, table.names))
        return _Uses(table=table, features=features, label=label if with_labels else None, item=item)

    @property
    def names_of_features(self) -> list[str]:
        return [self.table.names[at] for at in self.features]

    @property
    def others(self) -> list[int]:
        """The columns that nothing is done with but to carry them along."""
        used = {*self.features, self.label, self.item.at}
        return [at for at in range(len(self.table.names)) if at not in used]

    def without(self, left_out: Sequence[int]) -> _Uses:
        """The same without some of the features, by their places among these."""
        return replace(self, features=[at for i, at in enumerate(self.features) if i not in left_out])

    def roles(self, options: Options) -> Roles:
        """See ``_roles``."""
        item = self.item
        if options.labelled:
            item = _item_of_others(self.table, self.features, self.label, options)
        return _roles(self.table, self.features, self.label, item, options)

    def feature_names(self, n_features: int, options: Options) -> tuple[str, ...]:
        """The names of so many features: a column may hold lists of numbers."""
        names = tuple(self.names_of_features)
        if len(names) == 1 and self.table.holds_lists(self.features[0]):
            return tuple(f"{names[0]}[{i}]" for i in range(n_features))
        if options.like is not None:  # as the examples spell them
            return tuple(options.like)
        return names


def _contents(path: Path, features: np.ndarray, uses: _Uses, options: Options, notes: Sequence[str]) -> Contents:
    """What the table holds, with its features [n, d]."""
    table = uses.table
    others = uses.others
    labels, items, *carried = table.values([uses.label, uses.item.at, *others])
    if uses.item.at is None and options.labelled is not None:  # their number among the items would lead nowhere
        items = [*map(table.place, range(len(features)))]
    origin = TableOrigin.of(table, path, len(features), options.sheet)
    return Contents(
        features,
        labels,
        items=items,
        meta={"source": path.name},
        columns=uses.feature_names(features.shape[1], options) if table.named else None,
        carried={table.names[at]: cells for at, cells in zip(others, carried, strict=True)},
        header=tuple(table.names) if table.named else (),
        notes=(*notes, *table.notes),
        place=table.place,
        origin=origin.without_embedding(uses.names_of_features, features.shape[1]),
    )


def _item_of_others(table: Table, features: Sequence[int], label: int | None, options: Options) -> Found:
    """The column of item names that the rows without a label have, whose features are those of the labelled ones."""
    names = tuple(table.names[at] for at in features)
    ignored = {find_column(table.names, name) for name in options.ignore_columns}
    return find_item(table, replace(options, like=names), ignored | {label})


def _roles(table: Table, features: Sequence[int], label: int | None, item: Found, options: Options) -> Roles:
    """The use of the columns, by their names; what the user said is no guess."""
    used = {*features, label, item.at}
    asked = {find_column(table.names, name) for name in options.ignore_columns}
    unused = [name for at, name in enumerate(table.names) if at not in used | asked and name.strip()]
    new = [] if options.like is not None else [table.names[at] for at in features]
    return Roles(
        label=None if label is None or options.label_column is not None else table.names[label],
        item=None if item.at is None or options.item_column is not None else table.names[item.at],
        features=new,
        unused=unused,
        other_items=item.others,
    )


def _told_of_gaps(path: Path, contents: Contents) -> Contents:
    """The same with a note where rows lack features."""
    lacking = np.isnan(contents.features)
    n_rows = int(lacking.any(1).sum())
    if not n_rows:
        return contents
    columns = contents.columns or [str(number + 1) for number in range(lacking.shape[1])]
    where = listed([columns[at] for at in np.flatnonzero(lacking.any(0))])
    lack, they, them = ("lacks", "it has", "it") if n_rows == 1 else ("lack", "they have", "them")
    which = f"{n_rows} of {len(lacking)} rows of {path.name} {lack} numbers, in {where}"
    used = f"the columns that {they} are used (`skip_bad` leaves {them} out)"
    return replace(contents, notes=(*contents.notes, f"{which}; {used}"))


def _without_gaps(path: Path, contents: Contents) -> Contents:
    """The same without rows that lack a feature. These are listed; the cells that say more about them come last."""
    lacking = np.isnan(contents.features)
    order, count = np.argsort(lacking.any(1), kind="stable").tolist(), int((~lacking.any(1)).sum())
    if not count:
        raise InputError(f"Every row of {path} lacks a feature; leave columns with gaps out with `ignore_columns`.")
    labels, items = (values and [values[row] for row in order] for values in (contents.labels, contents.items))
    names = items or list(map(contents.place, order))
    columns = contents.columns or [str(number + 1) for number in range(lacking.shape[1])]
    why = [f"it has {lacking_columns(columns, lacking[row])}" for row in order]
    lost = sorted({*map(str, labels or ())} - {*map(str, (labels or ())[:count])})
    return replace(
        contents,
        features=contents.features[order[:count]],
        labels=labels and labels[:count],
        items=items and items[:count],
        carried={name: [cells[row] for row in order] for name, cells in contents.carried.items()},
        notes=(*contents.notes, *(f"no complete row of {path.name} is left of '{name}'" for name in lost)),
        place=lambda row: contents.place(order[row]),
        skipped=tuple(zip(map(str, names), why, strict=True))[count:],
        origin=None if contents.origin is None else contents.origin.take(order),
    )


def lacking_columns(columns: Sequence[str], lacking: Numbers) -> str:
    """Which columns have no number, in words, as ``lacking`` [d] says.

    >>> lacking_columns(["width", "height"], np.array([True, False]))
    "no number in column 'width'"
    """
    gaps = [columns[at] for at in np.flatnonzero(lacking).tolist()]
    return f"no number in column{'s' * (len(gaps) > 1)} {listed(gaps)}"


def _with_lists(options: Options, names: Sequence[str]) -> Options:
    """Options for a table that stores embedding[0], embedding[1], … as one column ``embedding``."""
    like = list(options.like or ())
    base = like[0].removesuffix("[0]") if like else ""
    alike = base in names and like == [f"{base}[{i}]" for i in range(len(like) or 1)]
    return replace(options, like=(base,)) if alike else options


def odd_features(
    where: str, features: Numbers, names: Sequence[str], options: Options = AUTO
) -> tuple[list[int], list[str]]:
    """Features that are more likely row numbers, ids or dates: which to leave out, and what to say about them.

    Where all look so, none is left out.

    Parameters
    ----------
    where : str
        What notes call the table.
    features : ndarray of shape [n, d]
    names : sequence of str
        The names of the features.
    options : Options
        What the user has asked for is kept, and the rows of the table beside are judged too.

    Returns
    -------
    left_out : list of int
    notes : list of str

    Examples
    --------
    >>> odd_features("a.csv", np.array([[1, 0.5], [2, 0.1], [3, 0.7]]), ["plant", "width"])[0]
    [0]
    """
    without_gaps = features[~np.isnan(features).any(1)]
    if len(without_gaps) >= _ENOUGH_ROWS:
        features = without_gaps
    first, usual = features[:100].astype(np.float64), len(names) / 2
    odd = (first % 1 == 0).all(0) | (first >= _DAYS[0][0]).all(0) | _are_far(first)
    places = [_PLACES.fullmatch(name.strip().casefold()) is not None for name in names]
    perhaps = [at for at in np.flatnonzero(odd | places).tolist() if names[at] not in options.feature_columns]
    more = _columns_beside(options, names, perhaps)
    n_first, n_rows = len(features), len(features) + len(more)
    found = {at: np.concatenate([features[:, at], more[:, i]], dtype=np.float64) for i, at in enumerate(perhaps)}
    whole = [at for at in perhaps if bool((found[at] % 1 == 0).all())]
    differ = [at for at in perhaps if n_rows > 2 and _rise(found[at], n_first, np.sort)]
    rising = [at for at in whole if n_rows >= 8 and _rise(found[at], n_first)]
    # What most columns look like is usual in this table.
    few = n_rows >= _MANY or (n_rows >= 3 and len(whole) <= usual)
    kinds = [[at for at in perhaps if looks(found[at])] for looks in (_are_far, _are_dates, _within)]
    far, dates, days = (kind if len(kind) <= usual else [] for kind in kinds)
    # Several columns of close numbers in no order are ranks.
    others = [at for at in differ if at in whole]
    close = [at for at in others if n_rows**2 > 2 * _SURE * np.ptp(found[at]) and _rise(np.sort(found[at]), n_rows)]
    ranks = [at for at in close if not _rise(found[at], n_first)]
    left_out, notes = [], []
    for at in perhaps:
        values, name, reason = found[at], names[at].strip().casefold(), ""
        sure = at in close or (few and (rising == [at] or (at in whole and _counts(values, n_first))))
        if sure and (at not in ranks or ranks == [at]):
            reason = "numbers the rows"
        elif at in dates or (_DATES.fullmatch(name) and (at in whole or at in days)):
            reason = "looks like a date or time"
        elif at in others and _NUMBERS.fullmatch(name):
            reason = "looks like an id"
        elif at in whole and _is_running_number(name, values):
            reason = "is a running number"
        left_out += [at] if reason else []
        hint = "it is left out, as if named by `ignore_columns`; keep it with `feature_columns`"
        if not reason:
            hint = "leave it out with `ignore_columns` if it is an id, a time or a place"
            if at in others and len(others) <= usual and (n_rows >= 8 or _TIMES.fullmatch(name)):
                reason = "has another whole number in every row"
            elif at in days and np.ptp(values) > 0 and (at in whole or at in differ):
                reason = "has numbers of days or years"
            elif places[at] or at in far:
                reason = "may hold coordinates" if places[at] else "has numbers that hardly differ, far from 0"
        written = (float(str(features.dtype.type(value))) for value in values[:3])  # 51.2, not 51.2000007629395
        start = ", ".join(f"{value:.15g}" for value in written)
        notes += [f"column '{names[at]}' of {where} {reason} ({start}, …); {hint}"] if reason else []
    return left_out if len(left_out) < len(names) else [], notes


def _is_running_number(name: str, values: Numbers) -> bool:
    """Whether whole numbers count items, by their name and, where that may be a count of something, by their steps.

    >>> _is_running_number("sample number", np.array([1, 2, 3, 4, 1, 2, 3])), _is_running_number("nr.", np.ones(3))
    (True, True)
    >>> _is_running_number("petal number", np.array([5, 4, 5, 5, 6, 5, 5]))
    False
    """
    if _SHORT_FOR_NUMBER.fullmatch(name):
        return True
    return _NUMBERS.fullmatch(name) is not None and bool((np.diff(values) == 1).mean() >= _MOSTLY_NEXT)


def remarks_on_codes(where: str, features: Numbers, names: Sequence[str]) -> list[str]:
    """Remarks on numbers such as -999, far from all others of their column, that may stand for missing ones.

    >>> remarks_on_codes("a.csv", np.array([[1.5], [2.5], [-999]]), ["width"])
    ["column 'width' of a.csv has -999, far from its other numbers; if that is a missing one, empty its cells"]
    """
    ends, notes = [features.min(0, initial=np.inf), features.max(0, initial=-np.inf)], []
    for at in np.flatnonzero(np.isin(ends, _CODES).any(0)).tolist():
        values = np.unique(features[:, at])
        for code, others in ((values[0], values[1:]), (values[-1], values[:-1])):
            if code in _CODES and len(others) > 1 and np.abs(others - code).min() > np.ptp(others):
                said = f"has {code:.15g}, far from its other numbers; if that is a missing one, empty its cells"
                notes.append(f"column '{names[at]}' of {where} {said}")
    return notes


def open_beside(path: Path, options: Options = AUTO) -> Table | None:
    """The table of the items, for ``Options.beside``; None where the file is none, or must be read with care."""
    with suppress(InputError):  # it is said where the table is read for its own sake
        return open_table(path, options) if is_table(path) else None
    return None


def columns_of(path: Path, options: Options = AUTO) -> Sequence[str] | None:
    """The names of the columns of a table; None where the file is none, or cannot be read."""
    if not is_table(path):
        return None
    with suppress(InputError):  # it is said where the table is read for its own sake
        return read_table(path, rows=SAMPLE, sheet=options.sheet).names
    return None


def _columns_beside(options: Options, names: Sequence[str], which: Sequence[int]) -> Numbers:
    """[n, c] some of the columns of these names in the other table; no rows where it has not all, or not of numbers."""
    if (table := options.beside) is not None and which and not table.is_empty:
        places = [at for at in (find_column(table.names, name) for name in names) if at is not None]
        if len(places) == len(names):
            with suppress(InputError):
                table.kept = places, table.features(places)
                return table.kept[1][:, which]
    return np.zeros((0, len(which)))


def _are_far(values: Numbers) -> Any:
    """Whether numbers, or those of each column, differ little compared with their distance from 0."""
    return (values.std(0) > 0) & (np.abs(values.mean(0)) > _FAR * values.std(0))


def _rise(values: Numbers, n_first: int, order: Callable[[Any], Any] = np.asarray) -> bool:
    """Whether numbers rise throughout, in two tables of which the first has the first of them; sorted: all differ."""
    return all(bool((np.diff(order(part)) > 0).all()) for part in (values[:n_first], values[n_first:]))


def _counts(values: Numbers, n_first: int) -> bool:
    """Whether whole numbers count rows from 0 or 1, in both tables together or in each; fewer than 5 only in order."""

    def counted(*parts: Numbers) -> bool:
        firsts = [np.sort(part) - np.arange(len(part)) for part in parts if len(part)]
        return all(found[0] in (0, 1) and bool((found == found[0]).all()) for found in firsts)

    counting = counted(values) or counted(values[:n_first], values[n_first:])
    return counting and (_rise(values, n_first) or len(values) >= 5)


def _are_dates(values: Numbers) -> bool:
    """Whether numbers are days written as 20240531, or seconds (or parts of them) since 1970."""
    days = (values >= 19e6) & (values < 22e6) & (values // 100 % 100 - 1 < 12) & (values % 100 - 1 < 31)
    days &= (values // 100 % 100 > 0) & (values % 100 >= 1)
    return bool(days.all()) or _within(values, [(6e8 * unit, 2.2e9 * unit) for unit in (1, 1e3, 1e6, 1e9)])


def _within(values: Numbers, ranges: Sequence[tuple[float, float]] = _DAYS) -> bool:
    """Whether all values lie in one of some ranges."""
    return any(bool(((values >= least) & (values < most)).all()) for least, most in ranges)


class _Assigned(NamedTuple):
    """The positions of the columns of each use."""

    features: list[int]
    label: int | None
    item: Found


def _assign(path: Path, table: Table, options: Options) -> _Assigned:
    """Decide which columns are features, label and item name."""
    names = table.names
    label = find_label(path, table, options)
    taken = {find_column(names, name) for name in options.ignore_columns} | {label}
    item = find_item(table, options, taken)
    if options.like is not None:
        return _Assigned(_like(path, names, {label, item.at}, options.like), label, item)
    free = [at for at in range(len(names)) if at not in taken and at != item.at]
    forced = [at for at in free if names[at] in options.feature_columns]
    written = written_beside(names)
    features = [at for at in free if at in forced or (names[at] not in written and _may_be_feature(table, at))]
    odd = next((names[at] for at in features if is_label(names[at]) and at not in forced), None)
    if odd is not None:
        why = "looks like a label; leave it out with `ignore_columns`, or keep it with `feature_columns`"
        raise InputError(f"Column '{odd}' of {path} {why}.")
    if not features:
        what = "name those of numbers with `feature_columns`, or that of texts with `text_column`"
        raise InputError(f"{path} has no column of numbers; its columns are {listed(names)}: {what}.")
    return _Assigned(features, label, item)


def _may_be_feature(table: Table, at: int) -> bool:
    name, cells = table.names[at], table.sample(at)
    if not all(type(c) is float and c == c for c in cells):  # there may be thousands that are
        cells = [c for c in cells if not missing(c) and str(c).strip().casefold() not in _PERHAPS_MISSING]
    named = name in table.index or ((is_id(name) or is_row_number(name)) and not _are_parts(cells))
    # 4, f, r: kinds, of which one has the name of a number
    numbers = sum(type(c) is float or is_number_like(c) for c in cells)
    return not named and (2 * numbers >= len(cells) > 0 or table.holds_lists(at))


def _like(path: Path, names: Sequence[str], taken: Collection[int | None], like: Sequence[str]) -> list[int]:
    """The feature columns in the order of the labelled examples; one that is missing is an error."""
    position = {name: at for at, name in enumerate(names) if at not in taken}
    lacking, known = [name for name in like if name not in position], {*like}
    counts = Counter(plain(name) for name in position if name not in known)
    alike = {plain(name): at for name, at in position.items() if counts[plain(name)] == 1 and name not in known}
    position.update({name: alike[plain(name)] for name in lacking if plain(name) in alike})
    lacking = [name for name in lacking if name not in position]
    if lacking:
        surplus = [name for name in position if name not in known]
        instead = f" (it has {listed(surplus)} instead)" if surplus else ""
        hint = "features are matched by name, so give both the same columns, or leave some out with `ignore_columns`"
        raise InputError(f"{path} lacks the columns {listed(lacking)} of the labelled examples{instead}; {hint}.")
    return [position[name] for name in like]
