"""Keys of feature sets in suites."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from manyway.bench.data import find_features
from manyway.bench.plan import SuiteChanges, make_jobs
from manyway.bench.suite import parse_suite
from manyway.errors import InputError


@pytest.fixture
def folder(tmp_path):
    names = ["ant", "bee", "cow", "dog"]
    np.savez(tmp_path / "pets_enc.npz", features=np.arange(8.0).reshape(4, 2), labels=range(4), class_names=names)
    np.savez(tmp_path / "pets_names_enc.npz", features=np.arange(8.0)[::-1].reshape(4, 2), class_names=names[::-1])
    return tmp_path


def test_a_key_with_names_has_class_features(folder):
    named = find_features("pets+names", folder)
    assert torch.equal(named.class_features[:, 1], torch.tensor([0.0, 2.0, 4.0, 6.0]))
    assert find_features("pets", folder).class_features is None
    half = find_features("pets-half-val+names", folder)
    assert half.class_names == ("bee", "dog")
    assert torch.equal(half.class_features, named.class_features[1::2])


def test_missing_names_are_one_sentence(folder):
    with pytest.raises(InputError, match="no features 'pets_words'"):
        find_features("pets+words", folder)


def test_without_shots_only_methods_that_use_class_features_run(folder):
    suite = parse_suite(
        'title = "names"\n[[experiments]]\nfeatures = "pets+names"\nmethods = ["stata", "simpleshot"]\n'
        "task = { shots = 0, k_eff = 2, n_query = 2 }\nskip_impossible = true",
        "mine",
        "mine.toml",
    )
    jobs, skipped = make_jobs(suite, SuiteChanges(data=folder, n_tasks=2))
    assert [job.experiment.method for job in jobs] == ["stata"]
    assert skipped == ["shots=0 k_eff=2 n_query=2 on pets+names: simpleshot needs labelled examples"]
