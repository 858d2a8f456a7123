"""What evidence learns is asked in ``tests/methods``."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _learned_once(learned_once) -> None:
    """Most of these tests learn from the examples of another one."""
