"""Files of arrays: what is stored is read, in a type that keeps it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hostile.files import write

from manyway import InputError
from manyway.files.arrays import plain, read_arrays

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_all_arrays_are_read(suffix, tmp_path):
    names = (
        {"class_names": np.array(["ant", "bee"])} if suffix == ".npz" else {"header": '{"class_names": ["ant", "bee"]}'}
    )
    arrays = {"features": X, "labels": np.array([0, 1]), "base_mean": X.mean(0), "is_support": np.array([True, False])}
    found = read_arrays(write(tmp_path / f"a{suffix}", {**arrays, "class_features": X * 2, "other": X * 3, **names}))
    assert found.items is None
    np.testing.assert_array_equal(found.features, X)
    assert (found.labels.tolist(), found.class_names) == ([0, 1], ("ant", "bee"))
    assert found.base_mean.dtype == found.class_features.dtype == torch.float32
    assert found.is_support.tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([[1, 2]], np.int64), np.float32),
        (np.array([[1, 2**24 + 1]], np.int64), np.float64),
        (np.array([[-(2**25) - 1, 2]], np.int32), np.float64),
        (np.array([[1, 2]], np.uint8), np.float32),
        (np.array([[1, 2]], ">f8"), np.float64),
        (np.array([[1, 2]], np.float16), np.float32),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numbers_get_a_type_that_keeps_them(suffix, values, dtype, tmp_path):
    path = write(tmp_path / f"a{suffix}", values if suffix == ".npy" else {"features": values})
    found = read_arrays(path).features
    assert plain(found).dtype == dtype
    np.testing.assert_array_equal(plain(found), values.astype(np.float64))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"is_support": np.array([0, 2])}, "is_support .* true or false"),
        ({"is_support": np.eye(2)}, "is_support .* true or false"),
        ({"base_mean": np.eye(2)}, "base_mean .* one finite number per feature"),
        ({"base_mean": np.array(["a", "b"])}, "base_mean .* must hold numbers"),
        ({"class_names": np.array(["a", ""])}, "class_names .* empty name"),
        ({"class_names": np.array(["a", "a"])}, "class_names .* 'a' twice"),
        ({"class_names": np.array([0.5, 1.5])}, "one string per class"),
    ],
)
def test_arrays_that_make_no_sense_are_one_sentence(arrays, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read_arrays(write(tmp_path / "a.npz", {"features": X, **arrays}))
