"""The refusals of preflight: what was found, what was expected, and the command that mends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ingest.errors import Refused
from ingest.places import PREPARED
from ingest.stream.decide import LastWritten, ranges_text
from ingest.stream.offsets import PlannedBatch

# What tells that there was a checkpoint.
Teller = Literal["table", "ledger", "rebase"]
# A topic that holds copies (another cluster's, one made again) has another id, and the position holds it.
NOT_AGAIN = "ids that the table holds are not added again. But with `event_id: position` a copied record is another event: there begin "
NOT_AGAIN += "behind the copies (`--to` offsets or a time, `--accept-gap`)."


def checkpoint_lost(name: str, checkpoint: str, table: str, by: Teller) -> Refused:
    """No checkpoint, and something that tells of one: the table's batches, the ledger, or a rebase that was cut off."""
    found, also = {
        "table": (f"{table} holds batches of {name}", ""),
        "ledger": (f"the ledger beside {table} tells of batches or of a rebase of {name}", "the ledger and the quarantine"),
        "rebase": (f"a rebase of {name} was cut off: its new one is still {checkpoint}{PREPARED}", f"{checkpoint}{PREPARED}"),
    }[by]
    does = "finishes that one" if by == "rebase" else "makes a new one that goes on where the table ends"
    anew = f" To begin anew as if nothing had ever been read, move {also} away as well." if also else ""
    return Refused(
        "CHECKPOINT_LOST",
        f"{checkpoint} holds no checkpoint, but {found}.",
        expected="the checkpoint that wrote the table: a new one would plan batch numbers that the table believes to have.",
        remedy=f"put the checkpoint back; or `ingest rebase {name} --to table` {does}.{anew}",
    )


def table_foreign(name: str, table: str) -> Refused:
    """A table that somebody else made."""
    return Refused(
        "TABLE_FOREIGN",
        f"{table} exists and holds no commit of {name}.",
        expected="no table there, or one that `ingest run` has made: what others wrote cannot be accounted for.",
        remedy="give the table another name in the contract, another --lake, or move the foreign table away.",
    )


def table_owned(name: str, table: str, version: int, pipeline: str, query_id: str, ours: str | None) -> Refused:
    """A table that another pipeline or another checkpoint writes."""
    whose = f"of the pipeline {pipeline}" if pipeline != name else f"by another checkpoint of {name}, query {query_id}"
    than = "" if ours is None else f" (ours is query {ours})"
    remedy = f"use the checkpoint that wrote last; or stop the other run and make a new one with `ingest rebase {name} --to table`."
    if pipeline != name:  # a rebase would take somebody's rows for ours
        remedy = f"if {pipeline} is what {name} was called before, call it so again (contract and folders); else give the table another "
        remedy += f"name in the contract, another --lake, or move {table} away."
    return Refused(
        "TABLE_OWNED",
        f"version {version} of {table} was committed {whose}{than}.",
        expected="one pipeline and one checkpoint for a table at a time.",
        remedy=remedy,
    )


def table_replaced(name: str, table: str, has: str, bound: str) -> Refused:
    """A table that was dropped and made again under the same name."""
    return Refused(
        "TABLE_REPLACED",
        f"{table} has the table id {has}; the checkpoint of {name} belongs to the table {bound} that was there before.",
        expected="the same table: what the old one held is not in this one.",
        remedy=f"put the old table back; or `ingest rebase {name} --to earliest` fills this one from all that Kafka still holds.",
    )


def checkpoint_old(name: str, checkpoint: str, planned: PlannedBatch, last: LastWritten, bound: str = "") -> Refused:
    """A checkpoint that was restored from before the table's last batch, or is `bound` to another topic id than that was read from."""
    ranges = " ".join(str(each) for each in planned.ranges) + (f" of topic id {bound}" if bound else "")
    theirs = ranges_text(last.mark) + (f" of topic id {last.mark.topic_id}" if bound else "")
    return Refused(
        "CHECKPOINT_OLD",
        f"the checkpoint {checkpoint} of {name} ends with batch {planned.id.number} ({ranges}); the table's version {last.version} is "
        f"batch {last.mark.id.number} of the same checkpoint with {theirs}.",
        expected="the newest state of the checkpoint: from an older one other ranges are planned, and Delta would skip them in silence.",
        remedy=f"put the newest checkpoint back; or `ingest rebase {name} --to table` goes on where the table ends.",
    )


