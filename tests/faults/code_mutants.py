"""Bugs planted in a copy of the engine, each with what must find it: a run under the oracle, or a test of the repository.

To add one: a line in MUTANTS (scenario, the oracle's words) or CAUGHT (a test that fails), and its row in docs/explanation/faults.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.driver import REPOSITORY, Driver
from tests.faults.pipeline import Pipeline


def plain(lake: Pipeline) -> None:
    """Read all, with retries, poison and aborted transactions in it."""
    run(lake)


def killed_after_target(lake: Pipeline) -> None:
    run(lake, fault="after_target:kill@3")
    run(lake)


def killed_after_quarantine(lake: Pipeline) -> None:
    run(lake, fault="after_quarantine:kill@3")
    run(lake)


def killed_during_target(lake: Pipeline) -> None:
    """Judged as the kill left it: what is in the ledger must be in the target at any time."""
    run(lake, fault="during_target:kill@3")


def raised_after_quarantine(lake: Pipeline) -> None:
    run(lake, fault="after_quarantine:raise@3")


def read_again(lake: Pipeline) -> None:
    """A seek to the earliest reads everything once more, poison too."""
    run(lake)
    end(lake.command("seek", "orders", "--to", "earliest"))
    run(lake)


def read_again_strictly(lake: Pipeline) -> None:
    """The same under a rule that refuses some of the rows."""
    run(lake)
    least_amount(lake, 100)
    end(lake.command("seek", "orders", "--to", "earliest"))
    run(lake)


def read_again_kindly(lake: Pipeline) -> None:
    """The same under one that takes what another has refused."""
    least_amount(lake, 100)
    run(lake)
    least_amount(lake, 0)
    end(lake.command("seek", "orders", "--to", "earliest"))
    run(lake)


def sought(lake: Pipeline) -> None:
    """Most of the topic is unread; a seek to where the table ends, and the rest."""
    run(lake, fault="after_target:kill@2")
    end(lake.command("seek", "orders", "--to", "table"))
    run(lake)


def least_amount(lake: Pipeline, amount: int) -> None:
    """What the rule asks for; a batch may put more into quarantine than usual."""
    lake.write_contracts(max_share=0.9)
    contract = lake.project / "tables" / "orders.yml"
    contract.write_text(contract.read_text(encoding="utf-8").replace("amount >= 0", f"amount >= {amount}"), encoding="utf-8")


def run(lake: Pipeline, *arguments: str, fault: str | None = None) -> None:
    end(lake.start(*arguments, fault=fault))


def end(driver: Driver) -> None:
    """However it ends."""
    driver.died()
    driver.gone()


@dataclass(frozen=True)
class Change:
    """(old, new) once or more in one file of the package; `promise` is what it breaks."""

    promise: str
    file: str
    changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mutant(Change):
    """One that a run under the oracle shows; `found` is a part of what the oracle must say, `mix` what is produced otherwise."""

    scenario: Callable[[Pipeline], None]
    found: str
    mix: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Caught(Change):
    """One that a test of the repository, `path::name` below tests/, must fail on."""

    test: str


def one(promise: str, file: str, old: str, new: str, scenario: Callable[[Pipeline], None], found: str, **mix: Any) -> Mutant:
    """A bug of one change for the oracle."""
    return Mutant(promise, file, ((old, new),), scenario, found, mix)


def by(test: str, promise: str, file: str, *changed: str) -> Caught:
    """A bug for a test; old and new in turn."""
    return Caught(promise, file, tuple(zip(changed[::2], changed[1::2], strict=True)), test)


WITHOUT = "adds data without a transaction id"
COMMIT, BATCH, QUERY = "delta/writer.py", "pipeline/batch.py", "pipeline/table_query.py"
EPOCH, LOOK = "recovery/epoch.py", "recovery/state_reader.py"
MERGE = "commit = commits.merge_target(winners, table.contract, table.epoch.look_back.target, batch_counts.bounds, still)"
QUARANTINE = "stored = _quarantine(with_bytes(ranked, records, batch_counts.conflicts), batch_counts, table, number, plan, reread=reread)"
NO_QUARANTINE = "stored: Mapping[int, int] = {}"
AFTER_TARGET = 'crash_points.at("after_target", number)'
SET_TRANSACTION_ID = ("session.conf.set(APP_ID, batch_commit.app_id)", "session.conf.set(VERSION, str(batch_commit.id.txn_version))")
SET_MARK = "session.conf.set(METADATA, batch_commit.to_json())\n    try:\n        yield"
OUTER = f"session = SparkSession._instantiatedSession or session\n    {SET_TRANSACTION_ID[0]}"
RANGE = "OffsetRange(p, starts.get(p, 0), end)"
RAISE = "            raise\n        finally:\n            self._in_batch = False"
LEDGER_FIRST = f"""from ingest.delta.delta_log import Commit

        early, version = still(), table.epoch.look_back.target.newest() + 1
        table.epoch.ledger.saw(Commit(version, plan.planned_at, "MERGE", {{early.app_id: early.id.txn_version}}, early.to_json()), early)
        table.epoch.ledger.append()
        {MERGE}"""
PLAN = "plan = planned(table.files, table.epoch.checkpoint, spark_number, table.starts)"
PLAN_FROM_DATA = f"""{PLAN}
    seen = records.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    plan = replace(plan, ranges=tuple(OffsetRange(p, first, last + 1) for p, first, last in sorted(map(tuple, seen))))"""
PROCESS = "report = process(records, number, self._table)"
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
BY_POSITION = '    for name in ("topic_id", "partition", "offset"):'
FENCES = 'for log, point in ((self.logs.target, "start_target_fenced"), (self.logs.quarantine, "start_fenced")):'
ONLY_TARGET = 'for log, point in ((self.logs.target, "start_target_fenced"),):'
ONLY_QUARANTINE = 'for log, point in ((self.logs.quarantine, "start_fenced"),):'
UNDONE = "(undone := roll_back(state, writer.epoch)) is not None"
START = "Start({p: newest.ends.get(p, 0) for p in sorted(partitions)})"
APP_ID = 'return f"oncelake/{pipeline}/{table}"'
BYTES = 'F.col("__value").alias("value")'
ORDER, LAST_FIRST = 'sort_by([(name, "ascending")', 'sort_by([(name, "descending")'
STRICT, LEVEL = '"kafka.isolation.level": source.isolation_level', '"kafka.isolation.level": "read_uncommitted"'
TWICE, OPEN_TOO = "in the target 2 times", "and, open, in the quarantine"
# Without copies and aborted records every offset but a transaction's marker holds a record that is nowhere else.
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
    "the transaction id on the session outside of the batch": one("I1", COMMIT, SET_TRANSACTION_ID[0], OUTER, plain, WITHOUT),
    "an app id that is not tied to the table": one(
        "I1",
        "delta/batch_commit.py",
        APP_ID,
        APP_ID.replace("/{table}", ""),
        plain,
        f"{WITHOUT} of oncelake/shop/orders",
    ),
    "ranges begin one late": one("I1", "kafka/offsets.py", RANGE, RANGE.replace("0), end", "-1) + 1, end"), plain, "expected to start"),
    "ranges taken from the data": one("I1", BATCH, PLAN, PLAN_FROM_DATA, plain, "expected to start"),
    "a start behind where the table ends": one(
        "I2", "recovery/decision.py", START, START.replace("0) for", "-1) + 1 for"), killed_after_target, "expected to start"
    ),
    "no dedup inside a batch": one("I3", BATCH, '"__rank = 1"', '"__rank >= 1"', plain, TWICE),
    "no look into the target": one("I3", COMMIT, ALL + BY_ID, NONE + BY_ID, plain, TWICE),
    "bounds by the wall clock": one("I3", COMMIT, BOUNDS, RECENT, plain, TWICE),
    "the last copy of a batch wins": one("I3", "pipeline/batch_counts.py", ORDER, LAST_FIRST, plain, "was read by version"),
    "aborted records are read": one("I4", QUERY, STRICT, LEVEL, plain, "aborted transaction"),
    "a row is quarantined when it is read again": one(
        "I4", BATCH, "if reread and (checks or batch_counts.failed):", "if False:", read_again_strictly, OPEN_TOO
    ),
    "what becomes a row stays open in the quarantine": one(
        "I4", BATCH, "replay(records.sparkSession, table.places, batch_commit)", "pass", read_again_kindly, OPEN_TOO
    ),
    "poison is dropped": one("I5", BATCH, QUARANTINE, NO_QUARANTINE, plain, "dropped"),
    "an exception is swallowed": one("I5", QUERY, RAISE, RAISE[18:], raised_after_quarantine, "is lost"),
    "no look into the quarantine": one("I5", COMMIT, ALL + BY_POSITION, NONE + BY_POSITION, read_again, "in the quarantine 2 times"),
    "no rule is asked": one("I5", "decode/decoder.py", "for rule in contract.rules:", "for rule in ():", plain, "its record was broken"),
    "the quarantine keeps no bytes": one(
        "I5", BATCH, BYTES, 'F.lit(None).cast("binary").alias("value")', plain, "other bytes than Kafka holds"
    ),
    "a seek begins one late": one(
        "I6", "recovery/seek_offsets.py", "starts[partition] = start\n", "starts[partition] = start + 1\n", sought, "is lost", **LONELY
    ),
    "quarantine after the target": Mutant(
        "I7",
        BATCH,
        ((QUARANTINE, NO_QUARANTINE), (AFTER_TARGET, f"{AFTER_TARGET}\n        {QUARANTINE}")),
        killed_after_target,
        "is in neither target nor quarantine",
    ),
    "no roll-back": one("I7", EPOCH, UNDONE, f"{UNDONE} and False", killed_after_quarantine, "has not rolled it back"),
    "ledger ahead of the target": one("I7", BATCH, MERGE, LEDGER_FIRST, killed_during_target, "no target commit of that"),
}

COMMITS, STARTS = "integration/test_commit.py::test_", "unit/recovery/test_start_mutants.py::test_"
LEFT_SET = f"{COMMITS}a_commit_holds_transaction_id_and_mark_and_leaves_nothing_for_the_next_statement"
BELIEVED = f"{COMMITS}a_store_that_reports_an_error_after_each_commit_is_believed_by_its_log"
ANEW = f"{COMMITS}a_commit_of_somebody_else_in_between_is_met_by_reading_the_table_anew"
LATE = "integration/test_event_ids.py::test_late_and_out_of_order_nothing_is_lost_and_a_copy_with_another_time_is_the_same_event"
EXPIRE = "integration/test_batch.py::test_records_that_expire_between_plan_and_read_stop_the_batch_with_nothing_written"
LOCKED_OUT = "faults/test_two_drivers.py::test_a_second_driver_is_locked_out_and_a_lock_whose_holder_was_killed_is_free"
MADE_AGAIN = "faults/test_made_again.py::test_a_topic_made_again_shorter_and_then_longer_is_refused_each_time_and_a_seek_reads_all_of_it"
DRIFT = "faults/test_schema_drift.py::test_each_event_is_ignored_kept_or_quarantined_as_the_contract_says"
SETTLED = f"{STARTS}a_restore_before_a_start_is_refused_and_no_fence_settles_it"
TAKES = f"{STARTS}a_roll_back_takes_what_no_commit_has_and_will_be_read_again"
BEHIND = f"{STARTS}what_counts_is_what_is_seen_behind_the_fences"
REFUSED = f"{STARTS}what_a_person_must_decide_is_refused"
FOUND = "            if (commit := _own(log, batch_commit, before)) is not None:\n                return commit\n"
OWN = "(there.id, there.writer) == (batch_commit.id, batch_commit.writer)"
REVERTS = "if reverts(each)), None)) is not None:"
LOOK_AGAIN, PASSED = "        state = self._read_state()\n        fenced", "not fenced or state.next_epoch != writer.epoch + 1 or "
HIGHEST = "max(self.target.epoch, self.quarantine.epoch, self.ledger.epoch, self.checkpoint.epoch)"
SKIPPED = "    if commit is None:\n        raise fenced(log, made[-1])\n    return commit\n"
RETENTION = "if state is not None and RETENTION in state.properties)"
FOLDER = "    return Path(places.root) if is_local(places.lake) else None\n"
CAUGHT = {
    "the transaction id is left set on the session": by(LEFT_SET, "I1", COMMIT, "            session.conf.unset(key)", "            pass"),
    "an error of the store is taken for no commit": by(BELIEVED, "I1", COMMIT, FOUND, ""),
    "a commit is taken for one's own without its writer": by(
        f"{STARTS}another_writers_commit_of_the_same_batch_is_not_ones_own", "I1", COMMIT, OWN, "there.id == batch_commit.id"
    ),
    "no look back": by(
        f"{STARTS}a_restore_beneath_a_run_is_seen_at_its_next_look",
        "I1",
        "recovery/look_back.py",
        REVERTS,
        f"{REVERTS[:-1]} and False:",
    ),
    "a RESTORE is ignored": by(SETTLED, "I2", "delta/reachable.py", 'return commit.operation == "RESTORE" or (', "return ("),
    "a fence settles a RESTORE": by(SETTLED, "I2", LOOK, '.kind in ("batch", "seek"):', '.kind in ("batch", "seek", "epoch"):'),
    "the ends of the highest version": by(
        f"{STARTS}the_ends_are_those_of_the_highest_epoch_wherever_its_commit_stands",
        "I2",
        LOOK,
        "or batch_commit.id > newest.id or (",
        "or (",
    ),
    "a conflict ends the run": by(ANEW, "I3", COMMIT, "tries < TRIES_MAX and (outrun or isinstance(error, CONFLICTS))", "False"),
    "bounds by the event's time": by(LATE, "I3", COMMIT, BOUNDS, TIMES),
    "our roll-back counts as removed": by(
        f"{STARTS}our_own_roll_back_removes_nothing_of_a_batch",
        "I4",
        "delta/reachable.py",
        '"DELETE" and commit.batch_commit is None',
        '"DELETE"',
    ),
    "records that expire meanwhile are passed over": by(EXPIRE, "I5", QUERY, '"failOnDataLoss": "true"', '"failOnDataLoss": "false"'),
    "fields that no contract names are let in": by(
        DRIFT, "I5", "decode/exact_json.py", 'if others and self._unknown == "quarantine":', "if False:"
    ),
    "the topic's id is not compared": by(REFUSED, "I6", "recovery/decision.py", "if now.id != before.id else None", "if False else None"),
    "expired records are not noticed": by(REFUSED, "I6", "recovery/decision.py", "if at < broker.bounds[p][0]]", "if False]"),
    "transaction ids that would expire are let be": by(REFUSED, "I6", LOOK, RETENTION, "if False)"),
    "a topic made again under a run is read on": by(MADE_AGAIN, "I6", "kafka/topic.py", 'if now.id in ("", topic.id):', "if True:"),
    "a roll-back by offsets": by(TAKES, "I7", "recovery/roll_back.py", "AND (epoch > {e} OR (epoch = {e} AND batch > {b})) ", ""),
    "a roll-back of a committed batch": by(TAKES, "I7", "recovery/roll_back.py", "batch > {b}", "batch >= {b}"),
    "no fence on the target": by(BEHIND, "I8", EPOCH, FENCES, ONLY_QUARANTINE),
    "no fence on the quarantine": by(BEHIND, "I8", EPOCH, FENCES, ONLY_TARGET),
    "decided before the fence": by(BEHIND, "I8", EPOCH, LOOK_AGAIN, "        fenced", PASSED, ""),
    "the epoch is not compared": by(f"{STARTS}an_epoch_that_another_start_has_passed_is_given_up", "I8", EPOCH, PASSED, ""),
    "an epoch that may repeat": by(
        f"{STARTS}an_epoch_is_greater_than_any_that_anybody_knows", "I8", "recovery/start_state.py", HIGHEST, "self.target.epoch"
    ),
    "a statement that was skipped passes for done": by(
        f"{STARTS}a_statement_that_delta_skipped_is_fenced", "I8", COMMIT, SKIPPED, "    return commit or log.commit(log.newest())\n"
    ),
    "no lock is taken": by(LOCKED_OUT, "I8", "pipeline/table_lock.py", FOLDER, "    return None\n"),
}


# What a test of a fault takes out of a copy of the engine, or puts in, to get at what lies behind: the test names why.
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
        "none", QUERY, ((PROCESS, PROCESS.replace("records,", "_failing(records),")), (TRIGGER, FAILING + TRIGGER))
    ),
    "transaction ids that would expire are not refused": Change("I6", "recovery/decision.py", (("    _txn_retention,  #", "    #"),)),
}


def copy_with(bug: Change, folder: Path) -> Path:
    """A copy of the package with the bug in it."""
    shutil.copytree(REPOSITORY / "ingest", folder / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    plant(bug, folder)
    return folder


def plant(bug: Change, folder: Path) -> None:
    """Put the bug into the copy there, beside what is made already; fails if a place is no longer found, so that no bug is lost in
    silence."""
    file = folder / "ingest" / bug.file
    for old, new in bug.changes:
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{bug.file} no longer holds {old!r}: plant this bug anew"
        file.write_text(text.replace(old, new), encoding="utf-8")
        compile(text.replace(old, new), file, "exec")
