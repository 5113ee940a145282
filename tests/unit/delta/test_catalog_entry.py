"""Names in a catalog for the tables of a lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.delta.catalog_entry import entries, exists
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit


def places(folder: Path, pipeline: str = "shop", table: str = "orders") -> Places:
    return Places(str(folder / "lake"), str(folder / "checkpoints"), pipeline, table)


def test_each_table_gets_four_names_and_only_existing_ones_are_recorded(tmp_path: Path) -> None:
    found = entries([places(tmp_path)], "main", "sho`p")
    assert [each.name for each in found] == [f"`main`.`sho``p`.`orders{end}`" for end in ("", "__quarantine", "__ledger", "__quality")]
    assert found[0].statement.endswith(f"USING DELTA LOCATION '{tmp_path}/lake/shop/orders/target'")
    assert not exists(None, found[0])


def test_two_pipelines_with_one_table_name_need_two_schemas(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        entries([places(tmp_path), places(tmp_path, "club")], "main", "shop")
    assert error.value.code == "CATALOG_NAME_TAKEN"


def test_a_lake_in_a_volume_cannot_be_registered() -> None:
    with pytest.raises(InvalidInput) as error:
        entries([Places("/Volumes/main/shop/lake", "/tmp/c", "shop", "orders")], "main", "shop")
    assert error.value.code == "VOLUME_HAS_NO_TABLES"
