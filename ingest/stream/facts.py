"""Reads what preflight decides on: a checkpoint's files, a table's log with its history, the topic's bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ingest.files import Files
from ingest.places import Places
from ingest.stream.binding import FILE as BINDING_FILE
from ingest.stream.binding import Binding, prepared_binding, read_binding
from ingest.stream.decide import LastWritten, one_topic
from ingest.stream.delta_log import Commit, DeltaLog, State
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import app_id
from ingest.stream.offsets import CheckpointFiles, CheckpointTorn, PlannedBatch
from ingest.stream.quarantine_loss import Seen, quarantine_loss, quarantines
from ingest.stream.situation import CheckpointFacts, Stranger, TableFacts
from ingest.stream.unbroken import baseline_of, last_unbroken

RETENTION = "delta.setTransactionRetentionDuration"


def checkpoint_facts(files: Files, places: Places) -> CheckpointFacts:
    """What the checkpoint of a table says of itself. Raises nothing for a torn one: that is a fact too."""
    checkpoint = CheckpointFiles(files, places.checkpoint)
    offsets, commits = checkpoint.numbers("offsets"), checkpoint.numbers("commits")
    planned_number, committed = max(offsets, default=-1), max(commits, default=-1)
    query_id, planned, binding, torn, initial = None, None, None, None, None
    try:
        query_id = checkpoint.query_id()
        if query_id is None and (offsets or commits):
            torn = "metadata"
        if torn is None and committed >= 0:
            checkpoint.check_commit(committed)
        initial = _initial_offsets(checkpoint, planned=bool(offsets))
        binding = read_binding(files, places.state)
        # Also before the first batch: the offsets that it will begin at may be those of a topic that was there before.
        if binding is None and (offsets or commits or initial is not None):
            torn = torn or f"oncelake/{BINDING_FILE}"
        if binding is not None and binding.rebase is not None and not offsets:
            torn = torn or "offsets/0"  # the baseline is put in place with its binding: somebody has taken Spark's own files away
        if query_id is not None and planned_number >= 0:
            planned = _planned(checkpoint, query_id, planned_number, binding)
    except CheckpointTorn as error:
        torn = torn or error.file
    prepared = not offsets and not commits and prepared_binding(files, places) is not None
    return CheckpointFacts(places.checkpoint, query_id, planned, committed, torn, binding, prepared, initial)


def _initial_offsets(checkpoint: CheckpointFiles, *, planned: bool) -> dict[int, int] | None:
    """Batch 0 is planned from them; once there is a batch, nobody needs them but a rebase that finds no table."""
    try:
        return checkpoint.initial_offsets()
    except CheckpointTorn:
        if planned:
            return None
        raise


def _planned(checkpoint: CheckpointFiles, query_id: str, number: int, binding: Binding | None) -> PlannedBatch:
    """The last planned batch, under whatever topic its offset log names: a contract may name another by now."""
    if number == 0 and binding is not None and binding.rebase is not None:
        return checkpoint.baseline(query_id)
    return checkpoint.planned(query_id, number)


@dataclass
class TableHistory:
    """What the log of a table's target tells of the batches in it; `summary` is what the ledger remembers beyond the log."""

    places: Places
    log: DeltaLog
    summary: LedgerSummary
    in_force: InForce

    @staticmethod
    def of(files: Files, places: Places, summary: LedgerSummary) -> TableHistory:
        """The history of the target at `places`."""
        log = DeltaLog(files, places.target)
        return TableHistory(places, log, summary, InForce(log))

    def left_out(self, query_id: str, last: LastWritten | None) -> LastWritten | None:
        """The newest batch of this query that the log has and that is not in force."""
        for commit in self.in_force.left_out(-1 if last is None else last.version):
            if commit.mark is not None and commit.mark.id.query_id == query_id:
                return LastWritten(commit.mark, commit.version)
        return None

    def beside(self, checkpoint: CheckpointFacts, since: int | None) -> LastWritten | None:
        """A batch of this table behind version `since`, where a rebase began this checkpoint, that is not in force, of another query that
        the rebase did not know, and that has read the topic from before this checkpoint's own beginning on.

        Where the query's id is lost, its own batches are no others: none of them began before the first.
        """
        binding = checkpoint.binding
        if binding is None or since is None:
            return None
        known, begins = (checkpoint.query_id, *binding.predecessors), checkpoint.begins
        for commit in self.in_force.left_out(since):
            mark = commit.mark
            if mark is None or f"{mark.pipeline}.{mark.table}" != self.places.name or mark.id.query_id in known:
                continue
            if one_topic(mark.topic_id, binding.topic_id) and any(each.start < begins.get(each.partition, 0) for each in mark.ranges):
                return LastWritten(mark, commit.version)
        return None

    def stranger(self, query_id: str | None, last: LastWritten | None, former: tuple[str, ...]) -> Stranger | None:
        """The newest commit in force, after `last`, of another pipeline, or of another query that is no predecessor."""
        for commit in self.in_force.commits():
            if last is not None and commit.version <= last.version:
                return None
            mark = commit.mark
            if mark is None:
                continue
            name = f"{mark.pipeline}.{mark.table}"
            if name != self.places.name or (query_id is not None and mark.id.query_id not in (query_id, *former)):
                return Stranger(commit.version, name, mark.id.query_id)
        return None

    def seen_of(self, former: Sequence[str], baseline: int) -> Sequence[str]:
        """Those of the `former` queries of which a rebase, at version `baseline`, has seen all that they have put into quarantine."""
        since = [commit.mark for commit in takewhile(lambda commit: commit.version > baseline, self.in_force.commits())]
        gone_on = {mark.id.query_id for mark in since if mark is not None and quarantines(mark)}
        return [query for query in former if query not in gone_on]

    def has(self, query_id: str, number: int) -> bool:
        """Whether log or ledger know the offsets of this batch, in force or not."""
        if self.summary.last_batch(query_id) >= number:
            return True
        app = app_id(self.places.pipeline, self.places.table, query_id, "target")
        return any(commit.transactions.get(app) == number and commit.mark is not None for commit in self.log.newest_first())

    def holds_ours(self, state: State) -> bool:
        """Whether the table keeps any pair of this pipeline's table, or its log a batch, in force or not: pairs can expire."""
        prefix = app_id(self.places.pipeline, self.places.table, "", "")[:-1]
        if any(app.startswith(prefix) and app.endswith("/target") for app in state.pairs):
            return True
        marks = (commit.mark for commit in self.log.newest_first())
        return any(mark is not None and f"{mark.pipeline}.{mark.table}" == self.places.name for mark in marks)

    def blank(self) -> bool:
        """Whether the table holds nothing but our own marked creation: no commit has added a file."""
        versions = self.log.versions()
        if not versions or versions[0] != 0:
            return False
        commits = list(self.log.newest_first())
        return _created_by(commits[-1], self.places) and not any(commit.added for commit in commits)


