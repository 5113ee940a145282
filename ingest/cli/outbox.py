"""`ingest outbox`: publish the events of an outbox table to Kafka, show the backlog, and retry or purge rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import LogLine, out_line

Topic = Annotated[str, typer.Option("--topic", help="Topic of an event.")]
Once = Annotated[bool, typer.Option("--once", help="End when there is nothing to publish, or another relay leads.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Maximum events per transaction.")]
BatchBytes = Annotated[int, typer.Option("--batch-bytes", min=1, help="Maximum bytes per transaction; all of them are in memory.")]
Timeout = Annotated[int, typer.Option("--transaction-timeout-ms", min=1_000, max=900_000, help="Maximum time of a transaction.")]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Park a row that the brokers have refused this often.")]
KeepDays = Annotated[float | None, typer.Option("--keep-days", min=0, help="Delete rows that were published longer ago.")]
Days = Annotated[float, typer.Option("--older-than-days", min=0, help="Age since their publication.")]
EventIds = Annotated[list[str] | None, typer.Argument(metavar="[EVENT_ID]...", help="Event ids; all parked rows without any.")]

outbox = typer.Typer(name="outbox", help="Publish an application's outbox table to Kafka.", no_args_is_help=True)
app.add_typer(outbox)


@o.verb(outbox, "database_url", "bootstrap_servers")
def relay(
    env: o.Environment,
    topic: Topic = "outbox.event.{aggregatetype}",
    once: Once = False,
    batch: Batch = 1_000,
    batch_bytes: BatchBytes = 16_777_216,
    transaction_timeout_ms: Timeout = 10_000,
    attempts: Attempts = 5,
    keep_days: KeepDays = None,
    as_json: o.Json = False,
) -> None:
    """Publish events until SIGTERM or Ctrl-C. Of several relays of one outbox, one leads and the others stand by.

    Example: ingest outbox relay --topic 'shop.{aggregatetype}' --keep-days 7
    """
    import logging

    from ingest.cli.stop_signal import until_signal
    from ingest.delivery.database.database import connect
    from ingest.delivery.outbox.relay import POLL_MS, Relay

    kafka, keep = env.kafka, None if keep_days is None else timedelta(days=keep_days)
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(LogLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[to_stderr])
    logging.getLogger("ingest.delivery.outbox").setLevel(logging.INFO)
    engine = connect(env.database_url)
    with (
        until_signal() as stop,
        Relay(
            engine,
            kafka,
            topic=topic,
            batch=batch,
            batch_bytes=batch_bytes,
            transaction_timeout_ms=transaction_timeout_ms,
            attempts=attempts,
            keep=keep,
        ) as running,
    ):
        counts = running.run(stop=stop, idle_s=POLL_MS / 1000 if once else float("inf"))
        if as_json:
            print_json("outbox-relay", ok=True, **asdict(counts))
        elif counts.led == 0:
            out_line("nothing was published: another relay leads")
        else:
            out_line(f"{counts.published:,} events published, {counts.parked:,} parked, {counts.repeated:,} batches sent again")


@o.verb(outbox, "database_url")
def status(env: o.Environment, as_json: o.Json = False) -> None:
    """Show the backlog, the age of its oldest event, the rate of the last minute, and parked events.

    Example: ingest outbox status --json
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.outbox.unpublished import backlog, parked

    engine = checked(env.database_url)
    state, rows = backlog(engine), parked(engine)
    if as_json:
        print_json("outbox-status", ok=True, **asdict(state), parked_rows=rows)
        return
    out_line(f"to publish   {state.rows:,} events, the oldest is {state.oldest_age_s:,.1f} s old")
    out_line(f"published    {state.published_per_s:,.1f} events/s in the last minute")
    out_line(f"parked       {state.parked:,} events")
    for row in rows:
        out_line(f"  {row['event_id']}  {row['aggregatetype']} {row['aggregateid']}  {row['last_error']}")
    if rows:
        out_line("After their cause is mended: ingest outbox retry")


@o.verb(outbox, "database_url")
def retry(env: o.Environment, event_ids: EventIds = None, as_json: o.Json = False) -> None:
    """Let the relay try parked events again.

    Example: ingest outbox retry order-17
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.outbox.unpublished import retry as retry_parked

    number = retry_parked(checked(env.database_url), event_ids or [])
    if as_json:
        print_json("outbox-retry", ok=True, retried=number)
    else:
        out_line(f"{number:,} events will be published again")


@o.verb(outbox, "database_url")
def purge(env: o.Environment, older_than_days: Days = 7.0, as_json: o.Json = False) -> None:
    """Delete old published events, 5,000 in a transaction. Unpublished and parked events are never deleted.

    Example: ingest outbox purge --older-than-days 30
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.outbox.unpublished import purge as purge_published

    number = purge_published(checked(env.database_url), timedelta(days=older_than_days))
    if as_json:
        print_json("outbox-purge", ok=True, deleted=number)
    else:
        out_line(f"{number:,} published events deleted")
