"""`manyway label --scores` in the formats of other programs: all that is not ours comes back as it was."""

from __future__ import annotations

import codecs
import csv
import json
import re
from pathlib import Path

import pytest

from manyway.files import formats
from manyway.files.formats.base import Answers
from manyway.files.score_files import read_scores

EXAMPLES = Path(formats.__file__).parent / "examples"
FOX, DOG, BLANK = (
    "f1;mammalia;carnivora;canidae;vulpes;vulpes;red fox",
    "d1;mammalia;carnivora;canidae;canis;familiaris;domestic dog",
    "b1;;;;;;blank",
)


def rows(name: str | Path, delimiter: str = ",") -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.fixture
def label(run_in_folder):
    return lambda *words: run_in_folder("label", "--scores", *map(str, words))


def without(value, *names):
    """A copy of JSON, with numbers as they are written, less some keys."""
    if isinstance(value, dict):
        return {key: without(each, *names) for key, each in value.items() if key not in names}
    return [without(each, *names) for each in value] if isinstance(value, list) else value


def as_written(path: str | Path):
    """JSON with its numbers as text and its keys in order."""
    return json.loads(Path(path).read_text(encoding="utf-8"), parse_float=lambda text: f"number {text}")


def megadetector(n: int = 12) -> dict:
    """Pictures of two deployments over three nights, with odd numbers and keys of others."""
    images = []
    for number in range(n):
        scores = [["0", 0.55 + number / 100], ["1", 0.3], ["7", 0.05]]
        animal = {"category": "1", "conf": 0.910, "bbox": [0.1, 0.20, 0.3, 0.4], "classifications": scores, "track": 3}
        images.append(
            {
                "file": f"dep{number % 2}/IMG_{number:04}.JPG",
                "datetime": f"2024:05:0{1 + number // 4} 2{number % 4}:30:00",
                "exif_metadata": {"GPS": [1e-05, 1E+2]},
                "detections": [{"category": "2", "conf": 0.05, "bbox": [0, 0, 1, 1]}, animal],
            }
        )  # fmt: skip
    images[0]["detections"].append({"category": "2", "conf": 0.8, "bbox": [0.5, 0.5, 0.1, 0.1]})
    images.append({"file": "dep0/empty.jpg", "datetime": "2024-05-09T23:00:00+02:00", "detections": []})
    images.append({"file": "dep0/broken.jpg", "failure": "Failure image access", "detections": None})
    return {
        "info": {"format_version": "1.5", "detector": "md_v5a.0.0.pt", "own": {"z": 1, "a": 2}},
        "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
        "classification_categories": {"7": "blank", "0": "red fox", "1": "domestic dog"},
        "classification_category_descriptions": {"7": BLANK, "0": FOX, "1": DOG},
        "images": images,
        "zzz": "é\u2028",
    }


def test_megadetector_json_changes_in_its_classifications_only(label):
    text = json.dumps(megadetector(), indent=1).replace("0.91", "0.910").replace("1e-05", "0.00001")
    Path("md.json").write_text(text)
    code, _, err = label("md.json", "-o", "out.json")
    assert code == 0, err
    before, after = as_written("md.json"), as_written("out.json")
    assert json.dumps(without(after, "classifications")) == json.dumps(without(before, "classifications"))
    # every byte outside of the classifications is the same
    out, pieces = Path("out.json").read_text(), text.split('"classifications": [')
    assert out.startswith(pieces[0])
    assert out.endswith(pieces[-1].split('],\n     "track"')[-1])
    found = json.loads(out)["images"][0]["detections"][1]["classifications"]
    assert [key for key, _ in found[:1]] == ["0"]
    assert len(found) == 3
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)
    assert sum(p for _, p in found) == pytest.approx(1, abs=0.01)
    # it is read again by this program, as by others
    assert label("out.json", "-o", "again.csv")[0] == 0
    assert {row["label"] for row in rows("again.csv") if not row["note"]} == {"red fox"}


