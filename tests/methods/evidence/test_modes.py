"""Every mode of evidence goes with every other, in memory and in blocks, with the same answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyway import Tasks, solve
from manyway.core.blocks import Pile, in_turn

SCALES = ("rcl2", "cl2", "tcl2", "l2", "range", "power", "white", None)


@dataclass(frozen=True)
class Mode:
    """What is given, and what is asked."""

    seed: int
    shots: int  # 0: classes have names alone
    names: bool
    known: bool
    unknown: bool
    stream: bool
    scores: bool
    scale: str | None
    blocks: int  # queries per block

    @property
    def options(self) -> dict[str, object]:
        return {"open_set": self.unknown} | ({} if self.scores else {"scale": self.scale})


def problem(mode: Mode) -> tuple[Tasks, Tasks]:
    """A task in memory, and the same one in blocks."""
    g = torch.Generator().manual_seed(mode.seed)
    n_classes, n_query, d, shots = 8, 28, 12, mode.shots
    centres = 2 * torch.randn(n_classes + 2, d, generator=g, dtype=torch.float64)
    truth = torch.randint(0, 3, (n_query,), generator=g)
    if mode.unknown:
        truth[::4] = n_classes  # a class without examples
    query = centres[truth] + torch.randn(n_query, d, generator=g, dtype=torch.float64)
    known = torch.full((n_query,), -1)
    if mode.known:
        known[::7] = torch.where(truth[::7] < n_classes, truth[::7], -1)
    read = in_turn(lambda: iter(rows.split(mode.blocks)), torch.device("cpu"))
    if mode.scores:
        rows = -0.5 * torch.cdist(query, centres[:n_classes]).square().log_softmax(-1)
        rows = rows.log_softmax(-1)
        pile = Pile.of(read, rows)
        return (
            Tasks.from_scores(rows[None], known=known[None]),
            Tasks.from_scores(rows[None, :0], known=known[None], pile=pile),
        )
    rows = query
    labels = torch.arange(n_classes).repeat_interleave(shots)
    support = centres[labels] + torch.randn(len(labels), d, generator=g, dtype=torch.float64)
    names = (
        centres[:n_classes] + 0.5 * torch.randn(n_classes, d, generator=g, dtype=torch.float64) if mode.names else None
    )
    memory = Tasks.from_arrays(
        support[None],
        labels[None],
        query[None],
        class_features=None if names is None else names[None],
        known=known[None],
    )
    return memory, Tasks.from_pile(support, labels, Pile.of(read, query), class_features=names).with_known(known[None])


modes = st.builds(
    Mode,
    seed=st.integers(0, 10_000),
    shots=st.integers(1, 4),
    names=st.booleans(),
    known=st.booleans(),
    unknown=st.booleans(),
    stream=st.booleans(),
    scores=st.booleans(),
    scale=st.sampled_from(SCALES),
    blocks=st.sampled_from([7, 28]),
)


def check(mode: Mode) -> None:
    memory, blocks = problem(mode)
    if mode.stream:
        first = solve("evidence", replace(memory, earlier=(), known=None), **mode.options)
        memory, blocks = (replace(tasks, earlier=first.memory) for tasks in (memory, blocks))
    one, other = (solve("evidence", tasks, **mode.options) for tasks in (memory, blocks))
    torch.testing.assert_close(other.probabilities, one.probabilities, rtol=0, atol=2e-3)
    sure = one.outcomes.topk(2).values.diff().abs().squeeze(-1) > 5e-3
    assert torch.equal(other.labels[sure], one.labels[sure])
    torch.testing.assert_close(other.presence, one.presence, rtol=0, atol=5e-3)
    torch.testing.assert_close(other.n_present, one.n_present, rtol=0, atol=5e-2)
    if mode.known:
        given = memory.known_labels >= 0
        assert torch.equal(one.labels[given], memory.known_labels[given])
        assert torch.equal(other.labels[given], memory.known_labels[given])
    if mode.unknown:
        torch.testing.assert_close(other.unknown, one.unknown, rtol=0, atol=2e-3)
        assert torch.equal(other.unknown_groups[sure], one.unknown_groups[sure])


@pytest.mark.slow
@settings(deadline=None, max_examples=20, derandomize=True, database=None)
@given(modes)
def test_any_combination_gives_the_same_answers_in_blocks_and_in_memory(mode):
    check(mode)


@pytest.mark.parametrize(
    ("scale", "unknown"), [("rcl2", True), *((scale, i % 2 == 1) for i, scale in enumerate(SCALES) if scale != "white")]
)
def test_names_alone_give_the_same_answers_in_blocks_and_in_memory(scale, unknown):
    check(Mode(3, 0, True, unknown, unknown, False, False, scale, 12))


@pytest.mark.parametrize("scale", SCALES)
def test_names_and_examples_give_the_same_answers_in_blocks_and_in_memory(scale):
    check(Mode(5, 3, True, True, True, False, False, scale, 12))  # without unknown queries: drawn above


@pytest.mark.parametrize("scale", ["rcl2", "range"])
def test_everything_at_once_gives_the_same_answers_in_blocks_and_in_memory(scale):
    check(Mode(1, 3, True, True, True, True, False, scale, 12))
    check(Mode(1, 3, False, True, True, True, True, scale, 12))  # scores
