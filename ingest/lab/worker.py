"""A command that chaos or the demo starts, with all its child processes: signalled as a whole or in part, watched, and cleaned up."""

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

# Environment variable of every process of a chaos run; the run finds its processes by it.
MARK: Final = "INGEST_CHAOS_MARK"
GONE_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
# A user's own settings must not reach a scratch pipeline. These few describe the machine and are passed on.
KEPT: Final = ("INGEST_CACHE", "INGEST_DRIVER_MEMORY", MARK)


def inherited() -> dict[str, str]:
    """Our environment without the user's own INGEST_ settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("INGEST_") or name in KEPT}


class Worker:
    """A running command, the leader of its own process group; its output goes to a file. Create it on the main thread."""

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
        """The complete lines of output since the last call."""
        with self.output.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def members(self) -> list[psutil.Process]:
        """The live processes of the group, including stopped ones."""
        return of_group(self.pid)

    def jvms(self) -> list[psutil.Process]:
        """The group's Java processes, except a `java -version` probe."""
        found = []
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                if process.name() == "java" and "-version" not in process.cmdline():
                    found.append(process)
        return found

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the group; no error if none is left."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def signal(self, number: int) -> None:
        """Send a signal to the leader only."""
        if self.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP the group and wait until every process is stopped."""
        self.signal_all(signal.SIGSTOP)
        until(lambda: all(map(_is_stopped, self.members())), GONE_WITHIN_S)

    def kill(self) -> None:
        """SIGKILL the group and wait until every process is gone."""
        self.signal_all(signal.SIGKILL)
        self.gone()

    def ended(self, within_s: float) -> int | None:
        """The exit code once the leader and its group are gone; None if that takes longer than `within_s`."""
        return self.poll() if until(lambda: self.poll() is not None and not self.members(), within_s) else None

    def gone(self) -> None:
        """Wait until the group is gone; SIGKILL it after GONE_WITHIN_S."""
        if self.ended(GONE_WITHIN_S) is None:
            self.signal_all(signal.SIGKILL)
            until(lambda: self.poll() is not None and not self.members(), GONE_WITHIN_S)


def _is_stopped(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    return True


def until(condition: Callable[[], object], within_s: float) -> bool:
    """Poll until `condition` returns a true value; False after `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
