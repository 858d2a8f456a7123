"""No hostile file may take long."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def no_hang():
    """Stop a test that hangs."""

    def stop(*_):
        raise TimeoutError("this took more than a minute")

    if not hasattr(signal, "SIGALRM"):  # Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
