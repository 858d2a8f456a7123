"""Imports go one way, and a solver stays a plain function of tensors."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import manyway

ROOT = Path(manyway.__file__).parent
# What each room may import of manyway. A room that is not listed may not be imported by any of these.
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "tasks": {"errors"},
    "ops": {"tasks", "errors", "kernels"},
    "transforms": {"tasks", "ops", "errors"},
    "kernels": set(),
    "methods": {"tasks", "ops", "transforms", "errors", "kernels"},
    "features": {"tasks", "errors", "files"},
    "draws": set(),
    "threads": set(),
    "sampling": {"features", "tasks", "errors", "draws", "kernels", "threads"},
    "evaluation": {"sampling", "features", "methods", "tasks", "errors", "threads"},
    "estimators": {"methods", "tasks", "errors"},
}
NOT_IN_A_SOLVER = {"numpy", "sklearn", "scipy", "logging", "tqdm", "rich", "matplotlib", "pandas"}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms_of(path: Path) -> set[str]:
    """The rooms of manyway that a file imports."""
    named = {name.split(".")[1] for name in imports(path) if name.startswith("manyway.")}
    return {room for room in named if (ROOT / room).is_dir() or (ROOT / f"{room}.py").exists()}


def files_of(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / f"{room}.py"]


def violations() -> list[str]:
    wrong = []
    for room, allowed in MAY_IMPORT.items():
        for path in files_of(room) if (ROOT / room).exists() or (ROOT / f"{room}.py").exists() else []:
            wrong += [f"{path.name} imports {other}" for other in rooms_of(path) - allowed - {room}]
            if room == "methods":
                outside = {name.split(".")[0] for name in imports(path)} & NOT_IN_A_SOLVER
                wrong += [f"{path.name} imports {name}" for name in outside]
    return wrong


def test_imports_go_one_way():
    assert violations() == []


def test_the_rule_notices_a_method_that_imports_bench_or_scikit_learn(tmp_path, monkeypatch):
    (tmp_path / "methods").mkdir()
    (tmp_path / "bench").mkdir()
    (tmp_path / "methods" / "bad.py").write_text(
        "def f():\n    from manyway.bench import run\n    import sklearn.svm\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert violations() == ["bad.py imports bench", "bad.py imports sklearn"]


def test_help_is_quick_because_heavy_libraries_are_imported_inside_commands():
    code = "import sys, manyway.cli; print([m for m in ('torch', 'matplotlib', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
