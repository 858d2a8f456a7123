"""Weights on disk: our own files (safetensors with a description) and the public few-shot checkpoints (torch files).

Nothing is ever unpickled: torch files are read with ``weights_only=True``.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from manyway.data.files import atomic_write
from manyway.encoding.backbones import BACKBONES, build
from manyway.encoding.backbones.common import Backbone
from manyway.errors import InputError

FORMAT = "manyway-backbone-1"
HEADS = ("fc", "linear")  # what public checkpoints call the classifier
_LISTED = 6  # keys named in an error before "and n more"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a file holds: tensors by name, and our own description when the file is ours."""

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]  # empty for a public checkpoint

    @property
    def backbone(self) -> str:
        """The family: as written down, or recognised by its names."""
        if "backbone" in self.meta:
            return str(self.meta["backbone"])
        if "layer1.0.bn1.weight" in self.tensors and "layer4.0.conv1.weight" in self.tensors:
            return "resnet18"
        if "layer1.0.shortcut.0.weight" in self.tensors:
            return "wrn28-10"
        raise InputError(
            f"The checkpoint is of no architecture known here ({', '.join(BACKBONES)}); it holds {_some(self.tensors)}."
        )


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a safetensors file or a torch file with ``state_dict``; a ``module.`` in front of names (DDP) is dropped."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no checkpoint {path}.")
    tensors, meta = _read_safetensors(path) if path.suffix == ".safetensors" else (_read_torch(path), {})
    return Checkpoint({name.removeprefix("module."): tensor for name, tensor in tensors.items()}, meta)


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # A copy: the file is memory-mapped, and may be overwritten while the network lives.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read as safetensors ({error}).") from error
    return tensors, json.loads(header[FORMAT]) if FORMAT in header else {}


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} holds more than weights (Python objects or code) and was not opened; save its state_dict alone."
        ) from error
    except Exception as error:  # its parser raises what broken bytes make it raise (KeyError, RuntimeError...)
        raise InputError(f"{path} is not a torch checkpoint ({type(error).__name__}: {error}).") from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, not a state_dict.")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"{path} holds no tensors, so there are no weights to load.")
    return tensors


def load_checkpoint(path: str | Path, backbone: str | None = None) -> Backbone:
    """A network with the weights of a file, ours or public; ``backbone`` None recognises the architecture."""
    checkpoint = read_checkpoint(path)
    return network_from(checkpoint, backbone or checkpoint.backbone, str(path))


def network_from(checkpoint: Checkpoint, backbone: str, source: str = "the checkpoint") -> Backbone:
    """The network of a checkpoint; every weight must be there with its shape, a classifier may be missing."""
    tensors = dict(checkpoint.tensors)
    head = next((name for name in HEADS if f"{name}.weight" in tensors), None)
    stem = tensors.get("conv1.weight")
    n_classes = len(tensors[f"{head}.weight"]) if head else 1
    network = build(backbone, n_classes, stem.shape[1] if stem is not None and stem.ndim == 4 else 3)
    if head and head != network.head_name:  # the same classifier under the other family's name
        for part in ("weight", "bias"):
            tensors[f"{network.head_name}.{part}"] = tensors.pop(f"{head}.{part}", torch.zeros(n_classes))
    # Old torch versions did not count batches, and a feature extractor may have lost its classifier: both are harmless.
    optional = {
        name
        for name in network.state_dict()
        if name.endswith("num_batches_tracked") or (head is None and name.startswith(f"{network.head_name}."))
    }
    extras = {name for name in tensors if name == "base_mean" or name.startswith("optimiser.")}
    load_weights(network, {k: v for k, v in tensors.items() if k not in extras}, source, backbone, optional)
    return network


def load_weights(
    network: Backbone, tensors: Mapping[str, Tensor], source: str, backbone: str, optional: set[str]
) -> None:
    """Copy weights into a network, or say all that does not fit in one sentence."""
    wanted = network.state_dict()
    missing = [name for name in wanted if name not in tensors and name not in optional]
    unexpected = [name for name in tensors if name not in wanted]
    misshapen = [
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in wanted
        if name in tensors and tensors[name].shape != wanted[name].shape
    ]
    faults = [
        f"{what}: {_some(names)}"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if faults:
        raise InputError(f"The weights in {source} do not fit {backbone}; {'; '.join(faults)}.")
    network.load_state_dict(dict(tensors), strict=False)


def _some(names: Mapping[str, Any] | list[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more


def save_checkpoint(path: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write our own kind of file, atomically; ``meta`` must name the ``backbone``."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry: safetensors writes several in a random order, and the same network should be the same bytes.
    header = {FORMAT: json.dumps(dict(meta), sort_keys=True)}
    with atomic_write(path) as temporary:
        save_file(ready, temporary, metadata=header)


def weights_hash(network: nn.Module) -> str:
    """What says that two networks have the same weights (classifier included)."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()
