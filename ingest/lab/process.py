"""Operating-system processes that this package starts: who they are, how they end, and that they never outlive their purpose."""

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

# Clocks step; a process id is recycled by another process of the same command line far later than this.
_CREATION_TOLERANCE_S = 5.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class ProcessId:
    """A process beyond doubt: its id, when it was created (seconds since the epoch) and a word of its command line.

    Ids are recycled; the three together let another run of the command find a process, and never end a stranger.
    """

    pid: int
    created_s: float
    marker: str

    def alive(self) -> bool:
        return self._process() is not None

    def end(self, *, grace_s: float) -> bool:
        """SIGTERM, then SIGKILL after `grace_s` (0: SIGKILL at once). False if it was gone already."""
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
    """Start a process in a session of its own (Ctrl-C in this terminal does not reach it), its output appended to a file.

    `marker` is one of the command's words, unlike any other process's; `env` replaces the environment (None: ours). With
    `die_with_parent` Linux kills it when the *thread* that called this ends, however that happens: call it from the main thread.
    Elsewhere the caller must end it.
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
    """The processes of a group that are still there, stopped ones too; whose leader `launch` started."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(pid) == leader and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
