"""``manyway judge``: whether new labels are better than old ones.

It is judged on items that a person has verified.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from manyway import evaluation, files, labelling
from manyway.cli.console import console, note, say
from manyway.cli.options import command
from manyway.errors import InputError, counted


@command
def judge(
    before: Path,
    after: Path,
    *,
    labels: Path,
    taxonomy: Path | None = None,
    label_column: str | None = None,
    item_column: str | None = None,
) -> None:
    """Find out whether new labels are better than old ones, or merely different.

    BEFORE and AFTER are tables of labels, or files of scores (see `manyway label --help`), whose
    most probable class counts; for SpeciesNet its prediction. Each verified item is corrected, made
    worse or unchanged. This is counted per class, and per rank where there is a taxonomy, with the
    95 % interval of the difference.

    [bold]Examples:[/bold]

    manyway judge predictions.json answers.json --labels verified.csv

    manyway judge old.csv new.csv --labels verified.csv --taxonomy taxonomy.csv

    Parameters
    ----------
    before : BEFORE
        The labels before: a table of labels, or a file of scores.
    after : AFTER
        The labels after, of the same items.
    labels : FILE
        The labels that were verified: the columns item and label.
    """
    options = files.Options(label_column, item_column)
    truth = files.read_item_labels(labels, options)
    old, levels = files.read_answers(before, options)
    new, more = files.read_answers(after, options)
    levels = {**more, **levels} if taxonomy is None else labelling.read_taxonomy(taxonomy)
    there = {item: label for item, label in truth.items() if item in old or item in new}
    if not there:
        some = f"'{next(iter(truth))}'", f"'{next(iter({**old, **new}), '')}'"
        raise InputError(
            f"{labels} has no item of {before} or {after}: it has {some[0]}, they have {some[1]}."
        )
    if len(there) < len(truth):
        note(_in_neither(len(truth) - len(there), labels.name))
    for path, found in ((before, old), (after, new)):
        lacking = sum(not found.get(item) for item in there)
        if lacking:
            note(_without_label(lacking, path.name))
    judge_at = partial(evaluation.label_changes, old, new, there)
    ranks = {"class": judge_at(), **{name: judge_at(of) for name, of in levels.items()}}
    ranks = {name: changes for name, changes in ranks.items() if changes[0].n_items}
    everything, *of_classes = ranks["class"]
    counts = (
        f"{everything.corrected} corrected, {everything.worse} made worse, "
        f"{everything.unchanged} unchanged"
    )
    say(
        f"{counted(everything.n_items, 'verified item')}: "
        f"{counts} ({everything.moved} of them from one error to another)."
    )
    _show("rank", {name: changes[0] for name, changes in ranks.items()})
    _show("class", {one.name: one for one in of_classes})
    mean, low, high = everything.difference
    verdict = _verdict(everything, after.name)
    say(f"{100 * mean:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}): {verdict}.")


def _in_neither(number: int, labels: str) -> str:
    """What is said of verified items that nobody has labelled."""
    verb = "is" if number == 1 else "are"
    return f"{counted(number, 'item')} of {labels} {verb} in neither file and {verb} left out"


def _without_label(number: int, file: str) -> str:
    """What is said of verified items that have no label in a file."""
    have, count = ("has", "it counts") if number == 1 else ("have", "they count")
    return f"{counted(number, 'verified item')} {have} no label in {file}; {count} as wrong there"


def _verdict(everything: evaluation.Change, after: str) -> str:
    """What the items say about the labels after."""
    _, low, high = everything.difference
    if low > 0:
        return f"{after} is better"
    if high < 0:
        return f"{after} is worse"
    those = "more" if everything.corrected + everything.worse else "some whose label has changed"
    return f"these items do not show which is better; verify {those}"


def _show(title: str, changes: dict[str, evaluation.Change]) -> None:
    from rich.table import Table

    table = Table(box=None)
    table.add_column(title)
    rows = {name: _cells(change) for name, change in changes.items()}
    for column in next(iter(rows.values()), {}):
        table.add_column(column, justify="right")
    for name, cells in rows.items():
        shown = name if name.isprintable() else ascii(name)[1:-1]
        table.add_row(shown, *cells.values())
    console().print(table)


def _cells(change: evaluation.Change) -> dict[str, str]:
    """A row of the table, by column."""
    mean, low, high = (100 * each for each in change.difference)
    return {
        "items": str(change.n_items),
        "before": f"{100 * change.right_before / change.n_items:.1f}",
        "after": f"{100 * change.right_after / change.n_items:.1f}",
        "corrected": str(change.corrected),
        "made worse": str(change.worse),
        "difference": f"{mean:+.1f}",
        "95 % interval": f"{low:+.1f} to {high:+.1f}",
    }
