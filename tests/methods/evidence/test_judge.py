"""Unknown queries: their probability, their groups, and what they do to the other queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import piled
from sklearn.datasets import load_wine

from manyway import Evidence, Tasks, TaskSpec, sample_tasks, solve
from manyway.errors import InputError
from manyway.methods.calibration.calibrating import Asked, calibrate_distances, calibrate_and_place
from manyway.methods.evidence.judge import (
    NearGroup,
    Scales,
    _between_neighbours,
    _integrate,
    _Tests,
    _with_guessed_scatter,
)
from manyway.methods.evidence.judged import Given, Judged
from manyway.methods.evidence.neighbourhood import Neighbourhoods
from manyway.methods.evidence.schedule import Schedule
from manyway.sampling.embedded import load_glyphs


def problem(n_tasks=3, *, n_unknown=(6, 5), n_known=(8, 7, 6), shots=4, seed=0, dtype=torch.float64):
    """Tasks with ten classes, of which some are among the queries, and further classes that are not. With the truth:
    the class of each query, 10 and more for the further classes."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n_tasks, 10 + len(n_unknown), 16, generator=generator, dtype=dtype) * 2
    support = centres[:, :10].repeat_interleave(shots, 1)
    numbers = [*enumerate(n_known), *enumerate(n_unknown, start=10)]
    truth = torch.cat([torch.full((n,), k) for k, n in numbers])
    query = centres[:, truth]

    def noisy(rows):
        return rows + torch.randn(rows.shape, generator=generator, dtype=dtype)

    labels = torch.arange(10).repeat_interleave(shots).expand(n_tasks, -1)
    return Tasks.from_arrays(noisy(support), labels, noisy(query)), truth


def test_queries_of_no_class_are_found_and_grouped():
    tasks, truth = problem(seed=3)
    solution = solve("evidence", tasks, open_set=True)
    assert solution.unknown[:, truth >= 10].min() > 0.7
    assert solution.unknown[:, truth < 10].max() < 0.3
    assert (solution.labels == truth.masked_fill(truth >= 10, -1)).all()
    groups = solution.unknown_groups
    assert (groups[:, truth < 10] == -1).all()
    assert (groups[:, truth == 10] == 0).all()  # the larger one first
    assert (groups[:, truth == 11] == 1).all()
    assert (solution.unknown_medoids >= 0).sum(-1).tolist() == [2, 2, 2]
    assert (truth[solution.unknown_medoids] == torch.tensor([10, 11])).all()


def test_class_probabilities_leave_the_probability_of_no_class():
    tasks, _ = problem()
    solution = solve("evidence", tasks, open_set=True)
    torch.testing.assert_close(
        solution.probabilities.sum(-1) + solution.unknown, torch.ones(3, 32, dtype=torch.float64)
    )


def test_unknown_queries_do_not_make_classes_present():
    tasks, _ = problem(n_unknown=(12, 12), n_known=(8, 7))
    # Most queries are unlike the examples, but not all alike.
    closed = solve("evidence", tasks, adapt=False)
    opened = solve("evidence", tasks, open_set=True)
    assert (closed.n_present > 3).all()
    assert (opened.n_present < 3).all()


def test_where_no_query_is_unknown_none_is_said_to_be_and_labels_stay():
    tasks, _ = problem(n_unknown=(), n_known=(8, 7, 6, 5))
    closed, opened = (solve("evidence", tasks, open_set=open_set) for open_set in (False, True))
    assert opened.unknown.max() < 0.1
    assert (opened.labels == closed.labels).all()
    assert (opened.unknown_medoids >= 0).sum(-1).tolist() == [0, 0, 0]
    assert opened.unknown_medoids.shape == (3, 0)


def test_all_queries_can_be_unknown():
    tasks, _ = problem(n_known=(), n_unknown=(9, 8, 7))
    solution = solve("evidence", tasks, open_set=True)
    assert (solution.labels == -1).all()
    assert (solution.unknown_medoids >= 0).sum(-1).tolist() == [3, 3, 3]
    assert solution.n_present.max() < 1


