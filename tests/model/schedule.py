"""Schedules: random walks from a seed, their replay, and the smallest schedule that still fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.model.driver import Mutations
from tests.model.invariants import Violation
from tests.model.world import Op, Setting, World

# The most remedies in a row: a start, a seek, an accepted gap. A remedy that only leads back to itself is no remedy.
REMEDIES_MAX = 10
RUN_STEPS = 2000
REMEDIES: dict[str, Op] = {
    "TABLE_REPLACED": ("earliest",),
    "TABLE_REWOUND": ("table",),
    "QUARANTINE_REWOUND": ("table",),
    "HISTORY_GONE": ("earliest",),
    "TOPIC_RECREATED": ("earliest",),
    "TOPIC_CHANGED": ("table",),
    "RECORDS_EXPIRED": ("table", (), True),
}


@dataclass(frozen=True)
class Schedule:
    """A setting and its operations."""

    setting: Setting = field(default=Setting())
    ops: tuple[Op, ...] = ()
    mutations: Mutations = field(default=Mutations())

    def __str__(self) -> str:
        return "\n".join([f"Schedule({self.setting!r}, (", *(f"    {op!r}," for op in self.ops), "))"])


def play(schedule: Schedule) -> tuple[World, Violation | None]:
    """Play a schedule until all drivers have ended. Returns the world and the violation, if there is one."""
    world = World(schedule.setting, schedule.mutations)
    try:
        for op in schedule.ops:
            world.apply(op)
        to_rest(world)
    except Violation as violation:
        return world, violation
    return world, None


def walk(seed: int, mutations: Mutations = Mutations(), begin: Sequence[Op] = ()) -> tuple[Schedule, World, Violation | None]:
    """One random schedule: after `begin`, each operation is chosen from the current state."""
    rng = random.Random(seed)
    roll = rng.random
    setting = Setting(
        1 + (roll() < 0.3),
        1 + int(roll() * 3),
        (1, 1, 2, 50)[int(roll() * 4)],
        "latest" if roll() < 0.1 else "earliest",
        roll() < 0.3,
        1 + (roll() < 0.3),
    )
    world = World(setting, mutations)
    ops: list[Op] = []
    try:
        for number in range(len(begin) + 4 + int(roll() * 14)):
            op = begin[number] if number < len(begin) else choose(rng, world)
            ops.append(op)
            world.apply(op)
        to_rest(world)
    except Violation as violation:
        return Schedule(setting, tuple(ops), mutations), world, violation
    return Schedule(setting, tuple(ops), mutations), world, None


def to_rest(world: World) -> None:
    """Without more faults, run one start to the end of the topic, with the command that each refusal names. Raises Violation."""
    world.drivers.clear()
    world.limit = 99
    codes: list[str] = []
    seeks: list[Op] = [("earliest",), ("table",)]
    aim: Op = ()
    while len(codes) < REMEDIES_MAX:
        world.error = None
        if aim:
            world.apply(("seek", 0, *aim))
            world.apply(("go", 0, RUN_STEPS))
        if world.error is None:
            aim = ()
            world.apply(("go", 0, RUN_STEPS))
            world.apply(("stop", 0))
        if world.error is None:
            try:
                return world.invariants.at_rest()
            except Violation:
                # If a start was refused, or a driver continued on a copy, verify may have more findings, and names a seek.
                reported = world.invariants.findings() and (world.beneath or world.refused)
                if not seeks or not reported or not world.invariants.excuse("verify asks for a seek"):
                    raise
            aim = seeks.pop()
            continue
        code = world.error.code
        codes.append(code)
        if not world.harmed:
            raise Violation("I6", f"nothing was harmed, but a start was refused: {world.error}")
        if code == "GAP_NOT_ACCEPTED" and aim and _expired(world):
            aim = (aim[0], (), True)
        elif code == "TABLE_FOREIGN":
            world.apply(("drop", 0))
        elif code in REMEDIES:
            aim = REMEDIES[code]
        else:
            raise Violation("I6", f"{' → '.join(codes)}: {world.error}")
    raise Violation("I6", f"the remedies do not help: {' → '.join(codes)}")


def _expired(world: World) -> bool:
    return any(any(topic.log_start) for topic in world.topics)


# Each harm with its weight in the random choice.
HARMS: dict[str, tuple[float, Callable[[random.Random, World], Op]]] = {
    "kill": (12, lambda rng, world: ("kill", rng.randrange(3))),
    "stop": (2, lambda rng, world: ("stop", rng.randrange(3))),
    "restore": (10, lambda rng, world: ("restore", _which(rng), rng.choice((1, 1, 2, 2, 3, 4, 5)))),
    "overwrite": (3, lambda rng, world: ("overwrite", rng.randrange(2), rng.randrange(3))),
    "replace": (1, lambda rng, world: ("replace", rng.randrange(2))),
    "drop": (5, lambda rng, world: ("drop", _which(rng))),
    "copy": (7, lambda rng, world: ("copy", _which(rng), rng.choice((1, 1, 2, 2, 3, 4, 5)))),
    "save": (4, lambda rng, world: ("save",)),
    "put_back": (5, lambda rng, world: ("put_back", *(each for each in range(4) if rng.random() < 0.5))),
    "clean": (4, lambda rng, world: ("clean", _which(rng))),
    "optimize": (2, lambda rng, world: ("optimize", rng.randrange(2))),
    "lose": (3, lambda rng, world: ("lose",)),
    "erase": (4, lambda rng, world: ("erase", rng.randrange(5))),
    "retire": (3, lambda rng, world: ("retire", rng.randrange(5))),
    "delete": (4, lambda rng, world: ("delete", rng.randrange(5))),
    "expire": (5, lambda rng, world: ("expire", *_partition(rng, world, rng.randint(1, 5)))),
    "recreate": (3, lambda rng, world: ("recreate", rng.randrange(len(world.topics)))),
    "partition": (2, lambda rng, world: ("partition", rng.randrange(len(world.topics)))),
    "join": (9, lambda rng, world: ("join",)),
    "leave": (4, lambda rng, world: ("leave",)),
    "strict": (8, lambda rng, world: ("strict", not world.strict)),
}
NAMES, WEIGHTS = list(HARMS), [0.0]
for _weight, _ in HARMS.values():
    WEIGHTS.append(WEIGHTS[-1] + _weight)
WEIGHTS = WEIGHTS[1:]
STEPS = (1, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 40)


def choose(rng: random.Random, world: World) -> Op:
    """A random operation; likely ones are chosen more often."""
    roll = rng.random()
    if roll < 0.22 or not any(any(topic.partitions) for topic in world.topics):
        return _produce(rng, world)
    if roll < 0.62:
        return ("go", (0, 0, 0, 1, 1, 2)[int(rng.random() * 6)], STEPS[int(rng.random() * len(STEPS))])
    if roll < 0.72:
        kind = ("table", "table", "earliest", "earliest", "latest", "offsets")[int(rng.random() * 6)]
        offsets = tuple(rng.randint(0, 6) for _ in range(rng.randint(1, 2))) if kind == "offsets" else ()
        return ("seek", rng.randrange(3), kind, offsets, rng.random() < 0.4)
    return HARMS[rng.choices(NAMES, cum_weights=WEIGHTS)[0]][1](rng, world)


def _which(rng: random.Random) -> int:
    return (0, 0, 0, 1, 1, 2)[int(rng.random() * 6)]


def _produce(rng: random.Random, world: World) -> Op:
    records = []
    for _ in range(1 + int(rng.random() * 3)):
        id, roll = int(rng.random() * 6), rng.random()
        kind = "good" if roll < 0.6 else "poison" if roll < 0.72 else "odd"
        # Each id has its own payload; sometimes it has another one, which is a conflict.
        records.append(None if roll > 0.9 else (id, 10 * id + (rng.random() < 0.15), kind))
    return ("produce", *_partition(rng, world, tuple(records)))


def _partition(rng: random.Random, world: World, what: object) -> Op:
    """A partition, `what` is to happen there, and its topic."""
    topic = rng.randrange(len(world.topics))
    return (rng.randrange(len(world.topics[topic].partitions)), what, topic)


def shrunk(schedule: Schedule, promise: str, tries: int = 4000) -> Schedule:
    """The smallest schedule that a greedy search finds for the same broken guarantee: fewer operations, then simpler ones."""
    best, left, changed = schedule, tries, True
    while changed and left > 0:
        changed = False
        for candidate in _simpler(best):
            left -= 1
            violation = play(candidate)[1]
            if violation is not None and violation.promise == promise:
                best, changed = candidate, True
                break
            if left <= 0:
                break
    return best


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    ops = schedule.ops
    for size in (8, 4, 2, 1):
        for start in range(0, len(ops), size):
            yield replace(schedule, ops=(*ops[:start], *ops[start + size :]))
    for index, op in enumerate(ops):
        for simple in _simpler_op(op):
            yield replace(schedule, ops=(*ops[:index], simple, *ops[index + 1 :]))
    for setting in (
        Setting(),
        Setting(schedule.setting.partitions),
        replace(schedule.setting, ledger_every=1),
        replace(schedule.setting, limit=2),
    ):
        if schedule.setting != setting and schedule.setting.starting == setting.starting:
            yield replace(schedule, setting=setting)


def _simpler_op(op: Op) -> Iterator[Op]:
    if op[0] == "produce":
        for index in range(len(op[2]) if len(op[2]) > 1 else 0):
            yield (*op[:2], (*op[2][:index], *op[2][index + 1 :]), *op[3:])
    elif op[0] == "go":
        if op[2] > 1:
            yield (*op[:2], op[2] // 2)
            yield (*op[:2], op[2] - 1)
        if op[1]:
            yield ("go", 0, op[2])
    elif op[0] in ("restore", "copy") and op[2] > 1:
        yield (*op[:2], op[2] - 1)
