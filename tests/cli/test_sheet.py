"""One table of which only some rows have a label: they are the examples, and the others are the items."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from manyway import labelling
from manyway.cli import review as reviews
from manyway.cli.inputs import Inputs
from manyway.cli.options import ReadingOptions
from manyway.files.formats.registry import table_format
from tests.cli.test_inputs import encoded  # noqa: F401 (a fixture)

WRITERS = {"csv": "to_csv", "tsv": "to_csv", "xlsx": "to_excel", "parquet": "to_parquet", "jsonl": "to_json"}


def sheet(seed: int = 0) -> pd.DataFrame:
    """Three kinds of flowers with an id, a date and a remark; a third of the rows has a label."""
    generator = np.random.default_rng(seed)
    kinds = np.array(["ant", "bee", "fly"])[generator.permutation(np.arange(60) % 3)]
    middles = {"ant": (2, 9), "bee": (6, 3), "fly": (9, 8)}
    rows = [
        (f"S-{n:03}", kind, *generator.normal(middles[kind], 0.5), ("fine", "odd")[n % 2])
        for n, kind in enumerate(kinds)
    ]
    made = pd.DataFrame(rows, columns=["id", "label", "width", "height", "remark"])
    made["truth"] = made["label"].str[0]
    made["label"] = made["label"].where(np.arange(60) % 3 == 0)
    return made


def write(table: pd.DataFrame, path) -> None:
    more = {"csv": {}, "tsv": {"sep": "\t"}, "jsonl": {"orient": "records", "lines": True}}.get(path.suffix[1:], {})
    index = {} if path.suffix == ".jsonl" else {"index": False}
    getattr(table, WRITERS[path.suffix[1:]])(path, **more, **index)


def rows_of(path, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def n_labelled(path) -> int:
    """How many rows got a label that nobody had given."""
    return sum(row["new_note"] == "" for row in rows_of(path))


def test_labels_do_not_go_to_other_rows_where_the_table_changes_meanwhile(tmp_path, run_in_folder, monkeypatch):
    table = sheet()
    path = tmp_path / "sheet.csv"
    write(table, path)
    solve = labelling.solve_batch

    def solve_while_somebody_sorts(*given, **named):
        write(table.sort_values("width"), path)
        return solve(*given, **named)

    monkeypatch.setattr(labelling, "solve_batch", solve_while_somebody_sorts)
    code, out, err = run_in_folder("label", "sheet.csv", "-o", "out.csv")
    assert code == 0, err
    assert "sheet.csv was changed while its items were labelled" in out + err
    kinds = dict(zip(table["id"], table["truth"], strict=True))
    found = rows_of(tmp_path / "out.csv")
    assert {row["item"] for row in found} == set(table["id"][table["label"].isna()])
    assert all(row["label"][0] == kinds[row["item"]] for row in found)


@pytest.mark.parametrize("suffix", WRITERS)
def test_one_table_gets_the_answers_of_two(suffix, tmp_path, run_in_folder):
    table = sheet()
    write(table, tmp_path / f"sheet.{suffix}")
    write(table[table["label"].notna()], tmp_path / "known.csv")
    write(table[table["label"].isna()].drop(columns="label"), tmp_path / "new.csv")
    code, _, err = run_in_folder("label", f"sheet.{suffix}", "-o", "one.csv")
    assert code == 0, err
    assert f"rows of sheet.{suffix} with a label in 'label' are the examples, the other 40 the items" in err
    assert run_in_folder("label", "known.csv", "new.csv", "-o", "two.csv")[0] == 0
    found = rows_of(tmp_path / "one.csv")
    assert [row["id"] for row in found] == table["id"].tolist()
    assert [row["remark"] for row in found] == table["remark"].tolist()
    known = [row for row in found if row["label"]]
    assert all((row["new_label"], row["new_note"]) == (row["label"], "given") for row in known)
    new = [row for row in found if not row["label"]]
    assert sum(row["new_label"][0] == row["truth"] for row in new) >= 38
    answers = [(row["id"], row["new_label"], row["new_probability"]) for row in new]
    two = rows_of(tmp_path / "two.csv")
    assert answers == [(row["id"], row["label"], row["probability"]) for row in two]


def test_rows_without_names_come_back_in_their_order(tmp_path, run_in_folder):
    table = sheet()[["width", "height", "label"]]
    write(table, tmp_path / "sheet.csv")
    assert run_in_folder("label", "sheet.csv")[0] == 0
    found = rows_of(tmp_path / "labels.csv")
    assert [float(row["width"]) for row in found] == table["width"].tolist()
    assert [row["new_note"] for row in found].count("given") == 20


def test_a_decimal_comma_gaps_and_the_name_of_the_column(tmp_path, run_in_folder):
    table = sheet().rename(columns={"label": "kind of insect"})
    table.loc[[3, 4], "width"] = np.nan
    table.to_csv(tmp_path / "sheet.csv", sep=";", decimal=",", index=False)
    code, out, err = run_in_folder("label", "sheet.csv", "--label-column", "kind of insect", "--skip-bad")
    assert code == 0, err
    assert "1 item without an answer: the column 'note' at the end of the table says why." in out
    found = rows_of(tmp_path / "labels.csv", ";")
    assert len(found) == 60
    why = "skipped: it has no number in column 'width'"
    assert [row["id"] for row in found if row["note"] == why] == ["S-003", "S-004"]
    assert all("," in row["probability"] for row in found if not row["note"])
    code, _, err = run_in_folder("label", "sheet.csv", "--label-column", "kind of insects")
    assert (code, "sheet.csv has no column 'kind of insects'; did you mean 'kind of insect'?" in err) == (2, True)


@pytest.mark.parametrize("word", ["NA", "?", "n/a"])
def test_a_word_for_a_missing_label_counts_where_no_cell_is_empty(word, tmp_path, run_in_folder):
    table = sheet()
    write(table.fillna({"label": word}), tmp_path / "sheet.csv")
    code, _, err = run_in_folder("label", "sheet.csv")
    assert (code, n_labelled(tmp_path / "labels.csv")) == (0, 40)
    assert f"the other 40, which say '{word}', the items" in err
    table.loc[[1, 2, 4], "label"] = word
    write(table, tmp_path / "sheet.csv")
    code, _, err = run_in_folder("label", "sheet.csv")
    assert (code, n_labelled(tmp_path / "labels.csv")) == (0, 37)
    assert f"the label '{word}' of sheet.csv is taken as the name of a class" in err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a,label\n1,x\n2,y\n", "Every row of sheet.csv has a label in column 'label'; fill in those of some rows"),
        ("a,label\n1,\n2,\n", "No row of sheet.csv has a label in column 'label'; fill in those of some rows"),
        ("a,label\n", "No row of sheet.csv has a label in column 'label'"),
        (
            "a,b\n1,2\n",
            "sheet.csv has no column of labels among 'a', 'b'; name it with --label-column, or give a file",
        ),
        ("1,2\n3,4\n", "sheet.csv has no column of labels"),
        ("a,label\n1,x\n2,\n", "All labelled examples are of class 'x'"),
        ("", "sheet.csv is empty"),
    ],
)
@pytest.mark.parametrize("command", ["label", "review"])
def test_a_table_that_is_not_partly_labelled_gets_a_sentence(command, content, why, tmp_path, run_in_folder):
    (tmp_path / "sheet.csv").write_text(content)
    code, _, err = run_in_folder(command, "sheet.csv")
    assert (code, why in err) == (2, True), err
    assert not {path.name for path in tmp_path.iterdir()} - {"sheet.csv"}


def test_one_input_that_is_no_table_gets_a_sentence(tmp_path, run_in_folder):
    (tmp_path / "photos").mkdir()
    code, _, err = run_in_folder("label", "photos")
    assert code == 2
    assert "There is one input; give EXAMPLES and ITEMS, a table that has labels in some rows" in err


def test_texts_and_pictures_in_one_table(encoded, tmp_path, run_in_folder, monkeypatch):  # noqa: F811
    monkeypatch.setenv("MANYWAY_CACHE", str(tmp_path / "cache"))
    texts = "ticket,text,label\nT1,banana,x\nT2,a canal,\nT3,salad,x\nT4,bee,y\nT5,tree,y\nT6,sleep,\n"
    (tmp_path / "tickets.csv").write_text(texts)
    assert run_in_folder("label", "tickets.csv")[0] == 0
    found = rows_of(tmp_path / "labels.csv")
    new = [(row["ticket"], row["new_label"]) for row in found if row["new_note"] != "given"]
    assert ([row["ticket"] for row in found], new) == (
        ["T1", "T2", "T3", "T4", "T5", "T6"],
        [("T2", "x"), ("T6", "y")],
    )
    lines = ["file,label,site"]
    for n, colour in enumerate([(250, 9, 9), (9, 250, 9), (240, 9, 9), (9, 240, 9), (245, 9, 9), (9, 245, 9)]):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{n}.png")
        lines.append(f"{n}.png,{['red', 'green'][n % 2] if n < 4 else ''},north-{n}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    code, _, err = run_in_folder("label", "list.csv", "-o", "pictures.csv")
    assert code == 0
    assert "rows of list.csv with a label in 'label' are the examples, the other 2 the items" in err
    found = rows_of(tmp_path / "pictures.csv")
    assert [(row["file"], row["new_label"], row["site"]) for row in found[4:]] == [
        ("4.png", "red", "north-4"),
        ("5.png", "green", "north-5"),
    ]


def note_opening(path, monkeypatch) -> list[str]:
    """The names of the files of a format that are opened from now on."""
    form = type(table_format(path))
    read = form.read
    opened: list[str] = []

    def noted(self, path, asked):
        opened.append(path.name)
        return read(self, path, asked)

    monkeypatch.setattr(form, "read", noted)
    return opened


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_one_table_is_opened_once_for_both_kinds_of_rows(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"sheet.{suffix}"
    write(sheet(), path)
    opened = note_opening(path, monkeypatch)
    source = Inputs.of(path, reading=ReadingOptions(no_cache=True))
    examples, items, _ = source.read(torch.device("cpu"))
    assert opened == [path.name]
    table = sheet()
    known = table["label"].notna()
    assert examples.labels == tuple(table["label"][known])
    np.testing.assert_allclose(examples.features, table.loc[known, ["width", "height"]], rtol=1e-6)
    np.testing.assert_allclose(items.features, table.loc[~known, ["width", "height"]], rtol=1e-6)


def test_one_table_of_texts_is_opened_once(encoded, tmp_path, monkeypatch):  # noqa: F811
    path = tmp_path / "tickets.csv"
    path.write_text("ticket,text,label\nT1,banana,x\nT2,a canal,\nT3,salad,x\nT4,bee,y\nT5,tree,y\nT6,sleep,\n")
    opened = note_opening(path, monkeypatch)
    source = Inputs.of(path, reading=ReadingOptions(no_cache=True))
    examples, items, _ = source.read(torch.device("cpu"))
    assert opened == [path.name]
    assert (examples.labels, items.names) == (("x", "x", "y", "y"), ["T2", "T6"])


def test_the_items_of_one_table_are_reviewed(tmp_path, run_in_folder, monkeypatch):
    write(sheet(), tmp_path / "sheet.xlsx")
    seen = []
    monkeypatch.setattr(reviews, "run_review", lambda data, folder, **more: seen.append(data))
    assert run_in_folder("review", "sheet.xlsx")[0] == 0
    assert run_in_folder("label", "sheet.xlsx", "--review")[0] == 0
    for data in seen:
        assert (len(data.examples), len(data.items), data.names[0]) == (20, 40, "S-001")
    assert len(seen) == 2
    code, _, err = run_in_folder("review", "sheet.xlsx", "--export", "reviewed.csv")
    assert (code, "Exports are made of a saved review" in err) == (2, True)


def test_a_folder_in_the_way_of_a_review_costs_no_labels_and_names_the_command_that_helps(tmp_path, run_in_folder):
    write(sheet(), tmp_path / "sheet.csv")
    (tmp_path / "review").mkdir()
    (tmp_path / "review" / "mine.txt").write_text("precious")
    code, _, err = run_in_folder("label", "sheet.csv", "--review")
    assert code == 2
    assert "review exists and holds no review; name another folder: `manyway review … -o FOLDER`." in err
    assert n_labelled(tmp_path / "labels.csv") == 40
    assert [path.name for path in (tmp_path / "review").iterdir()] == ["mine.txt"]


def test_a_spreadsheet_with_german_headings_needs_no_option(encoded, tmp_path, run_in_folder, monkeypatch):  # noqa: F811
    """Texts beside a number of minutes, labels under a name of any language, a date and ids with zeros in front."""
    monkeypatch.setenv("MANYWAY_CACHE", str(tmp_path / "cache"))
    texts = {"Obst": "a banana and a salad", "Wald": "the tree sleeps deep here"}
    rows = [
        {
            "Ticket-Nr.": f"00{n}",
            "Eingang": pd.Timestamp(2024, 5, n),
            "Beschreibung": f"{texts[name]} {n}",
            "Dauer (min)": n / 2,
            "Rubrik": name if n < 7 else None,
        }
        for n, name in enumerate(["Obst", "Wald"] * 5, 1)
    ]
    pd.DataFrame(rows).to_excel(tmp_path / "tickets.xlsx", index=False)
    code, out, err = run_in_folder("label", "tickets.xlsx")
    assert code == 0, err
    assert "columns of tickets.xlsx: label 'Rubrik'; text 'Beschreibung'" in err
    assert err.count("columns of") == 1  # for the rows with and without a label
    assert "Written to labels.xlsx." in out
    found = pd.read_excel(tmp_path / "labels.xlsx", dtype={"Ticket-Nr.": str})
    assert found["Ticket-Nr."].tolist() == [row["Ticket-Nr."] for row in rows]
    assert found["Eingang"].tolist() == [row["Eingang"] for row in rows]
    assert found["label"].tolist() == ["Obst", "Wald"] * 5
    assert found["note"].fillna("").tolist() == ["given"] * 6 + [""] * 4


def test_one_line_says_what_the_columns_of_a_partly_labelled_table_are(tmp_path, run_in_folder):
    rows = [f"{n},wood,{n % 2 * 5 + n / 90},{('elm', 'oak')[n % 2] if n < 20 else ''}" for n in range(40)]
    (tmp_path / "trees.csv").write_text("\n".join(["Nr,site,width,Art", *rows, ""]))
    _, _, err = run_in_folder("label", "trees.csv")
    lines = [line for line in err.splitlines() if "columns of" in line]
    assert lines == [
        "note: columns of trees.csv: label 'Art'; feature 'width'; item name 'Nr'; not used: 'site' (change it with "
        "--label-column, --feature-column, --ignore-column, --item-column)"
    ]


def test_the_penguins_as_they_were_published_need_no_option(tmp_path, run_in_folder):
    generator = np.random.default_rng(1)
    kinds = ["Adelie", "Gentoo", "Chinstrap"]
    made = []
    for kind, (long, deep) in zip(kinds, [(38, 18), (47, 15), (49, 20)], strict=True):
        for n in range(1, 21):
            body = (generator.normal(long, 1), generator.normal(deep, 0.5))
            comment = "Not enough blood for isotopes." if n == 3 else None
            made.append(("PAL0708", n, f"{kind} Penguin", f"N{n}A1", f"11/{n}/07", *body, comment))
    names = ["studyName", "Sample Number", "Species", "Individual ID", "Date Egg", "Length", "Depth", "Comments"]
    table = pd.DataFrame(made, columns=names)
    table.loc[table["Sample Number"] > 5, "Species"] = None
    table.to_csv(tmp_path / "penguins.csv", index=False)
    code, _, err = run_in_folder("label", "penguins.csv")
    assert code == 0, err
    assert "label 'Species'; features 'Length', 'Depth'; item name 'Individual ID'" in err
    assert "column 'Sample Number' of penguins.csv" in err
    found = rows_of(tmp_path / "labels.csv")
    assert [row["Sample Number"] for row in found] == [str(n) for n in table["Sample Number"]]
    assert sum(row["label"] == f"{kinds[at // 20]} Penguin" for at, row in enumerate(found)) >= 58
