"""One pipeline of the demo: it is killed, loses its checkpoints, and is started again until it has read everything."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FIRST_BATCH
from ingest.lab.demo.story import Say
from ingest.lab.interrupt import uninterrupted
from ingest.lab.worker import Worker
from ingest.runtime.crash_points import SCRATCH
from ingest.runtime.errors import RunStopped
from ingest.runtime.places import Places
from ingest.runtime.spark import ONE_COMPILER

Name = Literal["oncelake", "by hand"]

# A start takes 10 to 30 s, a pass a minute or two on a busy machine. Longer than this means that it hangs.
ATTEMPT_WITHIN_S = 900.0
# Where each start but the last is killed: the crash point (of ours) or Spark's batch number (by hand), and the words for it.
KILLS: dict[Name, tuple[tuple[str, str], ...]] = {
    "oncelake": (
        (f"after_target:kill@{FIRST_BATCH}", "after the Delta commit of a batch, before Spark noted it"),
        (f"after_quarantine:kill@{FIRST_BATCH}", "again, between the commits of quarantine and target"),
    ),
    # One kill is enough to double its rows.
    "by hand": (("0", "after the Delta commit of a batch, before Spark noted it"),),
}


@dataclass(frozen=True)
class Killed:
    """One kill. `after_s` is the time since that start."""

    pipeline: Name
    pid: int
    jvm_pid: int | None
    after_s: float


@dataclass
class Pipeline:
    """A pipeline and its progress. `step` advances it and never blocks. `exit_code` and `output` are those of the last start."""

    name: Name
    folder: Path
    contracts: Sequence[Contract]
    project: Path
    servers: str
    cap: int
    say: Say
    kills: list[Killed] = field(default_factory=list)
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
    def _to_kill(self) -> tuple[tuple[str, str], ...]:
        """The kills that are still to come."""
        return KILLS[self.name][len(self.kills) :]

    @property
    def done(self) -> bool:
        return self.seconds is not None

    def places(self, contract: Contract) -> Places:
        """The tables of `contract`."""
        return Places(str(self.lake), str(self.checkpoints), contract.pipeline, contract.table)

    def step(self) -> None:
        """Start the next process if none runs, pass on its output, notice its end. Raises RunStopped DEMO_FAILED for a wrong end."""
        if self.done:
            return
        if self._child is None:
            self._start()
            return
        code = self._child.poll()
        self._jvm_pid = next((jvm.pid for jvm in self._child.jvms()), self._jvm_pid)
        for line in self._child.lines():
            self.output.append(line)
            self.say(self.name, line, detail=True)
        if code is not None:
            self._ended(self._child, code)
        elif time.monotonic() - self._started_at > ATTEMPT_WITHIN_S:
            raise self._failed(f"did not end within {ATTEMPT_WITHIN_S:.0f} s")

    def end(self) -> None:
        """Kill the process that runs."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def verify(self) -> Worker:
        """Start `ingest verify` on the tables of this pipeline."""
        command = [sys.executable, "-m", "ingest", "verify", *self._common()]
        return Worker(command, output=self.folder / "verify.out", environment=self.environment())

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self._begun_at = self._begun_at or self._started_at
        more = ["--bootstrap-servers", self.servers, "--max-records-per-batch", str(self.cap)]
        environment = self.environment()
        if self.name == "oncelake":
            command = [sys.executable, "-m", "ingest", "run", "--once", *self._common(), *more]
            if self._to_kill:
                environment["INGEST_FAULT"] = self._to_kill[0][0]
            else:
                command.append("--check")
        else:
            command = [sys.executable, "-m", "ingest.lab.demo.by_hand", *self._common(), *more]
            command += ["--kill", self._to_kill[0][0]] if self._to_kill else []
        with uninterrupted():
            self._child = Worker(command, output=self.folder / "run.out", environment=environment)
        self.output.clear()
        self.say(self.name, f"started (pid {self._child.pid})", detail=bool(self.kills))

    def _ended(self, child: Worker, code: int) -> None:
        child.kill()  # none of its processes may run when the next start begins
        self._child = None
        now = time.monotonic()
        if not self._to_kill:
            # 1: the run is complete, and its check has found the odd payments.
            if code not in ((0, 1) if self.name == "oncelake" else (0,)):
                raise self._failed(f"ended with exit code {code}")
            self.exit_code, self.seconds = code, now - self._begun_at
            self.say(self.name, f"has read everything, {self.seconds:.0f} s after its first start")
            return
        if code != -signal.SIGKILL:
            raise self._failed(f"should have been killed, but ended with exit code {code}")
        self.say(self.name, f"KILLED {self._to_kill[0][1]}")
        if len(self._to_kill) == 1:
            files = sum(path.is_file() for path in self.checkpoints.rglob("*"))
            shutil.rmtree(self.checkpoints)
            self.say(self.name, f"DELETED the folder of its checkpoints, {files} files")
        self.kills.append(Killed(self.name, child.pid, self._jvm_pid, now - self._started_at))

    def _common(self) -> list[str]:
        words = [contract.name for contract in self.contracts]
        return [*words, "--project", str(self.project), "--lake", str(self.lake), "--checkpoints", str(self.checkpoints)]

    def environment(self) -> dict[str, str]:
        """Keeps the temporary files of a killed JVM in the demo's folder."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {ONE_COMPILER}".strip()
        return {"PYTHONUNBUFFERED": "1", "TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), "JDK_JAVA_OPTIONS": java}

    def _failed(self, what: str) -> RunStopped:
        return RunStopped(
            "DEMO_FAILED",
            f"the pipeline {self.name} {what}.",
            expected="its kills, then a start that reads everything.",
            remedy=f"read {self.folder / 'run.out'} and the newest file in {self.lake / 'logs'}.",
        )
