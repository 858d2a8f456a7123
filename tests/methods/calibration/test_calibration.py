"""The calibration: the samples that are left out in turn, and how sure answers may be.

Ordinary values, such as copies, must not break it.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from problems import make_tasks

from manyway import Tasks, solve
from manyway.methods.calibration import calibration as module
from manyway.methods.calibration.calibration import calibrate_and_place, calibrate_distances, gaussian_precision
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.calibrate import learn


def table(n_examples: int, n_features: int = 6) -> Tasks:
    generator = torch.Generator().manual_seed(n_examples)
    labels = torch.arange(2).repeat_interleave(n_examples)
    support = torch.randn(1, len(labels), n_features, generator=generator) + labels.view(1, -1, 1)
    return Tasks.from_arrays(support, labels[None], torch.randn(1, 20, n_features, generator=generator))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_in_the_only_class_with_two_examples_are_no_error(dtype):
    bits = torch.tensor([[[0, 1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1, 0]]], dtype=dtype)
    found = solve("evidence", Tasks.from_arrays(bits, [[0, 1, 1]], bits))
    assert found.labels.tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classes_whose_examples_are_all_copies_are_labelled_by_the_nearest(dtype):
    examples = torch.randint(0, 17, (4, 30), generator=torch.Generator().manual_seed(3)).to(dtype)
    tasks = Tasks.from_arrays(
        examples.repeat_interleave(5, 0)[None], torch.arange(4).repeat_interleave(5)[None], examples[None]
    )
    assert solve("evidence", tasks).labels.tolist() == [list(range(4))]


def test_few_left_out_examples_make_answers_less_sure_and_many_do_not():
    powers = [float(learn(table(n), Parameters()).calibration.power[0]) for n in (2, 5, 10, 50)]
    # An example that looks mislabelled counts a little less.
    assert powers == pytest.approx([4 / 29, 1 / 2, 4 / 5, 100 / 101], rel=0.01)


def test_many_examples_of_one_class_do_not_make_answers_about_the_other_sure():
    support, labels = torch.randn(1, 51, 6, generator=torch.Generator().manual_seed(2)), (torch.arange(51) > 0).long()
    found = learn(Tasks.from_arrays(support, labels[None], support), Parameters()).calibration.power
    assert found.tolist() == pytest.approx([1 / (1 + (10 / 2 * (1 + 1 / 50) / 2) ** 2)])


def test_classes_of_one_example_beside_large_ones_take_no_more_queries_than_they_have():
    generator, counts = torch.Generator().manual_seed(3), torch.tensor([1, 20]).repeat(5)
    means, labels = 1.6 * torch.randn(40, 10, 4, generator=generator), torch.arange(10).repeat_interleave(counts)
    truth = torch.arange(10).repeat(8)
    rows = [means[:, of] + torch.randn(40, len(of), 4, generator=generator) for of in (labels, truth)]
    found = solve("evidence", Tasks.from_arrays(rows[0], labels.expand(40, -1), rows[1])).labels
    assert (counts[found] == 1).float().mean() < 0.47


def test_a_precision_of_the_user_is_obeyed_as_it_is():
    tasks = table(2)
    assert learn(tasks, Parameters(precision=3.0)).precision.tolist() == pytest.approx([3.0])
    learned = float(learn(tasks, Parameters()).precision[0])
    sure, unsure = (solve("evidence", tasks, precision=one).probabilities.amax(-1).mean() for one in (learned, None))
    assert sure > unsure


@pytest.mark.parametrize("units", [[1.0, 1.0], [1.0, 30.0]])
def test_few_degrees_of_freedom_do_not_make_a_metric_that_tells_nothing_apart(units):
    examples = torch.tensor([[0, 9], [1, 9], [9, 0], [9, 1], [8, 1], [8, 0]]) * torch.tensor(units)
    tasks = Tasks.from_arrays(examples[None], [[0, 0, 1, 1, 2, 2]], torch.tensor([[[0.0, 8.0]]]) * torch.tensor(units))
    assert solve("evidence", tasks, schedule={"doubtful_examples": 0.0}).probabilities[0, 0, 0] > 0.999


def test_classes_that_a_common_size_hides_are_told_apart_with_two_examples_each():
    """As in crabs, whose measurements all grow with age: little of the metric is worse than none, and much is good."""
    generator = torch.Generator().manual_seed(5)
    shape = torch.randn(4, 5, generator=generator)

    def items(each: int) -> torch.Tensor:
        size = 20 + 5 * torch.randn(16, 4 * each, 1, generator=generator)
        noise = 0.2 * torch.randn(16, 4 * each, 5, generator=generator)
        return size * torch.tensor([1.0, 0.8, 2.0, 2.2, 0.9]) + shape.repeat_interleave(each, 0) + noise

    labels = torch.arange(4).expand(16, -1)
    tasks = Tasks.from_arrays(items(2), labels.repeat_interleave(2, 1), items(10))
    right = solve("evidence", tasks).labels == labels.repeat_interleave(10, 1)
    assert right.double().mean() > 0.85


def test_categories_that_one_example_has_teach_nothing():
    """Without such an example nothing is known of its category: all classes are equally far in it."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(10).repeat_interleave(5)
    kinds = torch.randint(0, 25, (1, 50), generator=generator)  # in no relation to the classes
    rows = torch.cat([torch.nn.functional.one_hot(kinds, 25), torch.randn(1, 50, 3, generator=generator)], -1)
    losses = learn(Tasks.from_arrays(rows, labels[None], rows), Parameters()).calibration.left_out_losses
    assert losses.mean() > 0.8 * torch.tensor(10.0).log()


