"""The embedded broker is a real Kafka that survives kills and restarts, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from ingest.lab.broker.broker_probe import answers
from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.errors import InvalidEnvironment

pytestmark = pytest.mark.integration

BIG = 10 * 1024 * 1024
# Kafka splits folders at commas, and Java reads properties as Latin-1.
UNUSUAL = 'it\'s "50 %e", ü ${env:HOME} \\ #'


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    """A broker for this test only, not started yet. It is killed at the end in any case."""
    broker = Broker(tmp_path / UNUSUAL)
    yield broker
    broker.kill()


def committed(broker: Broker, topic: str) -> list[bytes]:
    """The values of partition 0 that a read_committed consumer reads up to the end, in order."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed", max_partition_fetch_bytes=BIG * 2
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end, values = consumer.end_offsets([partition])[partition], []
        while consumer.position(partition) < end:
            values += [record.value for records in consumer.poll(timeout_ms=500).values() for record in records]
        return values
    finally:
        consumer.close()


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", max_request_size=BIG + 1024)
    try:
        for future in [producer.send(topic, value, partition=0) for value in values]:
            future.get(timeout=30)
    finally:
        producer.close()


def test_a_record_of_ten_megabytes_is_accepted(broker: Broker, topic: Callable[..., str]) -> None:
    name, value = topic(), os.urandom(BIG)
    produce(broker, name, value)
    assert committed(broker, name) == [value]


def test_a_misspelt_topic_is_not_created(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=1_000)
    with pytest.raises(KafkaError):
        producer.send("no-such-topic", b"x").get(timeout=5)
    producer.close()


@pytest.mark.slow
def test_a_killed_broker_restarts_on_its_port_with_all_acknowledged_records(own: Broker) -> None:
    own.start()
    port, first_pid = own.port, own.pid
    own.create_topic("kept", 1)
    produce(own, "kept", b"before")
    own.kill()
    assert own.process is None
    assert not answers(own.bootstrap_servers, timeout_s=1)
    own.start()
    assert (own.port, own.pid != first_pid) == (port, True)
    produce(own, "kept", b"after")
    assert committed(own, "kept") == [b"before", b"after"]


def test_a_port_in_use_is_refused_and_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidEnvironment, match="PORT_TAKEN") as refused:
            Broker(tmp_path, port=port).start()
    assert str(port) in refused.value.found
    assert Broker(tmp_path).process is None


@pytest.mark.slow
def test_starting_a_running_broker_changes_nothing(own: Broker) -> None:
    own.start()
    again = Broker(own.folder).start()
    assert (again.pid, again.port) == (own.pid, own.port)
    with pytest.raises(InvalidEnvironment, match="BROKER_RUNNING"):
        Broker(own.folder, port=own.port + 1).start()


def test_another_process_finds_and_stops_the_daemon_and_no_process_is_left(tmp_path: Path) -> None:
    folder = tmp_path / UNUSUAL
    program = f"from ingest.lab.broker.embedded_broker import Broker; print(Broker({str(folder)!r}, die_with_parent=False).start().pid)"
    pid = int(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=90, check=True).stdout)
    attached = Broker(folder)
    assert attached.process is not None
    assert [each.name for each in tmp_path.iterdir()] == [UNUSUAL] and (folder / "server.log").stat().st_size > 0
    assert attached.pid == pid
    assert attached.stop()
    assert attached.process is None
    assert not psutil.pid_exists(pid)
    assert not attached.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does this on Linux only")
def test_a_broker_dies_with_its_killed_parent(tmp_path: Path) -> None:
    program = "import time; from ingest.lab.broker.embedded_broker import Broker; "
    program += f"print(Broker({str(tmp_path)!r}).start().pid, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while Broker(tmp_path).process and time.monotonic() < deadline:
        time.sleep(0.05)
    assert Broker(tmp_path).process is None, f"process {pid} is still running"


@pytest.mark.slow
def test_a_recycled_process_id_is_never_killed(own: Broker) -> None:
    own.start()
    state = own.state
    assert state is not None
    own.kill()
    foreign = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        text = (own.folder / "broker.json").read_text(encoding="utf-8")
        recycled = text.replace(f'"pid": {state.process.pid}', f'"pid": {foreign.pid}')
        (own.folder / "broker.json").write_text(recycled, encoding="utf-8")
        assert Broker(own.folder).process is None
        assert not Broker(own.folder).stop()
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


@pytest.mark.slow
def test_native_libraries_are_unpacked_in_the_brokers_own_folder(own: Broker) -> None:
    """In the machine's temporary folder, a killed broker would leave them behind forever."""
    own.start()
    own.create_topic("packed", configs={"compression.type": "zstd"})  # so that the broker decompresses and recompresses
    for codec in ("lz4", "snappy"):
        producer = Producer({"bootstrap.servers": own.bootstrap_servers, "compression.type": codec})
        producer.produce("packed", b"x" * 10_000)
        assert producer.flush(30) == 0
    mapped = [Path(each.path) for each in psutil.Process(own.pid).memory_maps() if ".so" in each.path]
    unpacked = [path for path in mapped if any(word in path.name for word in ("lz4", "snappy", "zstd"))]
    assert unpacked, "no native codec library is loaded any more: this test needs another sign of unpacking"
    assert {path.parent for path in unpacked} == {own.folder / "tmp"}
    own.kill()
    own.start()
    assert not any(path.exists() for path in unpacked), "the next start removes the files of a killed broker"
