"""`ingest check` and `ingest suggest`: validate tables with expectation suites, and write a first suite."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json, print_verdict
from ingest.runtime.output import data_stream, err_line, out_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ingest.contract.definition import Contract
    from ingest.quality.control_total import TotalLine, Totals
    from ingest.quality.suite import Suite
    from ingest.quality.validation import Checked
    from ingest.runtime.places import Places


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def check(
    env: o.Environment,
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all with a suite.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check all rows, not only those since the last validation run.")] = False,
    with_spark: Annotated[bool, typer.Option("--spark", help="Check through Spark (default: only if DuckDB cannot).")] = False,
    figures: o.Figures = None,
    figures_topic: o.FiguresTopic = None,
    as_json: o.Json = False,
) -> int:
    """Validate tables with their Great Expectations suites. Exit 1: a critical expectation failed, or a control total differs.

    Example: ingest check orders --all
    """
    from ingest.quality.suite import load_suites

    contracts = env.contracts(tables)
    suites = load_suites(env.project, contracts, named=bool(tables))
    say_unchecked(contracts)
    given = figures_by_table([suite.contract for suite in suites], figures, figures_topic, env)
    tables_at = [(suite, env.places(suite.contract)) for suite in suites]
    with ExitStack() as started:
        spark = cache(lambda: started.enter_context(env.session("check")))
        return check_all(spark, tables_at, everything=everything, as_json=as_json, figures=given, with_spark=with_spark)


def figures_by_table(
    contracts: Sequence[Contract], file: Path | None, topic: str | None, env: o.Environment
) -> Mapping[str, Mapping[str, Totals]]:
    """The figures of the one table that they are for, by its name; empty if none were given. Raises InvalidInput OPTIONS_CONTRADICT."""
    from ingest.quality.figures import contract_with_totals, read_figures
    from ingest.runtime.errors import InvalidInput

    if file is None and topic is None:
        return {}
    if file is not None and topic is not None:
        raise InvalidInput(
            "OPTIONS_CONTRADICT",
            f"--figures {file} and --figures-topic {topic} were given together.",
            expected="the figures from one place.",
            remedy="leave one of them out.",
        )
    contract = contract_with_totals(contracts)
    return {contract.name: read_figures(contract, file, topic, env.kafka)}


def say_unchecked(contracts: Sequence[Contract]) -> None:
    """Print the tables that have no suite, so that nobody mistakes their silence for a pass."""
    for contract in contracts:
        if not contract.suite:
            err_line(f"note: {contract.name} is not checked: its contract names no suite")


def check_all(
    spark: Callable[[], SparkSession],
    tables: Sequence[tuple[Suite, Places]],
    *,
    everything: bool,
    as_json: bool,
    figures: Mapping[str, Mapping[str, Totals]] | None = None,
    with_spark: bool = False,
) -> int:
    """Check the tables in turn, print the results and return the exit code. One table's error does not stop the others.

    `spark` gives the session, and is called only if one is needed.
    """
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.query_failure import stopped
    from ingest.quality.validation import check as check_table
    from ingest.quality.watch import not_done
    from ingest.runtime.errors import IngestError
    from ingest.runtime.spark import jvm_exit

    found: list[Checked] = []
    sessions: list[SparkSession] = []

    def session() -> SparkSession:
        sessions.append(spark())
        return sessions[-1]

    def say(note: str) -> None:
        err_line(f"note: {note}")

    errors: dict[str, IngestError] = {}
    for suite, places in tables:
        try:
            given = (figures or {}).get(places.name)
            found.append(check_table(session, suite, places, everything=everything, figures=given, with_spark=with_spark, say=say))
        except IngestError as error:
            errors[places.name] = error
        except Exception as error:
            if any(jvm_exit(started) is not None for started in sessions):
                raise
            named = stopped(suite.contract, KafkaOptions.from_environment(""), error)
            errors[places.name] = not_done(suite, error) if named.code == "QUERY_FAILED" else named
    failed = any(not each.passed for each in found)
    return print_verdict("check", found, errors, as_json=as_json, as_row=as_row, show=print_checked, code=int(failed))


@o.verb(app, "checkpoints", "master")
def suggest(
    env: o.Environment,
    table: o.Table,
    force: Annotated[bool, typer.Option("--force", help="Replace expectations/<table>.json if it exists.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the suite instead of writing it.")] = False,
    as_json: o.Json = False,
) -> None:
    """Write a first expectation suite from a table's rows. Review and prune it.

    Example: ingest suggest orders --stdout
    """
    from ingest.quality.suggest import refuse_existing, suggest_suite

    contract = env.contract(table)
    path = env.project / "expectations" / f"{contract.table}.json"
    if not stdout and not force:
        refuse_existing(path)
    with env.session("suggest") as session:
        text = suggest_suite(session, contract, env.places(contract))
    if not stdout:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if as_json:
        row = {"table": contract.name, "ok": True, "file": None if stdout else str(path), "suite": json.loads(text)}
        print_json("suggest", ok=True, tables=[row])
    elif stdout:
        data_stream().write(text)
    else:
        out_line(f"{path}: remove what holds only by chance, then name the suite in the contract: `suite: expectations/{path.name}`")


def as_row(checked: Checked) -> dict[str, Any]:
    """The table's entry in the JSON document."""
    scope = {"run": checked.scope.name, "version_from": checked.scope.after, "version_to": checked.scope.version, "why": checked.scope.why}
    keys = ("number", "expectation", "column", "severity", "scope", "success", "observed", "element_count", "unexpected_count", "exception")
    rows = [{**{key: getattr(row, key) for key in keys}, "samples": json.loads(row.samples)} for row in checked.rows]
    page = str(checked.page) if checked.page else None
    return {
        "table": checked.table,
        "ok": checked.passed,
        "scope": scope,
        "engine": checked.engine,
        "expectations": rows,
        "page": page,
        "page_note": checked.page_note,
        "totals": [total_row(each) for each in checked.totals],
        **dataclasses.asdict(checked.state),
        "seconds": checked.seconds,
    }


