"""The judge is judged: a good run passes, and each planted wrong is found and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.oracle_tables import quarantined_id
from ingest.lab.oracle.sources import decode, plain_topic_id
from tests.unit.lab.oracle_scene import (
    FIRST,
    SECOND,
    T0,
    TOPIC_ID,
    Rows,
    Scene,
    Statement,
    batch,
    fence,
    ledger,
    quarantined,
    row,
    seek,
    transaction,
    value,
)

WITHOUT = "adds data without a transaction id"

OTHER = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
# The good scene's ledger: two beginnings, then two batches of two partitions.
OF_2, OF_3 = 2, 4


def test_a_good_run_is_clean(good: Scene, tmp_path: Path) -> None:
    verdict = good.judge(tmp_path)
    verdict.assert_clean()
    assert verdict.notes == ()


def two(scene: Scene) -> Rows:
    """Rows of batch 2."""
    return scene.target[2].rows


def three(scene: Scene) -> Rows:
    return scene.target[3].rows


def kept(scene: Scene) -> Rows:
    """Records that batch 2 has put into quarantine."""
    return scene.quarantine[1].rows


def also_kept(scene: Scene, *records: dict[str, object]) -> None:
    """Batch 3 puts records into quarantine, too."""
    scene.quarantine.append(batch(SECOND, {0: [5, 9], 1: [3, 3]}, list(records)))


def poison_let_in(scene: Scene) -> None:
    digest = decode(scene.kafka[0, 8], [], []).value_hash
    orders = scene.manifest[3]["topics"]["orders"]
    orders["ids"].remove("D")
    orders["hashes"].remove(digest)
    scene.manifest[3]["poison"] = [{"kind": "rule_negative_amount", "topic": "orders", "partition": 0, "id": "D", "hash": digest}]


def payload_nobody_sent(scene: Scene) -> None:
    scene.kafka[0, 5] = value("C", "99.00")
    three(scene)[0]["amount"] = "99.00"


def event_of_a_killed_producer_in_quarantine(scene: Scene) -> None:
    scene.kafka[0, 7] = value("Z")
    scene.manifest += transaction(9, "committed", ("Z", value("Z")))[:1]
    also_kept(scene, quarantined((0, 7), SECOND))


def retry_in_place_of_the_first_copy(scene: Scene) -> None:
    two(scene).pop(1)
    three(scene).append(row((0, 6), "B", SECOND))


def numbers_swapped(scene: Scene) -> None:
    scene.target[1].number, scene.target[3].number = 3, 1


def epoch_2(scene: Scene, *statements: Statement) -> None:
    scene.target += [fence(2), *statements]


Plant = Callable[[Scene], object]
# By name: the wrong, and what must be found.
PLANTS: dict[str, tuple[Plant, *tuple[str, ...]]] = {
    # (a) to (d)
    "lost id": (
        lambda s: three(s).pop(),
        "offset 8: id ('D',) was committed and is lost",
        "offset 8: id ('D',) is in neither target nor quarantine",
        "inserted 2, the target holds 1 rows of it (b)",
    ),
    "doubled id": (
        lambda s: two(s).append(row((0, 3), "A")),
        "id ('A',) is in the target 2 times (a)",
        "the target holds 3 rows of it (b)",
    ),
    "doubled position": (
        lambda s: three(s).append(row((0, 0), "A")),
        "offset 0 is in the target 2 times (b)",
        "changes epoch 1 batch 2 in partition 0 from 2 to 3 rows: a batch was torn (e)",
    ),
    "aborted id let in": (
        lambda s: three(s).append(row((0, 7), "X", SECOND)),
        "id ('X',) comes from an aborted transaction and is in the target (c)",
        "offset 7 is in the target, and no committed record",
    ),
    "aborted id in quarantine": (
        lambda s: also_kept(s, quarantined((0, 7), SECOND) | {"event_id": "X"}),
        "id ('X',) comes from an aborted transaction and is in the quarantine (c)",
        "offset 7 is in the quarantine, and no committed record",
    ),
    "wrong payload": (lambda s: two(s)[1].update(amount="12.51"), "amount = Decimal('12.51'), and Decimal('12.50') was produced (d)"),
    "wrong time": (lambda s: two(s)[1].update(ordered_at=T0 + 1), "ordered_at = "),
    "wrong truth": (lambda s: two(s)[1].update(captured=False), "offset 1: id ('B',) has captured = False, and True was produced (d)"),
    "value lost": (lambda s: two(s)[1].update(captured=None), "offset 1: id ('B',) has captured = None, and True was produced (d)"),
    "row with another offset": (lambda s: two(s)[1].update(order_id="A"), "offset 1 holds id ('A',), Kafka holds ('B',) there (d)"),
    "payload nobody sent": (payload_nobody_sent, "has a payload in Kafka that no manifest names (d)"),
    "row nobody produced": (lambda s: two(s).append(row((0, 4), "Z")), "id ('Z',) is in the target and nobody produced it (a)"),
    "poison let in": (poison_let_in, "id ('D',) is in the target, and its record was broken (rule_negative_amount) (a)"),
    "topic without the manifest's events": (
        lambda s: s.manifest.extend(transaction(9, "committed", ("M", value("M")))),
        "manifest and topic do not belong together (a)",
    ),
    "unknown transaction that Kafka shows": (
        lambda s: s.kafka.update({(0, 7): value("Y")}),
        "offset 7: id ('Y',) was committed and is lost",
    ),
    "in target and quarantine": (
        lambda s: kept(s).append(quarantined((0, 0))),
        "offset 0: id ('A',) is in the target and, open, in the quarantine (b)",
        "id ('A',) is a valid event and in the quarantine (b)",
    ),
    "event of a killed producer in quarantine": (event_of_a_killed_producer_in_quarantine, "id ('Z',) is a valid event"),
    "poison dropped": (
        lambda s: s.quarantine.pop(),
        "offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)",
        "quarantined 1, the quarantine holds 0 rows of it (b)",
    ),
    "poison quarantined twice": (
        lambda s: kept(s).append(quarantined((0, 2))),
        "offset 2 is in the quarantine 2 times (b)",
        "quarantined 1, the quarantine holds 2 rows of it (b)",
    ),
    "replayed though it is no row": (
        lambda s: kept(s)[0].update(state="replayed"),
        "offset 2: no id can be read from the record, and it is",
    ),
    "row of a record without an id": (lambda s: three(s).append(row((0, 2), "A")), "and the target holds it as ('A',) (b)"),
    "other bytes in quarantine": (lambda s: kept(s)[0].update(value=b"{"), "offset 2 is in the quarantine with other bytes than Kafka"),
    "no bytes in quarantine": (lambda s: kept(s)[0].update(value=None), "offset 2 is in the quarantine with other bytes than Kafka"),
    "quarantine of an unknown topic": (
        lambda s: kept(s)[0].update(topic_id=OTHER),
        f"1 rows of the quarantine name the topic id '{OTHER}', which no topic of this name had (b)",
        "offset 2: the quarantine names epoch 1 batch 2, which read [0, 5)",
    ),
    "row of a batch that never was": (
        lambda s: three(s)[1].update(_batch=7),
        "offset 8: the target names epoch 1 batch 7, and no target commit of that is in the log (b)",
    ),
    "row that names another batch": (lambda s: three(s)[0].update(_batch=2), "offset 5: the target names epoch 1 batch 2, which read"),
    # (e)
    "torn batch": (lambda s: three(s).append(two(s).pop()), "changes epoch 1 batch 2 in partition 1 from 1 to 2 rows"),
    "row of a later batch": (
        lambda s: two(s).append(three(s).pop()),
        "target version 2 (batch) changes epoch 1 batch 3 in partition 0 from 0 to 1 rows: a batch was torn (e)",
    ),
    "fence that adds a row": (
        lambda s: s.target[0].rows.append(row((0, 8), "D", (1, 0))),
        "target version 0 (WRITE) changes epoch 1 batch 0 in partition 0 from 0 to 1 rows",
    ),
    "quarantine under another batch": (
        lambda s: kept(s)[0].update(batch=3),
        "offset 2: the quarantine names epoch 1 batch 3, which read [5, 9)",
        "quarantine version 1 (batch) changes epoch 1 batch 3 in partition 0 from 0 to 1 rows",
    ),
    "quarantine of a batch in two commits": (
        lambda s: also_kept(s, quarantined((0, 1))),
        "quarantine version 2 (batch) changes epoch 1 batch 2 in partition 0 from 1 to 2 rows: a batch was torn (e)",
    ),
    "lost until its retry came": (
        retry_in_place_of_the_first_copy,
        "offset 1: id ('B',) was read by version 2 and passed over; "
        "its row is that of a later copy, partition 0 offset 6, of version 3 (e)",
    ),
    "later copy of a batch wins": (
        lambda s: two(s)[0].update(_offset=3),
        "offset 0: id ('A',) was read by version 2 and passed over; "
        "its row is that of a later copy, partition 0 offset 3, of version 2 (e)",
    ),
    # (f)
    "txn version not rising": (
        lambda s: s.target[3].alter(txn_version=2**32 + 2),
        "target version 3 has txn version 4294967298 of oncelake/shop/orders, version 2 had 4294967298 already (f)",
    ),
    "txn version not rising in quarantine": (
        lambda s: s.quarantine.append(batch(FIRST, {0: [0, 5], 1: [0, 3]})),
        "quarantine version 2 has txn version 4294967298 of oncelake/shop/orders, version 1 had 4294967298 already (f)",
    ),
    "pair of another batch": (
        lambda s: s.target[3].alter(txn_version=2**32 + 7),
        "target version 3 has the transaction id (1, 7), and its userMetadata names (1, 3) of shop.orders (f)",
    ),
    "mark of another table": (
        lambda s: s.target[3].alter(mark={"table": "payments"}),
        "has the transaction id (1, 3), and its userMetadata names (1, 3) of shop.payments (f)",
    ),
    "seek in quarantine": (
        lambda s: s.quarantine[1].alter(kind="seek"),
        "quarantine version 1 has the transaction id (1, 2), and its userMetadata has kind 'seek' (f)",
    ),
    "batch with the number of a seek": (
        numbers_swapped,
        "target version 3 has the transaction id (1, 1), and its userMetadata has kind 'batch' (f)",
    ),
    "no pair": (
        lambda s: s.target[3].alter(app_id=None),
        f"target version 3 (WRITE) {WITHOUT} of oncelake/shop/orders (f)",
    ),
    "pair of another table": (
        lambda s: s.target[3].alter(app_id="oncelake/shop/payments"),
        f"{WITHOUT} of oncelake/shop",
    ),
    "no mark": (lambda s: s.target[3].alter(mark=None), "target version 3 has the transaction id (1, 3) and no userMetadata of ours (f)"),
    "no pair in quarantine": (
        lambda s: s.quarantine[1].alter(app_id=None),
        f"quarantine version 1 (WRITE) {WITHOUT}",
    ),
    "another writer": (
        lambda s: s.target[3].alter(mark={"writer": "another"}),
        "epoch 1 has the writers another, writer of epoch 1, one expected (f)",
    ),
    "another writer in quarantine": (
        lambda s: s.quarantine[1].alter(mark={"writer": "another"}),
        "epoch 1 has the writers another, writer of epoch 1, one expected (f)",
    ),
    "no fence": (lambda s: s.target.pop(0), "target version 0 is of epoch 1, and no fence of that epoch comes before it (f)"),
    "no fence in quarantine": (
        lambda s: s.quarantine.pop(0),
        "quarantine version 0 is of epoch 1, and no fence of that epoch comes before it",
    ),
    "batch left out": (lambda s: s.target[3].alter(number=4), "target version 3 is batch 4 of epoch 1, expected batch 3 (f)"),
    "epoch that begins with its second batch": (
        lambda s: epoch_2(s, batch((2, 3), {0: [9, 9], 1: [3, 3]})),
        "target version 5 is batch 3 of epoch 2, expected batch 2 (f)",
    ),
    "epoch that begins before the table ends": (
        lambda s: epoch_2(s, batch((2, 2), {0: [5, 9], 1: [3, 3]})),
        "target version 5: partition 0 has the range [5, 9), expected to start at 9 (f)",
    ),
    "hole between ranges": (
        lambda s: s.target[3].ranges.update({0: [6, 9]}),
        "partition 0 has the range [6, 9), expected to start at 5 (f)",
        "partition 0 offsets [5, 6) were read by no batch, and no gap is accepted (a)",
    ),
    "range that does not begin where the seek says": (
        lambda s: s.target[1].starts.update({1: 1}),
        "target version 2: partition 1 has the range [0, 3), expected to start at 1 (f)",
    ),
    "partition that came later does not begin at 0": (
        lambda s: s.target[3].ranges.update({2: [4, 4]}),
        "target version 3: partition 2 has the range [4, 4), expected to start at 0 (f)",
    ),
    "partition left out": (
        lambda s: s.target[3].ranges.pop(1),
        "target version 3: no range for the partitions [1], which earlier commits had (f)",
    ),
    "topic changed without a seek": (
        lambda s: s.target[3].alter(topic_id=OTHER),
        f"target version 3 reads the topic id '{OTHER}', and no seek leads there from '{TOPIC_ID}' (f)",
    ),
    "quarantine with other ranges": (
        lambda s: s.quarantine[1].ranges.update({0: [0, 4]}),
        "quarantine version 1 names other ranges or another topic than target version 2 of the same batch (f)",
    ),
    "seek behind the end": (
        lambda s: epoch_2(s, seek(2, {0: 50, 1: 3})),
        "target version 5 begins at 50 in partition 0, where its topic ends at 9 (f)",
    ),
    # (g)
    "inserted": (lambda s: s.ledger[OF_2].update(inserted=1, duplicate=2), "inserted 1, the target holds 2 rows of it (b)"),
    "counts that do not add up": (lambda s: s.ledger[OF_2].update(duplicate=0), "4 is not inserted 2 + duplicate 0 + quarantined 1 (g)"),
    "gap of a batch": (lambda s: s.ledger[OF_2].update(gap=0), "5 offsets are not read 4 + gap 0 (g)"),
    "marker counted as a record": (
        lambda s: s.ledger[OF_2].update(records_read=5, duplicate=2, gap=0),
        "read 5, Kafka shows 4 committed records in [0, 5) (b)",
    ),
    "row missing": (lambda s: s.ledger.pop(OF_3), "ledger, ('batch', 1, 3, 0, 5): it is missing"),
    "row of an empty range missing": (lambda s: s.ledger.pop(OF_3 + 1), "ledger, ('batch', 1, 3, 1, 3): it is missing"),
    "row doubled": (lambda s: s.ledger.append(s.ledger[OF_3]), "ledger, ('batch', 1, 3, 0, 5): it is there 2 times (g)"),
    "ledger ahead of the target": (
        lambda s: s.ledger.append(ledger((1, 4), 0, 9, 9, 4)),
        "('batch', 1, 4, 0, 9) names target version 4, and no target commit of that is in the log (g)",
    ),
    "another end": (lambda s: s.ledger[OF_3].update(end_offset=8, gap=0), f"says (8, '{TOPIC_ID}', 3), the target's log (9, "),
    "another version": (lambda s: s.ledger[OF_3].update(target_version=2), f"says (9, '{TOPIC_ID}', 2), the target's log (9, "),
    "another topic": (
        lambda s: s.ledger[OF_3].update(topic_id=OTHER),
        f"names the topic id '{OTHER}', which no topic of this name had (g)",
        f"says (9, '{OTHER}', 3), the target's log (9, '{TOPIC_ID}', 3) (g)",
    ),
    "other counts in the mark": (
        lambda s: s.target[2].counts.update({0: {"read": 4, "quarantined": 0, "duplicate_in_batch": 1}}),
        "quarantined 1, the commit's userMetadata says 0 (g)",
    ),
    "more duplicates in the mark": (
        lambda s: s.target[2].counts.update({0: {"read": 4, "quarantined": 1, "duplicate_in_batch": 2}}),
        "duplicate 1, the commit's userMetadata says 2 inside the batch (g)",
    ),
    "records taken away by a word in the ledger": (
        lambda s: [s.ledger.append(ledger(FIRST, 0, 0, 0, 0, kind="retention")), s.ledger[OF_2].update(quarantined=2, duplicate=0)],
        "nothing in this run writes rows of this kind (g)",
        "quarantined 2, the quarantine holds 1 rows of it (b)",
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_wrong_is_found(good: Scene, tmp_path: Path, name: str) -> None:
    change, *expected = PLANTS[name]
    change(good)
    found = good.judge(tmp_path, refused_kinds=frozenset({"rule_negative_amount"})).findings
    missed = [sentence for sentence in expected if not any(sentence in finding for finding in found)]
    assert not missed, found


def test_a_quarantine_that_is_written_after_the_target_is_found(good: Scene, tmp_path: Path) -> None:
    good.write_target(tmp_path)
    found = good.judge(tmp_path).findings
    assert found == ("orders: quarantine version 1 comes after target version 2 of the same batch (f)",)


def test_a_transaction_id_in_the_ledger_is_found(good: Scene, tmp_path: Path) -> None:
    fence(1).commit(tmp_path / "shop/orders/ledger", ledger((0, 0), 0, 0, 0, 0))
    assert good.judge(tmp_path).findings == ("orders: ledger version 0 has a transaction id (f)",)


def test_a_quarantined_event_counts_as_accounted_for_where_valid_ones_may_be_there(good: Scene, tmp_path: Path) -> None:
    three(good).pop()
    also_kept(good, quarantined((0, 8), SECOND))
    good.ledger[OF_3] |= {"inserted": 1, "quarantined": 1}
    good.judge(tmp_path, valid_in_quarantine=True).assert_clean()
    assert good.ask(tmp_path).findings == ("orders: partition 0 offset 8: id ('D',) is a valid event and in the quarantine (b)",)


@pytest.mark.parametrize("in_quarantine", [True, False])
def test_a_later_copy_with_another_payload_may_be_the_row_only_where_the_first_one_stands_in_quarantine(
    good: Scene, tmp_path: Path, in_quarantine: bool
) -> None:
    good.kafka[0, 3] = value("A", "99.00")
    good.manifest += transaction(9, "committed", ("A", value("A", "99.00")))
    two(good)[0] |= {"_offset": 3, "amount": "99"}
    if in_quarantine:
        kept(good).append(quarantined((0, 0)))
        good.ledger[OF_2] |= {"duplicate": 0, "quarantined": 2}
    found = good.judge(tmp_path, valid_in_quarantine=True).findings
    assert [each[:71] for each in found] == (
        [] if in_quarantine else ["orders: partition 0 offset 0: id ('A',) was read by version 2 and passe"]
    )


def test_files_that_are_gone_are_a_finding_unless_a_vacuum_took_them(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    target, quarantine = (DeltaTable(str(tmp_path / "shop/orders" / name)) for name in ("target", "quarantine"))
    before = [*target.file_uris(), *quarantine.file_uris()]
    target.optimize.compact()
    quarantine.delete("offset = 2")
    for file in before:
        Path(file.removeprefix("file://")).unlink()
    unread = [found for found in good.ask(tmp_path).findings if "cannot be read any more" in found]
    assert [found[: found.index(" cannot")] for found in unread] == [
        "orders: target version 2",
        "orders: target version 3",
        "orders: quarantine version 1",
    ]
    for table in (target, quarantine):
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    verdict = good.ask(tmp_path)
    assert not [found for found in verdict.findings if "cannot be read any more" in found]
    assert sum("cannot be read any more" in note for note in verdict.notes) == 3


def test_with_the_log_cleaned_up_the_ledger_tells_what_was_read(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    target = tmp_path / "shop/orders/target"
    DeltaTable(str(target)).create_checkpoint()
    for version in range(3):
        (target / f"_delta_log/{version:020}.json").unlink()
        good.ask(tmp_path).assert_clean()
    DeltaTable(str(tmp_path / "shop/orders/ledger")).delete("batch = 2 AND partition = 0")
    found = good.ask(tmp_path).findings
    assert any("offset 0: the target names epoch 1 batch 2, which read [0, 0)" in each for each in found), found


def test_an_event_id_of_several_columns_is_known_in_quarantine_too() -> None:
    assert quarantined_id('["a","1"]', 2) == ("a", "1") and quarantined_id("[a", 1) == ("[a",)


def test_only_the_last_line_of_a_manifest_may_be_torn(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(manifest.read_text() + '\n{"event":"done"}\n')
    with pytest.raises(ValueError, match="line 10 of 11 cannot be read"):
        good.ask(tmp_path)


def test_a_topic_id_in_kafkas_own_spelling_is_the_same_id() -> None:
    assert plain_topic_id("3XAxIsVpSTKRrBUc-F1Nvw") == TOPIC_ID


def test_decoding_keeps_decimals_exact_and_survives_rubbish() -> None:
    assert decode(b'{"id":1.10}', ["id"], []).event_id == ("1.1",)
    for rubbish in (None, b"", b"[]", b"{", b"\xff", b'{"id":null}', b"{}", b'{"id":{}}'):
        assert decode(rubbish, ["id"], []).event_id is None
