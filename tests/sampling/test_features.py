"""FeatureSet: what is saved comes back, and what cannot be read is one sentence."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from problems import make_features

from manyway import FeatureSet, InputError


def test_a_file_brings_everything_back(tmp_path):
    whole = FeatureSet(
        np.random.default_rng(0).normal(size=(6, 3)),
        [0, 1, 2, 0, 1, 2],
        class_names=["ä", "b", "c"],
        base_mean=[1.0, 2.0, 3.0],
        meta={"encoder": "none", "seed": 3},
        is_support=[True, False, False, False, True, True],
        class_features=np.eye(3),
    )
    whole.save(tmp_path / "set.safetensors")
    back = FeatureSet.load(tmp_path / "set.safetensors")
    for name in ("features", "labels", "base_mean", "is_support", "class_features"):
        assert torch.equal(getattr(back, name), getattr(whole, name)), name
    assert back.class_names == ("ä", "b", "c")
    assert back.meta == {"encoder": "none", "seed": 3}
    assert back.fingerprint == whole.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["set.safetensors"]


def test_a_file_is_saved_only_under_a_name_by_which_it_is_read(tmp_path):
    with pytest.raises(InputError, match=r"set\.npz; the name of a feature set ends in \.safetensors"):
        make_features().save(tmp_path / "set.npz")
    assert not list(tmp_path.iterdir())


def test_half_precision_on_disk_is_single_in_memory(tmp_path):
    features = make_features()
    features.save(tmp_path / "half.safetensors", half=True)
    back = FeatureSet.load(tmp_path / "half.safetensors")
    assert back.features.dtype == torch.float32
    torch.testing.assert_close(back.features, features.features, atol=0.01, rtol=1e-3)
    assert (tmp_path / "half.safetensors").stat().st_size < features.features.nbytes


def test_fingerprint_tells_sets_apart():
    assert make_features().fingerprint == make_features().fingerprint
    assert make_features().fingerprint != make_features(seed=1).fingerprint
    assert make_features().fingerprint != make_features().with_class_features(torch.ones(12, 8)).fingerprint


def test_npz_files_can_be_read(tmp_path):
    np.savez(tmp_path / "set.npz", features=np.ones((2, 3), np.float16), labels=[0, 1], class_names=["ant", "bee"])
    features = FeatureSet.load(tmp_path / "set.npz")
    assert features.features.dtype == torch.float32
    assert features.class_names == ("ant", "bee")


def test_class_features_are_matched_by_name(tmp_path):
    features = FeatureSet([[1.0, 0.0], [2.0, 0.0]], [0, 1], class_names=["ant", "bee"])
    np.savez(tmp_path / "names.npz", features=np.float16([[2, 2], [1, 1]]), class_names=["bee", "ant"])
    (tmp_path / "names.csv").write_text("label,x,y\nbee,2,2\nant,1,1\n")
    for named in (
        features.with_class_features(tmp_path / "names.npz"),
        features.with_class_features(tmp_path / "names.csv"),
        features.with_class_features([[1.0, 1.0], [2.0, 2.0]]),
    ):
        assert named.class_features.tolist() == [[1.0, 1.0], [2.0, 2.0]]
        assert named.class_features.dtype == named.features.dtype
    np.savez(tmp_path / "set.npz", features=features.features, labels=[0, 1], class_features=np.eye(2))
    assert torch.equal(FeatureSet.load(tmp_path / "set.npz").class_features, torch.eye(2))


@pytest.mark.parametrize(
    ("vectors", "names", "message"),
    [
        (np.eye(2), ["ant", "cow"], "the class 'cow', which is not among"),
        ([[1.0, 0.0]], ["ant"], "no row for the class 'bee'"),
        (np.eye(2), ["ant", "ant"], "'ant' twice"),
        (np.eye(2), ["ant"], "2 rows and 1 class names"),
        (np.eye(3), ["ant", "bee", "cow"], "the class 'cow'"),
        ([[1.0], [2.0]], ["ant", "bee"], r"shape \(2, 1\), not \(2, 2\); give one row per class"),
        ([[1.0, 0.0], [np.nan, 0.0]], ["ant", "bee"], "NaN or infinite values in row 1"),
        (np.eye(3), None, r"shape \(3, 3\)"),
    ],
)
def test_class_features_that_do_not_fit_are_refused(vectors, names, message):
    features = FeatureSet([[1.0, 0.0], [2.0, 0.0]], [0, 1], class_names=["ant", "bee"])
    with pytest.raises(InputError, match=message):
        features.with_class_features(vectors, names)


def test_a_file_of_class_features_must_name_the_classes(tmp_path):
    np.savez(tmp_path / "names.npz", features=np.eye(2))
    with pytest.raises(InputError, match="which class each row is of"):
        FeatureSet([[1.0, 0.0], [2.0, 0.0]], [0, 1]).with_class_features(tmp_path / "names.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [0, 1]), r"labels has shape \(2,\), not \(1,\); give one for each row"),
        (([1.0], [0]), "two axes"),
        (([[1.0], [np.inf]], [0, 1]), "features has NaN or infinite values in row 1"),
        (([[1.0], [2.0]], [0, -1]), "from 0"),
        (([[1.0], [2.0]], [0, 1], ["one"]), "only 1 class names"),
        (([[1.0], [2.0]], [0, 1], None, [1.0, 2.0]), "base_mean has shape"),
        ((np.zeros((0, 3)), np.zeros(0, int)), "empty"),
        (([["a"], ["b"]], [0, 1]), "real numbers"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        FeatureSet(*arguments)


def test_files_that_cannot_be_read_are_one_sentence(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")
    (tmp_path / "b.npz").write_bytes(pickle.dumps([1, 2]))
    np.savez(tmp_path / "c.npz", something=[1])
    for name, words in [
        ("a.safetensors", "cannot be read"),
        ("b.npz", "cannot be read"),
        ("c.npz", "it holds: something"),
        ("none.npz", "There is no file"),
    ]:
        with pytest.raises(InputError, match=words):
            FeatureSet.load(tmp_path / name)


def test_the_same_set_is_the_same_bytes_in_an_ordinary_file(tmp_path):
    features = FeatureSet([[1.0], [2.0]], [0, 1], class_names=["ant", "bee"], meta={"b": 1, "a": 2})
    for name in ("one", "two"):
        features.save(tmp_path / f"{name}.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "one.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
