"""One request to one broker over its own connection, without retries.

kafka-python's clients retry until their deadline and then report "timeout", whatever the broker answered. A wrong password would use
up the whole deadline and then look like a network failure.
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
# If several brokers fail, the most useful error wins: all brokers refuse a wrong login, but a silent broker may only be down.
_MOST_USEFUL_FIRST = ("KAFKA_AUTHENTICATION", "KAFKA_CERTIFICATE", "BROKER_UNREACHABLE")


def ask(kafka: KafkaOptions, request: Any, within_s: float) -> Any:
    """Send `request`, an instance of a kafka.protocol class, and return the response of the first broker that answers.

    Tries each broker once; `within_s` is the deadline for all of them together. Raises InvalidEnvironment KAFKA_AUTHENTICATION,
    KAFKA_CERTIFICATE or BROKER_UNREACHABLE if none answers, and InvalidInput KAFKA_OPTION_UNUSABLE or BOOTSTRAP_SERVERS_INVALID.
    """
    quiet()
    settings, failures = kafka.for_python(), []
    servers = [_checked(server.strip()) for server in settings.pop("bootstrap_servers")]
    deadline = time.monotonic() + within_s
    for number, server in enumerate(servers):
        share_s = (deadline - time.monotonic()) / (len(servers) - number)
        found = _ask_one(kafka, settings, server, request, max(share_s, 0.1))
        if not isinstance(found, KafkaFailure):
            return found
        failures.append(found)
    raise min(failures, key=lambda failure: _MOST_USEFUL_FIRST.index(failure.code)).environment_error()


def quiet() -> None:
    """Silence kafka-python's log: it warns at every attempt, and our error reports the cause once."""
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

    async def exchange() -> Any:
        node = manager.cluster.bootstrap_brokers()[0].node_id
        connections.append(manager.get_connection(node, timeout_ms=within_ms, pop_on_close=False, refresh_metadata_on_err=False))
        await connections[0]
        return await connections[0].send_request(request)

    async def in_time() -> Any:
        return await manager.wait_for(manager.call_soon(exchange), within_ms)

    # The client runs in its own thread: in the main thread, its event loop would swallow the KeyboardInterrupt of a Ctrl-C.
    net.start()
    try:
        return net.run(in_time)
    except (KafkaError, OSError, ValueError) as error:
        greeted = any(connection.broker_version_data is not None for connection in connections)
        return kafka_errors.from_python(kafka, server, error, greeted=greeted)
    finally:
        net.stop()  # first, because its thread uses what the next two lines close
        manager.close()
        net.close()