def table_rewound(name: str, table: str, by: str, done: int, last: LastWritten | None, left_out: LastWritten | None) -> Refused:
    """A table that lacks what was done; `by` is what proves it: checkpoint, pair or ledger."""
    proof = {"pair": f"Delta keeps the pair of batch {done} of {name}", "ledger": f"the ledger of {name} has batch {done}"}
    holds = "none of its batches" if last is None else f"batches up to {last.mark.id.number}, {ranges_text(last.mark)}"
    lost = (
        ""
        if left_out is None
        else f" Batch {left_out.mark.id.number} ({ranges_text(left_out.mark)}) was version {left_out.version}; a later RESTORE, REPLACE "
        "or overwrite left it out."
    )
    return Refused(
        "TABLE_REWOUND",
        f"{proof.get(by, f'the checkpoint of {name} has done batch {done}')}; {table} holds {holds}.{lost}",
        expected="every batch that is done, in force in the table.",
        remedy=f"bring the table back to its newest state; or `ingest rebase {name} --to table` reads again what the table lacks.",
    )


def restored_beside(name: str, table: str, beside: LastWritten) -> Refused:
    """A table from which a batch was taken that another checkpoint has written since this one's rebase."""
    return Refused(
        "TABLE_REWOUND",
        f"{table} was restored, replaced or overwritten: batch {beside.mark.id.number} ({ranges_text(beside.mark)}) of another checkpoint "
        f"(query {beside.mark.id.query_id}) was version {beside.version} and is in force no more. The checkpoint of {name}, whose rebase "
        "did not know of it, begins behind its first offsets.",
        expected="every batch that is done, in force in the table, or its offsets still to be read.",
        remedy=f"bring the table back to its newest state; or `ingest rebase {name} --to table` reads again what the table lacks.",
    )


def checkpoint_torn(file: str, name: str) -> Refused:
    """A checkpoint that cannot be read."""
    return Refused(
        "CHECKPOINT_TORN",
        f"{name}: the file {file} is missing, empty, not in the format in which it is written, or ends before it begins.",
        expected="the complete file: without it the batch's offset range is unknown, and a guess could lose records.",
        remedy=f"restore the file from a backup of the checkpoint; or `ingest rebase {name} --to table` makes a new checkpoint that "
        "goes on where the table ends, and keeps the old one aside.",
    )


def log_torn(table: str, hole: int, newest: int) -> Refused:
    """A Delta log that lacks a commit between its last checkpoint and its newest commit."""
    return Refused(
        "LOG_TORN",
        f"the log of {table} lacks the commit of version {hole}, and goes on to version {newest}.",
        expected="each commit since the log's last checkpoint: Delta opens the table only with all of them; what that one held is unknown.",
        remedy=f"put {table}/_delta_log/{hole:020}.json back from a copy; if there is none, move {table} away, and the next start tells "
        "how to go on.",
    )


def log_damaged(table: str, file: str) -> Refused:
    """A file of a Delta log that is cut off, or otherwise not what Delta writes."""
    return Refused(
        "LOG_TORN",
        f"{file} is not in the format in which Delta writes it.",
        expected="a JSON value in each line, or a whole Parquet file of a checkpoint: what it held is unknown.",
        remedy="put the file back from a copy. If there is none: where the log has a checkpoint of a later version, or this is one and all "
        f"commits before it are there, take the file away, since Delta does without it; else move {table} away, which Delta does not open "
        "either, and the next start tells how to go on.",
    )


def quarantine_rewound(name: str, quarantine: str, what: str) -> Refused:
    """A quarantine that lacks records which the target's commits prove."""
    return Refused(
        "QUARANTINE_REWOUND",
        f"{quarantine} lacks records that the target's commits of {name} prove: {what}.",
        expected="all of them: the quarantine was deleted, restored to an older state or replaced.",
        remedy=f"bring the quarantine back (RESTORE TABLE to its newest state); or `ingest rebase {name} --to table` reads again from the "
        "first range that is missing there: rows are not doubled, and what Kafka still holds comes back.",
    )


def history_gone(name: str, table: str, pair: int) -> Refused:
    """A pair of which nobody knows the ranges."""
    return Refused(
        "HISTORY_GONE",
        f"{table} keeps the pair of batch {pair} of {name}, but neither its log nor the ledger has that batch's offsets.",
        expected="the commit in the table's log or its row in the ledger: without either it cannot be said which offsets the table holds.",
        remedy=f"bring the ledger back; or `ingest rebase {name} --to earliest` reads all that Kafka still holds again.",
    )


