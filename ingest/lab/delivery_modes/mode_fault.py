"""The faults. Each function plays one fault on a candidate, at points drawn from the seed, which are the same for all candidates.

It returns when no more records can arrive; then the judge reads the topic.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from ingest.lab.delivery_modes.stage import Stage
from ingest.lab.proxy import Api, Proxy

_PAUSE_S: Final = 0.05
REPLIES_LOST: Final = 3


@dataclass(frozen=True)
class ModeFault:
    """A fault: its description, the topic that shows its harm, and `play`, which returns how often the fault struck."""

    name: str
    words: str
    harms: str  # `source` or `sink`
    play: Callable[[Stage, Random], int]


def reply_lost(stage: Stage, chance: Random) -> int:
    """The connection breaks after the broker has written a batch and before its reply arrives; with transactions also at a commit."""
    groups = max(stage.records // stage.group, 1)
    with Proxy(stage.servers) as proxy:
        places = sorted(chance.sample(range(groups), min(REPLIES_LOST, groups)))
        # Each fault lets `skip` replies pass and does not count replies that an earlier fault has cut.
        lost = [proxy.cut_reply(Api.PRODUCE, skip=place - before) for before, place in enumerate(places)]
        lost.append(proxy.cut_reply(Api.END_TXN, skip=chance.randrange(groups)))
        job = replace(stage.sending, servers=proxy.bootstrap_servers)
        stage.ended(stage.start(job), job)
        return sum(fault.struck for fault in lost)


def producer_killed(stage: Stage, chance: Random) -> int:
    """SIGKILL in the middle of a group; after a restart again, when a group is delivered but not yet noted; then a run to the end."""
    middle = _within(stage, chance, 0.2, 0.45) + chance.randrange(1, max(stage.group, 2))
    for crash_point in ({"step": "handed", "number": middle}, {"step": "delivered", "number": _within(stage, chance, 0.55, 0.8)}):
        stage.killed(stage.start(replace(stage.sending, crash_point=crash_point)))
    stage.ended(stage.start(stage.sending), stage.sending)
    return 2


def consumer_killed(stage: Stage, chance: Random) -> int:
    """SIGKILL after the work and before the commit of its offsets (at_most_once: after the commit and before all work is done)."""
    stage.fill()
    crash_point = {"step": "worked", "number": _within(stage, chance, 0.3, 0.7) + stage.group // 2}
    stage.killed(stage.start(replace(stage.working, crash_point=crash_point)))
    stage.stop(stage.worked_off(stage.start(stage.working), stage.working))
    return 1


def rebalance(stage: Stage, chance: Random) -> int:
    """SIGSTOP pauses a consumer between work and commit until another has processed its partitions; then SIGCONT wakes it."""
    stage.fill()
    crash_point = {"step": "worked", "number": _within(stage, chance, 0.3, 0.7) + stage.group // 2, "kind": "SIGSTOP"}
    zombie = stage.start(replace(stage.working, crash_point=crash_point))
    stage.until(lambda: any(line.startswith("SIGSTOP at") for line in stage.said()), "a worker is paused")
    job = replace(stage.working, instance=1)
    heir = stage.worked_off(stage.start(job), job)
    zombie.send_signal(signal.SIGCONT)
    stage.quiet(stage.sink)
    stage.stop(zombie)
    stage.stop(heir)
    return 1


def broker_bounced(stage: Stage, chance: Random) -> int:
    """SIGKILL to the broker while a producer and a consumer work, then a restart on the same data."""
    job = replace(stage.sending, pause_s=_PAUSE_S)
    worker, sender = stage.start(stage.working), stage.start(job)
    number = _within(stage, chance, 0.3, 0.7)
    stage.until(lambda: stage.reported.after("begun") >= number, "the sender is half done")
    stage.broker.kill()
    stage.broker.start()
    stage.ended(sender, job)
    stage.settled(stage.source)
    stage.stop(stage.worked_off(worker, stage.working))
    return 1


FAULTS: Final = (
    ModeFault("reply_lost", "reply lost", "source", reply_lost),
    ModeFault("producer_killed", "producer killed", "source", producer_killed),
    ModeFault("consumer_killed", "consumer killed", "sink", consumer_killed),
    ModeFault("rebalance", "rebalance", "sink", rebalance),
    ModeFault("broker_bounced", "broker bounced", "sink", broker_bounced),
)


def _within(stage: Stage, chance: Random, low: float, high: float) -> int:
    """The number of the first record of a group, between the shares `low` and `high` of all records."""
    return round(chance.uniform(low, high) * stage.records / stage.group) * stage.group
