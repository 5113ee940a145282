"""From Kafka records to events: one row a record, either with the contract's columns or with the reason why not.

The result has the contract's columns, the provenance columns, the payload's hash, and for records that go to quarantine
`__reason`, `__detail`, and the raw `__key`, `__value`, `__headers` (NULL on good rows, so that a cached batch does not hold
its bytes twice).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract import RAW_COLUMNS, Contract
from ingest.stream import json_shape
from ingest.stream import json_value as J
from ingest.stream.columns import PAYLOAD_HASH, target_fields
from ingest.stream.mark import BatchId
from ingest.stream.payload import payload_hash

HEADERS = T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]))
# Spark's parser skips what follows the first JSON value; inside this wrapper it cannot.
OPEN, CLOSE = '{"r":[', '],"z":0}'
# What could close the wrapper early: rare enough to be looked at twice.
COULD_CLOSE = r"\]\s*,\s*\""
# Beyond it the shape of a text is not looked at: a record of 10 MB would be walked twice.
SHAPED_BYTES_MAX = 1_000_000
# A high surrogate's escape that no low one follows, or a low one's that follows no high one.
HALF_CHARACTER = r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Possessive: a string of megabytes needs no stack.
JSON_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# What a VARIANT changes: it holds 38 digits, and of a number with an exponent what a double holds.
NUMBER_CHANGED = r"\d{39,}|\d[\d.]{39,}|\d[\d.]{15,}[eE]|\d[eE][+-]?0*(?:2[5-9]\d|[3-9]\d\d|[1-9]\d{3,})"


# Name, type, nullable.
Field = tuple[str, T.DataType, bool]


@dataclass(frozen=True)
class Source:
    """Where a batch comes from: the topic's id, which batch it is, and its time."""

    topic_id: str
    id: BatchId
    ingested_at: datetime


class Decoder:
    """Decodes batches of one contract.

    Its expressions are put together once: that takes ten thousand calls into the JVM, a second in every batch otherwise. They live as
    long as the JVM in which they were made.
    """

    def __init__(self, contract: Contract) -> None:
        steps, checks = (_raw if contract.source.format == "raw" else _json)(_Steps(), contract)
        if contract.event_id.kind in ("key", "header"):
            steps, id_checks = _record_event_id(steps, contract)
            checks += id_checks
        steps = steps.with_column("__fault", F.coalesce(*checks, _no_fault()))
        for rule in contract.rules:
            # A rule sees a row only when its columns are right.
            broken = F.col("__fault").isNull() & ~holds(rule.check)
            steps = steps.with_column("__fault", F.when(broken, _fault("broken_rule", F.lit(rule.name))).otherwise(F.col("__fault")))
        failed = F.col("__fault").isNotNull()
        kept = [F.when(failed, F.col(name)).alias(name) for name in ("__key", "__value", "__headers")]
        columns = [F.col(f"`{field.name}`") for field in target_fields(contract) if field.name != PAYLOAD_HASH]
        columns.append(F.when(~failed, payload_hash(contract)).alias(PAYLOAD_HASH))
        self._steps = steps.select(*columns, F.col("__fault.code").alias("__reason"), F.col("__fault.detail").alias("__detail"), *kept)

    def decode(self, records: DataFrame, source: Source) -> DataFrame:
        """Decode what Spark's Kafka source delivers (key, value, headers, topic, partition, offset, timestamp)."""
        frame = records.select(
            F.col("key").alias("__key"),
            F.col("value").alias("__value"),
            F.col("headers").alias("__headers"),
            F.lit(source.topic_id).alias("_topic_id"),
            F.col("partition").alias("_partition"),
            F.col("offset").alias("_offset"),
            F.col("timestamp").alias("_kafka_timestamp"),
            F.timestamp_micros(F.lit(round(source.ingested_at.timestamp() * 1_000_000))).alias("_ingested_at"),
            F.lit(source.id.epoch).alias("_epoch"),
            F.lit(source.id.number).cast("bigint").alias("_batch"),
        )
        return self._steps.apply(frame)


