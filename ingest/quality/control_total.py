"""Control totals: sums of a target's columns by day and group, compared with the figures of another system. All sums are exact decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from functools import reduce
from typing import Any

from ingest.contract.definition import Contract
from ingest.contract.parts import ControlTotal
from ingest.contract.sql_type import Decimal as DecimalType
from ingest.delta.delta_sql import At, Engine

GroupKey = tuple[date | None, tuple[str | None, ...]]
"""The day (UTC) and the values of the columns in `by`, as text."""
ROWS = "rows"
# Python rounds a result to 28 digits by default, and a sum has up to 38.
EXACT = Context(prec=100)


@dataclass(frozen=True)
class Sums:
    """The number of rows of a group (None: not given), and the sum of each column."""

    rows: int | None
    sums: Mapping[str, Decimal]


Totals = Mapping[GroupKey, Sums]


@dataclass(frozen=True)
class TotalLine:
    """One figure of one group. `column` is a column, or `rows`. `theirs` is None without figures, `ours` if the target has no such group.

    `verdict` is `equal`, `differs`, `only here`, `only there`, or `not judged` (a day that the figures do not contain).
    """

    total: str
    day: date | None
    group: Mapping[str, str | None]
    column: str
    ours: Decimal | None
    theirs: Decimal | None
    verdict: str

    @property
    def difference(self) -> Decimal | None:
        """Ours less theirs; None if there is nothing to compare with."""
        return None if self.verdict == "not judged" else EXACT.subtract(self.ours or Decimal(), self.theirs or Decimal())

    @property
    def is_found(self) -> bool:
        """Whether this is a finding."""
        return self.verdict not in ("equal", "not judged")


def control_totals(engine: Engine, contract: Contract, target: At) -> dict[str, Totals]:
    """The totals of the contract by name, over all rows of the target at this version. A NULL adds nothing to a sum. Raises Unreadable."""
    return {total.name: _summed(engine, contract, total, target) for total in contract.control_totals}


def lines(contract: Contract, ours: Mapping[str, Totals], figures: Mapping[str, Totals]) -> list[TotalLine]:
    """Ours beside the figures, for every total. Days that the figures do not contain are open, and not judged."""
    return [line for total in contract.control_totals for line in _compared(total, ours.get(total.name, {}), figures.get(total.name, {}))]


def _summed(engine: Engine, contract: Contract, total: ControlTotal, target: At) -> Totals:
    scales = {column.name: column.sql_type.scale for column in contract.columns if isinstance(column.sql_type, DecimalType)}
    keys = ["day", *(f"k{number}" for number in range(len(total.by)))]
    wanted = [f"CAST(`{total.day}` AS DATE) AS `day`", *(f"`{name}` AS k{number}" for number, name in enumerate(total.by))]
    # 28 digits and ten more for the number of rows: the sum of a whole number would wrap around without a word.
    wanted += [f"CAST(`{name}` AS DECIMAL(28, {scales.get(name, 0)})) AS s{number}" for number, name in enumerate(total.sum)]
    sums = "".join(f", sum(s{number}) AS s{number}" for number in range(len(total.sum)))
    grouped = (
        f"SELECT {', '.join(keys)}, count(*) AS n{sums} FROM (SELECT {', '.join(wanted)} FROM {{target}}) AS x GROUP BY {', '.join(keys)}"
    )
    found: dict[GroupKey, Sums] = {}
    for row in engine.ask(grouped, target=target):
        zero = {name: Decimal().scaleb(-scales.get(name, 0)) for name in total.sum}
        values = {name: zero[name] if (value := row[f"s{number}"]) is None else value for number, name in enumerate(total.sum)}
        found[row["day"], tuple(as_text(row[key]) for key in keys[1:])] = Sums(row["n"], values)
    return found


def as_text(value: Any) -> str | None:
    """A value of a group as figures write it: `true`, `17`, `2026-11-25`."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _compared(total: ControlTotal, ours: Totals, theirs: Totals) -> list[TotalLine]:
    closed = {day for day, _ in theirs}
    found = []
    for key in sorted(ours.keys() | theirs.keys(), key=lambda key: (key[0] or date.min, [each or "" for each in key[1]])):
        here, there = ours.get(key), theirs.get(key)
        for column in (*total.sum, ROWS):
            mine, other = _figure(here, column), _figure(there, column)
            if column == ROWS and other is None and (mine is None or key[0] in closed):
                continue  # the figures need not count rows
            verdict = _verdict(total, column, mine, other, judged=key[0] in closed, both=here is not None and there is not None)
            found.append(TotalLine(total.name, key[0], dict(zip(total.by, key[1], strict=True)), column, mine, other, verdict))
    return found


def _figure(sums: Sums | None, column: str) -> Decimal | None:
    if sums is None:
        return None
    return sums.sums[column] if column != ROWS else None if sums.rows is None else Decimal(sums.rows)


def _verdict(total: ControlTotal, column: str, ours: Decimal | None, theirs: Decimal | None, *, judged: bool, both: bool) -> str:
    if not judged:
        return "not judged"
    if not both:  # a group that is missing is more than a difference, unless it adds up to nothing
        return "equal" if not ours and not theirs else "only here" if theirs is None else "only there"
    accepted = Decimal(total.tolerance) if column != ROWS else Decimal()
    return "equal" if EXACT.abs(EXACT.subtract(ours or Decimal(), theirs or Decimal())) <= accepted else "differs"


def grand_totals(contract: Contract, ours: Mapping[str, Totals]) -> list[dict[str, Any]]:
    """Each total by group over all days, for a proof: decimals as text, groups in order."""
    found = []
    for total in contract.control_totals:
        groups: dict[tuple[str | None, ...], list[Sums]] = {}
        for (_, group), sums in ours[total.name].items():
            groups.setdefault(group, []).append(sums)
        rows = [_added(total, group, groups[group]) for group in sorted(groups, key=lambda each: [value or "" for value in each])]
        found.append({"name": total.name, "groups": rows})
    return found


def _added(total: ControlTotal, group: Sequence[str | None], sums: Sequence[Sums]) -> dict[str, Any]:
    added = {name: format(reduce(EXACT.add, (each.sums[name] for each in sums)), "f") for name in total.sum}
    return {"group": dict(zip(total.by, group, strict=True)), "rows": sum(each.rows or 0 for each in sums), "sums": added}
