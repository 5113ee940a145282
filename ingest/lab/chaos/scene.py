"""One round's processes and folders: broker, proxy, producer and driver. A process that ends is restarted until the round ends."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ingest.contract.definition import Contract, load_contracts
from ingest.delta.batch_commit import Batch
from ingest.delta.delta_log import DeltaLog
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.chaos.disk import SmallDisk
from ingest.lab.chaos.event_writer import Settings
from ingest.lab.proxy import Proxy
from ingest.lab.worker import Worker, until
from ingest.run.lock_file import is_free
from ingest.runtime import java
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.runtime.spark import ONE_COMPILER

POLL_S: Final = 0.05
PARTITIONS: Final = 3
# The JVMs live for seconds, too short for the second JIT compiler to pay off.
JAVA_OPTIONS: Final = f"{ONE_COMPILER} -XX:+UseSerialGC"
# A correct run may end with these exit and error codes when it loses its broker, its disk or its JVM. Any other end is a finding, even
# if the run stopped by itself (exit 5): nobody restores a table here, and no two pipelines share one.
ENDS: Final = (3, 4, 5)
ALLOWED: Final = {"LOCKED", "BROKER_UNREACHABLE", "DISK_FULL", "NOT_WRITABLE", "SPARK_NOT_STARTED", "JVM_GONE", "CHECKPOINT_GONE"}
# For the second driver, which only has to find that the lock is held.
LOCK_WAIT_S: Final = 1.0
# After this many starts in a row without a batch, a run does not recover by itself.
FRUITLESS_MAX: Final = 12
# The last fault can end the driver that is asked to stop and the one that starts next, but not a third one.
STOPS_MAX: Final = 3
END_WITHIN_S: Final = 600.0

Say = Callable[[str, str], None]


@dataclass
class SceneCounts:
    """What happened, in numbers; `ends` counts the exit codes and error codes of drivers that ended by themselves."""

    injected: Counter[str] = field(default_factory=Counter)
    sigkills: int = 0
    starts: int = 0
    writers: int = 0
    batches: int = 0
    records: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """A dict for JSON (dataclasses.asdict cannot copy a Counter)."""
        return {**vars(self), "injected": dict(self.injected), "ends": dict(self.ends)}

    def add(self, other: SceneCounts) -> None:
        """Add another round's counts."""
        self.injected += other.injected
        self.ends += other.ends
        for name in ("sigkills", "starts", "writers", "batches", "records"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Scene:
    """A running round. `findings` are errors seen during the round; the oracle's findings are added after it."""

    def __init__(
        self,
        folder: Path,
        contracts: Sequence[Contract],
        broker: Broker,
        proxy: Proxy,
        settings: Mapping[str, Any],
        say: Say,
        *,
        batch_records: int,
        disk: SmallDisk | None,
        clock_library: Path | None,
    ) -> None:
        self.folder, self.broker, self.proxy, self.say, self.disk = folder, broker, proxy, say, disk
        self.home = disk.folder if disk else folder  # contains the lake and the checkpoints
        self.project = folder / "project"
        self.counts = SceneCounts()
        self.findings: list[str] = []
        self.excused: dict[str, set[tuple[str, ...]]] = {contract.name: set() for contract in contracts}
        self.own_versions: dict[str, set[int]] = {contract.name: set() for contract in contracts}
        # By contract. The first one has a pattern, which finds more of them.
        self.topics = {contract.name: [*(contract.source.names or (contract.name,))] for contract in contracts}
        self.joining = next(iter(self.topics.values()))
        self.joining[1:] = [f"{self.joining[0]}-chaos-2"]
        self.manifests: list[Path] = []
        self.clock_library = clock_library
        self.clock: Mapping[str, str] = {}
        self.driver: Worker | None = None
        self.writer: Worker | None = None
        self.producing = True
        self.read_to_the_end = False
        self._fruitless = 0
        self._writer_seed = 0
        self._done_at_start = 0
        self._logs: dict[str, DeltaLog] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._write_project(contracts, batch_records)
        self.contracts = load_contracts(self.project)
        for topics in self.topics.values():
            for topic in topics:
                broker.create_topic(topic, PARTITIONS)
        self._for_writers = partial(
            Settings, bootstrap_servers=proxy.bootstrap_servers, transactional_id="ingest-chaos", project=str(self.project), **settings
        )

    @property
    def lake(self) -> Path:
        return self.home / "lake"

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    def places(self, contract: Contract) -> Places:
        """Where the tables of `contract` are."""
        return Places(str(self.lake), str(self.checkpoints), contract.pipeline, contract.table)

    def batches_done(self) -> int:
        """The number of batches in all targets."""
        return sum(map(self.batches_done_of, self.contracts))

    def batches_done_of(self, contract: Contract) -> int:
        """The number of batches in one target's log. Called often, so it counts only the commits since the last call."""
        log = self._logs.setdefault(contract.name, DeltaLog(LocalFiles(), self.places(contract).target))
        version, batches = self._counted.get(contract.name, (-1, 0))
        for commit in log.since(version):
            version = commit.version
            batches += commit.batch_commit is not None and isinstance(commit.batch_commit.case, Batch)
        self._counted[contract.name] = version, batches
        return batches

    def tend(self) -> None:
        """Restart every process that has ended. Never blocks for long."""
        if self.broker.process is None:
            self.broker.start()
        if self.producing and (self.writer is None or self.writer.poll() is not None):
            self.start_writer()
        if self.driver is not None and (code := self.driver.poll()) is not None:
            self.driver.gone()
            self.note_end(self.driver, code)
            self.driver = None
        if self.driver is None:
            self.start_driver()

    def pass_time(self, seconds: float) -> None:
        """Let the round run for `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.tend()
            time.sleep(min(POLL_S, left))

    def wait(self, condition: Callable[[], object], within_s: float) -> bool:
        """Tend until `condition` returns a true value; False after `within_s` or if the round has failed."""
        deadline = time.monotonic() + within_s
        while not condition():
            if self.findings or time.monotonic() > deadline:
                return False
            self.tend()
            time.sleep(POLL_S)
        return True

    def working(self) -> bool:
        """Whether the current driver has taken a table's lock and its JVM is alive; a killed driver's name stays in the lock file."""
        driver = self.driver
        return driver is not None and any(self._named(each, driver) for each in self.contracts) and bool(driver.jvms())

    def held(self, contract: Contract, driver: Worker) -> bool:
        """Whether this driver's JVM currently holds this table's lock."""
        return self._named(contract, driver) and not is_free(self.lock(contract))

    def lock(self, contract: Contract) -> Path:
        """A table's lock file."""
        return Path(self.places(contract).root) / "lock"

    def _named(self, contract: Contract, driver: Worker) -> bool:
        return f'"python_pid": {driver.pid}' in _text(self.lock(contract))

    def start_driver(self, *arguments: str) -> Worker:
        """Start `ingest run` with these arguments on this round's folders, with the scene's clock."""
        self.counts.starts += 1
        self._done_at_start = self.batches_done()
        # Few runs live for the minute after which the ledger is appended, so every other run appends to it after each batch.
        every = {"INGEST_LEDGER_EVERY_S": "60" if self.counts.starts % 2 else "0"}
        self.driver = self._run(arguments, f"{self.counts.starts:04d}", {**every, **self.clock})
        return self.driver

    def another_driver(self) -> Worker:
        """Start a second driver beside `driver`, to find the lock held. The caller must end it."""
        return self._run((), f"{self.counts.starts:04d}-second", {"INGEST_LOCK_WAIT_S": f"{LOCK_WAIT_S}"})

    def _run(self, arguments: Sequence[str], name: str, more: Mapping[str, str]) -> Worker:
        words = ["run", *arguments, "--project", str(self.project), "--lake", str(self.lake), "--checkpoints", str(self.checkpoints)]
        words += ["--bootstrap-servers", self.broker.bootstrap_servers, "--master", "local[2]"]
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "INGEST_DRIVER_JAVA_OPTIONS": f"{JAVA_OPTIONS} {java.option(f'-Djava.io.tmpdir={temporary}')}",
            **more,
        }
        output = self.folder / "runs" / f"{name}.log"
        return Worker([sys.executable, "-m", "ingest", *words], output=output, environment=environment)

    def start_writer(self, *, again: bool = False) -> Worker:
        """Start the next producer; `again` repeats the previous producer's stream from its start, as after a replay upstream."""
        number = len(self.manifests)
        seed = self._writer_seed = self._writer_seed if again else number
        manifest = self.folder / f"manifest-{number}.jsonl"
        self.manifests.append(manifest)
        self.counts.writers += 1
        settings = self._for_writers(topics=self.topics).save(self.folder / "writer.json")
        command = [sys.executable, "-m", "ingest.lab.chaos.event_writer", str(settings), str(seed), str(manifest)]
        self.writer = Worker(command, output=self.folder / "writer.log", environment={})
        return self.writer

    def join_topic(self) -> None:
        """Create another topic that the first table reads, and start a producer that sends to it. The next driver finds the topic."""
        self.joining.append(f"{self.joining[0]}-chaos-{len(self.joining) + 1}")
        self.broker.create_topic(self.joining[-1], PARTITIONS)
        writer = self.start_writer()
        until(partial(_has_committed, writer, self.manifests[-1]), END_WITHIN_S)

    def note_end(self, driver: Worker, code: int) -> None:
        """Judge the end of a driver that was not killed as a whole group."""
        if self.batches_done() > self._done_at_start:
            self._fruitless = 0
        else:
            self._fruitless += 1
        if code < 0:
            return
        codes = codes_of(driver)
        self.counts.ends[f"{code} {' '.join(sorted(set(codes))) or '-'}"] += 1
        # During a start, a lost broker or a killed JVM is reported as InvalidEnvironment (4).
        if code in ENDS and codes and set(codes) <= ALLOWED:
            if self._fruitless >= FRUITLESS_MAX:
                self.findings.append(
                    f"ingest run does not come up again: {self._fruitless} starts in a row without a batch, the last: {last_of(driver)}"
                )
            return
        self.findings.append(f"ingest run ended with exit code {code}, which no fault explains: {last_of(driver)} ({driver.output.name})")

    def finish(self) -> None:
        """Stop the producer and the driver cleanly, then read the topics to the end; adds to `findings`.

        It reads to the end even after a finding, so that the oracle can tell whether data was damaged.
        """
        self._stop_writer()
        self._stop_driver()
        self.clock = {}
        last = self.start_driver("--once")
        code = last.ended(END_WITHIN_S)
        if code != 0:
            self.findings.append(f"with no fault left, ingest run --once ended with {code}: {last_of(last)} ({last.output.name})")
            last.kill()
        self.read_to_the_end = code == 0
        self.driver = None

    def _stop_driver(self) -> None:
        """Stop the driver cleanly. If the last fault ends it first, stop the next one instead, which no fault hits."""
        ended = ""
        for _ in range(STOPS_MAX):
            if not self.findings:
                self.wait(self.working, END_WITHIN_S)
            if (driver := self.driver) is None:
                return
            driver.signal(signal.SIGTERM)
            code = driver.ended(END_WITHIN_S)
            driver.kill()
            self.driver = None
            if code == 0 or self.findings:
                return
            ended = f"asked to stop, ingest run ended with {code}: {last_of(driver)} ({driver.output.name})"
            if code is None or code < 0:
                break
            self.note_end(driver, code)
            if self.findings:
                return
        self.findings.append(ended)

    def _stop_writer(self) -> None:
        """Stop the producer cleanly, so that no transaction stays open. If it was just killed, start and stop another one."""
        self.producing = False
        for _ in range(5):
            writer = self.writer
            if writer is None or writer.poll() is not None:
                writer = self.start_writer()
            # A new writer must first end the transaction that the previous one left open.
            until(partial(_has_committed, writer, self.manifests[-1]), END_WITHIN_S)
            writer.signal(signal.SIGTERM)
            if writer.ended(END_WITHIN_S) == 0:
                self.writer = None
                return
        self.findings.append(f"the producer does not end; its last output: {_tail(self.folder / 'writer.log', 400)}")

    def close(self) -> None:
        """Kill the remaining processes; may be called at any time."""
        for worker in (self.driver, self.writer):
            if worker is not None:
                worker.signal_all(signal.SIGCONT)
                worker.kill()
        self.driver = self.writer = None

    def _write_project(self, contracts: Sequence[Contract], batch_records: int) -> None:
        """Write scratch copies of the contracts, with the settings that the oracle needs in place of the user's own."""
        (self.project / "tables").mkdir(parents=True)
        for folder in (self.lake, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        for contract in contracts:
            document = json.loads(contract.to_json())
            own = {"isolation_level": "read_committed", "starting_offsets": "earliest", "max_records_per_batch": batch_records}
            document["source"] = {key: value for key, value in document["source"].items() if not key.startswith("topic")} | own
            topics = self.topics[contract.name]
            found = {"topic_pattern": rf"{re.escape(topics[0])}(-chaos-\d+)?"}
            document["source"] |= found if topics is self.joining else {"topics": topics} if topics[1:] else {"topic": topics[0]}
            document["quarantine"] = {"max_share": 1.0, "min_records": 1000}
            for key in ("suite", "layout", "quality"):  # delta-rs, which runs the OPTIMIZE, cannot write clustered tables
                document.pop(key, None)
            file = self.project / "tables" / f"{contract.pipeline}-{contract.table}.yml"
            file.write_text(json.dumps(document), encoding="utf-8")


def _has_committed(writer: Worker, manifest: Path) -> bool:
    """Whether the writer has committed, or has ended and never will."""
    return writer.poll() is not None or '"committed"' in _tail(manifest)


def codes_of(worker: Worker) -> list[str]:
    """The codes of all errors in a process's output."""
    return re.findall(r"^ingest: ([A-Z_]+):", worker.said, re.MULTILINE)


def last_of(worker: Worker) -> str:
    """The last error in a process's output, else its last line."""
    lines = [line for line in worker.said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ingest: ")]
    return (errors or lines or ["no output"])[-1][:400]


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""


def _tail(path: Path, length: int = 4096) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - length))
        return file.read().decode(errors="replace")
    return ""