def test_tables_keep_name_box_and_time(label):
    Path("md.json").write_text(json.dumps(megadetector()))
    assert label("md.json", "-o", "o.csv")[0] == 0
    first = rows("o.csv")[0]
    assert (first["scientific_name"], first["file"], first["time"]) == (
        "Vulpes vulpes", "dep0/IMG_0000.JPG", "2024:05:01 20:30:00",
    )  # fmt: skip
    assert [first[f"box_{side}"] for side in ("x", "y", "width", "height")] == ["0.1", "0.2", "0.3", "0.4"]
    assert label(EXAMPLES / "birdnet.csv", "-o", "b.csv")[0] == 0
    second = rows("b.csv")[1]
    assert (second["start"], second["end"], second["file"]) == ("3.0", "6.0", "rec/morning.wav")
    assert second["scientific_name"] in ("Turdus merula", "Turdus philomelos")


def test_speciesnet_json_gets_classes_and_prediction(label):
    entries = []
    for number in range(8):
        found = {"classes": [FOX, DOG, BLANK], "scores": [0.5, 0.4, 0.05], "target_classes": [FOX, DOG]}
        entry = {"filepath": f"cam/{number}.jpg", "country": "USA", "classifications": found, "prediction": DOG}
        entry |= {"prediction_score": 0.4, "prediction_source": "classifier", "model_version": "4.0.1a"}
        found["target_logits"] = [2.0, 1.7]
        entries.append(entry)
    entries[3] |= {"prediction_source": "detector", "prediction": BLANK, "prediction_score": 0.99}
    entries.append({"filepath": "cam/bad.jpg", "failures": ["CLASSIFIER"]})
    Path("p.json").write_text(json.dumps({"predictions": entries}))
    code, _, err = label("p.json", "-o", "out.json")
    assert code == 0, err
    assert "note: 1 item got no answer, such as 'cam/bad.jpg': no classifications (CLASSIFIER)" in err
    ours = ("classes", "scores", "prediction", "prediction_score", "prediction_source")
    before, after = as_written("p.json"), as_written("out.json")
    assert json.dumps(without(after, *ours)) == json.dumps(without(before, *ours))
    first, fourth = (json.loads(Path("out.json").read_text())["predictions"][n] for n in (0, 3))
    assert list(first) == list(entries[0])
    assert first["classifications"]["classes"][0] == first["prediction"] == FOX
    assert first["classifications"]["scores"][0] == first["prediction_score"] > 0.5
    assert first["prediction_source"] == "manyway"
    assert (fourth["prediction"], fourth["prediction_score"]) == (BLANK, 0.99)  # the detector decided
    assert label("p.json", "-o", "none.json", "--min-confidence", "1")[0] == 0
    none = json.loads(Path("none.json").read_text())["predictions"]
    assert none[0]["classifications"] == {**entries[0]["classifications"], "classes": [], "scores": []}
    assert none[0]["prediction"].endswith(";no cv result")  # as SpeciesNet says it
    assert none[3]["prediction"] == BLANK
    Path("known.csv").write_text("item,label\ncam/3.jpg,red fox\n")
    assert label("p.json", "-o", "known.json", "--labels", "known.csv")[0] == 0
    known = json.loads(Path("known.json").read_text())["predictions"][3]
    assert (known["prediction"], known["prediction_source"]) == (FOX, "manyway")  # a person decided


RAVEN = EXAMPLES / "birdnet.selection.table.txt"


def test_a_raven_table_changes_in_its_confidences_only(label):
    code, _, err = label(RAVEN, "-o", "out.selection.table.txt")
    assert code == 0, err
    before, after = rows(RAVEN, "\t"), rows("out.selection.table.txt", "\t")
    assert [without(row, "Confidence") for row in after] == [without(row, "Confidence") for row in before]
    assert after[2] == before[2]  # the row without a bird
    assert float(after[0]["Confidence"]) + float(after[1]["Confidence"]) == pytest.approx(1, abs=1e-3)
    assert label(RAVEN, "-o", "few.txt", "--min-confidence", "0.5")[0] == 0
    assert [row["Common Name"] for row in rows("few.txt", "\t")] == ["Eurasian Blackbird", "nocall"]


