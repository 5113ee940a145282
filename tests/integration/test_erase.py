"""Erasure of a person's data: rows, quarantined records, samples and old versions go; the balance holds, and nothing names the person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from ingest.cli.verify import _sum
from ingest.delta import writer as commits
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.table_definitions import QUALITY_FIELDS
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.numbering import Numbered
from ingest.repair import erasure
from ingest.repair.erasure import Erased, Erasure, InKafka
from ingest.repair.shadow import shadow_of
from ingest.runtime.errors import InvalidInput, Refused
from ingest.verify.verdict import verify
from tests.integration.desk import FAR, TOPIC_ID, Desk
from tests.integration.lane import order

pytestmark = pytest.mark.integration
MakeDesk = Callable[..., Desk]

PERSON = "ada@example.org"


def kafka_from(offset: int) -> Numbered:
    """Kafka's topic, whose first record is at this offset."""
    topic = TopicId("events", TOPIC_ID)
    return Numbered((topic,), {0: TopicState(topic, {0: (offset, FAR)})})


WANTED = Erasure(f"mail = '{PERSON}'", f"text LIKE '%{PERSON}%'", kafka_from(2))
NOWHERE = Numbered((), {})


@pytest.fixture(params=[True, False], ids=["direct", "spark"])
def by_workers(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def writer(one: Desk) -> TableWriter:
    """As another process has it."""
    return SparkWriter(one.session.newSession()) if one.direct is None else DirectWriter()


def with_a_person(desk: MakeDesk) -> Desk:
    """Rows a (the person), b and c (the person); one quarantined record of the person, and one of nobody."""
    one = desk({"mail": "STRING", "n": "INT"})
    one.batch(order("a", mail=PERSON, n=1), order("b", mail="b", n=2), order("x", mail=PERSON, n="many"))
    one.batch(order("c", mail=PERSON, n=3), "{")
    one.table.epoch.ledger.append()
    return one


def balanced(one: Desk) -> str:
    found = verify(DataFusion(), one.contract, one.places)
    assert not found.findings, "\n".join(map(str, found.findings))
    return _sum("inserted", found.target)


def files_that_contain(root: str, text: str) -> list[str]:
    """Parquet files may compress; these tables are tiny, so snappy leaves short strings as they are."""
    return [str(path) for path in Path(root).rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.fixture
def with_vectors(spark: SparkSession) -> Iterator[None]:
    """A platform that turns deletion vectors on for new tables."""
    name = "spark.databricks.delta.properties.defaults.enableDeletionVectors"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("with_vectors")
def test_an_erasure_leaves_no_trace_of_the_person_and_the_balance_holds(desk: MakeDesk) -> None:
    """With deletion vectors, the erased rows would stay in the table's files."""
    one = with_a_person(desk)
    assert files_that_contain(one.places.root, PERSON), "otherwise the last assertion would prove nothing"
    assert erasure.look(writer(one), one.places, WANTED) == Erased(2, 1, (InKafka("events", 0, 2, 3),), False, False)
    assert one.rows("id") == [("a",), ("b",), ("c",)]
    assert erasure.erase(writer(one), one.places, WANTED, history=True) == Erased(2, 1, (InKafka("events", 0, 2, 3),), False, True)
    assert one.rows("id") == [("b",)]
    assert [row["value"] for row in one.quarantine()] == [b"{"]
    assert balanced(one).endswith("inserted 3 - removed by retention or erasure 2")
    assert files_that_contain(one.places.root, PERSON) == []
    # Repeated: there is nothing left to do, and nothing is counted twice.
    assert erasure.erase(writer(one), one.places, WANTED, history=True) == Erased(0, 0, (), False, True)
    balanced(one)
    # The next start takes the table as it is, and a real loss in the same batch is still found.
    one.table = one.open()
    one.batch(order("d", mail="d", n=4))
    one.table.epoch.ledger.append()
    balanced(one)


@pytest.mark.slow
def test_a_condition_that_spark_cannot_read_is_refused_and_nothing_is_erased(desk: MakeDesk) -> None:
    """This process refuses first what it does not translate exactly; Spark then looks at it."""
    one = with_a_person(desk)
    for wrong in ("no_such_column = 1", "mail = ", "mail"):
        with pytest.raises(InvalidInput) as error:
            erasure.erase(writer(one), one.places, Erasure(wrong, None, NOWHERE), history=False)
        assert error.value.code == ("CONDITION_INVALID" if one.direct is None else "DIRECT_UNFIT")
    assert len(one.rows("id")) == 3


@pytest.mark.slow
def test_what_quality_checks_have_kept_of_rows_goes_too(desk: MakeDesk) -> None:
    one = with_a_person(desk)
    with_a_value = ("samples", "unexpected_values", "observed", "exception")
    plain: dict[str, object] = {"string": "x", "timestamp": datetime(2026, 1, 1, tzinfo=UTC), "boolean": True, "double": 1.0}
    rows = [
        tuple(
            PERSON if field.name == name else "[]" if field.name == "samples" else plain.get(field.dataType.typeName(), 1)
            for field in QUALITY_FIELDS
        )
        for name in with_a_value
    ]
    commits.append_quality(one.session, one.contract, one.places, rows)
    assert files_that_contain(one.places.quality, PERSON)
    assert erasure.erase(writer(one), one.places, WANTED, history=True).samples
    assert files_that_contain(one.places.root, PERSON) == []


@pytest.mark.slow
def test_an_erasure_is_refused_while_a_rebuilds_shadow_has_copies_of_the_rows(desk: MakeDesk) -> None:
    one = with_a_person(desk)
    write_deltalake(shadow_of(one.places).target, pa.table({"id": ["a"]}))
    with pytest.raises(Refused, match="SHADOW_EXISTS"):
        erasure.erase(writer(one), one.places, WANTED, history=False)
    assert len(one.rows("id")) == 3


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["erase_target", "erase_quarantine"])
def test_an_erasure_cut_off_balances_and_is_completed_by_repeating_it(desk: MakeDesk, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = with_a_person(desk)

    def at(reached: str, *_: object) -> None:
        if reached == point:
            raise Killed

    with monkeypatch.context() as killed, pytest.raises(Killed):
        killed.setattr("ingest.runtime.crash_points.at", at)
        erasure.erase(writer(one), one.places, WANTED, history=True)
    balanced(one)
    erasure.erase(writer(one), one.places, WANTED, history=True)
    assert one.rows("id") == [("b",)]
    assert balanced(one).endswith("inserted 3 - removed by retention or erasure 2")
    assert files_that_contain(one.places.root, PERSON) == []


def of(*ids: str) -> Erasure:
    """Rows and quarantined records with these ids."""
    listed = ", ".join(f"'{each}'" for each in ids)
    return Erasure(f"id IN ({listed})", f"event_id IN ({listed})", NOWHERE)


def with_rows_and_records(desk: MakeDesk) -> Desk:
    """One batch of four rows (a to d) and four quarantined records with the same ids."""
    one = desk({"n": "INT"})
    one.batch(*(order(id, n=1) for id in "abcd"), *(order(id, n="x") for id in "abcd"))
    one.table.epoch.ledger.append()
    return one


@pytest.mark.slow
@pytest.mark.parametrize("other", ["cd", "bd", "ac", "bc"], ids=["later", "same first", "earlier", "all"])
def test_of_two_overlapping_erasures_each_posts_what_it_has_removed_itself(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """No lock keeps another erasure away on an object store. Rows that both posted would excuse the loss of as many others."""
    one = with_rows_and_records(desk)
    begun: list[str] = []
    found = erasure._found

    def meanwhile(*given: Any) -> Any:
        rows = found(*given)
        if not begun:
            begun.append(other)
            assert erasure.erase(writer(one), one.places, of(*other), history=False) == Erased(2, 2, (), False, False)
        return rows

    monkeypatch.setattr(erasure, "_found", meanwhile)
    done = erasure.erase(writer(one), one.places, of("b", "c"), history=False)
    left = sorted({*"abcd"} - {*"bc", *other})
    assert (done.rows, done.records) == (2 - len({*"bc"} & {*other}), 2 - len({*"bc"} & {*other}))
    assert [id for (id,) in one.rows("id")] == [row["event_id"] for row in one.quarantine()] == left
    assert balanced(one).endswith(f"inserted 4 - removed by retention or erasure {4 - len(left)}")


@pytest.mark.slow
def test_rows_that_go_between_an_erasures_sums_and_its_commit_are_not_posted_twice(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark sums up before its MERGE, so what another erasure took meanwhile is posted back."""
    one = with_rows_and_records(desk)
    begun: list[str] = []
    unfenced = commits.unfenced

    def meanwhile(*given: Any) -> Any:
        if not begun:
            begun.append("bd")
            erasure.erase(writer(one), one.places, of("b", "d"), history=False)
        return unfenced(*given)

    monkeypatch.setattr(commits, "unfenced", meanwhile)
    done = erasure.erase(SparkWriter(one.session.newSession()), one.places, of("b", "c"), history=False)
    assert (done.rows, done.records, one.rows("id")) == (1, 1, [("a",)])
    assert balanced(one).endswith("inserted 4 - removed by retention or erasure 3")


@pytest.mark.slow
def test_after_an_erasure_a_loss_in_the_same_batch_is_still_found(desk: MakeDesk) -> None:
    one = with_a_person(desk)
    erasure.erase(writer(one), one.places, Erasure("id = 'b'", None, NOWHERE), history=False)
    balanced(one)
    rows = DeltaTable(one.places.target).to_pyarrow_table()
    write_deltalake(one.places.target, rows.filter(pc.not_equal(rows["id"], "a")), mode="overwrite")
    assert [each.code for each in verify(DataFusion(), one.contract, one.places).findings] == ["ROWS_DIFFER"]


@pytest.mark.slow
def test_a_condition_finds_the_rows_that_spark_finds(desk: MakeDesk) -> None:
    """Also in bytes that are no text."""
    one = desk({"mail": "STRING", "n": "INT", "s": "STRUCT<x: INT>"}, rules=[{"name": "small", "check": "n < 100"}])
    mails = (PERSON, "b", None, PERSON.upper())
    rows = (order(f"i{at}", mail=mail, n=at, s={"x": at}) for at, mail in enumerate(mails))
    one.batch(*rows, b"\xff" + PERSON.encode(), "{", order("y", n=100))
    one.batch(order("c", mail=f"{PERSON} ", n=None))
    conditions = (
        (f"mail = '{PERSON}'", f"text LIKE '%{PERSON}%'"),
        (f"lower(mail) = '{PERSON}'", "reason_code = 'broken_rule' AND `offset` > 2"),
        ("mail LIKE '%ada%'", "event_id = 'y'"),
        ("mail IS NULL OR n > 1", "state <> 'open'"),
        ("s.x IN (1, 2)", "length(text) < 5"),
        ("true", "NOT contains(text, 'ada')"),
    )
    for where, quarantine_where in conditions:
        wanted = Erasure(where, quarantine_where, kafka_from(1))
        expected = erasure.look(SparkWriter(one.session), one.places, wanted)
        assert erasure.look(DirectWriter(), one.places, wanted) == expected, (where, quarantine_where)
