"""Weights on disk: our own files and the public few-shot checkpoints.

Ours are safetensors with metadata, the public ones torch files.

No Python object is ever unpickled: torch files are read with ``weights_only=True``.
"""

import hashlib
import json
import pickle
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from manyway.encoding.backbones.networks import BACKBONES, Backbone, build
from manyway.errors import InputError, few, nearest
from manyway.files import atomic_write, check_input, reading

FORMAT = "manyway-backbone-1"
HEADS = ("fc", "linear")  # names of the classifier in public checkpoints


class Checkpoint(NamedTuple):
    """The content of a file of weights."""

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]  # what training wrote; empty for a public checkpoint
    source: str = "the checkpoint"  # its name in messages

    @property
    def backbone(self) -> str:
        """The architecture: as the metadata says, or recognised by the names of the weights."""
        if "backbone" in self.meta:
            name = self.meta["backbone"]
            if not isinstance(name, str) or name not in BACKBONES:
                raise InputError(
                    f"{self.source} says that its backbone is {name!r}; "
                    f"{nearest(str(name), BACKBONES)}"
                )
            return name
        if "layer1.0.bn1.weight" in self.tensors and "layer4.0.conv1.weight" in self.tensors:
            return "resnet18"
        if "layer1.0.shortcut.0.weight" in self.tensors:
            return "wrn28-10"
        known = ", ".join(BACKBONES)
        raise InputError(
            f"{self.source} is of no architecture known here ({known}); "
            f"it holds {few(self.tensors)}."
        )


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a safetensors file or a torch file with a ``state_dict``.

    A prefix ``module.`` of names, which distributed training leaves, is dropped.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no checkpoint {path}.")
    check_input(path)
    tensors, meta = (
        _read_safetensors(path) if path.suffix == ".safetensors" else (_read_torch(path), {})
    )
    return Checkpoint(
        {name.removeprefix("module."): tensor for name, tensor in tensors.items()}, meta, str(path)
    )


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with reading(path, "safetensors"), safe_open(path, framework="pt") as file:
        # A copy: the file is memory-mapped, and may be replaced while the network is in use.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
        meta = json.loads((file.metadata() or {}).get(FORMAT, "{}"))
    if not isinstance(meta, dict):
        raise InputError(
            f"The metadata of {path} is a {type(meta).__name__}, not an object with named values."
        )
    return tensors, meta


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about details of the format
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        more = "more than weights (Python objects or code) and was not opened"
        raise InputError(f"{path} holds {more}; save its state_dict alone.") from error
    except Exception as error:  # damaged files raise exceptions of many types
        raise InputError(
            f"{path} is not a torch checkpoint ({type(error).__name__}: {error})."
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, not a state_dict.")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"{path} holds no tensors, so there are no weights to load.")
    special = [
        name
        for name, value in tensors.items()
        if value.is_quantized or value.layout != torch.strided
    ]
    if special:
        raise InputError(
            f"{path} holds quantised or sparse tensors ({few(special)}); save it with plain ones."
        )
    # A view that repeats its numbers would be copied to its full size.
    repeated = [
        name for name, value in tensors.items() if value.nbytes > value.untyped_storage().nbytes()
    ]
    if repeated:
        raise InputError(
            f"{path} holds tensors larger than their data ({few(repeated)}); save copies of them."
        )
    return tensors


def network_from(checkpoint: Checkpoint, backbone: str | None = None) -> Backbone:
    """Build the network of a checkpoint.

    Every weight must be present in its shape; the classifier may be missing.
    """
    backbone = backbone or checkpoint.backbone
    tensors = dict(checkpoint.tensors)
    head = next((name for name in HEADS if f"{name}.weight" in tensors), None)
    classifier, stem = (tensors.get(name) for name in (f"{head}.weight", "conv1.weight"))
    # The size of the network follows from these two: a wrong shape must not build a huge one.
    for name, tensor, fits in (
        (
            f"{head}.weight",
            classifier,
            classifier is None or (classifier.ndim == 2 and classifier.numel() > 0),
        ),
        ("conv1.weight", stem, stem is None or (stem.ndim == 4 and stem.shape[1] in (1, 3))),
    ):
        if tensor is not None and not fits:
            raise InputError(
                f"{name} in {checkpoint.source} has the shape {tuple(tensor.shape)}; "
                "no backbone has it."
            )
    n_classes = 1 if classifier is None else len(classifier)
    network = build(backbone, n_classes, 3 if stem is None else stem.shape[1])
    if head and head != network.head_name:  # the same classifier under the name of the other family
        for part in ("weight", "bias"):
            tensors[f"{network.head_name}.{part}"] = tensors.pop(
                f"{head}.{part}", torch.zeros(n_classes)
            )
    # Old versions of torch did not count batches, and a feature extractor needs no classifier.
    optional = {name for name in network.state_dict() if name.endswith("num_batches_tracked")}
    optional |= set() if head else {f"{network.head_name}.weight", f"{network.head_name}.bias"}
    extras = {name for name in tensors if name == "base_mean" or name.startswith("optimizer.")}
    load_weights(
        network,
        {k: v for k, v in tensors.items() if k not in extras},
        checkpoint.source,
        backbone,
        optional,
    )
    return network


def load_weights(
    network: Backbone,
    tensors: Mapping[str, Tensor],
    source: str,
    backbone: str,
    optional: Iterable[str] = (),
) -> None:
    """Copy weights into a network; all that does not fit is listed in one sentence."""
    wanted = network.state_dict()
    faults: dict[str, list[str]] = {
        "missing": [name for name in wanted if name not in tensors and name not in set(optional)],
        "unexpected": [name for name in tensors if name not in wanted],
        "of another shape": [],
        "not of floating-point numbers": [],
    }
    for name, here, there in (
        (name, tensors[name], wanted[name]) for name in wanted if name in tensors
    ):
        if here.shape != there.shape:
            faults["of another shape"].append(
                f"{name} {tuple(here.shape)} instead of {tuple(there.shape)}"
            )
        if there.is_floating_point() and not here.is_floating_point():
            faults["not of floating-point numbers"].append(f"{name} ({here.dtype})")
    listed = [f"{what}: {few(names)}" for what, names in faults.items() if names]
    if listed:
        raise InputError(f"The weights in {source} do not fit {backbone}; {'; '.join(listed)}.")
    network.load_state_dict(dict(tensors), strict=False)


def save_checkpoint(
    path: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]
) -> None:
    """Write weights and metadata as one safetensors file, atomically.

    ``meta`` must name the ``backbone``.
    """
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry, because safetensors writes several in a random order: the same network gives the same bytes.
    header = {FORMAT: json.dumps(dict(meta), sort_keys=True)}
    with atomic_write(path) as temporary:
        save_file(ready, temporary, metadata=header)


def weights_hash(network: nn.Module) -> str:
    """SHA-256 of all weights of a network, the classifier included."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()