@pytest.mark.parametrize("n_query", [1, 2])
def test_single_queries_and_one_example_per_class_are_answered(n_query):
    tasks, _ = problem(n_known=(n_query,), n_unknown=(), shots=1)
    solution = solve("evidence", tasks, open_set=True)
    assert torch.isfinite(solution.unknown).all()
    assert (solution.labels == 0).all()


def test_two_classes_suffice_and_one_class_is_refused():
    support = torch.tensor([[[0.0, 0.1], [0.1, 0.0], [9.0, 1.0], [9.1, 0.9]]])
    tasks = Tasks.from_arrays(support, [[0, 0, 1, 1]], support[:, [0, 2]])
    assert solve("evidence", tasks, open_set=True, scale=None).labels.tolist() == [[0, 1]]
    with pytest.raises(InputError, match="open_set needs two classes or more"):
        solve("evidence", Tasks.from_arrays(support, [[0, 0, 0, 0]], support), open_set=True, scale=None)


def test_a_batch_equals_its_tasks_one_by_one_in_both_precisions():
    tasks, _ = problem()
    together = solve("evidence", tasks, open_set=True)
    for t in range(3):
        alone = solve("evidence", tasks[t : t + 1], open_set=True)
        torch.testing.assert_close(together.unknown[t], alone.unknown[0])
        assert (together.unknown_groups[t] == alone.unknown_groups[0]).all()
    single = solve("evidence", tasks.to(dtype=torch.float32), open_set=True)
    torch.testing.assert_close(single.unknown.double(), together.unknown, atol=1e-3, rtol=0)


def test_the_order_of_queries_and_the_names_of_classes_do_not_matter():
    tasks, _ = problem(1)
    solution = solve("evidence", tasks, open_set=True)
    generator = torch.Generator().manual_seed(0)
    order, names = (torch.randperm(n, generator=generator) for n in (32, 10))
    support = replace(tasks, support_labels=names[tasks.support_labels], query_table=tasks.query_table[:, order])
    other = solve("evidence", support, open_set=True)
    torch.testing.assert_close(other.unknown, solution.unknown[:, order])
    torch.testing.assert_close(other.probabilities[..., names], solution.probabilities[:, order])
    assert (other.unknown_groups == solution.unknown_groups[:, order]).all()


def test_known_labels_are_never_unknown():
    tasks, truth = problem(1)
    known = torch.full((1, 32), -1)
    known[0, truth == 10] = 3
    solution = solve("evidence", tasks, known=known, open_set=True)
    assert (solution.labels[0, truth == 10] == 3).all()
    assert (solution.unknown[0, truth == 10] == 0).all()


def test_the_objective_is_recorded():
    tasks, _ = problem()
    solution = solve("evidence", tasks, open_set=True, with_objective=True)
    assert torch.isfinite(solution.objective).all()
    plain = solve("evidence", tasks, open_set=True)
    torch.testing.assert_close(plain.probabilities, solution.probabilities)


# --- the parts -----------------------------------------------------------------------------------------------------


def integrated(log_odds):
    """The probabilities [1, q] for log-odds [1, q]."""
    one = torch.ones_like(log_odds)
    return _integrate(log_odds, 0.05 * one, one, one, 0.4 * one[:, 0], prior=0.05).probabilities


def near_group(squares, *, size, count):
    """Groups of so many whole queries near prototypes of so many examples."""
    sizes, counts, one = (torch.full_like(squares, n) for n in (size, count, 1))
    return NearGroup(squares=squares, sizes=sizes, counts=counts, given=Given(of_each=one, of_mean=one))


def test_the_probability_rises_with_the_excess_and_with_the_proportion():
    tasks, _ = problem(1)
    calibration = calibrate_distances(tasks, Schedule())
    squares = torch.linspace(-20, 200, 50, dtype=torch.float64)[None]
    group = near_group(squares, size=6, count=4)
    scales = Scales.of(calibration, _between_neighbours(calibration), Schedule())
    assert (scales.log_ratio(group).diff() >= -1e-12).all()

    def unknown(n):
        return integrated(torch.tensor([[2.0] * n + [-3.0] * (10 - n)]))

    few, many = unknown(1), unknown(8)
    assert few[0, 0] < many[0, 0]
    assert few[0, -1] < many[0, -1]


