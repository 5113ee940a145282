"""Control totals: exact sums by day and group, compared with the figures of another system."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from ingest.contract.definition import Contract
from ingest.delta.delta_sql import At, DataFusion
from ingest.quality.control_total import GroupKey, Sums, Totals, control_totals, grand_totals, lines
from tests.unit.quality.money_scene import contract_of, paid, write

pytestmark = pytest.mark.unit

FIRST, SECOND = date(2026, 11, 1), date(2026, 11, 2)


def ours(folder: Path, contract: Contract, version: int | None = None) -> dict[str, Totals]:
    return control_totals(DataFusion(), contract, At(str(folder / "lake/shop/payments/target"), version))


def figures(*given: tuple[date, str | None, str, int, int | None]) -> Mapping[str, Totals]:
    found: dict[GroupKey, Sums] = {}
    for day, currency, fee, items, rows in given:
        found[day, (currency,)] = Sums(rows, {"fee": Decimal(fee), "items": Decimal(items)})
    return {"fees": found}


def verdicts(folder: Path, *given: tuple[date, str | None, str, int, int | None]) -> dict[tuple[str, str | None, str], str]:
    """The verdict of each figure by day, currency and column."""
    contract = contract_of()
    found = lines(contract, ours(folder, contract), figures(*given))
    return {(str(line.day), line.group["currency"], line.column): line.verdict for line in found}


def test_sums_are_exact_by_utc_day_and_group_and_a_null_adds_nothing(tmp_path: Path) -> None:
    """0.1 + 0.2 is not 0.3 as a float. The sum of two values of 28 digits has 29."""
    write(tmp_path, paid(1, "EUR", "0.1"), paid(1, "EUR", "0.2", 2, hour=23), paid(2, "EUR", "1"), paid(1, "USD", None), paid(1, None, "7"))
    huge = "9" * 24 + ".9999"
    write(tmp_path, paid(3, "CHF", huge), paid(3, "CHF", huge))
    found = ours(tmp_path, contract_of())["fees"]
    assert found[FIRST, ("EUR",)] == Sums(2, {"fee": Decimal("0.3000"), "items": Decimal(3)})
    assert found[SECOND, ("EUR",)] == Sums(1, {"fee": Decimal("1.0000"), "items": Decimal(1)})
    assert found[FIRST, ("USD",)] == Sums(1, {"fee": Decimal("0.0000"), "items": Decimal(1)})
    assert found[FIRST, (None,)].sums["fee"] == 7
    assert found[date(2026, 11, 3), ("CHF",)].sums["fee"] == Decimal("1" + "9" * 24 + ".9998")
    assert set(ours(tmp_path, contract_of(), 0)["fees"]) == {(FIRST, ("EUR",)), (SECOND, ("EUR",)), (FIRST, ("USD",)), (FIRST, (None,))}


def test_a_sum_of_whole_numbers_does_not_wrap_around(tmp_path: Path) -> None:
    most = 2**63 - 1
    write(tmp_path, paid(1, "EUR", "0", most), paid(1, "EUR", "0", most))
    assert ours(tmp_path, contract_of())["fees"][FIRST, ("EUR",)].sums["items"] == 2 * most


def test_a_difference_within_the_tolerance_is_accepted_and_a_larger_one_is_found(tmp_path: Path) -> None:
    write(tmp_path, paid(1, "EUR", "10.00"), paid(1, "USD", "10.00"))
    found = verdicts(tmp_path, (FIRST, "EUR", "10.01", 1, 1), (FIRST, "USD", "10.0101", 1, 2))
    assert found["2026-11-01", "EUR", "fee"] == "equal"
    assert found["2026-11-01", "USD", "fee"] == "differs"
    assert found["2026-11-01", "EUR", "rows"] == "equal"
    assert found["2026-11-01", "USD", "rows"] == "differs", "the tolerance is for sums, not for the number of rows"


def test_differences_and_grand_totals_keep_all_of_38_digits() -> None:
    """Python's decimals round to 28 digits by default."""
    contract, many = contract_of(), "1" * 34 + ".1111"
    here = figures((FIRST, "EUR", many, 1, 1), (SECOND, "EUR", "0.0001", 1, 1))
    (line,) = [each for each in lines(contract, here, figures((FIRST, "EUR", "0.0010", 1, 1))) if (each.day, each.column) == (FIRST, "fee")]
    assert (line.verdict, line.difference) == ("differs", Decimal("1" * 34 + ".1101"))
    assert grand_totals(contract, here)[0]["groups"][0]["sums"]["fee"] == "1" * 34 + ".1112"


def test_only_days_that_the_figures_contain_are_judged(tmp_path: Path) -> None:
    write(tmp_path, paid(1, "EUR", "1"), paid(2, "EUR", "1"))
    found = verdicts(tmp_path, (FIRST, "EUR", "1", 1, None))
    assert found == {
        ("2026-11-01", "EUR", "fee"): "equal",
        ("2026-11-01", "EUR", "items"): "equal",
        ("2026-11-02", "EUR", "fee"): "not judged",
        ("2026-11-02", "EUR", "items"): "not judged",
        ("2026-11-02", "EUR", "rows"): "not judged",
    }


def test_a_group_that_one_side_lacks_is_named_even_within_the_tolerance(tmp_path: Path) -> None:
    write(tmp_path, paid(1, "EUR", "0.01"))
    found = verdicts(tmp_path, (FIRST, "USD", "0.01", 0, 1))
    assert found["2026-11-01", "EUR", "fee"] == "only here"
    assert found["2026-11-01", "USD", "fee"] == "only there"
    assert found["2026-11-01", "USD", "items"] == "equal", "a figure of zero is no loss"
    assert found["2026-11-01", "USD", "rows"] == "only there"


def test_a_proof_adds_up_all_days_of_a_group(tmp_path: Path) -> None:
    write(tmp_path, paid(1, "EUR", "0.1"), paid(2, "EUR", "0.2"), paid(2, "USD", "5"))
    contract = contract_of()
    assert grand_totals(contract, ours(tmp_path, contract)) == [
        {
            "name": "fees",
            "groups": [
                {"group": {"currency": "EUR"}, "rows": 2, "sums": {"fee": "0.3000", "items": "2"}},
                {"group": {"currency": "USD"}, "rows": 1, "sums": {"fee": "5.0000", "items": "1"}},
            ],
        }
    ]


def test_control_totals_decide_nothing_about_a_record_so_the_contracts_hash_ignores_them() -> None:
    assert contract_of().hash == contract_of(control_totals=[]).hash == contract_of(quality="hold").hash
