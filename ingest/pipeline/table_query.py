"""One StreamingQuery of one table: from the contract to a running query and to its end."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ingest.contract.definition import Contract
from ingest.decode.rule_check import check_rules
from ingest.delta import writer as commits
from ingest.kafka import kafka_errors
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Ends, Topic, describe, diagnose, still_the_same, topic_state
from ingest.kafka.topic_state import TopicState
from ingest.pipeline import table_lock
from ingest.pipeline.batch import BatchReport, Table, process
from ingest.recovery.epoch import open_epoch
from ingest.recovery.state_reader import EPOCH_FILE
from ingest.runtime import crash_points
from ingest.runtime.errors import IngestError, RunStopped
from ingest.runtime.files import files_of, is_local
from ingest.runtime.places import Places
from ingest.runtime.spark import jvm_pid

# A broker that is gone ends a run within about 95 s (three calls of 30 s), one that is started again within that does not. Spark's and
# Kafka's own numbers (60 s a call, 120 s a poll) make that three minutes, even for a topic that was deleted.
PATIENCE = {"kafka.default.api.timeout.ms": "30000", "kafkaConsumer.pollTimeoutMs": "60000"}

# After the last records of a topic a consumer at once asks for more; Spark's next question on that connection (where does the topic
# end?) waits behind that one, for half a second of every batch with Kafka's own number.
PROMPT = {"kafka.fetch.max.wait.ms": "50"}

# A batch is read at once and as a whole: larger fetches than Kafka's own 500 records and 1 MB take a sixth less of the reading.
LARGE = {"kafka.max.poll.records": "5000", "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}

# What ends a query and may pass: a new epoch reads again what was not committed. More often than this it does not pass.
PASSING = ("QUERY_FAILED", "CHECKPOINT_GONE")
REOPENED_MAX = 3

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
    """A table's query; `error` is what ended it, None while all is well, `said` what its starts have put right."""

    def __init__(
        self, contract: Contract, places: Places, kafka: KafkaOptions, topic: Topic, on_batch: Callable[[BatchReport], None]
    ) -> None:
        self.contract = contract
        self.places = places
        self.error: BaseException | None = None
        self._lock: table_lock.HeldLock | None = None
        self._kafka = kafka
        self._topic = topic
        self._ends = Ends(kafka, topic, contract.source.isolation_level)
        self._on_batch = on_batch
        self._stop = threading.Event()
        self._ahead = ThreadPoolExecutor(1)
        self._in_batch = False
        self._query: StreamingQuery | None = None
        self._table: Table | None = None
        self._again: Callable[[], None]
        self._reopened = 0
        self.said: list[str] = []

    def start(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        """Take the lock, open an epoch, then start the query. Raises IngestError; nothing runs then."""
        self._lock = table_lock.hold_table(session, self.places)
        try:
            check_rules(session, self.contract)
            if self._local:
                crash_points.arm(Path(self.places.lake), jvm_pid(session))  # once: a fault that has struck does not strike the next epoch
            self._open(session, trigger, max_records)
        except BaseException:
            self._release()
            raise

    def _open(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        epoch = open_epoch(session, self.contract, self.places, self._state)
        self.said += [f"{self.places.name}: {each}" for each in epoch.healed]
        if self._local:
            crash_points.watch(Path(epoch.checkpoint), Path(self.places.target))
        self._again = partial(self._open, session, trigger, max_records)
        files, ahead = files_of(self.places.checkpoints, session), None if trigger.once else self._ahead
        self._table = Table(self.contract, self.places, epoch, files, self._still_ours, ahead)
        records = session.readStream.format("kafka").options(**self._source_options(epoch.starts, max_records)).load()
        writer = records.writeStream.foreachBatch(self._batch).option("checkpointLocation", epoch.checkpoint)
        self._query = writer.queryName(self.places.name).trigger(**trigger.options()).start()

    @property
    def _local(self) -> bool:
        return is_local(self.places.lake) and is_local(self.places.checkpoints)

    def _state(self) -> TopicState:
        self._topic = describe(self._kafka, self.contract.source.topic)  # again: partitions may have been added
        return topic_state(self._kafka, self._topic, self.contract.source.isolation_level)

    def reopen(self) -> str | None:
        """Open another epoch where the query was ended by something that may pass: an executor that was lost with the batch at hand, a
        checkpoint that was deleted beneath it. Returns what to say, None where the query's end stands.

        A batch that was committed is not read again, one that was not is.
        """
        failure = None if self._stop.is_set() else self._failure()
        if failure is None or failure.code not in PASSING or self._reopened >= REOPENED_MAX:
            return None
        epoch = self._table.epoch if self._table is not None else None
        if epoch is not None and (later := commits.overtaken(epoch.look_back.target, epoch.fence)) is not None:
            self.error = later  # whoever stood still until its checkpoint was removed must not fence the run that went on
            return None
        self._reopened += 1
        self.error, self._query = None, None
        try:
            self._again()
        except Py4JNetworkError:
            raise  # the JVM is gone, and with it all tables
        except Exception as error:
            self.error = error
        return f"{failure.found} A new epoch is opened ({self._reopened} of {REOPENED_MAX})."

    def _source_options(self, starts: Mapping[int, int], max_records: int | None) -> dict[str, str]:
        source = self.contract.source
        options = {
            # Kafka refuses a call's time limit below the request's; whoever sets that has thought about both.
            **({} if "request.timeout.ms" in self._kafka.options else PATIENCE),
            **PROMPT,
            **LARGE,
            **self._kafka.for_spark(),
            "subscribe": source.topic,
            "startingOffsets": json.dumps({source.topic: {str(partition): offset for partition, offset in starts.items()}}),
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
            self._on_batch(report)
        except BaseException as error:
            # Kept here: on its way through the JVM an exception becomes text.
            self.error = self.error or error
            raise
        finally:
            self._in_batch = False

    def _still_ours(self) -> None:
        if self._lock is not None:
            self._lock.refuse_lost()
        still_the_same(self._kafka, self._topic, self.places.name)

    def ask_to_stop(self) -> None:
        """Let the batch at hand end; a later one is not begun."""
        self._stop.set()

    def poll(self) -> bool:
        """Whether the query has ended; ends it once a stop was asked for and no batch is at hand."""
        if self._query is None or not self._query.isActive:
            return True
        if self._stop.is_set() and not self._in_batch:
            self._query.stop()
            return True
        return False

    def lag(self, report: BatchReport) -> int | None:
        """Offsets in the topic behind the end of this batch; None if the broker does not say. Call it from one thread."""
        return self._ends.lag(report.ends)

    def finish(self) -> IngestError | None:
        """Append what the ledger lacks and let the lock go; returns what ended the query, if it did not end well."""
        failure = self._failure()
        self._ends.close()
        self._ahead.shutdown(cancel_futures=True)  # before Spark is stopped, which would leave it without an answer
        try:
            if self._table is not None:
                self._table.epoch.ledger.append()
                crash_points.at("finish_ledger", 0)
        except Exception as error:
            failure = failure or stopped(self.contract, self._kafka, error)
        self._release()
        return failure

    def _release(self) -> None:
        """Nothing of this query can commit any more; other tables of the run go on, and this one may be mended meanwhile."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def _failure(self) -> IngestError | None:
        if isinstance(self.error, StopRequested):
            self.error = None
            return None
        if isinstance(self.error, IngestError):
            return self.error
        if self.error is not None:
            return stopped(self.contract, self._kafka, self.error)
        exception = self._query.exception() if self._query is not None else None
        if exception is None or (self._stop.is_set() and self._checkpoint_gone()):
            return None  # of a run that was asked to stop Spark only cannot note the last batch any more
        return stopped(self.contract, self._kafka, exception)

    def _checkpoint_gone(self) -> bool:
        return self._table is not None and self._table.files.read(f"{self._table.epoch.checkpoint}/{EPOCH_FILE}") is None


def stopped(contract: Contract, kafka: KafkaOptions, error: BaseException) -> RunStopped:
    """The error of a table whose query was ended by something that has no name of ours; Kafka's troubles and a full disk have names."""
    said = kafka_errors.everything_said(error)
    failure = kafka_errors.from_java(kafka, contract.source.topic, said)
    if failure is not None:
        return diagnose(kafka, contract.source.topic, failure).stopped(contract.name)
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
