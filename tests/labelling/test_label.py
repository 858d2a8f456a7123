"""`manyway label` as a person uses it: files in, a table out, one sentence when something is wrong."""

from __future__ import annotations

import csv
import json
import pickle
import re

import numpy as np
import pytest
import torch
from problems import QUICK_EVIDENCE, make_features
from safetensors.numpy import save_file

from manyway import DEFAULT_METHOD, PADDLE, Evidence, FeatureSet
from manyway.cli import main


@pytest.fixture(scope="module")
def problem():
    """Eight named classes, five examples each; 50 items of two of them."""
    features = make_features(n_classes=8, per_class=30, n_features=24, seed=3)
    order = features.labels.argsort(stable=True).view(8, 30)
    names = np.array([f"bird {k}" for k in range(8)])
    support, query = order[:, :5].flatten(), order[[2, 5], 5:].flatten()
    return {
        "x": features.features[support].numpy(),
        "y": names[features.labels[support].numpy()],
        "query": features.features[query].numpy(),
        "truth": names[features.labels[query].numpy()],
    }


def run(monkeypatch, capsys, *arguments):
    """Exit code, what was printed, and what was complained about."""
    monkeypatch.setattr("sys.argv", ["manyway", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def write(folder, problem, kind):
    x, y, query = problem["x"], problem["y"], problem["query"]
    support, items = folder / f"support.{kind}", folder / f"query.{kind}"
    columns = [f"f{i}" for i in range(x.shape[1])]
    if kind == "npz":
        np.savez(support, features=x, labels=y)
        np.savez(items, features=query)
    elif kind == "npy":
        np.save(support, x)
        np.save(items, query)
        (folder / "labels.txt").write_text("\n".join(y))
    elif kind == "safetensors":
        names, numbers = np.unique(y, return_inverse=True)
        FeatureSet(x, numbers, names.tolist()).save(support)
        save_file({"features": query}, items)
    elif kind == "csv":
        for path, extra, rows in (
            (support, {"label": y}, x),
            (items, {"item": [f"photo {i}" for i in range(50)]}, query),
        ):
            with path.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow([*columns, *extra])
                writer.writerows(
                    [*row, *more] for row, more in zip(rows, zip(*extra.values(), strict=True), strict=True)
                )
    else:
        pd = pytest.importorskip("pandas")
        pd.DataFrame(x, columns=columns).assign(label=y).to_parquet(support)
        pd.DataFrame(query, columns=columns).to_parquet(items)
    return support, items


@pytest.fixture(scope="module")
def answers(problem):
    """Of quick evidence."""
    return Evidence(**QUICK_EVIDENCE, rehearse=False).fit(problem["x"], problem["y"]).infer(problem["query"])


@pytest.mark.usefixtures("quick_evidence")
@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors", "csv", "parquet"])
def test_every_format_gives_the_same_table(kind, problem, answers, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, kind)
    more = ["--labels", tmp_path / "labels.txt"] if kind == "npy" else []
    code, out, _ = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "out.csv", *more)
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    answer = ["label", "probability", "label_2", "probability_2"]
    table = kind in ("csv", "parquet")  # it comes back whole
    assert list(rows[0])[-5:] == ([*answer, "note"] if table else ["item", *answer])
    assert [row["label"] for row in rows] == answers.labels.tolist()
    top = np.sort(answers.probabilities, axis=1)
    np.testing.assert_allclose([float(row["probability"]) for row in rows], top[:, -1], atol=1e-4)
    np.testing.assert_allclose([float(row["probability_2"]) for row in rows], top[:, -2], atol=1e-4)
    assert rows[7].get("item") == {"csv": "photo 7", "parquet": None}.get(kind, "7")
    assert "of 8 classes found in 50 items" in out
    assert "bird 2" in out


def test_options_of_the_table(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    output = tmp_path / "new folder" / "out.csv"
    options = ["--method", "simpleshot", "--top", "3", "--min-confidence", "0.5"]
    code, out, _ = run(monkeypatch, capsys, "label", support, query, "-o", output, *options)
    assert code == 0
    rows = list(csv.DictReader(output.open()))
    assert list(rows[0])[-2:] == ["label_3", "probability_3"]
    for row in rows:
        assert (row["label"] == "") == (float(row["probability"]) < 0.5)
    below = sum(row["label"] == "" for row in rows)
    assert f"{below} items are below 0.5" in out


def test_evidence_is_the_default_and_paddle_one_flag_away(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    assert DEFAULT_METHOD == "evidence"
    for options, estimator in (([], Evidence()), (["--method", "paddle", "--overwrite"], PADDLE())):
        code, out, _ = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "out.csv", *options)
        assert code == 0
        rows = list(csv.DictReader((tmp_path / "out.csv").open()))
        expected = estimator.fit(problem["x"], problem["y"])
        assert [row["label"] for row in rows] == expected.predict(problem["query"]).tolist()
        assert ("estimated to occur" in out) == (not options)


def test_the_summary_says_how_many_classes_occur_and_which(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    _, out, _ = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "out.csv")
    result = Evidence().fit(problem["x"], problem["y"]).infer(problem["query"])
    low, high = result.n_present_interval
    number = str(low) if low == high else f"{low} to {high}"
    assert f"; {number} are estimated to occur" in out.splitlines()[0]
    assert "is present" in out.splitlines()[1]
    for name in ("bird 2", "bird 5"):
        line = next(line for line in out.splitlines() if name in line)
        assert line.split()[-1] in (">99%", "100%")


@pytest.mark.parametrize("in_blocks", [False, True])
def test_the_summary_names_examples_that_look_mislabelled(in_blocks, problem, tmp_path, monkeypatch, capsys):
    labels = problem["y"].copy()
    labels[12] = "bird 7"  # it is a bird 2
    support, query = write(tmp_path, problem | {"y": labels}, "csv")
    if in_blocks:
        in_small_blocks(monkeypatch)
    _, out, _ = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "out.csv", "--json")
    (suspect,) = json.loads(out)["summary"]["suspects"]
    assert (suspect["item"], suspect["label"], suspect["looks_like"]) == ("12", "bird 7", "bird 2")
    assert suspect["probability"] > 0.5
    _, out, _ = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "again.csv")
    assert "1 example looks mislabelled and counts less: 12 (bird 7) looks like bird 2." in " ".join(out.split())


