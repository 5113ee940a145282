"""One HTTP call that ends at its deadline, whatever the server does, and whose answer has a limit in bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from ingest.delivery.effects.uptime import uptime

_CONNECT_S: Final = 5.0
_PIECE_BYTES: Final = 64 * 1024
# A call that was cut ends at once, unless its thread is in `headers` or in a look-up of a name. So many of these are no coincidence.
OVERDUE_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """`body` is what came, up to the limit. `whole` is False if there was more, or if it is compressed in spite of our request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """No answer. `sent`: whether a byte of the request may have reached the server. `why` contains no header and no URL."""

    sent: bool
    why: str


class HttpCall(threading.Thread):
    """A call in a thread of its own. urllib3's time-outs are those of one read: a server that sends a byte now and then outlasts them.

    At the deadline the connection is cut, which ends the thread. It may outlive the deadline only while a name is looked up, a
    connection opened or `headers` called; it then ends without having sent anything. While OVERDUE_MAX threads outlive it, no call starts.
    """

    def __init__(
        self,
        pool: CallPool,
        method: str,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        body: bytes | None,
        within_s: float,
        bytes_max: int,
    ) -> None:
        super().__init__(name="http-call", daemon=True)
        self._pool, self._method, self._url, self._headers, self._body = pool, method, url, headers, body
        self._within_s, self._bytes_max = within_s, bytes_max
        self._deadline = uptime() + within_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None  # while this call uses it
        self._sent = self._cut = False
        self._outcome: HttpAnswer | HttpFailure | None = None

    def outcome(self) -> HttpAnswer | HttpFailure:
        """Make the call, and return after `within_s` seconds at most."""
        if (overdue := self._pool.overdue()) >= OVERDUE_MAX:
            stuck = "`headers` does not return, or the name of the host is not answered"
            return self._failure(f"{overdue} earlier calls have not ended since they timed out, so no other is started: {stuck}")
        try:
            self.start()
        except RuntimeError as error:  # too many threads
            return self._failure(str(error))
        self.join(self._within_s)
        with self._lock:
            if self._outcome is not None:
                return self._outcome
            self._cut = True
            self._pool.gave_up(self)
            if self._socket is not None:
                with suppress(OSError):  # of the base class: SSLSocket's own would change what the other thread reads from
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            return self._failure(f"timed out after {self._within_s:g} s")

    def sends(self, through: socket.socket) -> float:
        """The connection is about to send bytes. Returns the seconds left for it. Raises TimeoutError after the deadline."""
        with self._lock:
            left_s = self._deadline - uptime()
            if self._cut or left_s <= 0:
                raise TimeoutError(f"timed out after {self._within_s:g} s")
            self._socket, self._sent = through, True
            return left_s

    def run(self) -> None:
        """The thread: make headers, send, and read the answer."""
        try:
            outcome = self._exchange()
        except Exception as error:
            outcome = self._failure(_cause(error))
        with self._lock:
            self._outcome = outcome

    def _exchange(self) -> HttpAnswer | HttpFailure:
        try:
            headers = self._headers()
        except Exception as error:
            return HttpFailure(False, f"the headers could not be made ({type(error).__name__})")  # its text may show a token
        headers = urllib3.HTTPHeaderDict(headers)
        headers["Accept-Encoding"] = "identity"
        timeout = urllib3.Timeout(connect=min(_CONNECT_S, self._within_s), total=self._within_s)
        response = self._pool.request(
            self._method,
            self._url,
            body=self._body,
            headers=headers,
            timeout=timeout,
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
        )
        pieces, size, more = [], 0, True
        try:
            while size <= self._bytes_max and (more := bool(piece := response.read(min(_PIECE_BYTES, self._bytes_max + 1 - size)))):
                pieces.append(piece)
                size += len(piece)
        finally:
            with self._lock:
                self._socket = None  # it may soon be another call's
            response.close() if more else response.release_conn()
        plain = response.headers.get("Content-Encoding", "identity").strip().lower() in ("", "identity")
        body = b"".join(pieces)[: self._bytes_max] if plain else b""
        return HttpAnswer(response.status, response.headers, body, plain and not more)

    def _failure(self, why: str) -> HttpFailure:
        return HttpFailure(self._sent, f"{'no answer' if self._sent else 'no connection'}: {why}")


class _Bounded:
    """A connection that asks the call whose thread uses it before it sends."""

    def send(self: Any, data: Any) -> None:
        if self.sock is None:
            self.connect()
        call = threading.current_thread()
        assert isinstance(call, HttpCall)
        self.sock.settimeout(call.sends(self.sock))
        super().send(data)  # type: ignore[misc]


class _Http(_Bounded, HTTPConnection):
    pass


class _Https(_Bounded, HTTPSConnection):
    pass


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


class CallPool(urllib3.PoolManager):
    """The kept connections of calls, and the calls that have outlived their deadline."""

    def __init__(self, connections: int) -> None:
        super().__init__(maxsize=connections)
        self._given_up: WeakSet[HttpCall] = WeakSet()  # a call knows its pool: together they would keep its connections open
        self._guard = threading.Lock()
        self.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def gave_up(self, call: HttpCall) -> None:
        """Nobody waits for this call any more."""
        with self._guard:
            self._given_up.add(call)

    def overdue(self) -> int:
        """How many threads of such calls have not ended."""
        with self._guard:
            return sum(call.is_alive() for call in self._given_up)


def _cause(error: BaseException) -> str:
    """The text of a client error without its request, whose URL or headers may contain a token."""
    words = [part for part in error.args if isinstance(part, str)] if isinstance(error, HTTPError | OSError) else []
    return f"{type(error).__name__} ({words[-1]})" if words else type(error).__name__
