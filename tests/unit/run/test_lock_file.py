"""Lock files, checked by another process: the answer is correct, and checking never blocks a run (I8)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic
from ingest.recovery.state_reader import EPOCH_FILE
from ingest.run import table_lock
from ingest.run.lock_file import holder, is_free
from ingest.run.table_lock import HeldLock, hold, hold_table
from ingest.run.table_query import TableQuery
from ingest.runtime.errors import Refused, RunStopped
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
ASKS = (
    "import sys; from pathlib import Path; from ingest.run.lock_file import is_free\n"
    "path = Path(sys.argv[1]); print('asks', flush=True)\n"
    "while True: is_free(path)"
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.write_text('{"host": "h", "jvm_pid": 1, "python_pid": 2, "token": "a"}')
    return path


@contextmanager
def process(code: str, lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, as soon as it has printed its first line."""
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            yield other
        finally:
            other.kill()


def test_a_held_lock_is_distinguished_from_one_whose_holder_is_gone(lock: Path) -> None:
    assert is_free(lock)
    with process(HOLDS, lock):
        assert not is_free(lock)
        assert holder(str(lock.parent)) == "host h, JVM process 1, Python process 2"
    assert is_free(lock)
    assert holder(str(lock.parent)) is None


def test_checking_a_lock_never_prevents_another_process_from_taking_it(lock: Path) -> None:
    """`ingest status` in a loop once made a start fail with LOCKED: it took the lock briefly to see whether it was free."""
    with process(ASKS, lock), lock.open("r+b") as file:
        deadline, taken = time.monotonic() + 1.0, 0
        while time.monotonic() < deadline:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if another process holds it
            fcntl.lockf(file, fcntl.LOCK_UN)
            taken += 1
    assert taken > 100


def test_a_lock_that_this_process_holds_excludes_others_until_it_is_released(lock: Path) -> None:
    """A command without a JVM holds the lock itself. Reading who holds it, which closes the file, once would have released it."""
    held = hold(None, lock.parent)
    assert (holder(str(lock.parent)) or "").endswith(f", Python process {os.getpid()}")
    assert "JVM" not in (holder(str(lock.parent)) or "")
    held.refuse_lost()
    with pytest.raises(Refused, match="LOCKED"):
        hold(None, lock.parent)
    takes = HOLDS.replace("LOCK_EX)", "LOCK_EX | fcntl.LOCK_NB)")
    assert subprocess.run([sys.executable, "-c", takes, str(lock)], capture_output=True, check=False).returncode == 1
    held.release()
    with process(HOLDS, lock), pytest.raises(Refused, match="LOCKED"):
        hold(None, lock.parent)


def test_a_direct_run_and_maintenances_commit_beside_each_other_and_nobody_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: the JVM takes the same lock for Delta in Spark, as another process (here: POSIX), and an erasure takes it from Python."""
    places = Places(str(tmp_path), str(tmp_path), "shop", "orders")
    commits = Path(places.root) / "commits"
    monkeypatch.setenv("INGEST_LOCK_WAIT_S", "0")
    with table_lock.holding(None, places, direct=True), table_lock.beside_a_run(places), table_lock.beside_a_run(places):
        assert not is_free(commits)
        takes = HOLDS.replace("LOCK_EX)", "LOCK_EX | fcntl.LOCK_NB)")
        assert subprocess.run([sys.executable, "-c", takes, str(commits)], capture_output=True, check=False).returncode == 1
    with table_lock.beside_a_run(places), pytest.raises(Refused, match=f"LOCKED.*Python process {os.getpid()}"):
        hold_table(None, places)
    assert is_free(Path(places.root) / "lock"), "the first lock is given back"
    with table_lock.holding(None, places), pytest.raises(Refused, match="LOCKED"), table_lock.beside_a_run(places):
        pass
    with process(HOLDS, commits), pytest.raises(Refused, match="LOCKED"), table_lock.beside_a_run(places):
        pass
    assert is_free(commits)


def test_a_run_hands_the_right_to_commit_to_another_writer_and_takes_it_back(tmp_path: Path) -> None:
    places = Places(str(tmp_path), str(tmp_path), "shop", "orders")
    held = hold_table(None, places, direct=True)
    assert held is not None
    with table_lock.beside_a_run(places):
        waits = threading.Thread(target=held.let_commit, args=(None,), kwargs={"shared": False})
        waits.start()
        waits.join(0.2)
        assert waits.is_alive(), "a maintenance is not done"
    waits.join(30)
    with pytest.raises(Refused, match="LOCKED"), table_lock.beside_a_run(places):
        pass
    held.let_commit(None, shared=True)
    with table_lock.beside_a_run(places):
        held.release()
    hold_table(None, places).release()  # type: ignore[union-attr]


def test_a_run_whose_lock_file_was_deleted_or_taken_over_stops_before_it_writes(lock: Path) -> None:
    """A user who gets LOCKED may delete the file as stale and start a run. The kernel's lock is on the deleted file."""
    ours = HeldLock(lock, 1, None, "a")
    ours.refuse_lost()
    lock.write_text('{"host": "h", "jvm_pid": 3, "python_pid": 4, "token": "b"}')
    with pytest.raises(RunStopped, match=r"LOCK_LOST.*is held by host h, JVM process 3, Python process 4 now"):
        ours.refuse_lost()
    lock.unlink()
    with pytest.raises(RunStopped, match=r"LOCK_LOST.*was deleted"):
        ours.refuse_lost()


