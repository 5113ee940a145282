"""The error of a table whose Spark query failed: what Kafka or the disk did, or QUERY_FAILED."""

from __future__ import annotations

import re

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
    r"\[Errno \d+\]|ModuleNotFoundError|java\.nio\.file\.|java\.io\.FileNotFound|InterruptedException|SPARK_JOB_CANCELLED|"
    "SparkContext was shut down|stopped SparkContext"
)
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
    """Turn an unexpected error that ended a table's query into RunStopped: a Kafka failure, DISK_FULL, or QUERY_FAILED for any other."""
    if isinstance(error, ModuleNotFoundError):
        raise error  # it concerns all tables: the command names the missing extra
    said = kafka_errors.everything_said(error)
    failure = kafka_errors.from_java(kafka, contract.source.topic, said)
    if failure is not None:
        return diagnose(kafka, contract.source.topic, failure).stopped(contract.name)
    if (full := DISK_FULL.search(said)) is not None:
        where = f" for {full['path']}" if full["path"] else ""
        return RunStopped(
            "DISK_FULL",
            f"{contract.name}: {full['what'].lower()}{where}.",
            expected="free space for the lake, the checkpoints and Spark's temporary files (`df` shows which disk is full).",
            remedy="free space and run again: the interrupted batch is then completed, once; VACUUM removes what the failed write left.",
        )
    text = kafka.without_secrets(str(error)).strip().splitlines()
    return RunStopped(
        "QUERY_FAILED",
        f"{contract.name}: {type(error).__name__}: {text[0][:500] if text else 'no message'}",
        expected="a query that runs until it is stopped.",
        remedy="read Spark's log, fix the cause and run again: the interrupted batch is then completed, once.",
    )
