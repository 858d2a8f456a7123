"""What ``manyway label`` prints when it has finished."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from manyway import files, labelling
from manyway.cli.console import NOTES, console, note, say
from manyway.errors import counted
from manyway.labelling.remarks import remark_on_shift

_SHOWN = 15
_GROUPS = 5
_SUSPECTS = 5
_ENOUGH = 20  # of fewer labels no part is said
_AS_IT_IS = 0.9  # scores that are sharpened less than this stay about as they are


def print_summary(summary: labelling.Summary, at_least: float | None = None) -> None:
    """Print which classes are present, in which proportions, and how certain labels are.

    What was learned is printed too.
    """
    n_found = sum(found.items > 0 for found in summary.present)
    line = f"{n_found} of {summary.n_classes} classes found in {counted(summary.n_items, 'item')}"
    if summary.n_present is not None:
        low, high = summary.n_present
        number = str(low) if low == high else f"{low} to {high}"
        verb = "is" if high == 1 else "are"
        line += f"; {number} {verb} estimated to occur"
    say(f"{line}:")
    console().print(_table(summary))
    if rest := summary.present[_SHOWN:]:
        listed = ", ".join(_name(found) for found in rest if found.verdict == "present")
        say(f"… and {len(rest)} more{', of which present █: ' * bool(listed)}{listed}.")
    if summary.n_present is not None:
        say(_listed(summary))
    if summary.n_unknown is not None:
        say(_unknown(summary))
    if summary.n_present is not None:
        say(f"Labels have probability {summary.mean_confidence:.2f} on average.")
    if summary.least:
        verb = "is" if summary.below == 1 else "are"
        say(f"{counted(summary.below, 'item')} {verb} below {summary.least:g}: without a label.")
    for line in _learned(summary, at_least):
        say(line)
    if summary.skipped:
        say(
            f"{counted(summary.skipped, 'item')} without an answer: "
            "the column 'note' at the end of the table says why."
        )
    say(f"Written to {summary.output}.")
    for remark in summary.notes:
        note(remark)


def summary_json(
    summary: labelling.Summary, rows: Sequence[labelling.Row], items: labelling.Named
) -> str:
    """The summary, the labels, what was skipped and what was noted as one JSON object."""
    totals = asdict(summary)
    totals["present"] = [found._asdict() for found in summary.present]
    totals["unknown_groups"] = [group._asdict() for group in summary.unknown_groups]
    totals["output"] = None if summary.output is None else str(summary.output)
    labels = []
    for row in rows:
        (name, probability), *others = row.best
        found: dict[str, Any] = {
            "item": row.item,
            "label": name,
            "probability": round(probability, 4),
        }
        for rank, (other, chance) in enumerate(others, 2):
            found |= {f"label_{rank}": other, f"probability_{rank}": round(chance, 4)}
        if row.unknown is not None:
            found |= {"unknown": round(row.unknown, 4), "group": row.group}
        if row.answer is not None:
            found |= {"answer": row.answer.name, "level": row.answer.level}
        about = labelling.note_of(items, row.number)
        if about:
            found["note"] = about
        labels.append(found)
    whole = {
        "summary": totals,
        "labels": labels,
        "skipped": [{"item": name, "note": reason} for name, reason in items.skipped],
        "notes": NOTES.get() or [],
    }
    return json.dumps(whole, ensure_ascii=False)


def _table(summary: labelling.Summary) -> Table:
    """A row per class.

    A method that does not estimate what occurs has no probabilities to speak of.
    """
    table = Table(box=None)
    table.add_column("class")
    estimated = summary.n_present is not None
    numbers = ["items", "share"]
    if estimated:
        numbers += ["mean probability", "is present"]
    for column in numbers:
        table.add_column(column, justify="right")
    for found in summary.present[:_SHOWN]:
        share = found.proportion if estimated else found.items / max(summary.n_items, 1)
        cells = [_name(found), str(found.items), f"{share:.1%}"]
        if estimated:
            cells.append("–" if found.confidence is None else f"{found.confidence:.2f}")
            cells.append(f"{_bar(found)} {_percent(found.presence or 0.0):>4}")
        table.add_row(*cells)
    return table


def _name(found: labelling.ClassSummary) -> str:
    return _on_one_line(found.name)


def _on_one_line(name: str) -> str:
    """A name on one line: a line break could feign a line."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _bar(found: labelling.ClassSummary) -> str:
    """The probability of presence as a bar: full for classes in the list, grey for others."""
    full = round(10 * (found.presence or 0.0))
    return ("█" if found.verdict == "present" else "▒") * full + "·" * (10 - full)


def _listed(summary: labelling.Summary) -> str:
    """A sentence about the classes that occur, that may, and that more items would show."""
    count = Counter(found.verdict for found in summary.present)
    number = count["present"]
    more = count["possible"]
    verb = "is" if more == 1 else "are"
    line = f"No class is certain; {more} {verb} possible ▒"
    if number:
        line = f"{number} class{'es are' if number > 1 else ' is'} present █{_support(summary)}"
        line += f", {more} more {verb} possible ▒" if more else ""
    further = summary.n_unseen or 0.0
    return line + (
        f"; more items would show about {further:.0f} further classes." if further >= 1.5 else "."
    )


