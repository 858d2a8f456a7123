"""The wide residual network WRN-28-10 as used for few-shot learning: pre-activation blocks, 640 features.

Parameter names, biases and the position of the stride (second convolution) are those of the public few-shot
checkpoints: ``conv1 layer1..3.{i}.bn1/conv1/bn2/conv2/shortcut.0 bn1 linear``.
Reference: Zagoruyko and Komodakis, Wide residual networks, BMVC 2016.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from manyway.encoding.backbones.common import Backbone, he_initialise


class PreActivationBlock(nn.Module):
    """Normalisation, activation and convolution, twice; the shortcut starts from the input of the block."""

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(in_channels), nn.Conv2d(in_channels, width, 3, padding=1)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, stride, padding=1)
        same_shape = stride == 1 and in_channels == width
        self.shortcut = nn.Sequential(*([] if same_shape else [nn.Conv2d(in_channels, width, 1, stride)]))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv1(relu(self.bn1(x)))
        out = self.conv2(relu(self.bn2(out)))
        shortcut: Tensor = self.shortcut(x)
        return out + shortcut


class WideResNet(Backbone):
    """Three stages of (depth − 4) / 6 blocks at 16, 32 and 64 times ``widen`` channels."""

    head_name = "linear"

    def __init__(self, n_classes: int, in_channels: int, *, depth: int, widen: int) -> None:
        super().__init__()
        n_blocks = (depth - 4) // 6
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1)
        previous = 16
        for stage, width in enumerate((16 * widen, 32 * widen, 64 * widen), start=1):
            first_stride = 1 if stage == 1 else 2
            layers = [
                PreActivationBlock(previous if i == 0 else width, width, first_stride if i == 0 else 1)
                for i in range(n_blocks)
            ]
            self.add_module(f"layer{stage}", nn.Sequential(*layers))
            previous = width
        self.bn1 = nn.BatchNorm2d(previous)
        self.n_features = previous
        self.linear = nn.Linear(previous, n_classes)
        he_initialise(self)

    def features(self, images: Tensor) -> Tensor:
        x: Tensor = self.conv1(images)
        for stage in (1, 2, 3):
            x = self.get_submodule(f"layer{stage}")(x)
        return relu(self.bn1(x)).mean(dim=(2, 3))
