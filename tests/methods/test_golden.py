"""Every method gives the golden answers: those of code that equals the recorded runs of the original methods.

``python -m benchmarks.golden DATA`` makes the file, after it has compared the methods with the recorded runs. A change
of answers shows here on every machine. Whether a changed answer is better is not for this test to say.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.golden import SETTINGS, Golden, add_versions, digests, load, read_versions
from manyway import METHODS, solve

GOLDEN, META = load()
CLOSE = 1e-4  # two best probabilities that are closer than this count as a tie
SLOW = {"baseline", "baseline++", "tim", "alpha-tim", "paddle-pgd", "ici", "tim-adm", "eol"}  # not run in float64


def check(golden: Golden, dtype: torch.dtype, tolerance: float) -> None:
    solution = solve(golden.method, golden.tasks.to(dtype=dtype), **golden.params)
    tie = golden.probabilities[..., 0] - golden.probabilities[..., 1] < CLOSE
    wrong = (solution.labels != golden.classes[..., 0]) & ~tie
    assert not wrong.any(), f"labels differ at (task, query) {wrong.nonzero().tolist()}"
    found = solution.probabilities.double().gather(2, golden.classes)
    torch.testing.assert_close(found, golden.probabilities, rtol=0, atol=tolerance)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden.setting}-{golden.method}")
def test_answers_in_float32_are_the_golden_ones(golden):
    some = slice(None) if golden.method in SLOW else slice(2)  # float64 has all
    parts = {name: getattr(golden, name)[some] for name in ("tasks", "classes", "probabilities")}
    check(replace(golden, **parts), torch.float32, 1e-3)


@pytest.mark.parametrize(
    "golden", [g for g in GOLDEN if g.method not in SLOW], ids=lambda golden: f"{golden.setting}-{golden.method}"
)
def test_answers_in_float64_are_the_golden_ones_to_all_stored_digits(golden):
    check(golden, torch.float64, 2e-5)


def test_answers_that_changed_have_a_version_of_their_own():
    known = read_versions()
    present = {name: known[name][str(METHODS[name].version)] for name in METHODS}
    assert digests() == present, "the golden answers of a method have changed: raise its version"


def test_other_answers_under_a_known_version_are_refused(tmp_path):
    path = tmp_path / "versions.json"
    add_versions({"paddle": "one"}, path)
    add_versions({"paddle": "one"}, path)
    with pytest.raises(SystemExit, match="The answers of paddle have changed; raise its version"):
        add_versions({"paddle": "other"}, path)


def test_there_are_golden_answers_of_every_method_in_every_setting():
    assert {(golden.setting, golden.method) for golden in GOLDEN} == {(s, m) for s in SETTINGS for m in METHODS}
    assert all(golden.tasks.n_query == 75 and len(golden.classes) > 0 for golden in GOLDEN)


def test_the_file_says_what_was_checked_before_it_was_written():
    checked = {line.split()[0] for line in META["checked"]}
    assert checked == set(METHODS) - {
        "evidence",
        "baseline++",
        "eol",
        "moon",
        "zlap",
    }  # these have no recorded original


def test_a_changed_answer_is_noticed():
    golden = next(golden for golden in GOLDEN if golden.method == "paddle")
    changed = Golden("20-way", "paddle", {"lam": 1.0}, golden.tasks, golden.classes, golden.probabilities)
    with pytest.raises(AssertionError):
        check(changed, torch.float32, 1e-3)
