"""Errors injected into a good scene, each with the findings that the oracle must report."""

from __future__ import annotations

from collections.abc import Callable

from ingest.lab.oracle.sources import decode
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
# The good scene's ledger: two rows of kind epoch, then two batches of two partitions each.
OF_2, OF_3 = 2, 4


def two(scene: Scene) -> Rows:
    """Rows of batch 2."""
    return scene.target[2].rows


def three(scene: Scene) -> Rows:
    return scene.target[3].rows


def kept(scene: Scene) -> Rows:
    """Records that batch 2 put into quarantine."""
    return scene.quarantine[1].rows


def also_kept(scene: Scene, *records: dict[str, object]) -> None:
    """Batch 3 puts records into quarantine too."""
    scene.quarantine.append(batch(SECOND, {0: [5, 9], 1: [3, 3]}, list(records)))


def poison_inserted(scene: Scene) -> None:
    digest = decode(scene.kafka[0, 8], [], []).value_hash
    orders = scene.manifest[3]["topics"]["orders"]
    orders["ids"].remove("D")
    orders["hashes"].remove(digest)
    scene.manifest[3]["poison"] = [{"kind": "rule_negative_amount", "topic": "orders", "partition": 0, "id": "D", "hash": digest}]


def payload_never_sent(scene: Scene) -> None:
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


