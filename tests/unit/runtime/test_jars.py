"""Jars are downloaded once, checked against the lock file, and never left incomplete."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.runtime import jars, java
from ingest.runtime.errors import InvalidEnvironment, InvalidInput
from ingest.runtime.jars import Jar, JarSet

pytestmark = pytest.mark.unit

CONTENT = b"bytes of a jar"
PINNED = Jar(JarSet.SPARK, "org.example", "thing", "1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a lock file with one jar that no public repository has."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "locked", lambda jar_set: (PINNED,) if jar_set is JarSet.SPARK else ())
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as an Ivy repository, configured by an Ivy settings file as for a mirror. Returns the path for its only jar."""
    settings = tmp_path / "mirror.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
        f'<artifact pattern="{tmp_path}/mirror/[module]-[revision].[ext]"/></filesystem></resolvers></ivysettings>',
        encoding="utf-8",
    )
    monkeypatch.setenv("INGEST_IVY_SETTINGS", str(settings))
    (tmp_path / "mirror").mkdir()
    return tmp_path / "mirror" / PINNED.file_name


def no_java(*arguments: object, **options: object) -> None:
    raise AssertionError("a process was started")


def test_a_jar_with_the_right_checksum_is_downloaded_once_and_later_calls_start_no_java(
    cache: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write_bytes(CONTENT)
    messages: list[str] = []
    (fetched,) = jars.ensure(JarSet.SPARK, messages.append)
    assert fetched.read_bytes() == CONTENT
    assert len(messages) == 1
    monkeypatch.setattr(subprocess, "run", no_java)
    assert jars.ensure(JarSet.SPARK, messages.append) == (fetched,)
    assert len(messages) == 1
    assert sorted(file.name for file in fetched.parent.iterdir()) == [PINNED.file_name]  # no scratch folder left


def test_a_jar_is_downloaded_into_a_cache_with_an_unusual_name(
    cache: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write_bytes(CONTENT)
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / 'it\'s "50 %" = (a+b) & ü $x `~*!@^<>|;'))
    assert jars.ensure(JarSet.SPARK)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("letter", ",:#?[]{}")
def test_a_cache_in_which_spark_would_not_find_its_jars_is_refused_before_a_download(
    cache: Path, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", no_java)
    monkeypatch.setenv("INGEST_CACHE", f"{cache}{letter}")
    with pytest.raises(InvalidInput, match="LOCATION_CHARACTER") as refused:
        jars.ensure(JarSet.SPARK)
    assert "INGEST_CACHE" in refused.value.remedy
    assert not cache.parent.joinpath(f"cache{letter}").exists()


def test_a_jar_with_other_content_is_deleted_and_reported_with_both_checksums(cache: Path, repository: Path) -> None:
    wrong = b"BYTES of a jar"
    repository.write_bytes(wrong)
    with pytest.raises(InvalidEnvironment, match="JARS_CORRUPT") as refused:
        jars.ensure(JarSet.SPARK)
    assert hashlib.sha256(wrong).hexdigest() in refused.value.found
    assert PINNED.sha256 in refused.value.expected
    assert not list(cache.rglob("*.jar"))
    repository.write_bytes(CONTENT)  # the wrong jar was not cached
    assert jars.ensure(JarSet.SPARK)[0].read_bytes() == CONTENT


def test_a_truncated_jar_in_the_cache_is_downloaded_again(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    (file,) = jars.ensure(JarSet.SPARK)
    file.write_bytes(CONTENT[:3])
    assert jars.missing(JarSet.SPARK) == (PINNED,)
    assert jars.ensure(JarSet.SPARK)[0].read_bytes() == CONTENT


def test_a_corrupt_jar_in_the_cache_is_found_and_discarded(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    (file,) = jars.ensure(JarSet.SPARK)
    file.write_bytes(CONTENT[::-1])
    assert jars.damaged(JarSet.SPARK) == (file,)
    assert jars.discard_damaged(JarSet.SPARK) == (file,)
    assert not file.exists()


def test_a_jar_that_was_replaced_in_the_cache_is_not_used(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    (file,) = jars.ensure(JarSet.SPARK)
    former = file.stat()
    file.write_bytes(CONTENT[::-1])
    os.utime(file, ns=(former.st_atime_ns, former.st_mtime_ns))
    with pytest.raises(InvalidEnvironment, match=f"JARS_CORRUPT: {file} is not the file that was downloaded"):
        jars.ensure(JarSet.SPARK)
    jars.discard_damaged(JarSet.SPARK)
    assert jars.ensure(JarSet.SPARK)[0].read_bytes() == CONTENT


def test_without_a_network_one_error_names_the_mirror_setting_and_a_log_is_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "unreachable.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="gone"/><resolvers>'
        '<ibiblio name="gone" m2compatible="true" root="http://127.0.0.1:1/"/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    monkeypatch.setenv("INGEST_IVY_SETTINGS", str(settings))
    with pytest.raises(InvalidEnvironment, match="JARS_UNREACHABLE") as refused:
        jars.ensure(JarSet.SPARK)
    assert "INGEST_IVY_SETTINGS" in refused.value.remedy
    assert (cache / "fetch.log").stat().st_size > 0


def test_a_cache_path_that_is_a_file_is_an_error_that_names_the_setting(cache: Path) -> None:
    cache.write_text("a file", encoding="utf-8")
    with pytest.raises(InvalidEnvironment, match="JARS_UNREACHABLE") as refused:
        jars.ensure(JarSet.SPARK)
    assert "INGEST_CACHE" in refused.value.remedy


def test_a_full_disk_is_reported_as_such_and_not_as_a_network_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_is_full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(subprocess, "run", disk_is_full)
    monkeypatch.setattr(java, "find", lambda: java.Java(Path("/"), Path("/bin/java"), 17))
    with pytest.raises(InvalidEnvironment, match="DISK_FULL"):
        jars.ensure(JarSet.SPARK)


def test_two_simultaneous_first_starts_both_get_complete_jars(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    program = (
        "from ingest.runtime import jars\n"
        f"pinned = jars.Jar(jars.JarSet.SPARK, 'org.example', 'thing', '1.0', {PINNED.size_bytes}, '{PINNED.sha256}')\n"
        "jars.locked = lambda jar_set: (pinned,)\n"
        "print(jars.ensure(jars.JarSet.SPARK)[0].read_bytes().decode())\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == [CONTENT, CONTENT]


def test_the_lock_file_pins_every_jar_of_both_sets_by_size_and_checksum() -> None:
    for jar_set, at_least in ((JarSet.SPARK, 8), (JarSet.BROKER, 40)):
        pinned = jars.locked(jar_set)
        assert len({jar.file_name for jar in pinned}) == len(pinned) >= at_least
        assert all(len(jar.sha256) == 64 and jar.size_bytes > 0 for jar in pinned)


def test_both_sets_can_share_a_cache_because_no_file_name_has_two_contents() -> None:
    sums: dict[str, set[str]] = {}
    for jar_set in JarSet:
        for jar in jars.locked(jar_set):
            sums.setdefault(jar.file_name, set()).add(jar.sha256)
    assert all(len(different) == 1 for different in sums.values())
