"""Who reads an error and does what it says: the remedies as the refusals name them, and `ingest rebase` as its command runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.errors import IngestError, RunStopped
from ingest.places import Places
from ingest.stream.binding import FILE
from ingest.stream.rebase import Rebaser
from ingest.stream.rebase_plan import Aim
from ingest.stream.topic import Topic
from tests.model import kafka
from tests.model.driver import Locked
from tests.model.engine import Session

if TYPE_CHECKING:
    from tests.model.world import World

# (code, what mends it): how `ingest rebase` is called, or what else is done; two where the message offers two.
TO_TABLE, TO_EARLIEST, ACCEPT, NEWEST, START = "table", "earliest", "accept", "restore to the newest state", "start again"
REMEDIES: dict[str, tuple[str, ...]] = {
    "CHECKPOINT_LOST": (TO_TABLE,),
    "TABLE_FOREIGN": ("move the table away",),
    "TABLE_OWNED": (TO_TABLE,),
    "TABLE_REPLACED": (TO_EARLIEST,),
    "CHECKPOINT_OLD": (TO_TABLE,),
    "TABLE_REWOUND": (TO_TABLE, NEWEST),
    "CHECKPOINT_TORN": (TO_TABLE,),
    "QUARANTINE_REWOUND": (TO_TABLE, NEWEST),
    "HISTORY_GONE": (TO_EARLIEST,),
    "TOPIC_RECREATED": (TO_EARLIEST,),
    "RECORDS_EXPIRED": (ACCEPT,),
    "BROKER_BEHIND": (TO_EARLIEST,),
    "GAP_NOT_ACCEPTED": (ACCEPT,),
    "CONTRACT_CHANGED": ("the former contract", TO_TABLE),
    "CONTRACT_DAMAGED": (TO_TABLE,),
    "BATCHES_MISSING": (START,),
    "BATCH_DIFFERS": (TO_TABLE,),
    "LOCKED": (START,),
}


class ModelRebaser(Rebaser):
    """Rebaser, from a world in place of a session."""

    def __init__(self, world: World, places: Places) -> None:
        self.session: Any = Session(world)
        self.contract = world.contract
        self.places = places
        self.topic = Topic(kafka.NAME, world.topic.id, tuple(range(len(world.topic.partitions))))
        self.kafka: Any = None
        self._files: Any = world.files
        self._lake: Any = world.files
        self._prepared = places.prepared


def bindings(world: World, places: Places) -> tuple[bytes | None, ...]:
    """Whose the checkpoint is and what it is bound to, and so of the one that a rebase has prepared."""
    read = world.files.read
    each = ((read(f"{root}/metadata"), read(f"{root}/oncelake/{FILE}")) for root in (places.checkpoint, places.prepared))
    return tuple(None if bound is None else (query_id or b"") + bound for query_id, bound in each)


def rebase(world: World, places: Places, kind: str, offsets: tuple[int, ...], *, accept_gap: bool) -> None:
    """`ingest rebase --to kind`. Raises as the command."""
    if world.drivers:
        raise Locked
    rebaser = ModelRebaser(world, places)
    if rebaser.interrupted:
        rebaser.finish()
        return
    bounds = world.topic.bounds()
    given = {p: first + offset % (end - first + 1) for (p, (first, end)), offset in zip(bounds.items(), offsets, strict=False)}
    aim: Any = Aim(kind, tuple(given.items()) if kind == "offsets" else ())  # type: ignore[arg-type]
    rebaser.publish(rebaser.plan(aim, accept_gap=accept_gap))


def mend(world: World, error: Exception, way: int) -> None:
    """Do what mends `error` on the home checkpoint; what that raises is the next error."""
    if not isinstance(error, IngestError):
        return  # Spark's and the disk's: start again
    # A run that stops by itself says: start again, preflight tells what is missing. But for what Delta itself skips.
    again = isinstance(error, RunStopped) and error.code in ("TABLE_OWNED", "TABLE_REWOUND") and "start" in error.remedy
    ways = (START,) if again else REMEDIES.get(error.code, (START,))
    remedy = ways[way % len(ways)]
    if error.code == "TABLE_REWOUND" and "bring the ledger back" in error.remedy:
        if way % 2 == 0:
            _to_newest(world, 2)
        else:
            world.apply(("drop", 2))
    elif remedy == NEWEST:
        _to_newest(world, 1 if error.code == "QUARANTINE_REWOUND" else 0)
    elif remedy == "move the table away":
        world.apply(("drop", 0))
    elif remedy == "the former contract":
        world.strict = not world.strict
    elif remedy != START:
        kind, accept = (TO_TABLE, True) if remedy == ACCEPT else (remedy, False)
        world.apply(("rebase", 0, kind, accept, (), 0, ()))


def _to_newest(world: World, which: int) -> None:
    """RESTORE to the newest state that any version had: the one with the most batches in force."""
    table = world.tables.get(_tables()[which])
    if table is None:
        return

    def batches(number: int) -> int:
        return sum(table.versions[each].commit.mark is not None for each in table.versions[number].force)

    best = max(range(table.log_from, len(table.versions)), key=lambda number: (batches(number), number))
    world.apply(("restore", which, table.number - best, False))


def _tables() -> tuple[str, str, str]:
    from tests.model.world import HOME

    return HOME.target, HOME.quarantine, HOME.ledger
