"""`ingest rebase`: a new checkpoint for a table, where preflight refused the old one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json

if TYPE_CHECKING:
    from ingest.kafka_options import KafkaOptions
    from ingest.stream.rebase import Rebased
    from ingest.stream.rebase_plan import Aim, RebasePlan
    from ingest.stream.topic import Topic

To = Annotated[
    str,
    typer.Option(
        "--to",
        help="Where to begin: table (where its batches end), earliest, latest, offsets as 0:1200,1:900, or a time as 2026-11-21T08:00Z.",
    ),
]


@app.command()
def rebase(
    table: Annotated[str, typer.Argument(help="The table (name or pipeline.name).")],
    to: To = "table",
    accept_gap: Annotated[bool, typer.Option("--accept-gap", help="Offsets may be left out; the ledger keeps which.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Begin a new checkpoint for a table; the old one is moved aside, never deleted. No id that the table holds is added again."""
    from ingest import spark
    from ingest.contract import load_contracts
    from ingest.kafka_options import KafkaOptions
    from ingest.places import Places, refuse_nested, spark_log
    from ingest.stream import lock
    from ingest.stream.rebase import Rebaser
    from ingest.stream.topic import describe

    (contract,) = load_contracts(project, [table])
    kafka = KafkaOptions.from_environment(bootstrap_servers)
    places = Places(lake, checkpoints, contract.pipeline, contract.table)
    refuse_nested(places)
    topic = describe(kafka, contract.source.topic)
    aim = parse_aim(to, kafka, topic)
    lock.wait_for(places)
    session = spark.start(master, spark_log(lake, "rebase"))
    try:
        rebaser = Rebaser(session, contract, places, kafka, topic)
        if rebaser.interrupted and not dry_run:
            done = rebaser.finish()
        else:
            planned = rebaser.plan(aim, accept_gap=accept_gap)
            if not as_json:
                print_plan(places.name, planned, by_position=contract.event_id.kind == "position")
            if dry_run:
                if as_json:
                    print_json("rebase", ok=True, tables=[{"table": places.name, "dry_run": True, **_row(planned)}])
                else:
                    print("dry run: nothing was changed")
                return
            done = rebaser.publish(planned)
    finally:
        spark.end(session)
    if as_json:
        more = {} if done.plan is None else _row(done.plan)
        row = {"table": places.name, "query_id": done.query_id, "epoch": done.binding.epoch, "aside": done.aside, **more}
        print_json("rebase", ok=True, tables=[row])
    else:
        print_done(places.name, done)


def parse_aim(text: str, kafka: KafkaOptions, topic: Topic) -> Aim:
    """What --to says. Raises InvalidInput AIM_INVALID, and Unfit BROKER_UNREACHABLE for a time, which the broker must turn into offsets."""
    from datetime import UTC, datetime

    from ingest.errors import InvalidInput
    from ingest.stream.rebase_plan import Aim
    from ingest.stream.topic import bounds, offsets_at

    if text == "table":
        return Aim("table")
    if text == "earliest":
        return Aim("earliest")
    if text == "latest":
        return Aim("latest")
    try:
        pairs = [word.split(":") for word in text.split(",")]
        if all(len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit() for pair in pairs):
            return Aim("offsets", tuple((int(partition), int(offset)) for partition, offset in pairs))
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(
            "AIM_INVALID",
            f"--to {text!r}.",
            expected="table, earliest, latest, offsets as 0:1200,1:900, or a time as 2026-11-21T08:00Z.",
            remedy="correct --to.",
        ) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    ends = bounds(kafka, topic)  # first: what comes in between is not older than the time, and must not lie before the end that is taken
    found = offsets_at(kafka, topic, round(moment.timestamp() * 1000))
    return Aim("offsets", tuple((p, ends[p][1] if offset is None else offset) for p, offset in found.items()))


def print_plan(name: str, planned: RebasePlan, *, by_position: bool) -> None:
    """What will be done, the unpleasant things first; `by_position`: a record's place in its topic is its event id."""
    rebase = planned.rebase
    read_from = next((each.topic_id for each in reversed(rebase.former) if each.ends), planned.binding.topic_id)
    # A broker that told no id, and was upgraded, has the same topic: there only what is read again is another event.
    if by_position and read_from != planned.binding.topic_id and (read_from or planned.read_again):
        print(f"{name}: the topic has another id than the one that was read, and the event id is the position: what this topic holds")
        print("  copies of becomes rows a second time")
    for partition, start, end in rebase.gaps:
        print(f"{name}: LEFT OUT: partition {partition} [{start}, {end}), {end - start} offsets that were still to be read")
    for partition, start, end in planned.not_regained:
        print(f"{name}: NOT REGAINED: what the quarantine has lost of partition {partition} [{start}, {end})")
    if planned.read_again:
        again = sum(end - start for _, start, end in planned.read_again)
        print(f"{name}: {again} offsets are read again. No id that the table holds is added twice;")
        print("  rows that were deleted from the table on purpose can come back")
    baseline = " ".join(f"{partition}:{offset}" for partition, offset in rebase.baseline)
    print(f"{name}: epoch {planned.binding.epoch} of topic {planned.binding.topic} begins at {baseline}")


def print_done(name: str, done: Rebased) -> None:
    """Where the old checkpoint is, and what comes next."""
    if done.plan is None:
        baseline = " ".join(f"{p}:{offset}" for p, offset in done.binding.rebase.baseline) if done.binding.rebase else ""
        print(f"{name}: a rebase that had been interrupted is finished; epoch {done.binding.epoch} begins at {baseline}")
        print("  to begin elsewhere, rebase again")
    if done.aside:
        print(f"{name}: the old checkpoint is kept in {done.aside}")
    print(f"{name}: done; `ingest run {name}` goes on from there")


def _row(planned: RebasePlan) -> dict[str, object]:
    rebase = dataclasses.asdict(planned.rebase)
    return {"baseline": rebase["baseline"], "gaps": rebase["gaps"], "read_again": planned.read_again}
