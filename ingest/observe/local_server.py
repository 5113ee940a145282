"""An HTTP server beside other work of this machine: few threads, short requests, and nobody can hold a thread for long."""

from __future__ import annotations

import io
import re
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ingest.runtime.output import err_line

# A few readers at once. More are told to come back: each costs a thread, and together the memory that the work needs.
THREADS_MAX = 16
# Request line and headers. A browser sends the cookies of every other page of this host, too.
HEAD_BYTES_MAX = 32 * 1024
# Seconds for a whole head, and for a whole answer.
HEAD_WITHIN_S = ANSWER_WITHIN_S = 10.0

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
_TOO_LONG = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"


class LocalServer(ThreadingHTTPServer):
    """At most THREADS_MAX requests at once; a further one is answered 503."""

    daemon_threads = True
    block_on_close = False  # the end of the work waits for no client

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free = threading.BoundedSemaphore(THREADS_MAX)
        super().__init__(*args, **kwargs)

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the host's name, for which HTTPServer would ask a name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            _send_at_once(request, _BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread has begun
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or is too slow, is no concern of the work."""
        if not isinstance(error := sys.exc_info()[1], ConnectionError | TimeoutError):
            err_line(f"ingest: a request failed: {type(error).__name__}: {error}")


class OneRequest(BaseHTTPRequestHandler):
    """One request a connection. Its head is read whole before it is understood, so that neither a long nor a slow one costs more."""

    protocol_version = "HTTP/1.0"  # it closes the connection after the answer

    def handle(self) -> None:
        head, size, deadline = b"", 0, time.monotonic() + HEAD_WITHIN_S
        while not _HEAD_END.search(head, max(0, size - 3)):
            size = len(head)
            if size > HEAD_BYTES_MAX:
                return _send_at_once(self.connection, _TOO_LONG)
            self.connection.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (part := self.connection.recv(4096)):
                return None
            head += part
        self.connection.settimeout(ANSWER_WITHIN_S)
        self.rfile = io.BufferedReader(io.BytesIO(head))
        return self.handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: whoever reaches the port could fill the terminal."""


def _send_at_once(connection: socket.socket, answer: bytes) -> None:
    connection.settimeout(0.1)
    connection.sendall(answer)
