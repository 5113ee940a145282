"""Fixes for kafka-python's group coordinator, which loses state during a rebalance."""

from __future__ import annotations

from typing import Any


def notice_every_loss(coordinator: Any) -> None:
    """Report lost partitions also when a member learns during a rebalance that the group removed it; kafka-python 3.0.12 does not.

    It checks for lost partitions once per rebalance, before the first JoinGroup. That request can fail to reach the broker for longer than
    the session, and other members then get the partitions. The member rejoins as a new one, but with its old fetch positions: a partition
    that is assigned to it again counts as never lost, and the work of the other members is repeated. This patch makes the member check
    again before it joins as a new one.
    """
    reset = coordinator.reset_generation

    def reset_and_check_again(*arguments: Any, **named: Any) -> None:
        reset(*arguments, **named)
        coordinator.rejoining = False

    coordinator.reset_generation = reset_and_check_again


def finish_every_rebalance(coordinator: Any) -> None:
    """Keep a rebalance pending until its assignment arrives; kafka-python 3.0.12 forgets one that a change of the topics started.

    The leader compares its last assignment with the existing partitions, and counts new ones as assigned before the broker has answered.
    If a poll ends in between, the answer is never processed: new partitions are not read, heartbeats stay off, and the broker removes the
    member from the group.
    """
    needed = coordinator.need_rejoin

    def needed_until_finished() -> bool:
        if not needed():
            return False
        coordinator.request_rejoin()
        return True

    coordinator.need_rejoin = needed_until_finished


def ask_offsets_anew(coordinator: Any) -> None:
    """Send a request for committed offsets at the next time that they are asked for.

    kafka-python 3.0.12 keeps a request that timed out, and gives its late answer to whoever asks for the same partitions next. By then
    the partitions may have had another owner, whose work would be done again.
    """
    coordinator._offset_fetch_futures.clear()
