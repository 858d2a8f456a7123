"""The rooms of the package, and the one direction of their imports: see docs/architecture.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import processes
import pytest
from mirrors import TOGETHER

import manyway

ROOT = Path(manyway.__file__).parent
# Every room with the rooms that it may import. An inner room such as "encoding.training" has a line of its own.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "core.kernels": set(),
    "core": {"errors", "core.kernels"},
    "files": {"errors", "core"},
    "sampling": {"errors", "core", "core.kernels", "files"},
    "methods": {"errors", "core", "core.kernels"},
    "evaluation": {"errors", "core", "sampling", "methods"},
    "estimators": {"errors", "core", "methods"},
    "plots": {"errors", "core", "files"},
    "labelling": {"errors", "core", "files", "methods", "estimators"},
    "examination": {"errors", "core", "methods"},
    "review": {"errors", "core", "files", "methods", "labelling"},
    "encoding.datasets": {"errors", "files", "sampling"},
    "encoding.backbones": {"errors", "files", "sampling", "encoding.datasets"},
    "encoding": {"errors", "files", "sampling", "encoding.datasets", "encoding.backbones"},
    "training": {
        "errors",
        "files",
        "sampling",
        "evaluation",
        "plots",
        "encoding",
        "encoding.datasets",
        "encoding.backbones",
    },
    "bench": {"errors", "core", "files", "sampling", "methods", "evaluation"},
    "bench.show": {"errors", "files", "sampling", "methods", "evaluation", "plots", "bench"},
    "cli": {
        "errors",
        "core",
        "core.kernels",
        "files",
        "sampling",
        "methods",
        "evaluation",
        "plots",
        "labelling",
        "examination",
        "review",
        "encoding",
        "encoding.backbones",
        "encoding.datasets",
        "training",
        "bench",
        "bench.show",
    },
    "__main__": {"cli"},
}
# Pictures, texts and training are optional: only the command line knows them.
OPTIONAL, MAY_USE_THE_OPTIONAL = {"encoding", "training"}, {"encoding", "training", "cli"}
NOT_IN_A_SOLVER = {"numpy", "sklearn", "scipy", "logging", "tqdm", "rich", "matplotlib", "pandas"}


def modules(root: Path) -> dict[str, Path]:
    """Every module below the package, as a dotted name without 'manyway.'; the package's own files are left out."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


def room_of(module: str) -> str | None:
    """The innermost listed room that a module lies in."""
    parts = module.split(".")
    names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in names if name in ROOMS), None)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All that a file says."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imported_modules(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of manyway that a file imports: a package counts only where nothing inside it is named."""
    inside = {name.removeprefix("manyway.") for name in imports(path) if name.startswith("manyway.")}
    here = {name for name in inside if name in known}
    return {name for name in here if not any(other.startswith(f"{name}.") for other in here)}


def violations(root: Path) -> list[str]:
    """What is wrong with the rooms below a package, one sentence each."""
    known = modules(root)
    wrong = [f"{name} lies in no known room" for name in known if room_of(name) is None]
    for name, path in known.items():
        room = room_of(name)
        if room is None:
            continue
        for other in sorted(imported_modules(path, known)):
            theirs = room_of(other)
            if theirs != room and theirs not in ROOMS[room]:
                wrong.append(f"{name} imports {other}")
        if room == "methods":
            outside = {imported.split(".")[0] for imported in imports(path)} & NOT_IN_A_SOLVER
            wrong += [f"{name} imports {library}" for library in sorted(outside)]
    return wrong


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A circle of a directed graph, from a name back to it; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_lies_in_a_known_room_and_imports_only_what_the_room_may():
    assert violations(ROOT) == []


def test_every_listed_room_exists():
    assert [room for room in ROOMS if room not in modules(ROOT)] == []


def test_the_rooms_have_an_order():
    assert circle(ROOMS) == []


def test_modules_do_not_import_each_other_in_circles():
    known = modules(ROOT)
    assert circle({name: imported_modules(path, known) - {name} for name, path in known.items()}) == []


