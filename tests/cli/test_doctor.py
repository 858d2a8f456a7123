"""``manyway doctor`` and ``manyway --version``: what they report, and when they fail."""

from __future__ import annotations

import json
import os
from importlib import metadata

import pytest

import manyway
from manyway.cli import doctor

RIGHT = {"method": "evidence", "device": "cpu", "items": 75, "correct": 75}


@pytest.fixture
def metadata_of_package(monkeypatch):
    """Replace the requirements of the installed package, and the self-test, which has its own test."""

    def replace(*lines: str, extras: tuple[str, ...] = ()) -> None:
        about = metadata.metadata("manyway")
        for name in ("Requires-Dist", "Provides-Extra"):
            del about[name]
        for line in lines:
            about["Requires-Dist"] = line
        for extra in extras:
            about["Provides-Extra"] = extra
        monkeypatch.setattr(metadata, "metadata", lambda name: about)

    monkeypatch.setattr(doctor, "_self_test", lambda: RIGHT)
    return replace


def test_the_version_is_printed(run_in_folder):
    assert run_in_folder("--version") == (0, f"manyway {manyway.__version__}\n", "")


def test_the_report_is_json_and_the_self_test_labels_the_embedded_task(run_in_folder, monkeypatch):
    monkeypatch.setenv("MANYWAY_PLAIN", "1")
    monkeypatch.setenv("MANYWAY_TOKEN", "secret")
    monkeypatch.setenv("MANYWAY_CACHE", os.path.expanduser("~/features"))
    code, out, _ = run_in_folder("doctor", "--json")
    report = json.loads(out)
    assert (code, report["problems"]) == (0, [])
    assert report["manyway"] == manyway.__version__
    assert report["packages"]["torch"] == metadata.version("torch")
    assert report["self_test"]["correct"] == report["self_test"]["items"] == 75
    assert report["data"] == {"folder": "data", "exists": False, "found": ["glyphs"], "cache": "~/features"}
    assert report["encoders"]["checkpoint"].endswith("works offline")
    assert report["variables"]["MANYWAY_PLAIN"] == "1"
    assert "secret" not in out


def test_extras_say_what_is_missing_and_how_to_install_it(run_in_folder, metadata_of_package):
    metadata_of_package(
        "torch>=2",
        "pytest>=8; extra == 'plot'",
        "no-such-package; extra == 'images'",
        "other-missing; extra == 'dev'",
        extras=("plot", "images", "dev"),
    )
    code, out, _ = run_in_folder("doctor")
    lines = [" ".join(line.replace("│", " ").split()) for line in out.splitlines()]
    assert code == 0
    assert f"manyway[plot] pytest {metadata.version('pytest')}" in lines
    assert "manyway[images] without no-such-package" in lines
    assert sum("pip install" in line for line in lines) == 1
    assert any(line.startswith("To install all that is optional and missing: pip install") for line in lines)
    assert any(line.startswith("GPU ") and "None" not in line for line in lines)
    assert "self-test 75 of 75 labels are right, with evidence on cpu" in lines
    assert "other-missing" not in out


def test_a_required_package_that_is_missing_or_too_old_is_a_problem(run_in_folder, metadata_of_package):
    metadata_of_package("no-such-package>=2", "torch>=99")
    code, _, err = run_in_folder("doctor")
    assert code == 1
    assert "problem: no-such-package is missing: >=2 is needed." in err
    assert f"problem: torch is {metadata.version('torch')}: >=99 is needed." in err


def test_wrong_labels_and_a_broken_library_are_problems(run_in_folder, metadata_of_package, monkeypatch, tmp_path):
    def broken() -> None:
        raise OSError(f"{tmp_path}/lib is damaged")

    metadata_of_package("torch>=2")
    monkeypatch.setattr(doctor, "_self_test", lambda: {**RIGHT, "correct": 12})
    monkeypatch.setattr("manyway.encoding.encoders.installed_encoders", broken)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, out, err = run_in_folder("doctor")
    assert code == 1
    assert "12 of 75 labels are right" in out
    assert "problem: encoders: OSError: ~/lib is damaged" in err
    assert "The labels of the self-test are wrong" in err
