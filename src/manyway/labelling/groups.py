"""Groups of items that are labelled by themselves, such as one file per recording or deployment."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import PurePosixPath

import torch

from manyway.core import Solution, Tally
from manyway.errors import InputError, nearest
from manyway.files.scores import FILE, SOURCE, Scores
from manyway.labelling.batch import Batch
from manyway.labelling.label import solve_batch
from manyway.methods import DEFAULT_METHOD


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
    batch: Batch, groups: Sequence[Sequence[int]], method: str = DEFAULT_METHOD, *, open_set: bool = False
) -> Solution:
    """What a method finds for groups of the items of a batch, each labelled by itself.

    Parameters
    ----------
    batch : Batch
        A batch in memory.
    groups : sequence of sequence of int
        The rows of each group; every row is in one.
    method, open_set
        See ``manyway.labelling.label.solve_batch``.

    Returns
    -------
    Solution
        For all items. A class occurs if it occurs in some group.
    """
    tasks, parts = batch.tasks, []
    if tasks.pile is not None or open_set:
        raise InputError("Items that are in blocks, or may be unknown, are one batch; leave `batch_by` out.")
    for rows in groups:
        known = None if tasks.known is None else tasks.known[:, list(rows)]
        part = replace(batch, tasks=replace(tasks, query_table=tasks.query[:, list(rows)], known=known))
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
        learned={name: torch.stack([part.learned[name] for part in parts]).mean(0) for name in parts[0].learned},
    )