Change = Callable[[Scene], object]
# By name: the change, and the findings that it must cause.
INJECTED: dict[str, tuple[Change, *tuple[str, ...]]] = {
    # (a) to (d)
    "lost id": (
        lambda s: three(s).pop(),
        "offset 8: id ('D',) was committed and is lost",
        "offset 8: id ('D',) is in neither target nor quarantine",
        "inserted 2, the target holds 1 rows of it (b)",
    ),
    "duplicate id": (
        lambda s: two(s).append(row((0, 3), "A")),
        "id ('A',) is in the target 2 times (a)",
        "the target holds 3 rows of it (b)",
    ),
    "duplicate position": (
        lambda s: three(s).append(row((0, 0), "A")),
        "offset 0 is in the target 2 times (b)",
        "changes epoch 1 batch 2 in partition 0 from 2 to 3 rows: a batch was torn (e)",
    ),
    "aborted id in target": (
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
    "wrong boolean": (lambda s: two(s)[1].update(captured=False), "offset 1: id ('B',) has captured = False, and True was produced (d)"),
    "value lost": (lambda s: two(s)[1].update(captured=None), "offset 1: id ('B',) has captured = None, and True was produced (d)"),
    "row with another offset": (lambda s: two(s)[1].update(order_id="A"), "offset 1 holds id ('A',), Kafka holds ('B',) there (d)"),
    "payload never sent": (payload_never_sent, "has a payload in Kafka that no manifest names (d)"),
    "row never produced": (lambda s: two(s).append(row((0, 4), "Z")), "id ('Z',) is in the target and nobody produced it (a)"),
    "poison in target": (poison_inserted, "id ('D',) is in the target, and its record was broken (rule_negative_amount) (a)"),
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
    "replayed without a row": (
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
    "row of a nonexistent batch": (
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
    "skipped until its retry": (
        retry_in_place_of_the_first_copy,
        "offset 1: id ('B',) was read by version 2 and passed over; "
        "its row is that of a later copy, partition 0 offset 6, of version 3 (e)",
    ),
    "later copy in a batch wins": (
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
    "transaction id of another batch": (
        lambda s: s.target[3].alter(txn_version=2**32 + 7),
        "target version 3 has the transaction id (1, 7), and its userMetadata names (1, 3) of shop.orders (f)",
    ),
    "batch commit of another table": (
        lambda s: s.target[3].alter(metadata={"table": "payments"}),
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
    "no transaction id": (
        lambda s: s.target[3].alter(app_id=None),
        f"target version 3 (WRITE) {WITHOUT} of oncelake/shop/orders (f)",
    ),
    "transaction id of another table": (
        lambda s: s.target[3].alter(app_id="oncelake/shop/payments"),
        f"{WITHOUT} of oncelake/shop",
    ),
    "no batch commit": (
        lambda s: s.target[3].alter(metadata=None),
        "target version 3 has the transaction id (1, 3) and no userMetadata of ours (f)",
    ),
    "no transaction id in quarantine": (
        lambda s: s.quarantine[1].alter(app_id=None),
        f"quarantine version 1 (WRITE) {WITHOUT}",
    ),
    "another writer": (
        lambda s: s.target[3].alter(metadata={"writer": "another"}),
        "epoch 1 has the writers another, writer of epoch 1, one expected (f)",
    ),
    "another writer in quarantine": (
        lambda s: s.quarantine[1].alter(metadata={"writer": "another"}),
        "epoch 1 has the writers another, writer of epoch 1, one expected (f)",
    ),
    "no fence": (lambda s: s.target.pop(0), "target version 0 is of epoch 1, and no fence of that epoch comes before it (f)"),
    "no fence in quarantine": (
        lambda s: s.quarantine.pop(0),
        "quarantine version 0 is of epoch 1, and no fence of that epoch comes before it",
    ),
    "skipped batch": (lambda s: s.target[3].alter(number=4), "target version 3 is batch 4 of epoch 1, expected batch 3 (f)"),
    "epoch that starts with its second batch": (
        lambda s: epoch_2(s, batch((2, 3), {0: [9, 9], 1: [3, 3]})),
        "target version 5 is batch 3 of epoch 2, expected batch 2 (f)",
    ),
    "epoch that starts before the table's end offsets": (
        lambda s: epoch_2(s, batch((2, 2), {0: [5, 9], 1: [3, 3]})),
        "target version 5: partition 0 has the range [5, 9), expected to start at 9 (f)",
    ),
    "hole between ranges": (
        lambda s: s.target[3].ranges.update({0: [6, 9]}),
        "partition 0 has the range [6, 9), expected to start at 5 (f)",
        "partition 0 offsets [5, 6) were read by no batch, and no gap is accepted (a)",
    ),
    "range that does not start at the seek's offset": (
        lambda s: s.target[1].starts.update({1: 1}),
        "target version 2: partition 1 has the range [0, 3), expected to start at 1 (f)",
    ),
    "new partition that does not start at 0": (
        lambda s: s.target[3].ranges.update({2: [4, 4]}),
        "target version 3: partition 2 has the range [4, 4), expected to start at 0 (f)",
    ),
    "skipped partition": (
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
    "seek past the end": (
        lambda s: epoch_2(s, seek(2, {0: 50, 1: 3})),
        "target version 5 begins at 50 in partition 0, where its topic ends at 9 (f)",
    ),
    # (g)
    "wrong inserted count": (lambda s: s.ledger[OF_2].update(inserted=1, duplicate=2), "inserted 1, the target holds 2 rows of it (b)"),
    "counts that do not add up": (lambda s: s.ledger[OF_2].update(duplicate=0), "4 is not inserted 2 + duplicate 0 + quarantined 1 (g)"),
    "wrong gap of a batch": (lambda s: s.ledger[OF_2].update(gap=0), "5 offsets are not read 4 + gap 0 (g)"),
    "marker counted as a record": (
        lambda s: s.ledger[OF_2].update(records_read=5, duplicate=2, gap=0),
        "read 5, Kafka shows 4 committed records in [0, 5) (b)",
    ),
    "ledger row missing": (lambda s: s.ledger.pop(OF_3), "ledger, ('batch', 1, 3, 0, 5): it is missing"),
    "ledger row of an empty range missing": (lambda s: s.ledger.pop(OF_3 + 1), "ledger, ('batch', 1, 3, 1, 3): it is missing"),
    "duplicate ledger row": (lambda s: s.ledger.append(s.ledger[OF_3]), "ledger, ('batch', 1, 3, 0, 5): it is there 2 times (g)"),
    "ledger ahead of the target": (
        lambda s: s.ledger.append(ledger((1, 4), 0, 9, 9, 4)),
        "('batch', 1, 4, 0, 9) names target version 4, and no target commit of that is in the log (g)",
    ),
    "wrong end offset in the ledger": (
        lambda s: s.ledger[OF_3].update(end_offset=8, gap=0),
        f"says (8, '{TOPIC_ID}', 3), the target's log (9, ",
    ),
    "wrong version in the ledger": (lambda s: s.ledger[OF_3].update(target_version=2), f"says (9, '{TOPIC_ID}', 2), the target's log (9, "),
    "wrong topic in the ledger": (
        lambda s: s.ledger[OF_3].update(topic_id=OTHER),
        f"names the topic id '{OTHER}', which no topic of this name had (g)",
        f"says (9, '{OTHER}', 3), the target's log (9, '{TOPIC_ID}', 3) (g)",
    ),
    "other counts in the batch commit": (
        lambda s: s.target[2].counts.update({0: {"read": 4, "quarantined": 0, "duplicate_in_batch": 1}}),
        "quarantined 1, the commit's userMetadata says 0 (g)",
    ),
    "more duplicates in the batch commit": (
        lambda s: s.target[2].counts.update({0: {"read": 4, "quarantined": 1, "duplicate_in_batch": 2}}),
        "duplicate 1, the commit's userMetadata says 2 inside the batch (g)",
    ),
    "records excused by an invented ledger row": (
        lambda s: [s.ledger.append(ledger(FIRST, 0, 0, 0, 0, kind="retention")), s.ledger[OF_2].update(quarantined=2, duplicate=0)],
        "nothing in this run writes rows of this kind (g)",
        "quarantined 2, the quarantine holds 1 rows of it (b)",
    ),
}
