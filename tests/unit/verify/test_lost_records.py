"""Records in neither table are decoded again, as a batch decodes them (I4)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ingest.contract.definition import Contract
from ingest.decode.arrow_json import REASON
from ingest.kafka.log.record_batch import Record
from ingest.verify.lost_records import batches, decoder

pytestmark = pytest.mark.unit

COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}]
SOURCE = {"topic": "orders", "format": "json"}


@pytest.mark.parametrize(
    ("milliseconds", "reason"), [(1_700_000_000_000, None), (2**62, "unwritable"), (-(2**62), "unwritable"), (2**63 - 1, "unwritable")]
)
def test_a_time_beyond_the_calendar_is_refused_also_where_its_microseconds_exceed_64_bits(milliseconds: int, reason: str | None) -> None:
    contract = Contract.model_validate({"pipeline": "shop", "table": "orders", "source": SOURCE, "event_id": ["id"], "columns": COLUMNS})
    decode = decoder(cast(Any, None), contract, ("topic-id",))
    records = [Record(0, milliseconds, None, b'{"id": "a"}', ())]
    found = [events.column(REASON).to_pylist() for batch in batches(records, (0, 0)) for events in decode(batch)]
    assert found == [[reason]]
