"""Frames of pandas, polars, Hugging Face and Arrow, samples of FiftyOne, and files of skops: the real libraries."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from manyway import Baseline, Evidence, InputError, SimpleShot, from_fiftyone, from_frame, label_frame, to_frame
from manyway.files.items import read_items
from manyway.labelling.frames import _holds_lists, to_fiftyone

polars = pytest.importorskip("polars", reason="needs the extra 'polars'")
datasets = pytest.importorskip("datasets", reason="needs the extra 'datasets'")

CENTRES = np.float32([[8, 0, 0, 0], [0, 8, 0, 0], [0, 0, 8, 0]])
NAMES = np.array(["ant", "bee", "cat"])


def draw(labels, seed):
    noise = np.random.default_rng(seed).normal(size=(len(labels), 4)).astype(np.float32)
    return CENTRES[labels] + noise


LABELS = np.arange(12) % 3
TRUTH = np.array([0, 2, 2, 0, 2])
EXAMPLES, ITEMS = draw(LABELS, 0), draw(TRUTH, 1)
PHOTOS = [f"{n}.png" for n in range(5)]


@pytest.fixture(scope="module")
def expected():
    """The answer for arrays."""
    return Evidence().fit(EXAMPLES, NAMES[LABELS]).infer(ITEMS)


def pandas_lists(features, **columns):
    return pd.DataFrame({"embedding": list(features), **columns})


def polars_arrays(features, **columns):
    array = polars.Series(features, dtype=polars.Array(polars.Float32, 4))
    return polars.DataFrame({"embedding": array, **columns})


def polars_lists(features, **columns):
    return polars.DataFrame({"embedding": features.tolist(), **columns})


def huggingface(features, **columns):
    return datasets.Dataset.from_dict({"embedding": features, **columns})


def huggingface_fixed(features, **columns):
    kind = datasets.Sequence(datasets.Value("float32"), length=4)
    return huggingface(features, **columns).cast_column("embedding", kind)


def arrow(features, **columns):
    return pyarrow.table({"embedding": features.tolist(), **columns})


KINDS = [pandas_lists, polars_arrays, polars_lists, huggingface, huggingface_fixed, arrow]


def column(frame, name):
    """A column of a frame of any kind as a list."""
    values = frame[name]
    return values.to_list() if hasattr(values, "to_list") else [getattr(v, "as_py", lambda v=v: v)() for v in values]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_frame_of_items_comes_back_as_its_kind_with_labels(make, expected):
    items = make(ITEMS, photo=PHOTOS)
    labelled = label_frame(make(EXAMPLES, kind=NAMES[LABELS].tolist()), items, label="kind")
    assert type(labelled) is type(items)
    assert column(labelled, "photo") == PHOTOS
    assert column(labelled, "label") == expected.labels.tolist() == NAMES[TRUTH].tolist()
    np.testing.assert_allclose(column(labelled, "probability"), expected.probabilities.max(1), rtol=1e-6)
    assert len(column(labelled, "label_2")) == 5
    assert "label" not in set(items.column_names if hasattr(items, "column_names") else items.columns)


def test_kinds_may_differ_and_columns_of_numbers_are_features():
    names = ["a", "b", "c", "d"]
    examples = pd.DataFrame(EXAMPLES, columns=names, index=range(50, 62)).assign(label=LABELS, note="seen")
    items = polars.DataFrame(ITEMS, schema=names)[:, ::-1]
    labelled = label_frame(examples, items, features=names)
    assert labelled["label"].to_list() == TRUTH.tolist()  # numbers stay numbers, and columns are matched by name
    numbered = pd.DataFrame(EXAMPLES)
    np.testing.assert_array_equal(from_frame(numbered, [0, 1, 2, 3])[0], EXAMPLES)


def test_the_index_of_pandas_and_the_selection_of_a_data_set_are_kept():
    items = pandas_lists(ITEMS).set_axis(list("vwxyz"), axis=0)
    assert label_frame(arrow(EXAMPLES, label=NAMES[LABELS]), items).loc["w", "label"] == "cat"
    chosen = huggingface(ITEMS, photo=PHOTOS).select([4, 0])
    labelled = label_frame(arrow(EXAMPLES, label=NAMES[LABELS]), chosen)
    assert labelled[:]["photo"] == ["4.png", "0.png"]
    assert labelled[:]["label"] == ["cat", "ant"]


def test_class_labels_of_hugging_face_are_names():
    examples = huggingface(EXAMPLES, label=LABELS).cast_column("label", datasets.ClassLabel(names=NAMES.tolist()))
    _, labels = from_frame(examples, label="label")
    assert labels.tolist() == NAMES[LABELS].tolist()
    labelled = label_frame(examples, huggingface(ITEMS)).cast_column("label", examples.features["label"])
    assert labelled[:]["label"] == TRUTH.tolist()


def test_items_of_no_class_have_a_probability_and_a_group():
    far = np.float32([[0, 0, 0, 30], [0, 0, 0, 31], [0, 0, 0, 29], *ITEMS])
    labelled = label_frame(
        arrow(EXAMPLES, label=NAMES[LABELS]), polars_lists(far), estimator=Evidence(open_set=True), prefix="m_"
    )
    assert labelled.columns[1:] == [
        f"m_{name}" for name in ("label", "probability", "label_2", "probability_2", "unknown", "group")
    ]
    expected = Evidence(open_set=True).fit(EXAMPLES, NAMES[LABELS]).infer(far)
    assert labelled["m_label"][:3].to_list() == ["unknown"] * 3
    np.testing.assert_allclose(labelled["m_unknown"].to_numpy(), expected.unknown, rtol=1e-5)
    assert labelled["m_group"].to_list() == expected.unknown_groups.tolist()
    assert labelled["m_group"][0] >= 0 > labelled["m_group"].min()


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (pandas_lists(ITEMS), {"features": "embeding"}, "no column 'embeding'; did you mean 'embedding'"),
        (pandas_lists(ITEMS), {"label": "kind"}, "no column 'kind'"),
        (pd.DataFrame({"a": [1.0]}), {}, "The rows have no column of lists; name the columns"),
        (arrow(ITEMS, other=ITEMS.tolist()), {}, "the columns of lists 'embedding', 'other'; name the columns"),
        (arrow(ITEMS), {"features": []}, "`features` names no column"),
        (arrow(ITEMS, photo=PHOTOS), {"features": ["photo"]}, "'photo' of the rows is not all numbers .*leave it out"),
        (polars_lists(ITEMS[:0]), {"features": "embedding"}, "the frame has no rows"),
        (pd.DataFrame({"e": [[1.0, 2.0], [1.0]]}), {}, "Column 'e' of the rows has 1 numbers in row 1; .* needs 2"),
        (pd.DataFrame({"e": [[1.0, 2.0], None]}), {}, "no list of numbers in row 1"),
        (arrow(np.full((2, 4), np.nan)), {}, "of the rows has 'nan' in row 0"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), {}, "two columns of one name"),
        (polars_lists(ITEMS).lazy(), {}, r"LazyFrame .* call collect\(\) first"),
        (datasets.DatasetDict({"train": huggingface(ITEMS)}), {}, "DatasetDict .* choose one of its splits"),
        ({"embedding": ITEMS}, {}, "builtins.dict is no table that can be labelled"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(frame, options, message):
    with pytest.raises(InputError, match=message):
        from_frame(frame, **options)


def test_results_are_written_for_the_right_rows_and_replace_nothing(expected):
    with pytest.raises(InputError, match="a column 'label' already; give the new columns a `prefix`"):
        to_frame(arrow(ITEMS, label=PHOTOS), expected)
    with pytest.raises(InputError, match="There are 12 rows and the result has 5 items"):
        to_frame(arrow(EXAMPLES), expected)
    with pytest.raises(InputError, match="y has no label in row 1"):
        label_frame(arrow(EXAMPLES[:3], label=["ant", None, "bee"]), arrow(ITEMS))


@pytest.mark.parametrize("library", [pd, polars], ids=["pandas", "polars"])
def test_estimators_take_frames_and_columns_of_lists(library, expected):
    names = ["a", "b", "c", "d"]
    frame = library.DataFrame({**dict(zip(names, EXAMPLES.T, strict=True)), "label": NAMES[LABELS]})
    queries = library.DataFrame(dict(zip(names, ITEMS.T, strict=True)))
    clf = Evidence().fit(frame[names], frame["label"])
    assert clf.feature_names_in_.tolist() == names
    np.testing.assert_allclose(clf.predict_proba(queries), expected.probabilities, atol=1e-6)
    with pytest.raises(ValueError, match="same order"):
        clf.predict(queries[names[::-1]])
    lists = library.DataFrame({"embedding": [row.tolist() for row in EXAMPLES]})["embedding"]
    assert Evidence().fit(lists, frame["label"]).predict(ITEMS).tolist() == expected.labels.tolist()
    uneven = library.DataFrame({"embedding": [[1.0, 2.0], [1.0], [2.0, 3.0]]})["embedding"]
    with pytest.raises(InputError, match="X has lists of another length in row 1"):
        SimpleShot().fit(uneven, ["ant", "bee", "cat"])


def test_columns_of_float32_vectors_keep_their_precision():
    clf = SimpleShot().fit(polars_arrays(EXAMPLES)["embedding"], LABELS)
    assert clf.support_.dtype == SimpleShot().fit(pandas_lists(EXAMPLES)["embedding"], LABELS).support_.dtype
    assert clf.support_.dtype == np.float32
    assert SimpleShot().fit(huggingface(EXAMPLES)["embedding"], LABELS).predict(ITEMS).tolist() == TRUTH.tolist()


@pytest.mark.parametrize("make", [polars_arrays, huggingface_fixed], ids=lambda make: make.__name__)
def test_parquet_files_of_other_libraries_are_read_by_the_command_line(make, tmp_path):
    frame = make(EXAMPLES, label=NAMES[LABELS].tolist())
    write = frame.write_parquet if hasattr(frame, "write_parquet") else frame.to_parquet
    write(tmp_path / "examples.parquet")
    items = read_items(tmp_path / "examples.parquet")
    np.testing.assert_array_equal(items.features, EXAMPLES)
    assert items.labels == tuple(NAMES[LABELS])


@pytest.fixture(scope="session")
def skops_io():
    """Imported by the process that runs these tests alone: it takes longer than all of them."""
    return pytest.importorskip("skops.io", reason="needs the extra 'skops'")


@pytest.mark.parametrize(
    "estimator",
    [Evidence(open_set=True), Evidence(scale="range"), Baseline(max_iter=5), SimpleShot(base_mean=np.ones(4))],
    ids=["evidence", "nothing prepared", "baseline", "simpleshot"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_skops_files_hold_one_type_to_trust_and_give_the_same_answers(skops_io, estimator, tmp_path):
    clf = estimator.fit(EXAMPLES, NAMES[LABELS])
    skops_io.dump(clf, tmp_path / "clf.skops")
    name = f"manyway.estimators.{type(clf).__name__}"  # files name the class by this
    assert skops_io.get_untrusted_types(file=tmp_path / "clf.skops") == [name]
    loaded = skops_io.load(tmp_path / "clf.skops", trusted=[name])
    again = pickle.loads(pickle.dumps(clf))
    for other in (loaded, again):
        np.testing.assert_array_equal(other.predict_proba(ITEMS), clf.predict_proba(ITEMS))
        assert (other.prepared_ is None) == (clf.prepared_ is None)
        assert other.get_params().keys() == clf.get_params().keys()
    assert getattr(loaded, "precision_", None) == getattr(clf, "precision_", None)


def test_skops_files_hold_what_a_stream_of_batches_has_taught(skops_io, tmp_path):
    clf = Evidence().fit(EXAMPLES, NAMES[LABELS])
    clf.partial_infer(ITEMS, known={0: "ant"})
    skops_io.dump(clf, tmp_path / "clf.skops")
    loaded = skops_io.load(tmp_path / "clf.skops", trusted=["manyway.estimators.Evidence"])
    pickled = pickle.loads(pickle.dumps(clf))
    expected = clf.partial_infer(ITEMS[:3]).probabilities
    for other in (loaded, pickled):
        assert len(other.memory_.query) == 1
        np.testing.assert_array_equal(other.partial_infer(ITEMS[:3]).probabilities, expected)


def test_an_estimator_that_an_earlier_version_pickled_keeps_what_it_prepared():
    clf = SimpleShot().fit(EXAMPLES, NAMES[LABELS])
    old = SimpleShot.__new__(SimpleShot)
    old.__setstate__(dict(vars(clf)))
    assert old.prepared_ is clf.prepared_
    assert not hasattr(pickle.loads(pickle.dumps(SimpleShot())), "prepared_")


class Samples:
    """The part of FiftyOne's ``SampleCollection`` that is used, where FiftyOne itself cannot run."""

    def __init__(self, **fields):
        self.fields = fields

    def __len__(self):
        return len(next(iter(self.fields.values())))

    def values(self, path):
        name, _, attribute = path.partition(".")
        return [getattr(v, attribute, None) if attribute else v for v in self.fields[name]]

    def set_values(self, name, values):
        self.fields[name] = values


