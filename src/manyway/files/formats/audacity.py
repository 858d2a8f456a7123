"""A label track of Audacity: the answers for one recording."""

from pathlib import Path
from typing import ClassVar

from manyway.errors import InputError
from manyway.files.formats.base import AnswerFormat, Answers
from manyway.files.scores import Scores, number_of
from manyway.files.text import listed


class Audacity(AnswerFormat):
    """Start and end in seconds, and the label; tabs between them. Audacity imports it as labels."""

    key = "audacity"
    name = "Audacity labels"
    endings: ClassVar[tuple[str, ...]] = (".txt",)
    holds = "a label track of one recording: start, end, and the label with its probability"

    def write(self, path: Path, answers: Answers) -> list[str]:
        scores = answers.items
        assert isinstance(scores, Scores)
        recordings = list(dict.fromkeys(scores.file(row) for row in range(len(scores))))
        if len(recordings) > 1:
            there = f"there are {len(recordings)} ({listed(recordings, 3)})"
            raise InputError(f"A label track is for one recording, and {there}; label the scores of each by itself.")
        starts = scores.carried.get("start", [None] * len(scores))
        ends = scores.carried.get("end", [None] * len(scores))
        lines = []
        for label in answers.labels:
            start = number_of(starts[label.number])
            end = number_of(ends[label.number])
            if start is None or end is None:
                raise InputError(
                    f"{label.item} has no start or end, which Audacity needs; give the scores such columns."
                )
            if label.name:
                shown = " ".join(f"{label.name} {label.probability:.2f}".split())
                lines.append(f"{start:.6f}\t{end:.6f}\t{shown}\n")
        path.write_text("".join(lines), encoding="utf-8")
        return []
