"""The end offsets of a micro-batch, as Spark stores them in the checkpoint, and every kind of damage to that file (I1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.kafka.offsets import OffsetRange, Position, empty_ranges, known_positions, lane, of_lane, of_source, planned, shown
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles

TOPICS = {"orders": 0, "returns": 2}
METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1_735_787_100_123, "conf": {}}


def log(ends: object, version: str = "v1", metadata: object = METADATA) -> str:
    return "\n".join([version, json.dumps(metadata), json.dumps(ends)])


def write(checkpoint: Path, text: str | bytes) -> None:
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "4").write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("invalid", [(-1, 0, 1), (0, -1, 1), (0, 2, 1), (0, -2, -1), (0, 1, 2, None, -1)])
def test_an_invalid_offset_range_is_refused(invalid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(*invalid)


def test_an_empty_range_is_valid() -> None:
    assert (len(OffsetRange(0, 7, 7)), len(OffsetRange(0, 7, 9)), str(OffsetRange(3, 7, 9))) == (0, 2, "3:[7,9)")


def test_a_partition_of_another_topic_than_the_first_is_shown_with_its_number() -> None:
    assert (shown((0, 3)), shown((2, 3)), str(OffsetRange(3, 7, 9, source=2))) == ("3", "2/3", "2/3:[7,9)")
    assert OffsetRange(3, 7, 9).of == (0, 3) and OffsetRange(3, 7, 9, source=2).of == (2, 3)
    assert OffsetRange(3, 7, 9) != OffsetRange(3, 7, 9, source=2)


@pytest.mark.parametrize("of", [(0, 0), (0, 2**31 - 1), (1, 0), (2**15 - 1, 2**31 - 1)])
def test_source_and_partition_are_one_number_and_come_back(of: tuple[int, int]) -> None:
    assert of_lane(lane(of)) == of and 0 <= lane(of) < 2**63


def test_values_of_partitions_are_those_of_one_topic() -> None:
    ranges = (OffsetRange(0, 1, 5, 7), OffsetRange(0, 2, 6, 8, 1), OffsetRange(1, 0, 4, None, 1))
    assert known_positions(ranges) == {(0, 0): Position(5, 7), (1, 0): Position(6, 8)}
    assert of_source(known_positions(ranges), 1) == {0: Position(6, 8)} and of_source(known_positions(ranges), 2) == {}
    found = empty_ranges({(1, 0): 6, (0, 0): 4}, known_positions(ranges))
    assert found == (OffsetRange(0, 4, 4), OffsetRange(0, 6, 6, source=1))
    assert [each.leader_epoch for each in found] == [None, 8], "only a position that is a start"


def test_a_batch_starts_at_the_given_offsets_and_a_new_partition_at_0(tmp_path: Path) -> None:
    """I2. Partitions are sorted as numbers."""
    write(tmp_path, log({"orders": {"10": 4, "0": 12, "9": 3}}))
    batch = planned(LocalFiles(), str(tmp_path), 4, {(0, 0): 9, (0, 9): 3}, TOPICS)
    assert batch.ranges == (OffsetRange(0, 9, 12), OffsetRange(9, 3, 3), OffsetRange(10, 0, 4))
    assert batch.planned_at == datetime(2025, 1, 2, 3, 5, 0, 123000, UTC)


def test_a_batch_of_several_topics_has_the_ranges_of_each_by_its_number(tmp_path: Path) -> None:
    write(tmp_path, log({"returns": {"0": 7, "1": 2}, "orders": {"0": 12}}))
    batch = planned(LocalFiles(), str(tmp_path), 4, {(0, 0): 9, (2, 0): 3}, TOPICS)
    assert batch.ranges == (OffsetRange(0, 9, 12), OffsetRange(0, 3, 7, source=2), OffsetRange(1, 0, 2, source=2))


def test_a_topic_of_the_batch_that_the_file_lacks_stops_the_run(tmp_path: Path) -> None:
    """I1"""
    write(tmp_path, log({"orders": {"0": 12}}))
    with pytest.raises(RunStopped, match=r"CHECKPOINT_GONE.*partitions 2/0, 2/1 are missing"):
        planned(LocalFiles(), str(tmp_path), 4, {(0, 0): 9, (2, 0): 3, (2, 1): 0}, TOPICS)


DAMAGE: dict[str, str | bytes] = {
    "empty": "",
    "ends after the version": "v1\n",
    "ends after the metadata": 'v1\n{"batchTimestampMs":1}',
    "offsets cut off": log({"orders": {"0": 12}})[:-4],
    "metadata cut off": 'v1\n{"batchTime\n{"orders":{"0":12}}',
    "another version": log({"orders": {"0": 12}}, version="v2"),
    "no time": log({"orders": {"0": 12}}, metadata={"conf": {}}),
    "an unknown topic": log({"orders": {"0": 12}, "payments": {"0": 20}}),
    "no data": log({"orders": {"0": 12}}).rsplit("\n", 1)[0] + "\n-",
    "not a number": log({"orders": {"0": "x"}}),
    "not an object": log([]),
    "not UTF-8": b"\xff\xfe\x00",
    "zeros": b"\0" * 64,
    "end before start": log({"orders": {"0": 8}}),
    "missing partition": log({"orders": {"1": 12}}),
}


@pytest.mark.parametrize("damage", [None, *DAMAGE])
def test_a_missing_or_damaged_offsets_file_stops_the_run(tmp_path: Path, damage: str | None) -> None:
    """I1: without the file the range is unknown, and a guess could lose records."""
    if damage is not None:
        write(tmp_path, DAMAGE[damage])
    with pytest.raises(RunStopped, match=rf"CHECKPOINT_GONE: {tmp_path}/offsets/4 was"):
        planned(LocalFiles(), str(tmp_path), 4, {(0, 0): 9}, TOPICS)