def txn_retention(name: str, tables: Sequence[str]) -> Refused:
    """Pairs that expire."""
    each = "; ".join(f"ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')" for table in tables)
    return Refused(
        "TXN_RETENTION",
        f"delta.setTransactionRetentionDuration is set on {', '.join(tables)}: the pairs of {name} would expire.",
        expected="the property unset: a batch whose pair is forgotten would be written twice.",
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
    return Refused(
        "TOPIC_RECREATED",
        f"the checkpoint of {name} belongs to topic {topic} with id {bound}; the broker's topic {topic} has id {has}.",
        expected="the same topic: one that was made again starts at offset 0, and its records would be taken for old ones.",
        remedy=topic_made_again(name),
    )


def topic_elsewhere(name: str, topic: str, bound: str, has: str) -> Refused:
    """A topic of the same name on another cluster, where the one or the other tells no topic ids."""
    return Refused(
        "TOPIC_RECREATED",
        f"the checkpoint of {name} belongs to topic {topic} of a cluster with id {bound}; the brokers are of a cluster with id {has}, and "
        "the two tell no topic ids that could be compared.",
        expected="the same topic: in another cluster's the same offsets are other records, and all before them would be passed over.",
        remedy=f"{topic_made_again(name)} If it is the same all the same (a proxy, older brokers), `ingest rebase {name} --to table` goes "
        "on with it.",
    )


def topic_made_again(name: str) -> str:
    """What to do about a topic of another id, also one that is met in the midst of a run."""
    return (
        "check --bootstrap-servers: a topic of another cluster has another id, too. If this one was made again, "
        f"`ingest rebase {name} --to earliest` goes on with it from its beginning; {NOT_AGAIN}"
    )


def partitions_lost(name: str, topic: str, lost: Sequence[int]) -> Refused:
    """A topic with fewer partitions than the checkpoint has read."""
    return Refused(
        "PARTITIONS_LOST",
        f"topic {topic} has no partition {', '.join(map(str, lost))} any more, of which the checkpoint of {name} has offsets.",
        expected="the partitions of before: Kafka never takes any away, so this is another topic or another cluster.",
        remedy="check --bootstrap-servers and the topic.",
    )


def records_expired(name: str, topic: str, expired: Sequence[tuple[int, int, int]]) -> Refused:
    """Offsets that are to be read next and that Kafka has deleted."""
    each = ", ".join(f"partition {p} [{start}, {end})" for p, start, end in expired)
    lost = sum(end - start for _, start, end in expired)
    return Refused(
        "RECORDS_EXPIRED",
        f"topic {topic} no longer holds {each}: {lost} offsets that the checkpoint of {name} has still to read.",
        expected="every offset from where the checkpoint stands: retention has deleted them (after a rebase to before the table's end the "
        "table may have them all the same).",
        remedy=f"to go on without them, `ingest rebase {name} --to table --accept-gap` records the gap; `ingest verify` always shows it.",
    )


def broker_behind(name: str, topic: str, behind: Sequence[tuple[int, int, int]]) -> Refused:
    """A broker that ends before what was read."""
    each = ", ".join(f"partition {p} ends at {has}, {name} stands at {wanted}" for p, wanted, has in behind)
    return Refused(
        "BROKER_BEHIND",
        f"topic {topic} ends before the checkpoint of {name}: {each}.",
        expected="at least the offsets that were read: this is another cluster, or one that lost records.",
        remedy="check --bootstrap-servers. If the cluster did lose its newest records, their offsets are used a second time: stop the "
        "producers, copy all that the topic still holds into another one, delete the topic, make it anew from that copy and "
        f"`ingest rebase {name} --to earliest`; {NOT_AGAIN}",
    )


def offsets_undecided(name: str, topic: str, undecided: Sequence[tuple[int, int, int]]) -> Refused:
    """A reader of committed records who would begin behind a transaction that is open: Spark would plan a batch that ends before it
    begins, say that data may have been lost, and leave that batch in the checkpoint for good."""
    each = ", ".join(f"partition {p} begins at {start}, committed records are told of up to {end}" for p, start, end in undecided)
    return Refused(
        "OFFSETS_UNDECIDED",
        f"a transaction on topic {topic} is open, and {name} stands behind its beginning: {each}.",
        expected="no open transaction before that: these offsets were read as read_uncommitted, or a rebase was told to begin there.",
        remedy="wait until it has ended, and start again; `ingest transactions --open` shows it. Nothing is lost meanwhile.",
    )
