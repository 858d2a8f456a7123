"""``manyway doctor``."""

from __future__ import annotations

import json
import os
import platform
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import manyway
from manyway import core, evaluation, files, sampling, training
from manyway.cli.console import console, say
from manyway.cli.options import JsonOption, command
from manyway.errors import install
from manyway.methods import DEFAULT_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable

    from packaging.requirements import Requirement

FOR_DEVELOPERS = {"dev", "docs", "test"}  # extras that a user does not need
VARIABLES = [f"MANYWAY_{name}" for name in ("DATA", "CACHE", "ENGINE", "PLAIN", "DEBUG")]
VARIABLES += ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"]
EXPECTED = 70  # of the 75 labels of the self-test
_OF_ITS_OWN = {"fiftyone"}  # extras that want other versions of what the others have
_WITHOUT = "without "  # how the words for an extra begin that is not complete
_NEEDED = " is needed"  # how the words for a package end that is missing or too old


@command
def doctor(*, data: Path | None = None, as_json: JsonOption = False) -> None:
    """Show what is installed, the GPU, the encoders and the data folder, and label a small task as a self-test.

    The exit code is 1 if a required package is missing or too old, or if the
    self-test fails, and 0 otherwise. The output holds no names of people or
    machines; the home folder is written as ~.

    Example: [bold]manyway doctor --json[/bold]

    Parameters
    ----------
    as_json
        Print one JSON object, for a report of an error.
    """
    report = examine(data)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    if report["problems"]:
        raise typer.Exit(1)


def examine(data: Path | None = None) -> dict[str, Any]:
    """What ``manyway doctor`` reports, as values that JSON can hold.

    Parameters
    ----------
    data : path-like or None
        The folder of data sets; by default the one that every command uses.

    Returns
    -------
    dict
        ``problems`` holds one sentence for each thing that is broken, and is empty otherwise.
    """
    wanted, extras = _packages()
    report: dict[str, Any] = {
        "manyway": manyway.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        "memory": _memory(),
        "packages": wanted,
        "extras": extras,
        "gpu": _part(_gpu),
        "encoders": _part(lambda: import_module("manyway.encoding.encoders").installed_encoders()),
        "data": _part(_data, data),
        "self_test": _part(_self_test),
        "variables": {
            name: _without_home(os.environ[name]) for name in VARIABLES if name in os.environ
        },
    }
    problems = [f"{name} is {found}." for name, found in wanted.items() if found.endswith(_NEEDED)]
    parts = {key: part for key, part in report.items() if isinstance(part, dict)}
    problems += [f"{key}: {part['error']}" for key, part in parts.items() if "error" in part]
    if report["self_test"].get("correct", EXPECTED) < EXPECTED:
        problems.append(
            "The labels of the self-test are wrong; please report it with the output of --json."
        )
    return {**report, "problems": problems}


