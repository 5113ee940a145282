"""A lane: one topic on a real broker, its contract, Delta tables and checkpoint. Runs end by themselves (availableNow)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession

from ingest.batch.batch import BatchReport
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import Batch, BatchCommit
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import DataFusion
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import current_states, describe, topics_of
from ingest.ledger.books import joined
from ingest.ledger.ledger_line import Line
from ingest.ledger.ledger_reader import ledger_lines
from ingest.recovery.epoch import Epoch, open_epoch
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.run import table_lock
from ingest.run.table_query import TableQuery, Trigger, Upkeep
from ingest.run.writer_setting import Writer
from ingest.runtime import crash_points
from ingest.runtime.errors import IngestError, InvalidEnvironment, Refused
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from ingest.verify.verdict import Verified

Kind = Literal["table", "earliest", "latest", "offsets"]
DEADLINE_S = 60


class Record(NamedTuple):
    """A record to send, to the contract's first topic if `topic` is empty. Text is encoded as UTF-8."""

    value: bytes | str | None
    partition: int = 0
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    topic: str = ""


class Lane:
    """One table's pipeline from Kafka to Delta."""

    def __init__(self, session: SparkSession, contract: Contract, bootstrap_servers: str, folder: Path, *, direct: bool = False) -> None:
        self.session = session
        self.contract = contract
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
        self.query: TableQuery | None = None
        self.direct = direct  # who writes
        self.auto = False  # let the tables decide

    @property
    def _writer(self) -> Writer:
        return Writer.AUTO if self.auto else Writer.DIRECT if self.direct else Writer.SPARK

    @property
    def topic(self) -> str:
        """The contract's first topic."""
        return self.contract.source.names[0]

    def send(self, *records: Record | str) -> None:
        """Send without a transaction, so that offsets have no gaps."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, acks="all", max_request_size=11 * 2**20)
        self._send(producer, records)
        producer.close()

    def transaction(self, *records: Record | str, commit: bool = True) -> None:
        """Send in a transaction. Committed or aborted, it leaves a marker in each partition that it wrote to."""
        name = f"{self.topic}-{id(records)}"
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
            topic = record.topic or self.topic
            producer.send(topic, value, key=record.key, partition=record.partition, headers=list(record.headers)).get(timeout=30)

    def run(self, max_records: int | None = None, upkeep: Upkeep | None = None) -> list[BatchReport]:
        """Read all available records, as `ingest run --once` does. Raises the error that stopped the query."""
        reports: list[BatchReport] = []
        kafka = KafkaOptions(self.bootstrap_servers)
        topics = topics_of(kafka, self.contract.source)
        self.query = query = TableQuery(self.contract, self.places, kafka, topics, reports.append, upkeep, writer=self._writer)
        query.start(self.session, Trigger(once=True), max_records)
        while not query.poll() or query.reopen() is not None:
            time.sleep(0.02)
        error = query.finish()
        if error is not None:
            raise error
        return reports

    def seek(self, to: Aim | Kind = "table", *, accept_gap: bool = False, offsets: dict[int, int] | None = None) -> Epoch:
        """Seek, as `ingest seek` does."""
        broker = partial(current_states, KafkaOptions(self.bootstrap_servers), self.contract.source)
        aim = to if isinstance(to, Aim) else Aim(to, tuple((("", partition), offset) for partition, offset in (offsets or {}).items()))
        with table_lock.holding(self.session, self.places):
            epoch = open_epoch(self.session, self.contract, self.places, broker, Seeking(aim, accept_gap, f"--to {aim.kind}"))
            epoch.finish()
            return epoch

    def verified(self) -> Verified:
        """The result of `ingest verify`, without a JVM."""
        from ingest.verify.verdict import verify

        return verify(DataFusion(), self.contract, self.places)

    def sql(self, statement: str, table: str = "target") -> None:
        """Run a user's statement on a table; `{}` in it becomes the table."""
        self.session.sql(statement.format(f"delta.`{self.places.root}/{table}`")).collect()

    def arm(self, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
        """Inject a fault such as `after_quarantine:raise@2` into the next runs, until INGEST_FAULT is unset. Marks the lake as scratch."""
        Path(self.places.lake).mkdir(exist_ok=True)
        (Path(self.places.lake) / crash_points.SCRATCH).touch()
        monkeypatch.setenv("INGEST_FAULT", fault)

    def stopped(self, max_records: int | None = None) -> IngestError:
        """Run, and return the error that stops the run."""
        try:
            reports = self.run(max_records)
        except IngestError as error:
            return error
        raise AssertionError(f"the run was not stopped: {reports}")

    def refused(self, code: str) -> Refused:
        """Assert that a start is refused with this code and changes nothing. Returns the error."""
        before = self.versions()
        error = self.stopped()
        assert isinstance(error, Refused), error
        assert (error.code, error.exit_code) == (code, 3), error
        assert self.versions() == before
        return error

    def balanced(self) -> None:
        findings = self.verified().findings
        assert not findings, "\n".join(map(str, findings))

    def target(self) -> DataFrame:
        return self.session.read.format("delta").load(self.places.target)

    def quarantine(self) -> DataFrame:
        return self.session.read.format("delta").load(self.places.quarantine)

    def ledger(self) -> list[Row]:
        """The ledger's lines, ordered by batch and partition."""
        rows = self.session.read.format("delta").load(self.places.ledger)
        return rows.orderBy("epoch", "batch", "why", "partition").collect()

    def accounts(self) -> list[tuple[int, ...]]:
        """Of each batch and partition in the ledger: read, inserted, present, duplicate, quarantined and gap."""
        return figures(joined(ledger_lines(DataFusion(), self.places, "why = 'batch'")))

    def ids(self) -> list[Any]:
        return sorted(row["id"] for row in self.target().select("id").collect())

    def log(self, table: str = "target") -> DeltaLog:
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def batches(self, table: str = "target") -> list[tuple[Commit, BatchCommit]]:
        """The commits of our batches, in the order of their versions."""
        found = [(commit, commit.batch_commit) for commit in self.log(table).since(-1)]
        return [(commit, each) for commit, each in found if each is not None and isinstance(each.case, Batch)]

    def versions(self) -> dict[str, int]:
        """The newest version of each table."""
        return {table: max(self.log(table).versions(), default=-1) for table in ("target", "quarantine", "ledger")}

    def lose_checkpoints(self) -> None:
        shutil.rmtree(self.places.checkpoints)

    def forget_tables(self) -> None:
        """Clear Delta's cache of table states, because in reality the next start has a new JVM."""
        jvm: Any = self.session._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)

    def expire(self, before: int, partition: int = 0, topic: str = "") -> None:
        """Make Kafka delete the records before this offset."""
        client = self.admin()
        client.delete_records({TopicPartition(topic or self.topic, partition): before})
        client.close()

    def make_topic_again(self, topic: str = "") -> None:
        """Delete and recreate the topic, with one partition."""
        client, topic = self.admin(), topic or self.topic
        client.delete_topics([topic])
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                client.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
                break
            except Exception:  # the broker is still deleting
                assert time.monotonic() < deadline
                time.sleep(0.1)
        client.close()
        while True:
            try:
                describe(KafkaOptions(self.bootstrap_servers), topic)
                break
            except InvalidEnvironment:  # the broker's metadata lags a moment behind
                assert time.monotonic() < deadline
                time.sleep(0.1)


def figures(lines: Iterable[Line]) -> list[tuple[int, ...]]:
    """Of each line: records read, inserted, present, duplicate, quarantined, and offsets without a record."""
    return [
        (each.read, each.inserted, each.present or 0, each.duplicate, each.quarantine.rows, each.gap)
        for each in (line.posting for line in lines)
    ]


def order(id: Any, **fields: Any) -> str:
    """A JSON object with this id."""
    return json.dumps({"id": id, **fields}, ensure_ascii=False)


def two_batches(lane: Callable[..., Lane], **more: object) -> Lane:
    """A lane with row a from epoch 1, and row b and a poison record from epoch 2."""
    one = lane(**more)
    one.send(order("a"))
    one.run()
    one.send(order("b"), "{")
    one.run()
    return one
