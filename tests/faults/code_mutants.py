"""Mutants: bugs inserted into a copy of the engine. A run under the oracle, or a test of the repository, must find each one.

To add one, add an entry to MUTANTS (with the scenario and the oracle's words) or to CAUGHT (with a test that fails), and add its row to
docs/explanation/faults.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.database_mutants import DATABASE_MUTANTS
from tests.faults.direct_mutants import DIRECT_MUTANTS
from tests.faults.driver import REPOSITORY, Driver
from tests.faults.pipeline import Pipeline


def plain(lake: Pipeline) -> None:
    """Read the whole topic, including retries, poison and aborted transactions."""
    run(lake)


def killed_after_target(lake: Pipeline) -> None:
    run(lake, fault="after_target:kill@3")
    run(lake)


def killed_after_quarantine(lake: Pipeline) -> None:
    run(lake, fault="after_quarantine:kill@3")
    run(lake)


def killed_during_target(lake: Pipeline) -> None:
    """Judged in the state that the kill left: every batch in the ledger must be in the target at any time."""
    run(lake, fault="during_target:kill@3")


def raised_after_quarantine(lake: Pipeline) -> None:
    run(lake, fault="after_quarantine:raise@3")


def read_again(lake: Pipeline) -> None:
    """A seek to the earliest offset re-reads everything, poison included."""
    run(lake)
    end(lake.command("seek", "orders", "--to", "earliest"))
    run(lake)


def read_again_strictly(lake: Pipeline) -> None:
    """Re-read everything under a rule that rejects some of the rows."""
    run(lake)
    least_amount(lake, 100)
    end(lake.command("seek", "orders", "--to", "earliest"))
    run(lake)


def read_again_kindly(lake: Pipeline) -> None:
    """Re-read everything under a rule that accepts records which an earlier rule rejected."""
    least_amount(lake, 100)
    run(lake)
    least_amount(lake, 0)
    end(lake.command("seek", "orders", "--to", "earliest"))
    run(lake)


def sought(lake: Pipeline) -> None:
    """Most of the topic is unread. Seek to the table's end and read the rest."""
    run(lake, fault="after_target:kill@2")
    end(lake.command("seek", "orders", "--to", "table"))
    run(lake)


def least_amount(lake: Pipeline, amount: int) -> None:
    """Set the least amount that the rule allows, and raise the quarantine limit."""
    lake.write_contracts(max_share=0.9)
    contract = lake.project / "tables" / "orders.yml"
    contract.write_text(contract.read_text(encoding="utf-8").replace("amount >= 0", f"amount >= {amount}"), encoding="utf-8")


def run(lake: Pipeline, *arguments: str, fault: str | None = None) -> None:
    end(lake.start(*arguments, fault=fault))


def end(driver: Driver) -> None:
    """Wait until the driver has ended, with any exit code."""
    driver.died()
    driver.gone()


@dataclass(frozen=True)
class Change:
    """One or more (old, new) replacements in one file of the package. `promise` is the invariant that they break."""

    promise: str
    file: str
    changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mutant(Change):
    """A mutant that a run under the oracle finds. `found` is part of the expected finding; `mix` changes what is produced."""

    scenario: Callable[[Pipeline], None]
    found: str
    mix: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Caught(Change):
    """A mutant on which a test of the repository (`path::name`, relative to tests/) must fail."""

    test: str


def one(promise: str, file: str, old: str, new: str, scenario: Callable[[Pipeline], None], found: str, **mix: Any) -> Mutant:
    """A mutant of one replacement, for the oracle."""
    return Mutant(promise, file, ((old, new),), scenario, found, mix)


def by(test: str, promise: str, file: str, *changed: str) -> Caught:
    """A mutant for a test; `changed` alternates between old and new text."""
    return Caught(promise, file, tuple(zip(changed[::2], changed[1::2], strict=True)), test)


