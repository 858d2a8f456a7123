"""A package of somebody else that adds a format: what a frog has said, and how sure its listener is."""

from manyway.errors import InputError
from manyway.files.scores import Collected, ScoreFormat
from manyway.files.text import read_lines


class FrogCalls(ScoreFormat):
    """Lines such as ``pond-1: tree frog 0.7, bullfrog 0.2``."""

    key = "frog-calls"
    name = "FrogCalls"
    endings = (".frogs",)
    sign = "a colon in every line"
    holds = "a line"
    kept = "the scores"
    example = "night.frogs"

    def read(self, file):
        found = Collected(file.path)
        for number, line in read_lines(file.path):
            pond, colon, said = line.partition(": ")
            if not colon:
                raise InputError(f"{file.path} has no colon in line {number}; write POND: SPECIES SCORE, ….")
            scores = {}
            for each in said.split(", "):
                name, _, score = each.rpartition(" ")
                scores[name] = float(score)
            found.add(f"line {number}", pond, scores)
            found.n_listed = max(found.n_listed, len(scores))
        names = {pair.name: pair.name for pair in found.pairs}
        return found.scores(self, None, names, names, kind="probability")

    def write(self, path, answers):
        lines = []
        for item, ranked in zip(answers.items.names, answers.ranked(answers.origin.n_listed), strict=True):
            lines.append(f"{item}: " + ", ".join(f"{name} {p:.2f}" for name, p in ranked) + "\n")
        path.write_text("".join(lines), encoding="utf-8")
        return []