@dataclass(frozen=True)
class _Steps:
    """What is to be done with a frame that is not there yet, in the words of a DataFrame."""

    done: tuple[Callable[[DataFrame], DataFrame], ...] = ()

    def select(self, *columns: Column | str) -> _Steps:
        return _Steps((*self.done, lambda frame: frame.select(*columns)))

    def with_column(self, name: str, column: Column) -> _Steps:
        return _Steps((*self.done, lambda frame: frame.withColumn(name, column)))

    def apply(self, frame: DataFrame) -> DataFrame:
        for step in self.done:
            frame = step(frame)
        return frame


def holds(check: str) -> Column:
    """Whether a row keeps a rule: it must be TRUE; NULL breaks it, as in Delta's CHECK."""
    return F.coalesce(F.expr(f"({check})"), F.lit(False))


def _fault(code: str | Column, detail: Column) -> Column:
    return F.struct((F.lit(code) if isinstance(code, str) else code).alias("code"), detail.cast("string").alias("detail"))


def _no_fault() -> Column:
    return F.lit(None).cast("struct<code:string,detail:string>")


def _raw(steps: _Steps, contract: Contract) -> tuple[_Steps, list[Column]]:
    names = (column.name for column in RAW_COLUMNS)
    return steps.select("*", *(F.col(f"__{name}").alias(name) for name in names)), []


def _record_event_id(steps: _Steps, contract: Contract) -> tuple[_Steps, list[Column]]:
    header = contract.event_id.header
    if header is None:
        found, where = F.col("__key"), "the key"
    else:
        # The last header of a name wins, as in Kafka's own Headers.lastHeader.
        named = F.filter(F.col("__headers"), lambda item: item["key"] == header)
        found, where = F.try_element_at(named, F.lit(-1))["value"], f"header {header}"
    text = found.cast("string")
    checks = [
        F.when(text.isNull() | (F.length(found) == 0), _fault("missing_event_id", F.lit(f"{where} is missing or empty"))),
        F.when(~F.is_valid_utf8(text), _fault("not_utf8", F.lit(where))),
    ]
    return steps.with_column("_event_id", text), checks


def _json(steps: _Steps, contract: Contract) -> tuple[_Steps, list[Column]]:
    """Texts of a known shape are read at once; of all others each token is looked at."""
    columns = [(column.name, column.data_type, column.nullable) for column in contract.columns]
    sure = F.col("__sure")
    steps = _with_quick(steps, columns, others=contract.unknown_fields == "ignore")
    steps, checks = _closely(steps, contract, columns)
    at = {name: F.col("__wire.r")[0][name] for name, _, _ in columns}
    slow = F.struct(*(J.value(kind, at[name]).alias(name) for name, kind, _ in columns))
    steps = steps.with_column("__event", F.when(sure, F.col("__quick")).otherwise(slow))
    event = {name: F.col("__event")[name] for name, _, _ in columns}
    missing = [F.when(event[name].isNull(), _fault("missing_event_id", _id_missing(name))) for name in contract.event_id.columns]
    missing += [F.when(event[n].isNull(), _fault("missing_value", F.lit(n))) for n, _, nullable in columns if not nullable]
    found = F.when(sure, F.coalesce(*missing, _no_fault())).otherwise(F.coalesce(*checks))
    return steps.select("*", *(event[name].alias(name) for name, _, _ in columns)), [found]


def _with_quick(steps: _Steps, columns: list[Field], *, others: bool) -> _Steps:
    """Add `__quick`, the event of a text whose shape is known, and `__sure`, whether it is the right one."""
    fields = [(name, kind) for name, kind, _ in columns]
    text, ordered, loose = F.col("__value").cast("string"), json_shape.in_order(fields), json_shape.in_any_order(fields, others=others)
    nothing = F.lit(None).cast(T.StructType([T.StructField(name, J.nullable(kind)) for name, kind in fields]))
    if ordered is None or loose is None:
        return steps.with_column("__quick", nothing).with_column("__sure", F.lit(False))
    keys = F.json_object_keys(text)
    # Nested, since Spark computes what `|` and `&` have in common even where their left side decides.
    once = F.when(text.rlike(loose), F.size(keys) == F.size(F.array_distinct(keys)))
    known = F.when(text.rlike(ordered), F.lit(True)).otherwise(once)
    short = F.octet_length(text) <= SHAPED_BYTES_MAX
    steps = steps.with_column("__shaped", F.coalesce(F.when(short, F.when(F.is_valid_utf8(text), known)), F.lit(False)))
    schema = T.StructType([*(T.StructField(name, _read_as(kind)) for name, kind in fields), T.StructField("_corrupt", T.StringType())])
    steps = steps.with_column("__read", F.when(F.col("__shaped"), _from_json(text, schema)))
    read = {name: F.col("__read")[name] for name, _ in fields}
    quick = F.struct(*((read[name].cast(kind) if isinstance(kind, J.TIMES) else read[name]).alias(name) for name, kind in fields))
    steps = steps.with_column("__quick", quick)
    sure = F.col("__shaped") & F.col("__read._corrupt").isNull()
    for name, kind in fields:
        if isinstance(kind, J.TIMES):
            sure &= read[name].isNull() == F.col("__quick")[name].isNull()
        elif isinstance(kind, T.MapType):
            keys = F.map_keys(read[name])
            sure &= read[name].isNull() | (F.size(keys) == F.size(F.array_distinct(keys)))
    return steps.with_column("__sure", sure)


