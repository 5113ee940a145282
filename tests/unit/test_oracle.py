"""The judge is judged: a good run passes, and each planted wrong is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.oracle.judge import Run, judge
from ingest.oracle.sources import KafkaRecord, decode
from ingest.oracle.tables import quarantined_id
from tests.unit.oracle_scene import (
    APP,
    LATER,
    T0,
    TOPIC_ID,
    Scene,
    TargetCommit,
    good_scene,
    ledger,
    quarantined,
    rebase,
    row,
    transaction,
    value,
)


@pytest.fixture
def good() -> Scene:
    return good_scene()


def test_a_good_run_is_clean(good: Scene, tmp_path: Path) -> None:
    verdict = good.judge(tmp_path)
    verdict.assert_clean()
    assert verdict.notes == ()


Plant = Callable[[Scene], None]
PLANTS: list[tuple[str, Plant, str]] = []


def plant(*expected: str) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        PLANTS.extend((function.__name__, function, sentence) for sentence in expected)
        return function

    return register


@plant(
    "id ('D',) was committed and is lost",
    "offset 8: id ('D',) is in neither target nor quarantine",
    "2 records are at their own position in neither table (b)",
)
def lost_id(scene: Scene) -> None:
    scene.commits[1].rows.pop()
    scene.ledger[2]["records_read"] = 2


@plant("id ('A',) is in the target 2 times (a)")
def doubled_id(scene: Scene) -> None:
    scene.commits[0].rows.append(row(0, 3, "A"))


@plant("offset 0 is in the target 2 times (b)", "changes batch 0 of query q1 in partition 0 from 2 to 3")
def doubled_position(scene: Scene) -> None:
    scene.commits[1].rows.append(row(0, 0, "A"))


@plant("id ('X',) comes from an aborted transaction and is in the target (c)", "offset 7 is in the target, and no committed record")
def aborted_id_let_in(scene: Scene) -> None:
    scene.commits[1].rows.append(row(0, 7, "X"))


@plant("amount = Decimal('12.51'), and Decimal('12.50') was produced (d)")
def wrong_payload(scene: Scene) -> None:
    scene.commits[0].rows[1]["amount"] = "12.51"


@plant("ordered_at = ")
def wrong_time(scene: Scene) -> None:
    scene.commits[0].rows[1]["ordered_at"] = T0 + 1


@plant("offset 1 holds id ('A',), Kafka holds ('B',) there (d)")
def provenance_of_another_record(scene: Scene) -> None:
    scene.commits[0].rows[0]["_offset"], scene.commits[0].rows[1]["_offset"] = 1, 0


@plant("has a payload in Kafka that no manifest names (d)")
def payload_nobody_sent(scene: Scene) -> None:
    scene.kafka[0, 5] = value("C", "99.00")
    scene.commits[1].rows[0]["amount"] = "99.00"


@plant("offset 0: id ('A',) is in the target and, open, in the quarantine (b)", "id ('A',) is a valid event and in the quarantine (b)")
def quarantine_and_target_double(scene: Scene) -> None:
    scene.quarantine.append(quarantined(0, 0, 0))


@plant("offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)")
def poison_dropped(scene: Scene) -> None:
    scene.quarantine.clear()


@plant("offset 2 is in the quarantine 2 times (b)", "quarantined 1, the quarantine holds 2 rows of it (g)")
def poison_quarantined_twice(scene: Scene) -> None:
    scene.quarantine.append(quarantined(0, 2, 0))


@plant("duplicate 2 + replayed 0, and 1 records are at their own position in neither table (b)", "inserted 1, the target gained 2 rows")
def ledger_count_off(scene: Scene) -> None:
    scene.ledger[0] |= {"inserted": 1, "duplicate": 2}


@plant("read 4 is not inserted 2 + duplicate 0 + quarantined 1 + replayed 0 (g)")
def ledger_does_not_add_up(scene: Scene) -> None:
    scene.ledger[0]["duplicate"] = 0


@plant("5 offsets are not read 4 + gap 0 (g)")
def ledger_gap_off(scene: Scene) -> None:
    scene.ledger[0]["gap"] = 0


@plant("read 5, Kafka shows 4 committed records in [0, 5) (b)")
def ledger_counts_a_marker_as_record(scene: Scene) -> None:
    scene.ledger[0] |= {"records_read": 5, "duplicate": 2, "gap": 0}


@plant("the ledger lacks query q1 batch 1 partition 0 [5, 9) (g)")
def ledger_row_missing(scene: Scene) -> None:
    scene.ledger.pop(2)


@plant("the ledger holds query q1 batch 1 partition 0 2 times (g)")
def ledger_row_doubled(scene: Scene) -> None:
    scene.ledger.append(scene.ledger[2])


@plant("batch 2 partition 0 names target version 2, and no target commit of that batch is in the log (g)")
def ledger_ahead_of_the_target(scene: Scene) -> None:
    scene.ledger.append(ledger(2, 0, 9, 9, 2))


@plant("has txn version 0 of oncelake/shop/orders/q1/target, version 1 had 0 already (f)", "userMetadata names query q1 batch 2")
def txn_version_not_rising(scene: Scene) -> None:
    scene.commits[1] = replace(scene.commits[1], txn_version=0)
    scene.commits.append(TargetCommit([], 2, {"0": [9, 9], "1": [3, 3]}, txn_version=0))


@plant("batch 2 follows batch 0 of oncelake/shop/orders/q1/target (f)")
def batch_left_out(scene: Scene) -> None:
    scene.commits[1].batch_id = 2
    scene.ledger[2]["batch_id"] = scene.ledger[3]["batch_id"] = 2


@plant("target version 1 (WRITE) adds data without a pair of oncelake/shop/orders/… (f)")
def commit_without_pair(scene: Scene) -> None:
    scene.commits[1].app_id = None


@plant("target version 1 (WRITE) adds data without a pair of oncelake/shop/orders/… (f)")
def commit_with_the_pair_of_another_table(scene: Scene) -> None:
    scene.commits[1].app_id = "oncelake/shop/payments/q1/target"


@plant("and no userMetadata of ours with ranges (f)")
def commit_without_metadata(scene: Scene) -> None:
    scene.commits[1].metadata = False


@plant("partition 0 has the range [6, 9), expected to start at 5 (f)")
def ranges_with_a_hole(scene: Scene) -> None:
    scene.commits[1].ranges["0"] = [6, 9]


@plant("no range for the partitions [1], which earlier batches had (f)")
def ranges_without_a_partition(scene: Scene) -> None:
    del scene.commits[1].ranges["1"]


@plant("changes batch 0 of query q1 in partition 1 from 1 to 2 rows: a batch was torn (e)")
def torn_batch(scene: Scene) -> None:
    scene.commits[1].rows.append(scene.commits[0].rows.pop())


@plant("version 0 holds 1 rows of partition 0 outside of all ranges committed so far")
def row_of_a_later_batch(scene: Scene) -> None:
    scene.commits[0].rows.append(scene.commits[1].rows.pop())


@plant("version 2 is a batch of oncelake/shop/orders/q1/target, and oncelake/shop/orders/q2/target had begun before it (f)")
def former_checkpoint_goes_on_behind_its_successor(scene: Scene) -> None:
    successor = TargetCommit([], 1, {"0": [5, 5], "1": [3, 3]}, query_id="q2", app_id=APP.replace("q1", "q2"))
    scene.commits.insert(1, successor)


@plant("version 1 of the quarantine changes batch 0 of query q1 from 1 to 2 rows, and is not its commit (e)")
def quarantine_of_a_batch_torn_in_two(scene: Scene) -> None:
    scene.quarantine_commits = [(0, [quarantined(0, 2, 0)]), (1, [quarantined(0, 1, 0), quarantined(0, 8, 1)])]


@plant("version 0 of the quarantine changes batch 1 of query q1 from 0 to 1 rows, and is not its commit (e)")
def quarantine_of_two_batches_in_one_commit(scene: Scene) -> None:
    scene.quarantine_commits = [(0, [quarantined(0, 2, 0), quarantined(0, 8, 1)])]


@plant("the quarantine holds 1 records of query q1 batch 2 partition 0, and the target has no commit of that batch (g)")
def quarantine_ahead_of_the_target(scene: Scene) -> None:
    scene.quarantine.append(quarantined(0, 8, 2))


@plant("id ('Z',) is in the target and nobody produced it (a)")
def row_nobody_produced(scene: Scene) -> None:
    scene.commits[0].rows.append(row(0, 4, "Z"))


@plant("offset 1: id ('B',) was read by version 0 and passed over; its row is that of a later copy, partition 0 offset 6, of version 1 (e)")
def lost_until_its_retry_came(scene: Scene) -> None:
    scene.commits[0].rows.pop(1)
    scene.commits[1].rows.append(row(0, 6, "B"))
    scene.ledger[0] |= {"inserted": 1, "duplicate": 2}
    scene.ledger[2] |= {"inserted": 3, "duplicate": 0}


@plant("offset 0: id ('A',) was read by version 0 and passed over; its row is that of a later copy, partition 0 offset 3, of version 0 (e)")
def later_copy_of_a_batch_wins(scene: Scene) -> None:
    scene.commits[0].rows[0]["_offset"] = 3


def sent_otherwise(scene: Scene, offset: int, order_id: str) -> None:
    """The copy at this offset has another payload."""
    scene.kafka[0, offset] = value(order_id, "99.00")
    scene.manifest += transaction(9, "committed", (order_id, value(order_id, "99.00")))


@plant("offset 1: id ('B',) was read by version 0 and passed over; its row is that of a later copy, partition 0 offset 6, of version 1 (e)")
def lost_until_a_copy_with_another_payload_came(scene: Scene) -> None:
    sent_otherwise(scene, 6, "B")
    scene.commits[0].rows.pop(1)
    scene.commits[1].rows.append(row(0, 6, "B", "99"))
    scene.ledger[0] |= {"inserted": 1, "duplicate": 2}
    scene.ledger[2] |= {"inserted": 3, "duplicate": 0}


@plant("offset 0: id ('A',) was read by version 0 and passed over; its row is that of a later copy, partition 0 offset 3, of version 0 (e)")
def later_copy_of_a_batch_with_another_payload_wins(scene: Scene) -> None:
    sent_otherwise(scene, 3, "A")
    scene.commits[0].rows[0] |= {"_offset": 3, "amount": "99"}


@plant("offset 1: id ('B',) has captured = False, and True was produced (d)")
def wrong_truth(scene: Scene) -> None:
    scene.commits[0].rows[1]["captured"] = False


@plant("offset 1: id ('B',) has captured = None, and True was produced (d)")
def value_lost(scene: Scene) -> None:
    scene.commits[0].rows[1]["captured"] = None


@plant("ledger of query q1 batch 1 partition 0 says [6, 9) in version 1, the log [5, 9) in version 1 (g)")
def ledger_with_another_range(scene: Scene) -> None:
    scene.ledger[2] |= {"start_offset": 6, "gap": 0}


@plant("ledger of query q1 batch 1 partition 0 says [5, 9) in version 0, the log [5, 9) in version 1 (g)")
def ledger_with_another_version(scene: Scene) -> None:
    scene.ledger[2]["target_version"] = 0


@plant("ledger of query q1 batch 0 partition 0: quarantined 1, the commit's userMetadata says 0 (g)")
def commit_with_other_counts(scene: Scene) -> None:
    scene.commits[0].counts = {"0": {"read": 4, "quarantined": 0, "replayed": 0}}


@plant("version 2 changes batch 1 of query q1 in partition 0 from 1 to 2 rows: a batch was torn (e)")
def torn_batch_of_a_checkpoint_before(scene: Scene) -> None:
    late = TargetCommit([scene.commits[1].rows.pop()], 1, {"0": [9, 9], "1": [3, 3]}, query_id="q2", app_id=APP.replace("q1", "q2"))
    scene.commits.append(late)


@plant("offset 7: id ('Z',) is a valid event and in the quarantine (b)")
def event_of_a_killed_producer_in_quarantine(scene: Scene) -> None:
    scene.kafka[0, 7] = value("Z")
    scene.manifest += transaction(9, "committed", ("Z", value("Z")))[:1]
    scene.quarantine.append(quarantined(0, 7, 1))


OTHER = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"


@plant(f"6 rows of the target name the topic id '{OTHER}', which no topic of this name had (b)")
def rows_of_a_topic_that_never_was(scene: Scene) -> None:
    for commit in scene.commits:
        commit.topic_id = OTHER
        for each in commit.rows:
            each["_topic_id"] = OTHER
    for line in scene.ledger:
        line["topic_id"] = OTHER


@plant("ledger of query q1 batch 1 partition 0 names the topic id", "which no topic of this name had (g)", "its commit another (g)")
def ledger_of_a_topic_that_never_was(scene: Scene) -> None:
    scene.ledger[2]["topic_id"] = OTHER


@plant("offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)")
def settled_though_it_is_no_row(scene: Scene) -> None:
    scene.quarantine[0]["state"] = "replayed"


@plant("offset 2: no id can be read from the record, and the target holds it as ('A',) (b)")
def row_of_a_record_without_an_id(scene: Scene) -> None:
    scene.commits[1].rows.append(row(0, 2, "A"))


@plant("offset 2 is in the quarantine with other bytes than Kafka holds there (b)")
def quarantine_with_other_bytes(scene: Scene) -> None:
    scene.quarantine[0]["value"] = b"{"


@plant("offset 2 is in the quarantine with other bytes than Kafka holds there (b)")
def quarantine_without_the_bytes(scene: Scene) -> None:
    scene.quarantine[0]["value"] = None


@plant("the ledger has a row of kind 'retention' (g)", "quarantined 2, the quarantine holds 1 rows of it (g)")
def quarantine_taken_away_by_a_word_in_the_ledger(scene: Scene) -> None:
    scene.ledger.append(ledger(0, 0, 0, 0, 0) | {"kind": "retention"})
    scene.ledger[0] |= {"quarantined": 2, "duplicate": 0}


@plant("offset 2: the quarantine names query q1 batch 1, whose range is [5, 9) (g)")
def quarantine_under_another_batch(scene: Scene) -> None:
    scene.quarantine[0]["batch_id"] = 1
    scene.ledger[0] |= {"quarantined": 0, "duplicate": 2}
    scene.ledger[2] |= {"quarantined": 1, "duplicate": 0}


@plant("id ('X',) comes from an aborted transaction and is in the quarantine (c)", "offset 7 is in the quarantine, and no committed record")
def aborted_id_in_quarantine(scene: Scene) -> None:
    scene.quarantine.append(quarantined(0, 7, 1) | {"event_id": "X"})


@plant("id ('D',) is in the target, and its record was broken (rule_negative_amount) (a)")
def poison_let_in(scene: Scene) -> None:
    digest = decode(scene.kafka[0, 8], [], []).value_hash
    orders = scene.manifest[3]["topics"]["orders"]
    orders["ids"].remove("D")
    orders["hashes"].remove(digest)
    scene.manifest[3]["poison"] = [{"kind": "rule_negative_amount", "topic": "orders", "partition": 0, "id": "D", "hash": digest}]


@plant("manifest and topic do not belong together (a)")
def topic_without_the_manifests_events(scene: Scene) -> None:
    scene.manifest += transaction(9, "committed", ("M", value("M")))


@pytest.mark.parametrize(("name", "change", "expected"), PLANTS, ids=[f"{name}: {expected[:40]}" for name, _, expected in PLANTS])
def test_a_planted_wrong_is_found(good: Scene, tmp_path: Path, name: str, change: Plant, expected: str) -> None:
    change(good)
    found = good.judge(tmp_path, refused_kinds=frozenset({"rule_negative_amount"})).findings
    assert any(expected in finding for finding in found), f"{name} not found; findings: {found}"


def test_an_unknown_transaction_that_kafka_shows_must_be_in_the_table(good: Scene, tmp_path: Path) -> None:
    good.kafka[0, 7] = value("Y")
    assert any("offset 7: id ('Y',) was committed and is lost" in finding for finding in good.judge(tmp_path).findings)


def test_what_the_test_deleted_itself_is_excused(good: Scene, tmp_path: Path) -> None:
    good.commits[1].rows.pop()
    good.ledger[2] |= {"inserted": 1, "duplicate": 2}
    good.judge(tmp_path, excused_ids=frozenset({("D",)})).assert_clean()


def test_a_quarantined_event_counts_as_accounted_for_where_valid_ones_may_be_there(good: Scene, tmp_path: Path) -> None:
    good.commits[1].rows.pop()
    good.quarantine.append(quarantined(0, 8, 1))
    good.ledger[2] |= {"inserted": 1, "quarantined": 1}
    good.judge(tmp_path, valid_in_quarantine=True).assert_clean()
    assert any("valid event" in finding for finding in judge_again(good, tmp_path))


def test_a_later_copy_may_be_the_row_where_the_first_one_stands_in_quarantine(good: Scene, tmp_path: Path) -> None:
    sent_otherwise(good, 3, "A")
    good.commits[0].rows[0] |= {"_offset": 3, "amount": "99"}
    good.quarantine.append(quarantined(0, 0, 0))
    good.ledger[0] |= {"duplicate": 0, "quarantined": 2}
    good.judge(tmp_path, valid_in_quarantine=True).assert_clean()


def test_what_a_lost_checkpoint_put_into_quarantine_and_never_committed_is_read_again_by_the_next_one(good: Scene, tmp_path: Path) -> None:
    later, good.kafka[0, 8] = good.commits.pop(), b"{"
    good.commits.append(replace(later, rows=later.rows[:1], query_id="q2", app_id=APP.replace("q1", "q2")))
    good.quarantine_commits = [(0, good.quarantine), (1, [quarantined(0, 8, 1)])]
    good.ledger[2:] = [line | LATER for line in good.ledger[2:]]
    good.ledger[2] |= {"inserted": 1, "replayed": 1}
    good.ledger += rebase(0, (5, 3), (5, 3), 0)
    good.manifest = [line for line in good.manifest if line.get("txn") != 1] + transaction(
        1, "committed", ("C", value("C")), ("B", value("B"))
    )
    good.judge(tmp_path).assert_clean()


def judge_again(scene: Scene, lake: Path, **changes: Any) -> tuple[str, ...]:
    run = Run(lake, "shop", "orders", "orders", ("order_id",), manifests=(lake / "manifest.jsonl",), **changes)
    records = {place: KafkaRecord(r.event_id, (), r.value_hash) for place, r in scene.view().records.items()}
    return judge(run, replace(scene.view(), records=records)).findings


def test_an_id_that_was_doubled_for_a_while_is_found_though_a_delete_has_hidden_it(good: Scene, tmp_path: Path) -> None:
    good.commits[0].rows.append(row(0, 3, "A"))
    good.judge(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("_partition = 0 AND _offset = 3")
    assert "orders: version 1 holds id ('A',) 2 times (e)" in judge_again(good, tmp_path, own_versions=frozenset({2}))


def test_rows_that_are_taken_away_by_another_commit_than_the_tests_own_are_found(good: Scene, tmp_path: Path) -> None:
    good.judge(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("order_id = 'D'")
    deleted = frozenset({("D",)})
    found = judge_again(good, tmp_path, excused_ids=deleted)
    assert found == ("orders: version 2 (DELETE) takes rows away, and it is no commit of the test (e)",)
    assert judge_again(good, tmp_path, excused_ids=deleted, own_versions=frozenset({2})) == ()


def test_a_rebase_that_reads_everything_again_and_adds_nothing_is_clean(good: Scene, tmp_path: Path) -> None:
    good.commits.append(TargetCommit([], 1, {"0": [0, 9], "1": [0, 3]}, query_id="q2", app_id=APP.replace("q1", "q2")))
    good.ledger.append(ledger(1, 0, 0, 9, 2, records_read=7, duplicate=2, replayed=5, gap=2) | LATER)
    good.ledger.append(ledger(1, 1, 0, 3, 2, records_read=3, duplicate=1, replayed=2) | LATER)
    good.ledger += rebase(1, (9, 3), (0, 0), 1)
    good.judge(tmp_path).assert_clean()


def test_a_copy_that_was_read_before_its_row_was_deleted_is_not_passed_over(good: Scene, tmp_path: Path) -> None:
    """B is deleted behind batch 0, and its retry in batch 1 is a row again."""
    later = good.commits.pop()
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("order_id = 'B'")
    good.commits, good.quarantine_commits = [later], [(2, [])]
    later.rows.append(row(0, 6, "B"))
    rest, good.ledger = good.ledger[2:], []
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/ledger")).delete("batch_id = 1")
    good.ledger = [line | {"target_version": 2} for line in rest]
    good.ledger[0] |= {"inserted": 3, "duplicate": 0}
    good.commits, good.quarantine_commits = [], [(3, [])]
    good.write(tmp_path)
    found = good.ask(tmp_path, own_versions=frozenset({1})).findings
    assert not [each for each in found if "passed over" in each]


def test_what_is_rewritten_and_cannot_be_read_any_more_is_a_finding_unless_a_vacuum_took_it(good: Scene, tmp_path: Path) -> None:
    good.judge(tmp_path)
    target, quarantine = (DeltaTable(str(tmp_path / "shop/orders" / name)) for name in ("target", "quarantine"))
    before = [*target.file_uris(), *quarantine.file_uris()]
    target.optimize.compact()
    quarantine.delete("offset = 2")
    for file in before:
        Path(file.removeprefix("file://")).unlink()
    unread = [found for found in good.ask(tmp_path).findings if "cannot be read any more" in found]
    assert [found[: found.index(" cannot")] for found in unread] == [
        "orders: version 0",
        "orders: version 1",
        "orders: version 0 of the quarantine",
    ]
    for table in (target, quarantine):
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    verdict = good.ask(tmp_path)
    assert not [found for found in verdict.findings if "cannot be read any more" in found]
    assert sum("cannot be read any more" in note for note in verdict.notes) == 3


def test_an_event_id_of_several_columns_is_known_in_quarantine_too() -> None:
    assert quarantined_id('["a","1"]', 2) == ("a", "1") and quarantined_id("[a", 1) == ("[a",)


def test_only_the_last_line_of_a_manifest_may_be_torn(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(manifest.read_text() + '\n{"event":"done"}\n')
    with pytest.raises(ValueError, match="line 10 of 11 cannot be read"):
        good.ask(tmp_path)


def test_a_topic_id_in_kafkas_own_spelling_is_the_same_id() -> None:
    from ingest.oracle.sources import plain_topic_id

    assert plain_topic_id("3XAxIsVpSTKRrBUc-F1Nvw") == TOPIC_ID


def test_decoding_keeps_decimals_exact_and_survives_rubbish() -> None:
    assert decode(b'{"id":1.10}', ["id"], []).event_id == ("1.1",)
    for rubbish in (None, b"", b"[]", b"{", b"\xff", b'{"id":null}', b"{}", b'{"id":{}}'):
        assert decode(rubbish, ["id"], []).event_id is None