def _part(look: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """A part of the report; an error in it is reported instead of ending the command."""
    try:
        return look(*given)
    except Exception as error:  # a broken library raises anything
        return {
            "error": _without_home(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        }


def _packages() -> tuple[dict[str, str], dict[str, str]]:
    """The required packages and those of each extra, in words.

    They are those that the metadata of the installed package lists.
    """
    from packaging.requirements import Requirement

    about = metadata.metadata("manyway")
    listed = [Requirement(line) for line in about.get_all("Requires-Dist") or []]

    def of(extra: str) -> dict[str, str]:
        return {
            one.name: _found(one)
            for one in listed
            if one.marker is None or one.marker.evaluate({"extra": extra})
        }

    required = of("")
    optional = {}
    for extra in set(about.get_all("Provides-Extra") or []) - FOR_DEVELOPERS:
        found = {name: state for name, state in of(extra).items() if name not in required}
        lacking = ", ".join(name for name, state in found.items() if state.endswith(_NEEDED))
        has = ", ".join(f"{name} {state}" for name, state in found.items()) or "installed"
        optional[extra] = f"{_WITHOUT}{lacking}" if lacking else has
    return required, dict(sorted(optional.items()))


def _found(needed: Requirement) -> str:
    """The installed version of a package, and what is needed if that is another."""
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"missing: {needed.specifier}{_NEEDED}"
    fits = needed.specifier.contains(version, prereleases=True)
    return version if fits else f"{version}: {needed.specifier}{_NEEDED}"


def _memory() -> str:
    """The size of the memory, where the system says it."""
    try:
        return f"{round(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1)} GiB"
    except (AttributeError, ValueError, OSError):
        return "unknown"


def _gpu() -> dict[str, Any]:
    """The GPUs, and whether the fused kernels are used on the first of them."""
    import torch

    from manyway.core.kernels import fused

    found: dict[str, Any] = {
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "devices": [],
    }
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        about = torch.cuda.get_device_properties(index)
        size = round(about.total_memory / 2**30, 1)
        capability = f"{about.major}.{about.minor}"
        found["devices"].append({"name": about.name, "memory_gib": size, "capability": capability})
    found["fused_kernels"] = bool(found["devices"]) and fused(torch.empty(0, device="cuda"))
    return found


def _data(given: Path | None) -> dict[str, Any]:
    folder = files.data_root(given)
    found = [
        name
        for name, entry in training.DATASETS.items()
        if not entry.places or entry.find(folder) is not None
    ]
    place = _without_home(str(folder))
    cache = _without_home(str(files.cache_folder()))
    return {"folder": place, "exists": folder.is_dir(), "found": found, "cache": cache}


def _self_test() -> dict[str, Any]:
    """Label one task of the embedded letters, on the device that commands use by default."""
    device = core.resolve_device()
    spec = sampling.TaskSpec(shots=5, k_eff=5, n_query=75)
    result = evaluation.evaluate(
        DEFAULT_METHOD, sampling.load_glyphs(), spec, n_tasks=1, seed=0, device=device
    )
    return {
        "method": DEFAULT_METHOD,
        "device": str(device),
        "items": 75,
        "correct": int(result.correct.sum()),
    }


def _without_home(text: str) -> str:
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, part in report.items():
        if title in ("packages", "extras", "variables"):
            table.add_section()
            for name, value in part.items():
                table.add_row(f"manyway[{name}]" if title == "extras" else name, value)
            table.add_section()
        elif title in _WORDS and "error" not in part:
            name, in_words = _WORDS[title]
            table.add_row(name, in_words(part))
        elif title != "problems":
            if isinstance(part, dict):
                shown = [f"{name}: {value}" for name, value in part.items()]
            else:
                shown = [str(part)]
            table.add_row(title.replace("_", "-"), "\n".join(shown))
    console().print(table)
    for problem in report["problems"]:
        say(f"problem: {problem}", "bold red", stderr=True)
    if not report["problems"]:
        say("Everything that is required is installed and works.", "green")
    extras = report["extras"].items()
    lacking = [
        name for name, found in extras if found.startswith(_WITHOUT) and name not in _OF_ITS_OWN
    ]
    if lacking:
        say(f"To install all that is optional and missing: {install(','.join(lacking))}")


def _data_in_words(data: dict[str, Any]) -> str:
    """What there is to say about data sets and the cache."""
    if data["exists"]:
        there = f"in the folder {data['folder']}"
    else:
        there = f"(there is no folder {data['folder']})"
    return f"{', '.join(data['found'])} {there}\nfeatures are kept in {data['cache']}"


def _test_in_words(test: dict[str, Any]) -> str:
    """What there is to say about the self-test."""
    return f"{test['correct']} of {test['items']} labels are right, with {test['method']} on {test['device']}"


def _gpu_in_words(gpu: dict[str, Any]) -> str:
    """What there is to say about GPUs."""
    if not gpu["devices"]:
        if gpu["cuda"] is None:
            build = "this torch has no CUDA"
        else:
            build = "torch finds none that it can use"
        return f"none ({build}); the CPU is used, with {gpu['threads']} thread{'s' * (gpu['threads'] > 1)}"
    lines = [f"{one['name']}, {one['memory_gib']} GiB" for one in gpu["devices"]]
    if gpu["fused_kernels"]:
        kernels = "fused code is used"
    else:
        kernels = "without fused code: triton is missing or too old"
    return "\n".join([*lines, f"CUDA {gpu['cuda']}, {kernels}"])


_WORDS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "gpu": ("GPU", _gpu_in_words),
    "data": ("data", _data_in_words),
    "self_test": ("self-test", _test_in_words),
}
