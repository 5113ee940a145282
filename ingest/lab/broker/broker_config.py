"""Settings of the embedded Kafka broker: one node as broker and controller, for tests, demos and laptops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.runtime import java

HOST = "127.0.0.1"

# Fits a 10 MB record with the overhead of its batch and request; Kafka's default is 1 MB.
RECORD_BYTES_MAX = 12 * 1024 * 1024


@dataclass(frozen=True)
class Listener:
    """An address for clients. `settings` are added to server.properties unchanged, for protocols that need more than a port (SASL_SSL)."""

    port: int
    protocol: str = "PLAINTEXT"
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise ValueError(f"a port is between 1 and 65535, not {self.port}")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


def server_properties(listeners: tuple[Listener, ...], controller_port: int) -> str:
    """The text of server.properties. Data goes to `data` in the working folder; the first listener is also the inter-broker listener."""
    protocols = ",".join(["CONTROLLER:PLAINTEXT", *(f"{one.protocol}:{one.protocol}" for one in listeners)])
    clients = ",".join(f"{one.protocol}://{one.address}" for one in listeners)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{clients},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": listeners[0].protocol,
        "log.dirs": "data",  # relative: Kafka splits the value at commas
        # One node allows one replica. Few partitions make the first transaction and the first consumer group fast.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A misspelt topic must be an error, not a new, empty topic.
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(RECORD_BYTES_MAX),
        "replica.fetch.max.bytes": str(RECORD_BYTES_MAX),
        # Retention uses record timestamps: Kafka would delete last year's events minutes after they were sent.
        "log.retention.ms": "-1",
        # A killed broker cannot register again until its old session expires. With Kafka's default, every restart would wait 9 s.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    for one in listeners:
        settings |= one.settings
    return "".join(f"{key}={java.property_value(value)}\n" for key, value in settings.items())


# log4j2.properties: rolling files of limited size in the working folder, so a broker that runs for weeks cannot fill the disk.
LOG4J2 = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=server.log
appender.file.filePattern=server.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=20MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""
