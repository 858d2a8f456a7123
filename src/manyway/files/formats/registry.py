"""All formats: those of this package, and those that other packages add.

Another package adds a format by the entry point group ``manyway.formats``; in its ``pyproject.toml``::

    [project.entry-points."manyway.formats"]
    frog-calls = "frogcalls.manyway:FrogCalls"

The value is a subclass of a class of `manyway.files.formats.base`. Entry points are loaded when a format is looked for
that this package does not have.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple, TypeVar

from manyway.errors import InputError, nearest
from manyway.files.formats.base import (
    AnswerFormat,
    ArrayFormat,
    DataFormat,
    Format,
    Opened,
    TableFormat,
)
from manyway.files.options import AUTO, Options
from manyway.files.scores import ScoreFormat
from manyway.files.text import one_line, suffix_of

GROUP = "manyway.formats"
F = TypeVar("F", bound=Format)
# The classes of this package, in the order in which they are asked whether they know a file.
_OURS = (
    "csv:Csv",
    "tsv:Tsv",
    "excel:Excel",
    "parquet:Parquet",
    "jsonl:Jsonl",
    "safetensors:Safetensors",
    "npz:Npz",
    "npy:Npy",
    "label_studio:LabelStudio",
    "argilla:Argilla",
    "anndata:AnnData",
    "speciesnet:SpeciesNet",
    "megadetector:MegaDetector",
    "antenna:Antenna",
    "kraken_output:KrakenOutput",
    "kraken_report:KrakenReport",
    "birdnet:BirdNet",
    "pybioclip:PyBioClip",
    "qiime:Qiime",
    "celltypist:CellTypist",
    "pairs:Pairs",
    "class_columns:ClassColumns",
    "camtrap_dp:CamtrapDp",
    "presence:Presence",
    "darwin_core:DarwinCore",
    "ebird:EBird",
    "audacity:Audacity",
)


class Added(NamedTuple):
    """The formats of other packages, and what is wrong with those that cannot be used."""

    formats: tuple[Format, ...]
    problems: tuple[str, ...]


@cache
def our_formats() -> tuple[Format, ...]:
    """The formats of this package."""
    found = []
    for name in _OURS:
        module, _, kind = name.partition(":")
        found.append(getattr(import_module(f"manyway.files.formats.{module}"), kind)())
    return tuple(found)


@cache
def added_formats() -> Added:
    """The formats that other packages name as entry points."""
    formats: list[Format] = []
    problems = []
    taken = {each.key for each in our_formats()}
    for point in entry_points(group=GROUP):
        try:
            found = _load(point)
            if found.key in taken:
                raise InputError(f"there is another format '{found.key}'")
        except Exception as error:  # whatever a package of somebody else does wrong
            package = "a package" if point.dist is None else point.dist.name
            why = f"cannot be used ({one_line(error).rstrip('.')})"
            problems.append(f"the format '{point.name}' of {package} {why}; update or remove {package}")
            continue
        taken.add(found.key)
        formats.append(found)
    return Added(tuple(formats), tuple(problems))


def _load(point: EntryPoint) -> Format:
    kind = point.load()
    if not (isinstance(kind, type) and issubclass(kind, Format)):
        raise InputError(f"{point.value} is no subclass of manyway.files.formats.base.Format")
    lacking = [name for name in ("key", "name", "endings", "holds") if not getattr(kind, name, None)]
    if lacking:
        raise InputError(f"{point.value} does not say its {lacking[0]}")
    return kind()


def all_formats(kind: type[F] = Format) -> list[F]:  # type: ignore[assignment]
    """The formats of a kind: those of this package, those of others, and last what is tried when none fits."""
    found = [each for each in (*our_formats(), *added_formats().formats) if isinstance(each, kind)]
    return sorted(found, key=lambda each: each.generic)


def endings_of(*kinds: type[Format]) -> tuple[str, ...]:
    """The endings of the files of some kinds of formats."""
    formats = (each for kind in kinds for each in all_formats(kind))
    return tuple(dict.fromkeys(ending for each in formats for ending in each.endings))


def endings_of_tables() -> tuple[str, ...]:
    """The endings of files that are read as tables."""
    return endings_of(TableFormat, DataFormat)


def written_tables() -> tuple[str, ...]:
    """The endings of tables that can be written."""
    return tuple(ending for each in all_formats(TableFormat) for ending in each.endings if ending not in each.only_read)


def is_table(path: Path) -> bool:
    """Whether the ending of a file is that of a table."""
    suffix = suffix_of(path)
    ours = any(suffix in each.endings for each in our_formats() if isinstance(each, TableFormat | DataFormat))
    return ours or suffix in endings_of_tables()


def has_sheets(path: Path) -> bool:
    """Whether a file has sheets, as those of Excel."""
    return any(each.has_sheets and suffix_of(path) in each.endings for each in all_formats(TableFormat))


def table_format(path: Path) -> TableFormat | DataFormat:
    """The format of a table. What has an unknown ending is read as text."""
    suffix = suffix_of(path)
    for each in our_formats():  # most tables are of these, and no other package is loaded for them
        if isinstance(each, TableFormat) and suffix in each.endings:
            return each
    for added in all_formats(TableFormat):
        if suffix in added.endings:
            return added
    if suffix in endings_of(DataFormat):
        return data_format(path)
    return all_formats(TableFormat)[0]


def written_format(path: Path) -> TableFormat:
    """The format in which a table of this name is written; csv where the ending is unknown."""
    formats = all_formats(TableFormat)
    suffix = path.suffix.lower()
    return next((each for each in formats if suffix in each.endings and suffix not in each.only_read), formats[0])


def opened(path: Path, options: Options = AUTO) -> Opened:
    """A file whose format is looked for."""
    return Opened(path, options, lambda table, asked: table_format(table).read(table, asked))


def data_format(path: Path) -> DataFormat:
    """The format of a file of a labelling or analysis program."""
    return _detected(DataFormat, opened(path), "items and labels")


def array_format(path: Path) -> ArrayFormat:
    """The format of a file of arrays."""
    suffix = path.suffix.lower()
    found = next((each for each in all_formats(ArrayFormat) if suffix in each.endings), None)
    if found is None:
        raise InputError(f"{path} is no file of arrays; they end with {', '.join(endings_of(ArrayFormat))}.")
    return found


def score_format(file: Opened) -> ScoreFormat:
    """The format of a file of scores."""
    endings = endings_of(ScoreFormat)
    if file.suffix not in endings:
        raise InputError(f"{file.path} has an unknown ending; scores come as {', '.join(endings)}.{_problems()}")
    return _detected(ScoreFormat, file, "scores")


def companions(paths: Iterable[Path]) -> Iterator[Path]:
    """Files that belong to some of these files of scores, and are not read by themselves."""
    formats = all_formats(ScoreFormat)
    for path in paths:
        for each in formats:
            if suffix_of(path) in each.endings:
                yield from each.companions(path)


def _detected(kind: type[F], file: Opened, what: str) -> F:
    """The first format that knows a file."""
    possible = [each for each in all_formats(kind) if file.suffix in each.endings]
    found = next((each for each in possible if each.detect(file)), None)
    if found is None:
        signs = ", ".join(f"{each.name} has {each.sign}" for each in possible if each.sign)
        raise InputError(f"{file.path} is of no known format of {what}: {signs}.{_problems()}")
    return found


def _problems() -> str:
    """What is wrong with formats of other packages, at the end of a message."""
    return "".join(f" {each[0].upper()}{each[1:]}." for each in added_formats().problems)


def answer_formats() -> dict[str, AnswerFormat]:
    """The forms of answers that are written anew, by their keys."""
    return {each.key: each for each in all_formats(AnswerFormat)}


def answer_format(key: str, *others: str) -> AnswerFormat | None:
    """A form of answers by its key; None for one of the others. An unknown key is an error that names the nearest."""
    known = answer_formats()
    if key not in known and key not in others:
        raise InputError(f"The `format` is '{key}'; {nearest(key, (*others, *known))}{_problems()}")
    return known.get(key)


def endings_of_answers() -> tuple[str, ...]:
    """The endings of files into which answers are written back, and which are no tables."""
    formats = [each for each in (*all_formats(ScoreFormat), *all_formats(DataFormat)) if each.kept]
    tables = endings_of(TableFormat)
    return tuple(dict.fromkeys(ending for each in formats for ending in each.endings if ending not in tables))
