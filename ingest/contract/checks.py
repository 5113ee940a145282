"""Checks how the parts of a contract fit together: event id, event time, rules, layout and properties against the columns.

The checks run on `Parts`, which may be incomplete. So a file with a wrong key also gets the problems of its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ingest.contract.parts import Column, ControlTotal, EventId, Layout, Rule
from ingest.contract.problem import Problem, one_of, shown
from ingest.contract.row_rule import rule_problems
from ingest.contract.sql_type import Decimal, SqlType
from ingest.contract.sql_type_parser import parse_type
from ingest.contract.table_property import property_problem

# The columns of every target besides the contract's (docs/reference/contracts.md). Rules may use those that the record itself provides.
PROVENANCE = {
    "_source": "SMALLINT",
    "_partition": "INT",
    "_offset": "BIGINT",
    "_kafka_timestamp": "TIMESTAMP",
    "_ingested_at": "TIMESTAMP",
    "_epoch": "INT",
    "_batch": "BIGINT",
}
PROVENANCE_IN_RULES = ("_partition", "_offset", "_kafka_timestamp")

# The columns of a record of format raw.
RAW_COLUMNS = (
    Column(name="key", type="BINARY", comment="The record's key."),
    Column(name="value", type="BINARY", comment="The record's value; NULL is a tombstone."),
    Column(name="headers", type="ARRAY<STRUCT<key: STRING, value: BINARY>>", comment="The record's headers, in their order."),
)

_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
EVENT_ID_KINDS = ("STRING", *_WHOLE_NUMBERS, "DECIMAL", "DATE", "TIMESTAMP", "BINARY")
EVENT_TIME_KINDS = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")
PARTITION_KINDS = ("STRING", "BOOLEAN", *_WHOLE_NUMBERS, "DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
CLUSTER_KINDS = ("STRING", *_WHOLE_NUMBERS, "DECIMAL", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
TOTAL_KINDS = (*_WHOLE_NUMBERS, "DECIMAL")
TOTAL_DIGITS_MAX = 28  # the sum has ten digits more, and a DECIMAL has at most 38: ten thousand million rows cannot overflow it
GROUP_KINDS = ("STRING", "BOOLEAN", *_WHOLE_NUMBERS, "DATE")
FIGURE_KEYS = ("total", "day", "rows")  # the keys of a figure besides its columns
CLUSTER_COLUMNS_MAX = 4  # Delta's limit for liquid clustering

_WHY_NO_EVENT_ID = {
    "FLOAT": "numbers that look the same need not be equal",
    "DOUBLE": "numbers that look the same need not be equal",
    "BOOLEAN": "two values cannot tell events apart",
    "TIMESTAMP_NTZ": "without a zone, one moment has several values",
}


@dataclass(frozen=True)
class Parts:
    """The readable parts of a contract; an unreadable part is None. Indexes are those in the document."""

    format: str | None = None
    columns: tuple[tuple[int, str, Column | None], ...] | None = None
    event_id: EventId | None = None
    event_time: str | None = None
    rules: tuple[tuple[int, Rule], ...] = ()
    unknown_fields: str | None = None
    layout: Layout | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    control_totals: tuple[tuple[int, ControlTotal], ...] = ()

    def types(self) -> dict[str, SqlType | None] | None:
        """The type of each column of the event, None for an unreadable column. The result is None if the columns are unknown."""
        if self.format == "raw":
            return {column.name: column.sql_type for column in RAW_COLUMNS}
        if self.columns is None or self.format is None:
            return None
        return {name: column.sql_type if column else None for _, name, column in self.columns}


def cross_problems(parts: Parts) -> list[Problem]:
    """All problems between parts, in the document's order."""
    checks: tuple[Callable[[Parts], Iterator[Problem]], ...] = (
        _columns,
        _event_id,
        _event_time,
        _rules,
        _unknown_fields,
        _layout,
        _properties,
        _control_totals,
    )
    return [problem for check in checks for problem in check(parts)]


