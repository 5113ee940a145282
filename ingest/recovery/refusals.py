"""Every refusal of a start or a seek: what was found, what was expected, and the one command that mends it."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.kafka.topic_state import NOT_AGAIN, topic_made_again
from ingest.ledger.ledger_reader import Newest
from ingest.runtime.errors import Refused

# Where a table was read before, what Kafka no longer holds is a gap.
EXPIRED = " (with `--accept-gap` where it has expired records)"


def table_gone(name: str, table: str, by: str) -> Refused:
    """No table, though something tells that there was one."""
    return Refused(
        "TABLE_REPLACED",
        f"there is no Delta table at {table}, but the {by} of {name} tells that there was one.",
        expected="the table with all that was read.",
        remedy=f"put the table back; or `ingest seek {name} --to earliest` makes a new one from all that Kafka still holds{EXPIRED}.",
    )


def table_replaced(name: str, table: str, has: str, by: str, reported: str) -> Refused:
    """A table that was dropped and made again under the same name."""
    return Refused(
        "TABLE_REPLACED",
        f"{table} has the table id {has}; the {by} of {name} knows the table {reported} that was there before.",
        expected="the same table: what the old one held is not in this one.",
        remedy=f"put the old table back; or `ingest seek {name} --to earliest` fills this one from all that Kafka still holds{EXPIRED}.",
    )


def table_foreign(name: str, table: str, pipeline: str | None) -> Refused:
    """A table that somebody else made or writes."""
    whose = f"holds commits of the pipeline {pipeline}" if pipeline is not None else f"exists and holds no commit of {name}"
    return Refused(
        "TABLE_FOREIGN",
        f"{table} {whose}.",
        expected="no table there, or one that `ingest run` has made: what others wrote cannot be accounted for.",
        remedy="give the table another name in the contract, another --lake, or move the foreign table away.",
    )


def table_rewound(name: str, table: str, found: str, newest: Newest | None) -> Refused:
    """A target that lacks committed batches, or may."""
    holds = "" if newest is None else f" Its newest batch is {newest.id}."
    return Refused(
        "TABLE_REWOUND",
        f"{table} was restored, replaced, overwritten or put back: {found}.{holds}",
        expected="every committed batch in the table.",
        remedy=f"`ingest seek {name} --to table` reads again what is missing; or bring the table back to its newest state first.",
    )


def quarantine_rewound(name: str, quarantine: str, found: str) -> Refused:
    """A quarantine that lacks committed records, or may."""
    return Refused(
        "QUARANTINE_REWOUND",
        f"{quarantine} was dropped, restored, replaced or put back: {found}.",
        expected="every record that the committed batches put there.",
        remedy=f"`ingest seek {name} --to table` reads again what is missing; no row is doubled. Or bring the quarantine back first.",
    )


def history_gone(name: str, table: str, txn: object, unknown: Sequence[str]) -> Refused:
    """A table whose transaction id, or rows, nobody can explain."""
    rows = f" It holds rows of batches that nobody knows ({'; '.join(unknown[:3])})." if unknown else ""
    return Refused(
        "HISTORY_GONE",
        f"{table} keeps our transaction id {txn}, but neither its log nor the ledger has the offsets of its newest batch.{rows}",
        expected="the commit in the table's log, or its row in the ledger.",
        remedy=f"`ingest seek {name} --to earliest` reads again all that Kafka still holds{EXPIRED}; or bring the ledger back first.",
    )


def gap_not_accepted(name: str, gaps: Sequence[tuple[int, int, int]]) -> Refused:
    """A seek that would leave offsets out."""
    each = ", ".join(f"partition {p} [{start}, {end})" for p, start, end in gaps)
    return Refused(
        "GAP_NOT_ACCEPTED",
        f"this seek of {name} would leave out {each}: {sum(end - start for _, start, end in gaps)} offsets that no whole batch has read.",
        expected="no offset left out, or your word that it may be.",
        remedy=f"`ingest seek {name} --to table` where Kafka still holds them; else add --accept-gap: `ingest verify` will always show it.",
    )


def ledger_unreadable(name: str, ledger: str, why: str) -> Refused:
    """A ledger whose files are missing or damaged."""
    return Refused(
        "LEDGER_UNREADABLE",
        f"the ledger of {name}, {ledger}, cannot be read: {why}",
        expected="a whole Delta table.",
        remedy=f"put its files back; or move {ledger} away: it is made again, as far as the target's log goes back.",
    )


def txn_retention(name: str, tables: Sequence[str]) -> Refused:
    """Transaction ids that expire."""
    each = "; ".join(f"ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')" for table in tables)
    return Refused(
        "TXN_RETENTION",
        f"delta.setTransactionRetentionDuration is set on {', '.join(tables)}: the transaction ids of {name} would expire.",
        expected="the property unset: an earlier writer whose transaction id is forgotten is no longer fenced.",
        remedy=f"run {each}.",
    )


def topic_other(name: str, bound: str, topic: str) -> Refused:
    """A contract that names another topic than before."""
    return Refused(
        "TOPIC_CHANGED",
        f"what {name} holds was read from topic {bound}; the contract now says {topic}.",
        expected="the same topic: offsets of one topic mean nothing in another.",
        remedy="put the topic back, or give the table another name in the contract.",
    )


def topic_recreated(name: str, topic: str, bound: str, has: str) -> Refused:
    """A topic that was deleted and made again."""
    found = f"{name} was read from topic {topic} with id {bound}; the broker's topic {topic} has id {has}."
    expected = "the same topic: one that was made again starts at offset 0, and its records would be taken for old ones."
    return Refused("TOPIC_RECREATED", found, expected=expected, remedy=topic_made_again(name))


def topic_elsewhere(name: str, topic: str, bound: str, has: str) -> Refused:
    """A topic of the same name on another cluster, where the one or the other tells no topic ids."""
    found = f"{name} was read from topic {topic} of a cluster with id {bound}; the brokers are of a cluster with id {has}, and "
    found += "the two tell no topic ids that could be compared."
    expected = "the same topic: in another cluster's the same offsets are other records, and all before them would be passed over."
    remedy = f"{topic_made_again(name)} If it is the same all the same (a proxy, older brokers), `ingest seek {name} --to table` goes on."
    return Refused("TOPIC_RECREATED", found, expected=expected, remedy=remedy)


def partitions_lost(name: str, topic: str, lost: Sequence[int]) -> Refused:
    """A topic with fewer partitions than the table was read from."""
    return Refused(
        "PARTITIONS_LOST",
        f"topic {topic} has no partition {', '.join(map(str, lost))} any more, which {name} was read from.",
        expected="the partitions of before: Kafka never takes any away, so this is another topic or another cluster.",
        remedy="check --bootstrap-servers and the topic.",
    )


def records_expired(name: str, topic: str, expired: Sequence[tuple[int, int, int]]) -> Refused:
    """Offsets that are to be read next and that Kafka has deleted."""
    each = ", ".join(f"partition {p} [{start}, {end})" for p, start, end in expired)
    lost = sum(end - start for _, start, end in expired)
    return Refused(
        "RECORDS_EXPIRED",
        f"topic {topic} no longer holds {each}: {lost} offsets that {name} has still to read.",
        expected="every offset from where the table ends: retention has deleted them.",
        remedy=f"to go on without them, `ingest seek {name} --to table --accept-gap` records the gap; `ingest verify` always shows it.",
    )


def broker_behind(name: str, topic: str, behind: Sequence[tuple[int, int, int]]) -> Refused:
    """A broker that ends before what was read."""
    each = ", ".join(f"partition {p} ends at {has}, {name} stands at {wanted}" for p, wanted, has in behind)
    return Refused(
        "BROKER_BEHIND",
        f"topic {topic} ends before {name}: {each}.",
        expected="at least the offsets that were read: this is another cluster, or one that lost records.",
        remedy="check --bootstrap-servers. If the cluster did lose its newest records, their offsets are used a second time: stop the "
        "producers, copy all that the topic still holds into another one, delete the topic, make it anew from that copy and "
        f"`ingest seek {name} --to earliest`; {NOT_AGAIN}",
    )


def offsets_undecided(name: str, topic: str, undecided: Sequence[tuple[int, int, int]]) -> Refused:
    """A reader of committed records who would begin behind a transaction that is open: Spark would plan a batch that ends before it
    begins, and say that data may have been lost."""
    each = ", ".join(f"partition {p} begins at {start}, committed records are told of up to {end}" for p, start, end in undecided)
    return Refused(
        "OFFSETS_UNDECIDED",
        f"a transaction on topic {topic} is open, and {name} stands behind its beginning: {each}.",
        expected="no open transaction before that: these offsets were read as read_uncommitted, or a seek was told to begin there.",
        remedy="wait until it has ended, and start again; `ingest transactions --open` shows it. Nothing is lost meanwhile.",
    )