WITHOUT = "adds data without a transaction id"
COMMIT, BATCH, QUERY = "delta/writer.py", "batch/batch.py", "run/table_query.py"
EPOCH, LOOK = "recovery/epoch.py", "recovery/state_reader.py"
MERGE = "commit = commits.merge_target(winners, table.contract, table.epoch.look_back.target, batch_counts.bounds, still)"
QUARANTINE = "stored = _quarantine(with_bytes(ranked, records, batch_counts.conflicts), batch_counts, table, number, plan, reread=reread)"
NO_QUARANTINE = "stored: Mapping[int, int] = {}"
FINISH = "finish(table, SparkWriter(records.sparkSession), commit, clock, reread=reread)"
SET_TRANSACTION_ID = ("session.conf.set(APP_ID, batch_commit.app_id)", "session.conf.set(VERSION, str(batch_commit.id.txn_version))")
SET_MARK = "session.conf.set(METADATA, batch_commit.to_json())\n    try:\n        yield"
OUTER = f"session = SparkSession._instantiatedSession or session\n    {SET_TRANSACTION_ID[0]}"
RANGE = "OffsetRange(of[1], starts.get(of, 0), end, source=of[0])"
RAISE = "            raise\n        finally:\n            self._in_batch = False"
LEDGER_FIRST = f"""from dataclasses import replace

        from ingest.delta.batch_commit import Project
        from ingest.delta.commit import Commit
        from ingest.ledger.ledger_line import lines_of

        early, version = still(), table.epoch.look_back.target.newest() + 1
        made = Commit(version, plan.planned_at, "MERGE", {{early.app_id: early.id.txn_version}}, early.to_json())
        about, rows = replace(early, case=Project(), postings=()), [line.row() for line in lines_of("target", made, early)]
        table.epoch.ledger.writer.append_ledger(table.places, about, rows, records.sparkSession)
        {MERGE}"""
PLAN = "number, plan, reread = begin(table, spark_number)"
PLAN_FROM_DATA = f"""{PLAN}
    from dataclasses import replace

    seen = records.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    plan = replace(plan, ranges=tuple(OffsetRange(p, first, last + 1) for p, first, last in sorted(map(tuple, seen))))"""
