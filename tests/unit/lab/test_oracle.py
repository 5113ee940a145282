"""Tests of the oracle itself: a good run passes, and each injected error is found and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.oracle_tables import quarantined_id
from ingest.lab.oracle.sources import decode, plain_topic_id
from tests.unit.lab.oracle_scene import (
    FIRST,
    LEDGER,
    SECOND,
    TOPIC_ID,
    Scene,
    Statement,
    fence,
    quarantined,
    transaction,
    value,
)
from tests.unit.lab.oracle_wrongs import INJECTED, also_kept, kept, three, two


def test_a_good_run_is_clean(good: Scene, tmp_path: Path) -> None:
    verdict = good.judge(tmp_path)
    verdict.assert_clean()
    assert verdict.notes == ()


@pytest.mark.parametrize("name", INJECTED)
def test_an_injected_error_is_found(good: Scene, tmp_path: Path, name: str) -> None:
    change, *expected = INJECTED[name]
    change(good)
    found = good.judge(tmp_path, refused_kinds=frozenset({"rule_negative_amount"})).findings
    missed = [sentence for sentence in expected if not any(sentence in finding for finding in found)]
    assert not missed, found


def test_a_quarantine_commit_after_its_target_commit_is_found(good: Scene, tmp_path: Path) -> None:
    good.write_target(tmp_path)
    found = good.judge(tmp_path).findings
    assert found == ("orders: quarantine version 1 comes after target version 2 of the same batch (f)",)


def test_a_transaction_id_in_the_ledger_is_found(good: Scene, tmp_path: Path) -> None:
    fence(1).commit(tmp_path / "shop/orders/ledger", dict.fromkeys(LEDGER))
    assert good.judge(tmp_path).findings == ("orders: ledger version 0 has a transaction id (f)",)


def test_a_valid_event_in_quarantine_is_accepted_only_if_the_test_allows_it(good: Scene, tmp_path: Path) -> None:
    three(good).pop()
    also_kept(good, quarantined((0, 8), SECOND))
    good.book(good.target[3]).judge(tmp_path, valid_in_quarantine=True).assert_clean()
    assert good.ask(tmp_path).findings == ("orders: partition 0 offset 8: id ('D',) is a valid event and in the quarantine (b)",)


@pytest.mark.parametrize(("times", "clean"), [(0, False), (1, True), (2, False)])
def test_an_open_posting_must_be_completed_by_one_later_statement(good: Scene, tmp_path: Path, times: int, clean: bool) -> None:
    """Delta in Spark tells only after its MERGE what was inserted."""
    counts = good.target[2].counts[0]
    said = [*FIRST, 0, 0, None, None, None, 0, counts[1], 0, *counts[3:6], 0, 0, 0]
    counts[1], counts[3:6] = None, [None] * 3
    good.target += [Statement("state", 1, 4 + number, more={"batch": [said]}) for number in range(times)]
    found = good.judge(tmp_path).findings
    assert found == () if clean else any(f"is open, and {times} later postings say what became of it (b)" in each for each in found), found


@pytest.mark.parametrize("in_quarantine", [True, False])
def test_a_later_copy_may_become_the_row_only_if_the_first_one_is_in_quarantine(good: Scene, tmp_path: Path, in_quarantine: bool) -> None:
    good.kafka[0, 3] = value("A", "99.00")
    good.manifest += transaction(9, "committed", ("A", value("A", "99.00")))
    two(good)[0] |= {"_offset": 3, "amount": "99"}
    if in_quarantine:
        kept(good).append(quarantined((0, 0)))
    found = good.book(good.target[2]).judge(tmp_path, valid_in_quarantine=True).findings
    assert [each[:71] for each in found] == (
        [] if in_quarantine else ["orders: partition 0 offset 0: id ('A',) was read by version 2 and passe"]
    )


def test_missing_files_are_a_finding_unless_a_vacuum_removed_them(good: Scene, tmp_path: Path) -> None:
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


def test_after_a_log_cleanup_the_ledger_says_what_was_read(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    target = tmp_path / "shop/orders/target"
    DeltaTable(str(target)).create_checkpoint()
    for version in range(3):
        (target / f"_delta_log/{version:020}.json").unlink()
        good.ask(tmp_path).assert_clean()
    DeltaTable(str(tmp_path / "shop/orders/ledger")).delete("batch = 2 AND partition = 0")
    found = good.ask(tmp_path).findings
    assert any("offset 0: the target names epoch 1 batch 2, which read [0, 0)" in each for each in found), found


def test_an_event_id_of_several_columns_is_parsed_from_the_quarantine() -> None:
    assert quarantined_id('["a","1"]', 2) == ("a", "1") and quarantined_id("[a", 1) == ("[a",)


def test_only_the_last_line_of_a_manifest_may_be_torn(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(manifest.read_text() + '\n{"event":"done"}\n')
    with pytest.raises(ValueError, match="line 10 of 11 cannot be read"):
        good.ask(tmp_path)


def test_a_topic_id_in_kafkas_base64_form_is_the_same_id() -> None:
    assert plain_topic_id("3XAxIsVpSTKRrBUc-F1Nvw") == TOPIC_ID


def test_decoding_keeps_decimals_exact_and_survives_invalid_input() -> None:
    assert decode(b'{"id":1.10}', ["id"], []).event_id == ("1.1",)
    for invalid in (None, b"", b"[]", b"{", b"\xff", b'{"id":null}', b"{}", b'{"id":{}}'):
        assert decode(invalid, ["id"], []).event_id is None
