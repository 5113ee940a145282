"""A part of the product in its own process, which can kill or stop itself at a step."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ingest.lab.process import launch
from tests.polling import until


class Child:
    """Controls a process `python -m module settings` from the test. It prints words that the test waits for, and its counts at the end."""

    def __init__(
        self, module: str, settings: Mapping[str, Any], log: Path, *, within_s: float = 60.0, stopped_within_s: float = 60.0
    ) -> None:
        self.log, self._within_s, self._stopped_within_s = log, within_s, stopped_within_s
        command = [sys.executable, "-m", module, json.dumps(settings)]
        self.process, _ = launch(command, marker=module, output=log, cwd=Path.cwd(), die_with_parent=True)

    def wait_for(self, word: str) -> None:
        until(lambda: word in self.log.read_text() or self.process.poll() is not None, f"{word!r} in {self.log.name}", self._within_s)
        assert word in self.log.read_text(), f"ended with {self.process.poll()}: {self.log.read_text()}"

    def killed(self) -> None:
        """Wait until the process has killed itself."""
        assert self.process.wait(self._within_s) == -signal.SIGKILL, self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.wait(30)

    def stop(self) -> dict[str, Any]:
        """Stop the process with SIGTERM; return its counts."""
        self.send(signal.SIGTERM)
        assert self.process.wait(self._stopped_within_s) == 0, self.log.read_text()
        counts: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return counts


def stop_and_steps(settings: Mapping[str, Any]) -> tuple[Callable[[], bool], Callable[[str], None]]:
    """For the process itself: `stop`, which is True after SIGTERM, and `on_step`, which sends it a signal at the step that is set.

    The settings are `at` (a step), `nth` (how often it is reached first) and `signal` (SIGKILL by default).
    """
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    lock, left = threading.Lock(), settings.get("nth", 1)

    def on_step(step: str) -> None:
        nonlocal left
        if step != settings.get("at"):
            return
        with lock:
            left -= 1
            strike = left == 0
        if strike:
            print(f"reached {step}", flush=True)
            # To this thread, which takes the signal before it goes on. One to the process may be taken by another thread, and later.
            signal.pthread_kill(threading.get_ident(), getattr(signal, settings.get("signal", "SIGKILL")))

    return stopping.is_set, on_step
