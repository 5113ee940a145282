"""Where a table ends: what the batches in force prove to have read, by log, ledger and checkpoint, each of which may be lost (I6). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.stream.assessment import Assessment
from ingest.stream.binding import FormerEpoch, Gap
from ingest.stream.decide import LastWritten, one_topic
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import EpochBegin, LedgerSummary
from ingest.stream.situation import CheckpointFacts, TableFacts
from ingest.stream.unbroken import ANOTHER, baseline_of, last_unbroken, stamp_of


@dataclass(frozen=True)
class TableEnd:
    """Where the batches in force end, by partition, and how each epoch stands; `version` is the table's newest, `topic` the name of
    the topic that they were read from (empty: nothing was read).

    `read` is what batches in force have read, of any epoch, as far as the log tells: (topic id, partition, start, end). `lost` is where the
    first records lie that the quarantine has lost, by topic id and partition; `began` where reading once began, by
    partition (0 where none is named), None if nothing tells that there ever was any; `pending` what the epoch at hand was to read
    again for the sake of the quarantine, and has not.
    """

    version: int
    topic_id: str
    ends: Mapping[int, int]
    former: tuple[FormerEpoch, ...]
    lost: Mapping[tuple[str, int], int] = field(default_factory=dict)
    topic: str = ""
    began: Mapping[int, int] | None = None
    pending: tuple[Gap, ...] = ()
    stamp: str = ""
    read: tuple[Gap, ...] = ()


def table_end(assessment: Assessment, in_force: InForce, name: str) -> TableEnd:
    """What the table proves to have read: its newest batch in force without a hole before it tells where, or the newest epoch's
    baseline if none followed it."""
    summary, horizon = assessment.summary, in_force.before_the_log()
    versions, epochs = set(), dict(summary.epochs)
    for commit in in_force.commits():
        versions.add(commit.version)
        mark = commit.mark
        if mark is not None and f"{mark.pipeline}.{mark.table}" == name:
            epochs[mark.id.query_id] = mark.epoch
    baselines = {query: baseline_of(assessment.checkpoint, summary, query, in_force.log) for query in epochs}
    newest = {query: last for query in epochs if (last := last_unbroken(in_force, summary, query, baselines[query])) is not None}
    former = tuple(
        FormerEpoch(
            query_id,
            epoch,
            _last_batch(query_id, newest, summary, horizon),
            newest[query_id].mark.topic if query_id in newest else "",
            newest[query_id].mark.topic_id if query_id in newest else "",
            tuple((each.partition, each.end) for each in newest[query_id].mark.ranges) if query_id in newest else (),
            _gaps(query_id, assessment),
            stamp_of(assessment.checkpoint, query_id),
        )
        for query_id, epoch in sorted(epochs.items(), key=lambda item: item[1])
    )
    read = tuple(_read(in_force, newest))
    version = max(versions, default=-1)
    last = max(newest.values(), key=lambda each: each.version, default=None)
    begins = [begin for begin in summary.begins.values() if begin.table_version in versions or begin.table_version <= horizon]
    begins = [begin for begin in begins if not _of_a_table_before(begin, summary, epochs)]
    begins = [begin for begin in begins if baselines[begin.query_id] != ANOTHER]
    begin = max(begins, key=lambda each: (each.table_version, epochs[each.query_id]), default=None)
    if begin is not None and begin.query_id not in newest and (last is None or begin.table_version >= last.version):
        return TableEnd(version, begin.topic_id, _ends_of(begin, last, assessment, in_force, name), former, topic=begin.topic, read=read)
    if last is None:
        return TableEnd(version, "", {}, former)
    ends = {each.partition: each.end for each in last.mark.ranges}
    return TableEnd(version, last.mark.topic_id, ends, former, topic=last.mark.topic, read=read)


def _read(in_force: InForce, newest: Mapping[str, LastWritten]) -> Iterator[Gap]:
    """The ranges of the batches up to the newest of each epoch; what stands behind a hole may have counted on rows that are gone."""
    for commit in in_force.commits():
        mark = commit.mark
        if mark is not None and mark.id.query_id in newest and mark.id.number <= newest[mark.id.query_id].mark.id.number:
            yield from ((mark.topic_id, each.partition, each.start, each.end) for each in mark.ranges)


def _ends_of(begin: EpochBegin, last: LastWritten | None, assessment: Assessment, in_force: InForce, name: str) -> Mapping[int, int]:
    """Where an epoch began that no batch in force has followed; no later than others did that knew nothing of it, for their batches may
    have been left out since. What `last`, which it knew, has read is not read again."""
    same = last is not None and one_topic(last.mark.topic_id, begin.topic_id)
    read = {each.partition: each.end for each in last.mark.ranges} if last is not None and same else {}
    ends = dict(begin.baseline)
    for starts in _unknown_to(begin, assessment, in_force, name):
        for partition, start in starts.items():
            if partition in ends:
                ends[partition] = min(ends[partition], max(start, read.get(partition, 0)))
    return ends


def _unknown_to(begin: EpochBegin, assessment: Assessment, in_force: InForce, name: str) -> Iterator[Mapping[int, int]]:
    """Where, in the same topic, batches begin that this epoch's rebase cannot have known: what the log tells was left out since; what the
    ledger has of a query that no rebase has ended; and the checkpoint at hand, if it has not followed this epoch. Each may be lost.

    Of a partition that a query's beginning does not name, all was its to read: it was added later.
    """
    checkpoint, summary = assessment.checkpoint, assessment.summary
    for commit in in_force.left_out(begin.table_version):
        mark = commit.mark
        if mark is not None and f"{mark.pipeline}.{mark.table}" == name and one_topic(mark.topic_id, begin.topic_id):
            yield {each.partition: each.start for each in mark.ranges}
    for query_id, newest in summary.last.items():
        if query_id != begin.query_id and query_id not in summary.ended and one_topic(newest.mark.topic_id, begin.topic_id):
            told = summary.begins.get(query_id)
            yield {p: 0 if told is None else told.baseline.get(p, 0) for p in begin.baseline}
    binding = checkpoint.binding
    if (
        binding is not None
        and begin.query_id not in (checkpoint.query_id, *binding.predecessors)
        and checkpoint.begins
        and one_topic(binding.topic_id, begin.topic_id)
    ):
        yield {p: checkpoint.begins.get(p, 0) for p in begin.baseline}


def _gaps(query_id: str, assessment: Assessment) -> tuple[Gap, ...]:
    """What this epoch jumped over when it began, by the ledger, or where that is lost by the checkpoint that is there."""
    binding = assessment.checkpoint.binding
    if query_id in assessment.summary.gaps or binding is None or binding.rebase is None:
        return assessment.summary.gaps.get(query_id, ())
    if query_id == assessment.checkpoint.query_id:
        return tuple((binding.topic_id, *gap) for gap in binding.rebase.gaps)
    return next((former.gaps for former in binding.rebase.former if former.query_id == query_id), ())


def _of_a_table_before(begin: EpochBegin, summary: LedgerSummary, epochs: Mapping[str, int]) -> bool:
    """Whether this epoch began in a table that was dropped since: the ledger outlives it, and versions of a table only rise."""
    later = (each for query_id, each in summary.begins.items() if epochs[query_id] > epochs[begin.query_id])
    return any(each.table_version < begin.table_version for each in later)


def _last_batch(query_id: str, newest: Mapping[str, LastWritten], summary: LedgerSummary, horizon: int) -> int:
    if query_id in newest:
        return newest[query_id].mark.id.number
    if horizon >= 0 and query_id in summary.ended:
        return summary.ended[query_id]
    return 0 if query_id in summary.begins else -1


def pending(checkpoint: CheckpointFacts, former: Sequence[FormerEpoch]) -> tuple[Gap, ...]:
    """What this checkpoint's rebase has promised to read again for the quarantine, and none of its batches in force has read."""
    if checkpoint.binding is None or checkpoint.binding.rebase is None:
        return ()
    read = {p: end for epoch in former if epoch.query_id == checkpoint.query_id for p, end in epoch.ends}
    left = ((topic_id, p, max(start, read.get(p, start)), end) for topic_id, p, start, end in checkpoint.binding.rebase.regain)
    return tuple(gap for gap in left if gap[2] < gap[3])


def began(checkpoint: CheckpointFacts, table: TableFacts, topic_id: str) -> Mapping[int, int] | None:
    """Where reading began, by the checkpoint: log and ledger may be gone with the table, and what its batches had read is no less left
    out then, nor what its rebase had jumped over. None if nothing was ever read or about to be: where a rebase was cut off, there was
    something."""
    binding = checkpoint.binding
    if checkpoint.empty and checkpoint.initial is None and not checkpoint.prepared and not table.ours:
        return None
    if binding is None or (binding.topic_id and topic_id and binding.topic_id != topic_id):
        return {}
    if table.beside is not None or (binding.rebase is not None and binding.rebase.former):
        return {}
    jumped = {partition: start for partition, start, _ in binding.rebase.gaps} if binding.rebase is not None else {}
    return {**checkpoint.begins, **jumped}
