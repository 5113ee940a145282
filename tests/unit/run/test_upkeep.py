"""The upkeep of a table: through Spark between two batches, by the direct writer beside them. It never ends the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic
from ingest.run import table_lock, table_query
from ingest.run.table_lock import HeldLock
from ingest.run.table_query import TableQuery
from ingest.runtime.places import Places
from tests.polling import until

pytestmark = pytest.mark.unit
When = Literal["beside", "between"]


class Fake:
    """An upkeep that is due until it was tended."""

    def __init__(self, error: Exception | None = None, gate: threading.Event | None = None, when: When = "between") -> None:
        self.tended, self.open, self.error, self.gate, self.when = 0, True, error, gate, when
        self.sessions: list[Any] = []

    def due(self, places: Places, *, direct: bool) -> When | None:
        return self.when if self.open else None

    def tend(self, session: Any, places: Places, stop: Callable[[], bool]) -> list[str]:
        self.tended += 1
        self.sessions.append(session)
        if self.gate is not None:
            assert self.gate.wait(30)
        self.open = False
        if self.error is not None:
            raise self.error
        return ["maintained"]


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Fake], Any]:
    """A query whose batches do nothing, and whose session is none."""
    monkeypatch.setattr(table_query, "with_source", lambda records, _: records)
    monkeypatch.setattr(table_query, "process_direct", lambda *_: "report")

    def make(upkeep: Fake) -> Any:
        document = {"pipeline": "t", "table": "events", "source": {"topic": "t", "format": "raw"}, "event_id": "position"}
        places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "t", "events")
        kafka = KafkaOptions("127.0.0.1:1")
        made: Any = TableQuery(Contract.model_validate(document), places, kafka, [Topic("t", "", (0,))], lambda _: None, upkeep)
        made._session = SimpleNamespace(newSession=lambda: None)
        made._table = SimpleNamespace(epoch=SimpleNamespace(topics={0: "t"}, finish=lambda *_: None))
        made._query = SimpleNamespace(isActive=True, stop=lambda: None, exception=lambda: None)
        return made

    return make


def test_a_batch_is_followed_by_the_upkeep_that_is_due(query: Callable[[Fake], Any]) -> None:
    one = query(upkeep := Fake())
    one._batch(None, 0)
    one._batch(None, 1)
    assert (upkeep.tended, one.maintained, one.error) == (1, ["maintained"], None)


def test_a_failing_upkeep_is_a_note_and_the_batch_counts(query: Callable[[Fake], Any]) -> None:
    one = query(Fake(OSError("no space\nleft")))
    one._batch(None, 0)
    assert one.error is None and one.maintained == ["t.events: maintenance failed: OSError: no space"]


@pytest.fixture
def lock(tmp_path: Path) -> HeldLock:
    path = tmp_path / "lock"
    path.write_text('{"host": "h", "jvm_pid": 1, "python_pid": 2, "token": "a"}')
    return HeldLock(path, 1, SimpleNamespace(close=lambda: None), "a")


@pytest.mark.parametrize("idle", [False, True])
def test_a_run_that_has_lost_its_lock_maintains_nothing_and_ends_without_writing_its_ledger(
    query: Callable[[Fake], Any], lock: HeldLock, idle: bool
) -> None:
    """The note `maintenance failed` once was all: the run went on, and its end still merged the ledger."""
    one = query(upkeep := Fake())
    appended: list[Any] = []
    one._table.epoch.finish = appended.append
    one._lock = lock
    lock.path.unlink()
    if idle:
        assert not one.poll()
        until(lambda: one.error is not None, "the upkeep has noticed", 30)
    else:
        one._batch(None, 0)
    assert one.poll() and one.reopen() is None, "the run has ended"
    failure = one.finish()
    assert failure is not None and failure.code == "LOCK_LOST"
    assert upkeep.tended == 0 and one.maintained == [] and appended == []


def test_a_lock_that_is_lost_during_the_upkeep_ends_it_before_its_next_step(query: Callable[[Fake], Any], lock: HeldLock) -> None:
    stops = []

    class Losing(Fake):
        def tend(self, session: Any, places: Places, stop: Callable[[], bool]) -> list[str]:
            stops.append(stop())
            lock.path.unlink()
            stops.append(stop())
            return []

    one = query(Losing())
    one._lock = lock
    one._batch(None, 0)
    assert stops == [False, True] and one.error.code == "LOCK_LOST"


def test_a_run_that_has_lost_its_lock_opens_no_other_epoch(query: Callable[[Fake], Any], lock: HeldLock) -> None:
    one = query(Fake())
    one._lock, one.error = lock, OSError("an executor is gone")
    lock.path.unlink()
    assert one.reopen() is None and one.finish().code == "LOCK_LOST"


def test_an_idle_table_is_maintained_and_a_batch_waits_for_the_end(query: Callable[[Fake], Any]) -> None:
    gate = threading.Event()
    one = query(upkeep := Fake(gate=gate))
    assert not one.poll()
    until(lambda: upkeep.tended == 1, "the upkeep has begun", 30)
    assert not one.poll() and upkeep.tended == 1, "it is begun once"
    batch = threading.Thread(target=one._batch, args=(None, 0))
    batch.start()
    batch.join(0.2)
    assert batch.is_alive(), "no batch runs beside it"
    gate.set()
    batch.join(30)
    assert not batch.is_alive() and one.error is None
    assert upkeep.tended == 1


def test_no_upkeep_begins_beside_a_batch_or_after_a_stop_was_requested(query: Callable[[Fake], Any]) -> None:
    one = query(upkeep := Fake())
    with one._turn:
        assert not one.poll()
    one.ask_to_stop()
    one.poll()
    one._ahead.shutdown()
    assert upkeep.tended == 0


def test_what_the_direct_writer_does_runs_beside_a_batch(query: Callable[[Fake], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one = query(upkeep := Fake(gate=(gate := threading.Event()), when="beside"))
    assert not one.poll()
    until(lambda: upkeep.tended == 1, "the upkeep has begun", 30)
    one._batch(None, 0)
    assert not one.poll() and upkeep.tended == 1 and upkeep.open, "a batch was done meanwhile, and the upkeep is begun once"
    gate.set()
    assert one.finish() is None and upkeep.sessions == [None] and one.maintained == ["maintained"]


def test_a_failure_beside_the_batches_is_a_note(query: Callable[[Fake], Any]) -> None:
    one = query(Fake(OSError("no space"), when="beside"))
    assert not one.poll()
    until(lambda: one.maintained, "the upkeep has failed", 30)
    one._batch(None, 0)
    assert one.finish() is None and one.maintained == ["t.events: maintenance failed: OSError: no space"]


def test_the_end_of_a_run_waits_for_the_step_in_progress_and_lets_no_other_begin(query: Callable[[Fake], Any]) -> None:
    class Stepwise(Fake):
        def tend(self, session: Any, places: Places, stop: Callable[[], bool]) -> list[str]:
            self.tended += 1
            until(stop, "the run ends", 30)
            return []

    one = query(upkeep := Stepwise(when="beside"))
    assert not one.poll()
    until(lambda: upkeep.tended == 1, "the upkeep has begun", 30)
    assert one.finish() is None and upkeep.tended == 1


def test_a_run_with_once_does_what_is_due_although_its_batches_ended_before_anybody_looked(query: Callable[[Fake], Any]) -> None:
    one = query(upkeep := Fake(when="beside"))
    one._once = True
    assert one.finish() is None and upkeep.tended == 1


def test_an_upkeep_through_spark_that_cannot_be_alone_with_the_table_is_a_note(
    query: Callable[[Fake], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A maintenance of another process commits beside the run: the batch counts, and the run goes on to commit."""
    one = query(upkeep := Fake())
    one._lock = table_lock.hold_table(None, one.places, direct=True)
    monkeypatch.setenv("INGEST_LOCK_WAIT_S", "0")
    monkeypatch.setattr(table_query, "another", lambda _: None)
    one._commit_by = lambda session, real=one._lock.let_commit: real(None, shared=one.alone.pop())
    for beside in (True, False):
        one.alone = [True, False]
        with table_lock.beside_a_run(one.places) if beside else nullcontext():
            one._batch(None, 0)
        assert upkeep.tended == (0 if beside else 1) and one.error is None
    assert "LOCKED" in one.maintained[0]
    with table_lock.beside_a_run(one.places):
        assert one.finish() is None
