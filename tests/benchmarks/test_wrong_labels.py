"""What wrong labels cost: what is changed, and what is compared."""

from __future__ import annotations

import pytest

from benchmarks.wrong_labels import HEADER, RIVALS, accuracies, by_rate, draw, mislabelled, rows
from manyway.sampling.embedded import load_glyphs


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_as_many_labels_are_wrong_as_asked_for_and_every_class_keeps_an_example(rate):
    drawn = draw(load_glyphs(), "glyphs", shots=5, present=5, n_tasks=2)
    tasks = mislabelled(drawn, rate)
    wrong = (tasks.support_labels != drawn.support_labels).double().mean()
    assert float(wrong) == pytest.approx(rate, abs=0.05)
    assert all(len(labels.unique()) == tasks.n_classes for labels in tasks.support_labels)


def test_every_rival_is_measured():
    found = accuracies(draw(load_glyphs(), "glyphs", shots=5, present=5, n_tasks=1))
    assert {*found} == {"SimpleShot", *RIVALS}
    assert all(50 < right <= 100 for right in found.values())


def test_a_row_has_a_cell_for_every_column(tmp_path):
    row = next(rows(tmp_path, ["sklearn:wine"], n_tasks=1))
    assert len(row) == len(HEADER.split(" | "))


def test_settings_are_counted_by_their_share_of_wrong_labels():
    def setting(features: str, rate: str, difference: str) -> list[str]:
        return [features, "5", "all", rate, "80", "81", "79", "LDA", difference]

    settings = [setting("letters", "0%", "+1.0"), setting("letters", "40%", "-3.0"), setting("wine", "40%", "+2.0")]
    assert list(by_rate(settings)) == [
        ["0%", 1, "+1.0", 0, "+1.0", "letters, 5 examples, all classes"],
        ["40%", 2, "-0.5", 1, "-3.0", "letters, 5 examples, all classes"],
    ]
