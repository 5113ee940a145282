"""One StreamingQuery of one table: from the contract to a running query and to its end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ingest import faults
from ingest.contract import Contract
from ingest.errors import IngestError, Refused, RunStopped
from ingest.files import files_of, is_local
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.spark import jvm_pid
from ingest.stream import commit, kafka_trouble, lock
from ingest.stream.batch import BatchReport, Table, process
from ingest.stream.decode import target_fields
from ingest.stream.ledger import Ledger
from ingest.stream.offsets import CheckpointFiles
from ingest.stream.rules import check_rules
from ingest.stream.topic import Ends, Topic, diagnose

# A broker that is gone ends a run within about 95 s (three calls of 30 s), one that is started again within that does not. Spark's and
# Kafka's own numbers (60 s a call, 120 s a poll) make that three minutes, even for a topic that was deleted.
PATIENCE = {"kafka.default.api.timeout.ms": "30000", "kafkaConsumer.pollTimeoutMs": "60000"}

# Spark writes commits/N right after foreachBatch has returned; only a broken disk makes that take seconds.
COMMIT_LOG_WITHIN_S = 30.0


@dataclass(frozen=True)
class Trigger:
    """When micro-batches run: `once` takes what is there and ends; else every `every_s` seconds, 0 meaning back to back."""

    once: bool = False
    every_s: float = 0.0

    def options(self) -> dict[str, Any]:
        """Arguments of DataStreamWriter.trigger."""
        return {"availableNow": True} if self.once else {"processingTime": f"{round(self.every_s * 1000)} milliseconds"}


class StopRequested(Exception):
    """Raised in foreachBatch for a batch that begins after a stop was asked for: it must never count as done."""


class TableQuery:
    """A table's query; `error` is what ended it, None while all is well."""

    def __init__(
        self, contract: Contract, places: Places, kafka: KafkaOptions, topic: Topic, on_batch: Callable[[BatchReport], None]
    ) -> None:
        self.contract = contract
        self.places = places
        self.error: BaseException | None = None
        self._kafka = kafka
        self._topic = topic
        self._ends = Ends(kafka, topic, contract.source.isolation_level)
        self._on_batch = on_batch
        self._stop = threading.Event()
        self._in_batch = False
        self._finished = -1
        self._query: StreamingQuery | None = None
        self._table: Table | None = None

    def start(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        """Make sure of topic, lock, tables and ledger, then start the query. Raises IngestError; nothing runs then."""
        topic = self._topic
        files = files_of(self.places.checkpoint, session)
        if is_local(self.places.checkpoint):
            self._lock = lock.hold(session, Path(self.places.state))
        self._remember(topic, session)
        lake = files_of(self.places.lake, session)
        ledger = Ledger.of(self.places, lake)
        if not all(log.exists() for log in (ledger.target_log, ledger.quarantine_log, ledger.ledger_log)):
            commit.create_tables(session, self.contract, self.places)
        check_rules(session, self.contract)
        self._refuse_other_columns(session)
        checkpoint = CheckpointFiles(files, self.places.checkpoint)
        query_id = checkpoint.query_id()
        ledger.complete(session, query_id)
        self._refuse_lost_checkpoint(checkpoint, ledger, query_id)
        self._table = Table(self.contract, self.places, topic, 0, checkpoint, ledger)
        if is_local(self.places.lake) and is_local(self.places.checkpoint):
            faults.arm(Path(self.places.lake), Path(self.places.checkpoint), Path(self.places.target), jvm_pid(session))
        records = session.readStream.format("kafka").options(**self._source_options(max_records)).load()
        writer = records.writeStream.foreachBatch(self._batch).option("checkpointLocation", self.places.checkpoint)
        self._query = writer.queryName(self.places.name).trigger(**trigger.options()).start()

    def _source_options(self, max_records: int | None) -> dict[str, str]:
        source = self.contract.source
        options = {
            # Kafka refuses a call's time limit below the request's; whoever sets that has thought about both.
            **({} if "request.timeout.ms" in self._kafka.options else PATIENCE),
            **self._kafka.for_spark(),
            "subscribe": source.topic,
            "startingOffsets": source.starting_offsets,
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            # Without it Spark reads records of aborted transactions too (DESIGN trap 22).
            "kafka.isolation.level": source.isolation_level,
        }
        limit = max_records or source.max_records_per_batch
        return {**options, "maxOffsetsPerTrigger": str(limit)} if limit else options

    def _batch(self, records: DataFrame, number: int) -> None:
        self._in_batch = True
        try:
            if self._stop.is_set():
                raise StopRequested
            assert self._table is not None
            report = process(records, number, self._table)
            self._finished = number
            self._on_batch(report)
        except BaseException as error:
            # Kept here: on its way through the JVM an exception becomes text (DESIGN trap 14).
            self.error = self.error or error
            raise
        finally:
            self._in_batch = False

    def ask_to_stop(self) -> None:
        """Let the batch at hand end; a later one is not begun."""
        self._stop.set()

    def poll(self) -> bool:
        """Whether the query has ended; ends it once a stop was asked for and no batch is at hand."""
        if self._query is None or not self._query.isActive:
            return True
        if self._stop.is_set() and not self._in_batch:
            self._await_commit_log()
            self._query.stop()
            return True
        return False

    def lag(self, report: BatchReport) -> int | None:
        """Offsets in the topic behind the end of this batch; None if the broker does not say. Call it from one thread."""
        return self._ends.lag(report.ends)

    def finish(self, session: SparkSession) -> IngestError | None:
        """Append what the ledger lacks; returns what ended the query, if it did not end well."""
        failure = self._failure()
        self._ends.close()
        if self._table is not None:
            try:
                self._table.ledger.append(session)
            except Exception as error:
                return failure or stopped(self.contract, self._kafka, error)
        return failure

    def _failure(self) -> IngestError | None:
        if isinstance(self.error, StopRequested):
            return None
        if isinstance(self.error, IngestError):
            return self.error
        if self.error is not None:
            return stopped(self.contract, self._kafka, self.error)
        exception = self._query.exception() if self._query is not None else None
        return stopped(self.contract, self._kafka, exception) if exception is not None else None

    def _await_commit_log(self) -> None:
        """A batch that foreachBatch has ended is in Spark's commit log a moment later; without it a restart would look at it again."""
        assert self._table is not None
        deadline = time.monotonic() + COMMIT_LOG_WITHIN_S
        while self._finished >= 0 and self._finished not in self._table.checkpoint.numbers("commits") and time.monotonic() < deadline:
            time.sleep(0.01)

    def _remember(self, topic: Topic, session: SparkSession) -> None:
        """Keep topic id and contract beside the checkpoint. Raises Refused TOPIC_RECREATED if the topic is not the one of before."""
        files, path = files_of(self.places.state, session), f"{self.places.state}/topic.json"
        kept = files.read(path)
        if kept is not None and (before := json.loads(kept)) != {"topic": topic.name, "topic_id": topic.id}:
            raise Refused(
                "TOPIC_RECREATED",
                f"the checkpoint of {self.places.name} belongs to topic {before['topic']} with id {before['topic_id']}; "
                f"the broker's topic {topic.name} has id {topic.id}.",
                expected="the same topic: one that was made again starts at offset 0, and its records would be taken for old ones.",
                remedy="read the new topic into a new table, or with a new --checkpoints folder once this one's data is complete.",
            )
        files.write(path, json.dumps({"topic": topic.name, "topic_id": topic.id}).encode())
        # While a batch is unfinished the contract that it was begun with is kept: it may have to be put back.
        checkpoint = CheckpointFiles(files, self.places.checkpoint)
        unfinished = checkpoint.numbers("offsets")[-1:] != checkpoint.numbers("commits")[-1:]
        contract = f"{self.places.state}/contract.json"
        if not unfinished or files.read(contract) is None:
            files.write(contract, self.contract.to_json().encode())

    def _refuse_other_columns(self, session: SparkSession) -> None:
        table = session.read.format("delta").load(self.places.target).schema.fields
        has = {field.name: field.dataType.simpleString() for field in table}
        wants = {field.name: field.dataType.simpleString() for field in target_fields(self.contract)}
        if has != wants:
            differing = sorted(name for name in {*has, *wants} if has.get(name) != wants.get(name))
            each = "; ".join(f"{name}: table {has.get(name, 'lacks it')}, contract {wants.get(name, 'lacks it')}" for name in differing)
            raise Refused(
                "CONTRACT_CHANGED",
                f"the columns of {self.places.target} are not those of the contract {self.contract.name}: {each}.",
                expected="the columns that the table was made with: changing them in place is not supported yet.",
                remedy="undo the change in the contract, or give the table another name in it.",
            )

    def _refuse_lost_checkpoint(self, checkpoint: CheckpointFiles, ledger: Ledger, query_id: str | None) -> None:
        if query_id is None and self.contract.source.starting_offsets != "earliest" and ledger.holds_any():
            raise Refused(
                "CHECKPOINT_LOST",
                f"{checkpoint.root} holds no checkpoint, but {self.places.target} holds batches of this pipeline; the contract starts at "
                f"{self.contract.source.starting_offsets}, so what came in between would be lost.",
                expected="the checkpoint that wrote the table.",
                remedy="put the checkpoint back; or set source.starting_offsets to earliest: what the table holds is not added again.",
            )


def stopped(contract: Contract, kafka: KafkaOptions, error: BaseException) -> RunStopped:
    """The error of a table whose query was ended by something that has no name of ours; Kafka's troubles have names."""
    trouble = kafka_trouble.from_java(kafka, contract.source.topic, kafka_trouble.everything_said(error))
    if trouble is not None:
        return diagnose(kafka, contract.source.topic, trouble).stopped(contract.name)
    text = kafka.without_secrets(str(error)).strip().splitlines()
    return RunStopped(
        "QUERY_FAILED",
        f"{contract.name}: {type(error).__name__}: {text[0][:500] if text else 'no message'}",
        expected="a query that runs until it is told to stop.",
        remedy="read Spark's log, mend the cause, and run again: the batch at hand is done then, once.",
    )