def test_a_birdnet_csv_keeps_its_delimiter_and_line_breaks(label):
    text = (EXAMPLES / "birdnet.csv").read_text().replace(",", ";").replace("0.", "0,").replace("\n", "\r\n")
    Path("b.csv").write_bytes(text.encode())
    code, _, err = label("b.csv", "--format", "input", "-o", "out.csv")
    assert code == 0, err
    after = Path("out.csv").read_bytes().decode().split("\r\n")
    for old, new in zip(text.split("\r\n"), after, strict=True):
        assert new.split(";")[:4] == old.split(";")[:4]
    assert all(row["Confidence"][:2] in ("0,", "1,") for row in rows("out.csv", ";"))


def test_every_byte_beside_a_confidence_comes_back(label):
    lines = (EXAMPLES / "birdnet.csv").read_text().splitlines()
    quoted = ['"' + line.replace(",", '","') + '"' for line in lines]
    quoted[2] = quoted[2].replace('"0.0","3.0"', '0.0, "3.0"').replace("Song Thrush", "Thrush, Song")
    content = codecs.BOM_UTF8 + "\r\n".join([quoted[0], "", *quoted[1:]]).encode()
    Path("b.csv").write_bytes(content)
    code, _, err = label("b.csv", "--format", "input", "-o", "out.csv")
    assert code == 0, err
    confidence = re.compile(rb'"[01]\.\d+"(?=,[^,]*$)', re.MULTILINE)
    after = Path("out.csv").read_bytes()
    assert confidence.sub(b"", after) == confidence.sub(b"", content) != content
    assert confidence.findall(after) != confidence.findall(content)
    Path("md.json").write_bytes(codecs.BOM_UTF8 + (EXAMPLES / "megadetector.json").read_bytes())
    assert label("md.json", "-o", "out.json")[0] == 0
    assert Path("out.json").read_bytes().startswith(codecs.BOM_UTF8 + b"{")


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0c"])
def test_characters_that_only_python_takes_for_line_breaks_are_none(odd, label):
    text = (EXAMPLES / "birdnet.csv").read_text(encoding="utf-8").replace(".wav", f"{odd}.wav")
    Path("b.csv").write_bytes(text.encode())
    assert label("b.csv", "--format", "input", "-o", "out.csv")[0] == 0
    before, after = (each.split("\n") for each in (text, Path("out.csv").read_bytes().decode()))
    assert [line.split(",")[:4] for line in after] == [line.split(",")[:4] for line in before]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "cp1252"])
def test_the_encoding_of_a_file_comes_back(encoding, label):
    text = (EXAMPLES / "birdnet.csv").read_text().replace("Song Thrush", "Grauschnäpper").replace("\n", "\r\n")
    Path("b.csv").write_bytes(text.encode(encoding))
    assert label("b.csv", "--format", "input", "-o", "out.csv")[0] == 0
    after = Path("out.csv").read_bytes()
    confidence = re.compile(r",[01]\.\d+(?=,[^,]*$)", re.MULTILINE)
    assert confidence.sub("", after.decode(encoding)) == confidence.sub("", text)
    assert after[:2] == text.encode(encoding)[:2]


def test_a_table_of_birdnet_keeps_its_rows_whatever_the_answers_are(tmp_path):
    (origin,) = read_scores(RAVEN).origins
    ranked = [[("European Robin", 0.7), ("Song Thrush", 0.2)]]
    answers = Answers(read_scores(RAVEN), [], (), lambda count: ranked, origin=origin)
    origin.format.write(tmp_path / "out.txt", answers)
    found = rows(tmp_path / "out.txt", "\t")
    assert [(row["Selection"], row["Confidence"]) for row in found] == [("1", "0.0000"), ("2", "0.2000"), ("3", "1.0")]


def test_a_raven_table_numbers_the_row_of_a_class_that_a_person_gave(tmp_path):
    scores = read_scores(RAVEN)
    (origin,) = scores.origins
    ranked = [[("European Robin", 1.0)]]
    by_person = Answers(scores, [], (), lambda count: ranked, origin=origin, by_people=frozenset({0}))
    origin.format.write(tmp_path / "out.txt", by_person)
    found = rows(tmp_path / "out.txt", "\t")
    assert [row["Selection"] for row in found] == ["1", "2", "4", "3"]
    assert (found[2]["Common Name"], found[2]["Confidence"]) == ("European Robin", "1.0000")
    assert found[2]["Begin Time (s)"] == found[1]["Begin Time (s)"]
    assert read_scores(tmp_path / "out.txt").classes == (*scores.classes[:1], "European Robin", *scores.classes[1:])


