"""Text files: unpacked, as UTF-8, with their delimiter, and records with the lines they are on."""

import codecs
import contextlib
import csv
import io
import itertools
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from manyway.errors import InputError, few
from manyway.files.files import check_input, most_unpacked

_DELIMITERS = (",", ";", "\t", "|")
_RARE_DELIMITERS = (" ", ":", "^", "~", "#", "!", "&", "\x01", "\x1f")  # believed only between numbers
_BOMS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32"}
_BOMS |= {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_CODECS = {b"\xff\xfe\0\0": "utf-32-le", b"\0\0\xfe\xff": "utf-32-be"}
_CODECS |= {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_MAGIC = {b"PK\x03\x04": "a zip archive or an Excel file", b"PAR1": "a parquet file", b"\x93NUMPY": "a .npy file"}
_MAGIC |= {b"\xd0\xcf\x11\xe0": "an Excel file", b"\x89PNG": "a picture", b"%PDF": "a PDF file"}
_MAGIC |= dict.fromkeys((b"<!DOCTYPE", b"<!doctype", b"<html"), "a web page")
_PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_OTHER_SCRIPT = re.compile(r"[\xc0-\xff]{6}")  # Cyrillic, Greek or Hebrew: no word of Windows-1252 has only accents
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x7f]")  # in no text; Windows-1252 has a letter for nearly every other byte
_ALIKE = str.maketrans("\u00a0\u2009\u202f’−", "   '-")
_MONEY = "€$£¥%‰"
_NO_MONEY = re.compile(f"[^{_MONEY}]+")
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠﹦﹢﹣﹫")  # some programs read the wide and the small ones as well
_PIECE = 1 << 22


class TextFile(NamedTuple):
    """A text file, to be read as UTF-8."""

    path: Path
    data: bytes | None  # its content where it was unpacked or had another encoding; None: the file itself is UTF-8
    notes: tuple[str, ...] = ()
    codec: str = "utf-8"  # how the file itself is written,
    mark: bytes = b""  # with what in front

    def binary(self) -> IO[bytes]:
        """The bytes."""
        return self.path.open("rb") if self.data is None else io.BytesIO(self.data)

    def open(self, newline: str = "") -> TextIO:
        """The text, with line breaks as they are."""
        return io.TextIOWrapper(self.binary(), encoding="utf-8-sig", newline=newline)


class Dialect(NamedTuple):
    """How a text table is written."""

    delimiter: str
    first: int  # lines before the header ("sep=;", as Excel writes)
    skip_blanks: bool = False  # blanks after a delimiter belong to no cell


def suffix_of(path: Path) -> str:
    """The ending that says what a file holds.

    >>> suffix_of(Path("table.CSV")), suffix_of(Path("table.csv.gz"))
    ('.csv', '.csv')
    """
    return (Path(path.stem) if path.suffix.lower() in _PACKED_SUFFIXES else path).suffix.lower()


def read_text(path: Path) -> TextFile:
    """Find out how a text file is packed and encoded; a file that is no text is an error.

    UTF-16 and Windows-1252 are recognised by the bytes alone, and named in the notes.
    """
    with check_input(path).open("rb") as file:
        start = file.read(4096)
    packed = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
    data = None if packed is None else _unpack(path, packed)
    start = start if data is None else data[:4096]
    kind = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)
    if kind is not None:
        raise InputError(f"{path} is {kind} inside, not text; give it its proper ending, or save it as CSV.")
    mark = next((mark for mark in _BOMS if start.startswith(mark)), b"")
    encoding = _BOMS.get(mark)
    if encoding is None and b"\0" in start:  # every second byte of UTF-16 is 0 where letters are Latin
        low, high = start[::2].count(0), start[1::2].count(0)
        if 4 * max(low, high) < len(start) or 20 * min(low, high) > len(start):
            raise InputError(f"{path} is not a readable text file (it has NUL bytes); save it as UTF-8.")
        encoding = "UTF-16-LE" if high > low else "UTF-16-BE"
    source = TextFile(path, data, mark=mark)
    where = _not_utf8(source) if encoding in (None, "UTF-8") else ""
    if encoding in (None, "UTF-8") and not where:
        return source
    encoding = "Windows-1252" if where else str(encoding)
    with source.binary() as file:
        content = file.read()
    try:
        text = content.decode(encoding)
        if _CONTROL.search(text) or (where and _OTHER_SCRIPT.search(text)):
            raise UnicodeError("it has control characters, or words of another script")
    except UnicodeError as error:
        name = "UTF-8" if where else encoding
        raise InputError(f"{path} is not readable as {name} text{where}; save it as UTF-8.") from error
    name = re.sub("-[BL]E$", "", encoding)
    notes = (f"{path.name} is read as {name} text",)
    return TextFile(path, text.encode(), notes, _CODECS.get(mark, encoding), mark)


