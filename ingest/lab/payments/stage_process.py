"""The process of one stage, started again after each of its kills as a supervisor would."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.lab.demo.story import Say
from ingest.lab.interrupt import uninterrupted
from ingest.lab.payments.payment import StageSettings
from ingest.lab.worker import Worker
from ingest.runtime.errors import RunStopped


@dataclass
class StageProcess:
    """`module` runs the stage. `kills` are (step, how often it is reached first, words for it), one for each start but the last."""

    chain: str
    settings: StageSettings
    folder: Path
    say: Say
    kills: Sequence[tuple[str, int, str]] = ()
    killed: int = 0
    done: bool = False
    _worker: Worker | None = field(default=None, repr=False)
    _stopping: bool = False

    @property
    def module(self) -> str:
        return f"ingest.lab.payments.{'naive' if self.chain == 'naive' else 'chain'}"

    def step(self) -> None:
        """Start the process if none runs, and notice its end. Raises RunStopped DEMO_FAILED for a wrong end."""
        if self.done:
            return
        if self._worker is None:
            self._start()
        elif (code := self._worker.poll()) == 0:
            self.done = True
        elif code == -signal.SIGKILL and self.killed < len(self.kills):
            self.say(self.settings.stage, f"KILLED {self.kills[self.killed][2]}")
            self.killed += 1
            self._worker = None
        elif code is not None:
            raise RunStopped(
                "DEMO_FAILED",
                f"the stage {self.settings.stage} of the chain {self.chain} ended with exit code {code}.",
                expected="its kills, then a process that runs until it is stopped.",
                remedy=f"read {self._output}.",
            )

    def stop(self) -> None:
        """Ask the process to end."""
        if self._worker is not None and not self._stopping:
            self._worker.signal(signal.SIGTERM)
            self._stopping = True

    def end(self) -> None:
        """Kill the process, if it runs."""
        if self._worker is not None:
            self._worker.kill()

    @property
    def _output(self) -> Path:
        return self.folder / f"{self.chain}-{self.settings.stage}.out"

    def _start(self) -> None:
        at, nth, _ = self.kills[self.killed] if self.killed < len(self.kills) else ("", 0, "")
        command = [sys.executable, "-m", self.module, replace(self.settings, at=at, nth=nth).text()]
        with uninterrupted():
            self._worker = Worker(command, output=self._output, environment={"PYTHONUNBUFFERED": "1"})
