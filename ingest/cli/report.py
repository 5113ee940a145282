"""`ingest report` and `ingest ui`: the state of the tables as a page, in a file or live in a browser on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ingest.cli import options as o
from ingest.cli.app import app, document, print_error
from ingest.cli.status import local_contracts
from ingest.observe.report import HOURS_DEFAULT
from ingest.runtime.output import data_stream, err_line, out_line

if TYPE_CHECKING:
    from ingest.contract.definition import Contract
    from ingest.observe.report.summary import Summaries, Summary

Hours = Annotated[float, typer.Option("--hours", min=0.01, help="Hours before the newest commit that the charts cover.")]


@o.verb(app, "checkpoints", "bootstrap_servers")
def report(
    env: o.Environment,
    tables: o.Tables = None,
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file to write (default: report.html).", dir_okay=False)] = None,
    hours: Hours = HOURS_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Write the state of the tables into one HTML file that needs no network. With --json, print the figures; a file
    is then written only with --out.

    Example: ingest report orders --hours 168 --out week.html
    """
    from ingest.runtime.errors import most_severe

    contracts, look = _looker(env, tables, hours)
    file = out if out is not None or as_json else Path("report.html")
    if file is not None:
        from ingest.observe.report.html_page import page  # before the work, because it may be that the charts' packages are missing
    found = look()
    if file is not None:
        _write(file, page(found, env.lake, hours, lambda summary: _beside(file, summary)))
    if as_json:
        data_stream().write(_json(found) + "\n")
    else:
        out_line(f"{file}: {len(contracts)} table{'' if len(contracts) == 1 else 's'}")
        for error in found.errors.values():
            print_error(error)
    if found.errors:
        sys.exit(most_severe([error.exit_code for error in found.errors.values()]))


@o.verb(app, "checkpoints", "bootstrap_servers")
def ui(
    env: o.Environment,
    tables: o.Tables = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page (0: a free one).")] = 8080,
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Whoever reaches it can read the page.")] = "127.0.0.1",
    hours: Hours = HOURS_DEFAULT,
) -> None:
    """Serve the page of `ingest report` on this machine until Ctrl-C. The page refreshes itself, and /summary.json has the
    figures. The server only reads.

    Example: ingest ui --port 8080
    """
    contracts, look = _looker(env, tables, hours)
    from ingest.observe.report import web_server
    from ingest.observe.report.html_page import page
    from ingest.runtime.places import pages_folder

    def shown(found: Summaries, nonce: str) -> str:
        return page(
            found, env.lake, hours, lambda each: f"{_docs(each.table)}/index.html" if each.docs else None, nonce, web_server.EVERY_S
        )

    docs = {_docs(each.name): pages_folder(env.places(each)) for each in contracts}
    with web_server.Server(host, port, web_server.Answers(look, shown, _json, docs)) as server:
        if host not in ("127.0.0.1", "localhost", "::1"):
            err_line(f"note: whoever reaches {host} can read the page, with samples of quarantined records")
        out_line(f"the page is at {server.url}  (Ctrl-C ends it)", flush=True)
        server.serve()


def _looker(env: o.Environment, tables: list[str] | None, hours: float) -> tuple[tuple[Contract, ...], Callable[[], Summaries]]:
    """The contracts, and the function that reads their summaries."""
    contracts = local_contracts(env, tables)

    def look() -> Summaries:
        from ingest.observe.report.summary import summaries

        return summaries(contracts, env.lake, env.checkpoints, env.bootstrap_servers, hours, time.time())

    return contracts, look


def _json(found: Summaries) -> str:
    failures: list[dict[str, Any]] = [{"table": name, "ok": False, "error": error.as_dict()} for name, error in found.errors.items()]
    tables = [*(summary.as_dict() for summary in found.tables), *failures]
    error = next(iter(found.errors.values()), None)
    return json.dumps(document("report", ok=not failures, tables=tables, error=error, made_at=found.made_at), indent=2, default=str)


def _docs(table: str) -> str:
    return f"/docs/{'/'.join(map(quote, table.split('.', 1)))}"


def _beside(file: Path, summary: Summary) -> str | None:
    """The Data Docs as an address relative to the file, so that both can be moved together."""
    return None if summary.docs is None else quote(os.path.relpath(summary.docs, file.resolve().parent))


def _write(file: Path, text: str) -> None:
    """Replace the file as a whole, so that nobody reads half a page."""
    from ingest.runtime.files import PRIVATE, replacing

    with replacing(file, PRIVATE) as whole:  # it has samples of quarantined records
        whole.write(text.encode())
