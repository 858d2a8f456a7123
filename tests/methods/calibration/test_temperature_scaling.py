"""Temperature scaling: the best biases and temperature, with classes of equal weight."""

from __future__ import annotations

import pytest
import torch

from manyway.methods.calibration import temperature_scaling as module
from manyway.methods.calibration.temperature_scaling import balanced_weights, fit_scaling, rescale, scaled


def test_the_calibration_minimises_the_penalised_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2, 40, 4, generator=generator, dtype=torch.float64)
    tilted = logits + torch.tensor([1.0, 0.0, 0.0, -1.0])
    labels = torch.multinomial(tilted.softmax(-1).flatten(0, 1), 1, generator=generator).view(2, 40)
    weights = torch.rand(2, 40, generator=generator, dtype=torch.float64)
    found = fit_scaling(logits, labels, weights).requires_grad_()
    bias, scale = found[:, :-1], found[:, -1]
    with torch.enable_grad():
        scaled = (logits * scale.view(-1, 1, 1) + bias.unsqueeze(1)).log_softmax(-1)
        loss = -(scaled.gather(2, labels.unsqueeze(-1)).squeeze(-1) * weights).sum()
        loss = loss + bias.square().sum() / 2 + (scale - 1).square().sum() / (2 * 0.5**2)
        (slope,) = torch.autograd.grad(loss, found)
    assert slope.abs().max() < 1e-8
    assert bias.abs().max() > 0.1


def test_every_class_has_the_same_weight_in_the_calibration():
    labels = torch.tensor([[0, 0, 0, 1, 1, 2]])
    weights = balanced_weights(labels, torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]]), 3)
    torch.testing.assert_close(weights, torch.tensor([[2.5 / 3] * 3 + [1.25] * 2 + [0.0]]))


def test_the_scaling_multiplies_and_shifts_logits():
    logits = torch.tensor([[[1.0, 2.0], [3.0, 5.0]]])
    assert rescale(logits, torch.tensor([[10.0, 20.0, 0.5]])).tolist() == [[[10.5, 21.0], [11.5, 22.5]]]


def overconfident(factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [1, 600, 3] that are so many times too large, and labels drawn by the right ones."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 600, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits[0].softmax(-1), 1, generator=generator).view(1, -1)
    return factor * logits, labels


def test_logits_that_are_too_sure_are_made_less_sure_and_others_stay():
    logits, labels = overconfident(2.0)
    weights = balanced_weights(labels, torch.ones(1, 600).double(), 3)
    assert abs(float(fit_scaling(logits, labels, weights)[0, -1]) - 0.5) < 0.1
    found = scaled(logits, logits, labels)
    assert torch.equal(found, scaled(logits, logits, labels, torch.ones(1, 600).double()))
    torch.testing.assert_close(found, rescale(logits, fit_scaling(logits, labels, weights)))


def test_what_is_not_usable_says_nothing():
    logits, labels = overconfident(1.0)
    usable = torch.ones(1, 600).double()
    usable[:, 300:] = 0
    wrong = labels.clone()
    wrong[:, 300:] = 0
    assert torch.equal(scaled(logits, logits, labels, usable), scaled(logits, logits, wrong, usable))


def test_without_samples_logits_stay_as_they_are():
    logits, labels = overconfident(1.0)
    found = scaled(logits, logits, labels, torch.zeros(1, 600).double())
    torch.testing.assert_close(found.softmax(-1), logits.softmax(-1))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_step_changes_a_bias_or_the_scale_by_more_than_one(sign, monkeypatch):
    """Of many labels that nobody expected the whole step is several times as long, and goes too far."""
    labels = torch.zeros(1, 200, dtype=torch.long)
    if sign < 0:
        labels = labels + 1 + torch.arange(200) % 9  # every class but the first
    logits = torch.zeros(1, 200, 10).double()
    logits[..., 0] = -4 * sign
    last = torch.tensor([[0.0] * 10 + [1.0]]).double()
    steps = []
    for number in (1, 2, 3):
        monkeypatch.setattr(module, "_NEWTON_STEPS", number)
        found = fit_scaling(logits, labels, torch.ones(1, 200).double())
        steps.append(found - last)
        last = found
    longest = torch.cat(steps).abs().max()
    assert longest == 1
    assert sign * steps[0][0, 0] == 1