def test_a_folder_comes_back_as_a_folder(label):
    head, *lines = (EXAMPLES / "birdnet.csv").read_text().splitlines(keepends=True)
    Path("in/sub").mkdir(parents=True)
    Path("in/one.csv").write_text(head + "".join(lines[:2]))
    Path("in/sub/two.csv").write_text(head + "".join(lines[2:]).replace("morning", "evening"))
    Path("in/silent.csv").write_text(head)
    code, _, err = label("in", "--format", "input", "-o", "out")
    assert code == 0, err
    assert sorted(p.as_posix() for p in Path("out").rglob("*.csv")) == [
        "out/one.csv",
        "out/silent.csv",
        "out/sub/two.csv",
    ]
    assert Path("out/silent.csv").read_text() == head
    assert [row["Common name"] for row in rows("out/sub/two.csv")] == ["Song Thrush", "European Robin"]
    code, _, err = label("in", "--format", "input", "-o", "out")
    assert (code, "out exists; name a new folder" in err) == (2, True)
    assert not list(Path().glob(".out*"))


def test_each_file_may_be_a_batch_of_its_own(label):
    scores = "item,fox,wolf,dog\n"
    Path("in").mkdir()
    Path("in/a.csv").write_text(scores + "".join(f"a{n},0.8,0.15,0.05\n" for n in range(25)) + "ax,0.48,0.5,0.02\n")
    Path("in/b.csv").write_text(scores + "".join(f"b{n},0.1,0.85,0.05\n" for n in range(25)) + "bx,0.48,0.5,0.02\n")
    assert label("in", "-o", "one.csv")[0] == 0
    code, out, err = label("in", "--batch-by", "file", "-o", "two.csv")
    assert code == 0, err
    one, two = ({row["item"]: row for row in rows(name)} for name in ("one.csv", "two.csv"))
    assert (two["ax"]["label"], two["bx"]["label"]) == ("fox", "wolf")
    assert one["ax"]["probability"] == one["bx"]["probability"]
    assert "2 of 3 classes found" in out
    assert label("in", "--batch-by", "source", "-o", "three.csv")[0] == 0
    assert rows("three.csv") == rows("two.csv")
    assert "'fil'; did you mean" in label("in", "--batch-by", "fil", "-o", "four.csv")[2]


def test_each_recording_of_a_table_may_be_a_batch_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from manyway.labelling.label import groups_of

    text = (EXAMPLES / "birdnet.csv").read_text().replace("0.9987,rec/morning", "0.9987,rec/evening")
    Path("b.csv").write_text(text)
    assert groups_of(read_scores("b.csv"), "file") == [[0, 1], [2]]
    assert groups_of(read_scores("b.csv"), "folder") == [[0, 1, 2]]
    assert groups_of(read_scores(EXAMPLES / "megadetector.json"), "file") == [[0, 1, 2]]


# The fields that Camtrap DP 1.0 publishes for observations.csv.
REQUIRED = {"observationID", "deploymentID", "eventStart", "eventEnd", "observationLevel", "observationType"}
KINDS = ["animal", "human", "vehicle", "blank", "unknown", "unclassified"]
ENUMS = {"observationLevel": ["media", "event"], "observationType": KINDS, "classificationMethod": ["human", "machine"]}
ENUMS |= {"lifeStage": ["adult", "subadult", "juvenile"], "sex": ["female", "male"]}
ENUMS |= {"cameraSetupType": ["setup", "calibration"]}
BOUNDS = {"individualPositionRadius": (0, None), "individualPositionAngle": (-90, 90), "individualSpeed": (0, None)}
BOUNDS |= {"bboxX": (0, 1), "bboxY": (0, 1), "bboxWidth": (1e-15, 1), "bboxHeight": (1e-15, 1)}
BOUNDS |= {"classificationProbability": (0, 1)}
ORDER = (
    "observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel",
    "observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior", "individualID",
    "individualPositionRadius", "individualPositionAngle", "individualSpeed", "bboxX", "bboxY", "bboxWidth",
    "bboxHeight", "classificationMethod", "classifiedBy", "classificationTimestamp", "classificationProbability",
    "observationTags", "observationComments",
)  # fmt: skip