PROCESS = "report = process(records, number, self._table)"
DIRECTLY = "report = process_direct(records, number, self._table, self._direct)"
BOUNDS = """    for name, (least, greatest) in bounds.items():
        condition &= F.col(f"t.`{name}`").between(least, greatest)
"""
RECENT = """    condition &= F.col("t._ingested_at") > F.current_timestamp() - F.expr("INTERVAL 1 SECOND")
"""
TIMES = """    if contract.event_time:
        time = F.unix_micros(contract.event_time)
        first, last = source.agg(F.min(time), F.max(time)).first() or (0, 0)
        condition &= F.unix_micros(F.col(f"t.{contract.event_time}")).between(first, last)
"""
ALL, NONE = "    condition = F.lit(True)\n", "    condition = F.lit(False)\n"
BY_ID = "    for name in event_id_columns(contract):"
BY_POSITION = '    for name in ("source", "partition", "offset"):'
FENCES = 'for log, point in ((self.logs.target, "start_target_fenced"), (self.logs.quarantine, "start_fenced")):'
ONLY_TARGET = 'for log, point in ((self.logs.target, "start_target_fenced"),):'
ONLY_QUARANTINE = 'for log, point in ((self.logs.quarantine, "start_fenced"),):'
UNDONE = "(undone := roll_back(state, writer.epoch, self._topics(state))) is not None"
START = "newest.ends.get(of, firsts[of] if of[0] in joins else 0)"
APP_ID = 'return f"oncelake/{pipeline}/{table}"'
BYTES = 'F.col("__value").alias("value")'
ORDER, LAST_FIRST = 'sort_by([(name, "ascending")', 'sort_by([(name, "descending")'
STRICT, LEVEL = '"kafka.isolation.level": source.isolation_level', '"kafka.isolation.level": "read_uncommitted"'
TWICE, OPEN_TOO = "in the target 2 times", "and, open, in the quarantine"
# Without copies and aborted records, every offset except a transaction's marker contains a record that exists only there.
LONELY = {"aborted_share": 0, "duplicate_share": 0, "poison": 0}
MUTANTS = {
    "no transaction id is set": Mutant(
        "I1",
        COMMIT,
        tuple((x, f'if batch_commit.kind != "batch": {x}') for x in SET_TRANSACTION_ID),
        plain,
        WITHOUT,
    ),
    "no batch commit is set": one("I1", COMMIT, SET_MARK, SET_MARK[SET_MARK.index("try") :], plain, "no userMetadata of ours"),
    "the transaction id is set on the wrong Spark session": one("I1", COMMIT, SET_TRANSACTION_ID[0], OUTER, plain, WITHOUT),
    "the app id does not name the table": one(
        "I1",
        "delta/batch_commit.py",
        APP_ID,
        APP_ID.replace("/{table}", ""),
        plain,
        f"{WITHOUT} of oncelake/shop/orders",
    ),
    "offset ranges start one too late": one(
        "I1", "kafka/offsets.py", RANGE, RANGE.replace("0), end", "-1) + 1, end"), plain, "expected to start"
    ),
    "offset ranges are taken from the data": one("I1", BATCH, PLAN, PLAN_FROM_DATA, plain, "expected to start"),
    "a start skips the first offset after the table's end": one(
        "I2", "recovery/decision.py", START, "newest.ends.get(of, -1) + 1", killed_after_target, "expected to start"
    ),
    "no deduplication inside a batch": one("I3", BATCH, '"__rank = 1"', '"__rank >= 1"', plain, TWICE),
    "the MERGE does not search the target": one("I3", COMMIT, ALL + BY_ID, NONE + BY_ID, plain, TWICE),
    "the MERGE is bounded by the wall clock": one("I3", COMMIT, BOUNDS, RECENT, plain, TWICE),
    "the last copy of a batch wins": one("I3", "batch/dedup.py", ORDER, LAST_FIRST, plain, "was read by version"),
    "aborted records are read": one("I4", QUERY, STRICT, LEVEL, plain, "aborted transaction"),
    "a row is quarantined when it is re-read": one(
        "I4", BATCH, "if reread and (checks or batch_counts.failed):", "if False:", read_again_strictly, OPEN_TOO
    ),
    "a record that becomes a row stays open in the quarantine": one(
        "I4", BATCH, "replay(writer, table.places, batch_commit)", "pass", read_again_kindly, OPEN_TOO
    ),
    "poison is dropped": one("I5", BATCH, QUARANTINE, NO_QUARANTINE, plain, "dropped"),
    "an exception is swallowed": one("I5", QUERY, RAISE, RAISE[18:], raised_after_quarantine, "is lost"),
    "the MERGE does not search the quarantine": one(
        "I5", COMMIT, ALL + BY_POSITION, NONE + BY_POSITION, read_again, "in the quarantine 2 times"
    ),
    "no rule is checked": one("I5", "decode/decoder.py", "for rule in contract.rules:", "for rule in ():", plain, "its record was broken"),
    "the quarantine keeps no bytes": one(
        "I5", BATCH, BYTES, 'F.lit(None).cast("binary").alias("value")', plain, "other bytes than Kafka holds"
    ),
    "a seek starts one offset too late": one(
        "I6", "recovery/seek_offsets.py", "starts[of] = start\n", "starts[of] = start + 1\n", sought, "is lost", **LONELY
    ),
    "the quarantine is written after the target": Mutant(
        "I7",
        BATCH,
        ((QUARANTINE, NO_QUARANTINE), (f"return {FINISH}", f"done = {FINISH}\n    {QUARANTINE}\n    return done")),
        killed_after_target,
        "is in neither target nor quarantine",
    ),
    "no roll-back": one("I7", EPOCH, UNDONE, f"{UNDONE} and False", killed_after_quarantine, "has not rolled it back"),
    "the ledger is written before the target": one("I7", BATCH, MERGE, LEDGER_FIRST, killed_during_target, "no target commit of that"),
}

