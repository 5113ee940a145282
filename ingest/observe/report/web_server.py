"""`ingest ui`: the page on this machine's own port. It answers GET and HEAD, reads the lake again when it is asked, and writes nothing."""

from __future__ import annotations

import ipaddress
import mimetypes
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ingest.observe.local_server import LocalServer, OneRequest
from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.output import err_line

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


@dataclass(frozen=True)
class _Shown:
    """The page with a word in place of its nonce, and the summary as JSON."""

    at_s: float
    page: str
    word: str
    summary: str


class Answers:
    """What the server shows. Lake, page and summary are read and drawn at most once in FRESH_S. `docs` maps addresses to folders."""

    def __init__(self, look: Callable[[], Any], page: Callable[[Any, str], str], summary: Callable[[Any], str], docs: Mapping[str, Path]):
        self._look, self._page, self._summary, self.docs = look, page, summary, docs
        self._lock = threading.Lock()
        self._shown: _Shown | None = None

    def page(self, nonce: str) -> str:
        """The page whose script carries this nonce."""
        shown = self._fresh()
        return shown.page.replace(shown.word, nonce)

    def summary(self) -> str:
        """The figures as JSON."""
        return self._fresh().summary

    def _fresh(self) -> _Shown:
        """Of several requests, one reads the lake and the others wait for it."""
        with self._lock:
            if self._shown is None or time.monotonic() - self._shown.at_s > FRESH_S:
                found, word = self._look(), secrets.token_urlsafe(32)  # no value of the lake can contain it
                self._shown = _Shown(time.monotonic(), self._page(found, word), word, self._summary(found))
            return self._shown

    def file(self, path: str) -> Path | None:
        """The file of a Data Docs address (`/docs/<pipeline>/<table>/…`); None outside of these folders."""
        for prefix, folder in self.docs.items():
            if path.startswith(f"{prefix}/") and "\0" not in path:
                try:
                    file = (folder / path.removeprefix(f"{prefix}/")).resolve()
                    return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
                except OSError:  # such as a name that is too long
                    return None
        return None


class Server(LocalServer):
    """The server on a host and port (0: a free one). Raises InvalidEnvironment UI_PORT."""

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

    def serve(self) -> None:
        """Serve until SIGTERM, which ends it without an error, or Ctrl-C."""
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self.shutdown).start())
        try:
            self.serve_forever(poll_interval=0.1)
        finally:
            self.server_close()


class Handler(OneRequest):
    """One request."""

    server: Server
    server_version, sys_version = "oncelake", ""

    def do_GET(self) -> None:  # noqa: N802
        """Answer `/`, `/summary.json` and the pages of the Data Docs."""
        if not self.server.knows(self.headers.get("Host")):
            return self._text(HTTPStatus.MISDIRECTED_REQUEST, "The Host header names another machine. Use the address of `ingest ui`.\n")
        try:
            path, answers = unquote(urlsplit(self.path).path), self.server.answers
        except ValueError:
            return self._text(HTTPStatus.BAD_REQUEST, "This is no address.\n")
        try:
            if path == "/":
                nonce = secrets.token_urlsafe(16)
                policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
                policy += "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
                return self._send(HTTPStatus.OK, "text/html", answers.page(nonce).encode(), policy)
            if path == "/summary.json":
                return self._send(HTTPStatus.OK, "application/json", answers.summary().encode(), "default-src 'none'")
        except ConnectionError:
            raise
        except Exception as error:
            err_line(f"ingest: the summary failed: {type(error).__name__}: {error}")
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
        self._send(status, "text/plain", text.encode(), "default-src 'none'", more)

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
