"""One rule for devices."""

from __future__ import annotations

import pytest
import torch

from manyway import InputError
from manyway.core.validation import resolve_device


def test_the_default_is_cuda_where_there_is_one():
    assert resolve_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["meta", "quantum", "", "cuda:99", "cpu:x", "fpga", "[red]", "xla"])
def test_a_device_that_cannot_compute_is_one_sentence(name):
    with pytest.raises(InputError, match="cannot be used here"):
        resolve_device(name)
