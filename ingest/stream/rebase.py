"""Rebase: a new checkpoint that begins where it is told to, put in place atomically; the old one is moved aside (I6).

1 prepare the new checkpoint in a folder beside · 2 move the old one aside · 3 the ledger's rows · 4 rename the new one into
place. A crash after 2 leaves no checkpoint: a start refuses (CHECKPOINT_LOST), and the next rebase finishes from 3.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from ingest import faults
from ingest.contract import Contract
from ingest.errors import InvalidInput
from ingest.files import Files, files_of, is_local
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.spark import jvm_pid
from ingest.stream import commit, lock
from ingest.stream.assessment import Assessment, assess
from ingest.stream.binding import Binding, prepared_binding, write_binding
from ingest.stream.contract_kept import CONTRACT_FILE, stored_contract
from ingest.stream.delta_log import DeltaLog, State
from ingest.stream.in_force import InForce
from ingest.stream.ledger_reader import summarise
from ingest.stream.offsets import CheckpointFiles
from ingest.stream.opening import append_rebase, baseline_mark
from ingest.stream.quarantine_loss import write_seen
from ingest.stream.rebase_plan import Aim, RebasePlan, plan
from ingest.stream.situation import BrokerFacts
from ingest.stream.table_end import began, pending, table_end
from ingest.stream.topic import Topic, facts_of

# A rebase mends what the others are about; these are mended otherwise, or by nobody.
NOT_MENDED = ("TABLE_FOREIGN", "TXN_RETENTION", "PARTITIONS_LOST", "TOPIC_CHANGED")


@dataclass(frozen=True)
class Rebased:
    """What was done: the new checkpoint's query id, the plan (None if an interrupted rebase was finished), where the old one is."""

    query_id: str
    binding: Binding
    plan: RebasePlan | None
    aside: str | None


