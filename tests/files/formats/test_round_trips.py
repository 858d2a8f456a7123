"""Every format that is read and written gives back what it has read; the list of formats is the registry's."""

from __future__ import annotations

import numpy as np
import pytest

from manyway.files.formats.base import Answers, ArrayFormat, Asked, DataFormat, Label, Origin, TableFormat
from manyway.files.formats.registry import opened, our_formats
from manyway.files.items import Items
from manyway.files.scores import ScoreFormat

KNOWN = [each for each in our_formats() if each.kept]


def of(kind: type) -> list:
    return [pytest.param(each, id=each.key) for each in KNOWN if isinstance(each, kind)]


@pytest.mark.parametrize("each", of(TableFormat))
def test_a_table_comes_back(each, tmp_path):
    path = tmp_path / each.example_path.name
    table = each.read(each.example_path, Asked())
    each.write(path, table.names, [cells for _, cells in table.rows()])
    again = each.read(path, Asked())
    assert list(again.names) == list(table.names)
    assert [cells for _, cells in again.rows()] == [cells for _, cells in table.rows()]


@pytest.mark.parametrize("each", of(ArrayFormat))
def test_arrays_come_back(each, tmp_path):
    path = tmp_path / each.example_path.name
    found = each.read(each.example_path)
    arrays = {name: getattr(found, name) for name in ("features", "labels", "class_names")}
    each.write(path, {name: array for name, array in arrays.items() if array is not None})
    again = each.read(path)
    assert np.array_equal(np.asarray(again.features), np.asarray(found.features))
    assert again.class_names == found.class_names
    if found.labels is not None:
        assert list(again.labels) == list(found.labels)


@pytest.mark.parametrize("each", [each for each in of(ScoreFormat) if not each.values[0].only_labels])
def test_scores_take_answers_and_keep_their_items(each, tmp_path):
    """The answers are the scores with each item's classes in turn: what is read again has these probabilities."""
    path = tmp_path / each.example_path.name
    scores = each.read(opened(each.example_path))
    (origin,) = scores.origins
    listed = [np.flatnonzero(~np.isnan(row)) for row in scores.values]
    ranked = []
    for places in listed:
        share = 0.5 / len(places)
        ranked.append([(scores.classes[k], round(0.5 - rank * share / 2, 4)) for rank, k in enumerate(places)])
    answers = Answers(scores, [], scores.classes, lambda count: [one[:count] for one in ranked], origin=origin)
    assert each.write(path, answers) == []
    again = each.read(opened(path))
    assert again.names == scores.names
    for row, pairs in enumerate(ranked):
        found = {again.classes[k]: round(float(again.values[row, k]), 4) for k in np.flatnonzero(again.values[row] > 0)}
        assert found == dict(pairs)
    assert again.carried.get("file") == scores.carried.get("file")
    assert again.skipped == scores.skipped
    # A second time changes nothing.
    (origin,) = again.origins
    each.write(tmp_path / f"again{path.suffix}", Answers(again, [], again.classes, answers.ranked, origin=origin))
    assert (tmp_path / f"again{path.suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("each", [each for each in of(ScoreFormat) if each.values[0].only_labels])
def test_formats_without_room_for_probabilities_take_labels_and_keep_their_items(each, tmp_path):
    """Every item gets the first class that it lists; a second time changes nothing."""
    scores = each.read(opened(each.example_path))
    texts = []
    for name in ("once", "twice"):
        path = tmp_path / f"{name}{each.example_path.suffix}"
        best = np.nan_to_num(scores.values).argmax(1)
        labels = [Label(row, scores.names[row], scores.classes[k], 1.0) for row, k in enumerate(best.tolist())]
        answers = Answers(scores, labels, scores.classes, lambda count: [], origin=scores.origins[0])
        assert each.write(path, answers) == []
        texts.append(path.read_bytes())
        again = each.read(opened(path))
        assert len(again) == len(scores)
        assert set(again.classes) >= {label.name for label in labels} or "taxid" in again.described
    assert texts[0] == texts[1]


@pytest.mark.parametrize("each", of(DataFormat))
def test_files_of_labelling_programs_take_answers_and_keep_their_rows(each, tmp_path):
    """Every item without a label gets the class ``answered``; labels that people gave stay."""
    path = tmp_path / each.example_path.name
    before = each.read(each.example_path, Asked())
    (names,) = before.values([before.names.index("item")])
    items = Items(np.zeros((len(names), 1)), None, [str(name) for name in names])
    labels = [Label(row, str(name), "answered", 0.75) for row, name in enumerate(names)]
    origin = Origin(each.example_path, len(names), 2, each)
    ranked = [[("answered", 0.75), ("other", 0.25)]] * len(names)
    each.write(path, Answers(items, labels, ("answered", "other"), lambda count: ranked, origin=origin))
    assert b"answered" in path.read_bytes()
    after = each.read(path, Asked())
    kept = [name for name in before.names if name in after.names]
    assert kept == list(before.names)
    assert after.values([after.names.index(n) for n in kept]) == before.values(range(len(before.names)))
