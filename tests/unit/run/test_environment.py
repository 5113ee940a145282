"""The doctor reports every check, counts only required ones, and keeps usage errors apart from findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli import doctor as _verbs  # noqa: F401 - registers the verb
from ingest.cli.app import app
from ingest.run import environment
from ingest.run.environment import EnvironmentCheck, examine, exit_code
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

pytestmark = pytest.mark.unit

INVALID = InvalidEnvironment("JAVA_MISSING", "no java.", expected="Java.", remedy="install it.")
WRONG = InvalidInput("CONTRACT_INVALID", "a typo.", expected="a key.", remedy="correct it.")
NOWHERE = "127.0.0.1:1"


def test_an_invalid_environment_outranks_an_invalid_contract_and_an_absent_broker_is_ignored() -> None:
    assert exit_code([EnvironmentCheck("java", "17"), EnvironmentCheck("broker", "", INVALID, needed=False)]) == 0
    assert exit_code([EnvironmentCheck("contracts", "", WRONG)]) == 2
    assert exit_code([EnvironmentCheck("contracts", "", WRONG), EnvironmentCheck("java", "", INVALID)]) == 4


def test_every_check_is_reported_even_if_an_earlier_one_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = {one.check: one for one in examine(tmp_path, str(tmp_path / "lake"), str(tmp_path / "checkpoints"), NOWHERE)}
    codes = {check: one.error.code for check, one in found.items() if one.error is not None}
    assert codes.items() >= {"java": "JAVA_MISSING", "jars (spark)": "JARS_MISSING", "broker": "BROKER_UNREACHABLE"}.items()
    assert found["lake"].error is None
    assert not (tmp_path / "lake").exists()  # a check leaves nothing behind


def test_a_file_in_place_of_the_lake_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("", encoding="utf-8")
    found = {one.check: one.error for one in examine(tmp_path, str(tmp_path / "lake"), str(tmp_path), NOWHERE)}
    error = found["lake"]
    assert error is not None
    assert (error.code, "--lake" in error.remedy) == ("NOT_WRITABLE", True)


def test_a_lake_or_a_cache_whose_name_spark_would_change_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "#1"))
    found = {one.check: one.error for one in examine(tmp_path, str(tmp_path / "a,b"), str(tmp_path / "a,b"), NOWHERE)}
    wrong = {check for check, error in found.items() if error is not None and error.code == "LOCATION_CHARACTER"}
    assert wrong == {"jars (spark)", "jars (broker)", "lake"}


def test_json_is_one_document_with_the_error_that_decides_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        environment, "examine", lambda *_: [EnvironmentCheck("contracts", "a typo.", WRONG), EnvironmentCheck("java", "no java.", INVALID)]
    )
    answer = CliRunner().invoke(app, ["doctor", "--json"])
    document = json.loads(answer.stdout)
    assert (answer.exit_code, document["ok"], document["error"]["code"]) == (4, False, "JAVA_MISSING")
    assert [check["error"]["code"] for check in document["checks"]] == ["CONTRACT_INVALID", "JAVA_MISSING"]


def test_an_unknown_option_exits_with_2() -> None:
    assert CliRunner().invoke(app, ["doctor", "--no-such-option"]).exit_code == 2
