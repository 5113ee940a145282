"""`ingest broker` and `ingest postgres`: start, stop and query an embedded server on a laptop, from any terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import Json
from ingest.runtime.output import out_line

Data = Annotated[Path, typer.Option("--data", help="Folder for the server's data, which survives a stop.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes the folder's last port or any free one.")]


def _broker(folder: Path, **more: Any) -> Any:
    from ingest.lab.broker.embedded_broker import Broker

    return Broker(folder, **more)


def _postgres(folder: Path, **more: Any) -> Any:
    from ingest.lab.embedded_postgres import Postgres

    return Postgres(folder, **more)


def _add(name: str, title: str, what: str, server: Callable[..., Any], default_port: int, key: str, attribute: str) -> None:
    """Add the verbs of a server. Its address is its `attribute`, and stands in the JSON documents under `key`."""
    group = typer.Typer(name=name, help=f"Start and stop an embedded {title} on this machine.", no_args_is_help=True)
    default = Path(f".{name}")

    def example(verb: str) -> str:
        return f"\n\nExample: ingest {name} {verb}"

    @group.command(help=f"Start the {what} in the background and wait until it answers. A running one is left as it is.{example('start')}")
    def start(data: Data = default, port: Port = default_port, as_json: Json = False) -> None:
        node = server(data, port=port, die_with_parent=False)
        already = node.process is not None
        node.start()
        at = getattr(node, attribute)
        if as_json:
            print_json(f"{name}-start", ok=True, **{key: at}, pid=node.process.pid, data=str(node.folder), started=not already)
        else:
            end = f"ingest {name} stop" + ("" if data == default else f" --data {data}")
            out_line(f"{at} {'was already running' if already else 'is up'} (data in {data}, stop with: {end})")

    @group.command(help=f"Stop the {what}. Its data stays in the folder.{example('stop')}")
    def stop(data: Data = default, as_json: Json = False) -> None:
        stopped = server(data).stop()
        if as_json:
            print_json(f"{name}-stop", ok=True, stopped=stopped, data=str(data.absolute()))
        else:
            out_line("stopped" if stopped else f"no {what} was running in {data}")

    @group.command(help=f"Show whether the {what} runs and answers. Exit 1: it does not.{example('status --json')}")
    def status(data: Data = default, as_json: Json = False) -> None:
        node = server(data)
        process = node.process
        answers, at = process is not None and node.answers(), None if process is None else getattr(node, attribute)
        if as_json:
            about = {key: at, "pid": process and process.pid}
            print_json(f"{name}-status", ok=answers, running=process is not None, answers=answers, **about)
        elif process is None:
            out_line(f"no {what} runs in {data}")
        else:
            silent = f"runs but does not answer; see {node.folder / 'server.log'}"
            out_line(f"{at} is up (pid {process.pid}, data in {data})" if answers else f"{at} {silent}")
        if not answers:
            raise typer.Exit(1)

    app.add_typer(group)


_add("broker", "Kafka broker", "broker", _broker, 9092, "bootstrap_servers", "bootstrap_servers")
_add("postgres", "PostgreSQL", "server", _postgres, 5432, "database_url", "url")
