"""Who may talk to the server of a review: one browser on this computer that was given the token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Checks every request before the application sees it.

    - The Host header must be the address of the server, so that no other name leads here (DNS
      rebinding).
    - A request that another site makes is refused by its Origin or Sec-Fetch-Site header. A request
      that changes something must have the right Origin.
    - Everything needs a cookie, which only the address with the token gives. Without it there is a
      page that says so.

    Parameters
    ----------
    port : int
        The port of the server.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.token = secrets.token_urlsafe(24)  # of the next address; empty where it was used
        self._secret = secrets.token_urlsafe(32)  # what the cookie holds
        # Cookies are shared between the ports of a computer: two reviews must not overwrite each
        # other's.
        self.cookie = f"manyway_review_{port}"
        self.hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    @property
    def address(self) -> str:
        """The address to open; it gives the cookie and is then replaced by one without the token."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def take_token(self, token: str) -> bool:
        """Whether this is the token; compared in constant time. It is of use once."""
        given = token.encode(errors="replace")
        right = bool(self.token) and hmac.compare_digest(given, self.token.encode())
        if right:
            self.token = ""
        return right

    def renew(self) -> bool:
        """Make a new token if the last one was used; whether there is a new one."""
        used = not self.token
        self.token = self.token or secrets.token_urlsafe(24)
        return used

    def has_cookie(self, request: Request) -> bool:
        """Whether the request comes from a browser that has been let in."""
        given = request.cookies.get(self.cookie, "").encode()
        return hmac.compare_digest(given, self._secret.encode())

    def give_cookie(self, response: Response) -> None:
        """Let a browser in."""
        response.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path="/")

    def reason_to_refuse(self, request: Request) -> str | None:
        """Why a request is refused; None if it is not."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if host not in self.hosts:
            return "This server answers to its own address only."
        if request.method not in ("GET", "HEAD", "POST"):
            return "This server is asked with GET and POST only."
        # A link on another page may lead to the first page, which shows nothing without the cookie.
        followed = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
        site = request.headers.get("sec-fetch-site", "none")
        foreign = site not in ("none", "same-origin") and not followed
        if foreign or origin not in (None, f"http://{host}"):
            return "Other sites cannot use this server."
        if request.method == "POST":
            if origin is None:
                return "A request that changes something must say where it comes from."
            content_type, _, _ = request.headers.get("content-type", "").partition(";")
            if content_type.strip() != "application/json":
                return "A request that changes something must be JSON."
        public = request.url.path == "/" or request.url.path.startswith("/static/")
        if not public and not self.has_cookie(request):
            return "Open the address that manyway printed; it has the token."
        return None

    async def __call__(self, app: _App, scope: _Message, receive: Any, send: Any) -> None:
        """The check as a layer around an application.

        It also sets the security headers of every answer.
        """
        from starlette.requests import Request
        from starlette.responses import JSONResponse

        async def send_with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        elif scope["type"] == "http":
            reason = self.reason_to_refuse(Request(scope))
            answer = app if reason is None else JSONResponse({"error": reason}, 403)
            await answer(scope, receive, send_with_headers)
