"""The server of a review: one page, its data and its pictures, for one person, until it is interrupted."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shlex
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from manyway.core import Solution
from manyway.errors import InputError, optional
from manyway.review.data import FILE, JOURNAL, PICTURES, ReviewData
from manyway.review.export import Find, export_examples, export_folders, export_labels
from manyway.review.guard import HOST, Guard
from manyway.review.journal import Action, Journal
from manyway.review.relabel import Relabel
from manyway.review.session import Session

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

SIZES = (160, 320, 1280)  # pixels of pictures; requests for others are refused
EXPORTS = {  # tables are downloaded, folders of pictures are made in the folder of the review
    "labels.csv": "Labels, one row per item (csv)",
    "labels.xlsx": "Labels, one row per item (Excel)",
    "labels.parquet": "Labels, one row per item (parquet)",
    "examples.csv": "Examples and reviewed items (csv)",
    "examples.parquet": "Examples and reviewed items (parquet)",
    "sorted": "All pictures sorted into one folder per label, as links",
    "sorted-copies": "All pictures sorted into one folder per label, as copies",
    "examples": "Examples and reviewed items, one folder of pictures per class",
}
_STATIC = Path(str(resources.files("manyway.review"))) / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_WAIT = 20.0  # seconds that a page waits for news before it asks again
_LONGEST_REQUEST = 8 * 2**20  # bytes; an action may name every item
_KEPT = 8192  # thumbnails in memory
PORT = 8765
_TRIED = 100  # ports

Thumbnail = Callable[[str, int, int], bytes]  # ("examples" or "items", row, size) -> a JPEG file


def make_app(
    session: Session,
    guard: Guard,
    folder: Path,
    thumbnail: Thumbnail | None = None,
    find: Find | None = None,
    stopping: Callable[[], bool] = lambda: False,
    announce: Callable[[str], None] = lambda address: None,
) -> Starlette:
    """The web application of a review.

    Parameters
    ----------
    session : Session
    guard : Guard
        Lets requests in or refuses them.
    folder : Path
        Where exports are written.
    thumbnail : callable, optional
        Makes the picture of an example or item; OSError or InputError where it is missing.
    find : callable, optional
        Finds the original of a picture, for exports.
    stopping : callable, optional
        Whether the server is about to stop: waiting pages are answered then.
    announce : callable, optional
        Shows the person at the terminal a new address, where a browser asks to be let in and the last was used.

    Returns
    -------
    starlette.applications.Starlette
    """
    optional("starlette", "review", "manyway review")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route

    static = {path.name: path.read_bytes() for path in _STATIC.iterdir() if path.suffix in _TYPES}
    at_work = Semaphore(4)  # pictures that are decoded at once
    made = TemporaryDirectory(prefix="manyway-review-")  # tables to be downloaded; it goes with the application

    @lru_cache(maxsize=_KEPT)
    def kept(which: str, row: int, size: int) -> bytes:
        assert thumbnail is not None
        with at_work:
            return thumbnail(which, row, size)

    def drawn(which: str, row: int, size: int) -> bytes:
        return (kept if size < SIZES[-1] else kept.__wrapped__)(which, row, size)  # large ones are seldom asked for

    def answer(value: Any, status: int = 200) -> Response:
        # Names of files that are not UTF-8 hold lone surrogates, which only escapes can carry.
        return Response(json.dumps(value), status, media_type="application/json", headers={"Cache-Control": "no-store"})

    def page(name: str, status: int = 200, **values: Any) -> Response:
        return Response(render(name, **values), status, media_type="text/html", headers={"Cache-Control": "no-store"})

    async def show(request: Request) -> Response:
        token = request.query_params.get("token")
        known = guard.has_cookie(request)
        if token is not None and (known or guard.take_token(token)):
            # A page that goes on by itself: a browser sends a strict cookie only where this site leads to itself.
            response = page("open.html", address="/")
            guard.give_cookie(response)
            return response
        if not known:
            if guard.renew():
                announce(guard.address)
            return page("closed.html", 403)
        return page("review.html", title=session.data.title)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            return answer({"error": "There is no such file."}, 404)
        return Response(static[name], media_type=_TYPES[Path(name).suffix], headers={"Cache-Control": "no-cache"})

    async def overview(request: Request) -> Response:
        exports = {name: about for name, about in EXPORTS.items() if "." in name or find is not None}
        more = {"exports": exports, "folder": str(folder), "command": f"manyway review {shlex.quote(str(folder))}"}
        return answer({**await run_in_threadpool(session.overview), **more})

    async def changes(request: Request) -> Response:
        try:
            since = int(request.query_params["since"])
        except (KeyError, ValueError):
            return answer({"error": "since must be a number."}, 400)
        deadline = time.monotonic() + _WAIT
        # A page of an earlier start of the server is told at once, also where its version is the same by chance.
        own = request.query_params.get("id", session.id) == session.id
        while own and session.version == since and time.monotonic() < deadline and not stopping():
            await asyncio.sleep(0.01)
        return answer(await run_in_threadpool(session.changes, since))

    async def act(request: Request) -> Response:
        sent = await _body(request)
        try:
            rows, labels = sent.get("rows", []), sent.get("labels", [])
            if not all(type(row) is int for row in rows) or not all(isinstance(name, str) for name in labels):
                raise InputError("rows must be numbers and labels must be names.")
            if sent.get("items") != session.data.items_hash:
                raise InputError("This page shows a review that is no longer served here; nothing was saved.")
            action = Action(str(sent.get("kind")), tuple(rows), tuple(labels), str(sent.get("key", "")))
        except (TypeError, AttributeError):
            raise InputError("rows and labels must be lists.") from None
        said = await run_in_threadpool(session.act, action)
        return answer({"said": said, "version": session.version})

    async def planned(request: Request) -> Response:
        return answer(await run_in_threadpool(session.planned))

    async def near(request: Request) -> Response:
        row = request.path_params["row"]
        if row >= len(session.data.names):
            return answer({"error": "There is no such item."}, 404)
        return answer(await run_in_threadpool(session.near, row))

    async def export(request: Request) -> Response:
        name = (await _body(request)).get("name")
        if not isinstance(name, str) or name not in EXPORTS:
            raise InputError("There is no such export.")
        if "." in name:
            write = export_labels if name.startswith("labels") else export_examples
            count = await run_in_threadpool(write, session, Path(made.name) / name)
            return answer({"said": f"{count:,} rows are in {name}.", "download": f"/downloads/{name}"})
        if find is None:
            raise InputError("There are no pictures to export.")
        names = (name if n == 1 else f"{name}-{n}" for n in range(1, 10_000))
        place = next(one for one in (folder / name for name in names) if not one.is_symlink() and not one.exists())
        work = partial(export_folders, copy=name == "sorted-copies") if name.startswith("sorted") else export_examples
        count = await run_in_threadpool(work, session, place, find)
        return answer({"said": f"{count:,} pictures are in {place}."})

    async def download(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in EXPORTS or not (Path(made.name) / name).is_file():
            return answer({"error": "There is no such file; export it first."}, 404)
        return FileResponse(Path(made.name) / name, filename=name, headers={"Cache-Control": "no-store"})

    async def picture(request: Request) -> Response:
        which, row, size = (request.path_params[name] for name in ("which", "row", "size"))
        n = {"items": len(session.data.names), "examples": len(session.data.examples)}.get(which, 0)
        if thumbnail is None or session.data.kind != PICTURES or row >= n or size not in SIZES:
            return answer({"error": "There is no such picture."}, 404)
        try:
            data = await run_in_threadpool(drawn, which, row, size)
        except (OSError, InputError):
            # The item exists and has no picture that can be shown: the page says so. It is no error of the request.
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
        # Its address is new at every start of the server, so the browser need not ask for it again.
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400, immutable"})

    async def refuse(request: Request, error: Exception) -> Response:
        return answer({"error": str(error)}, 400)

    routes = [
        Route("/", show),
        Route("/static/{name}", asset),
        Route("/api/review", overview),
        Route("/api/changes", changes),
        Route("/api/near/{row:int}", near),
        Route("/api/check", planned),
        Route("/api/actions", act, methods=["POST"]),
        Route("/api/export", export, methods=["POST"]),
        Route("/downloads/{name}", download),
        Route("/pictures/{review}/{which}/{row:int}/{size:int}", picture),
    ]
    app = Starlette(routes=routes, exception_handlers={InputError: refuse})
    app.add_middleware(lambda app: partial(guard, app))
    return app


def render(name: str, **values: Any) -> str:
    """A page from its template."""
    pages = Environment(loader=PackageLoader("manyway.review"), autoescape=True, undefined=StrictUndefined)
    return pages.get_template(name).render(**values)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > _LONGEST_REQUEST:
            raise InputError("The request is too long.")
        parts.append(part)
    try:
        value = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise InputError("The request is not JSON.") from None
    if not isinstance(value, dict):
        raise InputError("The request must be a JSON object.")
    return value


def open_review(
    folder: Path, data: ReviewData | None = None, first: Solution | None = None, *, read_only: bool = False
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
        If the folder holds a review of other items or something else, or if the review is open already.
    """
    started = (folder / JOURNAL).exists() or (folder / FILE).is_file()
    saved = ReviewData.load(folder) if data is None or (folder / FILE).is_file() else None
    if data is None:
        assert saved is not None
        data = saved
    elif saved is not None and saved.items_hash != data.items_hash:
        hint = f"go on with it by `manyway review {folder}`, or name another folder with `manyway review … -o FOLDER`"
        raise InputError(f"{folder} holds a review of other items; {hint}.")
    elif not started and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and holds no review; name another folder: `manyway review … -o FOLDER`.")
    relabel = Relabel(data, first)  # it may refuse them: before a folder is made
    if not read_only:
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)  # for its owner alone
        except OSError as error:
            raise InputError(f"Cannot write {folder}: {error.strerror}.") from error
        if not os.access(folder, os.W_OK):
            raise InputError(f"Cannot write {folder}: permission denied. Answers would be lost; copy the folder first.")
    journal = Journal(folder / JOURNAL, data.items_hash, new=not started, read_only=read_only)
    try:
        if data is not saved and not read_only:
            data.save(folder)
        return Session(data, journal, relabel)
    except BaseException:
        journal.close()
        raise


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
        Called when the port is taken, with the address to open and with a file that leads to it. Everybody on the
        computer can read the command line of a browser, but only the owner can read the file.
    announce : callable, optional
        Called with a new address where another browser asks to be let in.
    """
    uvicorn, lead = optional("uvicorn", "review", "manyway review"), folder / "open.html"
    try:
        with take_port(port) as taken:
            guard = Guard(taken.getsockname()[1])
            app = make_app(session, guard, folder, thumbnail, find, lambda: server.should_exit, announce)
            quiet = {"log_level": "error", "access_log": False, "server_header": False}
            server = uvicorn.Server(uvicorn.Config(app, **quiet, timeout_graceful_shutdown=1))
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
