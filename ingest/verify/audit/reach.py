"""The offsets that a table should contain: what comes before is left out on purpose, what comes after is not read yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.kafka.intervals import Offsets
from ingest.runtime.errors import InvalidInput

END = "end"
FOREVER = 2**62
BEFORE = "before the first row of its partition: the writer began later"
BETWEEN = "between rows"
AFTER = "after the last row of its partition"
NO_ROWS = "the table has no row of its partition"


@dataclass(frozen=True)
class Reach:
    """First offsets, and ends, by partition; -1 is any other partition.

    Without an end, a table ends at its last row of the partition. A partition without rows has no such place: the table should contain it
    whole.
    """

    starts: Mapping[int, int] = field(default_factory=dict)
    stops: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def parse(start: str | None, stop: str | None) -> Reach:
        """`--from` and `--to`: an offset, or partition:offset pairs; `end` is the topic's end. Raises InvalidInput AUDIT_RANGE."""
        return Reach(_offsets("--from", start), {-1: FOREVER} if stop == END else _offsets("--to", stop))

    def start(self, partition: int) -> int:
        """The first offset that the table should contain."""
        return self.starts.get(partition, self.starts.get(-1, 0))

    def stop(self, partition: int, present: Offsets) -> int:
        """The offset before which the table should contain all records. `present` are offsets of records that it contains."""
        last = int(present.max()) + 1 if present.size else FOREVER
        return self.stops.get(partition, self.stops.get(-1, last))


def why_lost(lost: Offsets, first: int | None, last: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The lost offsets of a partition by their place among its rows: a reason, and which of them it concerns."""
    if first is None or last is None:
        yield NO_ROWS, np.ones(lost.size, bool)
        return
    yield BEFORE, lost < first
    yield BETWEEN, (lost > first) & (lost < last)
    yield AFTER, lost > last


def _offsets(option: str, text: str | None) -> dict[int, int]:
    if text is None:
        return {}
    try:
        if ":" not in text:
            found = {-1: int(text)}
        else:
            pairs = [(int(partition), int(offset)) for partition, offset in (word.split(":") for word in text.split(","))]
            found = dict(pairs)
            if len(found) != len(pairs):
                raise ValueError("a partition is named twice")
        if min(found.values()) < 0:
            raise ValueError("a negative offset")
        return found
    except ValueError as error:
        raise InvalidInput(
            "AUDIT_RANGE",
            f"{option} {text!r}.",
            expected=f"an offset for all partitions, or offsets as 0:1200,1:900{'; or end' if option == '--to' else ''}.",
            remedy=f"correct {option}.",
        ) from error