@pytest.fixture
def fiftyone_data():
    """FiftyOne and an empty data set of it, which needs a MongoDB server."""
    fiftyone = pytest.importorskip("fiftyone", reason="needs the extra 'fiftyone'")
    try:
        dataset = fiftyone.Dataset()
    except Exception as error:
        pytest.skip(f"needs a MongoDB server for FiftyOne: {error}")
    yield fiftyone, dataset
    dataset.delete()


def test_fiftyone_data_sets_give_features_and_take_labels(fiftyone_data):
    fiftyone, dataset = fiftyone_data
    known = [fiftyone.Sample(f"{n}.png", embeddings=row, tags=["known"]) for n, row in enumerate(EXAMPLES)]
    for sample, label in zip(known, NAMES[LABELS], strict=True):
        sample["ground_truth"] = fiftyone.Classification(label=str(label))
    pile = [fiftyone.Sample(f"pile-{n}.png", embeddings=row, tags=["pile"]) for n, row in enumerate(ITEMS)]
    dataset.add_samples([*known, *pile])
    view = dataset.match_tags("pile")
    clf = Evidence(open_set=True).fit(*from_fiftyone(dataset.match_tags("known"), label="ground_truth"))
    result = clf.infer(from_fiftyone(view)[0])
    to_fiftyone(view, result)
    assert view.values("manyway.label") == result.labels.tolist()
    assert view.values("manyway.confidence") == pytest.approx(result.columns()["probability"].tolist())
    assert view.values("manyway_second.label") == result.columns()["label_2"].tolist()
    assert view.values("manyway_unknown") == pytest.approx(result.unknown.tolist())
    assert view.values("manyway_group") == result.unknown_groups.tolist()


