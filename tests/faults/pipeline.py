"""A scratch lake with its contracts, topic, checkpoints and manifests: everything of one scenario, in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ingest.local.poison import POISON_KINDS
from ingest.local.producer import Produced, produce_sample
from ingest.local.sample import ORDERS
from ingest.oracle.judge import Run, Verdict, judge, judge_live
from ingest.oracle.sources import Commit, KafkaView, read_log
from tests.faults.driver import REPOSITORY, Driver

# Few columns, so that a batch takes a moment.
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
# Of the sample's broken records those whose id can be read, and which this contract and the repository's own refuse.
REFUSED = frozenset(
    kind.name for kind in POISON_KINDS if kind.topic == ORDERS and kind.id_readable and not kind.by_contract and kind.breaks in PAYLOAD
)


def with_jvm(*options: str) -> dict[str, str]:
    """The environment of a run whose JVM has these options.

    The JVM's second compiler pays off after minutes, not in a batch of two thousand records: half the processor time without. Without it
    the JVM also keeps a fifth of the room for compiled code, which a run of three tables has filled up: its end, with exit code 50.
    """
    quick = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC", *options)
    return {"INGEST_DRIVER_JAVA_OPTIONS": " ".join(quick), "INGEST_DRIVER_MEMORY": "1g", "INGEST_MASTER": "local[2]"}


@dataclass
class Pipeline:
    """One scenario. `tables` all read `topic`; the first is the one that most methods mean."""

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
        """Write the contracts, with `changes` of this pipeline's settings first."""
        for name, value in changes.items():
            setattr(self, name, value)
        for table in self.tables:
            text = CONTRACT.format(table=table, topic=self.topic, batch=self.batch, max_share=self.max_share)
            (self.project / "tables" / f"{table}.yml").write_text(text, encoding="utf-8")

    def produce(self, events: int, *, poison: int = 0, seed: int = 1, **mix: Any) -> Produced:
        """Write orders into the topic: transactions, a quarter as many aborted, one event in ten sent again."""
        manifest = self.folder / f"manifest-{len(self.manifests)}.jsonl"
        self.manifests.append(manifest)
        mix = {"transaction_records": 500, "aborted_share": 0.25, "duplicate_share": 0.1, "topics": {ORDERS: self.topic}, **mix}
        return produce_sample(self.bootstrap_servers, events=events, poison=poison, seed=seed, manifest=manifest, **mix)

    def start(self, *arguments: str, fault: str | None = None, environment: Mapping[str, str] | None = None) -> Driver:
        """`ingest run` with these arguments (`--once` if none are given) and this fault."""
        return self.command("run", *(arguments or ("--once",)), fault=fault, environment=environment)

    def command(self, *words: str, fault: str | None = None, environment: Mapping[str, str] | None = None, reader: str = "") -> Driver:
        """`ingest` with these words, on this scenario's places; `reader` as in Driver."""
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
        # A Python that is killed cannot tidy up; what it leaves goes with the scenario's folder. What its JVM leaves is in the lake.
        outside = {"TMPDIR": str(temporary)}
        settings = {**with_jvm(), **places, **outside, **self.environment, **more, **(environment or {})}
        driver = Driver(list(words), settings, log, self.code, reader)
        self.drivers.append(driver)
        return driver

    def complete(self) -> str:
        """Run without a fault until all is read; what the run said."""
        return self.start().ended(0)

    def refused(self, code: str) -> str:
        """A start is refused with this code, and writes nothing; what it says mends it."""
        before = [len(self.commits(kind)) for kind in KINDS]
        error = json.loads(self.start("--once", "--json").ended(3))["tables"][0]["error"]
        assert error["code"] == code, error
        assert [len(self.commits(kind)) for kind in KINDS] == before
        return str(error["remedy"])

    def verified(self) -> list[dict[str, Any]]:
        """What `ingest verify` says of each table; fails if it finds anything."""
        said = json.loads(self.command("verify", "--json").ended(0))
        assert said["ok"] is True, said
        return list(said["tables"])

    def crash(self, fault: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Driver:
        """Run until the fault kills it; neither Python nor JVM is left."""
        driver = self.start(*arguments, fault=fault, environment=environment)
        driver.ended(-9)
        return driver

    def close(self) -> None:
        """End what a failed test left behind."""
        for driver in self.drivers:
            driver.kill_all()

    def checkpoint(self, table: str | None = None) -> Path:
        return self.checkpoints / "shop" / (table or self.tables[0])

    def lock(self, table: str | None = None) -> Path:
        return self.checkpoint(table) / "oncelake" / "lock"

    def locked_by(self, driver: Driver) -> bool:
        """Whether the checkpoint's lock names this driver, which must not have ended."""
        assert driver.process.poll() is None, driver.said
        return self.lock().exists() and f'"python_pid": {driver.pid}' in self.lock().read_text(encoding="utf-8")

    def numbers(self, log: str, table: str | None = None) -> list[int]:
        """The batches in Spark's `offsets` or `commits`."""
        folder = self.checkpoint(table) / log
        return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit()) if folder.is_dir() else []

    def planned(self, batch: int) -> dict[int, int]:
        """Where a batch of the first table is to end, by partition, as its offset log has it; empty if it has none."""
        path = self.checkpoint() / "offsets" / str(batch)
        ends = json.loads(path.read_text(encoding="utf-8").splitlines()[2])[self.topic] if path.exists() else {}
        return {int(partition): end for partition, end in ends.items()}

    def spark_log(self) -> str:
        """What Spark has said in all runs."""
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in (self.lake / "logs").rglob("*.log"))

    def delta(self, kind: str = "target", table: str | None = None) -> Path:
        return self.lake / "shop" / (table or self.tables[0]) / kind

    def commits(self, kind: str = "target", table: str | None = None) -> list[Commit]:
        return read_log(self.delta(kind, table))

    def written(self, kind: str = "target", table: str | None = None) -> list[int]:
        """The batches that the table's commits carry the pair of, in the order of the commits."""
        return [version for commit in self.commits(kind, table) for app_id, version in commit.txns if app_id.endswith(f"/{kind}")]

    def version_of(self, batch: int, table: str | None = None) -> int:
        """The version of the target that is this batch."""
        return next(c.version for c in self.commits("target", table) for app, n in c.txns if app.endswith("/target") and n == batch)

    def orphans(self) -> set[str]:
        """Data files of the target that no commit knows."""
        known: set[str] = set()
        for log in (self.delta() / "_delta_log").glob("*.json"):
            for line in log.read_text().splitlines():
                action = json.loads(line)
                known.update(Path(action[kind]["path"]).name for kind in ("add", "remove") if kind in action)
        return {path.name for path in self.delta().rglob("*.parquet") if "_delta_log" not in path.parts} - known

    def judge(self, table: str | None = None, *, kafka: KafkaView | None = None, **changes: Any) -> Verdict:
        """Ask the oracle, of what Kafka shows now or has shown (`kafka`)."""
        name = table or self.tables[0]
        run = Run(self.lake, "shop", name, self.topic, ("order_id",), PAYLOAD, tuple(self.manifests), refused_kinds=REFUSED)
        run = replace(run, **changes)
        return judge_live(run, self.bootstrap_servers) if kafka is None else judge(run, kafka)
