"""Folders, archives and split files: what they mean, and one sentence for everything that is wrong with them."""

from __future__ import annotations

import io
import os
import sys
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from manyway.encoding.datasets import archives
from manyway.encoding.datasets.decode import require_pillow
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.encoding.datasets.sources import UNLABELLED, list_source, load_images, open_source, read_list
from manyway.encoding.datasets.texts import open_texts
from manyway.errors import InputError
from manyway.training.standard import DATASETS, open_dataset, standard_classes

SMALL = Preprocess(resize=12, crop=8)


def picture(colour=(200, 30, 30), size=(16, 12), suffix="PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, suffix)
    return buffer.getvalue()


def write(folder, names, data=None):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture() if data is None else data)
    return folder


def make_zip(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def test_a_folder_names_its_classes(tmp_path):
    source = open_source(write(tmp_path, ["cat/2.png", "cat/1.png", "ant/x.png", ".hidden/1.png", "cat/.DS_Store"]))
    assert source.class_names == ("ant", "cat")
    assert source.names == ("ant/x.png", "cat/1.png", "cat/2.png")
    assert source.labels.tolist() == [0, 1, 1]
    images = load_images(source, SMALL).images
    assert images.shape == (3, 3, 12, 12)
    assert images[0, :, 0, 0].tolist() == [200, 30, 30]


def test_pictures_without_class_folders_have_no_labels(tmp_path):
    assert open_source(write(tmp_path, ["b.png", "a.png"])).class_names == (UNLABELLED,)


@pytest.mark.parametrize("around", ["", "images/", "data/images/"])
def test_a_zip_is_read_in_place_whatever_folders_are_around(around, tmp_path):
    entries = {f"{around}{name}": picture() for name in ("cat/1.png", "cat/2.png", "ant/1.png")}
    source = open_source(make_zip(tmp_path / "set.zip", {**entries, "__MACOSX/x": b""}))
    assert source.class_names == ("ant", "cat")
    assert len(load_images(source, SMALL).images) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set.zip"]


@pytest.mark.parametrize("name", ["../evil.png", "/etc/evil.png", "cat/../../evil.png", "..\\evil.png", "C:/evil.png"])
def test_a_zip_with_paths_that_lead_out_is_not_opened(name, tmp_path):
    path = make_zip(tmp_path / "set.zip", {"cat/1.png": picture(), name: picture()})
    with pytest.raises(InputError, match="leads out of it"):
        open_source(path)


def test_a_bomb_is_not_opened(tmp_path):
    path = make_zip(tmp_path / "bomb.zip", {"cat/1.png": bytes(30_000_000)})
    with pytest.raises(InputError, match="decompression bomb"):
        open_source(path)


def test_a_zip_that_is_too_large_when_unpacked_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_TOTAL", 100)
    with pytest.raises(InputError, match="would unpack to"):
        open_source(make_zip(tmp_path / "set.zip", {"cat/1.png": picture(), "cat/2.png": picture()}))


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04"])
def test_what_is_no_zip_gets_a_sentence(content, tmp_path):
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match="neither a folder nor a readable zip"):
        open_source(tmp_path / "x.zip")


def test_an_empty_class_folder_gets_a_sentence(tmp_path):
    write(tmp_path, ["cat/1.png"])
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match=r"class folder 'dog' .* is empty"):
        open_source(tmp_path)


def test_classes_that_differ_only_in_case_get_a_sentence(tmp_path):
    path = make_zip(tmp_path / "set.zip", {"Cat/1.png": picture(), "cat/1.png": picture()})
    with pytest.raises(InputError, match="differ only in case or Unicode form: 'Cat' and 'cat'"):
        open_source(path)


def test_loose_pictures_beside_class_folders_get_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"loose files \(2.png\)"):
        open_source(write(tmp_path, ["cat/1.png", "2.png"]))


def test_where_no_labels_are_needed_folders_and_loose_files_are_taken_together(tmp_path):
    names = ["loose.png", "north/1.png", "south/creek/1.png"]
    for path in (write(tmp_path, names), make_zip(tmp_path / ".set.zip", dict.fromkeys(names, picture()))):
        source = open_source(path, need_labels=False)
        assert source.names == tuple(names)
        assert not source.is_labelled