def _unpack(path: Path, packed: str) -> bytes:
    import pyarrow

    most, pieces, size = most_unpacked(path.stat().st_size), [], 0
    try:
        with lzma.open(path) if packed == "xz" else pyarrow.input_stream(path, compression=packed) as file:
            while size <= most and (piece := file.read(_PIECE)):
                pieces.append(piece)
                size += len(piece)
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise InputError(f"{path} cannot be unpacked ({one_line(error)}).") from error
    if size > most:
        raise InputError(f"{path} unpacks to more than {most:,} bytes, far more than its size; it was not read.")
    return b"".join(pieces)


def _not_utf8(source: TextFile) -> str:
    """Where a file is not UTF-8, for people who repair it in an editor; empty where it is. Read in pieces."""
    decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
    with source.binary() as file:
        while True:
            piece, pending = file.read(_PIECE), decoder.getstate()[0]
            if not piece.isascii() or not piece or pending:  # plain letters need no decoding
                try:
                    decoder.decode(piece, final=not piece)
                except UnicodeDecodeError as found:
                    file.seek(0)
                    line = 1 + file.read(position - len(pending) + found.start).count(b"\n")
                    return f" (line {line} has the byte 0x{found.object[found.start]:02x})"
            if not piece:
                return ""
            position += len(piece)


def sniff(source: TextFile) -> Dialect:
    """Find the delimiter from the first lines of a table."""
    # The limit of 131,072 characters per field is one for the whole process, so it is never lowered again.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    with source.open() as file:
        text = file.read(1 << 16)
        complete = not file.read(1)
    lines = text.splitlines(keepends=True)
    declared = re.fullmatch(r"sep=(.)[\r\n]*", lines[0]) if lines else None
    if declared:
        return Dialect(declared[1], 1)
    if not complete and len(lines) > 1:
        text = "".join(lines[:-1])
    best, most = ",", 0
    preferred = ("\t", *_DELIMITERS) if suffix_of(source.path) == ".tsv" else _DELIMITERS
    for delimiter in (*preferred, *_RARE_DELIMITERS):
        with contextlib.suppress(csv.Error):
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
            rows = [row for row in itertools.islice(reader, 50) if row]
            width = len(rows[0]) if rows else 0
            even = width > 1 and all(len(row) == width for row in (rows if complete else rows[:-1] or rows))
            shares = (sum(is_number(cell) or is_number(cell, ",") for cell in row) / width for row in rows[1:] or rows)
            if delimiter in _RARE_DELIMITERS and (most >= 1000 or not even or min(shares) < 0.5):  # not of numbers
                continue
            if even and delimiter == ";" and all(is_number(cell, ",") for cell in rows[0]):
                return Dialect(";", 0)  # 1,5;2,5: the commas are decimal
            score = (width * 1000 if even else width) if width > 1 else 0
            if score > most:
                best, most = delimiter, score
    return Dialect(best, 0, best == " " or re.search(re.escape(best) + ' +"', text) is not None)


