"""The refusals of a start or a seek. Each one says what was found, what was expected, and the one command that mends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingest.kafka.log.leader_epochs import named
from ingest.kafka.topic_state import topic_copied, topic_made_again
from ingest.ledger.ledger_reader import Newest
from ingest.runtime.errors import Refused

# A table that was read before must account for every offset: offsets that Kafka has deleted are a gap, which a seek refuses by default.
IF_EXPIRED = " (add `--accept-gap` if Kafka has deleted records)"


def table_gone(name: str, table: str, source: str) -> Refused:
    """TABLE_REPLACED: there is no target, but the `source` (ledger, checkpoint or quarantine) shows that there was one."""
    return Refused(
        "TABLE_REPLACED",
        f"there is no Delta table at {table}, but the {source} of {name} shows that there was one.",
        expected="the table with all rows that earlier runs wrote.",
        remedy=f"put the table back. If you cannot, `ingest seek {name} --to earliest` creates a new one and reads everything that Kafka "
        f"still has{IF_EXPIRED}.",
    )


def table_replaced(name: str, table: str, found_id: str, source: str, recorded_id: str) -> Refused:
    """TABLE_REPLACED: the target has another table id than its `source` (ledger or checkpoint) records: it was dropped and recreated."""
    return Refused(
        "TABLE_REPLACED",
        f"{table} has the table id {found_id}, but the {source} of {name} belongs to a former table with the id {recorded_id}.",
        expected="the former table: this one does not contain its rows.",
        remedy=f"put the former table back. If you cannot, `ingest seek {name} --to earliest` fills this one with everything that Kafka "
        f"still has{IF_EXPIRED}.",
    )


def table_foreign(name: str, table: str, other: str | None) -> Refused:
    """TABLE_FOREIGN: another process created the table, or the pipeline table `other` commits to it."""
    found = f"contains commits of {other}" if other is not None else f"exists, but contains no commit of {name}"
    return Refused(
        "TABLE_FOREIGN",
        f"{table} {found}.",
        expected=f"no table there, or one that `ingest run` has created for {name}: foreign rows cannot be accounted for.",
        remedy="give the table another name in the contract, choose another --lake, or move the foreign table away.",
    )


def table_rewound(name: str, table: str, found: str, newest: Newest | None) -> Refused:
    """TABLE_REWOUND: the target lacks committed batches, or may lack them. `found` says why."""
    batch = "" if newest is None else f" Its newest batch is {newest.id}."
    return Refused(
        "TABLE_REWOUND",
        f"{table} was restored, replaced, overwritten or put back from a copy: {found}.{batch}",
        expected="every committed batch in the table.",
        remedy=f"`ingest seek {name} --to table` reads the missing records again. If you can, bring the table back to its newest state "
        "first.",
    )


def quarantine_rewound(name: str, quarantine: str, found: str) -> Refused:
    """QUARANTINE_REWOUND: the quarantine lacks committed records, or may lack them. `found` says why."""
    return Refused(
        "QUARANTINE_REWOUND",
        f"{quarantine} was dropped, restored, replaced, overwritten or put back from a copy: {found}.",
        expected="every record that the committed batches quarantined.",
        remedy=f"`ingest seek {name} --to table` reads the missing records again and adds no row twice. If you can, bring the quarantine "
        "back to its newest state first.",
    )


def swap_cut_off(name: str, quarantine: str, version: int) -> Refused:
    """QUARANTINE_REWOUND: a rebuild's swap has replaced the quarantine, and not yet the target."""
    return Refused(
        "QUARANTINE_REWOUND",
        f"version {version} of {quarantine} is a rebuild's, and the target is not: the swap was cut off.",
        expected="target and quarantine from before the swap, or from after it.",
        remedy=f"`ingest rebuild {name} --swap` completes it. If the shadow is gone, `ingest seek {name} --to table` reads the missing "
        "records again.",
    )


