"""Files of scores: every form is read alike, and what makes no sense is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from manyway import InputError
from manyway.files import formats
from manyway.files.options import Options
from manyway.files.score_files import read_answers, read_class_prior, read_item_labels, read_scores
from manyway.files.scores import box_of
from manyway.labelling.taxonomy import read_taxonomy

EXAMPLES = Path(formats.__file__).parent / "examples"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def listed(scores, row: int = 0) -> dict[str, float]:
    """The classes that an item lists, with their scores."""
    values = dict(zip(scores.classes, scores.values[row].tolist(), strict=True))
    return {name: round(value, 4) for name, value in values.items() if not np.isnan(value)}


def test_speciesnet_has_five_labels_per_picture_and_a_taxonomy():
    scores = read_scores(EXAMPLES / "speciesnet.json")
    assert scores.names == ("cam1/0001.jpg", "cam1/0002.jpg")
    assert listed(scores) == {
        "lion": 0.7115,
        "leopard": 0.1422,
        "felidae family": 0.0812,
        "impala": 0.0211,
        "blank": 0.0102,
    }
    assert listed(scores, 1) == {"leopard": 0.4503, "lion": 0.4401, "blank": 0.0301}
    assert list(scores.levels) == ["genus", "family", "order", "taxonomic class"]
    assert scores.levels["genus"] == {"lion": "panthera", "leopard": "panthera", "impala": "aepyceros"}
    assert scores.levels["family"]["felidae family"] == "felidae"
    assert scores.skipped == (("cam1/0003.jpg", "no classifications (CLASSIFIER)"),)
    assert scores.kind == "probability"


def test_megadetector_has_one_item_per_classified_detection():
    scores = read_scores(EXAMPLES / "megadetector.json")
    assert scores.names == ("week1/a.jpg", "week1/b.jpg#1", "week1/b.jpg#2")
    assert scores.classes == ("bear", "elk", "fox", "moose", "wolf")
    assert listed(scores) == {"bear": 0.901, "elk": 0.071, "moose": 0.025}
    assert scores.skipped == (("week1/broken.jpg", "Failure image access"),)
    assert scores.notes == ("images of megadetector.json without a classified detection are left out: 1",)


@pytest.mark.parametrize(
    ("name", "first", "genus"),
    [
        ("birdnet.csv", "rec/morning.wav 0-3", "Turdus"),
        ("birdnet.selection.table.txt", "rec/morning.wav 0-3", None),
        ("kaleidoscope.csv", "site1/morning.wav 0-3", "Turdus"),
    ],
)
def test_birdnet_has_one_item_per_segment(name, first, genus):
    scores = read_scores(EXAMPLES / name)
    assert scores.names[0] == first
    assert listed(scores)["Eurasian Blackbird"] == 0.8123
    assert scores.kind == "sigmoid"
    assert scores.levels.get("genus", {}).get("Song Thrush") == genus
    assert "nocall" not in scores.classes


def box(scores, row):
    return box_of({name: cells[row] for name, cells in scores.carried.items()})


def test_boxes_files_and_names_are_kept():
    scores = read_scores(EXAMPLES / "megadetector.json")
    assert [scores.file(row) for row in range(3)] == ["week1/a.jpg", "week1/b.jpg", "week1/b.jpg"]
    assert [box(scores, row) for row in (0, 2)] == [(0.0, 0.2762, 0.1539, 0.2825), (0.5, 0.5, 0.5, 0.5)]
    assert scores.carried["detection"] == ["animal"] * 3
    assert scores.carried["detection_conf"] == [0.926, 0.8, 0.7]
    speciesnet = read_scores(EXAMPLES / "speciesnet.json")
    assert [box(speciesnet, row) for row in (0, 1)] == [(0.1, 0.2, 0.3, 0.4), None]
    assert speciesnet.file(1) == "cam1/0002.jpg"
    assert speciesnet.carried["country"] == ["KEN", None]
    assert speciesnet.carried["prediction"] == ["lion", None]
    assert speciesnet.described["scientific_name"]["lion"] == "Panthera leo"
    assert speciesnet.described["scientific_name"]["felidae family"] == "Felidae"
    assert "blank" not in speciesnet.described["scientific_name"]
    birds = read_scores(EXAMPLES / "birdnet.csv")
    assert (birds.carried["file"][1], birds.carried["start"][1], birds.carried["end"][1]) == ("rec/morning.wav", 3, 6)
    assert birds.described["scientific_name"]["Song Thrush"] == "Turdus philomelos"
    assert (birds.independent, speciesnet.independent) == (True, False)


def test_other_columns_of_a_table_are_kept_with_their_item_or_class(tmp_path):
    text = "item,class,scientific_name,site,rank,score\na,fox,Vulpes vulpes,s1,1,0.9\na,dog,Canis,s1,2,0.1\n"
    scores = read_scores(write(tmp_path, "s.csv", text + "b,dog,Canis,s2,1,0.6\n"))
    assert scores.carried == {"site": ["s1", "s2"]}
    assert scores.described == {"scientific_name": {"fox": "Vulpes vulpes", "dog": "Canis"}}
    wide = read_scores(write(tmp_path, "w.csv", WIDE.replace("fox\n", "fox,site\n").replace("9\n", "9,north\n")
                             .replace("4\n", "4,south\n")))  # fmt: skip
    assert wide.carried == {"site": ["north", "south"]}


def test_logits_of_speciesnet_are_not_cut_after_five(tmp_path):
    z = {"fox": 4.0, "dog": 2.0, "cat": 1.0, "elk": -3.0}
    total = sum(np.exp(value) for value in z.values())
    p = {name: float(np.exp(value) / total) for name, value in z.items()}
    logits = {"target_classes": list(z), "target_logits": list(z.values())}
    listed_too = {"classes": ["fox", "dog"], "scores": [p["fox"], p["dog"]]}
    entries = [{"filepath": "a", "classifications": {**listed_too, **logits}}]
    entries.append({"filepath": "b", "classifications": {"classes": ["blank"], "scores": [0.6], **logits}})
    entries.append({"filepath": "c", "classifications": {"classes": [], "scores": [], **logits}})
    scores = read_scores(write(tmp_path, "p.json", json.dumps({"predictions": entries})))
    assert listed(scores, 0) == {name: pytest.approx(value, abs=1e-4) for name, value in p.items()}
    assert listed(scores, 2) == {name: pytest.approx(value, abs=1e-4) for name, value in p.items()}
    second = listed(scores, 1)
    assert second["blank"] == 0.6 > second["fox"] > second["dog"] > second["elk"] > 0
    assert sum(second.values()) <= 1.001


def test_what_megadetector_allows_is_read(tmp_path):
    content = json.loads((EXAMPLES / "megadetector.json").read_text())
    content["info"]["format_version"] = "2.0"
    content["classification_categories"] |= {"4": "fox", "5": "", "7": None}
    content["images"][1]["detections"][1]["classifications"] = [["2", 0.9], ["5", 0.8]]
    content["images"] += [
        {"file": "zero.jpg", "detections": [{"category": "1", "conf": 0.9, "classifications": [["0", 0.0]]}]},
        {"file": "no-detections.jpg"},
        {
            "file": "film.mp4",
            "frame_rate": 20,
            "frames_processed": [0, 20],
            "datetime": "2024-05-01 22:30:00",
            "detections": [{"category": "1", "conf": 0.9, "frame_number": 20, "classifications": [["0", 0.5]]}],
        },
    ]
    scores = read_scores(write(tmp_path, "m.json", json.dumps(content)))
    assert {"fox (0)", "fox (4)", "category 5", "category 7"} <= set(scores.classes)
    assert ("zero.jpg", "all of its scores are 0") in scores.skipped
    assert (scores.kind, scores.independent) == ("sigmoid", True)
    assert scores.names[-1] == "film.mp4"
    assert (scores.carried["frame"][-1], scores.carried["time"][-1]) == (20, "2024-05-01 22:30:00")
    assert any("format version 2.0" in note for note in scores.notes)
    assert any("'5', '7'" in note for note in scores.notes)


def test_a_folder_of_files_is_one_batch(tmp_path):
    head, *rows = (EXAMPLES / "birdnet.csv").read_text().splitlines(keepends=True)
    write(tmp_path, "one.BirdNET.results.csv", head + rows[0])
    write(tmp_path, "two.BirdNET.results.csv", head + rows[2] + rows[3])
    write(tmp_path, "silent.BirdNET.results.csv", head)
    write(tmp_path, "BirdNET_CombinedTable.csv", head + "".join(rows))
    write(tmp_path, "BirdNET_analysis_params.csv", "overlap,sensitivity\n0,1\n")
    scores = read_scores(tmp_path)
    assert scores.names == ("rec/morning.wav 0-3", "rec/morning.wav 3-6", "rec/morning.wav 6-9")
    assert scores.carried["source"] == ["one.BirdNET.results.csv", *["two.BirdNET.results.csv"] * 2]
    assert scores.classes == ("Eurasian Blackbird", "European Robin", "Song Thrush")
    assert any("BirdNET_…" in note for note in scores.notes)
    write(tmp_path, "other.csv", LONG)
    with pytest.raises(InputError, match="scores of different kinds"):
        read_scores(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file of scores"):
        read_scores(tmp_path / "empty")


def test_items_of_equal_names_in_a_folder_are_told_apart(tmp_path):
    write(tmp_path, "north.csv", WIDE)
    write(tmp_path, "south.csv", LONG)
    assert read_scores(tmp_path).names == ("north.csv: a", "north.csv: b", "south.csv: a", "south.csv: b")


LONG = "item,class,score\na,fox,0.9\na,dog,0.1\nb,dog,0.6\nb,fox,0.4\n"
WIDE = "item,dog,fox\na,0.1,0.9\nb,0.6,0.4\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", LONG),
        ("s.csv", WIDE),
        ("s.csv", WIDE.replace(",", ";").replace(".", ",")),
        ("s.csv", LONG.replace(",", ";").replace(".", ",")),
        ("s.tsv", LONG.replace(",", "\t").replace("item", "\ufefffile name")),
        ("s.jsonl", '{"item": "a", "dog": 0.1, "fox": 0.9}\n{"item": "b", "fox": 0.4, "dog": 0.6}\n'),
    ],
    ids=["long", "wide", "wide with decimal commas", "long with decimal commas", "tsv with byte-order mark", "jsonl"],
)  # fmt: skip
def test_all_forms_of_a_table_are_the_same_scores(name, text, tmp_path):
    scores = read_scores(write(tmp_path, name, text))
    assert (scores.names, scores.classes) == (("a", "b"), ("dog", "fox"))
    np.testing.assert_allclose(scores.values, [[0.1, 0.9], [0.6, 0.4]], rtol=1e-6)


def test_a_wide_table_may_have_some_labels(tmp_path):
    scores = read_scores(write(tmp_path, "s.csv", "item,dog,fox,label\na,0.1,0.9,fox\nb,0.6,0.4,\n"))
    assert scores.labels == ("fox", None)


@pytest.mark.parametrize("form", ["{:.3f}", "{:.1e}", "-{:.2f}"])  # probabilities, small ones, log-probabilities
def test_a_class_may_be_called_like_an_id_or_a_date(form, tmp_path):
    classes = ["id", "file", "date", "no", "key", "lat", "idx"]  # Indonesian is id, Norwegian no
    rows = [",".join(form.format((3 * i + 5 * k) % 11 / 11 + 0.01) for k in range(len(classes))) for i in range(9)]
    for head, names in (("", tuple(map(str, range(9)))), ("text,", tuple(f"t{i}.txt" for i in range(9)))):
        lines = [
            head + ",".join(classes),
            *(f"{name},{row}" if head else row for name, row in zip(names, rows, strict=True)),
        ]
        scores = read_scores(write(tmp_path, "s.csv", "\n".join(lines)))
        assert scores.classes == tuple(classes)
        assert scores.names == names
    whole = read_scores(write(tmp_path, "s.csv", "id,dog,fox\n17,0.1,0.9\n18,0.6,0.4\n"))
    assert (whole.names, whole.classes) == (("17", "18"), ("dog", "fox"))


@pytest.mark.parametrize(
    "names",
    ["top1,score1,top2,score2", "label,probability,label_2,probability_2", "top1 pred,top1 conf,top2 pred,top2 conf"],
)
@pytest.mark.parametrize("first", ["item", "file"])
def test_the_best_classes_may_stand_side_by_side(first, names, tmp_path):
    text = f"{first},{names},site\na.jpg,fox,0.9,dog,0.1,north\nb.jpg,dog,0.6,,,south\n"
    scores = read_scores(write(tmp_path, "s.csv", text))
    assert scores.names == ("a.jpg", "b.jpg")
    assert scores.classes == ("dog", "fox")
    np.testing.assert_allclose(scores.values, [[0.1, 0.9], [0.6, np.nan]])
    assert scores.carried == {"site": ["north", "south"]}


def test_other_columns_with_numbers_are_no_further_answers(tmp_path):
    long = read_scores(write(tmp_path, "s.csv", "item,class,score,score2\na,fox,0.9,7\na,dog,0.1,7\nb,dog,0.6,8\n"))
    assert (long.classes, long.carried) == (("dog", "fox"), {"score2": ["7", "8"]})
    wide = read_scores(write(tmp_path, "s.csv", "item,label,prob_0,prob_1\na,1,0.1,0.9\nb,,0.6,0.4\n"))
    assert (wide.classes, wide.labels) == (("prob_0", "prob_1"), ("1", None))


@pytest.mark.parametrize(
    ("first", "second", "labels"), [("", "", None), ("fox", "", ("fox", None)), ("fox", "dog", ("fox", "dog"))]
)
def test_a_folder_has_the_labels_of_its_files_and_none_where_no_file_has_one(first, second, labels, tmp_path):
    for name, label in (("a", first), ("b", second)):
        text = "item,dog,fox,label\n{0},0.1,0.9,{1}\n" if label else "item,dog,fox\n{0},0.1,0.9\n"
        (tmp_path / "s").mkdir(exist_ok=True)
        write(tmp_path / "s", f"{name}.csv", text.format(name, label))
    assert read_scores(tmp_path / "s").labels == labels


@pytest.mark.parametrize(
    "text",
    [
        "item,dog,fox,cat\na,-inf,-0.5,-1\nb,0,-inf,-Inf\nc,-1,-1,-1.5\n",
        "item;dog;fox;cat\na;-inf;-0,5;-1\nb;0;-inf;-Inf\nc;-1;-1;-1,5\n",
        "item,class,score\na,dog,-inf\na,fox,-0.5\na,cat,-1\nb,dog,0\nb,fox,-inf\nb,cat,-Infinity\n"
        "c,dog,-1\nc,fox,-1\nc,cat,-1.5\n",
    ],
    ids=["one column per class", "decimal commas", "one row per class"],
)
def test_scores_may_be_logarithms_of_0(text, tmp_path):
    scores = read_scores(write(tmp_path, "s.csv", text)).with_classes(("dog", "fox", "cat"))
    assert scores.values.tolist() == [[-np.inf, -0.5, -1], [0, -np.inf, -np.inf], [-1, -1, -1.5]]
    assert not any("left out" in note for note in scores.notes)


def test_scores_in_arrow_may_be_logarithms_of_0(tmp_path):
    columns = {"item": ["a", "b"], "dog": [-np.inf, -0.7], "fox": [0.0, -0.7]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "s.parquet")
    assert read_scores(tmp_path / "s.parquet").values[0].tolist() == [-np.inf, 0]


BAD = {
    "two scores": ("s.csv", LONG + "a,fox,0.5\n", "two scores of class 'fox' .*the second in line 6"),
    "an item twice": ("s.csv", WIDE + "a,0.5,0.5\n", "the item 'a' twice"),
    "NaN": ("s.csv", LONG.replace("0.6", "nan"), "line 4, which is not a finite number"),
    "infinite": ("s.csv", LONG.replace("0.6", "1e999"), "line 4, which is not a finite number"),
    "infinite in a column": ("s.csv", WIDE.replace("0.6", "inf"), "'inf' in line 3, which is not a finite number"),
    "a word": ("s.csv", LONG.replace("0.6", "high"), "not all numbers"),
    "no score": ("s.csv", LONG.replace("0.6", ""), "'score' of .* is empty in line 4"),
    "no class": ("s.csv", LONG.replace("b,dog", "b,"), "no class in line 4"),
    "no item": ("s.csv", LONG.replace("b,dog", ",dog"), "no item in line 4"),
    "an empty cell": ("s.csv", WIDE.replace("0.6", ""), "'dog' of .* is empty in line 3; write a number there, or"),
    "too many cells": ("s.csv", LONG + "c,fox,0.5,1\n", "another number of cells"),
    "one class": ("s.csv", "item,class,score\na,fox,0.9\n", "one class only"),
    "no rows": ("s.csv", "item,class,score\n", "no score of any class; run a classifier first"),
    "failures only": (
        "s.json",
        json.dumps({"predictions": [{"filepath": "a.jpg", "failures": ["CLASSIFIER"]}]}),
        "no score of any class .'a.jpg': no classifications .CLASSIFIER..; run a classifier first",
    ),
    "two columns": ("s.csv", "item,fox,fox\na,1,0\n", "two columns named 'fox'"),
    "no names of classes": ("s.csv", "0.25,0.75\n0.5,0.5\n", "names the class of each column"),
    "another json": ("s.json", "[1, 2]", "SpeciesNet has a list 'predictions', MegaDetector has a list 'images'"),
    "broken json": ("s.json", '{"predictions": [', "is not JSON"),
    "deep json": ("s.json", "[" * 100_000, "is not JSON"),
    "a key twice": ("s.json", '{"predictions": [], "predictions": []}', "two values named 'predictions'"),
    "an ending": ("s.npy", "", "unknown ending"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "message"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused(name, text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_scores(write(tmp_path, name, text))


SPECIESNET = {"filepath": "a.jpg", "classifications": {"classes": ["fox", "dog"], "scores": [0.9, 0.1]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filepath": 3}, "'3' instead of a filepath in prediction 0"),
        ({"classifications": {"classes": ["fox"], "scores": [0.9, 0.1]}}, "equally long lists"),
        ({"classifications": {"classes": ["fox", "dog"], "scores": [0.9, "x"]}}, "not all numbers"),
        ({"classifications": {"classes": ["fox", "fox"], "scores": [0.9, 0.1]}}, "two scores of class 'fox'"),
        ({"classifications": [1]}, "instead of an object"),
        (
            {"classifications": {**SPECIESNET["classifications"], "target_classes": ["fox"], "target_logits": []}},
            "equally long lists 'target_classes' and 'target_logits'",
        ),
    ],
)
def test_damaged_predictions_of_speciesnet_are_refused(change, message, tmp_path):
    path = write(tmp_path, "p.json", json.dumps({"predictions": [SPECIESNET | change]}))
    with pytest.raises(InputError, match=message):
        read_scores(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"classification_categories"', '"other"', "were not classified"),
        ('["3", 0.901]', '["9", 0.901]', "among the classifications in image 0"),
        ('["3", 0.901]', '["3", 90.1]', "the score 90.1 in image 0; scores go from 0 to 1"),
        ('"week1/b.jpg"', '"week1/a.jpg"', "the file 'week1/a.jpg' twice .again in image 1"),
        ('"file": "week1/empty.jpg"', '"name": "week1/empty.jpg"', "no file in image 2"),
        ('"detections": []', '"detections": 3', "no list 'detections'"),
    ],
)
def test_damaged_files_of_megadetector_are_refused(old, new, message, tmp_path):
    text = (EXAMPLES / "megadetector.json").read_text()
    with pytest.raises(InputError, match=message):
        read_scores(write(tmp_path, "m.json", text.replace(old, new)))


def test_too_many_scores_are_refused_before_memory_is_used(tmp_path):
    lines = "".join(f"i{n},c{n},0.5\n" for n in range(12_000))
    with pytest.raises(InputError, match="too many to label at once"):
        read_scores(write(tmp_path, "s.csv", "item,class,score\n" + lines))


def test_labels_of_items_may_be_incomplete_and_not_contradictory(tmp_path):
    path = write(tmp_path, "l.csv", "file,species\na,fox\nb,\n")
    assert read_item_labels(path) == {"a": "fox"}
    with pytest.raises(InputError, match="another label for the item 'a' in line 4"):
        read_item_labels(write(tmp_path, "l.csv", "item,label\na,fox\nb,dog\na,dog\n"))
    with pytest.raises(InputError, match="needs one named 'label'"):
        read_item_labels(write(tmp_path, "l.csv", "item,width\na,3\n"), Options())


def test_reviewed_labels_are_the_newest_that_a_person_has_seen(tmp_path):
    header = "id,label,new_label,new_probability,new_reviewed,new_note\n"
    path = write(tmp_path, "r.csv", f"{header}a,dog,dog,,,given\nb,,fox,0.9,yes,\nc,,fox,0.6,no,\n")
    assert read_item_labels(path) == {"b": "fox"}
    header = "item,label,probability,reviewed,label_2,new_label,new_probability,new_note\n"
    path = write(tmp_path, "l.csv", f"{header}a,fox,0.9,yes,dog,dog,0.8,\nb,dog,0.6,no,fox,dog,0.7,\n")
    assert read_item_labels(path) == {"a": "fox"}


def test_answers_that_were_written_here_are_labels_and_no_scores(tmp_path):
    header = "file,width,label,probability,label_2,probability_2,note\n"
    rows = "a,3,fox,0.9,dog,0.1,\nb,4,,0.6,fox,0.4,\nc,,,,,,skipped: it has no text\n"
    found = read_answers(write(tmp_path, "o.csv", header + rows))
    assert found.labels == {"a": "fox", "b": "", "c": ""}
    assert found.classes == {"fox"}


def test_of_two_labels_that_were_written_here_the_newer_is_the_answer(tmp_path):
    header = "id,label,new_label,new_probability,new_note\n"
    path = write(tmp_path, "o.csv", f"{header}a,dog,dog,,given\nb,,fox,0.9,\n")
    assert read_answers(path).labels == {"a": "dog", "b": "fox"}
    assert read_answers(path, Options(label_column="label")).labels == {"a": "dog", "b": ""}


def test_answers_without_names_of_items_are_refused(tmp_path):
    path = write(tmp_path, "o.csv", "label,width,new_label,new_probability,new_note\n,3,fox,0.9,\n")
    with pytest.raises(InputError, match="needs one named 'item'"):
        read_answers(path)


def test_a_class_prior_is_positive_and_lists_each_class_once(tmp_path):
    assert read_class_prior(write(tmp_path, "p.csv", "class,count\nfox,30\ndog,10\n")) == {"fox": 30, "dog": 10}
    assert read_class_prior(write(tmp_path, "p.csv", "class\nfox\ndog\n")) == {"fox": 1, "dog": 1}
    for text, message in (
        ("class,prior\nfox,1\ndog,0\n", "prior 0 for the class 'dog' in line 3"),
        ("class,prior\nfox,1\nfox,2\n", "the class 'fox' twice"),
        ("class,prior\nfox,1\n,2\n", "no class in line 3"),
        ("class,width\nfox,1\ndog,2\n", "needs one named 'prior'"),
    ):
        with pytest.raises(InputError, match=message):
            read_class_prior(write(tmp_path, "p.csv", text))


def test_a_taxonomy_is_nested_and_ordered_from_fine_to_coarse(tmp_path):
    text = (
        "species,family,genus\nlion,cats,Panthera\nserval,cats,Leptailurus\nfox,dogs,Vulpes\nwolf,dogs,Canis\nblank,,\n"
    )
    levels = read_taxonomy(write(tmp_path, "t.csv", text))
    assert list(levels) == ["genus", "family"]
    assert "blank" not in levels["genus"]
    for old, new, message in (
        ("fox,dogs,Vulpes", "fox,dogs,Panthera", "the genus 'Panthera' in two groups of family, 'cats' and 'dogs'"),
        ("fox,", "lion,", "the class 'lion' twice"),
        ("species", "width", "needs one named 'class'"),
    ):
        with pytest.raises(InputError, match=message):
            read_taxonomy(write(tmp_path, "t.csv", text.replace(old, new)))


@pytest.mark.parametrize("digits", [2, 3])
def test_probabilities_that_were_rounded_stay_probabilities(tmp_path, digits):
    # Five probabilities of three digits can sum to 1.0025; one such detection made all scores of the file independent.
    thirds = [["0", round(0.335, digits)], ["1", round(0.335, digits)], ["2", 0.33], ["3", round(0.0056, digits)]]
    content = json.loads((EXAMPLES / "megadetector.json").read_text())
    content["images"][1]["detections"][1]["classifications"] = thirds
    content["classification_categories"] |= {str(n): f"animal {n}" for n in range(4)}
    scores = read_scores(write(tmp_path, "m.json", json.dumps(content)))
    assert sum(score for _, score in thirds) > 1.001
    assert (scores.kind, scores.independent) == ("probability", False)


@pytest.mark.parametrize("cells", [(3, 0, 2), (0.9, 0.6, 0.8)])
def test_a_column_beside_probabilities_is_no_class(tmp_path, cells):
    # The number of boxes, or the score of the best class: it would be a class, or make all scores independent.
    rows = zip("abc", ("0.1,0.9", "0.6,0.4", "0.8,0.2"), cells, strict=True)
    text = "item,dog,fox,extra\n" + "".join(f"{item},{scores},{cell}\n" for item, scores, cell in rows)
    with pytest.raises(InputError, match=r"Column 'extra' of .* is no score of a class, it seems: the others sum to 1"):
        read_scores(write(tmp_path, "s.csv", text))
    assert read_scores(tmp_path / "s.csv", Options(ignore_columns=("extra",))).classes == ("dog", "fox")


def test_a_class_that_never_occurs_is_a_class(tmp_path):
    text = "item,dog,fox,cat\na,0.1,0.9,0\nb,0.6,0.4,0.001\n"
    assert read_scores(write(tmp_path, "s.csv", text)).classes == ("dog", "fox", "cat")


def test_a_selection_table_without_confidence_says_so(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Selection\tBegin Time (s)\tEnd Time (s)\tCommon Name\tBegin Path\n1\t0\t3\tWren\ta.wav\n")
    with pytest.raises(InputError, match="it needs one named 'Confidence'"):
        read_scores(path)


def test_a_label_without_an_item_is_named_by_its_line(tmp_path):
    (tmp_path / "labels.csv").write_text("item,label\n1,cat\n,\n,dog\n")
    with pytest.raises(InputError, match="has a label and no item in line 4; fill the cell or remove the row"):
        read_item_labels(tmp_path / "labels.csv")
