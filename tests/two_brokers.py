"""Two brokers with a topic whose newest records one of them lacks, and a third that leads the cluster: for unclean elections."""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka.admin import NewTopic
from kafka.protocol.metadata import MetadataRequest

from ingest.kafka import broker_request
from ingest.kafka.kafka_options import KafkaOptions
from ingest.lab.broker import broker_probe
from ingest.lab.broker.broker_config import HOST, Listener
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.broker.ports import free_port

CONTROLLER, FIRST, SECOND = 1, 2, 3
DEADLINE_S = 60.0


class TwoBrokers:
    """A topic of one partition with a replica on each of two brokers. The controller is a third broker, which always runs."""

    def __init__(self, folder: Path, topic: str) -> None:
        ports: list[int] = []
        while len(ports) < 4:
            if (port := free_port()) not in ports:
                ports.append(port)
        self._topic, quorum = topic, f"{HOST}:{ports[0]}"
        cluster = _id()
        self._brokers = {id: _broker(folder / str(id), id, ports[id], cluster, quorum) for id in (CONTROLLER, FIRST, SECOND)}

    @property
    def bootstrap_servers(self) -> str:
        return self._brokers[CONTROLLER].bootstrap_servers

    def start(self) -> None:
        """Start the brokers and create the topic. The first broker leads it, and both have all records."""
        for broker in self._brokers.values():
            broker.start()
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        with broker_probe.admin(self.bootstrap_servers, timeout_s=DEADLINE_S) as admin:
            replicas = {0: [FIRST, SECOND]}
            admin.create_topics([NewTopic(self._topic, replica_assignments=replicas, topic_configs=configs)], wait_for_metadata=True)
        self._until(lambda leader, in_sync: leader == FIRST and in_sync == {FIRST, SECOND})

    def stop_copying(self) -> None:
        """Kill the second broker: from now on only the first one has what is sent, and acknowledges it."""
        self._brokers[SECOND].kill()
        self._until(lambda leader, in_sync: in_sync == {FIRST})

    def elect_the_other(self) -> None:
        """Kill the first broker and start the second one, which becomes the leader without the newest records."""
        self._brokers[FIRST].kill()
        self._brokers[SECOND].start()
        self._until(lambda leader, in_sync: leader == SECOND)

    def kill(self) -> None:
        for broker in self._brokers.values():
            broker.kill()

    def _until(self, reached: Callable[[int, set[int]], bool]) -> None:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            (topic,) = broker_request.ask(KafkaOptions(self.bootstrap_servers), request, DEADLINE_S).topics
            if topic.partitions and reached(topic.partitions[0].leader_id, {*topic.partitions[0].isr_nodes}):
                return
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)


@contextmanager
def two_brokers(folder: Path, topic: str) -> Iterator[TwoBrokers]:
    """The brokers, started. They are killed at the end in any case."""
    brokers = TwoBrokers(folder, topic)
    try:
        brokers.start()
        yield brokers
    finally:
        brokers.kill()


def _broker(folder: Path, id: int, port: int, cluster: str, quorum: str) -> Broker:
    own = f"PLAINTEXT://{HOST}:{port}"
    settings = {"controller.quorum.voters": f"{CONTROLLER}@{quorum}", "listeners": own, "advertised.listeners": own}
    settings["listener.security.protocol.map"] = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    if id == CONTROLLER:
        settings["listeners"] += f",CONTROLLER://{quorum}"
    else:
        settings |= {"process.roles": "broker", "node.id": str(id)}
    # Formatted here, because all of them need the same cluster id.
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id={id}\ndirectory.id={_id()}\n")
    return Broker(folder, port=port, beside=lambda: Listener(port, settings=settings))


def _id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
