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
        """The cost of what is done inside, complete at its end. A process that began and ended inside counts to its parent."""
        cost, done = Cost(), threading.Event()

        def look() -> None:
            while not done.wait(LOOK_EVERY_S):
                cost.memory = max(cost.memory, sum(self._memory(each) for each in self._processes()))

        before, thread = self._seconds(), threading.Thread(target=look, daemon=True)
        began = time.monotonic()
        thread.start()
        try:
            yield cost
        finally:
            cost.wall_s = time.monotonic() - began
            after = self._seconds()
            done.set()
            thread.join()
            cost.jvm_s, cost.python_s = (after[kind] - before[kind] for kind in ("jvm", "python"))

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

    def _seconds(self) -> dict[str, float]:
        seconds = {"jvm": 0.0, "python": 0.0}
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                used, kind = process.cpu_times(), "jvm" if process.name() == "java" else "python"
                # Of its children only those that have ended: the others are looked at themselves. Ours would count the broker.
                ended = used.children_user + used.children_system if process != psutil.Process() else 0.0
                seconds[kind] += used.user + used.system + ended
        return seconds

    @staticmethod
    def _memory(process: psutil.Process) -> int:
        with suppress(psutil.NoSuchProcess):
            return int(process.memory_info().rss)
        return 0
