"""Jars are fetched once, checked against the lock, and never half there."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ingest.runtime import class_archive, jars, java
from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.jars import Jar, JarSet

pytestmark = pytest.mark.unit

CONTENT = b"bytes of a jar"
PINNED = Jar(JarSet.SPARK, "org.example", "thing", "1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a lock of one jar that no repository has."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "locked", lambda jar_set: (PINNED,) if jar_set is JarSet.SPARK else ())
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Ivy settings file, named as for a mirror, of a repository that is a folder; returns where its one jar belongs."""
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


def test_jar_that_fits_its_sum_is_fetched_once_and_later_calls_start_no_java(
    cache: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write_bytes(CONTENT)
    said: list[str] = []
    (fetched,) = jars.ensure(JarSet.SPARK, said.append)
    assert fetched.read_bytes() == CONTENT
    assert len(said) == 1
    monkeypatch.setattr(subprocess, "run", no_java)
    assert jars.ensure(JarSet.SPARK, said.append) == (fetched,)
    assert len(said) == 1
    assert sorted(file.name for file in fetched.parent.iterdir()) == [PINNED.file_name]  # no scratch folder left


def test_jar_with_another_content_is_deleted_and_named_with_both_sums(cache: Path, repository: Path) -> None:
    wrong = b"BYTES of a jar"
    repository.write_bytes(wrong)
    with pytest.raises(InvalidEnvironment, match="JARS_CORRUPT") as refused:
        jars.ensure(JarSet.SPARK)
    assert hashlib.sha256(wrong).hexdigest() in refused.value.found
    assert PINNED.sha256 in refused.value.expected
    assert not list(cache.rglob("*.jar"))
    repository.write_bytes(CONTENT)  # and the wrong one is not remembered
    assert jars.ensure(JarSet.SPARK)[0].read_bytes() == CONTENT


def test_torn_jar_in_the_cache_is_fetched_again(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    (file,) = jars.ensure(JarSet.SPARK)
    file.write_bytes(CONTENT[:3])
    assert jars.missing(JarSet.SPARK) == (PINNED,)
    assert jars.ensure(JarSet.SPARK)[0].read_bytes() == CONTENT


def test_jar_that_rotted_in_the_cache_is_found_and_discarded(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    (file,) = jars.ensure(JarSet.SPARK)
    file.write_bytes(CONTENT[::-1])
    assert jars.damaged(JarSet.SPARK) == (file,)
    assert jars.discard_damaged(JarSet.SPARK) == (file,)
    assert not file.exists()


def test_no_network_is_one_clear_error_that_names_log_and_mirror_setting(
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


def test_cache_that_cannot_be_a_folder_is_an_error_that_names_the_setting(cache: Path) -> None:
    cache.write_text("a file", encoding="utf-8")
    with pytest.raises(InvalidEnvironment, match="JARS_UNREACHABLE") as refused:
        jars.ensure(JarSet.SPARK)
    assert "INGEST_CACHE" in refused.value.remedy


def test_full_disk_is_named_as_such_and_not_as_a_network_trouble(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_is_full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(subprocess, "run", disk_is_full)
    monkeypatch.setattr(java, "find", lambda: java.Java(Path("/"), Path("/bin/java"), 17))
    with pytest.raises(InvalidEnvironment, match="DISK_FULL"):
        jars.ensure(JarSet.SPARK)


def test_two_first_starts_at_once_both_get_whole_jars(cache: Path, repository: Path) -> None:
    repository.write_bytes(CONTENT)
    program = (
        "from ingest.runtime import jars\n"
        f"pinned = jars.Jar(jars.JarSet.SPARK, 'org.example', 'thing', '1.0', {PINNED.size_bytes}, '{PINNED.sha256}')\n"
        "jars.locked = lambda jar_set: (pinned,)\n"
        "print(jars.ensure(jars.JarSet.SPARK)[0].read_bytes().decode())\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == [CONTENT, CONTENT]


def test_lock_pins_every_jar_of_both_sets_by_size_and_sum() -> None:
    for jar_set, at_least in ((JarSet.SPARK, 8), (JarSet.BROKER, 40)):
        pinned = jars.locked(jar_set)
        assert len({jar.file_name for jar in pinned}) == len(pinned) >= at_least
        assert all(len(jar.sha256) == 64 and jar.size_bytes > 0 for jar in pinned)


def test_sets_may_share_a_cache_because_no_file_name_means_two_contents() -> None:
    sums: dict[str, set[str]] = {}
    for jar_set in JarSet:
        for jar in jars.locked(jar_set):
            sums.setdefault(jar.file_name, set()).add(jar.sha256)
    assert all(len(different) == 1 for different in sums.values())


def test_a_cache_that_cannot_take_the_archive_of_classes_costs_time_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache filled by somebody else, mounted to be read only."""
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path))
    (tmp_path / "classes").write_text("", encoding="utf-8")
    assert class_archive.make() is False


def test_the_archive_in_use_outlives_newer_ones_that_nobody_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path))
    used = class_archive.path()
    used.parent.mkdir()
    others = [used.parent / f"{number}.jsa" for number in range(class_archive.KEPT)]
    for age, archive in enumerate([*reversed(others), used]):
        archive.touch()
        os.utime(archive, times=(archive.stat().st_mtime - age - 1,) * 2)
    assert str(used) in class_archive.option()
    class_archive._remove_least_used(used.parent)
    assert {*used.parent.iterdir()} == {used, *others[1:]}


def test_an_installation_that_is_made_anew_in_the_same_folder_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes no archive of jars with another time, and says nothing: a start would take twice as long for good."""
    jar = tmp_path / "pyspark" / "jars" / "spark.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    former = class_archive.path()
    assert class_archive.path() == former
    os.utime(jar, times=(0, 0))
    assert class_archive.path() != former
