"""Feed damaged files to the readers and to ``manyway label``, and count what must never happen.

    python -m benchmarks.fuzz --inputs 100000 --seed 0
    python -m benchmarks.fuzz --minutes 15 --keep found/

Valid files of every format are mutated: bytes are flipped, cut, repeated and spliced, and text, JSON headers and
archive members are changed in ways that keep the file readable. A reader must return a value or raise ``InputError``;
the command must end with exit code 0 or 2 and leave its inputs alone. Anything else is counted: unexpected exceptions,
inputs that take more than 10 seconds, and processes that grow by more than 1 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from benchmarks.measure import show
from manyway.errors import InputError

SECONDS, GIGABYTE = 10, 1 << 30
OUTCOMES = ("read", "refused", "unexpected", "hang", "memory")
TOKENS = [
    b"", b"nan", b"inf", b"-inf", b"1e999", b"1e39", b"-0", b"9" * 40, b"1_0", b"0x1f", b"None", b"null", b"true",
    b"label", b"item", b"id", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b'"', b'""', b"'", b",", b";", b"\t", b"|", b"\n",
    b"\r", b"\r\n", "\u2028".encode(), b"\xff", b"\xc3\x28", b"[", b"]" * 50, b"{", b"}", b":", b"-1", b"0", b"1",
    b" ", b"sep=;", b"[/b]", b"features", b"labels", b"class_names", b"F32", b"I64", b"BF16", b"<f8", b">f4", b"|O",
    b"<U3", b"shape", b"A" * 3000, *(struct.pack("<q", n) for n in (-1, 127, 2**31 - 1, 2**32 - 1, 2**63 - 1)),
]  # fmt: skip
VALUES = [None, 3, -1, 2**40, 1.5, "x", "", [], {}, [[]], {"a": 1}, True, "F32", "I64", [0, 8], [6, 3], "[]", "{}"]
T = TypeVar("T")


def seeds() -> dict[str, list[bytes]]:
    """Valid files of every format: ending -> contents. A text of an encoder has the ending ``text.csv`` and so on."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save

    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    y, numbers = np.array(["ant", "bee", "cat"] * 2), np.array([0, 1, 2] * 2)
    rows = [",".join([f"photo {i}", *map(str, row), label]) for i, (row, label) in enumerate(zip(x, y, strict=True))]
    table = "\n".join(["item,f0,f1,f2,label", *rows, ""])
    objects = [{**{f"f{i}": v for i, v in enumerate(row)}, "label": n} for row, n in zip(x.tolist(), y, strict=True)]
    lists = [{"id": i, "v": row, "label": n} for i, (row, n) in enumerate(zip(x.tolist(), y, strict=True))]
    header = {"manyway-features-1": json.dumps({"class_names": ["ant", "bee", "cat"], "meta": {"encoder": "x"}})}
    columns = pa.table({f"f{i}": x[:, i] for i in range(3)} | {"label": y, "__index_level_0__": numbers})
    texts = 'text,label\n"hello, you",greet\n"pay\nmy bill",pay\nbye,greet\n'
    named = {"labels": numbers, "class_names": ["ant", "bee", "cat"], "base_mean": x[0]}
    return {
        ".csv": [
            table.encode(),
            table.replace(",", ";").replace(".", ",").encode("utf-8-sig"),
            table.encode("utf-16"),
            "\n".join(",".join(map(str, row)) for row in x).encode(),
        ],
        ".tsv": [table.replace(",", "\t").encode()],
        ".jsonl": ["".join(json.dumps(one) + "\n" for one in found).encode() for found in (objects, lists)],
        ".npz": [_bytes(np.savez, features=x, labels=y, items=y), _bytes(np.savez_compressed, features=x, **named)],
        ".npy": [_bytes(np.save, arr=array) for array in (x, x.astype(">f8"), numbers, y)],
        ".safetensors": [save({"features": x, "labels": numbers, "base_mean": x[0]}, header), save({"features": x})],
        ".parquet": [
            _bytes(lambda file: pq.write_table(columns, file)),
            _bytes(lambda file: pq.write_table(pa.table({"v": list(x), "label": numbers}), file, compression="none")),
        ],
        ".txt": ["\n".join(y).encode()],
        "text.csv": [texts.encode(), texts.replace(",", ";").encode()],
        "text.jsonl": [b'{"text": "hello", "intent": "greet"}\n{"text": "pay", "intent": "pay"}\n'],
        "text.txt": [b"hello\n\nbye\n"],
    }


