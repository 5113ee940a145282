"""The streaming query of one table: starts it from the contract, watches it and ends it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ingest.batch.batch import BatchReport, Table, process
from ingest.batch.direct import process_direct
from ingest.batch.halving import Source
from ingest.contract.definition import Contract
from ingest.decode.decoder import with_source
from ingest.decode.rule_check import check_rules
from ingest.delta import writer as commits
from ingest.delta.batch_commit import FIRST_BATCH
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.id_index import IdIndex
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.leader_epochs import LeaderEpochs
from ingest.kafka.offsets import of_source
from ingest.kafka.query_failure import stopped
from ingest.kafka.topic import Ends, Topic, still_the_same, topic_states, topics_of
from ingest.kafka.topic_state import TopicState
from ingest.recovery.epoch import Epoch, open_epoch
from ingest.recovery.state_reader import EPOCH_FILE
from ingest.run import table_lock
from ingest.run.executor_disks import refuse_unshared
from ingest.run.writer_choice import refuse_direct, refuse_raising
from ingest.run.writer_setting import Writer
from ingest.runtime import crash_points
from ingest.runtime.errors import IngestError, InvalidInput, RunStopped
from ingest.runtime.files import files_of, is_local
from ingest.runtime.places import Places
from ingest.runtime.spark import another, jvm_pid

# A run ends about 95 s (three calls of 30 s) after its broker has gone, unless the broker is back by then. With the defaults of Spark
# and Kafka (60 s per call, 120 s per poll) it would take three minutes, even for a deleted topic.
PATIENCE = {"kafka.default.api.timeout.ms": "30000", "kafkaConsumer.pollTimeoutMs": "60000"}

# A consumer that has read the last records of a topic sends its next fetch at once. Spark's request for the end offsets then waits
# behind that fetch on the same connection: with Kafka's default, half a second per batch.
PROMPT = {"kafka.fetch.max.wait.ms": "50"}

# Spark reads a batch as a whole. Fetches larger than Kafka's defaults (500 records, 1 MB) reduce the reading time by a sixth.
LARGE = {"kafka.max.poll.records": "5000", "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}

# Errors that may be temporary: a new epoch reads again whatever was not committed. After REOPENED_MAX epochs the run gives up.
PASSING = ("QUERY_FAILED", "CHECKPOINT_GONE")
REOPENED_MAX = 3


@dataclass(frozen=True)
class Trigger:
    """When micro-batches run: `once` reads the existing records and ends; else one batch every `every_s` seconds (0: back to back)."""

    once: bool = False
    every_s: float = 0.0

    def options(self) -> dict[str, Any]:
        """Arguments of DataStreamWriter.trigger."""
        return {"availableNow": True} if self.once else {"processingTime": f"{round(self.every_s * 1000)} milliseconds"}


class Upkeep(Protocol):
    """Maintains a table during a run."""

    def due(self, places: Places, *, direct: bool) -> Literal["beside", "between"] | None:
        """Whether there is something to do beside the batches, or between two of them. Called ten times a second.

        `direct`: the direct writer writes the batches.
        """
        ...

    def tend(self, session: SparkSession | None, places: Places, stop: Callable[[], bool]) -> list[str]:
        """Do what is due, until `stop`: between two batches with a session, else beside them. Returns notes for the user."""
        ...


class StopRequested(Exception):
    """Raised in foreachBatch for a batch that starts after a stop was requested: Spark must never record it as done."""


class TableQuery:
    """A table's query. `error` is the error that ended it, None without one.

    `notes` says what its starts have repaired, and who writes if `auto` chose Spark; `maintained` what the upkeep did. Raises InvalidInput
    DIRECT_UNFIT for a table that `writer` cannot write, and RULE_INVALID for a row rule that can raise.
    """

    def __init__(
        self,
        contract: Contract,
        places: Places,
        kafka: KafkaOptions,
        topics: Sequence[Topic],
        on_batch: Callable[[BatchReport], None],
        upkeep: Upkeep | None = None,
        *,
        writer: Writer = Writer.AUTO,
    ) -> None:
        self.contract = contract
        self.places = places
        self.error: BaseException | None = None
        self._auto = writer is Writer.AUTO
        self.maintained: list[str] = []
        ids = IdIndex.of(places, self.maintained.append)
        self._direct = DirectWriter(contract, ids=ids) if writer is not Writer.SPARK else None
        refuse_raising(contract)
        self._rules_checked = False
        self.notes: list[str] = []
        if self._direct is not None:
            self._if_fit(partial(refuse_direct, contract, places))
        self._lock: table_lock.HeldLock | None = None
        self._kafka = kafka
        self._topics = topics
        self._ends: Ends | None = None
        self._leader_epochs: LeaderEpochs | None = None
        self._on_batch = on_batch
        self._stop = threading.Event()
        self._ahead = ThreadPoolExecutor(1)
        self._in_batch = False
        self._once = False
        self._finished = False
        self._upkeep = upkeep
        self._caretaker = ThreadPoolExecutor(1)
        self._beside: Future[None] | None = None
        # Held by a batch, by a maintenance through Spark and while an epoch is opened: none of them runs beside another.
        self._turn = threading.Lock()
        self._query: StreamingQuery | None = None
        self._table: Table | None = None
        self._again: Callable[[], None]
        self._reopened = 0

    def start(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        """Take the lock, open an epoch and start the query. Raises IngestError; then no query runs."""
        self._once = trigger.once
        if is_local(self.places.lake):
            refuse_unshared(session, self.places.name, self.places.lake)
        self._lock = table_lock.hold_table(session, self.places, direct=self._direct is not None)
        try:
            if self._local:
                crash_points.arm(Path(self.places.lake), jvm_pid(session))  # once: a fault must not be injected again in the next epoch
            self._open(session, trigger, max_records)
        except BaseException:
            self._release()
            raise

    def begin(self) -> bool:
        """Open an epoch without Spark where nothing is to be read: the first start on an empty topic, or what a crash has left.

        False if the table needs Spark. Raises IngestError.
        """
        if self._direct is None:
            return False
        with table_lock.holding(None, self.places, direct=True):
            crash_points.arm(Path(self.places.lake), None)
            try:
                epoch = open_epoch(None, self.contract, self.places, self._state, writer=self._direct)
            except InvalidInput as error:
                self._let_spark_write(error)
                return False
            epoch.finish()
            self._direct.finish()
        self.notes += [f"{self.places.name}: {each}" for each in epoch.healed]
        return True

    def _open(self, session: SparkSession, trigger: Trigger, max_records: int | None) -> None:
        self._session = session
        self._refuse_lost()
        with self._turn:
            epoch = self._opened(session)
        self.notes += [f"{self.places.name}: {each}" for each in epoch.healed]
        if self._local:
            crash_points.watch(Path(epoch.checkpoint), Path(self.places.target))
        self._again = partial(self._open, session, trigger, max_records)
        files = files_of(self.places.checkpoints, session)
        self._close_clients()
        named = {topic.name: topic for topic in self._topics}
        self._ends = Ends(self._kafka, {number: named[name] for number, name in epoch.topics.items()}, self.contract.source.isolation_level)
        self._leader_epochs = LeaderEpochs(self._kafka, epoch.topics, self.places.name, self._still_ours)
        options = self._source_options(epoch, max_records)
        source, with_epochs = Source(self._kafka, epoch.topics, options), self._leader_epochs.with_epochs
        self._table = Table(self.contract, self.places, epoch, files, self._still_ours, self._refuse_lost, source, with_epochs)
        records = session.readStream.format("kafka").options(**options).load()
        writer = records.writeStream.foreachBatch(self._batch).option("checkpointLocation", epoch.checkpoint)
        self._query = writer.queryName(self.places.name).trigger(**trigger.options()).start()

    def _opened(self, session: SparkSession) -> Epoch:
        if self._direct is not None:
            try:
                # Without Spark: there Delta's classes would be loaded for it alone.
                return open_epoch(None, self.contract, self.places, self._state, writer=self._direct)
            except InvalidInput as error:
                self._let_spark_write(error)
        self._commit_by(session)
        if not self._rules_checked:
            check_rules(session, self.contract)
            self._rules_checked = True
        return open_epoch(session, self.contract, self.places, self._state)

    def _if_fit(self, refuse: Callable[[], None]) -> None:
        try:
            refuse()
        except InvalidInput as error:
            self._let_spark_write(error)

    def _let_spark_write(self, error: InvalidInput) -> None:
        """Go on with the writer through Spark if the table needs it. Raises the error if somebody chose the direct writer."""
        if error.code != "DIRECT_UNFIT" or not self._auto:
            raise error
        self._direct = None
        self.notes.append(f"Delta in Spark writes: {error.found}")

    @property
    def _local(self) -> bool:
        return is_local(self.places.lake) and is_local(self.places.checkpoints)

    def _state(self) -> tuple[TopicState, ...]:
        self._topics = topics_of(self._kafka, self.contract.source)  # again: partitions and topics may have been added
        return topic_states(self._kafka, self._topics, self.contract.source.isolation_level)

    def reopen(self) -> str | None:
        """Open a new epoch if the error that ended the query may be temporary: a lost executor, or a checkpoint deleted during the run.

        Returns a note for the user, or None if the query stays ended. Committed batches are not read again; uncommitted ones are.
        """
        absent = isinstance(self.error, ModuleNotFoundError)  # `finish` raises it
        failure = None if self._stop.is_set() or absent else self._failure()
        if isinstance(failure, InvalidInput) and self._direct is not None and self._auto and failure.code == "DIRECT_UNFIT":
            self._let_spark_write(failure)  # somebody has changed the table meanwhile
        elif failure is None or failure.code not in PASSING or self._reopened >= REOPENED_MAX:
            return None
        if (lost := self._lost()) is not None:
            self.error = lost
            return None
        epoch = self._table.epoch if self._table is not None else None
        if epoch is not None and (later := commits.overtaken(epoch.look_back.target, epoch.fence)) is not None:
            self.error = later  # this run stalled until a later one removed its checkpoint: it must not fence that one
            return None
        self._reopened += 1
        self.error, self._query = None, None
        try:
            self._again()
        except Py4JNetworkError:
            raise  # the JVM is gone, and with it the queries of all tables
        except Exception as error:
            self.error = error
        return f"{failure.found} A new epoch is opened ({self._reopened} of {REOPENED_MAX})."

    def _source_options(self, epoch: Epoch, max_records: int | None) -> dict[str, str]:
        source, topics = self.contract.source, epoch.topics
        starts = {name: {str(p): offset for p, offset in of_source(epoch.starts, number).items()} for number, name in topics.items()}
        options = {
            # Kafka refuses a call timeout below the request timeout. A user who sets the latter is responsible for both.
            **({} if "request.timeout.ms" in self._kafka.options else PATIENCE),
            **PROMPT,
            **LARGE,
            **self._kafka.for_spark(),
            "subscribe": ",".join(topics.values()),
            "startingOffsets": json.dumps(starts),
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            # Without it Spark also reads records of aborted transactions.
            "kafka.isolation.level": source.isolation_level,
        }
        # Spark keeps to it in every trigger, so `--once` reads a long topic in several batches.
        return {**options, "maxOffsetsPerTrigger": str(max_records or source.max_records_per_batch)}

    def _batch(self, records: DataFrame, number: int) -> None:
        self._in_batch = True
        try:
            with self._turn:
                if self._stop.is_set():
                    raise StopRequested
                assert self._table is not None
                records = with_source(records, self._table.epoch.topics)
                if self._direct is not None:
                    report = process_direct(records, number, self._table, self._direct)
                else:
                    report = process(records, number, self._table)
                self._on_batch(report)
                if self._upkeep_due() == "between":
                    self._tend(self._alone())
        except BaseException as error:
            # Kept here, because an exception that passes through the JVM becomes text.
            self.error = self.error or error
            error.add_note(f"batch {number + FIRST_BATCH}{self._ranges(number)}")
            raise
        finally:
            self._in_batch = False

    def _ranges(self, number: int) -> str:
        with suppress(Exception):
            assert self._table is not None
            return f", offsets {' '.join(map(str, self._table.planned(number).ranges))}"
        return ""

    def _upkeep_due(self) -> Literal["beside", "between"] | None:
        if self._upkeep is None or self._stop.is_set():
            return None
        return self._upkeep.due(self.places, direct=self._direct is not None)

    @contextmanager
    def _alone(self) -> Iterator[SparkSession]:
        """A session for an upkeep through Spark, while no batch runs and nobody else commits."""
        # A session of its own: the other tables share the run's, so their commits could carry its metadata.
        session = another(self._session)
        if self._direct is None:
            yield session
            return
        try:
            self._commit_by(session)
            yield session
        finally:
            self._commit_by(None)

    def _commit_by(self, session: SparkSession | None) -> None:
        """Let the JVM of a session commit from now on, or without one this process."""
        if self._beside is not None and session is not None:
            wait([self._beside])  # it commits from this process
        if self._lock is not None:
            self._lock.let_commit(session, shared=session is None)

    def _tend(self, through: AbstractContextManager[SparkSession | None]) -> None:
        """Let the upkeep do what is due. Its failure is a note: it must not end the run. A lost lock ends the run."""
        assert self._upkeep is not None
        if self._ends_as_lost():
            return
        try:
            with through as session:
                self.maintained += self._upkeep.tend(session, self.places, self._ends_upkeep)
        except Exception as error:
            text = str(error).strip().splitlines()
            self.maintained.append(
                f"{self.places.name}: maintenance failed: {type(error).__name__}: {text[0][:300] if text else 'no message'}"
            )

    def _tend_when_idle(self) -> None:
        try:
            self._tend(self._alone())
        finally:
            self._turn.release()

    def _ends_upkeep(self) -> bool:
        return self._stop.is_set() or self._finished or self._ends_as_lost()

    def _refuse_lost(self) -> None:
        if self._lock is not None:
            self._lock.refuse_lost()

    def _lost(self) -> RunStopped | None:
        """The error LOCK_LOST if this run no longer holds its lock."""
        try:
            self._refuse_lost()
        except RunStopped as error:
            return error
        return None

    def _ends_as_lost(self) -> bool:
        """Whether the lock is lost. If so, the run ends with that error: no later batch starts."""
        if (lost := self._lost()) is None:
            return False
        self.error = self.error or lost
        self._stop.set()
        return True

    def _still_ours(self) -> None:
        self._refuse_lost()
        still_the_same(self._kafka, self._topics, self.places.name)

    def ask_to_stop(self) -> None:
        """Stop after the current batch; no later batch starts."""
        self._stop.set()

    def poll(self) -> bool:
        """Whether the query has ended. Ends it if a stop was requested and no batch is running."""
        if self._query is None or not self._query.isActive:
            return True
        if self._stop.is_set() and not self._in_batch:
            self._query.stop()
            return True
        due = None if self._beside is not None and not self._beside.done() else self._upkeep_due()
        if due == "beside":
            self._beside = self._caretaker.submit(self._tend, nullcontext())
        elif due == "between" and not self._in_batch and self._turn.acquire(blocking=False):
            self._ahead.submit(self._tend_when_idle)  # no batch may come for hours, and only a batch would look otherwise
        return False

    def lag(self, report: BatchReport) -> int | None:
        """The number of offsets after the end of this batch; None if the broker does not answer. Call it from one thread only."""
        return self._ends.lag(report.ends) if self._ends is not None else None

    def finish(self) -> IngestError | None:
        """Append the missing ledger rows, unless the lock is lost, and release it; returns the error that ended the query, if any.

        Raises ModuleNotFoundError, after the release: it concerns all tables.
        """
        self._close_clients()
        self._finished = not self._once
        # Before Spark stops, as a call in progress would get no answer, and before the lock is judged: a maintenance may find it lost.
        self._ahead.shutdown(cancel_futures=True)
        self._caretaker.shutdown()
        if self._once and self.error is None:  # the batches may have ended before anybody looked
            if self._upkeep_due() == "beside":
                self._tend(nullcontext())
            if self._upkeep_due() == "between":
                self._tend(self._alone())
        try:
            failure, lost = self._failure(), self._lost()
            try:
                if self._table is not None and lost is None:
                    self._table.epoch.finish(self._session)
                    crash_points.at("finish_ledger", 0)
                    if self._direct is not None and self._once:
                        self._direct.finish()
            except Exception as error:
                failure = failure or stopped(self.contract, self._kafka, error)
            return failure or lost
        finally:
            self._release()

    def _close_clients(self) -> None:
        for client in (self._ends, self._leader_epochs):
            if client is not None:
                client.close()

    def _release(self) -> None:
        """Release the lock: this query can commit nothing more, so its table may be repaired while the run reads other tables."""
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
            return None  # after a stop request, only Spark's own record of the last batch is missing
        return stopped(self.contract, self._kafka, exception)

    def _checkpoint_gone(self) -> bool:
        return self._table is not None and self._table.files.read(f"{self._table.epoch.checkpoint}/{EPOCH_FILE}") is None
