"""Residual networks as used for few-shot learning: a 3×3 stem and no max-pool, for images of 28 to 96 pixels.

Parameter names are those of the public few-shot checkpoints: ``conv1 bn1 layer1..4.{i}.conv1/bn1/conv2/bn2`` and
``layer2..4.0.downsample.{0,1}``, then ``fc``.
Reference: He et al., Deep residual learning for image recognition, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import relu

from manyway.encoding.backbones.common import Backbone, conv3x3, he_initialise


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(in_channels, width, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3x3(width, width), nn.BatchNorm2d(width)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != width:
            self.downsample = nn.Sequential(nn.Conv2d(in_channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out: Tensor = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(out)) + shortcut)


class ResNet(Backbone):
    """Stages of ``BasicBlock`` and the mean over positions. Each stage after the first halves the resolution."""

    head_name = "fc"

    def __init__(
        self, n_classes: int, in_channels: int, *, widths: Sequence[int], blocks: Sequence[int], stem_stride: int
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(in_channels, widths[0], stem_stride), nn.BatchNorm2d(widths[0])
        self.stage_names = [f"layer{i + 1}" for i in range(len(widths))]
        previous = widths[0]
        for name, width, n_blocks in zip(self.stage_names, widths, blocks, strict=True):
            stride = 1 if name == "layer1" else 2
            layers = [
                BasicBlock(previous if i == 0 else width, width, stride if i == 0 else 1) for i in range(n_blocks)
            ]
            self.add_module(name, nn.Sequential(*layers))
            previous = width
        self.n_features = previous
        self.fc = nn.Linear(previous, n_classes)
        he_initialise(self)

    def features(self, images: Tensor) -> Tensor:
        x: Tensor = relu(self.bn1(self.conv1(images)))
        for name in self.stage_names:
            x = self.get_submodule(name)(x)
        return x.mean(dim=(2, 3))
