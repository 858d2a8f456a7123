"""Feed damaged files to the readers and to ``manyway label``, and count what must never happen.

    python -m benchmarks.fuzz --inputs 100000 --seed 0
    python -m benchmarks.fuzz --minutes 15 --keep found/
    python -m benchmarks.fuzz --atheris            # coverage-guided, where atheris is installed

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
import multiprocessing
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
from pathlib import Path

import numpy as np

SECONDS, GIGABYTE = 10, 1 << 30
TOKENS = [
    b"", b"nan", b"inf", b"-inf", b"1e999", b"1e39", b"-0", b"9" * 40, b"1_0", b"0x1f", b"None", b"null", b"true",
    b"label", b"item", b"id", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b'"', b'""', b"'", b",", b";", b"\t", b"|", b"\n",
    b"\r", b"\r\n", "\u2028".encode(), b"\xff", b"\xc3\x28", b"[", b"]" * 50, b"{", b"}", b":", b"-1", b"0", b"1",
    b" ", b"sep=;", b"[/b]", b"features", b"labels", b"class_names", b"F32", b"I64", b"BF16", b"<f8", b">f4", b"|O",
    b"<U3", b"shape", b"A" * 3000,
]  # fmt: skip
NUMBERS = [0, 1, -1, 127, 255, 256, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63)]


def seeds() -> dict[str, list[bytes]]:
    """Valid files of every format: ending -> contents. A text of an encoder has the ending ``text.csv`` and so on."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save

    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3)).astype(np.float32)
    y = np.array(["ant", "bee", "cat"] * 2)
    rows = [",".join([f"photo {i}", *map(str, row), label]) for i, (row, label) in enumerate(zip(x, y, strict=True))]
    table = "\n".join(["item,f0,f1,f2,label", *rows, ""])
    objects = [
        {"f0": float(a), "f1": float(b), "f2": float(c), "label": str(name)}
        for (a, b, c), name in zip(x, y, strict=True)
    ]
    lists = [
        {"id": i, "v": row.tolist(), "label": label} for i, (row, label) in enumerate(zip(x, y.tolist(), strict=True))
    ]
    header = {"manyway-features-1": json.dumps({"class_names": ["ant", "bee", "cat"], "meta": {"encoder": "x"}})}
    numbers = np.array([0, 1, 2] * 2)
    columns = {f"f{i}": x[:, i] for i in range(3)}
    parquet = io.BytesIO()
    pq.write_table(pa.table({**columns, "label": y, "__index_level_0__": np.arange(6)}), parquet)
    listed = io.BytesIO()
    pq.write_table(pa.table({"v": list(x), "label": numbers}), listed, compression="none")
    texts = 'text,label\n"hello, you",greet\n"pay\nmy bill",pay\nbye,greet\n'
    return {
        ".csv": [
            table.encode(),
            table.replace(",", ";").replace(".", ",").encode("utf-8-sig"),
            table.encode("utf-16"),
            "\n".join(",".join(map(str, row)) for row in x).encode(),
        ],
        ".tsv": [table.replace(",", "\t").encode()],
        ".jsonl": ["".join(json.dumps(o) + "\n" for o in rows_).encode() for rows_ in (objects, lists)],
        ".npz": [
            _npz(np.savez, features=x, labels=y, items=y),
            _npz(np.savez_compressed, features=x, labels=numbers, class_names=["ant", "bee", "cat"], base_mean=x[0]),
        ],
        ".npy": [_npy(x), _npy(x.astype(">f8")), _npy(numbers), _npy(y)],
        ".safetensors": [save({"features": x, "labels": numbers, "base_mean": x[0]}, header), save({"features": x})],
        ".parquet": [parquet.getvalue(), listed.getvalue()],
        ".txt": ["\n".join(y).encode()],
        "text.csv": [texts.encode(), texts.replace(",", ";").encode()],
        "text.jsonl": [b'{"text": "hello", "intent": "greet"}\n{"text": "pay", "intent": "pay"}\n'],
        "text.txt": [b"hello\n\nbye\n"],
    }


