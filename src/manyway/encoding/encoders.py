"""Encoders by name: our own and public checkpoints, timm, open_clip, sentence-transformers.

Packages are imported when their encoder is asked for. Weights are downloaded only for a model that needs it, and never
silently: ``say`` is told first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyway.encoding.backbones.checkpoint import network_from, read_checkpoint, weights_hash
from manyway.encoding.backbones.encode import encode_images
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.errors import InputError

CHECKPOINT_SUFFIXES = (".safetensors", ".pt", ".pth", ".tar", ".ckpt")
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class ImageEncoder:
    """Pictures to features. ``encode`` takes bytes [n, c, resize, resize] and gives float32 [n, d] on the CPU."""

    name: str
    weights: str  # hash
    preprocess: Preprocess
    encode: Callable[[Tensor], Tensor]
    base_mean: Tensor | None = None  # [d], known for our own checkpoints


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Texts to features [n, d] on the CPU."""

    name: str
    weights: str
    encode: Callable[[Sequence[str]], Tensor]
    base_mean: Tensor | None = None


def open_encoder(
    name: str, *, device: torch.device | str = "cpu", backbone: str | None = None, say: Say = lambda message: None
) -> ImageEncoder | TextEncoder:
    """The encoder of a name: a checkpoint's path, or a model of timm, open_clip or sentence-transformers.

    ``backbone`` names the architecture of a checkpoint that does not say it.
    """
    device = torch.device(device)
    family, _, model = name.partition(":")
    if family in _FAMILIES and model:
        try:
            return _FAMILIES[family](model, device, say)
        except InputError:
            raise
        except Exception as error:  # these libraries raise what their own dependencies raise
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"The encoder {name} could not be loaded ({reason}).") from error
    if Path(name).suffix in CHECKPOINT_SUFFIXES:
        return checkpoint_encoder(Path(name), device, backbone)
    raise InputError(
        f"There is no encoder '{name}'; give a checkpoint ({', '.join(CHECKPOINT_SUFFIXES)}), "
        "timm:NAME, open_clip:NAME/TAG or sentence-transformers:NAME (or its folder)."
    )


def checkpoint_encoder(path: Path, device: torch.device, backbone: str | None = None) -> ImageEncoder:
    """Our own checkpoint, or a public few-shot one (which is fed as in the paper: 96, then 84 pixels)."""
    checkpoint = read_checkpoint(path)
    network = network_from(checkpoint, backbone or checkpoint.backbone, str(path)).to(device)
    preprocess = Preprocess.from_meta(checkpoint.meta["preprocess"]) if checkpoint.meta else Preprocess()
    hashed = weights_hash(network)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(images: Tensor) -> Tensor:
        return encode_images(network, images.to(device), preprocess).cpu()

    name = f"{checkpoint.meta.get('backbone', backbone or checkpoint.backbone)} ({path.name})"
    return ImageEncoder(name, hashed, preprocess, encode, checkpoint.tensors.get("base_mean"))


def _timm(model: str, device: torch.device, say: Say) -> ImageEncoder:
    timm = _package("timm", f"timm:{model}")
    say(f"timm:{model}: the weights are downloaded now unless they are in the cache already.")
    network = timm.create_model(model, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(network)
    size = int(config["input_size"][-1])
    preprocess = Preprocess(
        resize=round(size / config["crop_pct"]),
        crop=size,
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )
    return _foreign(f"timm:{model}", network, network, preprocess, device)


def _open_clip(model: str, device: torch.device, say: Say) -> ImageEncoder:
    open_clip = _package("open_clip", f"open_clip:{model}")
    name, _, tag = (model, "", "") if model.startswith("hf-hub:") else model.partition("/")
    say(f"open_clip:{model}: the weights are downloaded now unless they are in the cache already.")
    network = open_clip.create_model(name, pretrained=tag or None)
    config = open_clip.get_model_preprocess_cfg(network)
    size = config["size"] if isinstance(config["size"], int) else int(config["size"][0])
    preprocess = Preprocess(size, size, tuple(config["mean"]), tuple(config["std"]), config["interpolation"])
    return _foreign(f"open_clip:{model}", network, network.encode_image, preprocess, device)


def _foreign(
    name: str, network: nn.Module, forward: Callable[[Tensor], Tensor], preprocess: Preprocess, device: torch.device
) -> ImageEncoder:
    network.to(device).eval()

    def encode(images: Tensor) -> Tensor:
        with torch.inference_mode():
            return forward(preprocess.standardise(images.to(device))).float().cpu().clone()

    return ImageEncoder(name, weights_hash(network), preprocess, encode)


def _sentence_transformers(model: str, device: torch.device, say: Say) -> TextEncoder:
    package = _package("sentence_transformers", f"sentence-transformers:{model}")
    if not Path(model).is_dir():
        say(f"sentence-transformers:{model}: the weights are downloaded now unless they are in the cache already.")
    network = package.SentenceTransformer(model, device=str(device))

    def encode(texts: Sequence[str]) -> Tensor:
        features: Tensor = network.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
        return features.float().cpu().clone()

    name = Path(model).name if Path(model).is_dir() else model
    return TextEncoder(f"sentence-transformers:{name}", weights_hash(network), encode)


def _package(name: str, encoder: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken dependency (torchvision, say) is as good as none
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"The encoder {encoder} needs the package {name} ({reason}): pip install 'manyway[encoders]'."
        ) from error


_FAMILIES: dict[str, Callable[[str, torch.device, Say], ImageEncoder | TextEncoder]] = {
    "timm": _timm,
    "open_clip": _open_clip,
    "sentence-transformers": _sentence_transformers,
}