def history_gone(name: str, table: str, txn: object, unknown: Sequence[str]) -> Refused:
    """HISTORY_GONE: neither log nor ledger explains the target's transaction id, or the rows that `unknown` describes."""
    rows = f" It contains rows of unknown batches ({'; '.join(unknown[:3])})." if unknown else ""
    return Refused(
        "HISTORY_GONE",
        f"{table} has our transaction id {txn}, but its log and the ledger no longer have the offsets of all its batches.{rows}",
        expected="the offsets of every batch, in the table's log or in the ledger.",
        remedy=f"bring the ledger back. If you cannot, `ingest seek {name} --to earliest` reads everything again that Kafka still "
        f"has{IF_EXPIRED}.",
    )


def gap_not_accepted(name: str, gaps: Sequence[tuple[str, int, int]]) -> Refused:
    """GAP_NOT_ACCEPTED: a seek would leave out `gaps` (partition in words, start, end), and the user has not accepted that."""
    each = ", ".join(f"{partition} [{start}, {end})" for partition, start, end in gaps)
    return Refused(
        "GAP_NOT_ACCEPTED",
        f"this seek of {name} would leave out {each}: {sum(end - start for _, start, end in gaps)} offsets that no whole batch has read.",
        expected="a seek that leaves no offsets out, or your consent to the gap.",
        remedy=f"`ingest seek {name} --to table` reads these offsets, if Kafka still has them. To leave them out, add `--accept-gap`: "
        "`ingest verify` will always show the gap.",
    )


def ledger_unreadable(name: str, ledger: str, why: str) -> Refused:
    """LEDGER_UNREADABLE: files of the ledger are missing or damaged."""
    return Refused(
        "LEDGER_UNREADABLE",
        f"the ledger of {name}, {ledger}, cannot be read: {why}",
        expected="a Delta table with all of its files.",
        remedy=f"put its files back. If you cannot, move {ledger} away: the next start recreates it from the target's log, as far back as "
        "that goes.",
    )


def txn_retention(name: str, tables: Sequence[str]) -> Refused:
    """TXN_RETENTION: the transaction ids in `tables` may expire."""
    each = "; ".join(f"ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')" for table in tables)
    return Refused(
        "TXN_RETENTION",
        f"delta.setTransactionRetentionDuration is set on {', '.join(tables)}: the transaction ids of {name} would expire.",
        expected="the property unset: a transaction id that Delta has forgotten no longer fences earlier writers.",
        remedy=f"run {each}.",
    )


def topic_other(name: str, bound: str, topics: Sequence[str]) -> Refused:
    """TOPIC_CHANGED: the contract names `topics`, but the table was also read from the topic `bound`."""
    found = f"topic {topics[0]}" if len(topics) == 1 else f"the topics {', '.join(topics)}"
    return Refused(
        "TOPIC_CHANGED",
        f"{name} was read from topic {bound}, but the contract now names {found}.",
        expected="every topic that was read: offsets of one topic mean nothing in another.",
        remedy="put the former topic back in the contract, or give the table another name there. If the table reads other topics besides, "
        f"`ingest seek {name} --to table` goes on without this one.",
    )


def topic_back(name: str, topics: Sequence[str]) -> Refused:
    """TOPIC_CHANGED: a seek has left these topics out, and the contract names them again."""
    return Refused(
        "TOPIC_CHANGED",
        f"{name} knows {', '.join(topics)} from before, but its newest epoch does not read it.",
        expected="the topics that the newest epoch reads, and new ones.",
        remedy=f"`ingest seek {name} --to table` goes on with all of them, each where the table ends.",
    )


def topic_ids_missing(name: str) -> Refused:
    """TOPIC_IDS_MISSING: the event id is the position, and nothing tells the positions of several topics apart."""
    return Refused(
        "TOPIC_IDS_MISSING",
        f"{name} reads several topics, its event id is the record's position, and the brokers report no topic ids.",
        expected="topic ids (Kafka 2.8 and later): equal positions in two topics would have one event id.",
        remedy="upgrade the brokers, name another event id, or give each topic a table of its own.",
    )


def topic_recreated(name: str, topic: str, bound: str, found_id: str) -> Refused:
    """TOPIC_RECREATED: the topic was deleted and recreated. `bound` is the id of the topic that the table was read from."""
    found = f"{name} was read from topic {topic} with id {bound}, but the broker's topic {topic} has id {found_id}."
    expected = "the same topic: a recreated topic starts at offset 0 again, and its records would be mistaken for old ones."
    return Refused("TOPIC_RECREATED", found, expected=expected, remedy=topic_made_again(name))


