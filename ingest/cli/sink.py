"""`ingest sink`: store the events of topics in PostgreSQL exactly once, and show progress and dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line
from ingest.runtime.printable import aligned, printable

if TYPE_CHECKING:
    from ingest.delivery.sink.store import Write

Name = Annotated[str, typer.Argument(help="Name of the sink, which is also its consumer group.")]
SinkName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of a sink; default: all.")]
Topics = Annotated[list[str], typer.Option("--topic", help="Topic to read; may be repeated.")]
Writes = Annotated[
    str, typer.Option("--write", metavar="MODULE:FUNCTION", help="Function that inserts the rows: write(connection, records).")
]
EventIdFrom = Annotated[str, typer.Option("--event-id", help="Where the event id is: header:NAME, json:FIELD or key.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Maximum records per transaction.")]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Attempts for a record that fails alone.")]
DeadLetters = Annotated[bool, typer.Option("--dead-letter/--stop-at-failure", help="What happens to a record that fails.")]
Once = Annotated[bool, typer.Option("--once", help="End when no record has arrived for five seconds.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum dead letters, the newest first.")]

ONCE_IDLE_S = 5.0
ERROR_CHARACTERS_MAX = 80

sink = typer.Typer(name="sink", help="Store events in PostgreSQL exactly once.", no_args_is_help=True)
app.add_typer(sink)


@o.verb(sink, "database_url", "bootstrap_servers")
def run(
    env: o.Environment,
    name: Name,
    topics: Topics,
    write: Writes,
    event_id: EventIdFrom = "header:id",
    batch: Batch = 500,
    attempts: Attempts = 1,
    dead_letter: DeadLetters = True,
    once: Once = False,
    as_json: o.Json = False,
) -> None:
    """Store events until SIGTERM or Ctrl-C. Start as many of one name as the topics have partitions: they share the work.

    Example: ingest sink run payments --topic shop.payment --write shop.sinks:store_payments
    """
    from ingest.cli.stop_signal import until_signal
    from ingest.delivery.sink.database_sink import Sink
    from ingest.delivery.sink.record_id import parse

    kafka, function, find = env.kafka, _function(write), parse(event_id)
    settings: dict[str, Any] = {"event_id": find, "batch": batch, "attempts": attempts, "dead_letter": dead_letter}
    with until_signal() as stop, Sink(name, topics, function, env.database_url, kafka, **settings) as running:
        counts = running.run(stop=stop, idle_s=ONCE_IDLE_S if once else float("inf"))
        if as_json:
            print_json("sink-run", ok=True, **asdict(counts))
        else:
            out_line(
                f"{counts.stored:,} events stored, {counts.duplicates:,} duplicates skipped, {counts.dead:,} dead letters, "
                f"{counts.repeated:,} transactions repeated, {counts.fenced:,} partitions lost to another owner"
            )


@o.verb(sink, "database_url", "bootstrap_servers")
def status(env: o.Environment, as_json: o.Json = False) -> None:
    """Show next offset, lag, owner, stored events, duplicates and dead letters of each sink and partition.

    Example: ingest sink status --json
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.sink.sink_status import statuses

    rows = statuses(checked(env.database_url), env.kafka)
    if as_json:
        print_json("sink-status", ok=True, partitions=rows)
        return
    titles = ("sink", "partition", "next offset", "lag", "stored", "duplicates", "dead", "epoch", "owner")
    numbers = ("next_offset", "lag", "stored", "duplicates", "dead", "epoch")
    cells = [
        (
            row["sink"],
            f"{row['topic']}[{row['partition']}]",
            *("–" if row[n] is None else f"{row[n]:,}" for n in numbers),
            row["owner"] or "–",
        )
        for row in rows
    ]
    out_line(*(aligned([titles, *cells], right=range(2, 8)) if rows else ["no sink has read anything"]))


@o.verb(sink, "database_url")
def dead(env: o.Environment, name: SinkName = None, limit: Limit = 100, as_json: o.Json = False) -> None:
    """List dead letters: position, event id, error and time. Their bytes are in the table oncelake_dead_letter.

    Example: ingest sink dead payments --limit 10
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.sink.sink_status import dead_letters

    rows = dead_letters(checked(env.database_url), name, limit)
    if as_json:
        print_json("sink-dead", ok=True, dead_letters=rows)
        return
    for row in rows:
        event_id, error = printable(row["event_id"] or "–", ERROR_CHARACTERS_MAX), printable(row["error"], ERROR_CHARACTERS_MAX)
        out_line(
            f"{row['stored_at']:%Y-%m-%d %H:%M:%S}  {row['sink']}  {row['topic']}[{row['partition']}]@{row['offset']}  {event_id}  {error}"
        )
    if not rows:
        out_line("no dead letters")


def _function(text: str) -> Write:
    """The function that `module:function` names; the working directory is searched too. Raises InvalidInput SINK_WRITE_UNKNOWN."""
    import os
    import sys
    from importlib import import_module

    from ingest.runtime.errors import InvalidInput

    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Write = getattr(import_module(module), name)
        if not callable(found):
            raise TypeError(f"{name} is {type(found).__name__}")
    except Exception as error:  # the module may raise anything
        raise InvalidInput(
            "SINK_WRITE_UNKNOWN",
            f"--write {text!r} cannot be loaded ({type(error).__name__}: {error}).",
            expected="MODULE:FUNCTION, with a module in this folder or installed, and a function(connection, records).",
            remedy="correct the name.",
        ) from error
    return found
