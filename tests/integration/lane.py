"""A lane: one topic on the real broker, one contract, its Delta tables and checkpoint; runs end by themselves (availableNow)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, Row, SparkSession

from ingest import faults
from ingest.contract import Contract
from ingest.delta_sql import DataFusion
from ingest.errors import IngestError
from ingest.files import LocalFiles
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.prove.verify import Verified, verify
from ingest.stream.batch import BatchReport
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.mark import Mark
from ingest.stream.query import TableQuery, Trigger
from ingest.stream.rebase import Rebased, Rebaser
from ingest.stream.rebase_plan import Aim, Kind
from ingest.stream.topic import describe


class Record(NamedTuple):
    """A record to send; text becomes UTF-8."""

    value: bytes | str | None
    partition: int = 0
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Lane:
    """A table's way from Kafka to Delta."""

    def __init__(self, session: SparkSession, contract: Contract, bootstrap_servers: str, folder: Path) -> None:
        self.session = session
        self.contract = contract
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
        self.query: TableQuery | None = None

    def send(self, *records: Record | str) -> None:
        """Send outside of any transaction: offsets follow each other without a gap."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, acks="all", max_request_size=11 * 2**20)
        self._send(producer, records)
        producer.close()

    def transaction(self, *records: Record | str, commit: bool = True) -> None:
        """Send in a transaction; committed or aborted it leaves a marker in each partition that it touched."""
        name = f"{self.contract.source.topic}-{id(records)}"
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, acks="all", transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        self._send(producer, records)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        producer.close()

    def _send(self, producer: KafkaProducer, records: Sequence[Record | str]) -> None:
        for each in records:
            record = Record(each) if isinstance(each, str) else each
            value = record.value.encode() if isinstance(record.value, str) else record.value
            topic = self.contract.source.topic
            producer.send(topic, value, key=record.key, partition=record.partition, headers=list(record.headers)).get(timeout=30)

    def run(self, max_records: int | None = None) -> list[BatchReport]:
        """Read what is there, as `ingest run --once` does; raises what stopped the query."""
        reports: list[BatchReport] = []
        kafka = KafkaOptions(self.bootstrap_servers)
        topic = describe(kafka, self.contract.source.topic)
        self.query = query = TableQuery(self.contract, self.places, kafka, topic, reports.append)
        query.start(self.session, Trigger(once=True), max_records)
        while not query.poll():
            time.sleep(0.02)
        error = query.finish(self.session)
        if error is not None:
            raise error
        return reports

    def rebase(self, kind: Kind = "table", offsets: dict[int, int] | None = None, *, accept_gap: bool = False) -> Rebased:
        """As `ingest rebase` does it."""
        kafka = KafkaOptions(self.bootstrap_servers)
        rebaser = Rebaser(self.session, self.contract, self.places, kafka, describe(kafka, self.contract.source.topic))
        try:
            aim = Aim(kind, tuple((offsets or {}).items()))
            return rebaser.finish() if rebaser.interrupted else rebaser.publish(rebaser.plan(aim, accept_gap=accept_gap))
        finally:
            for held in rebaser.locks:
                held.release()

    def verified(self) -> Verified:
        """As `ingest verify` sees it, without a JVM."""
        return verify(DataFusion(), self.contract, self.places)

    def sql(self, statement: str, table: str = "target") -> None:
        """Somebody's own statement on a table, `{}` in it."""
        self.session.sql(statement.format(f"delta.`{self.places.root}/{table}`")).collect()

    def arm(self, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
        """The next runs meet this fault (`after_quarantine:raise@1`), until the environment says otherwise: the lake is scratch."""
        Path(self.places.lake).mkdir(exist_ok=True)
        (Path(self.places.lake) / faults.SCRATCH).touch()
        monkeypatch.setenv("INGEST_FAULT", fault)

    def stopped(self, max_records: int | None = None) -> IngestError:
        """Run, and return the error that stops it."""
        try:
            reports = self.run(max_records)
        except IngestError as error:
            return error
        raise AssertionError(f"the run was not stopped: {reports}")

    def target(self) -> DataFrame:
        return self.session.read.format("delta").load(self.places.target)

    def quarantine(self) -> DataFrame:
        return self.session.read.format("delta").load(self.places.quarantine)

    def ledger(self) -> list[Row]:
        """The ledger's rows by batch and partition."""
        rows = self.session.read.format("delta").load(self.places.ledger)
        return rows.orderBy("committed_at", "batch_id", "partition").collect()

    def ids(self) -> list[Any]:
        return sorted(row["id"] for row in self.target().select("id").collect())

    def log(self, table: str = "target") -> DeltaLog:
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def batches(self, table: str = "target") -> list[tuple[Commit, Mark]]:
        """The commits that are batches of ours, in the order of their versions."""
        return [(commit, commit.mark) for commit in self.log(table).since(-1) if commit.mark is not None]

    def versions(self) -> dict[str, int]:
        """The newest version of each table."""
        return {table: max(self.log(table).versions(), default=-1) for table in ("target", "quarantine", "ledger")}

    def checkpoint(self, name: str) -> Path:
        return Path(self.places.checkpoint) / name

    def forget_commit(self, number: int) -> None:
        """As a crash between the batch's commits and Spark's commit log leaves the checkpoint."""
        for name in (str(number), f".{number}.crc"):
            (self.checkpoint("commits") / name).unlink(missing_ok=True)

    def forget_batch(self, number: int) -> None:
        """As a checkpoint of before batch `number` was planned."""
        self.forget_commit(number)
        for name in (str(number), f".{number}.crc"):
            (self.checkpoint("offsets") / name).unlink(missing_ok=True)

    def clean_log(self) -> None:
        """As Delta does after 30 days: a checkpoint of the target's log stays, the commits before it go."""
        self.sql("ALTER TABLE {} SET TBLPROPERTIES (somebody = 'else')")
        jvm: Any = self.session._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.session._jsparkSession, self.places.target).checkpoint()
        for version in self.log().versions()[:-1]:
            (Path(self.places.target) / f"_delta_log/{version:020}.json").unlink()

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.places.checkpoint)


def order(id: Any, **fields: Any) -> str:
    """A JSON object with this id."""
    return json.dumps({"id": id, **fields}, ensure_ascii=False)


def two_batches(lane: Callable[..., Lane], **more: object) -> Lane:
    """a in batch 0, b and a poison record in batch 1."""
    one = lane(**more)
    one.send(order("a"))
    one.run()
    one.send(order("b"), "{")
    one.run()
    return one
