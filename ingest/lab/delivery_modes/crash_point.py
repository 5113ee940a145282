"""A signal that a process sends to itself at a place that was chosen beforehand: SIGKILL to die there, SIGSTOP to stand still."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any


@dataclass
class CrashPoint:
    """Strikes once, at the first `step` at or after record `number`; without a step never."""

    step: str | None = None
    number: int = 0
    kind: str = "SIGKILL"

    @staticmethod
    def of(settings: dict[str, Any] | None) -> CrashPoint:
        """From the settings of a process; None is none."""
        return CrashPoint(**settings) if settings else CrashPoint()

    def reached(self, step: str, number: int) -> None:
        """To be called at every step, with how many records have come that far."""
        if step == self.step and number >= self.number:
            self.step = None
            print(f"{self.kind} at {step} {number}", flush=True)
            os.kill(os.getpid(), getattr(signal, self.kind))
