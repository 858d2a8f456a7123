"""``manyway judge``: whether new labels are better than old ones.

It is judged on items that a person has verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from manyway import evaluation, files, labelling
from manyway.cli.console import console, note, say
from manyway.cli.options import command
from manyway.errors import InputError, as_shown, counted
from manyway.files.answer_columns import newest_answer


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
    truth = _by_shown_names(files.read_item_labels(labels, options))
    old = _Judged.read(before, labels, options)
    new = _Judged.read(after, labels, options)
    levels: labelling.Levels = {**new.answers.levels, **old.answers.levels}
    if taxonomy is not None:
        levels = labelling.read_taxonomy(taxonomy)
    there = _items_there(labels, truth, old, new)
    _check_classes(labels, there, old, new, levels)
    judge_at = partial(evaluation.label_changes, old.answers.labels, new.answers.labels, there)
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


class _Judged(NamedTuple):
    """A file whose labels are judged."""

    path: Path
    answers: files.ItemAnswers

    @classmethod
    def read(cls, path: Path, labels: Path, options: files.Options) -> _Judged:
        """Read what is judged; the column of the verified labels is carried along with answers."""
        wanted = options.label_column
        is_verified = (
            wanted and files.find_column(files.columns_of(labels) or (), wanted) is not None
        )
        if is_verified and (_is_same(path, labels) or newest_answer(files.columns_of(path) or ())):
            options = replace(options, label_column=None)
        answers = files.read_answers(path, options)
        return cls(path, answers._replace(labels=_by_shown_names(answers.labels)))


def _by_shown_names(labels: Mapping[str, str]) -> dict[str, str]:
    """The same by names in one form: a Mac writes accents with codes of their own."""
    found = {as_shown(item): label for item, label in labels.items()}
    return found if len(found) == len(labels) else dict(labels)


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths are one file; not where one is missing, which its reader says."""
    return path.exists() and other.exists() and path.samefile(other)


def _at_every_rank(classes: Iterable[str], levels: labelling.Levels) -> set[str]:
    """Classes and, of all ranks, the groups that these are in; as they are compared."""
    names = {evaluation.compared_as(name) for name in classes}
    groups = {
        evaluation.compared_as(group)
        for of_class in levels.values()
        for name, group in of_class.items()
        if evaluation.compared_as(name) in names
    }
    return names | groups


def _items_there(
    labels: Path, truth: Mapping[str, str], old: _Judged, new: _Judged
) -> dict[str, str]:
    """The verified items that one of the files has; notes say what is lacking."""
    items = {**old.answers.labels, **new.answers.labels}
    there = {item: label for item, label in truth.items() if item in items}
    if not there:
        some = f"'{next(iter(truth))}'", f"'{next(iter(items), '')}'"
        raise InputError(
            f"{labels} has no item of {old.path} or {new.path}: "
            f"it has {some[0]}, they have {some[1]}."
        )
    if len(there) < len(truth):
        note(_in_neither(len(truth) - len(there), labels.name))
    for path, answers in (old, new):
        lacking = sum(not answers.labels.get(item) for item in there)
        if lacking:
            note(_without_label(lacking, path.name))
    return there


def _check_classes(
    labels: Path, there: Mapping[str, str], old: _Judged, new: _Judged, levels: labelling.Levels
) -> None:
    """Refuse a file whose classes are in no other: they may be columns of features.

    A note says which verified labels are no class of either file.
    """
    verified = _at_every_rank(there.values(), levels)
    of_old = _at_every_rank(old.answers.classes, levels)
    of_new = _at_every_rank(new.answers.classes, levels)
    if of_old and of_old.isdisjoint(verified | of_new):
        raise _has_other_classes(old, labels, new)
    if of_new and of_new.isdisjoint(verified | of_old):
        raise _has_other_classes(new, labels, old)
    strange = [
        label for label in there.values() if evaluation.compared_as(label) not in of_old | of_new
    ]
    if strange:
        classes = files.listed(sorted(set(strange)))
        note(_of_strange_classes(len(strange), classes))


def _of_strange_classes(number: int, classes: str) -> str:
    """What is said of verified items whose classes neither file has."""
    are, count = ("is", "it counts") if number == 1 else ("are", "they count")
    items = counted(number, "verified item")
    return f"{items} {are} of a class that neither file has ({classes}); {count} as wrong in both"


def _has_other_classes(judged: _Judged, labels: Path, other: _Judged) -> InputError:
    classes = files.listed(sorted(judged.answers.classes))
    return InputError(
        f"No class of {judged.path} ({classes}) is in {labels.name} or {other.path.name}; "
        "give a file of labels or scores, or name its labels with --label-column."
    )


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
