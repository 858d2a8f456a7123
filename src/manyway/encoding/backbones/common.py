"""The interface of backbones: images to features, and a linear classifier that only base training uses."""

from __future__ import annotations

from torch import Tensor, nn


class Backbone(nn.Module):
    """Images [n, c, h, w] -> features [n, d] (``features``) -> class scores [n, k] (``forward``)."""

    n_features: int
    head_name: str  # "fc" or "linear": the name of the classifier in the public checkpoints of this family

    @property
    def n_outputs(self) -> int:
        """The number of classes that ``forward`` gives scores for."""
        return len(self.get_parameter(f"{self.head_name}.weight"))

    def features(self, images: Tensor) -> Tensor:
        """Features [n, d] of images [n, c, h, w]."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.get_submodule(self.head_name)(self.features(images))
        return scores


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution without bias, because batch normalisation follows; stride 1 keeps the size."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)


def he_initialise(network: nn.Module) -> None:
    """Normal weights of variance 2 / fan-out (He et al. 2015), which keep the scale of the signal through the depth."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