def _bytes(write: Any, **arrays: Any) -> bytes:
    file = io.BytesIO()
    write(file, **arrays)
    return file.getvalue()


class Chance:
    """Random choices."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def below(self, n: int) -> int:
        return int(self.rng.integers(max(1, n)))

    def one(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def times(self) -> range:
        return range(int(self.rng.geometric(0.6)))


def mutate(data: bytes, kind: str, chance: Chance, others: list[bytes]) -> bytes:
    """A damaged copy: of the bytes, or of the parts of a container that is then put together again."""
    ways = {".npz": _mutate_archive, ".safetensors": _mutate_header}
    ways |= dict.fromkeys((".csv", ".tsv", ".jsonl", ".txt"), _mutate_text)
    way = ways.get(kind.removeprefix("text"))
    if way is not None and chance.below(2):
        with contextlib.suppress(Exception):
            return way(data, chance)
    return _mutate_bytes(data, chance, others)


def _mutate_bytes(data: bytes, chance: Chance, others: Sequence[bytes] = (b"x",)) -> bytes:
    """Replace stretches: by nothing, noise, a token, a number, themselves repeated, or a part of another file."""
    out = bytearray(data)
    for _ in chance.times():
        at = chance.below(len(out) + 1)
        end = chance.one([at, at + 1, at + int(chance.rng.geometric(0.05)), len(out)])
        other = chance.one(others)
        flipped = bytes(byte ^ 1 << chance.below(8) for byte in out[at : at + 1])
        pieces = [b"", chance.rng.bytes(1 + chance.below(8)), chance.one(TOKENS), flipped, out[at:end] * 3]
        out[at:end] = chance.one([*pieces, other[chance.below(len(other)) :]])
    return bytes(out[: 1 << 20])


def _mutate_text(data: bytes, chance: Chance) -> bytes:
    """Change cells and lines: the file stays a table of sorts."""
    lines = data.split(b"\n")
    for _ in chance.times():
        at, other, delimiter = chance.below(len(lines)), chance.below(len(lines)), chance.one([b",", b";", b"\t", b":"])
        cells = lines[at].split(delimiter)
        cell, token = chance.below(len(cells)), chance.one(TOKENS)
        if chance.below(3) == 0:
            lines[at:at] = [lines[other]]
            continue
        changed = [[token], [cells[cell] + token], [cells[cell]] * 2, [], cells[::-1]]
        cells[cell : cell + 1] = chance.one(changed)
        lines[at] = delimiter.join(cells)
    return b"\n".join(lines)


def _mutate_archive(data: bytes, chance: Chance) -> bytes:
    """Change one array of an archive and give it a valid checksum again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, other = chance.one(list(members)), chance.one(list(members))
    members[name] = chance.one([members[other], *(_mutate_bytes(members[name], chance) for _ in range(3))])
    if chance.below(5) == 0:
        del members[name]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", chance.one([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return out.getvalue()


def _mutate_header(data: bytes, chance: Chance) -> bytes:
    """Change the JSON header of a safetensors file and write its length anew."""
    length = struct.unpack("<Q", data[:8])[0]

    def change(node: Any) -> Any:
        if isinstance(node, dict | list) and node and chance.below(4):
            chosen = chance.one(list(node) if isinstance(node, dict) else range(len(node)))
            items = node.items() if isinstance(node, dict) else enumerate(node)
            changed = {key: change(value) if key == chosen else value for key, value in items}
            return changed if isinstance(node, dict) else list(changed.values())
        if isinstance(node, str) and chance.below(2):
            return _mutate_bytes(node.encode(), chance).decode("utf-8", "replace")
        return chance.one(VALUES)

    text = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def work(seed: int, inputs: int, deadline: float, keep: Path | None) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """What one process does: how each kind of input ended, and what must not happen."""
    import pyarrow
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pyarrow.set_cpu_count(1)
    signal.signal(signal.SIGALRM, _alarm)
    chance, corpus = Chance(seed), seeds()
    others = [data for found in corpus.values() for data in found]
    counts: Counter[tuple[str, str]] = Counter()
    problems: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as made:
        folder = Path(made)
        (folder / "good.csv").write_bytes(corpus[".csv"][0])
        np.savez(folder / "good.npz", features=np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32))
        for n in range(inputs):
            if time.time() > deadline:
                break
            kind = chance.one(list(corpus))
            data = mutate(chance.one(corpus[kind]), kind, chance, others)
            path = folder / f"input{kind.removeprefix('text')}"
            path.write_bytes(data)
            outcome, problem = attempt(kind, path, chance, folder)
            counts[kind, outcome] += 1
            if outcome not in ("read", "refused"):
                problems[f"{kind}: {problem or outcome}"] += 1
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{outcome}-{n}-{os.getpid()}{path.suffix}").write_bytes(data)
    return counts, problems