def test_where_no_labels_are_needed_folders_still_name_classes_and_empty_ones_are_ignored(tmp_path):
    (tmp_path / "west").mkdir()
    source = open_source(write(tmp_path, ["north/1.png", "south/1.png"]), need_labels=False)
    assert source.class_names == ("north", "south")
    assert source.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("data", "why"),
    [(picture(size=(200, 200), suffix="JPEG")[:-300], "damaged"), (b"hello", "not a picture"), (b"", "it is empty")],
)
def test_broken_pictures_stop_it_or_are_left_out(data, why, tmp_path):
    write(tmp_path, ["cat/1.png", "dog/1.png"])
    write(tmp_path, ["cat/bad.jpg"], data)
    with pytest.raises(InputError, match=rf"cat/bad\.jpg .* cannot be used: .*{why}.*`skip_bad`"):
        load_images(open_source(tmp_path), SMALL)
    loaded = load_images(open_source(tmp_path), SMALL, skip_bad=True)
    assert [name for name, _ in loaded.skipped] == ["cat/bad.jpg"]
    assert why in loaded.skipped[0][1]


def test_without_pillow_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    write(tmp_path, ["cat/1.png"])
    require_pillow.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "PIL"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pip install .*\[images\]\""):
        load_images(open_source(tmp_path), SMALL, skip_bad=True)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_picture_of_a_billion_pixels_is_refused():
    for side, why in ((40_000, "decompression bomb"), (12_000, "12000×12000 pixels")):
        with pytest.raises(InputError, match=why):
            SMALL.decode(f"P5 {side} {side} 255\n".encode())


@pytest.mark.parametrize("header", ["", "filename,label\n", "label,filename\n", "\ufefffilename,label\n"])
def test_split_files_with_and_without_a_header_keep_their_first_image(header, tmp_path):
    write(tmp_path, ["cat/1.png", "cat/2.png", "ant/1.png"])
    rows = [("cat/1.png", "3"), ("cat/2.png", "3"), ("ant/1.png", "0")]
    lines = [",".join(reversed(row)) if header.startswith("label") else ",".join(row) for row in rows]
    (tmp_path / "split.csv").write_text(header + "\n".join(lines) + "\n")
    source = list_source(tmp_path / "split.csv")
    assert source.names == ("cat/1.png", "cat/2.png", "ant/1.png")
    assert source.class_names == ("0", "3")
    assert len(load_images(source, SMALL).images) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("name,kind\n1.png,2\n", "has the columns 'name', 'kind'; it needs one of filename"),
        ("filename,label\n1.png\n", "another number of cells"),
        ("1.png,\n", "has no label in line 1"),
        ("nowhere.png,1\n", "which is not in"),
        ("../x.png,1\n", "leads out of it"),
        ("filename,label\n", "lists no pictures"),
        ("filename,label\n1.png,hello, world\n", "another number of cells"),
        ("label,label,filename\n1,2,1.png\n", "two columns named 'label'"),
    ],
)
def test_bad_split_files_get_a_sentence(text, why, tmp_path):
    (tmp_path / "split.csv").write_text(text)
    with pytest.raises(InputError, match=why):
        list_source(tmp_path / "split.csv")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_split_files_may_use_another_delimiter(delimiter, tmp_path):
    write(tmp_path, ["a,b.png"])
    (tmp_path / "split.csv").write_text(f"filename{delimiter}label\na,b.png{delimiter}x\n")
    assert list_source(tmp_path / "split.csv").names == ("a,b.png",)


def test_lists_of_items_need_no_label_and_keep_their_columns(tmp_path):
    write(tmp_path, ["a/1.png", "a/2.png"])
    (tmp_path / "items.csv").write_text("site;Image;label\ncreek;a\\1.png;\nhill;a/2.png;\n")
    source = open_source(tmp_path / "items.csv", need_labels=False)
    assert (source.names, source.is_labelled) == (("a/1.png", "a/2.png"), False)
    assert source.carried == {"site": ["creek", "hill"], "label": ["", ""]}
    (tmp_path / "known.jsonl").write_text('{"file": "a/1.png", "species": "owl"}\n')
    assert open_source(tmp_path / "known.jsonl").class_names == ("owl",)


def test_a_pipe_is_not_waited_for(tmp_path):
    for name in ("pipe.csv", "pipe.zip"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match="is a pipe"):
            open_source(tmp_path / name)


def test_a_file_that_is_too_large_is_left_out(tmp_path, monkeypatch):
    write(tmp_path, ["cat/1.png"])
    write(tmp_path, ["cat/huge.png"], data=bytes(2000))
    monkeypatch.setattr(archives, "MAX_FILE", 1000)
    loaded = load_images(open_source(tmp_path), SMALL, skip_bad=True)
    assert loaded.skipped == (("cat/huge.png", "it cannot be read (it is larger than 1,000 bytes)"),)


