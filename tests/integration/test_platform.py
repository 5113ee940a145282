"""The platform probe (I8) detects a runtime that does not fence an earlier writer before anything is written to a table.

Also tested: the signals that the driver's JVM ignores.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.delta import writer
from ingest.delta.batch_commit import BatchCommit
from ingest.run import platform
from ingest.runtime import jars
from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.spark import jvm_pid

pytestmark = pytest.mark.integration


def never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that ignores the session's transaction id."""

    @contextmanager
    def only_the_metadata(session: SparkSession, batch_commit: BatchCommit) -> Iterator[None]:
        session.conf.set(writer.METADATA, batch_commit.to_json())
        yield
        session.conf.unset(writer.METADATA)

    monkeypatch.setattr(writer, "_transaction", only_the_metadata)


def not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that commits transaction ids, but never skips an earlier one."""
    original, numbers = writer._transaction, iter(range(99))

    @contextmanager
    def another_app(session: SparkSession, batch_commit: BatchCommit) -> Iterator[None]:
        with original(session, batch_commit):
            session.conf.set(writer.APP_ID, f"somebody/{next(numbers)}")
            yield

    monkeypatch.setattr(writer, "_transaction", another_app)


@pytest.mark.slow
def test_the_tests_runtime_fences_an_earlier_transaction_id_and_the_probe_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    assert platform.name(spark) in platform.known()
    report = platform.probe(spark, str(tmp_path))
    assert "an earlier append was skipped, an earlier MERGE was skipped, a MERGE in flight was skipped" in report
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("bug", [never_set, not_skipped])
def test_a_runtime_that_does_not_fence_is_unfit_and_the_probe_leaves_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Any
) -> None:
    bug(monkeypatch)
    with pytest.raises(InvalidEnvironment, match="PLATFORM_UNFIT") as environment_error:
        platform.probe(spark, str(tmp_path))
    assert (
        any(name in environment_error.value.found for name in platform.known())
        and "ingest doctor --spark" in environment_error.value.remedy
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_runtime_is_probed_once_and_a_known_one_never(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []
    monkeypatch.setattr(platform, "probe", lambda _, lake: probed.append(lake))
    monkeypatch.setattr(jars, "cache_folder", lambda: tmp_path / "cache")
    platform.ensure(spark, "lake")
    assert probed == []
    monkeypatch.setattr(platform, "name", lambda _: "Spark 9, Delta 9")
    for _ in range(2):
        platform.ensure(spark, "lake")
    assert probed == ["lake"]


def test_the_jvm_ignores_sigterm_and_sigint_that_are_sent_to_every_process(spark: SparkSession) -> None:
    """The current batch needs the JVM. It ends together with its Python process."""
    status = Path(f"/proc/{jvm_pid(spark)}/status").read_text(encoding="utf-8")
    ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), 16)
    assert all(ignored >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGINT))
