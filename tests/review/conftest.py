"""A review in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from review_problems import make_review

from manyway.review.data import JOURNAL, ReviewData
from manyway.review.journal import Journal
from manyway.review.session import Session


@pytest.fixture
def open_session(tmp_path) -> Iterator[Callable[..., Session]]:
    """Open the review of a folder; those that are still open are closed at the end."""
    opened: list[Session] = []

    def start(data: ReviewData | None = None) -> Session:
        data = data or make_review()
        session = Session(data, Journal(tmp_path / JOURNAL, data.items_hash))
        opened.append(session)
        return session

    yield start
    for session in opened:
        session.close()


@pytest.fixture
def session(open_session) -> Session:
    return open_session()