def test_fields_of_samples_where_fiftyone_is_not_installed(monkeypatch, expected):
    monkeypatch.setitem(sys.modules, "fiftyone", SimpleNamespace(Classification=SimpleNamespace))
    truth = [SimpleNamespace(label=name) for name in NAMES[LABELS]]
    features, labels = from_fiftyone(Samples(embeddings=list(EXAMPLES), truth=truth), label="truth")
    samples = Samples(vectors=list(ITEMS))
    to_fiftyone(samples, Evidence().fit(features, labels).infer(from_fiftyone(samples, "vectors")[0]), field="m")
    assert samples.values("m.label") == expected.labels.tolist()
    assert samples.values("m.confidence") == pytest.approx(expected.probabilities.max(1).tolist())
    assert list(samples.fields) == ["vectors", "m", "m_second"]
    with pytest.raises(InputError, match="There are 2 rows and the result has 5 items"):
        to_fiftyone(Samples(vectors=[1, 2]), expected)
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with pytest.raises(InputError, match=r"needs fiftyone; install it with: pip install .*\[fiftyone\]\""):
        to_fiftyone(samples, expected)


def test_samples_without_an_embedding_or_a_label_are_counted():
    vectors = [np.ones(2), None, np.ones(2)]
    with pytest.raises(InputError, match="1 of 3 samples have no embedding in the field 'embeddings', the first is"):
        from_fiftyone(Samples(embeddings=vectors))
    with pytest.raises(InputError, match="3 of 3 samples have no label in 'truth'"):
        from_fiftyone(Samples(embeddings=[np.ones(2)] * 3, truth=[None] * 3), label="truth")
    with pytest.raises(InputError, match="vectors of different lengths"):
        from_fiftyone(Samples(embeddings=[np.ones(2), np.ones(3)]))