def _support(summary: labelling.Summary) -> str:
    """How often a list like this one is wrong, as far as that was measured."""
    if summary.one_example:
        return " (one example per class cannot tell which classes are here; two would)"
    rehearsed = summary.told.get("rehearsed_n_listed", 0.0)
    if rehearsed:
        absent = summary.told["rehearsed_n_absent"]
        return f" (when your examples were rehearsed, {absent:.0f} of {rehearsed:.0f} were absent)"
    return ""


def _unknown(summary: labelling.Summary) -> str:
    """Sentences about the unknown items."""
    expected = summary.unknown_expected
    sd = summary.unknown_sd
    hint = ""
    if "temperature" in summary.told:
        hint = "Scores alone find few unknown items: sort by column 'unknown'. "
    if not summary.n_unknown and expected < 0.5:
        return f"{hint}No unknown items."
    low = max(expected - sd, 0)
    high = min(expected + sd, summary.n_items)
    line = f"About {expected:.0f} of {counted(summary.n_items, 'item')} are expected to be unknown "
    line += (
        f"({low:.0f} to {high:.0f}); {summary.n_unknown} "
        f"{'is' if summary.n_unknown == 1 else 'are'} labelled so"
    )
    groups = [group for group in summary.unknown_groups if group.items > 1]
    more = max(0, len(groups) - _GROUPS)
    alone = len(summary.unknown_groups) - len(groups)
    parts = [f"{counted(group.items, 'item')} like {group.medoid}" for group in groups[:_GROUPS]]
    parts += [f"{more} smaller group{'s' * (more > 1)}"] * bool(more) + [
        f"{counted(alone, 'item')} like no other"
    ] * bool(alone)
    line += (": " if parts else "") + "; ".join(parts)
    further = ""
    if summary.unknown_next:
        further = f" Of the others, look first at {files.listed(summary.unknown_next)}."
    # a batch of other classes and one of another camera look the same
    if expected > summary.n_items / 2:
        further += (
            " Most items are unlike the examples; "
            "if they are of the same classes, were both recorded alike?"
        )
    return f"{hint}{line}.{further}"


def _percent(share: float) -> str:
    """Whole per cent; only what is certain is 0 or 100.

    >>> _percent(0.3), _percent(0.9999)
    ('30%', '>99%')
    """
    if 0.995 < share < 1:
        return ">99%"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _sharpness(temperature: float, *, only_names: bool) -> str:
    """What was done to the scores of a classifier, in words."""
    if temperature < _AS_IT_IS:
        return "The classifier was less sure than it could be: its scores were sharpened"
    if temperature > 1 / _AS_IT_IS:
        return "The classifier was too sure of itself: its scores were softened"
    if only_names:
        return "The classifier gives only 0 and 1, which does not say how sure it is"
    return "The classifier was as sure as it should be"


def _suspects(suspects: Sequence[labelling.SuspectExample]) -> str:
    """A sentence about examples that look mislabelled."""
    number = len(suspects)
    verb = "example looks" if number == 1 else "examples look"
    shown = []
    for one in suspects[:_SUSPECTS]:
        example = f"{_on_one_line(one.item)} ({_on_one_line(one.label)})"
        shown.append(f"{example} looks like {_on_one_line(one.looks_like)}")
    more = number - len(shown)
    if more:
        shown.append(f"and {more} more")
    counts = "counts" if number == 1 else "count"
    return (
        f"{number} {verb} mislabelled and {counts} less: {'; '.join(shown)}. "
        "`manyway examine` shows each with its picture or text."
    )


def _learned(found: labelling.Summary, at_least: float | None) -> list[str]:
    """Sentences about what the batch and labelled items taught, and answers of other ranks."""
    lines = []
    temperature = found.told.get("temperature")
    if temperature is not None:
        number = found.n_labelled
        if number:
            helped = f"{counted(number, 'labelled item')} helped"
        else:
            helped = "labelled items would help"
        lines.append(f"{_sharpness(temperature, only_names=found.only_names)}; {helped}.")
    if found.suspects:
        lines.append(_suspects(found.suspects))
    shifted = remark_on_shift(found.told)
    if shifted is not None:
        lines.append(shifted)
    if found.told.get("contrast", 1.0) < _AS_IT_IS:
        lines.append(
            f"The items tell classes apart {found.told['contrast']:.1f} times as well as the "
            "examples do; the probabilities are lower by that."
        )
    lines += _rehearsed(found.told)
    if at_least is not None:
        levels = dict(found.levels)
        without = levels.pop("", 0)
        parts = [
            f"{count} as {level}"
            for level, count in sorted(levels.items(), key=lambda each: -each[1])
        ]
        lines.append(
            f"Answers with probability {at_least:g} or more: "
            f"{', '.join([*parts, f'{without} without'])}."
        )
    return lines


def _rehearsed(told: Mapping[str, float]) -> list[str]:
    """A sentence about examples that were held out and labelled, where some were."""
    number = told.get("rehearsed_n_items", 0.0)
    if not number:
        return []
    line = f"Rehearsed on {number:.0f} of your examples: {told['rehearsed_right']:.0%} were right"
    if told["rehearsed_n_sure"] >= _ENOUGH:
        line += f", and {told['rehearsed_sure_right']:.0%} of the labels above 0.9"
    if told["rehearsed_power"] < _AS_IT_IS:
        line += "; probabilities were lowered, because they claimed more"
    return [f"{line}."]
