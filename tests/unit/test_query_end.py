"""How a query ended: in order, or by an error with a name (I2)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.contract import Contract
from ingest.files import LocalFiles
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.recovery.look import EPOCH_FILE
from ingest.stream.query import TableQuery
from ingest.stream.topic import Topic

RAW = {"pipeline": "shop", "table": "orders", "source": {"topic": "t", "format": "raw"}, "event_id": "position"}


@pytest.mark.parametrize(("asked", "there", "code"), [(True, False, None), (True, True, "QUERY_FAILED"), (False, False, "QUERY_FAILED")])
def test_a_run_that_was_asked_to_stop_does_not_mind_that_its_checkpoint_is_gone(
    tmp_path: Path, asked: bool, there: bool, code: str | None
) -> None:
    """The batch at hand is committed; Spark cannot note that any more, and nobody needs the note."""
    query: Any = TableQuery(
        Contract.model_validate(RAW),
        Places(str(tmp_path), str(tmp_path), "shop", "orders"),
        KafkaOptions("h:1"),
        Topic("t", "", (0,)),
        print,
    )
    failed = SimpleNamespace(exception=lambda: OSError(f"File file:{tmp_path}/commits does not exist"))
    query._query, query._table = failed, SimpleNamespace(files=LocalFiles(), epoch=SimpleNamespace(checkpoint=str(tmp_path)))
    if there:
        LocalFiles().write(f"{tmp_path}/{EPOCH_FILE}", b"{}")
    if asked:
        query.ask_to_stop()
    failure = query._failure()
    assert (failure and failure.code) == code
