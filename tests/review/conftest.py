"""A review in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from problems import content_of
from review_problems import make_review

from manyway.core import Tasks
from manyway.methods.evidence.solver import learn_for_review
from manyway.review.data import JOURNAL, ReviewData
from manyway.review.journal import Journal
from manyway.review.session import Session


@pytest.fixture(scope="session", autouse=True)
def _learned_once() -> Iterator[None]:
    """What is learned from the same examples and items is kept: it takes longer than most of these tests."""
    kept: dict[Any, Any] = {}

    def learn(tasks: Tasks, open_set: bool = False) -> Any:
        content = (*map(content_of, vars(tasks).values()), open_set)
        if content not in kept:
            kept[content] = learn_for_review(tasks, open_set)
        return kept[content]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyway.review.relabel.learn_for_review", learn)
        yield


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
