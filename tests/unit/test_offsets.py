"""Offset ranges out of a checkpoint: the files as Spark writes them, and every way in which they can be damaged (I1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.errors import Refused
from ingest.files import LocalFiles
from ingest.stream.offsets import BatchId, CheckpointFiles, OffsetRange, PlannedBatch

PLANNED_MS = 1_735_787_100_123


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointFiles:
    """A checkpoint at its second batch; partition 1 appeared after the first."""
    write(tmp_path, "metadata", '{"id":"q-1"}')
    write(tmp_path, "sources/0/0", '\0v1\n{"orders":{"0":5}}')
    write(tmp_path, "offsets/0", log({"orders": {"0": 9}}))
    write(tmp_path, "offsets/1", log({"orders": {"1": 4, "0": 12}}))
    return CheckpointFiles(LocalFiles(), str(tmp_path))


def write(root: Path, name: str, text: str | bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(text.encode() if isinstance(text, str) else text)


def log(ends: dict[str, dict[str, int]], version: str = "v1", metadata: object = None) -> str:
    return "\n".join(
        [version, json.dumps(metadata or {"batchWatermarkMs": 0, "batchTimestampMs": PLANNED_MS, "conf": {}}), json.dumps(ends)]
    )


def planned(checkpoint: CheckpointFiles, number: int) -> PlannedBatch:
    return checkpoint.planned("q-1", number)


@pytest.mark.parametrize("nonsense", [(-1, 0, 1), (0, -1, 1), (0, 2, 1), (0, -2, -1)])
def test_a_range_refuses_nonsense(nonsense: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(*nonsense)


def test_an_empty_range_is_a_range() -> None:
    assert len(OffsetRange(0, 7, 7)) == 0
    assert str(OffsetRange(3, 7, 9)) == "3:[7,9)"


@pytest.mark.parametrize("nonsense", [("", 0), ("q", -1)])
def test_a_batch_id_refuses_nonsense(nonsense: tuple[str, int]) -> None:
    with pytest.raises(ValueError, match="not a batch id"):
        BatchId(*nonsense)


def test_batch_0_begins_where_the_source_began_behind_sparks_leading_zero_byte(checkpoint: CheckpointFiles) -> None:
    """I1"""
    batch = planned(checkpoint, 0)
    assert batch.ranges == (OffsetRange(0, 5, 9),)
    assert batch.id == BatchId("q-1", 0)
    assert batch.planned_at == datetime(2025, 1, 2, 3, 5, 0, 123000, UTC)


def test_a_later_batch_begins_where_the_one_before_ended_and_a_new_partition_at_0(checkpoint: CheckpointFiles) -> None:
    """I1"""
    assert planned(checkpoint, 1).ranges == (OffsetRange(0, 9, 12), OffsetRange(1, 0, 4))


def test_partitions_are_ordered_as_numbers(checkpoint: CheckpointFiles, tmp_path: Path) -> None:
    write(tmp_path, "offsets/2", log({"orders": {str(p): 20 for p in (10, 9, 2, 1, 0)}}))
    assert [r.partition for r in planned(checkpoint, 2).ranges] == [0, 1, 2, 9, 10]


def test_a_checkpoint_that_never_planned_a_batch_has_no_query_id(tmp_path: Path) -> None:
    empty = CheckpointFiles(LocalFiles(), str(tmp_path / "none"))
    assert empty.query_id() is None
    assert empty.numbers("offsets") == []


def test_the_numbers_of_a_log_are_its_batches_and_nothing_else(checkpoint: CheckpointFiles, tmp_path: Path) -> None:
    for name in ("10", ".10.crc", ".11.tmp", "2.compact"):
        write(tmp_path, f"offsets/{name}", "")
    assert checkpoint.query_id() == "q-1"
    assert checkpoint.numbers("offsets") == [0, 1, 10]


DAMAGE: dict[str, tuple[str, str | bytes | None, int]] = {
    "the batch's own file is missing": ("offsets/1", None, 1),
    "it is empty": ("offsets/1", "", 1),
    "it ends after the version": ("offsets/1", "v1\n", 1),
    "it ends after the metadata": ("offsets/1", 'v1\n{"batchTimestampMs":1}', 1),
    "its offsets are cut": ("offsets/1", log({"orders": {"0": 12}})[:-4], 1),
    "its metadata are cut": ("offsets/1", 'v1\n{"batchTime\n{"orders":{"0":12}}', 1),
    "it is of another version": ("offsets/1", log({"orders": {"0": 12}}, version="v2"), 1),
    "it has no time": ("offsets/1", log({"orders": {"0": 12}}, metadata={"conf": {}}), 1),
    "it is of another topic": ("offsets/1", log({"payments": {"0": 12}}), 1),
    "its source had no data": ("offsets/1", log({"orders": {"0": 12}}).rsplit("\n", 1)[0] + "\n-", 1),
    "an offset is no number": ("offsets/1", log({"orders": {"0": 12}}).replace("12", '"x"'), 1),
    "it is bytes": ("offsets/1", b"\xff\xfe\x00", 1),
    "it is zeros, as after a power cut": ("offsets/1", b"\0" * 64, 1),
    "it ends before the one before": ("offsets/1", log({"orders": {"0": 8}}), 1),
    "the file before is missing": ("offsets/0", None, 1),
    "the file before is empty": ("offsets/0", "", 1),
    "the initial offsets are missing": ("sources/0/0", None, 0),
    "the initial offsets are empty": ("sources/0/0", "", 0),
    "the initial offsets are a zero byte": ("sources/0/0", b"\0", 0),
    "the initial offsets are cut": ("sources/0/0", '\0v1\n{"orders":{"0"', 0),
    "the initial offsets are of another version": ("sources/0/0", '\0v9\n{"orders":{"0":5}}', 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_by_name_and_never_guessed(checkpoint: CheckpointFiles, tmp_path: Path, damage: str) -> None:
    """I1: without the file the range is unknown; a guess could lose records."""
    name, text, number = DAMAGE[damage]
    if text is None:
        (tmp_path / name).unlink()
    else:
        write(tmp_path, name, text)
    with pytest.raises(Refused) as refused:
        planned(checkpoint, number)
    assert refused.value.code == "CHECKPOINT_TORN"
    file = name if damage != "it ends before the one before" else "offsets/1"
    assert f"{tmp_path}/{file}" in refused.value.found


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", b"\0\0"])
def test_torn_metadata_is_refused_and_not_taken_for_a_new_checkpoint(
    checkpoint: CheckpointFiles, tmp_path: Path, text: str | bytes
) -> None:
    """I1"""
    write(tmp_path, "metadata", text)
    with pytest.raises(Refused, match=r"CHECKPOINT_TORN.*metadata"):
        checkpoint.query_id()
