"""The default encoder of pictures on OpenVINO, against torch. It is used on a CPU where it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from manyway.encoding import encoders
from manyway.encoding.backbones import on_openvino
from manyway.encoding.encoders import OPENVINO, TORCH, open_encoder, remark_on_engine
from manyway.errors import InputError

NAME = "efficientnet-lite2"


@pytest.fixture
def engine(monkeypatch):
    """Chooses what computes; the other tests compute with torch."""

    def choose(name, precision=None):
        monkeypatch.setenv("MANYWAY_ENGINE", name)
        if precision is not None:
            monkeypatch.setattr(on_openvino, "best_precision", lambda: precision)
        return open_encoder(NAME)

    return choose


@pytest.fixture(scope="module")
def pictures():
    """Three pictures with edges and areas, as photographs have them."""
    coarse = torch.rand(3, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    return (255 * torch.nn.functional.interpolate(coarse, 260, mode="bicubic").clamp(0, 1)).byte()


@pytest.fixture
def openvino():
    return pytest.importorskip("openvino", reason="needs manyway[fast]")


def test_single_precision_gives_the_features_of_torch(engine, pictures, openvino):
    expected = engine(TORCH).encode(pictures)
    encoder = engine(OPENVINO, on_openvino.SINGLE)
    torch.testing.assert_close(encoder.encode(pictures), expected, atol=1e-5, rtol=1e-5)
    assert encoder.engine == "openvino f32"
    assert remark_on_engine(encoder) is None


def test_the_precision_of_this_cpu_gives_nearly_the_same(engine, pictures, openvino):
    features = engine(OPENVINO).encode(pictures)
    expected = engine(TORCH).encode(pictures)
    others = expected.roll(1, 0)
    assert torch.cosine_similarity(features, expected).min() > 0.999
    assert torch.cosine_similarity(features, others).max() < 0.99
    assert features.dtype == torch.float32


def test_half_precision_is_said_with_the_way_out(engine):
    pytest.importorskip("openvino", reason="needs manyway[fast]")
    assert "half precision; MANYWAY_ENGINE=torch" in remark_on_engine(engine(OPENVINO, on_openvino.HALF))


def test_half_precision_is_for_cpus_that_have_it(monkeypatch):
    able = {"with": ["FP32", "FP16", "INT8"], "without": ["FP32", "BF16", "INT8"]}
    found = {}
    for which, capabilities in able.items():
        monkeypatch.setattr(on_openvino, "load_openvino", lambda listed=capabilities: _Package(listed))
        found[which] = on_openvino.best_precision.__wrapped__()
    assert found == {"with": on_openvino.HALF, "without": on_openvino.SINGLE}


class _Package:
    """As much of OpenVINO as says what a CPU can do."""

    def __init__(self, capabilities):
        self.capabilities = capabilities

    def Core(self):
        return self

    def get_property(self, device, name):
        assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.capabilities


def test_torch_computes_where_openvino_is_not_installed_or_not_wanted(engine, monkeypatch):
    assert engine(TORCH).engine == TORCH
    monkeypatch.setattr(encoders, "is_installed", lambda module: module != OPENVINO)
    assert engine(OPENVINO).engine == TORCH
    assert engine("").engine == TORCH


def test_an_engine_that_there_is_not_is_refused(engine):
    with pytest.raises(InputError, match="MANYWAY_ENGINE is 'tensorflow' in the environment; set it to torch"):
        engine("tensorflow")


def test_a_broken_package_says_how_to_go_on(engine, monkeypatch):
    def broken():
        raise OSError("libopenvino.so: cannot open shared object file")

    monkeypatch.setattr(encoders, "is_installed", lambda module: True)
    monkeypatch.setattr(on_openvino, "best_precision", broken)
    with pytest.raises(InputError, match=r"does not work \(.*shared object file\): .* MANYWAY_ENGINE=torch\."):
        engine(OPENVINO)


@pytest.mark.slow
def test_its_telemetry_is_never_loaded(tmp_path, openvino):
    (tmp_path / "openvino_telemetry").mkdir()
    (tmp_path / "openvino_telemetry" / "__init__.py").write_text("raise SystemExit('something is sent')")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from manyway.encoding.backbones.on_openvino import load_openvino;"
        "print(load_openvino().__name__, 'openvino_telemetry' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert run.stdout.split() == ["openvino", "False"], run.stderr