def test_a_driver_in_another_container_is_noticed_even_if_it_has_our_process_ids(lock: Path) -> None:
    """A container's first JVM always has the same process id. With the file deleted, both would overwrite each other's commits."""
    ours = HeldLock(lock, 1, None, "a")
    lock.write_text('{"host": "other", "jvm_pid": 1, "python_pid": 2, "token": "b"}')
    with pytest.raises(RunStopped, match=r"LOCK_LOST.*is held by host other, JVM process 1"):
        ours.refuse_lost()


def test_a_lock_is_released_if_its_holder_cannot_be_written(tmp_path: Path) -> None:
    """On a full disk the lock once stayed held until the JVM ended: LOCKED, without a holder."""
    jvm, disk_is_full = MagicMock(), OSError("No space left on device")
    jvm.java.lang.ProcessHandle.current().pid.return_value = 1
    channel = jvm.java.io.RandomAccessFile().getChannel()
    channel.truncate.side_effect = [disk_is_full, None]
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))
    with pytest.raises(OSError, match="No space"):
        hold(session, tmp_path)
    channel.close.assert_called_once_with()
    hold(session, tmp_path).release()


@pytest.fixture
def query(tmp_path: Path) -> Any:
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "t", "format": "raw"}, "event_id": "position"}
    places = Places(str(tmp_path), str(tmp_path), "shop", "orders")
    return TableQuery(Contract.model_validate(document), places, KafkaOptions("127.0.0.1:1"), [Topic("t", "", (0,))], print)


def test_a_batch_checks_its_lock_before_it_is_written(lock: Path, query: Any) -> None:
    query._lock = HeldLock(lock, 1, None, "a")
    query._still_ours()  # a batch calls this after it was read; without a topic id it asks no broker
    lock.unlink()
    with pytest.raises(RunStopped, match="LOCK_LOST"):
        query._still_ours()


@pytest.mark.parametrize(("asked", "there", "code"), [(True, False, None), (True, True, "QUERY_FAILED"), (False, False, "QUERY_FAILED")])
def test_a_run_that_was_asked_to_stop_ignores_a_missing_checkpoint(query: Any, tmp_path: Path, asked: bool, there: bool, code: str) -> None:
    """The current batch is committed (I2). Spark can no longer record that in the checkpoint, but the record is not needed."""
    query._query = SimpleNamespace(exception=lambda: OSError(f"File file:{tmp_path}/commits does not exist"))
    query._table = SimpleNamespace(files=LocalFiles(), epoch=SimpleNamespace(checkpoint=str(tmp_path)))
    if there:
        LocalFiles().write(f"{tmp_path}/{EPOCH_FILE}", b"{}")
    if asked:
        query.ask_to_stop()
    failure = query._failure()
    assert (failure and failure.code) == code


def test_a_module_that_is_not_installed_is_raised_after_the_lock_was_released(lock: Path, query: Any) -> None:
    query.error = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    query._lock = HeldLock(lock, 1, channel := MagicMock(), "a")
    assert query.reopen() is None
    with pytest.raises(ModuleNotFoundError, match="pyarrow"):
        query.finish()
    channel.close.assert_called_once_with()