def _npz(save: object, **arrays: object) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)  # type: ignore[operator]
    return file.getvalue()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def mutate(data: bytes, kind: str, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """A damaged copy: of the bytes, or of the parts of a container that is then put together again."""
    if rng.random() < 0.5:
        with contextlib.suppress(Exception):
            if kind == ".npz":
                return _mutate_archive(data, rng, others)
            if kind == ".safetensors":
                return _mutate_header(data, rng)
            if kind.endswith((".csv", ".tsv", ".jsonl", ".txt")):
                return _mutate_text(data, rng)
    return _mutate_bytes(data, rng, others)


def _mutate_bytes(data: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.geometric(0.6))):
        size = len(out)
        at = int(rng.integers(size + 1))
        end = min(size, at + int(rng.geometric(0.05)))
        match int(rng.integers(9)):
            case 0 if size:
                out[at % size] ^= 1 << int(rng.integers(8))
            case 1 if size:
                out[at % size] = int(rng.integers(256))
            case 2:
                del out[at:end]
            case 3:
                out[at:at] = out[at:end] * int(rng.integers(1, 4))
            case 4:
                out[at:end] = TOKENS[int(rng.integers(len(TOKENS)))]
            case 5:
                del out[at:]
            case 6:
                other = others[int(rng.integers(len(others)))]
                cut = int(rng.integers(len(other) + 1))
                out[at:] = other[cut:]
            case 7:
                number = NUMBERS[int(rng.integers(len(NUMBERS)))]
                form = ["<i", "<q", ">i", "<h"][int(rng.integers(4))]
                packed = struct.pack(
                    form.replace("i", "I").replace("q", "Q").replace("h", "H"), number % 256 ** struct.calcsize(form)
                )
                out[at : at + len(packed)] = packed
            case _:
                out[at:at] = rng.bytes(int(rng.integers(1, 9)))
    return bytes(out[: 1 << 20])


def _mutate_text(data: bytes, rng: np.random.Generator) -> bytes:
    """Change cells and lines: the file stays a table of sorts."""
    lines = data.split(b"\n")
    for _ in range(int(rng.geometric(0.6))):
        at, other = (int(n) for n in rng.integers(len(lines), size=2))
        delimiter = [b",", b";", b"\t", b":", b'"'][int(rng.integers(5))]
        cells = lines[at].split(delimiter)
        cell = int(rng.integers(len(cells)))
        match int(rng.integers(7)):
            case 0:
                cells[cell] = TOKENS[int(rng.integers(len(TOKENS)))]
            case 1:
                cells.insert(cell, cells[int(rng.integers(len(cells)))])
            case 2:
                del cells[cell]
            case 3:
                cells[cell] += TOKENS[int(rng.integers(len(TOKENS)))]
            case 4:
                cells.reverse()
            case 5:
                lines[at], lines[other] = lines[other], lines[at]
                continue
            case _:
                lines.insert(at, lines[other])
                continue
        lines[at] = delimiter.join(cells)
    return b"\n".join(lines)


def _mutate_archive(data: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """Change one array of an archive and give it a valid checksum again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[int(rng.integers(len(members)))]
    choice = rng.random()
    if choice < 0.2:
        del members[name]
    elif choice < 0.4:
        members[name] = members[list(members)[int(rng.integers(len(members)))]]
    else:
        members[name] = _mutate_bytes(members[name], rng, others)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return out.getvalue()


def _mutate_header(data: bytes, rng: np.random.Generator) -> bytes:
    """Change the JSON header of a safetensors file and write its length anew."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    values = [
        None,
        3,
        -1,
        2**40,
        1.5,
        "x",
        "",
        [],
        {},
        [[]],
        {"a": 1},
        True,
        "F32",
        "I64",
        [0, 8],
        [6, 3],
        "[]",
        "{}",
        '{"class_names": 3}',
    ]

    def change(node: object) -> object:
        if isinstance(node, dict) and node and rng.random() < 0.8:
            key = list(node)[int(rng.integers(len(node)))]
            return {k: change(v) if k == key else v for k, v in node.items()}
        if isinstance(node, list) and node and rng.random() < 0.5:
            at = int(rng.integers(len(node)))
            return [change(v) if i == at else v for i, v in enumerate(node)]
        if isinstance(node, str) and rng.random() < 0.5:
            return _mutate_bytes(node.encode(), rng, [b"x"]).decode("utf-8", "replace")
        return values[int(rng.integers(len(values)))]

    text = json.dumps(change(header)).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


