"""The faults, each a small play: what is done to a candidate, at places drawn from the seed, the same for all.

A play ends when everything that can still come has come; then the judge reads.
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
    """A fault: what it is in words, which topic shows its harm, and how it is played; `play` returns how often it struck."""

    name: str
    words: str
    harms: str  # `source` or `sink`
    play: Callable[[Stage, Random], int]


def reply_lost(stage: Stage, chance: Random) -> int:
    """The broker has written a batch, and the connection breaks before its reply is through; with transactions a commit's, too."""
    groups = max(stage.records // stage.group, 1)
    with Proxy(stage.servers) as proxy:
        places = sorted(chance.sample(range(groups), min(REPLIES_LOST, groups)))
        # Each fault lets so many replies pass, and does not see those that one before it has taken.
        lost = [proxy.cut_reply(Api.PRODUCE, skip=place - before) for before, place in enumerate(places)]
        lost.append(proxy.cut_reply(Api.END_TXN, skip=chance.randrange(groups)))
        job = replace(stage.sending, servers=proxy.bootstrap_servers)
        stage.ended(stage.start(job), job)
        return sum(fault.struck for fault in lost)


def producer_killed(stage: Stage, chance: Random) -> int:
    """SIGKILL in the middle of a group; then, after a restart, when a group is delivered and not yet noted; then it comes to its end."""
    middle = _within(stage, chance, 0.2, 0.45) + chance.randrange(1, max(stage.group, 2))
    for crash_point in ({"step": "handed", "number": middle}, {"step": "delivered", "number": _within(stage, chance, 0.55, 0.8)}):
        stage.killed(stage.start(replace(stage.sending, crash_point=crash_point)))
    stage.ended(stage.start(stage.sending), stage.sending)
    return 2


def consumer_killed(stage: Stage, chance: Random) -> int:
    """SIGKILL when work is done and its offsets are not committed (at_most_once: committed, and not all of the work done)."""
    stage.fill()
    crash_point = {"step": "worked", "number": _within(stage, chance, 0.3, 0.7) + stage.group // 2}
    stage.killed(stage.start(replace(stage.working, crash_point=crash_point)))
    stage.stop(stage.worked_off(stage.start(stage.working), stage.working))
    return 1


def rebalance(stage: Stage, chance: Random) -> int:
    """A consumer stands still (SIGSTOP) between work and commit until the group has given its partitions to another; then it wakes."""
    stage.fill()
    crash_point = {"step": "worked", "number": _within(stage, chance, 0.3, 0.7) + stage.group // 2, "kind": "SIGSTOP"}
    zombie = stage.start(replace(stage.working, crash_point=crash_point))
    stage.until(lambda: any(line.startswith("SIGSTOP at") for line in stage.said()), "a worker stands still")
    job = replace(stage.working, instance=1)
    heir = stage.worked_off(stage.start(job), job)
    zombie.send_signal(signal.SIGCONT)
    stage.quiet(stage.sink)
    stage.stop(zombie)
    stage.stop(heir)
    return 1


def broker_bounced(stage: Stage, chance: Random) -> int:
    """SIGKILL to the broker while a producer and a consumer are at work, and a start on the same data."""
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
    """A number of record at the beginning of a group, in this stretch of the whole."""
    return round(chance.uniform(low, high) * stage.records / stage.group) * stage.group
