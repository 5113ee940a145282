"""Bugs planted in a copy of the engine, each with what must find it: a run under the oracle, or a test of the repository.

To add one: a line in PLANTED (a scenario, and what the oracle says) or in CAUGHT (a test that fails), and its row in docs/faults.md.
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
    run(lake, fault="after_target:kill@1")
    run(lake)


def killed_during_target(lake: Pipeline) -> None:
    """Judged as the kill left it: what is in the ledger must be in the target at any time."""
    run(lake, fault="during_target:kill@1")


def raised_after_quarantine(lake: Pipeline) -> None:
    run(lake, fault="after_quarantine:raise@1")
    run(lake)


def planned_larger(lake: Pipeline) -> None:
    """The checkpoint is as old as batch 0, and the next batch is planned larger than the one that the table holds."""
    run(lake, fault="after_target:kill@1")
    for name in ("1", ".1.crc"):
        (lake.checkpoint() / "offsets" / name).unlink(missing_ok=True)
    run(lake, "--once", "--max-records-per-batch", "100000")


def read_again(lake: Pipeline) -> None:
    """Another checkpoint reads everything once more, poison too."""
    run(lake)
    end(lake.command("rebase", "orders", "--to", "earliest"))
    run(lake)


def rebased(lake: Pipeline) -> None:
    """The checkpoint is lost with most of the topic unread; another one begins where the table ends, and reads the rest."""
    run(lake, fault="after_target:kill@0")
    shutil.rmtree(lake.checkpoint())
    end(lake.command("rebase", "orders", "--to", "table"))
    run(lake)


def run(lake: Pipeline, *arguments: str, fault: str | None = None) -> None:
    end(lake.start(*arguments, fault=fault))


def end(driver: Driver) -> None:
    """However it ends."""
    driver.died()
    driver.gone()


@dataclass(frozen=True)
class Change:
    """Each change is (old, new) in one file of the package; `promise` is what it breaks."""

    promise: str
    file: str
    changes: tuple[tuple[str, str], ...]

    @property
    def all(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((self.file, old, new) for old, new in self.changes)


@dataclass(frozen=True)
class Bug(Change):
    """One that a run under the oracle shows; `found` is a part of what the oracle must say.

    `also` are changes (file, old, new) that take away what else would have stopped the bug; `mix` is what is produced otherwise than
    elsewhere.
    """

    scenario: Callable[[Pipeline], None]
    found: str
    poison: int = 40
    mix: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[tuple[str, str, str], ...] = ()

    @property
    def all(self) -> tuple[tuple[str, str, str], ...]:
        return (*super().all, *self.also)


@dataclass(frozen=True)
class Caught(Change):
    """One that a test of the repository, `path::name`, must fail on; `says` is a part of what it says then."""

    test: str
    says: str = ""


MERGE = (
    "outcome = commit.merge_target(winners, table.contract, table.ledger.target_log, mark, tally.bounds, lambda: _decide(table, planned))"
)
QUARANTINE = "counts = _quarantine(with_bytes(ranked, records, tally.conflicts), tally, table, planned, begun=begun)"
NO_QUARANTINE = "counts = tally.counts"
AFTER_TARGET = 'faults.at("after_target", number)'
SET_PAIR = ("session.conf.set(APP_ID, mark.app_id(statement))", "session.conf.set(VERSION, str(mark.id.number))")
SET_MARK = "session.conf.set(METADATA, mark.to_json())"
RANGE = "OffsetRange(partition, before.get(partition, 0), end)"
SAME_RANGES = "written == number and last.mark.ranges == batch.ranges and one_topic(batch.topic_id, last.mark.topic_id)"
RAISE = "            raise\n        finally:\n            self._in_batch = False"
# Preflight, before the first batch, would refuse this checkpoint as too old.
OLD = "def _checkpoint_old(known: _Known) -> Refused | None:\n"
NO_LOOK_BEFORE = ("stream/preflight.py", OLD, f"{OLD}    return None\n")
# The next batch would be refused for not beginning where the table ends.
NO_LOOK_AT_THE_LAST = ("stream/decide.py", "if last is not None and not joins(batch.ranges, last.mark):", "if False:")
LEDGER_FIRST = f"""from ingest.stream.delta_log import Commit

        pair = {{mark.app_id("target"): number}}
        version = table.ledger.target_log.versions()[-1] + 1
        table.ledger.saw(Commit(version, planned.planned_at, "MERGE", pair, mark.to_json()))
        table.ledger.append(records.sparkSession)
        {MERGE}"""
PLAN = "planned = table.checkpoint.planned(query_id, number)"
PLAN_FROM_DATA = f"""{PLAN}
    seen = records.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    from dataclasses import replace
    from ingest.stream.offsets import OffsetRange
    planned = replace(planned, ranges=tuple(OffsetRange(p, first, last + 1) for p, first, last in sorted(map(tuple, seen))))"""
PROCESS = "report = process(records, number, self._table)"
ONE_LATE = f"""begun, self._begun = getattr(self, "_begun", None), (records, number)
            if begun is None:
                return
            records, number = begun
            {PROCESS}"""
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
BY_POSITION = """    condition = F.lit(True)
    for name in ("topic_id", "partition", "offset"):"""
BASELINE = "Rebase(end.former, tuple(sorted(baseline.items())), gaps, end.version, regain, end.stamp)"
# Without these every offset below a batch's end but a transaction's marker holds a record that is nowhere else.
NO_COPIES = {"aborted_share": 0, "duplicate_share": 0}
FIRST = 'own.desc(), "_partition", "_offset")'
LAST = 'own.desc(), F.desc("_partition"), F.desc("_offset"))'
APP_ID = 'f"oncelake/{pipeline}/{table}/{query_id}/{statement}"'
PLANTED = {
    "no pair is set": Bug("I1", "stream/commit.py", tuple((line, "pass") for line in SET_PAIR), plain, "adds data without a pair"),
    "no mark is set": Bug("I1", "stream/commit.py", ((SET_MARK, "pass"),), plain, "no userMetadata of ours", poison=0),
    "ranges begin one late": Bug(
        "I1",
        "stream/offsets.py",
        ((RANGE, RANGE.replace("0), end", "-1) + 1, end")),),
        plain,
        "expected to start",
        also=(NO_LOOK_AT_THE_LAST,),
    ),
    "a skip without a look at the ranges": Bug(
        "I2", "stream/decide.py", ((SAME_RANGES, "written == number"),), planned_larger, "is lost", also=(NO_LOOK_BEFORE,)
    ),
    "no dedup inside a batch": Bug("I3", "stream/batch.py", (('"__rank = 1"', '"__rank >= 1"'),), plain, "in the target 2 times"),
    "no look into the target": Bug(
        "I3", "stream/commit.py", (("condition = F.lit(True)", "condition = F.lit(False)"),), plain, "in the target 2 times"
    ),
    "aborted records are read": Bug(
        "I4", "stream/query.py", (('tion.level": source.isolation_level', 'tion.level": "read_uncommitted"'),), plain, "aborted transaction"
    ),
    "poison is dropped": Bug("I5", "stream/batch.py", ((QUARANTINE, NO_QUARANTINE),), plain, "dropped"),
    "an exception is swallowed": Bug("I5", "stream/query.py", ((RAISE, RAISE[18:]),), raised_after_quarantine, "is lost"),
    "quarantine after the target": Bug(
        "I7",
        "stream/batch.py",
        ((QUARANTINE, NO_QUARANTINE), (AFTER_TARGET, f"{AFTER_TARGET}\n        {QUARANTINE}")),
        killed_after_target,
        "is in neither target nor quarantine",
    ),
    "ledger ahead of the target": Bug("I7", "stream/batch.py", ((MERGE, LEDGER_FIRST),), killed_during_target, "no target commit of that"),
    "an app id that is not tied to the checkpoint": Bug(
        "I1", "stream/mark.py", ((APP_ID, APP_ID.replace("{query_id}", "always")),), plain, "its pair is (oncelake/shop/orders/always"
    ),
    "the pair on the session outside of the batch": Bug(
        "I1",
        "stream/commit.py",
        ((SET_PAIR[0], f"session = SparkSession._instantiatedSession or session\n    {SET_PAIR[0]}"),),
        plain,
        "adds data without a pair",
    ),
    "ranges taken from the data": Bug(
        "I1", "stream/batch.py", ((PLAN, PLAN_FROM_DATA),), plain, "expected to start", also=(NO_LOOK_AT_THE_LAST,)
    ),
    "Spark's commit log before the write": Bug("I1", "stream/query.py", ((PROCESS, ONE_LATE),), plain, "is lost"),
    "bounds by the wall clock": Bug("I3", "stream/commit.py", ((BOUNDS, RECENT),), plain, "in the target 2 times"),
    "no look into the quarantine": Bug(
        "I5", "stream/commit.py", ((BY_POSITION, BY_POSITION.replace("True", "False")),), read_again, "in the quarantine 2 times"
    ),
    "a rebase begins one late": Bug(
        "I6",
        "stream/rebase_plan.py",
        ((BASELINE, BASELINE.replace("sorted(baseline.items())", "(p, offset + 1) for p, offset in sorted(baseline.items())")),),
        rebased,
        "is lost",
        poison=0,
        mix=NO_COPIES,
    ),
    "the last copy of a batch wins": Bug("I3", "stream/tally.py", ((FIRST, LAST),), plain, "was read by version"),
    "no rule is asked": Bug(
        "I5", "stream/decode.py", (("for rule in contract.rules:", "for rule in ():"),), plain, "its record was broken"
    ),
    "the quarantine keeps no bytes": Bug(
        "I5",
        "stream/batch.py",
        (('F.col("__value").alias("value")', 'F.lit(None).cast("binary").alias("value")'),),
        plain,
        "other bytes than Kafka holds",
    ),
}

INTEGRATION = "tests/integration"
FOLDERS = "    each = [(places.lake, places.root), (places.checkpoint, places.state)]\n"
CAUGHT = {
    "the pair is left set on the session": Caught(
        "I1",
        "stream/commit.py",
        (("            session.conf.unset(key)", "            pass"),),
        f"{INTEGRATION}/test_commit.py::test_after_a_commit_an_append_to_another_table_is_not_dropped",
    ),
    "an error of the store is taken for no commit": Caught(
        "I1",
        "stream/commit.py",
        (("            if commit is not None:\n                return Written(commit)\n", ""),),
        f"{INTEGRATION}/test_commit.py::test_a_store_that_reports_an_error_after_it_has_committed_is_believed_by_its_log",
    ),
    "a conflict ends the run": Caught(
        "I3",
        "stream/commit.py",
        (("tries < TRIES_MAX and isinstance(error, CONFLICTS)", "False"),),
        f"{INTEGRATION}/test_commit.py::test_a_commit_of_somebody_else_in_between_is_met_by_reading_the_table_anew",
    ),
    "a RESTORE is ignored": Caught(
        "I2",
        "stream/in_force.py",
        (('commit.operation == "RESTORE" or (', "("), ('if commit.operation == "RESTORE":', "if False:")),
        "tests/unit/test_in_force.py::test_a_restore_leaves_out_what_came_after_the_version_it_went_back_to_transitively",
    ),
    "bounds by the event's time": Caught(
        "I3",
        "stream/commit.py",
        ((BOUNDS, TIMES),),
        f"{INTEGRATION}/test_event_ids.py::test_late_and_out_of_order_nothing_is_lost_and_a_copy_with_another_time_is_the_same_event",
    ),
    "the topic's id is not compared": Caught(
        "I6",
        "stream/preflight.py",
        (("binding.topic_id != broker.topic_id", "False"),),
        "tests/unit/test_preflight.py::test_each_refusal_names_what_was_found_and_the_command_that_mends_it",
    ),
    "expired records are not noticed": Caught(
        "I6",
        "stream/preflight.py",
        (("if earliest > needed[p]]", "if False]"),),
        "tests/unit/test_preflight.py::test_expired_is_what_is_to_be_read_next_and_is_gone",
    ),
    "records that expire meanwhile are passed over": Caught(
        "I5",
        "stream/query.py",
        (('"failOnDataLoss": "true"', '"failOnDataLoss": "false"'),),
        f"{INTEGRATION}/test_batch.py::test_records_that_expire_between_plan_and_read_stop_the_batch_with_nothing_written",
    ),
    "no lock is taken": Caught(
        "I8",
        "stream/lock.py",
        ((FOLDERS, "    each: list[tuple[str, str]] = []\n"),),
        f"{INTEGRATION}/test_preflight.py::test_a_table_that_another_writer_holds_is_locked_and_its_holder_is_named",
    ),
    "a batch at hand is finished under today's contract": Caught(
        "I9",
        "stream/opening.py",
        (("if self.unfinished is None or stored is None or stored.hash == self._contract.hash:", "if True:"),),
        f"{INTEGRATION}/test_contract_change.py::test_an_unfinished_batch_is_finished_under_the_contract_it_was_begun_with",
    ),
    "a topic made again under a run is read on": Caught(
        "I6",
        "stream/topic.py",
        (('if now.id in ("", topic.id):', "if True:"),),
        "tests/faults/test_made_again.py::"
        "test_a_topic_made_again_shorter_and_then_longer_is_refused_each_time_and_a_rebase_reads_all_of_it",
        "exit code 0, expected 5",
    ),
    "fields that no contract names are let in": Caught(
        "I5",
        "stream/decode.py",
        (('if contract.unknown_fields == "quarantine":', "if False:"),),
        "tests/faults/test_schema_drift.py::test_each_event_is_ignored_kept_or_quarantined_as_the_contract_says",
        "assert found == {event_id",
    ),
    "pairs that would expire are let be": Caught(
        "I6",
        "stream/facts.py",
        (("if each is not None and RETENTION in each.properties)", "if False)"),),
        "tests/faults/test_expired_pairs.py::test_pairs_that_expire_are_refused_and_with_preflight_bypassed_a_replay_adds_no_row",
        "exit code 0, expected 3",
    ),
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
NO_REFUSAL = ("    _txn_retention,\n)", ")")
DECIDE = "return decide(table.mark(planned), table.ledger.last_written(planned.id.query_id))"
BYPASSED = {
    "no lock is taken": CAUGHT["no lock is taken"],
    "each task of the source fails once": Change(
        "none", "stream/query.py", ((PROCESS, PROCESS.replace("records,", "_failing(records),")), (TRIGGER, FAILING + TRIGGER))
    ),
    "pairs that would expire are not refused": Change("I6", "stream/preflight.py", (NO_REFUSAL,)),
    "nor is it looked whether a batch is in the table": Change("I2", "stream/batch.py", ((DECIDE, "return Write()"),)),
}


def copy_with(bug: Change, folder: Path) -> Path:
    """A copy of the package with the bug in it."""
    shutil.copytree(REPOSITORY / "ingest", folder / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    plant(bug, folder)
    return folder


def plant(bug: Change, folder: Path) -> None:
    """Put the bug into the copy there, beside what is planted already; fails if a place is no longer found, so that no bug is lost in
    silence."""
    for name, old, new in bug.all:
        file = folder / "ingest" / name
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{name} no longer holds {old!r}: plant this bug anew"
        file.write_text(text.replace(old, new), encoding="utf-8")
        compile(text.replace(old, new), file, "exec")
