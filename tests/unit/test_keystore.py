"""Certificates of the embedded broker: keytool is found beside java, or said to be missing; its password is on no command line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ingest.errors import Unfit
from ingest.local.keystore import Keystore, Validity

pytestmark = pytest.mark.unit


def fake(home: Path, name: str, script: str) -> None:
    """A program in the bin folder of a Java home."""
    executable = home / "bin" / name
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    executable.chmod(0o755)


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    fake(home, "java", f"printf '    java.home = {home}\\n    java.specification.version = 17\\n' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def test_a_java_without_keytool_is_refused_by_its_folder(java_home: Path, tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="KEYTOOL_MISSING") as refused:
        Keystore(tmp_path / "tls").make(Validity())
    assert str(java_home / "bin") in refused.value.found


def test_what_keytool_complains_of_is_passed_on(java_home: Path, tmp_path: Path) -> None:
    fake(java_home, "keytool", "echo 'keytool error: no room'; exit 1")
    with pytest.raises(Unfit, match="KEYTOOL_FAILED") as refused:
        Keystore(tmp_path / "tls").make(Validity())
    assert "no room" in refused.value.found


def test_the_password_of_the_store_is_on_no_command_line_and_readable_by_its_owner_only(java_home: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    fake(java_home, "keytool", f'echo "$@" >> {said}; touch {tmp_path / "tls" / "keystore.p12"}')
    keystore = Keystore(tmp_path / "tls")
    keystore.make(Validity())
    assert len(keystore.password) >= 24 and keystore.password not in said.read_text()
    files = [keystore.path, tmp_path / "tls" / "keystore.password"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600, 0o600]


@pytest.mark.parametrize(("days", "since_days"), [(0, 0), (-1, 0), (1, -1)])
def test_a_validity_that_cannot_be_is_refused(days: int, since_days: int) -> None:
    with pytest.raises(ValueError, match="valid for at least a day"):
        Validity(days, since_days)
