"""The parts of a contract as frozen values; each validates itself when created. checks.py checks how the parts fit together."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, Strict, WithJsonSchema, model_validator

from ingest.contract.problem import refusal, shown
from ingest.contract.sql_type import SqlType, TypeProblem, ddl, not_null_problem, to_spark
from ingest.contract.sql_type_parser import parse_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NAME = r"[a-z][a-z0-9_]*"
COLUMN_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
BESIDE_PIPELINES = ("docs", "logs", "proofs")  # folders beside the pipelines' tables: pages of checks, Spark's output, proof files
TOLERANCE = r"[0-9]+(\.[0-9]+)?"
TOPIC_NAME = r"[a-zA-Z0-9._-]{1,249}"  # Kafka: org.apache.kafka.common.internals.Topic

Text = Annotated[str, Strict()]
Whole = Annotated[int, Strict()]

# A batch's event ids have to fit the driver: it collects 8 bytes for each record, and all of the ids that occur twice. The greatest batch
# takes 400 MB of what Spark lets a driver collect (spark.driver.maxResultSize, 1 GiB).
BATCH_RECORDS, BATCH_RECORDS_MAX = 5_000_000, 50_000_000


def _name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        raise refusal(f"{shown(value)} is not a valid name", f"a name of a-z, 0-9 and _ that starts with a letter ({NAME})")
    return value


def _pipeline(value: str) -> str:
    if value in BESIDE_PIPELINES:
        raise refusal(f"{shown(value)} is a folder of the lake with another purpose", f"a name other than {' and '.join(BESIDE_PIPELINES)}")
    return value


def _topic(value: str) -> str:
    if not re.fullmatch(TOPIC_NAME, value) or value in (".", ".."):
        expected = (
            "a Kafka topic name: 1 to 249 of a-z A-Z 0-9 . _ - (not . or ..; several names are `topics`, a pattern is `topic_pattern`)"
        )
        raise refusal(f"{shown(value)} is not a topic name", expected)
    return value


Name = Annotated[str, Strict(), AfterValidator(_name), Field(json_schema_extra={"pattern": f"^{NAME}$"})]
Pipeline = Annotated[Name, AfterValidator(_pipeline)]


def _topic_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise refusal(
            f"{shown(value)} is not a pattern: {error}", r"a regular expression of Python for whole names, such as orders\..*"
        ) from None
    return value


def _unlike(value: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in value if value.count(name) > 1}):
        raise refusal(f"the topic {shown(twice[0])} appears twice", "each topic once")
    return value


Topic = Annotated[str, Strict(), AfterValidator(_topic), Field(json_schema_extra={"pattern": f"^{TOPIC_NAME}$"})]
OneTopic = Annotated[
    str, Strict(), AfterValidator(lambda value: value and _topic(value)), Field(json_schema_extra={"pattern": f"^{TOPIC_NAME}$"})
]
TopicPattern = Annotated[str, Strict(), AfterValidator(_topic_pattern), Field(min_length=1)]
Topics = Annotated[tuple[Topic, ...], Strict(False), Field(min_length=1), AfterValidator(_unlike)]


def _column_name(value: str) -> str:
    if not re.fullmatch(COLUMN_NAME, value):
        raise refusal(
            f"{shown(value)} is not a column name", "a name of letters, digits and _ that starts with a letter ([A-Za-z][A-Za-z0-9_]*)"
        )
    if value.startswith("_"):
        raise refusal(
            f"{shown(value)} starts with _, which is reserved for provenance columns (_partition, _offset, ...)",
            "a name that starts with a letter",
        )
    return value


def _canonical_type(value: str) -> str:
    try:
        return ddl(parse_type(value))
    except TypeProblem as problem:
        raise refusal(problem.found, problem.expected) from None


class Part(BaseModel):
    """A frozen value that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TopicSource(Part):
    """The source of the records: one topic, or several. `topic` is empty if `topics` or `topic_pattern` say which."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [name]} for name in ("topic", "topics", "topic_pattern")]})

    topic: OneTopic = Field(default="", description="the Kafka topic: 1 to 249 of a-z A-Z 0-9 . _ -")
    topics: Topics | None = Field(default=None, description="a list of Kafka topics, in place of `topic`: all of them fill the table")
    topic_pattern: TopicPattern | None = Field(
        default=None,
        description=r"a regular expression of Python, in place of `topic`: all topics whose whole name it matches fill the table, such as "
        r"orders\..*; each start looks for new ones",
    )
    format: Literal["json", "raw"] = Field(
        description="json (decode the value into the columns) or raw (keep key, value and headers as they are)"
    )
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="read_committed (the default: records of aborted transactions are not read) or read_uncommitted",
    )
    starting_offsets: Literal["earliest", "latest"] = Field(
        default="earliest", description="earliest (the default) or latest; applies only to the table's first start, then the table decides"
    )
    max_records_per_batch: Whole = Field(
        default=BATCH_RECORDS,
        ge=1,
        le=BATCH_RECORDS_MAX,
        description=f"a whole number from 1 to {BATCH_RECORDS_MAX} (default {BATCH_RECORDS}): maximum offsets per micro-batch, including "
        "transaction markers",
    )

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        given = [name for name in ("topic", "topics", "topic_pattern") if getattr(self, name)]
        if len(given) != 1:
            found = f"{' and '.join(given)} were given together" if given else "no topic is named"
            raise refusal(found, "one of topic (a name), topics (a list of names) and topic_pattern (a regular expression)")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that it names; none for a pattern."""
        return self.topics or ((self.topic,) if self.topic else ())

    @property
    def shown(self) -> str:
        """The topics, for a message."""
        return ", ".join(self.names) or f"topics like {self.topic_pattern}"

    @property
    def document(self) -> str | list[str] | dict[str, str]:
        """The topics as JSON values, for the contract's hash."""
        return self.topic or (sorted(self.topics) if self.topics else {"pattern": self.topic_pattern or ""})