def _columns(parts: Parts) -> Iterator[Problem]:
    if parts.format == "raw" and parts.columns:
        expected = "no columns with format raw: its columns are key, value and headers"
        yield Problem(("columns",), f"{len(parts.columns)} columns with format raw", expected)
    if parts.format == "json" and not parts.columns and parts.columns is not None:
        yield Problem(("columns",), "no columns", "at least one column with format json")
    seen: dict[str, str] = {}
    for index, name, _ in parts.columns or ():
        first = seen.setdefault(name.lower(), name) if name.lower() in seen else None
        seen.setdefault(name.lower(), name)
        if first is not None:
            how = "appears twice" if first == name else f"differs from {shown(first)} only by its case"
            yield Problem(
                ("columns", index, "name"), f"column {shown(name)} {how}", "names that differ by more than their case (Delta ignores case)"
            )


def _event_id(parts: Parts) -> Iterator[Problem]:
    if parts.event_id is None or parts.format is None:
        return
    if parts.format == "raw":
        if parts.event_id.kind == "columns":
            yield Problem(("event_id",), "columns as event id with format raw", "key, header:<name> or position with format raw")
        return
    if parts.event_id.kind == "position":
        expected = "a list of columns, key or header:<name>; position is for format raw only, because there a record is its own identity"
        yield Problem(("event_id",), "position as event id with format json", expected)
    if parts.columns is None:
        return
    columns = {name: column for _, name, column in parts.columns}
    fit = [name for name, column in columns.items() if column and column.sql_type.kind in EVENT_ID_KINDS]
    for index, name in enumerate(parts.event_id.columns):
        loc = ("event_id", index)
        if name not in columns:
            yield Problem(
                loc, f"there is no column {shown(name)}", one_of(fit, name) if fit else f"a column of {', '.join(EVENT_ID_KINDS)}"
            )
        elif column := columns[name]:
            kind = column.sql_type.kind
            if kind not in EVENT_ID_KINDS:
                why = _WHY_NO_EVENT_ID.get(kind, "an identity is one value, not a nested one")
                yield Problem(
                    loc, f"{shown(name)} is {column.type} and cannot be an event id: {why}", f"a column of {', '.join(EVENT_ID_KINDS)}"
                )
            if column.nullable:
                yield Problem(
                    loc,
                    f"{shown(name)} may be null, and null equals nothing, so duplicates would pass",
                    f"nullable: false at column {name}",
                )


def _event_time(parts: Parts) -> Iterator[Problem]:
    if parts.event_time is not None and parts.format == "raw":
        yield Problem(("event_time",), "event_time with format raw", "no event_time: raw records have only _kafka_timestamp")
    elif parts.event_time is not None and (types := parts.types()) is not None:
        yield from _column_of(("event_time",), parts.event_time, types, EVENT_TIME_KINDS)


def _rules(parts: Parts) -> Iterator[Problem]:
    types = parts.types()
    usable = None if types is None else {**types, **{name: parse_type(PROVENANCE[name]) for name in PROVENANCE_IN_RULES}}
    seen: set[str] = set()
    for index, rule in parts.rules:
        if rule.name in seen:
            yield Problem(
                ("rules", index, "name"),
                f"rule {shown(rule.name)} appears twice",
                "each name once: the quarantine reports a broken rule by its name",
            )
        seen.add(rule.name)
        for found, expected in rule_problems(rule.check, usable):
            yield Problem(("rules", index, "check"), f"rule {rule.name}: {found}", expected)


def _unknown_fields(parts: Parts) -> Iterator[Problem]:
    if parts.format == "raw" and parts.unknown_fields not in (None, "ignore"):
        yield Problem(("unknown_fields",), f"{parts.unknown_fields} with format raw", "no unknown_fields: a raw record has no fields")