def _read_as(kind: T.DataType) -> T.DataType:
    return T.StringType() if isinstance(kind, J.TIMES) else J.nullable(kind)


def _closely(steps: _Steps, contract: Contract, columns: list[Field]) -> tuple[_Steps, list[Column]]:
    """Add `__wire`, the parsed text of records that are not sure, and `_unknown` where it is kept; what can be wrong with them."""
    event = T.StructType([T.StructField(name, J.wire_type(kind)) for name, kind, _ in columns])
    text = F.col("__value").cast("string")
    wire = _from_json(F.concat(F.lit(OPEN), text, F.lit(CLOSE)), _wrapped(event))
    # A whole-record fault leaves no event; parsing is spared and no column can be half right.
    blank = (
        F.when(F.col("__value").isNull(), _fault("tombstone", F.lit("the value is null")))
        .when(F.length(F.col("__value")) == 0, _fault("empty", F.lit("the value has no bytes")))
        .when(~F.is_valid_utf8(text), _fault("not_utf8", F.lit("the value")))
        .when(_half_character(text), _fault("not_utf8", F.lit("an escape that is half of a character")))
        .when(~F.startswith(F.ltrim(text, F.lit(" \t\r\n")), F.lit("{")), _not_an_object(text))
    )
    steps = steps.with_column("__blank", F.when(~F.col("__sure"), blank))
    looked_at = ~F.col("__sure") & F.col("__blank").isNull()
    steps = steps.with_column("__wire", F.when(looked_at, wire)).with_column("__keys", F.when(looked_at, F.json_object_keys(text)))
    one = F.coalesce((F.size("__wire.r") == 1) & (F.col("__wire.z") == 0), F.lit(False))
    second = F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]"))) != 2
    could_close = F.contains(text, F.lit("]")) & text.rlike(COULD_CLOSE)
    sole = one & ~(could_close & F.coalesce(second, F.lit(True)))
    at = {name: F.col("__wire.r")[0][name] for name, _, _ in columns}
    names = F.array(*(F.lit(name) for name, _, _ in columns))
    doubled = F.size("__keys") != F.size(F.array_distinct("__keys"))
    unknown = F.array_except("__keys", names)
    has_unknown = F.size(unknown) > 0
    checks = [
        F.col("__blank"),
        F.when(~sole, _fault("malformed_json", F.lit("not one complete JSON object"))),
        F.when(doubled, _fault(J.DUPLICATE_KEY, F.lit("a field is given twice"))),
        F.when(F.col("__wire._corrupt").isNotNull(), _conversion_fault(text, columns)),
        *_value_faults(columns, at, contract.event_id.columns),
        _token_fault(text, columns, at),
    ]
    if contract.unknown_fields == "quarantine":
        checks.append(F.when(has_unknown, _fault("unknown_field", F.array_join(unknown, ", "))))
    elif contract.unknown_fields == "keep":
        kept = F.map_filter(F.from_json(text, "map<string,variant>"), lambda key, _: F.array_contains(unknown, key))
        steps = steps.with_column("__kept", F.when(has_unknown, kept))
        steps = steps.with_column("_unknown", F.transform_values("__kept", lambda _, token: token.cast("string")))
        # JSON's null is a token too; NULL in place of a token is one that could not be read.
        tokens = F.map_values("__kept")
        read = F.coalesce((F.size(tokens) == F.size(unknown)) & ~F.exists(tokens, lambda token: token.isNull()), F.lit(False))
        same = read & ~F.regexp_replace(text, JSON_STRING, F.lit('""')).rlike(NUMBER_CHANGED)
        checks.append(F.when(has_unknown & ~same, _fault("unknown_unreadable", F.array_join(unknown, ", "))))
    return steps, checks


