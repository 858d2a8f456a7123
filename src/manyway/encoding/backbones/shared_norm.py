"""Batch normalisation over the global batch when several processes train together.

With it, n processes on n parts of a batch compute what one process computes on the whole batch. torch has it for GPUs
(SyncBatchNorm); ``SharedBatchNorm2d`` is the same in plain operations, for CPUs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn


class _SumOverProcesses(torch.autograd.Function):
    """Sum of a tensor over all processes; the gradient of a sum is the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        total = local.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total)
        return total


class SharedBatchNorm2d(nn.BatchNorm2d):
    """``BatchNorm2d`` whose training statistics are those of the global batch."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        n_local, channels = input.numel() // input.shape[1], input.shape[1]
        sums = torch.cat([input.sum(dim=(0, 2, 3)), input.new_tensor([float(n_local)])])
        sums = _sum(sums)
        count, mean = sums[-1].detach(), sums[:channels] / sums[-1].detach()
        centred = input - mean.view(1, -1, 1, 1)
        # Deviations are summed in a second exchange, because sums of squares lose digits in float32.
        variance = _sum(centred.square().sum(dim=(0, 2, 3))) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            momentum = self.momentum if self.momentum is not None else 0.1
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(variance * count / (count - 1), momentum)
        scaled = centred * torch.rsqrt(variance + self.eps).view(1, -1, 1, 1)
        return scaled * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


def _sum(local: Tensor) -> Tensor:
    total: Tensor = _SumOverProcesses.apply(local)  # type: ignore[no-untyped-call]
    return total


def share_batch_norm(network: nn.Module, device: torch.device) -> nn.Module:
    """Replace batch normalisation by that over the global batch; weights and their names stay the same."""
    if device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        return converted
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            shared = SharedBatchNorm2d(module.num_features, module.eps, module.momentum)
            shared.load_state_dict(module.state_dict())
            parent = network.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], shared)
    return network
