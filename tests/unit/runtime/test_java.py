"""A supported Java is found. An unsupported or missing one is refused with installation instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.runtime import java
from ingest.runtime.errors import InvalidEnvironment

pytestmark = pytest.mark.unit


def fake_java(home: Path, release: str, exit_code: int = 0) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    lines = f"    java.home = {home}\\n    java.specification.version = {release}\\n"
    executable.write_text(f"#!/bin/sh\nprintf '{lines}' >&2\nexit {exit_code}\n", encoding="utf-8")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize("release", [17, 21])
def test_a_supported_java_is_taken_from_java_home_before_path(release: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(tmp_path / "chosen", str(release))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "11").parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "chosen"))
    assert java.find() == java.Java(tmp_path / "chosen", executable, release)


@pytest.mark.parametrize(("release", "named"), [("1.8", "Java 8"), ("11", "Java 11"), ("24", "Java 24")])
def test_an_unsupported_java_release_is_refused_by_name(release: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidEnvironment) as refused:
        java.find()
    assert refused.value.code == "JAVA_WRONG"
    assert named in refused.value.found
    assert "openjdk-17-jre-headless" in refused.value.remedy


def test_a_missing_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidEnvironment, match="JAVA_MISSING"):
        java.find()


def test_java_home_without_a_java_is_refused_even_if_path_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidEnvironment, match="JAVA_MISSING") as refused:
        java.find()
    assert str(tmp_path) in refused.value.found


def test_a_java_stub_that_only_offers_to_install_java_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidEnvironment, match="JAVA_MISSING"):
        java.find()
