"""Which Delta tables the direct writer can write: those of which it knows every active feature. Spark writes all others.

A feature that is only supported by the protocol changes nothing; what counts is whether the table uses it (Delta's PROTOCOL.md, Table
Features). A name that is not on these lists may mean anything, so it makes the table unfit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ingest.decode.partition_value import KINDS, kind_of
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import is_local
from ingest.runtime.places import Places

# The newest protocol versions that Delta's PROTOCOL.md has. With them the features are named; a later version may mean anything.
READER_VERSION, WRITER_VERSION = 3, 7
# Not deletionVectors: files may have some although the property was switched off again.
# Features whose use shows in properties or in column metadata, which are looked at below, and those that need nothing of this writer.
KNOWN = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping", "allowColumnDefaults"),
        *("changeDataFeed", "rowTracking", "inCommitTimestamp", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
        *("clustering", "domainMetadata"),  # who adds files to a clustered table owes it statistics, which is looked at below
    }
)
# Properties that switch a feature on, and the values that leave it off.
SWITCHES: Mapping[str, tuple[str, ...]] = {
    "delta.columnMapping.mode": ("none",),
    "delta.enableDeletionVectors": ("false",),
    "delta.appendOnly": ("false",),
    "delta.enableRowTracking": ("false",),
    "delta.enableInCommitTimestamps": ("false",),
    "delta.enableTypeWidening": ("false",),
    "delta.enableIcebergCompatV1": ("false",),
    "delta.enableIcebergCompatV2": ("false",),
    "delta.enableIcebergCompatV3": ("false",),
}
# With it, statements may only add files.
FEED = "delta.enableChangeDataFeed"
# Column metadata that says nothing about values; any other entry may be a rule for writers.
PLAIN_METADATA = frozenset({"comment"})


def unfit_because(state: TableState) -> str | None:
    """Why the direct writer cannot write this table, as the end of a sentence; None if it can."""
    return next(_reasons(state), None)


def _reasons(state: TableState) -> Iterator[str]:
    for version, known, who in ((state.reader_version, READER_VERSION, "reader"), (state.writer_version, WRITER_VERSION, "writer")):
        if version > known:
            yield f"has the {who} version {version} in its protocol, and {known} is the newest known one"
    if unknown := sorted(state.features - KNOWN):
        yield f"has the Delta feature {unknown[0]}"
    for name, value in sorted(state.properties.items()):
        if name in SWITCHES and value.lower() not in SWITCHES[name]:
            yield f"has the property {name} = {value}"
        if name.startswith("delta.constraints."):
            yield f"has the constraint {name.removeprefix('delta.constraints.')}"
    kinds = {field["name"]: field["type"] for field in read_json(state.schema or '{"fields": []}')["fields"]}
    for name in state.partition_by:
        if kind_of(kinds.get(name)) is None:
            yield f"is partitioned by {name}, whose values have no text"
    for name in state.cluster_by:
        # The direct writer makes statistics of the listed columns alone, and bounds of those whose values have an order.
        if name not in listed(state) or kind_of(kinds.get(name)) in (None, KINDS["boolean"], KINDS["binary"]):
            yield f"is clustered by {name}, of which its files would have no statistics"
    for field in read_json(state.schema or '{"fields": []}')["fields"]:
        yield from _in_field(field, field["name"])


def _in_field(field: Mapping[str, Any], name: str) -> Iterator[str]:
    if others := sorted(set(field.get("metadata") or {}) - PLAIN_METADATA):
        yield f"has the rule {others[0]} on the column {name}"
    yield from _in_type(field["type"], name)


def _in_type(kind: Any, name: str) -> Iterator[str]:
    if kind == "variant":
        yield f"has the type VARIANT in the column {name}"
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            yield from _in_field(field, f"{name}.{field['name']}")
        for part in ("elementType", "keyType", "valueType"):
            if part in kind:
                yield from _in_type(kind[part], name)


def listed(state: TableState) -> tuple[str, ...]:
    """The columns of which the table wants statistics, as its property names them; none without the property."""
    names = state.properties.get("delta.dataSkippingStatsColumns", "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def refuse_unfit(state: TableState, path: str) -> None:
    """Raises InvalidInput DIRECT_UNFIT for a table that this writer cannot write. `LiveTable` asks again when the table changes."""
    if (because := unfit_because(state)) is not None:
        raise unfit(path, because)


def refuse_remote(places: Places) -> None:
    """Raises InvalidInput DIRECT_UNFIT unless lake and checkpoints are on a local disk: on a store, only Spark's file systems write."""
    for what, location in (("lake", places.lake), ("checkpoints", places.checkpoints)):
        if not is_local(location):
            raise unfit(places.name, f"has its {what} at {location}, which is not a local folder")


def refuse_rewrite(state: TableState, path: str) -> None:
    """Raises InvalidInput DIRECT_UNFIT for a statement that removes files of a table with a change data feed.

    Readers of the feed take the rows of files that are only added for inserts. If a file is written again, they would take every row of it
    for a delete and an insert (PROTOCOL.md, Change Data Files).
    """
    if state.properties.get(FEED, "").lower() == "true":
        raise unfit(path, f"has the property {FEED}, and this statement writes files again")


def unfit(name: str, because: str, remedy: str = "set INGEST_WRITER=spark for this table.") -> InvalidInput:
    """The refusal of a table that needs the writer through Spark. `because` ends the sentence `it …`."""
    return InvalidInput(
        "DIRECT_UNFIT",
        f"the direct writer cannot write {name}: it {because}.",
        expected="a table that the direct writer can write (docs/reference/settings.md, writers).",
        remedy=remedy,
    )
