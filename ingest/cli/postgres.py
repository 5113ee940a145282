"""`ingest postgres`: start, stop and query an embedded PostgreSQL on a laptop, from any terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import Json
from ingest.runtime.output import out_line

Data = Annotated[Path, typer.Option("--data", help="Folder for the server's data. It survives a stop.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes the folder's last port or any free one.")]

DATA_DEFAULT = Path(".postgres")
PORT_DEFAULT = 5432

postgres = typer.Typer(name="postgres", help="Start and stop an embedded PostgreSQL on this machine.", no_args_is_help=True)
app.add_typer(postgres)


@postgres.command()
def start(data: Data = DATA_DEFAULT, port: Port = PORT_DEFAULT, as_json: Json = False) -> None:
    """Start the server in the background and wait until it answers. A running server is left as it is.

    Example: ingest postgres start --port 5432
    """
    from ingest.lab.embedded_postgres import Postgres

    server = Postgres(data, port=port, die_with_parent=False)
    already = server.process is not None
    server.start()
    if as_json:
        print_json("postgres-start", ok=True, database_url=server.url, data=str(server.folder), started=not already)
    else:
        stop = "ingest postgres stop" if data == DATA_DEFAULT else f"ingest postgres stop --data {data}"
        out_line(f"{server.url} {'was already running' if already else 'is up'} (data in {data}, stop with: {stop})")


@postgres.command()
def stop(data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Stop the server. Its data stays in the folder.

    Example: ingest postgres stop
    """
    from ingest.lab.embedded_postgres import Postgres

    stopped = Postgres(data).stop()
    if as_json:
        print_json("postgres-stop", ok=True, stopped=stopped, data=str(data.absolute()))
    else:
        out_line("stopped" if stopped else f"no PostgreSQL was running in {data}")


@postgres.command()
def status(data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Show whether the server runs and answers. Exit 1: it does not.

    Example: ingest postgres status --json
    """
    from ingest.lab.embedded_postgres import Postgres

    server = Postgres(data)
    running = server.process is not None
    answering = running and server.answers()
    if as_json:
        print_json("postgres-status", ok=answering, running=running, answers=answering, database_url=server.url if running else None)
    elif running:
        out_line(f"{server.url} is up" if answering else f"{server.url} runs but does not answer; see {server.folder / 'server.log'}")
    else:
        out_line(f"no PostgreSQL runs in {data}")
    if not answering:
        raise typer.Exit(1)
