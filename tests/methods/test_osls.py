"""OSLS: proportions of classes and of unknown queries; equal to recorded runs of the original, without its NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import RECORDINGS, answered_labels, failed_rows, feature_files, recorded_tasks, repeat
from manyway import METHODS, OSLS, FeatureSet, InputError, Tasks, solve


def slow_sigmoid(tasks: Tasks, max_iter: int = 100) -> tuple[np.ndarray, float]:
    """[q, k + 1] the answers for one task whose classes all have two samples or more, and ρ."""
    support, labels, query = tasks.support[0].numpy(), tasks.support_labels[0].numpy(), tasks.query[0].numpy()
    n_classes = tasks.n_classes

    def norm(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    support, query = norm(support), norm(query)
    w = np.stack([norm(support[labels == k].mean(0)) for k in range(n_classes)])
    known, unknown = [], []
    for i, k in enumerate(labels):
        own = norm(support[(labels == k) & (np.arange(len(labels)) != i)].mean(0))
        others = np.delete(w, k, 0)
        unknown.append(20 * (others @ support[i]).max())
        known.append(20 * max((others @ support[i]).max(), own @ support[i]))
    # The lower of two middle values, as torch has it.
    medians = [np.sort(values)[(len(values) - 1) // 2] for values in (known, unknown)]
    middle, width = sum(medians) / 2, (medians[0] - medians[1]) / 2
    gate = lambda t: 1 / (1 + np.exp(-(np.asarray(t) - middle) / width))  # noqa: E731
    sigma_1, half = gate(known).mean(), gate(unknown).mean() / 2
    share = half / (1 - sigma_1 + half)
    scores = 20 * query @ w.T
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    h = gate(scores.max(1))[:, None]
    f = np.hstack([h * p, 1 - h])
    source = np.append(np.full(n_classes, share / n_classes), 1 - share)
    pi = source
    for _ in range(max_iter):
        g = f * pi / source
        g /= g.sum(1, keepdims=True)
        pi = g.mean(0)
    rho = np.clip((1 - pi[-1] - half) / (sigma_1 - half), 0, 1)
    g = f * np.append(rho * pi[:-1] / pi[:-1].sum(), 1 - rho) / source
    return g / g.sum(1, keepdims=True), rho


def test_the_sigmoid_is_that_of_the_equations():
    tasks = make_tasks(1, n_classes=4, n_query=12, n_features=6, shots=3, spread=1.0)
    expected, rho = slow_sigmoid(tasks)
    found = solve("osls", tasks, gate="sigmoid", scale=None)
    assert float(found.told["known_share"]) == pytest.approx(rho, abs=1e-12)
    torch.testing.assert_close(found.unknown[0], torch.from_numpy(expected[:, -1]))
    known = (1 - found.unknown[0]).unsqueeze(-1) * found.probabilities[0]
    torch.testing.assert_close(known, torch.from_numpy(expected[:, :-1]))


def with_strangers(n_known: int, n_strangers: int) -> Tasks:
    """Four classes, three examples each; strangers are of four further directions."""
    generator = torch.Generator().manual_seed(0)
    labels, truth = torch.arange(4).repeat(3), torch.cat([torch.arange(n_known) % 2, torch.arange(n_strangers) % 4 + 4])
    rows = torch.eye(8, dtype=torch.float64)
    draw = lambda of: rows[of] + 0.15 * torch.randn(len(of), 8, generator=generator, dtype=torch.float64)  # noqa: E731
    return Tasks.from_arrays(draw(labels)[None], labels[None], draw(truth)[None], query_labels=truth[None])


@pytest.mark.parametrize("gate", ["auto", "step"])
def test_queries_of_no_class_are_unknown(gate):
    tasks = with_strangers(12, 6)
    found = solve("osls", tasks, gate=gate, scale=None)
    assert found.unknown[0, :12].max() < 0.5 < found.unknown[0, 12:].min()
    assert torch.equal(found.labels[0, :12], tasks.query_labels[0, :12])
    assert float(found.told["known_share"]) == pytest.approx(12 / 18, abs=0.1)


def test_a_closed_gate_is_unknown_where_the_original_has_nan():
    """The gate is closed for one of twelve queries, and the corrected part of known queries is 1."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.eye(6, dtype=torch.float64)
    labels = torch.arange(4).repeat(3)
    noisy = rows[labels] + 0.6 * torch.randn(12, 6, generator=generator, dtype=torch.float64)
    query = torch.cat([rows[torch.arange(11) % 2], rows[4:5]])
    found = solve("osls", Tasks.from_arrays(noisy[None], labels[None], query[None]), gate="step", scale=None)
    assert float(found.told["known_share"]) == 1
    assert found.unknown[0].tolist() == [0.0] * 11 + [1.0]
    assert torch.isfinite(found.probabilities).all()


def test_with_one_example_per_class_no_query_is_unknown():
    found = solve("osls", make_tasks(2, shots=1))
    assert (found.unknown == 0).all()
    assert torch.equal(found.labels, solve("mapls", make_tasks(2, shots=1), data_weight=1.0).labels)


def test_the_objective_never_increases():
    found = METHODS["osls"](with_strangers(9, 9), gate="sigmoid", max_iter=30, with_objective=True).objective
    assert (found.diff(dim=1) <= 1e-12).all()
    assert found[0, 0] > found[0, -1]


def test_a_smaller_weight_of_the_queries_keeps_absent_classes():
    tasks = with_strangers(12, 0)
    absent = [float(solve("osls", tasks, data_weight=weight).probabilities[..., 2:].sum()) for weight in (1.0, 0.5)]
    assert absent[0] < absent[1]
    with pytest.raises(InputError, match=r"osls: data_weight is 2\.0; it must be from 0 to 1"):
        solve("osls", tasks, data_weight=2.0)


def test_the_estimator_says_the_same():
    tasks = with_strangers(12, 6)
    found = OSLS().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy()).infer(tasks.query[0].numpy())
    assert found.to_frame()["unknown"].to_numpy() == pytest.approx(solve("osls", tasks).unknown[0].numpy(), abs=1e-6)


@pytest.mark.parametrize("name", ["osls", "osls-mle", "osls-other-rescale"])
@pytest.mark.parametrize("dataset", ["clinc150", "cub200"])
def test_answers_are_those_of_the_recorded_run(data_folder, dataset, name):
    config = "openset_5shot"
    path = data_folder.parent / "reference" / f"{dataset}_openset_new.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)[dataset]).features
    tasks = recorded_tasks(data_folder, features, dataset, config, 3)
    found = repeat(name, tasks, config)
    failed = failed_rows(data_folder, dataset, config, name, 3)
    labels = answered_labels(found, RECORDINGS[name])
    assert torch.equal(labels[~failed.rows], failed.labels[~failed.rows])
    outcomes = torch.cat([(1 - found.unknown).unsqueeze(-1) * found.probabilities, found.unknown.unsqueeze(-1)], -1)
    with np.load(path) as file:
        expected = torch.from_numpy(file[f"probs_{name}"][:3])
        torch.testing.assert_close(outcomes[~failed.rows], expected[~failed.rows], atol=2e-5, rtol=0)
        np.testing.assert_allclose(found.told["known_share"], file[f"rho_t_{name}"][:3], atol=1e-5)


def test_the_default_precision_of_torch_changes_nothing():
    tasks = make_tasks(2, n_classes=5, shots=4)
    expected = solve("osls", tasks).probabilities
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(solve("osls", tasks).probabilities, expected)
    finally:
        torch.set_default_dtype(torch.float32)
