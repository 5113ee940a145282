"""The locks of a table on a local disk (I8): POSIX locks on files beside the tables. The kernel releases them when their holder ends.

- `lock` admits one run or command at a time. The JVM holds it, which can outlive its Python process, or without Spark this process. A
  start waits for the previous JVM, which may still be finishing a write.
- `commits` is held by everybody who commits, and taken after `lock`. A run with the direct writer shares it with `ingest maintain`, which
  does not take `lock`: their commits exclude each other. Delta in Spark excludes other writers only inside one JVM, so it holds this lock
  alone. So does a command without Spark, because it may delete files that a compaction is about to commit.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.run.lock_file import is_free, locked, token_of, who
from ingest.runtime.errors import InvalidInput, Refused, RunStopped
from ingest.runtime.files import is_local, local_path
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM whose Python process was killed notices at once, but first finishes the write in progress.
WAIT_S = 60.0
WAIT_VARIABLE = "INGEST_LOCK_WAIT_S"
COMMITS = "commits"

# The locks that our JVM or this process holds, by process id and the lock's file. Checked before a JVM opens the file a second time: the
# kernel releases its lock on a file as soon as it closes any channel to it (fcntl(2), java.nio.channels.FileLock).
_held: set[tuple[int, Path]] = set()
_guard = threading.Lock()


@dataclass(frozen=True)
class HeldLock:
    """A lock that a process holds until `release` or its own end. `token` is written in this lock's file and in no other.

    `commits` is the second lock of a table.
    """

    path: Path
    pid: int
    channel: Any
    token: str
    commits: list[HeldLock] = field(default_factory=list)

    def release(self) -> None:
        """Release the lock while its process keeps running."""
        while self.commits:
            self.commits.pop().release()
        with _guard:
            _held.discard((self.pid, self.path))
            self.channel.close()

    def let_commit(self, session: SparkSession | None, *, shared: bool) -> None:
        """Hold the second lock: for the JVM of a session, or for this process. Waits for those who share it.

        Raises Refused LOCKED after INGEST_LOCK_WAIT_S seconds, 60 by default. Then it is not held.
        """
        while self.commits:
            self.commits.pop().release()
        self.commits.append(_waited(lambda: hold(session, self.path.parent, COMMITS, shared=shared)))

    def refuse_lost(self) -> None:
        """Raises RunStopped LOCK_LOST if the lock's file was deleted.

        Called before each statement of a batch, and before an epoch or a maintenance begins.

        The kernel's lock is on the file, not on its name: another driver could lock a new file of the same name.
        """
        if token_of(self.path) == self.token:
            return
        now = f"is held by {who(self.path)} now" if self.path.exists() else "was deleted"
        raise RunStopped(
            "LOCK_LOST",
            f"{self.path}, which this run had locked, {now}. The run writes nothing more.",
            expected="the lock's file until the run has ended: on a local disk two drivers can overwrite each other's commits.",
            remedy="let one run continue and end the other; then start again: the start reports what is missing. Never delete a "
            "lock's file: the kernel releases the lock when its process ends.",
        )


def folder(places: Places) -> Path | None:
    """The folder of a table's lock: beside its tables, if they are on a local disk. Its checkpoints need no lock."""
    return local_path(places.root) if is_local(places.lake) else None


def held_by(places: Places) -> Refused | None:
    """The refusal of a table whose lock somebody holds now; None if it is free."""
    where = folder(places)
    return _locked(where / "lock", 0) if where is not None and (where / "lock").exists() and not is_free(where / "lock") else None


def wait_for(places: Places, say: Callable[[str], object] = lambda _: None) -> None:
    """Return once nobody holds the lock of this table. If it has to wait, it calls `say` once with the holder.

    Raises Refused LOCKED after INGEST_LOCK_WAIT_S seconds, 60 by default.
    """
    if (where := folder(places)) is None:
        return
    wait_s, path = _wait_s(), where / "lock"
    deadline, reported = time.monotonic() + wait_s, False
    while path.exists() and not is_free(path):
        if not reported:
            say(f"waiting up to {wait_s:g} s for {path}, held by {who(path)}")
            reported = True
        if time.monotonic() > deadline:
            raise _locked(path, wait_s)
        time.sleep(0.05)


