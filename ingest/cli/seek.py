"""`ingest seek`: choose the offsets from which the next run reads, or re-read missing records."""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.contract.definition import Contract
    from ingest.delta.table_writer import TableWriter
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.offsets import Partition
    from ingest.kafka.topic import Topic
    from ingest.recovery.epoch import Epoch
    from ingest.recovery.seek_offsets import Aim, Seeking, SeekPlan
    from ingest.recovery.state_reader import Broker
    from ingest.runtime.places import Places

To = Annotated[
    str,
    typer.Option(
        "--to",
        help="Where to begin: table (the first missing offset), earliest, latest, offsets (0:12,1:9; of several topics: orders/0:12), "
        "or a time (2026-11-21T08:00Z).",
    ),
]


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def seek(
    env: o.Environment,
    table: o.Table,
    to: To,
    accept_gap: Annotated[bool, typer.Option("--accept-gap", help="Allow skipping unread offsets. The ledger records them.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what a seek would do, and change nothing.")] = False,
    as_json: o.Json = False,
) -> None:
    """Choose the offsets from which the next run reads. No event id that the table has is added again.

    Example: ingest seek orders --to table --dry-run
    """
    from ingest.kafka.topic import current_states, topics_of
    from ingest.recovery.seek_offsets import Seeking
    from ingest.run import table_lock
    from ingest.runtime.places import refuse_nested

    contract, kafka = env.contract(table), env.kafka
    places = env.places(contract)
    refuse_nested(places)
    aim = parse_aim(to, kafka, topics_of(kafka, contract.source))
    table_lock.wait_for(places)
    broker = partial(current_states, kafka, contract.source)

    planned, epoch, healed = _do(contract, places, broker, env.master, Seeking(aim, accept_gap, f"--to {to}"), dry_run=dry_run)
    for each in healed:
        err_line(f"note: {places.name}: {each}")
    if as_json:
        print_json("seek", ok=True, tables=[{"table": places.name, "dry_run": dry_run, "epoch": epoch, **plan_row(planned)}])
        return
    print_plan(places.name, planned)
    done = f"{places.name}: epoch {epoch} is open; `ingest run {places.name}` continues from there"
    out_line("dry run: nothing was changed" if dry_run else done)


def _do(
    contract: Contract, places: Places, broker: Broker, master: str, seeking: Seeking, *, dry_run: bool
) -> tuple[SeekPlan, int | None, tuple[str, ...]]:
    """Plan the seek and, unless it is a dry run, open its epoch. A dry run on a local disk needs no Spark, nor does a table that this
    process can write.

    Returns the plan, the epoch's number (None for a dry run) and a description of each repair.
    """
    from ingest.delta import contract_change
    from ingest.delta.delta_log import Logs
    from ingest.recovery.seek_offsets import counted
    from ingest.recovery.state_reader import read_start_state
    from ingest.runtime import spark
    from ingest.runtime.files import is_local
    from ingest.runtime.places import spark_log

    local = is_local(places.lake) and is_local(places.checkpoints)
    if dry_run:
        with nullcontext() if local else spark.session(master, spark_log(places.lake, "seek"), short=True) as session:
            logs = Logs.of(places, session)
            planned = counted(session, places, read_start_state(session, places, logs, broker), seeking)
            contract_change.refuse_state(contract, places.target, logs.target.state())
            return planned, None, ()
    from ingest.recovery.epoch import open_epoch
    from ingest.run.writing_session import with_writer

    def opened(writer: TableWriter) -> Epoch:
        epoch = open_epoch(writer.session, contract, places, broker, seeking, writer=writer)
        epoch.finish()
        return epoch

    epoch = with_writer(contract, places, master, "seek", opened)
    assert epoch.seek_plan is not None
    return epoch.seek_plan, epoch.writer.epoch, epoch.healed


def parse_aim(text: str, kafka: KafkaOptions, topics: Sequence[Topic]) -> Aim:
    """Parse --to. The broker turns a time into offsets. A partition without a topic is one of the only topic.

    Raises InvalidInput AIM_INVALID, and for a time InvalidEnvironment BROKER_UNREACHABLE.
    """
    from ingest.contract.parts import TOPIC_NAME
    from ingest.kafka.topic import bounds, offsets_at
    from ingest.recovery.seek_offsets import KINDS, Aim
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.moment import parse_moment

    for kind in KINDS:
        if text == kind:
            return Aim(kind)
    try:
        words = [re.fullmatch(rf"(?:({TOPIC_NAME})/)?(\d+):(\d+)", word) for word in text.split(",")]
        if None not in words:
            only = topics[0].name if len(topics) == 1 else ""
            offsets = tuple(((word[1] or only, int(word[2])), int(word[3])) for word in words if word is not None)
            if len(dict(offsets)) != len(offsets):
                raise ValueError("a partition is named twice")
            return Aim("offsets", offsets)
        moment = parse_moment(text)
    except ValueError as error:
        raise InvalidInput(
            "AIM_INVALID",
            f"--to {text!r}.",
            expected="table, earliest, latest, offsets as 0:1200,1:900 (of several topics as orders/0:1200,returns/1:900), or a time as "
            "2026-11-21T08:00Z.",
            remedy="correct --to.",
        ) from error
    milliseconds = max(0, round(moment.timestamp() * 1000))  # a negative time is not a time to Kafka: -1 is the end
    found: list[tuple[tuple[str, int], int]] = []
    for topic in topics:
        # The ends first: a record that arrives between the two calls is newer than the time, so the seek must not skip it.
        ends = bounds(kafka, topic)
        for partition, offset in offsets_at(kafka, topic, milliseconds).items():
            found.append(((topic.name, partition), ends[partition][1] if offset is None else offset))
    return Aim("offsets", tuple(found))


def print_plan(name: str, planned: SeekPlan) -> None:
    """Print what the seek does: left out offsets first, then re-read ones, then where it begins."""
    topics = planned.topics
    for gap in planned.gaps:
        where = f"{topics.named(gap.of)} [{gap.start}, {gap.end})"
        out_line(f"{name}: LEFT OUT: {where}, {len(gap)} offsets that no complete batch has read")
    if planned.again:
        out_line(f"{name}: {sum(map(len, planned.again))} offsets are re-read. No event id is added twice;")
        out_line("  rows that were deleted on purpose can come back")
    out_line(f"{name}: begins at {' '.join(f'{topics.typed(of)}:{offset}' for of, offset in sorted(planned.starts.items()))}")


def plan_row(planned: SeekPlan) -> dict[str, Any]:
    """The plan in the JSON document: lists that begin with the topic, if there are several, and the partition."""

    def at(of: Partition, *offsets: int) -> list[str | int]:
        return [*([planned.topics.sources[of[0]].name] if len(planned.topics.states) > 1 else []), of[1], *offsets]

    gaps, again = ([at(each.of, each.start, each.end) for each in ranges] for ranges in (planned.gaps, planned.again))
    return {"starts": [at(*each) for each in sorted(planned.starts.items())], "gaps": gaps, "read_again": again}
