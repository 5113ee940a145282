"""Expectations on the rows of a table, in the fewest queries that Great Expectations allows, and the columns that name a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ingest.contract.columns import event_id_columns, target_columns
from ingest.contract.sql_type import ddl
from ingest.quality import gx
from ingest.quality.scope import Slice
from ingest.quality.suite import Expected, Suite
from ingest.quality.validation_result import passed

POSITION = ("_source", "_partition", "_offset")
# Enough to find the cause. A person can write the query that finds all of the rows.
SAMPLES_MAX = 10
# Event id types that GX's JSON preserves. It turns a DECIMAL into a float and a TIMESTAMP into a local time, and fails on BINARY.
REPORTED = frozenset(("STRING", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE"))
COMPOUND = "expect_compound_columns_to_be_unique"
# GX computes the row count in one job with other figures.
_COUNT: dict[str, Any] = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 0}}
COUNT = Expected(-1, _COUNT["type"], _COUNT["kwargs"], "info", (), whole=True, exact=False, open_ended=False, config=_COUNT)


class Rows(Protocol):
    """The rows of a table at one version, in one of the two engines. `database` is DuckDB's name for them, None in Spark."""

    @property
    def engine(self) -> str: ...

    @property
    def database(self) -> str | None: ...

    def view(self, name: str, slices: Sequence[Slice] | None) -> Any:
        """What GX validates: the rows of these slices; None: all rows."""
        ...

    def narrowed(self, view: Any, names: set[str]) -> Any:
        """The view with only these columns (in lower case)."""
        ...

    def config(self, expected: Expected) -> Mapping[str, Any]:
        """The expectation as this engine has to get it."""
        ...

    def copies(self, view: Any, columns: Sequence[str], ids: Sequence[str], most: int) -> list[dict[str, Any]] | None:
        """The ids of some rows whose values in these columns occur more than once; None if GX finds them itself."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


@dataclass(frozen=True)
class SuiteRun:
    """`ids` are the columns that name a row, `binary` those with bytes."""

    rows: Rows
    runner: gx.Runner
    ids: tuple[str, ...]
    binary: frozenset[str] = frozenset()

    def validate(self, chosen: Sequence[Expected], view: Any, parameters: dict[str, Any]) -> list[tuple[Expected, dict[str, Any]]]:
        """GX's results, not scrubbed yet.

        To report figures, GX searches for unexpected values with one query per expectation, even if there are none. So expectations that
        judge rows and allow no exception first run for yes or no, all in one query. Those that fail run again for figures and ids.
        """
        if not chosen:
            return []
        if not any(each.open_ended for each in chosen):
            roots = {column.split(".")[0].lower() for each in chosen for column in each.columns}
            view = self.rows.narrowed(view, roots | {name.lower() for name in self.ids})
        exact = [each for each in chosen if each.exact]
        others = [each for each in chosen if not each.exact]
        *figures, count = self._run([*others, COUNT], view, parameters, gx.SUMMARY)
        answers = self._run(exact, view, parameters, gx.BOOLEAN)
        refused = [each for each, raw in zip(exact, answers, strict=True) if not raw["success"]]
        again = self._run(refused, view, parameters, gx.SUMMARY)
        rows = int(count["result"]["observed_value"])
        found = [(each, passed(raw, rows)) for each, raw in zip(exact, answers, strict=True) if raw["success"]]
        return [*zip(others, figures, strict=True), *found, *zip(refused, again, strict=True)]

    def _run(self, chosen: Sequence[Expected], view: Any, parameters: dict[str, Any], form: str) -> list[dict[str, Any]]:
        """GX's results in their order. Expectations that may read bytes run without values: GX's JSON has none for them."""
        found: dict[int, dict[str, Any]] = {}
        for values in (True, False):
            part = [each for each in chosen if each.touches(self.binary) != values]
            configs = [self.rows.config(each) for each in part]
            raws = self.runner.run(configs, view, parameters, form=form, index=self.ids, samples=SAMPLES_MAX, values=values)
            for each, raw in zip(part, raws, strict=True):
                patterns = {name: each.kwargs[name] for name in ("regex", "regex_list") if name in each.kwargs}
                raw["expectation_config"]["kwargs"] = {**raw["expectation_config"]["kwargs"], **patterns}
                if form == gx.SUMMARY and each.type == COMPOUND and raw["result"].get("unexpected_count"):
                    copies = self.rows.copies(view, each.columns, self.ids, SAMPLES_MAX)
                    raw["result"] |= {"partial_unexpected_index_list": copies} if copies is not None else {}
                found[each.number] = raw
        return [found[each.number] for each in chosen]


def shown_ids(suite: Suite) -> tuple[str, ...]:
    """The columns that name a row in samples: the event id, or the position if the id is sensitive or of a type not in REPORTED."""
    ids = event_id_columns(suite.contract)
    types = {each.name: each.type.kind for each in target_columns(suite.contract)}
    return ids if not set(ids) & suite.sensitive and all(types.get(name) in REPORTED for name in ids) else POSITION


def binary_columns(suite: Suite) -> frozenset[str]:
    """The columns that contain bytes, directly or in a nested field."""
    return frozenset(each.name for each in target_columns(suite.contract) if "BINARY" in ddl(each.type, comments=False))