def published(name: str) -> dict:
    limits: dict = {"required": name in REQUIRED}
    if name == "observationID":
        limits["unique"] = True
    if name in ENUMS:
        limits["enum"] = ENUMS[name]
    if name in ("eventStart", "eventEnd", "classificationTimestamp"):
        return {"name": name, "type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z", "constraints": limits}
    if name == "count":
        return {"name": name, "type": "integer", "constraints": {**limits, "minimum": 1}}
    if name in BOUNDS:
        low, high = BOUNDS[name]
        limits |= {key: value for key, value in (("minimum", low), ("maximum", high)) if value is not None}
        return {"name": name, "type": "number", "constraints": limits}
    return {"name": name, "type": "string", "constraints": limits}


def validate(path: str) -> None:
    import frictionless  # not while tests are collected, which every process does

    fields, empty = [published(name) for name in ORDER], ["", "NaN", "nan"]
    schema = frictionless.Schema.from_descriptor(
        {"fields": fields, "missingValues": empty, "primaryKey": ["observationID"]}
    )
    report = frictionless.Resource(path=path, schema=schema).validate()
    assert report.valid, report.flatten(["rowNumber", "fieldName", "message"])


def test_camtrap_dp_observations_are_valid(label):
    content = megadetector()
    Path("md.json").write_text(json.dumps(content))
    Path("known.csv").write_text("item,label\ndep1/IMG_0001.JPG,red fox\n")
    code, _, err = label("md.json", "--format", "camtrap-dp", "--labels", "known.csv", "-o", "observations.csv")
    assert code == 0, err
    assert "written as UTC" in err
    validate("observations.csv")
    found = {row["observationID"]: row for row in rows("observations.csv")}
    assert len(found) == 14  # 12 animals, a person, an empty picture; the broken one has no time
    fox, known = found["dep0/IMG_0000.JPG"], found["dep1/IMG_0001.JPG"]
    assert (fox["scientificName"], fox["observationType"]) == ("Vulpes vulpes", "animal")
    assert (fox["count"], fox["bboxX"], fox["bboxY"]) == ("1", "0.1", "0.2")
    assert (fox["deploymentID"], fox["mediaID"]) == ("dep0", "dep0/IMG_0000.JPG")
    assert fox["eventStart"] == fox["eventEnd"] == "2024-05-01T20:30:00Z"
    assert fox["classificationMethod"] == "machine"
    assert fox["classifiedBy"].startswith("manyway ")
    assert (known["scientificName"], known["classificationMethod"]) == ("Vulpes vulpes", "human")
    assert found["dep0/IMG_0000.JPG:2"]["observationType"] == "human"
    empty = found["dep0/empty.jpg"]
    assert (empty["observationType"], empty["eventStart"]) == ("blank", "2024-05-09T23:00:00+02:00")


SPECIES = {
    "species": ("a;mammalia;carnivora;canidae;vulpes;vulpes;red fox", "Vulpes vulpes", ""),
    "a family that is the answer": ("b;mammalia;carnivora;felidae;;;felidae family", "Felidae", ""),
    "a species of which the class is known": ("c;aves;;;;;american robin", "", "american robin"),
    "a common name alone": ("wild cat", "", "wild cat"),
}


@pytest.mark.parametrize(("full", "scientific", "comment"), SPECIES.values(), ids=SPECIES)
def test_a_scientific_name_is_written_only_where_it_is_known(full, scientific, comment, label):
    content = megadetector(4)
    content["classification_categories"]["0"] = full.rpartition(";")[2]
    content["classification_category_descriptions"]["0"] = full
    Path("md.json").write_text(json.dumps(content))
    assert label("md.json", "--format", "camtrap-dp", "-o", "o.csv")[0] == 0
    found = rows("o.csv")[0]
    assert (found["scientificName"], found["observationComments"]) == (scientific, comment)