@pytest.mark.parametrize("n_features", [1, 6, 64, 65, 600])
def test_the_number_of_features_does_not_make_answers_surer(n_features):
    assert learn(table(2, n_features), Parameters()).calibration.power.tolist() == pytest.approx([4 / 29])


@pytest.mark.parametrize("shots", [2, 8])
def test_prototypes_are_shrunk_where_class_means_differ_no_more_than_by_chance(shots):
    for spread, low, high in ((3.0, 0.9, 1.0), (0.0, 0.0, 0.6)):
        tasks = make_tasks(6, n_classes=20, n_features=12, shots=shots, spread=spread)
        plain = calibrate_distances(tasks, Constants())
        factors = plain.shrunk(Constants()).offsets.norm(dim=-1) / plain.offsets.norm(dim=-1)
        torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
        assert (low <= factors).all()
        assert (factors <= high).all()


def shortening(shrunk):
    """s_k: prototypes are also shortened by a_k = v_0/v_k, for the variances v_k = 1 + s_k/n_k of their samples.

    β is 1: there are as many differences within classes as classes.
    """
    assert bool((shrunk.scatter_known == 1).all())
    variances = 1 + 1 / shrunk.counts
    return shrunk.trust * variances / variances.amin(-1, keepdim=True)


def test_a_prototype_of_fewer_examples_is_shrunk_more():
    """What is expected of a class is r = ρ/(ρ + 1/n), for one ρ of all classes: r/(1 − r) = ρ n."""
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    torch.testing.assert_close(shrunk.trust, shrunk.offsets.norm(dim=-1) / plain.offsets.norm(dim=-1))
    expected = shortening(shrunk) * shrunk.reach.unsqueeze(-1)
    ratios = expected / (1 - expected) / plain.counts
    torch.testing.assert_close(ratios, ratios[:, :1].expand_as(ratios))
    torch.testing.assert_close(shrunk.precision, plain.precision / shrunk.trust.mean(-1))


def test_what_all_prototypes_are_shortened_by_counts_half():
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=3)
    shrunk = calibrate_distances(tasks, Constants()).shrunk(Constants())
    torch.testing.assert_close(shrunk.trust.amax(-1), shrunk.reach)
    assert (shrunk.reach < 1).all()
    assert (shrunk.unshrunk().reach == 1).all()


