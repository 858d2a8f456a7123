"""Which files may be read and written, and writing them so that no partial file is ever seen."""

import contextlib
import itertools
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from safetensors import SafetensorError

from manyway.errors import InputError

AnyPath = str | os.PathLike[str]
Version = tuple[int, ...]  # which file it is, its size, and when it was written
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_UNPACKED = 100  # a file may unpack to this many times its size,
_SMALL = 2**28  # or to so many bytes


def most_unpacked(size: int) -> int:
    """The number of bytes that a file of ``size`` bytes may unpack to: what claims more is damaged, or made to harm."""
    return max(_SMALL, _UNPACKED * size)


def data_root(given: str | Path | None = None) -> Path:
    """The folder of data sets: the given one, otherwise MANYWAY_DATA, otherwise ``data``."""
    return Path(given or os.environ.get("MANYWAY_DATA") or "data")


def cache_folder() -> Path:
    """The folder of the cache: MANYWAY_CACHE, otherwise ``manyway`` in the user's folder for caches."""
    folders = {"win32": os.environ.get("LOCALAPPDATA") or "~/AppData/Local", "darwin": "~/Library/Caches"}
    user = folders.get(sys.platform, os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.environ.get("MANYWAY_CACHE") or os.path.expanduser(f"{user}/manyway"))


def check_input(path: AnyPath) -> Path:
    """Return ``path`` if it is an ordinary file that can be read.

    Parameters
    ----------
    path : path-like
        The file to read. Symbolic links are followed.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        If it does not exist, or is a folder, a pipe or a device (which could block for ever), or cannot be read.
    """
    path = Path(path)
    status = _status(path)
    if status is None:
        raise InputError(f"There is no file {path}.")
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a folder; name a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is {_kind(status.st_mode)}, not a file; save its content to a file first.")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: permission denied.")
    return path


