"""A sink in its own process, which can kill or stop itself at a given step. Run as `python -m tests.database.sink_instance`.

It inserts a row per event into the table `paid`, which has no unique key: a double would be two rows.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, insert

from ingest.lab.process import launch
from ingest.sink import Sink
from tests.polling import until

# The steps of a claim and of a transaction, in order.
STEPS = ("claiming", "claimed", "begun", "advanced", "identified", "written", "committed")

metadata = MetaData()
paid = Table("paid", metadata, Column("event_id", Text), Column("topic", Text), Column("partition", Integer), Column("offset", Integer))


def event_id_of(record: Any) -> str:
    found: bytes = dict(record.headers)["id"]
    return found.decode()


def pay(connection: Connection, records: Sequence[Any]) -> None:
    rows = [{"event_id": event_id_of(r), "topic": r.topic, "partition": r.partition, "offset": r.offset} for r in records]
    connection.execute(insert(paid), rows)


class SinkInstance:
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.database.sink_instance", json.dumps(settings)]
        self.process, _ = launch(command, marker="tests.database.sink_instance", output=log, cwd=Path.cwd(), die_with_parent=True)

    def wait_for(self, word: str) -> None:
        until(lambda: word in self.log.read_text() or self.process.poll() is not None, f"{word!r} in {self.log.name}", 60)
        assert word in self.log.read_text(), f"ended with {self.process.poll()}: {self.log.read_text()}"

    def killed(self) -> None:
        """Wait until the process has killed itself."""
        assert self.process.wait(60) == -signal.SIGKILL, self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.wait(30)

    def stop(self) -> dict[str, Any]:
        """Stop the process with SIGTERM; return its counts."""
        self.send(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()
        counts: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return counts


def _main(settings: dict[str, Any]) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    left = settings.get("nth", 1)

    def on_step(step: str) -> None:
        nonlocal left
        if step == settings.get("at"):
            left -= 1
            if left == 0:
                print(f"reached {step}", flush=True)
                # To this thread: after os.kill(getpid(), SIGSTOP) it would run on for a moment.
                signal.pthread_kill(threading.get_ident(), getattr(signal, settings.get("signal", "SIGKILL")))

    sink = Sink(
        settings["name"],
        settings["topics"],
        pay,
        settings["database"],
        settings["servers"],
        batch=settings.get("batch", 20),
        instance=settings.get("instance"),
        on_step=on_step,
        consumer_options={"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500},
    )
    with sink:
        print("started", flush=True)
        try:
            sink.run(stop=stopping.is_set)
        finally:
            print(json.dumps({name: getattr(sink.counts, name) for name in sink.counts.__slots__}), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
