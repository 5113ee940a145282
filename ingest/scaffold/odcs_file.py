"""Contracts from a file of the Open Data Contract Standard (ODCS) v3: its schema, and the quality rules that have a counterpart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ingest.contract.checks import EVENT_ID_KINDS
from ingest.contract.parts import TOPIC_NAME
from ingest.contract.sql_type import TypeProblem, ddl
from ingest.contract.sql_type_parser import parse_type
from ingest.runtime.errors import InvalidInput
from ingest.scaffold.draft import Draft, DraftColumn, identifier

# ODCS's logical types without options. An object and an array have types of their own.
_LOGICAL = {"string": "STRING", "date": "DATE", "timestamp": "TIMESTAMP", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_PHYSICAL = {"text": "STRING", "varchar": "STRING", "char": "STRING", "uuid": "STRING", "timestamptz": "TIMESTAMP", "int8": "BIGINT"}
_PERSONAL = {"confidential", "restricted", "sensitive", "pii", "personal"}
# Keys of a property that are carried over, or that say nothing about rows.
_KNOWN = {"name", "physicalName", "logicalType", "physicalType", "logicalTypeOptions", "description", "required", "unique", "primaryKey"}
_KNOWN |= {"primaryKeyPosition", "classification", "properties", "items", "quality", "id", "businessName", "tags", "examples"}
_OPTIONS = {"minimum": ">= {}", "maximum": "<= {}", "exclusiveMinimum": "> {}", "exclusiveMaximum": "< {}"}


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them are a value without end."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"the alias *{alias.anchor} in line {alias.start_mark.line + 1}; write the value")
        return super().compose_node(parent, index)


def drafts_of(path: Path) -> list[Draft]:
    """One draft for each object of the file's schema. Raises InvalidInput ODCS_INVALID, or CONTRACT_DUPLICATE for two of one table."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise _invalid(path, f"cannot be read as YAML: {' '.join(str(error).split())}") from error
    version = str(document.get("apiVersion")) if isinstance(document, dict) else "none"
    if not version.startswith("v3"):
        raise _invalid(path, f"has the apiVersion {version}")
    objects = document.get("schema")
    if not isinstance(objects, list) or not objects or not all(isinstance(each, dict) and each.get("properties") for each in objects):
        raise _invalid(path, "has no schema with properties")
    beside = sorted({"slaProperties", "roles", "team", "price", "support"} & document.keys())
    try:
        drafts = [_Table(each, beside).draft() for each in objects]
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise _invalid(path, f"is not in the form of ODCS: {type(error).__name__} {error}") from error
    _refuse_duplicates(path, [(draft.table, _name(each)) for draft, each in zip(drafts, objects, strict=True)])
    return drafts


def _refuse_duplicates(path: Path, tables: Sequence[tuple[str, str]]) -> None:
    for table, name in tables:
        same = [other for one, other in tables if one == table]
        if len(same) > 1:
            raise InvalidInput(
                "CONTRACT_DUPLICATE",
                f"{path}: the objects {', '.join(same)} would all become the table {table}.",
                expected="objects whose names still differ in lower case with _ between words.",
                remedy=f"rename one of them in the file, such as {name}_2.",
            )


def _invalid(path: Path, found: str) -> InvalidInput:
    return InvalidInput(
        "ODCS_INVALID",
        f"{path} {found}.",
        expected="a data contract of ODCS v3 (apiVersion v3.…) whose schema lists objects with properties.",
        remedy="correct the file, or leave --odcs out: the contract is then an example to edit.",
    )


def _name(described: Mapping[str, Any]) -> str:
    """YAML reads `name: no` as false. Raises TypeError."""
    name = described["name"]
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r} is not text: put it in quotes")
    return name


