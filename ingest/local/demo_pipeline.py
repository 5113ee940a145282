"""One pipeline of the demo: started, killed where it was told to die, started again, until it has read everything."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ingest.contract import Contract
from ingest.errors import RunStopped
from ingest.faults import SCRATCH
from ingest.files import LocalFiles
from ingest.local.demo_child import Child
from ingest.local.interrupt import uninterrupted
from ingest.places import Places
from ingest.stream.delta_log import DeltaLog
from ingest.stream.offsets import CheckpointFiles

Name = Literal["oncelake", "by hand"]
Say = Callable[[str, str], None]

# A start takes 10 to 30 s and a pass a minute or two on a busy machine; what takes this long hangs.
ATTEMPT_WITHIN_S = 900.0
# What a user has set for pipelines of their own must not reach the demo's; the rest (cache, memory) is about the machine.
KEPT = ("INGEST_CACHE", "INGEST_DRIVER_MEMORY")
# A JVM that lives for half a minute spends half of it on optimising code for hours that never come (60 of 136 CPU seconds
# in a pass of 300,000 events; without, the pass takes 112). For both pipelines alike; a pipeline in earnest keeps Java's defaults.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


@dataclass(frozen=True)
class Blow:
    """Where a start is to die: `during_target` or `after_target` of a batch."""

    point: Literal["during_target", "after_target"]
    batch: int

    @property
    def meaning(self) -> str:
        """In words."""
        where = "in the middle of writing" if self.point == "during_target" else "after the Delta commit, before Spark's commit log, of"
        return f"{where} batch {self.batch}"


@dataclass(frozen=True)
class Left:
    """What the files of one table say after a kill: batch numbers are -1 for none; `written` is None if the table does not tell."""

    table: str
    planned: int
    finished: int
    written: int | None
    stray_files: int

    def __str__(self) -> str:
        strays = f", {self.stray_files} data file(s) without a commit" if self.stray_files else ""
        last = self.planned
        if last < 0:
            return f"{self.table}: nothing planned yet"
        if self.finished >= last:
            return f"{self.table}: between two batches, {last} is finished{strays}"
        told = "the table does not tell" if self.written is None else "yes" if self.written >= last else "no"
        return f"{self.table}: batch {last} was begun and not finished; in the table? {told}{strays}"


@dataclass(frozen=True)
class Killed:
    """A kill that took place; `after_s` is the time since that start."""

    pipeline: Name
    blow: Blow
    pid: int
    jvm_pid: int | None
    after_s: float
    left: tuple[Left, ...]


@dataclass
class Pipeline:
    """A pipeline and how far it is; `step` moves it on and never blocks. `blows` are the deaths that are still to come."""

    name: Name
    folder: Path
    contracts: Sequence[Contract]
    project: Path
    servers: str
    cap: int
    blows: list[Blow]
    say: Say
    starts: int = 0
    kills: list[Killed] = field(default_factory=list)
    seconds: float | None = None
    _child: Child | None = None
    _begun_at: float = 0.0
    _started_at: float = 0.0

    def __post_init__(self) -> None:
        self.lake.mkdir(parents=True)
        (self.lake / SCRATCH).touch()

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def done(self) -> bool:
        return self.seconds is not None

    def places(self, contract: Contract) -> Places:
        """Where the tables of `contract` are."""
        return Places(str(self.lake), str(self.checkpoints), contract.pipeline, contract.table)

    def step(self) -> None:
        """Start what is to be started, pass on what was printed, notice an end. Raises RunStopped if a start ends as it should not."""
        if self.done:
            return
        if self._child is None:
            self._start()
            return
        code = self._child.poll()
        for line in self._child.lines():
            self.say(self.name, line)
        if code is not None:
            self._ended(self._child, code)
        elif time.monotonic() - self._started_at > ATTEMPT_WITHIN_S:
            raise self._failed(f"did not end within {ATTEMPT_WITHIN_S:.0f} s")

    def end(self) -> None:
        """Kill what runs."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def verify(self) -> Child:
        """Start `ingest verify` on what this pipeline wrote."""
        command = [sys.executable, "-m", "ingest", "verify", *self._common()]
        return Child(command, marker=str(self.lake), output=self.folder / "verify.out", environment=self.environment())

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self._begun_at = self._begun_at or self._started_at
        self.starts += 1
        blow = self.blows[0] if self.blows else None
        more = ["--bootstrap-servers", self.servers, "--max-records-per-batch", str(self.cap)]
        environment = self.environment()
        if self.name == "oncelake":
            command = [sys.executable, "-m", "ingest", "run", "--once", *self._common(), *more]
            environment |= {"INGEST_FAULT": f"{blow.point}:kill@{blow.batch}"} if blow else {}
        else:
            command = [sys.executable, "-m", "ingest.local.by_hand", *self._common(), *more]
            command += ["--kill", f"{blow.point}@{blow.batch}"] if blow else []
        with uninterrupted():
            self._child = Child(command, marker=str(self.lake), output=self.folder / "run.out", environment=environment)
        fate = f"it will be killed {blow.meaning}" if blow else "nothing kills it this time"
        self.say(self.name, f"start {self.starts} (pid {self._child.pid}): {fate}")

    def _ended(self, child: Child, code: int) -> None:
        child.end()  # nothing of it may be left when the next start begins
        self._child = None
        now = time.monotonic()
        if not self.blows:
            if code != 0:
                raise self._failed(f"ended with exit code {code}")
            self.seconds = now - self._begun_at
            self.say(self.name, f"has read everything: {self.seconds:.0f} s with {self.starts} starts")
            return
        if code != -signal.SIGKILL:
            raise self._failed(f"was to be killed {self.blows[0].meaning}, but ended with exit code {code}")
        killed = Killed(
            self.name, self.blows.pop(0), child.pid, child.jvm_pid, now - self._started_at, tuple(self._left(c) for c in self.contracts)
        )
        self.kills.append(killed)
        self.say(
            self.name,
            f"KILLED with SIGKILL {killed.blow.meaning}: Python {killed.pid} and its JVM {killed.jvm_pid} after {killed.after_s:.0f} s",
        )
        for left in killed.left:
            self.say(self.name, f"  left behind: {left}")

    def _left(self, contract: Contract) -> Left:
        places, files = self.places(contract), LocalFiles()
        checkpoint, log = CheckpointFiles(files, places.checkpoint), DeltaLog(files, places.target)
        commits = list(log.newest_first())
        committed = {added.path for commit in commits for added in commit.added}
        strays = sum(path.name not in committed for path in Path(places.target).glob("*.parquet"))
        written = max((commit.mark.id.number for commit in commits if commit.mark is not None), default=-1)
        told = written if self.name == "oncelake" else None
        return Left(contract.name, _last(checkpoint.numbers("offsets")), _last(checkpoint.numbers("commits")), told, strays)

    def _common(self) -> list[str]:
        words = [contract.name for contract in self.contracts]
        return [*words, "--project", str(self.project), "--lake", str(self.lake), "--checkpoints", str(self.checkpoints)]

    def environment(self) -> dict[str, str]:
        """Our variables without the user's own settings; temporary files of a killed JVM stay in the demo's folder."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        kept: Mapping[str, str] = {k: v for k, v in os.environ.items() if not k.startswith("INGEST_") or k in KEPT}
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {SHORT_LIVED} -Djava.io.tmpdir={temporary}".strip()
        own = {"PYTHONUNBUFFERED": "1", "TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), "JDK_JAVA_OPTIONS": java}
        return {**kept, **own}

    def _failed(self, what: str) -> RunStopped:
        return RunStopped(
            "DEMO_FAILED",
            f"the pipeline {self.name} {what} (start {self.starts}).",
            expected="two kills and then an end with exit code 0.",
            remedy=f"read {self.folder / 'run.out'} and the newest file in {self.lake / 'logs'}.",
        )


def _last(numbers: list[int]) -> int:
    return numbers[-1] if numbers else -1
