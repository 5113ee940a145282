"""The error of a table whose Spark query failed: what Kafka or the disk did, or QUERY_FAILED."""

from __future__ import annotations

import re

from ingest.contract.definition import Contract
from ingest.kafka import kafka_errors
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import diagnose
from ingest.runtime.errors import RunStopped

# Java's messages. Some of them name the path.
DISK_FULL = re.compile(r"(?:(?P<path>/[^\n()]+) \()?(?P<what>No space left on device|Disk quota exceeded)")


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
