"""One round's processes and places: broker, proxy, producer, driver; whoever ends is started again until the round does."""

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
from ingest.delta.delta_log import DeltaLog
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.chaos.disk import SmallDisk
from ingest.lab.chaos.event_writer import Settings
from ingest.lab.proxy import Proxy
from ingest.lab.worker import Worker, until
from ingest.pipeline.lock_file import is_free
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.runtime.spark import ONE_COMPILER

POLL_S: Final = 0.05
PARTITIONS: Final = 3
# Many JVMs that live for seconds: what the second compiler would give comes too late for all of them.
JAVA_OPTIONS: Final = f"{ONE_COMPILER} -XX:+UseSerialGC"
# A run that did nothing wrong may end so while a broker, a disk or its own JVM is taken away; every other end is a finding, also where
# a run stopped by itself (exit 5): nobody restores a table here, and none of ours is another's.
ENDS: Final = (3, 4, 5)
ALLOWED: Final = {"LOCKED", "BROKER_UNREACHABLE", "DISK_FULL", "NOT_WRITABLE", "SPARK_NOT_STARTED", "JVM_GONE", "CHECKPOINT_GONE"}
# Of the second driver, which only has to see that the lock is held.
LOCK_WAIT_S: Final = 1.0
# As often as that in a row without a batch in between, a run will not come up again by itself.
FRUITLESS_MAX: Final = 12
# What strikes last can end one driver that is asked to stop, and the one that has just been started; no third.
STOPS_MAX: Final = 3
END_WITHIN_S: Final = 600.0

Say = Callable[[str, str], None]