@pytest.mark.parametrize(
    ("cells", "lists"), [([[1.0, 2.0], [3.0, 4.0]], True), ([1.0, 2.0], False), ([object(), object()], False)]
)
def test_a_column_holds_lists_numbers_or_objects_that_are_neither(cells, lists):
    assert _holds_lists(pd.DataFrame({"a": cells}), "a") == lists


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars"])
def test_a_partly_labelled_frame_comes_back_whole(kind):
    cells = {
        "id": list("abcdef"),
        "w": [0.0, 0.1, 5.0, 5.1, 0.2, 5.2],
        "label": ["ant", "ant", "bee", "bee", None, None],
    }
    library = pytest.importorskip(kind)
    table = library.table(cells) if kind == "pyarrow" else library.DataFrame(cells)
    found = label_frame(table, features=["w"])
    rows = (
        found.to_pylist() if kind == "pyarrow" else found.to_dicts() if kind == "polars" else found.to_dict("records")
    )
    assert [row["id"] for row in rows] == list("abcdef")
    assert [row["new_label"] for row in rows] == ["ant", "ant", "bee", "bee", "ant", "bee"]
    assert rows[4]["new_probability"] > 0.5
    assert not rows[0]["new_probability"] or rows[0]["new_probability"] != rows[0]["new_probability"]
    assert {"new_label_2", "new_probability_2"} <= rows[0].keys()
    with pytest.raises(InputError, match="Every row has a label in 'id'"):
        label_frame(table, features=["w"], label="id")


@pytest.mark.parametrize("kind", [pd.DataFrame, polars.DataFrame, pyarrow.table])
def test_rows_that_lack_numbers_are_labelled_by_the_others_and_said(kind):
    examples = kind({"a": [0.0, 0.1, 5.0, None], "b": [0.2, 0.0, 5.1, 5.0], "label": ["ant", "ant", "bee", "bee"]})
    items = kind({"a": [None, 0.0, 5.0, None], "b": [5.0, 0.1, 4.9, None]})
    found = label_frame(examples, items, features=["a", "b"])
    notes = [str(note) for note in found["note"].to_pylist()] if kind is pyarrow.table else list(found["note"])
    labels = found["label"].to_pylist() if kind is pyarrow.table else list(found["label"])
    assert labels[:3] == ["bee", "ant", "bee"]
    assert notes[0] == "no number in column 'a'; labelled by the other columns"
    assert notes[1:3] == ["", ""]
    assert notes[3].startswith("it has no number in any column")