@pytest.mark.parametrize("method", ["evidence", "paddle"])
@pytest.mark.parametrize(
    ("shots", "n_items"),
    [
        ([5] * 8, 1),  # a pile of one
        ([5] * 8, 3),
        ([1] * 8, 50),  # one example a class
        ([1] * 8, 1),
        ([1, 1, 1, 5, 2, 5, 1, 3], 50),  # classes of very different size
    ],
)
def test_small_piles_and_scarce_examples(method, shots, n_items, problem, tmp_path, monkeypatch, capsys):
    rows = np.concatenate([np.arange(5 * k, 5 * k + n) for k, n in enumerate(shots)])
    scarce = {"x": problem["x"][rows], "y": problem["y"][rows], "query": problem["query"][::-1][:n_items].copy()}
    support, query = write(tmp_path, scarce, "npz")
    options = ["-o", tmp_path / "out.csv", "--method", method]
    code, out, err = run(monkeypatch, capsys, "label", support, query, *options)
    assert (code, "one example" in err) == (0, max(shots) == 1)
    found = [row["label"] for row in csv.DictReader((tmp_path / "out.csv").open())]
    if method == "evidence":
        assert np.mean(np.array(found) == problem["truth"][::-1][:n_items]) >= 0.9
    assert f"found in {n_items} item" in out


