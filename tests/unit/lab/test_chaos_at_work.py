"""Chaos injects the faults that it reports and gives the oracle all it needs. Real processes, but no broker and no Spark."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ingest.contract.definition import Contract, load_contracts
from ingest.delta.batch_commit import Batch, BatchCommit, BatchId, Case, Fence, Snapshot, Snapshots
from ingest.lab.chaos import chaos_run, upkeep
from ingest.lab.chaos import scene as chaos_scene
from ingest.lab.chaos.chaos_events import bodies, compared_columns, refused_kinds
from ingest.lab.chaos.injected_faults import INJECTIONS
from ingest.lab.chaos.scene import FRUITLESS_MAX, Scene, SceneCounts
from ingest.lab.chaos.schedule import ScheduledFault
from ingest.lab.oracle.judge import JudgedRun, OracleVerdict
from ingest.lab.oracle.sources import KafkaView
from ingest.lab.worker import Worker
from tests.polling import until

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
HOLDER = [sys.executable, "-c"]
HOLDER.append(
    """
import fcntl, os, pathlib, time
path = pathlib.Path(os.environ["LOCK"])
path.parent.mkdir(parents=True)
file = path.open("w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(f'{{"python_pid": {os.getpid()}}}', file=file, flush=True)
time.sleep(600)
"""
)
ENDING = "print({says!r}); raise SystemExit({code})"


@pytest.fixture
def orders() -> Contract:
    return next(each for each in load_contracts(PROJECT) if each.table == "orders")


def scene_of(folder: Path, *contracts: Contract) -> Scene:
    """A scene without a broker, with all its places below the folder."""
    scene = object.__new__(Scene)
    scene.folder = scene.home = folder
    scene.project, scene.contracts, scene.counts, scene.findings = folder, contracts, SceneCounts(), []
    scene.broker = SimpleNamespace(bootstrap_servers="127.0.0.1:1")  # type: ignore[assignment]
    scene.excused = {each.name: {("gone",)} for each in contracts}
    scene.own_versions = {each.name: {3} for each in contracts}
    scene.topics = {each.name: [each.source.topic, f"{each.source.topic}-chaos-2"] for each in contracts}
    scene.joining = next(iter(scene.topics.values()), [])
    scene.manifests, scene.clock, scene.driver, scene.writer = [], {}, None, None
    scene._fruitless = scene._done_at_start = 0
    scene._logs, scene._counted = {}, {}
    return scene


def test_the_oracle_is_given_everything_that_it_can_compare(orders: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would miss a lost column, a valid event in quarantine, or an aborted or broken record in the target."""
    asked: list[JudgedRun] = []
    judged: list[str] = []
    columns: list[Sequence[str]] = []

    def read(_: str, topic: str, ids: Sequence[str], payload: Sequence[str], **__: Any) -> KafkaView:
        columns.extend((ids, payload))
        return KafkaView(topic, "", {}, {}, {})

    def judge(run: JudgedRun, *kafka: KafkaView) -> OracleVerdict:
        asked.append(run)
        judged.extend(view.topic for view in kafka)
        return OracleVerdict(())

    monkeypatch.setattr(chaos_run, "read_kafka", read)
    monkeypatch.setattr(chaos_run, "judge", judge)
    scene = scene_of(tmp_path, orders)
    scene.manifests = [tmp_path / "there", tmp_path / "not yet"]
    scene.manifests[0].touch()
    chaos_run._verdict(scene, bodies(orders, "1", None), orders)
    (run,) = asked
    payload = compared_columns(orders)
    assert {"amount", "ordered_at"} < set(payload) and columns == 2 * [("order_id",), payload]
    assert judged == [*run.topics] == ["orders", "orders-chaos-2"]
    assert (run.id_columns, run.payload_columns, run.manifests) == (("order_id",), payload, (tmp_path / "there",))
    assert run.refused_kinds == refused_kinds(orders) and run.refused_kinds
    assert orders.rules and not run.valid_in_quarantine
    assert (run.excused_ids, run.own_versions) == (frozenset({("gone",)}), frozenset({3}))


def test_a_driver_starts_with_the_current_clock_shift_of_the_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Mapping[str, str]] = []
    monkeypatch.setattr(chaos_scene, "Worker", lambda _, *, output, environment: started.append(environment))
    scene = scene_of(tmp_path)
    scene.clock = {"LD_PRELOAD": "/x.so"}
    scene.start_driver()
    scene.clock = {}
    scene.start_driver()
    assert [environment.get("LD_PRELOAD") for environment in started] == ["/x.so", None]


