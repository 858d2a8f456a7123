"""``Tasks``: what goes into a solver.

Axes: ``t`` tasks, ``s`` support samples, ``q`` queries, ``k`` classes, ``d`` features,
``n`` rows of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from manyway.core.arguments import refuse_type
from manyway.core.blocks import Pile
from manyway.core.validation import as_features, as_labels, has_gaps, moderate, shaped
from manyway.errors import InputError

# What has a row for every task.
_PER_TASK = ["support_index", "support_labels", "query_index", "query_labels", "class_ids"]
_PER_TASK += ["factor", "centre", "unknown_labels", "stream", "known"]
_NUMBERS_AT_ONCE = 2**26  # entries of the largest array of tasks that are solved together


@dataclass(frozen=True, eq=False, repr=False)
class Tasks:
    """A batch of tasks: which rows of which feature tables are the support and the queries.

    Use ``Tasks.from_arrays`` for arrays and ``sample_tasks`` for a ``FeatureSet``; they check their
    input, and this constructor does not. With an index, a table is [n, d] and rows are gathered
    when they are used; without one the table is the batch itself, [t, s, d] or [t, q, d].

    Parameters
    ----------
    support_table : Tensor of shape [n, d], or [t, s, d] where ``support_index`` is None
    support_index : Tensor of shape [t, s] or None
    support_labels : Tensor of shape [t, s]
        From 0 to k-1; every class of every task has at least one sample,
        except where there are class features.
    query_table : Tensor of shape [n, d], or [t, q, d] where ``query_index`` is None
    query_index : Tensor of shape [t, q] or None
    n_classes : int
        K, the number of possible classes.
    query_labels : Tensor of shape [t, q], optional
        The true labels, for scoring; -1 for queries of none of the classes. No solver reads them.
    class_ids : Tensor of shape [t, k], optional
        The class of the FeatureSet behind each label of the task. None: 0 to k-1.
    base_mean : Tensor of shape [d], optional
        The mean feature of the encoder's base classes; the transform ``cl2`` subtracts it.
    factor : Tensor of shape [t, 1, d], optional
        Multiplies every feature of a task. It is applied when the features are gathered.
    centre : Tensor of shape [t, 1, d], optional
        Support rows are gathered less this and with unit length, by fused code: the rows of many
        tasks take more time to write than to compute. Their labels are the same in all tasks.
    class_table : Tensor of shape [n, d], [t, k, d] or [1, k, d], optional
        One vector per class, in the space of the items. [n, d] holds one row per class of the
        FeatureSet, gathered by ``class_ids``; [1, k, d] serves all tasks.
    unknown_labels : Tensor of shape [t, q], optional
        For queries of none of the classes, a number per unknown class that they come from; -1 for
        the others. For scoring; no solver reads them.
    stream : Tensor of shape [t], optional
        The number of the stream that the queries of a task are a batch of. The batches of a stream
        follow one another, in the order in which they arrive. None: the tasks are independent.
    known : Tensor of shape [t, q], optional
        The classes of queries whose labels are known, -1 for the others.
        For methods with ``Method.takes_known``.
    pile : Pile, optional
        The queries of one large task, which are read in blocks. ``query`` then has no rows.
    scores : bool, default=False
        Whether rows are the log-probabilities of a classifier, one column per class, instead of
        features. The support then holds labelled scores, and a class needs none.
    expectation : Tensor of shape [k], optional
        How likely each class is to occur, in any unit; 0: it is not on the list. None:
        all are equally likely. For scores.
    several : bool, default=False
        Whether an item may have several classes:
        rows of scores are then the log-odds of each class by itself.
    earlier : object, optional
        What earlier batches of the same streams taught: ``Solution.memory`` of the batch before.
    gaps : bool, default=False
        Whether features of examples or queries may be missing: NaN.
        For methods with ``Method.takes_gaps``.

    Attributes
    ----------
    support, query : Tensor of shape [t, s, d] and [t, q, d]
        The features, gathered on each access.
    class_features : Tensor of shape [t, k, d] or None
        One vector per class, such as the text embedding of its name, in the space of the items.
        Feature transforms treat them like support and query. Only methods with
        ``Method.class_features`` use them.
    classes : Tensor of shape [t, k]
        The class of the FeatureSet behind each label of the task.
    n_tasks, n_support, n_query, n_features : int
        The sizes of the axes t, s, q and d.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [4.0]]], [[0, 1]], [[[1.0], [3.0], [3.5]]])
    >>> tasks
    Tasks(n_tasks=1, n_classes=2, n_support=2, n_query=3, n_features=1, dtype=float32, device=cpu)
    >>> tasks.query.shape
    torch.Size([1, 3, 1])
    """

    support_table: Tensor
    support_index: Tensor | None
    support_labels: Tensor
    query_table: Tensor
    query_index: Tensor | None
    n_classes: int
    query_labels: Tensor | None = None
    class_ids: Tensor | None = None
    base_mean: Tensor | None = None
    factor: Tensor | None = None
    centre: Tensor | None = None
    class_table: Tensor | None = None
    unknown_labels: Tensor | None = None
    stream: Tensor | None = None
    known: Tensor | None = None
    pile: Pile | None = None
    scores: bool = False
    expectation: Tensor | None = None
    several: bool = False
    earlier: Any = None
    gaps: bool = False

    @staticmethod
    def from_arrays(
        support: Any,
        support_labels: Any,
        query: Any,
        base_mean: Any = None,
        *,
        query_labels: Any = None,
        n_classes: int | None = None,
        class_features: Any = None,
        known: Any = None,
    ) -> Tasks:
        """Tasks from dense arrays (NumPy or torch). Every task has the same number of samples, queries and classes.

        Features of an extreme magnitude are multiplied by a power of two;
        see ``manyway.core.validation.moderate``.

        Parameters
        ----------
        support : array of shape [t, s, d]
            The features of the labelled examples. NaN: the feature is missing.
        support_labels : array of shape [t, s]
            Their classes, integers from 0 to K-1.
        query : array of shape [t, q, d]
            The features of the queries; NaN as in ``support``.
        base_mean : array of shape [d], optional
            The mean feature of the encoder's base classes; the transform ``cl2`` subtracts it.
        query_labels : array of shape [t, q], optional
            The true classes of the queries, for scoring; -1 for queries of none of the classes.
        n_classes : int, optional
            K. None: the number of class features, and
            without them the largest support label plus one.
        class_features : array of shape [t, k, d] or [1, k, d], optional
            One vector per class, in the space of the items; [1, k, d] serves all tasks. With them a
            class may have no example, and the support may be empty ([t, 0, d]), for the methods
            that use class features.
        known : array of shape [t, q], optional
            The classes of queries whose labels are known, -1 for the others.

        Returns
        -------
        Tasks

        Examples
        --------
        >>> tasks = Tasks.from_arrays([[[0.0], [4.0]]], [[0, 1]], [[[1.0], [3.0], [3.5]]])
        >>> tasks.n_tasks, tasks.n_classes, tuple(tasks.query.shape)
        (1, 2, (1, 3, 1))
        """
        query = as_features(query, "query", gaps=True)
        if query.ndim > 1 and (query.shape[0] == 0 or query.shape[1] == 0):
            raise InputError(
                "There is no query to label; give at least one task with at least one query."
            )
        refuse_type("Tasks", "n_classes", n_classes, int | None)
        tasks = _checked(
            support,
            support_labels,
            query,
            base_mean=base_mean,
            n_classes=n_classes,
            class_features=class_features,
        ).with_known(known)
        if query_labels is None:
            return tasks
        truth = as_labels(query_labels, "query_labels").to(tasks.device)
        shaped(truth, query.shape[:2], "query_labels", "give one label per query")
        return replace(tasks, query_labels=truth)

    @staticmethod
    def from_support(
        support: Any, support_labels: Any, base_mean: Any = None, *, class_features: Any = None
    ) -> Tasks:
        """Tasks for a preparation that needs no queries; the first example (or class) stands in for them.

        Parameters
        ----------
        support : array of shape [t, s, d]
        support_labels : array of shape [t, s]
        base_mean : array of shape [d], optional
        class_features : array of shape [t, k, d] or [1, k, d], optional

        Returns
        -------
        Tasks
            With the same support as ``from_arrays`` makes of these arrays with any queries.

        Examples
        --------
        >>> Tasks.from_support([[[0.0], [4.0]]], [[0, 1]]).support.flatten().tolist()
        [0.0, 4.0]
        """
        return _checked(
            support, support_labels, None, base_mean=base_mean, class_features=class_features
        )

    @staticmethod
    def from_pile(
        support: Any,
        support_labels: Any,
        pile: Pile,
        base_mean: Any = None,
        *,
        class_features: Any = None,
        gaps: bool = False,
    ) -> Tasks:
        """One task whose queries are read in blocks.

        Parameters
        ----------
        support : array of shape [s, d]
        support_labels : array of shape [s]
        pile : Pile
            The queries.
        base_mean : array of shape [d], optional
        class_features : array of shape [k, d], optional
        gaps : bool, default=False
            Whether features of the queries may be missing: NaN.

        Returns
        -------
        Tasks
        """
        vectors = None if class_features is None else class_features[None]
        tasks = _checked(
            support[None], support_labels[None], None, base_mean=base_mean, class_features=vectors
        )
        return replace(tasks, query_table=tasks.query[:, :0], pile=pile, gaps=tasks.gaps or gaps)

    @staticmethod
    def from_scores(
        scores: Tensor,
        *,
        support: Tensor | None = None,
        support_labels: Tensor | None = None,
        known: Any = None,
        pile: Pile | None = None,
        expectation: Tensor | None = None,
        several: bool = False,
    ) -> Tasks:
        """Tasks whose queries are rows of log-probabilities of a classifier, one column per class.

        Parameters
        ----------
        scores : Tensor of shape [t, q, k]
            The scores of the queries; [1, 0, k] with a ``pile``.
        support : Tensor of shape [t, s, k], optional
            Scores of other items, whose labels are known.
        support_labels : Tensor of shape [t, s], optional
            Their classes.
        known : array of shape [t, q], optional
            The classes of queries whose labels are known, -1 for the others.
        pile : Pile, optional
            The scores of one large task, in blocks.
        expectation : Tensor of shape [k], optional
            How likely each class is to occur, in any unit; 0: it is not on the list.
        several : bool, default=False
            Whether an item may have several classes:
            ``scores`` are then the log-odds of each class by itself.

        Returns
        -------
        Tasks
        """
        rows = scores[:, :0] if support is None else support
        if support_labels is None:
            support_labels = rows.new_zeros(rows.shape[:2], dtype=torch.int64)
        if expectation is not None:
            _check_expectation(expectation, scores.shape[-1])
        tasks = Tasks(
            support_table=rows,
            support_index=None,
            support_labels=support_labels,
            query_table=scores,
            query_index=None,
            n_classes=scores.shape[-1],
            scores=True,
            pile=pile,
            several=several,
            expectation=expectation,
        )
        return tasks.with_known(known)

    def with_known(self, known: Any) -> Tasks:
        """The same tasks with labels that are known for some queries.

        Parameters
        ----------
        known : array of shape [t, q] or None
            The classes of these queries, -1 for the others. None leaves the tasks as they are.

        Returns
        -------
        Tasks
        """
        if known is None:
            return self
        hint = (
            f"give a class from 0 to {self.n_classes - 1}, or -1 where it is not known, "
            "for each query"
        )
        labels = shaped(
            as_labels(known, "known").to(self.device), (self.n_tasks, self.n_query), "known", hint
        )
        wrong = (labels < -1) | (labels >= self.n_classes)
        if bool(wrong.any()):
            task, row = wrong.nonzero()[0].tolist()
            raise InputError(
                f"known has the class {int(labels[task, row])} for query {row} of task "
                f"{task}; {hint}."
            )
        return replace(self, known=labels if bool((labels >= 0).any()) else None)

    def with_rows(self, support: Tensor, query: Tensor, **more: Any) -> Tasks:
        """The same tasks with these rows in the place of all tables and factors.

        Parameters
        ----------
        support : Tensor of shape [t, s, d]
        query : Tensor of shape [t, q, d]
        **more
            Other attributes to be replaced.

        Returns
        -------
        Tasks
        """
        rows: dict[str, Any] = {"support_table": support, "query_table": query}
        return replace(
            self, support_index=None, query_index=None, factor=None, centre=None, **rows, **more
        )

    def scores_as_features(self, *, class_features: bool) -> Tasks:
        """Scores as features, for methods that have no better use for them: probabilities.

        Parameters
        ----------
        class_features : bool
            Whether each class is also known by what a perfect classifier would answer for it.

        Returns
        -------
        Tasks
        """
        rows = None
        if class_features:
            rows = torch.eye(self.n_classes, dtype=self.dtype, device=self.device)[None]
        pile = None if self.pile is None else self.pile.then(torch.exp)
        support = self.support.exp()
        query = self.query.exp()
        return replace(
            self,
            support_table=support,
            query_table=query,
            class_table=rows,
            pile=pile,
            scores=False,
        )

    @property
    def expected(self) -> Tensor:
        """[k] how likely each class is to occur."""
        if self.expectation is None:
            return torch.ones(self.n_classes, device=self.device)
        return self.expectation

    @property
    def known_labels(self) -> Tensor:
        """[t, q] the classes of queries whose labels are known, -1 for the others."""
        none = torch.full((1, 1), -1, device=self.device).expand(self.n_tasks, self.n_query)
        return none if self.known is None else self.known

    @property
    def any_known(self) -> bool:
        """Whether the label of a query is known."""
        return self.known is not None

    @property
    def n_batches(self) -> int:
        """The number of batches of each stream; 1 where tasks are no batches of streams."""
        if self.stream is None:
            return 1
        sizes = torch.unique_consecutive(self.stream, return_counts=True)[1]
        if bool((sizes != sizes[0]).any()):
            raise InputError(
                "The streams have different numbers of batches; "
                "solve streams of one length at a time."
            )
        return int(sizes[0])

    @property
    def classes(self) -> Tensor:
        """[t, k] the class of the FeatureSet behind each label of the task."""
        if self.class_ids is not None:
            return self.class_ids
        return torch.arange(self.n_classes, device=self.device).expand(self.n_tasks, -1)

    @property
    def n_tasks(self) -> int:
        """The number of tasks, t."""
        return (self.query_table if self.query_index is None else self.query_index).shape[0]

    @property
    def n_query(self) -> int:
        """The number of queries per task, q."""
        if self.pile is not None:
            return self.pile.n_rows
        return (self.query_table if self.query_index is None else self.query_index).shape[1]

    @property
    def n_support(self) -> int:
        """The number of support samples per task, s."""
        return self.support_labels.shape[1]

    @property
    def n_features(self) -> int:
        """The number of features, d."""
        return self.query_table.shape[-1]

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.query_table.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features."""
        return self.query_table.dtype

    @property
    def support(self) -> Tensor:
        """[t, s, d], gathered now."""
        if self.centre is not None:
            from manyway.core.kernels.rows import gathered

            return gathered(self.support_table, self.support_rows, self.centre)
        return _gather(self.support_table, self.support_index, self.factor)

    @property
    def support_rows(self) -> Tensor:
        """[t, s] the row of each sample in the table.

        In all rows of it where the table has an axis of tasks.
        """
        every = torch.arange(self.n_tasks * self.n_support, device=self.device).view(
            self.n_tasks, -1
        )
        return every if self.support_index is None else self.support_index

    def some_support(self, which: Tensor) -> Tensor:
        """Some samples of the support, gathered now.

        Parameters
        ----------
        which : Tensor
            [t, n] their places in the support of each task.

        Returns
        -------
        Tensor
            [t, n, d]
        """
        table = self.support_table.reshape(-1, self.n_features)
        rows = self.support_rows.gather(1, which)
        return replace(self, support_table=table, support_index=rows).support

    @property
    def query(self) -> Tensor:
        """[t, q, d], gathered now."""
        return _gather(self.query_table, self.query_index, self.factor)

    @property
    def class_features(self) -> Tensor | None:
        """[t, k, d], gathered now; None where the classes have none."""
        table = self.class_table
        if table is None:
            return None
        if table.ndim == 2 and self.class_ids is not None:
            return _gather(table, self.class_ids, self.factor)
        return _gather(table.expand(self.n_tasks, -1, -1), None, self.factor)

    @property
    def shared_support(self) -> bool:
        """Whether all tasks have one and the same support, whose statistics serve all.

        Its index is then expanded.
        """
        index = self.support_index
        return (
            index is not None
            and index.stride(0) == self.support_labels.stride(0) == 0
            and self.centre is None
        )

    @property
    def shared_classes(self) -> bool:
        """Whether all tasks have one and the same class features."""
        table = self.class_table
        return table is not None and (
            self.class_ids is None if table.ndim == 2 else len(table) == 1
        )

    def __len__(self) -> int:
        return self.n_tasks

    def __repr__(self) -> str:
        names = ("n_tasks", "n_classes", "n_support", "n_query", "n_features")
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return (
            f"Tasks({sizes}, dtype={str(self.dtype).removeprefix('torch.')}, device={self.device})"
        )

    def __getitem__(self, which: slice | Tensor) -> Tasks:
        """The tasks of a slice, or those with these numbers [n], as Tasks."""
        table = self.class_table
        own = [name for name in _PER_TASK if getattr(self, name) is not None]
        if self.support_index is None:
            own.append("support_table")
        if self.query_index is None:
            own.append("query_table")
        if table is not None and table.ndim == 3 and len(table) > 1:
            own.append("class_table")
        parts: dict[str, Any] = {name: getattr(self, name)[which] for name in own}
        return replace(self, **parts)

    def in_parts(self, numbers_per_task: int) -> Iterator[Tasks]:
        """The tasks in parts, for a solver that keeps many numbers per task, such as one for each pair of items.

        Parameters
        ----------
        numbers_per_task : int
            How many entries the largest array of one task has.

        Yields
        ------
        Tasks
            Some tasks, at least one.
        """
        size = max(1, _NUMBERS_AT_ONCE // numbers_per_task)
        for first in range(0, self.n_tasks, size):
            yield self[first : first + size]

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Tasks:
        """The same tasks on another device, or in another precision.

        Parameters
        ----------
        device : torch.device or str, optional
        dtype : torch.dtype, optional

        Returns
        -------
        Tasks
        """

        def move(value: Tensor) -> Tensor:
            # A row shared by all tasks stays shared: a plain move would write it out once per task.
            shared = value.ndim > 1 and value.stride(0) == 0
            rows = value[:1] if shared else value
            rows = rows.to(device=device, dtype=dtype if value.is_floating_point() else None)
            return rows.expand(value.shape) if shared else rows

        one_table = self.query_table is self.support_table
        held = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        held = {
            name: value for name, value in held.items() if not (one_table and name == "query_table")
        }
        moved: dict[str, Any] = {name: move(value) for name, value in held.items()}
        return replace(self, **{"query_table": moved["support_table"], **moved})


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """What was learned, with every tensor and batch of tasks in it changed.

    Dataclasses and tuples are followed.
    """
    if isinstance(value, Tensor | Tasks):
        return change(value)
    if type(value) is tuple:
        return tuple(mapped(one, change) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(
        value, **{one.name: mapped(getattr(value, one.name), change) for one in fields(value)}
    )


def _check_expectation(expectation: Tensor, n_classes: int) -> None:
    """Refuse what is not how likely each class is to occur."""
    bad = expectation.isnan() | (expectation < 0)
    possible = expectation > 0
    if expectation.shape != (n_classes,) or bool(bad.any()) or not bool(possible.any()):
        raise InputError(
            f"The expectations of {n_classes} classes must be that many numbers, "
            "none negative and at least one above 0."
        )


def _checked(
    support: Any,
    support_labels: Any,
    query: Tensor | None,
    *,
    base_mean: Any,
    n_classes: int | None = None,
    class_features: Any,
) -> Tasks:
    """Dense tasks whose parts fit together.

    Without queries, the first example or class stands in for them.
    """
    support = as_features(support, "support", gaps=True)
    labels = as_labels(support_labels, "support_labels").to(support.device)
    _check_axes(support, query)
    shaped(labels, support.shape[:2], "support_labels", "give one label for each sample")
    if query is not None:
        wanted = len(support), query.shape[1], support.shape[2]
        hint = "give as many tasks as the support has, with features of the same encoder"
        query = shaped(query, wanted, "query", hint).to(support.device)
    if class_features is not None:
        class_features = _check_class_features(class_features, support, n_classes)
        n_classes = class_features.shape[1]
    n_classes = _check_classes(labels, n_classes, all_have_samples=class_features is None)
    if base_mean is not None:
        base_mean = as_features(base_mean, "base_mean").to(support.device)
        hint = "give the mean of features of the same encoder"
        shaped(base_mean, support.shape[2:], "base_mean", hint)
    n_support = support.shape[1]
    known = support
    # Class features are known before the queries, as the support is, and get the same factor.
    if class_features is not None:
        known = torch.cat([support, class_features.expand(len(support), -1, -1)], 1)
    scaled, query, base_mean = moderate(known, query, base_mean)
    if class_features is None:
        support = scaled
    elif scaled is not known:
        support = scaled[:, :n_support]
        class_features = scaled[:, n_support:]
    return Tasks(
        support_table=support,
        support_index=None,
        support_labels=labels,
        query_table=scaled[:, :1] if query is None else query.to(support.dtype),
        query_index=None,
        n_classes=n_classes,
        base_mean=None if base_mean is None else base_mean.to(support.dtype),
        class_table=class_features,
        gaps=has_gaps(support) or (query is not None and has_gaps(query)),
    )


def _check_axes(support: Tensor, query: Tensor | None) -> None:
    given = [value for value in (support, query) if value is not None]
    if all(value.ndim == 3 for value in given):
        return
    shapes = " and ".join(str(tuple(value.shape)) for value in given)
    raise InputError(
        f"support and query must have three axes (task, sample, feature), not {shapes}; "
        "for a single task use support[None] and query[None]."
    )


def _check_class_features(values: Any, support: Tensor, n_classes: int | None) -> Tensor:
    """Class features [t, k, d] or [1, k, d] that fit a support [t, s, d] and its classes."""
    found = as_features(values, "class_features").to(support)
    if found.ndim != 3 or len(found) not in (1, len(support)):
        axes = (
            f"three axes (task, class, feature), with {len(support)} tasks, or one that serves all"
        )
        raise InputError(f"class_features has shape {tuple(found.shape)}; it must have {axes}.")
    wanted = len(found), n_classes or found.shape[1], support.shape[2]
    return shaped(
        found,
        wanted,
        "class_features",
        "give one row per class, of the same encoder as the support",
    )


def _check_classes(labels: Tensor, n_classes: int | None, *, all_have_samples: bool) -> int:
    """The number of classes of support labels [t, s].

    Each may have to have a sample in every task.
    """
    if labels.numel() == 0 and not all_have_samples and n_classes:
        return n_classes
    if labels.numel() == 0 or int(labels.min()) < 0:
        raise InputError(
            "support_labels must be integers from 0 to K-1, with at least one sample per class."
        )
    largest = int(labels.max())
    # a NumPy integer is none that every function of torch takes
    n_classes = largest + 1 if n_classes is None else int(n_classes)
    if n_classes <= largest:
        raise InputError(
            f"n_classes is {n_classes} but support_labels has a label {largest}; "
            "labels go from 0 to K-1."
        )
    bare = class_without_sample(labels, n_classes) if all_have_samples else None
    if bare is not None:
        raise InputError(
            f"Class {bare[1]} has no example in the support of task {bare[0]}; "
            "add one or leave it out."
        )
    return n_classes


def class_without_sample(labels: Tensor, n_classes: int) -> tuple[int, int] | None:
    """The first task and class of support labels [t, s] where a class has no sample.

    None where all have one.

    >>> class_without_sample(torch.tensor([[0, 1, 2], [0, 2, 2]]), 3)
    (1, 1)
    """
    # of more classes than samples, one of the first has no sample
    known = min(n_classes, labels.shape[1] + 1)
    present = torch.zeros(labels.shape[0], known, dtype=torch.bool, device=labels.device)
    present.scatter_(1, labels.clamp_max(known - 1), True)
    if known < n_classes:
        present[:, -1] = False
    if bool(present.all()):
        return None
    task, label = (~present).nonzero()[0].tolist()
    return task, label


def _gather(table: Tensor, index: Tensor | None, factor: Tensor | None) -> Tensor:
    if index is None:
        return table if factor is None else table * factor
    rows = table.index_select(0, index.reshape(-1)).view(*index.shape, table.shape[-1])
    return rows if factor is None else rows.mul_(factor)
