"""Comparisons on the same tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.show.results import make_record

from manyway import InputError
from manyway.bench.show.compare import compare, find_records, record_title


def test_two_methods_are_compared_on_every_setting_that_both_solved(view, stored):
    store = stored(view)
    comparisons = compare(find_records("paddle", store), find_records("simpleshot", store))
    assert len(comparisons) == 4
    assert comparisons[0].paired.difference.mean == pytest.approx(1 / 4 / 12)
    assert (comparisons[0].paired.wins, comparisons[0].paired.ties) == (10, 30)


def test_results_are_found_by_key_and_by_file(view, stored):
    store, record = stored(view), view.records[0]
    assert find_records(record.key, store) == [record]
    assert find_records(str(store.folder / "records" / record.file_name), store) == [record]
    with pytest.raises(InputError, match="did you mean 'paddle'"):
        find_records("padle", store)


def test_results_without_common_tasks_are_refused():
    with pytest.raises(InputError, match="no tasks in common"):
        compare([make_record("paddle", seed=0)], [make_record("simpleshot", seed=1)])


def test_a_title_names_what_is_special_and_what_is_old():
    record = make_record(params={"lam": 5, "tol": None}, special=["lam"])
    assert record_title(record) == "PADDLE λ = 5"
    assert record_title(replace(record, version=0)) == "PADDLE λ = 5 †"
