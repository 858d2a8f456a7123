"""What a notebook shows of a result."""

from __future__ import annotations

import numpy as np

from manyway import Evidence


def test_a_result_is_a_table_in_a_notebook_and_its_names_are_text():
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3) * 5, 4, 0) + rng.normal(size=(12, 3)) / 4
    names = np.repeat(["<b>ant</b>", "bee", "cat"], 4)
    query = np.repeat(np.eye(3)[:1] * 5, 30, 0) + rng.normal(size=(30, 3)) / 4
    shown = Evidence().fit(x, names).infer(query)._repr_html_()
    assert "30 queries, 3 possible classes" in shown
    assert "&lt;b&gt;ant&lt;/b&gt;" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 1 + 10 + 1 + shown.count("present</td>") + shown.count("possible</td>")
    assert "… and 20 more" in shown
