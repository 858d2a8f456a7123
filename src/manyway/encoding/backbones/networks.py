"""Residual networks as used for few-shot learning, each with a linear classifier for base training.

``BACKBONES`` is the table of names; ``build`` makes a network by name. The names of parameters are
those of the public few-shot checkpoints:

- ``ResNet``: ``conv1 bn1 layer1..4.{i}.conv1/bn1/conv2/bn2``, ``layer2..4.0.downsample.{0,1}``,
  ``fc``; a 3×3 stem and no max-pool, for images of 28 to 96 pixels (He et al., Deep residual
  learning for image recognition, CVPR 2016);
- ``WideResNet``: ``conv1 layer1..3.{i}.bn1/conv1/bn2/conv2/shortcut.0 bn1 linear``; as in these
  checkpoints, the second convolution has the stride, and convolutions have biases (Zagoruyko and
  Komodakis, Wide residual networks, BMVC 2016).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from manyway.encoding.datasets.preprocess import Preprocess
from manyway.errors import named

_TOGETHER = 512  # images that are encoded at once


class Backbone(nn.Module):
    """Images [n, c, h, w] -> features [n, d] (``features``) -> class scores [n, k] (``forward``)."""

    n_features: int
    # "fc" or "linear": the name of the classifier in the public checkpoints of this family
    head_name: str

    @property
    def n_outputs(self) -> int:
        """The number of classes that ``forward`` gives scores for."""
        return len(self.get_parameter(f"{self.head_name}.weight"))

    def features(self, images: Tensor) -> Tensor:
        """Features [n, d] of images [n, c, h, w]."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        return self.get_submodule(self.head_name)(self.features(images))

    def _add_stages(
        self,
        block: Callable[[int, int, int], nn.Module],
        first: int,
        widths: Sequence[int],
        blocks: Sequence[int],
    ) -> None:
        """Add ``layer1``, ``layer2``, … of so many blocks.

        Each but the first halves the resolution.
        """
        before = first
        for number, (width, n_blocks) in enumerate(zip(widths, blocks, strict=True), start=1):
            sizes = [
                (before, width, 1 if number == 1 else 2),
                *[(width, width, 1)] * (n_blocks - 1),
            ]
            self.add_module(f"layer{number}", nn.Sequential(*(block(*size) for size in sizes)))
            before = width
        self.n_features = before
        self.n_stages = len(widths)

    def _through_stages(self, x: Tensor) -> Tensor:
        for number in range(1, self.n_stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return x

    def _initialise(self) -> None:
        """Draw normal weights of variance 2 / fan-out (He et al. 2015).

        They keep the scale of the signal in the depth.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut.

    The shortcut is a 1×1 convolution where the shape changes.
    """

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out: Tensor = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(out)) + shortcut)


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution without bias, because batch normalisation follows.

    Stride 1 keeps the size.
    """
    return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)


class ResNet(Backbone):
    """Stages of ``BasicBlock`` and the mean over positions."""

    head_name = "fc"

    def __init__(
        self,
        n_classes: int,
        in_channels: int,
        *,
        widths: Sequence[int],
        blocks: Sequence[int],
        stem_stride: int,
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, widths[0], stem_stride)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self._add_stages(BasicBlock, widths[0], widths, blocks)
        self.fc = nn.Linear(self.n_features, n_classes)
        self._initialise()

    def features(self, images: Tensor) -> Tensor:
        return self._through_stages(relu(self.bn1(self.conv1(images)))).mean(dim=(2, 3))


class PreActivationBlock(nn.Module):
    """Normalisation, activation and convolution, twice.

    The shortcut starts from the input of the block.
    """

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1)
        same_shape = stride == 1 and in_channels == width
        self.shortcut = nn.Sequential(
            *([] if same_shape else [nn.Conv2d(in_channels, width, 1, stride)])
        )

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
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1)
        self._add_stages(
            PreActivationBlock, 16, [16 * widen, 32 * widen, 64 * widen], [(depth - 4) // 6] * 3
        )
        self.bn1 = nn.BatchNorm2d(self.n_features)
        self.linear = nn.Linear(self.n_features, n_classes)
        self._initialise()

    def features(self, images: Tensor) -> Tensor:
        return relu(self.bn1(self._through_stages(self.conv1(images)))).mean(dim=(2, 3))


BACKBONES: Mapping[str, Callable[[int, int], Backbone]] = {
    "resnet18": partial(ResNet, widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), stem_stride=1),
    "wrn28-10": partial(WideResNet, depth=28, widen=10),
    "resnet-small": partial(ResNet, widths=(24, 48, 96), blocks=(1, 1, 1), stem_stride=2),
}


def build(name: str, n_classes: int, in_channels: int = 3, *, seed: int = 0) -> Backbone:
    """Build a network with random weights, by its name in ``BACKBONES``.

    The global random generator is not changed.

    >>> build("resnet-small", n_classes=10, in_channels=1).n_features
    96
    """
    backbone = named(BACKBONES, name, "backbone")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return backbone(n_classes, in_channels)


def encode_images(
    network: Backbone, images: Tensor, preprocess: Preprocess, *, fast: bool = False
) -> Tensor:
    """Features [n, d] of images [n, c, h, w] uint8 on their device.

    The statistics of batch normalisation are frozen.

    ``preprocess`` crops and standardises the images, ``batch`` at a time.
    ``fast`` computes in bfloat16 on a GPU.
    """
    network.eval()
    features = []
    with torch.inference_mode():
        for part in torch.split(images, _TOGETHER):
            ready = preprocess.standardise(part).contiguous(
                memory_format=memory_format(part.device)
            )
            with precision(part.device, fast):
                features.append(network.features(ready).float())
    return torch.cat(features).clone()


def memory_format(device: torch.device) -> torch.memory_format:
    """Channels last on a GPU, where tensor cores need it.

    Convolutions on a CPU are faster without it.
    """
    if device.type == "cuda":
        return torch.channels_last
    return torch.contiguous_format


def precision(device: torch.device, fast: bool = True) -> torch.autocast:
    """bfloat16 on a GPU if ``fast``, else float32.

    It costs no accuracy there that training notices.
    """
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast and device.type == "cuda")
