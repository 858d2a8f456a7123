"""Fixtures for tests of what shows stored results."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from bench.show.results import ANSWERS, make_record, make_view

from manyway.bench.records import Store
from manyway.bench.show.view import View


@pytest.fixture
def view() -> View:
    return make_view([make_record(*place) for place in product(ANSWERS, (1, 3), (2, 4))])


@pytest.fixture
def stored(tmp_path, monkeypatch) -> Callable[[View], Store]:
    """Write a view into the folder results of an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def write(view: View) -> Store:
        store = Store("results")
        for record in view.records:
            store.write(record)
        store.write_plan(view.plan)
        return store

    return write
