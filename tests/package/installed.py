"""The sdist and the wheel, and the installed package in a clean environment, far from the repository.

This takes minutes, so ``make test`` does not collect it; ``make package`` does.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.package import pages

ROOT = Path(__file__).parents[2]
EXTRAS = "dask,images,plot,review,tables"  # those that the doctests need
MEGABYTES = 4  # the embedded letters are 2.5 of them


def run(*words: str | Path, cwd: Path) -> str:
    """Run a program that cannot import from the repository; gives what it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MANYWAY_"))}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=own, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """A folder with the sdist of the repository and the wheel that was built from this sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The interpreter of a fresh environment in which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    found = folder / "bin" / "python"
    run(found, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    return found


@pytest.fixture(scope="module")
def with_extras(python, wheel) -> Path:
    """The same interpreter, when pytest and the extras have been installed too."""
    wanted = [f"{wheel}[{EXTRAS}]", "pytest", *(["triton"] if sys.platform == "linux" else [])]
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *wanted, cwd=wheel.parent)
    return python


def test_the_sdist_holds_the_package_and_what_a_packager_needs(dist):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = [Path(*Path(name).parts[1:]) for name in archive.getnames()]
    assert {name.parts[0] for name in names} == {
        *(".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md"),
        *("constraints.txt", "pyproject.toml", "src"),
    }
    in_repository = {path.relative_to(ROOT) for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in names if name.parts[0] == "src"} == {
        path for path in in_repository if "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def test_the_wheel_holds_the_package_its_data_and_the_licence_and_is_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"manyway"}
    needed = {
        *("py.typed", "__init__.pyi", "training/splits.json", "sampling/embedded/glyphs.safetensors"),
        *("sampling/embedded/glyphs-val.safetensors", "bench/suites/quickstart.toml", "methods/unem/letters.json"),
        *("bench/show/templates/report.html", "bench/show/templates/report.css", "bench/show/templates/report.js"),
        *("review/static/main.js", "review/static/review.css", "review/templates/review.html"),
    }
    assert needed <= {name.removeprefix("manyway/") for name in names}
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < MEGABYTES * 2**20


def test_the_package_index_can_show_the_description(dist):
    shown = run(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()), cwd=dist)
    assert shown.count("PASSED") == 2
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        about = next(name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(about).decode()
    assert "](docs/" not in text, "a relative link leads nowhere on the package index"
    assert "](https://github.com/manyway/manyway/blob/main/docs/" in text


def test_the_installed_package_says_that_it_works(python, tmp_path):
    where = run(python, "-c", "import manyway; print(manyway.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(python.parents[1])
    version = run(python.with_name("manyway"), "--version", cwd=tmp_path).split()[1]
    report = json.loads(run(python.with_name("manyway"), "doctor", "--json", cwd=tmp_path))
    assert (report["manyway"], report["problems"], report["self_test"]["correct"]) == (version, [], 75)
    assert report["extras"]["plot"].startswith("without "), "the environment is not clean"


def test_label_writes_the_labels_of_own_files(python, tmp_path):
    (tmp_path / "examples.csv").write_text(
        "label,f0,f1\nant,0,0.1\nant,0.2,0\nbee,5,5.1\nbee,5.2,5\nfly,0,5\nfly,0.1,5\n"
    )
    (tmp_path / "items.csv").write_text("item,f0,f1\na.jpg,0.1,0.1\nb.jpg,5.1,4.9\nc.jpg,0.0,0.2\nd.jpg,4.9,5.2\n")
    out = run(python.with_name("manyway"), "label", "examples.csv", "items.csv", "-o", "labels.csv", cwd=tmp_path)
    assert "2 of 3 classes found in 4 items" in out
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["item"], row["label"]) for row in rows] == [
        *(("a.jpg", "ant"), ("b.jpg", "bee"), ("c.jpg", "ant"), ("d.jpg", "bee")),
    ]


@pytest.mark.parametrize("items", ["items.xlsx", "items.csv"])
def test_the_hint_of_a_missing_extra_installs_it_and_keeps_torch(items, python, tmp_path):
    (tmp_path / "examples.csv").write_text(
        "text,label\nwhere is my card,card\nmy card is lost,card\nwill it rain,weather\nis it cold,weather\n"
    )
    (tmp_path / "items.csv").write_text("text\ncard is gone\nis it sunny\n")
    (tmp_path / "items.xlsx").write_bytes(b"PK")  # no table, which only openpyxl can tell
    words = [python.with_name("manyway"), "label", "examples.csv", items]
    own = {**os.environ, "PYTHONPATH": "", "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    said = subprocess.run(words, cwd=tmp_path, env=own, capture_output=True, text=True).stderr
    hint = re.search(r'pip install torch==\S+ "manyway\[\w+\]"', said)
    assert hint, said
    before = run(python, "-m", "pip", "freeze", cwd=tmp_path).splitlines()
    subprocess.run(hint.group(), shell=True, check=True, cwd=tmp_path, env=own)
    after = run(python, "-m", "pip", "freeze", cwd=tmp_path).splitlines()
    assert set(before) <= set(after), "a package was replaced"
    again = subprocess.run(words, cwd=tmp_path, env=own, capture_output=True, text=True)
    assert again.returncode == 0 or "cannot be read as an Excel file" in again.stderr


@pytest.fixture(scope="module")
def as_in_readme(wheel, tmp_path_factory) -> Path:
    """The interpreter of a fresh environment with exactly the extras that the README installs."""
    folder = tmp_path_factory.mktemp("readme")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    found = folder / "bin" / "python"
    wanted = f"{wheel}[{pages.extras_of_readme()}]"
    run(found, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wanted, cwd=folder)
    return found


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_every_command_and_example_of_the_first_pages_runs_after_the_readme_install(page, as_in_readme, tmp_path):
    pages.make_material(tmp_path, page)
    program = as_in_readme.with_name("manyway")
    failed = [pages.try_command(program, command, tmp_path) for command in pages.commands(page)]
    assert [what for what in failed if what] == []
    for code in pages.blocks(page.read_text(encoding="utf-8"), "python"):
        (tmp_path / "example.py").write_text(code, encoding="utf-8")
        run(as_in_readme, "example.py", cwd=tmp_path)


def test_the_quickstart_prints_its_table_and_draws_its_plot(with_extras, tmp_path):
    out = run(with_extras.with_name("manyway"), "bench", "quickstart", cwd=tmp_path)
    assert "Evidence" in out
    assert list(tmp_path.rglob("*.png"))


def test_the_doctests_of_the_installed_package_pass(with_extras, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # no settings of a folder above
    out = run(
        *(with_extras, "-m", "pytest", "-q", "--doctest-modules", "--pyargs", "manyway"),
        *("--ignore-glob=*__main__.py", "--doctest-continue-on-failure", "-p", "no:cacheprovider"),
        *("-o", "doctest_optionflags=NORMALIZE_WHITESPACE"),
        cwd=tmp_path,
    )
    assert int(out.split(" passed")[0].split()[-1]) > 100
