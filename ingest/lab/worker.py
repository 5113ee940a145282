"""A command that chaos or the demo started, and all below it: struck as a whole or in part, watched, and gone without a trace."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from ingest.lab.process import launch, of_group

# In the environment of every process of a chaos run, which finds them again by it.
MARK: Final = "INGEST_CHAOS_MARK"
GONE_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
# What a user has set for pipelines of their own must not reach a scratch one; these are about the machine.
KEPT: Final = ("INGEST_CACHE", "INGEST_DRIVER_MEMORY", MARK)


def inherited() -> dict[str, str]:
    """Our environment without the user's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("INGEST_") or name in KEPT}


class Worker:
    """A started command, the leader of a process group of its own; its output goes to a file. Start it from the main thread."""

    def __init__(self, command: Sequence[str], *, output: Path, environment: Mapping[str, str]) -> None:
        output.parent.mkdir(parents=True, exist_ok=True)
        self.output = output
        self._read = output.stat().st_size if output.exists() else 0
        self._process, _ = launch(
            command, marker=command[0], output=output, cwd=Path.cwd(), die_with_parent=True, env={**inherited(), **environment}
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The leader's exit code (negative: the signal that killed it), or None while it runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""

    def lines(self) -> list[str]:
        """The whole lines of output that are new since the last call."""
        with self.output.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def members(self) -> list[psutil.Process]:
        """The processes of the group that are still there, stopped ones too."""
        return of_group(self.pid)

    def jvms(self) -> list[psutil.Process]:
        """Its Java processes, but for one that only tells its version."""
        found = []
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java" and "-version" not in process.cmdline():
                    found.append(process)
        return found

    def signal_all(self, number: int) -> None:
        """To every process of the group; none left is no failure."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def signal(self, number: int) -> None:
        """To the leader alone."""
        if self.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP to all, and wait until they stand still."""
        self.signal_all(signal.SIGSTOP)
        until(lambda: all(map(_stands_still, self.members())), GONE_WITHIN_S)

    def kill(self) -> None:
        """SIGKILL to all, and wait until they are gone."""
        self.signal_all(signal.SIGKILL)
        self.gone()

    def ended(self, within_s: float) -> int | None:
        """The exit code once the leader and all below it are gone; None if that takes longer."""
        return self.poll() if until(lambda: self.poll() is not None and not self.members(), within_s) else None

    def gone(self) -> None:
        """Wait until all are gone; kills what does not go."""
        if self.ended(GONE_WITHIN_S) is None:
            self.signal_all(signal.SIGKILL)
            until(lambda: self.poll() is not None and not self.members(), GONE_WITHIN_S)


def _stands_still(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    return True


def until(look: Callable[[], object], within_s: float) -> bool:
    """Poll until `look` returns something true; False after `within_s`."""
    deadline = time.monotonic() + within_s
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
