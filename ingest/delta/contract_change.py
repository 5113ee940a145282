"""What a changed contract asks of its table: nothing, a change in place, or a new table (I9). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingest.contract.columns import target_columns
from ingest.contract.definition import Contract
from ingest.contract.sql_type import DeltaType, field_to_delta, text_of
from ingest.delta.delta_log import TableState
from ingest.runtime.errors import Refused

# Kept by the table when the contract no longer asks for them: new rows have NULL there.
OURS_MAY_STAY = ("_unknown", "_payload_hash")
# What the table's own properties say of the event id that it was made with.
EVENT_ID_PROPERTY = "oncelake.eventId"

# What Spark keeps beside a type `string` that is not STRING alone: under it different event ids are equal, or values are padded.
PADDED, COLLATED, BINARY = "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS", "spark.UTF8_BINARY"

Field = dict[str, Any]
Effect = Literal["next batch", "apply", "new table"]


@dataclass(frozen=True)
class Change:
    """One difference. `effect`: it holds from the next batch on; `ingest apply` runs `statement`; or the table cannot follow.

    `required` says that no batch may run before it is applied. In `statement` `{table}` stands for the table.
    """

    what: str
    effect: Effect
    statement: str = ""
    required: bool = True


def changes(contract: Contract, state: TableState, last_hash: str | None = None) -> list[Change]:
    """The differences between a contract and its table; `last_hash` is of the contract that the newest batch was decoded under."""
    wanted = [field_to_delta(column) for column in target_columns(contract)]
    has = json.loads(state.schema)["fields"]
    found = [*_event_id(contract, state), *_columns("", has, wanted), *_layout(contract, state)]
    if (state.comment or "") != (contract.description or ""):
        found.append(Change("the description", "apply", f"COMMENT ON TABLE {{table}} IS {_text(contract.description)}", required=False))
    found += _properties(contract, state)
    if not found and last_hash not in (None, contract.hash):
        found.append(Change("rules, limits or reading", "next batch", required=False))
    return found


def refuse_state(contract: Contract, table: str, state: TableState | None) -> None:
    """What a start and a seek ask before they make or fence anything; nothing where there is no table. Raises as `refuse`."""
    if state is not None:
        refuse(contract, table, changes(contract, state))


def refuse(contract: Contract, table: str, found: Sequence[Change]) -> None:
    """Raises Refused CONTRACT_CHANGED if a batch cannot be written before something is done."""
    lost = [each.what for each in found if each.effect == "new table"]
    if lost:
        raise Refused(
            "CONTRACT_CHANGED",
            f"{table} cannot follow the contract {contract.name}: {'; '.join(lost)}.",
            expected="a change that the table can take: comments, rules, limits, an added nullable column, NOT NULL dropped.",
            remedy="undo the change (of a table that somebody altered or replaced: RESTORE it to before that, or move it away, and a start "
            "tells how to go on); or give the table another name in the contract, which makes a new table from the same topic.",
        )
    due = [each.what for each in found if each.effect == "apply" and each.required]
    if due:
        raise Refused(
            "CONTRACT_CHANGED",
            f"{table} is not yet as the contract {contract.name} says: {'; '.join(due)}.",
            expected="a table with the contract's columns.",
            remedy=f"`ingest plan {contract.name}` shows the difference, `ingest apply {contract.name}` carries it out.",
        )


def _event_id(contract: Contract, state: TableState) -> Iterator[Change]:
    has = state.properties.get(EVENT_ID_PROPERTY, event_id_text(contract))
    if has != event_id_text(contract):
        yield Change(f"the event id is {has} in the table, {event_id_text(contract)} in the contract", "new table")


def event_id_text(contract: Contract) -> str:
    """The event id as the table's property keeps it."""
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
            # Delta takes both for one column; in a record they are two fields, and what was read until now would be NULL without a word.
            reported = f"the column {shown} is {there['name']} in the table: records are read by the very spelling of a name"
            yield Change(reported, "new table")
        yield from _type(name, shown, there["type"], field["type"])
        yield from _not_plain(shown, there.get("metadata") or {})
        if there["nullable"] and not field["nullable"]:
            yield Change(f"the column {shown} may be null in the table, not in the contract", "new table")
        elif field["nullable"] and not there["nullable"]:
            yield Change(f"the column {shown} may be null from now on", "apply", f"ALTER TABLE {{table}} ALTER COLUMN {name} DROP NOT NULL")
        comment = _comment(field)
        if not parent and _comment(there) != comment:
            statement = f"ALTER TABLE {{table}} ALTER COLUMN {name} COMMENT {_text(comment)}"
            yield Change(f"the comment of the column {shown}", "apply", statement, required=False)
    for field in by_name.values():
        if parent or field["name"] not in OURS_MAY_STAY:
            yield Change(f"the column {parent.replace('`', '')}{field['name']} is in the table, not in the contract", "new table")


def _not_plain(shown: str, metadata: Mapping[str, Any]) -> Iterator[Change]:
    if PADDED in metadata:
        yield Change(f"the column {shown} is {metadata[PADDED]} in the table, STRING in the contract", "new table")
    for where, collation in (metadata.get(COLLATED) or {}).items():
        if collation != BINARY:
            inside = "" if where == shown.rpartition(".")[2] else f" ({where})"
            yield Change(f"the column {shown}{inside} has the collation {collation} in the table, the contract knows none", "new table")


def _comment(field: Field) -> str:
    return (field.get("metadata") or {}).get("comment") or ""


def _added(name: str, shown: str, field: Field) -> Change:
    if not field["nullable"]:
        return Change(f"the column {shown} is new and must not be null, but the rows of before have no value", "new table")
    comment = _comment(field)
    reported = f" COMMENT {_text(comment)}" if comment else ""
    kind = text_of(field["type"])
    return Change(f"the column {shown} {kind} is new", "apply", f"ALTER TABLE {{table}} ADD COLUMNS ({name} {kind}{reported})")


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
    # One that the contract no longer names stays: nothing tells it from one that somebody set by hand.
    for key, value in dict(contract.properties).items():
        if state.properties.get(key) != value:
            statement = f"ALTER TABLE {{table}} SET TBLPROPERTIES ({_text(key)} = {_text(value)})"
            yield Change(f"{key} = {value}", "apply", statement, required=False)


def _text(value: str | None) -> str:
    """A SQL string literal."""
    return "'" + (value or "").replace("\\", "\\\\").replace("'", "\\'") + "'"
