"""`ingest broker`: start, stop and query an embedded Kafka broker on a laptop, from any terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.app import app, print_json
from ingest.cli.options import Json
from ingest.runtime.output import out_line

Data = Annotated[Path, typer.Option("--data", help="Folder for the broker's data. Its topics survive a stop.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes the folder's last port or any free one.")]

DATA_DEFAULT = Path(".broker")
PORT_DEFAULT = 9092

broker = typer.Typer(name="broker", help="Start and stop an embedded Kafka broker on this machine.", no_args_is_help=True)
app.add_typer(broker)


@broker.command()
def start(data: Data = DATA_DEFAULT, port: Port = PORT_DEFAULT, as_json: Json = False) -> None:
    """Start the broker in the background and wait until it answers. A running broker is left as it is.

    Example: ingest broker start --port 9092
    """
    from ingest.lab.broker.embedded_broker import Broker

    node = Broker(data, port=port, die_with_parent=False)
    already = node.running
    node.start()
    if as_json:
        print_json(
            "broker-start", ok=True, bootstrap_servers=node.bootstrap_servers, pid=node.pid, data=str(node.folder), started=not already
        )
    else:
        out_line(
            f"{node.bootstrap_servers} {'was already running' if already else 'is up'} (data in {data}, stop with: {_stop_command(data)})"
        )


@broker.command()
def stop(data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Stop the broker. Its topics stay in the data folder.

    Example: ingest broker stop
    """
    from ingest.lab.broker.embedded_broker import Broker

    stopped = Broker(data).stop()
    if as_json:
        print_json("broker-stop", ok=True, stopped=stopped, data=str(data.absolute()))
    else:
        out_line("stopped" if stopped else f"no broker was running in {data}")


@broker.command()
def status(data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Show whether the broker runs and answers. Exit 1: it does not.

    Example: ingest broker status --json
    """
    from ingest.lab.broker.broker_probe import answers
    from ingest.lab.broker.embedded_broker import Broker

    node = Broker(data)
    state = node.state
    running = state is not None and state.process.alive()
    answering = running and answers(node.bootstrap_servers, timeout_s=5.0)
    if as_json:
        servers, pid = (node.bootstrap_servers, node.pid) if running else (None, None)
        print_json("broker-status", ok=answering, running=running, answers=answering, bootstrap_servers=servers, pid=pid)
    elif answering:
        out_line(f"{node.bootstrap_servers} is up (pid {node.pid}, data in {data})")
    else:
        out_line(
            f"{node.bootstrap_servers} runs but does not answer; see {node.folder / 'server.log'}"
            if running
            else f"no broker runs in {data}"
        )
    if not answering:
        raise typer.Exit(1)


def _stop_command(data: Path) -> str:
    return "ingest broker stop" if data == DATA_DEFAULT else f"ingest broker stop --data {data}"
