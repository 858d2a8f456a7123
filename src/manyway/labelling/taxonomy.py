"""A taxonomy: to which genus, family, … each class belongs, and answers at a level that is probable enough."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.errors import InputError
from manyway.files import column, missing, one_row_per_class, read_rows, shorten

Levels = Mapping[str, Mapping[str, str]]  # level -> class -> group, finest level first


def read_taxonomy(path: str | Path) -> Levels:
    """Read a table with the column ``class`` (or ``species``) and one column per higher level, such as ``genus``.

    Parameters
    ----------
    path : path-like
        A .csv, .tsv, .parquet or .jsonl table. An empty cell says that a class has no group at a level.

    Returns
    -------
    mapping of str to mapping of str to str
        level -> class -> group. The finest level, which has most groups, comes first.

    Raises
    ------
    InputError
        If a class occurs twice, or a group lies in two groups of the next level.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "taxonomy.csv"
    >>> _ = path.write_text("class,family,genus\\nlion,cats,Panthera\\nserval,cats,Leptailurus\\n")
    >>> read_taxonomy(path)["genus"]["lion"], list(read_taxonomy(path))
    ('Panthera', ['genus', 'family'])
    """
    path = Path(path)
    names, rows = read_rows(path)
    first = column(path, names, "class", "species", "label", "class_name")
    found: dict[str, dict[str, str]] = {name: {} for at, name in enumerate(names) if at != first}
    if not found:
        raise InputError(f"{path} has the classes only; add a column per higher level, such as genus and family.")
    for _, name, cells in one_row_per_class(path, rows, first):
        for level, cell in zip(names, cells, strict=True):
            if level in found and not missing(cell):
                found[level][name] = str(cell).strip()
    levels = dict(sorted(found.items(), key=lambda level: -len(set(level[1].values()))))
    _check_nested(path, levels)
    return levels


def _check_nested(path: Path, levels: Levels) -> None:
    for finer, coarser in pairwise(levels):
        above: dict[str, str] = {}
        for name, group in levels[finer].items():
            other = levels[coarser].get(name)
            if other is not None and above.setdefault(group, other) != other:
                two = f"two groups of {coarser}, {shorten(above[group])} and {shorten(other)}"
                hint = f"correct one, or remove the column '{coarser}'"
                raise InputError(f"{path} has the {finer} {shorten(group)} in {two}; {hint}.")


class Answer(NamedTuple):
    """The answer of each item: the finest level at which a group is probable enough."""

    level: Tensor  # [q] 0: the class itself, 1: the first of the levels, …; -1: no level is probable enough
    group: Tensor  # [q] the class or group of that level
    probability: Tensor  # [q]


def answer_at_least(probabilities: Tensor, levels: Sequence[Tensor], wanted: float) -> Answer:
    """The finest answer with the wanted probability.

    Parameters
    ----------
    probabilities : Tensor of shape (q, k)
        The class probabilities.
    levels : sequence of Tensor of shape (k,)
        The number of the group that each class belongs to, finest level first; -1: it belongs to none.
    wanted : float
        The probability that an answer must have.

    Returns
    -------
    Answer
        Where no level has a group of the wanted probability, the level is -1 and group and probability are those of
        the last level with a group.

    Examples
    --------
    >>> p = torch.tensor([[0.95, 0.03, 0.02], [0.5, 0.45, 0.05], [0.4, 0.3, 0.3]])
    >>> answer_at_least(p, [torch.tensor([0, 0, 1])], 0.9).level.tolist()
    [0, 1, -1]
    """
    best = probabilities.max(-1)
    probability, group = best.values, best.indices
    level = torch.where(probability >= wanted, 0, -1)
    for number, groups in enumerate(levels, start=1):
        inside = groups >= 0
        if not bool(inside.any()):
            continue
        sums = probabilities.new_zeros(len(probabilities), int(groups.max()) + 1)
        found = sums.index_add_(1, groups[inside], probabilities[:, inside]).max(-1)
        open_ = level < 0
        probability = torch.where(open_, found.values, probability)
        group = torch.where(open_, found.indices, group)
        level = torch.where(open_ & (found.values >= wanted), number, level)
    return Answer(level, group, probability)