def test_only_the_command_line_uses_pictures_texts_and_training():
    users = {room for room, allowed in ROOMS.items() if any(other.split(".")[0] in OPTIONAL for other in allowed)}
    assert {room.split(".")[0] for room in users} <= MAY_USE_THE_OPTIONAL


def test_the_rule_notices_an_unknown_room_a_forbidden_import_and_a_library(tmp_path):
    for folder in ("methods", "bench", "attic"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "methods" / "bad.py").write_text("def f():\n    import manyway.bench\n    import sklearn.svm\n")
    assert violations(tmp_path) == [
        "attic lies in no known room",
        "methods.bad imports bench",
        "methods.bad imports sklearn",
    ]


def test_the_rule_notices_a_circle():
    found = circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert found[0] == found[-1]
    assert set(found) == {"a", "b", "c"}
    assert circle({"a": {"b", "c"}, "b": {"c"}, "d": {"a"}}) == []


def test_no_name_in_a_package_shadows_a_module_in_it():
    shadowed = []
    for name, path in modules(ROOT).items():
        if path.name != "__init__.py":
            continue
        beside = {other.name.removesuffix(".py") for other in path.parent.iterdir() if other.name != "__pycache__"}
        stub = path.with_suffix(".pyi")
        faces = ast.parse(stub.read_text()).body if stub.exists() else []
        shadowed += [f"{name}.{a.name}" for node in faces for a in getattr(node, "names", ()) if a.name in beside]
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                names = {alias.asname or alias.name for alias in node.names} - {path.parent.name}
                shadowed += [f"{name}.{each}" for each in names & beside if node.module != f"manyway.{name}"]
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in beside:
                shadowed.append(f"{name}.{node.name}")
    assert shadowed == []


def test_public_names_are_not_modules():
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    names = {alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name for name in names if name in modules(ROOT)} == set()
    assert set(manyway.__all__) == names


HEAVY = ("torch", "matplotlib", "sklearn", "pandas", "scipy")
NOT_TO_LABEL = {"sklearn", "pandas", "scipy"}


def test_commands_that_only_read_load_no_heavy_library(tmp_path):
    commands = ["--help", "methods", "methods evidence", "bench --help", "status --results .", "table --results ."]
    assert loaded(commands, tmp_path) == {words: [] for words in commands}


@pytest.mark.slow
def test_labelling_loads_neither_scikit_learn_nor_scipy_nor_pandas(tmp_path):
    np.savez(tmp_path / "examples.npz", features=np.eye(4, dtype=np.float32).repeat(2, 0), labels=np.arange(8) // 2)
    np.save(tmp_path / "items.npy", np.eye(4, dtype=np.float32))
    code = (
        "import sys\n"
        "for name in list(sys.modules):\n"
        f"    if name.split('.')[0] in {NOT_TO_LABEL}: del sys.modules[name]  # who asks for it loads it again\n"
        "from manyway.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('loaded:', *({NOT_TO_LABEL} & set(sys.modules)))"
    )
    done = processes.run(code, "label", "examples.npz", "items.npy", "-o", "labels.csv", cwd=tmp_path)
    assert (tmp_path / "labels.csv").exists(), done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


def loaded(commands: list[str], folder: Path) -> dict[str, list[str]]:
    """The heavy libraries that are loaded when each of several commands ends, one after another in one process."""
    code = (
        "import sys\nfrom manyway.cli import main\n"
        f"for words in {commands!r}:\n"
        "    sys.argv[1:] = words.split()\n"
        "    try: main()\n    except SystemExit: pass\n"
        f"    print('loaded:', words, *(name for name in {HEAVY} if name in sys.modules), sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    lines = [line.split("|")[1:] for line in done.stdout.splitlines() if line.startswith("loaded:|")]
    assert len(lines) == len(commands), done.stdout + done.stderr
    return {words: found for words, *found in lines}


# Where "--x" is something else than an option of the command line.
NOT_FLAGS = {
    "plots/svg.py": "custom properties of CSS",
    "errors.py": "an option of pip",
}


def sentences_with_flags(root: Path) -> list[str]:
    """Every string below a package, but for the command line, in which "--" is followed by a letter."""
    found = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith("cli/") or name in NOT_FLAGS:
            continue
        strings = (node for node in nodes(path) if isinstance(node, ast.Constant))
        texts = [node for node in strings if isinstance(node.value, str) and re.search(r"--[a-zA-Z]", node.value)]
        found += [f"{name}:{node.lineno}: {node.value}" for node in texts]
    return found


def test_the_library_does_not_speak_command_line():
    """An error names the parameter of Python, in backticks; the command line turns it into its option."""
    assert sentences_with_flags(ROOT) == []


def test_a_flag_in_a_sentence_is_found(tmp_path):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "label.py").write_text('raise ValueError("use --method")')
    (tmp_path / "core.py").write_text('x = 1\nraise ValueError(f"{x} is wrong; use --method or -- well -- not")')
    assert sentences_with_flags(tmp_path) == ["core.py:2:  is wrong; use --method or -- well -- not"]


TESTS = Path(__file__).parent
OTHERS = {"benchmarks", "docs", "golden", "hostile", "package"}  # tests of no room


def test_folders_of_tests_are_rooms():
    folders = {path.relative_to(TESTS).parent for path in TESTS.rglob("test_*.py")}
    assert {folder for folder in folders if folder.parts[:1] not in {(name,) for name in OTHERS}} <= {
        path.parent.relative_to(ROOT) for path in ROOT.rglob("*.py")
    }
    rooms = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.rglob("*/*.py")}
    assert rooms <= {folder.parts[0] for folder in folders if folder.parts}