class Column(Part):
    """A column of the target, filled from the JSON key of the same name (case-sensitive)."""

    name: Annotated[str, Strict(), AfterValidator(_column_name), Field(json_schema_extra={"pattern": "^[A-Za-z][A-Za-z0-9_]*$"})] = Field(
        description="a name of letters, digits and _ that starts with a letter; the JSON key of the same spelling fills it"
    )
    type: Annotated[str, Strict(), AfterValidator(_canonical_type)] = Field(
        description="a type as text, such as STRING, BIGINT, DECIMAL(18,2), TIMESTAMP, ARRAY<...>, MAP<STRING, ...> or STRUCT<name: type>"
    )
    nullable: Annotated[bool, Strict()] = Field(
        default=True, description="true (the default) or false (a missing or null value sends the record to quarantine)"
    )
    comment: Text | None = Field(default=None, description="text that becomes the column's comment")
    sensitive: Annotated[bool, Strict()] = Field(
        default=False, description="false (the default) or true: personal data, which never appears in check's pages, samples and logs"
    )

    @model_validator(mode="after")
    def _not_null_is_kept(self) -> Self:
        if problem := not_null_problem(self.sql_type, self.nullable, self.name):
            raise refusal(problem.found, problem.expected)
        return self

    @property
    def sql_type(self) -> SqlType:
        """The type as a tree, without pyspark."""
        return parse_type(self.type)

    @property
    def data_type(self) -> DataType:
        """The type as a pyspark type; imports pyspark but starts no JVM."""
        return to_spark(self.sql_type)


EVENT_ID_EXPECTED = "a list of columns ([order_id]), or key, header:<name>, or position (format raw only)"


class EventId(Part):
    """The identity by which batches deduplicate: columns of the event, the record's key, one of its headers, or its position."""

    kind: Literal["columns", "key", "header", "position"]
    columns: tuple[Text, ...] = ()
    header: Text | None = None

    @model_validator(mode="after")
    def _holds_what_its_kind_needs(self) -> Self:
        if (self.kind == "columns") != bool(self.columns) or (self.kind == "header") != bool(self.header):
            raise refusal("an event id without its columns or header, or with parts of another kind", EVENT_ID_EXPECTED)
        if len(set(self.columns)) != len(self.columns):
            raise refusal("the same column twice", "each column of the event id once")
        return self

    def document(self) -> str | list[str]:
        """The event id as a contract file writes it."""
        return list(self.columns) if self.kind == "columns" else f"header:{self.header}" if self.kind == "header" else self.kind


