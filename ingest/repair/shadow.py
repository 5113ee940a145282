"""The shadow of a table: what the old tables alone hold is carried over first, then a run reads Kafka from its earliest record.

A crash leaves a shadow that is filled further, or removed and begun anew if nothing shows that it was carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from ingest.delta.delta_sql import At, Spark, asked, quoted
from ingest.delta.log_errors import table_missing
from ingest.delta.our_commits import newest_first
from ingest.delta.posting import NOTHING, Key, Posting
from ingest.delta.stored_rows import QUARANTINE, TARGET, Columns, in_quarantine, in_ranges, in_target, of_epochs, sums_at
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.books import read_books
from ingest.recovery.epoch import open_epoch, refuse_start
from ingest.recovery.look_back import LookBack
from ingest.recovery.seek_offsets import Aim, Seeking
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

    `doubled` more rows have an event id that another of these rows has. They are not carried over.
    """

    rows: int
    doubled: int
    records: int
    starts: Mapping[int, int]


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


def only_here(contract: Contract, places: Places, topics: Mapping[int, str], topic_id: str, starts: Mapping[int, int]) -> tuple[str, str]:
    """SQL over {target} for its rows, and over {quarantine} for its records, before these offsets (by partition), as far as batches of this
    topic wrote them. `topics` has the topic id of each epoch.

    The rows have one more column `__copy`: 1 for the first row of an event id by position, more for others.
    """

    def before(columns: Columns) -> str:
        return in_ranges([OffsetRange(partition, 0, first) for partition, first in starts.items()], columns)

    same = ", ".join(f"`{name}`" for name in event_id_columns(contract))
    copy = f"row_number() OVER (PARTITION BY {same} ORDER BY `_partition`, `_offset`, `_epoch`) AS __copy"
    rows = f"SELECT *, {copy} FROM {{target}} WHERE {in_target(topics, topic_id)} AND ({before(TARGET)})"
    return rows, f"SELECT * FROM {{quarantine}} WHERE {in_quarantine(topic_id)} AND ({before(QUARANTINE)})"


def look(session: SparkSession | None, contract: Contract, places: Places, broker: TopicState) -> Carried:
    """What `begin` would carry over, if it began now. Needs no session for a local lake. Raises Refused REBUILD_OTHER_TOPIC."""
    _refuse_other_topic(session, places, broker.topic)
    starts = {partition: first for partition, (first, _) in broker.bounds.items()}
    rows, records = only_here(contract, places, topics_of(session, places), broker.topic.id, starts)
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
    return Carried(found["n"] - found["m"], found["m"], other[0]["n"], starts)


def begin(session: SparkSession, contract: Contract, places: Places, ask: Callable[[], TopicState]) -> Carried:
    """Create the shadow and carry over what Kafka has expired. Removes an unfinished shadow first.

    Raises Refused REBUILD_OTHER_TOPIC, and the errors of `open_epoch`, also those with which a start of the table itself would end.
    """
    state = refuse_start(session, contract, places, ask)
    assert state.broker is not None
    _refuse_other_topic(session, places, state.broker.topic)
    remove_shadow(session, places)
    shadow, floor = shadow_of(places), state.next_epoch + EPOCHS_AHEAD
    # The offsets where the shadow begins decide what is carried over: Kafka may expire more at any moment.
    begun = open_epoch(session, contract, shadow, ask, Seeking(Aim("earliest"), True, "--to earliest"), floor=floor)
    begun.finish()
    spark = Spark(session)
    of_rows, of_records = only_here(contract, places, topics_of(session, places), begun.writer.topic.id, begun.starts)
    rows = spark.frame(of_rows, target=At(places.target))
    records = spark.frame(of_records, quarantine=At(places.quarantine))
    done: list[Carried] = []

    def carry(at_end: BatchCommit, look_back: LookBack, _: tuple[int, ...]) -> Commit:
        commit, carried = _carry(session, contract, rows, records, at_end, look_back)
        done.append(Carried(*carried, begun.starts))
        return commit

    open_epoch(session, contract, shadow, ask, statement=carry).finish(session)
    return done[-1]


def count_rows(session: SparkSession | None, places: Places, table: str, condition: str = "true") -> int:
    """How many rows of the table at `table` meet a condition."""
    sql = f"SELECT count(*) AS n FROM {{rows}} WHERE {condition}"
    return int(asked(places.lake, session, lambda engine: engine.ask(sql, rows=At(table)))[0]["n"])


def topics_of(session: SparkSession | None, places: Places) -> Mapping[int, str]:
    """The topic id of each of a table's epochs."""
    return asked(places.lake, session, lambda engine: read_books(engine, places).topics)


def _refuse_other_topic(session: SparkSession | None, places: Places, topic: TopicId) -> None:
    """Raises Refused REBUILD_OTHER_TOPIC: a row takes its topic from its epoch, so those of another topic cannot be carried over.

    A row that somebody added is of no topic.
    """
    topics = topics_of(session, places)
    others = of_epochs(topics, {topic_id: str(topic_id != topic.id).lower() for topic_id in topics.values()}, "false")
    rows = count_rows(session, places, places.target, others)
    records = count_rows(session, places, places.quarantine, f"topic_id <> {quoted(topic.id)}")
    if rows or records:
        raise Refused(
            "REBUILD_OTHER_TOPIC",
            f"{rows} rows and {records} quarantined records of {places.name} come from an earlier topic than {topic.name} ({topic.id}).",
            expected="a table whose rows and records all come from the topic that Kafka has now.",
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
        ends = {each.partition: each.start for each in at_end.ranges}
        postings = list(at_end.postings)
        for partition in sorted({*counts.counts, *(key.partition for key in stored)}):
            key = Key(at_end.id.epoch, at_end.id.number, 0, partition)
            read = counts.counts[partition].read if partition in counts.counts else 0
            held, offsets = stored.get(key, NOTHING), OffsetRange(partition, 0, max(1, ends.get(partition, 0)))
            postings.append(Posting(key, "replay", offsets, read + held.rows, None, held, None))
        statement = replace(statement, postings=tuple(postings))
        winners = old.drop("__rank", "__reason")
        commit = commits.merge_target(winners, contract, look_back.target, counts.bounds, still)
        return commit, (counts.read, doubled, sum(each.rows for each in stored.values()))


def refuse_missing(session: SparkSession | None, places: Places) -> None:
    """Raises InvalidInput TABLE_MISSING if there is no table to rebuild."""
    if not DeltaLog(files_of(places.lake, session), places.target).exists():
        raise table_missing(places.name, places.target)
