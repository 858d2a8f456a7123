"""Damaged checkpoints, and metadata that is missing or of wrong types: always one sentence."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from manyway.encoding.backbones.checkpoint import FORMAT, network_from, read_checkpoint, save_checkpoint
from manyway.encoding.backbones.networks import build
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.encoding.encoders import open_encoder
from manyway.errors import InputError

PREPROCESS = Preprocess(resize=16, crop=12)
META = {"backbone": "resnet-small", "preprocess": PREPROCESS.to_meta()}


@pytest.fixture(scope="module")
def weights():
    return build("resnet-small", 4, 3).state_dict()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def refused(path) -> str:
    """The sentence that opening gives; it names the file and stands on one line."""
    with pytest.raises(InputError) as caught:
        open_encoder(str(path))
    message = str(caught.value)
    assert path.name in message
    return message


def changed(**values):
    return {**META, "preprocess": {**META["preprocess"], **values}}


def test_a_good_checkpoint_opens(weights, path):
    save_checkpoint(path, {**weights, "base_mean": torch.zeros(96)}, META)
    encoder = open_encoder(str(path))
    assert encoder.preprocess == PREPROCESS
    assert encoder.encode(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).shape == (2, 96)


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"backbone": "resnet-small"}, "'preprocess' in the metadata is wrong"),
        ({"preprocess": META["preprocess"]}, "no architecture known here"),
        ({**META, "backbone": 7}, "says that its backbone is 7"),
        ({**META, "backbone": ["resnet18"]}, "says that its backbone is"),
        ({**META, "backbone": "resnet-smal"}, "did you mean 'resnet-small'"),
        ({**META, "backbone": "resnet18"}, "do not fit resnet18"),
        ({**META, "preprocess": None}, "'preprocess' in the metadata is wrong"),
        ({**META, "preprocess": [96, 84]}, "'preprocess' in the metadata is wrong"),
        (changed(resize="large"), "'preprocess.resize' in the metadata is wrong"),
        (changed(resize=8), "resize is 8 and crop 12"),
        (changed(resize=10**9), "resize is 1000000000"),
        (changed(crop=0), "crop 0"),
        (changed(mean=[0.5, None, 0.5]), "'preprocess.mean.1' in the metadata is wrong"),
        (changed(mean=[], std=[]), "one value per channel"),
        (changed(mean=[0.5], std=[0.5]), "reads 3 channels but its preprocessing gives 1"),
        (changed(std=[1.0, 0.0, 1.0]), "positive"),
        (changed(mean=[float("nan")] * 3), "finite"),
        (changed(interpolation="nearest"), "no interpolation 'nearest'"),
    ],
)
def test_wrong_metadata_is_one_sentence(meta, why, weights, path):
    save_checkpoint(path, weights, meta)
    assert why in refused(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "3", '"x"', "\\ud800", "[" * 100_000])
def test_metadata_that_is_not_an_object_is_one_sentence(text, weights, path):
    save_file(weights, path, metadata={FORMAT: text})
    refused(path)


@pytest.mark.parametrize(
    "base_mean",
    [torch.zeros(95), torch.zeros(1, 96), torch.zeros(()), torch.full((96,), torch.nan), torch.full((96,), torch.inf)],
    ids=["short", "two axes", "no axis", "nan", "infinite"],
)
def test_an_impossible_base_mean_is_one_sentence(base_mean, weights, path):
    save_checkpoint(path, {**weights, "base_mean": base_mean}, META)
    assert "base_mean" in refused(path)


@pytest.mark.parametrize(
    ("name", "tensor", "why"),
    [
        ("conv1.weight", torch.zeros(24, 3, 3, 3, dtype=torch.int8), "not of floating-point numbers"),
        ("conv1.weight", torch.zeros(1, 1_000_000, 1, 1), "no backbone has it"),
        ("conv1.weight", torch.zeros(24), "no backbone has it"),
        ("fc.weight", torch.zeros(()), "no backbone has it"),
        ("fc.weight", torch.zeros(10**9, 0), "no backbone has it"),
        ("fc.weight", torch.zeros(4, 95), "of another shape: fc.weight"),
        ("bn1.weight", torch.zeros(24, dtype=torch.complex64), "not of floating-point numbers"),
    ],
)
def test_weights_of_wrong_shapes_and_types_are_one_sentence(name, tensor, why, weights, path):
    save_checkpoint(path, {**weights, name: tensor}, META)
    assert why in refused(path)


HEADERS = {
    "a list": "[]",
    "no offsets": '{"a": {"dtype": "F32", "shape": [1]}}',
    "unknown type": '{"a": {"dtype": "X99", "shape": [1], "data_offsets": [0, 4]}}',
    "shape of text": '{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}}',
    "negative shape": '{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
    "overflow": '{"a": {"dtype": "F32", "shape": [9223372036854775807, 9], "data_offsets": [0, 4]}}',
    "offsets outside": '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 99]}}',
    "number as metadata": '{"__metadata__": 3, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    "object in metadata": '{"__metadata__": {"x": {}}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    "rare type": '{"a": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}}',
    "no tensor": "{}",
}


@pytest.mark.parametrize("kind", list(HEADERS))
def test_safetensors_headers_of_wrong_types_are_one_sentence(kind, path):
    header = HEADERS[kind].encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + (b"" if kind == "no tensor" else bytes(4)))
    refused(path)


def test_changed_bytes_give_a_network_or_one_sentence(weights, path):
    save_checkpoint(path, weights, META)
    good = path.read_bytes()
    generator = np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", good[:8])[0]
    for _ in range(60):
        bad = bytearray(good)
        for place in generator.integers(0, header, 2):
            bad[place] = generator.integers(0, 256)
        path.write_bytes(bytes(bad))
        try:
            open_encoder(str(path))
        except InputError:
            continue


@pytest.mark.parametrize(
    "content",
    [
        [torch.zeros(2)],
        torch.zeros(2),
        {"state_dict": {"fc.weight": "text"}},
        {"epoch": 3},
        {},
        {"state_dict": {"conv1.weight": torch.zeros(2).to_sparse()}},
        {"state_dict": {3: torch.zeros(2)}},
    ],
    ids=["list", "tensor", "text", "number", "empty", "sparse", "numbered"],
)
def test_torch_files_without_weights_are_one_sentence(content, tmp_path):
    torch.save(content, tmp_path / "net.pth")
    refused(tmp_path / "net.pth")


def test_a_tensor_that_only_pretends_to_be_large_is_not_copied(tmp_path):
    """A stride of zero: a file of some bytes that would fill the memory."""
    torch.save({"conv1.weight": torch.zeros(1).expand(64, 3, 10**6, 10**6)}, tmp_path / "net.pth")
    refused(tmp_path / "net.pth")


def test_a_pipe_and_a_folder_are_one_sentence(tmp_path):
    os.mkfifo(tmp_path / "net.pth")
    (tmp_path / "net.pt").mkdir()
    refused(tmp_path / "net.pth")
    refused(tmp_path / "net.pt")


def test_an_encoder_whose_weights_are_not_finite_is_one_sentence(weights, path, tmp_path):
    from PIL import Image

    from manyway.encoding.datasets.sources import open_source
    from manyway.encoding.extraction import encode

    save_checkpoint(path, {**weights, "conv1.weight": torch.full_like(weights["conv1.weight"], torch.nan)}, META)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "pictures" / "a.png")
    with pytest.raises(InputError, match="not finite"):
        encode(open_source(tmp_path / "pictures"), open_encoder(str(path)))


def test_loading_needs_no_metadata(weights, path):
    save_file(weights, path)
    assert network_from(read_checkpoint(path), "resnet-small").n_features == 96
