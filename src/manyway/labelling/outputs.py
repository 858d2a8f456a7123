"""Answers in the forms of other programs: which form an output has, and what formats get to write."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from manyway import __version__
from manyway.core import Solution
from manyway.errors import InputError
from manyway.files import (
    SOURCE,
    Answers,
    AnyPath,
    Label,
    Origin,
    Ranked,
    Scores,
    answer_format,
    atomic_write,
    endings_of_answers,
    find_sightings,
    suffix_of,
)
from manyway.files.formats.base import DataFormat
from manyway.files.formats.registry import table_format
from manyway.labelling.batch import Batch
from manyway.labelling.table import Inputs, Row, remember

TABLE = "table"
INPUT = "input"  # the file that was read, with the answers in it


def find_format(given: str | None, output: AnyPath | None) -> str:
    """The form of the output: the given one, or that of its ending."""
    if given is None:
        is_input = output is not None and suffix_of(Path(output)) in endings_of_answers()
        return INPUT if is_input else TABLE
    answer_format(given, TABLE, INPUT)  # an unknown one is an error
    if given != TABLE and output is None:
        raise InputError(f"The `format` {given} needs the name of the `output`.")
    return given


def check_format(form: str, scores: Scores, output: Path, *, at_levels: bool = False) -> None:
    """Refuse a form that these scores cannot be written in, before the work.

    ``at_levels`` says that answers may be groups of a taxonomy, for which a copy of scores has no room.
    """
    if form == INPUT:
        _check_origin(scores, output)
        if at_levels and not all(origin.format.only_labels for origin in scores.origins):
            raise InputError("`at_least` is for tables and new files, not for a copy of these scores; leave it out.")
    found = answer_format(form, TABLE, INPUT)
    if found is not None and found.needs_time and not any(seen.time for seen in find_sightings(scores).items):
        hint = "name the media.csv of the data package with `media`, or add a column 'time'"
        raise InputError(f"The `format` {form} needs the time of each item, which the scores do not have; {hint}.")


def _check_origin(scores: Scores, output: Path) -> None:
    if sum(origin.n_items for origin in scores.origins) < len(scores):
        given = "which is a table of scores and takes no answers"
        raise InputError(f"{output} would be in the format of the input, {given}; write a .csv table.")
    origin = scores.origins[0]
    if SOURCE not in scores.carried and suffix_of(output) != origin.path.suffix.lower():
        hint = f"give it the ending {origin.path.suffix}, or write a table: labels.csv"
        given = f"a file of {origin.format.name}"
        raise InputError(f"{output} would be written in the format of the input, {given}; {hint}.")


def check_back(form: str, items: Path, output: Path | None) -> tuple[str, ...] | None:
    """The endings of an output for features, texts or pictures: None means those of tables.

    Parameters
    ----------
    form : str
        "table", or "input": the file of items with the answers in it.
    items : Path
        The file of the items.
    output : Path or None
        The output, whose ending must be that of the items.
    """
    if form == TABLE:
        return None
    if form != INPUT:
        raise InputError(f"The `format` {form} is for the scores of a classifier; leave it out for features.")
    found = table_format(items) if items.is_file() else None
    if not isinstance(found, DataFormat):
        raise InputError(f"{output} would be in the format of {items}, which takes no answers; write a .csv table.")
    if output is None or output.suffix.lower() != items.suffix.lower():
        raise InputError(f"{output} would be a file of {found.name}; give it the ending {items.suffix}.")
    return found.endings


def with_origin(batch: Batch, items: Path) -> Batch:
    """The same batch, whose answers can be written into the file of its items."""
    found = table_format(items)
    assert isinstance(found, DataFormat)
    origin = Origin(items, len(batch.items), 1, found)
    return replace(batch, items=replace(batch.items, origins=(origin,)))


def scores_of(batch: Batch) -> Scores:
    """The items of a batch, which must be scores."""
    if not isinstance(batch.items, Scores):
        raise InputError("This `format` is for the scores of a classifier; leave it out for features.")
    return batch.items


class Found(NamedTuple):
    """What was found for a batch."""

    batch: Batch
    solution: Solution
    rows: Sequence[Row]
    least: float  # the lowest probability that is written
    reviewed: frozenset[int] = frozenset()  # items that a person has answered


def write_format(form: str, output: Path, found: Found, inputs: Inputs) -> list[str]:
    """Write the answers of a batch in another form than a table; return what there is to say about it."""
    answers = _answers(found)
    chosen = answer_format(form, INPUT)
    if chosen is None:
        return _write_back(output, answers, inputs)
    scores_of(found.batch)
    with atomic_write(output, inputs) as temporary:
        notes = chosen.write(temporary, answers)
    remember(output)
    return notes


def _answers(found: Found) -> Answers:
    """What formats can write."""
    batch = found.batch
    solution = found.solution
    is_known = (batch.tasks.known_labels[0] >= 0).tolist() if isinstance(batch.items, Scores) else []
    labels = []
    for row in found.rows:
        name, probability = row.best[0]
        level = ""
        if row.answer is not None:
            name = row.answer.name
            probability = row.answer.probability
            level = row.answer.level if row.answer.level in batch.levels else ""
        known = bool(is_known) and is_known[row.number]
        labels.append(Label(row.number, row.item, name, probability, level=level, known=known))
    return Answers(
        items=batch.items,
        labels=labels,
        classes=batch.classes,
        ranked=lambda count: ranked_classes(batch, solution, count),
        least=found.least,
        probabilities=lambda: solution.probabilities[0].cpu().numpy(),
        presence=solution.presence[0].cpu().numpy() if solution.estimates_presence else None,
        described=batch.described,
        levels=batch.levels,
        program=f"manyway {__version__}",
        by_people=found.reviewed | {row for row, known in enumerate(is_known) if known},
    )


def ranked_classes(batch: Batch, solution: Solution, count: int) -> list[list[tuple[str, float]]]:
    """The most probable classes of each item; none of an item that is unknown."""
    values, places, *unknown = (each[0] for each in solution.top(max(1, count)).best.values)
    ranked = []
    for chosen, found in zip(places.tolist(), values.tolist(), strict=True):
        ranked.append([(batch.classes[k], p) for k, p in zip(chosen, found, strict=True)])
    if unknown:
        _, groups = unknown
        for row in groups.ge(0).nonzero().flatten().tolist():
            ranked[row] = []
    return ranked


def _write_back(output: Path, answers: Answers, inputs: Inputs) -> list[str]:
    """Each file with its answers. All are complete before the first gets its name."""
    origins = answers.items.origins
    in_folder = SOURCE in answers.items.carried
    folder = Path(os.path.commonpath([origin.path.parent for origin in origins]))
    notes = []
    targets = []
    with ExitStack() as stack:
        for part in _parts(answers, origins):
            assert part.origin is not None
            target = output / part.origin.path.relative_to(folder) if in_folder else output
            temporary = stack.enter_context(atomic_write(target, inputs))
            notes += part.origin.format.write(temporary, part)
            targets.append(target)
    for target in targets:
        remember(target)
    return notes


def _parts(answers: Answers, origins: Sequence[Origin]) -> Iterator[Answers]:
    """The answers for the items of each file."""
    ranked = answers.ranked(max(origin.n_listed for origin in origins))
    labels: dict[int, list[Label]] = {}
    for label in answers.labels:
        labels.setdefault(label.number, []).append(label)
    first = 0
    for origin in origins:
        rows = range(first, first + origin.n_items)
        best = [ranked[row] for row in rows]
        yield replace(
            answers,
            labels=[label for row in rows for label in labels.get(row, [])],
            ranked=partial(_shortened, best),
            origin=origin,
            by_people=frozenset(row - first for row in answers.by_people.intersection(rows)),
        )
        first += origin.n_items


def _shortened(ranked: Sequence[Ranked], count: int) -> list[Ranked]:
    return [each[:count] for each in ranked]