def _layout(parts: Parts) -> Iterator[Problem]:
    if parts.layout is None:
        return
    if parts.layout.partition_by and parts.layout.cluster_by:
        yield Problem(("layout",), "partition_by and cluster_by together", "one of them: Delta does not cluster partitioned tables")
    if len(parts.layout.cluster_by) > CLUSTER_COLUMNS_MAX:
        yield Problem(
            ("layout", "cluster_by"), f"{len(parts.layout.cluster_by)} columns", f"at most {CLUSTER_COLUMNS_MAX}, which is Delta's limit"
        )
    if (types := parts.types()) is None:
        return
    types |= {name: parse_type(text) for name, text in PROVENANCE.items()}
    if parts.event_id and parts.event_id.kind in ("key", "header"):
        types["_event_id"] = parse_type("STRING")
    for key, names, kinds in (
        ("partition_by", parts.layout.partition_by, PARTITION_KINDS),
        ("cluster_by", parts.layout.cluster_by, CLUSTER_KINDS),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Problem(("layout", key, index), f"column {shown(name)} appears twice", "each column once")
            yield from _column_of(("layout", key, index), name, types, kinds)
    if parts.layout.partition_by and set(types) <= set(parts.layout.partition_by) | set(PROVENANCE):
        yield Problem(("layout", "partition_by"), "every column is a partition column", "at least one column that is not")


def _properties(parts: Parts) -> Iterator[Problem]:
    for key in parts.properties:
        if problem := property_problem(key):
            yield Problem(("properties", key), *problem)


def _control_totals(parts: Parts) -> Iterator[Problem]:
    if parts.control_totals and parts.format == "raw":
        yield Problem(("control_totals",), "control totals with format raw", "no control_totals: raw records have no columns to add up")
        return
    sensitive = {name for _, name, column in parts.columns or () if column and column.sensitive}
    types, seen = parts.types(), set[str]()
    for index, total in parts.control_totals:
        at: tuple[str | int, ...] = ("control_totals", index)
        if total.name in seen:
            yield Problem((*at, "name"), f"control total {shown(total.name)} appears twice", "each name once")
        seen.add(total.name)
        for key, names, kinds in (("sum", total.sum, TOTAL_KINDS), ("by", total.by, GROUP_KINDS)):
            for number, name in enumerate(names):
                loc = (*at, key, number)
                if name in names[:number] or name in FIGURE_KEYS:
                    yield Problem(loc, f"column {shown(name)} appears twice, or is a key of every figure", "other columns, each once")
                if name in sensitive:
                    yield _printed(loc, name)
                if types is None:
                    continue
                yield from _column_of(loc, name, types, kinds)
                if isinstance(sql_type := types.get(name), Decimal) and sql_type.precision > TOTAL_DIGITS_MAX:
                    yield Problem(loc, f"column {shown(name)} has {sql_type.precision} digits", f"at most {TOTAL_DIGITS_MAX} digits")
        if total.day in sensitive:
            yield _printed((*at, "day"), total.day)
        if types is not None:
            yield from _column_of((*at, "day"), total.day, types, EVENT_TIME_KINDS)


def _printed(loc: tuple[str | int, ...], name: str) -> Problem:
    return Problem(loc, f"column {shown(name)} is sensitive, and totals are printed", "a column that is not")


def _column_of(loc: tuple[str | int, ...], name: str, types: Mapping[str, SqlType | None], kinds: tuple[str, ...]) -> Iterator[Problem]:
    """A problem if there is no column `name` or its type is not one of `kinds`."""
    if name not in types:
        yield Problem(loc, f"there is no column {shown(name)}", one_of((n for n, t in types.items() if t and t.kind in kinds), name))
    elif (sql_type := types[name]) and sql_type.kind not in kinds:
        yield Problem(loc, f"column {shown(name)} is of type {sql_type.kind}", f"a column of {', '.join(kinds)}")