class Trial:
    """Everything that one process needs to try inputs one after the other."""

    def __init__(self, seed: int, keep: Path | None) -> None:
        import pyarrow
        import torch

        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        pyarrow.set_cpu_count(1)
        self.rng = np.random.default_rng(seed)
        self.keep = keep
        self.corpus = seeds()
        self.others = [data for found in self.corpus.values() for data in found]
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.temporary = tempfile.TemporaryDirectory(dir=memory)
        self.folder = Path(self.temporary.name)
        (self.folder / "good.csv").write_bytes(self.corpus[".csv"][0])
        np.savez(self.folder / "good.npz", features=np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32))
        self.counts: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        signal.signal(signal.SIGALRM, self._alarm)

    @staticmethod
    def _alarm(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    def step(self) -> None:
        """Try one mutated file."""
        kinds = list(self.corpus)
        kind = kinds[int(self.rng.integers(len(kinds)))]
        found = self.corpus[kind]
        self.attempt(
            kind, mutate(found[int(self.rng.integers(len(found)))], kind, self.rng, self.others), self.rng.random()
        )

    def attempt(self, kind: str, data: bytes, draw: float) -> None:
        """Try one file; count what happened."""
        from manyway.errors import InputError

        path = self.folder / f"input{kind.removeprefix('text')}"
        path.write_bytes(data)
        before = _peak()
        signal.alarm(SECONDS)
        name = f"{kind.removeprefix('text')} {'texts' if kind.startswith('text') else 'table'}"
        try:
            outcome = self._call(kind, path, draw)
        except InputError:
            outcome = "refused"
        except TimeoutError:
            outcome = "hang"
        except (Exception, SystemExit) as error:
            frame = next(
                (f for f in reversed(traceback.extract_tb(error.__traceback__)) if "manyway" in f.filename), None
            )
            where = f"{Path(frame.filename).name}:{frame.lineno}" if frame else "?"
            outcome = "unexpected"
            self.problems[f"{kind}: {type(error).__name__} at {where}: {str(error)[:120]}"] += 1
        finally:
            signal.alarm(0)
        if _peak() - before > GIGABYTE:
            outcome = "memory"
        if outcome in ("hang", "memory"):
            self.problems[f"{kind}: {outcome}"] += 1
        if outcome not in ("read", "refused") and self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / f"{outcome}-{sum(self.counts.values())}-{os.getpid()}{path.suffix}").write_bytes(data)
        self.counts[f"{name}|{outcome}"] += 1

    def _call(self, kind: str, path: Path, draw: float) -> str:
        from manyway.encoding.datasets.texts import open_texts
        from manyway.files.items import Items, read_items, read_labels
        from manyway.sampling.features import FeatureSet

        if kind.startswith("text"):
            assert len(open_texts(path)) > 0
        elif kind == ".txt" or (kind in (".npy", ".csv") and draw < 0.2):
            assert isinstance(read_labels(path), tuple)
        elif draw < 0.35:
            features = FeatureSet.load(path)
            assert len(features.features) == len(features.labels)
        elif draw < 0.38:
            self._label(path)
        else:
            items = read_items(path)
            assert isinstance(items, Items)
            assert bool(np.isfinite(items.rows(0, len(items)).numpy()).all())
        return "read"

    def _label(self, path: Path) -> None:
        """The command, with the damaged file as pile or as examples."""
        from manyway.cli import main

        output = self.folder / "out.csv"
        output.unlink(missing_ok=True)
        content = path.read_bytes()
        pair = [path, self.folder / "good.npz"] if self.rng.random() < 0.5 else [self.folder / "good.csv", path]
        sys.argv = ["manyway", "label", *map(str, pair), "-o", str(output)]
        said = io.StringIO()
        os.environ["MANYWAY_DEBUG"] = "1"
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main()
            except SystemExit as stop:
                if stop.code not in (0, None, 2):
                    raise
        assert path.read_bytes() == content, "an input was changed"
        if output.exists():
            with output.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            # Only the probabilities: an item or a class may well be called nan.
            found = [row[name] for row in rows for name in row if name.startswith("probability") and row[name]]
            assert all(0 <= float(value) <= 1 for value in found), f"a probability is none: {output.read_text()[:500]}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(seed: int, inputs: int, deadline: float, keep: Path | None) -> tuple[Counter[str], Counter[str]]:
    """What one process does."""
    trial = Trial(seed, keep)
    for _ in range(inputs):
        if time.time() > deadline:
            break
        trial.step()
    return trial.counts, trial.problems


