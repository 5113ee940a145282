"""Checkpoints and tables must be in separate folders: checkpoints may be deleted at any time, tables never (I2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places, refuse_nested, spark_log
from tests.command import exit_code

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("lake", "checkpoints"), [("data", "data"), ("data", "data/shop/orders"), ("data/shop/orders", "data"), ("link", "data")]
)
def test_checkpoints_in_the_same_folder_as_the_tables_are_refused(tmp_path: Path, lake: str, checkpoints: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(InvalidInput, match="PLACES_NESTED"):
        refuse_nested(Places(str(tmp_path / lake), str(tmp_path / checkpoints), "shop", "orders"))
    with pytest.raises(InvalidInput, match="PLACES_NESTED"):
        refuse_nested(Places("s3a://bucket/data/", "s3a://bucket/data", "shop", "orders"))


@pytest.mark.parametrize("checkpoints", ["checkpoints", "lake/checkpoints", "lake-2"])
def test_separate_folders_for_lake_and_checkpoints_are_accepted(tmp_path: Path, checkpoints: str) -> None:
    refuse_nested(Places(str(tmp_path / "lake"), str(tmp_path / checkpoints), "shop", "orders"))


@pytest.mark.parametrize("location", ["/data/a%20b", "file:/data/a%2520b", "data%2F"])
def test_a_location_that_deltalake_would_decode_to_another_folder_is_refused(location: str) -> None:
    """It would read log and files in different folders: the first run would succeed, later ones would end with QUERY_FAILED."""
    with pytest.raises(InvalidInput, match="LOCATION_ENCODED"):
        Places(location, "/checkpoints", "shop", "orders")


@pytest.mark.parametrize("name", ["`", "\\", "\n", "\x7f"])
def test_a_lake_in_which_delta_would_look_for_another_table_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="LOCATION_CHARACTER"):
        Places(f"/data/a{name}b", "/checkpoints", "shop", "orders")
    with pytest.raises(InvalidInput, match="LOCATION_CHARACTER"):
        spark_log(f"/data/a{name}b", "run")


def test_checkpoints_may_have_any_name() -> None:
    name = '/it\'s "50 %41" = a+b, `ü` \\ 🌻'
    assert Places("/lake", name, "shop", "orders").checkpoints == name


def test_spaces_and_percent_signs_that_are_no_encoding_are_accepted() -> None:
    assert Places("file:///data/a#1?", "/c", "shop", "orders").lake == "/data/a#1?"
    assert Places("file:/data/a%20b", "/100%/of%zz", "shop", "orders").target == "/data/a b/shop/orders/target"
    assert Places("s3a://bucket/a%20b", "s3a://bucket/c", "shop", "orders").lake == "s3a://bucket/a%20b"


@pytest.mark.parametrize("verb", [("run",), ("seek", "--to", "table")])
def test_run_and_seek_refuse_nested_places_before_they_ask_a_broker_or_write(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    folder = str(tmp_path / "data")
    words = [*verb, "payments", "--lake", folder, "--checkpoints", folder, "--bootstrap-servers", "127.0.0.1:1", "--json"]
    assert exit_code(*words) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "PLACES_NESTED"
    assert not list(tmp_path.rglob("*"))
