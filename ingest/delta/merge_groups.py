"""Which files of a table compaction merges: groups of small files of one partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ingest.delta.live_table import DataFile

# Compaction merges files below SMALL into files of LARGE. Delta's own limit for both is 1 GB, with which each compaction of a table of
# some hundred MB would write the whole table again.
SMALL_BYTES = 16 * 1024**2
LARGE_BYTES = 128 * 1024**2
# So many files of a tier become one. Fewer: rows are written more often. More: more small files are left in the table.
FAN_IN = 20

Group = Sequence[DataFile]
"""Files of one partition that become one file."""


def whole(files: Sequence[DataFile]) -> list[Group]:
    """All small files of each partition, in groups of about LARGE_BYTES."""
    return [group for some in _small(files).values() for group in _cut(some, len(some)) if len(group) > 1]


def tiered(files: Sequence[DataFile]) -> list[Group]:
    """Groups of FAN_IN small files of a partition whose numbers of rows are alike, within the same power of FAN_IN.

    The rows of a group reach a higher tier. So a row is written at most log(rows of a small file) / log(FAN_IN) times, rounded up: three
    times for files of 50 to 400,000 rows. Less than FAN_IN files of each tier are left, so less than 60 for these.
    """
    groups: list[Group] = []
    for some in _small(files).values():
        tiers: dict[int, list[DataFile]] = defaultdict(list)
        for file in some:
            tiers[_tier(file.rows or 1)].append(file)
        for tier in tiers.values():
            groups += [group for group in _cut(tier, FAN_IN) if len(group) == FAN_IN or sum(f.size for f in group) >= LARGE_BYTES]
    return groups


def _small(files: Sequence[DataFile]) -> dict[tuple[tuple[str, str | None], ...], list[DataFile]]:
    """The small files by partition, in the order in which their rows were committed: so a merged file has narrow bounds, too."""
    found: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = defaultdict(list)
    for file in sorted((file for file in files if file.size < SMALL_BYTES), key=_age):
        found[tuple(sorted(file.partition_values.items()))].append(file)
    return found


def _age(file: DataFile) -> tuple[int, int]:
    """Least epoch and batch, which target, quarantine and ledger call differently."""
    epoch, batch = (file.least.get(f"_{name}", file.least.get(name, 0)) for name in ("epoch", "batch"))
    return (epoch, batch) if isinstance(epoch, int) and isinstance(batch, int) else (0, 0)


def _cut(files: Sequence[DataFile], number: int) -> Iterator[list[DataFile]]:
    """Groups of `number` files, or of fewer that have LARGE_BYTES together; the last one may have less."""
    group: list[DataFile] = []
    size = 0
    for file in files:
        group.append(file)
        size += file.size
        if len(group) == number or size >= LARGE_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _tier(rows: int) -> int:
    return 0 if rows < FAN_IN else 1 + _tier(rows // FAN_IN)
