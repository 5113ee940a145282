"""A TCP server on loopback that answers as no HTTP library would."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def served(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that does as `answer` says with each connection. Yields its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened: list[socket.socket] = []

        def one(client: socket.socket) -> None:
            with suppress(OSError):
                answer(client)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    opened.append(listener.accept()[0])
                    threading.Thread(target=one, args=opened[-1:], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in opened:
                each.close()


def again_and_again(first: bytes, then: bytes, every_s: float) -> Callable[[socket.socket], None]:
    """Take a request, send the first bytes, and then more of them until the client has gone."""

    def answer(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(first)
        while True:
            time.sleep(every_s)
            client.sendall(then)

    return answer
