"""Extraction: right features, provenance, resuming, and encoders of other packages (stood in for by small ones)."""

from __future__ import annotations

import csv
import os
import re
import sys
import types
from dataclasses import replace

import pytest
import torch
import typer
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from manyway.cli.extract import extract as extract_command
from manyway.cli.label import label
from manyway.encoding import extraction
from manyway.encoding.backbones.checkpoint import save_checkpoint
from manyway.encoding.backbones.networks import build, encode_images
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.encoding.datasets.sources import load_images, open_source
from manyway.encoding.encoders import ImageEncoder, open_encoder
from manyway.encoding.extraction import encode, encode_items, extract
from manyway.errors import InputError
from manyway.sampling.features import FeatureSet

PREPROCESS = Preprocess(resize=16, crop=12)


@pytest.fixture(autouse=True)
def _small_batches_and_an_empty_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(extraction, "_TOGETHER", 4)
    monkeypatch.setenv("MANYWAY_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def pictures(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for i in range(12):
        folder = tmp_path / "pictures" / ("ant" if i % 3 else "bee")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = torch.randint(0, 256, (20, 24, 3), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(folder / f"{i:02d}.png")
    return tmp_path / "pictures"


@pytest.fixture
def checkpoint(tmp_path):
    network = build("resnet-small", 4, 3)
    meta = {"backbone": "resnet-small", "preprocess": PREPROCESS.to_meta()}
    save_checkpoint(tmp_path / "net.safetensors", {**network.state_dict(), "base_mean": torch.full((96,), 0.5)}, meta)
    return tmp_path / "net.safetensors"


def test_features_are_the_networks_and_say_where_they_come_from(pictures, checkpoint, tmp_path):
    encoder = open_encoder(str(checkpoint))
    features = extract(open_source(pictures), encoder, tmp_path / "out.safetensors")
    assert features.meta["skipped"] == []
    loaded = FeatureSet.load(tmp_path / "out.safetensors")
    images = load_images(open_source(pictures), PREPROCESS).images
    expected = encode_images(build("resnet-small", 4, 3), images, PREPROCESS)
    torch.testing.assert_close(loaded.features, expected)
    assert loaded.class_names == ("ant", "bee")
    assert torch.equal(loaded.base_mean, torch.full((96,), 0.5))
    assert loaded.meta["weights sha256"] == encoder.weights
    assert len(loaded.meta["data sha256"]) == 64
    assert loaded.meta["preprocess"]["resize"] == 16
    assert loaded.fingerprint == features.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.safetensors", "out.safetensors", "pictures"]


def test_the_data_hash_follows_the_bytes(pictures, checkpoint):
    encoder = open_encoder(str(checkpoint))
    before = encode(open_source(pictures), encoder).data_hash
    assert encode(open_source(pictures), encoder).data_hash == before
    Image.new("RGB", (20, 20)).save(pictures / "ant" / "01.png")
    assert encode(open_source(pictures), encoder).data_hash != before


def counting(encoder: ImageEncoder, seen: list[int], stop_at: int | None = None) -> ImageEncoder:
    def count(images):
        if stop_at is not None and sum(seen) >= stop_at:
            raise KeyboardInterrupt
        seen.append(len(images))
        return encoder.encode(images)

    return replace(encoder, encode=count)


def test_an_interrupted_extraction_goes_on(pictures, checkpoint, tmp_path):
    encoder, out = open_encoder(str(checkpoint)), tmp_path / "out.safetensors"
    with pytest.raises(KeyboardInterrupt):
        extract(open_source(pictures), counting(encoder, [], stop_at=8), out)
    assert not out.exists()
    seen: list[int] = []
    features = extract(open_source(pictures), counting(encoder, seen), out)
    assert seen == [4]  # two of three batches were kept
    whole = extract(open_source(pictures), encoder, tmp_path / "whole.safetensors")
    assert features.fingerprint == whole.fingerprint
    assert features.meta == whole.meta


def test_features_of_another_encoder_are_not_used(pictures, checkpoint, tmp_path):
    encoder, out = open_encoder(str(checkpoint)), tmp_path / "out.safetensors"
    with pytest.raises(KeyboardInterrupt):
        extract(open_source(pictures), counting(encoder, [], stop_at=8), out)
    seen: list[int] = []
    other = replace(counting(encoder, seen), weights="another")
    extract(open_source(pictures), other, out)
    assert seen == [4, 4, 4]


def test_broken_pictures_are_reported_and_left_out_only_when_asked(pictures, checkpoint, tmp_path):
    (pictures / "ant" / "00.jpg").write_bytes(b"no picture")
    encoder, out = open_encoder(str(checkpoint)), tmp_path / "out.safetensors"
    with pytest.raises(InputError, match=r"ant/00\.jpg .* not a picture"):
        extract(open_source(pictures), encoder, out)
    assert not out.exists()
    features = extract(open_source(pictures), encoder, out, skip_bad=True)
    assert len(features.labels) == 12
    [[name, reason]] = FeatureSet.load(out).meta["skipped"]
    assert name == "ant/00.jpg"
    assert "not a picture" in reason
    items = encode_items(pictures, encoder, skip_bad=True)
    assert items.skipped == ((name, reason),)


def test_a_class_that_lost_all_its_pictures_gets_a_sentence(pictures, checkpoint, tmp_path):
    (pictures / "wasp").mkdir()
    (pictures / "wasp" / "1.png").write_bytes(b"")
    with pytest.raises(InputError, match="No picture of the class 'wasp'"):
        extract(open_source(pictures), open_encoder(str(checkpoint)), tmp_path / "out.safetensors", skip_bad=True)


def test_label_gets_items_with_names_and_labels(pictures, checkpoint, tmp_path):
    encoder = open_encoder(str(checkpoint))
    items = encode_items(pictures, encoder)
    assert items.labels[0] == "ant"
    assert items.name(0) == "ant/01.png"
    assert items.n_features == 96
    assert encode_items(pictures / "bee", encoder).labels is None


def test_label_takes_folders_of_pictures(pictures, checkpoint, tmp_path):
    pile = tmp_path / "pile"
    pile.mkdir()
    for path in sorted((pictures / "bee").iterdir()):
        (pile / path.name).write_bytes(path.read_bytes())
    options = ["--encoder", checkpoint, "--method", "simpleshot", "-o", tmp_path / "labels.csv"]
    run(label, pictures, pile, *options)
    rows = list(csv.DictReader((tmp_path / "labels.csv").open()))
    assert [row["item"] for row in rows] == sorted(path.name for path in pile.iterdir())
    assert {row["label"] for row in rows} <= {"ant", "bee"}


def run(command, *arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_features_and_takes_a_base_mean(pictures, checkpoint, tmp_path):
    out = tmp_path / "out.safetensors"
    options = ["--encoder", checkpoint, "--out", out, "--base", pictures / "bee", "--half", "--device", "cpu"]
    result = run(extract_command, pictures, *options)
    assert result.exit_code == 0, result.output
    features = FeatureSet.load(out)
    bees = encode(open_source(pictures / "bee"), open_encoder(str(checkpoint))).features
    torch.testing.assert_close(features.base_mean, bees.mean(0))
    assert "exists; choose another name" in str(run(extract_command, pictures, *options).exception)
    assert run(extract_command, pictures, *options, "--overwrite").exit_code == 0


@pytest.mark.parametrize(("place", "said"), [("", " items, 2 classes, "), ("bee", " items, ")])
def test_items_without_labels_have_no_number_of_classes(place, said, pictures, checkpoint, tmp_path):
    result = run(extract_command, pictures / place, "--encoder", checkpoint, "--out", tmp_path / "o.safetensors")
    assert re.search(r"\d" + said + r"\d+ features", " ".join(result.output.split()))


@pytest.mark.parametrize(("number", "said"), [(1, False), (2, True)])
def test_several_items_with_the_same_features_are_remarked_on(number, said, checkpoint, tmp_path):
    (tmp_path / "ant").mkdir()
    for n in range(number):
        Image.new("RGB", (20, 20)).save(tmp_path / "ant" / f"{n}.png")
    result = run(extract_command, tmp_path / "ant", "--encoder", checkpoint, "--out", tmp_path / "o.safetensors")
    assert result.exit_code == 0, result.output
    assert ("all items have the same features" in result.output) == said


def test_the_command_lists_what_it_left_out_and_what_it_read_in_part(pictures, checkpoint, tmp_path):
    (pictures / "ant" / "[red]broken.jpg").write_bytes(b"no picture")
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].save(pictures / "bee" / "moving.gif", save_all=True, append_images=frames[1:])
    out = tmp_path / "out.safetensors"
    result = run(extract_command, pictures, "--encoder", checkpoint, "--out", out, "--skip-bad", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "left out ant/[red]broken.jpg: it is not a picture" in result.output
    assert "bee/moving.gif: only its first frame is used" in result.output
    meta = FeatureSet.load(out).meta
    assert [name for name, _ in meta["skipped"]] == ["ant/[red]broken.jpg"]
    assert meta["notes"] == [["bee/moving.gif", "only its first frame is used"]]
    items = encode_items(pictures, open_encoder(str(checkpoint)), skip_bad=True)
    assert items.notes == ("bee/moving.gif: only its first frame is used",)


@pytest.mark.parametrize("place", ["net.safetensors", "link.safetensors", "pictures/new.safetensors", "folder"])
def test_inputs_are_never_written_over(place, pictures, checkpoint, tmp_path):
    (tmp_path / "link.safetensors").symlink_to(checkpoint)
    (tmp_path / "folder.safetensors").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    out = (tmp_path / place).with_suffix(".safetensors")
    result = run(extract_command, pictures, "--encoder", checkpoint, "--out", out, "--device", "cpu")
    assert isinstance(result.exception, InputError), result.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_full_disk_is_one_sentence(pictures, checkpoint, tmp_path):
    resource = pytest.importorskip("resource")
    encoder, out = open_encoder(str(checkpoint)), tmp_path / "out.safetensors"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # as a full disk: larger files cannot be written
    try:
        with pytest.raises(InputError, match=r"Cannot write .*File too large"):
            extract(open_source(pictures), encoder, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not out.exists()
    extract(open_source(pictures), encoder, out)


def test_names_that_are_not_utf8_can_be_encoded(pictures, checkpoint, tmp_path):
    os.rename(pictures / "ant" / "01.png", os.fsencode(pictures / "ant") + b"/\xff.png")
    features = extract(open_source(pictures), open_encoder(str(checkpoint)), tmp_path / "out.safetensors")
    assert len(features.labels) == 12


def test_a_checkpoint_is_no_reader_of_texts(checkpoint, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nhello,greet\n")
    result = run(extract_command, tmp_path / "a.csv", "--encoder", checkpoint, "--out", tmp_path / "o.safetensors")
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "o.safetensors").exists()


@pytest.mark.parametrize(
    ("encoder", "why"),
    [
        ("nothing", "There is no encoder 'nothing'"),
        ("nowhere.safetensors", "There is no checkpoint"),
        ("timm:resnet50", "needs the package timm"),
        ("open_clip:ViT-B-32/openai", "needs the package open_clip"),
        ("sentence-transformers:x", "needs the package sentence_transformers"),
    ],
)
def test_encoders_that_are_not_there_get_a_sentence(encoder, why, monkeypatch):
    for name in ("timm", "open_clip", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=why):
        open_encoder(encoder)


class Stand(nn.Module):
    """A network of another package: the mean of each channel, times a weight."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images):
        return self.scale * images.mean((2, 3))

    encode_image = forward


def test_timm_models_are_fed_as_their_configuration_says(pictures, monkeypatch):
    config = {"input_size": (3, 14, 14), "crop_pct": 0.875, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25),
              "interpolation": "bicubic"}  # fmt: skip
    timm = types.ModuleType("timm")
    timm.create_model = lambda name, pretrained, num_classes: Stand()
    timm.data = types.SimpleNamespace(resolve_model_data_config=lambda network: config)
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setattr("manyway.encoding.network._answers", lambda host, port: True)  # there is a network
    said = []
    encoder = open_encoder("timm:resnet50", say=said.append)
    assert "downloaded" in said[0]
    assert encoder.preprocess == Preprocess(16, 14, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "bicubic")
    images = load_images(open_source(pictures), encoder.preprocess).images
    expected = 2 * ((images[:, :, 1:15, 1:15].float() / 255 - 0.5) / 0.25).mean((2, 3))
    torch.testing.assert_close(encode(open_source(pictures), encoder).features, expected)


def test_open_clip_models_get_their_tag(pictures, monkeypatch):
    asked = []
    open_clip = types.ModuleType("open_clip")
    open_clip.create_model = lambda name, pretrained: asked.append((name, pretrained)) or Stand()
    open_clip.get_model_preprocess_cfg = lambda network: {
        "size": (14, 14), "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "interpolation": "bicubic"
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    monkeypatch.setattr("manyway.encoding.network._answers", lambda host, port: True)  # there is a network
    encoder = open_encoder("open_clip:ViT-B-32/openai")
    assert asked == [("ViT-B-32", "openai")]
    assert encode(open_source(pictures), encoder).features.shape == (12, 3)


def test_open_clip_models_read_texts_as_well(tmp_path, monkeypatch):
    open_clip = types.ModuleType("open_clip")
    network = Stand()
    network.encode_text = lambda tokens: network.scale * tokens.float()
    open_clip.create_model = lambda name, pretrained: network
    open_clip.get_model_preprocess_cfg = lambda network: {
        "size": 14, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "interpolation": "bicubic"
    }  # fmt: skip
    open_clip.get_tokenizer = lambda name: lambda texts: torch.tensor([[len(name), len(text)] for text in texts])
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    monkeypatch.setattr("manyway.encoding.network._answers", lambda host, port: True)  # there is a network
    (tmp_path / "names.txt").write_text("gull\nheron\n")
    items = encode_items(tmp_path / "names.txt", open_encoder("open_clip:ViT-B-32/openai"))
    assert items.features.tolist() == [[16.0, 8.0], [16.0, 10.0]]
    assert items.names == ["gull", "heron"]


def test_sentence_transformers_read_texts_and_say_when_they_download(tmp_path, monkeypatch):
    class Sentences(nn.Module):
        def __init__(self, name, device):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def encode(self, texts, convert_to_tensor, show_progress_bar):
            return torch.tensor([[len(text), text.count("a")] for text in texts])

    package = types.ModuleType("sentence_transformers")
    package.SentenceTransformer = Sentences
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    monkeypatch.setattr("manyway.encoding.network._answers", lambda host, port: True)  # there is a network
    (tmp_path / "a.csv").write_text("text,label\nbanana,fruit\nleek,plant\n")
    said: list[str] = []
    open_encoder("sentence-transformers:mini", say=said.append)
    assert len(said) == 1
    encoder = open_encoder(f"sentence-transformers:{tmp_path}", say=said.append)
    assert len(said) == 1  # a local folder downloads nothing
    items = encode_items(tmp_path / "a.csv", encoder)
    assert items.features.tolist() == [[6.0, 3.0], [4.0, 0.0]]
    assert items.names == ["banana", "leek"]
    assert items.labels == ("fruit", "plant")
