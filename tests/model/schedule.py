"""Schedules: random walks from a seed, their replay, and the smallest one that still goes wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ingest.errors import IngestError
from ingest.stream.binding import read_binding
from tests.model import engine
from tests.model.known import known
from tests.model.truth import Violation
from tests.model.world import HOME, Op, Planted, Setting, World

# A sane operator is through after three or four; a remedy that leads to itself again is none.
REMEDIES_MAX = 9
RUN_STEPS = 600


@dataclass(frozen=True)
class Schedule:
    """A setting and what happens in it."""

    setting: Setting
    ops: tuple[Op, ...] = ()
    planted: Planted = field(default=Planted())

    def __str__(self) -> str:
        return "\n".join([f"Schedule({self.setting!r}, (", *(f"    {op!r}," for op in self.ops), "))"])


class _Current:
    """The world that the engine's modules see."""

    world: World


def judged() -> World:
    """The world of the last schedule."""
    return _Current.world


@contextmanager
def engine_connected() -> Iterator[None]:
    """The engine's modules see the world that is at work."""
    with engine.connected(lambda: _Current.world):
        yield


def play(schedule: Schedule) -> Violation | None:
    """Let it happen, then let an operator bring it to rest; the promise that was broken, if one was."""
    _Current.world = world = World(schedule.setting, schedule.planted)
    try:
        for op in schedule.ops:
            world.apply(op)
        to_rest(world)
    except Violation as violation:
        return violation
    return None


def world_after(*ops: Op) -> World:
    """The state that these leave, with nobody who mends it."""
    _Current.world = world = World()
    for op in ops:
        world.apply(op)
    return world


def walk(seed: int, planted: Planted = Planted(), begin: Sequence[Op] = ()) -> tuple[Schedule, Violation | None]:
    """One random schedule: after `begin` each operation is chosen on the state at hand."""
    rng = random.Random(seed)
    setting = Setting(
        partitions=rng.choice((1, 1, 2)),
        limit=rng.randint(1, 3),
        conflicts=rng.choice(("batch", "batch", "table")),
        ledger_every=rng.choice((1, 1, 2, 50)),
        skips_by_statistics=rng.random() < 0.3,
    )
    _Current.world = world = World(setting, planted)
    ops: list[Op] = []
    try:
        for number in range(len(begin) + rng.randint(4, 14)):
            op = begin[number] if number < len(begin) else choose(rng, world)
            ops.append(op)
            world.apply(op)
        to_rest(world)
    except Violation as violation:
        return Schedule(setting, tuple(ops), planted), violation
    return Schedule(setting, tuple(ops), planted), None


