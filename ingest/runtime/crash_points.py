"""Crash points: places where a test tells a run to die, hang or raise. Off unless the lake says that it is scratch.

`INGEST_FAULT=<point>:<kill|hang|raise>@<batch>` is honoured only if the lake holds a file `.scratch`. Points in our own code act by
themselves; those inside Spark and Delta are met by a watcher process that waits for the file that marks them. A batch is named by its
number in its epoch, the first is 2. The points of a start, a seek and a run's end belong to no batch, and are named with 0.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ingest.runtime.errors import InvalidInput

# In the order in which a start or a seek comes by.
STARTING = ("start_tables", "start_target_fenced", "start_fenced", "start_rolled_back", "start_sought", "start_checkpoint")
INSIDE = ("after_offset_log", "after_quarantine", "after_target", "after_replayed", "after_ledger", "finish_ledger", *STARTING)
# Spark numbers the batches of a checkpoint from 0, an epoch from 2.
FIRST_BATCH = 2
WATCHED = ("before_offset_log", "during_target", "after_commit_log")
ACTIONS = ("kill", "hang", "raise")
SCRATCH = ".scratch"
# The file that opens the watch for a data file of the target: written when the batch is about to be merged.
GATE = "fault-gate"


class InjectedFault(Exception):
    """What `raise` raises."""


@dataclass(frozen=True)
class ArmedFault:
    """What to do, where, in which batch."""

    point: str
    action: str
    batch: int


@dataclass(frozen=True)
class VictimWatch:
    """What the watcher is told: the fault, where its marks appear, and which processes it hits (the JVM first)."""

    fault: ArmedFault
    checkpoint: str
    target: str
    pids: tuple[int, ...]


_armed: ArmedFault | None = None
_victims: tuple[int, ...] = ()
_gates: dict[str, Path] = {}


def parse(text: str) -> ArmedFault:
    """`after_target:kill@3` as a value. Raises InvalidInput."""
    try:
        point, rest = text.split(":")
        action, number = rest.split("@")
        fault = ArmedFault(point, action, int(number))
    except ValueError:
        fault = ArmedFault("", "", -1)
    if fault.point not in INSIDE + WATCHED or fault.action not in ACTIONS or (fault.action == "raise" and fault.point not in INSIDE):
        raise InvalidInput(
            "FAULT_INVALID",
            f"INGEST_FAULT={text!r}.",
            expected=f"<point>:<action>@<batch>, point one of {', '.join(INSIDE + WATCHED)}, action one of {', '.join(ACTIONS)}; "
            f"raise only at {', '.join(INSIDE)}.",
            remedy="correct or unset INGEST_FAULT.",
        )
    return fault


def arm(lake: Path, jvm_pid: int) -> None:
    """Arm the fault that the environment asks for, if the lake is scratch."""
    global _armed, _victims
    text = os.environ.get("INGEST_FAULT")
    if not text or not (lake / SCRATCH).exists():
        _armed = None  # what a scratch lake of this process was armed with is not for this one
        return
    _armed = parse(text)
    _victims = (jvm_pid, os.getpid())


def watch(checkpoint: Path, target: Path) -> None:
    """Start the watcher of a checkpoint, if the armed fault needs one."""
    if _armed is None or _armed.point not in WATCHED:
        return
    gate = _gates[str(checkpoint)] = checkpoint / "oncelake" / GATE
    gate.unlink(missing_ok=True)
    told = VictimWatch(_armed, str(checkpoint), str(target), _victims)
    subprocess.Popen(
        [sys.executable, "-m", "ingest.runtime.crash_points", json.dumps(asdict(told))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def at(point: str, batch: int, checkpoint: str = "") -> None:
    """Called where `point` is reached; nothing happens unless this very fault is armed. `checkpoint` tells whose watcher to wake."""
    global _armed
    if _armed is None or (_armed.point, _armed.batch) != (point, batch):
        return
    action, _armed = _armed.action, None  # once: the run may go on in a new epoch
    if point == "during_target":
        gate = _gates[checkpoint]
        gate.parent.mkdir(parents=True, exist_ok=True)
        gate.touch()
        return
    if action == "raise":
        raise InjectedFault(f"{point}@{batch}")
    _inject(_victims, action)


def _inject(pids: tuple[int, ...], action: str) -> None:
    """JVM and Python; where Python leads its process group (a shell or a test started it so) all of the group, Spark's workers too."""
    number = signal.SIGKILL if action == "kill" else signal.SIGSTOP
    for pid in pids[:-1]:
        os.kill(pid, number)
    (os.killpg if os.getpgid(pids[-1]) == pids[-1] else os.kill)(pids[-1], number)


def _mark(watch: VictimWatch) -> Callable[[], bool]:
    """What the watcher waits for."""
    checkpoint, number = Path(watch.checkpoint), watch.fault.batch - FIRST_BATCH
    if watch.fault.point == "before_offset_log":
        commit_file = checkpoint / "commits" / str(number - 1) if number else checkpoint / "metadata"
        return commit_file.exists
    if watch.fault.point == "after_commit_log":
        return (checkpoint / "commits" / str(number)).exists
    gate, target = checkpoint / "oncelake" / GATE, Path(watch.target)

    def writing() -> bool:
        if not gate.exists():
            return False
        files = (path for path in target.rglob("*.parquet") if "_delta_log" not in path.parts)
        return any(path.stat().st_mtime_ns >= gate.stat().st_mtime_ns for path in files)

    return writing


def _watch(watch: VictimWatch) -> None:
    marked = _mark(watch)
    while not marked():
        try:
            os.kill(watch.pids[-1], 0)
        except ProcessLookupError:
            return
        time.sleep(0.001)
    _inject(watch.pids, watch.fault.action)


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    _watch(VictimWatch(ArmedFault(**told["fault"]), told["checkpoint"], told["target"], tuple(told["pids"])))