@pytest.mark.parametrize("method", ["evidence", "paddle", "soft-kmeans", "simpleshot"])
def test_large_inputs_are_labelled_in_blocks_with_the_same_result(method, problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    ends = []
    for prepare in (lambda patch: None, in_small_blocks):
        prepare(monkeypatch)
        options = ["-o", tmp_path / "out.csv", "--overwrite", "--method", method]
        _, summary, _ = run(monkeypatch, capsys, "label", support, query, *options)
        ends.append((summary, list(csv.DictReader((tmp_path / "out.csv").open()))))
    (summary, whole), (summary_of_blocks, blocks) = ends
    assert summary_of_blocks == summary
    assert [row["label"] for row in blocks] == [row["label"] for row in whole]
    difference = [float(a["probability"]) - float(b["probability"]) for a, b in zip(whole, blocks, strict=True)]
    assert np.abs(difference).max() < 2e-4


def _changed(array, row, value):
    changed = array.copy()
    changed[row] = value
    return changed


EXTREMES = {
    "tiny": lambda x, q: (x * np.float32(1e-30), q * np.float32(1e-30)),
    "subnormal": lambda x, q: (x * np.float32(1e-40), q * np.float32(1e-40)),
    "huge": lambda x, q: (x * np.float32(1e30), q * np.float32(1e30)),
    "huge in double precision": lambda x, q: (x.astype(float) * 1e200, q.astype(float) * 1e200),
    "huge item": lambda x, q: (x, _changed(q, 30, 1e30)),
    "huge example": lambda x, q: (_changed(x, 0, 1e25), q),
    "examples that are all alike": lambda x, q: (np.ones_like(x), q),
    "items that are all alike": lambda x, q: (x, np.repeat(q[:1], len(q), axis=0)),
}


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((kind, "evidence") for kind in EXTREMES),
        *zip(EXTREMES, ["paddle", "simpleshot", "soft-kmeans"] * 3, strict=False),
    ],
)
def test_extreme_features_end_in_blocks_as_in_memory(kind, method, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("manyway.labelling.label._FOR_ONE_SUPPORT", {"likelihood": "auto", "adapt": False})
    ends = []
    x, query = EXTREMES[kind](problem["x"], problem["query"])
    np.savez(tmp_path / "support.npz", features=x, labels=problem["y"])
    np.savez(tmp_path / "query.npz", features=query)
    paths = tmp_path / "support.npz", tmp_path / "query.npz"
    for name in ("whole", "blocks"):
        output = tmp_path / f"{name}.csv"
        code, _, err = run(monkeypatch, capsys, "label", *paths, "-o", output, "--method", method)
        labels = [row["label"] for row in csv.DictReader(output.open())] if output.exists() else None
        ends.append((code, err, labels))
        in_small_blocks(monkeypatch)
    assert ends[0] == ends[1]
    if kind in ("huge item", "huge example", "examples that are all alike"):
        assert ends[0][0] == 2
    elif method == "evidence" and "alike" not in kind:
        assert np.mean(np.array(ends[0][2]) == problem["truth"]) >= 0.9
    assert ("row 30" in ends[0][1]) == (kind == "huge item")
    assert ("note: all items" in ends[0][1]) == (kind == "items that are all alike")


@pytest.mark.parametrize(
    ("options", "words"), [((), "interrupted; finished results are kept."), (("--no-cache",), "interrupted.")]
)
def test_an_interrupt_is_one_sentence_and_no_table(problem, tmp_path, monkeypatch, capsys, options, words):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    support, query = write(tmp_path, problem, "npz")
    monkeypatch.setattr("manyway.labelling.solve_batch", interrupt)
    code, _, err = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "out.csv", *options)
    assert code == 130
    assert err.endswith(f"manyway: {words}\n")
    assert not (tmp_path / "out.csv").exists()


