"""Sets of offsets as sorted, disjoint intervals: a million consecutive offsets cost as much as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Offsets = NDArray[np.int64]
"""A one-dimensional array of offsets."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of offsets as intervals [starts[i], ends[i]); both are int64 arrays of shape (n,).

    The intervals are ascending and not empty, and no interval touches the next one. Raises ValueError for other arrays. Two sets are
    equal if they contain the same offsets. `len` is the number of offsets, `runs` the number of intervals. Iteration yields
    (start, end) pairs of ints.
    """

    starts: Offsets
    ends: Offsets

    def __post_init__(self) -> None:
        if self.starts.shape != self.ends.shape or self.starts.ndim != 1:
            raise ValueError("starts and ends of different shape")
        if np.any(self.starts >= self.ends) or np.any(self.starts[1:] <= self.ends[:-1]):
            raise ValueError("intervals that are empty, out of order or touch")

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]] = ()) -> Intervals:
        """The offsets of these [start, end) pairs, in any order. Overlapping and touching pairs are merged."""
        flat = np.array([pair for pair in pairs if pair[0] < pair[1]], dtype=np.int64).reshape(-1, 2)
        return _joined(flat[:, 0], flat[:, 1])

    @staticmethod
    def of_offsets(offsets: ArrayLike) -> Intervals:
        """A set of single offsets, given in any order; duplicates are dropped."""
        single = np.unique(np.asarray(offsets, dtype=np.int64))
        if single.size == 0:
            return EMPTY
        cut = np.flatnonzero(np.diff(single) > 1)
        return Intervals(single[np.concatenate(([0], cut + 1))], single[np.concatenate((cut, [single.size - 1]))] + 1)

    @staticmethod
    def union(parts: Sequence[Intervals]) -> Intervals:
        """The offsets that are in at least one of the parts."""
        if not parts:
            return EMPTY
        return _joined(np.concatenate([p.starts for p in parts]), np.concatenate([p.ends for p in parts]))

    def common(self, other: Intervals) -> Intervals:
        """The offsets that are in both sets."""
        return _swept(self, other, 3)

    def minus(self, other: Intervals) -> Intervals:
        """The offsets of this set that are not in the other one."""
        return _swept(self, other, 1)

    @property
    def runs(self) -> int:
        """The number of intervals."""
        return int(self.starts.size)

    def __len__(self) -> int:
        return int(np.sum(self.ends - self.starts))

    def __bool__(self) -> bool:
        return self.runs > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.ends.tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(f"[{start}, {end})" for start, end in zip(self.starts[:8].tolist(), self.ends[:8].tolist(), strict=True))
        return f"Intervals({shown}{', …' if self.runs > 8 else ''})"

    def below(self, offsets: ArrayLike) -> Any:
        """For each given offset, how many offsets of this set are below it: int64, in the shape of `offsets`."""
        wanted = np.asarray(offsets, dtype=np.int64)
        if not self.runs:
            return np.zeros(wanted.shape, dtype=np.int64)
        at = np.searchsorted(self.starts, wanted, side="right")
        before = np.maximum(at - 1, 0)
        # The last interval that starts at or below an offset counts only up to that offset.
        return np.where(at > 0, self._sums[at] - np.maximum(self.ends[before] - np.maximum(wanted, self.starts[before]), 0), 0)

    @cached_property
    def _sums(self) -> Offsets:
        return np.concatenate(([0], np.cumsum(self.ends - self.starts)))

    def count(self, start: int, end: int) -> int:
        """The number of offsets in [start, end)."""
        return int(self.below(end) - self.below(start)) if start < end else 0

    def clip(self, start: int, end: int) -> Intervals:
        """The offsets in [start, end)."""
        within = slice(np.searchsorted(self.ends, start, side="right"), np.searchsorted(self.starts, end))
        return Intervals(np.maximum(self.starts[within], start), np.minimum(self.ends[within], end)) if start < end else EMPTY

    def offsets(self) -> Offsets:
        """All offsets, ascending, as an array of shape (len(self),)."""
        lengths = self.ends - self.starts
        shift = np.repeat(self.starts - np.concatenate(([0], np.cumsum(lengths)[:-1])) if self.runs else self.starts, lengths)
        return np.arange(shift.size, dtype=np.int64) + shift


def _joined(starts: Offsets, ends: Offsets) -> Intervals:
    if starts.size == 0:
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    # A new interval starts where all earlier ones have ended.
    first = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(starts[first], reach[last])


def _swept(one: Intervals, other: Intervals, wanted: int) -> Intervals:
    """The offsets whose sum is `wanted`, where membership in `one` counts 1 and membership in `other` counts 2."""
    at = np.concatenate((one.starts, one.ends, other.starts, other.ends))
    steps = np.repeat([1, -1, 2, -2], [one.runs, one.runs, other.runs, other.runs])
    order = np.argsort(at, kind="stable")
    at, sums = at[order], np.cumsum(steps[order])
    # No offset lies between two events at the same offset: only the sum after the last of them counts.
    held = np.flatnonzero((sums[:-1] == wanted) & (at[:-1] < at[1:])) if at.size else np.empty(0, dtype=np.int64)
    return _joined(at[held], at[held + 1])


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
"""The empty set of offsets."""
