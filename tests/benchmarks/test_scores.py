"""The benchmark of scores: its batches, and that everything it compares answers."""

from __future__ import annotations

import torch

from benchmarks.features import make_features
from benchmarks.scores import N_QUERY, answers, labelled_tasks, train


def test_batches_have_each_item_once_and_the_classes_of_one_half():
    scored = train(make_features(12, 60, 16))
    posteriors, truth = scored.batches(3, half=1, count=4, seed=0)
    assert posteriors.shape == (4, N_QUERY, 12)
    for rows, labels in zip(posteriors, truth, strict=True):
        assert len(rows.unique(dim=0)) == N_QUERY
        assert len(labels.unique()) == 3
        assert bool((labels >= 6).all())
    found = answers(scored, posteriors)
    right = {name: float((solution.labels == truth).float().mean()) for name, solution in found.items()}
    assert min(right["evidence"], right["calibrated evidence"]) >= right["classifier"]
    assert torch.equal(labelled_tasks(truth, 12).query_labels, truth)
