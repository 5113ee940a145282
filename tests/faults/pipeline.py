"""A scratch lake with its contracts, topic, checkpoints and manifests: everything that one scenario needs, in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
from deltalake import DeltaTable

from ingest.lab.oracle import JudgedRun, OracleVerdict, judge, judge_live
from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import KafkaView, Number, OracleCommit, read_kafka, read_log
from ingest.lab.samples.poison_records import POISON_KINDS
from ingest.lab.samples.sample_producer import Produced, produce_sample
from ingest.lab.samples.shop import ORDERS
from ingest.runtime.crash_points import FIRST_BATCH
from ingest.runtime.spark import ONE_COMPILER
from tests.faults.driver import REPOSITORY, Driver

# Few columns, so that a batch is fast.
CONTRACT = """\
pipeline: shop
table: {table}
source: {{topic: {topic}, format: json, max_records_per_batch: {batch}}}
columns:
  - {{name: order_id, type: STRING, nullable: false}}
  - {{name: customer_id, type: STRING, nullable: false}}
  - {{name: status, type: STRING, nullable: false}}
  - {{name: currency, type: STRING, nullable: false}}
  - {{name: amount, type: "DECIMAL(18,2)", nullable: false}}
  - {{name: ordered_at, type: TIMESTAMP, nullable: false}}
event_id: [order_id]
event_time: ordered_at
rules:
  - {{name: amount_not_negative, check: amount >= 0}}
  - {{name: status_known, check: "status IN ('placed', 'paid', 'shipped', 'cancelled')"}}
