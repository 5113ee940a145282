"""The roll-back of quarantined records of uncommitted batches, as far as Kafka still has them (I7). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.delta.batch_commit import FENCE, BatchId
from ingest.delta.stored_rows import any_of
from ingest.kafka.offsets import Partition
from ingest.recovery.numbering import Numbered
from ingest.recovery.start_state import StartState


@dataclass(frozen=True)
class RollBack:
    """Deletes the records of batches above `newest` and below `epoch`, from the `earliest` offset of their partition on.

    It never deletes by offsets alone. Records of committed batches stay, and so do those that Kafka has expired. Records that a seek skips
    are deleted too, and all of the topics that it has `left` out: a later seek backwards would find such a record and mistake its position
    for known, or add it a second time.
    """

    epoch: int
    newest: BatchId
    earliest: Mapping[Partition, int]
    left: frozenset[int] = frozenset()

    @property
    def condition(self) -> str:
        """The predicate of the DELETE, in SQL."""
        e, b = self.newest.epoch, self.newest.number
        uncommitted = f"epoch < {self.epoch} AND (epoch > {e} OR (epoch = {e} AND batch > {b}))"
        places = [f"(source = {n} AND `partition` = {p} AND `offset` >= {start})" for (n, p), start in sorted(self.earliest.items())]
        places += [f"source = {number}" for number in sorted(self.left)]
        return f"{uncommitted} AND ({any_of(places)})"

    def takes(self, id: BatchId, of: Partition, offset: int) -> bool:
        """Whether this record is deleted: `condition` in Python."""
        uncommitted = id.epoch < self.epoch and id > self.newest
        return uncommitted and (of[0] in self.left or (of in self.earliest and offset >= self.earliest[of]))


def roll_back(state: StartState, epoch: int, topics: Numbered) -> RollBack | None:
    """The roll-back of `epoch`, which reads these `topics`; None if the quarantine's newest batch is committed, or it has none.

    `state` must be read after both fences, when no other writer can commit any more.
    """
    quarantine, target = state.quarantine, state.target.newest
    committed = target.id if target is not None else BatchId(0, FENCE)
    if quarantine.newest is None and quarantine.whole_log:
        return None
    # A log that Delta has cleaned may hide the newest batch: then the DELETE itself searches the records.
    if quarantine.newest is not None and quarantine.newest <= committed:
        return None
    names = {each.topic.name for each in topics.states.values()}  # what a recreated topic had is not read again
    return RollBack(epoch, committed, topics.firsts, frozenset(n for n, each in enumerate(topics.sources) if each.name not in names))
