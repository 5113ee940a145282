"""A signal that a process sends to itself at a step chosen beforehand: SIGKILL to die there, SIGSTOP to pause there."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any


@dataclass
class CrashPoint:
    """Sends the signal `kind` once, at the first `step` at or after record `number`; never without a step."""

    step: str | None = None
    number: int = 0
    kind: str = "SIGKILL"

    @staticmethod
    def of(settings: dict[str, Any] | None) -> CrashPoint:
        """The crash point in the settings of a process; one that never strikes if they are None."""
        return CrashPoint(**settings) if settings else CrashPoint()

    def reached(self, step: str, number: int) -> None:
        """Call this at every step, with the number of records that have reached it."""
        if step == self.step and number >= self.number:
            self.step = None
            print(f"{self.kind} at {step} {number}", flush=True)
            os.kill(os.getpid(), getattr(signal, self.kind))
