"""Whether a proof goes on from the former: nothing that only grows has shrunk, and the tables are the same. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# These counts of the ledger never shrink, in total and in each partition.
GROWING = ("offsets", "read", "inserted", "duplicate", "quarantined", "gap")


def went_back(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Each way in which `after` does not go on from `before`, as a sentence."""
    if before["table"] != after["table"]:
        yield f"it is about {after['table']}, the proof before it about {before['table']}"
    if after["made_at"] < before["made_at"]:
        yield f"it was made at {after['made_at']}, before the former one ({before['made_at']})"
    for name, table in before["tables"].items():
        if after["tables"][name]["table_id"] != table["table_id"]:
            yield f"the {name} is another Delta table (id {after['tables'][name]['table_id']}, was {table['table_id']})"
    if after.get("rebuilt", 0) > before.get("rebuilt", 0):
        return  # a rebuild begins the counts anew
    yield from (
        f"{name} was {before['totals'][name]}, and is {after['totals'][name]}" for name in _shrunk(before["totals"], after["totals"])
    )
    now = {(each["topic_id"], each["partition"]): each for each in after["partitions"]}
    for former in before["partitions"]:
        where = f"partition {former['partition']} of topic id {former['topic_id']}"
        new = now.get((former["topic_id"], former["partition"]))
        if new is None:
            yield f"{where} is no longer covered"
            continue
        if new["start"] > former["start"] or new["end"] < former["end"]:
            yield f"{where} covered [{former['start']}, {former['end']}), and covers [{new['start']}, {new['end']})"
        if new["next"] < former["next"] and after["seeks"] <= before["seeks"]:
            yield f"{where} had been read up to {former['next']}, is at {new['next']}, and no seek says so"
        yield from (f"{where}: {name} was {former[name]}, and is {new[name]}" for name in _shrunk(former, new))


def _shrunk(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name in GROWING if after[name] < before[name]]
