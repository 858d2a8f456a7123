"""Writing files so that nobody ever finds half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from manyway.errors import InputError


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block ends well, else remove it.

    The suffix stays the same, so that writers which look at it (matplotlib, pandas) do the right thing.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise InputError(f"Cannot write {target}: {error.strerror}. Choose a folder that you can write to.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # Temporary files are private, and some writers make them so again; what people get is an ordinary file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"Cannot write {target}: {error.strerror or error}. Nothing was changed.") from error
    finally:
        temporary.unlink(missing_ok=True)
