"""What stands at a record's own position stays there: after a crash between the two commits, and after a rebase (I3, I4, I7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ingest import faults
from ingest.delta_sql import DataFusion
from ingest.errors import RunStopped
from ingest.kafka_options import KafkaOptions
from ingest.prove.against_kafka import against_kafka
from ingest.prove.verify import verify
from ingest.stream.topic import describe
from tests.integration.desk import Desk
from tests.integration.lane import Lane, Record, order
from tests.integration.records import contract

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
MakeLane = Callable[..., Lane]
FIGURES = ("records_read", "inserted", "duplicate", "quarantined", "replayed")


@pytest.mark.slow
@pytest.mark.parametrize("conflicts", ["batch", "table"])
def test_after_a_rebase_to_the_earliest_the_copy_that_is_the_row_keeps_its_place(lane: MakeLane, conflicts: str) -> None:
    """The row came from partition 1; in the new batch a copy in partition 0 has the lesser position."""
    one = lane({"n": "INT"}, partitions=2, conflicts=conflicts)
    one.send(Record(order("other", n=1), 1), Record(order("same", n=1), 1))
    one.run()
    one.send(Record(order("other", n=2), 0), Record(order("same", n=1), 0), Record("{", 0))
    one.run()
    before = sorted(one.target().collect())
    one.rebase("earliest")
    (report,) = one.run()
    assert sorted(one.target().collect()) == before
    quarantined = [(row["partition"], row["offset"]) for row in one.quarantine().orderBy("partition", "offset").collect()]
    assert quarantined == [(0, 0), (0, 2)], "the other payload and the poison, not the row"
    # With conflicts: table the other payload stands in quarantine since it was read first.
    new, again = (1, 3) if conflicts == "batch" else (0, 4)
    assert (report.records_read, report.inserted, report.duplicate, report.quarantined, report.replayed) == (5, 0, 1, new, again)
    assert one.verified().findings == ()


@pytest.mark.slow
def test_a_row_that_a_newer_rule_would_refuse_stays_a_row_when_it_is_read_again(lane: MakeLane) -> None:
    one = lane({"n": "INT"})
    one.send(order("a", n=1), order("b", n=5))
    one.run()
    one.contract = contract({"n": "INT"}, topic=one.contract.source.topic, rules=[{"name": "small", "check": "n < 3"}])
    one.rebase("earliest")
    one.send(order("c", n=7), order("b", n=2))
    (report,) = one.run()
    assert (report.inserted, report.duplicate, report.quarantined, report.replayed) == (0, 1, 1, 2)
    assert one.ids() == ["a", "b"] and [row["offset"] for row in one.quarantine().collect()] == [2]
    assert one.verified().findings == ()


@pytest.mark.slow
def test_a_copy_that_conflicted_stays_in_quarantine_when_it_is_read_again_without_the_other(lane: MakeLane) -> None:
    """After the rebase the batches are so small that the conflicting copy meets nobody, and the row was deleted."""
    one = lane({"n": "INT"})
    one.send(order("a", n=1), order("a", n=2))
    one.run()
    one.sql("DELETE FROM {} WHERE id = 'a'")
    one.rebase("offsets", {0: 1})
    (report,) = one.run()
    assert (report.inserted, report.replayed) == (0, 1)
    assert one.ids() == [] and one.quarantine().count() == 1
    assert one.verified().findings == ()


def cut_off(desk: Desk, monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """A batch whose driver dies between the commit of the quarantine and that of the target."""
    monkeypatch.setattr(faults, "_armed", faults.Fault("after_quarantine", "raise", desk.number))
    with pytest.raises(faults.InjectedFault):
        desk.process(desk.frame(*values))
    monkeypatch.setattr(faults, "_armed", None)
    desk.table = desk.open()


def figures(desk: Desk, batch: int) -> tuple[int, ...]:
    (row,) = [row for row in desk.ledger() if row["batch_id"] == batch]
    return tuple(row[name] for name in FIGURES)


def findings(desk: Desk) -> list[str]:
    return [str(each) for each in verify(DataFusion(), desk.contract, desk.places).findings]


@pytest.mark.slow
@pytest.mark.parametrize("poison", [pytest.param((), id="alone"), pytest.param(("{",), id="beside poison")])
@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("DELETE FROM delta.`{}` WHERE id = 'a'", id="deleted"),
        pytest.param("UPDATE delta.`{}` SET n = 2, _payload_hash = NULL WHERE id = 'a'", id="changed"),
    ],
)
def test_cut_off_after_the_quarantine_a_conflict_stays_one_though_its_row_is_gone(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, statement: str, poison: tuple[str, ...]
) -> None:
    """I7: the quarantine's commit of the batch has decided; the same record must not become a row as well."""
    one = desk({"n": "INT"}, conflicts="table")
    one.batch(order("a", n=1))
    start = one.ends[0]
    values = (order("a", n=2), order("b", n=1), *poison)
    cut_off(one, monkeypatch, *values)
    one.session.sql(statement.format(one.places.target))
    one.ends[0] = start
    report = one.again(one.frame(*values))
    assert (report.inserted, report.quarantined) == (1, 1 + len(poison))
    assert figures(one, 1) == (len(values), 1, 0, 1 + len(poison), 0)
    assert len(one.quarantine()) == 1 + len(poison)
    assert "b" in [name for (name,) in one.rows("id")] and ("a", 1) not in one.rows("id", "n")
    assert findings(one) == []