def test_a_damaged_entry_of_an_archive_is_left_out(tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("cat/1.png", picture())
        archive.writestr("cat/2.png", picture(colour=(1, 2, 3)))
    data = bytearray(path.read_bytes())
    start = data.index(b"cat/2.png") + len(b"cat/2.png")
    data[start : start + 8] = bytes(8)
    path.write_bytes(bytes(data))
    loaded = load_images(open_source(path), SMALL, skip_bad=True)
    assert [name for name, _ in loaded.skipped] == ["cat/2.png"]


def test_nothing_at_the_path_gets_a_sentence(tmp_path):
    with pytest.raises(InputError, match="There is no folder or file"):
        open_source(tmp_path / "nowhere")


def test_decoding_is_resize_and_central_crop():
    ramp = np.tile(np.arange(96, dtype=np.uint8), (96, 1))
    buffer = io.BytesIO()
    Image.fromarray(ramp).save(buffer, "PNG")
    paper = Preprocess()
    decoded = paper.decode(buffer.getvalue())
    assert torch.equal(decoded[0], torch.from_numpy(ramp))  # 96 stays 96
    fed = paper.standardise(decoded[None])
    assert fed.shape == (1, 3, 84, 84)
    assert fed[0, 0, 0, 0].item() == pytest.approx((6 / 255 - 0.485) / 0.229)


def test_the_standard_splits_have_the_published_sizes_and_no_class_twice():
    sizes = {name: {split: len(names) for split, names in of.items()} for name, of in standard_classes().items()}
    assert sizes["mini"] == {"base": 64, "val": 16, "test": 20}
    assert sizes["tiered"] == {"base": 351, "val": 97, "test": 160}
    assert sizes["cub"] == {"base": 100, "val": 50, "test": 50}
    for of in standard_classes().values():
        names = [name for split in of.values() for name in split]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("layout", ["cub/images/{}/1.png", "CUB_200_2011/{}/1.png", "cub/test/{}/1.png"])
def test_cub_is_found_in_any_nesting(layout, tmp_path):
    classes = standard_classes()["cub"]
    write(tmp_path, [layout.format(name) for name in (*classes["test"], *classes["val"])])
    source = open_dataset("cub", "test", tmp_path)
    assert source.class_names == tuple(classes["test"])
    assert len(source) == 50
    with pytest.raises(InputError, match="lacks 100 of the 100 base classes"):
        open_dataset("cub", "base", tmp_path)


def test_flat_mini_imagenet_is_recognised_by_file_names(tmp_path):
    classes = standard_classes()["mini"]["val"]
    write(tmp_path, [f"mini/images/{name}00000005.png" for name in classes])
    source = open_dataset("mini", "val", tmp_path)
    assert source.class_names == tuple(classes)
    assert len(load_images(source, Preprocess.for_size(28, channels=1)).images) == len(classes)


def test_inat_has_a_given_support_of_variable_size(tmp_path):
    names = [f"test/{label}/{i}.png" for label in ("7", "12") for i in range(5)]
    write(tmp_path / "inat", names)
    (tmp_path / "splits").mkdir()
    support = ["test/7/0.png,7", "test/12/0.png,12", "test/12/1.png,12"]
    query = [f"{name},{name.split('/')[1]}" for name in names if f"{name},{name.split('/')[1]}" not in support]
    (tmp_path / "splits" / "inat_support.csv").write_text("\n".join(support))
    (tmp_path / "splits" / "inat_query.csv").write_text("\n".join(query))
    source = open_dataset("inat", "test", tmp_path)
    assert source.class_names == ("12", "7")
    assert source.is_support.tolist() == [True] * 3 + [False] * 7
    (tmp_path / "inat" / "test" / "7" / "4.png").unlink()
    with pytest.raises(InputError, match=r"lists test/7/4\.png, which is not in"):
        open_dataset("inat", "test", tmp_path)


def test_the_public_inat_lists_keep_every_line(data_folder):
    support, query = (data_folder / "splits" / f"inat_{part}.csv" for part in ("support", "query"))
    assert (len(read_list(support)[0]), len(read_list(query)[0])) == (9187, 37187)


def omniglot_arrays():
    names = [f"images_background/A/character0{i}" for i in range(8)] + ["images_evaluation/B/character01"]
    images = np.zeros((18, 28, 28), np.uint8)
    images[:, 3:9, 5] = 255
    return images, np.repeat(np.arange(9), 2), names


def test_omniglot_arrays_and_folders_agree(tmp_path):
    images, labels, names = omniglot_arrays()
    (tmp_path / "a").mkdir()
    np.savez(tmp_path / "a" / "omniglot.npz", images=images, labels=labels, class_names=names,
             class_is_evaluation=np.arange(9) == 8)  # fmt: skip
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = tmp_path / "b" / "omniglot" / names[label] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(255 - image).save(path)
    grey = Preprocess.for_size(28, channels=1)
    for split, n_classes in (("base", 8), ("val", 2), ("test", 1)):
        loaded = [load_images(open_dataset("omniglot", split, tmp_path / place), grey) for place in "ab"]
        assert loaded[0].n_classes == n_classes
        assert loaded[0].class_names == loaded[1].class_names
        assert torch.equal(loaded[0].labels, loaded[1].labels)
        assert torch.equal(loaded[0].images, loaded[1].images)
    upright, turned = (open_dataset("omniglot", split, tmp_path / "a") for split in ("base", "val"))
    expected = np.rot90(load_images(upright, grey).images[0, 0].numpy())
    assert np.array_equal(load_images(turned, grey).images[0, 0].numpy(), expected)


@pytest.mark.parametrize("damage", ["truncated", "missing", "floats", "lengths"])
def test_damaged_omniglot_arrays_are_one_sentence(damage, tmp_path):
    images, labels, names = omniglot_arrays()
    arrays = {"images": images, "labels": labels, "class_names": names, "class_is_evaluation": np.arange(9) == 8}
    if damage == "missing":
        del arrays["class_names"]
    elif damage == "floats":
        arrays["images"] = images.astype(float)
    elif damage == "lengths":
        arrays["labels"] = labels[:-1]
    path = tmp_path / "omniglot.npz"
    np.savez(path, **arrays)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(InputError, match=r"omniglot\.npz"):
        open_dataset("omniglot", "test", tmp_path)


def test_missing_data_sets_and_wrong_names_get_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"cub was not found in .* get it from https"):
        open_dataset("cub", "test", tmp_path)
    with pytest.raises(InputError, match="did you mean 'omniglot'"):
        open_dataset("omniglott", "test", tmp_path)
    with pytest.raises(InputError, match="inat has no split 'base'"):
        open_dataset("inat", "base", tmp_path)


