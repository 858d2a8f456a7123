"""Start or go on with a review, and serve its page to one person until the program is interrupted."""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from manyway.core import Solution
from manyway.errors import InputError, optional
from manyway.review.actions import Label
from manyway.review.app import Thumbnail, make_app, render
from manyway.review.data import FILE, JOURNAL, ReviewData
from manyway.review.export import Find
from manyway.review.guard import HOST, Guard
from manyway.review.journal import Journal
from manyway.review.relabel import Relabel
from manyway.review.session import Session

PORT = 8765
_TRIED = 100  # ports


def open_review(
    folder: Path,
    data: ReviewData | None = None,
    first: Solution | None = None,
    *,
    read_only: bool = False,
) -> Session:
    """Start a review in a folder, or go on with the one that it holds.

    Parameters
    ----------
    folder : Path
        It is made if it does not exist.
    data : ReviewData, optional
        What to review. None: what the folder holds.
    first : Solution, optional
        What was found for the items already.
    read_only : bool, default=False
        Write nothing to the folder: for exports, also from a full disk.

    Returns
    -------
    Session
        ``session.journal.damage`` says what is wrong with its journal, if anything is.

    Raises
    ------
    InputError
        If the folder holds a review of other items or something else, or if the review is open
        already.
    """
    has_data = (folder / FILE).is_file()
    started = has_data or (folder / JOURNAL).exists()
    saved = ReviewData.load(folder) if data is None or has_data else None
    if data is None:
        assert saved is not None
        data = saved
    elif saved is not None and saved.items_hash != data.items_hash:
        go_on = f"go on with it by `manyway review {folder}`"
        other = "name another folder with `manyway review … -o FOLDER`"
        raise InputError(f"{folder} holds a review of other items; {go_on}, or {other}.")
    elif not started and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = "name another folder: `manyway review … -o FOLDER`"
        raise InputError(f"{folder} exists and holds no review; {hint}.")
    relabel = Relabel(data, first)  # it may refuse them: before a folder is made
    if not read_only:
        _make_folder(folder)
    journal = Journal(folder / JOURNAL, data.items_hash, new=not started, read_only=read_only)
    try:
        if data is not saved and not read_only:
            data.save(folder)
        session = Session(data, journal, relabel)
        if data.given and not started and not read_only:
            answers = Label(rows=tuple(data.given), labels=tuple(data.given.values()), key="given")
            session.act(answers)
        return session
    except BaseException:
        journal.close()
        raise


def _make_folder(folder: Path) -> None:
    """Make the folder of a review, for its owner alone."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot write {folder}: {error.strerror}.") from error
    if not os.access(folder, os.W_OK):
        hint = "Answers would be lost; copy the folder first."
        raise InputError(f"Cannot write {folder}: permission denied. {hint}")


def serve(
    session: Session,
    folder: Path,
    *,
    thumbnail: Thumbnail | None = None,
    find: Find | None = None,
    port: int = PORT,
    ready: Callable[[str, Path], None] = lambda address, file: None,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a review on 127.0.0.1 until the process is interrupted; then close the session.

    Parameters
    ----------
    session : Session
    folder : Path
        Where exports are written.
    thumbnail, find : callable, optional
        See `make_app`.
    port : int, default=8765
        The port. One that is in use is skipped: the next free one is taken.
    ready : callable, optional
        Called when the port is taken, with the address to open and with a file that leads to it.
        Everybody on the computer can read the command line of a browser, but only the owner can
        read the file.
    announce : callable, optional
        Called with a new address where another browser asks to be let in.
    """
    uvicorn = optional("uvicorn", "review", "manyway review")
    lead = folder / "open.html"
    try:
        with take_port(port) as taken:
            guard = Guard(taken.getsockname()[1])
            app = make_app(
                session,
                guard,
                folder,
                thumbnail=thumbnail,
                find=find,
                stopping=lambda: server.should_exit,
                announce=announce,
            )
            config = uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(config)
            with suppress(OSError):  # a full disk; the address is printed
                lead.unlink(missing_ok=True)
                lead.touch(mode=0o600)
                lead.write_text(render("open.html", address=guard.address), encoding="utf-8")
            ready(guard.address, lead)
            server.run(sockets=[taken])
    finally:
        lead.unlink(missing_ok=True)
        session.close()


def take_port(port: int) -> socket.socket:
    """A socket that listens on the port of this computer, or on the next one that is free."""
    for candidate in range(port, min(port + _TRIED, 65536)):
        # asyncio sends at once (TCP_NODELAY) where the protocol is said to be TCP.
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
