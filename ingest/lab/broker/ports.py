"""TCP ports of this machine: which are free, and the error for a port that is taken."""

from __future__ import annotations

import random
import socket

from ingest.lab.broker.broker_config import HOST
from ingest.runtime.errors import InvalidEnvironment

# Below the range that Linux and macOS use for outgoing connections, which may take a port at any moment.
_RANGE = range(15_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now; another process may still take it first."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java sets the same option: connections of a broker that has just ended do not block its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(*, besides: int = 0) -> int:
    """A random free port other than `besides`, so two concurrent callers rarely get the same one. Raises InvalidEnvironment PORT_TAKEN."""
    chance = random.SystemRandom()  # a seeded test must not make two processes choose the same port
    for _ in range(1_000):
        port = chance.choice(_RANGE)
        if port != besides and is_free(port):
            return port
    raise InvalidEnvironment(
        "PORT_TAKEN", f"no free port from {_RANGE.start} to {_RANGE.stop}.", expected="a free port.", remedy="stop programs that use them."
    )


def port_taken(port: int) -> InvalidEnvironment:
    """The error for a requested port that is in use."""
    remedy = f"stop the program that uses it (`lsof -i :{port}` names it), or choose another port with --port (0: any free one)."
    return InvalidEnvironment("PORT_TAKEN", f"port {port} of {HOST} is in use by another program.", expected="a free port.", remedy=remedy)
