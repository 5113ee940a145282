"""A TCP proxy in front of a PostgreSQL server that cuts connections: now, or at a word that a client sends."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(eq=False)
class Cut:
    """A cut that waits for its word. With `delivered` the server gets the word, and its answer is lost; otherwise it never gets it."""

    word: bytes
    delivered: bool
    left: int
    done: threading.Event = field(default_factory=threading.Event)


class TcpCutter:
    """Proxies 127.0.0.1:`port` to 127.0.0.1:`server_port`. A context manager."""

    def __init__(self, server_port: int) -> None:
        self._server_port, self._refusing, self._plan = server_port, False, Cut(b"", False, 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> TcpCutter:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener)
        self.refuse()

    def cut(self) -> None:
        """Break all connections now."""
        for each in tuple(self._open):
            _close(each)

    def refuse(self) -> None:
        """Break all connections, and new ones too, until `allow`."""
        self._refusing = True
        self.cut()

    def allow(self) -> None:
        """Accept connections again."""
        self._refusing = False

    def cut_at(self, word: bytes, *, delivered: bool, times: int = 1) -> Cut:
        """Break the next connection over which a client sends this word, for example b"COMMIT"."""
        self._plan = Cut(word, delivered, times)
        return self._plan

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = None if self._refusing else socket.create_connection(("127.0.0.1", self._server_port), 5)
                except OSError:  # the server is down
                    server = None
                if server is None:
                    _close(client)
                    continue
                server.settimeout(None)
                self._open |= {client, server}
                lost = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, lost), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client, lost), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                plan = self._plan
                if plan.left and plan.word in data:
                    plan.left -= 1
                    lost.set()
                    if not plan.delivered:
                        plan.done.set()
                        break
                server.sendall(data)
        if not lost.is_set() or not self._plan.delivered:
            self._end(client, server)

    def _answers(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if lost.is_set():
                    self._plan.done.set()
                    break
                client.sendall(data)
        self._end(client, server)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            _close(each)
            self._open.discard(each)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
