"""Folders for temporary files of JVMs: those of ended runs are removed, those in use are kept."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ingest.runtime import jvm_folder
from ingest.runtime.errors import InvalidInput
from tests.polling import until

DEADLINE_S = 30


@pytest.fixture
def ended() -> int:
    """The process id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_each_call_creates_a_new_folder_and_the_last_removal_removes_its_parent(tmp_path: Path) -> None:
    first, second = jvm_folder.make(tmp_path), jvm_folder.make(tmp_path)
    assert first != second and {first.parent, second.parent} == {tmp_path / "tmp"}
    (first / "liblz4-java.so").touch()
    jvm_folder.remove(first)
    assert second.is_dir() and not first.exists()
    jvm_folder.remove(second)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_run_is_removed_unless_its_jvm_or_another_host_may_use_it(tmp_path: Path, ended: int) -> None:
    root = tmp_path / "tmp"
    left, used, elsewhere, alive = (
        root / f"{host}-{pid}-x{at}"
        for at, (host, pid) in enumerate([(socket.gethostname(), ended)] * 2 + [("elsewhere", ended), (socket.gethostname(), os.getpid())])
    )
    for folder in (left, used, elsewhere, alive):
        folder.mkdir(parents=True)
    jvm = subprocess.Popen([sys.executable, "-c", "input()", f"-Djava.io.tmpdir={used}"], stdin=subprocess.PIPE)
    try:
        # A process that has just started has no command line yet.
        until(lambda: any(str(used) in word for word in psutil.Process(jvm.pid).cmdline()), "the command line of the JVM", DEADLINE_S)
        made = jvm_folder.make(tmp_path)
        assert {*root.iterdir()} == {used, elsewhere, alive, made}
    finally:
        jvm.kill()
        jvm.communicate()
    jvm_folder.make(tmp_path)
    assert not used.exists()


@pytest.mark.parametrize("name", ["a,b", "🌻", "${env:HOME}"])
def test_a_folder_whose_name_spark_would_change_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="LOCATION_CHARACTER"):
        jvm_folder.refuse_unfit(tmp_path / name / "logs")


def test_any_other_name_is_accepted(tmp_path: Path) -> None:
    jvm_folder.refuse_unfit(tmp_path / 'it\'s "50 %" = a+b & ü #$[x]{y}()~*!?@^<>|;:`\\')
