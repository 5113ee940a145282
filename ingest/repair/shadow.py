"""The shadow of a table: what the old tables alone hold is carried over first, then a run reads Kafka from its earliest record.

A crash leaves a shadow that is filled further, or removed and begun anew if nothing shows that it was carried over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batch.batch_counts import count_batch
from ingest.contract.columns import event_id_columns, target_fields
from ingest.contract.definition import Contract
from ingest.delta import writer as commits
from ingest.delta.batch_commit import BatchCommit, Replay
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import At, Spark, asked
from ingest.delta.log_errors import table_missing
from ingest.delta.our_commits import newest_first
from ingest.delta.posting import NOTHING, Key, Posting
from ingest.delta.stored_rows import QUARANTINE, TARGET, in_ranges, sums_at
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.recovery.epoch import open_epoch, refuse_start
from ingest.recovery.look_back import LookBack
from ingest.recovery.numbering import Numbered
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.recovery.state_reader import Broker, read_start_state
from ingest.runtime.errors import Refused
from ingest.runtime.files import files_of
from ingest.runtime.kept_frame import kept
from ingest.runtime.places import Places

# A hyphen, which no pipeline's name contains.
FOLDER = "rebuild-shadow"
# The shadow's epochs are above all epochs that the table can take until the swap.
EPOCHS_AHEAD = 100_000
CARRIED = "carried over by ingest rebuild"


@dataclass(frozen=True)
class Carried:
    """What only the old tables hold, because Kafka has expired it: rows, quarantined records, and where the shadow begins to read.

    `doubled` more rows have an event id that another of these rows has. They are not carried over. `starts` are by partition, as
    `Numbered.typed`.
    """

    rows: int
    doubled: int
    records: int
    starts: Mapping[str, int]


def shadow_of(places: Places) -> Places:
    """The places of a table's shadow."""
    return Places(f"{places.lake}/{FOLDER}", f"{places.checkpoints}/{FOLDER}", places.pipeline, places.table)


def shadow_exists(session: SparkSession | None, places: Places) -> bool:
    """Whether there is a shadow, finished or not."""
    return DeltaLog(files_of(places.lake, session), shadow_of(places).target).exists()


def remove_shadow(session: SparkSession | None, places: Places) -> None:
    """Delete the shadow's tables and checkpoints. Its lock stays: this process may hold it."""
    shadow = shadow_of(places)
    for table in (shadow.target, shadow.quarantine, shadow.ledger):
        files_of(places.lake, session).remove(table)
    files_of(places.checkpoints, session).remove(shadow.checkpoint)


def is_begun(session: SparkSession | None, places: Places) -> bool:
    """Whether there is a shadow with everything carried over, so that only Kafka is left to read."""
    log = Logs.of(shadow_of(places), session).target
    return any(commit.case == Replay(CARRIED) for _, commit in newest_first(log, places.name, Replay))


def only_here(contract: Contract, starts: Mapping[Partition, int]) -> tuple[str, str]:
    """SQL over {target} for its rows, and over {quarantine} for its records, before these offsets.

    The rows have one more column `__copy`: 1 for the first row of an event id by position, more for others.
    """
    before = [OffsetRange(partition, 0, first, source=source) for (source, partition), first in starts.items()]
    same = ", ".join(f"`{name}`" for name in event_id_columns(contract))
    copy = f"row_number() OVER (PARTITION BY {same} ORDER BY `_source`, `_partition`, `_offset`, `_epoch`) AS __copy"
    rows = f"SELECT *, {copy} FROM {{target}} WHERE {in_ranges(before, TARGET)}"
    return rows, f"SELECT * FROM {{quarantine}} WHERE {in_ranges(before, QUARANTINE)}"


def look(session: SparkSession | None, contract: Contract, places: Places, broker: Broker) -> Carried:
    """What `begin` would carry over, if it began now. Needs no session for a local lake. Raises Refused REBUILD_OTHER_TOPIC."""
    topics = read_start_state(session, places, Logs.of(places, session), broker).topics
    assert topics is not None, "the broker was asked"
    _refuse_other_topic(session, places, topics)
    rows, records = only_here(contract, topics.firsts)
    (found,) = asked(
        places.lake,
        session,
        lambda engine: engine.ask(
            f"SELECT count(*) AS n, count(CASE WHEN __copy > 1 THEN 1 END) AS m FROM ({rows}) r", target=At(places.target)
        ),
    )
    other = asked(
        places.lake, session, lambda engine: engine.ask(f"SELECT count(*) AS n FROM ({records}) q", quarantine=At(places.quarantine))
    )
    return Carried(found["n"] - found["m"], found["m"], other[0]["n"], _typed(topics, topics.firsts))


