"""`ingest ui`: the page on this machine's own port. It answers GET and HEAD, reads the lake again when it is asked, and writes nothing."""

from __future__ import annotations

import ipaddress
import mimetypes
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ingest.runtime.errors import InvalidEnvironment

# The page asks again after EVERY_S. Requests within FRESH_S get the same figures, so that ten readers cost as much as one.
EVERY_S = 10
FRESH_S = 5.0
# A Data Docs page has scripts of its own. It may load nothing but files of the same folder.
DOCS_POLICY = "default-src 'self' 'unsafe-inline' data:; connect-src 'none'; frame-ancestors 'none'; base-uri 'none'"
SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Answers:
    """What the server shows: `page(nonce)` and `summary()` are computed at most once in FRESH_S. `docs` maps addresses to folders."""

    def __init__(self, look: Callable[[], Any], page: Callable[[Any, str], str], summary: Callable[[Any], str], docs: Mapping[str, Path]):
        self._look, self.page, self.summary, self.docs = look, page, summary, docs
        self._lock = threading.Lock()
        self._found: tuple[float, Any] | None = None

    def fresh(self) -> Any:
        """The summaries. Of several requests, one reads the lake and the others wait for it."""
        with self._lock:
            if self._found is None or time.monotonic() - self._found[0] > FRESH_S:
                found = self._look()
                self._found = time.monotonic(), found
            return self._found[1]

    def file(self, path: str) -> Path | None:
        """The file of a Data Docs address (`/docs/<pipeline>/<table>/…`); None outside of these folders."""
        for prefix, folder in self.docs.items():
            if path.startswith(f"{prefix}/") and "\0" not in path:
                file = (folder / path.removeprefix(f"{prefix}/")).resolve()
                return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
        return None


class Server(ThreadingHTTPServer):
    """The server on a host and port (0: a free one). Raises InvalidEnvironment UI_PORT."""

    daemon_threads = True

    def __init__(self, host: str, port: int, answers: Answers) -> None:
        self.answers = answers
        self.asked_host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            raise InvalidEnvironment(
                "UI_PORT",
                f"the page cannot be served on {host} port {port}: {error.strerror or error}.",
                expected="a free port on an address of this machine.",
                remedy="choose another one with --port or --host; `--port 0` takes a free one.",
            ) from error

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the host's name, for which HTTPServer would ask a name server."""
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.asked_host, self.server_address[1]

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.asked_host}]" if ":" in self.asked_host else self.asked_host
        return f"http://{host}:{self.server_port}/"

    def knows(self, host: str | None) -> bool:
        """Whether a Host header names this machine by an address, or by a name that it was given.

        A page of another site can make a browser ask 127.0.0.1 under that site's name (DNS rebinding), and would then read the answer.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self.asked_host.lower(), socket.gethostname().lower()):
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def serve(self) -> None:
        """Serve until SIGTERM, which ends it without an error, or Ctrl-C."""
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self.shutdown).start())
        try:
            self.serve_forever(poll_interval=0.1)
        finally:
            self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "oncelake", ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer `/`, `/summary.json` and the pages of the Data Docs."""
        if not self.server.knows(self.headers.get("Host")):
            return self._text(HTTPStatus.MISDIRECTED_REQUEST, "The Host header names another machine. Use the address of `ingest ui`.\n")
        path, answers = unquote(urlsplit(self.path).path), self.server.answers
        try:
            if path == "/":
                nonce = secrets.token_urlsafe(16)
                policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
                policy += "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
                return self._send(HTTPStatus.OK, "text/html", answers.page(answers.fresh(), nonce).encode(), policy)
            if path == "/summary.json":
                return self._send(HTTPStatus.OK, "application/json", answers.summary(answers.fresh()).encode(), "default-src 'none'")
        except ConnectionError:
            raise
        except Exception as error:
            self.log_error("%s: %s", type(error).__name__, error)
            return self._text(HTTPStatus.INTERNAL_SERVER_ERROR, "The summary failed; `ingest ui` has printed why.\n")
        if path == "/favicon.ico":  # a browser asks for it beside a Data Docs page, which names no icon
            return self._send(HTTPStatus.NO_CONTENT, "image/x-icon", b"", "default-src 'none'")
        if (file := answers.file(path)) is not None:
            return self._send(HTTPStatus.OK, mimetypes.guess_type(file.name)[0] or "text/plain", file.read_bytes(), DOCS_POLICY)
        return self._text(HTTPStatus.NOT_FOUND, "There is only / and /summary.json.\n")

    do_HEAD = do_GET  # noqa: N815

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return lambda: self._text(HTTPStatus.METHOD_NOT_ALLOWED, "This server only shows: GET and HEAD.\n", {"Allow": "GET, HEAD"})
        raise AttributeError(name)

    def _text(self, status: HTTPStatus, text: str, more: Mapping[str, str] | None = None) -> None:
        self.close_connection = True  # a refused request may have a body that nobody reads
        self._send(status, "text/plain", text.encode(), "default-src 'none'", {"Connection": "close", **(more or {})})

    def _send(self, status: HTTPStatus, kind: str, body: bytes, policy: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        charset = "; charset=utf-8" if kind.startswith("text/") or kind.endswith("json") else ""
        head = {
            "Content-Type": f"{kind}{charset}",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            **SAFE,
            **(more or {}),
        }
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Nothing: a page that refreshes itself would fill the terminal."""
