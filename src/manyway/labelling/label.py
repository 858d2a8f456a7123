"""Label all items of a batch jointly and write a table: what ``manyway label`` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Answered, ExampleDoubts, Joined, Solution, Tally, Tasks, number_unknown
from manyway.errors import InputError, counted, nearest
from manyway.files import FILE, SOURCE, Items, Output, Scores, TableOrigin, check_output, shorten
from manyway.labelling.batch import UNKNOWN, Batch, Named
from manyway.labelling.outputs import TABLE, Found, write_format
from manyway.labelling.rows_back import write_back
from manyway.labelling.table import AnswerColumns, LevelAnswer, Row, remember, write_table
from manyway.labelling.taxonomy import Levels, answer_at_least
from manyway.methods import DEFAULT_METHOD, get_method

CLASS_LEVEL = "class"  # the level of answers that are a class itself
_LOOK_AT, _DOUBT = 3, 0.1  # so many items are named that may be unknown, with at least this probability
_LIKELY = 0.5  # where items may have several classes, these have at least this probability
_SUSPECT = 0.5  # an example whose label is more probably wrong than right is named
# One support is tuned and rehearsed in little time; thousands of tasks would wait for it.
_FOR_ONE_SUPPORT = {"likelihood": "auto", "rehearse": True}


class ClassSummary(NamedTuple):
    """The result for one class.

    Parameters
    ----------
    name : str
    items : int
        The number of items that got this label.
    proportion : float
        The expected proportion of the class among all items.
    confidence : float or None
        The mean probability of the labels of its items; None without items.
    presence : float or None
        The probability that the class occurs in the batch; None if the method does not estimate it.
    verdict : {"present", "possible", ""}
        Whether the class is in the list of ``Solution.present`` or of ``Solution.possible``.
    """

    name: str
    items: int
    proportion: float
    confidence: float | None
    presence: float | None
    verdict: str = ""


class UnknownGroup(NamedTuple):
    """Unknown items that belong together.

    Parameters
    ----------
    items : int
        The number of items.
    medoid : str
        The name of the item in the middle of the group.
    """

    items: int
    medoid: str


@dataclass(frozen=True)
class SuspectExample:
    """An example that looks mislabelled.

    Parameters
    ----------
    item : str
        The name of the example.
    label : str
        Its label.
    looks_like : str
        The class that it looks like.
    probability : float
        That its label is wrong.
    """

    item: str
    label: str
    looks_like: str
    probability: float


@dataclass(frozen=True)
class Summary:
    """The result for the whole batch.

    Parameters
    ----------
    n_items, n_classes : int
        The numbers of items and of possible classes.
    present : tuple of ClassSummary
        The classes that got a label, are present or are possible, those with most items first.
    mean_confidence : float
        The mean probability of the labels.
    below : int
        The number of items whose label was left empty because its probability is too low.
    least : float
        The lowest probability of labels that are written.
    n_present : tuple of int or None
        The lowest and the highest number of classes that occur in the batch, in about 95 % of all batches; None if the
        method does not estimate it.
    n_unseen : float or None
        The expected number of further classes if more items were added.
    n_unknown : int or None
        The number of items that are labelled unknown; None where all items were taken to be of a class.
    unknown_groups : tuple of UnknownGroup
        The groups of these items, largest first.
    unknown_expected, unknown_sd : float
        The expected number of unknown items, with its standard deviation.
    unknown_next : tuple of str
        The items that are most probably unknown among those with the label of a class: the first to look at.
    skipped : int
        The number of items that could not be read.
    output : Path or None
        The table that was written.
    levels : mapping of str to int
        The number of items that were answered at each level of a taxonomy; those without an answer have the level ''.
    told : mapping of str to float
        What the method tells about the batch, such as the temperature of scores.
    n_labelled : int
        The number of scores with a known label.
    only_names : bool
        Whether all scores are 0 or 1, which does not say how sure the classifier is.
    one_example : bool
        Whether every class has one example only, so that nothing could be rehearsed.
    suspects : tuple of SuspectExample
        The examples that look mislabelled, the most suspicious first. They count less.
    notes : tuple of str
        What there is to say about the table.
    """

    n_items: int
    n_classes: int
    present: tuple[ClassSummary, ...]
    mean_confidence: float
    below: int
    least: float = 0.0
    n_present: tuple[int, int] | None = None
    n_unseen: float | None = None
    n_unknown: int | None = None
    unknown_groups: tuple[UnknownGroup, ...] = ()
    unknown_expected: float = 0.0
    unknown_sd: float = 0.0
    unknown_next: tuple[str, ...] = ()
    skipped: int = 0
    output: Path | None = None
    levels: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    n_labelled: int = 0
    only_names: bool = False
    one_example: bool = False
    suspects: tuple[SuspectExample, ...] = ()
    notes: tuple[str, ...] = ()


def solve_batch(batch: Batch, method: str = DEFAULT_METHOD, *, open_set: bool = False, **params: Any) -> Solution:
    """What a method finds for a batch.

    Parameters
    ----------
    batch : Batch
    method : str, default="evidence"
        The name of a method, see `manyway.METHODS`.
    open_set : bool, default=False
        Whether items may be unknown.
    **params
        Parameters of the method.

    Returns
    -------
    Solution
    """
    solver = get_method(method)
    if batch.tasks.class_table is not None and not solver.class_features:
        raise InputError(f"{method} does not use class names; choose the `method` evidence or leave `class_names` out.")
    if open_set:
        if batch.tasks.several:
            raise InputError("Items that may have several classes may have none, too; leave `open_set` out.")
        if "open_set" not in solver.parameters:
            raise InputError(f"{method} cannot tell that an item is unknown; choose the `method` evidence.")
        if UNKNOWN in batch.classes:
            raise InputError(f"A class is called '{UNKNOWN}', the label of unknown items; rename it.")
        params["open_set"] = True
    params = {name: value for name, value in _FOR_ONE_SUPPORT.items() if name in solver.parameters} | params
    return solver(batch.tasks, **params)


def groups_of(scores: Scores, by: str) -> list[list[int]]:
    """The rows that are labelled together: those of one ``file`` or ``folder``, or with one value in a column."""
    if by == "folder":
        keys = [PurePosixPath(scores.file(row).replace("\\", "/")).parent.as_posix() for row in range(len(scores))]
    elif by == "file" or by in scores.carried:
        # Without a folder, the files are the recordings of one table.
        recordings = FILE if "start" in scores.carried else ""
        name = by if by != "file" else SOURCE if SOURCE in scores.carried else recordings
        keys = [str(cell) for cell in scores.carried.get(name, [""] * len(scores))]
    else:
        raise InputError(f"`batch_by` is '{by}'; {nearest(by, ('file', 'folder', *scores.carried))}")
    found: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return list(found.values())


def solve_groups(
    batch: Batch, groups: list[list[int]], method: str = DEFAULT_METHOD, open_set: bool = False
) -> Solution:
    """What a method finds for groups of the items of a batch, each labelled by itself.

    Parameters
    ----------
    batch : Batch
        A batch in memory.
    groups : list of list of int
        The rows of each group; every row is in one.
    method, open_set
        See ``solve_batch``.

    Returns
    -------
    Solution
        For all items. A class occurs if it occurs in some group.
    """
    tasks, parts = batch.tasks, []
    if tasks.pile is not None or open_set:
        raise InputError("Items that are in blocks, or may be unknown, are one batch; leave `batch_by` out.")
    for rows in groups:
        known = None if tasks.known is None else tasks.known[:, rows]
        part = replace(batch, tasks=replace(tasks, query_table=tasks.query[:, rows], known=known))
        parts.append(solve_batch(part, method))
    back = torch.tensor([row for rows in groups for row in rows]).argsort()

    there = [part.independent_presence for part in parts]
    return Solution(
        torch.cat([part.probabilities for part in parts], 1)[:, back],
        torch.stack([part.n_iter for part in parts]).amax(0),
        torch.stack([part.converged for part in parts]).all(0),
        make_presence=(lambda: 1 - (1 - torch.stack(there)).prod(0)) if parts[0].estimates_presence else None,
        make_copies=lambda: torch.stack([part.copies for part in parts]).mean(0),
        tallied=reduce(Tally.plus, (part.tallied for part in parts)),
        told={name: torch.stack([part.told[name] for part in parts]).mean(0) for name in parts[0].told},
        doubts=parts[0].doubts,
    )


def write_labels(
    batch: Batch,
    solution: Solution,
    output: str | Path | Output,
    *,
    top: int = 2,
    min_confidence: float = 0.0,
    at_least: float | None = None,
    inputs: Iterable[str | Path | None] = (),
    form: str = TABLE,
    each: Callable[[Row], None] | None = None,
) -> Summary:
    """Write a table with one row per item, and return what it says in total.

    Items that come from a table are given back in it: all its rows and columns, and the answers after them. Where items
    may have several classes, there is a row for each class of an item. The table is written only when everything
    succeeded.

    Parameters
    ----------
    batch : Batch
        The batch.
    solution : Solution
        What ``solve_batch`` found for it.
    output : path-like or Output
        The table: csv by default; tsv, parquet, jsonl or Excel by its ending. An `Output` is not replaced where it was
        made or changed since.
    top : int, default=2
        How many classes to write per item, most probable first.
    min_confidence : float, default=0.0
        The label is left empty where its probability is lower. Where items may have several classes, 0 means one half.
    at_least : float, optional
        Also write the finest answer, class or group of the taxonomy, with at least this probability.
    inputs : iterable of path-like, optional
        Files that the output must not replace.
    form : str, default="table"
        What to write: "table"; "input", the file that was read with the answers in it; or the key of an answer format
        of `manyway.files.formats.registry`.
    each : callable, optional
        Called with every row that is written.

    Returns
    -------
    Summary

    Raises
    ------
    InputError
        If the table cannot be written.
    """
    inputs = tuple(inputs)
    target = output if isinstance(output, Output) else Output(output)
    if not target.wanted.is_dir():
        check_output(target.wanted, inputs)
    _check_wishes(batch, top, min_confidence, at_least)
    if batch.tasks.several:
        min_confidence = min_confidence or _LIKELY
        top = max(1, int((solution.probabilities >= min_confidence).sum(-1).amax()))
    best = _Best.of(solution, top)
    at_levels = None
    if at_least is not None:
        at_levels = _at_levels(solution, batch.classes, batch.levels, at_least)
    counts = _Counts(batch, min_confidence)
    rows = _told(counts.rows(best.values, best.places, best.unknown, at_levels), each)
    if form == TABLE:
        columns = AnswerColumns(
            top=1 if batch.tasks.several else best.values.shape[1],
            open_set=bool(best.unknown),
            at_levels=at_levels is not None,
            described=batch.described,
        )
        notes = _write_answers(target, rows, batch.items, columns, inputs)
        skipped = len(batch.items.skipped)
    else:
        notes = write_format(form, target.settle(), Found(batch, solution, list(rows), min_confidence), inputs)
        notes = [*notes, *_without_answer(batch.items)]
        skipped = 0  # no table says why
    if target.is_elsewhere:
        notes.append(f"{target.wanted.name} was made or changed by somebody else meanwhile, and is kept")
    return replace(
        counts.summary(solution, best.total, best.unknown),
        least=min_confidence,
        skipped=skipped,
        output=target.path,
        levels=Counter(answer.level for answer in at_levels or ()),
        notes=tuple(notes),
    )


def _without_answer(items: Named) -> list[str]:
    """What is said of items that were skipped, where no table lists them."""
    said = f"{counted(len(items.skipped), 'item')} got no answer, such as "
    return [f"{said}{shorten(name)}: {reason}" for name, reason in items.skipped[:1]]


class _Best(NamedTuple):
    """The most probable classes of each item."""

    values: Tensor  # [q, n] their probabilities
    places: Tensor  # [q, n] which they are
    unknown: Sequence[Tensor]  # [q] the probability to be unknown, and the group; empty where none may be
    total: Tensor  # [k] the sum of the probabilities of all items

    @staticmethod
    def of(solution: Solution, top: int) -> _Best:
        """The ``top`` most probable ones."""
        best = solution.top(top)
        values, places, *unknown = (rows[0] for rows in best.best.values)
        if not bool(torch.isfinite(values).all()):
            hint = "look for constant columns and for values that are extremely large or small"
            raise InputError(f"No probabilities were found for these features; {hint}. Nothing was written.")
        return _Best(values, places, unknown, best.total[0])


def _told(rows: Iterable[Row], each: Callable[[Row], None] | None) -> Iterator[Row]:
    """The same rows, told to somebody as they pass."""
    for row in rows:
        if each is not None:
            each(row)
        yield row


def _check_wishes(batch: Batch, top: int, min_confidence: float, at_least: float | None) -> None:
    """Refuse numbers that mean nothing, before the answers are read."""
    if top < 1 or not 0 <= min_confidence <= 1:
        raise InputError(f"top is {top} and min_confidence {min_confidence}; they must be at least 1, and from 0 to 1.")
    if at_least is None:
        return
    if not 0 < at_least <= 1:
        raise InputError(f"The wanted probability of answers is {at_least}; it must be above 0 and at most 1.")
    if not batch.levels:
        raise InputError("There is no taxonomy to take answers of a higher level from; name a file with `taxonomy`.")
    if batch.tasks.several:
        raise InputError("Answers of a higher level are for items with one class; leave `at_least` out.")


def _write_answers(
    target: Output, rows: Iterable[Row], items: Named, columns: AnswerColumns, inputs: Sequence[str | Path | None]
) -> list[str]:
    """Write the table of the user with the answers in it or, for other items, one of our own.

    Where the table of the user was changed meanwhile, its rows may be those of other items.
    """
    origin = items.origin if isinstance(items, Items) else None
    if isinstance(items, Items) and origin is not None and origin.is_unchanged:
        header = [*columns.header, "note", *columns.described]
        answers = _answers_by_row(rows, items, origin, columns)
        notes = write_back(target, origin, header, answers, inputs)
    else:
        notes = write_table(target, rows, items, columns, inputs)
        if origin is not None:
            changed = f"{origin.path.name} was changed while its items were labelled"
            notes = [*notes, f"{changed}; the labels are in a table of their own, by the names of the items"]
    remember(target.path)
    return notes


def _answers_by_row(
    rows: Iterable[Row], items: Items, origin: TableOrigin, columns: AnswerColumns
) -> dict[int, list[Any]]:
    """What is added to each row of the table that the items come from."""
    found = {}
    for row in rows:
        found[origin.rows[row.number]] = [*columns.cells(row), items.note(row.number), *columns.about(row.best[0][0])]
    nothing = [""] * len(columns.described)
    for place, (_, reason) in zip(origin.rows[len(items) :], items.skipped, strict=True):
        found[place] = [*columns.without_answer(), f"skipped: {reason}", *nothing]
    for place, known in origin.known.items():
        found[place] = [*columns.without_answer(known.label), known.note, *columns.about(known.label)]
    return found


class _Counts:
    """The rows of a table, and what they say in total once all are written."""

    def __init__(self, batch: Batch, min_confidence: float) -> None:
        self.batch, self.min_confidence = batch, min_confidence
        self.given, self.confidence = [0] * len(batch.classes), [0.0] * len(batch.classes)
        self.below, self.of_unknown = 0, 0.0
        self.grouped: Counter[int] = Counter()

    def rows(
        self, values: Tensor, places: Tensor, unknown: Sequence[Tensor], at_levels: Sequence[LevelAnswer] | None
    ) -> Iterator[Row]:
        classes = self.batch.classes
        odds, groups = (one.tolist() for one in unknown) if unknown else ([None] * len(values), [-1] * len(values))
        for row, chosen, found in self._answers(values, places):
            best = list(zip((classes[k] for k in chosen), found, strict=True))
            unknown_here, group = odds[row], groups[row]
            if unknown_here is not None and group >= 0:
                self.grouped[group] += 1
                self.of_unknown += unknown_here
                best = [(UNKNOWN, unknown_here), *best[:-1]]
            elif found[0] >= self.min_confidence or not self.batch.tasks.several:
                self.given[chosen[0]] += 1
                self.confidence[chosen[0]] += found[0]
            if best[0][1] < self.min_confidence:
                self.below += 1
                best[0] = ("", best[0][1])
            answer = None if at_levels is None else at_levels[row]
            yield Row(self.batch.items.name(row), best, unknown_here, None if group < 0 else group, answer, row)

    def _answers(self, values: Tensor, places: Tensor) -> Iterator[tuple[int, list[int], list[float]]]:
        """The number of an item, and its classes with their probabilities: all of one label, or one of several."""
        for row, (chosen, found) in enumerate(zip(places.tolist(), values.tolist(), strict=True)):
            if not self.batch.tasks.several:
                yield row, chosen, found
                continue
            for k, p in zip(chosen, found, strict=True):
                if p >= self.min_confidence or k == chosen[0]:
                    yield row, [k], [p]

    def present(
        self, total: Tensor, presence: Sequence[float | None], verdicts: Mapping[int, str]
    ) -> tuple[ClassSummary, ...]:
        """The classes that got a label, are present or are possible."""
        found, parts = [], (total / len(self.batch.items)).tolist()
        for k, (name, given) in enumerate(zip(self.batch.classes, self.given, strict=True)):
            if given or k in verdicts:
                confidence = self.confidence[k] / given if given else None
                found.append(ClassSummary(name, given, parts[k], confidence, presence[k], verdicts.get(k, "")))
        return tuple(sorted(found, key=lambda one: (-one.items, -one.proportion, one.name)))

    def summary(self, solution: Solution, total: Tensor, unknown: Sequence[Tensor]) -> Summary:
        """What all rows say together, once they are written; ``total`` [k] is the sum of the probabilities."""
        batch = self.batch
        presence: Sequence[float | None] = [None] * len(batch.classes)
        verdicts: Mapping[int, str] = {}
        n_present = n_unseen = None
        if solution.estimates_presence:
            presence = solution.presence[0].tolist()
            verdicts = _verdicts(solution)
            low, high = solution.n_present_interval[0].tolist()
            n_present = (low, high)
            n_unseen = float(solution.n_unseen[0])
        n_unknown = sum(self.grouped.values())
        n_answered = sum(self.given) + n_unknown
        expected = _expected(unknown, batch.items)
        return Summary(
            n_items=len(batch.items),
            n_classes=len(batch.classes),
            present=self.present(total, presence, verdicts),
            mean_confidence=(sum(self.confidence) + self.of_unknown) / max(n_answered, 1),
            below=self.below,
            n_present=n_present,
            n_unseen=n_unseen,
            n_unknown=n_unknown if unknown else None,
            unknown_groups=_groups(self.grouped, solution.unknown_medoids, batch.items),
            unknown_expected=expected.number,
            unknown_sd=expected.sd,
            unknown_next=expected.next,
            told={name: float(value[0]) for name, value in solution.told.items()},
            n_labelled=batch.n_labelled,
            only_names=batch.only_names,
            one_example=_has_one_example(batch.tasks),
            suspects=_suspects(batch, solution.doubts),
        )


def _has_one_example(tasks: Tasks) -> bool:
    """Whether every class has one example and nothing else says what it looks like."""
    if tasks.scores or tasks.class_table is not None:
        return False
    return tasks.n_support == tasks.n_classes


def _suspects(batch: Batch, doubts: ExampleDoubts | None) -> tuple[SuspectExample, ...]:
    """The examples whose label is more probably wrong than right."""
    if doubts is None or batch.examples is None:
        return ()
    wrong = doubts.wrong[0]
    order = wrong.argsort(descending=True, stable=True)[: int((wrong > _SUSPECT).sum())]
    labels = batch.tasks.support_labels[0]
    return tuple(
        SuspectExample(
            item=batch.examples.name(row),
            label=batch.classes[int(labels[row])],
            looks_like=batch.classes[int(doubts.looks_like[0, row])],
            probability=float(wrong[row]),
        )
        for row in order.tolist()
    )


def _verdicts(solution: Solution) -> dict[int, str]:
    """Which classes are present and which are possible, at the default error rate."""
    lists = {"present": solution.present(), "possible": solution.possible()}
    return {k: verdict for verdict, classes in lists.items() for k in classes[0].tolist()}


def _groups(grouped: Counter[int], medoids: Tensor | None, items: Named) -> tuple[UnknownGroup, ...]:
    """The groups that items were given to, largest first."""
    rows = [] if medoids is None else medoids[0].tolist()
    return tuple(UnknownGroup(n, items.name(rows[group])) for group, n in grouped.most_common() if group >= 0)


class _Unknown(NamedTuple):
    """What is expected of unknown items: how many, give or take, and which to look at next."""

    number: float = 0.0
    sd: float = 0.0
    next: tuple[str, ...] = ()


def _expected(unknown: Sequence[Tensor], items: Named) -> _Unknown:
    """What is expected of unknown items, from their probabilities and groups [q]."""
    if not unknown:
        return _Unknown()
    probabilities, groups = unknown
    expected, sd = number_unknown(probabilities)
    others = probabilities.masked_fill(groups >= 0, 0)
    first = others.topk(min(_LOOK_AT, len(others)))
    pairs = zip(first.indices.tolist(), first.values.tolist(), strict=True)
    names = tuple(items.name(row) for row, found in pairs if found > _DOUBT)
    return _Unknown(float(expected), float(sd), names)


def _answer_part(groups: Sequence[Tensor], wanted: float, part: Answered) -> Joined:
    """The work that answers items at the finest level that is probable enough; ``groups`` [k] of each level."""
    found = answer_at_least(part.probabilities[0], groups, wanted)
    return Joined(tuple(one[None].cpu() for one in found))


def _at_levels(solution: Solution, classes: Sequence[str], levels: Levels, at_least: float) -> list[LevelAnswer]:
    names, groups = [list(classes)], []
    for of_class in levels.values():
        distinct = sorted(set(of_class.values()))
        place = {name: at for at, name in enumerate(distinct)}
        groups.append(torch.tensor([place[of_class[name]] if name in of_class else -1 for name in classes]))
        names.append(distinct)
    titles, device = (CLASS_LEVEL, *levels), solution.n_iter.device
    found = solution.each(partial(_answer_part, [one.to(device) for one in groups], at_least)).values
    return [
        LevelAnswer("" if level < 0 else names[level][group], probability, "" if level < 0 else titles[level])
        for level, group, probability in zip(*(one[0].tolist() for one in found), strict=True)
    ]
