"""The tables of a project under their SQL names (docs/reference/guarantees.md, places)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from ingest.contract.definition import Contract
from ingest.contract.problem import one_of
from ingest.delta.delta_log import DeltaLog
from ingest.quality.audited_version import audit_state
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import Files
from ingest.runtime.moment import parse_moment
from ingest.runtime.places import Places

Kind = Literal["target", "quarantine", "ledger", "quality", "audited"]
KINDS: tuple[Kind, ...] = ("target", "quarantine", "ledger", "quality", "audited")
NOT_MADE = "no run has created it yet"
NOT_CHECKED = "no check has created it yet: `ingest check` does"
NOT_AUDITED = "no check has passed yet: `ingest check` records the version"
AUDITED_NOW = "only the present audited version is known; `ingest audited show --history` lists the former ones, for --at VERSION"


@dataclass(frozen=True)
class LakeTable:
    """One Delta table; `version` None means the newest. Kind `audited` is the target at its audited version."""

    pipeline: str
    table: str
    kind: Kind
    path: str
    version: int | None = None

    @property
    def short(self) -> str:
        """`orders`, `orders__ledger`."""
        return self.table if self.kind == "target" else f"{self.table}__{self.kind}"

    @property
    def full(self) -> str:
        """`shop.orders`, `shop.orders__ledger`."""
        return f"{self.pipeline}.{self.short}"


@dataclass(frozen=True)
class Catalog:
    """The tables that exist, and the others by full name with the reason. Each name belongs to one table."""

    tables: tuple[LakeTable, ...]
    absent: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> dict[str, LakeTable]:
        """Every table under `pipeline.table`, and under `table` if no other pipeline has a table of that name."""
        # A contract may have the name of another one's ledger; the contract's own table wins.
        full: dict[str, LakeTable] = {}
        for each in sorted(self.tables, key=lambda each: KINDS.index(each.kind)):
            full.setdefault(each.full, each)
        shorts = Counter(each.short for each in full.values())
        return {**full, **{each.short: each for each in full.values() if shorts[each.short] == 1}}

    @property
    def listed(self) -> dict[str, LakeTable]:
        """Each table once, under its shortest name, ordered by name."""
        shortest: dict[LakeTable, str] = {}
        for name, table in self.names.items():
            shortest[table] = min(shortest.get(table, name), name, key=len)
        return dict(sorted((name, table) for table, name in shortest.items()))

    def name_of(self, contract: Contract, kind: Kind) -> str | None:
        """The shortest name of a contract's table; None if there is no such table."""
        wanted = (contract.pipeline, contract.table, kind)
        return next((name for name, each in self.listed.items() if (each.pipeline, each.table, each.kind) == wanted), None)

    def find(self, name: str) -> LakeTable:
        """The table of this name. Raises InvalidInput SQL_TABLE_UNKNOWN."""
        table = self.names.get(name)
        if table is None:
            raise self.unknown(name)
        return table

    def unknown(self, name: str) -> InvalidInput:
        """The error for an unknown name; it lists the known names."""
        why = [f"{full}: {reason}" for full, reason in self.absent if name in (full, full.partition(".")[2])]
        found = f"there is no table {name}{f' ({why[0]})' if why else ''}."
        names = list(self.listed)
        remedy = "name one of them; `ingest sql --tables` shows their columns."
        if not names:
            remedy = "create tables with `ingest run`, or name the right --lake."
        return InvalidInput("SQL_TABLE_UNKNOWN", found, expected=f"{one_of(names, name)}.", remedy=remedy)


def catalog(contracts: Iterable[Contract], lake: str, files: Files) -> Catalog:
    """The tables of these contracts that exist in the lake, at their newest version."""
    tables: list[LakeTable] = []
    absent: list[tuple[str, str]] = []
    for contract in contracts:
        root = Places(lake, "", contract.pipeline, contract.table).root
        for kind in KINDS:
            table = LakeTable(contract.pipeline, contract.table, kind, f"{root}/{kind}")
            if kind == "audited":
                version, reason = _audited(Places(lake, "", contract.pipeline, contract.table), files)
                if version is None:
                    absent.append((table.full, reason))
                else:
                    tables.append(replace(table, path=f"{root}/target", version=version))
            elif DeltaLog(files, table.path).exists():
                tables.append(table)
            else:
                absent.append((table.full, NOT_CHECKED if kind == "quality" else NOT_MADE))
    return Catalog(tuple(tables), tuple(absent))


def _audited(places: Places, files: Files) -> tuple[int | None, str]:
    """The audited version, if the log still has its commit; else None with the reason."""
    audited = audit_state(files, places).audited
    if audited is None:
        return None, NOT_AUDITED
    if DeltaLog(files, places.target).stamp(audited.version) != audited.stamp:
        return None, f"the log no longer has its version {audited.version}: `ingest audited show` says why"
    return audited.version, ""


def at_version(known: Catalog, name: str, version: int, files: Files) -> Catalog:
    """The catalog with one table at a version; the others stay as they are.

    Raises InvalidInput SQL_TABLE_UNKNOWN, or SQL_AT_UNKNOWN if the table has no such version yet.
    """
    table = known.find(name)
    newest = max(DeltaLog(files, table.path).versions(), default=0)
    if version > newest:
        raise InvalidInput(
            "SQL_AT_UNKNOWN", f"{name} has no version {version}.", expected=f"0 to {newest}.", remedy="name one of these, or a time."
        )
    return replace(known, tables=tuple(replace(each, version=version) if each == table else each for each in known.tables))


def at_time(known: Catalog, moment: datetime, files: Files) -> Catalog:
    """Each table at its last version that was committed at or before `moment`; tables without such a version are absent.

    A commit's time is the one that its writer recorded in it (commitInfo, milliseconds), so a copy of the files keeps it.
    """
    then: list[LakeTable] = []
    absent = list(known.absent)
    for table in known.tables:
        version, reason = (None, AUDITED_NOW) if table.kind == "audited" else _version_at(DeltaLog(files, table.path), moment)
        if version is None:
            absent.append((table.full, reason))
        else:
            then.append(replace(table, version=version))
    return Catalog(tuple(then), tuple(absent))


def _version_at(log: DeltaLog, moment: datetime) -> tuple[int | None, str]:
    versions = log.versions()
    low, high = 0, len(versions)  # times rise with versions: a binary search reads few commits
    while low < high:
        middle = (low + high) // 2
        if log.commit(versions[middle]).committed_at <= moment:
            low = middle + 1
        else:
            high = middle
    if low:
        return versions[low - 1], ""
    if not versions:
        return None, "Delta has cleaned up the commits with their times"
    first = log.commit(versions[0]).committed_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return None, f"it was created at {first}" if versions[0] == 0 else f"its log reaches back to {first} only"


def parse_at(text: str) -> int | datetime:
    """The value of `--at`: digits are a version, else it is a date or time as in `parse_time`. Raises InvalidInput SQL_AT_INVALID."""
    if text.isascii() and text.isdigit():
        return int(text)
    return parse_time(text, "SQL_AT_INVALID")


def parse_time(text: str, code: str) -> datetime:
    """An ISO 8601 date or time, in UTC if it names no zone. Raises InvalidInput `code`."""
    try:
        return parse_moment(text)
    except ValueError:
        expected = "a version number, or a time such as 2025-01-02 or 2025-01-02T03:04:05Z."
        if code != "SQL_AT_INVALID":
            expected = "a time such as 2025-01-02 or 2025-01-02T03:04:05Z."
        raise InvalidInput(code, f"'{text}' is not a time.", expected=expected, remedy="correct it.") from None