def hold_table(session: SparkSession | None, places: Places, *, direct: bool = False) -> HeldLock | None:
    """Take the locks of a table, without a session in this process; None if it has none. `direct`: for a run of the direct writer.

    Raises Refused LOCKED.
    """
    if (where := folder(places)) is None:
        return None
    held = hold(session, where)
    try:
        held.let_commit(None if direct else session, shared=direct)
    except BaseException:
        held.release()
        raise
    return held


@contextmanager
def holding(session: SparkSession | None, places: Places, *, direct: bool = False) -> Iterator[None]:
    """Hold the locks of a table inside this context, as `hold_table`. Raises Refused LOCKED."""
    held = hold_table(session, places, direct=direct)
    try:
        yield
    finally:
        if held is not None:
            held.release()


@contextmanager
def beside_a_run(places: Places) -> Iterator[None]:
    """Commit inside this context, without Spark and beside a run of the direct writer. Raises Refused LOCKED if somebody commits alone."""
    if (where := folder(places)) is None:
        yield
        return
    held = hold(None, where, COMMITS, shared=True)
    try:
        yield
    finally:
        held.release()


def hold(session: SparkSession | None, folder: Path, name: str = "lock", *, shared: bool = False) -> HeldLock:
    """Take the lock in `folder` until `release` or the holder's end: the session's JVM, or without a session this process.

    Only this process can share one. Raises Refused LOCKED.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, token = folder.resolve() / name, uuid.uuid4().hex
    holder: dict[str, Any] = {"host": socket.gethostname(), "jvm_pid": None, "python_pid": os.getpid(), "token": token}
    if session is None:
        return _hold_here(path, holder, shared=shared)
    jvm: Any = session.sparkContext._jvm
    holder["jvm_pid"] = pid = int(jvm.java.lang.ProcessHandle.current().pid())
    with _guard:
        if (pid, path) in _held:  # another query or thread holds it
            raise _locked(path, 0)
        channel = jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
        if channel.tryLock() is None:
            channel.close()
            raise _locked(path, 0)
        _held.add((pid, path))
    held = HeldLock(path, pid, channel, token)
    try:
        channel.truncate(0)
        channel.write(jvm.java.nio.ByteBuffer.wrap(bytearray(json.dumps(holder).encode())), 0)
    except BaseException:  # e.g. a full disk: nothing else would release the lock while this JVM runs
        held.release()
        raise
    return held


def _hold_here(path: Path, holder: dict[str, Any], *, shared: bool) -> HeldLock:
    file = open(path, "a+b", buffering=0)  # noqa: SIM115 (the lock lasts as long as the file is open)
    try:
        if not locked(file.fileno(), shared=shared):
            raise _locked(path, 0)
        file.truncate(0)
        file.write(json.dumps(holder).encode())
    except BaseException:
        file.close()
        raise
    return HeldLock(path, os.getpid(), file, holder["token"])


@contextmanager
def alone(session: SparkSession | None, location: str, folder: str) -> Iterator[None]:
    """Hold the lock in `folder` inside this context, after waiting for its holder. Does nothing if `location` is not local.

    For tables that several processes or threads append to. Raises Refused LOCKED after INGEST_LOCK_WAIT_S seconds.
    """
    if not is_local(location):
        yield
        return
    held = _waited(lambda: hold(session, local_path(folder)))
    try:
        yield
    finally:
        held.release()


def _waited(take: Callable[[], HeldLock]) -> HeldLock:
    """The lock, as soon as it is free. Raises Refused LOCKED after INGEST_LOCK_WAIT_S seconds."""
    deadline = time.monotonic() + _wait_s()
    while True:
        try:
            return take()
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _wait_s() -> float:
    text = os.environ.get(WAIT_VARIABLE, "")
    try:
        return float(text) if text else WAIT_S
    except ValueError as error:
        raise InvalidInput(
            "LOCK_WAIT_INVALID",
            f"{WAIT_VARIABLE}={text!r}.",
            expected="seconds, such as 60 or 0.5.",
            remedy=f"correct or unset {WAIT_VARIABLE}.",
        ) from error


def _locked(path: Path, waited_s: float) -> Refused:
    return Refused(
        "LOCKED",
        f"{path} is held by {who(path)}" + (f", still after {waited_s:.0f} s." if waited_s else "."),
        expected="no other run, and no other writer of these tables.",
        remedy="wait until the other run has ended, or end it with SIGTERM.",
    )
