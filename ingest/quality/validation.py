"""A validation run of one table: its scope and engine, the suite through GX, pages, and one row per expectation in the quality table."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, asked, engine_for
from ingest.delta.direct_fit import unfit_because
from ingest.delta.log_errors import table_missing
from ingest.delta.table_state import TableState
from ingest.ledger.books import read_books
from ingest.quality import audited_version, engine_choice, gx, pages
from ingest.quality.audited_version import AuditState
from ingest.quality.control_total import TotalLine, Totals, control_totals, lines
from ingest.quality.quality_table import append_quality, last_run
from ingest.quality.scope import Scope, decide
from ingest.quality.suite import Expected, Suite
from ingest.quality.suite_run import Rows, SuiteRun, binary_columns, shown_ids
from ingest.quality.validation_result import SCHEMA_VERSION, QualityRow, all_scrubbed, as_columns
from ingest.run import table_lock
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles, files_of, is_local, refused_access
from ingest.runtime.places import Places, pages_folder
from ingest.verify.count import account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = "on this machine's disk, since the lake is elsewhere: it is lost with the machine; the results stay in the table `quality`"
NOT_RENDERED = "none: Great Expectations could not render it; the results are in the table `quality`"


@dataclass(frozen=True)
class Checked:
    """A validation run of one table; `page` is its Data Docs page, if one was written, `page_note` a note about it for the user.

    `totals` are the control totals, if figures were given. `state` is the audited version after the run. `engine` is `duckdb` or `spark`.
    """

    table: str
    scope: Scope
    rows: tuple[QualityRow, ...]
    page: Path | None
    page_note: str | None
    seconds: float
    totals: tuple[TotalLine, ...] = ()
    state: AuditState = field(default_factory=AuditState)
    engine: str = "duckdb"

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
    spark: Callable[[], SparkSession],
    suite: Suite,
    places: Places,
    *,
    everything: bool = False,
    at_work: bool = False,
    figures: Mapping[str, Totals] | None = None,
    with_spark: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Checked:
    """Validate the target with `suite`: all rows (`everything`), or those that were added since the last run.

    `spark` gives the session, and is called only if one is needed: because the caller wants it (`with_spark`), or DuckDB would not do
    (`engine_choice`); then `say` gets the reason first. `at_work` is for a check during a run: expectations that always cover the whole
    table are left out, unless all rows are checked anyway, and a page is written only if something failed. With `figures` the control
    totals of the same version are compared, too. A check that passes makes its version the audited one, unless it was done at work; a
    failed one may hold that back. Raises InvalidInput TABLE_MISSING, DUCKDB_ROWS_INVALID, Refused LOCKED, InvalidEnvironment
    AUDITED_DAMAGED.
    """
    started, run_at = time.monotonic(), datetime.now(UTC)
    contract = suite.contract
    session = spark() if with_spark or not is_local(places.lake) else None
    files = files_of(places.lake, session)
    log = DeltaLog(files, places.target)
    state = log.state()
    if state is None:
        raise table_missing(contract.name, places.target)
    last = None if everything else last_run(session, places)
    since = log.since(last.version) if last is not None else []
    # A hold must outlive its record: if the folder was lost or moved away, the rows that failed are checked again.
    unrecorded = not at_work and contract.quality in audited_version.HOLDING and audited_version.unrecorded(files, places)

    def scope_of(engine: str) -> Scope:
        given = (last, state.version, state.id, suite.hash, since, contract.name, engine)
        return decide(*given, everything=everything, unrecorded=unrecorded)

    here = is_local(places.lake) and not with_spark
    chosen = _in_duckdb(suite, places, state, scope_of("duckdb"), say, at_work=at_work) if here else None
    if chosen is None:
        from ingest.quality.spark_rows import SparkRows

        session = session or spark()
        chosen = SparkRows(session, places.target, state.version)
    try:
        scope = scope_of(chosen.engine)
        return _checked(session, suite, places, state, scope, chosen, at_work=at_work, figures=figures, started=started, run_at=run_at)
    finally:
        chosen.close()


def _in_duckdb(
    suite: Suite, places: Places, state: TableState, scope: Scope, say: Callable[[str], object], *, at_work: bool
) -> Rows | None:
    """The rows in DuckDB; None if Spark has to check them, after `say` got the reason."""
    because = engine_choice.spark_because(suite, state)
    results = DeltaLog(LocalFiles(), places.quality).state()
    if because is None and results is not None and (unfit := unfit_because(results)) is not None:
        because = f"the table of its results {unfit}"
    if because is None:
        try:
            rows = engine_choice.duckdb_rows(suite, state, places)
        except InvalidInput as error:  # DIRECT_UNFIT, such as files in another store
            because = error.found.rstrip(".")
        else:
            whole = scope.after is None or (not at_work and any(each.whole for each in suite.expectations))
            because = engine_choice.too_many(rows.most(None if whole else scope.slices))
            if because is None:
                return rows
            rows.close()
    say(f"{suite.contract.name} is checked by Spark: {because}")
    return None


def _checked(
    session: SparkSession | None,
    suite: Suite,
    places: Places,
    state: TableState,
    scope: Scope,
    rows_of: Rows,
    *,
    at_work: bool,
    figures: Mapping[str, Totals] | None,
    started: float,
    run_at: datetime,
) -> Checked:
    contract, files = suite.contract, files_of(places.lake, session)
    views = {"whole": None, "new": scope.slices}
    if at_work and scope.after is not None:
        del views["whole"]
    if not scope.slices:
        del views["new"]
    results: list[tuple[Expected, str, dict[str, Any]]] = []
    with closing(gx.Runner(contract.name, rows_of.database)) as runner:
        work = SuiteRun(rows_of, runner, shown_ids(suite), binary_columns(suite))
        for covered, slices in views.items():
            chosen = [each for each in suite.expectations if covered == ("whole" if each.whole else scope.name)]
            counted = any("ledger_rows" in str(each.kwargs) for each in chosen)
            parameters = {"ledger_rows": ledger_rows(session, places, scope.version)} if counted else {}
            view = rows_of.view(covered, slices) if chosen else None
            found = all_scrubbed(work.validate(chosen, view, parameters), work.ids, suite.sensitive)
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
            engine=rows_of.engine,
            **as_columns(expected, result),
        )
        for expected, covered, result in results
    ]
    compared: list[TotalLine] = []
    if figures is not None:
        at = At(places.target, scope.version)
        compared = lines(contract, asked(places.target, session, lambda engine: control_totals(engine, contract, at)), figures)
    page, note = None, None
    outcome = Checked(contract.name, scope, tuple(rows), None, None, 0.0, tuple(compared), engine=rows_of.engine)
    if not outcome.passed and contract.quality in audited_version.HOLDING:
        # Before the results: the next check covers rows again only if these are not stored, and it must not pass without them.
        audited_version.failed(files, places, state.snapshot, run_id, why_failed(outcome))
    if rows:
        with table_lock.alone(session, places.lake, f"{places.root}/.quality"):
            if not at_work or not all(row.success for row in rows):
                about = {"table": places.target, "data_asset_name": f"version {scope.version}", "engine": rows_of.engine}
                meta = {"batch_spec": {**about, **_described(scope)}}
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
            append_quality(session, contract, places, rows)
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


def _described(scope: Scope) -> dict[str, Any]:
    """The scope as the page shows it."""
    if scope.after is None:
        return {"version": scope.version, "rows": f"all ({scope.why})"}
    return {"version": scope.version, "rows": f"new since version {scope.after}; ids, row counts and freshness over all rows"}
