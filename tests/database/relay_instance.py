"""A relay in its own process, which can kill or stop itself at a step. Run as `python -m tests.database.relay_instance`."""

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
from ingest.lab.process import launch
from ingest.outbox.relay import Relay
from tests.polling import until

# The steps of a batch, in order.
STEPS = ("leads", "read", "begun", "flushed", "offsets_sent", "committed", "marked")


class RelayInstance:
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "tests.database.relay_instance", json.dumps(settings)]
        self.process, _ = launch(command, marker="tests.database.relay_instance", output=log, cwd=Path.cwd(), die_with_parent=True)

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
    left = settings.get("nth", 1)

    def on_step(step: str) -> None:
        nonlocal left
        if step == "leads":
            print("leads", flush=True)
        if step == settings.get("at"):
            left -= 1
            if left == 0:
                print(f"reached {step}", flush=True)
                # To this thread: after os.kill(getpid(), SIGSTOP) it would run on for a moment.
                signal.pthread_kill(threading.get_ident(), getattr(signal, settings.get("signal", "SIGKILL")))

    engine = connect(settings["url"])
    with Relay(engine, settings["servers"], settings["name"], topic=settings["topic"], batch=settings["batch"], on_step=on_step) as relay:
        counts = relay.run(stop=stopping.is_set)
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
