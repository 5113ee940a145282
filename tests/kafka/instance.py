"""An instance of a transform in its own process, which can kill itself at a given step. Run as `python -m tests.kafka.instance`.

For each input it writes the number of inputs with that key so far to `sink` and to `audit`. It counts in the keyed state; without a
changelog (None) it does not count.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ingest.kafka.delivery import ExactlyOnce, Outgoing, State, Transform
from ingest.lab.process import launch
from tests.kafka.topics import until

# The steps of a transaction, in order.
STEPS = ("gathered", "begun", "worked", "sent", "flushed", "offsets_sent", "committed", "kept")


class Instance:
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.kafka.instance", json.dumps(settings)]
        self.process, _ = launch(command, marker="tests.kafka.instance", output=log, cwd=Path.cwd(), die_with_parent=True)

    def wait_for(self, word: str, timeout_s: float = 40.0) -> None:
        until(lambda: word in self.log.read_text() or self.process.poll() is not None, f"{word!r} in {self.log.name}", timeout_s)
        assert word in self.log.read_text(), f"ended with {self.process.poll()}: {self.log.read_text()}"

    def killed(self, timeout_s: float = 40.0) -> None:
        """Wait until the process has killed itself."""
        assert self.process.wait(timeout_s) == -signal.SIGKILL, self.log.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)

    def stop(self) -> dict[str, Any]:
        """Stop the process with SIGTERM; return its counts."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.log.read_text()
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
                os.kill(os.getpid(), getattr(signal, settings.get("signal", "SIGKILL")))

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
            transform.run(stop=stopping.is_set)
        finally:
            counts = transform.counts
            print(json.dumps({name: getattr(counts, name) for name in counts.__slots__}), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