def test_tables_with_times_and_boxes_are_observations_too(label):
    columns = "item,class,score,site,time,box_x,box_y,box_width,box_height,start"
    lines = ["a,fox,0.9,north,2024-05-01 22:00:00,0.1,0.1,0.5,0.5,soon", "b,dog,0.8,south,2024-05-02T03:00:00Z,,,,,"]
    lines.append("c,fox,0.7,south,0000:00:00 00:00:00,0.9,0.9,0.5,1.5,")
    Path("s.csv").write_text("\n".join([columns, *lines]))
    code, _, err = label("s.csv", "--format", "camtrap-dp", "-o", "observations.csv")
    assert code == 0, err
    assert "1 item has no time and is left out" in err
    validate("observations.csv")
    found = {row["observationID"]: row for row in rows("observations.csv")}
    assert (found["a"]["deploymentID"], found["a"]["bboxWidth"], found["b"]["bboxX"]) == ("north", "0.5", "")
    Path("s.csv").write_text("\n".join([columns, lines[0].replace("2024-05-01", "yesterday"), lines[1]]))
    assert "is no time such as" in label("s.csv", "--format", "presence", "-o", "p.csv")[2]


@pytest.mark.parametrize(
    ("box", "written"),
    [("0,0,1,1", True), ("0.1,0.2,0.3,0.4", True), ("0.1,0.2,0,0.4", False), ("0.1,0.2,0.3,0", False),
     ("-0.1,0.2,0.3,0.4", False), ("0.1,0.2,0.3,1.1", False)],
)  # fmt: skip
def test_a_box_is_written_where_it_lies_in_the_picture_and_is_not_empty(box, written, label):
    columns = "item,class,score,site,time,box_x,box_y,box_width,box_height"
    Path("s.csv").write_text(f"{columns}\na,fox,0.9,north,2024-05-01 22:00:00,{box}\nb,dog,0.8,,2024-05-02,,,,\n")
    assert label("s.csv", "--format", "camtrap-dp", "-o", "observations.csv")[0] == 0
    found = rows("observations.csv")[0]
    assert (found["bboxWidth"] != "", found["count"]) == (written, "1")


def test_the_media_of_a_data_package_say_deployment_and_time(label):
    code, _, err = label(EXAMPLES / "speciesnet.json", "--format", "camtrap-dp", "-o", "observations.csv")
    assert code == 2
    assert "needs the time of each item" in err
    assert "--media" in err
    lines = [f"m{n},d7,2024-05-0{n}T23:10:00+02:00,pictures/cam1/000{n}.jpg" for n in (1, 2, 3)]
    Path("media.csv").write_text("mediaID,deploymentID,timestamp,filePath\n" + "\n".join(lines))
    words = ("--media", "media.csv", "--format", "camtrap-dp", "--at-least", "0.9", "-o", "observations.csv")
    code, _, err = label(EXAMPLES / "speciesnet.json", *words)
    assert code == 0, err
    validate("observations.csv")
    found = {row["mediaID"]: row for row in rows("observations.csv")}
    assert (found["m2"]["deploymentID"], found["m2"]["eventStart"]) == ("d7", "2024-05-02T23:10:00+02:00")
    assert found["m2"]["scientificName"].lower() in ("panthera", "felidae")  # the species is uncertain
    assert found["m3"]["observationType"] == "unclassified"
    Path("media.csv").write_text("mediaID,deploymentID,timestamp,filePath\n" + lines[0])
    assert "has no rows for the file 'cam1/0002.jpg'" in label(EXAMPLES / "speciesnet.json", *words[:-1], "o.csv")[2]


def test_presence_per_site_and_night(label):
    Path("md.json").write_text(json.dumps(megadetector()))
    code, _, err = label("md.json", "--format", "presence", "-o", "presence.csv")
    assert code == 0, err
    found = {(row["site"], row["night"]): row for row in rows("presence.csv") if row["class"] == "red fox"}
    assert set(found) == {(s, f"2024-05-0{n}") for s in ("dep0", "dep1") for n in (1, 2, 3)} | {("dep0", "2024-05-09")}
    assert {row["items"] for key, row in found.items() if key[1] != "2024-05-09"} == {"2"}
    assert float(found["dep0", "2024-05-01"]["presence"]) > 0.6  # two pictures, each with about 0.5
    assert (found["dep0", "2024-05-09"]["items"], found["dep0", "2024-05-09"]["presence"]) == ("0", "0.0000")


