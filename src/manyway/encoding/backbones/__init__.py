"""Networks that turn images into features, each with a linear classifier for base training.

``BACKBONES`` is the table of names; ``build`` makes a network by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from manyway.errors import InputError, nearest

if TYPE_CHECKING:
    from manyway.encoding.backbones.common import Backbone


def _resnet18(n_classes: int, in_channels: int) -> Backbone:
    from manyway.encoding.backbones.resnet import ResNet

    return ResNet(n_classes, in_channels, widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), stem_stride=1)


def _resnet_small(n_classes: int, in_channels: int) -> Backbone:
    from manyway.encoding.backbones.resnet import ResNet

    return ResNet(n_classes, in_channels, widths=(24, 48, 96), blocks=(1, 1, 1), stem_stride=2)


def _wrn28_10(n_classes: int, in_channels: int) -> Backbone:
    from manyway.encoding.backbones.wide import WideResNet

    return WideResNet(n_classes, in_channels, depth=28, widen=10)


BACKBONES: Mapping[str, Callable[[int, int], Backbone]] = MappingProxyType(
    {"resnet18": _resnet18, "wrn28-10": _wrn28_10, "resnet-small": _resnet_small}
)


def build(name: str, n_classes: int, in_channels: int = 3, *, seed: int = 0) -> Backbone:
    """Build a network with random weights, by its name in ``BACKBONES``. The global random generator is not changed.

    >>> build("resnet-small", n_classes=10, in_channels=1).n_features
    96
    """
    if name not in BACKBONES:
        raise InputError(f"There is no backbone '{name}'; {nearest(name, BACKBONES)}")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BACKBONES[name](n_classes, in_channels)
