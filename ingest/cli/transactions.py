"""`ingest transactions`: list the brokers' transactions and those that hold back readers, and abort one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line
from ingest.runtime.printable import aligned

if TYPE_CHECKING:
    from ingest.kafka.open_transactions import Listed

Open = Annotated[bool, typer.Option("--open", help="List only ids with an open transaction.")]
Abort = Annotated[str | None, typer.Option("--abort", metavar="ID", help="Abort the open transaction of this transactional id.")]
Yes = Annotated[bool, typer.Option("--yes", help="Abort without asking.")]


@app.command()
def transactions(
    only_open: Open = False,
    abort: Abort = None,
    yes: Yes = False,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """List transactional ids, and end a hanging transaction. Shows state, age and partitions, and which open
    transaction holds back the last stable offset.

    Example: ingest transactions --open
    """
    from ingest.kafka import open_transactions as held
    from ingest.kafka.broker_request import quiet
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.runtime.errors import InvalidInput

    quiet()
    kafka = KafkaOptions.from_environment(bootstrap_servers)
    if abort is not None:
        if as_json and not yes:
            found, remedy = "--abort with --json, which cannot ask.", "add --yes."
            raise InvalidInput("NOT_CONFIRMED", found, expected="a confirmation.", remedy=remedy)
        question = f"Abort the open transaction of {abort}? This fences its producer. No read_committed reader will see its records."
        if not yes and not typer.confirm(question):
            out_line("nothing was done")
            return
        held.abort(kafka, abort)
    rows = [row for row in held.listed(kafka) if row.is_open or not only_open]
    if as_json:
        print_json("transactions", ok=True, aborted=abort, transactions=[_as_json(row) for row in rows])
    else:
        if abort is not None:
            out_line(f"aborted the transaction of {abort}")
        _print(rows)


def _print(rows: list[Listed]) -> None:
    if not rows:
        out_line("no transactions")
        return
    titles = ("transactional id", "producer id:epoch", "state", "age", "timeout", "partitions", "held back")
    out_line(*aligned([titles, *map(_cells, rows)]))
    for row in rows:
        for each in row.held:
            if each.holds:
                out_line(
                    f"{row.transactional_id} holds back {each.topic}[{each.partition}] at offset {each.last_stable}: "
                    f"{_amount(each.records, each.held_back)} up to offset {each.high_watermark} wait"
                )
        for place in row.untold:
            out_line(f"{row.transactional_id}: {place.topic}[{place.partition}] has no leader, was deleted, or this user may not read it")


def _amount(records: int | None, offsets: int) -> str:
    number, what = (offsets, "offset") if records is None else (records, "record")
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cells(row: Listed) -> tuple[str, ...]:
    age = "–" if row.age_s is None else f"{row.age_s:.0f} s"
    back = _amount(row.records_held_back, row.held_back) if row.held_back else "–"
    places = f"{row.partitions[0].topic}[{row.partitions[0].partition}]" if row.partitions else "–"
    more = f" and {len(row.partitions) - 1} more" if len(row.partitions) > 1 else ""
    return (row.transactional_id, f"{row.producer_id}:{row.epoch}", row.state, age, f"{row.timeout_ms / 1000:g} s", places + more, back)


def _as_json(row: Listed) -> dict[str, Any]:
    held = [asdict(each) | {"holds": each.holds, "held_back": each.held_back} for each in row.held]
    amounts = {"held_back": row.held_back, "records_held_back": row.records_held_back}
    return {**asdict(row), "partitions": _places(row.partitions), "untold": _places(row.untold), "held": held, **amounts}


def _places(places: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{"topic": place.topic, "partition": place.partition} for place in places]
