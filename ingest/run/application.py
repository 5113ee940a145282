"""A run: one Spark application with one query per table, until everything is read or a stop is requested."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from ingest.batch.batch import BatchReport
from ingest.contract.definition import Contract
from ingest.delta.delta_sql import Unreadable
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.query_failure import stopped
from ingest.kafka.topic import Topic, topic_states, topics_of
from ingest.recovery.idle import Waiting, waiting
from ingest.run import platform, table_lock
from ingest.run.display import Display
from ingest.run.table_query import TableQuery, Trigger, Upkeep
from ingest.run.writer_setting import Writer
from ingest.runtime import spark
from ingest.runtime.errors import IngestError, Refused, RunStopped
from ingest.runtime.files import environment_error, is_local
from ingest.runtime.places import Places, refuse_nested, spark_log

POLL_S = 0.1
# With fewer offsets to read, a run spends most of its time on starting Java.
MANY = 500_000
# A dying JVM closes its sockets a moment before its process is gone.
JVM_ENDS_WITHIN_S = 5.0


class Interrupted(BaseException):
    """Raised by a signal before any query has started, wherever the start is waiting: nothing has to be finished first."""


class Checks(Protocol):
    """Validates tables during a run; called from one thread."""

    def saw(self, report: BatchReport) -> None:
        """A batch is done."""

    def due(self, table: str) -> bool:
        """Whether a check of this table (`pipeline.table`) is due."""
        ...

    def check(self, session: SparkSession, places: Places, *, at_work: bool) -> IngestError | None:
        """Check a table, while its query runs (`at_work`) or after its end; returns the error that must end its run, if any."""
        ...


@dataclass
class TableResult:
    """The totals of a run for one table; `error` is the reason if the table stopped early."""

    table: str
    batches: int = 0
    records_read: int = 0
    inserted: int = 0
    duplicate: int = 0
    quarantined: int = 0
    error: IngestError | None = None


@dataclass
class Application:
    """The settings of a run; `interrupted` is the signal that ended it, if any: SIGPIPE if the reader of its output has gone."""

    contracts: Sequence[Contract]
    lake: str
    checkpoints: str
    kafka: KafkaOptions
    master: str
    trigger: Trigger
    max_records: int | None = None
    checks: Checks | None = None
    upkeep: Upkeep | None = None
    writer: Writer = Writer.AUTO
    interrupted: int | None = None
    _offsets: int = 0
    _absent: ModuleNotFoundError | None = None
    _reports: list[BatchReport] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def execute(self, display: Display) -> list[TableResult]:
        """Run to the end. Raises IngestError only if it concerns all tables; the error of a single table is in its result.

        A module that is not installed concerns all: ModuleNotFoundError is raised as soon as every table has ended.
        """
        results = {c.name: TableResult(c.name) for c in self.contracts}
        log = spark_log(self.lake, "run")
        try:
            queries = self._prepare(display, results)
            if not queries:
                return list(results.values())
            session = spark.start(self.master, log, short=self.trigger.once and self._offsets < MANY)
            # From here on a signal only sets a flag. Spark's own handler of Ctrl-C would cancel the current batch.
            self._listen(at_once=False)
        except Interrupted:
            display.note("stopped before anything was read")
            return list(results.values())
        try:
            platform.ensure(session, self.lake)
            started = []
            for query in queries:
                if self.interrupted is not None:
                    break
                try:
                    query.start(session, self.trigger, self.max_records)
                    started.append(query)
                    self._say(query, display)
                except IngestError as error:
                    _end_table(display, results[query.contract.name], error)
                except ModuleNotFoundError as error:
                    self._absent = error
                    break
                except Exception as error:
                    cut_off = isinstance(error, Py4JNetworkError | OSError)
                    if spark.jvm_exit(session, JVM_ENDS_WITHIN_S if cut_off else 0) is not None:
                        raise
                    failure = environment_error(error) or stopped(query.contract, self.kafka, error)
                    _end_table(display, results[query.contract.name], failure)
            display.ready([q.contract.name for q in started], log)
            self._watch(session, started, display, results)
        except (Py4JError, OSError) as error:
            _raise_jvm_gone(session, log, error)
            raise
        finally:
            for query in queries:
                query.ask_to_stop()  # after an error that concerns all tables, an upkeep would keep this process
            _end(session, log)
        return list(results.values())

    def _prepare(self, display: Display, results: dict[str, TableResult]) -> list[TableQuery]:
        """The queries of the tables whose topic exists and whose lock is free; the error of any other table is in its result."""
        self._listen(at_once=True)
        queries: list[TableQuery] = []
        for contract in self.contracts:
            places = Places(self.lake, self.checkpoints, contract.pipeline, contract.table)
            try:
                refuse_nested(places)
                topics = topics_of(self.kafka, contract.source)  # first, because starting Spark takes seconds
                if not all(topic.id for topic in topics):
                    display.note(f"{contract.name}: the broker reports no topic id, so a recreated topic cannot be detected")
                table_lock.wait_for(places, display.note)
                found = self._waiting(contract, places, topics)
                self._offsets += MANY if found is None else found.offsets
                query = TableQuery(contract, places, self.kafka, topics, self._on_batch, self.upkeep, writer=self.writer)
                idle = found is not None and not found.offsets and self.trigger.once and self.checks is None
                if found is None or not idle or (found.epoch and not query.begin()):
                    queries.append(query)
                else:
                    self._say(query, display)
            except IngestError as error:
                _end_table(display, results[contract.name], error)
        return queries

    def _waiting(self, contract: Contract, places: Places, topics: Sequence[Topic]) -> Waiting | None:
        """Count the unread offsets without Spark; None if that is impossible.

        So a refusal takes only a second, and a scheduled run with nothing to read ends without Spark.
        """
        if not (is_local(self.lake) and is_local(self.checkpoints)):
            return None
        try:
            return waiting(contract, places, lambda: topic_states(self.kafka, topics, contract.source.isolation_level))
        except (Unreadable, Refused) as error:
            if isinstance(error, Refused) and error.code != "LEDGER_UNREADABLE":
                raise
            return None  # the start uses Spark for what deltalake cannot read

    def _listen(self, *, at_once: bool) -> None:
        """Let SIGTERM and Ctrl-C end the run: `at_once` wherever it is, else after the current batch."""

        def heard(number: int, _: Any) -> None:
            first, self.interrupted = self.interrupted is None, number
            if at_once and first:
                raise Interrupted

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, heard)

    def _watch(self, session: SparkSession, queries: Sequence[TableQuery], display: Display, results: dict[str, TableResult]) -> None:
        reported = False
        refused: dict[str, IngestError] = {}
        active = list(queries)
        while active:
            if display.gone and self.interrupted is None:
                self.interrupted = signal.SIGPIPE
            if self.interrupted is not None and not reported:
                display.stopping()
                reported = True
            if self.interrupted is not None or self._absent is not None:
                for query in active:
                    query.ask_to_stop()
            ended = [query for query in active if query.poll() and not self._reopened(session, query, display)]
            active = [query for query in active if query not in ended]
            self._show(queries, display, results)
            for query in queries:
                self._say(query, display)
            for query in ended:
                try:
                    failure = query.finish() or refused.get(query.contract.name)
                except ModuleNotFoundError as error:
                    self._absent = self._absent or error
                    continue
                if failure is None and self.trigger.once and self.interrupted is None and self._absent is None:
                    failure = self._checked(session, query, at_work=False)
                _end_table(display, results[query.contract.name], failure)
            for query in active:
                due = self.checks is not None and self.interrupted is None and self.checks.due(query.contract.name)
                if due and (failure := self._checked(session, query, at_work=True)):
                    refused[query.contract.name] = failure
                    query.ask_to_stop()
            display.tick()
            if active:
                time.sleep(POLL_S)
        if self._absent is not None:
            raise self._absent

    def _reopened(self, session: SparkSession, query: TableQuery, display: Display) -> bool:
        if self.interrupted is not None or spark.jvm_exit(session) is not None or (note := query.reopen()) is None:
            return False
        display.reopened(query.contract.name, note)
        self._say(query, display)
        return True

    def _say(self, query: TableQuery, display: Display) -> None:
        for note in query.notes:
            display.healed(query.contract.name, note)
        query.notes.clear()
        while query.maintained:  # another thread may add one
            display.note(query.maintained.pop(0))

    def _checked(self, session: SparkSession, query: TableQuery, *, at_work: bool) -> IngestError | None:
        return self.checks.check(session, query.places, at_work=at_work) if self.checks else None

    def _show(self, queries: Sequence[TableQuery], display: Display, results: dict[str, TableResult]) -> None:
        with self._guard:
            reports, self._reports = self._reports, []
        if not reports:
            return
        of_table = {query.contract.name: query for query in queries}
        for report in reports:
            result = results[report.table]
            result.batches += 1
            result.records_read += report.records_read
            result.inserted += report.inserted
            result.duplicate += report.duplicate
            result.quarantined += report.quarantined
            display.batch(report, of_table[report.table].lag(report))
            if self.checks is not None:
                self.checks.saw(report)

    def _on_batch(self, report: BatchReport) -> None:
        with self._guard:
            self._reports.append(report)


def _end_table(display: Display, result: TableResult, error: IngestError | None) -> None:
    result.error = error
    display.ended(result.table, error)


def _end(session: SparkSession, log: Path) -> None:
    """Stop Spark, unless its JVM is gone. Raises RunStopped JVM_GONE if the JVM dies meanwhile."""
    if spark.jvm_exit(session) is not None:
        return
    try:
        spark.end(session)
    except (Py4JError, OSError) as error:
        _raise_jvm_gone(session, log, error)
        raise


def _raise_jvm_gone(session: SparkSession, log: Path, error: BaseException) -> None:
    """Raise RunStopped JVM_GONE in place of Py4J's error; returns if the JVM still runs."""
    if (code := spark.jvm_exit(session, JVM_ENDS_WITHIN_S)) is None:
        return
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    raise RunStopped(
        "JVM_GONE",
        f"the JVM of Spark's driver {how} during the run.",
        expected="a JVM that runs as long as its Python process; if the kernel killed it, it often had too little memory.",
        remedy=f"read {log}, check the memory (INGEST_DRIVER_MEMORY) and run again: interrupted batches are then completed, once.",
    ) from error
