"""`ingest apply` alters no table that a start would refuse as somebody else's (I6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.pipeline.alter import alter, refuse_foreign
from ingest.runtime.errors import Refused
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

ROWS = pa.table({"id": [1]})


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path), str(tmp_path), "shop", "orders")


def test_a_table_of_somebody_else_is_refused_and_what_we_have_made_or_written_is_not(places: Places) -> None:
    refuse_foreign(LocalFiles(), places)  # there is none
    write_deltalake(places.target, ROWS)
    with pytest.raises(Refused, match="TABLE_FOREIGN"):
        refuse_foreign(LocalFiles(), places)
    others = CommitProperties(app_transactions=[Transaction("oncelake/shop/payments", 0)])
    write_deltalake(places.target, ROWS, mode="append", commit_properties=others)
    with pytest.raises(Refused, match="TABLE_FOREIGN"):
        refuse_foreign(LocalFiles(), places)
    ours = CommitProperties(app_transactions=[Transaction("oncelake/shop/orders", 0)])
    write_deltalake(places.target, ROWS, mode="append", commit_properties=ours)
    refuse_foreign(LocalFiles(), places)


def test_our_own_creation_may_be_altered_before_the_first_batch(places: Places) -> None:
    batch_commit = json.dumps({"oncelake": 1, "kind": "created", "pipeline": "shop", "table": "orders"})
    write_deltalake(places.target, ROWS.slice(0, 0), commit_properties=CommitProperties(custom_metadata={"userMetadata": batch_commit}))
    refuse_foreign(LocalFiles(), places)


def test_apply_asks_whose_the_table_is_before_it_needs_anything_else(places: Places) -> None:
    """Without a session: what would come next has none to work with."""
    write_deltalake(places.target, ROWS)
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "t", "format": "raw"}, "event_id": "position"}
    with pytest.raises(Refused, match="TABLE_FOREIGN"):
        alter(cast(SparkSession, None), Contract.model_validate(document), places)