COMMITS, STARTS = "integration/test_commit.py::test_", "unit/recovery/test_start_mutants.py::test_"
LEFT_SET = f"{COMMITS}a_commit_has_transaction_id_and_metadata_and_leaves_no_session_setting_behind"
BELIEVED = f"{COMMITS}if_the_store_reports_an_error_after_a_commit_the_log_decides"
ANEW = f"{COMMITS}a_merge_that_conflicts_with_a_foreign_commit_is_retried_on_the_new_version"
LATE = "integration/test_event_ids.py::test_late_events_are_not_lost_and_a_copy_with_another_time_is_the_same_event"
EXPIRE = "integration/test_batch.py::test_records_that_expire_between_plan_and_read_stop_the_batch_with_nothing_written"
LOCKED_OUT = "faults/test_two_drivers.py::test_a_second_driver_is_locked_out_until_the_holder_of_the_lock_is_killed"
MADE_AGAIN = "faults/test_recreated_topic.py::test_a_recreated_topic_shorter_or_longer_is_refused_and_a_seek_reads_all_of_it"
NUMBERS = "unit/recovery/test_numbering.py::test_"
DRIFT = "faults/test_schema_drift.py::test_each_event_is_ignored_kept_or_quarantined_as_the_contract_says"
SETTLED = f"{STARTS}a_restore_before_a_start_is_refused_until_a_seek_and_no_fence_settles_it"
TAKES = f"{STARTS}a_roll_back_removes_uncommitted_records_that_will_be_re_read"
BEHIND = f"{STARTS}a_start_decides_from_the_state_that_it_reads_after_its_fences"
REFUSED = f"{STARTS}recreated_topics_expired_records_and_expiring_transaction_ids_are_refused"
FOUND = "            if (commit := _own(log, batch_commit, before)) is not None:\n                return commit\n"
OWN = "(there.id, there.writer) == (batch_commit.id, batch_commit.writer)"
REVERTS = "if reverts(each)), None)) is not None:"
LOOK_AGAIN, PASSED = "        state = self.read_state()\n        fenced", "not fenced or state.next_epoch != writer.epoch + 1 or "
HIGHEST = "max(self.target.epoch, self.quarantine.epoch, self.ledger.epoch, self.checkpoint.epoch)"
POSITION = "if isinstance(batch_commit.case, POSITIONED)"
SKIPPED = "    if commit is None:\n        raise fenced(log, made[-1])\n    return commit\n"
RETENTION = "if state is not None and RETENTION in state.properties)"
FOLDER = "    return local_path(places.root) if is_local(places.lake) else None\n"
CAUGHT = {
    "the transaction id is left set on the session": by(
        LEFT_SET, "I1", COMMIT, "            session.conf.unset(key)\n", "            pass\n"
    ),
    "a store's error is mistaken for a failed commit": by(BELIEVED, "I1", COMMIT, FOUND, ""),
    "another writer's commit is mistaken for its own": by(
        f"{STARTS}another_writers_commit_of_the_same_batch_is_not_mistaken_for_our_own", "I1", COMMIT, OWN, "there.id == batch_commit.id"
    ),
    "a RESTORE during a run is not noticed": by(
        f"{STARTS}a_restore_during_a_run_stops_it_at_its_next_check",
        "I1",
        "recovery/look_back.py",
        REVERTS,
        f"{REVERTS[:-1]} and False:",
    ),
    "a RESTORE is ignored": by(SETTLED, "I2", "delta/reachable.py", 'return commit.operation == "RESTORE" or (', "return ("),
    "a fence hides a RESTORE": by(SETTLED, "I2", LOOK, f"{POSITION}:", f'{POSITION} or batch_commit.kind == "fence":'),
    "the ends come from the highest version, not the highest epoch": by(
        f"{STARTS}the_end_offsets_come_from_the_highest_epoch_not_from_the_highest_version",
        "I2",
        LOOK,
        "or batch_commit.id > newest.id or (",
        "or (",
    ),
    "a conflict ends the run": by(ANEW, "I3", COMMIT, "tries < TRIES_MAX and (outrun or isinstance(error, CONFLICTS))", "False"),
    "the MERGE takes a record of another topic for its own": by(
        "integration/test_direct_quarantine.py::test_records_enter_once_become_replayed_and_open_again_alike",
        "I5",
        COMMIT,
        BY_POSITION,
        BY_POSITION.replace('"source", ', ""),
    ),
    "the MERGE is bounded by the event's time": by(LATE, "I3", COMMIT, BOUNDS, TIMES),
    "our own roll-back counts as removed rows": by(
        f"{STARTS}our_own_roll_back_does_not_count_as_a_delete",
        "I4",
        "delta/reachable.py",
        '"DELETE" and not (commit.batch_commit is not None and isinstance(commit.batch_commit.case, RollBack))',
        '"DELETE"',
    ),
    "records that expire during a batch are skipped": by(EXPIRE, "I5", QUERY, '"failOnDataLoss": "true"', '"failOnDataLoss": "false"'),
    "fields that the contract does not name are accepted": by(
        DRIFT, "I5", "decode/exact_json.py", 'if others and self._unknown == "quarantine":', "if False:"
    ),
    "the topic's id is not compared": by(REFUSED, "I6", "kafka/topic_state.py", "return self.id == before.id", "return True"),
    "expired records are not noticed": by(REFUSED, "I6", "recovery/decision.py", "if at < broker.bounds[p][0]]", "if False]"),
    "transaction ids that would expire are accepted": by(REFUSED, "I6", LOOK, RETENTION, "if False)"),
    "a recreated topic gets a number that another topic has": by(
        f"{NUMBERS}a_recreated_topic_gets_the_next_number_and_its_predecessor_keeps_its_own",
        "I6",
        "recovery/numbering.py",
        "number = known[-1] if known else len(sources)",
        "number = known[-1] if known else len(found)",
    ),
    "only the target says which numbers are taken": by(
        "unit/recovery/test_model.py::test_a_named_schedule_loses_and_duplicates_nothing",
        "I6",
        "recovery/start_state.py",
        "self.quarantine.sources, ",
        "",
    ),
    "a topic that joins starts at its end": by(
        "unit/recovery/test_topics_of_a_start.py::test_a_topic_that_joins_starts_at_its_first_record_and_an_added_partition_of_another_at_0",
        "I6",
        "recovery/decision.py",
        "topics.firsts if topics is not None else {}",
        "topics.ends if topics is not None else {}",
    ),
    "a run continues on a recreated topic": by(MADE_AGAIN, "I6", "kafka/topic.py", 'if now.id in ("", topic.id):', "if True:"),
    "a roll-back selects by offsets only": by(
        TAKES, "I7", "recovery/roll_back.py", " AND (epoch > {e} OR (epoch = {e} AND batch > {b}))", ""
    ),
    "a roll-back takes the records of another topic": by(TAKES, "I7", "recovery/roll_back.py", "(source = {n} AND `", "(`"),
    "a committed batch is rolled back": by(TAKES, "I7", "recovery/roll_back.py", "batch > {b}", "batch >= {b}"),
    "no fence on the target": by(BEHIND, "I8", EPOCH, FENCES, ONLY_QUARANTINE),
    "no fence on the quarantine": by(BEHIND, "I8", EPOCH, FENCES, ONLY_TARGET),
    "a start decides before it fences": by(BEHIND, "I8", EPOCH, LOOK_AGAIN, "        fenced", PASSED, ""),
    "the epoch is not compared": by(f"{STARTS}an_epoch_is_given_up_if_another_start_has_opened_a_later_one", "I8", EPOCH, PASSED, ""),
    "an epoch may repeat": by(
        f"{STARTS}a_new_epoch_is_greater_than_any_epoch_found_anywhere", "I8", "recovery/start_state.py", HIGHEST, "self.target.epoch"
    ),
    "a skipped statement is mistaken for a commit": by(
        f"{STARTS}a_statement_that_delta_skipped_is_reported_as_fenced",
        "I8",
        COMMIT,
        SKIPPED,
        "    return commit or log.commit(log.newest())\n",
    ),
    "a truncated log is taken for the old one": by(
        "unit/kafka/test_leader_epochs.py::test_each_position_has_the_epoch_of_its_record_and_exactly_what_was_lost_is_found",
        "I6",
        "kafka/log/leader_epochs.py",
        "    if reach.end >= at.offset and (same or log.epoch_at(partition, at.offset - 1) in (None, at.leader_epoch)):\n",
        "    if reach.end >= 0:\n",
    ),
    "a batch does not ask whether the log is still the old one": by(
        "integration/test_log_truncated.py::test_a_log_that_an_unclean_election_cut_and_that_grew_again_is_refused_while_running_and_at_a_start",
        "I6",
        "batch/batch.py",
        "    plan = replace(plan, ranges=table.with_epochs(plan.ranges, table.read_to))\n",
        "",
    ),
    "no lock is taken": by(LOCKED_OUT, "I8", "run/table_lock.py", FOLDER, "    return None\n"),
    "a commit does not name its contract": by(
        "unit/delta/test_batch_commit.py::test_the_json_is_as_documented_and_is_parsed_back",
        "I9",
        "delta/batch_commit.py",
        'head["contract_hash"] = self.contract_hash',
        'head["contract_hash"] = ""',
    ),
}


