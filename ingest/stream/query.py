"""One StreamingQuery of one table: from the contract to a running query and to its end."""

from __future__ import annotations

import re
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
from ingest.errors import IngestError, RunStopped
from ingest.files import files_of, is_local
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.spark import jvm_pid
from ingest.stream import kafka_trouble, lock
from ingest.stream.batch import BatchReport, Table, process
from ingest.stream.offsets import CheckpointFiles
from ingest.stream.opening import Opening
from ingest.stream.rules import check_rules
from ingest.stream.topic import Ends, Topic, diagnose, still_the_same

# A broker that is gone ends a run within about 95 s (three calls of 30 s), one that is started again within that does not. Spark's and
# Kafka's own numbers (60 s a call, 120 s a poll) make that three minutes, even for a topic that was deleted.
PATIENCE = {"kafka.default.api.timeout.ms": "30000", "kafkaConsumer.pollTimeoutMs": "60000"}

# After the last records of a topic a consumer at once asks for more; Spark's next question on that connection (where does the topic
# end?) waits behind that one, for half a second of every batch with Kafka's own number.
PROMPT = {"kafka.fetch.max.wait.ms": "50"}

# A batch is read at once and as a whole: larger fetches than Kafka's own 500 records and 1 MB take a sixth less of the reading.
LARGE = {"kafka.max.poll.records": "5000", "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}

# Spark writes commits/N right after foreachBatch has returned; only a broken disk makes that take seconds.
COMMIT_LOG_WITHIN_S = 30.0

# In the words of Java's files, which name the path or do not.
DISK_FULL = re.compile(r"(?:(?P<path>/[^\n()]+) \()?(?P<what>No space left on device|Disk quota exceeded)")


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
    """A table's query; `error` is what ended it, None while all is well, `note` what its start had to say."""

    def __init__(
        self, contract: Contract, places: Places, kafka: KafkaOptions, topic: Topic, on_batch: Callable[[BatchReport], None]
    ) -> None:
        self.contract = contract
        self.places = places
        self.error: BaseException | None = None
        self.note: str | None = None
        self._locks: list[lock.Held] = []
        self._kafka = kafka
        self._topic = topic
        self._ends = Ends(kafka, topic, contract.source.isolation_level)
        self._on_batch = on_batch
        self._stop = threading.Event()
        self._in_batch = False
        self._finished = -1
        self._until: int | None = None
        self._query: StreamingQuery | None = None
        self._table: Table | None = None

    def start(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        """Take the locks, let preflight decide, make sure of tables and ledger, then start the query.

        A batch that was begun under another contract is finished under that one first (I9). Raises IngestError; nothing runs then.
        """
        self._locks = lock.hold_all(session, self.places)
        try:
            self._open(session, trigger, max_records)
        except BaseException:
            self._release()
            raise

    def _open(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        if is_local(self.places.lake) and is_local(self.places.checkpoint):
            faults.arm(Path(self.places.lake), Path(self.places.checkpoint), Path(self.places.target), jvm_pid(session))
        check_rules(session, self.contract)
        opening = Opening(session, self.contract, self.places, self._kafka, self._topic)
        opening.refuse()
        self.note = opening.begins_late
        if finished := (former := opening.unfinished_contract()) is not None:
            assert former is not None
            self._finish_under(session, former, opening, max_records)
            opening = Opening(session, self.contract, self.places, self._kafka, self._topic)
            opening.refuse()
        opening.make_tables()
        faults.at("start_tables", 0)
        opening.refuse_changed_contract()
        opening.bind(anew=finished)
        faults.at("start_bound", 0)
        self._launch(session, self.contract, opening, trigger, max_records)

    def _launch(self, session: SparkSession, contract: Contract, opening: Opening, trigger: Trigger, max_records: int | None) -> None:
        ledger = opening.ledger()
        checkpoint = CheckpointFiles(files_of(self.places.checkpoint, session), self.places.checkpoint)
        self._table = Table(contract, self.places, self._topic, opening.epoch, checkpoint, ledger, self._still_ours)
        faults.at("start_ledger", 0)
        records = session.readStream.format("kafka").options(**self._source_options(contract, max_records)).load()
        writer = records.writeStream.foreachBatch(self._batch).option("checkpointLocation", self.places.checkpoint)
        self._query = writer.queryName(self.places.name).trigger(**trigger.options()).start()

    def _finish_under(self, session: SparkSession, former: Contract, opening: Opening, max_records: int | None) -> None:
        """Do the one batch that was begun under `former`, then stop."""
        self._until = opening.unfinished
        opening.make_tables()
        self._launch(session, former, opening, Trigger(), max_records)
        while not self.poll():
            time.sleep(0.02)
        if (failure := self.finish(session)) is not None:
            raise failure
        self._stop.clear()
        self._until, self._query, self._table = None, None, None

    def _source_options(self, contract: Contract, max_records: int | None) -> dict[str, str]:
        source = contract.source
        options = {
            # Kafka refuses a call's time limit below the request's; whoever sets that has thought about both.
            **({} if "request.timeout.ms" in self._kafka.options else PATIENCE),
            **PROMPT,
            **LARGE,
            **self._kafka.for_spark(),
            "subscribe": source.topic,
            "startingOffsets": source.starting_offsets,
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            # Without it Spark reads records of aborted transactions too.
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
            if number == self._until:
                self._stop.set()
            self._on_batch(report)
        except BaseException as error:
            # Kept here: on its way through the JVM an exception becomes text.
            self.error = self.error or error
            raise
        finally:
            self._in_batch = False

    def _still_ours(self) -> None:
        lock.refuse_lost(self._locks)
        still_the_same(self._kafka, self._topic, self.places.name)

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
        """Append what the ledger lacks and let the locks go; returns what ended the query, if it did not end well."""
        failure = self._failure()
        self._ends.close()
        try:
            if self._table is not None:
                self._table.ledger.append(session)
                faults.at("finish_ledger", 0)
        except Exception as error:
            failure = failure or stopped(self.contract, self._kafka, error)
        if self._until is None:
            self._release()
        return failure

    def _release(self) -> None:
        """Nothing of this query can commit any more; other tables of the run go on, and this one may be mended meanwhile."""
        for held in self._locks:
            held.release()
        self._locks.clear()

    def _failure(self) -> IngestError | None:
        if isinstance(self.error, StopRequested):
            self.error = None
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


def stopped(contract: Contract, kafka: KafkaOptions, error: BaseException) -> RunStopped:
    """The error of a table whose query was ended by something that has no name of ours; Kafka's troubles and a full disk have names."""
    said = kafka_trouble.everything_said(error)
    trouble = kafka_trouble.from_java(kafka, contract.source.topic, said)
    if trouble is not None:
        return diagnose(kafka, contract.source.topic, trouble).stopped(contract.name)
    if (full := DISK_FULL.search(said)) is not None:
        where = f" for {full['path']}" if full["path"] else ""
        return RunStopped(
            "DISK_FULL",
            f"{contract.name}: {full['what'].lower()}{where}.",
            expected="room for the lake, the checkpoints, and what Spark puts down for a while (`df` shows which disk has none).",
            remedy="free space there, and run again: the batch at hand is done then, once; VACUUM removes what the failed write left.",
        )
    text = kafka.without_secrets(str(error)).strip().splitlines()
    return RunStopped(
        "QUERY_FAILED",
        f"{contract.name}: {type(error).__name__}: {text[0][:500] if text else 'no message'}",
        expected="a query that runs until it is told to stop.",
        remedy="read Spark's log, mend the cause, and run again: the batch at hand is done then, once.",
    )
