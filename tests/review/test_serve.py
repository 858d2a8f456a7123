"""The server of a review takes a port of this computer, and no other."""

from __future__ import annotations

import socket

from manyway.review.guard import HOST
from manyway.review.serve import take_port


def test_answers_are_sent_at_once():
    with take_port(8790) as taken:
        assert taken.proto == socket.IPPROTO_TCP  # otherwise asyncio waits up to 40 ms for more to send


def test_a_port_in_use_takes_the_next():
    with take_port(8790) as first:
        taken = first.getsockname()[1]
        with take_port(taken) as second:
            assert second.getsockname()[1] > taken
            assert first.getsockname()[0] == second.getsockname()[0] == HOST == "127.0.0.1"
