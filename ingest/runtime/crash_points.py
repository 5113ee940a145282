"""Crash points: places where a test makes a run die, hang or raise. They are off unless the lake is marked as scratch.

`INGEST_FAULT=<point>:<kill|hang|raise>@<batch>` takes effect only if the lake contains a file `.scratch`. A point in our own code
triggers its fault directly. For a point inside Spark or Delta, a watcher process waits for the file that shows that the run is there.
`<batch>` is the number of the batch in its epoch, and the first is 2. The points of a start, a seek, a run's end and a maintenance
belong to no batch and use 0.
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

# In the order in which a start or a seek reaches them.
STARTING = ("start_tables", "start_target_fenced", "start_fenced", "start_rolled_back", "start_offsets", "start_checkpoint")
MAINTAINING = ("maintain_deleted", "maintain_merged", "maintain_compacted")
# After each commit of the commands that repair a table.
REPAIRING = (
    *("replay_target", "replay_marked", "swap_quarantine", "swap_target", "swap_ledger"),
    *("erase_target", "erase_quarantine"),
)
INSIDE = (
    "after_offset_log",
    "staged",
    "after_quarantine",
    "put_sent",
    "after_target",
    "after_replayed",
    "after_ledger",
    "finish_ledger",
    *STARTING,
    *MAINTAINING,
    *REPAIRING,
)
# Spark numbers the batches of a checkpoint from 0; we number the batches of an epoch from 2.
FIRST_BATCH = 2
WATCHED = ("before_offset_log", "during_target", "after_commit_log")
ACTIONS = ("kill", "hang", "raise")
SCRATCH = ".scratch"
STOPS_WITHIN_S = 1.0
# We write this file just before Spark's MERGE of the batch. From then on, the watcher waits for a data file of the target. With the direct
# writer, `during_target` is in this process: the files are on the disk, and no commit names them.
GATE = "fault-gate"


class InjectedFault(Exception):
    """Raised by the action `raise`."""


@dataclass(frozen=True)
class ArmedFault:
    """An injected fault: its point, its action, its batch."""

    point: str
    action: str
    batch: int


@dataclass(frozen=True)
class VictimWatch:
    """The input of the watcher: the fault, the folders to watch, and the processes to hit (the JVM first)."""

    fault: ArmedFault
    checkpoint: str
    target: str
    pids: tuple[int, ...]


_armed: ArmedFault | None = None
_victims: tuple[int, ...] = ()
_gates: dict[str, Path] = {}


def parse(text: str) -> ArmedFault:
    """Parse a fault such as `after_target:kill@3`. Raises InvalidInput FAULT_INVALID."""
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


def arm(lake: Path, jvm_pid: int | None) -> None:
    """Arm the fault that INGEST_FAULT names, if the lake is scratch. Without a JVM its faults hit this process alone."""
    global _armed, _victims
    text = os.environ.get("INGEST_FAULT")
    if not text or not (lake / SCRATCH).exists():
        _armed = None  # a fault armed for another lake of this process does not apply here
        return
    _armed = parse(text)
    _victims = (os.getpid(),) if jvm_pid is None else (jvm_pid, os.getpid())


def watch(checkpoint: Path, target: Path) -> None:
    """Start the watcher process for a checkpoint, if the armed fault needs one."""
    if _armed is None or _armed.point not in WATCHED:
        return
    gate = _gates[str(checkpoint)] = checkpoint / "oncelake" / GATE
    gate.unlink(missing_ok=True)
    victim_watch = VictimWatch(_armed, str(checkpoint), str(target), _victims)
    subprocess.Popen(
        [sys.executable, "-m", "ingest.runtime.crash_points", json.dumps(asdict(victim_watch))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def at(point: str, batch: int, checkpoint: str = "") -> None:
    """Trigger the armed fault if it is for this `point` and `batch`. `checkpoint` selects the watcher to wake for a point inside Spark."""
    global _armed
    if _armed is None or (_armed.point, _armed.batch) != (point, batch):
        return
    action, _armed = _armed.action, None  # once: the run may continue in a new epoch
    if point == "during_target" and checkpoint:
        gate = _gates[checkpoint]
        gate.parent.mkdir(parents=True, exist_ok=True)
        gate.touch()
        return
    if action == "raise":
        raise InjectedFault(f"{point}@{batch}")
    _inject(_victims, action)


def _inject(pids: tuple[int, ...], action: str) -> None:
    """Signal the JVM, if there is one, and Python. If Python leads its process group, signal the whole group, with Spark's workers."""
    number = signal.SIGKILL if action == "kill" else signal.SIGSTOP
    for pid in pids[:-1]:
        os.kill(pid, number)
    (os.killpg if os.getpgid(pids[-1]) == pids[-1] else os.kill)(pids[-1], number)
    if pids[-1] == os.getpid():
        # The kernel lets the main thread take a stop. Until that one gets a processor this thread would run on: long enough to commit.
        time.sleep(STOPS_WITHIN_S)


def _condition(watch: VictimWatch) -> Callable[[], bool]:
    """The condition that the watcher waits for."""
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
    reached = _condition(watch)
    while not reached():
        try:
            os.kill(watch.pids[-1], 0)
        except ProcessLookupError:
            return
        time.sleep(0.001)
    _inject(watch.pids, watch.fault.action)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    _watch(VictimWatch(ArmedFault(**given["fault"]), given["checkpoint"], given["target"], tuple(given["pids"])))
