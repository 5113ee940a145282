"""A lineage server on loopback: it keeps the events that it takes, and fails as the test asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Received:
    """`events` are those that were taken. `answers` are the status codes of the next requests; after them everything is taken."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str | None]] = []
        self.answers: list[int] = []
        self.url = ""


@contextmanager
def lineage_server() -> Iterator[Received]:
    """Runs the server until the block ends."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.requests.append(("POST", self.path, self.headers.get("Authorization")))
            status = received.answers.pop(0) if received.answers else 201
            if status < 300:
                received.events.append(body)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            received.requests.append(("GET", self.path, None))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