def print_checked(checked: Checked) -> None:
    """Print the verdict, the rows that the check covered, the failed expectations with event ids, and the path of the page."""
    scope, failed = checked.scope, checked.failed
    verdict = "FAILED" if not checked.passed else "passed with warnings" if failed else "passed"
    if scope.after is None:
        covered = f"all rows at version {scope.version} ({scope.why})"
    elif not scope.slices:
        covered = f"nothing new since version {scope.after}"
    else:
        first = scope.after + 1
        covered = f"version {first}" if first == scope.version else f"versions {first} to {scope.version}"
    if scope.after is not None:  # earlier failures may still be there: this check did not read those rows
        covered += "; earlier rows: ingest check --all"
    passed = len(checked.rows) - len(failed)
    out_line(
        f"{checked.table}: {verdict} ({passed} of {len(checked.rows)} expectations; {covered}; {checked.engine}, {checked.seconds:.1f} s)"
    )
    for line in failures(checked):
        out_line(f"  {line}")
    for each in checked.totals:
        if each.is_found:
            out_line(f"  ! control total {total_text(each)}")
    if checked.state.held:
        out_line(f"  the audited version is held back since {checked.state.held.since}: ingest audited show {checked.table}")
    if checked.page:
        out_line(f"  page: {checked.page}" + (f" ({checked.page_note})" if checked.page_note else ""))
    elif checked.page_note:
        out_line(f"  page: {checked.page_note}")


def total_row(line: TotalLine) -> dict[str, Any]:
    """A figure in the JSON document: decimals as text."""
    figures = {"ours": line.ours, "theirs": line.theirs, "difference": line.difference}
    decimals = {name: None if each is None else format(each, "f") for name, each in figures.items()}
    return {**dataclasses.asdict(line), "day": line.day and line.day.isoformat(), **decimals}


def total_text(line: TotalLine) -> str:
    """A figure as one line: total, day, group, column, and both sides if there is something to compare."""
    from ingest.runtime.printable import printable

    group = "".join(f" {printable(str(value))}" for value in line.group.values())
    ours, theirs, difference = ("–" if each is None else f"{each:,f}" for each in (line.ours, line.theirs, line.difference))
    compared = (
        f"ours {ours}" if line.theirs is None and line.difference is None else f"ours {ours}, theirs {theirs}, difference {difference}"
    )
    return f"{line.total} {line.day or 'without a day'}{group} {line.column}: {compared} ({line.verdict})"


def failures(checked: Checked) -> Iterable[str]:
    """One line per failed expectation, with event ids if single rows fail it."""
    from ingest.quality.validation_result import sample_ids
    from ingest.runtime.printable import printable

    for row in checked.failed:
        what = f"! {row.severity}: {row.expectation}" + (f" ({row.column})" if row.column else "")
        if row.exception:
            yield f"{what}: could not be evaluated: {printable(row.exception)}"
        elif row.unexpected_count is not None:
            ids = ", ".join(sample_ids(row))
            yield f"{what}: {row.unexpected_count:,} of {row.element_count or 0:,} rows" + (f", such as {ids}" if ids else "")
        else:
            # GX observes None for a mean without values, and for an expectation that a column exists.
            unseen = "a value that is not shown" if row.sensitive else "nothing"
            observed = unseen if row.observed is None else printable(row.observed)
            yield f"{what}: observed {observed}, expected {row.arguments}"
