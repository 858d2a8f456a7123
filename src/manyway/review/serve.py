"""Run the server of a review on this computer until it is interrupted."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from manyway.core.solution import Solution
from manyway.errors import InputError, optional
from manyway.review.data import FILE, JOURNAL, ReviewData
from manyway.review.export import Find
from manyway.review.guard import HOST, Guard
from manyway.review.journal import Journal
from manyway.review.relabel import Relabel
from manyway.review.server import Thumbnail, make_app
from manyway.review.session import Session

PORT = 8765
_TRIED = 100  # ports


def open_review(folder: Path, data: ReviewData | None = None, first: Solution | None = None) -> Session:
    """Start a review in a folder, or go on with the one that it holds.

    Parameters
    ----------
    folder : Path
        It is made if it does not exist.
    data : ReviewData, optional
        What to review. None: what the folder holds.
    first : Solution, optional
        What was found for the items already.

    Returns
    -------
    Session

    Raises
    ------
    InputError
        If the folder holds a review of other items or something else, or if the review is open already.
    """
    if data is None:
        data = ReviewData.load(folder)
    elif (folder / FILE).is_file():
        if ReviewData.load(folder).items_hash != data.items_hash:
            raise InputError(
                f"{folder} holds a review of other items; go on with it by `manyway review {folder}`, or name another "
                "folder with -o."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and holds no review; name another folder with -o.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write {folder}: {error.strerror}.") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"Cannot write {folder}: permission denied. Answers would be lost; copy the folder first.")
    session = Session(data, Journal(folder / JOURNAL, data.items_hash), Relabel(data, first))
    data.save(folder)
    return session


def serve(
    session: Session,
    folder: Path,
    *,
    thumbnail: Thumbnail | None = None,
    find: Find | None = None,
    port: int = PORT,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a review on 127.0.0.1 until the process is interrupted; then close the session.

    Parameters
    ----------
    session : Session
    folder : Path
        Where exports are written.
    thumbnail, find : callable, optional
        See `manyway.review.server.make_app`.
    port : int, default=8765
        The port. One that is in use is skipped: the next free one is taken.
    ready : callable, optional
        Called with the address to open when the port is taken.
    """
    uvicorn = optional("uvicorn", "review", "manyway review")
    try:
        with take_port(port) as taken:
            guard = Guard(taken.getsockname()[1])
            app = make_app(session, guard, folder, thumbnail, find, stopping=lambda: server.should_exit)
            config = uvicorn.Config(
                app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            ready(guard.address)
            server.run(sockets=[taken])
    finally:
        session.close()


def take_port(port: int) -> socket.socket:
    """A socket that listens on the port of this computer, or on the next one that is free."""
    for candidate in range(port, min(port + _TRIED, 65536)):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
            found.bind((HOST, candidate))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise InputError(f"No port from {port} to {candidate} is free; name another one with `port`.")
