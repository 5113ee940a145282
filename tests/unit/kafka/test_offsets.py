"""Where a micro-batch ends, as Spark has written it down, and every way in which that file can be damaged (I1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.kafka.offsets import OffsetRange, planned
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles

METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1_735_787_100_123, "conf": {}}


def log(ends: object, version: str = "v1", metadata: object = METADATA) -> str:
    return "\n".join([version, json.dumps(metadata), json.dumps(ends)])


def write(checkpoint: Path, text: str | bytes) -> None:
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "4").write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("nonsense", [(-1, 0, 1), (0, -1, 1), (0, 2, 1), (0, -2, -1)])
def test_a_range_refuses_nonsense(nonsense: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(*nonsense)


def test_an_empty_range_is_a_range() -> None:
    assert (len(OffsetRange(0, 7, 7)), len(OffsetRange(0, 7, 9)), str(OffsetRange(3, 7, 9))) == (0, 2, "3:[7,9)")


def test_a_batch_begins_where_the_run_says_and_a_partition_that_it_does_not_know_at_0(tmp_path: Path) -> None:
    """I2. Partitions are ordered as numbers."""
    write(tmp_path, log({"orders": {"10": 4, "0": 12, "9": 3}}))
    batch = planned(LocalFiles(), str(tmp_path), 4, {0: 9, 9: 3})
    assert batch.ranges == (OffsetRange(0, 9, 12), OffsetRange(9, 3, 3), OffsetRange(10, 0, 4))
    assert batch.planned_at == datetime(2025, 1, 2, 3, 5, 0, 123000, UTC)


DAMAGE: dict[str, str | bytes] = {
    "empty": "",
    "ends after the version": "v1\n",
    "ends after the metadata": 'v1\n{"batchTimestampMs":1}',
    "offsets cut": log({"orders": {"0": 12}})[:-4],
    "metadata cut": 'v1\n{"batchTime\n{"orders":{"0":12}}',
    "another version": log({"orders": {"0": 12}}, version="v2"),
    "no time": log({"orders": {"0": 12}}, metadata={"conf": {}}),
    "two topics": log({"orders": {"0": 12}, "payments": {"0": 1}}),
    "no data": log({"orders": {"0": 12}}).rsplit("\n", 1)[0] + "\n-",
    "no number": log({"orders": {"0": "x"}}),
    "no object": log([]),
    "bytes": b"\xff\xfe\x00",
    "zeros": b"\0" * 64,
    "ends before it begins": log({"orders": {"0": 8}}),
    "lacks a partition": log({"orders": {"1": 12}}),
}


@pytest.mark.parametrize("damage", [None, *DAMAGE])
def test_a_file_that_is_missing_or_damaged_stops_the_run_and_is_never_guessed(tmp_path: Path, damage: str | None) -> None:
    """I1: without it the range is unknown; a guess could lose records."""
    if damage is not None:
        write(tmp_path, DAMAGE[damage])
    with pytest.raises(RunStopped, match=rf"CHECKPOINT_GONE: {tmp_path}/offsets/4 was"):
        planned(LocalFiles(), str(tmp_path), 4, {0: 9})