def test_recordings_say_their_time_by_their_name(label):
    text = (EXAMPLES / "birdnet.csv").read_text().replace("rec/morning", "north/S4A_20240502_033000")
    Path("b.csv").write_text(text)
    assert label("b.csv", "--format", "presence", "-o", "presence.csv")[0] == 0
    assert {(row["site"], row["night"]) for row in rows("presence.csv")} == {("north", "2024-05-01")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["s.csv", "-o", "out.json"], "in the format of the input, which is a table"),
        ([EXAMPLES / "birdnet.csv", "-o", "out.json"], "a file of BirdNET; give it the ending .csv"),
        (["md.json", "--format", "camtrap"], "The --format is 'camtrap'; did you mean 'camtrap-dp'"),
        (["md.json", "--format", "input"], "--format input needs the name of the --output"),
        (["md.json", "-o", "out.json", "--at-least", "0.9"], "--at-least is for tables"),
        (["md.json", "-o", "md.json"], "one of the inputs"),
        (["md.json", "--batch-by", "folder", "--open-set"], "leave --batch-by out"),
        (["md.json", "-o", "theirs.json"], "theirs.json exists; choose another name, or replace it with --overwrite"),
        (["s.csv", "--format", "presence", "-o", "p.csv"], "needs the time of each item"),
        (["md.json", "--format", "presence", "-o", "p.json"], "The output is p.json"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(words, message, label):
    Path("md.json").write_text(json.dumps(megadetector()))
    Path("theirs.json").write_text("{}")
    Path("s.csv").write_text("item,fox,dog\na,0.9,0.1\nb,0.2,0.8\n")
    before = sorted(path.name for path in Path().iterdir())
    code, _, err = label(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert sorted(path.name for path in Path().iterdir()) == before
    assert Path("theirs.json").read_text() == "{}"


def calls() -> str:
    """A table of BirdNET: twelve segments of a night, with two birds in each, one of them in doubt."""
    lines = ["Start (s),End (s),Scientific name,Common name,Confidence,File"]
    birds = ["Turdus merula,Blackbird", "Strix aluco,Tawny Owl", "Bubo bubo,Eagle Owl"]
    for n in range(12):
        for rank, score in enumerate((0.95, 0.4)):
            lines.append(f"{3 * n}.0,{3 * n + 3}.0,{birds[(n + rank) % 3]},{score},S1_20240501_223000.wav")
    lines.append("36.0,39.0,Parus major,Great Tit,0.11,S1_20240501_223000.wav")
    return "\n".join(lines) + "\n"


def test_several_birds_of_a_segment_come_back_in_every_format(label):
    Path("b.csv").write_text(calls())
    code, _, err = label("b.csv", "-o", "one.csv")
    assert "--several allows more" in err
    code, _, err = label("b.csv", "--several", "-o", "o.csv")
    assert (code, "--several" in err) == (0, False), err
    found = rows("o.csv")
    assert [row["item"] for row in found].count("S1_20240501_223000.wav 0-3") == 2
    assert {row["scientific_name"] for row in found if row["label"]} == {"Turdus merula", "Strix aluco", "Bubo bubo"}
    assert label("b.csv", "--several", "--format", "input", "-o", "back.csv")[0] == 0
    before, after = rows("b.csv"), rows("back.csv")
    assert [without(row, "Confidence") for row in after] == [without(row, "Confidence") for row in before[:-1]]
    assert all(float(row["Confidence"]) >= 0.5 for row in after)
    assert label("b.csv", "--several", "--format", "camtrap-dp", "-o", "observations.csv")[0] == 0
    observed = [row for row in rows("observations.csv") if row["scientificName"]]
    assert len(observed) == 24
    assert len({row["observationID"] for row in observed}) == 24
    assert label("b.csv", "--several", "--format", "presence", "-o", "presence.csv")[0] == 0
    assert {row["class"]: row["items"] for row in rows("presence.csv")} == {
        "Blackbird": "8", "Eagle Owl": "8", "Tawny Owl": "8",
    }  # fmt: skip
    assert label("b.csv", "--several", "--batch-by", "file", "-o", "by.csv")[0] == 0
    assert len(rows("by.csv")) == len(found)
