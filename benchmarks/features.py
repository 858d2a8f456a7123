"""Synthetic features for timing: class means in a 16-dimensional subspace, noise, then a ReLU."""

from __future__ import annotations

import torch

from manyway import FeatureSet


def make_features(n_classes: int, per_class: int, n_features: int, device: str = "cpu", seed: int = 0) -> FeatureSet:
    """Random classes on which PADDLE needs about as many iterations as on real features."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    means = normal(n_classes, 16) @ normal(16, n_features) * (2.83 / n_features**0.5)
    features = means.repeat_interleave(per_class, 0) + normal(n_classes * per_class, n_features)
    return FeatureSet(features.relu_(), torch.arange(n_classes, device=device).repeat_interleave(per_class))
