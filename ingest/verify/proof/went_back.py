"""Whether a proof goes on from the former: nothing that only grows has shrunk, and the tables are the same. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.verify.proof.proof_file import Counts, Proof

# These counts of the ledger never shrink, in total and in each partition.
GROWING = ("offsets", "read", "inserted", "present", "duplicate", "quarantined", "gap")


def went_back(before: Proof, after: Proof) -> Iterator[str]:
    """Each way in which `after` does not go on from `before`, as a sentence."""
    if before.table != after.table:
        yield f"it is about {after.table}, the proof before it about {before.table}"
    if after.made_at < before.made_at:
        yield f"it was made at {after.made_at:%Y-%m-%dT%H:%M:%SZ}, before the former one ({before.made_at:%Y-%m-%dT%H:%M:%SZ})"
    for name, table in before.tables.items():
        now_id = after.tables[name].table_id if name in after.tables else "none"
        if now_id != table.table_id:
            yield f"the {name} is another Delta table (id {now_id}, was {table.table_id})"
    if after.rebuilt > before.rebuilt:
        return  # a rebuild begins the counts anew
    yield from _shrunk("", before.totals, after.totals)
    now = {(each.topic_id, each.partition): each for each in after.partitions}
    for former in before.partitions:
        where = f"partition {former.partition} of topic id {former.topic_id}"
        new = now.get((former.topic_id, former.partition))
        if new is None:
            yield f"{where} is no longer covered"
            continue
        if new.start > former.start or new.end < former.end:
            yield f"{where} covered [{former.start}, {former.end}), and covers [{new.start}, {new.end})"
        if new.next < former.next and after.seeks <= before.seeks:
            yield f"{where} had been read up to {former.next}, is at {new.next}, and no seek says so"
        yield from _shrunk(f"{where}: ", former, new)


def _shrunk(where: str, before: Counts, after: Counts) -> Iterator[str]:
    for name in GROWING:
        was, is_now = getattr(before, name), getattr(after, name)
        if is_now < was:
            yield f"{where}{name} was {was}, and is {is_now}"
