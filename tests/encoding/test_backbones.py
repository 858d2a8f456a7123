"""Backbones have the public checkpoints' names and arithmetic, and load them without running anything in them."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.nn import functional as F

from manyway.encoding.backbones.checkpoint import network_from, read_checkpoint, save_checkpoint, weights_hash
from manyway.encoding.backbones.networks import BACKBONES, build
from manyway.errors import InputError


def norm_shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    parts = {f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}
    return {**parts, f"{name}.num_batches_tracked": ()}


def public_resnet18_shapes(n_classes: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the published few-shot ResNet-18, written down apart from our code."""
    shapes = {"conv1.weight": (64, 3, 3, 3), **norm_shapes("bn1", 64)}
    previous = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            first = previous if block == 0 else width
            shapes |= {f"{name}.conv1.weight": (width, first, 3, 3), **norm_shapes(f"{name}.bn1", width)}
            shapes |= {f"{name}.conv2.weight": (width, width, 3, 3), **norm_shapes(f"{name}.bn2", width)}
            if first != width:
                shapes |= {f"{name}.downsample.0.weight": (width, first, 1, 1)}
                shapes |= norm_shapes(f"{name}.downsample.1", width)
        previous = width
    return shapes | {"fc.weight": (n_classes, 512), "fc.bias": (n_classes,)}


def public_wrn_shapes(n_classes: int) -> dict[str, tuple[int, ...]]:
    """The same for the published WRN-28-10: its convolutions have biases."""
    shapes = {"conv1.weight": (16, 3, 3, 3), "conv1.bias": (16,)}
    previous = 16
    for stage, width in enumerate((160, 320, 640), start=1):
        for block in range(4):
            name = f"layer{stage}.{block}"
            first = previous if block == 0 else width
            shapes |= norm_shapes(f"{name}.bn1", first) | norm_shapes(f"{name}.bn2", width)
            shapes |= {f"{name}.conv1.weight": (width, first, 3, 3), f"{name}.conv1.bias": (width,)}
            shapes |= {f"{name}.conv2.weight": (width, width, 3, 3), f"{name}.conv2.bias": (width,)}
            if first != width:
                shapes |= {f"{name}.shortcut.0.weight": (width, first, 1, 1), f"{name}.shortcut.0.bias": (width,)}
        previous = width
    shapes |= norm_shapes("bn1", 640)
    return shapes | {"linear.weight": (n_classes, 640), "linear.bias": (n_classes,)}


