"""Label Studio: annotated tasks are examples, the others items, and answers come back as predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyway import InputError
from manyway.cli import main
from manyway.files.formats.base import Asked
from manyway.files.formats.label_studio import LabelStudio
from manyway.files.opening import read_table

EXAMPLE = LabelStudio().example_path
TASKS = json.loads(EXAMPLE.read_text())
# The labelling interface that the example was made with.
CONFIG = """<View><Text name="text" value="$text"/><Choices name="intent" toName="text">
<Choice value="card_arrival"/><Choice value="refund"/><Choice value="lost_pin"/></Choices></View>"""


def label(monkeypatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["manyway", "label", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code or 0


def with_features(folder: Path) -> Path:
    """The tasks with a vector for each text, so that no encoder is needed."""
    tasks = json.loads(EXAMPLE.read_text())
    words = ("card", "refund", "pin", "money", "arrive")
    for task in tasks:
        task["data"]["vector"] = [float(task["data"]["text"].count(word)) + 0.01 * n for n, word in enumerate(words)]
    path = folder / "tasks.json"
    path.write_text(json.dumps(tasks, indent=2))
    return path


def test_tasks_are_a_table():
    table = read_table(EXAMPLE)
    assert list(table.names) == ["item", "text", "customer", "label"]
    items, texts, _, labels = table.values(range(4))
    assert items[:2] == ["7", "8"]
    assert texts[0] == "where is my new card"
    assert labels == [*["card_arrival"] * 3, *["refund"] * 3, *["lost_pin"] * 2, *[None] * 4]
    assert table.place(3) == "task 3"


def test_predictions_come_back_and_nothing_else_changes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = with_features(tmp_path)
    columns = ("--feature-column", "vector", "--ignore-column", "text")
    assert label(monkeypatch, str(path), "-o", "answers.json", *columns) == 0, capsys.readouterr().err
    before, after = (json.loads(Path(name).read_text()) for name in (path, "answers.json"))
    answered = [task for task in after if task["predictions"]]
    assert [task["id"] for task in answered] == [15, 16, 17, 18]  # those without an annotation
    for task in answered:
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"], result["type"]) == ("intent", "text", "choices")
        assert result["value"]["choices"][0] in ("card_arrival", "refund", "lost_pin")
        assert 0 < prediction["score"] <= 1
        assert prediction["model_version"].startswith("manyway ")
    for task in (*before, *after):
        del task["predictions"]
    assert after == before
    # Once more: the prediction is replaced, not added.
    assert label(monkeypatch, "answers.json", "-o", "again.json", *columns) == 0
    assert Path("again.json").read_text() == Path("answers.json").read_text()


def test_predictions_are_what_the_sdk_of_label_studio_takes(tmp_path, monkeypatch):
    """Runs where label-studio-sdk is installed; it needs another NumPy than the tests."""
    interface = pytest.importorskip("label_studio_sdk.label_interface").LabelInterface(CONFIG)
    monkeypatch.chdir(tmp_path)
    path = with_features(tmp_path)
    assert (
        label(monkeypatch, str(path), "-o", "answers.json", "--feature-column", "vector", "--ignore-column", "text")
        == 0
    )
    predictions = [found for task in json.loads(Path("answers.json").read_text()) for found in task["predictions"]]
    assert len(predictions) == 4
    for prediction in predictions:
        assert interface.validate_prediction(prediction, return_errors=True) in ([], True)


def test_numbers_of_predictions_in_an_export_go_and_predictions_of_others_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = with_features(tmp_path)
    tasks = json.loads(path.read_text())
    theirs = {"model_version": "theirs", "result": []}
    tasks[-1]["predictions"] = [17, theirs]
    path.write_text(json.dumps(tasks))
    assert label(monkeypatch, str(path), "-o", "out.json", "--feature-column", "vector", "--ignore-column", "text") == 0
    first, second = json.loads(Path("out.json").read_text())[-1]["predictions"]
    assert first == theirs
    assert second["model_version"].startswith("manyway ")


def test_paths_of_local_files_and_fields_of_our_names(tmp_path):
    tasks = [{"data": {"image": "/data/local-files/?d=photos/1.jpg", "label": "a label of theirs", "more": {"a": 1}}}]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(tasks))
    table = LabelStudio().read(path, Asked())
    assert list(table.names) == ["item", "image", "data.label", "more"]
    assert table.values(range(4)) == [["task 0"], ["photos/1.jpg"], ["a label of theirs"], ['{"a": 1}']]


def changed(**parts: object) -> list:
    tasks = json.loads(EXAMPLE.read_text())
    tasks[0] |= parts
    return tasks


def result(**parts: object) -> list:
    found = {"type": "choices", "from_name": "intent", "to_name": "text", "value": {"choices": ["refund"]}, **parts}
    return [{"result": [found]}]


BAD = {
    "an id twice": (changed(id=8), "two tasks with the id '8'"),
    "no data": (changed(data=None), "instead of an object in 'data' of task 0"),
    "annotations that are no list": (changed(annotations=5), "no list 'annotations' in task 0"),
    "two choices": (changed(annotations=result(value={"choices": ["a", "b"]})), "several choices in task 0"),
    "two controls": (changed(annotations=result(from_name="other")), "several choices per task"),
    "no value": (changed(annotations=result(value=[])), "instead of an object in task 0"),
    "a number": (changed(annotations=result(value={"choices": [5]})), "'5' instead of a choice in task 0"),
}


@pytest.mark.parametrize(("tasks", "said"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused(tasks, said, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(tasks))
    with pytest.raises(InputError, match=said):
        read_table(path)


def test_an_output_of_another_kind_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = with_features(tmp_path)
    Path("p.csv").write_text("item,a,label\n1,0.5,x\n2,0.7,y\n3,0.4,\n")
    assert label(monkeypatch, "p.csv", "-o", "out.json") == 2
    assert "which takes no answers; write a .csv table" in capsys.readouterr().err
    columns = ("--feature-column", "vector", "--ignore-column", "text")
    assert label(monkeypatch, str(path), "--format", "input", "-o", "out.csv", *columns) == 2
    assert "give it the ending .json" in capsys.readouterr().err
    assert label(monkeypatch, str(path), "--format", "presence", "-o", "out.csv", *columns) == 2
    assert "is for the scores of a classifier" in capsys.readouterr().err
