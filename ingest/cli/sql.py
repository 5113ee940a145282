"""`ingest sql`: query the project's tables, without a JVM (most queries in under two seconds) or through Spark."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import JSON, app, print_json
from ingest.runtime.output import data_stream, err_line, out_line

if TYPE_CHECKING:
    from ingest.contract.definition import Contract
    from ingest.sql.catalog import Catalog
    from ingest.sql.engine import Ask

WIDTH_DEFAULT = 160  # characters per line of a printed table without a terminal


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    CSV = "csv"
    SPREADSHEET = "spreadsheet"
    JSON = "json"


Statement = Annotated[
    str | None, typer.Argument(metavar="SQL", help="A read-only statement: SELECT, WITH, VALUES, EXPLAIN, SHOW, DESCRIBE.")
]
File = Annotated[Path | None, typer.Option("--file", help="Read the statement from a file; - is standard input.")]
Name = Annotated[str | None, typer.Option("--question", help="Ask a ready question about the table that --table names.")]
As = Annotated[Format, typer.Option("--format", help="Output format. spreadsheet: CSV in which no text is a formula.")]
At = Annotated[str | None, typer.Option("--at", help="Query the past: all tables at a time (default zone: UTC), or --table at a version.")]
Table = Annotated[str | None, typer.Option("--table", help="The table for --question or --at VERSION.")]
Since = Annotated[str | None, typer.Option("--since", help="Start time for questions that use one (default: 24 hours ago).")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum rows (default: 100 as a table, else all).")]
Tables = Annotated[bool, typer.Option("--tables", help="List the tables with their columns.")]
Questions = Annotated[bool, typer.Option("--questions", help="List the ready questions.")]
WithSpark = Annotated[bool, typer.Option("--spark", help="Query through Spark, which also reads lakes that are not on this machine.")]


@o.verb(app, "master")
def sql(
    env: o.Environment,
    statement: Statement = None,
    file: File = None,
    question: Name = None,
    table: Table = None,
    at: At = None,
    since: Since = None,
    form: As = Format.TABLE,
    limit: Limit = None,
    tables: Tables = False,
    questions: Questions = False,
    with_spark: WithSpark = False,
    as_json: Annotated[bool, typer.Option(JSON, help="The same as --format json.")] = False,
) -> None:
    """Query the project's tables in SQL, without Spark. Tables: <table>, <table>__audited, <table>__quarantine,
    <table>__ledger and <table>__quality. Statements only read.

    Example: ingest sql 'SELECT count(*) FROM orders' --at 2026-11-21T08:00Z
    """
    from ingest.cli.progress import unread
    from ingest.runtime.errors import IngestError
    from ingest.sql.question import contract_named
    from ingest.sql.question import question as ready
    from ingest.sql.read_only import refuse_writes

    form = Format.JSON if as_json else form
    try:
        _one_of(statement=statement, file=file, question=question, tables=tables or None, questions=questions or None)
        with unread(sys.stdout):
            if questions:
                return _list_questions(form)
            text, asked = _text(statement, file), ready(question) if question else None
            if text and not with_spark:  # Spark judges its statement itself, once it has started
                refuse_writes(text)
            contracts = env.contracts()
            of = contract_named(contracts, table) if asked else None
            with _engine(env, contracts, with_spark, at, of.name if of else table) as (catalog, ask):
                if asked and of:
                    text = asked.of(of, catalog, _since(since))
                if text:
                    _print(ask, text, form, limit, catalog)
                else:
                    _list_tables(catalog, form)
    except IngestError as error:
        if form is not Format.JSON or as_json:
            raise
        # `main` prints errors as JSON only for --json, not for --format json.
        print_json("sql", ok=False, error=error)
        sys.exit(error.exit_code)


@contextmanager
def _engine(
    env: o.Environment, contracts: tuple[Contract, ...], spark: bool, at: str | None, table: str | None
) -> Iterator[tuple[Catalog, Ask]]:
    """Yield the tables, now or at `at`, and the function that answers statements about them."""
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.files import files_of, is_local
    from ingest.sql.catalog import at_time, at_version, catalog, parse_at
    from ingest.sql.engine import with_spark, without_spark
    from ingest.sql.question import contract_named

    if not (spark or is_local(env.lake)):
        raise InvalidInput(
            "SQL_REMOTE", f"the lake {env.lake} is not on this machine.", expected="a local folder, or --spark.", remedy="add --spark."
        )
    moment = None if at is None else parse_at(at)
    with env.session("sql") if spark else nullcontext() as session:
        files = files_of(env.lake, session)
        known = catalog(contracts, env.lake, files)
        if isinstance(moment, datetime):
            now = known
            known = at_time(known, moment, files)
            for name, reason in known.absent[len(now.absent) :]:
                err_line(f"ingest: {name} is left out: {reason}.")
        elif moment is not None:
            known = at_version(known, table or contract_named(contracts, None).name, moment, files)
        with nullcontext(without_spark(known)) if session is None else with_spark(session, known) as ask:
            yield known, ask


def _print(ask: Ask, text: str, form: Format, limit: int | None, catalog: Catalog) -> None:
    from shutil import get_terminal_size

    from ingest.sql.formats import ROWS_DEFAULT, write_csv, write_json, write_lines, write_table
    from ingest.sql.read_only import is_explain

    rows = (limit or ROWS_DEFAULT) + 1 if form is Format.TABLE else limit
    answer = ask(text, rows)
    match form:
        case Format.TABLE if is_explain(text):
            write_lines(answer, data_stream(), limit)
        case Format.TABLE:
            write_table(answer, data_stream(), get_terminal_size((WIDTH_DEFAULT, 24)).columns, limit)
        case Format.CSV:
            write_csv(answer, data_stream(), limit)
        case Format.SPREADSHEET:
            write_csv(answer, data_stream(), limit, no_formulas=True)
        case Format.JSON:
            write_json(answer, data_stream(), limit, absent=_absent(catalog))


def _list_tables(catalog: Catalog, form: Format) -> None:
    from ingest.sql.description import describe

    found = describe(catalog)
    if form is Format.JSON:
        print_json("sql", ok=True, tables=[dataclasses.asdict(each) for each in found], absent=_absent(catalog))
    elif form is not Format.TABLE:
        writer = csv.writer(data_stream())
        writer.writerow(("table", "column", "type", "nullable"))
        writer.writerows((each.table, c.name, c.type, str(c.nullable).lower()) for each in found for c in each.columns)
    else:
        for each in found:
            out_line(f"{each.table}{'' if each.table == each.name else f' (also {each.name})'}, version {each.version}")
            longest = max(len(column.name) for column in each.columns)
            for column in each.columns:
                out_line(f"  {column.name.ljust(longest)}  {column.type}{'' if column.nullable else ' NOT NULL'}")
        for name, reason in catalog.absent:
            out_line(f"{name}: {reason}")


def _absent(catalog: Catalog) -> list[dict[str, str]]:
    return [{"table": name, "reason": reason} for name, reason in catalog.absent]


def _list_questions(form: Format) -> None:
    from ingest.sql.question import questions

    found = questions()
    if form is Format.JSON:
        rows = [{"question": each.name, "title": each.title, "explanation": each.explanation} for each in found.values()]
        return print_json("sql", ok=True, questions=rows)
    longest = max(map(len, found))
    for each in found.values():
        out_line(f"{each.name.ljust(longest)}  {each.title}")


def _one_of(**given: object) -> None:
    from ingest.runtime.errors import InvalidInput

    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        found = "nothing was asked." if not names else f"{' and '.join(names)} were given together."
        expected = "one of: a statement, --file, --question, --tables, --questions."
        raise InvalidInput("SQL_NOTHING_ASKED" if not names else "SQL_TOO_MUCH_ASKED", found, expected=expected, remedy="give one of them.")


def _text(statement: str | None, file: Path | None) -> str:
    """The statement from the argument or --file; empty if neither was given. Raises InvalidInput SQL_NOT_A_QUERY or SQL_FILE."""
    from ingest.runtime.errors import InvalidInput

    if file is None:
        if statement is not None and not statement.strip():
            raise InvalidInput("SQL_NOT_A_QUERY", "the statement is empty.", expected="a read-only statement.", remedy="write one.")
        return statement or ""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            "SQL_FILE", f"{file} cannot be read: {error}.", expected="a file of UTF-8 text.", remedy="name the right file."
        ) from error
    if not text.strip():
        raise InvalidInput("SQL_NOT_A_QUERY", f"{file} is empty.", expected="a read-only statement.", remedy="write one into it.")
    return text


def _since(text: str | None) -> datetime:
    from ingest.sql.catalog import parse_time

    return datetime.now(UTC) - timedelta(days=1) if text is None else parse_time(text, "SQL_SINCE_INVALID")