def _alarm(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def attempt(kind: str, path: Path, chance: Chance, folder: Path) -> tuple[str, str]:
    """How a reader or the command ends on a file, and what was unexpected."""
    before, problem = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, ""
    signal.alarm(SECONDS)
    try:
        read(kind, path, chance, folder)
        outcome = "read"
    except InputError:
        outcome = "refused"
    except TimeoutError:
        outcome = "hang"
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "manyway" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        outcome, problem = "unexpected", f"{type(error).__name__} at {where}: {str(error)[:120]}"
    finally:
        signal.alarm(0)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return ("memory", "") if grown > GIGABYTE else (outcome, problem)


def read(kind: str, path: Path, chance: Chance, folder: Path) -> None:
    """Read a file as one of those things that it could be."""
    from manyway.encoding.datasets.texts import open_texts
    from manyway.files.items import read_items, read_labels
    from manyway.sampling.features import FeatureSet

    draw = chance.below(100)
    if kind.startswith("text"):
        assert len(open_texts(path)) > 0
    elif kind == ".txt" or (kind in (".npy", ".csv") and draw < 20):
        assert isinstance(read_labels(path), tuple)
    elif draw < 35:
        features = FeatureSet.load(path)
        assert len(features.features) == len(features.labels)
    elif draw < 38:
        pair = [path, folder / "good.npz"] if chance.below(2) else [folder / "good.csv", path]
        label(pair, folder / "out.csv", path)
    else:
        items = read_items(path)
        assert bool(np.isfinite(items.rows(0, len(items)).numpy()).all())


def label(pair: Sequence[Path], output: Path, damaged: Path) -> None:
    """The command, with the damaged file as pile or as examples."""
    from manyway.cli import main

    output.unlink(missing_ok=True)
    content, said = damaged.read_bytes(), io.StringIO()
    sys.argv = ["manyway", "label", *map(str, pair), "-o", str(output)]
    os.environ["MANYWAY_DEBUG"] = "1"
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as stop:
            if stop.code not in (0, None, 2):
                raise
    assert damaged.read_bytes() == content, "an input was changed"
    if output.exists():
        with output.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        # Only the probabilities: an item or a class may well be called nan.
        found = [row[name] for row in rows for name in row if name.startswith("probability") and row[name]]
        assert all(0 <= float(value) <= 1 for value in found), f"a probability is none: {output.read_text()[:500]}"


def main() -> None:
    """Run the fuzzer; exit code 1 if anything unexpected happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="files to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="stop after this time instead")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that cause trouble")
    options = parser.parse_args()
    start = time.time()
    deadline = start + 60 * options.minutes if options.minutes else float("inf")
    inputs = 1 << 40 if options.minutes else -(-options.inputs // options.jobs)
    seeds_of = [options.seed * 1000 + job for job in range(options.jobs)]
    done = Parallel(n_jobs=options.jobs)(delayed(work)(seed, inputs, deadline, options.keep) for seed in seeds_of)
    counts: Counter[tuple[str, str]] = sum((counts for counts, _ in done), Counter())
    problems: Counter[str] = sum((problems for _, problems in done), Counter())
    kinds = sorted({kind for kind, _ in counts})
    rows = [[kind, *(counts[kind, outcome] for outcome in OUTCOMES)] for kind in kinds]
    total = ["all", *(sum(counts[kind, outcome] for kind in kinds) for outcome in OUTCOMES)]
    show(f"{sum(counts.values()):,} damaged files in {time.time() - start:.0f} s", ["input", *OUTCOMES], [*rows, total])
    for problem, count in problems.most_common(40):
        print(f"{count:6} × {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