def test_a_method_that_cannot_work_in_blocks_says_which_can(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    monkeypatch.setattr("manyway.labelling.batch.AT_MOST_BYTES", 100)
    code, _, err = run(monkeypatch, capsys, "label", support, query, "--method", "tim", "-o", tmp_path / "out.csv")
    assert code == 2
    assert "paddle or soft-kmeans or evidence" in err


def make_bad(folder, problem, what):
    """Files with one thing wrong, and the words the complaint must have."""
    x, y, query = problem["x"].copy(), problem["y"].copy(), problem["query"].copy()
    support, items, options = folder / "support.npz", folder / "query.npz", []
    if what == "nan":
        query[[3, 9], 1] = np.nan
        words = "query.npz has NaN or infinite features in rows 3, 9"
    elif what == "infinite":
        x[4, 0] = np.inf
        words = "support.npz has NaN or infinite features in row 4"
    elif what == "dimensions":
        query = query[:, :-1]
        words = "24 features and the items 23"
    elif what == "one class":
        y[:] = "bird 0"
        words = "All labelled examples are of class 'bird 0'"
    elif what == "empty query":
        query = query[:0]
        words = "query.npz has no rows"
    elif what == "unknown method":
        options = ["--method", "padle"]
        words = "There is no method 'padle'; did you mean 'paddle'?"
    elif what == "labels of another length":
        y = y[:-1]
        words = "40 rows of features and 39 labels"
    elif what == "wrong dtype":
        query = query.astype(complex)
        words = "they must be real numbers"
    elif what == "device":
        options = ["--device", "quantum"]
        words = "Device 'quantum' cannot be used"
    elif what == "one axis":
        query = query[:, 0]
        words = "two axes"
    else:
        words = ""
    np.savez(support, features=x, labels=y)
    np.savez(items, features=query)
    if what == "no labels":
        np.savez(support, features=x)
        words = "have no labels"
    elif what == "pickled file":
        np.savez(items, features=np.array([{"a": 1}], dtype=object))
        words = "pickled Python objects, which are never loaded"
    elif what == "pickle renamed":
        items.write_bytes(pickle.dumps(query))
        words = "query.npz cannot be read"
    elif what == "unreadable file":
        items = folder / "query.safetensors"
        items.write_bytes(b"not a tensor")
        words = "cannot be read as safetensors"
    elif what == "missing file":
        items = folder / "nothing.npz"
        words = "There is no file"
    elif what == "unknown ending":
        items = folder / "query.ods"
        items.write_bytes(b"")
        words = "unknown ending"
    elif what == "text in a csv":
        items = folder / "query.csv"
        items.write_text("f0,f1\n1.0,gull\n1.0,2.0\n")
        words = "Column 'f1' of"
    elif what == "uneven csv":
        items = folder / "query.csv"
        items.write_text("f0,f1\n1.0,2.0\n1.0\n")
        words = "another number of cells (1) in line 3"
    return support, items, options, words


BAD = [
    "nan", "infinite", "dimensions", "one class", "empty query", "unknown method", "labels of another length",
    "wrong dtype", "device", "one axis", "no labels", "pickled file", "pickle renamed", "unreadable file",
    "missing file", "unknown ending", "text in a csv", "uneven csv",
]  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_one_sentence_and_leaves_no_file(what, problem, tmp_path, monkeypatch, capsys):
    support, query, options, words = make_bad(tmp_path, problem, what)
    output = tmp_path / "out.csv"
    output.write_text("from before")
    code, _, err = run(monkeypatch, capsys, "label", support, query, "-o", output, "--overwrite", *options)
    assert code == 2
    assert words
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert output.read_text() == "from before"
    assert not list(tmp_path.glob(".out*"))


def test_a_folder_that_cannot_be_written_to_is_one_sentence(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    (tmp_path / "file").write_text("")
    code, _, err = run(monkeypatch, capsys, "label", support, query, "-o", tmp_path / "file" / "out.csv")
    assert code == 2
    assert "Cannot write" in err


def test_blocks_and_memory_agree_to_tolerance_in_float64():
    from problems import make_tasks, piled

    from manyway import solve

    tasks = make_tasks(n_tasks=1, n_classes=6, n_query=50, shots=None)
    for scale in ("range", "l2", "cl2", "tcl2", "rcl2", "power", "white", None):
        expected = solve("paddle", tasks, scale=scale, max_iter=25).probabilities
        found = solve("paddle", piled(tasks, 8), scale=scale, max_iter=25).probabilities
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


# --- unknown items -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strangers():
    """Files of a problem with eight known classes: 40 items of two of them, and 20 of a ninth."""
    features = make_features(n_classes=9, per_class=30, n_features=24, seed=3)
    order = features.labels.argsort(stable=True).view(9, 30)
    rows = torch.cat([order[2, 5:25], order[5, 5:25], order[8, :20]])
    return features.features[order[:8, :5].flatten()].numpy(), features.features[rows].numpy()


def write_strangers(folder, strangers):
    x, query = strangers
    np.savez(folder / "examples.npz", features=x, labels=np.array([f"bird {k}" for k in range(8)]).repeat(5))
    np.savez(folder / "items.npz", features=query)
    return folder / "examples.npz", folder / "items.npz"


@pytest.mark.parametrize("in_blocks", [False, True])
def test_items_of_no_class_are_labelled_unknown_and_grouped(in_blocks, strangers, tmp_path, monkeypatch, capsys):
    if in_blocks:
        monkeypatch.setattr("manyway.labelling.batch.IN_MEMORY_BYTES", 0)
        monkeypatch.setattr("manyway.labelling.batch._BLOCK_BYTES", 4 * 32 * 25)
    files = write_strangers(tmp_path, strangers)
    code, out, _ = run(monkeypatch, capsys, "label", *files, "--open-set", "-o", tmp_path / "out.csv")
    assert code == 0
    said = " ".join(out.split())
    assert re.search(r"About (1\d|2\d) of 60 items are expected to be unknown \(\d+ to \d+\); 20 are labelled so", said)
    assert "labelled so: 20 items like" in said
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["bird 2"] * 20 + ["bird 5"] * 20 + ["unknown"] * 20
    assert [row["group"] for row in rows] == [""] * 40 + ["0"] * 20
    assert all(float(row["unknown"]) > 0.5 for row in rows[40:])
    assert all(float(row["probability"]) == float(row["unknown"]) for row in rows[40:])


@pytest.mark.parametrize("more", [[], ["--method", "paddle"]])
def test_without_open_set_every_item_is_of_a_class(more, strangers, tmp_path, monkeypatch, capsys):
    files = write_strangers(tmp_path, strangers)
    code, out, _ = run(monkeypatch, capsys, "label", *files, *more, "-o", tmp_path / "out.csv")
    assert code == 0
    assert "unknown" not in out
    assert (tmp_path / "out.csv").read_text().startswith("item,label,probability,label_2,probability_2\n")


def test_open_set_needs_a_method_that_can_and_a_free_name(strangers, tmp_path, monkeypatch, capsys):
    files = write_strangers(tmp_path, strangers)
    code, _, err = run(monkeypatch, capsys, "label", *files, "--open-set", "--method", "paddle")
    assert code == 2
    assert "paddle cannot tell that an item is unknown" in " ".join(err.split())
    x, _ = strangers
    np.savez(files[0], features=x, labels=np.array(["unknown", *(f"bird {k}" for k in range(1, 8))]).repeat(5))
    code, _, err = run(monkeypatch, capsys, "label", *files, "--open-set")
    assert code == 2
    assert "A class is called 'unknown'" in " ".join(err.split())


# --- classes by name ---------------------------------------------------------------------------------------------


def write_names(folder, problem, width=24):
    x, y = problem["x"].reshape(8, 5, -1), problem["y"].reshape(8, 5)[:, 0]
    np.savez(folder / "names.npz", features=x.mean(1)[:, :width] + 2, labels=y)
    return folder / "names.npz"


def test_classes_without_examples_are_labelled_by_their_names(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    names = write_names(tmp_path, problem)
    some = problem["y"] != "bird 2"
    np.savez(support, features=problem["x"][some], labels=problem["y"][some])
    for files in ((support, query), (query,)):
        output = tmp_path / f"{len(files)}.csv"
        code, _, err = run(monkeypatch, capsys, "label", *files, "--class-names", names, "-o", output)
        assert code == 0, err
        with output.open() as file:
            labels = [row["label"] for row in csv.DictReader(file)]
        assert np.mean(np.array(labels) == problem["truth"]) > 0.9


def in_small_blocks(monkeypatch):
    """Whatever is given is too large for memory, and read in blocks of 20 items."""
    for limit in ("IN_MEMORY_BYTES", "AT_MOST_BYTES"):
        monkeypatch.setattr(f"manyway.labelling.batch.{limit}", 0)
    monkeypatch.setattr("manyway.labelling.batch._BLOCK_BYTES", 4 * 32 * 20)


@pytest.mark.parametrize("factor", [1, 1e30])
def test_class_names_serve_large_piles_too(factor, problem, tmp_path, monkeypatch, capsys):
    large = problem | {name: problem[name] * np.float32(factor) for name in ("x", "query")}
    support, query = write(tmp_path, large, "npz")
    some = problem["y"] != "bird 2"
    np.savez(support, features=large["x"][some], labels=problem["y"][some])
    names = write_names(tmp_path, large)
    written = []
    for prepare in (lambda patch: None, in_small_blocks):
        prepare(monkeypatch)
        for files in ((support, query), (query,)):
            output = tmp_path / "out.csv"
            options = ["--class-names", names, "-o", output, "--overwrite"]
            code, out, err = run(monkeypatch, capsys, "label", *files, *options)
            assert code == 0, err
            with output.open() as file:
                rows = [(row["label"], round(float(row["probability"]), 3)) for row in csv.DictReader(file)]
            written.append((out, rows))
    assert written[:2] == written[2:]


def test_a_method_with_class_names_that_cannot_work_in_blocks_says_which_can(problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    names = write_names(tmp_path, problem)
    in_small_blocks(monkeypatch)
    code, _, err = run(monkeypatch, capsys, "label", support, query, "--class-names", names, "--method", "transclip")
    assert code == 2
    assert "cannot be labelled by transclip in blocks; choose" in " ".join(err.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("width", "The class names have 20 features and the items 24"),
        ("missing", "The class 'bird 0' of the examples is not among the class names"),
        ("twice", "The class names have 'bird 1' twice"),
        ("method", "paddle does not use class names"),
    ],
)
def test_class_names_that_do_not_fit_are_refused(change, message, problem, tmp_path, monkeypatch, capsys):
    support, query = write(tmp_path, problem, "npz")
    names = write_names(tmp_path, problem, 20 if change == "width" else 24)
    stored = dict(np.load(names))
    if change in ("missing", "twice"):
        first = "other" if change == "missing" else "bird 1"
        np.savez(names, features=stored["features"], labels=np.array([first, *stored["labels"][1:]]))
    more = ["--method", "paddle"] if change == "method" else []
    code, _, err = run(monkeypatch, capsys, "label", support, query, "--class-names", names, *more)
    assert code == 2
    assert message in " ".join(err.split())


def test_items_without_examples_and_names_are_refused(problem, tmp_path, monkeypatch, capsys):
    _, query = write(tmp_path, problem, "npz")
    code, _, err = run(monkeypatch, capsys, "label", query)
    assert code == 2
    hint = "give EXAMPLES and ITEMS, a table that has labels in some rows, or --class-names and ITEMS"
    assert hint in " ".join(err.split())
