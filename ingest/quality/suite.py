"""An expectation suite: a file in Great Expectations' own JSON, validated against GX and the contract before Spark starts.

GX itself only logs an expectation that it does not know, and skips it. A suite that checks less than it says is worse than none, so
this module validates everything and reports all problems at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ingest.contract.columns import target_columns
from ingest.contract.definition import Contract, check_suites
from ingest.contract.problem import numbered
from ingest.contract.row_rule_words import BARE_WORDS
from ingest.contract.sql_type import Field, Struct
from ingest.quality import gx
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput

# Names that `ingest check` fills in for {"$PARAMETER": ...}, beside GX's own functions (now(), timedelta()).
PARAMETERS = ("ledger_rows",)
# These need the whole table: an id may be doubled across batches, and the ledger counts all rows.
ROW_COUNTS = ("expect_table_row_count_to_equal", "expect_table_row_count_to_be_between")
WHOLE_TYPES = (
    "expect_column_values_to_be_unique",
    "expect_compound_columns_to_be_unique",
    "expect_column_proportion_of_unique_values_to_be_between",
    "expect_column_unique_value_count_to_be_between",
    *ROW_COUNTS,
)
# They check which columns a table has, and read no value.
SHAPES = (
    "expect_table_columns_to_match_ordered_list",
    "expect_table_columns_to_match_set",
    "expect_table_column_count_to_equal",
    "expect_table_column_count_to_be_between",
)
SEVERITIES = ("critical", "warning", "info")
HASH_CHARACTERS = 16


@dataclass(frozen=True)
class Expected:
    """One expectation of a suite.

    `columns` are paths as written (`shipping_address.city`). `whole`: it always covers the whole table. `exact`: it judges every
    single row and allows no exception. `open_ended`: it may read any column (a row condition, a query, the table's shape).
    """

    number: int
    type: str
    kwargs: Mapping[str, Any]
    severity: str
    columns: tuple[str, ...]
    whole: bool
    exact: bool
    open_ended: bool
    config: Mapping[str, Any]

    @property
    def named(self) -> tuple[str, ...]:
        """The columns and fields that it reads by name, also those of its row condition."""
        return (*self.columns, *_conditioned(self.kwargs.get("row_condition")))

    def touches(self, names: Iterable[str]) -> bool:
        """Whether it may read one of these top-level columns."""
        if self.type in SHAPES:
            return False
        roots = {column.split(".")[0].lower() for column in self.columns}
        wanted = {name.lower() for name in names}
        return bool(wanted) and (self.open_ended or bool(roots & wanted))


@dataclass(frozen=True)
class Suite:
    """The suite of one contract. `hash` covers its expectations, so that a changed suite is detected."""

    contract: Contract
    path: str
    hash: str
    expectations: tuple[Expected, ...]

    @property
    def sensitive(self) -> frozenset[str]:
        """Columns whose values must not be shown: those marked sensitive, unknown fields, and the bytes of raw records."""
        marked = {column.name for column in self.contract.columns if column.sensitive}
        # `_event_id` of a raw record is its key, or one of its headers.
        raw = {"key", "value", "headers", "_event_id"} if self.contract.source.format == "raw" else set()
        unknown = {"_unknown"} if self.contract.unknown_fields == "keep" else set()
        return frozenset({*marked, *raw, *unknown})


def load_suites(project: Path, contracts: Sequence[Contract], *, named: bool = False) -> list[Suite]:
    """The suites of `contracts`, in their order. Contracts without one are left out, unless the user has `named` them or all lack one.

    Raises InvalidInput SUITE_NOT_FOUND (no file), SUITE_MISSING (no suite named in the contract), SUITE_INVALID (with every
    problem of every file: JSON, an expectation or argument unknown to GX, a column unknown to the table, a parameter unknown to check).
    """
    without = [contract.name for contract in contracts if not contract.suite]
    if without and (named or len(without) == len(contracts)):
        raise InvalidInput(
            "SUITE_MISSING",
            f"the contract of {', '.join(without)} names no expectation suite.",
            expected="a key `suite: expectations/<table>.json` in the contract.",
            remedy=f"`ingest suggest {without[0]}` writes a first suite; then name it in the contract.",
        )
    chosen = [contract for contract in contracts if contract.suite]
    check_suites(project, chosen)
    problems: list[str] = []
    suites = [_read(project, contract, problems) for contract in chosen]
    if problems:
        raise InvalidInput(
            "SUITE_INVALID",
            numbered(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}:", problems),
            expected="expectations that GX knows, on columns that the table has.",
            remedy="correct the suite (docs/how-to/quality.md).",
        )
    return [suite for suite in suites if suite is not None]


def _read(project: Path, contract: Contract, problems: list[str]) -> Suite | None:
    path = str(contract.suite)
    try:
        document = read_json((project / path).read_text(encoding="utf-8"))
        configs = document["expectations"]
        assert isinstance(document["name"], str) and isinstance(configs, list) and all(isinstance(c, dict) for c in configs)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        shape = "not the format of GX: an object with a name and a list of expectations"
        problems.append(f"{path}: {f'not JSON ({error})' if isinstance(error, ValueError) else shape}")
        return None
    if not configs:
        problems.append(f"{path}: contains no expectation")
    known = _paths(target_columns(contract))
    expectations = []
    for number, config in enumerate(configs):
        where = f"{path} expectations[{number}]"
        found = list(_problems(config, known))
        problems += [f"{where}: {each}" for each in found]
        if not found:
            expectations.append(_expected(number, config))
    text = json.dumps(configs, sort_keys=True, separators=(",", ":"))
    return Suite(contract, path, hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARACTERS], tuple(expectations))


def _problems(config: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    kind, kwargs = config.get("type"), config.get("kwargs")
    if not isinstance(kind, str) or not isinstance(kwargs, dict):
        yield "an expectation needs type and kwargs"
        return
    if (problem := gx.problem_of(config)) is not None:
        yield f"{kind}: {problem}"
        return
    roots = [name.split(".")[0] for name in _conditioned(kwargs.get("row_condition"))]
    for column in [*_columns(kwargs), *roots]:
        if column.lower() not in known:
            near = get_close_matches(column.lower(), known, 1, 0.5)
            yield f"{kind}: the table has no column {column}" + (f" (is {near[0]} meant?)" if near else "")
    for value in kwargs.values():
        if isinstance(value, dict) and "$PARAMETER" in value and not gx.parameter_works(value["$PARAMETER"], PARAMETERS):
            yield f"{kind}: unknown parameter {value['$PARAMETER']!r}; `ingest check` fills in {', '.join(PARAMETERS)}"


def _expected(number: int, config: Mapping[str, Any]) -> Expected:
    kind, kwargs = config["type"], config["kwargs"]
    columns = tuple(_columns(kwargs))
    meta = config.get("meta") or {}
    mostly = kwargs.get("mostly", 1)  # a $PARAMETER may be anything
    conditional = bool(kwargs.get("row_condition"))
    return Expected(
        number,
        kind,
        kwargs,
        config.get("severity", SEVERITIES[0]),
        columns,
        kind in WHOLE_TYPES or meta.get("scope") == "whole",
        gx.judges_rows(kind) and not conditional and not isinstance(mostly, dict) and float(mostly) == 1,
        conditional or kind in SHAPES or (not columns and kind not in ROW_COUNTS),
        config,
    )


def _columns(kwargs: Mapping[str, Any]) -> Iterator[str]:
    for key in ("column", "column_A", "column_B"):
        if isinstance(kwargs.get(key), str):
            yield kwargs[key]
    for name in kwargs.get("column_list") or ():
        if isinstance(name, str):
            yield name


def _conditioned(condition: object) -> Iterator[str]:
    """The columns of a row condition in GX's object form, GX's text form (`col("a") > 1`) or Spark's SQL (of structs the root column)."""
    if isinstance(condition, dict):
        if isinstance(column := condition.get("column"), dict):
            yield str(column.get("name"))
        for each in (*(condition.get("conditions") or ()), condition.get("pass_through_filter")):
            yield from _conditioned(each)
    elif isinstance(condition, str) and (named := re.findall(r"""\bcol\(\s*["'](.+?)["']\s*\)""", condition)):
        yield from named
    elif isinstance(condition, str):
        try:
            tree = sqlglot.parse_one(condition, read="spark")
        except SqlglotError:
            return  # GX reports it when it evaluates the condition
        roots = (column.parts[0].name for column in tree.find_all(exp.Column) if not isinstance(column.this, exp.Star))
        yield from (name for name in roots if name.lower() not in BARE_WORDS)


def _paths(fields: Iterable[Field], before: str = "") -> set[str]:
    """Every column and field of a struct, in lower case: names are compared without case, as Delta does."""
    found = set()
    for each in fields:
        path = f"{before}{each.name.lower()}"
        found.add(path)
        if isinstance(each.type, Struct):
            found |= _paths(each.type.fields, f"{path}.")
    return found