@pytest.mark.parametrize(("chance", "killed"), [(0.2, -9), (0.7, None)], ids=["between two runs", "during a run"])
def test_all_checkpoints_are_deleted_between_two_runs_or_during_one(chance: float, killed: int | None, tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    (scene.checkpoints / "shop" / "orders" / "1").mkdir(parents=True)
    driver = scene.driver = Worker(SLEEPER, output=tmp_path / "out", environment={})
    scene.tend = lambda: None  # type: ignore[method-assign]
    INJECTIONS["lose-checkpoints"](scene, ScheduledFault(0, "lose-checkpoints", False, 0, 0, chance))
    assert not scene.checkpoints.exists()
    assert (driver.poll(), scene.driver) == (killed, None if killed else driver)
    driver.kill()


def test_a_topic_that_joins_gets_records_while_no_driver_runs(orders: Contract, tmp_path: Path) -> None:
    scene = scene_of(tmp_path, orders)
    scene.tend = lambda: None  # type: ignore[method-assign]
    found: list[str] = []
    scene.broker.create_topic = lambda name, _: found.append(name)  # type: ignore[assignment, misc]
    writers = [Worker(SLEEPER, output=tmp_path / "first", environment={})]

    def start_writer() -> Worker:
        scene.manifests.append(tmp_path / "manifest")
        say = 'import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(\'{"event": "committed"}\')'
        writers.append(Worker([sys.executable, "-c", say, str(tmp_path / "manifest")], output=tmp_path / "second", environment={}))
        found.append(f"{writers[0].poll()}, driver {scene.driver}, {scene.topics[orders.name]}")
        return writers[-1]

    scene.start_writer = start_writer  # type: ignore[assignment, method-assign]
    scene.driver, scene.writer = Worker(SLEEPER, output=tmp_path / "out", environment={}), writers[0]
    INJECTIONS["topic-joins"](scene, ScheduledFault(0, "topic-joins", False, 0, 0, 0))
    assert found == ["orders-chaos-3", "-9, driver None, ['orders', 'orders-chaos-2', 'orders-chaos-3']"]
    assert (tmp_path / "manifest").exists() and scene.counts.sigkills == 2
    writers[-1].kill()


@pytest.mark.parametrize(
    ("source", "reads"),
    [({"topic": "orders"}, "orders"), ({"topics": ["b", "a"]}, "b"), ({"topic_pattern": "o.*"}, "shop.orders")],
    ids=["topic", "topics", "pattern"],
)
def test_the_first_table_reads_two_topics_and_those_that_join_and_another_one_its_own(
    source: dict[str, Any], reads: str, orders: Contract, tmp_path: Path
) -> None:
    document = json.loads(orders.to_json())
    document["source"] = source | {"format": "json"}
    asked = Contract.model_validate_json(json.dumps(document))
    payments = next(each for each in load_contracts(PROJECT) if each.table == "payments")
    created: list[str] = []
    broker: Any = SimpleNamespace(create_topic=lambda name, _: created.append(name), bootstrap_servers="")
    proxy: Any = SimpleNamespace(bootstrap_servers="")
    scene = Scene(tmp_path, [asked, payments], broker, proxy, {}, lambda *_: None, batch_records=9, disk=None, clock_library=None)
    first, other = scene.contracts
    assert other.source.topic == "payments" and created == [reads, f"{reads}-chaos-2", "payments"]
    pattern = re.compile(first.source.topic_pattern or "")
    assert all(pattern.fullmatch(topic) for topic in (*scene.joining, f"{reads}-chaos-3")) and not pattern.fullmatch("payments")


def test_an_index_is_deleted_put_back_cut_or_changed_in_a_bit(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.tend = lambda: None  # type: ignore[method-assign]
    segment = scene.checkpoints / "shop" / "orders" / "ids" / "1.ids"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(bytes(10))
    found = []
    for number, chance in ((0, 0.1), (0, 0.4), (1, 0.7), (2, 0.7)):
        segment.parent.mkdir(exist_ok=True)
        driver = scene.driver = Worker(SLEEPER, output=tmp_path / "out", environment={})
        INJECTIONS["damage-index"](scene, ScheduledFault(number, "damage-index", False, 0, 0, chance))
        found.append(segment.read_bytes() if segment.exists() else None)
        assert (driver.poll() is None) == (chance < 0.6)
        driver.kill()
    assert found == [None, bytes(10), bytes(7) + b"\1" + bytes(2), bytes(7)]


@pytest.mark.parametrize(
    ("says", "code", "findings"),
    [("ingest: LOCKED: held", 3, 0), ("done", 0, 1), ("ingest: FENCED: later", 3, 1)],
    ids=["refused", "accepted", "another error"],
)
def test_while_a_driver_is_paused_a_second_one_must_be_refused_and_the_first_continues(
    says: str, code: int, findings: int, orders: Contract, tmp_path: Path
) -> None:
    scene = scene_of(tmp_path, orders)
    driver = scene.driver = Worker(HOLDER, output=tmp_path / "out", environment={"LOCK": str(scene.lock(orders))})
    until(lambda: scene.held(orders, driver), "the lock", 30)
    states: list[str] = []

    def second() -> Worker:
        states.append(psutil.Process(driver.pid).status())
        return Worker([sys.executable, "-c", ENDING.format(says=says, code=code)], output=tmp_path / "second", environment={})

    scene.tend = lambda: None  # type: ignore[method-assign]
    scene.another_driver = second  # type: ignore[method-assign]
    INJECTIONS["second-driver"](scene, ScheduledFault(0, "second-driver", False, 0, 0, 0))
    assert (states, len(scene.findings)) == ([psutil.STATUS_STOPPED], findings)
    assert psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED
    driver.kill()


def test_the_batches_done_are_counted_from_the_log_once_each_and_without_fences(orders: Contract, tmp_path: Path) -> None:
    scene = scene_of(tmp_path, orders)
    log = Path(scene.places(orders).target) / "_delta_log"
    log.mkdir(parents=True)
    assert scene.batches_done() == 0
    nowhere = Snapshot("id", 0, "")
    cases: tuple[tuple[Case, int], ...] = ((Fence(), 0), (Batch(), 2), (Batch(), 3))
    for version, (case, number) in enumerate(cases):
        batch_commit = BatchCommit(case, "shop", "orders", BatchId(1, number), "w", Snapshots(nowhere, nowhere))
        actions = [{"txn": {"appId": batch_commit.app_id, "version": batch_commit.id.txn_version}}]
        actions.append({"commitInfo": {"timestamp": 0, "operation": "MERGE", "userMetadata": batch_commit.to_json()}})
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
        assert scene.batches_done() == version == scene.batches_done_of(orders)


def test_while_another_engine_writes_no_driver_gets_a_lock_and_missing_tables_are_skipped(orders: Contract, tmp_path: Path) -> None:
    scene = scene_of(tmp_path, orders)
    lock = scene.lock(orders)
    lock.parent.mkdir(parents=True)
    lock.touch()
    take = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def free() -> bool:
        return subprocess.run([sys.executable, "-c", take, str(lock)], capture_output=True, check=False).returncode == 0

    (Path(scene.places(orders).target) / "_delta_log").mkdir(parents=True)  # killed while the table was created
    with upkeep.locked(scene):
        assert not free()
        upkeep.optimize(scene, 0)
        upkeep.delete(scene, 0, 0.5)
    assert free() and scene.own_versions == {orders.name: {3}}


def test_a_run_that_repeatedly_fails_to_start_is_a_finding(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    ended = Worker([sys.executable, "-c", ENDING.format(says="ingest: JVM_GONE: killed", code=5)], output=tmp_path / "out", environment={})
    assert ended.ended(30) == 5
    for _ in range(FRUITLESS_MAX - 1):
        scene.note_end(ended, 5)
    assert scene.findings == []
    scene.note_end(ended, 5)
    assert len(scene.findings) == 1 and "does not come up again: 12 starts in a row without a batch" in scene.findings[0]


def test_a_round_that_is_not_read_to_the_end_is_a_finding_and_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of(tmp_path)
    monkeypatch.setattr(scene, "_stop_writer", lambda: None)
    monkeypatch.setattr(scene, "_stop_driver", lambda: None)
    for code, findings in ((0, 0), (5, 1)):
        words = [sys.executable, "-c", ENDING.format(says="ingest: DISK_FULL: full", code=code)]
        last = Worker(words, output=tmp_path / f"{code}", environment={})
        monkeypatch.setattr(scene, "start_driver", lambda *_, last=last: last)
        scene.finish()
        assert (scene.read_to_the_end, len(scene.findings)) == (code == 0, findings)


def test_findings_of_the_scene_and_of_the_oracle_are_in_the_report(
    orders: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        chaos_run, "_verdict", lambda *_: (OracleVerdict(("id 7 is lost (a)",), ("a note",)), SceneCounts(records=9, batches=2))
    )
    options = chaos_run.Options((orders,), 1, 7, ("kill-driver",), 0)
    scene, report = scene_of(tmp_path, orders), chaos_run.ChaosReport(options)
    scene.findings.append("a process is left")
    tables, notes = chaos_run._judge(scene, [bodies(orders, "1", None)], lambda *_: None)
    report.add_round(3, 180.0, scene, tables, notes)
    assert report.findings == ["round 3: a process is left", "round 3: id 7 is lost (a)"] and not report.ok
    assert (report.notes, report.counts.records, report.tables["shop.orders"].batches) == (["round 3: a note"], 9, 2)


def test_an_error_in_chaos_itself_is_a_finding_and_keeps_the_results_of_earlier_rounds(
    orders: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scratch folder of the failed round is kept."""

    def dealt(scene: Scene, *_: object) -> float:
        if scene.folder.name == "round-3":
            raise FileNotFoundError("no table")
        scene.counts.sigkills = 7
        scene.read_to_the_end = True
        return 180.0

    for name in ("Broker", "Proxy"):
        monkeypatch.setattr(chaos_run, name, lambda *_: nullcontext(SimpleNamespace(bootstrap_servers="127.0.0.1:1")))
    monkeypatch.setattr(chaos_run, "Scene", lambda folder, *_, **__: scene_of(folder, orders))
    for name in ("finish", "close"):
        monkeypatch.setattr(Scene, name, lambda _: None)
    monkeypatch.setattr(Scene, "lake", tmp_path)
    monkeypatch.setattr(chaos_run, "_deal", dealt)
    monkeypatch.setattr(chaos_run, "_verdict", lambda *_: (OracleVerdict(()), SceneCounts(records=9)))
    messages: list[str] = []
    options = chaos_run.Options((orders,), 12, 7, ("kill-driver",), 0, folder=tmp_path)
    report = chaos_run.run(options, lambda _, what: messages.append(what))
    assert report.findings == ["round 3: chaos itself ended: FileNotFoundError: no table"] and "in dealt" in messages[-1]
    assert (report.counts.sigkills, report.tables["shop.orders"].records, report.broken_off) == (14, 18, False)
    assert report.folder is not None and (report.folder / "round-3").exists()


DISKS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ingest.lab.chaos.disk import small_disk

folder = Path(sys.argv[1])
with ThreadPoolExecutor(1) as kept:
    for name in ("one", "two"):
        with small_disk(folder / name) as disk:
            if disk is None:
                sys.exit(3)
            file = folder / name / "file"
            free, stale = disk._free, [disk._free() + 2**20]  # a run has written since
            disk._free = lambda: stale.pop() if stale else free()
            disk.fill()
            try:
                file.write_bytes(b"x" * 65536)
            except OSError as error:
                print(error.errno)
            disk.clear()
            print(file.write_bytes(b"x" * 65536), kept.submit(file.exists).result())
print([path.name for path in folder.rglob("file")])
"""


def test_a_small_disk_is_full_until_cleared_and_old_threads_see_the_next_disk_too(tmp_path: Path) -> None:
    """deltalake's threads once did not see it, and the oracle found no table in the second round."""
    done = subprocess.run([sys.executable, "-c", DISKS, str(tmp_path)], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("no tmpfs can be mounted here")
    assert done.stdout.splitlines() == [str(errno.ENOSPC), "65536 True"] * 2 + ["[]"], done.stderr