def _read_event_id(value: object) -> object:
    if isinstance(value, EventId):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return EventId(kind="columns", columns=tuple(value))
    if value == "key":
        return EventId(kind="key")
    if value == "position":
        return EventId(kind="position")
    if isinstance(value, str) and value.startswith("header:") and value.removeprefix("header:").strip():
        return EventId(kind="header", header=value.removeprefix("header:").strip())
    hint = f" (a single column is written [{value}])" if isinstance(value, str) and re.fullmatch(COLUMN_NAME, value) else ""
    raise refusal(f"{shown(value)} is not an event id", EVENT_ID_EXPECTED + hint)


_EVENT_ID_SCHEMA = {
    "oneOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
        {"enum": ["key", "position"]},
        {"type": "string", "pattern": "^header:.+$"},
    ]
}
EventIdText = Annotated[EventId, BeforeValidator(_read_event_id), PlainSerializer(EventId.document), WithJsonSchema(_EVENT_ID_SCHEMA)]


class Rule(Part):
    """A row rule: an SQL predicate that must be TRUE. FALSE and NULL both break it and send the record to quarantine."""

    name: Name = Field(description="a name of a-z, 0-9 and _ that starts with a letter; the quarantine reports a broken rule by this name")
    check: Text = Field(description="a deterministic Spark SQL predicate over this table's columns, such as amount >= 0")


def _tolerance(value: str) -> str:
    if not re.fullmatch(TOLERANCE, value):
        raise refusal(f"{shown(value)} is not a tolerance", "a decimal number in quotes, such as '0.00'")
    return value


Tolerance = Annotated[str, Strict(), AfterValidator(_tolerance), Field(json_schema_extra={"pattern": f"^{TOLERANCE}$"})]


class ControlTotal(Part):
    """Sums of columns by day and group, for comparison with figures of another system. It decides nothing about a record."""

    name: Name = Field(description="a name of a-z, 0-9 and _ that starts with a letter; the figures refer to it")
    sum: Annotated[tuple[Text, ...], Strict(False)] = Field(
        min_length=1, description="a list of columns of whole numbers or of DECIMAL with at most 28 digits"
    )
    by: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(), description="a list of columns of type STRING, BOOLEAN, DATE or a whole number that form the groups of a day"
    )
    day: Text = Field(description="the name of a TIMESTAMP, TIMESTAMP_NTZ or DATE column; its day (UTC) is the day of the row")
    tolerance: Tolerance = Field(default="0", description="the largest difference that is accepted, in quotes, such as '0.00' (default 0)")


class QuarantineLimit(Part):
    """A run stops if more than `max_share` (0 to 1) of a batch's records would go to quarantine and the batch has `min_records` or more."""

    max_share: Annotated[float, Strict()] = Field(
        default=0.05, ge=0, le=1, description="a number from 0 to 1; 0.05, the default, is five records in a hundred"
    )
    min_records: Whole = Field(
        default=1000, ge=1, description="a whole number of records of at least 1 (default 1000); smaller batches never stop a run"
    )


class Layout(Part):
    """The layout of the target's files: partitions or clustering, not both."""

    partition_by: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(), description="a list of columns of simple types, with few and evenly filled values, such as a date"
    )
    cluster_by: Annotated[tuple[Text, ...], Strict(False)] = Field(
        default=(), description="a list of one to four columns of simple types (liquid clustering)"
    )


def _suite(value: str) -> str:
    """Check that a suite's path is below the project, so that a contract cannot reach outside its folder."""
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or path.suffix != ".json":
        raise refusal(
            f"{shown(value)} is not a path of a suite below the project",
            "a relative path that ends in .json, such as expectations/orders.json",
        )
    return str(path)


Suite = Annotated[str, Strict(), AfterValidator(_suite), Field(json_schema_extra={"pattern": r"^[^/\\].*\.json$"})]
