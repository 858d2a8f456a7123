"""StatA, MOON, TransCLIP and ZLaP against slow restatements of their formulas, one task, class and query at a time."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
import torch
from problems import ESTIMATORS, make_features, make_tasks

from benchmarks.reference import RECORDINGS, recorded_tasks
from manyway import FeatureSet, InputError, StatA, Tasks, TaskSpec, sample_tasks, solve
from manyway.methods.graph.common import query_graph

METHODS = ("stata", "moon", "transclip", "zlap")


def norm(x):
    return x / np.sqrt((x**2).sum())


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def one_task(tasks):
    """Support, labels, queries and normalised class means of the first task of unit tasks, as NumPy."""
    support, query = tasks.support[0].numpy(), tasks.query[0].numpy()
    labels = tasks.support_labels[0].numpy()
    means = np.stack([norm(support[labels == k].mean(0)) for k in range(tasks.n_classes)])
    return support, labels, query, means


def unit_tasks(n_query=12, n_classes=5, n_features=8, shots=2, seed=0):
    tasks = make_tasks(1, n_classes, n_query, n_features, shots, seed=seed, spread=1.0)
    units = {
        name: value / value.norm(dim=-1, keepdim=True)
        for name, value in vars(tasks).items()
        if "table" in name and value is not None
    }
    return replace(tasks, **units)


def edges(x, n):
    """Directed: the cosines of each query with its n nearest others."""
    found = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        for j in sorted(others, key=lambda j: -x[i] @ x[j])[:n]:
            found[i, j] = x[i] @ x[j]
    return found


def slow_stata(x, w, soft):
    guess = np.stack([softmax(100 * w @ row) for row in x])
    z, mu, graph = guess, w, edges(x, 3)
    first = sum(z[i, k] * (x[i] - w[k]) ** 2 for i in range(len(x)) for k in range(len(w))) / len(x)
    var = np.stack([first] * len(w))
    for update in range(11):
        for _ in range(5):
            pull = graph.T @ z + graph @ z
            new = np.empty_like(z)
            for i in range(len(x)):
                density = [
                    -0.5 * ((x[i] - mu[k]) ** 2 / var[k]).sum() - 0.5 * np.log(var[k]).sum() for k in range(len(w))
                ]
                new[i] = softmax(np.log(guess[i]) + (np.array(density) + 50 / 6 * pull[i]) / 50)
            z = new
        if update == 10:
            break
        for k in range(len(w)):
            n = z[:, k].sum() if soft else (z.argmax(1) == k).sum()
            beta, size = n / (1 + n), z[:, k].sum()
            mean = norm(sum(z[i, k] * x[i] for i in range(len(x))) / size)
            mu = np.concatenate([mu[:k], [norm(beta * mean + (1 - beta) * w[k])], mu[k + 1 :]])
            spread = sum(z[i, k] * (x[i] - mu[k]) ** 2 for i in range(len(x))) / size
            var[k] = beta * spread + (1 - beta) * (first + (w[k] - mu[k]) ** 2)
    return z


def slow_moon(x, w):
    d, n_classes = x.shape[1], len(w)
    guess = np.stack([softmax(100 * w @ row) for row in x])
    z, mu, graph = guess, list(w), edges(x, 3)

    def concentration(r):
        r = min(r, 0.999)
        return (r * d - r**3) / (1 - r**2)

    spread = sum(z[i, k] * ((x[i] - w[k]) ** 2).sum() for i in range(len(x)) for k in range(n_classes)) / len(x)
    kappa = [concentration(1 - spread / 2)] * n_classes
    trust = [sqrt(guess[:, k].mean() * guess[:, k].max()) for k in range(n_classes)]
    for update in range(11):
        pull, new = graph.T @ z + graph @ z, np.empty_like(z)
        for i in range(len(x)):
            density = [kappa[k] * mu[k] @ x[i] + (d - 1) / 2 * log(kappa[k]) - kappa[k] for k in range(n_classes)]
            new[i] = softmax(np.log(guess[i]) + (np.array(density) + 50 / 6 * pull[i]) / 50)
        z = new
        if update == 10:
            break
        weight = [1 + sum(p * log(p) for p in row if p > 0) / log(n_classes) for row in z]
        for k in range(n_classes):
            n = (z.argmax(1) == k).sum()
            beta = n / (max(trust) / trust[k] + n)
            total = sum(weight[i] * z[i, k] for i in range(len(x)))
            v = sum(weight[i] * z[i, k] * x[i] for i in range(len(x))) / total
            mean = beta * v + (1 - beta) * w[k]
            mu[k], kappa[k] = norm(mean), min(500, concentration(sqrt((mean**2).sum())))
    return z


def slow_transclip(s, y, x, w, gammas, *, restart=True, chosen=True, authors=False):
    d, n_classes = x.shape[1], len(w)
    guess = np.stack([softmax(100 * w @ row) for row in x])
    one_hot = np.eye(n_classes)[y]
    among, labelled = edges(x, 3), np.zeros((len(s), len(x)))
    for j in range(len(s)):
        for i in sorted(range(len(x)), key=lambda i: -s[j] @ x[i])[int(authors) : 3 + authors]:
            labelled[j, i] = s[j] @ x[i]
    rows = np.concatenate([labelled, among] if authors else [among, labelled])
    answers = []
    for gamma in gammas:
        if restart or not answers:
            z, var = guess, np.full(d, 1 / d)
            mu = np.stack([norm(s[y == k].sum(0)) for k in range(n_classes)])
        for update in range(11):
            for _ in range(5):
                pull = rows.T @ np.concatenate([z, one_hot]) + (rows @ z)[: len(x)]
                density = [[-0.5 * ((x[i] - mu[k]) ** 2 / var).sum() for k in range(n_classes)] for i in range(len(x))]
                z = np.stack(
                    [softmax(0.5 * np.log(guess[i]) + (density[i] + 50 / 6 * pull[i]) / 50) for i in range(len(x))]
                )
            if update == 10:
                break
            of_support = 50 * gamma / len(s)
            mu = np.stack([norm(z[:, k] @ x / len(x) + of_support * s[y == k].sum(0)) for k in range(n_classes)])
            var = sum(z[i, k] * (x[i] - mu[k]) ** 2 for i in range(len(x)) for k in range(n_classes)) / len(x)
            var = (var + of_support * sum((s[j] - mu[y[j]]) ** 2 for j in range(len(s)))) / (1 + 50 * gamma)
        answers.append(z)
    right = [sum(z[(x @ s[j]).argmax()].argmax() == y[j] for j in range(len(s))) for z in answers]
    return answers[right.index(max(right)) if chosen else -1]


def slow_zlap(x, w):
    n_classes, n = len(w), len(w) + len(x)
    graph = np.zeros((n, n))
    graph[n_classes:, n_classes:] = edges(x, 5).clip(0)
    for k in range(n_classes):
        for i in sorted(range(len(x)), key=lambda i: -w[k] @ x[i])[:5]:
            graph[k, n_classes + i] = max(w[k] @ x[i], 0) ** 5
    graph = graph + graph.T
    degrees = graph.sum(1)
    scaled = graph / np.sqrt(np.outer(degrees, degrees)).clip(1e-300)
    scores = np.linalg.solve(np.eye(n) - 0.3 * scaled, np.eye(n)[:, :n_classes])[n_classes:]
    return scores / scores.sum(1, keepdims=True)


@pytest.mark.parametrize("soft", [False, True])
def test_stata_is_its_formulas(soft):
    tasks = unit_tasks()
    _, _, x, w = one_task(tasks)
    found = solve("stata", tasks, scale=None, soft_counts=soft).probabilities[0]
    np.testing.assert_allclose(found, slow_stata(x, w, soft), atol=1e-9)


def test_moon_is_its_formulas():
    tasks = unit_tasks()
    _, _, x, w = one_task(tasks)
    np.testing.assert_allclose(solve("moon", tasks, scale=None).probabilities[0], slow_moon(x, w), atol=1e-9)


@pytest.mark.parametrize(
    ("params", "slow"),
    [
        ({}, {}),
        ({"restart": False, "choose": "last"}, {"restart": False, "chosen": False}),
        ({"restart": False, "graph": "authors"}, {"restart": False, "authors": True}),
    ],
)
def test_transclip_is_its_formulas(params, slow):
    tasks = unit_tasks(n_query=9, n_classes=4)
    gammas = (0.002, 0.2)
    found = solve("transclip", tasks, scale=None, gammas=gammas, **params).probabilities[0]
    np.testing.assert_allclose(found, slow_transclip(*one_task(tasks), gammas, **slow), atol=1e-9)


def test_zlap_is_its_linear_system():
    tasks = unit_tasks(n_query=30)
    _, _, x, w = one_task(tasks)
    np.testing.assert_allclose(solve("zlap", tasks, scale=None).probabilities[0], slow_zlap(x, w), atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_constant_features_change_nothing(method):
    tasks = make_tasks(2, n_query=20, n_features=6)
    dead = torch.zeros(2, 1, 2, dtype=torch.float64)
    padded = replace(
        tasks,
        support_table=torch.cat([tasks.support, dead.expand(-1, tasks.n_support, -1)], -1),
        query_table=torch.cat([tasks.query, dead.expand(-1, tasks.n_query, -1)], -1),
    )
    expected = solve(method, tasks).probabilities
    torch.testing.assert_close(solve(method, padded).probabilities, expected, atol=1e-8, rtol=0)
    padded.query_table[:, 0, -1] = 1e-8  # rounding, as in features that were stored in 16 bits
    torch.testing.assert_close(solve(method, padded).probabilities, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_classes_without_a_query_and_queries_without_a_class_give_probabilities(method):
    """Queries at one point, far from 50 classes: sums over the queries of a class underflow in float32."""
    classes = torch.eye(50)
    query = torch.zeros(1, 20, 50)
    query[..., 0] = 1
    probabilities = solve(
        method, Tasks.from_arrays(classes[None], torch.arange(50)[None], query), scale="l2"
    ).probabilities
    assert (probabilities[0].argmax(-1) == 0).all()
    opposite = Tasks.from_arrays(classes[None], torch.arange(50)[None], -query)
    assert solve(method, opposite, scale="l2").probabilities.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_class_features_take_the_place_of_the_support(method):
    plain = make_features(per_class=40)
    means = torch.stack([plain.features[plain.labels == k].mean(0) for k in range(12)])
    features = plain.with_class_features(means)
    spec = TaskSpec(shots=0, k_eff=3, n_query=30)
    tasks = sample_tasks(features, spec, count=4)
    solution = solve(method, tasks)
    assert (solution.labels == tasks.query_labels).float().mean() > 0.7
    assert solution.prototypes.shape == (4, 12, 8)
    if method != "transclip":  # which uses both
        few = sample_tasks(features, TaskSpec(shots=2, k_eff=3, n_query=30), count=4)
        from_names = solve(method, few, scale="l2").probabilities
        bare = Tasks.from_arrays(
            torch.zeros(4, 0, 8), torch.zeros(4, 0, dtype=int), few.query, class_features=few.class_features
        )
        torch.testing.assert_close(from_names, solve(method, bare, scale="l2").probabilities)


@pytest.mark.parametrize("method", METHODS)
def test_some_classes_may_have_names_only(method):
    tasks = make_tasks(1, n_classes=4, n_query=20)
    known = tasks.support_labels[0] < 2
    names = torch.stack([tasks.support[0][tasks.support_labels[0] == k].mean(0) for k in range(4)])
    part = Tasks.from_arrays(
        tasks.support[:, known], tasks.support_labels[:, known], tasks.query, class_features=names[None]
    )
    assert solve(method, part, scale="l2").probabilities.shape == (1, 20, 4)


def test_estimators_take_class_features():
    names = {"cow": [0.0, 0.0, 1.0], "ant": [1.0, 0.0, 0.0], "bee": [0.0, 1.0, 0.0]}
    query = [[0.9, 0.1, 0.0], [0.0, 0.1, 0.9], [0.1, 0.9, 0.1]]
    for method in METHODS:
        clf = ESTIMATORS[method](scale="l2").fit(None, None, class_features=names)
        assert clf.classes_.tolist() == ["ant", "bee", "cow"]
        assert clf.predict(query).tolist() == ["ant", "cow", "bee"]
    some = StatA(scale="l2").fit([[1.0, 0.0, 0.1], [0.0, 1.0, 0.0]], ["ant", "bee"], class_features=names)
    assert some.predict(query).tolist() == ["ant", "cow", "bee"]
    rows = StatA(scale="l2").fit(np.eye(3), ["cow", "bee", "ant"], class_features=np.eye(3)[:, [2, 1, 0]])
    assert rows.predict(np.eye(3)).tolist() == ["cow", "bee", "ant"]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], {"a": [1.0, 0.0]}), "no vector for the label 'b'"),
        (([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], np.eye(3)), "shape .3, 3. for 2 distinct labels"),
        (
            ([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], np.eye(2)[:, :1]),
            r"shape \(1, 2, 1\), not \(1, 2, 2\)",
        ),
        ((None, None, {"a": [1.0, 0.0], "b": [1.0]}), "one vector, all of the same length"),
        ((None, None, {"a": [1.0, 0.0]}), "one class only"),
    ],
)
def test_class_features_that_do_not_fit_are_refused_by_fit(fit, message):
    with pytest.raises(InputError, match=message):
        StatA().fit(*fit)


def test_estimators_of_other_methods_refuse_class_features():
    with pytest.raises(InputError, match="SimpleShot does not use class_features"):
        ESTIMATORS["simpleshot"]().fit([[0.0], [1.0]], [0, 1], class_features=[[0.0], [1.0]])


def test_transclip_needs_a_gamma():
    with pytest.raises(InputError, match="gammas is empty"):
        solve("transclip", make_tasks(), gammas=())


def test_labels_must_not_spread_without_end():
    with pytest.raises(InputError, match=r"alpha is 1\.0; it must be at least 0 and below 1"):
        solve("zlap", make_tasks(), alpha=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, run in RECORDINGS.items() if run.method in METHODS])
def test_labels_are_those_of_the_authors_code(data_folder, name):
    """On the first two recorded tasks; ``python -m benchmarks.reference`` compares accuracies on all of them."""
    recorded = data_folder.parent / "reference" / "clinc150_5shot_keff5_later.npz"
    if not recorded.is_file():
        pytest.skip("needs the recorded labels beside the data folder")
    features = FeatureSet.load(data_folder / "features" / "clinc150_minilm_l6.npz").features
    tasks = recorded_tasks(data_folder, features, "clinc150", "5shot_keff5", 2)
    with np.load(recorded, allow_pickle=False) as file:
        expected = torch.from_numpy(file[name][:2].astype(np.int64))
    run = RECORDINGS[name]
    assert torch.equal(solve(run.method, tasks, **run.params).labels, expected)


@pytest.mark.parametrize("n_features", [2, 5])
def test_with_few_queries_all_others_are_neighbours(n_features):
    query = torch.nn.functional.normalize(
        torch.randn(2, 3, n_features, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    cosines = query @ query.mT
    torch.testing.assert_close(query_graph(query, 9), cosines - torch.diag_embed(cosines.diagonal(dim1=1, dim2=2)))


def test_classes_without_variance_have_the_same_answers_in_both_precisions():
    """Rows of one feature are 1 or −1: within a class they are equal, and their variance is rounding alone."""
    tasks = make_tasks(3, n_classes=3, n_query=60, n_features=1, shots=5, seed=1)
    single, double = (solve("stata", tasks.to(dtype=dtype)).probabilities for dtype in (torch.float32, torch.float64))
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-3)
