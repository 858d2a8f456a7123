"""Outputs never harm inputs, and no partial file is ever seen."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from manyway import InputError
from manyway.files.files import atomic_write, check_input, check_output


def write(path, inputs=(), text="new"):
    with atomic_write(path, inputs) as temporary:
        temporary.write_text(text)


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "precious.csv"
    path.write_text("precious")
    return path


def alias(precious, kind):
    """Another name of the same file."""
    folder = precious.parent
    if kind == "same name":
        return precious
    if kind == "other spelling":
        (folder / "sub").mkdir()
        return folder / "sub" / ".." / "precious.csv"
    if kind == "symbolic link":
        (folder / "link.csv").symlink_to(precious)
        return folder / "link.csv"
    if kind == "link to a link":
        (folder / "one").symlink_to("precious.csv")
        (folder / "two").symlink_to("one")
        return folder / "two"
    if kind == "linked folder":
        (folder / "elsewhere").symlink_to(folder, target_is_directory=True)
        return folder / "elsewhere" / "precious.csv"
    os.link(precious, folder / "hard.csv")
    return folder / "hard.csv"


ALIASES = ["same name", "other spelling", "symbolic link", "link to a link", "linked folder", "hard link"]


@pytest.mark.parametrize("kind", ALIASES)
@pytest.mark.parametrize("way", ["output", "input"])
def test_an_input_is_never_written_over_under_whatever_name(kind, way, precious):
    other = alias(precious, kind)
    output, given = (other, precious) if way == "output" else (precious, other)
    with pytest.raises(InputError, match="is one of the inputs") as refused:
        write(output, [None, given])
    assert ("the same file as" in str(refused.value)) == (output != given)  # another name is said
    assert precious.read_text() == "precious"
    assert not list(precious.parent.glob(".*"))


def test_files_of_an_input_folder_are_not_written_over_and_no_new_ones_are_added(precious):
    for path in (precious, precious.parent / "new.csv"):
        with pytest.raises(InputError, match="lies in the input folder"):
            write(path, [precious.parent])
    assert precious.read_text() == "precious"
    assert not (precious.parent / "new.csv").exists()


def test_a_link_is_written_through(precious):
    link = precious.parent / "link.csv"
    link.symlink_to("precious.csv")
    write(link)
    assert link.is_symlink()
    assert precious.read_text() == "new"


def test_a_dangling_link_gets_its_target(tmp_path):
    (tmp_path / "link").symlink_to("target.csv")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "new"


def make_special(folder, kind):
    path = folder / "special"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(folder)  # names of sockets must be short
            made.bind("special")
    elif kind == "circle":
        path.symlink_to(path)
    elif kind == "linked pipe":
        os.mkfifo(folder / "pipe")
        path.symlink_to("pipe")
    else:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("devices can only be made by root")
    return path


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device", "circle", "linked pipe"])
def test_special_files_are_neither_read_nor_replaced(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = make_special(tmp_path, kind)
    before = os.lstat(path)
    with pytest.raises(InputError):
        write(path)
    with pytest.raises(InputError):
        check_input(path)
    assert os.lstat(path).st_mode == before.st_mode
    assert os.lstat(path).st_ino == before.st_ino


@pytest.mark.parametrize("name", ["", ".", "nothing/", "a\0b", "x" * 300, "precious.csv/below"])
def test_names_that_no_file_can_have_are_one_sentence(name, precious, monkeypatch):
    monkeypatch.chdir(precious.parent)
    with pytest.raises(InputError):
        write(name)
    assert os.listdir() == ["precious.csv"]


def test_long_names_can_be_written(tmp_path):
    name = "x" * 200 + "." + "y" * 50
    write(tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def test_a_failure_leaves_the_old_file_and_nothing_else(precious):
    def fail():
        with atomic_write(precious) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(precious.parent) == ["precious.csv"]
    assert precious.read_text() == "precious"


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_replaced_file_keeps_its_permissions(precious):
    precious.chmod(0o640)
    write(precious)
    assert precious.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_protected_file_is_not_replaced(precious):
    precious.chmod(0o440)
    with pytest.raises(InputError, match="write-protected"):
        check_output(precious)


def test_inputs_that_do_not_exist_are_no_obstacle(precious):
    write(precious, [precious.parent / "nothing"])
    assert precious.read_text() == "new"
