"""Whether a batch is written, skipped or refused (I2). Pure: no Spark, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.errors import RunStopped
from ingest.stream.mark import Mark
from ingest.stream.offsets import OffsetRange


@dataclass(frozen=True)
class LastWritten:
    """The last batch of a query that the target holds, and the table version that proves it."""

    mark: Mark
    version: int


@dataclass(frozen=True)
class Write:
    """The batch is not in the target."""


@dataclass(frozen=True)
class Skip:
    """The target holds exactly this batch: proven by the commit at `version`, whose mark is `mark`."""

    mark: Mark
    version: int


def decide(batch: Mark, last: LastWritten | None) -> Write | Skip:
    """Judge `batch` against the last one in the target. Raises RunStopped BATCH_DIFFERS or BATCHES_MISSING."""
    number = batch.id.number
    written = -1 if last is None else last.mark.id.number
    if written == number - 1:
        if last is not None and not joins(batch.ranges, last.mark):
            raise _apart(batch, last)
        if last is not None and not one_topic(batch.topic_id, last.mark.topic_id):
            raise differs(batch, last.mark, last.version)
        return Write()
    if last is not None and written == number and last.mark.ranges == batch.ranges and one_topic(batch.topic_id, last.mark.topic_id):
        return Skip(last.mark, last.version)
    if last is None or written < number - 1:
        raise RunStopped(
            "BATCHES_MISSING",
            f"the checkpoint is at batch {number}, but the table holds batches up to {'none' if last is None else written}.",
            expected=f"batch {number - 1} in the table: it was restored to an older state, overwritten, or replaced.",
            remedy="bring the table back to the state that belongs to this checkpoint; nothing was written.",
        )
    raise differs(batch, last.mark, last.version)


def joins(ranges: Sequence[OffsetRange], last: Mark) -> bool:
    """Whether these ranges begin where the batch before them, `last`, ended; a partition that it did not have at 0."""
    ends = {each.partition: each.end for each in last.ranges}
    return all(each.start == ends.get(each.partition, 0) for each in ranges)


def one_topic(one: str, other: str) -> bool:
    """Whether these can be the ids of one topic: a broker of before Kafka 2.8 tells none, and begins to when it is upgraded."""
    return not one or not other or one == other


def _apart(batch: Mark, last: LastWritten) -> RunStopped:
    """The error for a batch between whose first offsets and the table's last ones some would be left out, or read again as new."""
    return RunStopped(
        "BATCH_DIFFERS",
        f"batch {batch.id.number} is planned for {ranges_text(batch)}, but the batch before it, the table's version {last.version}, is "
        f"{ranges_text(last.mark)}. Nothing was written.",
        expected="a batch that begins where the one before ended: the checkpoint's offset log is not the one that wrote the table.",
        remedy=f"put the newest checkpoint back; or `ingest rebase {batch.pipeline}.{batch.table} --to table` begins there.",
    )


def differs(batch: Mark, committed: Mark | None, version: int) -> RunStopped:
    """The error for a batch whose pair stands in the table's `version` with other ranges: Delta would skip it in silence."""
    theirs = "no ranges of ours" if committed is None else f"batch {committed.id.number} with {ranges_text(committed)}"
    return RunStopped(
        "BATCH_DIFFERS",
        f"batch {batch.id.number} is planned for {ranges_text(batch)} of topic id {batch.topic_id}, but the table's version {version} "
        f"is {theirs}{'' if committed is None else f' of topic id {committed.topic_id}'}. Nothing was skipped and nothing written.",
        expected="the same offset ranges: an older or foreign checkpoint was put in place.",
        remedy=f"put the newest checkpoint back; or `ingest rebase {batch.pipeline}.{batch.table} --to table` goes on where the table "
        "ends: what stands in quarantine is not doubled.",
    )


def ranges_text(mark: Mark) -> str:
    """`0:[10,20) 1:[7,9)`."""
    return " ".join(str(each) for each in mark.ranges)
