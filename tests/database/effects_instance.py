"""An effect consumer in its own process, which can kill or stop itself at a step. Run as `python -m tests.database.effects_instance`."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ingest.database.database import connect
from ingest.effects import EffectConsumer, Effects
from ingest.lab.process import launch
from tests.database.effects_scene import http_api
from tests.polling import until

# The steps of a record, in order: taken, committed in SENDING, answered, outcome committed, offset committed.
STEPS = ("gathered", "sending", "called", "recorded", "acknowledged")


class EffectsInstance:
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.database.effects_instance", json.dumps(settings)]
        self.process, _ = launch(command, marker="tests.database.effects_instance", output=log, cwd=Path.cwd(), die_with_parent=True)

    def reached(self, word: str) -> None:
        until(lambda: word in self.log.read_text() or self.process.poll() is not None, f"{word!r} in {self.log.name}", 60)
        assert word in self.log.read_text(), f"ended with {self.process.poll()}: {self.log.read_text()}"

    def killed(self) -> None:
        """Wait until the process has killed itself."""
        assert self.process.wait(60) == -signal.SIGKILL, self.log.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def stop(self) -> dict[str, Any]:
        """Stop the process with SIGTERM; return its counts."""
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()
        counts: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return counts


def _main(settings: dict[str, Any]) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    lock, left = threading.Lock(), settings.get("nth", 1)

    def on_step(step: str) -> None:
        nonlocal left
        if step == settings.get("at"):
            with lock:
                left -= 1
                strike = left == 0
            if strike:
                print(f"reached {step}", flush=True)
                # To this thread, which takes the signal before it goes on. One to the process may be taken by another thread, and later.
                signal.pthread_kill(threading.get_ident(), getattr(signal, settings.get("signal", "SIGKILL")))

    api = http_api(settings["api"], settings.get("offers", "look-up"), settle_s=settings.get("settle_s", 0.2))
    effects = Effects("charge", api, connect(settings["url"]), lease_s=settings.get("lease_s", 2.0), backoff_s=0.05, on_step=on_step)
    consumer = EffectConsumer(
        effects,
        settings["topic"],
        settings["topic"],
        settings["servers"],
        event_id=lambda record: json.loads(record.value)["event"],
        request_of=lambda record: record.value,
        workers=settings.get("workers", 4),
        records=settings.get("records", 20),
        instance=settings.get("instance"),
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    with consumer:
        print("started", flush=True)
        counts = consumer.run(stop=stopping.is_set)
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