def begin(session: SparkSession, contract: Contract, places: Places, broker: Broker) -> Carried:
    """Create the shadow and carry over what Kafka has expired. Removes an unfinished shadow first.

    Raises Refused REBUILD_OTHER_TOPIC, and the errors of `open_epoch`, also those with which a start of the table itself would end.
    """
    state = refuse_start(session, contract, places, broker)
    assert state.topics is not None, "the broker was asked"
    _refuse_other_topic(session, places, state.topics)
    remove_shadow(session, places)
    shadow, floor = shadow_of(places), state.next_epoch + EPOCHS_AHEAD
    # The offsets where the shadow begins decide what is carried over: Kafka may expire more at any moment.
    seeking, recorded = Seeking(Aim("earliest"), True, "--to earliest"), state.topics.sources
    begun = open_epoch(session, contract, shadow, broker, seeking, floor=floor, recorded=recorded)
    begun.finish()
    assert begun.seek_plan is not None, "it was a seek"
    starts, spark = _typed(begun.seek_plan.topics, begun.starts), Spark(session)
    of_rows, of_records = only_here(contract, begun.starts)
    rows = spark.frame(of_rows, target=At(places.target))
    records = spark.frame(of_records, quarantine=At(places.quarantine))
    done: list[Carried] = []

    def carry(at_end: BatchCommit, look_back: LookBack) -> Commit:
        commit, carried = _carry(session, contract, rows, records, at_end, look_back)
        done.append(Carried(*carried, starts))
        return commit

    open_epoch(session, contract, shadow, broker, statement=carry).finish(session)
    return done[-1]


def count_rows(session: SparkSession | None, places: Places, table: str, condition: str = "true") -> int:
    """How many rows of the table at `table` meet a condition."""
    sql = f"SELECT count(*) AS n FROM {{rows}} WHERE {condition}"
    return int(asked(places.lake, session, lambda engine: engine.ask(sql, rows=At(table)))[0]["n"])


def _typed(topics: Numbered, starts: Mapping[Partition, int]) -> dict[str, int]:
    return {topics.typed(of): first for of, first in sorted(starts.items())}


def _refuse_other_topic(session: SparkSession | None, places: Places, topics: Numbered) -> None:
    """Raises Refused REBUILD_OTHER_TOPIC: the shadow reads none but the contract's topics, so rows of others would be lost."""
    read = ", ".join(map(str, topics.states))
    rows = count_rows(session, places, places.target, f"`{TARGET.source}` NOT IN ({read})")
    records = count_rows(session, places, places.quarantine, f"`{QUARANTINE.source}` NOT IN ({read})")
    if rows or records:
        now = ", ".join(f"{each.topic.name} ({each.topic.id})" for each in topics.states.values())
        raise Refused(
            "REBUILD_OTHER_TOPIC",
            f"{rows} rows and {records} quarantined records of {places.name} come from an earlier topic than {now}.",
            expected="a table whose rows and records all come from what the contract reads now.",
            remedy="keep the table, or copy it, and rebuild into a new one: change the contract's table name and run it.",
        )


def _carry(
    session: SparkSession, contract: Contract, rows: DataFrame, records: DataFrame, at_end: BatchCommit, look_back: LookBack
) -> tuple[Commit, tuple[int, int, int]]:
    """Commit the old records and rows under the shadow's epoch; also returns how many rows, doubled rows and records they are."""
    doubled = rows.where("__copy > 1").count()
    rows = rows.where("__copy = 1").drop("__copy")
    there = {field.name: field for field in rows.schema}
    own = {"_epoch": F.lit(at_end.id.epoch), "_batch": F.lit(at_end.id.number).cast("bigint")}
    columns = [
        own.get(each.name, F.col(f"`{each.name}`") if each.name in there else F.lit(None)).cast(each.dataType).alias(each.name)
        for each in target_fields(contract)
    ]
    ranked = rows.select(*columns).withColumns({"__rank": F.lit(1), "__reason": F.lit(None).cast("string")})
    records = records.withColumns({"epoch": F.lit(at_end.id.epoch), "batch": F.lit(at_end.id.number).cast("bigint")})
    with kept(ranked) as old, kept(records) as old_records:
        counts = count_batch(old, contract)
        statement = replace(at_end, case=Replay(CARRIED), postings=())

        def still() -> BatchCommit:
            return replace(statement, snapshots=look_back.again())

        quarantined = commits.merge_quarantine(old_records, look_back.quarantine, still, reopen=False)
        where = f"epoch = {at_end.id.epoch} AND batch = {at_end.id.number}"
        stored = sums_at(Spark(session), At(look_back.quarantine.table, quarantined.version), QUARANTINE, where=where)
        postings = list(at_end.postings)
        for of in sorted({*counts.counts, *(key.of for key in stored)}):
            key = Key(at_end.id.epoch, at_end.id.number, *of)
            read = counts.counts[of].read if of in counts.counts else 0
            held, offsets = stored.get(key, NOTHING), OffsetRange(of[1], 0, max(1, at_end.ends.get(of, 0)), source=of[0])
            postings.append(Posting(key, "replay", offsets, read + held.rows, None, held, None))
        statement = replace(statement, postings=tuple(postings))
        winners = old.drop("__rank", "__reason")
        commit = commits.merge_target(winners, contract, look_back.target, counts.bounds, still)
        return commit, (counts.read, doubled, sum(each.rows for each in stored.values()))


def refuse_missing(session: SparkSession | None, places: Places) -> None:
    """Raises InvalidInput TABLE_MISSING if there is no table to rebuild."""
    if not DeltaLog(files_of(places.lake, session), places.target).exists():
        raise table_missing(places.name, places.target)
