"""A rebuild: a shadow from Kafka and from what the old tables alone hold, swapped in by one commit that later starts and verify know."""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from ingest.delta.direct_writer import DirectWriter
from ingest.delta.table_writer import SparkWriter
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe, topic_state
from ingest.kafka.topic_state import TopicState
from ingest.repair import shadow as shadows
from ingest.repair.swap import Swapped, refuse_swapped, swap
from ingest.run import table_lock
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput, Refused
from tests.integration.lane import Lane, order
from tests.integration.test_commands import ended, typed

pytestmark = pytest.mark.integration
MakeLane = Callable[..., Lane]


def ask(one: Lane) -> TopicState:
    kafka = KafkaOptions(one.bootstrap_servers)
    return topic_state(kafka, describe(kafka, one.contract.source.topic), one.contract.source.isolation_level)


def shadow(one: Lane) -> Lane:
    """The shadow as a lane of its own."""
    other = copy.copy(one)
    other.places = shadows.shadow_of(one.places)
    return other


def fill(one: Lane) -> shadows.Carried:
    with table_lock.holding(one.session, shadows.shadow_of(one.places)):
        carried = shadows.begin(one.session, one.contract, one.places, lambda: (ask(one),))
    shadow(one).run()
    return carried


def swap_in(one: Lane, *, accept_loss: bool = False) -> Swapped:
    with table_lock.holding(one.session, one.places), table_lock.holding(one.session, shadows.shadow_of(one.places)):
        writer = DirectWriter(one.contract) if one.direct else SparkWriter(one.session)
        return swap(writer, one.contract, one.places, lambda: (ask(one),), accept_loss=accept_loss)


def add(one: Lane, id: str) -> None:
    """Somebody adds a copy of row a under this id."""
    row = one.target().where("id = 'a'").withColumn("id", F.lit(id))
    row.write.format("delta").mode("append").save(one.places.target)


def damaged(lane: MakeLane) -> Lane:
    """A table with a row that Kafka has expired, its doubled copy, an expired quarantined record, and a lost row."""
    one = lane()
    one.send(order("a"), "{", order("b"))
    one.run()
    add(one, "a")
    one.expire(2)
    one.send(order("c"), order("d"))
    one.run()
    one.sql("DELETE FROM {} WHERE id = 'c'")
    return one


def test_a_rebuild_takes_over_what_kafka_has_expired_and_reads_the_rest_again(lane: MakeLane) -> None:
    one = damaged(lane)
    assert fill(one) == shadows.Carried(1, 1, 1, {"0": 2})
    other = shadow(one)
    assert other.ids() == ["a", "b", "c", "d"]
    assert [(row["offset"], row["state"]) for row in other.quarantine().collect()] == [(1, "open")]
    other.balanced()
    assert one.ids() == ["a", "a", "b", "d"], "the table itself is unchanged"

    done = swap_in(one)
    assert (done.rows_before, done.rows_after, done.lost) == (4, 4, 0)
    assert any("ROW_TWICE" in each for each in done.findings_before), done.findings_before
    assert one.ids() == ["a", "b", "c", "d"]
    one.balanced()
    assert one.verified().total.offsets == 3, "only the rebuild's epochs count"
    one.send(order("e"), order("a"))
    (report,) = one.run()
    assert (report.inserted, report.duplicate) == (1, 1)
    one.balanced()


@pytest.mark.slow
def test_the_table_may_read_on_until_the_swap_and_a_shadow_behind_it_is_refused(lane: MakeLane) -> None:
    one = lane()
    one.send(order("a"))
    one.run()
    with pytest.raises(InvalidInput, match="no complete shadow"):
        swap_in(one)
    fill(one)
    one.send(order("b"))
    one.run()
    with pytest.raises(Refused) as error:
        swap_in(one)
    assert error.value.code == "SHADOW_BEHIND"
    shadow(one).run()
    done = swap_in(one)
    assert one.ids() == ["a", "b"]
    one.balanced()
    one.sql("RESTORE TABLE {} TO VERSION AS OF " + str(done.version_before))
    one.refused("TABLE_REWOUND")


@pytest.mark.slow
def test_a_swap_drops_no_row_that_the_shadow_lacks_unless_told(lane: MakeLane) -> None:
    one = lane()
    one.send(order("a"), order("b"))
    one.run()
    add(one, "x")
    fill(one)
    with pytest.raises(Refused) as error:
        swap_in(one)
    assert error.value.code == "SHADOW_LACKS" and "such as those at 0:0 " in error.value.found
    assert one.ids() == ["a", "b", "x"]
    done = swap_in(one, accept_loss=True)
    assert (done.lost, one.ids()) == (1, ["a", "b"])
    one.balanced()


@pytest.mark.slow
def test_a_swap_after_a_batch_that_was_cut_off(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start that rolls the batch back writes to the quarantine. The swap's own overwrite of it must still happen."""
    one = lane()
    one.send(order("a"))
    one.run()
    one.send("{", order("b"))
    one.arm(monkeypatch, "after_quarantine:raise@2")
    with monkeypatch.context() as patch:
        patch.setattr("ingest.run.table_query.REOPENED_MAX", 0)
        one.stopped()
    monkeypatch.delenv("INGEST_FAULT")
    fill(one)
    swap_in(one)
    assert one.ids() == ["a", "b"]
    assert [row["offset"] for row in one.quarantine().collect()] == [1]
    one.balanced()


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["direct", "spark"])
@pytest.mark.parametrize("point", ["swap_quarantine", "swap_target", "swap_ledger"])
def test_a_swap_that_is_killed_is_completed_by_the_same_command(lane: MakeLane, point: str, writer: str) -> None:
    one = damaged(lane)
    one.direct = writer == "direct"
    fill(one)
    (Path(one.places.lake) / crash_points.SCRATCH).touch()
    killed = ended(one, "rebuild", "events", "--swap", more={"INGEST_WRITER": writer, "INGEST_FAULT": f"{point}:kill@0"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    table_lock.wait_for(one.places)  # the JVM may still be ending
    if point == "swap_quarantine":  # between the two overwrites the tables do not fit together
        assert "--swap` completes it" in one.refused("QUARANTINE_REWOUND").remedy
    else:
        with pytest.raises(Refused, match="completes it"):
            refuse_swapped(None, one.places)
    code, document = typed(one, "rebuild", "events", "--swap", more={"INGEST_WRITER": writer})
    assert (code, document["error"]) == (0, None)
    assert one.ids() == ["a", "b", "c", "d"]
    one.balanced()
    one.send(order("e"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d", "e"]
    one.balanced()