def test_an_added_class_leaves_the_precision_that_prototypes_have_without_shrinking():
    tasks = make_tasks(3, n_classes=12, n_features=8, shots=3)
    plain = calibrate_distances(tasks, Constants())
    more = plain.shrunk(Constants()).with_classes(plain.place(tasks.query[:, :1]))
    torch.testing.assert_close(more.unshrunk().precision, plain.precision)


def test_one_example_per_class_gives_the_precision_by_the_distances_between_classes():
    tasks = make_tasks(3, n_classes=7, shots=1)
    constants = Constants()
    middle = tasks.support.mean(1, keepdim=True)
    variance = (tasks.support - middle).square().sum(-1).quantile(0.5, dim=-1)
    torch.testing.assert_close(calibrate_distances(tasks, constants).precision, constants.one_shot_precision / variance)


def test_the_usual_precision_is_at_most_that_of_as_many_normal_columns():
    """Where classes of one column hardly differ within, distances between classes would say too much."""
    tasks = make_tasks(2, n_classes=6, n_features=1, shots=5, spread=0.3)
    centred = tasks.support - tasks.support.mean(1, keepdim=True)
    constants = Constants(one_shot_precision=1e9)
    plain = calibrate_distances(tasks, constants, metric=False)
    limit = gaussian_precision(centred.square().mean(1), centred.shape[1], plain.scatter, plain.counts)
    assert (plain.precision < 20 * limit).all()


# --- formulas, beside plain computations ----------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [True, False])
def test_a_linear_map_gives_the_log_likelihood_but_for_a_number_per_item(metric):
    tasks = make_tasks(2, n_classes=6, shots=3)
    calibration = calibrate_distances(tasks, Constants(), metric=metric)
    placed = calibration.place(tasks.query)
    weights, biases = calibration.linear()
    rest = calibration.log_likelihood(placed) - (placed @ weights + biases.unsqueeze(1))
    torch.testing.assert_close(rest, rest[..., :1].expand_as(rest))
    prototypes, tau = calibration.offsets[1], float(calibration.precision[1])
    biased = calibration.scatter[1] / calibration.counts[1]
    for z, found in zip(placed[1], calibration.log_likelihood(placed)[1], strict=True):
        torch.testing.assert_close(found, -0.5 * tau * ((z - prototypes).square().sum(-1) - biased))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("metric", [True, False])
def test_the_map_that_places_rows_is_the_calibration_without_its_prototypes(metric, shared):
    tasks = make_tasks(3, n_classes=6, shots=3)
    calibration = calibrate_distances(tasks[:1] if shared else tasks, Constants(), metric=metric)
    expected = calibration.place(tasks.query)
    torch.testing.assert_close(calibration.placing()(tasks.query), expected)
    factor = torch.tensor([0.5, 2.0, 3.0]).double()[: len(calibration.precision)]
    torch.testing.assert_close(calibration.placing(factor)(tasks.query), factor.view(-1, 1, 1) * expected)


def test_blocks_of_tasks_are_calibrated_as_all_at_once(monkeypatch):
    tasks = make_tasks(3, n_classes=4, shots=5)
    tasks = tasks.with_rows(tasks.support * torch.tensor([10.0, 1, 1, 1, 1]), tasks.query)
    whole = calibrate_distances(tasks, Constants())
    assert (whole.shrinkage < 1).all()
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", {"cpu": 1})
    found, placed = calibrate_distances(tasks, Constants()), calibrate_and_place(tasks, Constants())
    assert placed.calibration.metric is None
    for name in [one.name for one in fields(whole) if one.name != "metric"]:
        torch.testing.assert_close(getattr(found, name), getattr(whole, name))
        torch.testing.assert_close(getattr(placed.calibration, name), getattr(whole, name))
    for rows in (found.place(tasks.query), placed.queries):
        torch.testing.assert_close(rows, whole.place(tasks.query))


