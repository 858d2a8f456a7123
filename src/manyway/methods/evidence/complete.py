"""Complete: a missing cell of an example gets a cautious guess from its class and its column.

A missing cell is NaN. Column j has the mean m_j over all examples, and x̄_kj over the n_kj numbers
of class k. Of its variance the part b_j lies between classes, and w_j = 1 − b_j within. A missing
cell of an example of class k gets

    m_j + b_j² s_kj (x̄_kj − m_j),        s_kj = n_kj / (n_kj + w_j/b_j),

where s_kj shrinks a mean of few numbers. Once b_j would be the best guess. The examples are left
out in turn to learn what a distance means, and a cell that was filled in by its class must not tell
the class: so b_j counts twice. w_j is pooled with that of the other columns, which counts as 20
numbers.

Guesses that use more were worse. With five examples per class and half of their cells missing, the
labels of whole items were right on digits, wine, breast cancer and iris in 88, 84, 83 and 82 %;
with the mean of the column in 87, 84, 85 and 72; with draws from a normal model, by expectation and
maximisation, in 77, 83, 81 and 87, and with the means of this model in fewer still on the first
three: its rows lie on planes, which the metric takes for the shape of the classes.

A column without a number in any example is left out. Tasks that are solved together have the same
columns, so that it is left out in all of them where one has no number in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.core import Tasks, has_gaps, one_hot
from manyway.errors import InputError
from manyway.methods.evidence.copies import unequal_rows
from manyway.methods.evidence.schedule import Schedule

_OTHER_COLUMNS = 20.0  # as how many numbers the variance within classes of the other columns counts
_LEAST_BETWEEN = 0.05  # of the variance of a column lies between classes
_UNKNOWN_WITHIN = 0.5  # of the variance of columns, where no class has two examples


def complete_support(tasks: Tasks, schedule: Schedule) -> Tasks:
    """The tasks with whole examples, and without columns in which no example has a number.

    Equal examples of a class count once, as in all that is learned from them (``copies``).

    Parameters
    ----------
    tasks : Tasks
        In examples, and in queries, cells may be missing.
    schedule : Schedule
        It says how near copies are.

    Returns
    -------
    Tasks
        ``gaps`` then says whether a query may lack a cell.
    """
    gaps = tasks.pile is not None or has_gaps(tasks.query)
    given = ~tasks.support.isnan()
    if bool(given.all()):
        return replace(tasks, gaps=gaps)
    numbers = given.sum(1)  # [t, d]
    usable = (numbers > 0).all(0)
    if not bool(usable.any()):
        raise InputError("No column has a number in any example; give the examples some features.")
    if not bool(usable.all()):
        tasks = _with_columns(tasks, _Selection(usable.nonzero().squeeze(1)))
        given = ~tasks.support.isnan()
    every = torch.ones_like(tasks.support_labels, dtype=torch.bool)
    whole = tasks.with_rows(_completed(tasks, every), tasks.query, gaps=gaps)
    counted = _unequal(whole, given, schedule)
    if counted is None:
        return whole
    return tasks.with_rows(_completed(tasks, counted), tasks.query, gaps=gaps)


def _unequal(whole: Tasks, given: Tensor, schedule: Schedule) -> Tensor | None:
    """[t, s] one example of each group of equal ones in a class; None: there are none.

    Examples are whole now; ``given`` [t, s, d] are the cells that were there. All count where a
    column would be left without a number.
    """
    rows = unequal_rows(whole, schedule)
    if rows is None or not bool(given[:, rows].any(1).all()):
        return None
    return torch.zeros_like(given[..., 0]).index_fill_(1, rows, True)


@dataclass(frozen=True, eq=False)
class _Selection:
    """From rows [t, n, d] to some columns of them [t, n, c]."""

    columns: Tensor  # [c]

    def __call__(self, rows: Tensor) -> Tensor:
        return rows.index_select(-1, self.columns)


def _with_columns(tasks: Tasks, selected: _Selection) -> Tasks:
    """The tasks with the selected columns only."""
    return tasks.with_rows(
        selected(tasks.support),
        selected(tasks.query),
        base_mean=None if tasks.base_mean is None else selected(tasks.base_mean),
        class_table=None if tasks.class_table is None else selected(tasks.class_table),
        pile=None if tasks.pile is None else tasks.pile.then(selected),
    )


def _completed(tasks: Tasks, counted: Tensor) -> Tensor:
    """[t, s, d] the examples, without gaps; they are guessed from those that count [t, s]."""
    every = tasks.support.double()
    rows = every.masked_fill(~counted.unsqueeze(-1), torch.nan)
    given = ~rows.isnan()
    middle = rows.nanmean(1, keepdim=True)
    centred = (rows - middle).nan_to_num(0.0)
    freedom = (given.sum(1, keepdim=True) - 1).clamp_min(1)
    variances = centred.square().sum(1, keepdim=True) / freedom
    scale = variances.sqrt().where(variances > 0, 1.0)
    members = one_hot(tasks.support_labels, tasks.n_classes, rows.dtype)
    # Constant columns say nothing about the others. Their variance may be rounding.
    largest = rows.where(given, -torch.inf).amax(1, keepdim=True)
    constant = largest == rows.where(given, torch.inf).amin(1, keepdim=True)
    counted = (given & ~constant).to(rows)
    guesses = members @ _class_guesses(centred / scale * counted, counted, members)
    return every.where(~every.isnan(), guesses * scale + middle).to(tasks.dtype)


def _class_guesses(rows: Tensor, given: Tensor, members: Tensor) -> Tensor:
    """[t, k, d] what a missing cell of each class gets, in units of the spread of its column.

    ``rows`` [t, s, d] are 0 where a cell does not count, ``given`` [t, s, d] is 1 where it does, and
    ``members`` [t, s, k] is 1 for the class of an example.
    """
    numbers = members.mT @ given
    sums = members.mT @ rows
    residuals = (rows - members @ (sums / numbers.clamp_min(1))) * given
    squares = residuals.square().sum(1, keepdim=True)
    freedom = (numbers - 1).clamp_min(0).sum(1, keepdim=True)
    of_all = squares.sum(-1, keepdim=True) / freedom.sum(-1, keepdim=True)
    of_all = of_all.nan_to_num(_UNKNOWN_WITHIN)  # 0/0 where no class has two numbers
    within = (squares + _OTHER_COLUMNS * of_all) / (freedom + _OTHER_COLUMNS)
    between = (1 - within).clamp_min(_LEAST_BETWEEN)
    # Where examples of a class do not differ at all, one without a number in a column has 0/0.
    means = (sums / (numbers + within / between)).nan_to_num(0.0)
    return between.square() * means
