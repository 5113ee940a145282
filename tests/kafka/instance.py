"""An instance of a transform in its own process, which can kill itself at a given step. Run as `python -m tests.kafka.instance`.

For each input it writes the number of inputs with that key so far to `sink` and to `audit`. It counts in the keyed state; without a
changelog (None) it does not count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ingest.delivery.kafka import ExactlyOnce, Outgoing, State, Transform
from tests.child import Child, stop_and_steps

# The steps of a transaction, in order.
STEPS = ("gathered", "begun", "worked", "sent", "flushed", "offsets_sent", "committed", "kept")


class Instance(Child):
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        super().__init__("tests.kafka.instance", settings, log, within_s=40.0, stopped_within_s=30.0)


def _main(settings: dict[str, Any]) -> None:
    stop, on_step = stop_and_steps(settings)

    def count(record: Any, state: State | None = None) -> Iterator[Outgoing]:
        number = 0
        if state is not None:
            number = int(state.get(record.key) or b"0") + 1
            state[record.key] = b"%d" % number
        value = json.dumps({"key": record.key.decode(), "number": number, "input": record.value.decode()}).encode()
        yield Outgoing(settings["sink"], value, record.key)
        yield Outgoing(settings["audit"], value, record.key)

    mode = ExactlyOnce(settings["transactional_id"], transaction_timeout_ms=settings.get("transaction_timeout_ms", 10_000))
    transform = Transform(
        settings["source"],
        count,
        [settings["sink"], settings["audit"]],
        mode,
        settings["group"],
        settings["servers"],
        changelog=settings["changelog"],
        records=settings.get("records", 20),
        time_ms=50,
        rebalance=settings.get("rebalance", "cooperative"),
        instance=settings.get("instance"),
        on_step=on_step,
        consumer_options={"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500},
    )
    with transform:
        print("started", flush=True)
        try:
            transform.run(stop=stop)
        finally:
            counts = transform.counts
            print(json.dumps({name: getattr(counts, name) for name in counts.__slots__}), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
