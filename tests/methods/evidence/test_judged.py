"""Judged queries: distances of what is there, and how much of a query and of a group is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks

from manyway.methods.evidence.calibrate import learn_for_batch
from manyway.methods.evidence.judged import Judged
from manyway.methods.evidence.missing import BatchGaps
from manyway.methods.evidence.schedule import Parameters

GAPS = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]]) == 1


def rows_of(missing: list[list[int]]) -> Judged:
    gaps = torch.tensor([missing]).double()
    n_columns = torch.full((1, 1), gaps.shape[-1]).double()
    return Judged(placed=torch.zeros_like(gaps), missing=gaps, n_columns=n_columns, of_filled=gaps[..., :1])


def test_members_that_lack_the_same_columns_have_in_common_what_is_there():
    rows = rows_of([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0]])
    given = rows.given(rows.missing.mean(1, keepdim=True))
    assert [float(part) for part in given] == pytest.approx([0.6, 0.6])
    assert float(given.common) == pytest.approx(1)
    assert float(given.filled_alike) == pytest.approx(1)


def test_members_that_lack_other_columns_have_less_in_common():
    rows = rows_of([[1, 1, 0, 0], [0, 0, 1, 1]])
    given = rows.given(rows.missing.mean(1, keepdim=True))
    assert [float(part) for part in given] == pytest.approx([0.5, 0.25])
    assert float(given.common) == pytest.approx(0.5)
    assert float(given.filled_alike) == pytest.approx(0.5)


def test_whole_rows_are_wholly_there():
    rows = Judged.whole(torch.zeros(2, 3, 5))
    for given in (rows.single, rows.given(torch.zeros(2, 1, 1))):
        assert all((part == 1).all() for part in (*given, given.common, given.times_fewer))
        assert (given.filled_alike == 0).all()


def test_distances_are_those_of_the_cells_that_are_there():
    """In a plain metric they are sums over the columns, whatever class fills the gaps."""
    tasks = make_tasks(1, n_classes=3, n_features=4, shots=4, n_query=4)
    tasks = replace(tasks.with_rows(tasks.support, tasks.query.masked_fill(GAPS, torch.nan)), gaps=True)
    learned = learn_for_batch(tasks, Parameters(open_set=True, metric=False, scale=None)).learned
    calibration = learned.calibration.unshrunk()
    prototypes = calibration.prototypes
    placed = calibration.coordinates.place(tasks.query.nan_to_num(7.0))
    errors = calibration.within.scatter / prototypes.counts[0]
    from_middle = tasks.query[0] - calibration.coordinates.middle[0]
    apart = (from_middle.unsqueeze(1) - prototypes.offsets[0]).square()
    expected = torch.where(GAPS.unsqueeze(1), 0, apart).sum(-1) - (~GAPS).double().mean(-1, keepdim=True) * errors
    for k in range(3):
        batch = BatchGaps(scaling=learned.scaling, tasks=tasks)
        rows = batch.judged(1, placed, torch.full((1, 4), k), calibration)
        torch.testing.assert_close(rows.squared_distances(calibration)[0], expected)
        filled = (rows.placed[0] - prototypes.offsets[0, k])[GAPS]
        torch.testing.assert_close(filled, torch.zeros_like(filled), rtol=0, atol=1e-8)
