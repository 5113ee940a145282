"""One pipeline of the demo: started, killed, robbed of its checkpoints, and started again, until it has read everything."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FIRST_BATCH
from ingest.delta.delta_log import DeltaLog
from ingest.lab.interrupt import uninterrupted
from ingest.lab.worker import Worker
from ingest.runtime.crash_points import SCRATCH
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.runtime.spark import ONE_COMPILER

Name = Literal["oncelake", "by hand"]
Say = Callable[[str, str], None]

# A start takes 10 to 30 s and a pass a minute or two on a busy machine; what takes this long hangs.
ATTEMPT_WITHIN_S = 900.0
# Spark's second batch of whichever table comes first: it is in the table, and Spark has not noted that yet.
KILLED_IN = 1


@dataclass(frozen=True)
class Killed:
    """The kill that took place; `after_s` is the time since that start, `checkpoint_files` were deleted with all the checkpoints, `left`
    says for each table what it knows of its own end."""

    pipeline: Name
    pid: int
    jvm_pid: int | None
    after_s: float
    checkpoint_files: int
    left: tuple[str, ...]


@dataclass
class Pipeline:
    """A pipeline and how far it is; `step` moves it on and never blocks. `killed` is None until its first start was killed; `exit_code`
    and `output` are the second one's."""

    name: Name
    folder: Path
    contracts: Sequence[Contract]
    project: Path
    servers: str
    cap: int
    say: Say
    killed: Killed | None = None
    exit_code: int | None = None
    output: list[str] = field(default_factory=list)
    seconds: float | None = None
    _child: Worker | None = None
    _jvm_pid: int | None = None
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
        self._jvm_pid = self._jvm_pid or next((jvm.pid for jvm in self._child.jvms()), None)
        for line in self._child.lines():
            self.output.append(line)
            self.say(self.name, line)
        if code is not None:
            self._ended(self._child, code)
        elif time.monotonic() - self._started_at > ATTEMPT_WITHIN_S:
            raise self._failed(f"did not end within {ATTEMPT_WITHIN_S:.0f} s")

    def end(self) -> None:
        """Kill what runs."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def verify(self) -> Worker:
        """Start `ingest verify` on what this pipeline wrote."""
        command = [sys.executable, "-m", "ingest", "verify", *self._common()]
        return Worker(command, output=self.folder / "verify.out", environment=self.environment())

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self._begun_at = self._begun_at or self._started_at
        more = ["--bootstrap-servers", self.servers, "--max-records-per-batch", str(self.cap)]
        environment = self.environment()
        if self.name == "oncelake":
            command = [sys.executable, "-m", "ingest", "run", "--once", *self._common(), *more]
            if self.killed is None:
                environment["INGEST_FAULT"] = f"after_target:kill@{FIRST_BATCH + KILLED_IN}"
            else:
                command.append("--check")
        else:
            command = [sys.executable, "-m", "ingest.lab.demo.by_hand", *self._common(), *more]
            command += [] if self.killed else ["--kill", str(KILLED_IN)]
        with uninterrupted():
            self._child = Worker(command, output=self.folder / "run.out", environment=environment)
        self.output.clear()
        fate = "again, without any checkpoint" if self.killed else "it will be killed between a Delta commit and Spark's note of it"
        self.say(self.name, f"start (pid {self._child.pid}): {fate}")

    def _ended(self, child: Worker, code: int) -> None:
        child.kill()  # nothing of it may be left when the next start begins
        self._child = None
        now = time.monotonic()
        if self.killed is not None:
            # 1: the run is done, and its check has found the odd payments.
            if code not in ((0, 1) if self.name == "oncelake" else (0,)):
                raise self._failed(f"ended with exit code {code}")
            self.exit_code, self.seconds = code, now - self._begun_at
            self.say(self.name, f"has read everything, after {self.seconds:.0f} s")
            return
        if code != -signal.SIGKILL:
            raise self._failed(f"was to be killed, but ended with exit code {code}")
        files = sum(path.is_file() for path in self.checkpoints.rglob("*"))
        shutil.rmtree(self.checkpoints)
        left = tuple(self._left(contract) for contract in self.contracts)
        self.killed = Killed(self.name, child.pid, self._jvm_pid, now - self._started_at, files, left)
        self.say(self.name, f"KILLED with SIGKILL: Python {child.pid} and its JVM {self._jvm_pid} after {self.killed.after_s:.0f} s")
        self.say(self.name, f"DELETED the whole folder of its checkpoints, {files} files")
        for line in left:
            self.say(self.name, f"  what is left: {line}")

    def _left(self, contract: Contract) -> str:
        commits = list(DeltaLog(LocalFiles(), self.places(contract).target).newest_first())
        batches = [commit.batch_commit for commit in commits if commit.batch_commit is not None and commit.batch_commit.kind == "batch"]
        if not batches:
            return f"{contract.name} has {len(commits)} commits, and none says what it has read"
        newest = max(batches, key=lambda batch_commit: batch_commit.id)
        ends = " ".join(f"{partition}:{end}" for partition, end in sorted(newest.ends.items()))
        return f"{contract.name} says itself where to go on: behind batch {newest.id}, at the offsets {ends}"

    def _common(self) -> list[str]:
        words = [contract.name for contract in self.contracts]
        return [*words, "--project", str(self.project), "--lake", str(self.lake), "--checkpoints", str(self.checkpoints)]

    def environment(self) -> dict[str, str]:
        """Temporary files of a killed JVM stay in the demo's folder."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {ONE_COMPILER} -Djava.io.tmpdir={temporary}".strip()
        return {"PYTHONUNBUFFERED": "1", "TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), "JDK_JAVA_OPTIONS": java}

    def _failed(self, what: str) -> RunStopped:
        return RunStopped(
            "DEMO_FAILED",
            f"the pipeline {self.name} {what}.",
            expected="one kill, and then a start that reads everything.",
            remedy=f"read {self.folder / 'run.out'} and the newest file in {self.lake / 'logs'}.",
        )
