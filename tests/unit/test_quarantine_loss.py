"""What a quarantine has lost shows in its log, its table id or its version, and a rebase begins where the first of it lies (I5, I6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import Refused
from ingest.files import LocalFiles
from ingest.places import Places
from ingest.stream.binding import Binding, FormerEpoch
from ingest.stream.delta_log import DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange
from ingest.stream.quarantine_loss import Lost, Seen, quarantine_loss, read_seen, write_seen
from ingest.stream.rebase_plan import Aim, RebasePlan, plan
from ingest.stream.situation import BrokerFacts, CheckpointFacts
from ingest.stream.table_end import TableEnd, pending

TOPIC, TABLE = "topic-id", "quarantine-id"


def mark(query: str, number: int) -> Mark:
    """Batch n covers [10n, 10n + 10) of partition 0 and quarantines one record."""
    ranges = (OffsetRange(0, 10 * number, 10 * number + 10),)
    return Mark("shop", "orders", BatchId(query, number), 0, "hash", "orders", TOPIC, ranges, ((0, Counts(10, 1)),))


class Tables:
    """Target and quarantine as their logs tell; every batch is in both."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(str(folder), str(folder / "checkpoints"), "shop", "orders")
        self.versions = {"target": 0, "quarantine": 0}
        for table in self.versions:
            self.write(table, "CREATE TABLE", {}, {"metaData": {"id": TABLE}})

    def write(self, table: str, operation: str, parameters: Mapping[str, Any], *actions: Mapping[str, Any], of: Mark | None = None) -> None:
        version = self.versions[table]
        info = {"timestamp": 1_735_787_100_123 + version, "operation": operation, "operationParameters": parameters}
        lines: list[Any] = [{"commitInfo": {**info, "userMetadata": of and of.to_json()}}, *actions]
        if of is not None:
            lines.append({"txn": {"appId": of.app_id("target" if table == "target" else "quarantine"), "version": of.id.number}})
        path = Path(self.places.root, table, "_delta_log", f"{version:020}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, lines)))
        self.versions[table] += 1

    def batch(self, query: str, number: int) -> None:
        for table in ("quarantine", "target"):
            self.write(table, "MERGE", {}, of=mark(query, number))

    def restore(self, version: int) -> None:
        self.write("quarantine", "RESTORE", {"version": version})

    def lost(self, seen: Seen | None = None, former: tuple[str, ...] | None = ("q-0", "q-9"), **summary: Any) -> Lost | None:
        log, target = DeltaLog(LocalFiles(), self.places.quarantine), DeltaLog(LocalFiles(), self.places.target)
        return quarantine_loss(log, log.state(), self.places, InForce(target), LedgerSummary(**summary), seen, former)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Batches 0 and 1 of the query q-0, 1 and 2 of q-1: versions 1 to 4."""
    made = Tables(tmp_path)
    for query, number in (("q-0", 0), ("q-0", 1), ("q-1", 1), ("q-1", 2)):
        made.batch(query, number)
    return made


@pytest.mark.parametrize("seen", [None, Seen(TABLE, 2), Seen(TABLE, 4)])
def test_a_whole_quarantine_has_lost_nothing_and_a_delete_of_rows_or_an_optimize_takes_no_commit_away(
    tables: Tables, seen: Seen | None
) -> None:
    for operation in ("DELETE", "OPTIMIZE", "VACUUM END"):
        tables.write("quarantine", operation, {})
    assert tables.lost(seen) is None


def test_a_restore_has_lost_the_batches_of_every_epoch_behind_it_also_when_others_came_after(tables: Tables) -> None:
    tables.restore(1)
    tables.batch("q-1", 3)
    for seen in (None, Seen(TABLE, 4)):
        lost = tables.lost(seen)
        assert lost is not None and lost.starts == {(TOPIC, 0): 10}
        assert "version 5 (RESTORE) left out 3 commits" in lost.what and "batch 1 of query q-0" in lost.what


def test_what_a_rebase_has_seen_and_a_restore_that_brings_all_back_are_no_loss(tables: Tables) -> None:
    tables.restore(1)
    assert tables.lost(Seen(TABLE, 5)) is None, "a rebase began after it"
    tables.restore(4)
    assert tables.lost(Seen(TABLE, 4)) is None and tables.lost() is None


def test_a_batch_that_the_target_does_not_hold_is_nothing_to_lose(tables: Tables) -> None:
    """Cut off between the two commits, or ended by a rebase before it was in force."""
    tables.write("quarantine", "MERGE", {}, of=mark("q-1", 3))
    tables.restore(4)
    assert tables.lost(Seen(TABLE, 4)) is None and tables.lost() is None


def test_a_table_made_anew_a_copy_put_back_and_no_table_at_all_have_lost_everything(tables: Tables) -> None:
    everything = {(TOPIC, 0): 0}
    for seen in (Seen("another", 4), Seen(TABLE, 9)):
        lost = tables.lost(seen)
        assert lost is not None and lost.starts == everything
    folder = Path(tables.places.quarantine, "_delta_log")
    for version in (3, 4):
        (folder / f"{version:020}.json").unlink()
    lost = tables.lost()
    assert lost is not None and lost.starts == everything and "the target proves batch 2" in lost.what
    for path in folder.iterdir():
        path.unlink()
    lost = tables.lost()
    assert lost is not None and lost.starts == everything


@pytest.mark.parametrize("ledger", [{}, {"quarantined": {"q-0": (0, 1), "q-1": (1, 2)}}], ids=["not in the ledger yet", "in the ledger"])
def test_a_copy_put_back_that_is_newer_than_the_last_look_has_lost_what_our_own_query_put_there_since(
    tables: Tables, ledger: dict[str, Any]
) -> None:
    """A start looked at version 2, the run went on to 4, and a backup of version 3 is put in its place, with its pairs."""
    seen = Seen(TABLE, 2)
    assert tables.lost(seen, **ledger) is None
    Path(tables.places.quarantine, "_delta_log", f"{4:020}.json").unlink()
    lost = tables.lost(seen, **ledger)
    assert lost is not None and lost.starts == {(TOPIC, 0): 0}
    assert "holds records up to batch 1 of query q-1, the target proves batch 2" in lost.what
    assert tables.lost(seen, ("q-0", "q-1"), **ledger) is None, "a rebase has accepted it: its query is another one"


def test_an_older_checkpoint_put_back_with_the_quarantine_has_not_seen_what_a_later_one_had_put_there(tables: Tables) -> None:
    """I5: backups of both, of when the quarantine was at version 2; q-1 had begun after a rebase, and is none of its former ones."""
    for version in (3, 4):
        Path(tables.places.quarantine, "_delta_log", f"{version:020}.json").unlink()
    for former in ((), ("q-0",)):  # an empty one, or one of q-0's own time
        lost = tables.lost(Seen(TABLE, 2), former)
        assert lost is not None and lost.starts == {(TOPIC, 0): 0} and "holds none of query q-1" in lost.what


def test_pairs_of_the_quarantine_that_have_expired_are_no_loss(tables: Tables) -> None:
    """TXN_RETENTION says that; the log still has the batch."""
    state = DeltaLog(LocalFiles(), tables.places.quarantine).state()
    assert state is not None
    log, target = DeltaLog(LocalFiles(), tables.places.quarantine), DeltaLog(LocalFiles(), tables.places.target)
    expired = replace(state, pairs={})
    assert quarantine_loss(log, expired, tables.places, InForce(target), LedgerSummary(), Seen(TABLE, 2), ("q-0",)) is None


def test_what_was_seen_counts_no_longer_where_the_target_was_put_back_to_before_it(tables: Tables) -> None:
    """I5: what a rebase saw was lossy, and nothing in force told; its former queries' batches are in force again."""
    tables.restore(1)
    state = DeltaLog(LocalFiles(), tables.places.quarantine).state()
    assert state is not None
    seen = Seen(TABLE, 5, state.stamp)
    assert tables.lost(seen, ("q-0", "q-1")) is None
    lost = tables.lost(seen, None)
    assert lost is not None and lost.starts == {(TOPIC, 0): 10} and "left out 3 commits" in lost.what
    tables.restore(4)
    assert tables.lost(seen, None) is None


def test_what_the_ledger_alone_remembers_counts_too(tables: Tables) -> None:
    """The target's log was cleaned up: the ledger has the batches of before."""
    known: dict[str, Any] = {"quarantined": {"q-9": (7, 7)}, "quarantined_from": {(TOPIC, 1): 30}}
    lost = tables.lost(**known)
    assert lost is not None and lost.starts == {(TOPIC, 0): 0, (TOPIC, 1): 30} and "of query q-9" in lost.what
    assert tables.lost(**known, ended={"q-9": 6}) is None, "a rebase has ended that epoch before it"
    assert tables.lost(**{**known, "quarantined": {"q-9": (6, 7)}}, ended={"q-9": 6}) is not None, "but not before its first one"
    assert tables.lost(Seen(TABLE, 4), **known) is None


@pytest.mark.parametrize("ended", [-1, 0])
def test_batches_behind_the_end_of_an_epoch_count_as_long_as_they_are_in_force(tables: Tables, ended: int) -> None:
    """I5: the target was restored to before them when another checkpoint was rebased, and back again; or the last of them alone is out."""
    ledger: dict[str, Any] = {"quarantined": {"q-0": (0, 1)}, "ended": {"q-0": ended}}
    assert tables.lost(**ledger) is None
    tables.write("target", "RESTORE", {"version": 1})
    assert tables.lost(**ledger) is None
    for path in Path(tables.places.quarantine, "_delta_log").iterdir():
        path.unlink()
    lost = tables.lost(**ledger)
    assert lost is not None and lost.what == "does not exist" and (TOPIC, 0) in lost.starts
    tables.write("target", "RESTORE", {"version": 0})
    assert (tables.lost(**ledger) is None) == (ended < 0), "none is in force, but for what the ledger says"


def test_what_was_seen_is_kept_beside_the_checkpoint_and_damage_to_it_only_costs_a_longer_look(tables: Tables, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    assert read_seen(LocalFiles(), state) is None
    write_seen(LocalFiles(), state, DeltaLog(LocalFiles(), tables.places.quarantine).state())
    assert read_seen(LocalFiles(), state) == Seen(TABLE, 4, DeltaLog(LocalFiles(), tables.places.quarantine).stamp(4))
    for text in ("", "{", "[]", '{"table_id": 1}'):
        (tmp_path / "state/quarantine.json").write_text(text)
        assert read_seen(LocalFiles(), state) is None


def planned(aim: Aim, *, earliest: int = 0, lost: Mapping[tuple[str, int], int], accept_gap: bool = False) -> RebasePlan:
    """A rebase of a table that has read both partitions up to 100."""
    broker = BrokerFacts("orders", TOPIC, {0: (earliest, 200), 1: (earliest, 200)})
    return plan("shop.orders", aim, TableEnd(9, TOPIC, {0: 100, 1: 100}, (), lost), broker, "table-id", accept_gap=accept_gap)


def test_a_rebase_to_the_table_begins_at_the_first_range_that_the_quarantine_lacks() -> None:
    made = planned(Aim("table"), lost={(TOPIC, 0): 30})
    assert made.rebase.baseline == ((0, 30), (1, 100))
    assert (made.read_again, made.not_regained, made.rebase.gaps) == (((0, 30, 100),), (), ())


@pytest.mark.parametrize(
    ("aim", "earliest", "lost", "left"),
    [
        (Aim("table"), 50, {(TOPIC, 0): 30}, ((0, 30, 50),)),
        (Aim("offsets", ((0, 60),)), 0, {(TOPIC, 0): 30}, ((0, 30, 60),)),
        (Aim("table"), 0, {("another topic", 0): 30}, ()),
    ],
    ids=["expired", "later offsets", "another topic"],
)
def test_what_a_rebase_would_not_regain_must_be_accepted(
    aim: Aim, earliest: int, lost: dict[tuple[str, int], int], left: tuple[tuple[int, int, int], ...]
) -> None:
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*the quarantine of shop\.orders has lost"):
        planned(aim, earliest=earliest, lost=lost)
    assert planned(aim, earliest=earliest, lost=lost, accept_gap=True).not_regained == left


def test_what_a_rebase_was_to_read_again_for_the_quarantine_and_has_not_is_still_lost_to_the_next() -> None:
    """I5: the quarantine is taken for whole once a rebase has seen it, and its checkpoint may be left before it has read that far."""
    lacking = {(TOPIC, 0): 3, (TOPIC, 1): 4, ("gone", 0): 0}
    made = planned(Aim("table"), lost=lacking, earliest=4, accept_gap=True)
    assert made.rebase.regain == ((TOPIC, 0, 4, 100), (TOPIC, 1, 4, 100)), "what Kafka no longer holds was accepted"
    checkpoint = CheckpointFacts("checkpoint", "q-1", binding=made.binding)
    assert pending(checkpoint, ()) == made.rebase.regain
    assert pending(checkpoint, (FormerEpoch("q-1", 1, 2, "orders", TOPIC, ((0, 80), (1, 100))),)) == ((TOPIC, 0, 80, 100),)
    assert pending(CheckpointFacts("checkpoint"), ()) == ()
    assert Binding.from_json(made.binding.to_json()) == made.binding


def test_a_copy_put_back_and_written_to_since_has_not_grown_out_of_what_was_seen(tables: Tables) -> None:
    """I5: an older copy and some OPTIMIZE have as many versions again; what a former checkpoint had put there is missing."""
    log = DeltaLog(LocalFiles(), tables.places.quarantine)
    seen = Seen(TABLE, 2, log.stamp(2))
    assert tables.lost(seen) is None and tables.lost(Seen(TABLE, 2)) is None
    path = Path(tables.places.quarantine, "_delta_log", f"{2:020}.json")
    path.write_text(json.dumps({"commitInfo": {"operation": "OPTIMIZE", "timestamp": 1, "txnId": "another"}}))
    lost = tables.lost(seen)
    assert lost is not None and lost.starts == {(TOPIC, 0): 0} and "another version 2 than the one that was seen" in lost.what
    path.unlink()
    assert log.stamp(2) == "", "cleaned up: nothing tells"
