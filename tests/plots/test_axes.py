"""Plots return axes that show what they were given."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch
from problems import make_tasks

from manyway import InputError, SimpleShot, plot_k_eff, plot_presence, plot_reliability, solve

mpl.use("Agg")


@pytest.fixture
def ax():
    from matplotlib import pyplot  # not while tests are collected, which every process does

    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


def names(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_presence_shows_the_most_probable_classes_first(ax):
    result = SimpleNamespace(
        presence=np.array([0.1, 0.9, 0.5]),
        classes=np.array(["ant", "bee", "cow"]),
        present=lambda rate: [torch.tensor([1])] if rate == 0.2 else [],
        n_present_interval=torch.tensor([[1, 3]]),
    )
    assert plot_presence(result, top=2, ax=ax, error_rate=0.2, truth={"cow"}) is ax
    assert [bar.get_alpha() for bar in ax.patches] == [None, 0.35]  # listed classes are dark
    assert ax.lines[0].get_ydata().tolist() == [1]  # the class that occurs
    assert names(ax) == ["bee", "cow"]
    assert [bar.get_width() for bar in ax.patches] == [0.9, 0.5]
    assert ax.yaxis_inverted()
    assert ax.get_title() == "1 to 3 classes occur (truth: 1)"


def test_presence_of_an_inference_and_of_a_solution(ax):
    result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer(torch.tensor([[0.0, 1.0]]))
    assert names(plot_presence(result, ax=ax)) == ["ant", "bee"]
    ax.clear()
    solution = solve("simpleshot", make_tasks(1))
    assert set(names(plot_presence(solution, ["a", "b", "c", "d"], ax=ax))) == set("abcd")
    with pytest.raises(InputError, match="has 2 tasks; plot one of them"):
        plot_presence(solve("simpleshot", make_tasks(2)), ax=ax)
    with pytest.raises(InputError, match="3 entries for 4 classes"):
        plot_presence(solution, ["a", "b", "c"], ax=ax)
    with pytest.raises(InputError, match="top is 0"):
        plot_presence(solution, top=0, ax=ax)


def test_reliability_is_accuracy_in_bins_of_confidence(ax):
    probabilities = np.array([[0.95, 0.05], [0.05, 0.95], [0.65, 0.35], [0.35, 0.65]])
    plot_reliability(probabilities, [0, 1, 0, 0], ax=ax)
    diagonal, observed = ax.get_lines()
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    np.testing.assert_allclose(observed.get_xydata(), [[0.65, 0.5], [0.95, 1.0]])


def test_reliability_of_a_solution_and_of_an_inference_with_names(ax):
    tasks = make_tasks(3, n_query=30)
    plot_reliability(solve("simpleshot", tasks), tasks.query_labels, ax=ax)
    assert len(ax.get_lines()) == 2
    ax.clear()
    result = SimpleShot(logit_scale=50.0).fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.0, 1.0], [1.0, 0.0]])
    plot_reliability(result, ["ant", "bee"], ax=ax)
    assert ax.get_lines()[1].get_ydata().tolist() == [1.0]
    with pytest.raises(InputError, match="labels of shape"):
        plot_reliability(result, ["ant"], ax=ax)


def test_k_eff_draws_a_line_with_intervals_per_method(ax):
    found = {5: SimpleNamespace(accuracy=0.6, ci95=0.1), 2: SimpleNamespace(accuracy=0.8, ci95=float("nan"))}
    plot_k_eff({"paddle": found, "evidence": found}, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["paddle", "evidence"]
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata(), [[2, 80], [5, 60]])


def test_without_matplotlib_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(InputError, match=r"Plotting needs matplotlib; install it with: pip install .*\[plot\]\""):
        plot_reliability([[0.9, 0.1]], [0])


def test_without_axes_new_ones_are_made():
    from matplotlib import pyplot

    drawn = plot_reliability([[0.9, 0.1]], [0])
    assert drawn.get_ylabel() == "accuracy"
    pyplot.close(drawn.figure)
