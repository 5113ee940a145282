"""Differences if Databricks started Spark: settings, storage and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.cli import app as application
from ingest.run import environment, table_lock
from ingest.runtime import databricks, spark
from ingest.runtime.files import is_local
from ingest.runtime.places import Places, log_folder, pages_folder

pytestmark = pytest.mark.unit

VOLUME = "/Volumes/main/oncelake/oncelake"


@pytest.fixture
def on_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(databricks.VARIABLE, "17.3")


def test_a_platform_session_gets_settings_that_affect_rows_and_none_of_the_platforms_own() -> None:
    given = spark.settable()
    assert given.items() < spark.PINNED.items()
    assert {"spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive"} <= given.keys()
    assert "spark.sql.execution.arrow.maxBytesPerBatch" in given
    assert not any(key.startswith(("spark.sql.extensions", "spark.sql.catalog", "spark.jars", "spark.driver")) for key in given)
    assert given.keys() | spark.FIXED_AT_START == spark.PINNED.keys()


@pytest.mark.usefixtures("on_databricks")
@pytest.mark.parametrize("location", [f"{VOLUME}/lake", "dbfs:/lake", "lake", "/lake", "s3://bucket/lake"])
def test_on_databricks_a_location_is_in_the_platforms_storage(location: str) -> None:
    assert not is_local(location)


@pytest.mark.usefixtures("on_databricks")
def test_on_databricks_a_file_uri_is_on_the_drivers_disk() -> None:
    assert is_local("file:/local_disk0/lake")


def test_elsewhere_a_path_is_on_the_local_disk() -> None:
    assert is_local(f"{VOLUME}/lake")
    assert is_local("lake")
    assert not is_local("dbfs:/lake")


@pytest.mark.usefixtures("on_databricks")
def test_a_volume_path_is_passed_to_spark_unchanged_and_gets_no_lock_log_or_page() -> None:
    places = Places(f"{VOLUME}/lake/", f"{VOLUME}/checkpoints", "shop", "orders")
    assert places.target == f"{VOLUME}/lake/shop/orders/target"
    assert places.checkpoint == f"{VOLUME}/checkpoints/shop/orders"
    assert table_lock.folder(places) is None
    assert not str(log_folder(f"{VOLUME}/lake")).startswith("/Volumes")
    assert pages_folder(places) == Path.cwd() / "data_docs/shop/orders", "GX writes plain files, and the documentation says where"


def test_the_doctor_checks_java_and_jars_only_if_the_platform_does_not_provide_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "_broker", lambda servers: "not asked")
    monkeypatch.setattr(environment, "_jars", lambda jar_set: "not read")

    def checks() -> set[str]:
        return {one.check.split()[0] for one in environment.examine(tmp_path, str(tmp_path), str(tmp_path), "127.0.0.1:1")}

    here = checks()
    monkeypatch.setenv(databricks.VARIABLE, "17.3")
    assert here - checks() == {"java", "jars"}


def test_the_entry_point_returns_on_success_because_databricks_treats_any_exit_as_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ingest", "verify", "--help"])
    application.main()
    assert "--checkpoints" in capsys.readouterr().out


def test_the_entry_point_exits_on_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["ingest", "verify", "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        application.main()
    assert ended.value.code == 2
    capsys.readouterr()


def test_without_pyspark_a_run_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from ingest.cli.app import main; main()"
    words = [sys.executable, "-c", code, "run", "--once"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=here, check=False)
    assert ended.returncode == 4
    assert "EXTRA_MISSING" in ended.stderr
    assert "extra `local`" in ended.stderr
    assert "Traceback" not in ended.stderr
