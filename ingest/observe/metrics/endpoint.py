"""The HTTP server that a Prometheus server scrapes during a run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import MetricsHandler

from ingest.observe.local_server import LocalServer, OneRequest
from ingest.observe.metrics.board import Board
from ingest.observe.metrics.measured import Measured
from ingest.run.display import Display
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

if TYPE_CHECKING:
    from ingest.quality.validation import Checked

LOOPBACK = "127.0.0.1"


class _Handler(OneRequest, MetricsHandler):
    """One scrape."""


@contextmanager
def served(address: str, tables: Sequence[str], shown: Display, checks: Mapping[str, Sequence[Checked]]) -> Iterator[Display]:
    """Serve the metrics of a run at `[HOST:]PORT` until the block ends. Yields the display that counts and passes on to `shown`.

    Raises InvalidInput METRICS_ADDRESS_INVALID, InvalidEnvironment METRICS_PORT_TAKEN.
    """
    host, port = parse_address(address)
    board = Board("run")
    try:
        family, _, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server: LocalServer = type("_Server", (LocalServer,), {"address_family": family})(at, _Handler.factory(board.registry))
    except OSError as error:
        raise InvalidEnvironment(
            "METRICS_PORT_TAKEN",
            f"the metrics cannot be served at {host}:{port}: {error.strerror or error}.",
            expected="a free port at an address of this machine.",
            remedy="name another one with --metrics, or leave the option out. Nothing was started.",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        where = f"[{host}]" if ":" in host else host
        shown.note(f"metrics: http://{where}:{server.server_address[1]}/metrics")
        yield Measured(board, tables, shown, checks)
    finally:
        server.shutdown()
        server.server_close()


def parse_address(text: str) -> tuple[str, int]:
    """`9464`, `0.0.0.0:9464` or `[::]:9464` as host and port. Raises InvalidInput METRICS_ADDRESS_INVALID."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536) or (":" in host and not host.startswith("[")):
        raise InvalidInput(
            "METRICS_ADDRESS_INVALID",
            f"--metrics {text!r}.",
            expected="a port, or host and port: 9464, 0.0.0.0:9464, [::]:9464.",
            remedy="correct --metrics or INGEST_METRICS.",
        )
    return host.strip("[]") or LOOPBACK, int(port)
