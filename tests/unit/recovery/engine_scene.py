"""A lake as the engine writes it, without Spark: fences on both tables, real snapshots, a ledger with BatchCommits, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

from ingest.delta.batch_commit import FENCE, SEEK, Fence, Start
from ingest.delta.delta_log import Logs
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicState
from ingest.recovery.start_state import StartState
from ingest.recovery.state_reader import EPOCH_FILE, read_start_state
from tests.unit.verify.proof_lake import TOPIC, Lake


class Scene(Lake):
    """One partition; every record's event id is its offset. No epoch is open yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.epoch = 0

    def start_state(self, *topics: TopicState) -> StartState:
        """The state that a start reads. Without topics no broker is asked."""
        return read_start_state(None, self.places, Logs.of(self.places), (lambda: topics) if topics else None)

    def start(self, *, quarantine: bool = True) -> None:
        """Start the next epoch, with its fences."""
        super().start()
        self.rows((), batch_commit=self.batch_commit(Fence(), FENCE))
        if quarantine:
            self.records((), batch_commit=self.batch_commit(Fence(), FENCE))

    def first(self, start: int = 0) -> None:
        """Start the first epoch and commit its starting offsets."""
        self.start()
        posting = Posting(Key(self.epoch, SEEK, self.source, 0), "first", OffsetRange(0, start, start, source=self.source))
        self.rows((), batch_commit=self.batch_commit(Start("a test"), SEEK, posting))

    def checkpoint(self, epoch: int, text: str | None = None, table_id: str | None = None) -> None:
        """Create the folder of an epoch's checkpoint."""
        file = Path(self.places.checkpoint_of(epoch)) / EPOCH_FILE
        file.parent.mkdir(parents=True)
        content = {"epoch": epoch, "table_id": table_id or self.snapshots().table_id, "topic": TOPIC.name, "topic_id": TOPIC.id}
        file.write_text(json.dumps(content) if text is None else text, encoding="utf-8")


def one_batch(folder: Path) -> Scene:
    """A scene in which one batch has read up to 10, with two quarantined records, and the ledger has it."""
    scene = Scene(folder)
    scene.first()
    scene.batch(0, 10, range(8), (8, 9))
    scene.keep()
    return scene
