"""A supported Java is found. An unsupported or missing one is refused with installation instructions."""

from __future__ import annotations

import os
import shlex
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


@pytest.mark.parametrize("text", ["-Da=b", '-Da=it\'s "b c" \\d\\\\', "-Da=$HOME `x` # ü"])
def test_an_option_among_others_is_read_back_as_one(text: str) -> None:
    """A shell reads quotes and backslashes in double quotes as Spark's launcher does (CommandBuilderUtils.parseOptionString)."""
    assert shlex.split(f"-Xmx1g {java.option(text)} -Xss4m") == ["-Xmx1g", text, "-Xss4m"]


def test_a_value_in_a_properties_file_is_ascii() -> None:
    assert java.property_value("/ü/\\n/🌻") == r"/\u00fc/\\n/\ud83c\udf3b"


@pytest.mark.parametrize(("before", "after"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8"), (None, None)])
def test_a_jvm_gets_a_locale_in_which_names_are_utf8(before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", before or "")
    if before is None:
        monkeypatch.delenv("LC_ALL")
    java.find()
    assert os.environ.get("LC_ALL") == after
