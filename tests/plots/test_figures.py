"""Figures as files and as SVG for the report."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from manyway import InputError
from manyway.methods import METHODS
from manyway.plots.figures import FORMATS, Curve, Figure, Panel, canvas_of, draw, draw_panel, write_figures
from manyway.plots.style import METHOD_STYLES
from manyway.plots.svg import panel_svg, sample_svg

HOSTILE = "<script>alert(1)</script> $x_{$ & [b] K_eff \x00 深"


@pytest.fixture
def figure() -> Figure:
    """Two panels with the same three curves."""
    curves = [
        Curve("PADDLE", "paddle", [2, 4], [87.5, 87.5], [84.48, 84.48], [90.52, 90.52]),
        Curve("soft K-means", "soft-kmeans", [2, 4], [79.2, 79.2], [76.1, 76.1], [82.2, 82.2]),
        Curve("SimpleShot", "simpleshot", [2, 4], [85.4, 85.4], [82.8, 82.8], [88.0, 88.0]),
    ]
    panels = [Panel("1-shot", curves), Panel("3-shot", curves)]
    return Figure("keff", "Small", "toy", "K_eff", "accuracy (%)", panels, 2, band="95 % interval")


def figure_of(*curves: Curve, **options) -> Figure:
    return Figure("f", "t", "c", "x", "y", [Panel("p", curves)], 1, **options)


@pytest.mark.parametrize("suffix", FORMATS)
def test_plots_are_files_of_the_asked_format_and_the_same_every_time(figure, tmp_path, suffix):
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    (once,) = write_figures([figure], tmp_path / "a", "small", [suffix])
    (again,) = write_figures([figure], tmp_path / "b", "small", [suffix])
    assert once.name == f"small-keff.{suffix}"
    assert once.read_bytes().startswith(starts[suffix])
    assert once.read_bytes() == again.read_bytes()


def test_text_in_an_svg_file_is_text(figure, tmp_path):
    (path,) = write_figures([figure], tmp_path, "small", ["svg"])
    texts = ["".join(text.itertext()) for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert "soft K-means" in texts
    assert "1-shot" in texts


def test_an_unknown_format_is_refused_before_anything_is_drawn(figure, tmp_path):
    with pytest.raises(InputError, match="not as 'gif'"):
        write_figures([figure], tmp_path, "small", ["png", "gif"])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../../../x", "/x", "a/../../x", "..\\x", "x\0y", "x" * 300, ""])
def test_a_name_cannot_leave_the_folder(tmp_path, name):
    figure = figure_of(Curve("a", "paddle", [1], [1]))
    (path,) = write_figures([figure._replace(name=name)], tmp_path / "a" / "b", f"{name}@toy", ["svg"])
    assert path.resolve().parent == tmp_path / "a" / "b"
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


def test_two_plots_of_one_name_are_two_files(figure, tmp_path):
    paths = write_figures(
        [figure, figure._replace(name="ke/ff"), figure._replace(name="ke\\ff")], tmp_path, "s", ["svg"]
    )
    assert len(set(paths)) == 3


def test_a_link_to_an_input_is_not_written_through(figure, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "plots").mkdir()
    (tmp_path / "records" / "a.json").write_text("a result")
    (tmp_path / "plots" / "small-keff.svg").symlink_to(tmp_path / "records" / "a.json")
    with pytest.raises(InputError, match="input"):
        write_figures([figure], tmp_path / "plots", "small", ["svg"], [tmp_path / "records"])
    assert (tmp_path / "records" / "a.json").read_text() == "a result"


def test_a_panel_has_every_point_with_its_values_and_ids_of_its_own(figure):
    first, second = (ElementTree.fromstring(panel_svg(figure, n, f"p{n}")) for n in (0, 1))
    tips = [element.get("data-tip") for element in first.iter("circle")]
    assert len(tips) == 3 * 2
    assert "PADDLE: 87.50 [84.48, 90.52] at K_eff = 2" in tips
    groups = [group for group in first.iter("g") if group.get("data-line")]
    assert sorted(group.get("data-line") for group in groups) == ["0", "0", "1", "1", "2", "2"]  # a line and its band
    ids = [{element.get("id") for element in root.iter() if element.get("id")} for root in (first, second)]
    assert not ids[0] & ids[1]
    for root, names in zip((first, second), ids, strict=True):
        text = ElementTree.tostring(root, encoding="unicode")
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= names


def test_gaps_zeros_on_a_logarithmic_scale_and_single_points_are_drawn():
    curve = Curve("a", "paddle", [1, 10, 100], [1e-3, float("nan"), 0.0])
    svg = panel_svg(figure_of(curve, log_x=True, log_y=True), 0, "p")
    assert svg.count('class="hit"') == 1
    assert "nan" not in svg
    assert panel_svg(figure_of(Curve("a", "paddle", [5], [5])), 0, "p").count('class="hit"') == 1


def test_names_are_text_in_a_figure(tmp_path):
    figure = Figure(
        HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, [Panel(HOSTILE, [Curve(HOSTILE, "x", [1], [1])])] * 2, 2
    )
    root = ElementTree.fromstring(panel_svg(figure, 0, "p"))
    assert not {"script", "b"} & {element.tag for element in root.iter()}
    (tip,) = (element.get("data-tip") for element in root.iter("circle"))
    assert tip.startswith("<script>alert(1)</script> $x_{$ & [b] K_eff ? 深: 1.00")
    assert len(write_figures([figure], tmp_path, HOSTILE, FORMATS)) == 3


def test_every_method_has_a_style_of_its_own():
    assert set(METHODS) <= set(METHOD_STYLES)
    assert len({(style.colour, style.dash) for style in METHOD_STYLES.values()}) == len(METHOD_STYLES)
    assert len({style.marker for style in METHOD_STYLES.values()}) >= len(METHOD_STYLES) - 1


def test_a_line_looks_the_same_in_all_panels_and_in_the_legend():
    a, b = Curve("a", "a", [1, 2], [1, 2]), Curve("b", "b", [1, 2], [2, 1])
    figure = Figure("f", "t", "c", "x", "y", [Panel("1", [a, b]), Panel("2", [b])], 2)
    colour = figure.styles["b"].colour.lower()
    assert colour in panel_svg(figure, 1, "p")
    assert figure.styles["a"].colour.lower() not in panel_svg(figure, 1, "p")
    assert colour in sample_svg(figure.styles["b"], "s")


def panel_of(*curves: Curve, **options):
    """What is drawn of one panel, and its legend."""
    with canvas_of(3, 3) as canvas:
        (ax,) = canvas.subplots(1, 1, squeeze=False).flat
        figure = figure_of(*curves, **{key: options.pop(key) for key in ("log_x", "log_y") if key in options})
        legend = draw_panel(ax, figure, Panel("p", curves, **options))
        return ax, legend


def test_a_panel_has_a_line_per_curve_paddles_above_a_band_and_single_points():
    one = Curve("PADDLE", "paddle", [1, 2], [3, 4], [2, 3], [4, 5], dots=[(1.5, 3.5)])
    ax, legend = panel_of(one, Curve("TIM", "tim", [1, 2], [1, 2]))
    lines = {line.get_gid(): line for line in ax.lines}
    assert list(lines) == ["line-0", "dots-0", "line-1"]
    assert (lines["line-0"].get_zorder(), lines["line-1"].get_zorder()) == (3, 2)
    assert lines["dots-0"].get_xydata().tolist() == [[1.5, 3.5]]
    assert [band.get_gid() for band in ax.collections] == ["band-0"]
    assert list(legend) == ["PADDLE", "TIM"]


@pytest.mark.parametrize(("n", "markers", "shown"), [(59, True, True), (60, True, False), (3, False, False)])
def test_few_points_have_markers_where_they_are_asked_for(n, markers, shown):
    ax, _ = panel_of(Curve("PADDLE", "paddle", range(n), range(n), markers=markers))
    assert (ax.lines[0].get_marker() not in ("None", None)) == shown


def test_a_panel_marks_values_and_the_line_of_equal_values():
    curve = Curve("PADDLE", "paddle", [1, 4], [2, 3])
    ax, legend = panel_of(curve, verticals=[("best", 2, "dotted")], identity=True)
    assert list(legend) == ["PADDLE", "best", "λ = |Q|"]
    assert ax.lines[-1].get_xydata().tolist() == [[1, 1], [4, 4]]
    assert legend["best"].get_linestyle() == ":"


@pytest.mark.parametrize(
    ("x", "log", "ticks"),
    [([1, 2, 3], False, {1, 2, 3}), ([1, 1.5, 2], False, {1.2, 1.4}), ([1, 20, 100], True, {1, 2, 5, 10, 20, 50, 100})],
)
def test_ticks_are_round_numbers_and_whole_ones_where_all_values_are(x, log, ticks):
    ax, _ = panel_of(Curve("PADDLE", "paddle", x, x), log_x=log)
    found = {round(float(tick), 3) for tick in ax.get_xticks() if 1 <= tick <= max(x)}
    assert ticks <= found
    assert all(tick == int(tick) for tick in found) == (ticks != {1.2, 1.4})


@pytest.mark.parametrize(("n_panels", "n_curves", "legends"), [(1, 1, 0), (1, 2, 1), (3, 1, 1)])
def test_a_figure_has_one_legend_and_one_label_of_y_per_row(n_panels, n_curves, legends, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda self, path, **options: (drawn.append(self), path.touch())
    )
    curves = [Curve(name, name, [1, 2], [1, 2]) for name in ("paddle", "tim")[:n_curves]]
    draw(Figure("f", "t", "c", "x", "y", [Panel("p", curves)] * n_panels, 2), tmp_path / "f.png")
    (canvas,) = drawn
    assert len(canvas.legends) == legends
    assert [ax.get_ylabel() for ax in canvas.axes if ax.axison] == ["y", "", "y"][:n_panels]
    assert len(canvas.axes) == {1: 1, 3: 4}[n_panels]  # two columns; the last place stays empty
