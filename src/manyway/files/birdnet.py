"""Tables of BirdNET: csv, Raven selection tables, Kaleidoscope and R, read and written back.

There is one row per segment of a recording and species above a threshold. Confidences are independent yes-or-no
probabilities.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from manyway.errors import InputError
from manyway.files.scores import FILE, Answers, Collected, Scores, from_0_to_1, shown_names
from manyway.files.tables import Rows, as_number, column, find_any
from manyway.files.text import read_records, read_text, sniff, suffix_of

_START = ("Start (s)", "Begin Time (s)", "OFFSET", "start")
_END = ("End (s)", "End Time (s)", "end")
_COMMON = ("Common name", "common_name")
_SCIENTIFIC = ("Scientific name", "scientific_name")
_FILE = ("File", "Begin Path", "Begin File", "IN FILE", "filepath")
_LENGTH, _FOLDER, _CODE = ("DURATION",), ("FOLDER",), ("Species Code",)
_CONFIDENCE, _NUMBER = ("Confidence",), ("Selection",)
_NO_CALL = "nocall"  # the row of a recording without a detection


def is_birdnet(names: Sequence[str]) -> bool:
    """Whether a table with these columns is one of BirdNET."""
    found = [find_any(names, *wanted) is not None for wanted in (_START, (*_END, *_LENGTH), _CONFIDENCE)]
    return all(found) and any(find_any(names, *wanted) is not None for wanted in (_COMMON, _SCIENTIFIC))


def read_birdnet(path: Path, names: Sequence[str], rows: Rows) -> Scores:
    """Read a table of BirdNET. An item is a segment of a recording: its file, start and end in seconds."""
    start, confidence = (column(path, names, *wanted) for wanted in (_START, _CONFIDENCE))
    end = find_any(names, *_END)
    until = column(path, names, *_END, *_LENGTH)
    common, scientific, code = (find_any(names, *wanted) for wanted in (_COMMON, _SCIENTIFIC, _CODE))
    of_file = [at for at in (find_any(names, *wanted) for wanted in (_FOLDER, _FILE)) if at is not None]
    of_name = [at for at in (common, scientific, code) if at is not None]
    found, labels = Collected(path), {}
    called: dict[str, dict[int, str]] = {}  # the cells that name a class
    for place, cells in rows:
        first = as_number(path, place, names[start], cells[start])
        last = as_number(path, place, names[until], cells[until]) + (first if end is None else 0)
        recording = "/".join(str(cells[at] or "").strip() for at in of_file) or path.name
        item, segment = f"{recording} {first:g}-{last:g}", {FILE: recording, "start": first, "end": last}
        name = {at: str(cells[at] or "").strip() for at in of_name}
        if _NO_CALL in name.values():
            found.skip(item, "no detection", **segment, detection="blank")
            found.places.append(None)  # the row stays as it is
            continue
        if not all(name.values()):
            raise InputError(f"{path} has no species in {place}; fill the cell or remove the row.")
        score = from_0_to_1(path, place, names[confidence], cells[confidence], "confidence")
        own = [name[at] for at in (scientific, common) if at is not None]
        key = ";".join(dict.fromkeys(own))
        labels[key], called[key], found.about[item] = _as_label(own), name, segment
        found.places.append((item, key))
        found.pairs.append((place, item, key, score))
    shown = shown_names(labels)
    placed = [None if one is None else (one[0], shown[one[1]]) for one in found.places]
    found.n_listed = 1 + max(Counter(item for _, item, *_ in found.pairs).values(), default=0)
    write = partial(_text, path, placed, {shown[key]: name for key, name in called.items()}, confidence)
    more = {} if suffix_of(path) in (".csv", ".tsv", ".txt") else {"origins": ()}
    return found.scores(labels, shown, "BirdNET table", write, kind="sigmoid", independent=True, **more)


def _as_label(own: Sequence[str]) -> str:
    """'Turdus merula' and 'Eurasian Blackbird' as a label of SpeciesNet, of which genus and species are known."""
    if len(own) < 2:
        return own[0]
    genus, _, species = own[0].partition(" ")
    return ";".join(("", "", "", genus, species, own[1])) if species else own[1]


def _text(
    path: Path,
    placed: Sequence[tuple[str, str] | None],
    called: Mapping[str, Mapping[int, str]],
    confidence: int,
    answers: Answers,
    least: float,
) -> str:
    """The table with the probabilities of the answers as confidences; rows below ``least`` are left out.

    A species that is the answer, or more likely than not, and that no row of its segment names, gets a row of its own.
    """
    source = read_text(path)
    dialect = sniff(source)
    with source.open() as file:
        lines = list(file)
    (line, header), *records = read_records(source, dialect)
    starts = [line - 1 for line, _ in records]
    out = lines[: starts[0]] if starts else lines
    items = list(dict.fromkeys(one[0] for one in placed if one is not None))
    left = {item: dict(answer) for item, answer in zip(items, answers, strict=True)}
    sure = {item: {n for n, p in answer.items() if p >= 0.5} | {*[*answer][:1]} for item, answer in left.items()}
    last = {one[0]: row for row, one in enumerate(placed) if one is not None}
    number = find_any([name.strip() for name in header], *_NUMBER)
    highest = 0 if number is None else max((int(float(cells[number] or 0)) for _, cells in records), default=0)
    for row, ((_, cells), one) in enumerate(zip(records, placed, strict=True)):
        raw = "".join(lines[slice(*[*starts, len(lines)][row : row + 2])])
        if one is None:
            out.append(raw)
            continue
        item, name = one
        new: list[tuple[float, Mapping[int, str]]] = [(left[item].pop(name, 0.0), {})]
        if last[item] == row:
            new += [(p, called.get(name, {})) for name, p in left[item].items() if name in sure[item]]
        for at, (p, names) in enumerate(new):
            changed = {confidence: f"{p:.4f}".replace(".", "," if "," in cells[confidence] else "."), **names}
            highest += at > 0
            if at and number is not None:
                changed[number] = str(highest)
            if p >= least:
                out.append(_with_cells(raw, cells, changed, dialect.delimiter, lines[line - 1]))
    return "".join(out) if lines[-1].endswith(("\r", "\n")) else "".join(out).rstrip("\r\n")


def _with_cells(raw: str, cells: Sequence[str], changed: Mapping[int, str], delimiter: str, header: str) -> str:
    """A record with other cells. Every other byte stays, but for quotation marks inside of bare cells."""
    parts = re.split(re.escape(delimiter) + r'(?=(?:[^"]*"[^"]*")*[^"]*$)', raw.rstrip("\r\n"))
    if len(parts) != len(cells):
        parts = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    for at, cell in changed.items():
        quoted = parts[at].strip().startswith('"') or delimiter in cell or '"' in cell
        parts[at] = '"' + cell.replace('"', '""') + '"' if quoted else cell
    return delimiter.join(parts) + (raw[len(raw.rstrip("\r\n")) :] or header[len(header.rstrip("\r\n")) :])
