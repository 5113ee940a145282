"""A batch whose Spark job fails is read again in halves, until the records that make it fail are found: none stops a table (I5).

They go to quarantine as `unwritable`, with the bytes that our own reader of Kafka's log brings: Spark may be unable to hand them over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from ingest.decode.arrow_json import DETAIL
from ingest.decode.decoder import with_source
from ingest.decode.events import UNKNOWN_MAX
from ingest.decode.headers import HEADERS, structs, texts_of
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.log.log_reader import records_at
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.query_failure import cause_of, is_of_environment

T = TypeVar("T")
Ranges = tuple[OffsetRange, ...]
# Kafka's consumer decompresses a whole poll, whatever the range: a hundred records of 30 MB are one small batch of the log.
OFFSETS_A_POLLED_RECORD = 1000
# A record at which no worker fails, as Spark's source delivers it.
HARMLESS = "SELECT CAST(NULL AS BINARY) key, CAST(NULL AS BINARY) value, CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) headers, "
HARMLESS += "0 source, 0 partition, 0L offset, CAST(NULL AS TIMESTAMP) timestamp"
# What `Events` refuses.
RECORDS = pa.schema(
    [("_source", pa.int16()), ("_partition", pa.int32()), ("_offset", pa.int64()), ("__key", pa.binary()), ("__value", pa.binary())]
)
RECORDS = RECORDS.append(pa.field("__headers", pa.string())).append(pa.field(DETAIL, pa.string()))


@dataclass(frozen=True)
class Source:
    """The topics of a table by number, to be read again. `options` are those of Spark's stream."""

    kafka: KafkaOptions
    topics: Mapping[int, str]
    options: Mapping[str, str]

    def read(self, session: SparkSession, ranges: Ranges) -> DataFrame:
        """The records of these ranges, as the stream would deliver them."""
        starts, ends = defaultdict[str, dict[int, int]](dict), defaultdict[str, dict[int, int]](dict)
        for each in ranges:
            topic = self.topics[each.source]
            starts[topic][each.partition], ends[topic][each.partition] = each.start, each.end
        polled = min(int(self.options["kafka.max.poll.records"]), 1 + sum(map(len, ranges)) // OFFSETS_A_POLLED_RECORD)
        what = {"assign": {topic: [*each] for topic, each in starts.items()}, "startingOffsets": starts, "endingOffsets": ends}
        options = {**self.options, "kafka.max.poll.records": str(polled)}
        del options["subscribe"]
        options |= {name: json.dumps(value) for name, value in what.items()}
        found = with_source(session.read.format("kafka").options(**options).load(), self.topics)
        return found.select("key", "value", "headers", "source", "partition", "offset", "timestamp")

    def in_halves(
        self, records: DataFrame, ranges: Ranges, attempt: Callable[[DataFrame], T], failure: Exception
    ) -> tuple[list[T], DataFrame, pa.RecordBatch]:
        """What `attempt` makes of the records that can be read, these records, and the others (RECORDS, with the cause).

        `failure` is what `attempt` raised for all `records`. A record is to blame only if `attempt` fails twice for it alone, and then
        works for a harmless one. Raises the failure if no record is: if it is one of the environment, if Kafka does not have the record
        any more, or if there are more than UNKNOWN_MAX.
        """
        session, left = records.sparkSession, [tuple(filter(len, ranges))]
        found: list[T] = []
        good: list[Ranges] = []
        bad: list[dict[str, Any]] = []
        alone: Ranges = ()
        self._raise_if_of_environment(failure)
        _forget_fetched(session)
        while left and left[-1]:
            part = left.pop()
            try:
                found.append(attempt(self.read(session, part)))
                good.append(part)
                continue
            except Exception as error:
                self._raise_if_of_environment(error)
                failure = error
            _forget_fetched(session)
            if sum(map(len, part)) > 1:
                left += reversed(_halves(part))
                continue
            if alone != part:
                alone = part
                left.append(part)
                continue
            attempt(session.sql(HARMLESS))
            with TopicReader(self.kafka, self.topics[part[0].source]) as reader:
                one = list(records_at(reader, part[0].partition, [part[0].start]))
            if not one or len(bad) == UNKNOWN_MAX:
                raise failure
            text = texts_of(pa.array([structs(one[0].headers)], HEADERS))[0].as_py()
            cause = f"a record of {one[0].too_large} bytes at offset {one[0].offset}" if one[0].too_large else cause_of(failure)
            values = (*part[0].of, part[0].start, one[0].key, one[0].value, text, cause)
            bad.append(dict(zip(RECORDS.names, values, strict=True)))
        read = reduce(DataFrame.union, (self.read(session, each) for each in good), session.sql(HARMLESS).where("false"))
        return found, read, pa.RecordBatch.from_pylist(bad, RECORDS)

    def _raise_if_of_environment(self, error: Exception) -> None:
        if is_of_environment(self.kafka, ", ".join(self.topics.values()), error):
            raise error


def _forget_fetched(session: SparkSession) -> None:
    """Close the Kafka consumers that Spark keeps for minutes, with what they have fetched: those of failed attempts would fill the heap.

    Never use one of them again: after an OutOfMemoryError inside a batch of the log, a consumer goes on behind the record without a word.
    """
    jvm: Any = session._jvm
    with suppress(Py4JError, TypeError):  # a platform's own Spark may have them elsewhere, and an executor without heap has ended
        consumers = jvm.org.apache.spark.util.Utils.classForName("org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$", True, False)
        for name in ("consumerPool", "fetchedDataPool"):
            pool = consumers.getDeclaredField(name)
            pool.setAccessible(True)
            pool.get(None).reset()


def _halves(ranges: Ranges) -> tuple[Ranges, Ranges]:
    left = sum(map(len, ranges)) // 2
    first, second = [], []
    for each in ranges:
        middle = each.start + min(left, len(each))
        left -= middle - each.start
        first.append(replace(each, end=middle))
        second.append(replace(each, start=middle))
    return tuple(filter(len, first)), tuple(filter(len, second))
