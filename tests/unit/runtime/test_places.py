"""Checkpoints and tables lie apart: checkpoints may be deleted at any time, tables never (I2)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ingest.cli.app import main
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places, refuse_nested

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("lake", "checkpoints"), [("data", "data"), ("data", "data/shop/orders"), ("data/shop/orders", "data"), ("link", "data")]
)
def test_a_checkpoint_in_one_folder_with_its_tables_is_refused(tmp_path: Path, lake: str, checkpoints: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(InvalidInput, match="PLACES_NESTED"):
        refuse_nested(Places(str(tmp_path / lake), str(tmp_path / checkpoints), "shop", "orders"))
    with pytest.raises(InvalidInput, match="PLACES_NESTED"):
        refuse_nested(Places("s3a://bucket/data/", "s3a://bucket/data", "shop", "orders"))


@pytest.mark.parametrize("checkpoints", ["checkpoints", "lake/checkpoints", "lake-2"])
def test_folders_that_lie_apart_are_not(tmp_path: Path, checkpoints: str) -> None:
    refuse_nested(Places(str(tmp_path / "lake"), str(tmp_path / checkpoints), "shop", "orders"))


@pytest.mark.parametrize("location", ["/data/a%20b", "file:/data/a%2520b", "data%2F"])
def test_a_folder_that_deltalake_would_look_for_under_another_name_is_refused(location: str) -> None:
    """It reads the log there and the files elsewhere: a first run would go well, each later one end as QUERY_FAILED."""
    with pytest.raises(InvalidInput, match="LOCATION_ENCODED"):
        Places(location, "/checkpoints", "shop", "orders")


def test_blanks_and_what_only_looks_so_are_not() -> None:
    assert Places("file:/data/a%20b", "/100%/of%zz", "shop", "orders").target == "/data/a b/shop/orders/target"
    assert Places("s3a://bucket/a%20b", "s3a://bucket/c", "shop", "orders").lake == "s3a://bucket/a%20b"


@pytest.mark.parametrize("verb", [("run",), ("seek", "--to", "table")])
def test_a_run_and_a_seek_say_so_before_anything_is_asked_or_written(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    folder = str(tmp_path / "data")
    words = ["ingest", *verb, "payments", "--lake", folder, "--checkpoints", folder, "--bootstrap-servers", "127.0.0.1:1", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "PLACES_NESTED"
    assert not list(tmp_path.rglob("*"))
