"""`ingest apply` refuses to alter a table that a run would refuse as foreign (I6)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import BatchCommit, Create
from ingest.run.alter import alter, refuse_foreign
from ingest.runtime.errors import Refused
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

ROWS = pa.table({"id": [1]})


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path), str(tmp_path), "shop", "orders")


def test_a_foreign_table_is_refused_and_one_that_we_created_or_wrote_to_is_not(places: Places) -> None:
    refuse_foreign(LocalFiles(), places)  # no table exists
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


def test_a_table_that_we_created_may_be_altered_before_the_first_batch(places: Places) -> None:
    batch_commit = BatchCommit(Create(), "shop", "orders").to_json()
    write_deltalake(places.target, ROWS.slice(0, 0), commit_properties=CommitProperties(custom_metadata={"userMetadata": batch_commit}))
    refuse_foreign(LocalFiles(), places)


def test_apply_checks_whether_the_table_is_foreign_before_anything_else(places: Places) -> None:
    """There is no session, so any later step would fail."""
    write_deltalake(places.target, ROWS)
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "t", "format": "raw"}, "event_id": "position"}
    with pytest.raises(Refused, match="TABLE_FOREIGN"):
        alter(lambda: cast(SparkSession, None), Contract.model_validate(document), places)
