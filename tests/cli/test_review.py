"""``manyway review``: what it refuses, what it exports, and that it serves a page until it is stopped."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import httpx
import numpy as np
import processes
import pytest
from PIL import Image
from review_problems import CLASSES, make_review, truth, with_pictures

from manyway.cli import review
from manyway.encoding.backbones.checkpoint import save_checkpoint
from manyway.encoding.backbones.networks import build
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.errors import InputError, install
from manyway.review.actions import Label, Unknown
from manyway.review.data import TEXTS
from manyway.review.export import export_examples, offered_exports
from manyway.review.serve import open_review
from tests.review.conftest import _learned_once  # noqa: F401 (a fixture: every review here is of the same items)


@pytest.fixture
def files(tmp_path):
    """Examples and items as files."""
    data = make_review()
    np.savez(tmp_path / "examples.npz", features=data.examples.features, labels=np.array(data.examples.labels))
    np.savez(tmp_path / "items.npz", features=data.items.features, items=np.array(data.names))
    return tmp_path


def saved(folder, data=None):
    session = open_review(folder, data or make_review())
    session.act(Label(rows=(0, 1), labels=(truth(0), truth(1)), key="a"))
    session.close()


@pytest.mark.slow
def test_the_page_is_served_until_the_command_is_stopped_and_nothing_is_lost(files):
    words = ["review", "examples.npz", "items.npz", "-o", "trees", "--no-browser", "--port", "8801"]
    code = f"import sys; sys.argv[1:] = {words}; from manyway.cli import main; main()"
    with processes.Started(code, cwd=files) as server:
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", server.stdout.readline())[0]
        origin = address.partition("/?")[0]
        with httpx.Client(base_url=origin, headers={"Origin": origin}, timeout=30) as client:
            for _ in range(300):
                try:
                    client.get(address, headers={"Origin": origin})
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            items = client.get("/api/review").json()["items"]
            action = {"kind": "label", "rows": [1], "labels": ["fir"], "key": "k", "items": items}
            assert client.post("/api/actions", json=action).json().get("said") == "photo-1.png: fir."
        os.kill(server.pid, signal.SIGINT)
        rest = server.stdout.read()
        assert server.wait(120) == 0
    assert "1 of 40 items are reviewed." in rest
    session = open_review(files / "trees")
    assert session.classes[session.answers[1]] == "fir"
    session.close()


def test_labels_and_examples_of_a_saved_review_are_exported(run_in_folder, tmp_path):
    saved(tmp_path / "trees", with_pictures(tmp_path / "pictures"))
    code, out, _ = run_in_folder("review", "trees", "--export", "l.csv", "--export-examples", "more")
    assert code == 0
    assert "40 labels are in l.csv." in out
    assert "26 examples are in more." in out
    code, _, err = run_in_folder("review", "trees", "--export", "l.csv")
    assert (code, "l.csv exists; choose another name, or replace it with --overwrite." in err) == (2, True)
    assert run_in_folder("review", "trees", "--export", "l.csv", "--overwrite")[0] == 0
    code, out, _ = run_in_folder("review", "trees", "--sort-into", "sorted", "--copy")
    assert "39 of 40 pictures are in sorted." in out
    assert not (tmp_path / "sorted" / "fir" / "photo-1.png").is_symlink()
    assert (tmp_path / "more" / "fir" / "photo-1.png").is_symlink()
    code, _, err = run_in_folder("review", "trees", "--sort-into", "sorted")
    assert (code, "sorted exists already" in err) == (2, True)


def test_pictures_are_not_sorted_into_those_of_the_review_and_not_into_an_empty_folder(run_in_folder, tmp_path):
    saved(tmp_path / "trees", with_pictures(tmp_path / "pictures"))
    code, _, err = run_in_folder("review", "trees", "--sort-into", "pictures/sorted")
    assert (code, "lies in the input folder" in err) == (2, True)
    (tmp_path / "pictures").rename(tmp_path / "moved")
    code, _, err = run_in_folder("review", "trees", "--sort-into", "sorted")
    assert (code, "None of the pictures is in" in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved", "trees"]


def test_the_demonstration_draws_its_pictures():
    data = review.demo_data()
    make, find = review.picture_access(data)
    assert len(data.examples) == 3 * 215
    assert make("items", 0, 160)[:2] == b"\xff\xd8"  # JPEG
    assert find("examples", 4).startswith(b"P5 28 28")


def test_label_opens_a_review_of_the_same_items(files, run_in_folder, monkeypatch):
    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, first: seen.append((data, folder, first)))
    assert run_in_folder("label", "examples.npz", "items.npz", "--review")[0] == 0
    ((data, folder, first),) = seen
    assert first.labels.shape == (1, 40)  # the items are not labelled twice
    assert data.items_hash == make_review().items_hash
    assert folder == review.DEFAULT_FOLDER
    assert (files / "labels.csv").exists()


def test_pictures_of_a_feature_file_are_those_of_the_named_folder(files, tmp_path, run_in_folder, monkeypatch):
    with_pictures(tmp_path / "pictures")
    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
    assert run_in_folder("review", "examples.npz", "items.npz", "--pictures", "pictures")[0] == 0
    make, find = review.picture_access(seen[0])
    assert make("items", 0, 160)[:2] == b"\xff\xd8"
    assert find("items", 3) is None  # its file is missing


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_encoded_pictures_are_shown_and_a_broken_one_is_reviewed_too(tmp_path, run_in_folder, monkeypatch, packed):
    meta = {"backbone": "resnet-small", "preprocess": Preprocess(resize=16, crop=12).to_meta()}
    save_checkpoint(tmp_path / "net.safetensors", build("resnet-small", 4, 3).state_dict(), meta)
    for place in ("examples/ant", "examples/bee", "items"):
        (tmp_path / place).mkdir(parents=True)
        for n in range(3):
            Image.new("RGB", (40, 20), (80 * n, 10, 200)).save(tmp_path / place / f"{n}.png")
    (tmp_path / "items" / "1.png").write_bytes(b"no picture")
    items = "items"
    if packed:
        shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "items")
        items = "packed.zip"
    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
    words = ("review", "examples", items, "--encoder", "net.safetensors", "--skip-bad")
    assert run_in_folder(*words)[0] == 0
    (data,) = seen
    make, find = review.picture_access(data)
    assert data.kind == "pictures"
    assert [name.rpartition("/")[2] for name in data.names] == ["0.png", "2.png", "1.png"]
    assert Image.open(io.BytesIO(make("items", 1, 160))).getpixel((5, 5))[0] > 140  # the third picture
    assert Image.open(io.BytesIO(make("examples", 3, 160))).size == (40, 20)
    with pytest.raises(InputError):
        make("items", 2, 160)
    assert find("items", 0) == ((tmp_path / "items" / "0.png").read_bytes() if packed else tmp_path / "items" / "0.png")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Name EXAMPLES and ITEMS"),
        (
            ["nothing"],
            "nothing holds no saved review; to start one, name examples and items",
        ),
        (["trees", "-o", "other"], "stays where it is"),
        (["examples.npz", "items.npz", "--export", "x.csv"], "Exports are made of a saved review"),
        (["examples.npz", "items.npz", "-o", "trees"], "trees holds a review of other items; go on with it by"),
        (["examples.npz", "items.npz", "-o", "."], "holds no review; name another folder"),
        (["examples.npz", "items.npz", "--pictures", "no"], "--pictures names no, which is not a folder"),
        (["examples.npz", "missing.npz"], "There is no file missing.npz"),
        (["pictures", "pictures"], "pictures is empty; it needs pictures"),
        (["pictures", "pictures", "--encoder", "timm:resnet50"], '[encoders]"'),
        (["--demo", "trees"], "--demo brings its own"),
        (["trees", "--export", "labels.ods"], "tables end with"),
        (["trees", "--export-examples", "folder"], "only pictures are written to folders"),
    ],
)
def test_what_cannot_be_reviewed_gets_a_sentence(files, run_in_folder, words, message):
    (files / "pictures").mkdir()
    if "trees" in words:
        saved(files / "trees", make_review(n_items=30))
    code, _, err = run_in_folder("review", *words)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("words", [["review", "--demo"], ["label", "examples.npz", "items.npz", "--review"]])
def test_a_missing_library_says_how_to_install_it(files, run_in_folder, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "starlette", None)
    code, _, err = run_in_folder(*words)
    assert code == 2
    assert f"manyway review needs starlette; install it with: {install('review')}." in err
    assert not (files / "labels.csv").exists()


def test_a_review_with_another_method_is_refused_before_any_work(files, run_in_folder):
    code, _, err = run_in_folder("label", "examples.npz", "items.npz", "--review", "--method", "paddle")
    assert (code, "leave out --method" in err) == (2, True)
    assert not (files / "labels.csv").exists()


@pytest.mark.parametrize("examples", [True, False], ids=["names and examples", "names alone"])
def test_classes_may_have_names_in_a_review(files, run_in_folder, monkeypatch, examples):
    data = make_review()
    means = data.examples.rows(0, 24).view(8, 3, -1).mean(1)
    np.savez(files / "names.npz", features=means.numpy() + 1, labels=np.array(data.examples.labels[::3]))
    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
    words = ["examples.npz", "items.npz"] if examples else ["items.npz"]
    code, _, err = run_in_folder("review", *words, "--class-names", "names.npz")
    assert code == 0, err
    assert seen[0].catalogue == CLASSES
    session = open_review(files / "named", seen[0])
    assert len(session.data.examples) == (24 if examples else 0)
    session.act(Label(rows=(1,), labels=(truth(1),), key="a"))
    assert session.settled.wait(20)
    assert not session.problem
    assert session.classes[session.answers[1]] == "fir"
    session.close()
    again = open_review(files / "named")  # from what was saved
    assert again.classes[again.answers[1]] == "fir"
    again.close()


def test_scores_can_be_reviewed(run_in_folder, tmp_path, monkeypatch):
    rows = "".join(
        f"{name},{p},{0.95 - p:.2f},0.05\n" for name, p in zip("abcde", (0.5, 0.6, 0.45, 0.8, 0.9), strict=True)
    )
    (tmp_path / "scores.csv").write_text("item,fox,wolf,dog\n" + rows)
    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
    code, _, err = run_in_folder("review", "--scores", "scores.csv")
    assert code == 0, err
    session = open_review(tmp_path / "scored", seen[0])
    assert session.classes == ["fox", "wolf", "dog"]
    found = [session.classes[session.chosen(row)[0]] for row in range(5)]
    assert found == ["fox", "fox", "fox", "fox", "fox"]
    session.act(Label(rows=(0, 1, 2), labels=("wolf",) * 3, key="a"))
    assert session.settled.wait(20)
    assert not session.problem
    session.act(Label(rows=(3,), labels=("cat",), key="b"))  # the classifier has no scores for it
    assert session.settled.wait(20)
    assert not session.problem
    assert session.classes[session.answers[3]] == "cat"
    assert export_examples(session, tmp_path / "examples.csv") == 4  # as examples of other scores
    assert (tmp_path / "examples.csv").read_text().startswith("item,label,fox,wolf,dog\na,wolf,")
    session.close()


def test_detections_are_shown_in_their_pictures_with_their_boxes(run_in_folder, tmp_path, monkeypatch):
    (tmp_path / "photos" / "north").mkdir(parents=True)
    Image.new("RGB", (400, 200), "navy").save(tmp_path / "photos" / "north" / "a.jpg")
    Image.new("RGB", (400, 200), "navy").save(tmp_path / "photos" / "b.jpg")
    boxes = {"north/a.jpg": [[0.25, 0.5, 0.5, 0.25], [0.0, 0.0, 0.1, 2.0]], "b.jpg": [[0.25, 0.5, 0.5, 0.25]]}
    images = [
        {
            "file": name,
            "detections": [
                {
                    "category": "1",
                    "conf": 0.9,
                    "bbox": box,
                    "classifications": [["0", 0.6 + n / 10], ["1", 0.4 - n / 10]],
                }
                for n, box in enumerate(found)
            ],
        }
        for name, found in boxes.items()
    ]
    content = {
        "info": {"format_version": "1.3"},
        "detection_categories": {"1": "animal"},
        "classification_categories": {"0": "fox", "1": "dog"},
        "images": images,
    }
    (tmp_path / "md.json").write_text(json.dumps(content))
    seen, run = [], review.run_review
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
    code, _, err = run_in_folder("review", "--scores", "md.json", "--pictures", "photos")
    assert code == 0, err
    session = open_review(tmp_path / "scored", seen[0])  # what is saved has the boxes too
    session.close()
    data = open_review(tmp_path / "scored", read_only=True).data
    make, find = review.picture_access(data)
    assert [data.picture(row) for row in range(3)] == ["north/a.jpg", "north/a.jpg", "b.jpg"]
    assert data.columns["folder"] == ["north", "north", ""]
    for row, inside in ((0, True), (1, False), (2, True)):
        picture = Image.open(io.BytesIO(make("items", row, 320)))
        colours = [picture.getpixel((x, 80)) for x in range(78, 84)]
        assert any(red > 150 and blue < 120 for red, _, blue in colours) == inside
    small = replace(data, items=replace(data.items, carried={**data.items.carried, "box_width": [0.1, 0.1, 0.1]}))
    sizes = [Image.open(io.BytesIO(review.picture_access(small)[0]("items", 0, size))).size for size in (160, 320)]
    assert sizes == [(100, 100), (320, 160)]  # what is in a small box is shown closely
    assert find("items", 0) == tmp_path / "photos" / "north" / "a.jpg"
    elsewhere = replace(seen[0], origins={"items": str(tmp_path / "elsewhere")})
    with pytest.raises(InputError, match=r"None of the pictures is in .*elsewhere, such as north/a\.jpg"):
        run(elsewhere, tmp_path / "other", browser=False)
    code, _, err = run_in_folder("review", "--scores", "md.json", "--pictures", "no")
    assert (code, "--pictures names no, which is not a folder" in err) == (2, True)


def test_labels_that_are_known_are_the_first_answers(run_in_folder, tmp_path, monkeypatch):
    rows = "".join(f"{name},{p},{1 - p:.2f}\n" for name, p in zip("abc", (0.5, 0.6, 0.45), strict=True))
    (tmp_path / "scores.csv").write_text("item,fox,wolf\n" + rows)
    (tmp_path / "known.csv").write_text("item,label\nc,fox\n")
    seen = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
    code, _, err = run_in_folder("review", "--scores", "scores.csv", "--labels", "known.csv")
    assert code == 0, err
    for _ in range(2):  # once, however often the review is opened
        session = open_review(tmp_path / "scored", seen[0])
        assert session.settled.wait(20)
        session.close()
        assert (session.known, len(list(session.journal))) == ({2: "fox"}, 1)


def megadetector(path, n_images=6):
    """Detections that a classifier has called fox or dog, in a layout that must not change."""
    images = [
        {"file": f"{n}.jpg", "detections": [
            {"category": "1", "conf": 0.9, "bbox": [0, 0, 1, 1], "classifications": [["0", 0.6], ["1", 0.4]]}]}
        for n in range(n_images)
    ]  # fmt: skip
    content = {"info": {"format_version": "1.3"}, "detection_categories": {"1": "animal"}}
    content |= {"classification_categories": {"0": "fox", "1": "dog"}, "images": images, "own": [1.50]}
    path.write_text(json.dumps(content, indent=3))
    return content


def test_a_review_of_scores_goes_back_into_the_format_that_they_came_in(run_in_folder, tmp_path, monkeypatch):
    content = megadetector(tmp_path / "md.json")
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
        code, _, err = run_in_folder("review", "--scores", "md.json", "--open-set")
    assert code == 0, err
    session = open_review(tmp_path / "scored", seen[0])
    session.act(Label(rows=(0, 3), labels=("dog", "fox"), key="a"))
    session.act(Unknown(rows=(1,), key="b"))
    assert session.settled.wait(20)
    assert "md-reviewed.json" in offered_exports(session)
    session.close()
    code, out, err = run_in_folder("review", "scored", "--export", "back.json")
    assert (code, out) == (0, "6 labels are in back.json.\n"), err
    back = json.loads((tmp_path / "back.json").read_text())
    found = [image["detections"][0].pop("classifications") for image in back["images"]]
    for image in content["images"]:
        image["detections"][0].pop("classifications")
    assert back == content  # everything else is as it was
    assert found[0] == [["1", 1.0], ["0", 0.0]]
    assert found[1] == []
    assert found[3] == [["0", 1.0], ["1", 0.0]]
    code, _, err = run_in_folder("review", "scored", "--export", "md.json", "--overwrite")
    assert (code, "md.json" in err) == (2, True)  # it is the input
    (tmp_path / "md.json").write_text((tmp_path / "md.json").read_text().replace("0.6", "0.7"))
    code, _, err = run_in_folder("review", "scored", "--export", "again.json")
    assert (code, "md.json has changed since the review began" in err) == (2, True)
    assert not (tmp_path / "again.json").exists()


def test_what_a_person_says_is_the_prediction_whatever_decided_before(run_in_folder, tmp_path, monkeypatch):
    fox, dog = (f"{key};mammalia;carnivora;canidae;{name};x;{name}" for key, name in (("f", "fox"), ("d", "dog")))
    entries = [
        {"filepath": f"{n}.jpg", "classifications": {"classes": [fox, dog], "scores": [0.6, 0.4]},
         "prediction": dog, "prediction_score": 0.4, "prediction_source": "classifier"}
        for n in range(5)
    ]  # fmt: skip
    for entry in entries[1:3]:
        entry |= {"prediction": "b;;;;;;blank", "prediction_source": "detector"}
    (tmp_path / "p.json").write_text(json.dumps({"predictions": entries}))
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
        assert run_in_folder("review", "--scores", "p.json")[0] == 0
    session = open_review(tmp_path / "scored", seen[0])
    session.act(Unknown(rows=(0,), key="a"))
    session.act(Label(rows=(1,), labels=("fox",), key="b"))
    assert session.settled.wait(20)
    session.close()
    assert run_in_folder("review", "scored", "--export", "back.json")[0] == 0
    unknown, known, open_one, *_ = json.loads((tmp_path / "back.json").read_text())["predictions"]
    assert unknown["classifications"] == {"classes": [], "scores": []}
    assert (unknown["prediction"].endswith(";no cv result"), unknown["prediction_source"]) == (True, "manyway")
    assert (known["prediction"], known["prediction_score"]) == (fox, 1.0)
    assert (open_one["prediction"], open_one["prediction_source"]) == ("b;;;;;;blank", "detector")


def test_a_new_class_becomes_a_category_of_the_file_that_the_scores_came_from(run_in_folder, tmp_path, monkeypatch):
    megadetector(tmp_path / "md.json")
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
        run_in_folder("review", "--scores", "md.json")
    session = open_review(tmp_path / "scored", seen[0])
    session.act(Label(rows=(2,), labels=("lynx",), key="a"))
    assert session.settled.wait(20)
    session.close()
    code, _, err = run_in_folder("review", "scored", "--export", "back.json")
    assert code == 0, err
    before, after = (json.loads((tmp_path / name).read_text()) for name in ("md.json", "back.json"))
    (key,) = after["classification_categories"].keys() - before["classification_categories"].keys()
    assert after["classification_categories"][key] == "lynx"
    answers = [each["classifications"] for image in after["images"] for each in image["detections"] or []]
    assert [key, 1.0] in [answer[0] for answer in answers]


def test_a_review_of_features_has_no_format_to_go_back_to(run_in_folder, tmp_path):
    saved(tmp_path / "trees")
    code, _, err = run_in_folder("review", "trees", "--export", "back.json")
    assert (code, "write a table: labels.csv" in err) == (2, True)


def test_a_table_of_texts_is_served_without_pictures(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("manyway.review.serve.serve", lambda session, folder, **with_: seen.append((session, with_)))
    data, table = make_review(TEXTS), tmp_path / "tickets.csv"
    table.write_text("text,label\nlost card,card\n")
    source = SimpleNamespace(encoder="minilm", query=table, support=table, paths=(table,))
    review.run_review(review.features_data(source, (data.examples, data.items, None)), tmp_path / "review")
    ((session, served),) = seen
    session.close()
    assert session.data.kind == TEXTS
    assert served["thumbnail"] is None


def test_the_demonstration_does_not_promise_what_it_deletes(run_in_folder, monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(
        "manyway.review.serve.serve", lambda session, folder, ready, **_: (ready("http://x", folder), session.close())
    )
    monkeypatch.setattr("webbrowser.open", said.append)
    _, out, _ = run_in_folder("review", "--demo")
    assert "deleted" in out
    assert "go on later" not in out
    assert "token" not in str(said)  # the browser is given a file
    _, out, _ = run_in_folder("review", "--demo", "-o", "kept here")
    assert "go on later with: manyway review 'kept here'" in out


def csv_of(path, items):
    """A table of features that a review can be made from."""
    rows = zip(items.names, items.labels or [""] * len(items), items.features.tolist(), strict=True)
    lines = [",".join([name, label, *map(str, cells)]) for name, label, cells in rows]
    path.write_text("\n".join(["item,label,a,b,c,d,e", *lines]) + "\n")


@pytest.fixture
def of_tables(run_in_folder, tmp_path, monkeypatch):
    """The saved review of two tables, whose examples have their labels in a third file."""
    data = make_review()
    csv_of(tmp_path / "examples.csv", data.examples)
    csv_of(tmp_path / "items.csv", replace(data.items, labels=None))
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in data.examples.labels))
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(review, "run_review", lambda data, folder, **options: seen.append(data))
        words = ["examples.csv", "items.csv", "--labels", "labels.txt", "--ignore-column", "label"]
        code, _, err = run_in_folder("review", *words)
    assert code == 0, err
    saved(tmp_path / "trees", seen[0])
    (tmp_path / "link.csv").symlink_to("examples.csv")
    os.link(tmp_path / "items.csv", tmp_path / "hard.csv")
    (tmp_path / "answers.jsonl").symlink_to("trees/journal.jsonl")
    return tmp_path


@pytest.mark.parametrize("option", ["--export", "--export-examples"])
@pytest.mark.parametrize(
    "name",
    [
        *("examples.csv", "items.csv", "labels.txt", "link.csv", "hard.csv"),
        *("trees/journal.jsonl", "trees/review.safetensors", "trees/new.csv", "answers.jsonl"),
    ],
)
def test_an_export_replaces_nothing_that_the_review_was_made_from_or_consists_of(
    of_tables, run_in_folder, option, name
):
    before = {path: path.read_bytes() for path in of_tables.rglob("*") if path.is_file()}
    code, _, err = run_in_folder("review", "trees", option, name, "--overwrite")
    assert (code, "is one of the inputs" in err or "lies in the input folder" in err) == (2, True), err
    assert {path: path.read_bytes() for path in of_tables.rglob("*") if path.is_file()} == before


def test_an_export_replaces_other_files_also_where_the_inputs_are_gone(of_tables, run_in_folder):
    for name in ("examples.csv", "items.csv"):
        (of_tables / name).unlink()
    (of_tables / "mine.csv").write_text("old")
    assert run_in_folder("review", "trees", "--export", "mine.csv", "--overwrite")[0] == 0
    assert run_in_folder("review", "trees", "--export", "items.csv")[0] == 0


def test_an_export_of_a_damaged_review_is_written_and_fails(run_in_folder, tmp_path):
    saved(tmp_path / "trees")
    journal = tmp_path / "trees" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    before = journal.read_bytes()
    code, out, err = run_in_folder("review", "trees", "--export", "l.csv")
    assert (code, "40 labels are in l.csv" in out) == (2, True)
    assert "1 of 1 entries are lost" in err
    assert "Answers that are lost are not in the export." in err
    assert journal.read_bytes() == before
