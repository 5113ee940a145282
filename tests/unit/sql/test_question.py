"""The built-in questions of `ingest sql`: filled in from the contract, as the page shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.contract.definition import Contract, load_contracts
from ingest.runtime.errors import InvalidInput
from ingest.sql.catalog import Catalog, Kind, LakeTable
from ingest.sql.engine import without_spark
from ingest.sql.question import contract_named, question, questions
from ingest.sql.read_only import refuse_writes

PROJECT = Path(__file__).parents[3]
ORDERS = load_contracts(PROJECT, ["orders"])[0]
SINCE = datetime(2025, 1, 2, tzinfo=UTC)


NAMES = {
    kind: f"shop.orders{suffix}"
    for kind, suffix in (("target", ""), ("quarantine", "__quarantine"), ("ledger", "__ledger"), ("quality", "__quality"))
}


def test_the_page_shows_each_question_with_its_title_explanation_and_sql() -> None:
    page = (PROJECT / "docs" / "how-to" / "sql-questions.md").read_text(encoding="utf-8")
    values = {**NAMES, "event_time": "ordered_at", "event_id": "order_id", "since": "TIMESTAMP '2025-01-02 00:00:00'"}
    for each in questions().values():
        head = f"## {each.title}\n\n`ingest sql --question {each.name} --table orders`\n\n{each.explanation}\n\n"
        section = f"{head}```sql\n{each.filled(values)}\n```\n"
        assert section in page, each.name


def test_a_question_is_filled_with_the_contracts_own_names() -> None:
    kinds: tuple[Kind, ...] = ("target", "ledger")
    known = Catalog(tuple(LakeTable("shop", "orders", kind, f"/shop/orders/{kind}") for kind in kinds))
    since = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    sql = question("delay-by-hour").of(ORDERS, known, since)
    assert (
        "FROM `orders`" in sql and "- `ordered_at` AS delay" in sql and "TIMESTAMP '2025-01-02 03:04:05.000000'" in sql and "{" not in sql
    )
    with pytest.raises(InvalidInput, match="no table quarantine") as caught:
        question("quarantine-by-reason").of(ORDERS, known, since)
    assert caught.value.remedy.startswith("run `ingest run shop.orders` first")
    with pytest.raises(InvalidInput, match="no table quality") as caught:
        question("failed-expectations").of(ORDERS, known, since)
    assert caught.value.remedy.startswith("run `ingest check shop.orders` first")
    with pytest.raises(InvalidInput, match="no event_time in its contract"):
        question("delay-by-hour").of(Contract.model_validate({**ORDERS.model_dump(), "event_time": None}), known, since)
    with pytest.raises(InvalidInput, match="did you mean batches"):
        question("batch")


def test_a_quarantined_record_that_is_not_text_does_not_hide_the_others_in_an_answer(tmp_path: Path) -> None:
    """In a raw topic, any record may be like that, whatever its reason."""
    held = {"not_utf8": b"\xff", "broken_rule": b"\xfe", "malformed_json": b"{", "tombstone": None}
    texts = {name: ["x"] * len(held) for name in ("topic", "reason_detail", "state")}
    numbers = {name: pa.array(range(len(held))) for name in ("source", "partition", "offset")}
    times = pa.array([SINCE] * len(held), pa.timestamp("us", "UTC"))
    columns = {**texts, **numbers, "kafka_timestamp": times, "reason_code": list(held), "value": pa.array(held.values(), pa.binary())}
    write_deltalake(str(tmp_path), pa.table(columns))
    known = Catalog((LakeTable("shop", "orders", "quarantine", str(tmp_path)),))
    answer = without_spark(known)(question("quarantined-records").of(ORDERS, known, SINCE), None)
    assert [(row[4], row[-1]) for row in answer.rows()] == [
        ("not_utf8", None),
        ("broken_rule", None),
        ("malformed_json", "{"),
        ("tombstone", None),
    ]


def test_every_built_in_question_passes_the_read_only_guard() -> None:
    for each in questions().values():
        refuse_writes(each.filled({**NAMES, "event_time": "a", "event_id": "b", "since": "c"}))
        assert each.title and each.explanation


def test_a_question_applies_to_the_named_table_or_to_the_only_one() -> None:
    contracts = load_contracts(PROJECT)
    assert contract_named(contracts, "orders") == contract_named(contracts, "shop.orders") == contract_named([ORDERS], None) == ORDERS
    with pytest.raises(InvalidInput, match="2 tables could be meant"):
        contract_named(contracts, None)
    with pytest.raises(InvalidInput, match=r"did you mean shop\.orders"):
        contract_named(contracts, "order")
