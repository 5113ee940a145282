"""Errors injected into a good scene, each with the findings that the oracle must report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    less,
    quarantined,
    row,
    seek,
    transaction,
    value,
)

Change = Callable[[Scene], object]
WITHOUT = "adds data without a transaction id"

OTHER = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
# The good scene's ledger: two lines of the start, then two batches of two partitions each.
OF_3 = 4


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
    scene.quarantine.append(batch(SECOND, {}, list(records)))


def booked(scene: Scene, number: int) -> list[Any]:
    """The counts of this target version in partition 0."""
    return scene.target[number].counts[0]


def in_ledger(change: Callable[[Rows], object]) -> Change:
    """A change of the ledger's lines."""
    return lambda scene: scene.__setattr__("in_ledger", change)


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


# By name: the change, and the findings that it must cause.
INJECTED: dict[str, tuple[Change, *tuple[str, ...]]] = {
    # (a) to (d)
    "lost id": (
        lambda s: three(s).pop(),
        "offset 8: id ('D',) was committed and is lost",
        "offset 8: id ('D',) is in neither target nor quarantine",
    ),
    "duplicate id": (
        lambda s: two(s).append(row((0, 3), "A")),
        "id ('A',) is in the target 2 times (a)",
        "the target holds (3, 4, ",
    ),
    "duplicate position": (
        lambda s: three(s).append(row((0, 0), "A")),
        "offset 0 is in the target 2 times (b)",
        "changes epoch 1 batch 2 in source 0 partition 0 from 2 to 3 rows: a batch was torn (e)",
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
        "the postings have (1, 2, ",
        "the quarantine holds (0, 0, 0) (b)",
    ),
    "poison quarantined twice": (
        lambda s: kept(s).append(quarantined((0, 2))),
        "offset 2 is in the quarantine 2 times (b)",
        "the quarantine holds (2, 4, ",
    ),
    "replayed without a row": (
        lambda s: kept(s)[0].update(state="replayed"),
        "offset 2: no id can be read from the record, and it is",
    ),
    "row of a record without an id": (lambda s: three(s).append(row((0, 2), "A")), "and the target holds it as ('A',) (b)"),
    "other bytes in quarantine": (lambda s: kept(s)[0].update(value=b"{"), "offset 2 is in the quarantine with other bytes than Kafka"),
    "no bytes in quarantine": (lambda s: kept(s)[0].update(value=None), "offset 2 is in the quarantine with other bytes than Kafka"),
    "row of an unknown number": (lambda s: two(s)[0].update(_source=7), "1 rows of the target name the topic id 'of number 7', which no"),
    "record of an unknown number": (lambda s: kept(s)[0].update(source=7), "1 rows of the quarantine name the topic id 'of number 7'"),
    "record with the id of another topic": (
        lambda s: kept(s)[0].update(topic_id=OTHER),
        f"offset 2 is in the quarantine with the topic id '{OTHER}', and its number means another (b)",
    ),
    "row of a nonexistent batch": (
        lambda s: three(s)[1].update(_batch=7),
        "offset 8: the target names epoch 1 batch 7, and no target commit of that is in the log (b)",
    ),
    "row that names another batch": (lambda s: three(s)[0].update(_batch=2), "offset 5: the target names epoch 1 batch 2, which read"),
    # (e)
    "torn batch": (lambda s: three(s).append(two(s).pop()), "changes epoch 1 batch 2 in source 0 partition 1 from 1 to 2 rows"),
    "row of a later batch": (
        lambda s: two(s).append(three(s).pop()),
        "target version 2 (batch) changes epoch 1 batch 3 in source 0 partition 0 from 0 to 1 rows: a batch was torn (e)",
    ),
    "fence that adds a row": (
        lambda s: s.target[0].rows.append(row((0, 8), "D", (1, 0))),
        "target version 0 (WRITE) changes epoch 1 batch 0 in source 0 partition 0 from 0 to 1 rows",
    ),
    "quarantine under another batch": (
        lambda s: kept(s)[0].update(batch=3),
        "offset 2: the quarantine names epoch 1 batch 3, which read [5, 9)",
        "quarantine version 1 (batch) changes epoch 1 batch 3 in source 0 partition 0 from 0 to 1 rows",
    ),
    "quarantine of a batch in two commits": (
        lambda s: also_kept(s, quarantined((0, 1))),
        "quarantine version 2 (batch) changes epoch 1 batch 2 in source 0 partition 0 from 1 to 2 rows: a batch was torn (e)",
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
        lambda s: s.quarantine.append(batch(FIRST, {})),
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
        "target version 3: no range for partition 1, which earlier commits had (f)",
    ),
    "topic changed without a seek": (
        lambda s: s.target[3].alter(sources=(OTHER,)),
        f"target version 3 reads the topic id '{OTHER}', and no start or seek leads there (f)",
        f"target version 3 means by number 0 the topic id '{OTHER}', which was '{TOPIC_ID}' before (f)",
    ),
    "topic with a second number": (
        lambda s: s.target[3].alter(sources=(TOPIC_ID, TOPIC_ID)),
        f"target version 3 gives the topic id '{TOPIC_ID}' the number 1, and it has 0 (f)",
    ),
    "number that the commit does not name": (
        lambda s: s.target[3].alter(source=1),
        "target version 3 has postings of the numbers [1], which it does not name (f)",
    ),
    "quarantine of another topic than its batch": (
        lambda s: s.quarantine[1].alter(sources=(OTHER,)),
        "quarantine version 1 names other topics than target version 2 of the same batch (f)",
    ),
    "seek past the end": (
        lambda s: epoch_2(s, seek(2, {0: 50, 1: 3})),
        "target version 5 begins at 50 in partition 0, where its topic ends at 9 (f)",
    ),
    # The sums of (b)
    "wrong number of rows": (
        lambda s: booked(s, 2).__setitem__(slice(1, 4), [3, 0, 1]),
        "epoch 1 batch 2, source 0 partition 0: the postings",
    ),
    "posting without its row": (
        lambda s: three(s).pop(),
        "epoch 1 batch 3, source 0 partition 0: the postings have (2, 13, ",
        "the target holds (1, 5, ",
    ),
    "row without a posting": (
        lambda s: s.target[3].alter(ranges={}, counts={}),
        "batch 3, source 0 partition 0: the postings have (0, 0, 0)",
    ),
    "record without a posting": (lambda s: booked(s, 2).__setitem__(slice(6, 9), [0, 0, 0]), "of it, the quarantine holds (1, 2, "),
    "rows of equal number swapped between partitions": (
        lambda s: (two(s)[0].update(_partition=1), two(s)[2].update(_partition=0)),
        "epoch 1 batch 2, source 0 partition 0: the postings have (2, 1, ",
        "epoch 1 batch 2, source 0 partition 1: the postings have (2, 1, ",
    ),
    "another source": (lambda s: two(s)[0].update(_source=1), "epoch 1 batch 2, source 1 partition 0: the postings have (0, 0, 0) of it"),
    "wrong sum of offsets": (lambda s: booked(s, 2).__setitem__(4, 9), "the postings have (2, 9, "),
    "wrong hash": (lambda s: booked(s, 2).__setitem__(5, 9), "the postings have (2, 1, 9) of it, the target holds (2, 1, "),
    "written off, and nothing is missing": (
        lambda s: epoch_2(s, seek(2, {0: 9, 1: 3}, more={"write-off": [[*FIRST, 0, 0, *[None] * 3, 0, 0, 0, *less([1, 0, 5]), 0, 0, 0]]})),
        "epoch 1 batch 2, source 0 partition 0: the postings have (1, 1, ",
    ),
    "open, and nobody says what became of it": (
        lambda s: booked(s, 2).__setitem__(slice(1, 6), [None, 1, None, None, None]),
        "batch (1, 2) of partition 0 is open, and 0 later postings say what became of it (b)",
    ),
    "counts that do not add up": (
        lambda s: booked(s, 2).__setitem__(1, 0),
        "read 4 is not inserted, present, duplicate and quarantined (2, 0,",
    ),
    "more read than offsets": (lambda s: booked(s, 2).__setitem__(slice(0, 2), [6, 3]), "read 6 of 5 offsets (b)"),
    "marker counted as a record": (
        lambda s: booked(s, 2).__setitem__(slice(0, 2), [5, 2]),
        "read 5, Kafka shows 4 committed records in [0, 5) (b)",
    ),
    # (g)
    "ledger line missing": (in_ledger(lambda lines: lines.pop(OF_3)), "the ledger lacks OraclePosting(why='batch', epoch=1, batch=3"),
    "ledger line of an empty range missing": (in_ledger(lambda lines: lines.pop()), "partition=1, start=3, end=3, read=0"),
    "ledger ahead of the target": (
        in_ledger(lambda lines: lines.append(lines[OF_3] | {"statement_batch": 4, "batch": 4, "version": 4})),
        "the ledger has OraclePosting(why='batch', epoch=1, batch=4",
        "and no commit of that is in the log (g)",
    ),
    **{
        f"wrong {name} in the ledger": (
            in_ledger(lambda lines, name=name, wrong=wrong: lines[OF_3].update({name: wrong})),  # type: ignore[misc]
            "the ledger lacks OraclePosting(why='batch', epoch=1, batch=3",
            "the ledger has OraclePosting(",
        )
        for name, wrong in {"why": "erasure", "end_offset": 8, "target_hash": 7, "topic_id": OTHER, "version": 2, "writer": "x"}.items()
    },
}
