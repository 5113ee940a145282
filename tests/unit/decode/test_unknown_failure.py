"""One record never stops a table: an error of which decoding knows nothing sends the record that causes it to quarantine (I5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ingest.contract.definition import Contract
from ingest.decode import events
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import UNKNOWN_MAX, Events
from ingest.decode.rule_expression import ArrowRule, holds

pytestmark = pytest.mark.unit

CONTRACT = Contract.model_validate(
    {
        "pipeline": "t",
        "table": "events",
        "source": {"topic": "t", "format": "json"},
        "columns": [{"name": "id", "type": "STRING", "nullable": False}],
        "event_id": ["id"],
        "rules": [{"name": "known", "check": "id <> ''"}],
    }
)


def records(*values: bytes) -> pa.RecordBatch:
    n = len(values)
    columns = {"__key": pa.nulls(n, pa.binary()), "__value": pa.array(values, pa.binary()), "__headers": pa.nulls(n, pa.string())}
    columns |= {
        "_source": pa.array([0] * n, pa.int16()),
        "_partition": pa.array([0] * n, pa.int32()),
        "_offset": pa.array(range(n), pa.int64()),
    }
    columns["_kafka_timestamp"] = pa.nulls(n, pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict(columns)


def decoder(monkeypatch: pytest.MonkeyPatch, error: type[Exception], bad: str) -> Events:
    """One whose rules fail for ids that begin with `bad`."""

    def failing(rule: ArrowRule, batch: pa.RecordBatch) -> Any:
        if any(id is not None and id.startswith(bad) for id in batch.column("id").to_pylist()):
            raise error("a value that must not be shown")
        return holds(rule, batch)

    monkeypatch.setattr(events, "holds", failing)
    return Events(event_plan(CONTRACT, BatchSource(("topic-id",), 1, 2, datetime(2026, 1, 1, tzinfo=UTC)), arrow_rules(CONTRACT)))


def test_the_record_that_causes_it_is_refused_with_its_bytes_and_all_others_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [f'{{"id": "{"bad" if n in (3, 700) else "id"}{n}"}}'.encode() for n in range(1_000)]
    rows = pa.Table.from_batches(decoder(monkeypatch, RuntimeError, "bad").decode([records(*values)]))
    assert sorted(rows["_offset"].to_pylist()) == list(range(1_000))
    refused = rows.filter(pa.compute.is_valid(rows["__reason"])).to_pylist()
    assert [(row["_offset"], row["__reason"], row["__detail"], row["__value"]) for row in refused] == [
        (n, "unwritable", "RuntimeError", values[n]) for n in (3, 700)
    ]
    assert all((row["_epoch"], row["_batch"]) == (1, 2) for row in refused)


def test_an_error_that_most_records_raise_is_no_matter_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"id": "bad"}'] * (UNKNOWN_MAX + 1)
    with pytest.raises(RuntimeError):
        list(decoder(monkeypatch, RuntimeError, "bad").decode([records(*values)]))


@pytest.mark.parametrize("error", [OSError, MemoryError, ModuleNotFoundError])
def test_an_error_of_the_environment_refuses_no_record(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(error):
        list(decoder(monkeypatch, error, "bad").decode([records(b'{"id": "a"}', b'{"id": "bad"}')]))
