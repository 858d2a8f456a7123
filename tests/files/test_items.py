"""Properties of the reader of feature files: every format gives back what was written, and rubbish is an InputError."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from manyway import FeatureSet, InputError
from manyway.encoding.datasets.texts import TextSource, open_texts
from manyway.files.items import Items, clean_labels, read_items, read_labels

FORMATS = [
    "csv",
    "csv;",
    "tsv",
    "csv|",
    "utf-16",
    "bom",
    "crlf",
    "parquet",
    "jsonl",
    "list.jsonl",
    "npz",
    "safetensors",
]
SETTINGS = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
# Labels that people could have: visible, without line breaks and not a word for a missing value.
LABELS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=8
).filter(lambda text: text.strip() == text and text.casefold() not in ("nan", "<na>", "nat", "#n/a"))


@st.composite
def tables(draw):
    n, d = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    values = st.floats(-1e6, 1e6, width=32).filter(lambda v: v == 0 or abs(v) > 1e-30)
    features = draw(hnp.arrays(np.float32, (n, d), elements=values)) + np.float32(0.25)  # no column of row numbers
    return features, draw(st.lists(LABELS, min_size=n, max_size=n))


def write(folder, kind, features, labels):
    columns = [f"f{i}" for i in range(features.shape[1])]
    rows = [[*map(str, row), label] for row, label in zip(features, labels, strict=True)]
    path = folder / f"a.{kind.split('.')[-1]}"
    if kind in ("csv", "csv;", "csv|", "tsv", "utf-16", "bom", "crlf"):
        path = folder / ("a.tsv" if kind == "tsv" else "a.csv")
        text = io.StringIO()
        delimiter = {"csv;": ";", "csv|": "|", "tsv": "\t"}.get(kind, ",")
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n" if kind == "crlf" else "\n")
        writer.writerows([[*columns, "label"], *rows])
        path.write_bytes(text.getvalue().encode({"utf-16": "utf-16", "bom": "utf-8-sig"}.get(kind, "utf-8")))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({**{name: features[:, i] for i, name in enumerate(columns)}, "label": labels}), path)
    elif kind == "jsonl":
        records = [dict(zip([*columns, "label"], [*map(float, row[:-1]), row[-1]], strict=True)) for row in rows]
        path.write_text("\n".join(map(json.dumps, records)))
    elif kind == "list.jsonl":
        records = [{"label": label, "v": row.tolist()} for row, label in zip(features, labels, strict=True)]
        path.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records), encoding="utf-8")
    elif kind == "npz":
        np.savez(path, features=features, labels=np.array(labels))
    else:
        names = sorted(set(labels))
        header = {"manyway-features-1": json.dumps({"class_names": names})}
        save_file({"features": features, "labels": np.array([names.index(y) for y in labels])}, path, header)
    return path


@pytest.mark.filterwarnings("ignore")  # remarks on labels such as NULL
@pytest.mark.parametrize("kind", FORMATS)
@settings(SETTINGS, max_examples=15)
@given(table=tables())
def test_what_is_written_is_read(kind, table):
    features, labels = table
    if kind == "npz" and any("\0" in label for label in labels):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), kind, features, labels)
        items = read_items(path)
        assert torch.equal(items.rows(0, len(items)).float(), torch.from_numpy(features))
        assert items.labels == tuple(labels)
        again = read_items(path, like=items)
        assert torch.equal(again.rows(0, len(items)).float(), torch.from_numpy(features))
        loaded = FeatureSet.load(path)
        assert [loaded.class_names[k] for k in loaded.labels] == labels


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "npz", "npy", "safetensors"])
@SETTINGS
@given(data=st.binary(max_size=300) | st.text('0123456789.,;"\n\r\t -+eEna{}[]:labelfx', max_size=200).map(str.encode))
def test_any_bytes_are_items_or_one_sentence(suffix, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        path.write_bytes(data)
        try:
            items = read_items(path)
        except InputError:
            return
        assert isinstance(items, Items)
        assert bool(torch.isfinite(items.rows(0, len(items))).all())


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt", "parquet"])
@SETTINGS
@given(
    data=st.binary(max_size=200)
    | st.text('texlabi,;"\n\r {}:', max_size=100).map(lambda t: f"text,label\n{t}".encode())
)
def test_any_bytes_are_texts_or_one_sentence(suffix, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        path.write_bytes(data)
        with contextlib.suppress(InputError):
            assert isinstance(open_texts(path), TextSource)


@SETTINGS
@given(texts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip), min_size=1, max_size=4))
def test_any_texts_survive_a_csv(texts):
    text = io.StringIO()
    csv.writer(text).writerows([["text", "label"], *([each, "x"] for each in texts)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(text.getvalue().encode())
        if "\0" in text.getvalue():
            return
        assert list(open_texts(path).texts) == texts


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ({1: ""}, "no label in row 1; every"),
        ({1: "", 2: "", 4: ""}, "no label in row 1, row 2, row 4; every"),
        ({0: "", 1: "", 2: "", 4: ""}, "no label in row 0, row 1, row 2 and 1 more; every"),
        ({1: "nan", 2: ""}, "no label in row 1, row 2; 'nan' stands for a missing label; every"),
        ({1: "", 2: "nan"}, "no label in row 1, row 2; every"),
    ],
)
def test_the_first_labels_that_are_missing_are_named_and_the_others_counted(gone, words):
    with pytest.raises(InputError, match=words):
        clean_labels(Path("a.npz"), [gone.get(row, "oak") for row in range(6)])


def test_three_digits_after_a_comma_are_decimals_where_empty_lines_follow(tmp_path):
    # 0,412 could be a thousand in a file with commas; Excel writes it with semicolons, and rows of semicolons below.
    (tmp_path / "a.csv").write_text("label;a;b\nx;0,412;5,871\ny;1,234;6,500\n;;\n;;\n", encoding="utf-8")
    items = read_items(tmp_path / "a.csv")
    assert np.allclose(items.rows(0, 2), [[0.412, 5.871], [1.234, 6.5]])


def test_numbers_with_signs_of_people_are_features_and_no_names_of_items(tmp_path):
    for cells, numbers in ((("−0.5", "−1.5"), [-0.5, -1.5]), (("5%", "7 %"), [5, 7]), (("1'234", "€"), None)):
        text = f"label,a,b\nx,{cells[0]},1.5\ny,{cells[1]},2.5\n"
        (tmp_path / "a.csv").write_text(text, encoding="utf-8")
        if numbers is None:
            with pytest.raises(InputError, match=r"Column 'a' of .* is not all numbers"):
                read_items(tmp_path / "a.csv")
        else:
            assert read_items(tmp_path / "a.csv").rows(0, 2)[:, 0].tolist() == numbers


def test_a_number_that_may_stand_for_a_missing_one_is_named_and_stays(tmp_path):
    (tmp_path / "a.csv").write_text("label,a,b\nx,1.5,999\ny,2.5,998\nx,-999,997\n", encoding="utf-8")
    items = read_items(tmp_path / "a.csv")
    assert items.rows(0, 3)[2, 0] == -999
    assert [note for note in items.notes if "-999" in note and "'a'" in note]
    assert not [note for note in items.notes if "'b' of a.csv has 999" in note]


def test_a_comma_at_the_end_of_all_lines_is_no_column_of_names(tmp_path):
    (tmp_path / "a.csv").write_text("label,a,b,\nx,0,1,\ny,1,2,\n", encoding="utf-8")
    items = read_items(tmp_path / "a.csv")
    assert (items.names, items.columns) == (None, ("a", "b"))


def test_columns_without_a_name_may_be_many_where_they_are_empty(tmp_path):
    # Excel writes those that were emptied.
    (tmp_path / "a.csv").write_text("item,width,height,label,,\nq,1.5,2,ant,,\nr,2.5,3,bee,,\n", encoding="utf-8")
    items = read_items(tmp_path / "a.csv")
    assert items.columns == ("width", "height")
    assert items.labels == ("ant", "bee")
    (tmp_path / "b.csv").write_text("item,width,height,label,,\nq,1.5,2,ant,,\nr,2.5,3,bee,x,y\n", encoding="utf-8")
    with pytest.raises(InputError, match="two columns without a name"):
        read_items(tmp_path / "b.csv")


NAMED = Items(np.eye(3), None, ("c.jpg", "a.jpg", "b.jpg"))
NUMBERED = Items(np.eye(3), None, None)


@pytest.mark.parametrize(
    ("table", "examples", "labels"),
    [
        ("item,label\na.jpg,ant\nb.jpg,bee\nc.jpg,cow\n", NAMED, ("cow", "ant", "bee")),
        ("label,file\nant,a.jpg\nbee,b.jpg\ncow,c.jpg\ndog,d.jpg\n", NAMED, ("cow", "ant", "bee")),
        ("item,label\n2,ant\n1,bee\n0,cow\n", NUMBERED, ("cow", "bee", "ant")),
        # In the order of the examples: rows that are only counted, and names that the examples do not have.
        ("id,label\n1,ant\n2,bee\n3,cow\n", NAMED, ("ant", "bee", "cow")),
        ("id,label\n1,ant\n2,bee\n3,cow\n", NUMBERED, ("ant", "bee", "cow")),
        ("item,label\nc.jpg,ant\na.jpg,bee\nb.jpg,cow\n", NUMBERED, ("ant", "bee", "cow")),
    ],
)
def test_labels_in_a_table_go_to_the_examples_that_it_names(table, examples, labels, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(table)
    assert read_labels(path, examples=examples) == labels
    assert (
        read_labels(path, item_column="photo", examples=examples) == labels
    )  # a column of the examples


def test_names_that_cannot_be_found_among_the_examples_are_said(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("file,label\nc.jpg,ant\na.jpg,bee\nb.jpg,cow\n")
    said = []
    read_labels(path, examples=NUMBERED, say=said.append)
    assert said == ["the examples have no names: labels of labels.csv go to them in its order, not by 'file'"]
    read_labels(path, examples=NAMED, say=said.append)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("item,label\na.jpg,ant\nb.jpg,bee\n", "1 lack one, such as 'c.jpg'"),
        ("item,label\nx.jpg,ant\ny.jpg,bee\nz.jpg,cow\n", "it names 'x.jpg', they are 'c.jpg'"),
        (
            "item,label\na.jpg,ant\nb.jpg,bee\nc.jpg,cow\na.jpg,bee\n",
            "has the example 'a.jpg' twice",
        ),
    ],
)
def test_a_table_that_does_not_label_each_example_once_is_refused(table, said, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(table)
    with pytest.raises(InputError, match=said):
        read_labels(path, examples=NAMED)