def test_a_query_between_two_classes_is_sooner_unknown_than_one_beside_them():
    """Both are as far from the nearest class."""
    query = torch.tensor([[[2.0, 0.0], [-2.0, 0.0]]], dtype=torch.float64)
    near = torch.tensor([[0.3, 1.5], [-0.4, -1.6], [0.9, 0.3], [-0.8, -0.2]], dtype=torch.float64)
    support = torch.cat([near, near + torch.tensor([5.0, 0.0])])[None]
    tasks = Tasks.from_arrays(support, [[0, 0, 0, 0, 1, 1, 1, 1]], query)
    between, beside = solve("evidence", tasks, open_set=True, scale=None, metric=False).unknown[0]
    assert between > 2 * beside


def test_large_batches_do_not_turn_slightly_odd_queries_into_unknown_ones():
    """One query in fifty looks unknown, as members of classes do now and then: more such queries are no evidence."""
    for n_query in (50, 300):
        odds = torch.full((1, n_query), -1.0, dtype=torch.float64)
        odds[0, : n_query // 50] = 6.0
        assert integrated(odds).max() < 0.05


def test_without_evidence_the_probability_is_that_of_the_prior():
    schedule, none = Schedule(), torch.zeros(1, 4, dtype=torch.float64)
    unknown = integrated(none)
    expected = schedule.improbable / 3  # if any is unknown, a third is
    torch.testing.assert_close(unknown, torch.full_like(unknown, expected), atol=2e-3, rtol=0)


def test_scales_from_few_left_out_examples_are_wider():
    """Three classes of two examples that are equally far apart by chance show no noise at all."""
    middle = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], dtype=torch.float64).repeat_interleave(2, 0)
    support = middle + torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64).repeat(3, 1)
    tasks = Tasks.from_arrays(support[None], [[0, 0, 1, 1, 2, 2]], support[None, :1])
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    scales = Scales.of(calibration, _between_neighbours(calibration), Schedule())
    assert calibration.within.noise < 0.01 * calibration.within.scatter
    torch.testing.assert_close(scales.noise[0], calibration.within.scatter * (1 + 5 / 3))  # two features, N = 3
    assert scales.freedom == 3


def test_a_small_support_makes_few_members_unknown():
    """Two examples of each of three normal classes: without wider scales a fifth was answered as unknown."""
    generator = torch.Generator().manual_seed(0)
    labels, truth = torch.arange(3).repeat_interleave(2), torch.arange(75) % 3
    noise = torch.randn(20, 84, 4, generator=generator, dtype=torch.float64)
    centres, support, query = noise.split((3, 6, 75), 1)
    tasks = Tasks.from_arrays(centres[:, labels] + support, labels.repeat(20, 1), centres[:, truth] + query)
    assert (solve("evidence", tasks, open_set=True).labels == -1).double().mean() < 0.05


def test_copies_in_a_batch_do_not_make_it_unknown():
    """The mean of copies is as far from its prototype as each of them; known ones became unknown."""
    tasks, truth = problem(n_unknown=(5,), n_known=(4, 3, 2))
    thrice = replace(tasks, query_table=tasks.query.repeat(1, 3, 1), query_index=None)
    once, often = (solve("evidence", one, open_set=True) for one in (tasks, thrice))
    assert (often.labels == once.labels.repeat(1, 3)).all()
    assert (once.labels[:, truth < 10] == truth[truth < 10]).all()


def in_clumps(n_unknown=0, *, parts=6, seed=0):
    """A table of four classes that come in clumps, with 20 examples and 50 queries each.

    The last queries are of a further class, which lies apart.
    """
    draw = np.random.default_rng(seed)
    middles = draw.normal(size=(4, 1, 12)) + draw.normal(size=(4, parts, 12)) * (parts > 1)
    spread = 0.35 if parts > 1 else 1.0
    rows = middles[:, draw.integers(parts, size=70)] + spread * draw.normal(size=(4, 70, 12))
    further = 4 + draw.normal(size=(n_unknown, 12))
    labels = np.arange(4).repeat(20)
    query = np.concatenate([rows[:, 20:].reshape(-1, 12), further])
    return Tasks.from_arrays(rows[:, :20].reshape(1, -1, 12), labels[None], query[None])