@dataclass
class SceneCounts:
    """What happened; `ends` are the exit codes and error codes with which drivers ended by themselves."""

    injected: Counter[str] = field(default_factory=Counter)
    sigkills: int = 0
    starts: int = 0
    writers: int = 0
    batches: int = 0
    records: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """For JSON (dataclasses.asdict makes nonsense of a Counter)."""
        return {**vars(self), "injected": dict(self.injected), "ends": dict(self.ends)}

    def add(self, other: SceneCounts) -> None:
        """Sum up rounds."""
        self.injected += other.injected
        self.ends += other.ends
        for name in ("sigkills", "starts", "writers", "batches", "records"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Scene:
    """A round at work. `findings` are wrongs seen while it lasted; the oracle adds its own after it."""

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
        self.home = disk.folder if disk else folder  # of lake and checkpoints
        self.project = folder / "project"
        self.counts = SceneCounts()
        self.findings: list[str] = []
        self.excused: dict[str, set[tuple[str, ...]]] = {contract.name: set() for contract in contracts}
        self.own_versions: dict[str, set[int]] = {contract.name: set() for contract in contracts}
        self.manifests: list[Path] = []
        self.clock_library = clock_library
        self.clock: Mapping[str, str] = {}
        self.driver: Worker | None = None
        self.writer: Worker | None = None
        self.producing = True
        self.read_to_the_end = False
        self._fruitless = 0
        self._done_at_start = 0
        self._logs: dict[str, DeltaLog] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._write_project(contracts, batch_records)
        self.contracts = load_contracts(self.project)
        for contract in self.contracts:
            broker.create_topic(contract.source.topic, PARTITIONS)
        self._settings = Settings(
            bootstrap_servers=proxy.bootstrap_servers, transactional_id="ingest-chaos", project=str(self.project), **settings
        ).save(folder / "writer.json")

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
        """How many batches all targets hold."""
        return sum(map(self.batches_done_of, self.contracts))

    def batches_done_of(self, contract: Contract) -> int:
        """How many batches the log of one target tells of. It is asked often, so what was counted is remembered."""
        log = self._logs.setdefault(contract.name, DeltaLog(LocalFiles(), self.places(contract).target))
        version, batches = self._counted.get(contract.name, (-1, 0))
        for commit in log.since(version):
            version = commit.version
            batches += commit.batch_commit is not None and commit.batch_commit.kind == "batch"
        self._counted[contract.name] = version, batches
        return batches

    def tend(self) -> None:
        """Start again whoever has ended. Never blocks for long."""
        if not self.broker.running:
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
        """Let the round go on for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.tend()
            time.sleep(min(POLL_S, left))

    def wait(self, look: Callable[[], object], within_s: float) -> bool:
        """Tend until `look` returns something true; False if that takes too long or the round has failed."""
        deadline = time.monotonic() + within_s
        while not look():
            if self.findings or time.monotonic() > deadline:
                return False
            self.tend()
            time.sleep(POLL_S)
        return True

    def working(self) -> bool:
        """Whether the present driver's JVM has taken the lock of a table, and lives: its name stays in the lock of one that was killed."""
        driver = self.driver
        return driver is not None and any(self._named(each, driver) for each in self.contracts) and bool(driver.jvms())

    def held(self, contract: Contract, driver: Worker) -> bool:
        """Whether this driver's JVM holds the lock of this table now."""
        return self._named(contract, driver) and not is_free(self.lock(contract))

    def lock(self, contract: Contract) -> Path:
        """The file of a table's lock."""
        return Path(self.places(contract).root) / "lock"

    def _named(self, contract: Contract, driver: Worker) -> bool:
        return f'"python_pid": {driver.pid}' in _text(self.lock(contract))

    def start_driver(self, *arguments: str) -> Worker:
        """`ingest run` with these arguments, on this round's places, with the clock that it is to live with."""
        self.counts.starts += 1
        self._done_at_start = self.batches_done()
        # A run is seldom left alone for the minute after which the ledger is due: every other one appends to it after each batch.
        every = {"INGEST_LEDGER_EVERY_S": "60" if self.counts.starts % 2 else "0"}
        self.driver = self._run(arguments, f"{self.counts.starts:04d}", {**every, **self.clock})
        return self.driver

    def another_driver(self) -> Worker:
        """A second one beside `driver`, which is to find the lock held; who starts it sees to its end."""
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
            "INGEST_DRIVER_JAVA_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={temporary}",
            **more,
        }
        output = self.folder / "runs" / f"{name}.log"
        return Worker([sys.executable, "-m", "ingest", *words], output=output, environment=environment)

    def start_writer(self, *, again: bool = False) -> Worker:
        """The next producer; `again` sends what the one before it sent from its beginning, as after a replay upstream."""
        number = len(self.manifests)
        seed = max(number - 1, 0) if again else number
        manifest = self.folder / f"manifest-{number}.jsonl"
        self.manifests.append(manifest)
        self.counts.writers += 1
        command = [sys.executable, "-m", "ingest.lab.chaos.event_writer", str(self._settings), str(seed), str(manifest)]
        self.writer = Worker(command, output=self.folder / "writer.log", environment={})
        return self.writer

    def note_end(self, driver: Worker, code: int) -> None:
        """Judge how a driver ended that nobody had killed as a whole."""
        if self.batches_done() > self._done_at_start:
            self._fruitless = 0
        else:
            self._fruitless += 1
        if code < 0:
            return
        codes = codes_of(driver)
        self.counts.ends[f"{code} {' '.join(sorted(set(codes))) or '-'}"] += 1
        # At a start the broker that was just taken away is InvalidEnvironment (4), or the JVM that was just killed.
        if code in ENDS and codes and set(codes) <= ALLOWED:
            if self._fruitless >= FRUITLESS_MAX:
                self.findings.append(
                    f"ingest run does not come up again: {self._fruitless} starts in a row without a batch, the last: {last_of(driver)}"
                )
            return
        self.findings.append(f"ingest run ended with exit code {code}, which no fault explains: {last_of(driver)} ({driver.output.name})")

    def finish(self) -> None:
        """The producer stops, the driver stops in order, and what is left is read to the end, also after a finding: the oracle
        can then tell whether data suffered. Adds to `findings`."""
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
        """In order; one that ends by what struck it last is followed by another, to which nothing more happens."""
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
        """In order, so that no transaction is left open; one that was killed just now is followed by another."""
        self.producing = False
        for _ in range(5):
            writer = self.writer
            if writer is None or writer.poll() is not None:
                writer = self.start_writer()
            # A writer that was started just now has to end first what the one before it left open.
            until(partial(_has_committed, writer, self.manifests[-1]), END_WITHIN_S)
            writer.signal(signal.SIGTERM)
            if writer.ended(END_WITHIN_S) == 0:
                self.writer = None
                return
        self.findings.append(f"the producer does not come to an end; it said: {_tail(self.folder / 'writer.log', 400)}")

    def close(self) -> None:
        """Kill what is left; of use at any time."""
        for worker in (self.driver, self.writer):
            if worker is not None:
                worker.signal_all(signal.SIGCONT)
                worker.kill()
        self.driver = self.writer = None

    def _write_project(self, contracts: Sequence[Contract], batch_records: int) -> None:
        """The contracts as scratch: whatever depends on the user's own circumstances is set to what a judgement needs."""
        (self.project / "tables").mkdir(parents=True)
        for folder in (self.lake, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        for contract in contracts:
            document = json.loads(contract.to_json())
            own = {"isolation_level": "read_committed", "starting_offsets": "earliest", "max_records_per_batch": batch_records}
            document["source"] |= own
            document["quarantine"] = {"max_share": 1.0, "min_records": 1000}
            for key in ("suite", "layout", "quality"):  # another engine, which does the OPTIMIZE, cannot write clustered tables
                document.pop(key, None)
            file = self.project / "tables" / f"{contract.pipeline}-{contract.table}.yml"
            file.write_text(json.dumps(document), encoding="utf-8")


def _has_committed(writer: Worker, manifest: Path) -> bool:
    """Whether it has, or never will."""
    return writer.poll() is not None or '"committed"' in _tail(manifest)


def codes_of(worker: Worker) -> list[str]:
    """The codes of all errors that a process named."""
    return re.findall(r"^ingest: ([A-Z_]+):", worker.said, re.MULTILINE)


def last_of(worker: Worker) -> str:
    """The error that a process ended with."""
    lines = [line for line in worker.said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ingest: ")]
    return (errors or lines or ["it said nothing"])[-1][:400]


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""


def _tail(path: Path, length: int = 4096) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - length))
        return file.read().decode(errors="replace")
    return ""