def made_up(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Weights of those shapes, of a scale that keeps activations finite and alive."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(7)
        elif name.endswith("running_var"):
            state[name] = 0.5 + torch.rand(shape, generator=generator)
        elif len(shape) == 4:
            state[name] = torch.randn(shape, generator=generator) * (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
        else:
            state[name] = 0.5 + 0.1 * torch.randn(shape, generator=generator)
    return state


def norm(x, state, name):
    parts = [state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
    return F.batch_norm(x, *parts)


def resnet18_by_hand(x, s):
    x = F.relu(norm(F.conv2d(x, s["conv1.weight"], padding=1), s, "bn1"))
    for stage in range(1, 5):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = F.relu(norm(F.conv2d(x, s[f"{name}.conv1.weight"], stride=stride, padding=1), s, f"{name}.bn1"))
            y = norm(F.conv2d(y, s[f"{name}.conv2.weight"], padding=1), s, f"{name}.bn2")
            if f"{name}.downsample.0.weight" in s:
                x = norm(F.conv2d(x, s[f"{name}.downsample.0.weight"], stride=stride), s, f"{name}.downsample.1")
            x = F.relu(x + y)
    return x.mean((2, 3))


def wrn_by_hand(x, s):
    x = F.conv2d(x, s["conv1.weight"], s["conv1.bias"], padding=1)
    for stage in range(1, 4):
        for block in range(4):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = F.relu(norm(x, s, f"{name}.bn1"))
            y = F.conv2d(y, s[f"{name}.conv1.weight"], s[f"{name}.conv1.bias"], padding=1)
            y = F.relu(norm(y, s, f"{name}.bn2"))
            y = F.conv2d(y, s[f"{name}.conv2.weight"], s[f"{name}.conv2.bias"], stride=stride, padding=1)
            if f"{name}.shortcut.0.weight" in s:
                x = F.conv2d(x, s[f"{name}.shortcut.0.weight"], s[f"{name}.shortcut.0.bias"], stride=stride)
            x = x + y
    return F.relu(norm(x, s, "bn1")).mean((2, 3))


@pytest.mark.parametrize(
    ("name", "shapes", "by_hand", "side"),
    [("resnet18", public_resnet18_shapes, resnet18_by_hand, 20), ("wrn28-10", public_wrn_shapes, wrn_by_hand, 8)],
)
def test_public_checkpoints_load_and_give_the_right_features(name, shapes, by_hand, side, tmp_path):
    state = made_up(shapes(64))
    path = tmp_path / "checkpoint.pth.tar"
    torch.save({"epoch": 89, "state_dict": {f"module.{key}": value for key, value in state.items()}}, path)
    network = network_from(read_checkpoint(path)).eval()  # the architecture is recognised
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        features = network.features(images)
        scores = network(images)
        expected = by_hand(images, state)
    assert features.shape == (2, {"resnet18": 512, "wrn28-10": 640}[name])
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    head = "fc" if name == "resnet18" else "linear"
    torch.testing.assert_close(
        scores, expected @ state[f"{head}.weight"].T + state[f"{head}.bias"], rtol=1e-4, atol=1e-3
    )


def test_84_pixel_images_keep_their_resolution_to_the_last_stage():
    network = build("resnet18", 4).eval()
    with torch.inference_mode():
        x = F.relu(network.bn1(network.conv1(torch.zeros(1, 3, 84, 84))))
        for stage in range(1, 5):
            x = network.get_submodule(f"layer{stage}")(x)
    assert x.shape == (1, 512, 11, 11)


@pytest.fixture
def small_state():
    return build("resnet-small", 5, 1, seed=3).state_dict()


def test_the_classifier_may_have_the_other_familys_name_or_be_missing(small_state, tmp_path):
    renamed = {key.replace("fc.", "linear."): value for key, value in small_state.items()}
    torch.save(renamed, tmp_path / "renamed.pt")
    torch.save({k: v for k, v in small_state.items() if not k.startswith("fc.")}, tmp_path / "headless.pt")
    images = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    original = build("resnet-small", 5, 1, seed=3).eval()
    with torch.inference_mode():
        renamed_network = network_from(read_checkpoint(tmp_path / "renamed.pt"), "resnet-small").eval()
        assert torch.equal(renamed_network(images), original(images))
        headless = network_from(read_checkpoint(tmp_path / "headless.pt"), "resnet-small").eval()
        assert torch.equal(headless.features(images), original.features(images))


def test_what_does_not_fit_is_listed(small_state, tmp_path):
    broken = dict(small_state)
    broken["surplus.weight"] = broken.pop("bn1.weight")
    broken["layer1.0.conv1.weight"] = torch.zeros(3, 3)
    torch.save({"state_dict": broken}, tmp_path / "broken.pt")
    with pytest.raises(InputError) as raised:
        network_from(read_checkpoint(tmp_path / "broken.pt"), "resnet-small")
    message = str(raised.value)
    assert "missing: bn1.weight;" in message
    assert "unexpected: surplus.weight;" in message
    assert "of another shape: layer1.0.conv1.weight (3, 3) instead of (24, 24, 3, 3)" in message


def test_a_checkpoint_of_another_architecture_is_one_sentence(small_state, tmp_path):
    torch.save(small_state, tmp_path / "small.pt")
    with pytest.raises(InputError, match=r"do not fit resnet18; missing: layer1\.1"):
        network_from(read_checkpoint(tmp_path / "small.pt"), "resnet18")
    torch.save({"encoder.weight": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="no architecture known here"):
        network_from(read_checkpoint(tmp_path / "other.pt"))


class Explosive:
    def __reduce__(self):
        return (open, ("exploded", "w"))


@pytest.mark.parametrize("legacy", [True, False])
def test_a_pickle_with_code_in_it_is_not_opened(legacy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pth"
    if legacy:
        path.write_bytes(pickle.dumps({"state_dict": Explosive()}))
    else:
        torch.save({"state_dict": Explosive()}, path)
    with pytest.raises(InputError, match=r"more than weights|not a torch checkpoint"):
        network_from(read_checkpoint(path))
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken"])
def test_files_that_are_no_checkpoints_get_a_sentence(content, tmp_path):
    for name in ("x.pth", "x.safetensors"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError):
            network_from(read_checkpoint(tmp_path / name))


def test_our_own_checkpoints_say_what_they_are(small_state, tmp_path):
    path = tmp_path / "own.safetensors"
    save_checkpoint(path, {**small_state, "base_mean": torch.ones(96)}, {"backbone": "resnet-small", "epoch": 3})
    assert read_checkpoint(path).meta == {"backbone": "resnet-small", "epoch": 3}
    assert weights_hash(network_from(read_checkpoint(path))) == weights_hash(build("resnet-small", 5, 1, seed=3))


def test_weights_follow_from_the_seed_and_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    one, two = build("resnet-small", 5, 1, seed=1), build("resnet-small", 5, 1, seed=1)
    other = build("resnet-small", 5, 1, seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert weights_hash(one) == weights_hash(two) != weights_hash(other)


def test_an_unknown_backbone_gets_the_nearest_name():
    assert set(BACKBONES) == {"resnet18", "wrn28-10", "resnet-small"}
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        build("resnet-18", 5)
