"""Operating-system processes that this package starts: how to identify them, end them, and keep them from outliving their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

# Tolerates a clock that steps. The OS reuses a process id for another process with the same command line far later than this.
_CREATION_TOLERANCE_S = 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class ProcessId:
    """A process's unambiguous identity: its id, its creation time (seconds since the epoch) and one word of its command line.

    The OS reuses process ids. With all three, a later command can find the process and never ends another one by mistake.
    """

    pid: int
    created_s: float
    marker: str

    def alive(self) -> bool:
        return self._process() is not None

    def end(self, *, grace_s: float) -> bool:
        """SIGTERM, then SIGKILL after `grace_s` (0: SIGKILL at once). False if the process was already gone."""
        process = self._process()
        if process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            if grace_s > 0:
                process.terminate()
                with suppress(psutil.TimeoutExpired):
                    process.wait(grace_s)
                    return True
            process.kill()
            process.wait(30)
        return True

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created_s) < _CREATION_TOLERANCE_S and self.marker in process.cmdline()
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None


def launch(
    command: Sequence[str], *, marker: str, output: Path, cwd: Path, die_with_parent: bool, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], ProcessId]:
    """Start a process in its own session, so Ctrl-C in this terminal does not reach it; append its output to a file.

    `marker` is a word of the command that no other process has. `env` replaces the environment (None: inherit ours). With
    `die_with_parent` Linux kills the process when the *thread* that called this ends for any reason: call it on the main thread.
    On other systems the caller must end the process.
    """
    prctl = ctypes.CDLL(None).prctl if die_with_parent and sys.platform == "linux" else None

    def kill_me_with_my_parent() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    with output.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=kill_me_with_my_parent if prctl is not None else None,  # noqa: PLW1509 - one system call, no lock, no allocation
        )
    return process, ProcessId(process.pid, psutil.Process(process.pid).create_time(), marker)


def of_group(leader: int) -> list[psutil.Process]:
    """The live processes, including stopped ones, of the group whose leader `launch` started."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(pid) == leader and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