CAUGHT |= {name: by(*rest) for name, *rest in (*DIRECT_MUTANTS, *DATABASE_MUTANTS)}
# Changes to a copy of the engine that let a fault test reach code behind a check, or provoke a failure. The test says why.

FAILING = """def _failing(records: DataFrame) -> DataFrame:
    from pyspark import TaskContext
    from pyspark.sql import functions as F

    seen = []

    def fine(offset: int) -> bool:
        seen.append(offset)
        if TaskContext.get().attemptNumber() == 0 and len(seen) > 20:
            raise RuntimeError("the first attempt of this task")
        return True

    return records.where(F.udf(fine, "boolean")("offset"))


"""
TRIGGER = "@dataclass(frozen=True)\nclass Trigger:"
BYPASSED = {
    "no lock is taken": CAUGHT["no lock is taken"],
    "each task of the source fails once": Change(
        "none",
        QUERY,
        (*((each, each.replace("records,", "_failing(records),")) for each in (PROCESS, DIRECTLY)), (TRIGGER, FAILING + TRIGGER)),
    ),
    "transaction ids that would expire are not refused": Change("I6", "recovery/decision.py", (("    _txn_retention,  #", "    #"),)),
}


def copy_with(bug: Change, folder: Path) -> Path:
    """Copy the package and insert the bug."""
    shutil.copytree(REPOSITORY / "ingest", folder / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    plant(bug, folder)
    return folder


def plant(bug: Change, folder: Path) -> None:
    """Insert the bug into an existing copy. Fails if the old text no longer exists, so that no mutant is lost silently."""
    file = folder / "ingest" / bug.file
    for old, new in bug.changes:
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{bug.file} no longer contains {old!r}: update this mutant"
        file.write_text(text.replace(old, new), encoding="utf-8")
        compile(text.replace(old, new), file, "exec")