def test_shrunk_prototypes_fit_the_moments_of_class_means(monkeypatch):
    """E‖w_k‖² = (1 − 1/K) ρS + S e_k, where ρ is what all factors r = ρ/(ρ + 1/n) have in common."""
    monkeypatch.setattr(module, "_MOMENT_STEPS", 200)  # until nothing changes
    tasks = make_tasks(1, n_classes=12, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    counts, scatter = plain.counts[0].tolist(), float(plain.scatter)
    expected = (shortening(shrunk) * shrunk.reach)[0].tolist()
    ratio = expected[0] / (1 - expected[0]) / counts[0]
    total = weights = 0.0
    for n, offset in zip(counts, plain.offsets[0], strict=True):
        length = float(offset @ offset) / scatter
        error = (1 - 2 / 12) / n + sum(1 / other for other in counts) / 12**2
        weight = (ratio + 1 / n) ** -2 / (1 + length / (ratio + 1 / n))  # a far class says no more than others
        total += weight * (length - error)
        weights += weight
    assert ratio * (1 - 1 / 12) == pytest.approx(total / weights)


@pytest.mark.parametrize("few_columns", [0.0, 3.0, 1e6])
def test_a_shrunk_prototype_counts_as_the_samples_of_its_error_as_far_as_features_are_many(few_columns):
    tasks = make_tasks(2, n_classes=9, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants(few_columns=few_columns))
    for t in range(2):
        errors = [float(s / n) for s, n in zip(shortening(shrunk)[t], plain.counts[t], strict=True)]
        share = 8 / (8 + few_columns**2)
        counts = [1 / (min(errors) + share * (error - min(errors))) for error in errors]
        assert shrunk.counts[t].tolist() == pytest.approx(counts)
        torch.testing.assert_close(shrunk.offsets[t], shrunk.trust[t].unsqueeze(-1) * plain.offsets[t])


def test_distances_to_shrunk_prototypes_are_those_of_normal_features_for_rows_of_the_usual_length():
    """a d² + S v_0 ln(v/v_0), less what the class with the least variance has beyond S."""
    tasks = make_tasks(1, n_classes=9, n_features=8, shots=None)
    plain = calibrate_distances(tasks, Constants(), metric=False)
    shrunk = plain.shrunk(Constants(few_columns=0.0))
    factors = shortening(shrunk)[0]
    expected = factors * shrunk.reach[0]
    ratio = (expected / (1 - expected) / plain.counts[0])[0]
    scatter = plain.scatter[0]
    rows = torch.randn(5, 8, dtype=plain.offsets.dtype, generator=torch.Generator().manual_seed(1))
    usual = 1 + (1 - 1 / 9) * ratio + (1 / plain.counts[0]).sum() / 9**2
    rows = rows / rows.norm(dim=-1, keepdim=True) * (scatter * usual).sqrt()
    variances = 1 + factors / plain.counts[0]
    least = variances.min()
    apart = (rows.unsqueeze(1) - factors.unsqueeze(-1) * plain.offsets[0]).square().sum(-1)
    distances = least / variances * apart + scatter * least * (variances / least).log() - scatter * (least - 1)
    torch.testing.assert_close(shrunk.squared_distances(rows[None])[0], distances)


def test_classes_of_as_many_examples_are_as_far_as_their_errors_say():
    """Nothing but S s/n is subtracted then."""
    plain = calibrate_distances(make_tasks(2, n_classes=7, n_features=8, shots=3), Constants())
    shrunk = plain.shrunk(Constants())
    torch.testing.assert_close(shrunk.trust, shortening(shrunk))
    squares = shrunk.offsets.square().sum(-1) - plain.scatter.unsqueeze(-1) * shrunk.trust / 3
    torch.testing.assert_close(shrunk.squares, squares)
    torch.testing.assert_close(shrunk.steepness, shrunk.reach)


def test_unshrunk_prototypes_are_the_means_of_their_samples_again():
    tasks = make_tasks(3, n_classes=7, n_features=8, shots=None, spread=0.7)
    plain = calibrate_distances(tasks, Constants())
    shrunk = plain.shrunk(Constants())
    assert (shrunk.trust < 0.9).any()
    found = shrunk.unshrunk()
    for name in ("offsets", "precision", "trust", "reach", "steepness"):
        torch.testing.assert_close(getattr(found, name), getattr(plain, name))
    counts = torch.minimum(shrunk.counts, plain.examples)
    torch.testing.assert_close(found.counts, counts)
    torch.testing.assert_close(found.squares, plain.offsets.square().sum(-1) - plain.scatter.unsqueeze(-1) / counts)
    assert torch.equal(plain.unshrunk().squares, plain.squares)


def test_one_class_is_not_shrunk():
    plain = calibrate_distances(make_tasks(1, n_classes=1, shots=4), Constants())
    assert plain.shrunk(Constants()) is plain


def test_the_precision_of_normal_features_is_that_of_as_many_as_matter():
    variances = torch.tensor([[4.0, 1.0, 0.25], [1.0, 1.0, 1.0]]).double()
    counts, scatter = torch.tensor([[1.0, 4.0], [2.0, 3.0]]).double(), torch.tensor([5.0, 3.0]).double()
    expected = []
    for of_task, s, numbers in zip(variances.tolist(), scatter.tolist(), counts.tolist(), strict=True):
        number = sum(of_task) ** 2 / sum(v * v for v in of_task)
        freedom = number * (sum(numbers) - len(numbers))
        number *= 1 - 2 / max(freedom, 4)  # the mean of 1/χ² with few degrees of freedom
        expected.append(number / s * sum(n / (n + 1) for n in numbers) / len(numbers))
    assert gaussian_precision(variances, 5, scatter, counts).tolist() == pytest.approx(expected)


def test_the_noise_in_a_metric_is_the_deviation_of_left_out_samples_in_it():
    """Each is left out of the mean of its class and of A = γ + (1 − γ) Σ rr'·d/(f S)."""
    tasks = make_tasks(1, n_classes=3, shots=6, spread=1.5)
    tasks = tasks.with_rows(tasks.support * torch.tensor([10.0, 1, 1, 1, 1]), tasks.query)
    found = calibrate_distances(tasks, Constants())
    gamma, scatter = float(found.shrinkage), float(found.scatter)
    assert gamma < 1
    support, labels = tasks.support[0], tasks.support_labels[0]
    excess = []
    for i, x in enumerate(support):
        others = torch.arange(18) != i
        residuals = torch.cat([
            support[others & (labels == k)] - support[others & (labels == k)].mean(0) for k in range(3)
        ])
        metric = gamma * torch.eye(5) + (1 - gamma) * 5 / (15 * scatter) * residuals.T @ residuals
        apart = x - support[others & (labels == labels[i])].mean(0)
        square = float(found.metric.stretch) ** 2 * float(apart @ torch.linalg.solve(metric, apart))
        excess.append((square - scatter / 5 - scatter) / (1 + 1 / 5))
    assert float(found.noise) == pytest.approx(float(torch.tensor(excess).std(unbiased=False)))


def test_few_differences_within_classes_say_their_part_of_the_precision_and_of_the_shrinkage():
    """With f differences in K classes: f/K of the way from what holds for one example per class."""
    made = make_tasks(3, n_classes=8, n_features=20, shots=2)
    few = made.support_labels.new_tensor([0, 1, 2, 3, 4, 5, 6, 7, 0, 1]).expand(3, -1)
    order = made.support_labels.argsort(dim=1, stable=True)
    rows = torch.cat([order[:, ::2], order[:, 1:4:2]], 1).unsqueeze(-1).expand(-1, -1, 20)
    tasks = Tasks.from_arrays(made.support.gather(1, rows), few, made.query)
    found = calibrate_distances(tasks, Constants(), metric=False)
    torch.testing.assert_close(found.scatter_known, torch.full((3,), 2 / 8, dtype=torch.float64))
    whole = calibrate_distances(made, Constants(), metric=False)
    assert bool((whole.scatter_known == 1).all())
    shrunk = found.shrunk(Constants(few_columns=0.0))
    longer = found.counts / shrunk.counts  # β s
    of_one, of_two = longer.amin(-1), longer.amax(-1)
    relative = of_one / of_two  # (ρ + ½)/(ρ + 1)
    ratio = (relative - 0.5) / (1 - relative)
    root = (ratio / (ratio + 0.5)).sqrt()
    beta = 1 / (root + 2 / 8 * (1 - root))
    torch.testing.assert_close(of_two, beta * root)
    torch.testing.assert_close(shrunk.reach, root / beta)
    variances = 1 + longer / beta.unsqueeze(-1) / found.counts
    slopes = variances.amin(-1, keepdim=True) / variances
    torch.testing.assert_close(shrunk.trust, slopes * longer)
    steepness = torch.lerp(shrunk.trust.amax(-1), shrunk.trust.mean(-1), 2 / 8)
    torch.testing.assert_close(shrunk.steepness, steepness)


@pytest.mark.parametrize("counts", [(2, 20), (1, 2, 20), (5,)], ids=str)
def test_members_of_all_classes_are_as_far_as_members_whatever_the_number_of_examples(counts):
    draw = torch.Generator().manual_seed(3)
    centres = torch.randn(30, 200, generator=draw, dtype=torch.float64)
    labels = torch.arange(30).repeat_interleave(torch.tensor(counts)[torch.arange(30) % len(counts)])
    truth = torch.arange(30).repeat_interleave(20)
    examples, items = (centres[of] + 2 * torch.randn(len(of), 200, generator=draw).double() for of in (labels, truth))
    tasks = Tasks.from_arrays(examples[None], labels[None], items[None])
    plain = calibrate_distances(tasks, Constants())
    for calibration in (plain, plain.shrunk(Constants(few_columns=0.0))):
        distances = calibration.squared_distances(calibration.place(items[None]))[0, torch.arange(600), truth]
        relative = calibration.of_members.relative_to_one(distances[None], truth[None])[0]
        for size in range(len(counts)):
            assert relative[truth % len(counts) == size].mean() == pytest.approx(1, abs=0.1)


def test_rows_that_are_much_too_long_are_placed_at_three_times_the_length_of_the_longest_members():
    tasks = make_tasks(2, n_classes=7, n_features=8, shots=3)
    calibration = calibrate_distances(tasks, Constants()).bounded()
    squares = calibration.offsets.square().sum(-1).amax(-1) + calibration.scatter
    longest = 2 * squares.sqrt()
    torch.testing.assert_close(calibration.longest, longest)
    near = calibration.place(tasks.query)
    unit = near / near.norm(dim=-1, keepdim=True)
    times_longest = longest.view(-1, 1, 1) / near.norm(dim=-1, keepdim=True)
    for times, length, reliance in ((0.5, 0.5, 1.0), (1.0, 1.0, 1.0), (2.0, 1.25, 0.25), (1e9, 1.5, 0.0)):
        rows = calibration.middle + times * times_longest * (tasks.query - calibration.middle)
        for placed in (calibration.place(rows), calibration.placing()(rows)):
            torch.testing.assert_close(placed, length * longest.view(-1, 1, 1) * unit)
        found = calibration.reliance(calibration.place(rows))
        torch.testing.assert_close(found, torch.full_like(found, reliance))


@pytest.mark.parametrize("metric", [False, True])
def test_rows_are_as_long_as_they_are_where_no_bound_is_asked_for(metric):
    """The feature transform ``white`` of other methods is a linear map, also of far rows."""
    tasks = make_tasks(2, n_classes=7, n_features=8, shots=3)
    calibration = calibrate_distances(tasks, Constants(), metric=metric)
    far = calibration.middle + 1e6 * (tasks.query - calibration.middle)
    for place in (calibration.place, calibration.placing()):
        torch.testing.assert_close(place(far), 1e6 * place(tasks.query))
    assert (calibration.reliance(calibration.place(far)) == 1).all()
