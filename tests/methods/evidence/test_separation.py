"""Claims with one example per class, where features say much or nothing about the classes."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import ks_2samp

from manyway import Tasks, solve
from manyway.methods.evidence import separation
from manyway.methods.evidence.calibrate import learn_for_batch
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.separation import nearer_than_chance, separation_power


def tasks_of(rows_of_classes: torch.Tensor, n_present: int, names: torch.Tensor | None = None) -> Tasks:
    """One example of each class [t, k, n, d], and the other rows of the first classes as queries."""
    support = rows_of_classes[:, :, 0]
    query = rows_of_classes[:, :n_present, 1:].flatten(1, 2)
    labels = torch.arange(support.shape[1]).expand(len(support), -1)
    return Tasks.from_arrays(support, labels, query, class_features=names)


def rows(spread: float, n_tasks: int = 6, n_classes: int = 60, per_class: int = 9) -> torch.Tensor:
    """Rows around class means that lie so far apart; the means and the rows have 8 directions of different lengths."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(8, 40, generator=generator) * torch.linspace(1, 3, 8).unsqueeze(-1)
    means = spread * torch.randn(n_tasks, n_classes, 1, 8, generator=generator)
    within = torch.randn(n_tasks, n_classes, per_class, 8, generator=generator)
    return (means + within) @ directions


def claim_and_truth(tasks: Tasks, n_present: int) -> tuple[float, float]:
    found = solve("evidence", tasks)
    truth = torch.arange(n_present).repeat_interleave(tasks.n_query // n_present)
    right = (found.labels == truth).double().mean()
    return float(found.probabilities.amax(-1).mean()), float(right)


def power_of(tasks: Tasks, probabilities: torch.Tensor) -> torch.Tensor:
    placed = learn_for_batch(tasks, Parameters())
    return separation_power(placed.rows, probabilities, placed.learned.calibration)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_features_that_say_little_about_the_classes_are_not_believed(spread):
    claim, right = claim_and_truth(tasks_of(rows(spread), 10), 10)
    assert right < 0.2
    assert claim < right + 0.05


def test_features_that_tell_classes_apart_keep_their_claims():
    tasks = tasks_of(rows(3.0), 10)
    probabilities = solve("evidence", tasks).probabilities
    assert bool((power_of(tasks, probabilities) == 1).all())


def test_few_classes_say_little_about_the_features():
    """Two classes whose rows lie far from their examples may be odd ones."""
    tasks = tasks_of(rows(0.0), 10)
    of_two = torch.zeros(len(tasks), tasks.n_query, 60)
    of_two[..., :2] = 0.5
    of_all = torch.full((len(tasks), tasks.n_query, 60), 1 / 60)
    assert bool((power_of(tasks, of_two) == 1).all())
    assert bool((power_of(tasks, of_all) < 0.6).all())


def test_nearer_than_chance_is_the_largest_difference_of_distributions():
    generator = torch.Generator().manual_seed(1)
    some = torch.randn(3, 40, generator=generator).double()
    others = torch.randn(3, 25, generator=generator).double() + 0.5
    found = nearer_than_chance(some, torch.ones_like(some), others)
    expected = [ks_2samp(a, b, alternative="greater").statistic for a, b in zip(some, others, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_a_query_counts_as_much_as_its_weight():
    some, others = torch.tensor([[1.0, 5.0, 9.0]]), torch.tensor([[4.0, 6.0, 8.0]])
    twice = nearer_than_chance(torch.tensor([[1.0, 1.0, 5.0, 9.0]]), torch.ones(1, 4), others)
    torch.testing.assert_close(nearer_than_chance(some, torch.tensor([[2.0, 1.0, 1.0]]), others), twice)
    none = nearer_than_chance(some, torch.tensor([[0.0, 0.0, 1.0]]), others)
    assert float(none) == 0


def test_equal_distances_are_no_difference():
    assert float(nearer_than_chance(torch.zeros(1, 5), torch.ones(1, 5), torch.zeros(1, 3))) == 0


def test_some_of_many_examples_stand_for_all(monkeypatch):
    tasks = tasks_of(rows(0.3), 10)
    probabilities = torch.full((len(tasks), tasks.n_query, 60), 1 / 60)
    of_all = power_of(tasks, probabilities)
    monkeypatch.setattr(separation, "_MOST_EXAMPLES", 30)
    torch.testing.assert_close(power_of(tasks, probabilities), of_all, rtol=0, atol=0.3)


def test_queries_that_are_all_unknown_leave_a_finite_power():
    tasks = tasks_of(rows(1.0), 10)
    found = power_of(tasks, torch.zeros(len(tasks), tasks.n_query, 60))
    assert bool(torch.isfinite(found).all())


def test_names_are_no_examples():
    """Names of classes may lie apart from all items, which says nothing about how well they tell classes apart."""
    made = rows(3.0)
    names = made[:, :, 0] + 100
    with_names = solve("evidence", tasks_of(made, 10, names=names))
    assert float(with_names.probabilities.amax(-1).mean()) > 0.5
