"""The lake stage: `ingest run --once` on a project of its own, killed once after a commit, then `ingest verify`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ingest.delta.batch_commit import FIRST_BATCH
from ingest.lab.interrupt import uninterrupted
from ingest.lab.payments.payment import CHECKED_TOPIC
from ingest.lab.worker import Worker
from ingest.runtime.crash_points import SCRATCH
from ingest.runtime.spark import ONE_COMPILER

TABLE: Final = "payments.charges"
FAULT: Final = f"after_target:kill@{FIRST_BATCH}"
_CONTRACT: Final = f"""\
pipeline: payments
table: charges
source: {{topic: {CHECKED_TOPIC}, format: json}}
columns:
  - {{name: payment_id, type: STRING, nullable: false}}
  - {{name: account, type: STRING, nullable: false}}
  - {{name: amount_cents, type: BIGINT, nullable: false}}
  - {{name: currency, type: STRING, nullable: false}}
event_id: [payment_id]
"""


@dataclass
class LakeStage:
    """The project is `folder`/project, the lake `folder`/lake."""

    folder: Path
    servers: str
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("project/tables", "lake", "tmp"):
            (self.folder / name).mkdir(parents=True)
        (self.project / "tables/charges.yml").write_text(_CONTRACT, encoding="utf-8")
        (self.lake / SCRATCH).touch()

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def target(self) -> str:
        return str(self.lake / "payments/charges/target")

    @property
    def options(self) -> list[str]:
        return ["--project", str(self.project), "--lake", str(self.lake)]

    def run(self, *, killed: bool) -> Worker:
        """Start a run that reads what there is; with `killed` it dies between its first commit and Spark's note of it."""
        return self._start("run", "--once", "--bootstrap-servers", self.servers, fault={"INGEST_FAULT": FAULT} if killed else {})

    def verify(self) -> Worker:
        """Start `ingest verify`."""
        return self._start("verify", fault={})

    def end(self) -> None:
        """Kill all processes that still run."""
        for worker in self.workers:
            worker.kill()

    def _start(self, verb: str, *words: str, fault: Mapping[str, str]) -> Worker:
        command = [sys.executable, "-m", "ingest", verb, *words, *self.options, "--checkpoints", str(self.folder / "checkpoints")]
        temporary = str(self.folder / "tmp")
        java = {"JDK_JAVA_OPTIONS": ONE_COMPILER, "SPARK_LOCAL_DIRS": temporary, "TMPDIR": temporary}
        with uninterrupted():
            self.workers.append(Worker(command, output=self.folder / f"{verb}.out", environment={**java, **fault, "PYTHONUNBUFFERED": "1"}))
        return self.workers[-1]