def test_clumps_of_a_class_are_not_unknown():
    """Of eight tables 29 % of the queries were answered as unknown, up to 69 % of one; now it is 8 %."""
    said = [solve("evidence", in_clumps(seed=seed), open_set=True).labels < 0 for seed in range(8)]
    assert torch.cat(said).double().mean() < 0.1


def test_a_class_that_lies_apart_is_found_beside_clumps():
    said = torch.cat([solve("evidence", in_clumps(30, seed=seed), open_set=True).labels < 0 for seed in range(8)])
    assert said[:, 200:].double().mean() > 0.95
    assert said[:, :200].double().mean() < 0.12


def test_classes_that_do_not_differ_tell_nothing_about_unknown_queries():
    """Prototypes are no farther apart than chance makes them: whole batches of such tables were answered as unknown."""
    noise = torch.randn(20, 60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3  # long tails
    tasks = Tasks.from_arrays(noise[:, :20], torch.arange(4).repeat(20, 5), noise[:, 20:])
    calibration = calibrate_distances(tasks, Schedule())
    within = replace(calibration.within, scatter=9 * calibration.within.scatter)
    wider = replace(calibration, within=within)
    scales = Scales.of(wider, _between_neighbours(calibration), Schedule())
    squares = torch.linspace(0, 50, 9).expand(20, -1)
    group = near_group(squares, size=1, count=5)
    assert (scales.of_unknown == 0).all()
    assert scales.log_ratio(group).abs().max() < 0.02
    assert (solve("evidence", tasks, open_set=True).labels == -1).double().mean() < 0.02


def test_strangers_at_a_class_that_is_absent_are_seen_by_the_group_of_the_class():
    tasks, truth = problem(1)
    calibration, placed = calibrate_and_place(tasks, Schedule())
    nearest = calibration.log_likelihood(placed).argmax(-1)
    assigned = torch.nn.functional.one_hot(nearest, 10).double()
    scales = Scales.of(calibration, _between_neighbours(calibration), Schedule())
    alone = torch.eye(placed.shape[1], dtype=placed.dtype)[None]
    rows = Judged.whole(placed)
    tests = _Tests(
        rows=rows,
        assigned=assigned,
        calibration=calibration,
        neighbourhoods=Neighbourhoods(similarity=alone, share=torch.ones_like(placed[..., 0])),
        means=placed,
        given=rows.single,
        scales=scales,
        distances=calibration.prototypes.squared_distances(placed),
    )
    groups = tests._classes
    ratios = scales.log_ratio(groups)
    sizes = groups.sizes
    members, strangers = nearest[0, truth == 0].unique(), nearest[0, truth == 10].unique()
    assert ratios[0, members].max() < 0 < ratios[0, strangers].min()
    assert float(sizes[0, members].sum()) == pytest.approx(8)


@pytest.mark.parametrize("far", [100, 1e4])
def test_one_outlier_is_unknown_and_the_class_that_is_nearest_to_it_is_not(far):
    X = np.random.default_rng(0).normal(size=(12, 3)) + np.repeat([[0], [4], [8]], 4, 0)
    y = np.repeat(list("abc"), 4)
    found = Evidence(open_set=True).fit(X, y).infer(np.vstack([X, [[far, far, -far]]]))
    assert found.unknown[-1] > 0.8
    assert found.unknown[:-1].max() < 0.05
    assert found.labels[:-1].tolist() == y.tolist()


def test_outliers_are_seen_where_rows_get_unit_length():
    """The direction of an outlier is that of some class; its length is not."""
    X, y = load_wine(return_X_y=True)
    outliers = X.mean(0) + [[30.0], [-40.0]] * X.std(0) * np.resize([1, -1, -1], X.shape[1])
    classifier = Evidence(open_set=True).fit(X[::5], y[::5])
    found = classifier.infer(np.vstack([X[1::5], outliers]))
    assert found.unknown[-2:].min() > 0.8
    assert (found.labels[:-2] == classifier.predict(X[1::5])).mean() > 0.9


def with_gaps(tasks, part, *, alike=False):
    """The tasks with a part of the cells of queries missing: at random, or in the same columns of all."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, 1, tasks.n_features) if alike else tasks.query.shape
    holes = torch.rand(shape, generator=generator) < part
    return Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query.masked_fill(holes, torch.nan))


@pytest.mark.parametrize(("part", "alike"), [(0.3, False), (0.3, True), (0.5, True)])
def test_unknown_queries_are_found_by_the_cells_that_are_there(part, alike):
    """What gaps hide of a distance was missing in what members have, so that unknown queries looked like them."""
    generator = torch.Generator().manual_seed(0)
    labels, truth = torch.arange(20).repeat_interleave(5), torch.tensor([*range(6), 20, 21, 22]).repeat_interleave(8)
    centres = 0.7 * torch.randn(3, 23, 200, generator=generator, dtype=torch.float64)
    noise = torch.randn(3, 172, 200, generator=generator, dtype=torch.float64)
    rows = centres[:, torch.cat([labels, truth])] + noise
    tasks = Tasks.from_arrays(rows[:, :100], labels.repeat(3, 1), rows[:, 100:])
    found = solve("evidence", with_gaps(tasks, part, alike=alike), open_set=True).labels
    assert (found[:, truth >= 20] == -1).double().mean() > 0.8
    assert (found[:, truth < 20] == truth[truth < 20]).double().mean() > 0.95


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_gaps_make_no_query_unknown(part):
    """Means of groups were drawn to the middle of the classes by what filled the gaps."""
    tasks, _ = problem(n_unknown=(), n_known=(8, 7, 6, 5))
    assert (solve("evidence", with_gaps(tasks, part), open_set=True).labels >= 0).all()


def test_a_row_without_any_number_is_not_unknown():
    tasks, _ = problem(1, n_unknown=())
    query = tasks.query.clone()
    query[0, 0] = torch.nan
    found = solve("evidence", Tasks.from_arrays(tasks.support, tasks.support_labels, query), open_set=True)
    assert float(found.unknown[0, 0]) < 0.05


def test_scattered_unknown_queries_are_found_one_by_one():
    """Each of them is of a class of its own, so that no group helps."""
    tasks, truth = problem(n_unknown=(1,) * 12)
    solution = solve("evidence", tasks, open_set=True)
    assert (solution.labels[:, truth >= 10] == -1).double().mean() > 0.9
    assert (solution.labels[:, truth < 10] == truth[truth < 10]).all()


def test_the_expected_number_is_near_the_true_one():
    for n_unknown in ((), (6, 5), (6, 5, 8)):
        expected = solve("evidence", problem(n_unknown=n_unknown)[0], open_set=True).unknown.sum(1)
        assert (expected - sum(n_unknown)).abs().max() < 0.6 + 0.2 * sum(n_unknown)


def test_one_example_per_class_tells_unknown_queries_by_the_distances_between_classes():
    tasks, truth = problem(shots=1)
    unknown = solve("evidence", tasks, open_set=True).unknown
    higher = unknown[:, truth >= 10].unsqueeze(2) > unknown[:, truth < 10].unsqueeze(1)
    assert higher.double().mean() > 0.99
    larger = replace(tasks, support_table=7 * tasks.support_table, query_table=7 * tasks.query_table)
    torch.testing.assert_close(solve("evidence", larger, open_set=True).unknown, unknown, atol=1e-6, rtol=0)


def test_a_query_that_is_probably_of_some_class_gets_a_label():
    """Many classes in one place: no class is as probable as no class, and yet the query is of one of them."""
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(1, 300, 2, generator=generator)
    labels = torch.arange(150).repeat_interleave(2)[None]
    solution = solve(
        "evidence", Tasks.from_arrays(support, labels, torch.randn(1, 9, 2, generator=generator)), open_set=True
    )
    assert (solution.unknown > solution.probabilities.amax(-1)).any()
    assert (solution.unknown < 0.4).all()
    assert (solution.labels >= 0).all()


# --- in blocks -----------------------------------------------------------------------------------------------------


def test_blocks_give_the_answers_of_the_whole():
    tasks, truth = problem(1)
    whole = solve("evidence", tasks, open_set=True)
    found = solve("evidence", piled(tasks, 20), open_set=True)
    torch.testing.assert_close(found.unknown, whole.unknown, atol=0.02, rtol=0)
    torch.testing.assert_close(found.probabilities, whole.probabilities, atol=0.02, rtol=0)
    torch.testing.assert_close(found.probabilities.sum(-1) + found.unknown, torch.ones_like(found.unknown))
    assert torch.equal(found.labels, whole.labels)
    assert (found.unknown_groups[:, truth >= 10] == whole.unknown_groups[:, truth >= 10]).all()
    assert found.unknown_medoids.tolist() == whole.unknown_medoids.tolist()


def test_further_queries_are_judged_as_their_groups_are(monkeypatch):
    tasks, truth = problem(1)
    monkeypatch.setattr("manyway.methods.evidence.judge.MOST_JUDGED", 16)
    solution = solve("evidence", tasks, open_set=True)
    assert (solution.labels == truth.masked_fill(truth >= 10, -1)).all()
    assert (solution.unknown_groups[0, truth >= 10] == truth[truth >= 10] - 10).all()


# --- the estimator -------------------------------------------------------------------------------------------------


def arrays():
    tasks, truth = problem(1)
    return tasks.support[0].numpy(), tasks.support_labels[0].numpy(), tasks.query[0].numpy(), truth.numpy()


def test_predict_answers_minus_one_unknown_or_what_was_asked_for():
    x, y, query, truth = arrays()
    names = np.array([f"class {k}" for k in range(10)])
    assert (Evidence(open_set=True).fit(x, y).predict(query) == np.where(truth < 10, truth, -1)).all()
    expected = [names[k] if k < 10 else "unknown" for k in truth]
    assert Evidence(open_set=True).fit(x, names[y]).predict(query).tolist() == expected
    answers = Evidence(open_set=True, unknown_label="none").fit(x, y).predict(query).tolist()
    assert answers == [k if k < 10 else "none" for k in truth.tolist()]


def test_a_class_cannot_have_the_name_of_no_class():
    x, y, _, _ = arrays()
    with pytest.raises(InputError, match="A class is called 3; choose another unknown_label"):
        Evidence(open_set=True, unknown_label=3).fit(x, y)


def test_infer_and_its_tables_have_the_groups():
    x, y, query, truth = arrays()
    result = Evidence(open_set=True).fit(x, y).infer(query)
    assert result.unknown_medoids.shape == (2,)
    table = result.to_frame()
    assert (table["label"] == np.where(truth < 10, truth, -1)).all()
    assert (table["group"] == np.where(truth < 10, -1, truth - 10)).all()
    strange = table[table["label"] == -1]  # sure to be unknown: the table says how sure, and what comes next
    assert (strange["probability"] == strange["unknown"]).all()
    assert strange["probability"].min() > 0.5
    assert (strange["label_2"] == result.probabilities[strange.index].argmax(1)).all()
    assert result.classes_frame()["items"].sum() == (truth < 10).sum()


def test_no_rounding_makes_a_query_more_than_certainly_unknown():
    """It was 1 + 1e-7 in the second of these tasks: a probability below 0, and the presence of classes no number."""
    spec = TaskSpec(shots=20, k_eff=5, n_query=35, n_unknown=40, n_ways=143, unknown_classes=3)
    found = solve(
        "evidence", sample_tasks(load_glyphs().to("cpu", torch.float32), spec, seed=31, count=2), open_set=True
    )
    assert float(found.probabilities.min()) >= 0
    assert bool(torch.isfinite(found.presence).all())


def test_with_one_example_per_class_the_scatter_is_a_part_of_the_distance_of_neighbours():
    tasks, _ = problem(shots=1)
    calibration = calibrate_distances(tasks, Schedule())
    between = _between_neighbours(calibration)
    found = _with_guessed_scatter(calibration, between, Schedule(one_shot_within=0.8))
    torch.testing.assert_close(2 * found.within.scatter, 0.8 * between)
    assert (found.within.scatter != calibration.within.scatter).all()
    relative = calibration.within.noise / calibration.within.scatter
    torch.testing.assert_close(found.within.noise / found.within.scatter, relative)
    lengths = calibration.prototypes.offsets.square().sum(-1)
    torch.testing.assert_close(found.prototypes.squares, lengths - found.within.scatter.unsqueeze(-1))
