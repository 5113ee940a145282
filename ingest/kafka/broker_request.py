"""One question to one broker over a connection of its own, tried once.

kafka-python's clients try again until their deadline and then say "timeout", whatever the broker had said: so a wrong password would
cost the whole deadline and be told as a network's fault.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from kafka.errors import KafkaError
from kafka.net import KafkaConnectionManager, NetworkSelector

from ingest.kafka import kafka_errors
from ingest.kafka.kafka_errors import KafkaFailure
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidInput

_SERVER = re.compile(r"\S+:\d{1,5}")
# Of several brokers' answers the one that helps most: a login is refused by all alike, a silent broker may only be down.
_TELLING = ("KAFKA_AUTHENTICATION", "KAFKA_CERTIFICATE", "BROKER_UNREACHABLE")


def ask(kafka: KafkaOptions, request: Any, within_s: float) -> Any:
    """The response of the first broker that gives one; `request` is one of kafka.protocol.

    Raises InvalidEnvironment KAFKA_AUTHENTICATION, KAFKA_CERTIFICATE or BROKER_UNREACHABLE after each was asked once, `within_s` for all
    together; InvalidInput KAFKA_OPTION_UNUSABLE or BOOTSTRAP_SERVERS_INVALID.
    """
    quiet()
    settings, troubles = kafka.for_python(), []
    servers = [_checked(server.strip()) for server in settings.pop("bootstrap_servers")]
    deadline = time.monotonic() + within_s
    for number, server in enumerate(servers):
        share_s = (deadline - time.monotonic()) / (len(servers) - number)
        found = _ask_one(kafka, settings, server, request, max(share_s, 0.1))
        if not isinstance(found, KafkaFailure):
            return found
        troubles.append(found)
    raise min(troubles, key=lambda failure: _TELLING.index(failure.code)).environment_error()


def quiet() -> None:
    """kafka-python warns at every try; what matters is said once, by the error."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def _checked(server: str) -> str:
    if not _SERVER.fullmatch(server):
        found, expected = f"{server!r} among the Kafka brokers.", "host:port, several separated by commas."
        raise InvalidInput("BOOTSTRAP_SERVERS_INVALID", found, expected=expected, remedy="correct --bootstrap-servers.")
    return server


def _ask_one(kafka: KafkaOptions, settings: dict[str, Any], server: str, request: Any, within_s: float) -> Any:
    net = NetworkSelector(**settings)
    manager = KafkaConnectionManager(net, bootstrap_servers=[server], **settings)
    within_ms, connections = within_s * 1000, []

    async def question() -> Any:
        node = manager.cluster.bootstrap_brokers()[0].node_id
        connections.append(manager.get_connection(node, timeout_ms=within_ms, pop_on_close=False, refresh_metadata_on_err=False))
        await connections[0]
        return await connections[0].send_request(request)

    async def in_time() -> Any:
        return await manager.wait_for(manager.call_soon(question), within_ms)

    # A thread of its own for the client: its loop swallows the KeyboardInterrupt of a Ctrl-C that meets it in the main thread.
    net.start()
    try:
        return net.run(in_time)
    except (KafkaError, OSError, ValueError) as error:
        greeted = any(connection.broker_version_data is not None for connection in connections)
        return kafka_errors.from_python(kafka, server, error, greeted=greeted)
    finally:
        net.stop()  # its thread first: what is closed below belongs to it
        manager.close()
        net.close()
