"""What every backbone is: images in, features out, and a linear head that only base training uses."""

from __future__ import annotations

from torch import Tensor, nn


class Backbone(nn.Module):
    """Images [n, c, h, w] -> features [n, d] (``features``) -> class scores [n, k] (``forward``)."""

    n_features: int
    head_name: str  # "fc" or "linear": what the public checkpoints of this family call the classifier

    @property
    def n_outputs(self) -> int:
        """How many scores ``forward`` gives."""
        return len(self.get_parameter(f"{self.head_name}.weight"))

    def features(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.get_submodule(self.head_name)(self.features(images))
        return scores


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size (at stride 1); no bias, since batch normalisation follows."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)


def he_initialise(network: nn.Module) -> None:
    """Normal convolution weights of variance 2 / fan-out (He et al. 2015), so that depth keeps the signal's scale."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
