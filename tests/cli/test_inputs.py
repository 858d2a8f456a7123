"""Pictures and texts without --encoder: the default encoder, what is said about it, and what is kept."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from PIL import Image, UnidentifiedImageError
from rich import progress
from torch import nn

from manyway import encoding
from manyway.cli import review
from manyway.encoding import encoders
from manyway.encoding.datasets.decode import read_picture
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.encoding.encoders import ImageEncoder, Packaged, TextEncoder
from manyway.errors import InputError

COLOURS = {"red": (250, 10, 10), "green": (10, 250, 10), "blue": (10, 10, 250)}


@pytest.fixture
def encoded(monkeypatch) -> list[object]:
    """Small encoders under the names of the default ones; the list holds what they were given."""
    seen: list[object] = []

    def pictures(images):
        seen.extend(images)
        return images.float().mean((2, 3))

    def texts(lines):
        seen.extend(lines)
        return torch.tensor([[line.lower().count(letter) for letter in "aeiou"] for line in lines]).float()

    preprocess = Preprocess(resize=4, crop=4)
    opened = {
        "efficientnet-lite2": ("pictures", ImageEncoder("means", "w", preprocess, pictures)),
        "minilm": ("texts", TextEncoder("vowels", "w", texts)),
        "use-multilingual": ("texts", TextEncoder("vowels", "w", texts)),
    }
    packaged = {
        name: Packaged(extra, ("json",), lambda device, encoder=encoder: encoder)
        for name, (extra, encoder) in opened.items()
    }
    monkeypatch.setattr(encoders, "PACKAGED", packaged)
    return seen


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYWAY_CACHE", str(tmp_path / "cache"))
    for name, colour in COLOURS.items():
        (tmp_path / "known" / name).mkdir(parents=True)
        for n in range(3):
            Image.new("RGB", (8, 8), tuple(abs(c - 3 * n) for c in colour)).save(tmp_path / "known" / name / f"{n}.png")
    (tmp_path / "pile").mkdir()
    for n in range(4):
        Image.new("RGB", (8, 8), (240 - n, 20, 15)).save(tmp_path / "pile" / f"{n}.jpg")
    examples = "text,topic,label\nbanana,a,x\nsalad,a,x\nbee,e,y\ntree,e,y\n"
    (tmp_path / "examples.csv").write_text(examples)
    (tmp_path / "items.csv").write_text("id,text\nt1,a canal\nt2,sleep\n")
    return tmp_path


def labels(folder, item: str = "item") -> dict[str, str]:
    with (folder / "labels.csv").open(newline="", encoding="utf-8-sig") as file:
        return {row[item]: row.get("new_label", row["label"]) for row in csv.DictReader(file)}


def test_folders_of_pictures_need_no_option(folder, encoded, run_in_folder):
    code, _, err = run_in_folder("label", "known/", "pile/")
    assert code == 0, err
    assert labels(folder) == {f"{n}.jpg": "red" for n in range(4)}
    assert "pictures are encoded with efficientnet-lite2" in err
    assert "timm:vit_small_patch14_dinov2.lvd142m" in err
    assert "13/13" in err


def test_items_may_lie_in_folders_and_beside_them_but_examples_may_not(folder, encoded, run_in_folder):
    (folder / "pile" / "creek" / "may").mkdir(parents=True)
    (folder / "pile" / "hill").mkdir()
    (folder / "pile" / "3.jpg").rename(folder / "pile" / "creek" / "may" / "3.jpg")
    assert run_in_folder("label", "known", "pile")[0] == 0
    assert labels(folder) == dict.fromkeys(("0.jpg", "1.jpg", "2.jpg", "creek/may/3.jpg"), "red")
    (folder / "known" / "loose.png").write_bytes((folder / "known" / "red" / "0.png").read_bytes())
    code, _, err = run_in_folder("label", "known", "pile")
    assert code == 2
    assert "mixes class folders with loose files (loose.png)" in err


def test_a_second_run_encodes_only_what_is_new_unless_told_otherwise(folder, encoded, run_in_folder):
    assert run_in_folder("label", "known", "pile")[0] == 0
    Image.new("RGB", (8, 8), (0, 230, 0)).save(folder / "pile" / "0.jpg")
    assert run_in_folder("label", "known", "pile")[0] == 0
    assert len(encoded) == 13 + 1
    assert labels(folder)["0.jpg"] == "green"
    assert run_in_folder("label", "known", "pile", "--no-cache")[0] == 0
    assert len(encoded) == 13 + 1 + 13


def test_tables_of_texts_need_no_option(folder, encoded, run_in_folder):
    code, _, err = run_in_folder("label", "examples.csv", "items.csv")
    assert code == 0, err
    assert labels(folder, "id") == {"t1": "x", "t2": "y"}
    assert "columns of items.csv: item name 'id' (change it with --item-column)" in err
    assert "texts are encoded with minilm" in err
    assert "use-multilingual" in err


def test_ids_texts_and_all_other_columns_come_back(folder, encoded, run_in_folder):
    (folder / "examples.csv").write_text(
        "Betreff,Beschreibung,Kategorie\na b,banana boat,x\na c,salad bar,x\na d,bee tree,y\na e,tree house,y\n"
    )
    (folder / "items.csv").write_text(
        "Ticket,Kunde,Betreff,Beschreibung,label,Betrag\nT-7,Ada,x y,a canal here,?,1.50\nT-8,Bob,x z,sleep well,,007\n"
    )
    code, _, err = run_in_folder("label", "examples.csv", "items.csv", "--label-column", "Kategorie")
    assert code == 0, err
    assert "columns of examples.csv: text 'Beschreibung' (not 'Betreff'); not used: 'Betreff'" in err
    assert "columns of items.csv: item name 'Ticket'; not used: 'Kunde', 'Betreff', 'label', 'Betrag'" in err
    with (folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    added = ["label", "probability", "label_2", "probability_2", "note"]
    assert list(rows[0])[6:] == [f"new_{name}" for name in added]
    texts = {"Betreff": "x z", "Beschreibung": "sleep well"}
    kept = {"Ticket": "T-8", "Kunde": "Bob", **texts, "label": "", "Betrag": "007"}
    assert {name: rows[1][name] for name in list(rows[1])[:6]} == kept
    assert [(row["Ticket"], row["new_label"]) for row in rows] == [("T-7", "x"), ("T-8", "y")]


def test_columns_of_texts_labels_and_names_can_be_chosen(folder, encoded, run_in_folder):
    options = ("--label-column", "topic", "--item-column", "id", "--text-column", "text")
    assert run_in_folder("label", "examples.csv", "items.csv", *options)[0] == 0
    assert labels(folder, "id") == {"t1": "a", "t2": "e"}
    code, _, err = run_in_folder("label", "examples.csv", "items.csv", "--label-column", "topics")
    assert code == 2
    assert "have no column 'topics'; did you mean 'topic'?" in err


def test_names_of_classes_are_enough_for_texts(folder, encoded, run_in_folder):
    (folder / "names.txt").write_text("aaa\neee\n")
    (folder / "items.txt").write_text("banana\nbee\n")
    assert run_in_folder("label", "items.txt", "--class-names", "names.txt")[0] == 0
    assert labels(folder) == {"banana": "aaa", "bee": "eee"}


class Colours(nn.Module):
    """A model of sentence-transformers that reads pictures and texts: the mean colour, or the colour of a name."""

    modalities = ("text", "image")

    def __init__(self, name, device):
        super().__init__()
        self.first = nn.Linear(1, 1)
        self.first.processor = SimpleNamespace(
            image_processor=SimpleNamespace(
                crop_size={"height": 4, "width": 4},
                size={"shortest_edge": 4},
                image_mean=[0.5] * 3,
                image_std=[0.5] * 3,
            )
        )

    def encode(self, items, convert_to_tensor, show_progress_bar):
        if isinstance(items[0], str):
            return torch.tensor([COLOURS[text] for text in items]) + 20.0
        assert all(picture.size == (4, 4) for picture in items)
        return torch.stack([torch.tensor(picture.getpixel((1, 1))).float() for picture in items])


@pytest.fixture
def colours(folder, monkeypatch):
    """A folder of such a model, and class names."""
    package = ModuleType("sentence_transformers")
    package.SentenceTransformer = Colours
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    (folder / "names.txt").write_text("red\ngreen\nblue\n")
    (folder / "model").mkdir()


def test_names_of_classes_are_enough_for_pictures_where_the_encoder_reads_both(folder, colours, run_in_folder):
    for n in range(4):
        Image.new("RGB", (8, 8), (15, 240 - n, 20)).save(folder / "pile" / f"green {n}.jpg")
    expected = {f"{n}.jpg": "red" for n in range(4)} | {f"green {n}.jpg": "green" for n in range(4)}
    names = ("--class-names", "names.txt", "--encoder", "sentence-transformers:model")
    for files in (("pile",), ("known", "pile"), ("pile",)):  # the last from the cache
        code, _, err = run_in_folder("label", *files, *names)
        assert code == 0, err
        assert "downloaded" not in err
        assert labels(folder) == expected
    (folder / "items.txt").write_text("blue\nred\n")
    assert run_in_folder("label", "items.txt", *names)[0] == 0
    assert labels(folder) == {"blue": "blue", "red": "red"}


@pytest.mark.parametrize(
    ("encoder", "why"),
    [
        (None, "pile holds pictures and names.txt texts; name an encoder that reads both with --encoder"),
        ("efficientnet-lite2", "names.txt holds texts, which means cannot read; choose an --encoder of texts"),
        ("minilm", "pile holds pictures, which vowels cannot read; choose an --encoder of pictures"),
    ],
)
def test_names_for_pictures_need_an_encoder_of_both(encoder, why, folder, encoded, colours, run_in_folder):
    words = () if encoder is None else ("--encoder", encoder)
    code, _, err = run_in_folder("label", "pile", "--class-names", "names.txt", *words)
    assert code == 2
    assert why in err


def test_an_encoder_that_is_named_is_used_without_a_remark(folder, encoded, run_in_folder):
    code, _, err = run_in_folder("label", "known", "pile", "--encoder", "efficientnet-lite2")
    assert code == 0
    assert "are encoded with" not in err


def test_a_review_knows_what_it_shows(folder, encoded, colours, run_in_folder, monkeypatch):
    shown = []
    monkeypatch.setattr(review, "run_review", lambda data, folder, **options: shown.append(data))
    assert run_in_folder("review", "known", "pile")[0] == 0
    assert run_in_folder("review", "examples.csv", "items.csv")[0] == 0
    assert run_in_folder("review", "known", "pile", "--encoder", "sentence-transformers:model")[0] == 0
    assert [data.kind for data in shown] == ["pictures", "texts", "pictures"]
    assert (shown[1].names, shown[1].shown) == (("t1", "t2"), ("a canal", "sleep"))
    assert shown[0].origins["items"] == str(folder / "pile")


@pytest.mark.parametrize(
    ("words", "extra"), [(["known", "pile"], "pictures"), (["examples.csv", "items.csv"], "texts")]
)
def test_without_the_extra_the_command_says_how_to_install_it(
    words, extra, folder, encoded, run_in_folder, monkeypatch
):
    packaged = {name: Packaged(extra, ("no_such_module",), None) for name in encoders.PACKAGED}
    monkeypatch.setattr(encoding, "PACKAGED", packaged)
    code, _, err = run_in_folder("label", *words)
    assert code == 2
    assert f"{words[1]} holds {extra}, which need an encoder; install the default one with pip install" in err
    assert f'[{extra}]"' in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["known", "items.csv"], "known holds pictures and items.csv holds texts"),
        (["known", "features.csv"], "known holds pictures and features.csv holds features"),
        (["examples.csv", "pile"], "examples.csv holds texts and pile holds pictures"),
        (["known", "pile/0.jpg"], "pile/0.jpg is a single picture"),
        (["known", "nothing"], "There is no file or folder nothing."),
        (["nothing.csv", "items.csv"], "There is no file or folder nothing.csv."),
        (["pile", "pile"], "The labelled examples in pile (they come first"),
    ],
)
def test_what_does_not_go_together_gets_a_sentence(words, why, folder, encoded, run_in_folder):
    (folder / "features.csv").write_text("a,b\n1.5,2\n")
    code, _, err = run_in_folder("label", *words)
    assert code == 2
    assert why in err
    assert not (folder / "labels.csv").exists()


# --- languages -------------------------------------------------------------------------------------------------------


def test_texts_in_other_languages_get_the_encoder_that_reads_them(run_in_folder, folder, encoded):
    (folder / "items.csv").write_text("id,text\nt1,a canal\nt2,Wo ist meine Karte?\nt3,Où est mon colis ?\n")
    code, _, err = run_in_folder("label", "examples.csv", "items.csv")
    assert code == 0
    assert "use-multilingual; it reads 16 languages, and 2 of 7 texts seem to be German or French" in err
    code, _, err = run_in_folder("label", "examples.csv", "items.csv", "--encoder", "minilm", "--overwrite")
    assert (code, "seem to be" in err) == (0, False)
    (folder / "items.csv").write_text("text\nWo ist meine Karte?\n" + 50 * "where is my card\n")
    code, _, err = run_in_folder("label", "examples.csv", "items.csv", "--overwrite")
    assert code == 0
    assert "minilm; 1 of 55 texts seem to be German, and --encoder use-multilingual reads 16 languages" in err
    (folder / "many.csv").write_text("text,label\n" + 50 * "a canal,water\nmy card is lost,card\n")
    (folder / "items.csv").write_text("text\nWo ist meine Karte?\nwhere is my card\n")
    code, _, err = run_in_folder("label", "many.csv", "items.csv", "--overwrite")
    assert code == 0
    assert "use-multilingual; it reads 16 languages, and 1 of 102 texts seem to be German" in err


def test_classes_of_pictures_with_invisible_characters_get_a_note(run_in_folder, folder, encoded):
    (folder / "known" / "blue").rename(folder / "known" / "re\u200dd")
    code, _, err = run_in_folder("label", "known", "pile")
    assert code == 0
    assert r"the label 're\u200dd' of known has invisible characters" in err


# --- pictures as people have them ------------------------------------------------------------------------------------


def test_a_camera_folder_is_read_and_what_is_no_picture_is_listed(run_in_folder, folder, encoded):
    for name in ("Thumbs.db", "notes.txt", "clip.MP4", "photo.NEF", "sub/more.mov"):
        (folder / "pile" / name).parent.mkdir(exist_ok=True)
        (folder / "pile" / name).write_bytes(b"rubbish")
    (folder / "known" / "red" / "Thumbs.db").write_bytes(b"rubbish")
    code, _, err = run_in_folder("label", "known", "pile")
    assert code == 0
    assert "left out clip.MP4, sub/more.mov: it is a film; save single frames of it as pictures" in err
    assert "left out photo.NEF: it is a raw file; save it as JPEG" in err
    rows = list(csv.DictReader((folder / "labels.csv").open()))
    assert [row["item"] for row in rows] == [*(f"{n}.jpg" for n in range(4)), *sorted(NO_PICTURES)]
    assert all(row["label"] == "" and row["note"].startswith("skipped: it is") for row in rows[4:])


NO_PICTURES = ("notes.txt", "clip.MP4", "photo.NEF", "sub/more.mov")


def test_a_few_damaged_pictures_are_left_out_and_many_stop_it_before_the_first_is_encoded(
    run_in_folder, folder, encoded
):
    for n in range(20):
        Image.new("RGB", (8, 8), (200 + n, 20, 15)).save(folder / "pile" / f"more{n}.png")
    (folder / "pile" / "empty.jpg").write_bytes(b"")
    (folder / "pile" / "page.jpg").write_text("<html>not found</html>")
    code, _, err = run_in_folder("label", "known", "pile")
    assert code == 0
    assert "left out empty.jpg: it is empty (0 bytes)" in err
    assert "left out page.jpg: it is not a picture" in err
    for n in range(5):
        (folder / "pile" / f"bad{n}.jpg").write_text("<html>not found</html>")
    encoded.clear()
    code, _, err = run_in_folder("label", "known", "pile", "--no-cache")
    assert (code, len(encoded)) == (2, 0)
    assert "7 of 31 files in pile cannot be used, such as bad0.jpg: it is not a picture" in err
    assert "leave them out with --skip-bad" in err
    assert run_in_folder("label", "known", "pile", "--skip-bad")[0] == 0


def test_nothing_but_damage_stops_and_so_does_a_class_without_a_picture(run_in_folder, folder, encoded):
    for path in (folder / "pile").iterdir():
        path.write_bytes(b"rubbish")
    code, _, err = run_in_folder("label", "known", "pile", "--skip-bad")
    assert (code, "4 of 4 files in pile cannot be used" in err) == (2, True)
    assert ("--skip-bad" in err, err.endswith("; name a folder of pictures.\n")) == (False, True)
    for path in (folder / "known" / "red").iterdir():
        path.write_bytes(path.read_bytes()[:40])
    code, _, err = run_in_folder("label", "known", "known", "--skip-bad")
    assert (code, "No picture of the class 'red' in known could be read" in err) == (2, True)


@pytest.mark.parametrize("name", ["film.mp4", "films/a.MOV", "song.mp3"])
def test_films_and_sound_get_a_sentence(run_in_folder, folder, encoded, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"rubbish")
    code, _, err = run_in_folder("label", "known", name.partition("/")[0])
    assert code == 2
    assert ("name its tables with --scores" if name == "song.mp3" else "ffmpeg") in err


def test_heic_pictures_are_read_and_turned(run_in_folder, folder, encoded):
    pillow_heif = pytest.importorskip("pillow_heif")
    tall = Image.new("RGB", (64, 128), (240, 20, 15))
    pillow_heif.from_pillow(tall).save(folder / "pile" / "IMG_1.HEIC", quality=90)
    assert run_in_folder("label", "known", "pile")[0] == 0
    rows = {row["item"]: row["label"] for row in csv.DictReader((folder / "labels.csv").open())}
    assert rows["IMG_1.HEIC"] == "red"


def test_heic_without_its_library_says_what_to_install(monkeypatch, folder):
    pillow_heif = pytest.importorskip("pillow_heif")
    file = folder / "a.heic"
    pillow_heif.from_pillow(Image.new("RGB", (64, 64))).save(file)

    def unknown(file):
        raise UnidentifiedImageError

    monkeypatch.setattr(Image, "open", unknown)
    with pytest.raises(InputError, match=r"HEIC picture, which needs pillow-heif: pip install .*\[pictures\]"):
        read_picture(file.read_bytes(), 3)


def test_only_what_is_encoded_counts_in_the_time_left(run_in_folder, folder, encoded, monkeypatch):
    totals: list[tuple[str, float]] = []

    class Bar(progress.Progress):
        def update(self, task, **values):
            super().update(task, **values)
            totals.append((self.tasks[0].description, self.tasks[0].completed, self.tasks[0].total))

    monkeypatch.setattr(progress, "Progress", Bar)
    assert run_in_folder("label", "known", "pile")[0] == 0
    assert totals[-1] == ("encoding items", 13, 13)
    assert ("encoding examples", 9, 13) in totals
    Image.new("RGB", (8, 8), (1, 2, 3)).save(folder / "pile" / "new.png")
    assert run_in_folder("label", "known", "pile")[0] == 0
    assert totals[-1] == ("encoding items", 1, 1)


# --- folders as people have them -------------------------------------------------------------------------------------


def broken_link(folder):
    (folder / "pile" / "broken.png").symlink_to("nothing.png")


def link_to_itself(folder):
    (folder / "pile" / "self.jpg").symlink_to("self.jpg")


def thumbnails(folder):
    (folder / "pile" / "@eaDir").mkdir()
    (folder / "known" / "red" / "0.png").rename(folder / "pile" / "@eaDir" / "thumb.png")


def odd_names(folder):
    (folder / "known" / "red").rename(folder / "known" / "r[e]d *?\n🐦")
    (folder / "pile" / "0.jpg").rename(folder / "pile" / "=a\nb [1].jpg")


def other_kinds(folder):
    Image.new("RGB", (8, 8), (245, 12, 12)).save(folder / "pile" / "png.jpg", format="PNG")
    Image.new("CMYK", (8, 8), (10, 245, 245, 0)).save(folder / "pile" / "cmyk.jpg")
    Image.new("RGB", (1, 1), (245, 12, 12)).save(folder / "pile" / "dot.webp")
    Image.new("RGB", (2000, 30), (245, 12, 12)).save(folder / "pile" / "panorama.bmp")
    Image.new("P", (8, 8), 0).save(folder / "pile" / "palette.gif")
    pages = [Image.new("RGB", (8, 8), (245, 12, 12))] * 2
    pages[0].save(folder / "pile" / "pages.tif", save_all=True, append_images=pages[1:])


def a_missing_picture_in_a_list(folder):
    names = "".join(f"pile/{n}.jpg,{n:03d}\n" for n in range(4))
    (folder / "list.csv").write_text(f"file,nr\n{names}pile/gone.jpg,004\n")


def inner_folders(folder):
    for name in COLOURS:
        for n in range(2):
            (folder / "known" / name / f"{n}").mkdir()
        for n in range(3):
            (folder / "known" / name / f"{n}.png").rename(folder / "known" / name / f"{n % 2}" / f"{n}.png")


@pytest.mark.parametrize(
    ("change", "items", "n_rows", "said"),
    [
        (broken_link, "pile", 5, "left out broken.png: it cannot be read"),
        (link_to_itself, "pile", 5, "left out self.jpg: it cannot be read"),
        (thumbnails, "pile", 4, ""),
        (odd_names, "pile", 4, "has invisible characters"),
        (other_kinds, "pile", 10, "pages.tif: only its first frame is used"),
        (a_missing_picture_in_a_list, "list.csv", 5, "left out pile/gone.jpg: it cannot be read"),
        (inner_folders, "pile", 4, "are its outer folders ('blue', 'green', 'red'), not those in them ('0', '1')"),
    ],
)
def test_folders_are_read_as_people_have_them(change, items, n_rows, said, run_in_folder, folder, encoded):
    change(folder)
    code, _, err = run_in_folder("label", "known", items)
    assert code == 0, err
    assert said in err
    found = labels(folder, "item" if items == "pile" else "file")
    assert len(found) == n_rows
    assert {label[:1] for label in found.values()} <= {"r", ""} or change is other_kinds


def test_items_in_the_folder_of_the_examples_are_refused(run_in_folder, folder, encoded):
    (folder / "pile").rename(folder / "known" / "pile")
    code, _, err = run_in_folder("label", "known", "known/pile")
    assert code == 2
    assert "The items known/pile lie in the folder of examples known; move them out" in err


def test_examples_in_the_folder_of_the_items_are_refused(run_in_folder, folder, encoded):
    (folder / "known").rename(folder / "pile" / "known")
    code, _, err = run_in_folder("label", "pile/known", "pile")
    assert code == 2
    assert "The examples pile/known lie in the folder of items pile and would be labelled with them" in err


KNOWN = "label,a,b\nant,0,0\nant,0.1,0\nbee,5,5\nbee,5.1,\ncat,NA,9\n"


def test_rows_that_lack_a_number_are_left_out_where_wanted_and_listed(run_in_folder):
    Path("known.csv").write_text(KNOWN)
    Path("pile.csv").write_text("id,a,b,site\nx1,5,5.2,hill\nx2,,5,lake\nx3,0,0.1,lake\nx4,nan,,hill\n")
    code, _, err = run_in_folder("label", "known.csv", "pile.csv", "--method", "simpleshot")
    assert code == 2
    assert "Column 'a' of known.csv is not all numbers (line 6 has 'NA')" in err
    assert "all such rows with --skip-bad" in err
    code, out, err = run_in_folder("label", "known.csv", "pile.csv", "--skip-bad")
    assert code == 0, err
    found = list(csv.DictReader(Path("labels.csv").read_text(encoding="utf-8").splitlines()))
    # All rows stay where they are, also those that were left out.
    assert [(row["id"], row["label"], row["site"]) for row in found] == [
        ("x1", "bee", "hill"),
        ("x2", "", "lake"),
        ("x3", "ant", "lake"),
        ("x4", "", "hill"),
    ]
    assert found[1]["note"] == "skipped: it has no number in column 'a'"
    assert found[3]["note"] == "skipped: it has no number in columns 'a', 'b'"
    assert "2 items without an answer: the column 'note' at the end of the table says why" in out
    # A class whose only example is left out cannot be an answer: that is said.
    assert "no complete row of known.csv is left of 'cat'" in err
    Path("pile.csv").write_text("a,b\n,1\n1,\n")
    code, _, err = run_in_folder("label", "known.csv", "pile.csv", "--skip-bad")
    assert (code, "Every row of pile.csv lacks a feature" in err) == (2, True)


def test_rows_that_lack_a_number_are_labelled_by_the_others_and_said(run_in_folder):
    Path("known.csv").write_text(KNOWN)
    Path("pile.csv").write_text("id,a,b,site\nx1,5,5.2,hill\nx2,,5,lake\nx3,0,0.1,lake\nx4,nan,,hill\n")
    code, _, err = run_in_folder("label", "known.csv", "pile.csv")
    assert code == 0, err
    assert "2 of 5 rows of known.csv lack numbers, in 'a', 'b'; the columns that they have are used" in err
    found = list(csv.DictReader(Path("labels.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["label"] for row in found[:3]] == ["bee", "bee", "ant"]
    notes = [row["note"] for row in found]
    assert notes[:3] == ["", "no number in column 'a'; labelled by the other columns", ""]
    assert notes[3] == "it has no number in any column; the label is what the other items suggest"


def test_scores_that_lack_a_number_are_left_out_where_wanted(run_in_folder):
    Path("scores.csv").write_text("item,cat,dog\na,0.9,0.1\nb,,0.5\nc,0.2,0.8\n")
    assert run_in_folder("label", "--scores", "scores.csv")[0] == 2
    code, _, err = run_in_folder("label", "--scores", "scores.csv", "--skip-bad")
    assert code == 0, err
    found = list(csv.DictReader(Path("labels.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["item"] for row in found] == ["a", "c", "b"]
    assert found[2]["note"] == "skipped: it has no number in column 'cat'"


def test_one_example_per_class_is_said_to_teach_no_probabilities(run_in_folder):
    Path("pile.csv").write_text("a,b\n0,0\n5,5\n")
    told = {}
    for name, rows in {"one": "ant,0,0\nbee,5,5\n", "more": "ant,0,0\nant,1,0\nbee,5,5\n"}.items():
        Path("known.csv").write_text(f"label,a,b\n{rows}")
        told[name] = "do not rely on the probabilities" in run_in_folder("label", "known.csv", "pile.csv")[2]
    assert told == {"one": True, "more": False}


@pytest.mark.parametrize("words", [("file://host/x.csv",), ("a.csv", "b.csv", "--output=file://host/x.csv")], ids=str)
def test_an_address_of_another_computer_is_one_sentence(words, run_in_folder):
    code, _, err = run_in_folder("label", *words)
    assert code == 2
    assert err == (
        "manyway: file://host/x.csv names the computer 'host', and only files of this one can be used; write "
        "file:///folder/file, or the path alone.\n"
    )


def test_an_address_of_this_computer_may_name_it(tmp_path, run_in_folder):
    for host in ("", "localhost", "LOCALHOST"):
        _, _, err = run_in_folder("label", f"file://{host}{tmp_path.as_posix()}/none.csv")
        assert f"{tmp_path / 'none.csv'}" in err
        assert "localhost" not in err.lower()
