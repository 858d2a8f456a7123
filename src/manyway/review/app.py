"""The web application of a review: one page, its data, its pictures and its exports."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from manyway.errors import InputError, optional
from manyway.review.actions import read_action
from manyway.review.data import PICTURES
from manyway.review.export import Export, Find, offered_exports
from manyway.review.guard import Guard
from manyway.review.session import Session

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

SIZES = (160, 320, 1280)  # pixels of pictures; requests for others are refused
_STATIC = Path(str(resources.files("manyway.review"))) / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_WAIT = 20.0  # seconds that a page waits for news before it asks again
_LONGEST_REQUEST = 8 * 2**20  # bytes; an action may name every item
_DIGITS = 9  # of a number in an address
_KEPT = 8192  # thumbnails in memory
_AT_ONCE = 4  # pictures that are decoded at the same time
_FOLDERS = 10_000  # exports into folders of one name

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
        Shows the person at the terminal a new address, where a browser asks to be let in and the
        last was used.

    Returns
    -------
    starlette.applications.Starlette
    """
    optional("starlette", "review", "manyway review")
    from starlette.applications import Starlette
    from starlette.routing import Route

    front = _Front(session.data.title, guard, announce)
    review = _Review(session, folder, stopping, offered_exports(session, find))
    pictures = _Pictures(session, thumbnail)
    exports = _Exports(session, folder, review.exports)
    routes = [
        Route("/", front.page),
        Route("/static/{name}", front.asset),
        Route("/api/review", review.overview),
        Route("/api/changes", review.changes),
        Route("/api/near/{row}", review.near),
        Route("/api/check", review.checks),
        Route("/api/history", review.history),
        Route("/api/likeness", review.likeness, methods=["POST"]),
        Route("/api/actions", review.act, methods=["POST"]),
        Route("/api/export", exports.write, methods=["POST"]),
        Route("/downloads/{name}", exports.download),
        Route("/pictures/{review}/{which}/{row}/{size}", pictures.picture),
    ]
    app = Starlette(routes=routes, exception_handlers={InputError: _refuse})
    app.add_middleware(lambda app: partial(guard, app))
    return app


class _Front:
    """The page itself, and its scripts and styles."""

    def __init__(self, title: str, guard: Guard, announce: Callable[[str], None]) -> None:
        self._title = title
        self._guard = guard
        self._announce = announce
        assets = [path for path in _STATIC.iterdir() if path.suffix in _TYPES]
        self._assets = {path.name: path.read_bytes() for path in assets}

    async def page(self, request: Request) -> Response:
        """The page.

        A browser that has the token gets a page that lets it in, others get one that says no.
        """
        token = request.query_params.get("token")
        known = self._guard.has_cookie(request)
        if token is not None and (known or self._guard.take_token(token)):
            # A page that goes on by itself: a browser sends a strict cookie only where this site
            # leads to itself.
            response = _html(render("open.html", address="/"))
            self._guard.give_cookie(response)
            return response
        if not known:
            if self._guard.renew():
                self._announce(self._guard.address)
            return _html(render("closed.html"), 403)
        return _html(render("review.html", title=self._title))

    async def asset(self, request: Request) -> Response:
        """A script, a style or the icon."""
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in self._assets:
            return _nothing("There is no such file.")
        headers = {"Cache-Control": "no-cache"}
        media_type = _TYPES[Path(name).suffix]
        return Response(self._assets[name], media_type=media_type, headers=headers)


