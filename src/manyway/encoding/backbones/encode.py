"""Images to features with a backbone in evaluation mode."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.encoding.backbones.common import Backbone
from manyway.encoding.datasets.preprocess import Preprocess


def encode_images(
    network: Backbone, images: Tensor, preprocess: Preprocess, *, batch: int = 512, fast: bool = False
) -> Tensor:
    """Features [n, d] of images [n, c, h, w] uint8 on their device, with the statistics of batch normalisation frozen.

    ``preprocess`` crops and standardises the images, ``batch`` at a time. ``fast`` computes in bfloat16 on a GPU.
    """
    network.eval()
    features = []
    with torch.inference_mode():
        for part in torch.split(images, batch):
            ready = preprocess.standardise(part).contiguous(memory_format=memory_format(part.device))
            with precision(part.device, fast):
                features.append(network.features(ready).float())
    return torch.cat(features).clone()


def memory_format(device: torch.device) -> torch.memory_format:
    """Channels last on a GPU, where tensor cores need it; convolutions on a CPU are faster without it."""
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format


def precision(device: torch.device, fast: bool = True) -> torch.autocast:
    """bfloat16 on a GPU if ``fast``, where it costs no accuracy that training notices; else float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast and device.type == "cuda")