def read_records(source: TextFile, dialect: Dialect | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield every record of a csv or tsv file, blank lines left out, with the line it starts on (from 1)."""
    path, dialect = source.path, dialect or sniff(source)
    with source.open() as file:
        reader = csv.reader(file, delimiter=dialect.delimiter, strict=True, skipinitialspace=dialect.skip_blanks)
        line, empty = 1, list[tuple[int, list[str]]]()
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                why = "a quotation mark is not closed" if "unexpected end" in str(error) else str(error)
                why = "text follows a closing quotation mark" if "expected after" in why else why
                raise InputError(f"{path} cannot be read as CSV: line {line}: {why}.") from error
            if cells is None:
                return
            # Delimiters without content are a record of empty cells, but not at the end; a blank line is none.
            if line > dialect.first and any(map(is_filled, cells)):
                yield from (*empty, (line, cells))
                empty.clear()
            elif line > dialect.first and len(cells) > 1:
                empty.append((line, cells))
            line = reader.line_num + 1


def table_header(path: Path, records: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    """The first record, which names the columns, without blanks around the names."""
    line, cells = next(records, (0, []))
    if not cells:
        raise InputError(f"{path} is empty; the first line names the columns, the others are items.")
    cells[0] = cells[0].lstrip("\ufeff").removeprefix("# ")  # numpy.savetxt writes the header as a comment
    return line, [cell.strip() for cell in cells]


def check_width(path: Path, line: int, cells: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a record that has not one cell per column."""
    if len(cells) != len(names):
        hint = "give one cell per column, and put cells that contain the delimiter between quotation marks"
        other = f"another number of cells ({len(cells)}) in line {line}"
        raise InputError(f"{path} has {len(names)} columns but {other}; {hint}.")


def read_json_lines(source: TextFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object on every line of a .jsonl file that is not blank, with its line number (from 1)."""
    path = source.path
    with source.open("\n") as file:  # a carriage return can only be blank space in JSON
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            record = _parse_json(line, f"Line {number} of {path}")
            if not isinstance(record, dict):
                raise InputError(f'Line {number} of {path} is not a JSON object, such as {{"label": "ant"}}.')
            yield number, record


def read_json(path: Path) -> Any:
    """The value in a .json file."""
    return _parse_json(whole_text(path), str(path))


def whole_text(path: Path) -> str:
    """All that a text file holds."""
    with read_text(path).open() as file:
        return file.read()


def write_like(source: Path, target: Path, text: str) -> None:
    """Write the changed text of a file: in its encoding, with the byte-order mark that it has, and its line breaks."""
    like = read_text(source)
    try:
        target.write_bytes(like.mark + text.encode(like.codec))
    except UnicodeEncodeError:  # a name that Windows-1252 has no letters for
        target.write_text(text, encoding="utf-8", newline="")


def _parse_json(text: str, place: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
            raise InputError(f"{place} has two values named '{twice}'; remove one.")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", None) or one_line(error)
        line = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) and "\n" in text.strip() else ""
        raise InputError(f"{place} is not JSON ({why}{line}): it is damaged or incomplete; write it again.") from error


def read_lines(path: Path | TextFile) -> Iterator[tuple[int, str]]:
    """Yield every line of a text file with its number (from 1), without the line break."""
    with (path if isinstance(path, TextFile) else read_text(path)).open() as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def first_line(path: Path) -> str:
    """The first line of a text that is not blank; empty where there is none."""
    return next((line for _, line in read_lines(path) if line.strip()), "")


def tabs_in(source: TextFile) -> int:
    """The number of tabs in each line of a text, by its first lines; 0 where they differ."""
    counts = {line.count("\t") for _, line in itertools.islice(read_lines(source), 50) if line.strip()}
    return counts.pop() if len(counts) == 1 else 0


def number_in(cell: str, decimal: str = ".") -> float | None:
    """The number that a text is; None where it is none, such as 1_5, which Python takes for 15."""
    written = cell if decimal == "." else cell.replace(".", "?").replace(decimal, ".")
    try:
        return None if "_" in cell else float(written)
    except ValueError:
        return None


def numbers_in(cells: Sequence[str], decimal: str) -> list[float]:
    """The numbers among some texts."""
    return [number for cell in cells if (number := number_in(cell, decimal)) is not None]


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether a text is a number."""
    return number_in(cell, decimal) is not None


def numbers_of_people(cells: Sequence[str], decimal: str = ".") -> list[float] | None:
    """Numbers with a sign of money or per cent, or groups of three digits, if all are written in one form.

    ``decimal`` is the sign that is tried first: beside points 1,234 is more than a thousand.

    >>> numbers_of_people(["1.234,56", "12"]), numbers_of_people(["€5", "€-7"]), numbers_of_people(["5 %", "5 €"])
    ([1234.56, 12.0], [5.0, -7.0], None)
    >>> [numbers_of_people(cells) for cells in (["1,234", "567"], ["1,234", "0,567"], ["1,234", "5.6", "7,8"])]
    [[1234.0, 567.0], [1.234, 0.567], None]
    """
    bare = [cell.strip().translate(_ALIKE) for cell in cells]
    if len({_NO_MONEY.sub("", cell) for cell in bare}) > 1:
        return None
    bodies = [cell.strip(_MONEY + " ") for cell in bare]
    for sign, other in (".,", ",.") if decimal == "." else (",.", ".,"):
        for group in ("", other, "'", " "):
            whole = rf"\d+|[1-9]\d{{0,2}}({re.escape(group)}\d{{3}})+"
            if all(re.fullmatch(rf"[-+]?({whole})([{sign}]\d*)?", body) for body in bodies):
                return [float(body.replace(group, "").replace(sign, ".")) for body in bodies]
    return None


def is_filled(cell: Any) -> bool:
    """Whether there is more than blanks in a cell."""
    return cell is not None and bool(str(cell).strip())


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet would compute a text instead of showing it.

    >>> [cell for cell in ("=A1", "-1.5", "-x", "@sum", "a+b", "-", "＝1+1") if is_formula(cell)]
    ['=A1', '-x', '@sum', '＝1+1']
    """
    start = cell.lstrip()
    return start[:1] in _FORMULA_SIGNS and len(start) > 1 and not is_number(cell) and not is_number(cell, ",")


def listed(names: Sequence[str], most: int = 5) -> str:
    return few([f"'{name}'" for name in names], most) or "(none)"


def first_twice(names: Sequence[str]) -> str | None:
    """The first name that occurs again."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def shorten(value: Any) -> str:
    """A value in quotation marks, cut where it is long."""
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:37]}…")


def one_line(error: BaseException) -> str:
    """What an error says, on one line of reasonable length."""
    text = " ".join(str(error).split())[:200] or type(error).__name__
    if "pickle" in text.lower() or "Python object" in text or "dtype('O')" in text:
        return "it holds pickled Python objects, which are never loaded; save numbers, and names with .astype(str)"
    return text


@contextlib.contextmanager
def trying(start: str, end: str = ".") -> Iterator[None]:
    """One sentence for whatever goes wrong: damaged files and other libraries raise errors of many kinds."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{start} ({one_line(error)}){end}") from error


def reading(path: Path, what: str) -> contextlib.AbstractContextManager[None]:
    """The same for a file that is read."""
    return trying(f"{path} cannot be read as {what}")