def to_rest(world: World) -> None:
    """No more faults: all drivers end, then one runs to the end, mended as the errors say. Raises Violation."""
    for number in list(world.drivers):
        world.apply(("kill", number))
    world.limit = 9  # few batches for what is left
    codes: list[str] = []
    for attempt in range(REMEDIES_MAX):
        world.error = None
        world.apply(("go", 0, 0, False, RUN_STEPS, 0, ()))
        world.apply(("stop", 0))
        if world.error is None:
            binding = read_binding(world.files, HOME.state)
            world.truth.at_rest(rebased=binding is not None and binding.rebase is not None)
            return
        while world.error is not None and len(codes) < REMEDIES_MAX:
            codes.append(world.error.code if isinstance(world.error, IngestError) else repr(world.error))
            world.apply(("mend", attempt // 3))
    raise Violation("STUCK", f"{len(codes)} remedies did not help: {' → '.join(codes)}")


# (file of a checkpoint, whether it is missing or empty). An empty contract.json is mended by nobody but a backup.
TEARS = [(name, missing) for name in ("metadata", "offsets-0", "offsets-1", "commits-0", "sources/0/0") for missing in (True, False)]
TEARS += [("oncelake/binding.json", True), ("oncelake/binding.json", False), ("oncelake/contract.json", True)]


def choose(rng: random.Random, world: World) -> Op:
    """An operation that does something in this state, likely ones more often."""
    roll = rng.random()
    if roll < 0.24 or not any(world.topic.partitions):
        return _produce(rng, world)
    if roll < 0.60:
        return _go(rng, world)
    if roll < 0.66 and world.error is not None:
        return ("mend", rng.randint(0, 1))
    if roll < 0.70:
        return _rebase(rng, interrupted=True)
    return _harm(rng, world)


def _produce(rng: random.Random, world: World) -> Op:
    records = []
    for _ in range(rng.randint(1, 4)):
        id, kind = rng.randint(0, 5), rng.choices(("good", "poison", "odd", "marker"), (54, 17, 14, 15))[0]
        # Ids have a payload of their own, and now and then another one: a conflict.
        payload = 10 * id + (rng.random() < 0.1)
        records.append(None if kind == "marker" else (id, payload, kind))
    return ("produce", rng.randrange(len(world.topic.partitions)), tuple(records))


def _go(rng: random.Random, world: World) -> Op:
    number = 0 if rng.random() < 0.8 else 1
    place = 0 if rng.random() < 0.85 else 1
    steps = rng.choice((1, 2, 3, 4, 5, 7, 9, 12, 20, 40))
    if rng.random() < 0.5:
        return ("go", number, place, rng.random() < 0.4, steps, 0, ())
    inner = rng.random()
    if inner < 0.55:
        then: Op = ("crash",)
    elif inner < 0.65:
        then = ("fail",)
    elif inner < 0.8:
        then = ("go", 1 - number, place if rng.random() < 0.5 else 1 - place, True, rng.randint(1, 12), 0, ())
    else:
        then = _harm(rng, world)
    return ("go", number, place, rng.random() < 0.4, steps, rng.randint(1, 24), then)


def _rebase(rng: random.Random, *, interrupted: bool) -> Op:
    kind = rng.choice(("table", "table", "earliest", "latest", "offsets"))
    offsets = tuple(rng.randint(0, 9) for _ in range(rng.randint(1, 2))) if kind == "offsets" else ()
    k = rng.randint(1, 14) if interrupted and rng.random() < 0.5 else 0
    then: Op = () if k == 0 else ("crash",) if rng.random() < 0.8 else ("fail",)
    return ("rebase", 0 if rng.random() < 0.9 else 1, kind, rng.random() < 0.5, offsets, k, then)


# How often each harm is chosen.
HARMS = {"kill": 9, "stop": 4, "save": 11, "put_back": 16, "lose": 5, "tear": 7, "restore": 15, "replace": 3, "drop": 3, "clean": 5}
HARMS |= {
    "delete": 4,
    "optimize": 3,
    "keep": 7,
    "bring_back": 12,
    "recreate": 4,
    "expire": 6,
    "partition": 3,
    "contract": 11,
    "limit": 6,
    "clock_jump": 1,
}


def _harm(rng: random.Random, world: World) -> Op:
    place = 0 if rng.random() < 0.85 else 1
    which = rng.choice((0, 0, 0, 1, 1, 2))
    name = rng.choices(list(HARMS), list(HARMS.values()))[0]
    arguments: dict[str, Op] = {
        "kill": (rng.randint(0, 1),),
        "stop": (rng.randint(0, 1),),
        "save": (place,),
        "put_back": (place, place if rng.random() < 0.8 else 1 - place),
        "lose": (place,),
        "tear": (place, *rng.choice(TEARS)),
        "restore": (which, rng.choice((1, 1, 1, 2, 2, 3, 4, 5)), rng.random()),
        "replace": (which, rng.random() < 0.5),
        "optimize": (rng.choice((0, 0, 1)),),
        "bring_back": (tuple(each for each in range(3) if rng.random() < 0.6), rng.random() < 0.4),
        "drop": (which,),
        "clean": (which, rng.randint(0, 2)),
        "delete": (rng.randint(0, 5),),
        "expire": (rng.randrange(len(world.topic.partitions)), rng.randint(1, 5)),
        "contract": (not world.strict,),
        "limit": (rng.randint(1, 4),),
        "clock_jump": (rng.choice((-24, 24)),),
    }
    if name == "restore":  # by version, by time, or from a copy of the folder
        table, back, way = arguments[name]
        return ("copy", table, back) if way > 0.8 else (name, table, back, way < 0.2)
    return (name, *arguments.get(name, ()))


def shrunk(schedule: Schedule, promise: str, name: str | None = None, tries: int = 4000) -> Schedule:
    """The smallest schedule found, greedily, that breaks the same promise (by the same known finding, or by none): fewer operations
    first, then simpler ones."""
    best, left, changed = schedule, tries, True
    while changed and left > 0:
        changed = False
        for candidate in _simpler(best):
            left -= 1
            found = play(candidate)
            if found is not None and found.promise == promise and known(_Current.world, found) == name:
                best, changed = candidate, True
                break
            if left <= 0:
                break
    return best


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    ops = schedule.ops
    for size in (8, 4, 2, 1):
        for start in range(0, len(ops), size):
            yield _with(schedule, [*ops[:start], *ops[start + size :]])
    for index, op in enumerate(ops):
        for simple in _simpler_op(op):
            yield _with(schedule, [*ops[:index], simple, *ops[index + 1 :]])
    if schedule.setting != Setting():
        yield Schedule(Setting(), ops, schedule.planted)
        yield Schedule(Setting(partitions=schedule.setting.partitions, limit=schedule.setting.limit), ops, schedule.planted)
        yield Schedule(Setting(schedule.setting.partitions, schedule.setting.limit, schedule.setting.conflicts), ops, schedule.planted)


def _simpler_op(op: Op) -> Iterator[Op]:
    if op[0] == "produce":
        for index in range(len(op[2])):
            if len(op[2]) > 1:
                yield (*op[:2], (*op[2][:index], *op[2][index + 1 :]))
            if op[2][index] is None or op[2][index][2] != "good":
                yield (*op[:2], (*op[2][:index], (index + 6, 0, "good"), *op[2][index + 1 :]))
        if op[1] != 0:
            yield ("produce", 0, op[2])
    elif op[0] == "go":
        if op[5]:
            yield (*op[:5], 0, ())
            yield op[6] if op[6][0] not in ("crash", "fail") else ("kill", op[1])
        if op[3]:
            yield (*op[:3], False, *op[4:])
        if op[4] > 1:
            yield (*op[:4], op[4] // 2, *op[5:])
            yield (*op[:4], op[4] - 1, *op[5:])
        if op[1]:
            yield ("go", 0, *op[2:])
        if op[2]:
            yield (*op[:2], 0, *op[3:])
    elif op[0] == "rebase":
        if op[5]:
            yield (*op[:5], 0, ())
        if op[2] != "table":
            yield (*op[:2], "table", *op[3:])
    elif op[0] == "restore" and op[2] > 1:
        yield (*op[:2], op[2] - 1, *op[3:])


def _with(schedule: Schedule, ops: Sequence[Op]) -> Schedule:
    return Schedule(schedule.setting, tuple(ops), schedule.planted)
