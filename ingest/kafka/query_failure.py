"""The error of a table whose Spark query failed: what Kafka or the disk did, or QUERY_FAILED."""

from __future__ import annotations

import os
import re
import traceback

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from ingest.contract.definition import Contract
from ingest.kafka import kafka_errors
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import diagnose
from ingest.runtime.errors import IngestError, RunStopped

# Java's messages. Some of them name the path.
DISK_FULL = re.compile(r"(?:(?P<path>/[^\n()]+) \()?(?P<what>No space left on device|Disk quota exceeded)")

# Other failures that no record causes: an error of the system, a missing package, a job that was cancelled, a Spark that was stopped.
ENVIRONMENT = re.compile(
    r"^(?:Caused by: |: )?(?:[\w.]*Error: \[Errno \d|ModuleNotFoundError|java\.nio\.file\.|java\.io\.FileNotFound|"
    r"[\w.]+InterruptedException)|SPARK_JOB_CANCELLED|SparkContext was shut down|stopped SparkContext",
    re.MULTILINE,
)
# What a worker says without a package that it needs, and where Spark says which one it was.
ABSENT = re.compile(r"^ModuleNotFoundError: No module named '(\w+)|PACKAGE_NOT_INSTALLED\] (\w+)", re.MULTILINE)
EXECUTOR = re.compile(r"\((\S+) executor (\S+?)\)")
# The classes of an exception's causes, as Java and Python print them.
CLASSES = re.compile(r"^(?:Caused by: |: )?((?:\w+\.)*\w+(?:Exception|Error))\b", re.MULTILINE)


def cause_of(error: BaseException) -> str:
    """The class of the innermost cause, without its message, which may quote a value of a record."""
    named = CLASSES.findall(kafka_errors.everything_said(error)) if isinstance(error, (Py4JError, PySparkException)) else []
    return str(named[-1].rpartition(".")[2]) if named else type(error).__name__


def is_of_environment(kafka: KafkaOptions, topic: str, error: BaseException) -> bool:
    """Whether the failure of a job has its cause around the records: the broker, a disk, the JVM, a package, a stop."""
    if isinstance(error, (IngestError, OSError, ImportError, Py4JNetworkError)):
        return True
    said = kafka_errors.everything_said(error)
    return bool(DISK_FULL.search(said) or ENVIRONMENT.search(said) or kafka_errors.from_java(kafka, topic, said))


def stopped(contract: Contract, kafka: KafkaOptions, error: BaseException) -> RunStopped:
    """Turn an unexpected error that ended a table's query into RunStopped.

    It is a Kafka failure, DISK_FULL, WORKER_PACKAGE_MISSING, or QUERY_FAILED for any other. The error's notes (`add_note`) say where the
    query was. The message quotes no value of a record.
    """
    if isinstance(error, ModuleNotFoundError):
        raise error  # it concerns all tables: the command names the missing extra
    said = kafka_errors.everything_said(error)
    failure = kafka_errors.from_java(kafka, contract.source.shown, said)
    if failure is not None:
        return diagnose(kafka, contract.source, failure).stopped(contract.name)
    if (full := DISK_FULL.search(said)) is not None:
        where = f" for {full['path']}" if full["path"] else ""
        return RunStopped(
            "DISK_FULL",
            f"{contract.name}: {full['what'].lower()}{where}.",
            expected="free space for the lake, the checkpoints and Spark's temporary files (`df` shows which disk is full).",
            remedy="free space and run again: the interrupted batch is then completed, once; VACUUM removes what the failed write left.",
        )
    if (absent := ABSENT.search(said)) is not None:
        package = (absent[1] or absent[2]).lower()
        executor = EXECUTOR.search(said)  # Spark 4.2 does not say which one it was
        where, host = (f"executor {executor[2]} on {executor[1]}", executor[1]) if executor else ("an executor", "each of them")
        return RunStopped(
            "WORKER_PACKAGE_MISSING",
            f"{contract.name}: the Python of {where} has no package {package}.",
            expected="pyarrow, numpy and msgspec in the Python that executors run (PYSPARK_PYTHON).",
            remedy=f"on {host}: `{os.environ.get('PYSPARK_PYTHON', 'python3')} -m pip install {package}`; then run again.",
        )
    # No message: it may quote values of a record, and this error goes to terminals, logs and alerts.
    frames = [(frame.f_globals["__name__"], line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f" in {name}, line {line}" for name, line in frames if name.startswith("ingest.")]
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    why = f"{cause_of(error)}{f' ({condition})' if condition else ''}{places[-1] if places else ''}"
    return RunStopped(
        "QUERY_FAILED",
        f"{contract.name}: {', '.join((*getattr(error, '__notes__', ()), why))}.",
        expected="a query that runs until it is stopped.",
        remedy="read Spark's log (`logs/` in the lake; beside the checkpoints if the lake is in a store), fix the cause and run again: "
        "the interrupted batch is then completed, once.",
    )