class _Review:
    """What the page asks and tells."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        stopping: Callable[[], bool],
        exports: Mapping[str, Export],
    ) -> None:
        self._session = session
        self._folder = folder
        self._stopping = stopping
        self.exports = exports

    async def overview(self, request: Request) -> Response:
        """Everything that a page needs at the start."""
        found = await _in_thread(self._session.overview)
        found["exports"] = [
            {"name": export.name, "about": export.about, "folder": export.is_folder}
            for export in self.exports.values()
        ]  # fmt: skip
        found["folder"] = str(self._folder)
        found["command"] = f"manyway review {shlex.quote(str(self._folder))}"
        return _json(found)

    async def changes(self, request: Request) -> Response:
        """What has changed; the answer waits until something has."""
        since = _number(request.query_params.get("since", ""))
        if since is None:
            raise InputError("since must be a number.")
        session = self._session
        deadline = time.monotonic() + _WAIT
        # A page of an earlier start of the server is told at once, also where its version is the
        # same by chance.
        own = request.query_params.get("id", session.id) == session.id
        while own and session.version == since and time.monotonic() < deadline:
            if self._stopping():
                break
            await asyncio.sleep(0.01)
        return _json(await _in_thread(session.changes, since))

    async def act(self, request: Request) -> Response:
        """Save and perform an action."""
        sent = await _body(request)
        items = sent.pop("items", None)
        action = read_action(sent)
        if items != self._session.data.items_hash:
            message = "This page shows a review that is no longer served here; nothing was saved."
            raise InputError(message)
        said = await _in_thread(self._session.act, action)
        answer = {"said": said.sentence, "rows": said.rows, "version": self._session.version}
        return _json(answer)

    async def checks(self, request: Request) -> Response:
        """The random checks that could begin."""
        offers = await _in_thread(self._session.planned)
        return _json([offer._asdict() for offer in offers])

    async def history(self, request: Request) -> Response:
        """What was done, newest first."""
        past = await _in_thread(self._session.past)
        return _json([told._asdict() for told in past])

    async def near(self, request: Request) -> Response:
        """The examples that are nearest to an item."""
        row = _number(request.path_params["row"])
        if row is None or row >= len(self._session.data.names):
            return _nothing("There is no such item.")
        return _json(await _in_thread(self._session.near, row))

    async def likeness(self, request: Request) -> Response:
        """How alike the items of a group are."""
        rows = (await _body(request)).get("rows")
        if not isinstance(rows, list) or not all(type(row) is int for row in rows):
            raise InputError("rows must be a list of numbers.")
        found = await _in_thread(self._session.likeness, rows)
        return _json(found._asdict())


class _Pictures:
    """Thumbnails of examples and items."""

    def __init__(self, session: Session, thumbnail: Thumbnail | None) -> None:
        data = session.data
        self._counts: dict[str, int] = {}
        if thumbnail is not None and data.kind == PICTURES:
            self._counts = {"items": len(data.names), "examples": len(data.examples)}
        self._thumbnail = thumbnail
        self._at_work = Semaphore(_AT_ONCE)
        self._kept = lru_cache(maxsize=_KEPT)(self._draw)

    async def picture(self, request: Request) -> Response:
        """A picture in one of the sizes."""
        from starlette.responses import Response

        which = request.path_params["which"]
        row = _number(request.path_params["row"])
        size = _number(request.path_params["size"])
        if row is None or row >= self._counts.get(which, 0) or size not in SIZES:
            return _nothing("There is no such picture.")
        draw = self._draw if size == SIZES[-1] else self._kept  # large ones are seldom asked for
        try:
            data = await _in_thread(draw, which, row, size)
        except (OSError, InputError):
            # The item exists and has no picture that can be shown: the page says so. It is no error
            # of the request.
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
        # Its address is new at every start of the server, so the browser need not ask for it again.
        headers = {"Cache-Control": "private, max-age=86400, immutable"}
        return Response(data, media_type="image/jpeg", headers=headers)

    def _draw(self, which: str, row: int, size: int) -> bytes:
        assert self._thumbnail is not None
        with self._at_work:
            return self._thumbnail(which, row, size)


class _Exports:
    """Tables are downloaded; folders of pictures are made in the folder of the review."""

    def __init__(self, session: Session, folder: Path, exports: Mapping[str, Export]) -> None:
        self._session = session
        self._folder = folder
        self._exports = exports
        self._made = TemporaryDirectory(prefix="manyway-review-")  # it goes with the application

    async def write(self, request: Request) -> Response:
        """Make an export."""
        name = (await _body(request)).get("name")
        if not isinstance(name, str) or name not in self._exports:
            raise InputError("There is no such export.")
        export = self._exports[name]
        if not export.is_folder:
            count = await _in_thread(export.write, self._session, Path(self._made.name) / name)
            said = f"{count:,} rows are in {name}."
            return _json({"said": said, "download": f"/downloads/{name}"})
        place = self._free_folder(name)
        count = await _in_thread(export.write, self._session, place)
        return _json({"said": f"{count:,} pictures are in {place}."})

    async def download(self, request: Request) -> Response:
        """A table that was made."""
        from starlette.responses import FileResponse

        name = request.path_params["name"]
        path = Path(self._made.name) / name
        if name not in self._exports or not path.is_file():
            return _nothing("There is no such file; export it first.")
        return FileResponse(path, filename=name, headers={"Cache-Control": "no-store"})

    def _free_folder(self, name: str) -> Path:
        """A folder that does not exist yet."""
        for n in range(1, _FOLDERS):
            place = self._folder / (name if n == 1 else f"{name}-{n}")
            if not place.is_symlink() and not place.exists():
                return place
        raise InputError(f"There are {_FOLDERS:,} folders {name} already; remove some.")


def render(name: str, **values: Any) -> str:
    """A page from its template."""
    loader = PackageLoader("manyway.review")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return pages.get_template(name).render(**values)


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    # Names of files that are not UTF-8 hold lone surrogates, which only escapes can carry.
    text = json.dumps(value)
    headers = {"Cache-Control": "no-store"}
    return Response(text, status, media_type="application/json", headers=headers)


def _html(text: str, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(text, status, media_type="text/html", headers={"Cache-Control": "no-store"})


def _nothing(sentence: str) -> Response:
    return _json({"error": sentence}, 404)


async def _refuse(request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 400)


async def _in_thread(work: Callable[..., Any], *given: Any) -> Any:
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(work, *given)


def _number(text: str) -> int | None:
    """A number in an address, not longer than one that could be meant.

    >>> _number("12"), _number("-1"), _number("9" * 5000)
    (12, None, None)
    """
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
        return None
    return int(text)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    parts: list[bytes] = []
    size = 0
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
