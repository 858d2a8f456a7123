"""The comparison of GPU and CPU: its sizes, what it counts, and that it notices a wrong answer."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path

import processes
import pytest
import torch

from benchmarks import agree
from benchmarks.agree import CASES, CLASSES, FEATURES, QUERIES, SHOTS, TABLE, Case, Comparison, Pools, Sizes
from manyway import METHODS

SIZES = Sizes(n_query=2, n_classes=3, shots=1, n_features=4)
MODES = {"one-shot", "open-set", "unequal", "far", "names", "names-alone", "known", "blocks", "stream", "scores"}


def test_every_method_and_every_mode_of_evidence_is_compared():
    assert set(CASES) == set(METHODS) | {f"evidence:{mode}" for mode in MODES}


def test_every_number_of_queries_and_every_combination_of_the_other_sizes_occurs():
    found = list(agree.design(CASES["paddle"]))
    assert [sizes.n_query for sizes in found] == list(QUERIES) == [*range(1, 132), 200, 500, 1000]
    combinations = {(sizes.n_classes, sizes.shots, sizes.n_features) for sizes in found}
    assert len(combinations) == len(CLASSES) * len(SHOTS) * len(FEATURES)
    assert {sizes.shots for sizes in agree.design(CASES["evidence:one-shot"])} == {1}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_case_gives_probabilities_in_both_precisions(name):
    sizes = Sizes(n_query=4, n_classes=3, shots=1 if name == "evidence:one-shot" else 5, n_features=5)
    single, double = (agree.answer(CASES[name], sizes, "cpu", dtype) for dtype in (torch.float32, torch.float64))
    assert single.shape == double.shape
    assert single.shape[1:] == (4, 4)
    torch.testing.assert_close(single, double, rtol=0, atol=CASES[name].limit)


def compared(found: list[list[float]], expected: list[list[float]], by_rounding: float = 0.0) -> Comparison:
    """Two queries; the last column is that of unknown queries."""
    comparison = Comparison(Case("paddle", limit=0.01))
    comparison.add(SIZES, torch.tensor([found]), torch.tensor([expected]), by_rounding)
    return comparison


CERTAIN = [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]
WRONG = [[0.1, 0.9, 0.0], [0.2, 0.8, 0.0]]


def test_equal_answers_agree():
    comparison = compared(CERTAIN, CERTAIN)
    assert (comparison.n_labels, comparison.n_queries, comparison.largest) == (0, 2, 0.0)
    assert not comparison.wrong


def test_another_answer_is_wrong_where_rounding_does_not_explain_it():
    comparison = compared(WRONG, CERTAIN, by_rounding=1e-6)
    assert comparison.n_labels == 1
    assert comparison.largest == pytest.approx(0.8)
    assert comparison.worst == SIZES
    assert comparison.wrong == ["2 queries, 3 classes, 1 shots, 4 features: 0.8 (at most 0.01)"]


def test_another_answer_is_no_error_where_rounding_makes_as_much():
    comparison = compared(WRONG, CERTAIN, by_rounding=0.5)
    assert comparison.n_by_rounding == 1
    assert not comparison.wrong


def test_a_tie_is_no_other_label():
    assert compared([[0.499, 0.501, 0.0]] * 2, [[0.501, 0.499, 0.0]] * 2).n_labels == 0


class Here(Executor):
    """Computes in this process, at once."""

    def submit(self, function, /, *arguments, **named):
        future = Future()
        future.set_result(function(*arguments, **named))
        return future


@contextmanager
def in_this_process(number):
    yield Pools(gpu=Here(), cpu=Here())


def test_processes_compute_the_answers(monkeypatch):
    asked = []
    monkeypatch.setattr(agree, "get_context", lambda kind: asked.append(kind) or processes.context())  # starts sooner
    with agree.processes(2) as pools:
        ((name, comparison),) = agree.in_turn(["simpleshot"], [2, 3], pools)
    assert asked == ["spawn"]  # a fork has no CUDA
    assert name == "simpleshot"
    assert comparison.n_queries == 2 * 2 + 2 * 3
    assert not comparison.wrong


def test_what_rounding_does_on_the_cpu_is_the_yardstick(monkeypatch):
    asked = []

    def answer(case, sizes, device, dtype, rounded_by=None):
        asked.append((device, dtype, rounded_by))
        if rounded_by is None:
            return torch.tensor([CERTAIN if dtype == torch.float64 else WRONG], dtype=torch.float64)
        return torch.tensor([CERTAIN], dtype=torch.float64) + 0.01 * rounded_by

    monkeypatch.setattr(agree, "answer", answer)
    ((_, comparison),) = agree.in_turn(["paddle"], [2], Pools(gpu=Here(), cpu=Here()))
    assert asked[2:] == [
        ("cpu", torch.float64, None),
        *(("cpu", torch.float32, seed) for seed in range(agree.N_ROUNDINGS)),
    ]
    assert comparison.wrong == ["2 queries, 3 classes, 5 shots, 5 features: 0.8 (at most 0.2)"]


def test_rows_of_other_methods_stay_in_the_page_unless_they_are_from_another_machine(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"<!--table:{TABLE}-->\n<!--end-->\n")
    first = [Comparison(Case("paddle"), worst=SIZES).row(name) for name in ("tim", "paddle")]
    agree.write_table(page, first)
    again = Comparison(Case("paddle"), worst=SIZES, largest=0.5).row("paddle")
    agree.write_table(page, [again])
    assert list(agree._rows_of(page.read_text()).values()) == [[str(one) for one in row] for row in (again, first[0])]
    page.write_text(page.read_text().replace("torch", "another machine, torch"))
    agree.write_table(page, [again])
    assert list(agree._rows_of(page.read_text())) == ["paddle"]


def test_the_command_prints_a_table_writes_it_into_a_page_and_fails_where_answers_differ(
    tmp_path: Path, monkeypatch, capsys
):
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n<!--table:{TABLE}-->\nold\n<!--end-->\nAfter.\n")
    monkeypatch.setattr(agree, "processes", in_this_process)
    command = ["paddle", "--queries", "5", "--page", str(page)]
    assert agree.main(command) == 0
    text = page.read_text()
    assert "| paddle | " in capsys.readouterr().out
    assert "| paddle | " in text
    assert "old" not in text
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    right = agree.answer

    def wrong(case, sizes, device, dtype, rounded_by=None):
        found = right(case, sizes, device, dtype, rounded_by)
        return found.flip(-1) if dtype == torch.float32 and rounded_by is None else found

    monkeypatch.setattr(agree, "answer", wrong)
    assert agree.main(command) == 1
    assert "no agreement: paddle, 5 queries" in capsys.readouterr().out


def test_an_unknown_method_is_refused(capsys):
    with pytest.raises(SystemExit):
        agree.main(["padle"])
    assert "there is no method padle" in capsys.readouterr().err
