"""Label Studio: a list of tasks. Annotated tasks are the examples, the others the items; answers are predictions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from manyway.errors import InputError
from manyway.files import json_text
from manyway.files.files import check_input
from manyway.files.formats.base import Answers, Asked, DataFormat, Label, Opened
from manyway.files.json_text import Edit
from manyway.files.scores import UNKNOWN
from manyway.files.tables import Table
from manyway.files.text import first_twice, listed, read_json, shorten, whole_text, write_like

_LOCAL = "/data/local-files/?d="  # in front of paths of local files
_PROGRAM = "manyway"


class _Choice(NamedTuple):
    """What was chosen in a result, and by which control of the labelling interface for which object."""

    control: str
    object: str
    choices: Sequence[str]


class LabelStudio(DataFormat):
    """``tasks.json``, as Label Studio exports and imports it."""

    key = "label-studio"
    name = "Label Studio"
    endings: ClassVar[tuple[str, ...]] = (".json",)
    sign = "a list of tasks with 'data'"
    holds = "a task: its fields are columns, the choice of its last annotation is its label"
    kept = "`predictions` of tasks without an annotation; every other byte stays"
    example = "label_studio.json"

    def detect(self, file: Opened) -> bool:
        tasks = file.json
        return isinstance(tasks, list) and bool(tasks) and isinstance(tasks[0], dict) and "data" in tasks[0]

    def read(self, path: Path, asked: Asked) -> Table:
        tasks = _tasks(check_input(path))[: asked.rows]
        names = _names(path, tasks)
        labels = [_label_of(path, number, task) for number, task in enumerate(tasks)]
        controls = sorted({choice.control for choice in labels if choice is not None})
        if len(controls) > 1:
            raise InputError(f"{path} has several choices per task ({listed(controls)}); export the tasks with one.")
        fields = dict.fromkeys(field for task in tasks for field in task["data"])
        columns: dict[str, list[Any]] = {"item": names}
        for field in fields:
            name = f"data.{field}" if field in ("item", "label") else str(field)
            columns[name] = [_cell(task["data"].get(field)) for task in tasks]
        if controls:
            columns["label"] = [None if choice is None else choice.choices[0] for choice in labels]
        return Table(path, list(columns), list(columns.values()), "task")

    def write(self, path: Path, answers: Answers) -> list[str]:
        """Answers as predictions. Those of an earlier run are replaced."""
        assert answers.origin is not None
        source = answers.origin.path
        tasks = _tasks(source)
        text = whole_text(source)
        interface, notes = _interface(source, tasks)
        found = {label.item: label for label in answers.labels if label.name and label.name != UNKNOWN}
        starts = [place.start for _, place in json_text.members(text, 0)]
        edits = []
        for name, task, start in zip(_names(source, tasks), tasks, starts, strict=True):
            if name in found:
                edits.append(_edit(text, start, task, _prediction(found[name], interface, answers.program)))
        left = len({label.item for label in answers.labels}) - len(found)
        if left:
            notes.append(f"{left} tasks are unknown or too uncertain and get no prediction")
        write_like(source, path, json_text.edited(text, edits))
        return notes


def _tasks(path: Path) -> list[dict[str, Any]]:
    """The tasks of a file, whose parts are of the kinds that they must be."""
    tasks = read_json(path)
    if not isinstance(tasks, list) or not tasks:
        raise InputError(f"{path} has no list of tasks; export them from Label Studio as JSON.")
    for number, task in enumerate(tasks):
        place = f"task {number}"
        data = json_text.as_object(path, place, task).get("data")
        json_text.as_object(path, f"'data' of {place}", data)
    return tasks


def _names(path: Path, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tasks are called: by their id, or by their number where they have none."""
    names = [str(task["id"]) if task.get("id") is not None else f"task {at}" for at, task in enumerate(tasks)]
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path} has two tasks with the id {shorten(twice)}; remove one.")
    return names


def _cell(value: Any) -> Any:
    """A field of a task: paths of local files without the prefix of the server; lists of numbers as they are."""
    if isinstance(value, str):
        return value.removeprefix(_LOCAL)
    return json.dumps(value) if isinstance(value, dict) else value


def _label_of(path: Path, number: int, task: Mapping[str, Any]) -> _Choice | None:
    """What the last annotation that was not cancelled says."""
    place = f"task {number}"
    for annotation in reversed(json_text.list_in(path, place, task, "annotations")):
        annotation = json_text.as_object(path, place, annotation)
        if annotation.get("was_cancelled"):
            continue
        choice = _choice_in(path, place, annotation)
        if choice is not None and len(choice.choices) > 1:
            raise InputError(f"{path} has several choices in {place} ({listed(choice.choices)}); items have one class.")
        return choice
    return None


def _choice_in(path: Path, place: str, annotation: Mapping[str, Any]) -> _Choice | None:
    """The choice among the results of an annotation or a prediction."""
    for result in json_text.list_in(path, place, annotation, "result"):
        result = json_text.as_object(path, place, result)
        if result.get("type") != "choices":
            continue
        value = json_text.as_object(path, place, result.get("value"))
        choices = json_text.list_in(path, place, value, "choices")
        names = [json_text.as_name(path, place, choice, "choice") for choice in choices]
        if names:
            return _Choice(str(result.get("from_name")), str(result.get("to_name")), names)
    return None


def _interface(path: Path, tasks: Sequence[Mapping[str, Any]]) -> tuple[_Choice, list[str]]:
    """The control and the object that predictions name: those of annotations, else usual ones, which is said."""
    for number, task in enumerate(tasks):
        for kind in ("annotations", "predictions"):
            for each in json_text.list_in(path, f"task {number}", task, kind):
                choice = _choice_in(path, f"task {number}", each) if isinstance(each, dict) else None
                if choice is not None:
                    return choice, []
    field = next(iter(tasks[0]["data"]), "text")
    said = f"no task of {path.name} is annotated: predictions are for the control 'choice' and the object '{field}'"
    return _Choice("choice", str(field), ()), [said]


def _prediction(label: Label, interface: _Choice, program: str) -> dict[str, Any]:
    value = {"choices": [label.name]}
    result = {"from_name": interface.control, "to_name": interface.object, "type": "choices", "value": value}
    return {"model_version": program, "score": round(label.probability, 4), "result": [result]}


def _edit(text: str, start: int, task: Mapping[str, Any], prediction: Mapping[str, Any]) -> Edit:
    """Put a prediction into the task that starts there."""
    others = [each for each in task.get("predictions") or [] if _is_of_others(each)]
    new = json.dumps([*others, prediction], ensure_ascii=False)
    places = dict(json_text.members(text, start))
    if "predictions" in places:
        place = places["predictions"]
        return Edit(place.start, place.stop, new)
    end = max(place.stop for place in places.values())
    return Edit(end, end, f', "predictions": {new}')


def _is_of_others(prediction: Any) -> bool:
    """Whether a prediction stays. An export can have numbers of predictions in the server, which it does not import."""
    return isinstance(prediction, dict) and not str(prediction.get("model_version", "")).startswith(_PROGRAM)