quarantine: {{max_share: {max_share}, min_records: 100}}
"""
KINDS = ("target", "quarantine", "ledger")
PAYLOAD = ("customer_id", "status", "currency", "amount", "ordered_at")
# The sample's broken records whose id can be read and which both this contract and the repository's own reject.
REFUSED = frozenset(
    kind.name for kind in POISON_KINDS if kind.topic == ORDERS and kind.id_readable and not kind.by_contract and kind.breaks in PAYLOAD
)


# For what only Delta in Spark can meet, such as another class that stores its commits.
BY_SPARK = {"INGEST_WRITER": "spark"}


def with_jvm(*options: str) -> dict[str, str]:
    """The environment of a run whose JVM has these options.

    The JVM's second compiler pays off after minutes, not in a batch of two thousand records; without it, a run takes half the CPU time.
    But without it the JVM also reserves only a fifth of the code cache. A run of three tables filled that up and ended with exit code 50.
    """
    quick = (ONE_COMPILER, "-XX:+UseSerialGC", *options)
    return {"INGEST_DRIVER_JAVA_OPTIONS": " ".join(quick), "INGEST_DRIVER_MEMORY": "1g", "INGEST_MASTER": "local[2]"}


def ranges(batch: OracleCommit) -> dict[int, tuple[int, int]]:
    """The ranges of a batch, by partition of its one topic."""
    return {partition: each for (_, partition), each in batch.ranges.items()}


def _without_rows(path: Path) -> bool:
    try:
        return int(parquet.read_metadata(path).num_rows) == 0
    except pyarrow.ArrowInvalid:  # torn
        return False


@dataclass
class Pipeline:
    """One scenario. All `tables` read `topic`; most methods default to the first table."""

    folder: Path
    bootstrap_servers: str
    topic: str
    tables: tuple[str, ...] = ("orders",)
    batch: int = 2000
    max_share: float = 0.2
    code: Path = REPOSITORY
    environment: Mapping[str, str] = field(default_factory=dict)
    manifests: list[Path] = field(default_factory=list)
    drivers: list[Driver] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.lake, self.checkpoints, self.project / "tables"):
            folder.mkdir(parents=True)
        (self.lake / ".scratch").touch()
        self.write_contracts()

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def write_contracts(self, **changes: Any) -> None:
        """Apply `changes` to this pipeline's settings, then write the contracts."""
        for name, value in changes.items():
            setattr(self, name, value)
        for table in self.tables:
            text = CONTRACT.format(table=table, topic=self.topic, batch=self.batch, max_share=self.max_share)
            (self.project / "tables" / f"{table}.yml").write_text(text, encoding="utf-8")

    def produce(self, events: int, *, poison: int = 0, seed: int = 1, **mix: Any) -> Produced:
        """Produce orders in transactions. By default one event in ten is sent again, and aborted transactions add a quarter."""
        manifest = self.folder / f"manifest-{len(self.manifests)}.jsonl"
        self.manifests.append(manifest)
        mix = {"transaction_records": 500, "aborted_share": 0.25, "duplicate_share": 0.1, "topics": {ORDERS: self.topic}, **mix}
        return produce_sample(self.bootstrap_servers, events=events, poison=poison, seed=seed, manifest=manifest, **mix)

    def start(self, *arguments: str, fault: str | None = None, environment: Mapping[str, str] | None = None) -> Driver:
        """Start `ingest run` with these arguments (default: `--once`) and this fault."""
        return self.command("run", *(arguments or ("--once",)), fault=fault, environment=environment)

    def command(self, *words: str, fault: str | None = None, environment: Mapping[str, str] | None = None, reader: str = "") -> Driver:
        """Start `ingest` with these words in this scenario's folders. `reader` as in Driver."""
        more = {"INGEST_FAULT": fault} if fault else {}
        places = {
            "INGEST_PROJECT": str(self.project),
            "INGEST_LAKE": str(self.lake),
            "INGEST_CHECKPOINTS": str(self.checkpoints),
            "INGEST_BOOTSTRAP_SERVERS": self.bootstrap_servers,
        }
        log = self.folder / f"run-{len(self.drivers)}.log"
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        # A killed Python cannot delete its temporary files; they go with the scenario's folder. The JVM's temporary files are in the lake.
        outside = {"TMPDIR": str(temporary)}
        settings = {**with_jvm(), **places, **outside, **self.environment, **more, **(environment or {})}
        driver = Driver(list(words), settings, log, self.code, reader)
        self.drivers.append(driver)
        return driver

    def complete(self) -> str:
        """Run without a fault until everything is read; return the output."""
        return self.start().ended(0)

    def refused(self, code: str) -> str:
        """Check that a start is refused with this code and writes nothing; return the remedy that it names."""
        before = [len(self.commits(kind)) for kind in KINDS]
        error = json.loads(self.start("--once", "--json").ended(3))["tables"][0]["error"]
        assert error["code"] == code, error
        assert [len(self.commits(kind)) for kind in KINDS] == before
        return str(error["remedy"])

    def verified(self) -> list[dict[str, Any]]:
        """The report of `ingest verify` for each table; fails if it finds anything."""
        report = json.loads(self.command("verify", "--json").ended(0))
        assert report["ok"] is True, report
        return list(report["tables"])

    def seek(self, *to: str, table: str = "orders") -> str:
        """`ingest seek` to the table's end, or as these words say; return the output."""
        return self.command("seek", table, "--to", *(to or ("table",))).ended(0)

    def crash(self, fault: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Driver:
        """Run until the fault kills the driver; neither Python nor the JVM is left."""
        driver = self.start(*arguments, fault=fault, environment=environment)
        driver.ended(-9)
        return driver

    def close(self) -> None:
        """Kill the drivers that a failed test left behind."""
        for driver in self.drivers:
            driver.kill_all()

    def root(self, table: str | None = None) -> Path:
        """The folder of a table's target, quarantine and ledger."""
        return self.lake / "shop" / (table or self.tables[0])

    def lock(self, table: str | None = None) -> Path:
        return self.root(table) / "lock"

    def locked_by(self, driver: Driver) -> bool:
        """Whether the lock names this driver. Fails if the driver has ended."""
        assert driver.process.poll() is None, driver.said
        return self.lock().exists() and f'"python_pid": {driver.pid}' in self.lock().read_text(encoding="utf-8")

    def checkpoint(self, table: str | None = None) -> Path:
        """The newest epoch's checkpoint; without one, the folder of all checkpoints."""
        folder = self.checkpoints / "shop" / (table or self.tables[0])
        return max((each for each in folder.glob("*") if each.name.isdigit()), key=lambda each: int(each.name), default=folder)

    def numbers(self, log: str) -> list[int]:
        """The batches in Spark's `offsets` or `commits` of the newest epoch, numbered within the epoch."""
        return sorted(int(path.name) + FIRST_BATCH for path in (self.checkpoint() / log).glob("*") if path.name.isdigit())

    def planned(self, batch: int) -> dict[int, int]:
        """The planned end offsets of a batch of the newest epoch, by partition, from its offset log."""
        lines = (self.checkpoint() / "offsets" / str(batch - FIRST_BATCH)).read_text(encoding="utf-8").splitlines()
        return {int(partition): end for partition, end in json.loads(lines[2])[self.topic].items()}

    def spark_log(self) -> str:
        """Spark's log of all runs."""
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in (self.lake / "logs").rglob("*.log"))

    def delta(self, kind: str = "target", table: str | None = None) -> Path:
        return self.root(table) / kind

    def commits(self, kind: str = "target", table: str | None = None) -> list[OracleCommit]:
        return read_log(self.delta(kind, table))

    def batches(self, kind: str = "target", table: str | None = None) -> list[OracleCommit]:
        """The batch commits of target or quarantine."""
        return [commit for commit in self.commits(kind, table) if commit.kind == "batch"]

    def written(self, kind: str = "target", table: str | None = None) -> list[Number]:
        """Epoch and number of the batches, in commit order."""
        return [commit.number for commit in self.batches(kind, table)]

    def ledgered(self, table: str | None = None) -> set[Number]:
        """The batches in the ledger."""
        rows = select(self.delta("ledger", table), ["why", "epoch", "batch"])
        return {(epoch, batch) for why, epoch, batch in rows if why == "batch"}

    def epoch(self, table: str | None = None) -> int:
        """The newest epoch in the target; 0 if there is none."""
        return max(0, *(commit.number[0] for commit in self.commits("target", table)), 0)

    def epochs(self) -> set[int]:
        """The epochs that have written batches."""
        return {epoch for epoch, _ in self.written()}

    def ends(self) -> dict[int, int]:
        """The end offsets of the newest batch, by partition."""
        return {partition: end for partition, (_, end) in ranges(self.batches()[-1]).items()}

    def restore(self, kind: str, version: int, table: str | None = None) -> int:
        """Let another engine restore one of the tables; return the version of that commit."""
        DeltaTable(str(self.delta(kind, table))).restore(version)
        return self.commits(kind, table)[-1].version

    def orphans(self) -> set[str]:
        """Data files of the target that no commit names, except files without rows, which a fence leaves behind."""
        known: set[str] = set()
        for log in (self.delta() / "_delta_log").glob("*.json"):
            for line in log.read_text().splitlines():
                action = json.loads(line)
                known.update(Path(action[kind]["path"]).name for kind in ("add", "remove") if kind in action)
        return {path.name for path in self.delta().glob("**/part-*.parquet") if path.name not in known and not _without_rows(path)}

    def shown(self) -> KafkaView:
        """All records that the topic contains now."""
        return read_kafka(self.bootstrap_servers, self.topic, ("order_id",), PAYLOAD)

    def judge(self, table: str | None = None, *, kafka: KafkaView | None = None, **changes: Any) -> OracleVerdict:
        """The oracle's verdict, against the records in Kafka now or those read earlier (`kafka`)."""
        name = table or self.tables[0]
        run = JudgedRun(self.lake, "shop", name, (self.topic,), ("order_id",), PAYLOAD, tuple(self.manifests), refused_kinds=REFUSED)
        run = replace(run, **changes)
        return judge_live(run, self.bootstrap_servers) if kafka is None else judge(run, kafka)
