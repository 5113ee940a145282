"""Compare a contract with its table. A change needs nothing, an ALTER in place, or a new table (I9). Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingest.contract.columns import target_columns
from ingest.contract.definition import Contract
from ingest.contract.sql_type import DeltaType, field_to_delta, text_of
from ingest.delta.delta_sql import spark_text
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import Refused

# The table keeps these columns when the contract no longer asks for them. New rows have NULL in them.
KEPT_COLUMNS = ("_unknown", "_payload_hash")
# The table property with the event id that the table was created with.
EVENT_ID_PROPERTY = "oncelake.eventId"

# Field metadata of CHAR, VARCHAR and collations, which Spark stores with type `string`. They pad values or make different event ids equal.
PADDED, COLLATED, BINARY = "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS", "spark.UTF8_BINARY"

Field = dict[str, Any]
Effect = Literal["next batch", "apply", "new table"]


@dataclass(frozen=True)
class Change:
    """One difference between a contract and its table.

    `effect`: `next batch` takes effect with the next batch, `apply` means that `ingest apply` runs `statement`, `new table` means that this
    table cannot follow. `required`: no batch may run before the change is applied. The first `{table}` in `statement` stands for the
    table's name. It precedes every text of the contract, which may contain the same word.
    """

    what: str
    effect: Effect
    statement: str = ""
    required: bool = True


def changes(contract: Contract, state: TableState, last_hash: str | None = None) -> list[Change]:
    """The differences between a contract and its table. `last_hash` is the hash of the contract that decoded the newest batch."""
    wanted = [field_to_delta(column) for column in target_columns(contract)]
    has = read_json(state.schema)["fields"]
    found = [*_event_id(contract, state), *_columns("", has, wanted), *_layout(contract, state)]
    if (state.comment or "") != (contract.description or ""):
        statement = f"COMMENT ON TABLE {{table}} IS {spark_text(contract.description or '')}"
        found.append(Change("the description", "apply", statement, required=False))
    found += _properties(contract, state)
    if not found and last_hash not in (None, contract.hash):
        found.append(Change("rules, limits or read options", "next batch", required=False))
    return found


def created_by(contract: Contract) -> TableState:
    """The state of the table that this contract creates, to compare another contract with, without a table."""
    return TableState(
        0,
        schema=json.dumps({"type": "struct", "fields": [field_to_delta(column) for column in target_columns(contract)]}),
        properties={**contract.properties, EVENT_ID_PROPERTY: event_id_text(contract)},
        partition_by=tuple(contract.layout.partition_by),
        cluster_by=tuple(contract.layout.cluster_by),
        comment=contract.description,
    )


def between(old: Sequence[Contract], new: Sequence[Contract]) -> Iterator[tuple[str, list[Change]]]:
    """Each table of the old contracts, with what the new contracts change. A new contract breaks nothing, so it is left out."""
    by_name = {contract.name: contract for contract in new}
    for before in old:
        after = by_name.get(before.name)
        if after is None:
            yield before.name, [Change("the contract is gone", "new table")]
            continue
        found = changes(after, created_by(before), before.hash)
        left = [name for name in before.source.names if not _reads(after, name)]
        if left and len(left) == len(before.source.names):
            what = f"the topic is {before.source.shown} before, {after.source.shown} now: offsets of one topic mean nothing in another"
            found.append(Change(what, "new table"))
        elif left:
            what = f"{', '.join(left)} is read no more: runs are refused until `ingest seek {before.name} --to table` goes on without it"
            found.append(Change(what, "next batch"))
        yield before.name, found


def _reads(contract: Contract, topic: str) -> bool:
    pattern = contract.source.topic_pattern
    return topic in contract.source.names or (pattern is not None and re.fullmatch(pattern, topic) is not None)


def refuse_state(contract: Contract, table: str, state: TableState | None) -> None:
    """Check the table before a start or seek creates or fences anything. Accepts a missing table. Raises as `refuse`."""
    if state is not None:
        refuse(contract, table, changes(contract, state))


def refuse_impossible(contract: Contract, table: str, found: Sequence[Change]) -> None:
    """Raises Refused CONTRACT_CHANGED if the table cannot follow its contract."""
    lost = [each.what for each in found if each.effect == "new table"]
    if lost:
        raise Refused(
            "CONTRACT_CHANGED",
            f"{table} cannot follow the contract {contract.name}: {'; '.join(lost)}.",
            expected="a change that the table supports: comments, rules, limits, an added nullable column, NOT NULL dropped.",
            remedy="undo the change. If somebody altered or replaced the table, RESTORE it to an earlier version, or move it away: the "
            "next start reports how to continue. Or give the table another name in the contract, which creates a new table from the same "
            "topic.",
        )


def refuse(contract: Contract, table: str, found: Sequence[Change]) -> None:
    """Raises Refused CONTRACT_CHANGED if no batch can be written until the user acts."""
    refuse_impossible(contract, table, found)
    due = [each.what for each in found if each.effect == "apply" and each.required]
    if due:
        raise Refused(
            "CONTRACT_CHANGED",
            f"{table} does not match the contract {contract.name} yet: {'; '.join(due)}.",
            expected="a table with the contract's columns.",
            remedy=f"`ingest plan {contract.name}` shows the difference, `ingest apply {contract.name}` applies it.",
        )


def _event_id(contract: Contract, state: TableState) -> Iterator[Change]:
    has = state.properties.get(EVENT_ID_PROPERTY, event_id_text(contract))
    if has != event_id_text(contract):
        yield Change(f"the event id is {has} in the table, {event_id_text(contract)} in the contract", "new table")


def event_id_text(contract: Contract) -> str:
    """The event id as JSON, as the table property stores it."""
    return json.dumps(contract.event_id.document())


def _columns(parent: str, has: Sequence[Field], wants: Sequence[Field]) -> Iterator[Change]:
    by_name = {field["name"].lower(): field for field in has}
    for field in wants:
        name = f"{parent}`{field['name']}`"
        shown = name.replace("`", "")
        there = by_name.pop(field["name"].lower(), None)
        if there is None:
            yield _added(name, shown, field)
            continue
        if there["name"] != field["name"]:
            # Delta treats both spellings as one column. JSON does not: the field that was read until now would silently become NULL.
            difference = f"the column {shown} is {there['name']} in the table: a JSON key must match a column's exact spelling"
            yield Change(difference, "new table")
        yield from _type(name, shown, there["type"], field["type"])
        yield from _string_changes(shown, there.get("metadata") or {})
        if there["nullable"] and not field["nullable"]:
            yield Change(f"the column {shown} may be null in the table, not in the contract", "new table")
        elif field["nullable"] and not there["nullable"]:
            yield Change(f"the column {shown} may be null from now on", "apply", f"ALTER TABLE {{table}} ALTER COLUMN {name} DROP NOT NULL")
        comment = _comment(field)
        if not parent and _comment(there) != comment:
            statement = f"ALTER TABLE {{table}} ALTER COLUMN {name} COMMENT {spark_text(comment)}"
            yield Change(f"the comment of the column {shown}", "apply", statement, required=False)
    for field in by_name.values():
        if parent or field["name"] not in KEPT_COLUMNS:
            yield Change(f"the column {parent.replace('`', '')}{field['name']} is in the table, not in the contract", "new table")


def _string_changes(shown: str, metadata: Mapping[str, Any]) -> Iterator[Change]:
    if PADDED in metadata:
        yield Change(f"the column {shown} is {metadata[PADDED]} in the table, STRING in the contract", "new table")
    for where, collation in (metadata.get(COLLATED) or {}).items():
        if collation != BINARY:
            inside = "" if where == shown.rpartition(".")[2] else f" ({where})"
            yield Change(f"the column {shown}{inside} has the collation {collation} in the table, none in the contract", "new table")


def _comment(field: Field) -> str:
    return (field.get("metadata") or {}).get("comment") or ""


def _added(name: str, shown: str, field: Field) -> Change:
    if not field["nullable"]:
        return Change(f"the column {shown} is new and must not be null, but existing rows have no value", "new table")
    comment = _comment(field)
    clause = f" COMMENT {spark_text(comment)}" if comment else ""
    kind = text_of(field["type"])
    return Change(f"the column {shown} {kind} is new", "apply", f"ALTER TABLE {{table}} ADD COLUMNS ({name} {kind}{clause})")


def _type(name: str, shown: str, has: DeltaType, wants: DeltaType) -> Iterator[Change]:
    if isinstance(has, dict) and isinstance(wants, dict) and has["type"] == wants["type"] == "struct":
        yield from _columns(f"{name}.", has["fields"], wants["fields"])
    elif isinstance(has, dict) and isinstance(wants, dict) and has["type"] == wants["type"] == "array":
        yield from _type(f"{name}.element", f"{shown}.element", has["elementType"], wants["elementType"])
    elif text_of(has) != text_of(wants):
        yield Change(f"the column {shown} is {text_of(has)} in the table, {text_of(wants)} in the contract", "new table")


def _layout(contract: Contract, state: TableState) -> Iterator[Change]:
    if tuple(contract.layout.partition_by) != state.partition_by:
        has, wants = (", ".join(names) or "nothing" for names in (state.partition_by, contract.layout.partition_by))
        yield Change(f"the table is partitioned by {has}, the contract says {wants}", "new table")
    if tuple(contract.layout.cluster_by) != state.cluster_by:
        columns = ", ".join(f"`{name}`" for name in contract.layout.cluster_by)
        statement = f"ALTER TABLE {{table}} CLUSTER BY {f'({columns})' if columns else 'NONE'}"
        yield Change(f"clustered by {columns.replace('`', '') or 'nothing'}", "apply", statement, required=False)


def _properties(contract: Contract, state: TableState) -> Iterator[Change]:
    # A property that the contract no longer names stays: it cannot be distinguished from one that somebody set by hand.
    for key, value in dict(contract.properties).items():
        if state.properties.get(key) != value:
            statement = f"ALTER TABLE {{table}} SET TBLPROPERTIES ({spark_text(key)} = {spark_text(value)})"
            yield Change(f"{key} = {value}", "apply", statement, required=False)
