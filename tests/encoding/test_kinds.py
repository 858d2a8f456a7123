"""What an input holds, as it is seen from its files: features, pictures or texts."""

from __future__ import annotations

import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from manyway.encoding.kinds import kind_of
from manyway.errors import InputError
from manyway.files.options import Options

FILES = {
    "features.csv": ("label,width,height\nant,1.5,2\nbee,1,3\n", "features"),
    "decimal_commas.csv": ("label;width;height\nant;1,5;2\n", "features"),
    "no_header.csv": ("1.5,2\n1,3\n", "features"),
    "photos_with_features.csv": ("file,label,width\na.jpg,ant,1.5\n", "features"),
    "query_is_a_number.csv": ("label,query,width\nant,1.5,2\n", "features"),
    "names_only.csv": ("label,colour\nant,red\n", "features"),  # their reader says what is wrong
    "empty.csv": ("", "features"),
    "texts.csv": ("text,label\nwhere is my card,card\n", "texts"),
    "items.tsv": ("id\tText\n7\twhere is my card\n", "texts"),
    "texts_and_rows.csv": (",sentence\n0,where is my card\n", "texts"),
    "photos.csv": ("filename,label\na.jpg,ant\nb.PNG,bee\n", "pictures"),
    "texts.jsonl": ('{"utterance": "where is my card", "intent": "card"}\n', "texts"),
    "vectors.jsonl": ('{"embedding": [1.0, 2.0], "label": "ant"}\n', "features"),
    "lines.txt": ("where is my card\n", "texts"),
    "array.npz": ("", "features"),
    "unknown.xlsx": ("", "features"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_recognised(name, tmp_path):
    content, kind = FILES[name]
    (tmp_path / name).write_text(content)
    assert kind_of(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"text": ["hello"], "label": ["a"]}, "texts"),
        ({"x": [1.0], "label": ["a"]}, "features"),
        ({"x": []}, "features"),
    ],
)
def test_parquet_files_are_recognised(columns, kind, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert kind_of(tmp_path / "a.parquet") == kind


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["ant/1.jpg", "bee/2.PNG", "bee/notes.txt"], "pictures"),
        (["1.jpg"], "pictures"),
        (["ant.txt", "bee.txt"], "texts"),
    ],
)
def test_folders_are_recognised(names, kind, tmp_path):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert kind_of(tmp_path) == kind


def test_archives_of_pictures_are_recognised(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("photos/ant/1.jpg", "x")
    assert kind_of(tmp_path / "a.zip") == "pictures"


def test_what_does_not_exist_is_left_to_the_reader(tmp_path):
    assert kind_of(tmp_path / "nothing") == "features"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (Options(text_column="text"), "texts"),
        (Options(feature_columns=("length",)), "features"),
        (Options(ignore_columns=("text",)), "features"),
        (Options(ignore_columns=("length",)), "texts"),
        (Options(item_column="text"), "features"),
    ],
)
def test_the_user_decides_where_texts_and_numbers_are_given(options, kind, tmp_path):
    (tmp_path / "a.csv").write_text("text,label,length\nhello,greet,5.5\n")
    assert kind_of(tmp_path / "a.csv", options) == kind


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("Ticket,Betreff,Priority\nT-1,Karte ist weg,1\nT-2,Rechnung ist falsch,3\n", "texts"),
        ("Kunde;Beschreibung;Betrag\n17;Karte ist weg;1,50\n", "texts"),
        ("Kunde;Betreff;Betrag\n17;Karte weg;1,50\n", None),
        ("where,label,width,height\nold creek,ant,1.5,2\n", None),
        ("note,label,width,height\nseen near the creek,ant,1.5,2\n", "features"),
        ("text,w\nthe card is lost,1.5\nmy money is gone,2.5\n", "texts"),
        ("said,w,h\nthe card is lost,1.5,2.5\n,2.5,1.5\n,1.5,0.5\n", "features"),
        (f"note,label,{','.join(map('f{}'.format, range(16)))}\nseen near the creek,ant{',1.5' * 16}\n", "features"),
        ("colour,label\ndark red,ant\ndark red,bee\ndark red,ant\n", "features"),
        ("message,label\n你好吗朋友,greet\n", "texts"),
    ],
)
def test_texts_are_found_by_what_is_in_a_column_and_numbers_decide_where_they_are_many(table, kind, tmp_path):
    (tmp_path / "a.csv").write_text(table)
    if kind is None:
        with pytest.raises(InputError, match="`text_column`"):
            kind_of(tmp_path / "a.csv")
    else:
        assert kind_of(tmp_path / "a.csv") == kind
    # What the examples are says it where both are possible.
    assert kind is not None or {kind_of(tmp_path / "a.csv", expected=wanted) for wanted in ("texts", "features")} == {
        "texts",
        "features",
    }


def test_a_column_of_texts_may_have_any_name(tmp_path):
    (tmp_path / "a.csv").write_text("message,label\nhello,greet\n")
    assert kind_of(tmp_path / "a.csv", Options(text_column="message")) == "texts"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "is empty; it needs pictures"),
        (["a.jpg", "ant.txt", "bee.txt"], "holds pictures and texts"),
        (["ant/1.txt"], "text files in folders; give one file per class"),
        (["ant/1.npy"], r"no pictures .* \(ant/1.npy is none\)"),
    ],
)
def test_folders_of_no_clear_kind_get_a_sentence(names, why, tmp_path):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match=why):
        kind_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.csv", "text,label,size\nhello,greet,5.5\n", r"texts \(column 'text'\) and columns of numbers \('size'\)"),
        ("a.csv", "text,file\nhello,a.jpg\n", r"texts \(column 'text'\) and pictures \(column 'file'\)"),
        ("a.jpg", "x", "is a single picture"),
        ("a.zip", "x", "neither a folder nor a readable zip archive"),
    ],
)
def test_files_of_no_clear_kind_get_a_sentence(name, content, why, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=why):
        kind_of(tmp_path / name)