class _Table:
    """One object of the schema, while it becomes a draft."""

    def __init__(self, described: Mapping[str, Any], beside: list[str]) -> None:
        self._described = described
        self._properties: list[dict[str, Any]] = described["properties"]
        self._notes = [f"Not carried over: {', '.join(beside)}."] if beside else []
        self._rules: list[tuple[str, str]] = []
        self._expectations: list[dict[str, Any]] = []

    def draft(self) -> Draft:
        name = _name(self._described)
        topic = str(self._described.get("physicalName") or name)
        keys = sorted((each for each in self._properties if each.get("primaryKey")), key=lambda each: each.get("primaryKeyPosition") or 0)
        id = [_name(each) for each in keys] or [_name(each) for each in self._properties if each.get("unique")][:1]
        columns = tuple(self._column(each, id) for each in self._properties)
        for rule in self._described.get("quality") or ():
            self._quality(rule, None)
        unfit = [each.name for each in columns if each.name in id and parse_type(each.type).kind not in EVENT_ID_KINDS]
        if unfit or not id:
            why = f"{', '.join(unfit)} cannot be part of an event id" if unfit else "No property is the primaryKey or unique"
            self._notes.append(f"{why}, so the record's key is the event id.")
        times = [each.name for each in columns if each.type == "TIMESTAMP"]
        return Draft(
            identifier(name),
            topic if re.fullmatch(TOPIC_NAME, topic) else identifier(topic),
            columns,
            "key" if unfit or not id else id,
            times[0] if times else None,
            " ".join(str(self._described.get("description") or "").split()),
            rules=tuple(self._rules),
            notes=tuple(self._notes),
            expectations=tuple(self._expectations),
        )

    def _column(self, one: Mapping[str, Any], id: list[str]) -> DraftColumn:
        name = _name(one)
        for key in one.keys() - _KNOWN:
            self._notes.append(f"Not carried over: {key} of {name}.")
        column = DraftColumn(
            name,
            self._type(name, one),
            nullable=not one.get("required") and name not in id,
            comment=" ".join(str(one.get("description") or "").split()),
            sensitive=str(one.get("classification")).lower() in _PERSONAL,
        )
        self._options(column, one.get("logicalTypeOptions") or {})
        if one.get("unique") and [name] != id:
            self._expect("expect_column_values_to_be_unique", column=name)
        for rule in one.get("quality") or ():
            self._quality(rule, name)
        return column

    def _type(self, name: str, one: Mapping[str, Any]) -> str:
        logical, options = one.get("logicalType"), one.get("logicalTypeOptions") or {}
        if logical == "object" and one.get("properties"):
            fields = [f"{each['name']}: {self._type(name + '.' + str(each['name']), each)}" for each in one["properties"]]
            return ddl(parse_type(f"STRUCT<{', '.join(fields)}>"))
        if logical == "array" and one.get("items"):
            return f"ARRAY<{self._type(name + '[]', one['items'])}>"
        physical = str(one.get("physicalType") or "").strip()
        try:
            return ddl(parse_type(physical))
        except TypeProblem:
            word = physical.partition("(")[0].lower()
        if logical == "date" and any(letter in str(options.get("format", "")) for letter in "Hh"):
            logical = "timestamp"
        kind = _PHYSICAL.get(word) or _LOGICAL.get(str(logical))
        step = str(options.get("multipleOf", ""))
        if kind == "DOUBLE" and step.startswith("0.") and len(step) <= 8:
            kind = f"DECIMAL(18,{len(step) - 2})"
        elif kind is None or logical == "number" or (physical and word not in _PHYSICAL):
            kind = kind or "STRING"
            self._notes.append(f"{name} is {kind}: its type is {logical or 'not given'}{f' ({physical})' if physical else ''}.")
        return kind

    def _options(self, column: DraftColumn, options: Mapping[str, Any]) -> None:
        for key, value in options.items():
            if key in _OPTIONS and isinstance(value, int | float) and not isinstance(value, bool):
                check = f"{column.name} {_OPTIONS[key].format(value)}"
                self._rules.append((identifier(f"{column.name}_{key}"), f"{column.name} IS NULL OR {check}" if column.nullable else check))
            elif key == "pattern" and column.type == "STRING":
                self._expect("expect_column_values_to_match_regex", column=column.name, regex=str(value))
            elif key in ("minLength", "maxLength") and column.type == "STRING":
                bound = {"min_value" if key == "minLength" else "max_value": value}
                self._expect("expect_column_value_lengths_to_be_between", column=column.name, **bound)
            elif key not in ("format", "multipleOf"):
                self._notes.append(f"Not carried over: {key} of {column.name}.")

    def _quality(self, rule: Mapping[str, Any], column: str | None) -> None:
        """ODCS 3.0 names a rule of its library `rule`, 3.1 `metric`."""
        kind, zero = rule.get("metric") or rule.get("rule"), rule.get("mustBe") == 0 and rule.get("unit") in (None, "rows")
        values = (rule.get("arguments") or {}).get("validValues") or rule.get("validValues")
        if column and kind in ("nullValues", "nullCheck", "missingValues") and zero and not rule.get("arguments"):
            self._expect("expect_column_values_to_not_be_null", column=column)
        elif column and kind in ("duplicateValues", "duplicateCount") and zero:
            self._expect("expect_column_values_to_be_unique", column=column)
        elif column and kind in ("invalidValues", "validValues") and values and (zero or kind == "validValues"):
            self._expect("expect_column_values_to_be_in_set", column=column, value_set=list(values))
        elif kind == "rowCount" and (bounds := dict(_bounds(rule))):
            self._expect("expect_table_row_count_to_be_between", **bounds)
        else:
            shown = rule.get("name") or kind or rule.get("type") or json.dumps(dict(rule), default=str)
            self._notes.append(f"Not carried over: the quality rule {shown} of {column or 'the table'}.")

    def _expect(self, kind: str, **kwargs: Any) -> None:
        self._expectations.append({"type": kind, "kwargs": kwargs})


def _bounds(rule: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key, bound, more in (
        ("mustBeGreaterThan", "min_value", 1),
        ("mustBeGreaterOrEqualTo", "min_value", 0),
        ("mustBeLessThan", "max_value", -1),
        ("mustBeLessOrEqualTo", "max_value", 0),
    ):
        if isinstance(rule.get(key), int):
            yield bound, rule[key] + more
    if isinstance(between := rule.get("mustBeBetween"), list) and len(between) == 2:
        yield from (("min_value", int(between[0])), ("max_value", int(between[1])))