def _created_by(commit: Commit, places: Places) -> bool:
    try:
        told = json.loads(commit.user_metadata or "")
        return (told["kind"], told["pipeline"], told["table"]) == ("created", places.pipeline, places.table)
    except (ValueError, KeyError, TypeError):
        return False


def table_facts(files: Files, places: Places, checkpoint: CheckpointFacts, summary: LedgerSummary, seen: Seen | None) -> TableFacts:
    """What the tables say, seen from this checkpoint; `seen` is what a start remembered of the quarantine."""
    history = TableHistory.of(files, places, summary)
    state = history.log.state()
    query_id = checkpoint.query_id
    recorded = bool(summary.epochs)
    ledgered = summary.last_batch(query_id) if query_id is not None else -1
    if state is None:
        return TableFacts(places.target, recorded=recorded, ledgered=ledgered)
    former = checkpoint.binding.predecessors if checkpoint.binding else ()
    baseline = baseline_of(checkpoint, summary, query_id, history.log)
    last = last_unbroken(history.in_force, summary, query_id, baseline) if query_id is not None else None
    pair = state.pairs.get(app_id(places.pipeline, places.table, query_id, "target")) if query_id is not None else None
    written = last.mark.id.number if last is not None else -1
    # Where a batch of this query counts as in force, so does its baseline; the walk back to it can be long.
    began = last is None and baseline is not None and baseline >= 0 and history.in_force.holds(baseline)
    seen_of = former if last is not None or baseline is None else history.seen_of(former, baseline) if began else None
    ours = history.holds_ours(state)
    quarantine = DeltaLog(files, places.quarantine)
    quarantine_state, ledger_state = quarantine.state(), DeltaLog(files, places.ledger).state()
    states = ((places.target, state), (places.quarantine, quarantine_state), (places.ledger, ledger_state))
    return TableFacts(
        places.target,
        state.id,
        last,
        history.left_out(query_id, last) if query_id is not None and written < max(checkpoint.committed, pair or -1) else None,
        history.beside(checkpoint, baseline) if last is None else None,
        ours,
        not ours and history.blank(),
        recorded,
        ledgered,
        history.stranger(query_id, last, former),
        pair,
        pair is None or query_id is None or written >= pair or history.has(query_id, pair),
        began,
        places.quarantine,
        quarantine_loss(quarantine, quarantine_state, places, history.in_force, summary, seen, seen_of),
        tuple(path for path, each in states if each is not None and RETENTION in each.properties),
    )
