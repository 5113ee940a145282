"""TCP ports of this machine: which are free, and the error where one is not."""

from __future__ import annotations

import random
import socket

from ingest.lab.broker.broker_config import HOST
from ingest.runtime.errors import InvalidEnvironment

# Below the range from which Linux and macOS draw the ports of outgoing connections: those come and go under our feet.
_RANGE = range(15_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a server could listen there now; somebody else may still be quicker."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java sets the same: connections of a broker that just ended do not hold its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(*, besides: int = 0) -> int:
    """A port that is free now and is not `besides`, drawn by chance so that two who ask at once hardly get the same."""
    chance = random.SystemRandom()  # a seeded test must not make two processes draw alike
    for _ in range(1_000):
        port = chance.choice(_RANGE)
        if port != besides and is_free(port):
            return port
    raise InvalidEnvironment(
        "PORT_TAKEN", f"no free port from {_RANGE.start} to {_RANGE.stop}.", expected="a free port.", remedy="end what holds them."
    )


def port_taken(port: int) -> InvalidEnvironment:
    """The error where a port that was asked for is in use."""
    remedy = f"end what listens there (`lsof -i :{port}` names it) or choose another one with --port; 0 takes any free one."
    return InvalidEnvironment("PORT_TAKEN", f"port {port} of {HOST} is in use by another program.", expected="a free port.", remedy=remedy)