def test_the_table_says_what_is_here(tmp_path, monkeypatch):
    import typer

    from manyway.cli.extract import datasets

    monkeypatch.setenv("COLUMNS", "200")
    write(tmp_path, ["cub/x/1.png"])
    app = typer.Typer()
    app.command()(datasets)
    result = CliRunner().invoke(app, ["--data", str(tmp_path)])
    assert result.exit_code == 0
    assert all(name in result.output for name in DATASETS)
    rows = {
        line.split("│")[1].strip(): line.split("│")[-2].strip() for line in result.output.splitlines() if "│" in line
    }
    assert rows["cub"] == "cub"
    assert rows["mini"] == "no"
    assert rows["glyphs"] == "built in"


def test_texts_come_from_csv_jsonl_txt_and_folders(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\npay my bill,pay\n"hi, you",greet\n')
    (tmp_path / "a.jsonl").write_text(
        '{"text": "pay my bill", "intent": "pay"}\n\n{"text": "hi, you", "intent": "greet"}\n'
    )
    for name in ("a.csv", "a.jsonl"):
        source = open_texts(tmp_path / name)
        assert source.texts == ("pay my bill", "hi, you")
        assert [source.class_names[i] for i in source.labels] == ["pay", "greet"]
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert open_texts(tmp_path / "a.txt").class_names == (UNLABELLED,)
    folder = tmp_path / "intents"
    folder.mkdir()
    (folder / "pay.txt").write_text("pay my bill\npay it\n")
    (folder / "greet.txt").write_text("hello\n")
    assert open_texts(folder).class_names == ("greet", "pay")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.csv", "words,label\nhi,greet\n", "of which none holds texts"),
        ("a.csv", "text,label\nhi,\n", "has no label in line 2"),
        ("a.csv", "text,label\nhi,Greet\nho,greet\n", "differ only in case"),
        ("a.jsonl", "{broken\n", "Line 1 .* is not JSON"),
        ("a.jsonl", '{"label": "x"}\n', "of which none holds texts"),
        ("a.jsonl", '{"text": "a"}\n{"label": "x"}\n', "Line 2 .* needs a text in the column 'text'"),
        ("a.txt", "\n", "holds no texts"),
        ("a.doc", "x", "no text file known here"),
    ],
)
def test_bad_text_files_get_a_sentence(name, text, why, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=why):
        open_texts(tmp_path / name)
