"""A sink in its own process, which can kill or stop itself at a given step. Run as `python -m tests.database.sink_instance`.

It inserts a row per event into the table `paid`, which has no unique key: a double would be two rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, insert

from ingest.delivery.sink import Sink
from tests.child import Child, stop_and_steps

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


class SinkInstance(Child):
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        super().__init__("tests.database.sink_instance", settings, log)


def _main(settings: dict[str, Any]) -> None:
    stop, on_step = stop_and_steps(settings)

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
            sink.run(stop=stop)
        finally:
            print(json.dumps({name: getattr(sink.counts, name) for name in sink.counts.__slots__}), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
