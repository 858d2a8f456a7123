"""A batch to label, from features or from scores.

It is the problem that ``manyway label`` and ``manyway review`` give to a method, with the names of
its classes and items.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from manyway.core import Blocks, Pile, Tasks, in_turn, moderate, on_dask, resolve_device, sizes_of_given
from manyway.errors import InputError, nearest
from manyway.files import UNKNOWN as UNKNOWN
from manyway.files import Items, Scores, first_twice, listed, match_columns, shorten
from manyway.files.tables import plain
from manyway.labelling.taxonomy import Levels
from manyway.methods.scores.kinds import (
    SEVERAL,
    find_kind,
    log_odds,
    log_posteriors,
    only_names,
    possible_classes,
    without_prior,
)

IN_MEMORY_BYTES = 2**28  # more assignments than this are computed block by block, where the method can
AT_MOST_BYTES = 2**30  # more than this never fit
_BLOCK_BYTES = 2**26  # and eight times as many on a GPU, where small blocks wait for Python
Named = Items | Scores  # what has names and cells of its own


@dataclass(frozen=True, eq=False)
class Batch:
    """One task with the names that people know.

    Parameters
    ----------
    tasks : Tasks
        The problem.
    classes : tuple of str
        The classes, in the order of their numbers.
    items : Named
        The queries.
    n_labelled : int
        The number of scores with a known label.
    only_names : bool
        Whether scores name classes only, see ``manyway.methods.scores.kinds.only_names``.
    levels : mapping of str to mapping of str to str
        A taxonomy, where there is one; see ``manyway.labelling.taxonomy``.
    described : mapping of str to mapping of str to str
        Columns that say more about a label, such as its scientific name: column -> class -> text.
    examples : Items or None
        The examples, where items have features.
    """

    tasks: Tasks
    classes: tuple[str, ...]
    items: Named
    n_labelled: int = 0
    only_names: bool = False
    levels: Levels = field(default_factory=dict)
    described: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    examples: Items | None = None


class Place(NamedTuple):
    """Where and how to compute.

    Parameters
    ----------
    device : str or torch.device, optional
        None means CUDA where it is available, else the CPU (with ``dask``: the CPU).
    dask : str, optional
        The address of a Dask scheduler whose workers hold the items, block by block.
    in_blocks : bool, default=True
        Whether the method can read queries in blocks; if not, they must fit into memory.
    progress : callable, optional
        Called with the number of passes over the items so far.
    """

    device: str | torch.device | None = None
    dask: str | None = None
    in_blocks: bool = True
    progress: Callable[[int], None] | None = None

    @property
    def where(self) -> torch.device:
        """The device."""
        return resolve_device("cpu" if self.device is None and self.dask is not None else self.device)

    def fits(self, n_query: int, n_classes: int) -> bool:
        """Whether the assignments, and pairs of classes, can be held in memory."""
        most = IN_MEMORY_BYTES if self.in_blocks else AT_MOST_BYTES
        return self.dask is None and 4 * n_classes * max(n_query, n_classes) <= most

    @contextmanager
    def pile(self, blocks: Blocks, like: Tensor) -> Iterator[Pile]:
        """Queries in blocks, on this machine or on a cluster."""
        spread = nullcontext(in_turn(blocks, self.where)) if self.dask is None else on_dask(self.dask, blocks)
        with spread as opened:
            yield Pile.of(opened, like, self.progress)


def rows_per_block(n_numbers: int, device: torch.device) -> int:
    """How many rows of so many numbers in float32 are computed at once."""
    return max(1, _BLOCK_BYTES * (8 if device.type == "cuda" else 1) // (4 * n_numbers))


@contextmanager
def features_batch(support: Items, query: Items, place: Place, *, class_names: Items | None = None) -> Iterator[Batch]:
    """The batch of labelled examples and items. Named features of both are matched by name.

    Parameters
    ----------
    support, query : Items
        The examples and the items.
    place : Place
    class_names : Items, optional
        One vector per class, such as the text embedding of its name. Its labels are the classes; without labels, its
        item names are. Classes then need no examples.
    """
    query = match_columns(support, query)
    classes, numbers = check_items(support, query, class_names)
    device = place.where
    labels = torch.tensor(numbers, dtype=torch.int64, device=device)
    examples = support.rows(0, len(support)).to(device)
    vectors = None if class_names is None else _vectors(class_names, classes).to(device)
    if place.fits(len(query), len(classes)):
        arrays = examples[None], labels[None], query.rows(0, len(query)).to(device)[None], support.base_mean
        named = None if vectors is None else vectors[None]
        tasks = Tasks.from_arrays(*arrays, class_features=named)
        yield Batch(tasks, tuple(classes), query, examples=support)
        return
    # The largest example or class name decides how features of an extreme magnitude are rescaled.
    samples = examples if vectors is None else torch.cat([examples, vectors.to(examples)])
    largest = samples[sizes_of_given(samples).argmax()].cpu().view(1, 1, -1)
    size = rows_per_block(len(classes) + query.n_features, device)

    def read() -> Iterator[Tensor]:
        for first in range(0, len(query), size):
            _, block, _ = moderate(largest, query.rows(first, first + size)[None], first=first)
            assert block is not None
            yield block[0]

    with place.pile(read, examples) as pile:
        tasks = Tasks.from_pile(
            examples, labels, pile, support.base_mean, class_features=vectors, gaps=query.gaps
        )
        yield Batch(tasks, tuple(classes), query, examples=support)


@contextmanager
def scores_batch(
    scores: Scores,
    place: Place,
    *,
    examples: Scores | None = None,
    labels: Mapping[str, str] | None = None,
    kind: str | None = None,
    class_prior: Mapping[str, float] | None = None,
    levels: Levels | None = None,
    expected: Mapping[str, float] | None = None,
) -> Iterator[Batch]:
    """The batch of a classifier's scores.

    Parameters
    ----------
    scores : Scores
        The scores of the items. Labels that are known are kept.
    place : Place
    examples : Scores, optional
        Scores of other items, all with labels, on which the scores are calibrated.
    labels : mapping of str to str, optional
        Labels that are known for some of the items, by the names of the items.
    kind : str, optional
        What the scores are; see ``manyway.methods.scores.kinds.log_posteriors``. By default the format or the
        values say it. "independent": each class has a yes-or-no score of its own, and several may be right.
    class_prior : mapping of str to float, optional
        The possible classes and how frequent they were among the classifier's training data.
    levels : mapping of str to mapping of str to str, optional
        A taxonomy. By default that of the scores.
    expected : mapping of str to float, optional
        Classes that are expected, and how likely each is. By default all are equally likely.
    """
    classes, device = _classes(scores, class_prior), place.where
    prior = torch.tensor([1.0 if class_prior is None else class_prior[name] for name in classes])
    place_of = {name: number for number, name in enumerate(classes)}
    known = _known_scores(scores, labels, place_of).to(device)
    rows, truth = _posteriors(scores, classes, kind, prior), None
    support = rows(0, 0).to(device)
    if examples is not None:
        truth = _known_scores(examples, None, place_of).to(device)
        if bool((truth < 0).any()):
            bare = examples.name(int((truth < 0).nonzero()[0]))
            raise InputError(f"The labelled item {shorten(bare)} has no label; give one to every item there.")
        support = _posteriors(examples, classes, kind, prior)(0, len(examples)).to(device)
    given: dict[str, Any] = {"support": support[None], "known": known[None], "several": kind == SEVERAL}
    given["support_labels"] = None if truth is None else truth[None]
    if expected:
        given["expectation"] = torch.tensor([expected.get(name, 0.0) for name in classes], device=device)
    n_labelled = int((known >= 0).sum()) + len(support)
    taxonomy = scores.levels if levels is None else levels
    batch_of = partial(
        Batch,
        classes=classes,
        items=scores,
        n_labelled=n_labelled,
        only_names=only_names(torch.from_numpy(scores.values)),
        levels=taxonomy,
        described=scores.described,
    )
    if place.fits(len(scores), 0):
        tasks = Tasks.from_scores(rows(0, len(scores)).to(device)[None], **given)
        yield batch_of(tasks)
        return
    size = rows_per_block(len(classes), device)

    def read() -> Iterator[Tensor]:
        yield from (rows(first, first + size) for first in range(0, len(scores), size))

    with place.pile(read, support) as pile:
        yield batch_of(Tasks.from_scores(support[None, :0], pile=pile, **given))


def _posteriors(scores: Scores, names: Sequence[str], kind: str | None, prior: Tensor) -> Callable[[int, int], Tensor]:
    """Reads rows of scores as log-posteriors for equally frequent classes."""
    values = torch.from_numpy(scores.with_classes(names).values)
    kind = kind or scores.kind

    def place(row: int) -> str:
        return f"the item {shorten(scores.name(row))}"

    if kind == "auto":  # all rows together say what the scores are
        kind = find_kind(values, place)
    possible = possible_classes(values, kind)  # and which classes can occur

    def rows(first: int, end: int) -> Tensor:
        if first == end:
            return values[:0].to(torch.float32 if values.dtype == torch.float16 else values.dtype)
        if kind == SEVERAL:
            return log_odds(values[first:end], lambda row: place(first + row))
        rows_of_block = values[first:end]
        found = log_posteriors(rows_of_block, kind, lambda row: place(first + row), possible=possible)
        return without_prior(found, prior)

    return rows


def check_items(support: Items, query: Items, class_names: Items | None = None) -> tuple[list[str], list[int]]:
    """The classes, sorted, and the number of each example's class; refuse what cannot be labelled."""
    if len(support) == 0 and class_names is None:
        raise InputError("There is no labelled example; the examples have no rows.")
    if support.labels is None:
        hint = "name their column with `label_column`, or a file with `labels`"
        raise InputError(f"The labelled examples (they come first, the items second) have no labels; {hint}.")
    if len(query) == 0:
        raise InputError("There is no item to label; the items have no rows.")
    for what, known in (("class names", class_names), ("labelled examples", support)):
        if known is not None and known.n_features != query.n_features:
            counts = f"have {known.n_features} features and the items {query.n_features}"
            raise InputError(f"The {what} {counts}; use the same encoder for both.")
    classes = sorted(set(support.labels if class_names is None else _names(class_names)))
    nameless = sorted(set(support.labels) - set(classes))
    if nameless:
        raise InputError(f"The class '{nameless[0]}' of the examples is not among the class names; add it there.")
    if len(classes) < 2:
        one = f"All labelled examples are of class '{classes[0]}'" if class_names is None else "One class has a name"
        raise InputError(f"{one}; there is nothing to choose between.")
    number = {name: k for k, name in enumerate(classes)}
    return classes, [number[name] for name in support.labels]


