"""What tests share: the real features, when somebody has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the problems are small, and machines that test are shared


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real features; tests that need it are skipped for people who do not have it."""
    folder = os.environ.get("MANYWAY_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real features: set MANYWAY_DATA to the folder that holds features/")
    return Path(folder)
