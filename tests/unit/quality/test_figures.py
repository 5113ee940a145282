"""Figures of another system: read exactly, and refused with the place of the first wrong one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.quality.control_total import Sums, Totals
from ingest.quality.figures import contract_with_totals, read_figures
from ingest.runtime.errors import InvalidInput
from tests.unit.quality.money_scene import TOTAL, contract_of

pytestmark = pytest.mark.unit

FIRST = date(2026, 11, 1)
HEAD = "day,currency,fee,items,rows\n"


def read(tmp_path: Path, text: str, name: str = "figures.csv", contract: Contract | None = None) -> dict[str, Totals]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_figures(contract or contract_of(), tmp_path / name, None, KafkaOptions.from_environment(""))


def test_csv_and_ndjson_give_the_same_exact_figures(tmp_path: Path) -> None:
    """A float would make 0.30000000000000004 of a sum, and lose the last digits of a large one."""
    large = "12345678901234567890123.4567"
    expected = {"fees": {(FIRST, ("EUR",)): Sums(3, {"fee": Decimal(large), "items": Decimal(-2)}), (FIRST, (None,)): Sums(None, {
        "fee": Decimal("0.0000000"), "items": Decimal(0)})}}  # fmt: skip
    csv = read(tmp_path, f"\ufeffitems,{HEAD.replace(',items', '')}-2,2026-11-01,EUR,{large},3\n0,2026-11-01,,0.0000000,\n")
    lines = f'{{"total": "fees", "day": "2026-11-01", "currency": "EUR", "fee": {large}, "items": -2, "rows": 3}}\n\n'
    lines += '{"day": "2026-11-01", "currency": null, "fee": 0.0000000, "items": "0"}'
    assert csv == read(tmp_path, lines, "figures.ndjson") == expected


def test_several_totals_are_told_apart_by_name(tmp_path: Path) -> None:
    contract = contract_of(control_totals=[TOTAL, {**TOTAL, "name": "count", "sum": ["items"], "by": []}])
    lines = '{"total": "fees", "day": "2026-11-01", "currency": "EUR", "fee": 1, "items": 1}\n'
    lines += '{"total": "count", "day": "2026-11-01", "items": 5}'
    found = read(tmp_path, lines, "f.jsonl", contract)
    assert (found["fees"][FIRST, ("EUR",)].sums["fee"], found["count"][FIRST, ()].sums["items"]) == (Decimal(1), Decimal(5))
    with pytest.raises(InvalidInput, match=r"FIGURES_INVALID.*f\.jsonl:1: total is None.*fees, count"):
        read(tmp_path, '{"day": "2026-11-01", "items": 5}', "f.jsonl", contract)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "there is no figure"),
        (HEAD, "there is no figure"),
        (HEAD + "2026-11-01,EUR,1,1\n", "figures.csv:2: it has more or fewer fields"),
        (HEAD + "2026-11-01,EUR,1,1,1,1\n", "figures.csv:2: it has more or fewer fields"),
        (HEAD + "2026-11-01,EUR,1e3,1,1\n", "fee is '1e3'"),
        (HEAD + '2026-11-01,EUR,"1,000.00",1,1\n', "fee is '1,000.00'"),
        (HEAD + "2026-11-01,EUR,NaN,1,1\n", "fee is 'NaN'"),
        (HEAD + "2026-11-01,EUR,,1,1\n", "fee is 'None'"),
        (HEAD + "2026-11-01,EUR,1,1,1.5\n", "rows is '1.5'"),
        (HEAD + "01.11.2026,EUR,1,1,1\n", "day is '01.11.2026'"),
        (HEAD + "2026-11-31,EUR,1,1,1\n", "day is '2026-11-31'"),
        ("day,currency,fee\n2026-11-01,EUR,1\n", "the key 'items' is missing"),
        ("day,currency,fee,items,note\n2026-11-01,EUR,1,1,x\n", "unknown key 'note'"),
        (HEAD + "2026-11-01,EUR,1,1,1\n2026-11-01,EUR,1,1,1\n", "figures.csv:3: the group has a figure already, at figures.csv:2"),
    ],
)  # fmt: skip
def test_a_wrong_figure_is_refused_with_its_line(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, text)
    assert refused.value.code == "FIGURES_INVALID" and found in refused.value.found, refused.value.found


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "{",
        '{"day": "2026-11-01", "currency": "EUR", "fee": true, "items": 1}',
        "[" * 100_000,
        '{"day": ' + "[" * 100_000,
        '{"total": ["fees"], "day": "2026-11-01", "currency": "EUR", "fee": 1, "items": 1}',
        '{"day": "2026-11-01", "currency": "EUR", "fee": 1e999999999, "items": 1}',  # in full it is a gigabyte of zeros
        '{"day": "2026-11-01", "currency": "EUR", "fee": -1e-999999999, "items": 1}',
        '{"day": "2026-11-01", "currency": "EUR", "fee": 1, "items": 1, "rows": 1e999999999}',
    ],
)
def test_a_line_that_is_no_figure_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="FIGURES_INVALID"):
        read(tmp_path, text, "figures.ndjson")


def test_a_file_of_another_kind_or_none_is_refused(tmp_path: Path) -> None:
    for name in ("figures.xlsx", "missing.csv"):
        with pytest.raises(InvalidInput, match="FIGURES_UNREADABLE"):
            read_figures(contract_of(), tmp_path / name, None, KafkaOptions.from_environment(""))


def record(offset: int, key: bytes | None, value: Any) -> SimpleNamespace:
    return SimpleNamespace(partition=0, offset=offset, key=key, value=None if value is None else json.dumps(value).encode())


def test_of_a_topic_the_newest_record_of_each_key_counts_and_a_tombstone_takes_its_figure_back(monkeypatch: pytest.MonkeyPatch) -> None:
    day = {"day": "2026-11-01", "items": 1}
    records = [
        record(0, b"eur", {**day, "currency": "EUR", "fee": "1.00"}),
        record(1, b"usd", {**day, "currency": "USD", "fee": "2.00"}),
        record(2, b"eur", {**day, "currency": "EUR", "fee": "1.50"}),
        record(3, b"usd", None),
        record(4, None, {**day, "currency": "CHF", "fee": "3.00"}),
    ]
    read_topics: list[str] = []

    def committed(_: KafkaOptions, topic: str) -> Sequence[SimpleNamespace]:
        read_topics.append(topic)
        return records

    monkeypatch.setattr("ingest.kafka.committed_records.committed_records", committed)
    found = read_figures(contract_of(), None, "figures", KafkaOptions.from_environment(""))["fees"]
    assert {group: sums.sums["fee"] for (_, (group,)), sums in found.items()} == {"EUR": Decimal("1.50"), "CHF": Decimal("3.00")}
    assert read_topics == ["figures"]


def test_figures_are_for_exactly_one_table() -> None:
    one, other = contract_of(), contract_of(table="refunds")
    assert contract_with_totals([contract_of(control_totals=[], table="x"), one]) == one
    for wrong in ([one, other], [contract_of(control_totals=[])]):
        with pytest.raises(InvalidInput, match="TOTALS_TABLE"):
            contract_with_totals(wrong)