def _vectors(class_names: Items, classes: Sequence[str]) -> Tensor:
    """[k, d] the vectors of the classes, in their order."""
    place = {name: row for row, name in enumerate(_names(class_names))}
    return class_names.rows(0, len(class_names))[[place[name] for name in classes]]


def _names(class_names: Items) -> list[str]:
    """The class of each vector."""
    names = class_names.labels if class_names.labels is not None else class_names.names
    if names is None:
        raise InputError("The vectors of class names do not say their classes; add a column or an array of labels.")
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"The class names have '{twice}' twice; give each class one vector.")
    return list(names)


def _classes(scores: Scores, class_prior: Mapping[str, float] | None) -> tuple[str, ...]:
    """The possible classes: those of the prior, which must contain those of the scores."""
    if class_prior is None:
        return scores.classes
    lacking = [name for name in scores.classes if name not in class_prior]
    if lacking:
        raise InputError(f"The class prior lacks the classes {listed(lacking)} of the scores; add them.")
    return tuple(class_prior)


def _known_scores(scores: Scores, labels: Mapping[str, str] | None, place_of: Mapping[str, int]) -> Tensor:
    """[q] the places of the labels that are known, -1 for the other items."""
    given: dict[str, Any] = dict(labels or {})
    unknown = given.keys() - set(scores.names)
    if unknown:
        _not_among("item", min(unknown), scores.names)
    found = []
    for row, name in enumerate(scores.names):
        label = given.get(name, None if scores.labels is None else scores.labels[row])
        if label not in (None, UNKNOWN) and label not in place_of:
            _not_among("class", label, list(place_of))
        found.append(place_of.get(label or "", -1))
    return torch.tensor(found, dtype=torch.int64)


def _not_among(what: str, name: str, names: Sequence[str]) -> NoReturn:
    alike = [each for each in names if plain(each) == plain(name)]  # many are not compared letter by letter
    hint = nearest(name, alike or names) if alike or len(names) <= 50 else "check its spelling."
    raise InputError(f"The labels have the {what} {shorten(name)}, which the scores lack; {hint}")