@pytest.mark.slow
def test_cut_off_after_the_quarantine_and_the_broker_upgraded_the_batch_is_ended_under_the_topic_id_it_was_begun_with(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of before Kafka 2.8 tells no id: under the one that it tells now nothing would stand there (QUARANTINE_REWOUND)."""
    one = desk({"n": "INT"})
    ours = one.table.topic
    one.table = replace(one.table, topic=replace(ours, id=""))
    monkeypatch.setattr(faults, "_armed", faults.Fault("after_quarantine", "raise", 0))
    with pytest.raises(faults.InjectedFault):
        one.process(one.frame(order("a", n=1), "{"))
    monkeypatch.setattr(faults, "_armed", None)
    one.table = one.open()
    assert one.table.topic == ours
    one.ends[0] = 0
    report = one.again(one.frame(order("a", n=1), "{"))
    assert (report.inserted, report.quarantined) == (1, 1)
    report = one.batch(order("b", n=1), "{")
    assert (report.inserted, report.quarantined) == (1, 1)
    assert [row["topic_id"] for row in one.quarantine()] == ["", ours.id]
    assert findings(one) == []


@pytest.mark.slow
def test_cut_off_after_the_quarantine_a_row_that_came_since_makes_no_conflict_that_would_be_lost(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta would skip a second MERGE of the quarantine: who conflicts only now counts as a duplicate, like everybody's."""
    one = desk({"n": "INT"}, conflicts="table")
    one.batch(order("x", n=1))
    start = one.ends[0]
    values = ("{", order("a", n=2))
    cut_off(one, monkeypatch, *values)
    one.session.sql(f"UPDATE delta.`{one.places.target}` SET id = 'a', _payload_hash = 77")
    one.ends[0] = start
    one.again(one.frame(*values))
    assert figures(one, 1) == (2, 0, 1, 1, 0)
    assert findings(one) == []


@pytest.mark.slow
def test_a_record_that_kafka_compacted_after_it_was_quarantined_still_counts(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a copy that conflicted with one that is gone now does not become the row beside its place in quarantine."""
    one = desk({"n": "INT"})
    values = (order("a", n=1), order("a", n=2), "{", order("b", n=1))
    cut_off(one, monkeypatch, *values)
    one.ends[0] = 0
    again = one.frame(*values).where("offset NOT IN (0, 2)")
    report = one.again(again)
    assert (report.records_read, report.inserted, report.quarantined) == (3, 1, 2)
    assert figures(one, 0) == (3, 1, 0, 2, 0)
    assert one.rows("id") == [("b",)] and findings(one) == []


@pytest.mark.slow
def test_a_conflict_of_a_batch_that_was_cut_off_for_good_stays_one_when_another_checkpoint_reads_it_alone(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither target nor ledger tell of that batch, only its quarantine; in the next one the copy meets nobody."""
    one = lane({"n": "INT"}, partitions=2)
    one.send(*(order(f"other{number}", n=1) for number in range(3)), order("a", n=1), Record(order("a", n=2), 1))
    one.arm(monkeypatch, "after_quarantine:raise@0")
    one.stopped()
    monkeypatch.delenv("INGEST_FAULT")
    assert one.quarantine().count() == 1
    one.lose_checkpoint()
    first, *_ = one.run(max_records=2)  # one of each partition: the copy that conflicted comes long before the other
    assert (first.records_read, first.inserted, first.replayed) == (2, 1, 1)
    assert {row["id"]: row["n"] for row in one.target().collect()}["a"] == 1 and one.quarantine().count() == 1
    assert one.verified().findings == ()
    kafka = KafkaOptions(one.bootstrap_servers)
    topic = describe(kafka, one.contract.source.topic)
    again = against_kafka(DataFusion(), lambda: one.session, one.contract, one.places, kafka, topic, one.verified().rows)
    assert again.findings == ()


@pytest.mark.slow
def test_a_batch_whose_quarantine_lost_its_records_before_the_target_is_refused_and_a_rebase_ends_it(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: Delta would skip their MERGE, and they would be in neither table."""
    one = lane()
    one.send(order("a"), "{")
    one.arm(monkeypatch, "after_quarantine:raise@0")
    one.stopped()
    monkeypatch.delenv("INGEST_FAULT")
    one.sql("DELETE FROM {}", "quarantine")
    error = one.stopped()
    assert isinstance(error, RunStopped) and error.code == "QUARANTINE_REWOUND"
    assert f"ingest rebase {one.places.name} --to table" in error.remedy and one.ids() == []
    one.rebase("table")
    one.run()
    assert one.ids() == ["a"] and one.quarantine().count() == 1
    assert one.verified().findings == ()
