"""A validation run of one table: its scope, the suite through GX, pages, and one row per expectation in the quality table."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.contract.columns import event_id_columns, target_columns
from ingest.contract.sql_type import ddl
from ingest.delta import writer as commits
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, asked, engine_for
from ingest.delta.log_errors import table_missing
from ingest.ledger.books import read_books
from ingest.quality import audited_version, gx, pages
from ingest.quality.audited_version import AuditState
from ingest.quality.control_total import TotalLine, Totals, control_totals, lines
from ingest.quality.scope import Last, Scope, Slice, decide
from ingest.quality.suite import Expected, Suite
from ingest.quality.validation_result import SCHEMA_VERSION, QualityRow, all_scrubbed, as_columns, passed
from ingest.run import table_lock
from ingest.runtime.files import files_of, is_local, refused_access
from ingest.runtime.places import Places, pages_folder
from ingest.verify.count import account

POSITION = ("_source", "_partition", "_offset")
# Enough to find the cause. A person can write the query that finds all of the rows.
SAMPLES_MAX = 10
ELSEWHERE = "on this machine's disk, since the lake is elsewhere: it is lost with the machine; the results stay in the table `quality`"
NOT_RENDERED = "none: Great Expectations could not render it; the results are in the table `quality`"
# Event id types that GX's JSON preserves. It turns a DECIMAL into a float and a TIMESTAMP into a local time, and fails on BINARY.
REPORTED = frozenset(("STRING", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE"))
# GX computes the row count in one job with other figures.
_COUNT: dict[str, Any] = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 0}}
COUNT = Expected(-1, _COUNT["type"], _COUNT["kwargs"], "info", (), whole=True, exact=False, open_ended=False, config=_COUNT)


@dataclass(frozen=True)
class Checked:
    """A validation run of one table; `page` is its Data Docs page, if one was written, `page_note` a note about it for the user.

    `totals` are the control totals, if figures were given. `state` is the audited version after the run.
    """

    table: str
    scope: Scope
    rows: tuple[QualityRow, ...]
    page: Path | None
    page_note: str | None
    seconds: float
    totals: tuple[TotalLine, ...] = ()
    state: AuditState = field(default_factory=AuditState)

    @property
    def failed(self) -> tuple[QualityRow, ...]:
        """The expectations that failed, critical ones first."""
        order = {"critical": 0, "warning": 1, "info": 2}
        return tuple(sorted((row for row in self.rows if not row.success), key=lambda row: (order.get(row.severity, 0), row.number)))

    @property
    def critical(self) -> tuple[QualityRow, ...]:
        """The critical expectations that failed."""
        return tuple(row for row in self.failed if row.severity == "critical")

    @property
    def passed(self) -> bool:
        """Whether no critical expectation failed, and no control total differs."""
        return not self.critical and not any(each.is_found for each in self.totals)


def check(
    session: SparkSession,
    suite: Suite,
    places: Places,
    *,
    everything: bool = False,
    at_work: bool = False,
    figures: Mapping[str, Totals] | None = None,
) -> Checked:
    """Validate the target with `suite`: all rows (`everything`), or those that were added since the last run.

    `at_work` is for a check during a run: expectations that always cover the whole table are left out, unless all rows are checked
    anyway, and a page is written only if something failed. With `figures` the control totals of the same version are compared, too. A
    check that passes makes its version the audited one, unless it was done at work; a failed one may hold that back.
    Raises InvalidInput TABLE_MISSING, Refused LOCKED, InvalidEnvironment AUDITED_DAMAGED.
    """
    started, run_at = time.monotonic(), datetime.now(UTC)
    contract = suite.contract
    files = files_of(places.lake, session)
    log = DeltaLog(files, places.target)
    state = log.state()
    if state is None:
        raise table_missing(contract.name, places.target)
    last = None if everything else last_run(session, places)
    since = log.since(last.version) if last is not None else []
    # A hold must outlive its record: if the folder was lost or moved away, the rows that failed are checked again.
    unrecorded = not at_work and contract.quality in audited_version.HOLDING and audited_version.unrecorded(files, places)
    scope = decide(last, state.version, state.id, suite.hash, since, contract.name, everything=everything, unrecorded=unrecorded)
    target = session.read.format("delta").option("versionAsOf", scope.version).load(places.target)
    frames = {"whole": target, "new": target.where(_inside(scope.slices))}
    if at_work and scope.after is not None:
        del frames["whole"]
    if not scope.slices:
        del frames["new"]
    work = _Work(gx.Runner(contract.name), shown_ids(suite), binary_columns(suite))
    results: list[tuple[Expected, str, dict[str, Any]]] = []
    for covered, frame in frames.items():
        chosen = [each for each in suite.expectations if covered == ("whole" if each.whole else scope.name)]
        counted = any("ledger_rows" in str(each.kwargs) for each in chosen)
        parameters = {"ledger_rows": ledger_rows(session, places, scope.version)} if counted else {}
        found = all_scrubbed(work.validate(chosen, frame, parameters), work.ids, suite.sensitive)
        results += [(expected, covered, result) for expected, result in found]
    results.sort(key=lambda each: each[0].number)
    run_id = f"{run_at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    rows = [
        QualityRow(
            schema_version=SCHEMA_VERSION,
            run_id=run_id,
            run_at=run_at,
            pipeline=contract.pipeline,
            table=contract.table,
            suite=suite.path,
            suite_hash=suite.hash,
            contract_hash=contract.hash,
            target_id=state.id,
            version_from=scope.after if covered == "new" else None,
            version_to=scope.version,
            run_scope=scope.name,
            scope=covered,
            sensitive=expected.touches(suite.sensitive),
            page=None,
            gx_version=installed("great-expectations"),
            **as_columns(expected, result),
        )
        for expected, covered, result in results
    ]
    compared: list[TotalLine] = []
    if figures is not None:
        at = At(places.target, scope.version)
        compared = lines(contract, asked(places.target, session, lambda engine: control_totals(engine, contract, at)), figures)
    page, note = None, None
    outcome = Checked(contract.name, scope, tuple(rows), None, None, 0.0, tuple(compared))
    if not outcome.passed and contract.quality in audited_version.HOLDING:
        # Before the results: the next check covers rows again only if these are not stored, and it must not pass without them.
        audited_version.failed(files, places, state.snapshot, run_id, why_failed(outcome))
    if rows:
        with table_lock.alone(session, places.lake, f"{places.root}/.quality"):
            if not at_work or not all(row.success for row in rows):
                meta = {"batch_spec": {"table": places.target, "data_asset_name": f"version {scope.version}", **_described(scope)}}
                shown = [result for _, _, result in results]
                configs = [each.config for each in suite.expectations]
                folder = pages_folder(places)
                try:
                    page = pages.write_pages(folder, contract.name, configs, shown, run_id, run_at, meta)
                    note = NOT_RENDERED if page is None else None if is_local(places.lake) else ELSEWHERE
                except OSError as error:  # e.g. a working folder without permissions; the results matter more than their page
                    where = error.filename or folder
                    note = f"none: {where} {refused_access(error)} ({error.strerror}); the results are in the table `quality`"
                except Exception as error:  # e.g. GX fails on a foreign file in its folder
                    note = f"{NOT_RENDERED} ({type(error).__name__})"
                rows = [dataclasses.replace(row, page=str(page)) for row in rows] if page else rows
            commits.append_quality(session, contract, places, [tuple(dataclasses.asdict(row).values()) for row in rows])
    if outcome.passed and not at_work:
        audited_version.passed(files, places, state.snapshot, run_id)
    audited, seconds = audited_version.audit_state(files, places), time.monotonic() - started
    return dataclasses.replace(outcome, rows=tuple(rows), page=page, page_note=note, seconds=seconds, state=audited)


def why_failed(checked: Checked) -> str:
    """The failed critical expectations and the control totals that differ, by name."""
    names = [f"{row.expectation} ({row.column})" if row.column else row.expectation for row in checked.critical]
    return ", ".join([*names, *dict.fromkeys(f"control total {each.total}" for each in checked.totals if each.is_found)])


def ledger_rows(session: SparkSession | None, places: Places, version: int) -> int:
    """Rows that batches up to `version` of the target inserted and that must still be there, counted as `ingest verify` does.

    A row that is missing without a DELETE counts; a surplus row does not. A lake on the machine's own disk needs no session.

    Raises Refused LOG_TORN, and Unreadable.
    """
    engine = engine_for(places.target, session)
    return account(engine, places, read_books(engine, places, version)).expected_rows


def last_run(session: SparkSession, places: Places) -> Last | None:
    """The newest validation run in which every expectation could be evaluated; None if there is none."""
    if not DeltaLog(files_of(places.lake, session), places.quality).exists():
        return None
    rows = session.read.format("delta").load(places.quality)
    runs = rows.groupBy("run_id", "run_at", "version_to", "target_id", "suite_hash").agg(F.count("exception").alias("exceptions"))
    newest = runs.where("exceptions = 0").orderBy(F.desc("run_at")).first()
    return None if newest is None else Last(newest["version_to"], newest["target_id"], newest["suite_hash"])


@dataclass(frozen=True)
class _Work:
    """Expectations on frames, in the fewest jobs that GX allows. `ids` are the columns that name a row, `binary` those with bytes."""

    runner: gx.Runner
    ids: tuple[str, ...]
    binary: frozenset[str] = frozenset()

    def validate(self, chosen: Sequence[Expected], frame: DataFrame, parameters: dict[str, Any]) -> list[tuple[Expected, dict[str, Any]]]:
        """GX's results, not scrubbed yet.

        To report figures, GX searches for unexpected values with one job per expectation, even if there are none. So expectations that
        judge rows and allow no exception first run for yes or no, all in one job. Those that fail run again for figures and ids.
        """
        if not chosen:
            return []
        frame = self._narrow(chosen, frame)
        exact = [each for each in chosen if each.exact]
        others = [each for each in chosen if not each.exact]
        *figures, count = self._run([*others, COUNT], frame, parameters, gx.SUMMARY)
        answers = self._run(exact, frame, parameters, gx.BOOLEAN)
        refused = [each for each, raw in zip(exact, answers, strict=True) if not raw["success"]]
        again = self._run(refused, frame, parameters, gx.SUMMARY)
        rows = int(count["result"]["observed_value"])
        found = [(each, passed(raw, rows)) for each, raw in zip(exact, answers, strict=True) if raw["success"]]
        return [*zip(others, figures, strict=True), *found, *zip(refused, again, strict=True)]

    def _run(self, chosen: Sequence[Expected], frame: DataFrame, parameters: dict[str, Any], form: str) -> list[dict[str, Any]]:
        """GX's results in their order. Expectations that may read bytes run without values: on bytes GX fails with the whole run."""
        found: dict[int, dict[str, Any]] = {}
        for values in (True, False):
            part = [each for each in chosen if each.touches(self.binary) != values]
            configs = [each.config for each in part]
            raws = self.runner.run(configs, frame, parameters, form=form, index=self.ids, samples=SAMPLES_MAX, values=values)
            found |= {each.number: raw for each, raw in zip(part, raws, strict=True)}
        return [found[each.number] for each in chosen]

    def _narrow(self, chosen: Sequence[Expected], frame: DataFrame) -> DataFrame:
        """Only the columns that are checked or shown, so that Parquet reads no others; all columns if an expectation may read any."""
        if any(each.open_ended for each in chosen):
            return frame
        wanted = {column.split(".")[0].lower() for each in chosen for column in each.columns} | {name.lower() for name in self.ids}
        return frame.select(*(f"`{name}`" for name in frame.columns if name.lower() in wanted))


def shown_ids(suite: Suite) -> tuple[str, ...]:
    """The columns that name a row in samples: the event id, or the position if the id is sensitive or of a type not in REPORTED."""
    ids = event_id_columns(suite.contract)
    types = {each.name: each.type.kind for each in target_columns(suite.contract)}
    return ids if not set(ids) & suite.sensitive and all(types.get(name) in REPORTED for name in ids) else POSITION


def binary_columns(suite: Suite) -> frozenset[str]:
    """The columns that contain bytes, directly or in a nested field."""
    return frozenset(each.name for each in target_columns(suite.contract) if "BINARY" in ddl(each.type, comments=False))


def _inside(slices: Sequence[Slice]) -> Column:
    found = F.lit(False)
    for each in slices:
        found |= (F.col("_epoch") == each.epoch) & F.col("_batch").between(each.first, each.last)
    return found


def _described(scope: Scope) -> dict[str, Any]:
    """The scope as the page shows it."""
    if scope.after is None:
        return {"version": scope.version, "rows": f"all ({scope.why})"}
    return {"version": scope.version, "rows": f"new since version {scope.after}; ids, row counts and freshness over all rows"}
