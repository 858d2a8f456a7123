"""The registry of formats: each is known by its example, and other packages add their own."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from manyway import InputError
from manyway.files.formats import registry
from manyway.files.formats.base import ArrayFormat, DataFormat, Format, TableFormat
from manyway.files.score_files import read_scores
from manyway.files.scores import ScoreFormat

INSTALLED = Path(__file__).parent / "installed"
READ = [each for each in registry.our_formats() if each.example]


@pytest.fixture
def fresh():
    """Forget what was found, before and after."""
    registry.added_formats.cache_clear()
    yield
    registry.added_formats.cache_clear()


@pytest.fixture
def with_frogs(monkeypatch, fresh):
    """The example package is installed."""
    monkeypatch.syspath_prepend(INSTALLED)


def broken(folder: Path, points: str, code: str = "") -> Path:
    """A package that was installed and does not work."""
    (folder / "bad-1.0.dist-info").mkdir()
    (folder / "bad-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-package\nVersion: 1.0\n")
    (folder / "bad-1.0.dist-info" / "entry_points.txt").write_text(f"[manyway.formats]\n{points}\n")
    (folder / "bad_module.py").write_text(code)
    return folder


def known_as(example: Format) -> Format:
    """The format that the example is taken for."""
    path = example.example_path
    if isinstance(example, ScoreFormat):
        return registry.score_format(registry.opened(path))
    return registry.array_format(path) if isinstance(example, ArrayFormat) else registry.table_format(path)


@pytest.mark.parametrize("each", READ, ids=lambda each: each.key)
def test_the_example_of_a_format_is_known(each):
    assert known_as(each) is each


def test_formats_say_what_they_are_and_have_keys_of_their_own():
    formats = registry.our_formats()
    assert len({each.key for each in formats}) == len(formats)
    for each in formats:
        assert each.name, each
        assert each.holds, each
        assert each.endings, each
        assert all(ending.startswith(".") for ending in each.endings), each
        if isinstance(each, TableFormat | ArrayFormat | ScoreFormat | DataFormat):
            assert each.example_path.is_file(), each


def test_no_other_package_is_asked_for_a_usual_table(monkeypatch, fresh):
    monkeypatch.setattr(registry, "entry_points", lambda group: pytest.fail("they were loaded"))
    for each in registry.our_formats():
        if isinstance(each, TableFormat):
            assert registry.table_format(Path(f"a{each.endings[0]}")) is each
            assert registry.is_table(Path(f"a{each.endings[0]}"))


@pytest.mark.usefixtures("with_frogs")
def test_a_package_adds_a_format(tmp_path, monkeypatch):
    frogs = INSTALLED / "examples" / "night.frogs"
    scores = read_scores(frogs)
    assert scores.names == ("pond-1", "pond-2", "pond-3")
    assert scores.classes == ("bullfrog", "toad", "tree frog")
    assert ".frogs" in registry.endings_of_answers()
    with pytest.raises(InputError, match=r"has no colon in line 1; write POND"):
        read_scores(_written(tmp_path / "a.frogs", "croak\n"))


@pytest.mark.usefixtures("with_frogs")
def test_the_command_line_reads_and_writes_what_a_package_adds(tmp_path, monkeypatch, capsys):
    from manyway.cli import main

    monkeypatch.chdir(tmp_path)
    frogs = str(INSTALLED / "examples" / "night.frogs")
    for words in (["-o", "labels.csv"], ["-o", "answers.frogs"]):
        monkeypatch.setattr("sys.argv", ["manyway", "label", "--scores", frogs, *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, capsys.readouterr().err
    with Path("labels.csv").open(encoding="utf-8") as file:
        labels = {row["item"]: row["label"] for row in csv.DictReader(file)}
    answers = read_scores("answers.frogs")
    assert answers.names == tuple(labels) == ("pond-1", "pond-2", "pond-3")
    monkeypatch.setattr("sys.argv", ["manyway", "label", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert "FrogCalls" in capsys.readouterr().out


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


BROKEN = {
    "no module": ("bad = not_there:Bad", "", "No module named 'not_there'"),
    "no class": ("bad = bad_module:Bad", "", "has no attribute 'Bad'"),
    "an error": ("bad = bad_module:Bad", "raise RuntimeError('two\\nlines')", "two lines"),
    "another class": ("bad = bad_module:Bad", "class Bad: pass", "is no subclass of"),
    "no name": (
        "bad = bad_module:Bad",
        "from manyway.files.scores import ScoreFormat\nclass Bad(ScoreFormat): key = 'bad'",
        "does not say its name",
    ),
    "a taken key": (
        "bad = bad_module:Bad",
        "from manyway.files.formats.csv import Csv\nclass Bad(Csv): pass",
        "there is another format 'csv'",
    ),
}


@pytest.mark.parametrize(("points", "code", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_package_is_one_sentence_and_stops_nothing_else(points, code, said, tmp_path, monkeypatch, fresh):
    monkeypatch.syspath_prepend(broken(tmp_path, points, code))
    monkeypatch.delitem(__import__("sys").modules, "bad_module", raising=False)
    (problem,) = registry.added_formats().problems
    assert problem.startswith("the format 'bad' of bad-package cannot be used (")
    assert said in problem
    assert problem.endswith("update or remove bad-package")
    assert "\n" not in problem
    scores = read_scores(_written(tmp_path / "s.csv", "item,class,score\na,fox,0.9\na,dog,0.1\n"))
    assert problem in scores.notes
    with pytest.raises(InputError, match="update or remove bad-package"):
        read_scores(_written(tmp_path / "s.frogs", "pond-1: toad 0.5\n"))
    with pytest.raises(InputError, match="update or remove bad-package"):
        registry.answer_format("frog-calls", "table")
