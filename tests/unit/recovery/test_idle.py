"""`run --once` opens no epoch if there is nothing to read and nothing left to finish (I8)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.delta import contract_change
from ingest.delta.delta_sql import Unreadable
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic
from ingest.kafka.topic_state import TopicState
from ingest.recovery.idle import Waiting, waiting
from ingest.recovery.refusals import ledger_unreadable
from ingest.run.application import MANY, Application, Interrupted
from ingest.run.display import Display
from ingest.run.table_query import Trigger
from ingest.runtime.errors import IngestError, Refused
from tests.unit.recovery.engine_scene import Scene, one_batch
from tests.unit.verify.proof_lake import CONTRACT, TOPIC


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(contract_change, "changes", lambda *_: [])  # the scene's tables have fewer columns than a contract requires
    return one_batch(tmp_path)


def is_idle(scene: Scene, first: int = 0, end: int = 10, decided: int | None = None, **more: tuple[int, int]) -> bool:
    return offsets(scene, first, end, decided, **more) == 0


def offsets(scene: Scene, first: int = 0, end: int = 10, decided: int | None = None, **more: tuple[int, int]) -> int:
    bounds = {0: (first, end), **{int(name[1:]): bound for name, bound in more.items()}}
    found = waiting(CONTRACT, scene.places, lambda: (TopicState(TOPIC, bounds, {0: decided} if decided is not None else {}),))
    return found.offsets or int(found.epoch)


def test_a_table_is_idle_until_one_offset_more_can_be_read(scene: Scene) -> None:
    assert is_idle(scene) and is_idle(scene, first=10) and is_idle(scene, end=12, decided=10) and is_idle(scene, p1=(0, 0))
    assert offsets(scene, end=13) == 3 and offsets(scene, end=12, decided=11) == 1 and offsets(scene, p1=(0, 1)) == 1


def re_read(scene: Scene, rows: tuple[int, ...]) -> None:
    """A seek has re-read offset 8."""
    scene.seek(8)
    scene.batch(8, 10, rows)
    scene.keep()


def cut_off(scene: Scene) -> None:
    scene.start()
    scene.cut_off(10, 20, (10,))


def seek_without_batch(scene: Scene) -> None:
    scene.seek(4)
    scene.keep()


def open_batch(scene: Scene) -> None:
    scene.batch(10, 10, (), opened=True)
    scene.keep()


UNFINISHED: dict[str, Callable[[Scene], object]] = {
    "an uncommitted batch": cut_off,
    "the ledger lacks a batch": lambda scene: scene.ledger.delete("batch = 2"),
    "the ledger lacks a removal": lambda scene: scene.retire(8),
    "a batch that does not say what it inserted": open_batch,
    "no ledger": lambda scene: shutil.rmtree(scene.places.ledger),
    "a quarantined record that became a row, with a fence after it": lambda scene: re_read(scene, (8,)),
    "a seek whose offsets were not re-read yet": seek_without_batch,
}


@pytest.mark.parametrize("unfinished", UNFINISHED)
def test_unfinished_work_opens_an_epoch(scene: Scene, unfinished: str) -> None:
    UNFINISHED[unfinished](scene)
    assert not is_idle(scene)


def test_a_table_is_idle_after_fences_and_seeks_that_leave_nothing_to_do(scene: Scene) -> None:
    scene.start()
    assert is_idle(scene)
    re_read(scene, ())
    assert is_idle(scene)
    scene.seek(10)
    scene.keep()
    assert is_idle(scene)


def test_a_first_start_is_never_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first start must store its offsets, even for an empty topic."""
    monkeypatch.setattr(contract_change, "changes", lambda *_: [])
    scene = Scene(tmp_path)
    assert offsets(scene, end=0) == 1 and offsets(scene, first=4) == 6
    shutil.rmtree(scene.places.root)
    assert offsets(scene, end=0) == 1 and offsets(scene, first=4) == 6


def test_a_start_that_would_be_refused_is_refused_before_spark_starts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6"""
    with pytest.raises(Refused, match="BROKER_BEHIND"):
        is_idle(scene, end=9)

    def changed(*_: object) -> None:
        raise Refused("CONTRACT_CHANGED", "x", expected="y", remedy="z")

    monkeypatch.setattr(contract_change, "refuse", changed)
    with pytest.raises(Refused, match="CONTRACT_CHANGED"):
        is_idle(scene)


LEDGER = ledger_unreadable("shop.orders", "/ledger", "typeWidening")


@pytest.mark.parametrize(("checkpoints", "error"), [("s3://bucket/checkpoints", LEDGER), ("", Unreadable("typeWidening")), ("", LEDGER)])
def test_state_that_only_spark_can_read_is_left_to_the_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, checkpoints: str, error: IngestError
) -> None:
    """The checkpoints are in an object store, or deltalake lacks a Delta feature of the table."""

    def unreadable(*_: object) -> int:
        raise error

    monkeypatch.setattr("ingest.run.application.waiting", unreadable)
    run = Application(
        (CONTRACT,), scene.places.lake, checkpoints or scene.places.checkpoints, KafkaOptions("127.0.0.1:1"), "", Trigger(once=True)
    )
    assert run._waiting(CONTRACT, scene.places, [Topic("t", "", (0,))]) is None


def test_any_other_refusal_ends_the_run_before_spark_starts(scene: Scene) -> None:
    run = Application((CONTRACT,), scene.places.lake, scene.places.checkpoints, KafkaOptions("127.0.0.1:1"), "", Trigger(once=True))
    (Path(scene.places.target) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(Refused, match="LOG_TORN"):
        run._waiting(CONTRACT, scene.places, [Topic("t", "", (0,))])


@pytest.mark.parametrize(("once", "number", "short"), [(True, MANY - 1, True), (True, MANY, False), (True, None, False), (False, 1, False)])
def test_only_a_run_once_with_little_to_read_disables_the_second_compiler(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, once: bool, number: int | None, short: bool
) -> None:
    monkeypatch.setattr("ingest.run.application.topics_of", lambda *_: (Topic("t", "", (0,)),))
    monkeypatch.setattr(Application, "_waiting", lambda *_: None if number is None else Waiting(number, epoch=False))
    monkeypatch.setattr(Application, "_listen", lambda *_, **__: None)
    started: list[bool] = []

    def start(*_: object, short: bool) -> None:
        started.append(short)
        raise Interrupted

    monkeypatch.setattr("ingest.run.application.spark.start", start)
    places = scene.places
    Application((CONTRACT,), places.lake, places.checkpoints, KafkaOptions("127.0.0.1:1"), "local", Trigger(once=once)).execute(Display())
    assert started == [short]
