"""A selection of quarantined records, parsed from options."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ingest.repair.quarantine_replay import without_conflicts
from ingest.repair.selection import Selection, parse_selection
from ingest.runtime.errors import InvalidInput

pytestmark = pytest.mark.unit


def test_options_become_one_condition() -> None:
    found = parse_selection(["open"], ["not_json"], ["0:12", "orders.eu/1:3-9"], "2026-11-21T08:00+01:00", "2026-11-22")
    times = datetime(2026, 11, 21, 7, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
    assert found == Selection(("open",), ("not_json",), (), (("", 0, 12, 12), ("orders.eu", 1, 3, 9)), *times)
    assert "((`partition` = 0 AND `offset` >= 12 AND `offset` <= 12) OR (topic = 'orders.eu' AND `partition` = 1 AND" in found.condition
    assert "TIMESTAMP '2026-11-21 07:00:00.000000'" in found.condition


def test_a_hostile_reason_stays_a_literal() -> None:
    found = Selection(reasons=("x') OR ('1'='1", "{target}"))
    assert "'x'') OR (''1''=''1'" in found.condition
    assert "'{{target}}'" in found.condition and "'{target}'" in found.for_spark


def test_conflicts_are_left_out_unless_a_reason_is_named() -> None:
    assert "NOT IN ('conflicting_duplicate')" in without_conflicts(Selection()).condition
    assert without_conflicts(Selection(reasons=("not_json",))) == Selection(reasons=("not_json",))


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ((["lost"], [], [], None, None), "--state"),
        ((["open"], [], ["0"], None, None), "--at"),
        ((["open"], [], ["0:9-3"], None, None), "--at"),
        ((["open"], [], ["/0:9"], None, None), "--at"),
        ((["open"], [], ["o'/0:9"], None, None), "--at"),
        ((["open"], [], [], "yesterday", None), "--since"),
        ((["open"], [], [], None, "12"), "--until"),
    ],
)
def test_a_wrong_option_is_named(options: tuple[list[str], list[str], list[str], str | None, str | None], option: str) -> None:
    with pytest.raises(InvalidInput, match=option) as error:
        parse_selection(*options)
    assert error.value.code == "SELECTION_INVALID"
