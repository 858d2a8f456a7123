"""Argilla: records with responses in part; answers come back as suggestions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from manyway.errors import InputError
from manyway.files import json_text
from manyway.files.files import check_input
from manyway.files.formats.base import Answers, Asked, DataFormat, Opened
from manyway.files.json_text import Edit
from manyway.files.scores import UNKNOWN
from manyway.files.tables import Table
from manyway.files.text import first_twice, listed, read_json, shorten, whole_text, write_like

_QUESTION = "label"  # where no record has a response


class Argilla(DataFormat):
    """Records as ``dataset.records.to_json`` writes and ``from_json`` reads them."""

    key = "argilla"
    name = "Argilla"
    endings: ClassVar[tuple[str, ...]] = (".json",)
    sign = "a list of records with 'fields'"
    holds = "a record: its fields and vectors are columns, its last response is its label"
    kept = "`suggestions` of records without a response; every other byte stays"
    example = "argilla.json"

    def detect(self, file: Opened) -> bool:
        records = file.json
        return isinstance(records, list) and bool(records) and isinstance(records[0], dict) and "fields" in records[0]

    def read(self, path: Path, asked: Asked) -> Table:
        records = _records(check_input(path))[: asked.rows]
        question = _question(path, records)
        columns: dict[str, list[Any]] = {"item": _names(path, records)}
        for part in ("fields", "vectors"):
            for name in dict.fromkeys(name for record in records for name in _part(path, record, part)):
                shown = f"{part}.{name}" if name in ("item", "label") or name in columns else str(name)
                columns[shown] = [_part(path, record, part).get(name) for record in records]
        if question is not None:
            columns["label"] = [_response(path, record, question) for record in records]
        return Table(path, list(columns), list(columns.values()), "record")

    def write(self, path: Path, answers: Answers) -> list[str]:
        """Answers as suggestions, with their probability as the score."""
        assert answers.origin is not None
        source = answers.origin.path
        records = _records(source)
        text = whole_text(source)
        question = _question(source, records) or _QUESTION
        found = {label.item: label for label in answers.labels if label.name and label.name != UNKNOWN}
        starts = [place.start for _, place in json_text.members(text, 0)]
        edits = []
        for name, record, start in zip(_names(source, records), records, starts, strict=True):
            if name in found:
                score = round(found[name].probability, 4)
                new = {"value": found[name].name, "score": score, "agent": answers.program}
                edits.append(_edit(text, start, {**_part(source, record, "suggestions"), question: new}))
        write_like(source, path, json_text.edited(text, edits))
        return []


def _records(path: Path) -> list[dict[str, Any]]:
    records = read_json(path)
    if not isinstance(records, list) or not records:
        raise InputError(f"{path} has no list of records; write them with dataset.records.to_json.")
    for number, record in enumerate(records):
        json_text.as_object(path, f"record {number}", record)
        for part in ("fields", "responses"):
            _part(path, record, part)
    return records


def _part(path: Path, record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of a record; empty where it has none."""
    return json_text.as_object(path, f"'{name}' of a record", record.get(name) or {})


def _names(path: Path, records: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [str(record["id"]) if record.get("id") is not None else f"record {at}" for at, record in enumerate(records)]
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path} has two records with the id {shorten(twice)}; remove one.")
    return names


def _question(path: Path, records: Sequence[Mapping[str, Any]]) -> str | None:
    """The question that responses answer with one label."""
    asked = sorted({name for record in records for name in _part(path, record, "responses")})
    if len(asked) > 1:
        raise InputError(f"{path} has answers to several questions ({listed(asked)}); keep one question.")
    return asked[0] if asked else None


def _response(path: Path, record: Mapping[str, Any], question: str) -> str | None:
    given = json_text.list_in(path, "a record", _part(path, record, "responses"), question)
    if not given:
        return None
    value = json_text.as_object(path, f"the responses to '{question}'", given[-1]).get("value")
    if value is not None and not isinstance(value, str):
        raise InputError(f"{path} has the response {shorten(value)} to '{question}'; it must be one label.")
    return value


def _edit(text: str, start: int, suggestions: Mapping[str, Any]) -> Edit:
    new = json.dumps(suggestions, ensure_ascii=False)
    places = dict(json_text.members(text, start))
    if "suggestions" in places:
        return Edit(places["suggestions"].start, places["suggestions"].stop, new)
    end = max(place.stop for place in places.values())
    return Edit(end, end, f', "suggestions": {new}')