def topic_elsewhere(name: str, topic: str, bound: str, found_id: str) -> Refused:
    """TOPIC_RECREATED: a topic of the same name on another cluster, where topic ids cannot be compared. Both ids are cluster ids."""
    found = f"{name} was read from topic {topic} of the cluster with id {bound}, but these brokers belong to the cluster with id "
    found += f"{found_id}. There are no topic ids to compare."
    expected = "the same topic: in another cluster the same offsets are other records, and all records before them would be skipped."
    remedy = f"{topic_made_again(name)} If it is the same topic after all (a proxy, older brokers), `ingest seek {name} --to table` "
    remedy += "continues with it."
    return Refused("TOPIC_RECREATED", found, expected=expected, remedy=remedy)


def partitions_lost(name: str, topic: str, lost: Sequence[int]) -> Refused:
    """PARTITIONS_LOST: the topic has fewer partitions than the table was read from."""
    return Refused(
        "PARTITIONS_LOST",
        f"topic {topic} has no partition {', '.join(map(str, lost))} any more, but {name} was read from it.",
        expected="all partitions that were read before: Kafka never removes a partition, so this is another topic or another cluster.",
        remedy="check --bootstrap-servers and the contract's topic.",
    )


def records_expired(name: str, topic: str, expired: Sequence[tuple[int, int, int]]) -> Refused:
    """RECORDS_EXPIRED: Kafka has deleted `expired`, the offsets (partition, start, end) that the table reads next."""
    each = ", ".join(f"partition {p} [{start}, {end})" for p, start, end in expired)
    lost = sum(end - start for _, start, end in expired)
    return Refused(
        "RECORDS_EXPIRED",
        f"topic {topic} no longer has {each}: {lost} offsets that {name} has not read yet.",
        expected="every offset from the table's end on, but Kafka's retention has deleted these.",
        remedy=f"`ingest seek {name} --to table --accept-gap` continues without them. It records the gap, and `ingest verify` always shows "
        "it.",
    )


def broker_behind(name: str, topic: str, behind: Sequence[tuple[int, int, int]]) -> Refused:
    """BROKER_BEHIND: the topic ends before offsets that were read. `behind` is (partition, next offset of the table, end of the topic)."""
    each = ", ".join(f"partition {p} ends at {end}, but {name} continues at {next_offset}" for p, next_offset, end in behind)
    return Refused(
        "BROKER_BEHIND",
        f"topic {topic} ends before {name}: {each}.",
        expected="at least the offsets that were read: this is another cluster, or one that has lost records.",
        remedy=f"check --bootstrap-servers. If the cluster did lose its newest records, {topic_copied(name)}",
    )


def log_truncated(name: str, topic: str, taken: Mapping[int, tuple[int, int]]) -> Refused:
    """LOG_TRUNCATED: the topic's log has lost offsets that were read, and has grown again since. `taken` is [start, end) by partition."""
    return Refused(
        "LOG_TRUNCATED",
        f"topic {topic} has lost {named(taken)} after {name} had read them: its leader was elected without them, and its records at these "
        "offsets are others, which no start would read.",
        expected="the log whose records were read: an unclean election, or a broker that lost files, took some of them back.",
        remedy=f"the rows of the lost records stay. But {topic_copied(name)}",
    )


def offsets_undecided(name: str, topic: str, undecided: Sequence[tuple[int, int, int]]) -> Refused:
    """OFFSETS_UNDECIDED: a read_committed reader would start after the beginning of an open transaction.

    Spark would plan a batch that ends before it starts, and report possible data loss. `undecided` is (partition, next offset of the table,
    end of the committed records).
    """
    each = ", ".join(f"partition {p} continues at {start}, but its committed records end at {end}" for p, start, end in undecided)
    return Refused(
        "OFFSETS_UNDECIDED",
        f"topic {topic} has an open transaction that starts before the next offset of {name}: {each}.",
        expected="no open transaction before that offset: the offsets were read as read_uncommitted, or a seek was aimed there.",
        remedy="wait until the transaction ends, and start again. `ingest transactions --open` shows it. Nothing is lost meanwhile.",
    )
