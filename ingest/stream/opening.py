"""The opening of a table by a run: preflight, the contract that a batch was begun with, tables, binding, ledger (I6, I9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from ingest.contract import Contract
from ingest.files import files_of
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.stream import commit, contract_change
from ingest.stream.assessment import assess
from ingest.stream.binding import Binding, read_binding, write_binding
from ingest.stream.contract_kept import CONTRACT_FILE, stored_contract
from ingest.stream.decide import LastWritten
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger import Ledger, append_rows
from ingest.stream.ledger_reader import summarise
from ingest.stream.ledger_row import project_rebase
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId
from ingest.stream.preflight import Refuse, Run, Start
from ingest.stream.quarantine_loss import write_seen
from ingest.stream.topic import Topic, facts_of


class Opening:
    """What is known of a table at a start, read once. The methods are called in the order in which they stand here."""

    def __init__(self, session: SparkSession, contract: Contract, places: Places, kafka: KafkaOptions, topic: Topic) -> None:
        self._session = session
        self._contract = contract
        self._places = places
        self._topic = topic
        self._files = files_of(places.checkpoint, session)
        self._lake = files_of(places.lake, session)
        self._log = DeltaLog(self._lake, places.target)
        # As it is before preflight looks at it: what somebody does to it in between, the next start must not take for seen.
        self._quarantine = DeltaLog(self._lake, places.quarantine).state()
        summary = summarise(session, places)
        broker = facts_of(kafka, topic, contract.source.isolation_level)
        self._assessment = assess(self._files, self._lake, places, summary, broker)

    def refuse(self) -> None:
        """Raises what preflight refuses with (exit 3)."""
        if isinstance(self._assessment.decision, Refuse):
            raise self._assessment.decision.error

    @property
    def unfinished(self) -> int | None:
        """The batch that was planned and is not in the table, if there is one."""
        decision = self._assessment.decision
        return decision.number if isinstance(decision, Run) else None

    @property
    def epoch(self) -> int:
        """0, and one more with each rebase."""
        binding = self._assessment.checkpoint.binding
        return binding.epoch if binding is not None else 0

    @property
    def begins_late(self) -> str | None:
        """What to say where a start of before has made the table and left no checkpoint, and this one begins at the topic's end all the
        same: nothing proves where that one began, or that it did."""
        known, source = self._assessment, self._contract.source
        if not isinstance(known.decision, Start) or source.starting_offsets != "latest":
            return None
        if not known.table.blank or known.checkpoint.binding is not None:
            return None
        name = self._places.name
        return (
            f"{name}: an earlier start has made {self._places.target}, and its checkpoint is gone; this one begins at the topic's end "
            f"(starting_offsets: latest). What came in between is read by `ingest rebase {name} --to TIME`"
        )

    def unfinished_contract(self) -> Contract | None:
        """The contract that an unfinished batch was begun with, if it is another one than today's; but today's limit on quarantine,
        which decides no record and may be what was mended."""
        stored = stored_contract(self._files, self._places)
        if self.unfinished is None or stored is None or stored.hash == self._contract.hash:
            return None
        return stored.model_copy(update={"quarantine": self._contract.quarantine})

    def make_tables(self) -> None:
        """Create those of target, quarantine and ledger that are missing."""
        wanted = (self._places.target, self._places.quarantine, self._places.ledger)
        if not all(DeltaLog(self._lake, path).exists() for path in wanted):
            commit.create_tables(self._session, self._contract, self._places)
        binding, state = self._assessment.checkpoint.binding, self._log.state()
        # Preflight lets a checkpoint without a committed batch start on a table that is gone: it belongs to the new one from now on.
        if binding is not None and self._assessment.table.id is None and state is not None:
            write_binding(self._files, self._places.state, replace(binding, table_id=state.id))

    def refuse_changed_contract(self) -> None:
        """Raises Refused CONTRACT_CHANGED if the table is not as the contract says."""
        state = self._log.state()
        assert state is not None, "the table was made a moment ago"
        contract_change.refuse(
            self._contract, self._places.target, contract_change.changes(self._contract, stored_contract(self._files, self._places), state)
        )

    def bind(self, *, anew: bool) -> None:
        """Keep beside the checkpoint what it belongs to, and the contract that the next batch is begun with.

        `anew`: a batch was finished under a former contract; one that Spark has planned behind it was not begun.
        """
        state = self._log.state()
        assert state is not None
        before = self._assessment.checkpoint.binding
        if before is None:
            write_binding(self._files, self._places.state, Binding(self._topic.name, self._topic.id, state.id, cluster=self._topic.cluster))
        elif (self._topic.id and not before.topic_id) or (self._topic.cluster and not before.cluster):
            # The broker was upgraded, and tells it from now on; or the checkpoint is of a version that did not ask for the cluster's.
            before = read_binding(self._files, self._places.state) or before  # make_tables may have bound it to a table
            now = replace(before, topic_id=before.topic_id or self._topic.id, cluster=before.cluster or self._topic.cluster)
            write_binding(self._files, self._places.state, now)
        path = f"{self._places.state}/{CONTRACT_FILE}"
        if anew or self.unfinished is None or self._files.read(path) is None:
            self._files.write(path, self._contract.to_json().encode())

        seen = self._quarantine or DeltaLog(self._lake, self._places.quarantine).state()
        write_seen(self._files, self._places.state, seen)

    def ledger(self) -> Ledger:
        """The ledger, completed from the target's log and, after a rebase, with the rows that this left."""
        checkpoint, summary = self._assessment.checkpoint, self._assessment.summary
        ledger = Ledger.of(self._places, self._lake)
        binding, last = checkpoint.binding, self._assessment.table.last
        if binding is not None and binding.rebase is not None and checkpoint.query_id is not None:
            ledger.predecessors = binding.predecessors
            baseline = baseline_mark(binding, checkpoint.query_id, self._places, self._contract)
            last = last or LastWritten(baseline, binding.rebase.table_version)
            append_rebase(self._session, ledger.ledger_log, binding, baseline, self._places, summary)
        ledger.complete(self._session, checkpoint.query_id, last, summary)
        return ledger


def baseline_mark(binding: Binding, query_id: str, places: Places, contract: Contract) -> Mark:
    """The mark of batch 0 of a rebased checkpoint: it reads nothing, and no commit carries it."""
    assert binding.rebase is not None
    id, ranges = BatchId(query_id, 0), binding.rebase.ranges
    return Mark(places.pipeline, places.table, id, binding.epoch, contract.hash, binding.topic, binding.topic_id, ranges, ())


def append_rebase(session: SparkSession, log: DeltaLog, binding: Binding, baseline: Mark, places: Places, known: LedgerSummary) -> None:
    """Append the ledger rows of a rebase, where `known`, what the ledger has, lacks them: by their commit nobody can tell, once it is
    cleaned from the ledger's log. How its epoch ended another rebase may have told where the ledger was lost; not how it began."""
    if baseline.id.query_id in known.begins or baseline.id.query_id in known.last:
        return
    rows = project_rebase(binding, baseline.id.query_id, places, baseline.contract_hash, datetime.now(UTC), known.gaps)
    append_rows(session, rows, log, baseline)
