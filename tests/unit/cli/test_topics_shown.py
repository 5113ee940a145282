"""Where a table reads several topics, what a command says of a partition names its topic; with one topic it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.cli import verify
from ingest.cli.seek import _do, plan_row, print_plan
from ingest.delivery.trace.lake_trail import lake_trail
from ingest.delta.delta_log import Logs
from ingest.delta.direct_writer import DirectWriter
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.observe.table_status import status
from ingest.recovery.numbering import Numbered
from ingest.recovery.seek_offsets import Aim, Seeking, SeekPlan
from ingest.recovery.state_reader import read_start_state
from ingest.repair import erasure
from ingest.repair.direct_replay import tried
from ingest.repair.quarantine_replay import replay_quarantine
from ingest.repair.selection import Selection
from tests.unit.batch.batch_model import Shape
from tests.unit.batch.local_desk import PLACES, SECOND, LocalDesk, Record
from tests.unit.verify.proof_lake import Lake

pytestmark = pytest.mark.unit


def event(place: int, offset: int, n: int = 0) -> Record:
    return Record(place, offset, json.dumps({"id": 10 * offset + place, "shop": "a", "n": n}).encode())


def ask(end: int = 10, *, only: int | None = None) -> tuple[TopicState, ...]:
    """The desk's topics, or only the one with this number."""
    names = {number: name for number, name in enumerate(("t", SECOND)) if only in (None, number)}
    return tuple(TopicState(TopicId(name, f"{name}-id"), {p: (0, end) for of, p in PLACES if of == at}) for at, name in names.items())


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    """Rows at offsets 0 to 4 of each partition, and at 5 a record that breaks a rule."""
    found = LocalDesk(Shape().contract(), tmp_path)
    found.process([[event(place, offset, -(offset == 5)) for place in range(len(PLACES)) for offset in range(6)]])
    found.table.epoch.finish()
    return found


def test_a_status_says_where_each_topic_goes_on_and_one_lag(desk: LocalDesk) -> None:
    seen = status(desk.contract, desk.places, ask(), None)
    assert (seen.next, seen.lag) == (f"continue at t/0:6 t/1:6 {SECOND}/0:6", 12)
    silent = status(desk.contract, desk.places, {"code": "BROKER_UNREACHABLE", "found": "no answer."}, None)
    assert (silent.next, silent.lag) == (seen.next, None)


def test_a_seek_names_the_topic_of_what_it_leaves_out(desk: LocalDesk, capsys: pytest.CaptureFixture[str]) -> None:
    aim = Aim("offsets", (((SECOND, 0), 8), (("t", 1), 2)))
    seeking = Seeking(aim, accept_gap=True, reason="a test")
    planned, *_ = _do(desk.contract, desk.places, ask, "local", seeking, dry_run=True)
    print_plan("t.events", planned)
    assert capsys.readouterr().out.splitlines() == [
        f"t.events: LEFT OUT: partition 0 of topic {SECOND} [6, 8), 2 offsets that no complete batch has read",
        "t.events: 4 offsets are re-read. No event id is added twice;",
        "  rows that were deleted on purpose can come back",
        f"t.events: begins at t/0:6 t/1:2 {SECOND}/0:8",
    ]
    starts = [["t", 0, 6], ["t", 1, 2], [SECOND, 0, 8]]
    assert plan_row(planned) == {"starts": starts, "gaps": [[SECOND, 0, 6, 8]], "read_again": [["t", 1, 2, 6]]}


def test_a_seek_of_the_only_topic_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Its number is 1: the topic was recreated."""
    former, now = TopicId("t", "former"), TopicId("t", "now")
    gaps, topics = (OffsetRange(3, 0, 2, source=1),), Numbered((former, now), {1: TopicState(now, {3: (0, 9)})})
    planned = SeekPlan({(1, 3): 2}, gaps, (), topics)
    print_plan("t.events", planned)
    first, last = capsys.readouterr().out.splitlines()
    assert (first[:39], last) == ("t.events: LEFT OUT: partition 3 [0, 2),", "t.events: begins at 3:2")
    assert plan_row(planned) == {"starts": [[3, 2]], "gaps": [[3, 0, 2]], "read_again": []}


def test_a_balance_names_the_topic_of_what_a_seek_left_out(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.batch(0, 10, range(10))
    lake.seek(12, gaps=[(10, 12)])
    verify.print_balance(seen := lake.verified())
    assert "  left out                 2 offsets of partition 0 [10, 12): accepted by a seek\n" in capsys.readouterr().out
    assert verify.as_row(seen)["gaps_accepted"] == [[0, 10, 12]]
    lake.topic = TopicId("b", "other")
    lake.batch(0, 3, ())
    verify.print_balance(seen := lake.verified())
    assert "  left out                 2 offsets of partition 0 of topic orders [10, 12): accepted by a seek\n" in capsys.readouterr().out
    assert verify.as_row(seen)["gaps_accepted"] == [["orders", 0, 10, 12]]


def test_a_trace_finds_the_topic_of_a_row(desk: LocalDesk) -> None:
    (row,) = lake_trail(desk.contract, desk.places, "42")
    assert row.summary.startswith(f"row from {SECOND}[0]@4, batch 1/2, commit version ")
    (record,) = lake_trail(desk.contract, desk.places, "51")
    assert (record.place, record.summary.partition(",")[0]) == ("quarantine", "t[1]@5")


def test_an_erasure_counts_what_each_topic_still_has(desk: LocalDesk) -> None:
    writer, broker = DirectWriter(desk.contract), lambda: (*ask(only=0), *(replace(each, bounds={0: (3, 10)}) for each in ask(only=1)))
    topics = read_start_state(None, desk.places, Logs.of(desk.places), broker).topics
    found = erasure.look(writer, desk.places, erasure.Erasure("id > 20 AND id < 50", "text LIKE '%-1%'", topics))
    assert (found.rows, found.records) == (8, 3)
    assert found.in_kafka == (erasure.InKafka("t", 0, 3, 5), erasure.InKafka("t", 1, 4, 5), erasure.InKafka(SECOND, 0, 3, 5))
    assert erasure.look(writer, desk.places, erasure.Erasure("true", None, None)).in_kafka == ()


def test_a_replay_adds_the_records_of_each_topic_under_its_number(desk: LocalDesk) -> None:
    """I3, I4. Those of a topic that the contract does not read now stay."""
    relaxed = Shape(least=-1).contract()
    left = tried(relaxed, desk.places, lambda: ask(only=1), Selection())
    assert (left.inserted, left.elsewhere) == (1, 2)
    done = replay_quarantine(DirectWriter(relaxed), relaxed, desk.places, ask, Selection())
    assert (done.selected, done.inserted, done.elsewhere) == (3, 3, 0)
    assert sorted((row["_partition"], row["_offset"]) for row in desk.rows() if row["n"] == -1) == [(0, 5), (1, 5), (2, 5)]
    assert {row["state"] for row in desk.quarantine()} == {"replayed"} and desk.findings() == []
