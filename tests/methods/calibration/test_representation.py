"""The representation of rows: what is compared, whatever the units of the columns."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from problems import make_tasks
from scipy.special import logsumexp, polygamma
from torch import Tensor

from manyway import Tasks, solve
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.representation import (
    _LOG_PRECISIONS,
    _Classes,
    _effective_columns,
    _held_out_loss,
    _moments,
    _Scales,
    _scales,
    _variance,
    Representation,
    learn_representation,
)

FEW_COLUMNS = Constants().few_columns


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def learned(support: Tensor, labels: Tensor | None = None) -> Representation:
    """Of one task whose examples [n, d] are of the classes ``labels`` [n], or all of their own."""
    labels = torch.arange(len(support)) if labels is None else labels
    tasks = Tasks.from_arrays(support[None], labels[None], support[None, :1])
    return learn_representation(tasks, Constants())


def of_support(support: Tensor, labels: Tensor | None = None) -> Tensor:
    """[n, d] the representation of the examples themselves."""
    return learned(support, labels)(support)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def counts_like(*shape: int, seed: int = 0) -> Tensor:
    """Exponential values, which pile up at 0."""
    return -torch.rand(*shape, generator=generator(seed), dtype=torch.float64).log()


def scales_of(representation: Representation) -> Tensor:
    return 1 / representation.weights.flatten()


def middle_and_scales(found: Representation) -> tuple[Tensor, Tensor]:
    """[d] each, in the units of the columns: what has the representation 0, and what a step of one is worth there."""
    middle = found.lowest + found.middle.pow(1 / found.power)
    slope = found.weights * found.power * found.middle.pow(1 - 1 / found.power)
    return middle.flatten(), 1 / slope.flatten()


@pytest.mark.parametrize("make", [normal, counts_like], ids=["symmetric", "skewed"])
@pytest.mark.parametrize("shots", [1, 4])
def test_another_common_unit_or_another_zero_of_any_column_changes_nothing(make, shots):
    support, labels, queries = make(24, 6), torch.arange(24) // shots, make(10, 6, seed=1)
    zeros = torch.tensor([0.0, 3.0, -20.0, 1e3, 5.0, -1e4], dtype=torch.float64)
    expected = learned(support, labels)(queries)
    found = learned(1e3 * support + zeros, labels)(1e3 * queries + zeros)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", [normal, counts_like], ids=["symmetric", "skewed"])
@pytest.mark.parametrize("shots", [1, 4])
def test_where_units_differ_others_change_little(make, shots):
    support, labels = make(24, 6), torch.arange(24) // shots
    units = torch.tensor([1e-3, 1.0, 7.0, 1e3, 0.02, 1e5], dtype=torch.float64)
    one, other = of_support(support * units, labels), of_support(support * units.flip(0), labels)
    assert (one - other).norm() < 0.03 * one.norm()


def test_columns_in_different_units_are_scaled_and_columns_that_differ_by_chance_are_not():
    units = torch.logspace(-2, 2, 20, dtype=torch.float64)
    few, many = normal(4, 20), normal(400, 20)
    assert scales_of(learned(few)).log().std() < 0.2
    assert scales_of(learned(many)).log().std() < 0.03
    assert (scales_of(learned(many * units)) / units).log().std() < 0.06


def test_columns_in_which_examples_of_one_class_differ_little_have_a_smaller_scale():
    labels = torch.arange(20).repeat_interleave(10)
    within = torch.tensor([0.1, 1.0], dtype=torch.float64).repeat(5)
    means = normal(20, 10, seed=1) * (1.01 - within.square()).sqrt()  # all columns have about the same variance
    support = means[labels] + within * normal(200, 10)
    scales = scales_of(learned(support, labels))
    assert (scales[::2] < 0.3 * scales[1::2]).all()
    alone = scales_of(learned(support))  # without classes nothing is known of it
    assert (alone[::2] > 0.7 * alone[1::2]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_constant_columns_are_ignored(dtype, value):
    support, labels = normal(24, 6).to(dtype), torch.arange(24) // 4
    constant = torch.full((24, 2), value, dtype=dtype)
    expected, found = of_support(support, labels), of_support(torch.cat([constant, support], 1), labels)
    torch.testing.assert_close(found[:, 2:], expected)
    assert not found[:, :2].any()


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize("distance", [-1e4, 1e4])
def test_a_far_class_moves_neither_the_middle_nor_the_scales_much(shots, distance):
    labels = torch.arange(20).repeat_interleave(shots)
    support = normal(20, 8)[labels] + 0.5 * normal(20 * shots, 8, seed=1)
    middle, scales = middle_and_scales(learned(support, labels))
    support[labels == 3] += distance
    far_middle, far_scales = middle_and_scales(learned(support, labels))
    assert ((far_middle - middle) / scales).abs().max() < 0.5
    assert (far_scales / scales).log().abs().max() < 0.5


@pytest.mark.parametrize(
    ("rows", "low", "high"),
    [
        (normal(300, 8), 0.95, 1.0),
        (-counts_like(300, 8), 1.0, 1.0),  # a long tail downwards is no pile at the lowest value
        (counts_like(300, 8).sqrt(), 0.8, 0.95),
        (counts_like(300, 8), 0.5, 0.68),
        (counts_like(300, 8) ** 3, 0.5, 0.5),
    ],
    ids=["symmetric", "long lower tail", "a little skewed", "exponential", "very skewed"],
)
def test_the_power_follows_the_skewness(rows, low, high):
    assert low <= learned(rows).power.item() <= high


def test_a_value_below_the_lowest_keeps_its_sign():
    found = learned(counts_like(300, 2))
    curved = found.curved(found.lowest + torch.tensor([[[-4.0, 4.0]]], dtype=torch.float64))
    assert curved[..., 0] == -curved[..., 1] < 0


@pytest.mark.parametrize("make", [normal, counts_like], ids=["symmetric", "skewed"])
@pytest.mark.parametrize("shots", [1, 4])
def test_nothing_jumps_where_a_cell_moves_a_little(make, shots):
    support, labels, queries = make(24, 6), torch.arange(24) // shots, make(10, 6, seed=1)
    before = learned(support, labels)
    for cell in ((0, 0), (13, 2), (23, 5)):
        moved = support.clone()
        moved[cell] += 1e-9
        after = learned(moved, labels)
        torch.testing.assert_close(after(queries), before(queries), rtol=0, atol=1e-6)
        torch.testing.assert_close(after.power, before.power, rtol=0, atol=1e-8)


def test_rows_of_many_independent_columns_get_nearly_unit_length():
    sizes = torch.logspace(-1, 1, 100, dtype=torch.float64).unsqueeze(1)
    found = learned(normal(100, 512))
    assert found.effective_columns > 300
    lengths = found(sizes * normal(100, 512, seed=1)).norm(dim=-1)
    assert lengths.max() < 1.2 * lengths.min()


def test_rows_of_one_column_keep_their_length():
    support = normal(100, 1)
    found = learned(support)
    assert found.effective_columns == 1
    assert found.shortening.item() == pytest.approx(1 / (1 + FEW_COLUMNS))
    scaled = (found.curved(support[None]) - found.middle) * found.weights
    torch.testing.assert_close(found(support).abs(), scaled[0].abs().pow(1 - found.shortening.item()))


def test_copies_of_a_column_are_one_column():
    columns = normal(100, 10)
    one, three = (learned(rows).effective_columns.item() for rows in (columns, columns.repeat(1, 3)))
    assert three == pytest.approx(one, rel=0.1)
    assert one == pytest.approx(10, rel=0.1)


def test_the_mean_of_base_classes_is_the_middle_of_symmetric_columns_alone():
    base = normal(6, seed=3)
    half = normal(30, 6)
    for support, is_middle in ((torch.cat([half, -half]), True), (counts_like(60, 6) ** 3, False)):
        labels = torch.arange(60)[None]
        plain = Tasks.from_arrays(support[None], labels, support[None])
        given = Tasks.from_arrays(support[None], labels, support[None], base_mean=base)
        without, found = (learn_representation(tasks, Constants()) for tasks in (plain, given))
        if is_middle:
            torch.testing.assert_close(found.middle, (base - found.lowest))
        else:
            torch.testing.assert_close(found.middle, without.middle)


@pytest.mark.parametrize("shots", [1, 3, None])
def test_many_tasks_are_represented_as_one_by_one(shots):
    tasks = make_tasks(4, n_classes=5, n_features=7, shots=shots)
    unlike = torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=torch.float64).view(-1, 1, 1)
    tasks = Tasks.from_arrays((unlike * tasks.support).exp(), tasks.support_labels, tasks.query.exp())
    together = learn_representation(tasks, Constants())
    rows = together(tasks.query)
    for t in range(4):
        alone = learn_representation(tasks[t : t + 1], Constants())
        for one in fields(alone):
            torch.testing.assert_close(getattr(together[t : t + 1], one.name), getattr(alone, one.name))
        torch.testing.assert_close(rows[t], alone(tasks.query[t]))


def test_tasks_with_one_support_have_one_representation():
    one = make_tasks(1, n_classes=5, n_query=9, n_features=6, shots=4)
    rows, labels = torch.arange(one.n_support).expand(3, -1), one.support_labels.expand(3, -1)
    shared = Tasks(one.support[0], rows, labels, one.query[0], torch.arange(9).view(3, 3), one.n_classes)
    assert shared.shared_support
    found, expected = (learn_representation(tasks, Constants()) for tasks in (shared, one))
    for part in fields(found):
        assert len(getattr(found, part.name)) == 1
        assert torch.equal(getattr(found, part.name), getattr(expected, part.name))
    assert {name: value.shape for name, value in found.told.items()} == {
        "power": (1,), "columns": (1,), "shortening": (1,)
    }  # fmt: skip


def in_units(units: list[float], n_examples: list[int]) -> Tasks:
    """Two classes that differ by six deviations in all columns but the first; each column has a unit of its own."""
    drawn = generator(1)
    labels = torch.arange(2).repeat_interleave(torch.tensor(n_examples))
    truth = torch.arange(2).repeat(20)
    rows = [torch.randn(1, len(one), len(units), generator=drawn) for one in (labels, truth)]
    for row, one in zip(rows, (labels, truth), strict=True):
        row[0, :, 1:] += 6 * one.unsqueeze(-1)
    support, query = (row * torch.tensor(units) for row in rows)
    return Tasks.from_arrays(support, labels[None], query)


def test_units_of_columns_do_not_matter_with_one_and_two_examples():
    tasks, truth = in_units([1000.0, 1.0, 0.01, 5.0, 0.3, 20.0], [1, 2]), torch.arange(2).repeat(20)
    scaled, raw = ((solve("evidence", tasks, scale=one).labels == truth).float().mean() for one in ("auto", None))
    assert scaled > 0.94
    assert raw < 0.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_column_of_huge_numbers_hides_no_other(dtype):
    """As a population beside rates: it is 10⁸ times as large as the others."""
    labels = torch.arange(3).repeat_interleave(10)
    rows = normal(60, 5, seed=5).to(dtype) + 3 * labels.repeat(2).unsqueeze(-1)
    rows[:, 4] = normal(60, seed=6)
    rows = rows * torch.tensor([1, 1, 1, 1, 1e8], dtype=dtype)
    tasks = Tasks.from_arrays(rows[None, :30], labels[None], rows[None, 30:])
    assert (solve("evidence", tasks).labels == labels).float().mean() > 0.9


def spectra(seed: int, n_classes: int = 30, shots: int = 3) -> tuple[Tasks, torch.Tensor]:
    """Counts that are mostly zero: each class has twelve of 300 columns, of which single items lack some."""
    draw = np.random.default_rng(seed)
    peaks = [draw.choice(300, 12, replace=False) for _ in range(n_classes)]
    heights = [draw.gamma(0.5, 1, 12) for _ in range(n_classes)]

    def items(classes):
        rows = np.zeros((len(classes), 300), np.float32)
        for row, k in zip(rows, classes, strict=True):
            row[peaks[k]] = heights[k] * draw.gamma(2, 0.5, 12) * (draw.random(12) > 0.25)
            row[draw.choice(300, 4, replace=False)] += draw.gamma(0.5, 0.5, 4)
            row *= 999 / row.max()
        return torch.from_numpy(rows.round())[None]

    labels = np.repeat(np.arange(n_classes), shots)
    truth = draw.integers(0, n_classes, 150)
    tasks = Tasks.from_arrays(items(labels), torch.from_numpy(labels)[None], items(truth))
    return tasks, torch.from_numpy(truth)[None]


def test_columns_that_are_mostly_zero_have_one_scale_and_claims_are_true():
    gaps = []
    for seed in range(4):
        tasks, truth = spectra(seed)
        of_each = learn_representation(tasks, Constants()).weights
        of_each = of_each[of_each > 0]
        assert float(of_each.max() / of_each.min()) < 1.5
        found = solve("evidence", tasks)
        claims = found.probabilities.max(-1).values.mean()
        gaps.append(float(claims - (found.labels == truth).float().mean()))
    assert np.mean(gaps) < 0.06


def test_columns_in_different_units_have_scales_of_their_own():
    units = torch.tensor([1e-3, 1.0, 7.0, 1e3, 0.02, 1e5], dtype=torch.float64)
    support = normal(24, 6) * units
    tasks = Tasks.from_arrays(support[None], (torch.arange(24) // 4)[None], support[None, :1])
    weights = learn_representation(tasks, Constants()).weights.flatten()
    assert float((weights * units).log().std()) < 0.5


def test_a_column_that_is_zero_but_for_rounding_says_nothing():
    support = normal(24, 6).float()
    support[:, 2] = 1e-9 * torch.randn(24, generator=torch.Generator().manual_seed(1))
    tasks = Tasks.from_arrays(support[None], (torch.arange(24) // 4)[None], support[None, :1])
    assert float(learn_representation(tasks, Constants()).weights[0, 0, 2]) == 0


def test_the_variance_of_some_values_is_that_of_these_alone():
    values = torch.tensor([[[1.0, 5.0, 100.0, 2.0]], [[1.0, 5.0, 100.0, 2.0]], [[1.0, 5.0, 100.0, 2.0]]])
    which = torch.tensor([[[1, 1, 0, 0]], [[1, 1, 0, 1]], [[0, 0, 1, 0]]]).bool()
    expected = [torch.tensor(some).var().item() for some in ([1.0, 5.0], [1.0, 5.0, 2.0])]
    assert _variance(values, which).flatten().tolist() == pytest.approx([*expected, 0.0])


def test_far_rows_are_nearer_to_each_other_than_examples_as_much_as_is_said():
    support = normal(60, 200)
    representation = learned(support)
    assert float(representation.shortened_by(support[None]).mean()) == pytest.approx(1, abs=0.05)
    far = representation.middle + 30 * (support[None] - representation.middle)
    step = 0.01 * normal(60, 200, seed=1)

    def squared_step(rows: Tensor) -> Tensor:
        return (representation(rows + step) - representation(rows)).square().sum()

    said = representation.shortened_by(far).mean() / representation.shortened_by(support[None]).mean()
    assert float(said) < 0.1
    assert float(squared_step(far) / squared_step(support[None])) == pytest.approx(float(said), rel=0.1)


# --- rows with gaps -------------------------------------------------------------------------------------------------


def five_and_a_constant(n_rows: int, seed: int) -> Tensor:
    return torch.cat([counts_like(n_rows, 5, seed=seed), torch.full((n_rows, 1), 3.0)], 1)


def rows_with_gaps() -> tuple[Representation, Tensor]:
    """A representation of rows with a constant column, and rows [1, n, d] of which the first has no gap."""
    rows = five_and_a_constant(5, seed=1)
    for row, missing in enumerate([[], [0], [5], [1, 2, 3], [0, 1, 2, 3, 4]]):
        rows[row, missing] = torch.nan
    return learned(five_and_a_constant(24, seed=0), torch.arange(24) // 4), rows[None]


def factor_of(found: Representation, row: Tensor) -> float:
    """(‖v‖² / N)^(−h/2) of a row [d]; of missing cells of columns that vary see ``with_gaps``."""
    given, missing = [], 0
    for x, a, m, weight in zip(row, found.lowest[0, 0], found.middle[0, 0], found.weights[0, 0], strict=True):
        if weight > 0 and x.isnan():
            missing += 1
        elif weight > 0:
            y = float((x - a).sign() * (x - a).abs() ** float(found.power))
            given.append(((y - float(m)) * float(weight)) ** 2)
    squares = sum(given) + missing * (sum(given) + 1) / (len(given) + 1)
    return (squares / float(found.effective_columns)) ** (-0.5 * float(found.shortening))


def test_a_row_with_gaps_is_shortened_as_if_missing_cells_were_like_the_others():
    found, rows = rows_with_gaps()
    z = found.with_gaps(rows)[0]
    assert (z[rows[0].isnan()] == 0).all()
    for row, represented in zip(rows[0], z, strict=True):
        v = (found.curved(row.nan_to_num(0.0).view(1, 1, -1)) - found.middle) * found.weights
        expected = (v[0, 0] * factor_of(found, row)).where(~row.isnan(), 0.0)
        torch.testing.assert_close(represented, expected)
    torch.testing.assert_close(z[0], found(rows[:, :1])[0, 0])


def test_cells_are_those_that_have_the_representation():
    found, rows = rows_with_gaps()
    cells = found.cells(rows, found.with_gaps(rows))
    given = ~rows.isnan()
    torch.testing.assert_close(cells[given], rows[given])
    middle = (found.lowest + found.middle.pow(1 / found.power)).expand_as(rows)
    torch.testing.assert_close(cells[~given], middle[~given])  # what is missing has the representation 0


def test_what_rows_are_shortened_by_is_the_square_of_the_shortening_relative_to_that_of_examples():
    found, rows = rows_with_gaps()
    support = five_and_a_constant(24, seed=0)
    of_examples = np.mean([factor_of(found, row) ** 2 for row in support])
    expected = [factor_of(found, row) ** 2 / of_examples for row in rows[0]]
    assert found.shortened_by(rows)[0].tolist() == pytest.approx(expected)
    assert found.shortened_by(rows[:, :1])[0].tolist() == pytest.approx(expected[:1])
    assert float(found.shortened_by(support[None]).mean()) == pytest.approx(1)


# --- its parts, beside plain sums -----------------------------------------------------------------------------------


def classes_of(rows: Tensor, labels: Tensor, n_classes: int) -> _Classes:
    return _Classes.of(rows[None], labels[None], n_classes, every=1)


def test_degrees_of_freedom_within_classes_are_examples_less_occupied_classes():
    rows, labels = normal(9, 2), torch.tensor([0, 0, 0, 0, 1, 1, 1, 3, 3])
    classes = classes_of(rows, labels, 4)
    assert classes.freedom.tolist() == pytest.approx([9 - 3])
    held_out = torch.tensor([1, 0, 1, 0, 1, 0, 0, 1, 1]).double()
    assert classes.without(rows[None], held_out[None]).freedom.tolist() == pytest.approx([4 - 2])
    some = _Classes.of(rows[None], labels[None], 4, every=2)  # five of the nine, around means of all
    assert some.freedom.tolist() == pytest.approx([5 * (9 - 3) / 9])


def test_held_out_examples_are_classified_by_the_means_of_the_others():
    rows = normal(9, 3)
    labels, held_out = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 3], [0, 1, 0, 1, 0, 1, 0, 0, 1]])
    rest = classes_of(rows, labels, 4).without(rows[None], held_out[None].double())
    means = {k: rows[(labels == k) & (held_out == 0)].mean(0) for k in (0, 1, 2)}  # nothing is left of class 3
    usable = [i for i in range(9) if held_out[i] and int(labels[i]) in means]
    apart = {i: [float((rows[i] - mean).square().sum()) for mean in means.values()] for i in usable}
    own = {i: apart[i][int(labels[i])] for i in usable}
    losses = []
    for factor in np.exp(np.linspace(*_LOG_PRECISIONS)):
        tau = factor / np.mean(list(own.values()))
        losses.append(sum(0.5 * tau * own[i] + logsumexp(-0.5 * tau * np.array(apart[i])) for i in usable))
    assert np.argmin(losses) not in (0, len(losses) - 1)
    assert _held_out_loss(rows[None], rest).tolist() == pytest.approx([min(losses)])


def scales_around(middle: Tensor, rows: Tensor, inside: Tensor, of_class: Tensor, classes: _Classes) -> _Scales:
    """Of the columns of one task: middle [d], rows [s, d], variances within classes [d], weights of classes [k]."""
    middle, weights = middle.view(1, 1, -1), classes.weights_of_examples(of_class[None])
    moments = _moments(rows[None], middle, weights, unit=rows.abs().amax(0).view(1, 1, -1))
    return _scales(moments, inside.view(1, 1, -1), middle, weights, classes.freedom)


def test_scales_follow_from_the_variances_of_columns_as_far_as_these_differ_by_more_than_chance():
    """The formula of the module, one column after the other; the first has a long tail, the last is constant."""
    labels = torch.arange(4).repeat_interleave(torch.tensor([3, 6, 8, 13]))
    rows = normal(30, 8) * torch.logspace(-1, 1, 8) + normal(4, 8, seed=1)[labels]
    rows[4, 0] += 30
    rows[:, 7] = 5.0
    middle, of_class = rows.mean(0), torch.tensor([1.0, 0.5, 0.9, 0.2]).double()
    classes = classes_of(rows, labels, 4)
    inside = (rows - classes.means[0, labels]).square().sum(0)
    inside[1] /= 20  # in which classes differ more than in others
    found = scales_around(middle, rows, 7 * inside, of_class, classes)

    weights = np.array([of_class[k] / classes.counts[0, k] for k in labels])
    shares = weights / weights.sum()
    centred = (rows - middle).numpy()[:, :7]
    variances, fourths = shares @ centred**2, shares @ centred**4
    logs, ratios = np.log(variances), np.log(7 * inside.numpy()[:7] / variances)
    kurtosis = fourths / variances**2
    chance = polygamma(1, (1 / np.sum(shares**2) - 1) / 2) * np.maximum(1, (kurtosis - 1) / 2)
    real = max(0, logs.var(ddof=1) - chance.mean())
    trusted = max(0, 1 - polygamma(1, (30 - 4) / 2) / ratios.var(ddof=1))
    assert real > 0
    assert 0 < trusted < 1
    assert (kurtosis[0] - 1) / 2 > 2
    own = real / (real + chance) * (logs - logs.mean()) + trusted * (ratios - ratios.mean())

    assert found.varies.flatten().tolist() == 7 * [True] + [False]
    assert found.own.flatten()[:7].tolist() == pytest.approx(own.tolist())
    assert found.mean_log.item() == pytest.approx(logs.mean())
    assert found.spread.item() == pytest.approx(logs.var(ddof=1))
    for part in (0.0, 0.3, 1.0):
        expected = np.exp(-0.5 * (logs.mean() + part * own)).tolist()
        assert found.weights(part).flatten().tolist() == pytest.approx([*expected, 0.0])


def test_one_column_that_varies_has_its_own_scale_whatever_is_believed():
    rows = torch.cat([normal(12, 1), torch.full((12, 2), 4.0)], 1).double()
    classes = classes_of(rows, torch.arange(12) // 3, 4)
    inside = (rows - classes.means[0, torch.arange(12) // 3]).square().sum(0)
    found = scales_around(rows.mean(0), rows, inside, torch.ones(4).double(), classes).weights(1.0).flatten()
    assert found.tolist() == pytest.approx([1 / float(rows[:, 0].std(unbiased=False)), 0.0, 0.0])


def test_effective_columns_follow_from_the_products_of_all_pairs():
    rows = normal(20, 6) * torch.logspace(-0.5, 0.5, 6)
    rows[3] *= 50  # it counts no longer than half of the rows are
    typical = np.median(rows.norm(dim=1))
    vectors = [row * min(1, typical / row.norm()) for row in rows]
    pairs = [float(a @ b) ** 2 for i, a in enumerate(vectors) for j, b in enumerate(vectors) if i != j]
    square = np.mean([float(a @ a) for a in vectors])
    expected = square**2 / (np.mean(pairs) - square**2 / 19**2)
    assert 1 < expected < 6
    found = [float(_effective_columns(rows[None], torch.tensor([most]))) for most in (6, 2, 0)]
    assert found == pytest.approx([expected, 2, 1])  # at most the number of columns that vary, at least one


def test_of_one_row_all_columns_that_vary_count():
    assert float(_effective_columns(normal(1, 1, 6), torch.tensor([5]))) == 5


def test_a_task_is_represented_as_alone_where_another_one_has_examples_to_hold_out():
    """Of many examples some are looked at: here the two of a class in one task, and one of them in the other."""
    generator = torch.Generator().manual_seed(3)
    scales = torch.tensor([1.0, 1.4, 0.75, 1.0, 1.2, 0.9])
    support = (torch.randn(1, 515, 6, generator=generator) * scales).expand(2, -1, -1)
    rest, last = torch.arange(2, 513), torch.tensor([6])
    one = torch.cat([torch.tensor([0, 0, 1]), rest, last])
    two = torch.cat([torch.tensor([0, 1, 0]), rest, last])
    tasks = Tasks.from_arrays(support, torch.stack([one, two]), support[:, :3])
    both, alone = learn_representation(tasks, Constants()), learn_representation(tasks[:1], Constants())
    torch.testing.assert_close(both.weights[:1], alone.weights, rtol=1e-6, atol=0)


def test_examples_of_equal_length_are_held_out_whatever_their_order():
    """Counts are often equally long: their places decided, and answers changed by up to 0.016."""
    draw = np.random.default_rng(0)
    rows = torch.from_numpy(draw.poisson(1.0, size=(1, 40, 6))).double()
    labels = torch.arange(40).remainder(4).unsqueeze(0)
    order = torch.from_numpy(draw.permutation(40))
    held_out = []
    for some in (torch.arange(40), order):
        classes = _Classes.of(rows[:, some], labels[:, some], 4, every=1)
        chosen = classes.every_other(rows[:, some])[0] == 1
        chosen = torch.cat([rows[0, some], labels[0, some].unsqueeze(-1)], 1)[chosen]
        held_out.append(sorted(map(tuple, chosen.tolist())))
    assert held_out[0] == held_out[1]
