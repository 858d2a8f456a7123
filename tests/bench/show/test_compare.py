"""Comparisons on the same tasks."""

from __future__ import annotations

import pytest
from bench.show.results import make_record, old

from manyway import InputError
from manyway.bench.show.view import find_records, pairs, record_title


def test_two_methods_are_compared_on_every_setting_that_both_solved(view, stored):
    store = stored(view)
    found = pairs(find_records("paddle", store), find_records("simpleshot", store))
    assert len(found) == 4
    test = found[0][0].against(found[0][1])
    assert test.difference.mean == pytest.approx(1 / 4 / 12)
    assert (test.wins, test.ties) == (10, 30)


def test_only_tasks_that_both_solved_are_compared():
    short = make_record("simpleshot", n_tasks=8, outcome={"n_query": 12, "correct": [9, 10, 11, 11] * 2})
    ((left, right),) = pairs([make_record("paddle")], [short])
    assert (left.n_tasks, left.outcome.correct) == (8, [9, 10, 11, 12] * 2)
    assert left.against(right) == make_record("paddle").against(short)


def test_results_are_found_by_key_and_by_file(view, stored):
    store, record = stored(view), view.records[0]
    assert find_records(record.key, store) == [record]
    assert find_records(str(store.folder / "records" / record.file_name), store) == [record]
    with pytest.raises(InputError, match="did you mean 'paddle'"):
        find_records("padle", store)


def test_results_without_common_tasks_are_refused():
    with pytest.raises(InputError, match="no tasks in common"):
        pairs([make_record("paddle", seed=0)], [make_record("simpleshot", seed=1)])


def test_a_title_names_what_is_special_and_what_is_old():
    record = make_record(params={"lam": 5, "tol": None}, special=["lam"])
    assert record_title(record) == "PADDLE λ = 5"
    assert record_title(old(record)) == "PADDLE λ = 5 †"
