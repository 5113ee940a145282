"""The roll-back of quarantined records of uncommitted batches, as far as Kafka still has them (I7). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.delta.batch_commit import FENCE, BatchId
from ingest.delta.delta_sql import quoted
from ingest.recovery.start_state import StartState


@dataclass(frozen=True)
class RollBack:
    """Deletes the records of batches above `newest` and below `epoch`, from the topic's `earliest` offset on, by partition.

    It never deletes by offsets alone, and never another topic's records. Records of committed batches stay, and so do those that Kafka has
    expired. Records that a seek skips are deleted too: a later seek backwards would find such a record and mistake its position for known.
    """

    epoch: int
    newest: BatchId
    topic_id: str
    earliest: Mapping[int, int]

    @property
    def condition(self) -> str:
        """The predicate of the DELETE, in SQL."""
        e, b = self.newest.epoch, self.newest.number
        uncommitted = f"epoch < {self.epoch} AND (epoch > {e} OR (epoch = {e} AND batch > {b})) AND topic_id = {quoted(self.topic_id)}"
        places = [f"(`partition` = {p} AND `offset` >= {start})" for p, start in sorted(self.earliest.items())]
        return f"{uncommitted} AND ({' OR '.join(places) or 'false'})"

    def takes(self, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
        """Whether this record is deleted: `condition` in Python."""
        uncommitted = id.epoch < self.epoch and id > self.newest
        return uncommitted and topic_id == self.topic_id and partition in self.earliest and offset >= self.earliest[partition]


def roll_back(state: StartState, epoch: int) -> RollBack | None:
    """The roll-back of `epoch`; None if the quarantine's newest batch is committed, or it has none.

    `state` must be read after both fences, when no other writer can commit any more.
    """
    assert state.broker is not None
    quarantine, target = state.quarantine, state.target.newest
    committed = target.id if target is not None else BatchId(0, FENCE)
    if quarantine.newest is None and quarantine.whole_log:
        return None
    # A log that Delta has cleaned may hide the newest batch: then the DELETE itself searches the records.
    if quarantine.newest is not None and quarantine.newest <= committed:
        return None
    return RollBack(epoch, committed, state.broker.topic.id, {p: first for p, (first, _) in state.broker.bounds.items()})