def _wrapped(event: T.StructType) -> T.StructType:
    fields = [T.StructField("r", T.ArrayType(event)), T.StructField("z", T.IntegerType()), T.StructField("_corrupt", T.StringType())]
    return T.StructType(fields)


def _from_json(text: Column, schema: T.StructType) -> Column:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    # No JSON, but taken by default; quotes of another kind could also close the wrapper unseen.
    options |= {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
    return F.from_json(text, schema, options)


def _half_character(text: Column) -> Column:
    """Whether an escape such as `\\ud800` stands without its other half: Java would make it `?`, and two ids equal."""
    has_surrogate = F.contains(text, F.lit("\\ud")) | F.contains(text, F.lit("\\uD"))
    # Without escaped backslashes every backslash left begins an escape; a blank in their place, so that halves do not meet.
    return has_surrogate & F.replace(text, F.lit("\\\\"), F.lit(" ")).rlike(HALF_CHARACTER)


def _not_an_object(text: Column) -> Column:
    is_json = F.try_parse_json(text).isNotNull()
    return _fault(F.when(is_json, F.lit("not_an_object")).otherwise(F.lit("malformed_json")), F.lit("no JSON object"))


def _value_faults(columns: list[Field], at: dict[str, Column], id_columns: tuple[str, ...]) -> list[Column]:
    """The event id first: a record without one is named so, whatever else is wrong with it."""
    checks = [F.when(at[name].isNull(), _fault("missing_event_id", _id_missing(name))) for name in id_columns]
    for name, kind, nullable in columns:
        code = J.fault(kind, at[name], nullable=nullable)
        if code is not None:
            checks.append(F.when(code.isNotNull(), _fault(code, F.lit(name))))
    return checks


def _id_missing(name: str) -> Column:
    return F.lit(f"{name} is missing or null")


def _conversion_fault(text: Column, columns: list[Field]) -> Column:
    """Which column the parser could not convert: each is parsed again alone. Only records at fault pay for it."""
    found = _fault("malformed_json", F.lit("a value cannot be read"))
    for name, kind, _ in reversed(columns):
        alone = T.StructType([T.StructField(name, J.wire_type(kind)), T.StructField("_corrupt", T.StringType())])
        failed = F.coalesce(_from_json(text, alone)["_corrupt"].isNotNull(), F.lit(False))
        code = F.lit(J.WRONG_TYPE)
        if isinstance(kind, T.DecimalType):
            code = F.coalesce(*_known(J.token_fault(kind, _field(text, name, J.token_type(kind)))), code)
        elif isinstance(kind, T.IntegralType):
            number = _field(text, name, T.DecimalType(38, 0))
            # More digits than any DECIMAL holds.
            huge = F.abs(_field(text, name, T.DoubleType())) > 1e37
            too_large = F.coalesce(number.try_cast(kind).isNull() & number.isNotNull(), F.lit(False)) | F.coalesce(huge, F.lit(False))
            code = F.when(too_large, F.lit(J.OUT_OF_RANGE)).otherwise(code)
        found = F.when(failed, _fault(code, F.lit(name))).otherwise(found)
    return found


def _token_fault(text: Column, columns: list[Field], at: dict[str, Column]) -> Column:
    """STRING columns hold JSON strings only, decimals all their digits: judged on the tokens, where a look at the text asks for it."""
    checks = []
    for name, kind, _ in columns:
        for code in _known(J.token_fault(kind, _field(text, name, J.token_type(kind)))):
            checks.append(F.when(code.isNotNull(), _fault(code, F.lit(name))))
    found = F.coalesce(*checks, _no_fault())
    return F.when(J.suspicious([(name, kind) for name, kind, _ in columns], text, at), found)


def _field(text: Column, name: str, kind: T.DataType) -> Column:
    return F.from_json(text, T.StructType([T.StructField(name, kind)]))[name]


def _known(column: Column | None) -> list[Column]:
    return [] if column is None else [column]
