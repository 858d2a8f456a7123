"""The readers called from Python, on what should not be: a value, or one InputError."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hostile.files import COLUMNS, QUERY, X, Y, columns, known, pile, vectors, write, write_parquet

from manyway import Evidence, EvidenceFromScores, FeatureSet, InputError, Tasks, examine
from manyway.encoding.backbones.checkpoint import read_checkpoint
from manyway.encoding.datasets.sources import UNLABELLED, list_files
from manyway.encoding.datasets.texts import open_texts
from manyway.files.items import Items, match_columns, read_items, read_labels

NUMBERS = np.repeat(np.arange(6), 3)
NAMES = [f"c{k}" for k in range(6)]


def written(folder, name, content):
    return write(folder / name, content)


FEATURE_FILES = {
    "csv": ("a.csv", known()),
    "semicolons": ("a.csv", known(decimal=",", sep=";")),
    "tsv": ("a.TSV", known(sep="\t")),
    "parquet": ("a.parquet", columns(X, label=Y)),
    "parquet with lists": ("a.parquet", {"v": list(X), "label": Y}),
    "parquet with lists of doubles": ("a.parquet", {"v": list(X.astype(float)), "label": Y}),
    "parquet with lists in groups": (
        "a.parquet",
        lambda path: write_parquet(path, {"v": list(X), "label": Y}, row_group_size=5),
    ),
    "jsonl": ("a.jsonl", vectors(X, label=Y.tolist())),
    "npz of strings": ("a.npz", {"features": X, "labels": Y}),
    "npz of bytes": ("a.npz", {"features": X, "labels": Y.astype("S")}),
    "npz of integers": ("a.npz", {"features": X, "labels": NUMBERS, "class_names": NAMES}),
    "npz of whole floats": ("a.npz", {"features": X, "labels": Y, "class_names": NAMES}),
}


@pytest.mark.filterwarnings("ignore:numbers in")
@pytest.mark.parametrize("kind", FEATURE_FILES)
def test_a_feature_set_is_loaded_from_every_format(kind, tmp_path):
    features = FeatureSet.load(written(tmp_path, *FEATURE_FILES[kind]))
    assert features.class_names == tuple(NAMES)
    assert features.labels.tolist() == NUMBERS.tolist()
    assert features.features.dtype == torch.float32
    torch.testing.assert_close(features.features, torch.from_numpy(X), rtol=0, atol=0)


def test_integer_labels_of_a_table_are_names_in_numeric_order(tmp_path):
    labels = [("10", "9", "200")[k % 3] for k in range(18)]
    features = FeatureSet.load(write(tmp_path / "a.csv", known(labels)))
    assert features.class_names == ("9", "10", "200")


def test_integer_labels_of_an_array_stay_numbers(tmp_path):
    features = FeatureSet.load(write(tmp_path / "a.npz", {"features": X, "labels": NUMBERS + 2}))
    assert features.n_classes == 8
    assert features.labels.tolist() == (NUMBERS + 2).tolist()


def test_double_precision_survives(tmp_path):
    x = X.astype(np.float64) / 3
    assert FeatureSet.load(write(tmp_path / "a.npz", {"features": x, "labels": Y})).features.dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "arrays", "words"),
    [
        ("sparse labels", {"labels": np.where(NUMBERS == 5, 5 * 10**11, NUMBERS)}, "number the classes from 0"),
        ("negative labels", {"labels": NUMBERS - 1}, "from 0"),
        ("no labels", {}, "has no 'labels'"),
        ("unsigned labels beyond int64", {"labels": NUMBERS.astype(np.uint64) + 2**63}, "number the classes"),
        ("support flags of another length", {"labels": NUMBERS, "is_support": [True]}, "is_support"),
        ("support flags that are numbers", {"labels": NUMBERS, "is_support": np.arange(18)}, "true or false"),
        ("label without a class name", {"labels": Y, "class_names": ["x", "y"]}, "not among its class names"),
        ("missing labels", {"labels": np.where(NUMBERS == 2, "", Y)}, "no label in row 6"),
    ],
)
def test_a_feature_set_that_cannot_be_is_refused(name, arrays, words, tmp_path):
    with pytest.raises(InputError, match=words):
        FeatureSet.load(write(tmp_path / "a.npz", {"features": X, **arrays}))


@pytest.mark.parametrize("suffix", ["npz", "npy", "safetensors", "csv", "tsv", "parquet", "jsonl"])
@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"PK\x03\x04", b"\xff" * 50, b"{" * 5000, b"\n" * 500])
def test_rubbish_is_one_sentence_for_every_loader(suffix, content, tmp_path):
    path = write(tmp_path / f"a.{suffix}", content)
    for load in (FeatureSet.load, read_items):
        with pytest.raises(InputError):
            load(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1.0]] * 4, [0, 1, 2, 10**9]), "number the classes from 0"),
        (([[1.0], [2.0]], [0, 1], ["a", "a"]), "'a' twice"),
        ((np.zeros((2, 0)), [0, 1]), "has no features"),
        ((np.float32(3), [0]), "two axes"),
    ],
)
def test_feature_sets_from_arrays_that_cannot_be(arguments, words):
    with pytest.raises(InputError, match=words):
        FeatureSet(*arguments)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[::-1],
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(">f4"),
        lambda x: x.astype(">f8"),
        lambda x: x.astype(np.longdouble),
        lambda x: x[:, ::-2],
        lambda x: np.rint(x).astype(">i2"),
    ],
)
def test_feature_sets_from_arrays_of_any_layout(change):
    changed = change(X)
    features = FeatureSet(changed, NUMBERS.astype(">i8")[::-1])
    np.testing.assert_array_equal(
        features.features.numpy(), changed.astype(np.float64).astype(features.features.numpy().dtype)
    )
    assert features.labels.tolist() == NUMBERS[::-1].tolist()


def test_sparse_labels_with_many_rows_are_fine():
    assert FeatureSet(np.ones((200, 2)), np.arange(200) * 50).n_classes == 9951


def test_columns_are_matched_by_name_in_python_too():
    support = Items(np.array([[1.0, 2.0]]), ("a",), None, columns=("x", "y"))
    query = Items(np.array([[5.0, 6.0]]), None, None, columns=("y", "x"))
    assert match_columns(support, query).rows(0, 1).tolist() == [[6.0, 5.0]]
    with pytest.raises(InputError, match="'x'"):
        match_columns(support, Items(np.array([[5.0, 6.0]]), None, None, columns=("y", "z")))


def test_read_items_gives_names_notes_and_columns(tmp_path):
    path = write(tmp_path / "a.csv", pile(first={"photo_id": lambda i: f"p{i}"}))
    read = read_items(path)
    assert read.names[3] == "p3"
    assert read.columns == tuple(COLUMNS)
    assert "photo_id" in read.notes[0]
    assert read.labels is None


def test_large_npy_files_stay_on_the_disk(tmp_path):
    assert isinstance(read_items(write(tmp_path / "a.npy", QUERY)).features, np.memmap)


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("l.txt", "a\nb\n", ("a", "b")),
        ("l.txt", " a \r\nb\r\n\r\n", ("a", "b")),
        ("l.txt", "a\u2028x\nb", ("a\u2028x", "b")),
        ("l.csv", "a\nb\n", ("a", "b")),
        ("l.csv", "label\na\nb\n", ("a", "b")),
        ("l.csv", "nr;Class\n1;a\n2;b\n", ("a", "b")),
        ("l.csv", '"a, or b"\nc\n', ("a, or b", "c")),
        ("l.list", "a\nb", ("a", "b")),
    ],
)
def test_files_of_labels(name, content, labels, tmp_path):
    assert read_labels(write(tmp_path / name, content)) == labels


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("l.txt", "a\n\nb\n", "line 2"),
        ("l.csv", "x,y\n1,2\n", "none named 'label'"),
        ("l.csv", "nr,label\n1\n", "line 2"),
        ("l.csv", "", "is empty"),
        ("l.npy", b"rubbish", "cannot be read"),
        ("l.txt", b"a\0bcdefgh", "NUL"),
        ("l.json", '["a", "b"]', "no file of labels"),
    ],
)
def test_files_of_labels_that_cannot_be(name, content, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read_labels(write(tmp_path / name, content))


TEXTS = {
    "quoted comma": ("a.csv", 'text,label\n"hello, world",greet\n', ["hello, world"], ["greet"]),
    "quoted newline": (
        "a.csv",
        'text,label\n"hello\nworld",greet\nbye,leave\n',
        ["hello\nworld", "bye"],
        ["greet", "leave"],
    ),
    "u2028": ("a.csv", "text,label\nhello\u2028world,greet\n", ["hello\u2028world"], ["greet"]),
    "unicode text of excel": ("a.txt", "text\tlabel\nhellö\tgreet\n".encode("utf-16"), ["hellö"], ["greet"]),
    "tabs in txt": ("a.txt", "hello\tyou\nbye\tyou\n", ["hello\tyou", "bye\tyou"], None),
    "utf16 in txt": ("a.txt", "hellö\nbye\n".encode("utf-16"), ["hellö", "bye"], None),
    "u2028 in txt": ("a.txt", "hello\u2028world\x0cagain\nbye\n", ["hello\u2028world\x0cagain", "bye"], None),
    "u2028 in jsonl": ("a.jsonl", '{"text": "a\u2028b"}\n', ["a\u2028b"], None),
    "semicolons": ("a.csv", "text;label\nhello, world;greet\n", ["hello, world"], ["greet"]),
    "tabs": ("a.tsv", "text\tlabel\nhello, world\tgreet\n", ["hello, world"], ["greet"]),
    "byte order mark": ("a.csv", "\ufefftext,label\nhello,greet\n", ["hello"], ["greet"]),
    "utf16": ("a.csv", "text,label\nhellö,greet\n".encode("utf-16"), ["hellö"], ["greet"]),
    "windows 1252": ("a.csv", "text,label\nhellö,greet\n".encode("cp1252"), ["hellö"], ["greet"]),
    "long": ("a.csv", f"text,label\n{'x' * 200_000},greet\n", ["x" * 200_000], ["greet"]),
    "capitals": ("a.CSV", "Text,LABEL\nhello,greet\n", ["hello"], ["greet"]),
    "quotation mark inside": ("a.csv", 'text,label\n5" pipe,hardware\n', ['5" pipe'], ["hardware"]),
    "integer labels": ("a.jsonl", '{"text": "hello", "label": 3}\n', ["hello"], ["3"]),
    "blank lines": ("a.csv", "text,label\n\nhello,greet\n\n", ["hello"], ["greet"]),
    "blanks in front of quotation marks": (
        "a.csv",
        'text, label\n"hello, world", greet\n',
        ["hello, world"],
        ["greet"],
    ),
    "blanks in front of a text": ("a.csv", "text,label\n  hello,greet\n", ["  hello"], ["greet"]),
    "one column of two words": ("a.csv", "text\nhello you\ngood: bye\n", ["hello you", "good: bye"], None),
    "mac line ends": ("a.txt", "hello\rbye\r", ["hello", "bye"], None),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_in_the_ways_that_people_write_them(kind, tmp_path):
    name, content, texts, labels = TEXTS[kind]
    source = open_texts(write(tmp_path / name, content))
    assert list(source.texts) == texts
    assert [source.class_names[k] for k in source.labels] == (labels or [UNLABELLED] * len(texts))


def test_items_without_a_text_are_left_out_and_listed(tmp_path):
    path = write(tmp_path / "a.csv", "id,text,site\n1,hello you,x\n2,,y\n3,  ,z\n4,bye you,w\n")
    source = open_texts(path, need_labels=False)
    assert (source.texts, source.items) == (("hello you", "bye you"), ("1", "4"))
    assert source.carried["site"] == ("x", "w", "y", "z")  # those without a text last
    assert source.left_out == (("2", "it has no text"), ("3", "it has no text"))


def test_texts_come_from_parquet_too(tmp_path):
    source = open_texts(write(tmp_path / "a.parquet", {"text": ["hello", "bye"], "intent": ["greet", "leave"]}))
    assert source.texts == ("hello", "bye")
    assert source.class_names == ("greet", "leave")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "text,label\nhello, world,greet\n", r"cells \(3\) in line 2"),
        ("a.csv", "text,label\nhello\n", r"cells \(1\) in line 2"),
        ("a.csv", "text,label\nhello,greet\nbye,\n", "no label in line 3"),
        ("a.csv", "text,label\nhello,nan\n", "no label in line 2"),
        ("a.csv", "text,label\n,greet\n", "Line 2 .* needs a text"),
        ("a.csv", 'text,label\n"hello,greet\nbye,leave\n', "quotation mark is not closed"),
        ("a.csv", "where is my parcel\nhello you all\n", "looks like an item, .* say that .* `text_column`"),
        ("a.csv", "7,where is my parcel\n8,hello you all\n", "looks like an item"),
        ("a.csv", "text,text\na,b\n", "two columns named 'text'"),
        ("a.csv", b"text,label\nhell\x81,greet\n", "line 2 has the byte 0x81"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "label": null}\n', "no label in line 2"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b"}\n', "no label in line 2"),
        ("a.jsonl", '{"text": 3}\n', "Line 1 .* needs a text"),
        ("a.jsonl", '{"text": "a", "label": {"x": 1}}\n', "whole numbers"),
        ("a.jsonl", "[" * 100_000, "is not JSON"),
        ("a.txt", b"\xff\xfe\x00", "not readable"),
        ("a.parquet", b"PAR1", "cannot be read as parquet"),
    ],
)
def test_texts_that_cannot_be(name, content, words, tmp_path):
    with pytest.raises(InputError, match=words):
        open_texts(write(tmp_path / name, content))


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([[1.5, 2.0], [1.5]] * 9, "1 numbers in row 1"),
        ([[1.5, 2.0], None] * 9, "no list of numbers in row 1"),
        ([[1.5, None]] * 18, "is empty in row 0"),
        ([[1.5, float("nan")]] * 18, "'nan' in row 0"),
        ([[]] * 18, "0 numbers in row 0"),
        ([["x"]] * 18, "not all numbers"),
    ],
)
def test_lists_that_are_no_features(lists, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read_items(write(tmp_path / "a.parquet", {"v": lists, "label": Y}))


def test_lists_of_integers_are_features(tmp_path):
    assert read_items(write(tmp_path / "a.parquet", {"v": [[1, 2]] * 18, "label": Y})).n_features == 2


def test_a_damaged_header_of_ours_is_one_sentence(tmp_path):
    from safetensors.numpy import save_file

    for header in ("3", '"x"', '{"meta": 3}', '{"class_names": "abc"}', '{"class_names": ["a", "a"]}', "[" * 50_000):
        save_file({"features": X, "labels": NUMBERS}, tmp_path / "a.safetensors", {"manyway-features-1": header})
        with pytest.raises(InputError):
            FeatureSet.load(tmp_path / "a.safetensors")
    save_file({"features": X, "labels": NUMBERS}, tmp_path / "a.safetensors", {"manyway-features-1": json.dumps({})})
    assert FeatureSet.load(tmp_path / "a.safetensors").n_classes == 6


# The folders of pictures: files, and links by their target.
LINKED = {
    "a linked folder": ({"a/1.jpg": None, "b": "../else"}, ["a/1.jpg", "b/2.jpg", "b/c/3.jpg"]),
    "a folder by two links": ({"x": "../else", "y": "../else"}, ["x/2.jpg", "x/c/3.jpg"]),
    "a folder that is there, and a link to it": ({"b/1.jpg": None, "a": "b"}, ["b/1.jpg"]),
    "a link to a folder inside a linked one": ({"x": "../else/c", "y": "../else"}, ["x/3.jpg", "y/2.jpg"]),
    "a linked picture": ({"1.jpg": "../else/2.jpg"}, ["1.jpg"]),
    "a dangling link": ({"1.jpg": None, "x": "nothing"}, ["1.jpg", "x"]),
    "hidden folders": ({".a/1.jpg": None, ".b": "../else", "2.jpg": None}, ["2.jpg"]),
    "a link to the folder around it": ({"a/1.jpg": None, "a/b": ".."}, None),
    "a link to a folder above the pile": ({"a/1.jpg": None, "b": "../.."}, None),
    "a link to itself and back": ({"a/b/1.jpg": None, "a/b/c": "../../a"}, None),
}


@pytest.mark.parametrize("kind", LINKED)
def test_linked_folders_are_followed_once_and_circles_are_refused(kind, tmp_path):
    entries, expected = LINKED[kind]
    for name in ("else/2.jpg", "else/c/3.jpg"):
        write(tmp_path / name, "x")
    for name, target in entries.items():
        write(tmp_path / "pile" / name, "x" if target is None else lambda path, target=target: path.symlink_to(target))
    if expected is None:
        with pytest.raises(InputError, match="is a link to a folder that it lies in"):
            list_files(tmp_path / "pile")
    else:
        assert list_files(tmp_path / "pile") == expected


def test_a_checkpoint_that_repeats_its_numbers_is_refused_before_they_are_copied(tmp_path):
    torch.save({"fc.weight": torch.zeros(1, 1).expand(2**30, 5)}, tmp_path / "net.pt")
    with pytest.raises(InputError, match=r"tensors larger than their data \(fc.weight\)"):
        read_checkpoint(tmp_path / "net.pt")
    torch.save({"a": torch.zeros(6)[:3], "b": torch.zeros(2, 3).T}, tmp_path / "net.pt")  # views that repeat nothing
    assert set(read_checkpoint(tmp_path / "net.pt").tensors) == {"a", "b"}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", float("nan"), "b", "b"], "no label in row 1"),
        (["a", None, "b", "b"], "no label in row 1"),
        (("a", 1, "b", 2), "mixes strings with other labels"),
        (np.ma.array([0, 1, 1, 0], mask=[0, 0, 1, 0]), "no label in row 2"),
        (np.ma.array(["a", "b", "b", "a"], mask=[0, 0, 0, 1]), "no label in row 3"),
        (np.array(["a", np.nan, "b", "b"], dtype=object), "no label in row 1"),
    ],
)
def test_missing_and_mixed_labels_are_no_classes(labels, words):
    with pytest.raises(InputError, match=words):
        Evidence().fit([[0.0, 1.0], [1.0, 0.0], [1.0, 0.1], [0.1, 1.0]], labels)


def test_masked_features_are_refused_and_masks_of_nothing_are_not():
    x, y = np.ma.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.1], [0.1, 1.0]]), ["a", "b", "b", "a"]
    assert Evidence().fit(x, np.ma.array(y)).classes_.tolist() == ["a", "b"]
    x[2, 1] = np.ma.masked
    with pytest.raises(InputError, match="X has masked values in row 2"):
        Evidence().fit(x, y)


ROWS = np.eye(4, 5).repeat(2, 0) + 0.1 * np.arange(40).reshape(8, 5)
KINDS = np.arange(4).repeat(2)
SCORED = np.full((8, 4), 0.1) + 0.6 * np.eye(4).repeat(2, 0)


def masked(values):
    """The values, the last of which is masked."""
    found = np.ma.array(values)
    found[(-1,) * found.ndim] = np.ma.masked
    return found


def fitted():
    return Evidence().fit(ROWS, KINDS)


def of_scores(**params):
    return EvidenceFromScores(**{"classes": range(4)} | params).fit()


@pytest.mark.parametrize(
    "use",
    [
        lambda: Evidence().fit(masked(ROWS), KINDS),
        lambda: Evidence().fit(ROWS, masked(KINDS)),
        lambda: Evidence().fit(ROWS, KINDS, class_features=masked(ROWS[::2])),
        lambda: Evidence().fit(ROWS, KINDS, class_features={k: masked(ROWS[2 * k]) for k in range(4)}),
        lambda: Evidence(base_mean=masked(ROWS[0])).fit(ROWS, KINDS),
        lambda: fitted().predict(masked(ROWS)),
        lambda: fitted().infer(masked(ROWS)),
        lambda: fitted().partial_infer(masked(ROWS)),
        lambda: fitted().score(masked(ROWS), KINDS),
        lambda: fitted().score(ROWS, masked(KINDS)),
        lambda: fitted().score(ROWS, KINDS, sample_weight=masked(np.ones(8))),
        lambda: of_scores(classes=masked(np.arange(4))),
        lambda: of_scores(class_prior=masked(np.ones(4))).predict(SCORED),
        lambda: of_scores(expect=masked(np.ones(4))).predict(SCORED),
        lambda: of_scores().predict(masked(SCORED)),
        lambda: EvidenceFromScores().fit(masked(SCORED), KINDS),
        lambda: EvidenceFromScores().fit(SCORED, masked(KINDS)),
        lambda: Tasks.from_arrays(masked(ROWS[None]), KINDS[None], ROWS[None]),
        lambda: Tasks.from_arrays(ROWS[None], masked(KINDS[None]), ROWS[None]),
        lambda: Tasks.from_arrays(ROWS[None], KINDS[None], masked(ROWS[None])),
        lambda: Tasks.from_arrays(ROWS[None], KINDS[None], ROWS[None], known=masked(KINDS[None])),
        lambda: Tasks.from_arrays(ROWS[None], KINDS[None], ROWS[None], class_features=masked(ROWS[None, ::2])),
        lambda: FeatureSet(masked(ROWS), KINDS),
        lambda: FeatureSet(ROWS, masked(KINDS)),
        lambda: examine(masked(ROWS), KINDS),
        lambda: examine(ROWS, masked(KINDS)),
    ],
)
def test_masked_values_are_refused_wherever_they_are_given(use):
    with pytest.raises(InputError, match=r"masked values in row|no label in row"):
        use()