def with_atheris(keep: Path | None, inputs: int) -> None:
    """Let atheris choose the inputs by the code that they reach."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris, or run without --atheris.")
    with atheris.instrument_imports(include=["manyway"]):
        import manyway.files.items  # noqa: F401
    trial = Trial(0, keep)
    kinds = list(trial.corpus)

    def one(data: bytes) -> None:
        if len(data) > 2:
            trial.attempt(kinds[data[0] % len(kinds)], data[2:], data[1] / 256)
            if trial.problems:
                raise RuntimeError(str(trial.problems))

    atheris.Setup([sys.argv[0], f"-runs={inputs}"], one)
    atheris.Fuzz()


def show(counts: Counter[str], problems: Counter[str], seconds: float) -> None:
    """Print a table by format."""
    outcomes = ["read", "refused", "unexpected", "hang", "memory"]
    names = sorted({key.split("|")[0] for key in counts})
    print(f"{'input':24}" + "".join(f"{outcome:>12}" for outcome in outcomes))
    for name in names:
        print(f"{name:24}" + "".join(f"{counts[f'{name}|{outcome}']:12,}" for outcome in outcomes))
    totals = [sum(counts[f"{name}|{outcome}"] for name in names) for outcome in outcomes]
    print(f"{'all':24}" + "".join(f"{total:12,}" for total in totals))
    print(f"{sum(totals):,} inputs in {seconds:.0f} s")
    for problem, count in problems.most_common(40):
        print(f"{count:6} × {problem}")


def main() -> None:
    """Run the fuzzer; exit code 1 if anything unexpected happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="files to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=None, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for inputs that cause trouble")
    parser.add_argument("--atheris", action="store_true", help="coverage-guided, with the package atheris")
    options = parser.parse_args()
    if options.atheris:
        return with_atheris(options.keep, options.inputs)
    start = time.time()
    deadline = start + 60 * options.minutes if options.minutes else float("inf")
    inputs = options.inputs if options.minutes is None else 1 << 40
    context = multiprocessing.get_context("spawn")
    jobs = [
        (options.seed * 1000 + job, -(-inputs // options.jobs), deadline, options.keep) for job in range(options.jobs)
    ]
    with context.Pool(options.jobs) as pool:
        results = pool.starmap(work, jobs)
    counts: Counter[str] = sum((counts for counts, _ in results), Counter())
    problems: Counter[str] = sum((problems for _, problems in results), Counter())
    show(counts, problems, time.time() - start)
    if problems:
        sys.exit(1)
    return None


if __name__ == "__main__":
    main()
