"""Answers as Darwin Core occurrences, records of eBird and labels of Audacity."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from manyway.files.formats.birdnet import BirdNet

# One night of one recorder; the time is in the name of the recording.
BIRDS = BirdNet().example_path.read_text().replace("rec/morning", "pond/S4A_20240502_053000")


@pytest.fixture
def birds(tmp_path) -> Path:
    path = tmp_path / "birds.csv"
    path.write_text(BIRDS)
    return path


def rows(name: str) -> list[dict[str, str]]:
    with Path(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_occurrences_are_machine_observations_with_names_time_and_place(label, birds):
    label("--scores", birds, "--format", "darwin-core", "-o", "occurrence.csv")
    found = rows("occurrence.csv")
    assert len(found) == 3
    first = found[0]
    assert (first["basisOfRecord"], first["occurrenceStatus"]) == ("MachineObservation", "present")
    assert (first["scientificName"], first["vernacularName"]) == ("Turdus merula", "Eurasian Blackbird")
    assert (first["genus"], first["taxonRank"]) == ("Turdus", "species")
    assert (first["eventDate"], first["locationID"]) == ("2024-05-02T05:30:00Z", "pond")
    assert first["identificationRemarks"].startswith("probability 0.")
    assert first["identifiedBy"].startswith("manyway ")
    assert len({row["occurrenceID"] for row in found}) == 3


def test_occurrences_know_groups_and_people(label, birds):
    Path("known.csv").write_text("item,label\npond/S4A_20240502_053000.wav 0-3,Song Thrush\n")
    label("--scores", birds, "--labels", "known.csv", "--format", "darwin-core", "--at-least", "0.999", "-o", "o.csv")
    found = rows("o.csv")
    assert found[0]["identificationVerificationStatus"] == "verified by a person"
    for row in found:
        if row["taxonRank"] == "genus":
            assert row["scientificName"] == row["genus"]


def test_ebird_gets_one_line_per_place_day_and_species(label, birds):
    label("--scores", birds, "--format", "ebird", "-o", "ebird.csv")
    with Path("ebird.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert all(len(line) == 19 for line in lines)
    names = [line[0] for line in lines]
    assert len(set(names)) == len(names)
    blackbird = lines[names.index("Eurasian Blackbird")]
    assert blackbird[1:4] == ["Turdus", "merula", "X"]
    assert blackbird[5] == "pond"
    assert blackbird[8:10] == ["05/02/2024", "05:30"]
    assert (blackbird[12], blackbird[15]) == ("incidental", "N")


def test_audacity_gets_a_label_track(label, birds):
    label("--scores", birds, "--format", "audacity", "-o", "labels.txt")
    lines = [line.split("\t") for line in Path("labels.txt").read_text().splitlines()]
    assert [(line[0], line[1]) for line in lines][:2] == [("0.000000", "3.000000"), ("3.000000", "6.000000")]
    assert all(len(line) == 3 for line in lines)
    assert lines[0][2].startswith("Eurasian Blackbird 0.")


def test_a_label_track_is_for_one_recording_with_times(label, birds):
    lines = BIRDS.splitlines(keepends=True)
    birds.write_text("".join([*lines[:-1], lines[-1].replace("S4A_20240502", "S4A_20240503")]))
    said = label("--scores", birds, "--format", "audacity", "-o", "labels.txt")
    assert "A label track is for one recording, and there are 2" in said
    Path("s.csv").write_text("item,file,class,score\na,x,fox,0.9\na,x,dog,0.1\n")
    assert "has no start or end" in label(
        "--scores", "s.csv", "--item-column", "item", "--format", "audacity", "-o", "l.txt"
    )
    assert not Path("labels.txt").exists()
    assert not Path("l.txt").exists()


@pytest.mark.parametrize("form", ["darwin-core", "ebird"])
def test_observations_need_a_time(form, label):
    said = label("--scores", BirdNet().example_path, "--format", form, "-o", "o.csv")
    assert "needs the time of each item" in said