def modules_without_tests(modules_: dict[str, Path], tests: Path, together: dict[str, tuple[str, ...]]) -> list[str]:
    """What is wrong with the mirror: a module that is in no file of tests, one that is in two, a file that is gone."""
    wrong = [f"{file} does not exist" for file in together if not (tests / file).exists()]
    elsewhere = {module for named in together.values() for module in named}
    wrong += [f"{module} is no module" for module in sorted(elsewhere - modules_.keys())]
    for module, path in modules_.items():
        if path.name in ("__init__.py", "__main__.py"):
            continue
        *folders, name = module.split(".")
        own = tests.joinpath(*folders, f"test_{name.lstrip('_')}.py")
        if own.exists() == (module in elsewhere):
            wrong.append(f"{module} has {'two places' if own.exists() else 'no file'} of tests")
    return wrong


def test_every_module_has_tests_of_its_name_or_is_named_where_it_is_tested():
    assert modules_without_tests(modules(ROOT), TESTS, TOGETHER) == []


def test_a_module_without_tests_is_noticed(tmp_path):
    for name in ("alone", "own", "twice"):
        (tmp_path / f"{name}.py").touch()
    for name in ("own", "twice", "both"):
        (tmp_path / f"test_{name}.py").touch()
    found = {name: tmp_path / f"{name}.py" for name in ("alone", "own", "twice")}
    assert modules_without_tests(found, tmp_path, {"test_both.py": ("twice", "gone"), "test_no.py": ()}) == [
        "test_no.py does not exist",
        "gone is no module",
        "alone has no file of tests",
        "twice has two places of tests",
    ]


DRAWS = re.compile(
    r"torch\.(rand|randn|randint|randperm|normal|multinomial|bernoulli)|(np|numpy)\.random\.\w+|random\.\w+"
)
SEEDED = {"generator", "seed"}


def test_every_draw_of_a_test_has_a_seed():
    unseeded = []
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if DRAWS.search(text) else "")):
            if isinstance(node, ast.Call) and DRAWS.fullmatch(name := ast.unparse(node.func)):
                maker = name.endswith(("Random", "default_rng", "Generator", "PCG64", "SeedSequence"))
                named = {keyword.arg for keyword in node.keywords}
                if not (named & SEEDED or (maker and node.args)):
                    unseeded.append(f"{path.relative_to(TESTS)}:{node.lineno} {name}")
    assert unseeded == []
