"""`ingest effects`: show the calls to external APIs, settle those that need a person, and those that a crash has left open."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from collections import Counter

    from ingest.delivery.effects import Api

Decisions = StrEnum("Decisions", {"success": "success", "failed": "failed", "send_again": "send-again"})


class States(StrEnum):
    """The states of ingest.delivery.effects, which is imported only inside a verb."""

    SENDING, WAITING, UNKNOWN, SUCCESS, FAILED, HELD = "SENDING", "WAITING", "UNKNOWN", "SUCCESS", "FAILED", "HELD"


Effect = Annotated[str, typer.Argument(metavar="EFFECT", help="Name of the effect.")]
OneOrAll = Annotated[str | None, typer.Argument(metavar="[EFFECT]", help="Name of the effect; all effects without it.")]
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event's id.")]
InState = Annotated[States | None, typer.Option("--state", help="List only calls in this state.", case_sensitive=False)]
Limit = Annotated[int, typer.Option("--limit", min=1, help="List at most this many calls, the one that changed last first.")]
As = Annotated[Decisions, typer.Option("--as", help="What is true at the API, or to send it again.")]
Why = Annotated[str, typer.Option("--why", help="The reason, for the call's history.")]
ApiObject = Annotated[str, typer.Option("--api", metavar="MODULE:OBJECT", help="The Api, or a function that makes it.")]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Hold a call that was sent this often.")]
Lease = Annotated[float, typer.Option("--lease", min=1, help="Seconds for which a call is reserved; twice the API's time-out at least.")]
Every = Annotated[float | None, typer.Option("--every", min=0.1, help="Seconds between two passes, until SIGTERM or Ctrl-C.")]

effects = typer.Typer(name="effects", help="Calls to external APIs: show them, and settle those left open.", no_args_is_help=True)
app.add_typer(effects)


@o.verb(effects, "database_url")
def status(env: o.Environment, as_json: o.Json = False) -> None:
    """Count each effect's calls by state, with the age of the oldest open one.

    Example: ingest effects status --json
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.effects.effect_report import status as status_of
    from ingest.runtime.printable import aligned

    found = status_of(checked(env.database_url))
    if as_json:
        print_json("effects-status", ok=True, effects=[asdict(each) for each in found])
        return
    if not found:
        out_line("no calls")
        return
    titles = ("effect", *(name.lower() for name in States), "oldest open")
    rows = [
        (each.effect, *(f"{each.states[name]:,}" for name in States), "–" if each.oldest_open_s is None else f"{each.oldest_open_s:,.0f} s")
        for each in found
    ]
    out_line(*aligned([titles, *rows], right=range(1, len(titles))))
    if any(each.states["HELD"] for each in found):
        out_line("Held calls wait for a person: ingest effects list --state HELD")


@o.verb(effects, "database_url", name="list")
def list_calls(env: o.Environment, effect: OneOrAll = None, state: InState = None, limit: Limit = 100, as_json: o.Json = False) -> None:
    """List calls with their state, the API's reference and the last reason.

    Example: ingest effects list charge --state held
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.effects.effect_report import calls
    from ingest.delivery.effects.effect_row import State

    _print_rows("effects-list", calls(checked(env.database_url), effect, None if state is None else State(state), limit), as_json)


@o.verb(effects, "database_url")
def history(env: o.Environment, effect: Effect, event_id: EventId, as_json: o.Json = False) -> None:
    """Show each state that a call has been in, with the worker or person, the reason and the time.

    Example: ingest effects history charge order-17
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.effects.effect_report import history as history_of

    _print_rows("effects-history", history_of(checked(env.database_url), effect, event_id), as_json)


@o.verb(effects, "database_url")
def settle(env: o.Environment, effect: Effect, event_id: EventId, decision: As, why: Why, as_json: o.Json = False) -> None:
    """Decide about a call that nobody else can settle. Look at the API first: send-again repeats the call without asking it.

    Example: ingest effects settle charge order-17 --as success --why 'charge ch_42 is on the statement'
    """
    from ingest.delivery.database.schema import checked
    from ingest.delivery.effects.effect_report import settle as settle_call
    from ingest.runtime.errors import InvalidInput

    if not why.strip():
        raise InvalidInput("USAGE", "--why is empty.", expected="a reason, which the call's history keeps.", remedy="add it.")
    row = settle_call(checked(env.database_url), effect, event_id, decision.value, why, _person())
    if as_json:
        print_json("effects-settle", ok=True, effect=effect, event_id=event_id, state=row.state)
        return
    out_line(f"{effect} {event_id} is {row.state}")
    if row.state == "WAITING":
        out_line(f"The next `ingest effects reconcile {effect}` sends it.")


@o.verb(effects, "database_url")
def reconcile(
    env: o.Environment,
    effect: Effect,
    api: ApiObject,
    every: Every = None,
    attempts: Attempts = 8,
    lease: Lease = 60.0,
    as_json: o.Json = False,
) -> None:
    """Settle the calls that are open, due and held by no worker. Several reconcilers share the work.

    Example: ingest effects reconcile charge --api shop.payments:api --every 5
    """
    from collections import Counter

    from ingest.cli.stop_signal import until_signal
    from ingest.delivery.database.database import connect
    from ingest.delivery.effects import Effects, State

    made = Effects(effect, _loaded(api), connect(env.database_url), attempts=attempts, lease_s=lease)
    counts: Counter[State] = Counter()
    with until_signal() as stop:
        while not stop():
            counts += made.reconcile(stop=stop)
            if every is None:
                break
            due = time.monotonic() + every
            while not stop() and time.monotonic() < due:
                time.sleep(min(0.2, every))
        if as_json:
            print_json("effects-reconcile", ok=True, effect=effect, states=dict(counts))
        else:
            out_line(", ".join(f"{number:,} {state}" for state, number in sorted(counts.items())) or "nothing was due")


def _person() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _print_rows(verb: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    from ingest.runtime.printable import aligned, printable

    if as_json:
        print_json(verb, ok=True, rows=rows)
    elif rows:
        shown = [name for name in rows[0] if name not in ("topic", "partition", "offset", "created_at")]
        cells = [["–" if row[name] is None else printable(str(row[name]), 80) for name in shown] for row in rows]
        out_line(*aligned([shown, *cells]))
    else:
        out_line("no calls")


def _loaded(named: str) -> Api:
    """Import `package.module:object`, from the current folder too, as `python -m` would."""
    from ingest.delivery.effects import Api
    from ingest.delivery.effects.effect_errors import api_unusable

    module, _, name = named.partition(":")
    if not module or not name:
        raise api_unusable(named, "it has no colon between a module and an object")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name)
        found = found if isinstance(found, Api) or not callable(found) else found()
    except Exception as error:
        raise api_unusable(named, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Api):
        raise api_unusable(named, f"it is {type(found).__name__}, which is no Api")
    return found
