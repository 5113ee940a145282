"""Each row is compared with the record at its position, by time and event id (I4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from ingest.contract.definition import Contract
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.stored_rows import TARGET
from ingest.kafka.log.record_batch import Record
from ingest.verify.same_record import NO_TIME, Contents, compared_ids, differing, of_other_records, reader_of, stored

pytestmark = pytest.mark.unit

COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}, {"name": "n", "type": "INT"}]
T = 1_700_000_000_000


def contents(*rows: tuple[int, int, int]) -> Contents:
    offsets, times, ids = zip(*rows, strict=True) if rows else ((), (), ())
    return Contents(np.array(offsets, np.int64), np.array(times, np.int64), np.array(ids, np.uint64))


@pytest.mark.parametrize(
    ("rows", "records", "times", "ids"),
    [
        ([(3, 10, 7)], [(3, 10, 7)], [], []),
        ([(3, 10, 7)], [(3, 11, 7)], [3], []),
        ([(3, 10, 7)], [(3, 10, 8)], [], [3]),
        ([(3, 10, 7), (5, 10, 7), (9, 10, 7)], [(4, 1, 1), (5, 10, 8), (8, 1, 1)], [], [5]),  # a row without a record is found elsewhere
        ([(3, NO_TIME, 7)], [(3, 11, 7)], [], []),
        ([(3, 2**61, 7)], [(3, 2**62, 7)], [], []),
        ([], [(3, 10, 7)], [], []),
        ([(3, 10, 7)], [], [], []),
    ],
)
def test_a_row_of_another_record_is_found_by_its_time_or_its_event_id(rows: Any, records: Any, times: list[int], ids: list[int]) -> None:
    of_time, of_id = differing(contents(*rows), contents(*records))
    assert (of_time.tolist(), of_id.tolist()) == (times, ids)


def test_a_finding_has_the_offsets_and_says_what_differs() -> None:
    rows = contents((3, 10, 7), (4, 10, 7), (5, 10, 7))
    (found,) = of_other_records(2, "target", rows, contents((3, 11, 7), (4, 12, 7), (5, 10, 7)))
    assert (found.code, found.partition, found.start_offset, found.end_offset) == ("RECORD_DIFFERS", 2, 3, 5)
    assert "another time than the target's row" in found.what


@pytest.mark.parametrize("kind", ["columns", "key", "header", "position"])
def test_the_rows_that_a_batch_wrote_are_equal_to_their_records(kind: str, tmp_path: Path) -> None:
    """Whichever event id: the table has what the workers decode, here written by hand."""
    source = {"topic": "orders", "format": "raw" if kind == "position" else "json"}
    event_id: Any = {"columns": ["id"], "header": "header:h"}.get(kind, kind)
    given = {"columns": COLUMNS} if kind != "position" else {}
    contract = Contract.model_validate({"pipeline": "shop", "table": "orders", "source": source, "event_id": event_id, **given})
    records = [Record(at, T + at, b"k%d" % at, b'{"id": "i%d", "n": 1, "more": []}' % at, (("h", b"h%d" % at),)) for at in range(5)]
    columns = {"_partition": pa.array([0] * 5, pa.int32()), "_offset": pa.array(range(5), pa.int64())}
    columns["_kafka_timestamp"] = pa.array([(T + at) * 1000 for at in range(5)], pa.timestamp("us", "UTC"))
    prefix = {"columns": "i", "key": "k", "header": "h", "position": "p"}[kind]
    columns |= {name: pa.array([f"{prefix}{at}" for at in range(5)]) for name in compared_ids(contract)}
    columns["_epoch"] = pa.array([1] * 5, pa.int32())
    for number in (0, 1):  # the times of another topic's rows differ
        write_deltalake(str(tmp_path), pa.table({**columns, "_source": pa.array([number] * 5, pa.int16())}), mode="append")
        columns["_kafka_timestamp"] = pc.add(columns["_kafka_timestamp"], timedelta(seconds=1))
    rows = stored(DataFusion(), At(str(tmp_path)), TARGET, "_kafka_timestamp", "_epoch = 1", compared_ids(contract))[0, 0]
    read = Contents.of(list(reader_of(contract)(records)))
    assert (rows.ids.size, read.ids.size) == ((0, 0) if kind == "position" else (5, 5))
    assert [each.tolist() for each in differing(rows, read)] == [[], []]
    others = [each._replace(key=b"x", value=b'{"id": "x"}', headers=(("h", b"x"),)) for each in records]
    of_time, of_id = differing(rows, Contents.of(list(reader_of(contract)(others))))
    assert (of_time.size, of_id.size) == (0, 0 if kind == "position" else 5)
    later = [each._replace(timestamp_ms=each.timestamp_ms + 1) for each in records]
    assert differing(rows, Contents.of(list(reader_of(contract)(later))))[0].size == 5
