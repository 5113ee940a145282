"""The roll-back: which quarantined records an uncommitted batch has left, that can be read again (I7). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.delta.batch_commit import FENCE, BatchId
from ingest.delta.delta_sql import quoted
from ingest.recovery.start_state import StartState


@dataclass(frozen=True)
class RollBack:
    """Deletes records of the batches above `newest` and below `epoch`, as far as the topic still holds them: from `earliest` on.

    Never by offsets alone, and never another topic's: a committed batch's records stay, and so does what Kafka has expired. What a seek
    passes over goes, too: such a record would stand where a later seek backwards finds it and takes its position for known.
    """

    epoch: int
    newest: BatchId
    topic_id: str
    earliest: Mapping[int, int]

    @property
    def condition(self) -> str:
        """The predicate of the DELETE."""
        e, b = self.newest.epoch, self.newest.number
        uncommitted = f"epoch < {self.epoch} AND (epoch > {e} OR (epoch = {e} AND batch > {b})) AND topic_id = {quoted(self.topic_id)}"
        places = [f"(`partition` = {p} AND `offset` >= {start})" for p, start in sorted(self.earliest.items())]
        return f"{uncommitted} AND ({' OR '.join(places) or 'false'})"

    def takes(self, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
        """Whether it deletes this record: the same as `condition`."""
        uncommitted = id.epoch < self.epoch and id > self.newest
        return uncommitted and topic_id == self.topic_id and partition in self.earliest and offset >= self.earliest[partition]


def roll_back(state: StartState, epoch: int) -> RollBack | None:
    """What `epoch` has to roll back; None where the quarantine's newest batch is committed.

    `facts` are those of the look behind both fences: nobody else can commit any more.
    """
    assert state.broker is not None
    quarantine, target = state.quarantine, state.target.newest
    committed = target.id if target is not None else BatchId(0, FENCE)
    if quarantine.newest is None and quarantine.whole_log:
        return None
    # A log that was cleaned does not tell; then the DELETE looks.
    if quarantine.newest is not None and quarantine.newest <= committed:
        return None
    return RollBack(epoch, committed, state.broker.topic.id, {p: first for p, (first, _) in state.broker.bounds.items()})
