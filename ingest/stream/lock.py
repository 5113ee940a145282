"""The driver's lock: held by the JVM, because only the JVM can commit, and it can outlive its Python.

A POSIX lock on `oncelake/lock` in the checkpoint; the kernel drops it when the JVM is gone, however it went. A start waits
for the former JVM, which may still be ending a write.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ingest.errors import InvalidInput, Refused

# A JVM whose Python was killed notices at once, but first ends what it is about to write.
WAIT_S = 60.0
WAIT_VARIABLE = "INGEST_LOCK_WAIT_S"


def wait_until_free(state: Path) -> None:
    """Return once no JVM holds the lock in `state`. Raises Refused LOCKED after INGEST_LOCK_WAIT_S seconds, 60 by default."""
    wait_s = _wait_s()
    path = state / "lock"
    deadline = time.monotonic() + wait_s
    while path.exists() and not _free(path):
        if time.monotonic() > deadline:
            raise _locked(path, wait_s)
        time.sleep(0.05)


def hold(session: SparkSession, state: Path) -> Any:
    """Let the session's JVM hold the lock in `state` until it ends; keep the returned value. Raises Refused LOCKED."""
    state.mkdir(parents=True, exist_ok=True)
    path = state / "lock"
    jvm: Any = session.sparkContext._jvm
    channel = jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
    try:
        lock = channel.tryLock()
    except Py4JJavaError as error:
        if "OverlappingFileLockException" not in str(error):
            raise
        lock = None  # this very JVM holds it, for another query
    if lock is None:
        channel.close()
        raise _locked(path, 0)
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    holder = json.dumps({"host": socket.gethostname(), "jvm_pid": pid, "python_pid": os.getpid()}).encode()
    channel.truncate(0)
    channel.write(jvm.java.nio.ByteBuffer.wrap(bytearray(holder)), 0)
    return lock


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


def _free(path: Path) -> bool:
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def _locked(path: Path, waited_s: float) -> Refused:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        who = f"host {holder['host']}, JVM process {holder['jvm_pid']}, Python process {holder['python_pid']}"
    except (OSError, ValueError, KeyError):
        who = "a process that left no name"
    return Refused(
        "LOCKED",
        f"{path} is held by {who}" + (f", still after {waited_s:.0f} s." if waited_s else "."),
        expected="no other run on this checkpoint.",
        remedy="wait until the other run has ended, or end it with SIGTERM.",
    )
