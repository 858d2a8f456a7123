"""Every reader of the registry meets files that are cut, empty, mixed or of somebody else: one sentence, or an answer.

What is read from a damaged text may make sense, such as the first lines of a table. What may not happen is any other
error, or a message of several lines.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from manyway import InputError
from manyway.files.formats.base import Format
from manyway.files.formats.registry import our_formats
from manyway.files.items import read_items
from manyway.files.score_files import read_scores
from manyway.files.scores import ScoreFormat

FORMATS = [each for each in our_formats() if each.example]


def read(each: Format, path: Path) -> str:
    """What a reader says about a file; empty where it takes it."""
    try:
        if isinstance(each, ScoreFormat):
            read_scores(path)
        else:
            read_items(path)
    except InputError as error:
        return str(error)
    return ""


def damaged(content: bytes, others: list[bytes]) -> dict[str, bytes]:
    """A file, damaged in many ways."""
    n = len(content)
    chance = random.Random(n)
    found = {"empty": b"", "blank": b"\n \n", "null": b"\0" * 64, "doubled": content + content}
    for part in (1, 5, 20, 40, 60, 80, 95, 99):
        found[f"cut after {part} %"] = content[: n * part // 100]
    for number, other in enumerate(others):
        found[f"half of another {number}"] = content[: n // 2] + other[len(other) // 2 :]
    for number in range(20):
        changed = bytearray(content)
        for _ in range(3):
            changed[chance.randrange(n)] = chance.randrange(256)
        found[f"changed bytes {number}"] = bytes(changed)
    return found


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.key)
def test_a_damaged_file_is_one_sentence(each, tmp_path):
    content = each.example_path.read_bytes()
    others = [other.example_path.read_bytes() for other in FORMATS if other is not each]
    for what, bad in damaged(content, others).items():
        path = tmp_path / each.example_path.name
        path.write_bytes(bad)
        said = read(each, path)
        assert "\n" not in said, what
        assert not said or said.endswith((".", "?")), (what, said)
        assert not said or path.name in said, (what, said)
    for what in ("empty", "null", "cut after 1 %"):
        path.write_bytes(damaged(content, [])[what])
        assert read(each, path), f"{what} was read"
        assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.key)
def test_the_content_of_another_format_is_refused_or_read_as_what_it_is(each, tmp_path):
    for other in FORMATS:
        path = tmp_path / f"file{each.endings[0]}"
        path.write_bytes(other.example_path.read_bytes())
        said = read(each, path)
        assert "\n" not in said, other.key


JSON = [each for each in FORMATS if ".json" in each.endings]
ODD = [
    *('{"%s": 5}', '{"%s": [5]}', '{"%s": [null]}', '{"%s": [{}]}', '{"%s": {}}'),
    *("[]", "[[]]", "5", '"a"', "null", "[{}]", '[{"id": {}, "data": []}]', "[" * 100_000, '{"a": 1, "a": 2}'),
]


@pytest.mark.parametrize("each", JSON, ids=lambda each: each.key)
def test_odd_json_is_one_sentence(each, tmp_path):
    names = ["predictions", "images", "detections", "data"]
    for number, text in enumerate(ODD):
        for name in names:
            path = tmp_path / f"{number}.json"
            path.write_text(text % name if "%s" in text else text)
            said = read(each, path)
            assert said, text[:50]
            assert "\n" not in said
