"""Partitioned and clustered tables: values as Spark writes and reads them, and records whose partition value cannot be written (I5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.batch import outputs
from ingest.batch.staged_parts import Part
from ingest.decode.partition_value import unwritable
from ingest.delta.compaction import compact
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.merge_groups import whole
from ingest.delta.partition import read
from ingest.repair.retention import about
from ingest.runtime.files import LocalFiles
from tests.integration.lane import order
from tests.integration.records import contract, decoded
from tests.unit.delta.test_partition import VALUES, append, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.desk import Desk
    from tests.integration.lane import Lane

pytestmark = pytest.mark.integration

TEXTS = ["x", "", "x" * 300, "x" * 253, "x" * 254, "ü" * 127, "/" * 84, "/" * 85, "__HIVE_DEFAULT_PARTITION__", "a\0b", " "]


def test_spark_reads_our_partition_values_of_every_type_and_we_read_sparks(spark: SparkSession, tmp_path: Path) -> None:
    columns = {name: kind for name, (kind, _) in VALUES.items()}
    table = table_of(tmp_path, columns, list(columns))
    count = max(len(values) for _, values in VALUES.values())
    rows = append(table, [{"id": n, **{name: values[n % len(values)] for name, (_, values) in VALUES.items()}} for n in range(count)])
    by_spark = spark.read.format("delta").load(table.path).orderBy("id")
    assert by_spark.toArrow().select(rows.column_names).cast(rows.schema).to_pylist() == rows.to_pylist()
    assert [row["id"] for row in by_spark.where("da = date'1500-03-01' AND ts = timestamp'2026-01-02 03:04:05.000006'").collect()] == [1, 5]

    by_spark.selectExpr("id + 100 AS id", "* EXCEPT (id)").write.format("delta").mode("append").save(table.path)
    before = set(table.live)
    table.look()
    again = LiveTable(LocalFiles(), table.path)
    again.load()
    for found in (table, again):  # from Spark's commit, and through deltalake
        files = [file for path, file in found.live.items() if path not in before]
        assert len(files) == count
        back = pa.concat_tables([read(table.path, file, rows.schema) for file in files]).sort_by("id")
        assert back.drop_columns(["id"]).to_pylist() == rows.drop_columns(["id"]).to_pylist()


def test_records_whose_partition_value_cannot_be_written_go_to_quarantine_with_their_bytes(desk: Callable[..., Desk]) -> None:
    """A text of 300 characters has stopped a table for good, and the empty text became NULL."""
    one = desk({"s": "STRING!"}, layout={"partition_by": ["s"]})
    report = one.batch(*(order(str(n), s=text) for n, text in enumerate(TEXTS)))
    found = one.quarantine()
    assert [row["offset"] for row in found] == [1, 2, 4, 5, 7, 8, 9] and report.inserted == len(TEXTS) - len(found)
    assert {(row["reason_code"], row["reason_detail"]) for row in found} == {("unwritable", "s")}
    assert json.loads(found[0]["value"]) == {"id": "1", "s": ""}
    assert {row["s"] for row in one.target().collect()} == {TEXTS[n] for n in (0, 3, 6, 10)}


@pytest.mark.parametrize("names", [["s"], ["s", "n", "u"]])
def test_both_writers_refuse_the_same_values(spark: SparkSession, names: list[str]) -> None:
    rules = contract({"s": "STRING", "n": "INT", "u": "STRING"}, layout={"partition_by": names})
    hard = st.sampled_from([*TEXTS, None, "x" * 253, "/" * 100, "\n%" * 60, "😀" * 63])
    texts = st.one_of(hard, st.text(st.characters(exclude_categories=["Cs"]), max_size=90))

    @settings(max_examples=5, deadline=None, database=None)
    @given(st.lists(st.tuples(texts, st.sampled_from([None, -(2**31)]), texts), min_size=40, max_size=80))
    def compare(rows: list[tuple[Any, ...]]) -> None:
        values = [order(str(at), **dict(zip("snu", row, strict=True))) for at, row in enumerate(rows)]
        by_spark = [row["__detail"] if row["__reason"] == "unwritable" else None for row in decoded(spark, rules, values)]
        arrow = pa.table({name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(KINDS.items())})
        assert by_spark == unwritable(arrow, names)[1].to_pylist()

    compare()


KINDS = {"s": pa.string(), "n": pa.int32(), "u": pa.string()}


def test_a_clustered_table_of_ours_takes_batches_of_both_writers_and_is_clustered_by_spark(lane: Callable[..., Lane]) -> None:
    """Spark reads our creation as its own, and its OPTIMIZE finds the statistics of our files."""
    one = lane({"n": "INT"}, layout={"cluster_by": ["n", "_ingested_at"]})
    for number, who in enumerate((True, False, True)):
        one.direct = who
        one.send(order(f"r{number}", n=number), order("r0", n=9))
        one.run()
        one.forget_tables()
    (detail,) = one.session.sql(f"DESCRIBE DETAIL delta.`{one.places.target}`").collect()
    assert detail["clusteringColumns"] == ["n", "_ingested_at"] and detail["partitionColumns"] == []
    one.sql("OPTIMIZE {}")
    assert one.log().commit(one.log().newest()).operation == "OPTIMIZE"
    one.direct = True
    one.send(order("r3"), order("r1"))
    one.run()
    assert one.ids() == ["r0", "r1", "r2", "r3"] and [row["n"] for row in one.target().where("n >= 2").collect()] == [2]
    one.balanced()


def test_the_change_data_feed_of_our_table_has_a_batchs_rows_as_inserts_and_a_compaction_does_not_show(lane: Callable[..., Lane]) -> None:
    one = lane({"n": "INT"}, properties={"delta.enableChangeDataFeed": True})
    one.direct = True
    one.send(order("a"), order("b"), order("a"))
    one.run(max_records=1)
    assert compact(DirectWriter(), one.places.target, about(one.places), whole) == 1
    options = {"readChangeFeed": "true", "startingVersion": "0"}
    changes = one.session.read.format("delta").options(**options).load(one.places.target).select("id", "_change_type").collect()
    assert sorted(map(tuple, changes)) == [("a", "insert"), ("b", "insert")]
    one.sql("UPDATE {} SET n = 1 WHERE id = 'a'")  # Spark can write the feed of a table that we created
    one.balanced()


@pytest.mark.parametrize("rows_small", [outputs.SMALL_ROWS, 2], ids=["written by the driver", "written by workers"])
def test_a_table_partitioned_by_day_takes_batches_of_both_writers_and_holds_each_event_id_once(
    lane: Callable[..., Lane], monkeypatch: pytest.MonkeyPatch, rows_small: int
) -> None:
    """The event id has the partition column, which is in no file: the comparison reads it from the commit."""
    monkeypatch.setattr(outputs, "SMALL_ROWS", rows_small)  # workers get the module by value
    of, by_workers = Part.of, list[bool]()

    def part_of(row: Any) -> Part:
        by_workers.append(row["path"] is not None)
        return of(row)

    monkeypatch.setattr(Part, "of", part_of)
    one = lane({"day": "DATE!", "n": "INT!"}, event_id=("day", "n"), layout={"partition_by": ["day"]})
    days = ["2026-01-01", "1500-03-01", "9999-12-31"]
    for number, who in enumerate((False, True, True, False, True)):
        one.direct = who
        values = [{"day": day, "n": at} for day in days for at in range(number + 1)]
        one.send(*(json.dumps(value) for value in (*values, values[0])))
        one.run()
        one.forget_tables()
    found = one.target().selectExpr("CAST(day AS STRING) AS day", "n").collect()
    assert sorted((row["day"], row["n"]) for row in found) == sorted((day, at) for day in days for at in range(5))
    assert any(by_workers) == (rows_small == 2)
    files = [each for commit, _ in one.batches() for each in commit.added]
    assert {file.partition_values["day"] for file in files} == {*days}
    assert all(f"/day={file.partition_values['day']}/" in f"/{file.path}" for file in files)
    one.balanced()


def test_the_direct_writer_sends_the_same_records_to_quarantine_as_unwritable(lane: Callable[..., Lane]) -> None:
    one = lane({"s": "STRING"}, layout={"partition_by": ["s"]})
    one.direct = True
    texts = [text for text in TEXTS if "\0" not in text]
    one.send(*(order(str(at), s=text) for at, text in enumerate(texts)), order("null"))
    one.run()
    found = one.quarantine().orderBy("offset").collect()
    assert [row["offset"] for row in found] == [1, 2, 4, 5, 7, 8]
    assert {(row["reason_code"], row["reason_detail"]) for row in found} == {("unwritable", "s")}
    assert json.loads(found[0]["value"]) == {"id": "1", "s": ""}
    assert {row["s"] for row in one.target().collect()} == {"x", "x" * 253, "/" * 84, " ", None}
    one.balanced()
