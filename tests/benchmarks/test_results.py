"""Results pages are filled from stored results, and nothing else on them is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.show.results import changed
from bench_problems import Watching

from benchmarks.measure import Printed, show
from benchmarks.results import Spec, main, read_specs
from manyway.bench.plan import SuiteChanges, make_jobs, make_plan
from manyway.bench.records import Store
from manyway.bench.runner import run_jobs
from manyway.bench.suite import load_suite, parse_suite
from manyway.core.checking import checked
from manyway.methods import METHODS

TINY = """
title = "Tiny"
n_tasks = 3

[[experiments]]
features = "glyphs"
methods = ["paddle", "simpleshot"]
task = { shots = 1, k_eff = [2, 3], n_query = 6, n_ways = 5 }
"""
SPECS = """
[letters.tiny]
run = "tiny"
columns = ["k_eff"]

[letters."gain over prototypes"]
run = "tiny"
columns = ["k_eff"]
minus = { method = "simpleshot" }
where = { method = "paddle" }

[letters.absent]
run = "another"
"""
PAGE = """# Letters

Typed by hand.

<!--table:tiny-->

*evidence 1*

| Method | K_eff = 2 |
|:---|---:|
| PADDLE | 12.3 |

<!--end-->

More by hand.

<!--table:absent-->
| stays | as it is |
|---|---|
<!--end-->
"""
OTHER = "table,set,value\nsomething else,a,1\nsomething else,b,2"
CSV = f"{OTHER}\n\ntable,Method,K_eff = 2\ngain over prototypes,PADDLE,+1.0\n"


def run(folder: Path, toml: str = TINY, name: str = "tiny") -> Store:
    """Run a suite on the embedded letters."""
    suite, wishes, store = parse_suite(toml, name, name), SuiteChanges(), Store(folder)
    jobs, _ = make_jobs(suite, wishes)
    store.write_plan(make_plan(suite, jobs, wishes))
    assert run_jobs(jobs, store, None, Watching()) == []
    return store


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    for name, text in (("tables.toml", SPECS), ("letters.md", PAGE), ("letters.csv", CSV)):
        (tmp_path / "pages" / name).write_text(text)
    return tmp_path / "pages"


def fill(pages: Path, *words: str) -> int:
    return main([*words, "--pages", str(pages)])


def test_a_page_and_a_csv_file_are_filled_and_the_rest_stays(pages, tmp_path, capsys):
    store = run(tmp_path / "results")
    assert fill(pages, str(store.folder)) == 0
    page, table = (pages / "letters.md").read_text(), (pages / "letters.csv").read_text()
    before, filled, after = page.partition("<!--table:tiny-->")[0], page, page.partition("<!--end-->")[2]
    assert before == PAGE.partition("<!--table:tiny-->")[0]
    assert after == PAGE.partition("<!--end-->")[2]
    day = next(store.records()).timing.finished[:10]
    versions = f"paddle {METHODS['paddle'].version}, simpleshot {METHODS['simpleshot'].version}"
    assert f"\n*manyway 0.1.0, {day}: {versions}*\n\n| Method | K_eff = 2 | K_eff = 3 |\n" in filled
    assert "evidence 1" not in filled
    assert table.startswith(f"{OTHER}\n\ntable,Method,K_eff = 2,K_eff = 3,made by\ngain over prototypes,PADDLE,")
    assert table.endswith(f'"manyway 0.1.0, {day}: paddle {METHODS["paddle"].version}"\n')
    assert "letters: 'absent' stays as it is: no results of another" in capsys.readouterr().out


def test_filling_again_changes_nothing_and_check_notices_a_page_that_differs(pages, tmp_path):
    folder = str(run(tmp_path / "results").folder)
    assert fill(pages, folder, "--check") == 1
    assert (pages / "letters.md").read_text() == PAGE
    fill(pages, folder)
    once = {path.name: path.read_bytes() for path in pages.iterdir()}
    assert fill(pages, folder, "--check") == 0
    fill(pages, folder)
    assert {path.name: path.read_bytes() for path in pages.iterdir()} == once
    text = (pages / "letters.md").read_text()
    (pages / "letters.md").write_text(text.replace("| PADDLE | ", "| PADDLE | 9"))
    assert fill(pages, folder, "--check") == 1
    (pages / "letters.md").write_text(text.replace("More by hand", "Other words"))
    assert fill(pages, folder, "--check") == 0


def test_an_unfinished_run_leaves_the_table_as_it_is(pages, tmp_path, capsys):
    store = run(tmp_path / "results")
    next((store.folder / "records").iterdir()).unlink()
    assert fill(pages, str(store.folder)) == 0
    assert (pages / "letters.md").read_text() == PAGE
    assert "'tiny' stays as it is: 1 of 4 experiments of tiny have no result yet" in capsys.readouterr().out


def test_a_table_keeps_its_rows_where_results_are_those_of_one_method_alone(pages, tmp_path, capsys):
    fill(pages, str(run(tmp_path / "both").folder))
    before = (pages / "letters.md").read_text()
    alone = run(tmp_path / "alone", TINY.replace('["paddle", "simpleshot"]', '"paddle"'))
    capsys.readouterr()
    fill(pages, str(alone.folder))
    assert (pages / "letters.md").read_text() == before
    assert "letters.md: 'tiny' stays as it is: no results of its row 'SimpleShot'" in capsys.readouterr().out
    fill(pages, str(alone.folder), "--fewer-rows")
    assert "SimpleShot" not in (pages / "letters.md").read_text()


def test_results_of_several_folders_are_put_together_and_the_last_one_counts(pages, tmp_path):
    few = run(tmp_path / "few")
    more = run(tmp_path / "more", TINY.replace('["paddle", "simpleshot"]', '"soft-kmeans"'))
    fill(pages, str(few.folder), str(more.folder))
    lines = (pages / "letters.md").read_text().splitlines()
    labels = [line.split(" | ")[0] for line in lines if "±" in line]
    assert labels == ["| PADDLE", "| SimpleShot", "| soft K-means"]


def test_a_table_that_mixes_versions_says_so(pages, tmp_path, monkeypatch):
    store, method = run(tmp_path / "results"), METHODS["paddle"]
    monkeypatch.setitem(METHODS, "paddle", replace(method, version=method.version + 1))
    fill(pages, str(store.folder))
    text = (pages / "letters.md").read_text()
    assert f"†: made by version {method.version} of paddle, now {method.version + 1}." in text
    assert "†" in next(line for line in text.splitlines() if line.startswith("| PADDLE"))
    assert "†" not in next(line for line in text.splitlines() if line.startswith("| SimpleShot"))
    # A run of the new version, for one of two settings, beside results of the old one.
    for record in list(store.records()):
        if record.method == "paddle" and record.task["k_eff"] == 2:
            store.write(changed(record, version=method.version + 1))
    fill(pages, str(store.folder))
    assert f"paddle {method.version} and {method.version + 1}" in (pages / "letters.md").read_text()


def test_a_table_that_a_benchmark_printed_is_kept_and_filled_in(pages, tmp_path, monkeypatch, capsys):
    (pages / "tables.toml").write_text('[letters.tiny]\nprinted = "Speed, ms"\nmethods = ["evidence"]\n')
    monkeypatch.setenv("MANYWAY_RESULTS", str(tmp_path / "results"))
    show("Speed, ms", ["K", "whole"], [[20, 1.2345], [160, 250.2]])
    assert "| 20 | 1.23 |\n| 160 | 250 |" in capsys.readouterr().out
    (kept,) = (tmp_path / "results" / "printed").iterdir()
    assert Printed.read(kept).rows == [["20", "1.23"], ["160", "250"]]
    fill(pages, str(tmp_path / "results"), "--fewer-rows")
    text = (pages / "letters.md").read_text()
    assert f": evidence {METHODS['evidence'].version}*\n\n| K | whole |\n| --- | --- |\n| 20 | 1.23 |" in text


def test_tables_with_the_same_rows_stand_side_by_side_and_a_new_table_goes_to_the_end_of_the_csv_file(pages, tmp_path):
    spec = '[letters.both]\nrun = "tiny"\ncolumns = ["k_eff"]\ninterval = false\n'
    (pages / "tables.toml").write_text(spec + 'beside = [{ metric = "calibration" }]\n')
    toml = TINY.replace("n_tasks = 3", 'n_tasks = 3\nmetrics = ["calibration"]')
    fill(pages, str(run(tmp_path / "results", toml).folder))
    table = (pages / "letters.csv").read_text()
    assert table.startswith(CSV)
    assert table[len(CSV) :].splitlines()[1] == (
        'table,Method,K_eff = 2,K_eff = 3,"calibration error, K_eff = 2","calibration error, K_eff = 3",made by'
    )
    assert len(table[len(CSV) :].splitlines()) == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("[letters.tiny]\nrn = 'tiny'", "unknown key 'rn'; did you mean 'run'?"),
        ("[letters.tiny]\ncolumns = ['k_eff']", "must have either `run` or `printed`"),
        ("[letters.tiny", "is not valid TOML"),
    ],
)
def test_a_wrong_specification_is_one_sentence(pages, spec, message, capsys):
    (pages / "tables.toml").write_text(spec)
    with pytest.raises(SystemExit) as stop:
        fill(pages, "results")
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


SPECS_HERE = read_specs(Path(__file__).parents[2] / "docs" / "results")


@pytest.mark.parametrize("spec", [spec for spec in SPECS_HERE.values() if spec.run], ids=lambda spec: spec.run[0])
def test_the_specifications_of_the_repository_fit_their_suites(spec):
    blocks = [block for run in spec.run for block in load_suite(run.partition("@")[0]).blocks]
    axes, measured = set().union(*(block.axes for block in blocks)), {m for block in blocks for m in block.metrics}
    for one in (spec, *(checked(Spec, {"run": spec.run, **other}, "beside") for other in spec.beside)):
        assert {axis for named in one.axes.values() for axis in named} <= axes
        assert {metric.partition(".")[0] for metric in one.metric} <= {"accuracy", *measured}
