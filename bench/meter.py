"""What work costs: wall time, processor time of the driver's JVM and of Python, and the most memory both held.

Processor time is user and system, of Java's compilers and collector too. It repeats to a few per cent where other work shares the
machine, which wall time does not. The broker is none of the rivals' work and is left out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

LOOK_EVERY_S = 0.2


@dataclass
class Cost:
    """Seconds and bytes of one piece of work."""

    wall_s: float = 0.0
    jvm_s: float = 0.0
    python_s: float = 0.0
    memory: int = 0

    @property
    def processor_s(self) -> float:
        """Of JVM and Python together."""
        return self.jvm_s + self.python_s


class Meter:
    """Measures this process and those it started, but for `beside` (process ids) and what they started."""

    def __init__(self, *beside: int) -> None:
        self._beside = frozenset(beside)

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        """The cost of what is done inside, complete at its end. Processes that end within LOOK_EVERY_S, such as those that Hadoop
        starts for file modes, are not seen."""
        cost, done, seen = Cost(), threading.Event(), dict[psutil.Process, tuple[str, float]]()

        def look() -> None:
            memory = 0
            for process in self._processes():
                with suppress(psutil.NoSuchProcess):
                    used = process.cpu_times()
                    memory += process.memory_info().rss
                    seen[process] = "jvm" if process.name() == "java" else "python", used.user + used.system
            cost.memory = max(cost.memory, memory)

        def look_on() -> None:
            while not done.wait(LOOK_EVERY_S):
                look()

        look()
        before = dict(seen)
        began, thread = time.monotonic(), threading.Thread(target=look_on, daemon=True)
        thread.start()
        try:
            yield cost
        finally:
            cost.wall_s = time.monotonic() - began
            done.set()
            thread.join()
            look()
            spent = {process: (kind, seconds - before.get(process, ("", 0.0))[1]) for process, (kind, seconds) in seen.items()}
            cost.jvm_s, cost.python_s = (sum(each for which, each in spent.values() if which == kind) for kind in ("jvm", "python"))

    def _processes(self) -> list[psutil.Process]:
        found, waiting = [], [psutil.Process()]
        while waiting:
            process = waiting.pop()
            if process.pid in self._beside:
                continue
            with suppress(psutil.NoSuchProcess):
                waiting += process.children()
                found.append(process)
        return found
