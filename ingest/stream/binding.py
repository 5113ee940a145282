"""What a checkpoint belongs to: the topic by its id, the target table by its id, and after a rebase what came before (I6).

`oncelake/binding.json` in the checkpoint. Names are not enough: a topic or a table that was deleted and made again has the
same name, starts anew, and would be taken for the old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ingest.files import Files
from ingest.places import Places
from ingest.stream.offsets import CheckpointTorn, OffsetRange

FILE = "binding.json"
# Topic id, partition, start, end.
Gap = tuple[str, int, int, int]


@dataclass(frozen=True)
class FormerEpoch:
    """A checkpoint that wrote the table before a rebase: its last batch in force (-1: none) and where that ended, by partition.

    `gaps` are those with which it began itself: a ledger that is lost cannot be made again without them. `stamp` as in Rebase, of its own.
    """

    query_id: str
    epoch: int
    last_batch: int
    topic: str
    topic_id: str
    ends: tuple[tuple[int, int], ...]
    gaps: tuple[Gap, ...] = ()
    stamp: str = ""


@dataclass(frozen=True)
class Rebase:
    """How an epoch began: its baseline stands in the offset log as batch 0, which reads nothing.

    `baseline` is (partition, offset); `gaps` are the offset ranges (partition, start, end) that were jumped over on purpose;
    `table_version` is the target's at that time, `former` how each epoch before stood then; `regain` is what it reads again for the
    sake of the quarantine, which is taken for whole from then on. `stamp` tells the commit of `table_version` from another of that number.
    """

    former: tuple[FormerEpoch, ...]
    baseline: tuple[tuple[int, int], ...]
    gaps: tuple[tuple[int, int, int], ...]
    table_version: int
    regain: tuple[Gap, ...] = ()
    stamp: str = ""

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The empty ranges of batch 0."""
        return tuple(OffsetRange(partition, offset, offset) for partition, offset in self.baseline)


@dataclass(frozen=True)
class Binding:
    """Topic, table and epoch of a checkpoint; `predecessors` are the query ids of the epochs before, `cluster` the id of the cluster
    that has the topic (empty: not known)."""

    topic: str
    topic_id: str
    table_id: str
    epoch: int = 0
    predecessors: tuple[str, ...] = ()
    rebase: Rebase | None = None
    cluster: str = ""

    def to_json(self) -> str:
        """The text of binding.json."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: bytes | str) -> Binding:
        """Raises ValueError, KeyError or TypeError for any other text."""
        value = json.loads(text)
        told = value["rebase"]
        rebase = None
        if told is not None:
            former = tuple(
                FormerEpoch(**{**each, "ends": _pairs(each["ends"]), "gaps": _gaps(each.get("gaps", ()))}) for each in told["former"]
            )
            gaps = tuple((int(p), int(start), int(end)) for p, start, end in told["gaps"])
            regain, stamp = _gaps(told.get("regain", ())), str(told.get("stamp", ""))
            rebase = Rebase(former, _pairs(told["baseline"]), gaps, int(told["table_version"]), regain, stamp)
        predecessors, cluster = tuple(map(str, value["predecessors"])), str(value.get("cluster", ""))
        return Binding(value["topic"], value["topic_id"], value["table_id"], int(value["epoch"]), predecessors, rebase, cluster)


def _pairs(values: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(partition), int(offset)) for partition, offset in values)


def _gaps(values: Iterable[Sequence[str | int]]) -> tuple[Gap, ...]:
    return tuple((str(topic_id), int(partition), int(start), int(end)) for topic_id, partition, start, end in values)


def read_binding(files: Files, state: str) -> Binding | None:
    """The binding kept in the folder `state`, or None for a checkpoint that has none yet. Raises CheckpointTorn."""
    data = files.read(f"{state}/{FILE}")
    if data is None:
        return None
    try:
        return Binding.from_json(data)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointTorn(state, FILE) from error


def prepared_binding(files: Files, places: Places) -> Binding | None:
    """That of a checkpoint which a rebase has made and not put in place; it came last, and made it whole. None without such a one."""
    try:
        return read_binding(files, places.prepared_state)
    except CheckpointTorn:
        return None


def write_binding(files: Files, state: str, binding: Binding) -> None:
    """Put the binding in place, atomically."""
    files.write(f"{state}/{FILE}", binding.to_json().encode())
