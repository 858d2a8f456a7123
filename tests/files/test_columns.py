"""Which column is what: found by its name, else by what is in it, and named in a note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyway import InputError
from manyway.files.columns import (
    Options,
    find_item,
    find_label,
    find_text,
    named_label,
    odd_features,
    open_beside,
    read_columns,
    remarks_on_classes,
)
from manyway.files.items import read_items
from manyway.files.tables import Table

CODES, NAMES = ["T-1", "T-2", "T-3"], ["Ada King", "Bob Ray", "Cy Young"]
TEXTS = ["my card is lost", "where is my card", "the card does not work"]
DAYS, WORDS, ONES = ["2024-05-01", "2024-05-02", "2024-05-03"], ["red", "blue", "red"], [1, 1, 1]


def table(**columns):
    return Table("a.csv", list(columns), [list(cells) for cells in columns.values()])


@pytest.mark.parametrize(
    ("columns", "options", "found"),
    [
        ({"x": ONES, "item": WORDS}, {}, "item"),
        ({"x": ONES, "Item": CODES}, {}, "Item"),
        ({"ticket_id": ONES, "text": TEXTS}, {}, "ticket_id"),
        ({"customer_id": ONES, "ticket_id": CODES}, {}, "ticket_id"),  # the one without repetitions
        ({"day": DAYS, "Vorgang": CODES}, {}, "Vorgang"),
        ({"photo": ["owl.png", "hawk.png", "wren.png"]}, {}, "photo"),
        ({"index": [0, 1, 2], "file": CODES}, {}, "file"),
        ({"index": [0, 1, 2], "x": ONES}, {}, "index"),
        ({"day": DAYS, "colour": WORDS, "x": ONES}, {}, None),
        ({"ticket_id": CODES, "nr": ONES}, {"item_column": "NR"}, "nr"),
        ({"ticket_id": CODES, "x": ONES}, {"feature_columns": ("ticket_id",)}, None),
        ({"ticket_id": CODES, "x": ONES}, {"like": ("ticket_id",)}, None),
    ],
)
def test_the_name_of_an_item_is_found(columns, options, found):
    at, _ = find_item(table(**columns), Options(**options), ())
    assert (None if at is None else list(columns)[at]) == found


@pytest.mark.parametrize(
    ("columns", "options", "found"),
    [
        ({"text": WORDS, "Description": TEXTS}, {}, "text"),
        ({"query": ONES}, {}, "query"),  # whether it is one of texts is asked elsewhere
        ({"Kunde": NAMES, "Betreff": TEXTS}, {}, "Betreff"),
        ({"Kunde": NAMES, "day": DAYS, "colour": WORDS}, {}, "Kunde"),
        ({"place": ["old mill creek"] * 3, "x": ONES}, {}, None),
        ({"nachricht": ["我的卡不见了", "卡在哪里呢", "卡不能用了"]}, {}, "nachricht"),
        ({"a": TEXTS, "b": TEXTS}, {"text_column": "B"}, "b"),
        ({"a": TEXTS, "b": NAMES}, {"like": ("b",)}, "b"),  # as in the examples
        ({"a": TEXTS, "b": NAMES}, {"text_column": "c"}, "a"),
        ({"category": TEXTS, "ticket_id": TEXTS}, {}, None),
    ],
)
def test_the_column_of_texts_is_found(columns, options, found):
    at, _ = find_text(table(**columns), Options(**options), ())
    assert (None if at is None else list(columns)[at]) == found


MEASURED = np.random.default_rng(0).normal(size=(12, 3))
N = np.arange(12)


@pytest.mark.parametrize(
    ("name", "values", "left_out", "words"),
    [
        ("plant", N, True, "numbers the rows (0, 1, 2, …)"),
        ("plant", N + 1, True, "numbers the rows (1, 2, 3, …)"),
        ("plant", N + 2, True, "numbers the rows"),  # it rises throughout
        ("plant", N * 5 % 12, True, "numbers the rows"),
        ("plant", N * 5 % 12 + 2, False, "another whole number in every row"),
        ("plant", N**3, True, "numbers the rows"),
        ("plant", N // 2, False, None),
        ("plant", N * 7 % 13 + 0.5, False, None),
        ("catalog_number", N * 700 % 1301, True, "looks like an id"),
        ("number", N // 2, False, None),
        ("sample date", N // 2 + 45000, True, "looks like a date or time"),
        ("taken", N // 2 + 20231230, False, "hardly differ, far from 0"),  # there is no 32nd of December
        ("taken", N // 2 + 20231220, True, "looks like a date"),
        ("taken", N // 2 + 1_700_000_000, True, "looks like a date"),
        ("taken", N // 2 + 17_000_000_000, False, "hardly differ, far from 0"),
        ("p", N * 37 % 12 + 5_400_000.5, False, "hardly differ, far from 0"),
        ("Latitude", N * 5 % 7 / 7 + 48, False, "may hold coordinates"),
        ("taken", N * 5 % 7 + 45_000, False, "days or years"),
        ("taken", N * 5 % 7 + 1990, False, "days or years"),
        ("taken", N * 5 % 7 + 1_700_000_000.25, True, "looks like a date or time (1700000000.25, 1700000005.25, "),
        ("taken", N * 5 % 12 + 45_000.375, False, "days or years"),  # Excel
        ("taken", N * 5 % 12 + 739_000.375, False, "days or years"),  # MATLAB
        ("date", N * 5 % 7 + 739_000.375, True, "looks like a date or time"),
        ("taken", N * 5 % 7 + 739_000.375, False, "hardly differ, far from 0"),
        ("taken", N * 1900.5 + 40_000, False, None),
        ("year", N * 5 % 12 + 2000, False, "if it is an id, a time or a place"),
    ],
)
def test_features_that_are_rather_row_numbers_ids_or_dates(name, values, left_out, words):
    features = np.column_stack([values, MEASURED])
    found, notes = odd_features("a.csv", features, [name, "x", "y", "z"])
    assert found == ([0] if left_out else [])
    assert [words in note and f"'{name}' of a.csv" in note and "`ignore_columns`" in note for note in notes] == (
        [] if words is None else [True]
    )
    assert odd_features("a.csv", features, [name, "x", "y", "z"], Options(feature_columns=(name,))) == ([], [])


@pytest.mark.parametrize(
    ("values", "left_out"),
    [
        ([0, 1, 2], True),
        ([0, 1], False),  # too few to say anything
        ([1, 0, 2, 3], False),
        ([1, 0, 2, 3, 4], True),
        ([5, 6, 8, 9, 10, 11, 12], False),
        ([5, 6, 8, 9, 10, 11, 12, 14], True),
        ([5, 6, 8, 9, 10, 11, 12, 12], False),
    ],
)
def test_the_fewer_rows_the_surer_must_be_the_count(values, left_out):
    features = np.column_stack([values, MEASURED[: len(values)]])
    assert odd_features("a.csv", features, ["plant", "x", "y", "z"])[0] == ([0] if left_out else [])


def test_whole_numbers_are_usual_in_a_table_of_counts():
    counts = np.column_stack([N, N * 5 % 12, N % 3, N % 5])
    for features in (counts, counts + 10**12):
        left_out, notes = odd_features("a.csv", features, ["plant", "x", "y", "z"])
        assert not left_out
        assert [note.split("'")[1] for note in notes] == ["plant", "x"]  # without repetitions


R = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("first", "others", "left_out"),
    [
        ([107, 113, 101], 102 + R.permutation(30), False),  # 107 appears in both, so it is noted
        ([107, 113, 101], 102 + R.permutation(30) // 2, False),
        ([140, 133, 101], 102 + R.permutation(30), True),  # 33 numbers of a range of 40 do not differ by chance
        ([140, 133, 101], 102 + 40 * R.permutation(30), False),  # noted
        ([3, 55, 80], 81 + 40 * np.arange(30), True),  # rising in both
        ([1, 2, 3], R.permutation(30) + 1, True),  # each table counts its rows
        ([1, 2, 3], R.integers(0, 9, 30), False),  # a small number, by chance in order
        ([1, 2, 3], R.integers(0, 9, 30) + 0.5, False),
    ],
)
def test_rows_of_the_items_help_to_tell_ids(tmp_path, first, others, left_out):
    beside = tmp_path / "items.csv"
    beside.write_text("x,plant,y,z\n" + "".join(f"{n * 7 % 30 / 7:.3f},{others[n]},{n % 3},1\n" for n in range(30)))
    features = np.column_stack([first, MEASURED[:3, 0], [1, 5, 1], [2, 5, 2]])  # also in a table of whole numbers
    for names in (["plant", "x", "y", "z"], ["plant", "x"]):
        found = odd_features("a.csv", features[:, : len(names)], names, Options(beside=open_beside(beside)))[0]
        assert found == ([0] if left_out else [])


def test_the_rows_of_the_items_are_those_of_the_sheet_that_is_named(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book, beside = openpyxl.Workbook(), tmp_path / "items.xlsx"
    for name, numbers in (("other", range(4, 40)), ("items", [0, 2, 1, 0, 2, 0, 1, 5])):
        sheet = book.create_sheet(name)
        for row in (["plant", "x"], *([number, number / 7] for number in numbers)):
            sheet.append(row)
    book.remove(book["Sheet"])
    book.save(beside)
    features = np.column_stack([[1, 2, 3], MEASURED[:3, 0]])
    found = [
        odd_features(
            "a.xlsx", features, ["plant", "x"], Options(sheet=s, beside=open_beside(beside, Options(sheet=s)))
        )[0]
        for s in ("other", "items")
    ]
    assert found == [[0], []]


@pytest.mark.parametrize(
    ("first", "others", "numbers"),
    [
        (["1,234", "567"], ["1,234", "0,567"], [[1.234, 567], [1.234, 0.567]]),
        (["1,234", "5,678"], ["1,5", "2"], [[1.234, 5.678], [1.5, 2]]),
        (["1.234", "5.678"], ["1.234", "12.345.678"], [[1234, 5678], [1234, 12345678]]),
        (["1.234", "5.678"], ["1.234,5", "12"], [[1234, 5678], [1234.5, 12]]),
        (["1.234,5", "12"], ["1.234", "5.678"], [[1234.5, 12], [1234, 5678]]),
        (["€5", "€6"], ["7", "8"], [[5, 6], [7, 8]]),  # no common form: each by itself
        (["1.5", "2"], ["1,5", "2"], [[1.5, 2], [1.5, 2]]),
    ],
)
def test_examples_and_items_decide_together_how_numbers_are_written(tmp_path, first, others, numbers):
    known, new = tmp_path / "examples.tsv", tmp_path / "items.tsv"
    known.write_text("label\twidth\theight\n" + "".join(f"{n}\t{cell}\t0\n" for n, cell in enumerate(first)))
    new.write_text("width\theight\n" + "".join(f"{cell}\t0\n" for cell in others))
    options = Options(beside=open_beside(new))
    examples = read_items(known, options)
    items = read_items(new, options, like=examples)
    assert [examples.features[:, 0].tolist(), items.features[:, 0].tolist()] == [pytest.approx(one) for one in numbers]


@pytest.mark.parametrize(("ours", "theirs"), [(".", ","), (",", ".")])
def test_tables_that_show_their_decimal_signs_keep_them(tmp_path, ours, theirs):
    # 0.123 is no thousand, so that 1.234 beside it is none, whatever the other table has
    known, new = tmp_path / "examples.tsv", tmp_path / "items.tsv"
    known.write_text("label\twidth\theight\nx\t1.234\t0.125\ny\t5.678\t0.375\n".replace(".", ours))
    new.write_text("width\theight\n1.234\t0.625\n5.678\t0.875\n".replace(".", theirs))
    options = Options(beside=open_beside(new))
    examples = read_items(known, options)
    items = read_items(new, options, like=examples)
    assert examples.features.tolist() == [pytest.approx([1.234, 0.125]), pytest.approx([5.678, 0.375])]
    assert items.features.tolist() == [pytest.approx([1.234, 0.625]), pytest.approx([5.678, 0.875])]


@pytest.mark.parametrize("step", [1, 0])  # 0: plants repeat, and stay; else the column comes back, as it is written
def test_items_are_read_once_to_judge_columns_and_to_have_them(tmp_path, monkeypatch, step):
    import pyarrow.csv

    read, known, new = [], tmp_path / "examples.csv", tmp_path / "items.csv"
    known.write_text("label,plant,width\na,1,0.5\nb,2,1.5\nb,3,1.5\n")
    rows = (f"{4 + n * step},{n % 7 / 3:.4f},creek\n" for n in range(36))
    new.write_text("plant,width,site\n" + "".join(rows))
    original = pyarrow.csv.read_csv
    monkeypatch.setattr(pyarrow.csv, "read_csv", lambda path, *a: read.append(path) or original(path, *a))
    options = Options(beside=open_beside(new))
    examples = read_items(known, options)
    items = read_items(new, options, like=examples)
    assert examples.columns == items.columns == ("plant", "width")[step:]
    assert items.carried["site"] == ["creek"] * 36
    assert read.count(new) == 1 + step


def test_ranks_are_features():
    ranks = np.column_stack([R.permutation(40) + 1 for _ in range(3)])
    assert odd_features("a.csv", np.column_stack([ranks, R.normal(size=(40, 4))]), list("abcdefg"))[0] == []


def test_the_other_columns_are_carried_and_features_are_those_of_the_examples(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,width,site,label,height,007\nT-1,1.5,creek,ant,2,01.50\nT-2,2.5,,bee,3,1e3\n")
    examples = read_columns(path, Options())
    assert (examples.columns, examples.labels, examples.items) == (
        ("width", "height", "007"),
        ["ant", "bee"],
        ["T-1", "T-2"],
    )
    items = read_columns(path, Options(like=("height", "width")), with_labels=False)
    assert items.features.tolist() == [[2.0, 1.5], [3.0, 2.5]]
    assert items.carried == {"site": ["creek", ""], "label": ["ant", "bee"], "007": ["01.50", "1e3"]}
    with pytest.raises(InputError, match=r"lacks the columns 'depth' .*\(it has 'site', '007' instead\)|'width'"):
        read_columns(path, Options(like=("height", "depth")), with_labels=False)


def test_labels_that_are_one_number_are_named():
    said = remarks_on_classes(Path("a.csv"), ["1", "1.0", "01", "2"])
    assert said == (
        "the labels '01' and '1' of a.csv are one number and two classes",
        "the labels '01' and '1.0' of a.csv are one number and two classes",
    )


def test_numbers_are_shown_as_they_are_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,latitude,width\n" + "".join(f"{n % 3},51.{2 + n},0.{n * 7 % 9}1\n" for n in range(6)))
    assert "may hold coordinates (51.2, 51.3, 51.4, …)" in " ".join(read_columns(path, Options()).notes)


def test_remarks_on_classes_are_few():
    remarks = remarks_on_classes(Path("a.csv"), [name for k in range(8) for name in (f"Cat {k}", f"cat {k}")])
    assert remarks[-1] == "and 3 more of this kind"
    assert len(remarks) == 6


@pytest.mark.parametrize(
    ("names", "label"), [("a,Species", "Species"), ("a,species,label", "label"), ("a,species,topic", None)]
)
def test_other_names_of_labels_count_where_they_are_clear(names, label, tmp_path):
    at = named_label(tmp_path / "a.csv", names.split(","), Options())
    assert (None if at is None else names.split(",")[at]) == label


def cells(words: str) -> list[str]:
    """Cells of a column; a dot is an empty one."""
    return ["" if word == "." else word for word in words.split()]


@pytest.mark.parametrize(
    ("columns", "options", "label"),
    [
        ({"Thema": cells("a b a b a b"), "Ort": cells("x x y y x y")}, {"columns_of_items": ["Ort"]}, "Thema"),
        ({"Thema": cells("a b a b a b"), "n": cells("1 2 1 2 1 2")}, {}, "Thema"),
        (
            {"\u0432\u0438\u0434": cells("a b c d e f"), "n": cells("1 2 1 2 1 2")},
            {"columns_of_items": ["n"]},
            "\u0432\u0438\u0434",
        ),
        ({"Art": cells("a a b b . ."), "Ort": cells("x x y y x y")}, {"labelled": True}, "Art"),
        ({"gruppe": cells("a a b b . ."), "Ort": cells("x x y y x y")}, {"labelled": True}, "gruppe"),
        ({"day": cells("2024-01-01 2024-01-01 2024-01-02 2024-01-02"), "x": cells("1 2 1 2")}, {}, None),
        ({"code": cells("T-1 T-2 T-3 T-4")}, {}, None),
    ],
)
def test_a_column_of_labels_is_found_by_what_is_in_it(columns, options, label):
    found = find_label(Path("a.csv"), table(**columns), Options(**{"find_label": True, **options}))
    assert (None if found is None else list(columns)[found]) == label


def test_two_columns_that_could_be_the_label_are_named_and_nothing_is_guessed():
    both = table(topic_a=cells("a b a b"), topic_b=cells("x x y y"))
    with pytest.raises(InputError, match="could be the label: 'topic_a', 'topic_b'; say which with `label_column`"):
        find_label(Path("a.csv"), both, Options(find_label=True))
    assert find_label(Path("a.csv"), both, Options()) is None


def test_running_numbers_are_no_features_whether_they_repeat_or_not():
    counts = np.tile(np.arange(1, 11), 4)
    measured = R.normal(size=(40, 2))
    for name, values in {"Sample Number": counts, "Proben-Nr.": np.ones(40), "Plot No.": counts * 3}.items():
        left_out, notes = odd_features("a.csv", np.column_stack([values, measured]), [name, "a", "b"])
        assert left_out == [0]
        assert "keep it with `feature_columns`" in notes[0]
    petals = R.integers(3, 9, 40)
    assert odd_features("a.csv", np.column_stack([petals, measured]), ["petal number", "a", "b"])[0] == []


def test_one_line_says_which_columns_are_used_for_what(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Fund,Art,Breite,H\u00f6he,Ort\nF-1,ant,1.5,2,x\nF-2,bee,2.5,3,y\n", encoding="utf-8")
    used = "label 'Art'; features 'Breite', 'H\u00f6he'; item name 'Fund'; not used: 'Ort'"
    how = "`label_column`, `feature_columns`, `ignore_columns`, `item_column`"
    assert read_items(path).notes[0] == f"columns of a.csv: {used} (change it with {how})"
    path.write_text("item,label,a\nx,ant,1.5\ny,bee,2.5\n")
    assert read_items(path).notes == ()


@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("TRUE", "FALSE"), ("ja", "nein"), ("y", "n")])
def test_a_column_of_yes_and_no_is_a_feature_where_it_is_asked_for(tmp_path, yes, no):
    path = tmp_path / "a.csv"
    path.write_text(f"width,striped,label\n1.5,{yes},bee\n0.5,{no},ant\n0.25, {yes} ,bee\n")
    left_out = read_items(path)
    assert left_out.columns == ("width",)
    assert any("feature 'width'; not used: 'striped' (change it with" in n for n in left_out.notes)
    asked = read_items(path, Options(feature_columns=("striped",)))
    assert asked.rows(0, 3).tolist() == [[1.5, 1.0], [0.5, 0.0], [0.25, 1.0]]
    path.write_text(f"width,striped,label\n1.5,{yes},bee\n0.5,perhaps,ant\n")
    with pytest.raises(InputError, match="striped"):
        read_items(path, Options(feature_columns=("striped",)))


def test_a_column_of_kinds_is_no_feature_where_some_are_called_by_a_number(tmp_path):
    (tmp_path / "a.csv").write_text("width,drive,wear,label\n1,4,NA,a\n2,f,NA,b\n3,f,0.5,a\n")
    with pytest.raises(InputError, match=r"Column 'wear' of .* \(line 2 has 'NA'\)"):
        read_items(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("width,drive,label\n1.5,4,a\n2.5,f,b\n3.5,f,a\n")
    assert read_items(tmp_path / "a.csv").columns == ("width",)


def test_answers_of_an_earlier_run_are_no_features_unless_they_are_named(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,width,label,probability,label_2,probability_2,unknown,note\n"
        "p1,2.5,ant,0.9,bee,0.1,0.2,\np2,3.5,bee,0.6,ant,0.4,0.1,\n"
    )
    assert read_items(tmp_path / "a.csv").columns == ("width",)
    kept = read_items(tmp_path / "a.csv", options=Options(feature_columns=("unknown",)))
    assert kept.columns == ("width", "unknown")


def test_answers_of_an_earlier_run_are_no_texts():
    names = ["label", "probability", "label_2", "note", "said"]
    cells = [["a"], ["0.5"], ["a long name of a class"], ["it has no number"], ["two words"]]
    assert find_text(Table("a.csv", names, cells), Options(), {0}).at == 4


@pytest.mark.parametrize(("last", "said"), [("Total", 1), ("Gesamtsumme", 1), ("totally", 0), ("p3", 0)])
def test_a_last_row_that_may_sum_up_the_others_is_named(tmp_path, last, said):
    (tmp_path / "a.csv").write_text(f"item,width\np1,2.5\nTotal,3\n{last},6\n")
    notes = [note for note in read_items(tmp_path / "a.csv").notes if "last row" in note]
    assert len(notes) == said
    assert all(f"'{last}'; remove it if it sums up the others" in note for note in notes)