def text_of(path: str | Path) -> str:
    """The text of an ordinary file in UTF-8."""
    try:
        return check_input(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {getattr(error, 'strerror', None) or error}.") from error


def check_output(path: AnyPath, inputs: Iterable[AnyPath | None] = (), *, overwrite: bool = True) -> Path:
    """Return the file that writing to ``path`` creates or replaces; refuse where this would do harm.

    Commands call this before they start to work, so that a wrong output is found at once.

    Parameters
    ----------
    path : path-like
        Where the output goes. A symbolic link is followed: its target is written and the link stays.
    inputs : iterable of path-like or None, optional
        Files and folders that the same command reads. None entries are skipped.
    overwrite : bool, default=True
        Allow to replace a file.

    Returns
    -------
    Path
        The path with symbolic links resolved.

    Raises
    ------
    InputError
        If ``path`` is a folder, a pipe or a device, is write-protected, is one of ``inputs`` under whatever name
        (symbolic link, hard link, other spelling), lies in an input folder, or is any file that must not be
        replaced.

    Examples
    --------
    >>> check_output("labels.csv", inputs=["photos.npz"]).name
    'labels.csv'
    """
    try:
        target = Path(os.path.realpath(path))  # fails where the working folder was removed
        status = target.lstat() if os.path.lexists(target) else None
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot write {path}: {_reason(error)}.") from error
    given = [(one, _status(Path(one))) for one in inputs if one is not None]
    for folder in (one for one, read in given if read is not None and stat.S_ISDIR(read.st_mode)):
        if Path(os.path.realpath(folder)) in target.parents:
            raise InputError(f"The output {path} lies in the input folder {folder}; choose a place outside.")
    if status is None:
        # What does not exist yet can harm nothing, unless a folder is named that is still to be made.
        if str(path).endswith(("/", os.sep)):
            raise InputError(f"The output {path} names a folder; name a file in it.")
        parent = next(folder for folder in target.parents if folder.exists())
        try:
            tempfile.TemporaryFile(dir=parent).close()
        except OSError as error:
            raise InputError(f"Cannot write {path}: nothing can be written to the folder {parent}.") from error
        return target
    if stat.S_ISLNK(status.st_mode):
        raise InputError(f"Cannot write {path}: its symbolic links lead in a circle.")
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"The output {path} is a folder; name a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"The output {path} is {_kind(status.st_mode)}; name an ordinary file.")
    for one, read in given:
        if read is not None and (read.st_dev, read.st_ino) == (status.st_dev, status.st_ino):
            same = "" if Path(one) == Path(path) else f" (it is the same file as {one})"
            raise InputError(f"The output {path} is one of the inputs{same}; choose another name.")
    if not overwrite:
        raise InputError(f"{path} exists; choose another name, or replace it with `overwrite`.")
    try:
        target.open("r+b").close()
    except OSError as error:  # Windows locks what Excel has open
        why = "it is write-protected, or open in another program"
        raise InputError(f"Cannot write {path}: {why}. Close it, or choose another name.") from error
    return target


class Output:
    """A file that is written at the end of long work, as it was found at the beginning.

    Parameters
    ----------
    path : path-like
        The file to create or replace.

    Attributes
    ----------
    path : Path
        Where it was written: a free name beside the wanted one, where another program has made or changed that file in
        the meantime.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        self.wanted = self.path
        self._found = version_of(self.path)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the wanted file was made or changed by somebody else, and kept."""
        return self.path != self.wanted

    def settle(self) -> Path:
        """The path to write to now: the wanted one if nobody has made or changed that file, else a free name."""
        if version_of(self.wanted) != self._found:
            self.path = next(name for name in self._others() if not os.path.lexists(name))
        return self.path

    def receive(self, temporary: Path, target: Path) -> None:
        """Give a complete file its name; ``target`` is what the wanted path leads to."""
        if self._found is not None and version_of(self.wanted) == self._found:
            os.replace(temporary, target)
        elif self._found is not None or not _take_name(temporary, target):
            self.path = next(name for name in self._others() if _take_name(temporary, name))

    def _others(self) -> Iterator[Path]:
        return (self.wanted.with_stem(f"{self.wanted.stem}-{n}") for n in itertools.count(2))


def version_of(path: Path) -> Version | None:
    """What tells one version of a file from the next; None where there is no file."""
    found = _status(path)
    if found is None:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _take_name(temporary: Path, target: Path) -> bool:
    """Rename a file unless there is one of the new name; the system sees to it that nobody comes in between."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:  # a disk without links
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        os.replace(temporary, target)
    return True


@contextlib.contextmanager
def atomic_write(path: "AnyPath | Output", inputs: Iterable[AnyPath | None] = ()) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block succeeds, remove it otherwise.

    The suffix stays the same for writers that look at it (matplotlib, pandas). A symbolic link stays a link: its
    target is replaced. A replaced file keeps its permissions.

    Parameters
    ----------
    path : path-like or Output
        The file to create or replace; missing parent folders are made. An `Output` is not replaced where it was made or
        changed since.
    inputs : iterable of path-like or None, optional
        Files and folders that must not be written over, see `check_output`.

    Yields
    ------
    Path
        The temporary file to write.
    """
    output = None
    if isinstance(path, Output):
        output = path
        path = output.wanted
    target = check_output(path, inputs)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replaced = target.exists()  # an error where the name is too long
        # A short name: it must stay within the limit of the file system.
        temporary = target.parent / f".{target.stem[:40]}-{secrets.token_hex(4)}{target.suffix[-40:]}"
        temporary.touch(exist_ok=False)
        # Those of the file that is replaced, else those of any new file; meanwhile it is private.
        permissions = (target if replaced else temporary).stat().st_mode & 0o777
        temporary.chmod(0o600)
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot write {path}: {_reason(error)}. Choose a folder that you can write to.") from error
    try:
        yield temporary
        temporary.chmod(permissions)
        if output is None:
            os.replace(temporary, target)
        else:
            output.receive(temporary, target)
    except (OSError, SafetensorError) as error:  # safetensors reports a full disk with an error of its own
        raise InputError(f"Cannot write {path}: {_reason(error)}. Nothing was changed.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _status(path: Path) -> os.stat_result | None:
    """What the system knows about the file behind ``path``; None if there is none."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {_reason(error)}.") from error


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
