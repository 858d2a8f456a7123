"""Classes that are known by a vector each, beside or instead of examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from manyway import Evidence, Tasks, solve
from manyway.errors import InputError
from manyway.methods.calibration import calibrate_distances
from manyway.methods.evidence.names import log_probability
from manyway.methods.evidence.scaling import scale_tasks
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.evidence.solver import prepare_evidence


def problem(shots, *, n_tasks=2, n_classes=12, noise=0.5, seed=0, occurring=(1, 4, 7), apart=5.0):
    """Tasks of which three classes occur among 24 queries. Names are the centres of the classes, with an error, and lie
    apart from the items. Support, labels, queries, names, truth."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres = 1.5 * normal(n_tasks, n_classes, 16)
    labels = torch.arange(n_classes).repeat_interleave(shots).expand(n_tasks, -1)
    truth = torch.tensor(occurring).repeat_interleave(24 // len(occurring)).expand(n_tasks, -1)
    support, query = (
        centres.gather(1, which.unsqueeze(-1).expand(-1, -1, 16)) + normal(n_tasks, which.shape[1], 16)
        for which in (labels, truth)
    )
    return support, labels, query, centres + noise * normal(*centres.shape) + apart * normal(16), truth


def accuracy(support, labels, query, names, truth):
    tasks = Tasks.from_arrays(support, labels, query, class_features=names)
    return float((solve("evidence", tasks).labels == truth).double().mean())


def test_names_alone_suffice():
    support, labels, query, names, truth = problem(0)
    assert accuracy(support, labels, query, names, truth) > 0.9


def test_a_single_class_is_found_by_its_name():
    """The mean of the queries says nothing about the distance between names and items then."""
    support, labels, query, names, truth = problem(0, occurring=(4,), apart=0.2)
    assert accuracy(support, labels, query, names, truth) > 0.9


def test_names_and_examples_together_are_better_than_either():
    support, labels, query, names, truth = problem(1, n_tasks=8, noise=1.0)
    both = accuracy(support, labels, query, names, truth)
    assert both > accuracy(support[:, :0], labels[:, :0], query, names, truth)
    assert both > accuracy(support, labels, query, None, truth)


def test_classes_without_examples_are_found_by_their_names():
    support, labels, query, names, truth = problem(4)
    without = labels[0] != 4
    assert accuracy(support[:, without], labels[:, without], query, names, truth) > 0.9


def test_a_class_with_a_poor_name_and_no_example_does_not_take_the_queries_of_others():
    support, labels, query, names, truth = problem(4, n_classes=30, noise=2.0)
    without = labels[0] != 0  # a class that does not occur
    assert accuracy(support[:, without], labels[:, without], query, names, truth) > 0.9


@pytest.mark.parametrize(("noise", "low", "high"), [(0.3, 4.0, 10.0), (2.0, 0.05, 0.5)])
def test_a_name_is_worth_as_many_examples_as_its_error_says(noise, low, high):
    support, labels, query, names, _ = problem(5, n_classes=30, noise=noise)
    tasks = Tasks.from_arrays(support, labels, query, class_features=names)
    worth = scale_tasks(tasks, Parameters(scale="cl2")).names.worth
    assert ((worth >= low) & (worth <= high)).all()


def test_without_two_examples_of_a_class_a_name_is_worth_one():
    support, labels, query, names, _ = problem(1)
    tasks = Tasks.from_arrays(support, labels, query, class_features=names)
    assert scale_tasks(tasks, Parameters(scale="cl2")).names.worth.tolist() == [1, 1]


def test_an_offset_of_all_names_changes_nothing():
    support, labels, query, names, _ = problem(2)
    first, second = (
        solve("evidence", Tasks.from_arrays(support, labels, query, class_features=vectors)).probabilities
        for vectors in (names, names + 3)
    )
    torch.testing.assert_close(first, second)


def test_queries_can_be_unknown_where_classes_have_names():
    support, labels, query, names, truth = problem(4, noise=0.2)
    known = torch.tensor([k for k in range(12) if k != 7])
    renamed = torch.full((12,), -1)
    renamed[known] = torch.arange(11)
    which = labels[0] != 7
    tasks = Tasks.from_arrays(support[:, which], renamed[labels[:, which]], query, class_features=names[:, known])
    solution = solve("evidence", tasks, open_set=True)
    assert ((solution.labels == -1) == (truth == 7)).double().mean() > 0.9


def test_the_estimator_takes_names_without_examples():
    _, _, query, names, truth = problem(0, n_tasks=1)
    vectors = {f"class {k}": vector for k, vector in enumerate(names[0].numpy())}
    labels = Evidence().fit(None, None, class_features=vectors).predict(query[0].numpy())
    assert np.mean(labels == np.array([f"class {k}" for k in truth[0].tolist()])) > 0.9


def test_names_of_another_width_are_refused():
    support, labels, query, names, _ = problem(2)
    with pytest.raises(InputError, match=r"class_features has shape \(2, \d+, 5\), not \(2, \d+, 16\)"):
        Tasks.from_arrays(support, labels, query, class_features=names[..., :5])


@pytest.mark.parametrize(("shots", "scale"), [(0, "range"), (0, "power"), (4, "range"), (4, "power"), (4, "white")])
def test_names_go_with_every_scale(shots, scale):
    support, labels, query, names, truth = problem(shots)
    tasks = Tasks.from_arrays(support, labels, query, class_features=names)
    assert (solve("evidence", tasks, scale=scale).labels == truth).double().mean() > 0.85


@pytest.mark.parametrize(("shots", "without"), [(1, -1), (4, -1), (4, 4)])
def test_names_are_prepared_with_the_examples(shots, without):
    support, labels, query, names, _ = problem(shots)
    which = labels[0] != without
    tasks = Tasks.from_arrays(support[:, which], labels[:, which], query, class_features=names)
    prepared = prepare_evidence(tasks)
    assert prepared is not None
    found, expected = solve("evidence", tasks, prepared=prepared), solve("evidence", tasks)
    torch.testing.assert_close(found.probabilities, expected.probabilities)
    nameless = solve("evidence", Tasks.from_arrays(support, labels, query))
    assert not torch.equal(found.probabilities, nameless.probabilities)


def test_a_scale_that_is_learned_from_examples_needs_some():
    support, labels, query, names, _ = problem(0)
    with pytest.raises(InputError, match="scale='white' is learned from examples, and there are none"):
        solve("evidence", Tasks.from_arrays(support, labels, query, class_features=names), scale="white")


def test_names_alone_cannot_be_prepared():
    support, labels, query, names, _ = problem(0)
    assert prepare_evidence(Tasks.from_arrays(support, labels, query, class_features=names)) is None


def test_a_label_without_a_name_is_refused():
    support, labels, _, names, _ = problem(2, n_tasks=1)
    vectors = dict(enumerate(names[0, :11].numpy()))
    with pytest.raises(InputError, match="class_features has no vector for the label 11"):
        Evidence().fit(support[0].numpy(), labels[0].numpy(), class_features=vectors)


def test_a_class_with_a_name_alone_has_a_prototype_of_twice_the_worth():
    """Its distances are shortened by the error of a name, not by half of it; prototypes are weighted means."""
    support, labels, query, names, _ = problem(3, n_tasks=1)
    without = labels[0] != 4
    tasks = Tasks.from_arrays(support[:, without], labels[:, without], query, class_features=names)
    scaled = scale_tasks(tasks, Parameters())
    learned = calibrate_distances(scaled.tasks, Schedule())
    placed = learned.coordinates.place(scaled.names.vectors)
    found = scaled.names.added_to(learned, placed)
    worth = float(scaled.names.worth)
    assert worth != pytest.approx(1)
    alone = torch.arange(12) == 4
    assert scaled.names.alone[0].tolist() == alone.tolist()
    more = found.prototypes.counts - learned.prototypes.counts
    torch.testing.assert_close(found.prototypes.examples - learned.prototypes.examples, more)
    counts = [2 * worth if one else 3 + worth for one in alone.tolist()]
    assert found.prototypes.counts[0].tolist() == pytest.approx(counts)
    of_examples = learned.prototypes.offsets[0] * 4 - placed[0]  # the names are among the examples here
    expected = torch.where(alone.unsqueeze(-1), placed[0], (of_examples + worth * placed[0]) / (3 + worth))
    torch.testing.assert_close(found.prototypes.offsets[0], expected)


def test_names_serve_all_tasks():
    support, labels, query, names, _ = problem(2, n_tasks=3)
    together = solve("evidence", Tasks.from_arrays(support, labels, query, class_features=names[:1]))
    for t in range(3):
        own = (support[t : t + 1], labels[t : t + 1], query[t : t + 1])
        alone = solve("evidence", Tasks.from_arrays(*own, class_features=names[:1]))
        torch.testing.assert_close(together.probabilities[t], alone.probabilities[0])


def test_queries_are_as_probable_as_a_mixture_of_the_classes():
    likelihood = torch.tensor([[[0.2, 0.5, 0.1], [0.4, 0.1, 0.3]]], dtype=torch.float64)
    proportions = torch.tensor([[0.7, 0.3, 0.0]], dtype=torch.float64)
    expected = np.log(0.7 * 0.2 + 0.3 * 0.5) + np.log(0.7 * 0.4 + 0.3 * 0.1)
    assert float(log_probability(likelihood.log(), proportions)) == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["auto", "l2", None])
@pytest.mark.parametrize("n_classes", [1, 4])
def test_one_class_alone_may_have_examples(n_classes, scale):
    """Its name is then the middle of all, so that no length says how much names point past the examples."""
    support, _, query, names, _ = problem(3)
    labels = torch.zeros(2, 3, dtype=torch.int64)
    tasks = Tasks.from_arrays(support[:, :3], labels, query, class_features=names[:, :n_classes])
    probabilities = solve("evidence", tasks, scale=scale).probabilities
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 24, dtype=torch.float64))