@dataclass
class Rebaser:
    """A rebase of one table. `assess` first; then `plan`, which changes nothing; then `publish`."""

    session: SparkSession
    contract: Contract
    places: Places
    kafka: KafkaOptions
    topic: Topic
    # As it was before it was looked at: what somebody does to it in between, the next start must not take for accepted.
    _quarantine: State | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.locks = lock.hold_all(self.session, self.places, existing=True)
        self._files: Files = files_of(self.places.checkpoint, self.session)
        self._lake = files_of(self.places.lake, self.session)
        self._prepared = self.places.prepared
        if is_local(self.places.lake) and is_local(self.places.checkpoint):
            faults.arm(Path(self.places.lake), Path(self.places.checkpoint), Path(self.places.target), jvm_pid(self.session))

    @property
    def interrupted(self) -> bool:
        """Whether an earlier rebase has moved the old checkpoint aside and not put the new one in place."""
        prepared = prepared_binding(self._files, self.places)
        if prepared is None or prepared.rebase is None or CheckpointFiles(self._files, self.places.checkpoint).numbers("offsets"):
            return False
        # One of long ago was overtaken: the table has gone on since, or is another.
        state = DeltaLog(self._lake, self.places.target).state()
        return state is not None and (state.version, state.id) == (prepared.rebase.table_version, prepared.table_id)

    def plan(self, aim: Aim, *, accept_gap: bool) -> RebasePlan:
        """What would be done. Raises Refused for what a rebase does not mend, GAP_NOT_ACCEPTED, InvalidInput OFFSETS_INVALID."""
        broker = facts_of(self.kafka, self.topic, self.contract.source.isolation_level)
        self._quarantine = DeltaLog(self._lake, self.places.quarantine).state()
        known = self._assess(broker)
        stranger = known.table.stranger
        others = ("TABLE_OWNED",) if stranger is not None and stranger.pipeline != self.places.name else ()
        for refused in known.refusals:
            if refused.code in NOT_MENDED + others:
                raise refused
        log = DeltaLog(self._lake, self.places.target)
        end = table_end(known, InForce(log), self.places.name)
        since = began(known.checkpoint, known.table, broker.topic_id)
        end = replace(end, stamp=log.stamp(end.version), began=since, pending=pending(known.checkpoint, end.former))
        if known.table.quarantine_lost is not None:
            end = replace(end, lost=known.table.quarantine_lost.starts)
        return plan(self.places.name, aim, end, broker, known.table.id or "", accept_gap=accept_gap)

    def publish(self, planned: RebasePlan) -> Rebased:
        """Put the new checkpoint in place."""
        anew = not planned.binding.table_id
        commit.create_tables(self.session, self.contract, self.places)
        state = DeltaLog(self._lake, self.places.target).state()
        assert state is not None
        if anew or planned.rebase.table_version < 0:
            rebase = replace(planned.rebase, table_version=state.version, stamp=state.stamp)
            planned = replace(planned, binding=replace(planned.binding, table_id=state.id, rebase=rebase))
        # Else table and version as they were planned for: what was restored, replaced or dropped since, the next start then refuses.
        query_id = str(uuid.uuid4())
        moment = _moment()
        if self._files.names(self._prepared):
            self._files.move(self._prepared, f"{self.places.checkpoint}.rebase-abandoned-{moment}")
        self._prepare(query_id, planned, anew=anew)
        faults.at("rebase_prepared", 0)
        aside = self._move_aside(moment)
        faults.at("rebase_aside", 0)
        return Rebased(query_id, self._finish(), planned, aside)

    def finish(self) -> Rebased:
        """Put the checkpoint of an interrupted rebase in place."""
        query_id = CheckpointFiles(self._files, self._prepared).query_id()
        assert query_id is not None
        self._move_aside(_moment())
        faults.at("rebase_aside", 0)
        return Rebased(query_id, self._finish(), None, None)

    def _move_aside(self, moment: str) -> str | None:
        """Make room for the new checkpoint; None if there was no more than the lock of a start that was refused."""
        names = self._files.names(self.places.checkpoint)
        if not names:
            return None
        aside = f"{self.places.checkpoint}.aside-{moment}"
        self._files.move(self.places.checkpoint, aside)
        return aside if names != ["oncelake"] else None

    def _finish(self) -> Binding:
        binding = prepared_binding(self._files, self.places)
        query_id = CheckpointFiles(self._files, self._prepared).query_id()
        assert binding is not None and query_id is not None
        commit.create_tables(self.session, self.contract, self.places)
        baseline = baseline_mark(binding, query_id, self.places, self.contract)
        known = summarise(self.session, self.places)
        append_rebase(self.session, DeltaLog(self._lake, self.places.ledger), binding, baseline, self.places, known)
        faults.at("rebase_ledger", 0)
        if self._files.names(self.places.checkpoint) == ["oncelake"]:  # the lock of a start that was refused meanwhile, as CHECKPOINT_LOST
            self._move_aside(_moment())
        self._files.move(self._prepared, self.places.checkpoint)
        faults.at("rebase_done", 0)
        return binding

    def _prepare(self, query_id: str, planned: RebasePlan, *, anew: bool) -> None:
        """As Spark would have left it after a batch 0 that ended at the baseline; the binding comes last, and makes it whole.

        `anew`: there was no table, and the one that was made now is as today's contract says.
        """
        now_ms = round(datetime.now(UTC).timestamp() * 1000)
        ends = {str(partition): offset for partition, offset in planned.rebase.baseline}
        offsets = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}}), json.dumps({self.topic.name: ends})]
        state = self.places.prepared_state
        self._files.write(f"{self._prepared}/metadata", json.dumps({"id": query_id}).encode())
        self._files.write(f"{self._prepared}/offsets/0", "\n".join(offsets).encode())
        self._files.write(f"{self._prepared}/commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
        # Without it a start asks the table's own properties what the contract may not change; today's would hide a change.
        if not anew and (stored := self._contract_in_force()) is not None:
            self._files.write(f"{state}/{CONTRACT_FILE}", stored.to_json().encode())
        # What the quarantine lacks by now, this rebase reads again as far as that can be done.
        write_seen(self._files, state, self._quarantine or DeltaLog(self._lake, self.places.quarantine).state())
        write_binding(self._files, state, planned.binding)

    def _assess(self, broker: BrokerFacts) -> Assessment:
        return assess(self._files, self._lake, self.places, summarise(self.session, self.places), broker)

    def _contract_in_force(self) -> Contract | None:
        """The one kept in the old checkpoint; None where there is none, or it is damaged."""
        try:
            return stored_contract(self._files, self.places)
        except InvalidInput:
            return None


def _moment() -> str:
    """A name for what is moved aside now; two in one second differ."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
